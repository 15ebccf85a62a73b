"""Sequential minimal optimisation: the convex quadratic problem that CCCP and label switching come down to.

    minimise ``a'Ka / 2 - sum_i z_i a_i``  subject to  ``sum_i a_i = 0`` and ``lower <= a <= upper``

in signed coefficients: ``f(x) = sum_i a_i k(x_i, x) + b``. An SVM has ``z = y`` and boxes between 0 and ``y C``; a
round of CCCP moves the boxes. A row that counts both as +1 and as -1 is still one variable: its ``z`` is +1 up to a
knee in its box, and -1 beyond.

One step moves the pair of coefficients that promises most (second order, Fan, Chen and Lin 2005). Rows that cannot
take part in any pair are left out: what remains is copied into a small kernel matrix of its own, on which the same loop
runs at the speed of its size. If the whole matrix is larger than its budget, such small matrices are all there is.
"""

from typing import Any, NamedTuple

import numpy as np
from numba.extending import intrinsic

from s3vm._utils.arrays import row_bytes
from s3vm._utils.compiled import compiled
from s3vm._utils.registry import state_part
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.kernels import Kernel

__all__ = ["Gram", "Solution", "feasible", "memory", "solve"]

_PANEL = 256  # rows of the kernel matrix that are computed together
_CHUNK = 128  # rows that are searched again for the one that was best
_PART = 1024  # rows that are solved for together where the whole matrix is too large
_FLATTEST = 1e-12  # curvature of a pair; two equal rows have none
_PATIENCE = 1000  # steps between two looks at what can be left out


def memory(rows: Rows, n: int, backend: Backend, at_once: int) -> int:
    """About how many bytes the `Gram` of `n` rows like these takes, with `at_once` problems being solved on it."""
    rows_and_variables = n * (4 * row_bytes(rows) + 25 * 8 * at_once)
    panels, a_value = 2 * 8 * _PANEL * n, backend.dtype.itemsize
    if _is_whole(n + 1, backend.cache_bytes, backend.dtype):
        return int(rows_and_variables + a_value * n**2 + max(panels, at_once * a_value * (n // 2) ** 2))
    return int(rows_and_variables + at_once * (panels + a_value * _PART**2))


class Gram:
    """The kernel matrix of some rows: whole and shared if it fits into `n_bytes`, else in parts when they are needed.

    Any number of problems, in any threads, may share it. With `mean_of` there is one more row at the end, the mean of
    those rows: its coefficient is what holds the mean of f over them at its ``z``.

    Parameters
    ----------
    kernel : Kernel
    rows : Rows of shape (n, d)
    n_bytes : int
        The budget. A matrix of up to 1,024 rows is always taken.
    dtype : float32 or float64
        Of the values that are kept. They are computed in float64, and so are all sums.
    mean_of : slice or None
    """

    def __init__(
        self, kernel: Kernel, rows: Rows, n_bytes: int, dtype: Any = np.float32, mean_of: slice | None = None
    ) -> None:
        self.dtype = np.dtype(dtype)
        self._kernel, self._rows = kernel, rows.astype(np.float64)
        n_rows = rows.shape[0]
        self._everyone = np.arange(n_rows)
        self.n = n_rows + (mean_of is not None)
        self.whole: Array | None = None
        self.mean: Array | None = None
        if _is_whole(self.n, n_bytes, self.dtype):
            self.whole = np.empty((self.n, self.n), self.dtype)
            self._fill(self.whole[:n_rows, :n_rows], self._everyone)
            if mean_of is not None:
                mean = self.whole[:n_rows, :n_rows][mean_of].mean(axis=0, dtype=np.float64)
                self.whole[n_rows] = self.whole[:, n_rows] = np.append(mean, mean[mean_of].mean())
            self.diagonal = np.diag(self.whole).astype(np.float64)
            return
        self.diagonal = np.empty(self.n)
        for part in _panels(n_rows):
            self.diagonal[part] = np.diag(self._values(self._rows[part], self._rows[part]))
        if mean_of is not None:
            of_mean = self._everyone[mean_of]
            mean = self._sum(of_mean, np.full(len(of_mean), 1 / len(of_mean)))
            self.mean = np.append(mean, mean[mean_of].mean())
            self.diagonal[n_rows] = self.mean[n_rows]

    def part(self, at: Array) -> Array:
        """The kernel matrix of the variables `at`, in ascending order, as a copy."""
        if self.whole is not None:
            return _picked(self.whole, at)
        result = np.empty((len(at), len(at)), self.dtype)
        n_rows = np.count_nonzero(at < len(self._everyone))
        self._fill(result[:n_rows, :n_rows], at[:n_rows])
        if self.mean is not None and n_rows < len(at):  # at its end, as `at` ascends
            result[-1] = result[:, -1] = self.mean[at]
        return result

    def times(self, at: Array, values: Array) -> Array:
        """``sum_i values_i K[at_i]``, in float64."""
        if self.whole is not None:
            result = np.zeros(self.n)
            _add_rows(self.whole, at, values, result)
            return result
        if self.mean is None:
            return self._sum(at, values)
        real = at < len(self._everyone)
        result = np.append(self._sum(at[real], values[real]), self.mean[at[real]] @ values[real])
        return result + self.mean * values[~real].sum()

    def _values(self, rows: Rows, others: Rows) -> Array:
        values = self._kernel.gram(rows, others)
        if not np.isfinite(values.astype(self.dtype, copy=False)).all():
            raise ValueError("the kernel of the rows is not finite: standardise the features")
        return values

    def _fill(self, out: Array, at: Array) -> None:
        """The kernel matrix of the rows `at`: one triangle, and its mirror image."""
        rows = self._rows[at]
        for part in _panels(len(at)):
            out[part, part.start :] = self._values(rows[part], rows[part.start :])
            out[part.start :, part] = out[part, part.start :].T

    def _sum(self, at: Array, values: Array) -> Array:
        result = np.zeros(len(self._everyone))
        for part in _panels(len(at)):
            result += values[part] @ self._values(self._rows[at[part]], self._rows)
        return result


@state_part("SMO.Solution")
class Solution(NamedTuple):
    """Coefficients ``a``, what they give at every variable without intercept, ``f = Ka``, and how good they are.

    `gap` is the largest violation of the Karush-Kuhn-Tucker conditions by a pair of variables.
    """

    a: Array
    f: Array
    intercept: float
    gap: float
    n_steps: int


def solve(
    gram: Gram,
    z: Array,
    lower: Array,
    upper: Array,
    *,
    knee: Array | None = None,
    start: tuple[Array, Array | None] | None = None,
    tol: float = 1e-3,
    max_steps: int = 10_000_000,
) -> Solution:
    """Minimises ``a'Ka / 2 - sum_i z_i a_i`` over ``sum_i a_i = 0`` and ``lower <= a <= upper``.

    Parameters
    ----------
    gram : Gram
        ``K``; the arrays below are as long as it.
    z, lower, upper : arrays of shape (n,)
        Bounds may be infinite for one variable (the mean).
    knee : array of shape (n,) or None, default None
        Where in its box a variable's ``z`` falls by 2, from +1 to -1 for a row that counts as both; `upper` for one
        that counts as one.
    start : (a, f) or None, default None
        Coefficients to start from, and ``Ka`` if it is known. They need not be feasible.
    tol : float, default 1e-3
        The gap at which to stop.
    max_steps : int, default 10_000_000
        If they are not enough, the gap of the solution says so. In float32 it cannot fall far below 1e-7 times the
        largest coefficient.
    """
    box = (np.ascontiguousarray(one, dtype=np.float64) for one in (z, lower, upper if knee is None else knee, upper))
    all_of_it = _Variables(*_start(gram, lower, upper, start), gram.diagonal, *box)
    n_steps = 0
    while all_of_it.gap >= tol and n_steps < max_steps:
        at = np.flatnonzero(all_of_it.take_part())
        if gram.whole is not None and len(at) > gram.n // 2:
            n_steps += _steps(gram.whole, *all_of_it, tol, min(_PATIENCE, max_steps - n_steps))
            continue
        goal = tol
        if gram.whole is None and len(at) > _PART:
            at = np.sort(at[np.argsort(-all_of_it.violations()[at], kind="stable")[:_PART]])
            goal = max(tol, 0.1 * all_of_it.gap)
        n_steps += _solve_part(gram, at, all_of_it, goal, max_steps - n_steps)
    return Solution(all_of_it.a, all_of_it.f, all_of_it.intercept(), max(0.0, all_of_it.gap), n_steps)


def feasible(a: Array, lower: Array, upper: Array) -> Array:
    """`a` clipped to its box, the sum then brought back to 0 by those with most room, so that few are touched."""
    if lower.sum() > 0 or upper.sum() < 0:
        raise ValueError("no coefficients between these bounds have the sum 0")
    a = np.clip(a, lower, upper)
    total = a.sum()
    room = np.minimum(a - lower if total > 0 else upper - a, abs(total))
    order = np.argsort(-room, kind="stable")
    sooner = np.cumsum(room[order]) - room[order]
    a[order] -= np.sign(total) * np.clip(abs(total) - sooner, 0, room[order])
    return np.clip(a, lower, upper)


class _Variables(NamedTuple):
    """Some of the variables, or all: where they stand, and what they may do. `_steps` changes `a` and `f`."""

    a: Array
    f: Array
    diagonal: Array
    z: Array
    lower: Array
    knee: Array
    upper: Array

    def some(self, at: Array) -> "_Variables":
        """A copy of those at some places."""
        return _Variables(*(one[at] for one in self))

    def slopes(self) -> tuple[Array, Array]:
        """How fast the objective falls if a coefficient rises, and rises if it falls; infinite where it cannot."""
        a, f, _, z, lower, knee, upper = self
        up = np.where(a < knee, z, np.where(a < upper, z - 2, -np.inf))
        down = np.where(a > knee, z - 2, np.where(a > lower, z, np.inf))
        return up - f, down - f

    def ends(self) -> tuple[float, float]:
        """The most that is gained by raising a coefficient, and the least that is lost by lowering one."""
        up, down = self.slopes()
        return float(up.max()), float(down.min())

    @property
    def gap(self) -> float:
        highest, lowest = self.ends()
        return highest - lowest

    def take_part(self) -> Array:
        """Which variables are half of a pair that violates the conditions."""
        (up, down), (highest, lowest) = self.slopes(), self.ends()
        return (up > lowest) | (down < highest)

    def violations(self) -> Array:
        """By how much each variable is off the middle of the gap: the worst pair comes first."""
        (up, down), middle = self.slopes(), sum(self.ends()) / 2
        return np.maximum(up - middle, middle - down)

    def intercept(self) -> float:
        """What the free variables agree on, or the middle of what the bounded ones allow."""
        up, down = self.slopes()
        free = up == down
        if free.any():
            return float(up[free].mean())
        ends = [end for end in self.ends() if np.isfinite(end)]
        return float(np.mean(ends)) if ends else 0.0


def _start(gram: Gram, lower: Array, upper: Array, start: tuple[Array, Array | None] | None) -> tuple[Array, Array]:
    """Feasible coefficients, and what they give."""
    nothing = np.zeros(gram.n)
    wanted, f = (nothing, nothing) if start is None else start
    if np.shape(wanted) != nothing.shape or (f is not None and np.shape(f) != nothing.shape):
        raise ValueError(f"a start needs {gram.n} coefficients and what they give: those of another problem do not fit")
    a = feasible(wanted, lower, upper)
    before, f = (nothing, nothing) if f is None else (wanted, f)
    moved = np.flatnonzero(a != before)
    return a, f + gram.times(moved, (a - before)[moved])


def _solve_part(gram: Gram, at: Array, all_of_it: _Variables, tol: float, max_steps: int) -> int:
    """Solves for the variables `at`, the others staying as they are. Returns how many steps were made."""
    before = all_of_it.a.copy()
    K, part, n_steps = gram.part(at), all_of_it.some(at), 0
    while part.gap >= tol and n_steps < max_steps:
        n_steps += _steps(K, *part, tol, min(_PATIENCE, max_steps - n_steps))
        all_of_it.a[at] = part.a
        left = np.flatnonzero(part.take_part())
        if 0 < len(left) <= len(at) // 2:
            K, at, part = _picked(K, left), at[left], part.some(left)
    change = all_of_it.a - before
    moved = np.flatnonzero(change)
    all_of_it.f[:] += gram.times(moved, change[moved])
    return n_steps


def _picked(K: Array, at: Array) -> Array:
    result = np.empty((len(at), len(at)), K.dtype)
    _pick(K, at, result)
    return result


def _is_whole(n: int, n_bytes: int, dtype: np.dtype[Any]) -> bool:
    return n <= _PART or n**2 * dtype.itemsize <= n_bytes


def _panels(n: int) -> list[slice]:
    return [slice(start, min(start + _PANEL, n)) for start in range(0, n, _PANEL)]


_compiled = compiled(error_model="numpy")


def _choice(order):
    """The one of two numbers that `order` puts first, marked as free of NaN: else LLVM vectorises no maximum."""

    def pick(typingctx, one, other):
        def codegen(context, builder, signature, args):
            marks = ("nnan", "nsz")
            first = builder.fcmp_ordered(order, *args, flags=marks)
            return builder.select(first, *args, flags=marks)

        return one(one, one), codegen

    return intrinsic(pick)


_larger, _smaller = _choice(">"), _choice("<")


@_compiled
def _steps(K, a, f, diagonal, z, lower, knee, upper, tol, most):
    """At most `most` steps; `a` and ``f = Ka`` are brought up to date. Returns how many steps were made."""
    n = len(a)
    up, down = np.empty(n), np.empty(n)
    for r in range(n):
        up[r], down[r] = _slope(a[r], z[r], lower[r], knee[r], upper[r])
    i = j = 0
    moved = 0.0
    for step in range(most + 1):
        highest, lowest, chunk = _follow(f, K[i], K[j], moved, up, down)
        if highest - lowest < tol or step == most:
            break
        i = chunk
        while up[i] - f[i] != highest:
            i += 1
        j = _partner(f, K[i], diagonal, diagonal[i], down, highest)
        # The best step, or as far as both may go.
        end_i = knee[i] if a[i] < knee[i] else upper[i]
        end_j = knee[j] if a[j] > knee[j] else lower[j]
        room_i, room_j = end_i - a[i], a[j] - end_j
        curvature = max(diagonal[i] + diagonal[j] - 2.0 * K[i, j], _FLATTEST)
        moved = min((highest - (down[j] - f[j])) / curvature, room_i, room_j)
        a[i] = end_i if moved >= room_i else a[i] + moved
        a[j] = end_j if moved >= room_j else a[j] - moved
        up[i], down[i] = _slope(a[i], z[i], lower[i], knee[i], upper[i])
        up[j], down[j] = _slope(a[j], z[j], lower[j], knee[j], upper[j])
    return step


@_compiled
def _slope(a, z, lower, knee, upper):
    """``z`` just above and just below a coefficient; infinite where it cannot go there."""
    up = z if a < knee else (z - 2.0 if a < upper else -np.inf)
    down = z - 2.0 if a > knee else (z if a > lower else np.inf)
    return up, down


@_compiled
def _follow(f, Ki, Kj, moved, up, down):
    """Brings f up to date with the last step. Returns the two ends of the gap, and the chunk with the upper one."""
    highest, lowest, chunk = -np.inf, np.inf, 0
    for start in range(0, len(f), _CHUNK):
        here = slice(start, start + _CHUNK)
        fs, ki, kj, ups, downs = f[here], Ki[here], Kj[here], up[here], down[here]
        top, bottom = -np.inf, np.inf
        for r in range(len(fs)):
            value = fs[r] + moved * (np.float64(ki[r]) - np.float64(kj[r]))
            fs[r] = value
            top = _larger(ups[r] - value, top)
            bottom = _smaller(downs[r] - value, bottom)
        if top > highest:
            highest, chunk = top, start
        lowest = min(bottom, lowest)
    return highest, lowest, chunk


@_compiled
def _partner(f, Ki, diagonal, own, down, highest):
    """The variable with which i lowers the objective most: gain^2 / curvature."""
    best, chunk = -1.0, 0
    for start in range(0, len(f), _CHUNK):
        here = slice(start, start + _CHUNK)
        fs, ki, diagonals, downs = f[here], Ki[here], diagonal[here], down[here]
        top = -1.0
        for r in range(len(fs)):
            top = _larger(_promise(highest - (downs[r] - fs[r]), own + diagonals[r] - 2.0 * ki[r]), top)
        if top > best:
            best, chunk = top, start
    j = chunk
    while _promise(highest - (down[j] - f[j]), own + diagonal[j] - 2.0 * Ki[j]) != best:
        j += 1
    return j


@_compiled
def _promise(gain, curvature):
    gain, curvature = _larger(gain, 0.0), _larger(curvature, _FLATTEST)
    return gain * gain / curvature


@_compiled
def _pick(K, at, out):
    """``out = K[at][:, at]``."""
    for i in range(len(at)):
        row = K[at[i]]
        for j in range(len(at)):
            out[i, j] = row[at[j]]


@_compiled
def _add_rows(K, at, values, out):
    """``out += sum_i values_i K[at_i]``."""
    for i in range(len(at)):
        row, value = K[at[i]], values[i]
        for r in range(len(out)):
            out[r] += value * row[r]

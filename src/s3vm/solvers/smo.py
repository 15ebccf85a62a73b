"""Sequential minimal optimisation: the convex quadratic problem that CCCP and label switching come down to.

    minimise ``a'Ka / 2 - sum_i z_i a_i``  subject to  ``sum_i a_i = 0`` and ``lower <= a <= upper``

in signed coefficients: ``f(x) = sum_i a_i k(x_i, x) + b``. An SVM has ``z = y`` and boxes between 0 and ``y C``; a round
of CCCP moves the boxes. A row that counts both as +1 and as -1 is still one variable: its ``z`` is +1 up to a knee in
its box, and -1 beyond.

One step moves the pair of coefficients that promises most (second order, Fan, Chen and Lin 2005). Rows that cannot
take part in any pair are left out: what remains is copied into a small kernel matrix of its own, on which the same loop
runs at the speed of its size. If the whole matrix is larger than its budget, such small matrices are all there is.
"""

from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from s3vm._typing import Array, Rows
from s3vm.kernels import Kernel

__all__ = ["Gram", "Solution", "feasible", "solve"]

_PANEL = 256  # rows of the kernel matrix that are computed together
_CHUNK = 128  # rows that are searched again for the one that was best
_FEWEST_ROWS = 512  # that a small matrix may have, whatever the budget
_PATIENCE = 1000  # steps between two looks at what can be left out


class Gram:
    """The kernel matrix of some rows: whole and shared if it fits into `n_bytes`, else in parts when they are needed.

    Any number of problems, in any threads, may share it. With `mean_of` there is one more row at the end, the mean of
    those rows: its coefficient is what holds the mean of f over them at its ``z``.

    Parameters
    ----------
    kernel : Kernel
    rows : Rows of shape (n, d)
    n_bytes : int
        The budget; at least a matrix of 512 rows is taken.
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
        self.largest = max(_FEWEST_ROWS, int(np.sqrt(n_bytes / self.dtype.itemsize)))
        self.whole: Array | None = None
        self.alone: AbstractContextManager[Any] = nullcontext()
        self.mean: Array | None = None
        if self.n <= self.largest:
            self.whole = np.empty((self.n, self.n), self.dtype)
            self._fill(self.whole[:n_rows, :n_rows], self._everyone)
            if mean_of is not None:
                mean = self.whole[:n_rows][mean_of, :n_rows].mean(axis=0, dtype=np.float64)
                self.whole[n_rows, :n_rows] = self.whole[:n_rows, n_rows] = mean
                self.whole[n_rows, n_rows] = mean[mean_of].mean()
            self.diagonal = np.diag(self.whole).astype(np.float64)
        else:
            self.alone = Lock()  # held while there is a part: the budget is for one
            self.diagonal = np.empty(self.n)
            for part in _panels(n_rows):
                self.diagonal[part] = np.diag(kernel.gram(self._rows[part], self._rows[part]))
            if mean_of is not None:
                of_mean = self._everyone[mean_of]
                mean = self._sum(of_mean, np.full(len(of_mean), 1 / len(of_mean)))
                self.mean = np.append(mean, mean[mean_of].mean())
                self.diagonal[n_rows] = self.mean[n_rows]
        if not np.isfinite(self.diagonal).all() or (self.whole is not None and not np.isfinite(self.whole).all()):
            raise ValueError("the kernel of the rows is not finite: standardise the features")

    def part(self, at: Array) -> Array:
        """The kernel matrix of the variables `at`, as a copy."""
        if self.whole is not None:
            return self.whole[np.ix_(at, at)]
        result = np.empty((len(at), len(at)), self.dtype)
        real = at < len(self._everyone)
        n_real = int(real.sum())  # the mean, if it is there, is the last
        self._fill(result[:n_real, :n_real], at[:n_real])
        if self.mean is not None and n_real < len(at):
            result[-1] = result[:, -1] = self.mean[at]
        return result

    def times(self, at: Array, values: Array) -> Array:
        """``sum_i values_i K[at_i, :]``, in float64."""
        if self.whole is not None:
            result = np.zeros(self.n)
            _add_rows(self.whole, at, values, result)
            return result
        if self.mean is None:
            return self._sum(at, values)
        n_rows = len(self._everyone)
        real = at < n_rows
        result = np.append(self._sum(at[real], values[real]), self.mean[at[real]] @ values[real])
        return result + self.mean * values[~real].sum()

    def _fill(self, out: Array, at: Array) -> None:
        """The kernel matrix of the rows `at`: one triangle, and its mirror image."""
        rows = self._rows[at]
        for part in _panels(len(at)):
            out[part, part.start :] = self._kernel.gram(rows[part], rows[part.start :])
            out[part.start :, part] = out[part, part.start :].T

    def _sum(self, at: Array, values: Array) -> Array:
        result = np.zeros(len(self._everyone))
        for part in _panels(len(at)):
            result += values[part] @ self._kernel.gram(self._rows[at[part]], self._rows)
        return result


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
    """
    knee = upper if knee is None else knee
    box = _Box(*(np.ascontiguousarray(one, dtype=np.float64) for one in (z, lower, knee, upper)))
    a, f = _start(gram, box, start)
    everyone, n_steps = np.arange(gram.n), 0
    highest, lowest = _gap(a, f, box)
    while highest - lowest >= tol and n_steps < max_steps:
        if gram.whole is not None:
            n_steps += _steps(gram.whole, gram.diagonal, a, f, *box, tol, min(_PATIENCE, max_steps - n_steps))
            highest, lowest = _gap(a, f, box)
        at = everyone[_takes_part(a, f, box, highest, lowest)]
        goal = tol
        if len(at) > gram.largest:
            # The farthest from the middle on both sides, among them the worst pair.
            up, down = _slopes(a, box)
            away = np.maximum(up - f, f - down + highest + lowest)
            at = np.sort(at[np.argsort(-away[at], kind="stable")[: gram.largest]])
            goal = max(tol, 0.1 * (highest - lowest))
        if gram.whole is None or len(at) <= gram.n // 2:
            with gram.alone:
                n_steps += _solve_part(gram, at, a, f, box, goal, max_steps - n_steps)
            highest, lowest = _gap(a, f, box)
    return Solution(a, f, _intercept(a, f, box, highest, lowest), max(0.0, highest - lowest), n_steps)


def feasible(a: Array, lower: Array, upper: Array) -> Array:
    """`a` clipped to its box, the sum then brought back to 0 by all that have room, each in proportion to its room."""
    if lower.sum() > 0 or upper.sum() < 0:
        raise ValueError("no coefficients between these bounds have the sum 0")
    a = np.clip(a, lower, upper)
    for _ in range(3):  # once, but for rounding
        total = a.sum()
        room = a - lower if total > 0 else upper - a
        endless = np.isinf(room)
        room = endless.astype(np.float64) if endless.any() else room
        if total == 0 or room.sum() == 0:
            break
        a = np.clip(a - total * (room / room.sum()), lower, upper)
    return a


class _Box(NamedTuple):
    z: Array
    lower: Array
    knee: Array
    upper: Array


def _start(gram: Gram, box: _Box, start: tuple[Array, Array | None] | None) -> tuple[Array, Array]:
    if start is None:
        start = np.zeros(gram.n), np.zeros(gram.n)
    a = feasible(start[0], box.lower, box.upper)
    before, f = (np.zeros(gram.n), np.zeros(gram.n)) if start[1] is None else start
    assert f is not None
    moved = np.flatnonzero(a != before)
    return a, f + gram.times(moved, (a - before)[moved])


def _solve_part(gram: Gram, at: Array, a: Array, f: Array, box: _Box, tol: float, max_steps: int) -> int:
    """Solves for the variables `at`, the others staying as they are, and brings `a` and `f` up to date."""
    K, before, n_steps = gram.part(at), a[at], 0
    inner, all_at, diagonal = a[at], at, gram.diagonal[at]
    inner_f, inner_box = f[at], _Box(*(one[at] for one in box))
    while n_steps < max_steps:
        n_steps += _steps(K, diagonal, inner, inner_f, *inner_box, tol, min(_PATIENCE, max_steps - n_steps))
        a[at] = inner
        highest, lowest = _gap(inner, inner_f, inner_box)
        if highest - lowest < tol:
            break
        left = np.flatnonzero(_takes_part(inner, inner_f, inner_box, highest, lowest))
        if len(left) <= len(at) // 2:
            K, at, diagonal = K[np.ix_(left, left)], at[left], diagonal[left]
            inner, inner_f, inner_box = inner[left], inner_f[left], _Box(*(one[left] for one in inner_box))
    change = a[all_at] - before
    moved = change != 0
    f += gram.times(all_at[moved], change[moved])
    return n_steps


def _slopes(a: Array, box: _Box) -> tuple[Array, Array]:
    """``z`` just above and just below each coefficient; infinite where it cannot go there."""
    up = np.where(a < box.knee, box.z, np.where(a < box.upper, box.z - 2, -np.inf))
    down = np.where(a > box.knee, box.z - 2, np.where(a > box.lower, box.z, np.inf))
    return up, down


def _gap(a: Array, f: Array, box: _Box) -> tuple[float, float]:
    """The most that is to be gained by raising a coefficient, and the least that is lost by lowering one."""
    up, down = _slopes(a, box)
    return float((up - f).max()), float((down - f).min())


def _takes_part(a: Array, f: Array, box: _Box, highest: float, lowest: float) -> Array:
    """Whether a variable is half of a pair that violates the conditions."""
    up, down = _slopes(a, box)
    return (up - f > lowest) | (down - f < highest)


def _intercept(a: Array, f: Array, box: _Box, highest: float, lowest: float) -> float:
    """What the free variables agree on, or the middle of what the bounded ones allow."""
    up, down = _slopes(a, box)
    free = up == down
    if free.any():
        return float((up - f)[free].mean())
    ends = [end for end in (highest, lowest) if np.isfinite(end)]
    return float(np.mean(ends)) if ends else 0.0


def _panels(n: int) -> list[slice]:
    return [slice(start, min(start + _PANEL, n)) for start in range(0, n, _PANEL)]


# Without these two flags no maximum is vectorised. No sum is reordered by them, and infinities are still allowed.
_compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"nnan", "nsz"})


@_compiled
def _steps(K, diagonal, a, f, z, lower, knee, upper, tol, most):
    """At most `most` steps; `a` and ``f = Ka`` are brought up to date. Returns how many steps were made."""
    n = len(a)
    up, down = np.empty(n), np.empty(n)
    for r in range(n):
        up[r], down[r] = _slope(a[r], z[r], lower[r], knee[r], upper[r])
    i = j = 0
    moved = 0.0
    for step in range(most + 1):
        # What the last step did to f, and the two ends of the gap.
        Ki, Kj = K[i], K[j]
        highest, lowest, first = -np.inf, np.inf, 0
        for start in range(0, n, _CHUNK):
            top, bottom = -np.inf, np.inf
            for r in range(start, min(start + _CHUNK, n)):
                value = f[r] + moved * (np.float64(Ki[r]) - np.float64(Kj[r]))
                f[r] = value
                rise, fall = up[r] - value, down[r] - value
                top = rise if rise > top else top
                bottom = fall if fall < bottom else bottom
            if top > highest:
                highest, first = top, start
            lowest = min(lowest, bottom)
        if highest - lowest < tol or step == most:
            return step
        i = first
        while up[i] - f[i] != highest:
            i += 1
        # The partner with which the objective falls most: gain^2 / curvature.
        Ki, own = K[i], diagonal[i]
        best, first = -1.0, 0
        for start in range(0, n, _CHUNK):
            top = -1.0
            for r in range(start, min(start + _CHUNK, n)):
                score = _promise(highest, down[r] - f[r], own + diagonal[r] - 2.0 * np.float64(Ki[r]))
                top = score if score > top else top
            if top > best:
                best, first = top, start
        j = first
        while _promise(highest, down[j] - f[j], own + diagonal[j] - 2.0 * np.float64(Ki[j])) != best:
            j += 1
        # The best step, or as far as both may go.
        end_i = knee[i] if a[i] < knee[i] else upper[i]
        end_j = knee[j] if a[j] > knee[j] else lower[j]
        room_i, room_j = end_i - a[i], a[j] - end_j
        curvature = max(own + diagonal[j] - 2.0 * np.float64(Ki[j]), 1e-12)
        moved = min((highest - (down[j] - f[j])) / curvature, room_i, room_j)
        a[i] = end_i if moved >= room_i else a[i] + moved
        a[j] = end_j if moved >= room_j else a[j] - moved
        up[i], down[i] = _slope(a[i], z[i], lower[i], knee[i], upper[i])
        up[j], down[j] = _slope(a[j], z[j], lower[j], knee[j], upper[j])
    return most


@_compiled
def _slope(a, z, lower, knee, upper):
    up = z if a < knee else (z - 2.0 if a < upper else -np.inf)
    down = z - 2.0 if a > knee else (z if a > lower else np.inf)
    return up, down


@_compiled
def _promise(highest, fall, curvature):
    gain = highest - fall
    gain = gain if gain > 0.0 else 0.0
    curvature = curvature if curvature > 1e-12 else 1e-12
    return gain * gain / curvature


@_compiled
def _add_rows(K, at, values, out):
    for i in range(len(at)):
        row, value = K[at[i]], values[i]
        for r in range(len(out)):
            out[r] += value * np.float64(row[r])

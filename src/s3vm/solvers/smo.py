"""Sequential minimal optimisation: the convex quadratic problem that CCCP and label switching come down to.

    minimise ``a'Ka / 2 - sum_i z_i a_i``  subject to  ``sum_i a_i = 0`` and ``lower <= a <= upper``

in signed coefficients: ``f(x) = sum_i a_i k(x_i, x) + b``. An SVM has ``z = y`` and boxes between 0 and ``y C``; a
round of CCCP moves the boxes. A row that counts as both +1 and -1 is still one variable: its ``z`` is +1 up to a knee
in its box, and -1 beyond.

One step moves the pair of coefficients that promises most (second order, Fan, Chen and Lin 2005). Rows that
cannot be part of any pair are left out: the rest is copied into a small kernel matrix of its own, on which the same
loop is as fast as it is small. If the whole matrix exceeds its budget of memory, there are only such small matrices.
"""

from typing import NamedTuple

import numpy as np
from numba.extending import intrinsic

from s3vm._utils.compiled import compiled
from s3vm._utils.registry import state_part
from s3vm._utils.typing import Array
from s3vm.solvers.gram import Gram, submatrix

_CHUNK = 128  # variables that are searched again for the best one
_LEAST_CURVATURE = 1e-12  # of a pair; two equal rows have none
_SHRINK_EVERY = 1000  # steps


@state_part("SMO.Solution")
class Solution(NamedTuple):
    """Coefficients ``a``, the function without intercept at every variable, ``f = Ka``, and the intercept.

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

    One variable, the mean, may have infinite bounds. `knee` is where in its box a variable's ``z`` falls by 2: from +1
    to -1 for a row that counts as both; at `upper`, as by default, for a row that counts once. `start` are coefficients
    to start from, which need not be feasible, and ``Ka`` if it is known. If `max_steps` do not suffice to bring the gap
    below `tol`, the gap of the solution shows it: in float32 it cannot fall far below 1e-7 times the largest
    coefficient.
    """
    bounds = z, lower, upper if knee is None else knee, upper
    box = (np.ascontiguousarray(bound, dtype=np.float64) for bound in bounds)
    variables = _Variables(*_start(gram, lower, upper, start), gram.diagonal, *box)
    n_steps = 0
    while variables.gap >= tol and n_steps < max_steps:
        at = np.flatnonzero(variables.take_part())
        if gram.whole is not None and len(at) > gram.n // 2:
            n_steps += _steps(gram.whole, *variables, tol, min(_SHRINK_EVERY, max_steps - n_steps))
            continue
        goal = tol
        if gram.whole is None and len(at) > gram.part_size:
            at = np.sort(at[np.argsort(-variables.violations()[at], kind="stable")[: gram.part_size]])
            goal = max(tol, 0.1 * variables.gap)
        n_steps += _solve_part(gram, at, variables, goal, max_steps - n_steps)
    return variables.solution(n_steps)


def solve_svm(gram: Array, y: Array, costs: Array, tol: float, max_steps: int) -> Solution:
    """The SVM of rows with a float64 kernel matrix: boxes between 0 and ``y costs``, started from 0."""
    n = len(y)
    lower, upper = np.minimum(0.0, y * costs), np.maximum(0.0, y * costs)
    variables = _Variables(np.zeros(n), np.zeros(n), gram.diagonal().copy(), y, lower, upper, upper)
    n_steps = _steps(gram, *variables, tol, max_steps)
    return variables.solution(n_steps)


def feasible(a: Array, lower: Array, upper: Array) -> Array:
    """`a` clipped to its box, its sum brought back to 0 by the variables with most room, so that few change."""
    if lower.sum() > 0 or upper.sum() < 0:
        raise ValueError("no coefficients between these bounds have the sum 0")
    a = np.clip(a, lower, upper)
    total = a.sum()
    if abs(total) <= 1e-12 * np.abs(a).sum():  # rounding, for which no coefficient should leave its bound
        return a
    room = np.minimum(a - lower if total > 0 else upper - a, abs(total))
    order = np.argsort(-room, kind="stable")
    taken_before = np.cumsum(room[order]) - room[order]
    a[order] -= np.sign(total) * np.clip(abs(total) - taken_before, 0, room[order])
    return np.clip(a, lower, upper)


class _Variables(NamedTuple):
    """All variables or some of them: their values and bounds. `_steps` changes `a` and `f` in place."""

    a: Array
    f: Array
    diagonal: Array
    z: Array
    lower: Array
    knee: Array
    upper: Array

    def some(self, at: Array) -> "_Variables":
        """A copy of the variables `at`."""
        return _Variables(*(values[at] for values in self))

    def slopes(self) -> tuple[Array, Array]:
        """How fast the objective falls as a coefficient rises, and rises as it falls; infinite if it cannot move."""
        a, f, _, z, lower, knee, upper = self
        up = np.where(a < knee, z, np.where(a < upper, z - 2, -np.inf))
        down = np.where(a > knee, z - 2, np.where(a > lower, z, np.inf))
        return up - f, down - f

    def ends(self) -> tuple[float, float]:
        """The largest gain from raising a coefficient, and the smallest loss from lowering one."""
        up, down = self.slopes()
        return float(up.max()), float(down.min())

    @property
    def gap(self) -> float:
        highest, lowest = self.ends()
        return highest - lowest

    def take_part(self) -> Array:
        """Which variables are part of a pair that violates the conditions."""
        (up, down), (highest, lowest) = self.slopes(), self.ends()
        return (up > lowest) | (down < highest)

    def violations(self) -> Array:
        """How far each variable is from the middle of the gap; the worst pair has the largest values."""
        (up, down), middle = self.slopes(), sum(self.ends()) / 2
        return np.maximum(up - middle, middle - down)

    def solution(self, n_steps: int) -> Solution:
        """The intercept is the mean of what the free variables say, or the middle of what the bounded ones allow."""
        up, down = self.slopes()
        free, ends = up == down, (float(up.max()), float(down.min()))
        if free.any():
            intercept = float(up[free].mean())
        else:
            finite = [end for end in ends if np.isfinite(end)]
            intercept = sum(finite) / max(1, len(finite))
        return Solution(self.a, self.f, intercept, max(0.0, ends[0] - ends[1]), n_steps)


def _start(gram: Gram, lower: Array, upper: Array, start: tuple[Array, Array | None] | None) -> tuple[Array, Array]:
    """Feasible coefficients, and f there."""
    zeros = np.zeros(gram.n)
    wanted, f = (zeros, zeros) if start is None else start
    if np.shape(wanted) != zeros.shape or (f is not None and np.shape(f) != zeros.shape):
        raise ValueError(f"a start needs {gram.n} coefficients, and f there; these belong to another problem")
    a = feasible(wanted, lower, upper)
    before, f = (zeros, zeros) if f is None else (wanted, f)
    moved = np.flatnonzero(a != before)
    return a, f + gram.times(moved, (a - before)[moved])


def _solve_part(gram: Gram, at: Array, variables: _Variables, tol: float, max_steps: int) -> int:
    """Solves for the variables `at`, the others fixed. Returns the number of steps."""
    before = variables.a.copy()
    K, part, n_steps = gram.part(at), variables.some(at), 0
    while part.gap >= tol and n_steps < max_steps:
        n_steps += _steps(K, *part, tol, min(_SHRINK_EVERY, max_steps - n_steps))
        variables.a[at] = part.a
        left = np.flatnonzero(part.take_part())
        if 0 < len(left) <= len(at) // 2:
            K, at, part = submatrix(K, left), at[left], part.some(left)
    change = variables.a - before
    moved = np.flatnonzero(change)
    variables.f[:] += gram.times(moved, change[moved])
    return n_steps


_compiled = compiled(error_model="numpy")


def _choice(order):
    """The first of two numbers by `order`, which are never NaN: otherwise LLVM does not vectorise a maximum."""

    def pick(typingctx, first_type, second_type):
        def codegen(context, builder, signature, args):
            marks = ("nnan", "nsz")
            first = builder.fcmp_ordered(order, *args, flags=marks)
            return builder.select(first, *args, flags=marks)

        return first_type(first_type, first_type), codegen

    return intrinsic(pick)


_larger, _smaller = _choice(">"), _choice("<")


@_compiled
def _steps(K, a, f, diagonal, z, lower, knee, upper, tol, most):
    """At most `most` steps, which update `a` and ``f = Ka``. Returns the number of steps."""
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
        # The best step, as far as both variables may go.
        end_i = knee[i] if a[i] < knee[i] else upper[i]
        end_j = knee[j] if a[j] > knee[j] else lower[j]
        room_i, room_j = end_i - a[i], a[j] - end_j
        curvature = max(diagonal[i] + diagonal[j] - 2.0 * K[i, j], _LEAST_CURVATURE)
        moved = min((highest - (down[j] - f[j])) / curvature, room_i, room_j)
        a[i] = end_i if moved >= room_i else a[i] + moved
        a[j] = end_j if moved >= room_j else a[j] - moved
        up[i], down[i] = _slope(a[i], z[i], lower[i], knee[i], upper[i])
        up[j], down[j] = _slope(a[j], z[j], lower[j], knee[j], upper[j])
    return step


@_compiled
def _slope(a, z, lower, knee, upper):
    """``z`` just above and just below a coefficient; infinite where it cannot go."""
    up = z if a < knee else (z - 2.0 if a < upper else -np.inf)
    down = z - 2.0 if a > knee else (z if a > lower else np.inf)
    return up, down


@_compiled
def _follow(f, Ki, Kj, moved, up, down):
    """Updates f after the last step. Returns both ends of the gap, and the chunk that holds the upper one."""
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
    """The partner with which i lowers the objective most, by gain^2 / curvature."""
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
    gain, curvature = _larger(gain, 0.0), _larger(curvature, _LEAST_CURVATURE)
    return gain * gain / curvature

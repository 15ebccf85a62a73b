"""What Newton's method minimises in a space, and its steps: towards gaps, and the convex solution with a graph."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from s3vm._utils.typing import Array
from s3vm.problem import Problem
from s3vm.solvers.newton.function_spaces import Function, Space

_SMOOTH_STEPS = 100  # at most; five are usual
_CONJUGATE = 50  # directions in one Newton step
_FORCING = 0.3  # conjugate gradients reduce the gradient to this fraction, or less
_ACCURATE = 1e-6  # the same where two of their solutions make one step
_MIN_DECREASE, _MIN_STEP = 1e-4, 1e-10  # of a step: fraction of the predicted decrease, and length
_NOISE = 1e-14


class SmoothSolution(NamedTuple):
    """The convex solution with the graph: f is the function plus the intercept, `gradient` the norm of the gradient."""

    function: Function
    intercept: float
    gradient: float


class Risk:
    """Eq. 1 of one column with a fraction of its unlabelled cost, for f without the intercept `target`."""

    def __init__(self, problem: Problem, k: int, space: Space, target: float, share: float) -> None:
        self._problem, self._space, self._target = problem, space, target
        self._costs, self._y = problem.costs[:, k], problem.targets[:, k]
        self._cost = share * problem.unlabeled_cost[k] / (problem.n_rows - problem.n_labeled)
        self._graph_cost = float(problem.graph_costs[k])

    def _scores(self, f: Function) -> tuple[Array, Array]:
        scores = f.values + self._target
        return scores[: len(self._y)], scores[len(self._y) :]

    def value(self, f: Function) -> float:
        r_l, r_u = self._scores(f)
        labeled = self._costs @ self._problem.labeled_loss.value(r_l, self._y)
        unlabeled = self._cost * self._problem.unlabeled_loss.value(r_u).sum()
        rough = 0.0
        if self._graph_cost:
            scores = f.values + self._target
            rough = self._graph_cost / 2 * (scores @ (self._space.form @ scores))
        return float(self._space.inner(f, f) / 2 + labeled + unlabeled + rough)

    def derivatives(self, f: Function) -> tuple[Function, Array]:
        """The gradient in the space, and the second derivative of the losses with respect to each value."""
        slope, curvature = self.slopes(f)
        return self._space.function(f.coefficients + self._space.adjoint(slope)), curvature

    def slopes(self, f: Function) -> tuple[Array, Array]:
        """The derivative of losses and graph with respect to each value, and the second one of the losses."""
        r_l, r_u = self._scores(f)
        of_labeled, of_unlabeled = self._problem.labeled_loss, self._problem.unlabeled_loss
        s = of_unlabeled.s  # type: ignore[attr-defined]
        slope = np.concatenate([self._costs * of_labeled.grad(r_l, self._y), self._cost * of_unlabeled.grad(r_u)])
        bend = 2 * s * (2 * s * r_u**2 - 1) * of_unlabeled.value(r_u)
        curvature = np.concatenate([self._costs * (self._y * r_l < 1), self._cost * bend])
        if self._graph_cost:
            slope += self._graph_cost * (self._space.form @ (f.values + self._target))
        return slope, curvature

    def step(self, f: Function, gradient: Function, curvature: Array) -> Function | None:
        """f after a Newton step, or None if no step lowers the objective."""
        precondition = self._space.preconditioner(np.maximum(curvature, 0), self._graph_cost)
        by = _newton_step(self._space, gradient, curvature, self._graph_cost, precondition, _FORCING)
        t = backtrack(lambda t: self.value(f.plus(t, by)), self._space.inner(gradient, by))
        return f.plus(t, by) if t > 0 else None


def smooth_solution(problem: Problem, k: int, space: Space, tolerance: float) -> SmoothSolution:
    """The minimum of column k with its graph and without gaps over f and its intercept b, which costs nothing.

    With ``B = D + c M``, D the curvature of the losses, a step ``(s, t)`` solves ``H s + t B1 = -g`` in the space,
    where ``H = 1 + B``, and ``1'B(s + t) = -slope_b``: so ``s = -p - t q`` with ``H p = g`` and ``H q = B1``.
    """
    c, nothing = float(problem.graph_costs[k]), np.zeros(problem.n_rows)
    f, b, size = space.function(space.adjoint(nothing)), 0.0, 0.0
    for _ in range(_SMOOTH_STEPS):
        risk = Risk(problem, k, space, b, 0.0)
        slope, curvature = risk.slopes(f)
        gradient, slope_b = space.function(f.coefficients + space.adjoint(slope)), float(slope.sum())
        size = float(np.sqrt(max(space.inner(gradient, gradient), 0.0) + slope_b**2))
        if size <= tolerance:
            break
        bent = curvature + c * (space.form @ np.ones(problem.n_rows))
        precondition = space.preconditioner(curvature, c)
        down = _newton_step(space, gradient, curvature, c, precondition, _ACCURATE)
        away = _newton_step(space, space.function(space.adjoint(bent)), curvature, c, precondition, _ACCURATE)
        stiffness = bent.sum() + bent @ away.values
        t = -(slope_b + bent @ down.values) / stiffness if stiffness > 0 else 0.0
        by = down.plus(t, away)
        way = partial(_shifted_value, problem, k, space, f, b, by, t)
        length = backtrack(way, space.inner(gradient, by) + slope_b * t)
        if length == 0:
            break
        f, b = f.plus(length, by), float(b + length * t)
    return SmoothSolution(f, b, size)


def _shifted_value(
    problem: Problem, k: int, space: Space, f: Function, b: float, by: Function, shift: float, t: float
) -> float:
    """The objective without gaps after a fraction `t` of a step of the function and of the intercept."""
    return Risk(problem, k, space, b + t * shift, 0.0).value(f.plus(t, by))


def _newton_step(
    space: Space,
    gradient: Function,
    curvature: Array,
    graph_cost: float,
    precondition: Callable[[Function], Array],
    accuracy: float,
) -> Function:
    """The Newton step, a descent direction, by conjugate gradients that stop at negative curvature."""
    size = np.sqrt(space.inner(gradient, gradient))
    enough = min(accuracy, np.sqrt(size)) * size
    residual, way, step, before = gradient, None, None, 0.0
    for _ in range(_CONJUGATE):
        down = space.function(-precondition(residual))
        now = -space.inner(residual, down)
        way = down if way is None else down.plus(now / before, way)
        before = now
        bend = space.inner(way, way) + curvature @ way.values**2
        bent = curvature * way.values
        if graph_cost:
            of_graph = graph_cost * (space.form @ way.values)
            bend, bent = bend + of_graph @ way.values, bent + of_graph
        if bend <= 0 or now <= 0:
            break
        t = now / bend
        step = Function(t * way.coefficients, t * way.values) if step is None else step.plus(t, way)
        image = way.coefficients + space.adjoint(bent)
        residual = space.function(residual.coefficients + t * image)
        if space.inner(residual, residual) <= enough**2:
            break
    return way if step is None else step  # type: ignore[return-value]


def backtrack(value: Callable[[float], float], slope: float) -> float:
    """The first of 1, 1/2, 1/4, ... where `value` falls by a fraction of what its slope at 0 predicts; 0 if none."""
    start, t = value(0.0), 1.0
    while slope < 0 and t > _MIN_STEP:
        if value(t) <= start + _MIN_DECREASE * t * slope + _NOISE * abs(start):
            return t
        t /= 2
    return 0.0

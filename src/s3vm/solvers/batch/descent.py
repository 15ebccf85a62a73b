"""The part with gaps: accelerated descent in the metric of a quadratic that lies above the objective.

Columns move together in a few matrix products, and there is no step size to choose. A column whose
direction turns uphill starts its acceleration again (O'Donoghue and Candes 2015).
"""

from typing import Any, NamedTuple

import numpy as np

from s3vm._utils.arrays import cast, namespace
from s3vm._utils.linalg import inverse
from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.losses import Exponential
from s3vm.problem import Problem
from s3vm.solvers.batch.space import LandmarkSpace, RowMap, sum_over_blocks


class Point(NamedTuple):
    """Where the descent stands: coefficients, the extrapolated ones, and the momentum of each column."""

    w: Any
    ahead: Any
    momentum: Any


class Descent:
    """Groups of columns that share rows and graph; each group has a metric.

    `held` is the mean output over the unlabelled rows of each column, and `spread` the sum of ``zz'`` over these rows.
    `columns` are those of all groups, in the order of the points.
    """

    def __init__(
        self,
        space: LandmarkSpace,
        problem: Problem,
        groups: list[Array],
        held: Array,
        spread: Any,
        backend: Backend,
        each: RowMap,
    ) -> None:
        self._space, self._problem, self._each = space, problem, each
        n_l, n = problem.n_labeled, len(space.features)
        self._n_labeled, self._n_unlabeled = n_l, n - n_l
        self.columns = np.concatenate(groups)

        def put(x: Array) -> Any:
            return cast(backend.put(x), backend.dtype)

        ends = np.cumsum([len(group) for group in groups]).tolist()
        self._metrics = []
        for group, end in zip(groups, ends, strict=True):
            metric = self._metric(group, spread, backend)
            self._metrics.append((slice(end - len(group), end), cast(inverse(metric), backend.dtype)))
        held, gaps = held[self.columns], problem.unlabeled_cost[self.columns]
        graph_cost = problem.graph_costs[self.columns]
        self._y, self._costs = put(problem.targets[:, self.columns]), put(problem.costs[:, self.columns])
        self._gaps, self._held = put(gaps), put(held)
        self._is_joined, self._graph_cost = bool(graph_cost.any()), put(graph_cost)
        self._rough = put(space.rough[:-1, :-1])
        self._slant = put(np.outer(space.rough[:-1, -1], graph_cost * held))

    def _metric(self, group: Array, spread: Any, backend: Backend) -> Any:
        """A matrix above the second derivative of the objective, wherever it is taken."""
        problem, rough, loss = self._problem, self._space.rough[:-1, :-1], self._problem.unlabeled_loss
        assert isinstance(loss, Exponential)
        Z = cast(self._space.features[: self._n_labeled], np.float64)
        metric = (Z.T * backend.put(problem.costs[:, group].max(axis=1))) @ Z
        metric += backend.put(np.eye(len(rough)) + problem.graph_costs[group].max() * rough)
        gaps = float(problem.unlabeled_cost[group].max())
        if gaps:
            steepest = 4 * loss.s * np.exp(-1.5)  # the largest second derivative of exp(-s r^2)
            metric += gaps * steepest / self._n_unlabeled * spread
        return metric

    def step(self, point: Point, ramp: float) -> Point:
        """The next point, where the gaps count with the fraction `ramp` of their cost."""
        w, ahead, momentum = point
        xp = namespace(w)
        gradient, new = self._gradient(ahead, ramp), ahead + 0
        for group, inverse_metric in self._metrics:
            new[:, group] -= inverse_metric @ gradient[:, group]
        grown = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        turns = ((ahead - new) * (new - w)).sum(axis=0) > 0
        ahead = new + xp.where(turns, xp.zeros_like(grown), (momentum - 1) / grown) * (new - w)
        return Point(new, ahead, xp.where(turns, xp.ones_like(grown), grown))

    def _gradient(self, w: Any, ramp: float) -> Any:
        Z = self._space.features[: self._n_labeled]
        slope = self._costs * self._problem.labeled_loss.grad(Z @ w + self._held, self._y)
        gradient = w + self._slant + Z.T @ slope
        if self._is_joined:
            gradient += self._graph_cost * (self._rough @ w)
        if ramp:
            weight = ramp / self._n_unlabeled * self._gaps

            def of_block(part: slice) -> Any:
                z = self._space.features[part]
                return z.T @ (weight * self._problem.unlabeled_loss.grad(z @ w + self._held))

            gradient += sum_over_blocks(of_block, self._space.features, self._n_labeled, self._each)
        return gradient

"""The part with gaps: accelerated descent in the metric of a quadratic that lies above the objective.

Columns with one metric move together in a few matrix products, and there is no step size to choose. A column whose
direction turns uphill starts its acceleration again (O'Donoghue and Candes 2015).
"""

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from s3vm._utils.arrays import cast, namespace
from s3vm._utils.linalg import inverse
from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.losses import Exponential
from s3vm.problem import Problem
from s3vm.solvers.batch.space import LandmarkSpace, RowMap, blocks


class Point(NamedTuple):
    """Where the descent stands: coefficients, the extrapolated ones, and the momentum of each column."""

    w: Any
    ahead: Any
    momentum: Any


class Descent:
    """Columns that share rows, graph and metric. `held` is the mean output over the unlabelled rows of each."""

    def __init__(
        self,
        space: LandmarkSpace,
        problem: Problem,
        graph_cost: Array,
        columns: Array,
        held: Array,
        backend: Backend,
        each: RowMap,
    ) -> None:
        self._space, self._problem, self._each = space, problem, each
        n_l, n = problem.n_labeled, len(space.features)
        self._n_labeled, self._n_unlabeled = n_l, n - n_l
        held, gaps, graph_cost = held[columns], problem.unlabeled_cost[columns], graph_cost[columns]
        y, costs = problem.targets[:, columns], problem.costs[:, columns]
        metric = self._metric(float(gaps.max()), float(graph_cost.max()), costs.max(axis=1), backend)

        def put(x: Array) -> Any:
            return cast(backend.put(x), backend.dtype)

        self._inverse = cast(inverse(metric), backend.dtype)
        self._y, self._costs, self._gaps, self._held = put(y), put(costs), put(gaps), put(held)
        self._diagonal = put(1 + np.outer(space.roughness, graph_cost))
        self._slant = put(np.outer(space.tilt, graph_cost * held))

    def _metric(self, gaps: float, graph_cost: float, costs: Array, backend: Backend) -> Any:
        """A matrix above the second derivative of the objective, wherever it is taken."""
        space, loss = self._space, self._problem.unlabeled_loss
        assert isinstance(loss, Exponential)
        Z = cast(space.features[: self._n_labeled], np.float64)
        metric = (Z.T * backend.put(costs)) @ Z + backend.put(np.diag(1 + graph_cost * space.roughness))
        if gaps:
            steepest = 4 * loss.s * np.exp(-1.5)  # the largest second derivative of exp(-s r^2)
            spread = self._sum(lambda part: space.features[part].T @ space.features[part])
            metric += gaps * steepest / self._n_unlabeled * cast(spread, np.float64)
        return metric

    def step(self, point: Point, ramp: float) -> Point:
        """The next point, where the gaps count with the fraction `ramp` of their cost."""
        w, ahead, momentum = point
        xp = namespace(w)
        new = ahead - self._inverse @ self._gradient(ahead, ramp)
        grown = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        turns = ((ahead - new) * (new - w)).sum(axis=0) > 0
        ahead = new + xp.where(turns, xp.zeros_like(grown), (momentum - 1) / grown) * (new - w)
        return Point(new, ahead, xp.where(turns, xp.ones_like(grown), grown))

    def _gradient(self, w: Any, ramp: float) -> Any:
        Z = self._space.features[: self._n_labeled]
        slope = self._costs * self._problem.labeled_loss.grad(Z @ w + self._held, self._y)
        gradient = self._diagonal * w + self._slant + Z.T @ slope
        if ramp:
            weight = ramp / self._n_unlabeled * self._gaps

            def of_block(part: slice) -> Any:
                z = self._space.features[part]
                return z.T @ (weight * self._problem.unlabeled_loss.grad(z @ w + self._held))

            gradient += self._sum(of_block)
        return gradient

    def _sum(self, of_block: Callable[[slice], Any]) -> Any:
        """The sum over blocks of unlabelled rows, in their order."""
        return reduce(add, self._each(of_block, blocks(len(self._space.features), self._n_labeled)))

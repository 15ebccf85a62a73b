"""The part with gaps: accelerated descent in the metric of a quadratic that lies above the objective.

Columns with one metric move together in a few matrix products, and there is no step size to choose. A column whose
direction turns uphill starts its acceleration again (O'Donoghue and Candes 2015).
"""

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from s3vm._utils.typing import Array
from s3vm.losses import Exponential
from s3vm.problem import Problem
from s3vm.solvers.batch.space import LandmarkSpace, RowMap, blocks


class Point(NamedTuple):
    """Where the descent stands: coefficients, the extrapolated ones, and the momentum of each column."""

    w: Array
    ahead: Array
    momentum: Array


class Descent:
    """Columns that share rows, graph and metric. `held` is the mean output over the unlabelled rows of each."""

    def __init__(
        self,
        space: LandmarkSpace,
        problem: Problem,
        graph_cost: Array,
        columns: Array,
        held: Array,
        each: RowMap,
    ) -> None:
        self._space, self._problem, self._each = space, problem, each
        dtype = space.features.dtype
        self._y, self._costs = (part[:, columns].astype(dtype) for part in (problem.targets, problem.costs))
        self._gaps = problem.unlabeled_cost[columns].astype(dtype)
        self._held = held[columns].astype(dtype)
        self._graph_cost = graph_cost[columns]
        n_l, n = problem.n_labeled, len(space.features)
        self._n_labeled, self._n_unlabeled = n_l, n - n_l
        loss = problem.unlabeled_loss
        assert isinstance(loss, Exponential)
        self._s = loss.s
        steepest = 4 * loss.s * np.exp(-1.5)  # the largest second derivative of exp(-s r^2)
        Z = space.features[:n_l].astype(np.float64)
        largest = problem.costs[:, columns].max(axis=1)
        metric = (Z.T * largest) @ Z
        metric.flat[:: len(metric) + 1] += 1 + float(self._graph_cost.max()) * space.roughness
        if self._gaps.any():
            spread = self._sum(lambda part: space.features[part].T @ space.features[part])
            metric += float(self._gaps.max()) * steepest / self._n_unlabeled * spread.astype(np.float64)
        inverse = cho_solve(cho_factor(metric, lower=True, check_finite=False), np.eye(len(metric)), check_finite=False)
        self._inverse = inverse.astype(dtype)
        self._diagonal = (1 + np.outer(space.roughness, self._graph_cost)).astype(dtype)
        self._slant = np.outer(space.tilt, self._graph_cost * held[columns]).astype(dtype)

    def start(self, w: Array) -> Point:
        w = w.astype(self._inverse.dtype)
        return Point(w, w, np.ones(w.shape[1], w.dtype))

    def step(self, point: Point, ramp: float) -> Point:
        """The next point, where the gaps count with the fraction `ramp` of their cost."""
        w, ahead, momentum = point
        new = ahead - self._inverse @ self._gradient(ahead, ramp)
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        turns = ((ahead - new) * (new - w)).sum(axis=0) > 0
        ahead = new + np.where(turns, 0, (momentum - 1) / grown).astype(w.dtype) * (new - w)
        return Point(new, ahead, np.where(turns, 1, grown).astype(w.dtype))

    def _gradient(self, w: Array, ramp: float) -> Array:
        Z = self._space.features[: self._n_labeled]
        loss = self._problem.labeled_loss
        slope = self._costs * loss.grad(Z @ w + self._held, self._y)
        gradient = self._diagonal * w + self._slant + Z.T @ slope
        if ramp and self._gaps.any():
            weight = w.dtype.type(ramp) * self._gaps / self._n_unlabeled

            def of_block(part: slice) -> Array:
                z = self._space.features[part]
                return z.T @ (weight * self._problem.unlabeled_loss.grad(z @ w + self._held))

            gradient += self._sum(of_block)
        return gradient

    def _sum(self, of_block: Callable[[slice], Array]) -> Array:
        """The sum over blocks of unlabelled rows, in their order."""
        first = self._n_labeled
        parts = (slice(first + part.start, first + part.stop) for part in blocks(self._n_unlabeled))
        return reduce(np.add, self._each(of_block, parts))

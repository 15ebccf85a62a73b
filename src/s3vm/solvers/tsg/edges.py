"""Batches of edges: a stochastic gradient of the graph term, the fourth kind of randomness next to rows and features.

An edge e between i and j is drawn with a chance proportional to ``w_ij (1/D_i + 1/D_j)``. Then

    ``(1/n) f'Lf = mean over edges of (u_e f)^2``,  ``u_e f = s (sqrt(D_j) f_i - sqrt(D_i) f_j) / sqrt(D_i + D_j)``

where ``s^2`` is the trace of L / n, at most 1. No edge has much more weight than others in this mean, not even one of a
row that is far from all others.
"""

from typing import Any, NamedTuple

import numpy as np

from s3vm._utils.arrays import product
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.kernels import Kernel
from s3vm.philox import Purpose
from s3vm.problem.graph import Edges, NeighborGraph

_STIFFNESS_BATCHES = 8


class EdgeBatch(NamedTuple):
    """The rows that the edges of a batch join, each once and in order, and the matrix Q with which the mean over the
    batch of ``(u_e f)^2`` is ``f'Qf``."""

    ends: Array
    form: Array

    def slopes(self, r: Any, cost: Any, backend: Backend) -> tuple[Any, Any]:
        """The derivative of ``cost / 2 f'Qf`` with respect to f at the ends, where it is r, and ``cost f'Qf``."""
        slope = cost * product(backend.put(self.form), r)
        return slope, (slope * r).sum(axis=0)


class EdgeBatches:
    """Batches of the edges of a graph. `positions` are the numbers by which the caller knows the graph's rows."""

    def __init__(self, graph: NeighborGraph, positions: Array, seed: int, size: int) -> None:
        edges = graph.edges()
        D = graph.degree[edges.pairs]
        chances = edges.weights * (1 / D).sum(axis=1)
        self._edges, self._seed, self._size = Edges(positions[edges.pairs], chances), seed, size
        scale = np.sqrt(chances.sum() / len(graph.degree))
        self._parts = scale * np.sqrt(D[:, ::-1] / D.sum(axis=1, keepdims=True)) * [1, -1]

    @classmethod
    def of(cls, graph: NeighborGraph, positions: Array, seed: int, size: int) -> "EdgeBatches | None":
        """The same, or None if no rows are joined."""
        batches = cls(graph, positions, seed, size)
        return batches if len(batches._edges.pairs) else None

    def batch(self, t: int) -> EdgeBatch:
        """The batch of iteration t."""
        drawn = self._edges.draw(self._seed, Purpose.EDGE, range(t, t + 1), self._size)[0]
        ends, columns = np.unique(self._edges.pairs[drawn], return_inverse=True)
        parts = np.zeros((self._size, len(ends)))
        # Equal rows may have the same number, even at both ends of an edge.
        np.add.at(parts, (np.arange(self._size)[:, None], columns.reshape(-1, 2)), self._parts[drawn])
        return EdgeBatch(ends, parts.T @ parts / self._size)

    def stiffness(self, kernel: Kernel, rows: Rows) -> float:
        """About the mean over edges of ``||u_e||^2``, the function whose inner product with f is ``u_e f``."""
        batches = [self.batch(t) for t in range(_STIFFNESS_BATCHES)]
        return float(np.mean([(form * kernel.gram(rows[ends], rows[ends])).sum() for ends, form in batches]))

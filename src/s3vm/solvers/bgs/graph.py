"""A graph that joins each row to its nearest ones, and draws of its edges."""

import numpy as np
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from s3vm import philox
from s3vm._utils.typing import Array, Rows
from s3vm.kernels import Kernel
from s3vm.philox import Purpose

__all__ = ["NeighbourGraph", "kernel_of_pairs"]

_CHUNK = 64


class NeighbourGraph:
    """Two rows are joined if one is a nearest neighbour of the other; edges are drawn in proportion to their kernel.

    The weight of an edge is ``k(x_u, x_v) / sqrt(k(x_u, x_u) k(x_v, x_v))``, or 0 if that is negative. `diagonal` is
    ``k(x, x)`` of every row.
    """

    def __init__(self, rows: Rows, n_neighbours: int, kernel: Kernel, diagonal: Array, n_threads: int = 1) -> None:
        n = rows.shape[0]
        search = NearestNeighbors(n_neighbors=min(n_neighbours, n - 1), n_jobs=n_threads).fit(rows)
        with threadpool_limits(limits=n_threads, user_api="openmp"):  # which n_jobs does not limit
            nearest = search.kneighbors(return_distance=False)
        this = np.repeat(np.arange(n), nearest.shape[1])
        other = nearest.ravel()
        # An edge is one number, so that it counts once if found from both ends.
        number = np.unique(np.minimum(this, other) * n + np.maximum(this, other))
        self.edges = np.column_stack(np.divmod(number, n))
        size = np.sqrt(diagonal)[self.edges].prod(axis=1)
        # A row of size 0 always has the same output, so its edges may have any weight.
        weights = np.where(size > 0, kernel_of_pairs(kernel, rows, *self.edges.T), 1.0) / np.where(size > 0, size, 1.0)
        self.weights = np.maximum(weights, 0) if weights.max() > 0 else np.ones_like(weights)
        self._sums = np.cumsum(self.weights)

    def draw(self, seed: int, steps: range, size: int) -> Array:
        """For each step `size` edges, drawn with replacement: row numbers of shape ``(steps, size, 2)``."""
        chances = np.stack([philox.uniforms(seed, Purpose.UNLABELLED, t, size, 1)[:, 0] for t in steps])
        drawn = np.searchsorted(self._sums, chances * self._sums[-1], side="right")
        return self.edges[np.minimum(drawn, len(self.edges) - 1)]


def kernel_of_pairs(kernel: Kernel, rows: Rows, first: Array, second: Array) -> Array:
    """``k(x_i, x_j)`` for each pair of row numbers: the diagonal of small kernel matrices."""
    result = np.empty(len(first))
    for start in range(0, len(first), _CHUNK):
        part = slice(start, start + _CHUNK)
        result[part] = np.diagonal(kernel.gram(rows[first[part]], rows[second[part]]))
    return result

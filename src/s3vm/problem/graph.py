"""The graph that joins each row to its nearest neighbors, and how rough a function is on it."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from s3vm._utils.arrays import as_rows
from s3vm._utils.blas import one_blas_thread
from s3vm._utils.typing import Array, Rows

_BLOCK = 256  # rows whose distances to all others are in memory at once
_SCALE_NEIGHBOR = 7  # the neighbor whose distance is the unit of length around a row


@dataclass(frozen=True, eq=False)
class NeighborGraph:
    """Rows and the normalised Laplacian of the graph of their nearest neighbors.

    Rows i and j are joined with the weight ``w_ij = exp(-d_ij^2 / (s_i s_j))``, where ``s_i`` is the distance of row i
    to its seventh neighbor, if one is among the k nearest of the other. A function f is rough where joined rows differ:

        ``(1/n) f'Lf = (1/n) sum over edges w_ij (f_i / sqrt(D_i) - f_j / sqrt(D_j))^2``

    with ``L = I - D^(-1/2) W D^(-1/2)``.

    Attributes
    ----------
    rows : Rows of shape (n, d)
        Labelled rows come first, in the order of the problem.
    laplacian : sparse matrix of shape (n, n), float64
    """

    rows: Rows
    laplacian: Any

    @classmethod
    def of(cls, rows: Rows, n_neighbors: int = 10, n_threads: int = 1) -> "NeighborGraph":
        """The graph of these rows. Of fewer than `n_neighbors` others, all are neighbors."""
        n = int(rows.shape[0])
        distances, neighbors = nearest_neighbors(rows, min(n_neighbors, n - 1), n_threads)
        k = neighbors.shape[1]
        if k == 0:
            return cls(rows, sparse.csr_array((n, n)))
        unit = np.maximum(distances[:, min(_SCALE_NEIGHBOR, k) - 1], 1e-12)
        start = np.repeat(np.arange(n), k)
        end = neighbors.ravel()
        weights = np.exp(-(distances.ravel() ** 2) / (unit[start] * unit[end]))
        joined = sparse.csr_array((weights, (start, end)), shape=(n, n))
        joined = joined.maximum(joined.T)
        degree = np.maximum(np.asarray(joined.sum(axis=1)).ravel(), 1e-12)
        scaled = sparse.diags_array(1 / np.sqrt(degree))
        return cls(rows, (sparse.eye_array(n) - scaled @ joined @ scaled).tocsr())

    def roughness(self, f: Array) -> Array:
        """``(1/n) f'Lf`` of each column of f ``(n, K)``."""
        return np.einsum("ik,ik->k", f, self.laplacian @ f) / len(f)


def nearest_neighbors(rows: Rows, k: int, n_threads: int = 1) -> tuple[Array, Array]:
    """Distances to the k nearest other rows, and their numbers, nearest first: each of shape (n, k).

    Distances are found by products of blocks of rows, which are rounded; those of the nearest are then computed from
    the differences. Equal distances are in the order of the rows, so that the result does not depend on the threads.
    """
    rows = as_rows(rows, np.float32)
    n = int(rows.shape[0])
    if sparse.issparse(rows):
        mean, transposed = 0.0, rows.T.tocsr()
        norms = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
    else:
        mean = rows.mean(axis=0, dtype=np.float64).astype(np.float32)  # differences of large numbers would be rounded
        rows = rows - mean
        transposed = rows.T
        norms = np.einsum("ij,ij->i", rows, rows)
    distances, neighbors = np.empty((n, k)), np.empty((n, k), np.intp)
    n_candidates = min(n - 1, k + 5)

    def fill(start: int) -> None:
        part = slice(start, min(start + _BLOCK, n))
        own = np.arange(part.start, part.stop)
        products = rows[part] @ transposed
        squared = norms - 2 * (products.toarray() if sparse.issparse(products) else products)
        squared[np.arange(len(own)), own] = np.inf
        nearest = np.sort(np.argpartition(squared, n_candidates - 1, axis=1)[:, :n_candidates], axis=1)
        exact = _distances(rows, own, nearest)
        order = np.argsort(exact, axis=1, kind="stable")[:, :k]
        distances[part] = np.take_along_axis(exact, order, axis=1)
        neighbors[part] = np.take_along_axis(nearest, order, axis=1)

    if k:
        with one_blas_thread, ThreadPoolExecutor(n_threads) as pool:
            list((map if n_threads == 1 else pool.map)(fill, range(0, n, _BLOCK)))
    return distances, neighbors


def _distances(rows: Rows, own: Array, others: Array) -> Array:
    """The distance of each row to some others: shape of `others`."""
    if sparse.issparse(rows):
        differences = rows[np.repeat(own, others.shape[1])] - rows[others.ravel()]
        return np.sqrt(np.asarray(differences.multiply(differences).sum(axis=1), np.float64)).reshape(others.shape)
    differences = (rows[own][:, None] - rows[others]).astype(np.float64)
    return np.sqrt(np.einsum("ijk,ijk->ij", differences, differences))

"""The graph that joins each row to its nearest neighbors, and how rough a function is on it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from s3vm import philox
from s3vm._utils.arrays import are_equal, row_digests
from s3vm._utils.typing import Array, Rows
from s3vm.philox import Purpose
from s3vm.problem.nearest import nearest_neighbors

_SPREAD, _SPREAD_STEPS = 0.9, 25  # the fraction of a label that passes along an edge; iterations, for three digits
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
    degree : array of shape (n,)
        D, the sum of the weights of each row.
    """

    rows: Rows
    laplacian: Any
    degree: Array

    @classmethod
    def of(cls, rows: Rows, n_neighbors: int = 10, n_threads: int = 1, **device: Any) -> "NeighborGraph":
        """The graph of these rows. Of fewer than `n_neighbors` others, all are neighbors."""
        n = int(rows.shape[0])
        distances, neighbors = nearest_neighbors(rows, min(n_neighbors, n - 1), n_threads, **device)
        k = neighbors.shape[1]
        if k == 0:
            return cls(rows, sparse.csr_array((n, n)), np.ones(n))
        unit = np.maximum(distances[:, min(_SCALE_NEIGHBOR, k) - 1], 1e-12)
        start = np.repeat(np.arange(n), k)
        end = neighbors.ravel()
        weights = np.exp(-(distances.ravel() ** 2) / (unit[start] * unit[end]))
        joined = sparse.csr_array((weights, (start, end)), shape=(n, n))
        joined = joined.maximum(joined.T)
        total = np.asarray(joined.sum(axis=1)).ravel()
        degree = np.maximum(total, 1e-12)
        scaled = sparse.diags_array(1 / np.sqrt(degree))
        # A row that is joined to none is not rough, whatever f is there.
        return cls(rows, (sparse.diags_array(total / degree) - scaled @ joined @ scaled).tocsr(), degree)

    def roughness(self, f: Array) -> Array:
        """``(1/n) f'Lf`` of each column of f ``(n, K)``."""
        return np.einsum("ik,ik->k", f, self.laplacian @ f) / len(f)

    def spread(self, labels: Array) -> Array:
        """What reaches each row of the columns of `labels` ``(n_labeled, K)``: ``(1 - a) (I - a S)^(-1) Y``.

        ``S = I - L``, and a step along an edge keeps the fraction ``a = 0.9`` (Zhou et al. 2004). Solved by Chebyshev
        iteration: the eigenvalues of ``I - a S`` lie between ``1 - a`` and ``1 + a``.
        """
        n, a = int(self.rows.shape[0]), _SPREAD
        Y = np.zeros((n, labels.shape[1]))
        Y[: len(labels)] = (1 - a) * labels
        F, before, factor = Y.copy(), np.zeros_like(Y), 1.0
        for step in range(_SPREAD_STEPS):
            factor = 1 / (1 - a**2 / (2 if step == 0 else 4 / factor))
            F, before = factor * (Y + a * (F - self.laplacian @ F) - before) + before, F
        return np.maximum(F, 0.0)

    def positions_in(self, rows: Rows) -> Array:
        """Where the rows of the graph are among these: the numbers of the first ones that are equal."""
        if are_equal(self.rows, rows):
            return np.arange(rows.shape[0])
        first: dict[int, int] = {}
        for at, digest in enumerate(row_digests(rows).tolist()):
            first.setdefault(digest, at)
        positions = [first.get(digest, -1) for digest in row_digests(self.rows).tolist()]
        if min(positions, default=0) < 0:
            raise ValueError("the graph has rows that the problem does not have: build it from the problem's rows")
        return np.array(positions)

    def form_on(self, rows: Rows) -> Any:
        """The sparse matrix M with ``f'Mf = (1/n) f'Lf``, f being given at these rows."""
        n = self.rows.shape[0]
        places = sparse.csr_array((np.ones(n), (np.arange(n), self.positions_in(rows))), shape=(n, rows.shape[0]))
        return (places.T @ self.laplacian @ places / n).tocsr()

    def edges(self) -> "Edges":
        """The joined pairs of rows, each once, and their weights ``w_ij``."""
        upper = sparse.triu(self.laplacian, k=1, format="coo")
        pairs = np.column_stack(upper.coords).astype(np.intp)
        return Edges(pairs, -upper.data * np.sqrt(self.degree[pairs]).prod(axis=1))


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges of a graph, from which some can be drawn: pairs of rows ``(E, 2)`` and weights ``(E,)``."""

    pairs: Array
    weights: Array

    @cached_property
    def _sums(self) -> Array:
        return np.cumsum(self.weights)

    def draw(self, seed: int, purpose: Purpose, steps: range, size: int) -> Array:
        """For each step the numbers of `size` edges, drawn with replacement in proportion to their weights."""
        chances = np.stack([philox.uniforms(seed, purpose, t, size, 1)[:, 0] for t in steps])
        drawn = np.searchsorted(self._sums, chances * self._sums[-1], side="right")
        return np.minimum(drawn, len(self.pairs) - 1)

"""Linear maps of the rows in front of the kernel: principal directions, and weights of columns."""

from collections.abc import Iterator

import numpy as np
from scipy import linalg, sparse
from sklearn.utils import gen_batches

from s3vm import philox
from s3vm._utils.arrays import host, project
from s3vm._utils.blas import one_blas_thread
from s3vm._utils.typing import Array, Rows
from s3vm.kernels import Kernel
from s3vm.philox import Purpose

__all__ = ["column_weights", "principal_directions", "project"]

_SAMPLE = 10_000  # rows from which directions are computed
_EXACT = 1024  # columns up to which the covariance matrix is factorised as a whole
_MORE = 10  # directions that are iterated in addition, so that those wanted converge
_ITERATIONS = 8
_ROUNDING = 1e-12  # variance below this fraction of the rows' size may be rounding
_BLOCK_BYTES = 32 << 20


@one_blas_thread
def principal_directions(rows: Rows, n_components: int, seed: int) -> Array:
    """The leading principal directions of the rows, float32 of shape ``(d, q)``, each of norm 1.

    They are eigenvectors of the covariance of a sample of at most 10,000 rows, exact or by subspace iteration from a
    random start, with the entry of largest absolute value positive. q is `n_components`, or less if the rows vary in
    fewer directions, and at least 1. Rows are centred here, but not by the map: kernels of differences do not notice.
    """
    rows = host(rows[philox.distinct(seed, Purpose.PROJECTION, 1, _SAMPLE, int(rows.shape[0]))])
    n, d = rows.shape
    mean = np.asarray(rows.mean(axis=0, dtype=np.float64)).ravel()
    if d <= _EXACT:
        values, vectors = linalg.eigh(_covariance_times(rows, mean, None), check_finite=False)
    else:
        width = min(n_components + _MORE, n, d)
        basis = linalg.qr(philox.normals(seed, Purpose.PROJECTION, 0, d, width), mode="economic")[0]
        for _ in range(_ITERATIONS):
            basis = linalg.qr(_covariance_times(rows, mean, basis), mode="economic")[0]
        values, vectors = linalg.eigh(basis.T @ _covariance_times(rows, mean, basis), check_finite=False)
        vectors = basis @ vectors
    rank = int(np.sum(values > _ROUNDING * (values[-1] + mean @ mean)))
    directions = vectors[:, ::-1][:, : max(1, min(n_components, rank))]
    largest = np.abs(directions).argmax(axis=0)
    signs = np.where(directions[largest, np.arange(len(largest))] < 0, -1.0, 1.0)
    return np.ascontiguousarray(directions * signs, dtype=np.float32)


@one_blas_thread
def column_weights(kernel: Kernel, centers: Rows, weights: Array, rows: Rows) -> Array:
    """How much the function ``f_k(x) = sum_i weights[i, k] k(centers[i], x)`` varies along each column, ``(d,)``.

    ``w_j = sqrt(mean over rows x of sum_k (df_k(x) / dx_j)^2)``, divided by the root mean square of all ``w_j``; 1 for
    every column if the function is constant. The kernel needs a gradient of its own.
    """
    W, d = np.asarray(host(weights), np.float64), int(rows.shape[1])
    squares = np.zeros(d)
    for X in _blocks(rows, max(len(W), W.shape[1] * d)):
        gradient = np.zeros((W.shape[1], len(X), d))
        for Z, w in zip(_blocks(centers, d), _blocks(W, d), strict=True):
            gradient += kernel.gradient(X, Z, w)
        squares += np.einsum("knj,knj->j", gradient, gradient)
    mean = squares.mean()
    return np.sqrt(squares / mean) if mean > 0 else np.ones(len(squares))


def _covariance_times(rows: Rows, mean: Array, basis: Array | None) -> Array:
    """``(1/n) sum over rows (x - mean)(x - mean)'``, times `basis` if there is one; sparse rows stay sparse."""
    n, d = rows.shape
    if sparse.issparse(rows):
        return _sparse_covariance_times(rows, mean, np.eye(d) if basis is None else basis)
    total = np.zeros((d, d if basis is None else basis.shape[1]))
    for block in _blocks(rows, d):
        block -= mean
        total += block.T @ (block if basis is None else block @ basis)
    return total / n


def _sparse_covariance_times(rows: Rows, mean: Array, basis: Array) -> Array:
    total = np.zeros_like(basis)
    for part in gen_batches(rows.shape[0], max(1, _BLOCK_BYTES // (8 * basis.shape[1]))):
        scores = rows[part] @ basis - mean @ basis
        total += rows[part].T @ scores - np.outer(mean, scores.sum(axis=0))
    return total / rows.shape[0]


def _blocks(rows: Rows, numbers_each: int) -> Iterator[Array]:
    """Some dense rows in float64 at a time, copied, of which each needs so many numbers."""
    for part in gen_batches(rows.shape[0], max(1, _BLOCK_BYTES // (8 * numbers_each))):
        block = rows[part]
        yield np.array(block.toarray() if sparse.issparse(block) else host(block), np.float64)

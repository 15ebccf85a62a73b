"""The CPU backend: Numba kernels over panels of rows, in a pool of threads.

A *panel* is a fixed number of rows, transposed so that neighbouring rows are neighbours in memory, and padded with
zeros to its full width. Every row therefore goes through the same instructions wherever it stands: its result does
not depend on the rows beside it, on chunks or on the number of threads, to the last bit.

For each tile of frequency rows, a panel is projected (``w.x + b``), activated (cosine or product) and reduced
(times coefficients, times gradients, or stored), all inside the cache.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numba import njit
from scipy import sparse

from s3vm._typing import Array, Rows
from s3vm.kernels import Kernel

__all__ = ["Cpu"]


_PANEL = 256
_TILE = 16
_WEIGHT_BYTES = 4 << 20

_compile = njit(nogil=True, cache=True, fastmath={"contract"})


class Cpu:
    """Numba on `n_jobs` threads, counted as joblib does: None is one, -1 is all cores."""

    def __init__(self, dtype: np.dtype[Any], n_jobs: int | None = None) -> None:
        self.dtype = dtype
        self.n_threads = effective_n_jobs(n_jobs)

    def features(self, kernel: Kernel, seed: int, n_features: int, n_dims: int) -> "_CpuFeatures":
        return _CpuFeatures(kernel, seed, n_features, n_dims, self.dtype, self.n_threads)


class _CpuFeatures:
    def __init__(
        self, kernel: Kernel, seed: int, n_features: int, n_dims: int, dtype: np.dtype[Any], n_threads: int
    ) -> None:
        self.n_features = n_features
        self._kernel, self._seed, self._n_dims, self._dtype, self._n_threads = kernel, seed, n_dims, dtype, n_threads
        self._amplitude = dtype.type(kernel.amplitude / np.sqrt(n_features))
        self._degree = kernel.rows_per_feature if kernel.activation == "product" else 0

    def features(self, block: int, X: Rows) -> Array:
        result = np.empty((X.shape[0], self.n_features), self._dtype)
        (weights, offsets), *_ = self._weights(block, 1)

        def work(rows: slice) -> None:
            for part in _panels(rows):
                _store(self._panel(X, part), weights, offsets, self._degree, self._amplitude, result[part])

        self._run(work, _split(X.shape[0], self._n_threads))
        return result

    def decision(self, coefficients: Array, X: Rows, first_block: int = 0) -> Array:
        scores = np.zeros((X.shape[0], coefficients.shape[2]))
        for blocks in self._groups(len(coefficients)):
            drawn = self._weights(first_block + blocks.start, blocks.stop - blocks.start)
            alphas = (coefficients[blocks] * self._amplitude).astype(self._dtype)

            def work(rows: slice, drawn: Any = drawn, alphas: Array = alphas) -> None:
                for part in _panels(rows):
                    panel = self._panel(X, part)
                    for (weights, offsets), alpha in zip(drawn, alphas, strict=True):
                        _decide(panel, weights, offsets, self._degree, alpha, scores[part])

            self._run(work, _split(X.shape[0], self._n_threads))
        return scores

    def adjoint(self, G: Array, X: Rows, n_blocks: int, first_block: int = 0) -> Array:
        result = np.zeros((n_blocks, self.n_features, G.shape[1]))
        columns = np.ascontiguousarray(G.T * self._amplitude, dtype=self._dtype)

        # Threads share blocks, not rows: each sum over rows is then made by one thread, in the order of the rows.
        def work(blocks: slice) -> None:
            for group in self._groups(blocks.stop - blocks.start):
                first = blocks.start + group.start
                drawn = self._weights(first_block + first, group.stop - group.start)
                for part in _panels(slice(0, X.shape[0])):
                    panel = self._panel(X, part)
                    for i, (weights, offsets) in enumerate(drawn):
                        _gather(panel, weights, offsets, self._degree, columns[:, part], result[first + i])

        self._run(work, _split(n_blocks, self._n_threads, 1))
        return result

    def _weights(self, first: int, count: int) -> list[tuple[Array, Array]]:
        drawn = [
            self._kernel.draw(self._seed, block, self.n_features, self._n_dims) for block in range(first, first + count)
        ]
        return [(weights.astype(self._dtype), offsets.astype(self._dtype)) for weights, offsets in drawn]

    def _groups(self, n_blocks: int) -> Iterator[slice]:
        """Blocks whose weights fit in `_WEIGHT_BYTES` together, at least one."""
        block_bytes = self.n_features * self._kernel.rows_per_feature * self._n_dims * self._dtype.itemsize
        size = max(1, _WEIGHT_BYTES // block_bytes)
        for start in range(0, n_blocks, size):
            yield slice(start, min(start + size, n_blocks))

    def _panel(self, X: Rows, part: slice) -> Array:
        panel = np.zeros((self._n_dims, _PANEL), self._dtype)
        rows = X[part]
        panel[:, : rows.shape[0]] = (rows.toarray() if sparse.issparse(rows) else rows).T
        return panel

    def _run(self, work: Callable[[slice], None], parts: list[slice]) -> None:
        if len(parts) == 1:
            work(parts[0])
        elif parts:
            with ThreadPoolExecutor(len(parts)) as pool:
                for done in [pool.submit(work, part) for part in parts]:
                    done.result()


def _panels(rows: slice) -> Iterator[slice]:
    for start in range(rows.start, rows.stop, _PANEL):
        yield slice(start, min(start + _PANEL, rows.stop))


def _split(n: int, parts: int, unit: int = _PANEL) -> list[slice]:
    """At most `parts` slices of ``0..n-1``, of whole units."""
    units = -(-n // unit)
    bounds = [min(units * i // parts * unit, n) for i in range(parts + 1)]
    return [slice(a, b) for a, b in pairwise(bounds) if a < b]


@_compile
def _cosine32(z):
    """``cos(2 pi z)`` to 2e-7, in place.

    Adding and subtracting 1.5 * 2**23 rounds to the nearest integer. What is left, r, becomes t = 1/4 - |r|, and
    cos(2 pi r) = sin(2 pi t) is an odd polynomial in t. Beyond 2**22 turns a float32 holds no phase; the clamp keeps
    the result between -1 and 1 there.
    """
    magic = np.float32(12582912.0)
    for p in range(z.size):
        r = min(abs(z[p] - ((z[p] + magic) - magic)), np.float32(0.5))
        t = np.float32(0.25) - r
        q = t * t
        s = np.float32(39.53670604) * q - np.float32(76.54978229)
        s = s * q + np.float32(81.60100407)
        s = s * q - np.float32(41.34165503)
        z[p] = t * (s * q + np.float32(6.28318516))


@_compile
def _cosine64(z):
    for p in range(z.size):
        z[p] = np.cos(2 * np.pi * (z[p] - np.rint(z[p])))


@_compile
def _activated_tile(panel, weights, offsets, degree, first, tile):
    """Features first, first + 1, ... of a block, unscaled, for every row of the panel: one row of `tile` each."""
    per_feature = max(degree, 1)
    z = np.empty(panel.shape[1], panel.dtype)
    for j in range(tile.shape[0]):
        for q in range(per_feature):
            row = (first + j) * per_feature + q
            z[:] = offsets[row]
            for c in range(panel.shape[0]):
                w = weights[row, c]
                for p in range(z.size):
                    z[p] += w * panel[c, p]
            if q == 0:
                tile[j] = z
            else:
                tile[j] *= z
    if degree == 0:
        flat = tile.reshape(tile.size)
        if tile.itemsize == 4:
            _cosine32(flat)
        else:
            _cosine64(flat)


@_compile
def _store(panel, weights, offsets, degree, amplitude, result):
    """Writes the features of a panel into ``result`` (rows, n_features)."""
    for first in range(0, result.shape[1], _TILE):
        tile = np.empty((min(_TILE, result.shape[1] - first), panel.shape[1]), panel.dtype)
        _activated_tile(panel, weights, offsets, degree, first, tile)
        for i in range(result.shape[0]):
            for j in range(tile.shape[0]):
                result[i, first + j] = amplitude * tile[j, i]


@_compile
def _decide(panel, weights, offsets, degree, alpha, scores):
    """Adds one block's ``features @ alpha`` to ``scores`` (rows, K)."""
    n_features, n_columns = alpha.shape
    total = np.zeros((n_columns, panel.shape[1]), panel.dtype)
    for first in range(0, n_features, _TILE):
        tile = np.empty((min(_TILE, n_features - first), panel.shape[1]), panel.dtype)
        _activated_tile(panel, weights, offsets, degree, first, tile)
        for k in range(n_columns):
            for j in range(tile.shape[0]):
                a = alpha[first + j, k]
                for p in range(panel.shape[1]):
                    total[k, p] += a * tile[j, p]
    for i in range(scores.shape[0]):
        for k in range(n_columns):
            scores[i, k] += total[k, i]


@_compile
def _gather(panel, weights, offsets, degree, columns, result):
    """Adds one block's ``features.T @ G`` over a panel to ``result`` (n_features, K); `columns` is G transposed."""
    for first in range(0, result.shape[0], _TILE):
        tile = np.empty((min(_TILE, result.shape[0] - first), panel.shape[1]), panel.dtype)
        _activated_tile(panel, weights, offsets, degree, first, tile)
        for j in range(tile.shape[0]):
            for k in range(columns.shape[0]):
                total = 0.0
                for i in range(columns.shape[1]):
                    total += tile[j, i] * columns[k, i]
                result[first + j, k] += total

"""The CPU backend: fused Numba kernels on a pool of threads.

A feature never reaches memory: frequencies are projected, turned into features and summed inside the registers
(`tiles`, `dense`, `sparse`). Threads share rows or features, never a sum, so results are the same to the last bit for
any number of threads, any chunks, and any neighbours of a row.
"""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy.sparse import issparse

from s3vm._utils.arrays import as_rows
from s3vm._utils.typing import Array, Rows
from s3vm.backends.cpu import dense, draws, sparse
from s3vm.backends.cpu.tiles import PAIRS, PHASE, PRODUCT, scales
from s3vm.backends.numpy_base import NumpyBackend
from s3vm.kernels import Kernel

_LAWS = {"phase": PHASE, "pairs": PAIRS, "product": PRODUCT}
_GROUP_BYTES = 8 << 20  # of frequencies that are drawn together when they are not cached
_WORTH_A_THREAD = 1 << 20  # features times rows; below, handing work over costs more than it saves
_LANES = 64  # a multiple of every width a vector may have
_VECTOR_BYTES = 128  # at most: with AVX-512, two registers
_SCRATCH_BYTES = 1 << 30  # of all threads of a prediction
_DRAWN_BYTES = {"phase": 9, "pairs": 9, "product": 24}  # of a frequency while it is drawn


def scratch_bytes(kernel: Kernel, n_dims: int) -> int:
    """How much memory a thread of a prediction needs for rows of so many columns, dense or sparse."""
    return _VECTOR_BYTES * n_dims * max(1, sparse.WIDE * kernel.rows_per_feature)


def prediction_bytes(kernel: Kernel, n_features: int, n_dims: int) -> int:
    """How much memory a prediction by blocks of so many random features needs, however few rows it is of."""
    frequency_bytes = 8 + _DRAWN_BYTES[kernel.activation]
    return kernel.rows(n_features) * (n_dims + 1) * frequency_bytes + scratch_bytes(kernel, n_dims)


class Cpu(NumpyBackend):
    """Numba on `n_jobs` threads, counted as joblib does: None is one, -1 is all cores.

    `cache_bytes` is the memory for the frequencies of one model while it is trained; what does not fit is drawn again
    in every sweep.
    """

    def __init__(self, dtype: np.dtype[Any], n_jobs: int | None = None, cache_bytes: int = 0) -> None:
        self.dtype = dtype
        self.n_threads = effective_n_jobs(n_jobs)
        self.cache_bytes = cache_bytes

    def features(self, kernel: Kernel, seed: int, n_features: int, n_dims: int) -> "_CpuFeatures":
        return _CpuFeatures(kernel, seed, n_features, n_dims, self)


class _CpuFeatures:
    def __init__(self, kernel: Kernel, seed: int, n_features: int, n_dims: int, backend: Cpu) -> None:
        self.n_features = kernel.whole(n_features)
        self._n_dims, self._dtype, self._n_threads = n_dims, backend.dtype, backend.n_threads
        self._law, self._degree = _LAWS[kernel.activation], kernel.rows_per_feature
        scale = np.array(scales(self._law, self._dtype))
        self._amplitude = scale.repeat(self.n_features // len(scale)) * kernel.amplitude / np.sqrt(self.n_features)
        self._most_threads = max(1, _SCRATCH_BYTES // scratch_bytes(kernel, n_dims))
        self._units = self.n_features // 2 if kernel.activation == "pairs" else self.n_features
        self._frequencies = _Frequencies(kernel, seed, self.n_features, n_dims, backend)
        self._pool: ThreadPoolExecutor | None = None

    def features(self, block: int, X: Rows, n_blocks: int = 1) -> Array:
        verbs, rows = self._prepared(X)
        parts = []
        for i in range(n_blocks):
            ((_, W, b),) = self._frequencies.groups(block + i, 1, alone=True)
            part = np.empty((X.shape[0], self.n_features), self._dtype)
            verbs.features(*rows, W, b, part, self._law, self._degree)
            part *= self._amplitude.astype(self._dtype)
            parts.append(part)
        return np.concatenate(parts, axis=1) if n_blocks > 1 else parts[0]

    def decision(self, coefficients: Array, X: Rows, first_block: int = 0) -> Array:
        verbs, rows = self._prepared(X)
        n_blocks, n_features, n_columns = coefficients.shape
        if n_features != self.n_features:
            raise ValueError(f"blocks of {n_features} coefficients met blocks of {self.n_features} features")
        scores = np.zeros((X.shape[0], n_columns))
        for blocks, W, b in self._frequencies.groups(first_block, n_blocks, alone=issparse(X)):
            A = np.ascontiguousarray(coefficients[blocks] * self._amplitude[:, None], dtype=self._dtype)
            A = A.reshape(-1, n_columns)
            arguments = (*rows, W, b, A, scores, self._law, self._degree, self.n_features)
            self._share(verbs.decision, arguments, X.shape[0], len(A), most=self._most_threads)
        return scores

    def adjoint(self, G: Array, X: Rows, n_blocks: int, first_block: int = 0) -> Array:
        verbs, rows = self._prepared(X)
        if len(G) != X.shape[0]:
            raise ValueError(f"{len(G)} rows of G met {X.shape[0]} rows of X")
        result = np.zeros((n_blocks, self.n_features, G.shape[1]))
        weights = np.ascontiguousarray(G, dtype=self._dtype)
        for blocks, W, b in self._frequencies.groups(first_block, n_blocks, alone=False):
            sums = result[blocks].reshape(-1, G.shape[1])
            arguments = (*rows, W, b, weights, sums, self._law, self._degree, self.n_features)
            self._share(verbs.adjoint, arguments, (blocks.stop - blocks.start) * self._units, X.shape[0], _LANES)
        return result * self._amplitude[:, None]

    def _prepared(self, X: Rows) -> tuple[Any, tuple[Array, ...]]:
        """The module of the kernels for these rows, and the rows as arrays in the form that they need unchecked."""
        if X.shape[1] != self._n_dims:
            raise ValueError(f"rows of {X.shape[1]} columns met frequencies of {self._n_dims}")
        X = as_rows(X, self._dtype)
        if not issparse(X):
            return dense, (X,)
        return sparse, (X.data, X.indices.astype(np.int32, copy=False), X.indptr.astype(np.int64, copy=False))

    def _share(
        self,
        kernel: Callable[..., None],
        arguments: tuple[Any, ...],
        n: int,
        each: int,
        unit: int = 1,
        most: int = sys.maxsize,
    ) -> None:
        """Calls ``kernel(*arguments, start, stop)`` over ``0..n-1``, cut between the threads at multiples of `unit`."""
        n_parts = min(self._n_threads, most, max(1, n * each // _WORTH_A_THREAD))
        if n_parts == 1:
            kernel(*arguments, 0, n)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._n_threads)
        bounds = [min(-(-n * i // n_parts // unit) * unit, n) for i in range(n_parts + 1)]
        for done in [self._pool.submit(kernel, *arguments, *part) for part in pairwise(bounds)]:
            done.result()


class _Frequencies:
    """The frequency rows and offsets of blocks, drawn when needed; the first blocks are cached while they fit."""

    def __init__(self, kernel: Kernel, seed: int, n_features: int, n_dims: int, backend: Cpu) -> None:
        self._kernel, self._seed, self._n_features, self._n_dims = kernel, seed, n_features, n_dims
        self._rows = kernel.rows(n_features)
        self._cached = np.empty((0, self._rows, n_dims), backend.dtype), np.empty((0, self._rows), backend.dtype)
        self._n_cached = 0
        block_bytes = self._rows * (n_dims + 1) * backend.dtype.itemsize
        self._max_cached = backend.cache_bytes // block_bytes
        self._together = max(1, _GROUP_BYTES // block_bytes)

    def groups(self, first: int, count: int, alone: bool) -> Iterator[tuple[slice, Array, Array]]:
        """Blocks ``first..first+count-1``, some at a time: their numbers, counted from `first`, and their arrays."""
        start, stop = first, first + count
        while start < stop:
            self._cache(start)
            is_cached = start < self._n_cached
            size = 1 if alone else self._n_cached - start if is_cached else self._together
            end = min(stop, start + size)
            W, b = (part[start:end] for part in self._cached) if is_cached else self._draw(start, end)
            yield slice(start - first, end - first), W.reshape(-1, self._n_dims), b.reshape(-1)
            start = end

    def _cache(self, block: int) -> None:
        """Caches `block` if it is the next one and there is room."""
        if block != self._n_cached or block >= self._max_cached:
            return
        if block == len(self._cached[0]):
            room = min(self._max_cached, max(16, 2 * block))
            more = (np.empty((room - block, *part.shape[1:]), part.dtype) for part in self._cached)
            self._cached = tuple(map(np.concatenate, zip(self._cached, more, strict=True)))  # type: ignore[assignment]
        W, b = self._draw(block, block + 1)
        self._cached[0][block], self._cached[1][block] = W[0], b[0]
        self._n_cached += 1

    def _draw(self, start: int, end: int) -> tuple[Array, Array]:
        W = np.empty((end - start, self._rows, self._n_dims), self._cached[0].dtype)
        b = np.empty((end - start, self._rows), W.dtype)
        for i in range(end - start):
            W[i], b[i] = self._kernel.frequencies(self._seed, start + i, self._n_features, self._n_dims, draws)
        return W, b

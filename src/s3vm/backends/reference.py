"""The readable backend, against which the others are tested: every method as its formula, in NumPy."""

from typing import Any

import numpy as np

from s3vm._utils.arrays import blocks
from s3vm._utils.typing import Array, Rows
from s3vm.backends.numpy_base import NumpyBackend
from s3vm.kernels import Kernel

_CHUNK = 4096


class Reference(NumpyBackend):
    """NumPy in one thread."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype, self.n_threads, self.cache_bytes = dtype, 1, 0

    def features(self, kernel: Kernel, seed: int, n_features: int, n_dims: int) -> "_ReferenceFeatures":
        return _ReferenceFeatures(kernel, seed, n_features, n_dims, self.dtype)


class _ReferenceFeatures:
    def __init__(self, kernel: Kernel, seed: int, n_features: int, n_dims: int, dtype: np.dtype[Any]) -> None:
        self.n_features = kernel.whole(n_features)
        self._kernel, self._seed, self._n_dims, self._dtype = kernel, seed, n_dims, dtype

    def features(self, block: int, X: Rows, n_blocks: int = 1) -> Array:
        return np.concatenate([self._block(block + i, X) for i in range(n_blocks)], axis=1)

    def _block(self, block: int, X: Rows) -> Array:
        weights, offsets = self._kernel.frequencies(self._seed, block, self.n_features, self._n_dims)
        z = X @ weights.T.astype(self._dtype) + offsets.astype(self._dtype)
        angle = 2 * np.pi * (z - np.rint(z))
        if self._kernel.activation == "pairs":
            phi = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
        elif self._kernel.activation == "phase":
            phi = np.cos(angle)
        else:
            phi = z.reshape(len(z), self.n_features, -1).prod(axis=2)
        return phi * self._dtype.type(self._kernel.amplitude / np.sqrt(self.n_features))

    def decision(self, coefficients: Array, X: Rows, first_block: int = 0) -> Array:
        scores = np.zeros((X.shape[0], coefficients.shape[2]))
        for rows in blocks(X.shape[0], _CHUNK):
            for i, alpha in enumerate(coefficients):
                scores[rows] += self.features(first_block + i, X[rows]) @ alpha
        return scores

    def adjoint(self, G: Array, X: Rows, n_blocks: int, first_block: int = 0) -> Array:
        result = np.zeros((n_blocks, self.n_features, G.shape[1]))
        for rows in blocks(X.shape[0], _CHUNK):
            for i in range(n_blocks):
                result[i] += self.features(first_block + i, X[rows]).T @ G[rows]
        return result

"""The learnt function, which does not depend on how it was trained."""

from dataclasses import dataclass, replace

import numpy as np

from s3vm._utils.arrays import host
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.kernels import Kernel


@dataclass(frozen=True, eq=False)
class Model:
    """A kernel expansion and a random-feature expansion, either of which may be empty.

    ``f_k(x) = sum_i weights[i, k] k(centers[i], x) + sum_tj coefficients[t, j, k] phi_tj(x) + intercept[k]``.

    The features ``phi_tj`` are not stored: they are drawn from `kernel` and `seed`.
    """

    kernel: Kernel
    seed: int
    n_dims: int
    coefficients: Array
    intercept: Array
    centers: Rows = None
    weights: Array | None = None

    def decision(self, X: Rows, backend: Backend) -> Array:
        """``f(x)`` for every row and column, shape ``(n, K)``."""
        scores = np.tile(np.asarray(self.intercept, dtype=np.float64), (X.shape[0], 1))
        if self.weights is not None and len(self.weights):
            scores += backend.expansion(self.kernel, self.centers, self.weights, X)
        if len(self.coefficients):
            features = backend.features(self.kernel, self.seed, self.coefficients.shape[1], self.n_dims)
            scores += host(features.decision(self.coefficients, X))
        return scores

    def columns(self, chosen: slice) -> "Model":
        """The model of the chosen columns, without centres whose weights are all 0."""
        model = replace(
            self,
            coefficients=np.ascontiguousarray(self.coefficients[:, :, chosen]),
            intercept=self.intercept[chosen],
        )
        if self.weights is None:
            return model
        weights = self.weights[:, chosen]
        used = np.flatnonzero(weights.any(axis=1))
        return replace(model, centers=self.centers[used], weights=np.ascontiguousarray(weights[used]))

    @property
    def is_finite(self) -> bool:
        """Whether all coefficients are."""
        parts = [self.coefficients, self.intercept] + ([] if self.weights is None else [self.weights])
        return all(bool(np.isfinite(part).all()) for part in parts)

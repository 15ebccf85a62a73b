"""The learnt function, which does not depend on how it was trained."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from s3vm._utils.arrays import host, project
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.kernels import Kernel

_PROJECTED_BYTES = 64 << 20  # of rows that are projected at a time


@dataclass(frozen=True, eq=False)
class Model:
    """A kernel expansion and a random-feature expansion, either of which may be empty, of rows mapped linearly.

    ``f_k(x) = sum_i weights[i, k] k(centers[i], z) + sum_tj coefficients[t, j, k] phi_tj(z) + intercept[k]``,

    where z is x itself, ``z_j = x_j projection[j]`` (column weights) or ``z = x @ projection`` (directions). Centres
    are such z, of `n_dims` columns. The features ``phi_tj`` are not stored: they are drawn from `kernel` and `seed`.
    """

    kernel: Kernel
    seed: int
    n_dims: int
    coefficients: Array
    intercept: Array
    centers: Rows = None
    weights: Array | None = None
    projection: Array | None = None  # a factor per column (d,), or directions (d, n_dims)

    @property
    def n_features_in(self) -> int:
        """The number of columns of x."""
        return self.n_dims if self.projection is None else len(self.projection)

    @property
    def column_weights(self) -> Array | None:
        """The factor of each column of x; None if x is projected on directions."""
        if self.projection is None:
            return np.broadcast_to(1.0, self.n_dims)  # which takes no memory, however many there are
        return self.projection if self.projection.ndim == 1 else None

    def after(self, directions: Array | None) -> "Model":
        """The model of rows x, where this is one of the rows ``x @ directions``."""
        if directions is None:
            return self
        if self.projection is not None:
            exact = directions.astype(np.float64)
            directions = exact * self.projection if self.projection.ndim == 1 else exact @ self.projection
        return replace(self, projection=directions)

    def decision(self, X: Rows, backend: Backend) -> Array:
        """``f(x)`` for every row and column, shape ``(n, K)``."""
        scores = np.tile(np.asarray(self.intercept, dtype=np.float64), (X.shape[0], 1))
        features: Any = None
        if len(self.coefficients):
            features = backend.features(self.kernel, self.seed, self.coefficients.shape[1], self.n_dims)
        for part in self._parts(X):
            rows = X if self.projection is None else project(X[part], self.projection)
            if self.weights is not None and len(self.weights):
                scores[part] += backend.expansion(self.kernel, self.centers, self.weights, rows)
            if features is not None:
                scores[part] += host(features.decision(self.coefficients, rows))
        return scores

    def _parts(self, X: Rows) -> Iterator[slice]:
        """All rows at once, or as many as are projected at a time."""
        size = max(1, int(X.shape[0]))
        if self.projection is not None and (self.projection.ndim == 2 or not sparse.issparse(X)):
            size = max(1, _PROJECTED_BYTES // (8 * self.n_dims))
        return (slice(start, start + size) for start in range(0, X.shape[0], size))

    def columns(self, chosen: slice) -> "Model":
        """The model of the chosen columns, without centres whose weights are all 0."""
        model = replace(
            self, coefficients=np.ascontiguousarray(self.coefficients[:, :, chosen]), intercept=self.intercept[chosen]
        )
        if self.weights is None:
            return model
        weights = self.weights[:, chosen]
        used = np.flatnonzero(weights.any(axis=1))
        return replace(model, centers=self.centers[used], weights=np.ascontiguousarray(weights[used]))

    @property
    def is_finite(self) -> bool:
        """Whether all coefficients are."""
        parts = [self.coefficients, self.intercept]
        parts += [part for part in (self.weights, self.projection) if part is not None]
        return all(bool(np.isfinite(part).all()) for part in parts)

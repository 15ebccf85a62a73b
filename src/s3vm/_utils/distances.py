"""Distances between rows, and gradients of functions of distances."""

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.metrics import pairwise

from s3vm._utils.arrays import is_tensor, namespace
from s3vm._utils.typing import Array

PANEL = 256  # rows


def narrow(X: Any) -> Any:
    """A sparse matrix with 32-bit indices, which scikit-learn's Manhattan distance requires."""
    if not sparse.issparse(X) or X.indices.dtype == X.indptr.dtype == np.int32:
        return X
    if max(X.nnz, *X.shape) > np.iinfo(np.int32).max:
        raise ValueError("the Laplacian kernel takes at most 2^31 sparse entries and columns at a time: give fewer")
    narrow = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return type(X)((X.data, *narrow), shape=X.shape)


def by_panels(A: Any, B: Any) -> Any:
    """``A @ B``. Whole panels of rows have products of one shape, so that no row depends on the others."""
    if sparse.issparse(A) or len(A) % PANEL or is_tensor(A):
        return A @ B
    return (A.reshape(-1, PANEL, A.shape[1]) @ B).reshape(len(A), B.shape[1])


def squared_distances(X: Any, Z: Any, scale: float) -> Array:
    """``scale ||x - z||^2`` by one product of rows moved to the mean of Z, which loses least to rounding."""
    X, Z = scaled(X, scale), scaled(Z, scale)
    if sparse.issparse(X) or sparse.issparse(Z):
        return pairwise.euclidean_distances(X, Z, squared=True)
    center = Z.mean(axis=0) if len(Z) else 0
    X, Z = X - center, Z - center
    xp = namespace(X)
    of_x, of_z = xp.einsum("ij,ij->i", X, X), xp.einsum("ij,ij->i", Z, Z)
    left = xp.column_stack([X, of_x, xp.ones_like(of_x)])
    result = by_panels(left, xp.column_stack([-2 * Z, xp.ones_like(of_z), of_z]).T)
    return xp.clip(result, 0, None, out=result)


def radial_gradient(slope: Array, X: Array, Z: Array, weights: Array) -> Array:
    """``sum_i weights[i, k] slope(x, z_i) (x - z_i)``, with rows moved to the mean of Z as in `squared_distances`."""
    center = Z.mean(axis=0)
    X, Z = X - center, Z - center
    parts = (slope * w for w in weights.T)
    return np.stack([part.sum(axis=1)[:, None] * X - part @ Z for part in parts])


def scaled(X: Any, scale: float) -> Any:
    """Rows times ``sqrt(scale)``, so that neither huge nor tiny rows leave the range of their precision."""
    return X * float(np.sqrt(scale))

"""Sparse matrices from parts that cannot be trusted."""

from typing import Any

import numpy as np
from scipy import sparse

__all__ = ["as_csr", "csr"]


def csr(data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> Any:
    """The matrix of these parts; a ValueError if they are inconsistent."""
    _check(data, indices, indptr, shape)
    return sparse.csr_array((data, indices, indptr), shape=shape)


def as_csr(X: Any) -> Any:
    """A sparse matrix of any kind as CSR, each entry stored once; a ValueError if its parts are inconsistent."""
    _check_parts(X)
    X = X.tocsr()
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def _check_parts(X: Any) -> None:
    """Raises a ValueError if the parts of a sparse matrix are inconsistent, as they may be after writing to them."""
    if X.ndim != 2:
        return  # not rows, which the caller reports
    if X.format in ("csr", "csc"):
        _check(X.data, X.indices, X.indptr, X.shape if X.format == "csr" else X.shape[::-1])
    elif X.format == "coo":
        for indices, end in zip((X.row, X.col), X.shape, strict=True):
            if len(indices) != len(X.data) or (len(indices) and not 0 <= indices.min() <= indices.max() < end):
                raise ValueError(f"entries of a sparse matrix are outside its shape {X.shape}")


def _check(data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> None:
    """Compiled loops do not check indices, so each must be valid.

    Indices are compared, not subtracted as in SciPy's own check: a difference of 32-bit integers may overflow and have
    the wrong sign.
    """
    n_rows, n_columns = shape
    flat = all(isinstance(part, np.ndarray) and part.ndim == 1 for part in (data, indices, indptr))
    if not flat or any(part.dtype.kind not in "iu" for part in (indices, indptr)):
        raise ValueError("the indices of a sparse matrix must be one-dimensional arrays of integers")
    if min(shape) < 0 or len(indptr) != n_rows + 1 or len(data) != len(indices):
        raise ValueError(f"the parts of a sparse matrix do not fit its shape {shape}")
    ascending = bool(np.all(indptr[1:] >= indptr[:-1]))
    if not ascending or indptr[0] != 0 or indptr[-1] > len(data):
        raise ValueError("the row pointers of a sparse matrix must ascend from 0 to at most its number of entries")
    if len(indices) and not 0 <= indices.min() <= indices.max() < n_columns:
        raise ValueError(f"entries of a sparse matrix are outside its {n_columns:,} columns")

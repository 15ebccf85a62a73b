"""Sparse matrices whose parts somebody else has made."""

from typing import Any

import numpy as np
from scipy import sparse

__all__ = ["as_csr", "csr"]


def csr(data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> Any:
    """The matrix of these parts; a ValueError if they do not make one."""
    _check(data, indices, indptr, shape)
    return sparse.csr_array((data, indices, indptr), shape=shape)


def as_csr(X: Any) -> Any:
    """A sparse matrix of any kind as CSR, each entry stored once; a ValueError if its parts do not make one."""
    _check_parts(X)
    X = X.tocsr()
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def _check_parts(X: Any) -> None:
    """Raises a ValueError if the parts of a sparse matrix, which anyone may have written to, do not make one."""
    if X.ndim != 2:
        return  # and no rows: who asked for some says so
    if X.format in ("csr", "csc"):
        _check(X.data, X.indices, X.indptr, X.shape if X.format == "csr" else X.shape[::-1])
    elif X.format == "coo":
        for places, end in zip((X.row, X.col), X.shape, strict=True):
            if len(places) != len(X.data) or (len(places) and not 0 <= places.min() <= places.max() < end):
                raise ValueError(f"entries of a sparse matrix are outside its shape {X.shape}")


def _check(data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> None:
    """Compiled loops follow a place wherever it leads, so that each must be there.

    Places are compared, not subtracted: SciPy's own check subtracts, and a difference of 32-bit numbers that
    overflows has the wrong sign.
    """
    n_rows, n_columns = shape
    flat = all(isinstance(part, np.ndarray) and part.ndim == 1 for part in (data, indices, indptr))
    if not flat or any(part.dtype.kind not in "iu" for part in (indices, indptr)):
        raise ValueError("the places of the entries of a sparse matrix are not whole numbers")
    if min(shape) < 0 or len(indptr) != n_rows + 1 or len(data) != len(indices):
        raise ValueError(f"the parts of a sparse matrix are not those of one of shape {shape}")
    rising = bool(np.all(indptr[1:] >= indptr[:-1]))
    if not rising or indptr[0] != 0 or indptr[-1] > len(data):
        raise ValueError("the rows of a sparse matrix do not begin where the rows before them end")
    if len(indices) and not 0 <= indices.min() <= indices.max() < n_columns:
        raise ValueError(f"entries of a sparse matrix are outside its {n_columns:,} columns")

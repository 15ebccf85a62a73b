"""Checks of rows that users and files give, for what NumPy, SciPy and scikit-learn let pass."""

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.sparsefuncs import mean_variance_axis
from sklearn.utils.validation import validate_data

from s3vm._utils.arrays import namespace
from s3vm._utils.settings import invalid
from s3vm._utils.warn import warn

LARGEST = {"float32": 1e30, "float64": 1e150}
"""How large an entry of X may be: sums of squares must not overflow."""

_NEGLIGIBLE = 0.005  # share of the variance
_SOME = 10_000  # rows by which it is judged
_CLOSE = 2.0**-16  # of the size of a column: a wider range has at least 256 different values in float32


class RowsError(ValueError):
    """The rows themselves are at fault: a damaged file, or a stream that has ended."""


def shortened(problem: Any, length: int = 200) -> str:
    """A message of another library, or text of a file, in one line that is not too long."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    return text if len(text) <= length else text[: length - 3] + "..."


def printable(text: str) -> str:
    """The text without control characters: a file may name its classes and columns as it likes."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def precision(dtype: Any) -> np.dtype[Any]:
    """The precision of that name; a ValueError unless rows may have it."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", getattr(dtype, "__name__", ""))
    if name not in LARGEST:
        raise invalid("dtype", dtype, '"float32" or "float64"')
    return np.dtype(name)


def validated(estimator: Any, X: Any, *, reset: bool = True) -> Any:
    """X as a finite array or CSR matrix; scikit-learn's advice on NaN is replaced."""
    try:
        return validate_data(estimator, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32])
    except ValueError as problem:
        fault = str(problem).partition("\n")[0]
        if "contains NaN" not in fault:
            raise
        advice = "Fill in missing values by an imputer in a pipeline, or give a data frame to a TableEncoder() in one"
        raise ValueError(f"{fault} {advice}") from None


def check_numbers(X: Any) -> None:
    """Raises a ValueError if rows are masked, dates or times, which NumPy silently takes for plain numbers."""
    parts = X if isinstance(X, list | tuple) else [X]
    if any(is_masked(part) for part in parts):
        raise ValueError("X is a masked array with masked entries: fill them in, X.filled(0), or leave such rows out")
    for kind in _dtypes(X, parts):
        if str(kind).lower().startswith(("date", "time", "duration")):
            raise ValueError(
                f"X has dates or times ({kind}), which cannot be features: make numbers of them, by a TableEncoder() "
                "in a pipeline, or as the days since a first day"
            )


def is_masked(x: Any) -> bool:
    """Whether x is a masked array of NumPy with masked entries."""
    return isinstance(x, np.ma.MaskedArray) and bool(np.ma.is_masked(x))


def _dtypes(X: Any, parts: Any) -> list[Any]:
    """The types of the columns of a frame, or of the rows of a list, or of an array."""
    of_frame = getattr(X, "dtypes", None)
    if of_frame is not None:
        return list(of_frame) if hasattr(of_frame, "__iter__") else [of_frame]
    if hasattr(X, "schema"):  # of Arrow
        return list(X.schema.types)
    firsts = [part[0] if isinstance(part, list | tuple) and part else part for part in parts]
    return [getattr(first, "dtype", type(first).__name__) for first in firsts]


def dense_tensor(x: Any) -> Any:
    """A dense tensor in a precision that NumPy knows; a ValueError if it is sparse."""
    if x.layout is not namespace(x).strided:
        raise ValueError(
            f"rows are a sparse tensor ({x.layout}): give a SciPy matrix, such as "
            "scipy.sparse.coo_array((values, indices), shape).tocsr(), or x.to_dense()"
        )
    return x.float() if x.is_floating_point() and x.element_size() < 4 else x  # bfloat16, too


def check_size(entries: Any, dtype: Any) -> None:
    """Raises a ValueError if an entry is too large for that precision."""
    largest = max(float(entries.max()), -float(entries.min())) if entries.size else 0.0
    if largest > LARGEST[precision(dtype).name]:
        raise ValueError(f"X has entries up to {largest:.1e}, too large for {dtype}: standardise the features first")


def warn_of_lost_digits(X: Any, dtype: Any) -> None:
    """Warns of columns whose values differ beyond that precision, such as times in seconds."""
    if not isinstance(X, np.ndarray) or X.dtype.itemsize <= np.dtype(dtype).itemsize or not len(X):
        return
    low, high = X.min(axis=0), X.max(axis=0)
    close = np.flatnonzero((high > low) & (high - low < _CLOSE * np.maximum(abs(low), abs(high))))
    lost = [int(column) for column in close if (X[:, column].astype(dtype) != X[:, column]).any()]
    if lost:
        warn(
            f"columns {lost[:5]} of X differ in digits that {np.dtype(dtype).name} does not hold: subtract a constant "
            'from them, as StandardScaler does, or give dtype="float64"'
        )


def warn_of_spreads(X: Any, names: Any = None) -> None:
    """Warns if a tenth of the features have nearly all of the variance, so that the others hardly count."""
    if X.shape[0] < 2 or X.shape[1] < 2 or (not hasattr(X, "tocsr") and not isinstance(X, np.ndarray)):
        return
    X = X[:: max(1, X.shape[0] // _SOME)]
    variances = (
        mean_variance_axis(X.astype(np.float64), 0)[1] if sparse.issparse(X) else X.var(axis=0, dtype=np.float64)
    )
    order = np.argsort(-variances)
    rest = order[max(1, len(order) // 10) :]
    if 0 < variances[rest].sum() < _NEGLIGIBLE * variances.sum():
        names = [str(k) for k in range(len(order))] if names is None else names
        high, low = order[0], rest[0]
        warn(
            f"features are not scaled: {names[high]!r} has a standard deviation of {np.sqrt(variances[high]):.3g} and "
            f"{names[low]!r} of {np.sqrt(variances[low]):.3g}, so that the latter hardly counts: scale them"
        )


def csr(data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> Any:
    """The matrix of these parts; a ValueError if they are inconsistent."""
    _check_csr(data, indices, indptr, shape)
    return sparse.csr_array((data, indices, indptr), shape=shape)


def as_csr(X: Any) -> Any:
    """A sparse matrix of any kind as CSR, each entry stored once.

    A ValueError if its parts are inconsistent, as they may be after writing to them.
    """
    if X.format in ("csr", "csc") and X.ndim == 2:  # the caller reports other dimensions
        _check_csr(X.data, X.indices, X.indptr, X.shape if X.format == "csr" else X.shape[::-1])
    elif X.format == "coo" and X.ndim == 2:
        for indices, end in zip((X.row, X.col), X.shape, strict=True):
            if len(indices) != len(X.data) or (len(indices) and not 0 <= indices.min() <= indices.max() < end):
                raise ValueError(f"entries of a sparse matrix are outside its shape {X.shape}")
    X = X.tocsr()
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def _check_csr(data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> None:
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

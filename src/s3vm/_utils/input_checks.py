"""Checks of rows that users give, for what NumPy and scikit-learn let pass."""

from typing import Any

import numpy as np

from s3vm._utils.warn import warn

__all__ = ["LARGEST", "check_numbers", "check_size", "is_masked", "precision", "warn_of_lost_digits"]

LARGEST = {"float32": 1e30, "float64": 1e150}
"""How large an entry of X may be: sums of squares must not overflow."""

_CLOSE = 2.0**-16  # of the size of a column: a wider range has at least 256 different values in float32


def precision(dtype: Any) -> np.dtype[Any]:
    """The precision of that name; a ValueError unless rows may have it."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", getattr(dtype, "__name__", ""))
    if name not in LARGEST:
        raise ValueError(f'dtype={dtype!r} is not supported: give "float32" or "float64"')
    return np.dtype(name)


def check_numbers(X: Any) -> None:
    """Raises a ValueError if rows are masked, dates or times, which NumPy silently takes for plain numbers."""
    parts = X if isinstance(X, list | tuple) else [X]
    if any(is_masked(part) for part in parts):
        raise ValueError("X is a masked array with masked entries: fill them in, X.filled(0), or leave such rows out")
    for kind in _dtypes(X, parts):
        if str(kind).lower().startswith(("date", "time", "duration")):
            raise ValueError(
                f"X has dates or times ({kind}), which cannot be features: make numbers of them, such as the days "
                "since a first day"
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

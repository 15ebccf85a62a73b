"""Labels of any kind, some of them missing."""

from typing import Any

import numpy as np
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from s3vm._typing import Array

__all__ = ["labelled_rows"]


def labelled_rows(y: Any, unlabeled: Any) -> Array:
    """Which rows of `y` carry a label.

    `unlabeled` is the mark of an unlabelled row: a value, or None for missing ones (None, NaN, ``pandas.NA``). In an
    array of strings the mark -1 is ``"-1"``, since that is what NumPy makes of it. What is left must be class labels;
    a ValueError says what is wrong with them and what to do.
    """
    missing = _missing(y)
    if unlabeled is None:
        labelled = ~missing
    else:
        if missing.any():
            raise ValueError(
                f"Input y contains NaN or None ({missing.sum()} times): set unlabeled=None if they mean unlabelled, "
                f"or mark unlabelled rows with {unlabeled!r}"
            )
        labelled = ~_equal(y, unlabeled)
    if not labelled.any():
        raise ValueError(
            f"no labelled rows: every label is {'missing' if unlabeled is None else repr(unlabeled)}. "
            "Give at least one labelled row of each class"
        )
    known = y[labelled]
    if known.dtype.kind == "f" and not np.isfinite(known).all():
        raise ValueError("Input y contains infinity, which is not a class")
    check_classification_targets(known)
    if unlabeled == -1 and not labelled.all() and _is_all_ones(known):
        raise ValueError(
            "y holds only -1 and 1, which is ambiguous: with unlabeled=-1 the rows marked -1 count as unlabelled and "
            "one class is left. If -1 is a class, recode the classes (to 0 and 1, say) or set unlabeled=None and mark "
            "unlabelled rows with NaN"
        )
    return labelled


def as_labels(y: Any) -> Array:
    """`y` as a one-dimensional array; strings of varying kinds become objects, so that a mark fits in."""
    if y is None:
        raise ValueError("S3VMClassifier requires y to be passed, but the target y is None")
    array = column_or_1d(np.asarray(y), warn=True)
    return array.astype(object) if array.dtype.kind == "T" else array


def _missing(y: Array) -> Array:
    if y.dtype.kind == "f":
        return np.isnan(y)
    if y.dtype.kind == "O":
        return np.array(
            [value is None or type(value).__name__ == "NAType" or value != value for value in y], dtype=bool
        )
    return np.zeros(len(y), dtype=bool)


def _equal(y: Array, mark: Any) -> Array:
    if y.dtype.kind == "U":
        return y == str(mark)
    if y.dtype.kind == "O":
        return np.array([value == mark or (isinstance(value, str) and value == str(mark)) for value in y], dtype=bool)
    return y == mark if not isinstance(mark, str) else np.zeros(len(y), dtype=bool)


def _is_all_ones(known: Array) -> bool:
    return bool(np.all(_equal(known, 1)))

"""Labels of any kind, some of them missing."""

from collections.abc import Sized
from typing import Any

import numpy as np
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from s3vm._utils.arrays import host
from s3vm._utils.input_checks import is_masked
from s3vm._utils.typing import Array
from s3vm._utils.warn import warn


def split_labels(y: Any, unlabeled: Any) -> tuple[Array, Array]:
    """Which rows carry a label, and the labels of those.

    `unlabeled` is the mark of an unlabelled row: a value, or None for missing ones (None, NaN, ``pandas.NA``). In an
    array of strings the mark -1 is ``"-1"``, as NumPy converts it. The other labels must be class labels of one kind;
    a ValueError says what is wrong with them and what to do.
    """
    y = as_column(y)
    labeled = is_labeled(y, unlabeled)
    return labeled, checked_labels(y[labeled], unlabeled, some_unlabeled=not labeled.all())


def scored_labels(y: Any, unlabeled: Any) -> tuple[Array, Array]:
    """Which rows can be scored, and their labels, which need not be of several classes."""
    y = as_column(y)
    known = is_labeled(y, unlabeled)
    if not known.any():
        raise ValueError("no labelled rows to score: in a search, cv=LabeledKFold() puts some into every test part")
    return known, checked_labels(y[known], unlabeled, some_unlabeled=False)


def is_labeled(y: Array, unlabeled: Any) -> Array:
    """Which rows carry a label."""
    missing = _missing(y)
    if unlabeled is None:
        return ~missing
    if missing.any():
        raise ValueError(
            f"Input y contains NaN or None ({missing.sum()} times): set unlabeled=None if they mean unlabelled, "
            "or mark unlabelled rows with a special value, such as -1"
        )
    return ~_equal(y, unlabeled)


def checked_labels(labels: Array, unlabeled: Any, some_unlabeled: bool) -> Array:
    """Labels as numbers or text; a ValueError unless they can be classes."""
    if len(labels) == 0:
        raise ValueError(
            f"no labelled rows: every label is {'missing' if unlabeled is None else repr(unlabeled)}. "
            "Give at least one labelled row of each class"
        )
    labels = _of_one_kind(labels)
    check_classification_targets(labels)
    if unlabeled == -1 and some_unlabeled and np.all(_equal(labels, 1)):
        raise ValueError(
            "y holds only -1 and 1, which is ambiguous: with unlabeled=-1 the rows marked -1 are unlabelled, and only "
            "one class remains. If -1 is a class, recode the classes (to 0 and 1, say) or set unlabeled=None, which "
            "treats missing labels (NaN, None, an empty cell of a file) as unlabelled rows. If -1 means unlabelled, "
            "label rows of a second class"
        )
    return labels


def as_column(y: Any) -> Array:
    """Labels as an array of one dimension."""
    if y is None:
        raise ValueError("S3VMClassifier requires y to be passed, but the target y is None")
    y = host(y)
    if getattr(y, "shape", ())[1:] == (1,):
        advice = "give y.ravel(), or a column instead of a table of one"
        warn(f"A column-vector y was passed when a 1d array was expected: {advice}", DataConversionWarning)
        if hasattr(y, "columns"):  # of a table of pandas, Polars or Arrow, since it may have nullable integers
            y = y.column(0) if hasattr(y, "column") else y[y.columns[0]]
    if is_masked(y):
        raise ValueError("y is a masked array with masked labels: y.filled(-1) marks those rows as unlabelled")
    if str(getattr(y, "dtype", getattr(y, "type", ""))).lower().startswith(("int", "uint", "bool")):
        # Nullable integers and booleans of pandas, Polars and Arrow: NumPy would turn those with nulls into floats.
        values = np.asarray(y)
        y = values if values.dtype.kind in "biu" else list(y.to_pylist() if hasattr(y, "to_pylist") else y)
    # A list goes through objects: NumPy would turn ["a", None] or ["a", nan] into text.
    is_list = isinstance(y, list | tuple)
    y = column_or_1d(np.array(y, dtype=object) if is_list else np.asarray(y), warn=is_list)
    if y.dtype.kind == "V":
        raise ValueError(f"y has several values per row ({y.dtype}): give one label per row")
    if y.dtype.kind in "mM":
        raise ValueError(f"y has dates or times ({y.dtype}), which cannot be classes: give numbers or text")
    return y.astype(object) if y.dtype.kind == "T" else y


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


def _of_one_kind(labels: Array) -> Array:
    """Labels as an array of numbers or of text."""
    if labels.dtype.kind == "O":
        if len({isinstance(value, str) for value in labels}) > 1:
            raise ValueError("y mixes text and other labels: give one kind, except for the mark of unlabelled rows")
        if any(isinstance(value, Sized) and not isinstance(value, str | bytes) for value in labels):
            raise ValueError("y has labels that are lists or tuples: give one number or text per row")
        labels = np.array(labels.tolist())
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("Input y contains infinity, which cannot be a class")
    return labels

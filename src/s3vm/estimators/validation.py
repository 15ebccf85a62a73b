"""What a user may give as rows, and what it becomes: arrays, sparse matrices, data frames, tensors, files, sources.

These functions read the parameters of an estimator, and set the names and the number of its columns on it.
"""

import os
import re
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import _check_sample_weight

from s3vm._utils.arrays import as_rows, host, is_tensor
from s3vm._utils.input_checks import (
    LARGEST,
    as_csr,
    check_numbers,
    check_size,
    dense_tensor,
    is_masked,
    validated,
    warn_of_lost_digits,
    warn_of_spreads,
)
from s3vm._utils.progress import ProgressBar
from s3vm._utils.settings import invalid
from s3vm._utils.typing import Array
from s3vm._utils.warn import warn
from s3vm.backends import Backend
from s3vm.estimators.labels import as_column, split_labels
from s3vm.estimators.preparation import TrainingRows
from s3vm.solvers import solver
from s3vm.sources import ArraySource, Source, is_source
from s3vm.sources.batches import BatchSource
from s3vm.sources.streams import MappedSource

_MAX_WEIGHT = 1e12  # of a row: far larger ones cannot be solved in float64


def is_dask(X: Any) -> bool:
    """Whether X is a dask array or data frame."""
    return hasattr(X, "dask") and hasattr(X, "to_delayed")


def given_rows(
    estimator: Any, X: Any, y: Any, sample_weight: Any, groups: Any, X_unlabeled: Any, *, reset: bool, backend: Backend
) -> tuple[TrainingRows, Source | None]:
    """Rows with their labels and weights, and the source of the unlabelled ones, if they do not come from X."""
    given, source = X, None
    if is_source(X):
        if any(part is not None for part in (y, X_unlabeled, sample_weight, groups)):
            raise ValueError("a source stands for X, y and X_unlabeled: give it alone, or as X_unlabeled=source")
        if not hasattr(X, "labeled"):
            raise ValueError("this source has no labels: give labelled rows too, fit(X, y, X_unlabeled=source)")
        source = X
        if hasattr(source, "survey"):  # reads all rows once
            progress = ProgressBar(0 if callable(estimator.verbose) else estimator.verbose, unit="rows read")
            source.survey(lambda n_rows: progress(n_rows, None, {}))
            progress.close()
        X, y = source.labeled()
    rows = training_rows(estimator, X, y, sample_weight, groups, reset=reset, backend=backend)
    if getattr(source, "has_all_labels", False):
        _keep_names(estimator, source)
        source = None
    warn_of_spreads(rows.X, getattr(estimator, "feature_names_in_", None))
    if X_unlabeled is not None:
        source = _as_source(estimator, X_unlabeled, rows.X.shape[1], backend)
    estimator.zero_based_ = getattr(given if source is None else source, "zero_based", None)
    if source is None:
        return rows, None
    if not split_labels(rows.y, estimator.unlabeled)[0].all():
        raise ValueError(
            f"some rows of X are marked {estimator.unlabeled!r}, unlabelled, although a source of unlabelled rows is "
            "given: remove them or put them into the source; FileSource takes mark=[...] for values that mean no label"
        )
    if source.n_dims != rows.X.shape[1]:
        raise ValueError(f"the labelled rows have {rows.X.shape[1]} columns, the unlabelled ones {source.n_dims}")
    _keep_names(estimator, source)
    if getattr(source, "dtype", np.dtype(estimator.dtype)) != np.dtype(estimator.dtype):
        source = MappedSource(source, partial(as_rows, dtype=estimator.dtype))
    return rows, source


def training_rows(
    estimator: Any, X: Any, y: Any, sample_weight: Any, groups: Any = None, *, reset: bool, backend: Backend
) -> TrainingRows:
    """Rows in memory with their labels, weights and groups, of one length."""
    if is_dask(X):
        raise ValueError("partial_fit needs rows in memory: give all dask collections to fit at once")
    X, y = checked_rows(estimator, X, reset=reset, backend=backend), as_column(y)
    groups = None if groups is None else as_column(groups)
    check_consistent_length(X, y, groups)
    warn_of_lost_digits(X, estimator.dtype)
    return TrainingRows(X, y, _checked_weight(sample_weight, X), groups)


def _checked_weight(sample_weight: Any, X: Any) -> Array:
    needed = f"sample_weight must have one non-negative value per row ({X.shape[0]} rows)"
    if is_masked(sample_weight):
        raise ValueError(f"{needed}, but some are masked")
    if getattr(getattr(sample_weight, "dtype", None), "kind", "f") in "mM":
        raise ValueError(f"{needed}, not dates or times")
    try:
        weight = _check_sample_weight(host(sample_weight), X, dtype=np.float64, ensure_non_negative=True)
    except (TypeError, ValueError) as problem:
        raise ValueError(f"{needed}: {problem}") from problem
    if weight.max(initial=0) > _MAX_WEIGHT:
        raise ValueError(f"{needed} of at most {_MAX_WEIGHT:g}, not {weight.max():g}: divide all of them by a number")
    if not weight.any():  # pragma: no cover - newer versions of scikit-learn say so themselves
        raise ValueError(f"{needed}, one of them non-zero")
    return weight


def _keep_names(estimator: Any, source: Any) -> None:
    """Keeps the names of the source's columns, if it has any; they must be those of X."""
    names = getattr(source, "names", None)
    if names is None:
        return
    known = getattr(estimator, "feature_names_in_", None)
    if known is not None and list(known) != list(names):
        raise ValueError(f"the columns of X are {list(known)[:5]}..., those of the source {list(names)[:5]}...")
    estimator.feature_names_in_ = np.array(names, dtype=object)


def _as_source(estimator: Any, X_unlabeled: Any, n_features: int, backend: Backend) -> Any:
    """Unlabelled rows of any kind as a source."""
    if isinstance(X_unlabeled, str | os.PathLike):
        from s3vm.sources.files import source_of

        X_unlabeled = source_of(X_unlabeled, estimator.dtype, n_features)
    chosen = None
    if isinstance(X_unlabeled, ArraySource):  # its rows have not been checked yet
        X_unlabeled, chosen = X_unlabeled.X, X_unlabeled.chosen
        if chosen is not None and not len(chosen):
            raise ValueError("the source of unlabelled rows is empty: leave X_unlabeled=None")
    elif is_source(X_unlabeled):
        return X_unlabeled
    if hasattr(X_unlabeled, "shape"):
        X = checked_rows(estimator, X_unlabeled, reset=False, backend=backend)
        return ArraySource(X, chosen, estimator.dtype)
    if callable(X_unlabeled) or hasattr(X_unlabeled, "__iter__"):
        return BatchSource(X_unlabeled, dtype=estimator.dtype)
    raise invalid("X_unlabeled", X_unlabeled, "an array, a path, a source or an iterable of batches")


def checked_rows(estimator: Any, X: Any, *, reset: bool = False, backend: Backend | None = None) -> Any:
    """X as a finite array or CSR matrix whose entries the precision can hold; copied only if necessary.

    Without the `backend` that the rows are for, tensors become arrays.
    """
    if is_tensor(X):
        return _checked_tensor(estimator, X, reset=reset, backend=backend)
    check_numbers(X)
    if sparse.issparse(X):
        X = as_csr(X)  # before its indices are used
    # Older versions of scikit-learn let this pass.
    if hasattr(X, "iloc") and hasattr(X, "columns") and not X.columns.is_unique:
        raise ValueError("X needs unique column names, but some occur twice: rename those columns")
    try:
        with np.errstate(invalid="ignore"):  # an error speaks of infinities of both signs
            X = validated(estimator, X, reset=reset)
    except (OverflowError, TypeError, ValueError) as problem:
        message = str(problem)
        if re.search("float|array element|promoted", message) is None or re.search("contains|feature names", message):
            raise
        kind = TypeError if isinstance(problem, TypeError) else ValueError
        raise kind(
            f"X is not a matrix of numbers ({problem}): give an array, a sparse matrix or a data frame, with text "
            "and dates encoded as numbers, as by make_pipeline(TableEncoder(), ...)"
        ) from problem
    check_size(X.data if sparse.issparse(X) else X, estimator.dtype)
    return X


def _checked_tensor(estimator: Any, X: Any, *, reset: bool, backend: Backend | None) -> Any:
    """A tensor where it is, if the solver and the backend compute there, else as an array."""
    X = dense_tensor(X)
    device = getattr(backend, "device", None)
    stays = device is not None and device.type == X.device.type and solver(estimator.solver).takes_tensors
    if X.device.type == "cpu" or not stays:
        return checked_rows(estimator, host(X), reset=reset)
    if X.ndim != 2 or not X.dtype.is_floating_point:
        raise ValueError(f"X needs two dimensions and floating-point entries; got {tuple(X.shape)}, {X.dtype}")
    checked_rows(estimator, host(X[:1]), reset=reset)  # keeps or compares the number of columns
    largest = float(abs(X).max())
    if not largest <= LARGEST[np.dtype(estimator.dtype).name]:
        raise ValueError("X has NaN, infinite or huge entries: fill missing values and standardise the features")
    return X


def renamed(X_unlabeled: Any, unlabeled: Any) -> Any:
    """`X_unlabeled`, which version 0.1 called `unlabeled`."""
    if unlabeled is None:
        return X_unlabeled
    if X_unlabeled is not None:
        raise TypeError("X_unlabeled and unlabeled are the same argument: give X_unlabeled only")
    warn("fit(unlabeled=...) was renamed to fit(X_unlabeled=...); the old name will be removed in 0.3", FutureWarning)
    return unlabeled

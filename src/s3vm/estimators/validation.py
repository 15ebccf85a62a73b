"""What a user may give as rows, and what it becomes: arrays, sparse matrices, data frames, tensors, files, sources."""

import os
import re
import sys
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import _check_sample_weight, validate_data

from s3vm import backends
from s3vm._utils.arrays import as_rows, host, is_tensor
from s3vm._utils.csr import as_csr
from s3vm._utils.input_checks import LARGEST, check_numbers, check_size, is_masked, warn_of_lost_digits
from s3vm.estimators.labels import as_column, split_labels
from s3vm.estimators.training_rows import TrainingRows
from s3vm.solvers import solver
from s3vm.sources import ArraySource, Source, is_source
from s3vm.sources.batches import BatchSource
from s3vm.sources.mapped import MappedSource

__all__ = ["InputValidation"]


class InputValidation:
    """The part of an estimator that looks at rows; of its parameters, it reads these."""

    solver: Any
    backend: str
    dtype: str
    unlabeled: Any
    verbose: Any

    def _rows(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> TrainingRows:
        """Rows with their labels and weights, of one length."""
        backends.backend(self.backend, self.dtype)  # a dtype that is not known cannot be checked against
        X, y = self._checked(X, reset=reset), as_column(y)
        check_consistent_length(X, y)
        warn_of_lost_digits(X, self.dtype)
        if is_masked(sample_weight) or getattr(getattr(sample_weight, "dtype", None), "kind", "f") in "mM":
            raise ValueError(
                f"sample_weight needs a number of at least 0 for each of the {X.shape[0]} rows, and has masked entries "
                "or dates"
            )
        try:
            weight = _check_sample_weight(host(sample_weight), X, dtype=np.float64, ensure_non_negative=True)
        except (TypeError, ValueError) as problem:
            raise ValueError(
                f"sample_weight needs a number of at least 0 for each of the {X.shape[0]} rows, and has not: {problem}"
            ) from problem
        if not weight.any():  # pragma: no cover - newer versions of scikit-learn say so themselves
            raise ValueError(f"sample_weight needs a number of at least 0 for each of the {len(y)} rows, one non-zero")
        return TrainingRows(X, y, weight)

    def _given(
        self, X: Any, y: Any, sample_weight: Any, unlabeled: Any, reset: bool
    ) -> tuple[TrainingRows, Source | None]:
        """Rows with their labels and weights, and where more unlabelled ones come from, if not from the same place."""
        source = None
        if is_source(X):
            if y is not None or unlabeled is not None or sample_weight is not None:
                raise ValueError(
                    "a source stands for X, y and unlabeled: give it alone, or fit(X, y, unlabeled=source)"
                )
            if not hasattr(X, "labelled"):
                raise ValueError("this source knows no labels: give labelled rows too, fit(X, y, unlabeled=source)")
            if hasattr(X, "survey"):
                X.survey(_rows_read(self.verbose))
            source = X
            X, y = source.labelled()
            seen = self._rows(X, y, None, reset)
            if getattr(source, "has_all_labels", False):
                self._keep_names(source)
                source = None
        else:
            seen = self._rows(X, y, sample_weight, reset)
        if unlabeled is not None:
            source = self._source(unlabeled)
        if source is None:
            return seen, None
        if not split_labels(seen.y, self.unlabeled)[0].all():
            raise ValueError(
                f"some rows are marked {self.unlabeled!r}, unlabelled, beside a source of unlabelled rows: leave them "
                "out or put them into the source; FileSource takes mark=[...] for what means no label"
            )
        if source.n_dims != seen.X.shape[1]:
            raise ValueError(f"the labelled rows have {seen.X.shape[1]} columns, the unlabelled ones {source.n_dims}")
        self._keep_names(source)
        if getattr(source, "dtype", np.dtype(self.dtype)) != np.dtype(self.dtype):
            source = MappedSource(source, partial(as_rows, dtype=self.dtype))
        return seen, source

    def _keep_names(self, source: Any) -> None:
        """Keeps the names of the source's columns, if it knows any; they must be those of X."""
        names = getattr(source, "names", None)
        if names is None:
            return
        known = getattr(self, "feature_names_in_", None)
        if known is not None and list(known) != list(names):
            raise ValueError(f"the columns of X are {list(known)[:5]}..., those of the source {list(names)[:5]}...")
        self.feature_names_in_ = np.array(names, dtype=object)

    def _source(self, unlabeled: Any) -> Any:
        """Unlabelled rows of any kind as a source."""
        if isinstance(unlabeled, str | os.PathLike):
            from s3vm.sources.files import source_of

            unlabeled = source_of(unlabeled, self.dtype)
        if isinstance(unlabeled, ArraySource):  # whose rows nobody has looked at yet
            if unlabeled.chosen is not None and not len(unlabeled.chosen):
                raise ValueError("the source of unlabelled rows has none: leave unlabeled=None")
            return ArraySource(self._checked(unlabeled.X, reset=False), unlabeled.chosen, self.dtype)
        if is_source(unlabeled):
            return unlabeled
        if hasattr(unlabeled, "shape"):
            return ArraySource(self._checked(unlabeled, reset=False), None, self.dtype)
        if callable(unlabeled) or hasattr(unlabeled, "__iter__"):
            return BatchSource(unlabeled, dtype=self.dtype)
        raise ValueError(f"unlabeled={unlabeled!r} is not known: give an array, a path, or an iterable of batches")

    def _checked(self, X: Any, reset: bool) -> Any:
        """X as a finite array or CSR matrix whose entries the precision can hold; never copied unless it has to be."""
        if is_tensor(X):
            return self._checked_tensor(X, reset)
        check_numbers(X)
        if sparse.issparse(X):
            X = as_csr(X)  # before anyone else follows its places
        # Older versions of scikit-learn let this pass.
        if hasattr(X, "iloc") and hasattr(X, "columns") and not X.columns.is_unique:
            raise ValueError("X needs unique column names, and some come twice: rename those columns")
        kinds: list[Any] = [np.float64, np.float32]
        try:
            with np.errstate(invalid="ignore"):  # infinities of both signs are told of in words
                X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=kinds, order=None)
        except (OverflowError, TypeError, ValueError) as problem:
            told = str(problem)
            if re.search("float|array element|promoted", told) is None or re.search("contains|feature names", told):
                raise
            kind = TypeError if isinstance(problem, TypeError) else ValueError
            raise kind(
                f"X is not a matrix of numbers ({problem}): give an array, a sparse matrix or a data frame, with text "
                "and dates encoded as numbers"
            ) from problem
        entries = X.data if sparse.issparse(X) else X
        check_size(entries, self.dtype)
        return X

    def _checked_tensor(self, X: Any, reset: bool) -> Any:
        """A tensor where it is, if this trains and predicts there, else as an array."""
        if X.is_floating_point() and X.element_size() < 4:
            X = X.float()  # float16 and bfloat16, the latter of which NumPy does not know
        device = getattr(backends.backend(self.backend, self.dtype), "device", None)
        stays = solver(self.solver).takes_tensors and device is not None and device.type == X.device.type
        if X.device.type == "cpu" or not stays:
            return self._checked(host(X), reset)
        if X.ndim != 2 or not X.dtype.is_floating_point:
            raise ValueError(f"a tensor of rows has two dimensions and real entries; got {tuple(X.shape)}, {X.dtype}")
        self._checked(host(X[:1]), reset)  # its shape is kept, or compared
        largest = float(abs(X).max())
        if not largest <= LARGEST[np.dtype(self.dtype).name]:
            raise ValueError("X has NaN, infinite or huge entries: fill missing values and standardise the features")
        return X


def _rows_read(verbose: Any) -> Any:
    """Who is told how many rows have been read."""
    if callable(verbose) or verbose <= 0:
        return None

    def told(n_rows: int) -> None:
        sys.stderr.write(f"\r{n_rows:,} rows read")
        sys.stderr.flush()

    return told

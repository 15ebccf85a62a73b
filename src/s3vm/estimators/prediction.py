"""Predictions of rows, a chunk at a time."""

from typing import Any

import numpy as np

from s3vm._utils.scores import predicted_codes
from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.estimators.training_rows import FittedRows
from s3vm.model import Model
from s3vm.sources import ArraySource

__all__ = ["codes_of_all", "scores_of"]

_CHUNK = 1 << 16


def scores_of(model: Model, X: Any, positions: Array | None, dtype: str, backend: Backend) -> Array:
    """The model's scores of the rows at those positions; no cast copy of all rows is made."""
    source = ArraySource(X, positions, dtype)
    scores = np.empty((source.n_rows, len(model.intercept)))
    for start in range(0, source.n_rows, _CHUNK):
        chunk = slice(start, start + _CHUNK)
        scores[chunk] = model.decision(source.take(chunk), backend)
    if not np.isfinite(scores).all():
        raise ValueError("some rows of X are too large for this kernel: scale them as the training rows were scaled")
    return scores


def codes_of_all(fitted: FittedRows, model: Model, dtype: str, backend: Backend) -> Array:
    """The class code of each training row: its own, or the predicted one."""
    X = fitted.rows.X
    codes = np.empty(X.shape[0], dtype=np.intp)
    codes[fitted.labeled_at] = fitted.codes
    others = np.setdiff1d(np.arange(X.shape[0]), fitted.labeled_at, assume_unique=True)
    codes[others] = predicted_codes(scores_of(model, X, others, dtype, backend))
    return codes

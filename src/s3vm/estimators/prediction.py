"""Predictions: scores, a chunk of rows at a time, and from scores to probabilities."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax

from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.model import Model
from s3vm.sources import ArraySource

_CHUNK, _CHUNK_BYTES = 1 << 18, 512 << 20  # rows that are predicted together, and bytes of them or of their scores
_LOG_BETAS = (-10.0, 10.0)
_MAX_SCORE = 1e300  # larger ones might overflow when multiplied by beta; the class is certain long before


def scores_of(
    model: Model,
    X: Any,
    positions: Array | None,
    dtype: str,
    backend: Backend,
    result: Callable[[Array], Array] = lambda scores: scores,
) -> Array:
    """The model's scores of the rows at those positions, or a `result` of them; no cast copy of all rows is made."""
    source = ArraySource(X, positions, dtype)
    widest = max(len(model.intercept), 1 if sparse.issparse(X) else source.n_dims)
    size = min(_CHUNK, max(1, _CHUNK_BYTES // (8 * widest)))
    results = np.empty(0)
    for start in range(0, max(1, source.n_rows), size):
        scores = model.decision(source.take(slice(start, start + size)), backend)
        if not np.isfinite(scores).all():
            raise ValueError("some rows of X are too large for this kernel: scale them as the training rows were")
        part = result(scores)
        if start == 0:
            results = np.empty((source.n_rows, *part.shape[1:]), part.dtype)
        results[start : start + size] = part
    return results


@dataclass(frozen=True)
class Temperature:
    """Probabilities ``softmax(beta (f + offset))``; scores of one column count as ``(-f, f)``."""

    beta: float
    offset: float = 0.0  # of a threshold, by which scores were lowered

    def predict_proba(self, scores: Array) -> Array:
        return softmax(self.beta * _margins(scores + self.offset), axis=1)


def calibrator(scores: Array, codes: Array, sample_weight: Array) -> Temperature:
    """Temperature scaling: beta minimises the log loss of held-out scores ``(n, K)`` of rows with known classes.

    A handful of labels does not allow for more than one parameter, and the most probable class remains the one with
    the highest score. Each row also counts a little for the other classes, in total as much as one row (Platt's
    smoothing), so that scores which happen to separate the classes do not give probabilities of 0 and 1.
    """
    margins = _margins(scores)
    doubt = 1.0 / (sample_weight.sum() + 2.0)
    others = doubt / (margins.shape[1] - 1)
    of_truth = (1 - doubt - others) * margins[np.arange(len(codes)), codes] + others * margins.sum(axis=1)

    def log_loss(log_beta: float) -> float:
        beta = np.exp(log_beta)
        return float(np.average(logsumexp(beta * margins, axis=1) - beta * of_truth, weights=sample_weight))

    return Temperature(float(np.exp(minimize_scalar(log_loss, bounds=_LOG_BETAS, method="bounded").x)))


def _margins(scores: Array) -> Array:
    margins = np.column_stack([-scores, scores]) if scores.shape[1] == 1 else scores
    return np.clip(margins, -_MAX_SCORE, _MAX_SCORE)

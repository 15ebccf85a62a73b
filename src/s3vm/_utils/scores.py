"""From the scores ``(n, K)`` of rows to their classes, and to the quality of these predictions."""

import numpy as np

from s3vm._utils.typing import Array


def predicted_codes(scores: Array) -> Array:
    """The class code of each row of scores ``(n, K)``: the highest column, or the sign if there is one column."""
    return (scores[:, 0] > 0).astype(np.intp) if scores.shape[1] == 1 else scores.argmax(axis=1)


def brier_losses(codes: Array, scores: Array) -> Array:
    """The Brier loss of each row, its scores made probabilities by a softmax of fixed sharpness.

    The scores are divided by their mean size, so that only their shape counts; for two classes this is
    ``p = 1 / (1 + exp(-2 f / mean|f|))``.
    """
    n_classes = max(2, scores.shape[1])
    margins = np.column_stack([-scores, scores]) if scores.shape[1] == 1 else scores
    sharpness = (1 + np.log(max(n_classes - 1, 1)) / 2) / max(float(np.abs(margins).mean()), 1e-12)
    odds = np.exp(sharpness * (margins - margins.max(axis=1, keepdims=True)))
    gap = odds / odds.sum(axis=1, keepdims=True)
    gap[np.arange(len(codes)), codes] -= 1
    return np.sum(gap**2, axis=1) / 2


def average_precision(codes: Array, scores: Array) -> float:
    """The mean over the rows of class 1 of the precision among rows whose score ``(n,)`` is at least theirs."""
    order = np.argsort(-scores, kind="stable")
    positive, descending = codes[order] == 1, -scores[order]
    n_above = np.searchsorted(descending, descending, side="right")
    return float((np.cumsum(positive)[n_above - 1] / n_above)[positive].mean())


def measures(codes: Array, scores: Array) -> dict[str, float]:
    """The error, the balanced error, and of two classes the average precision, of rows with known classes."""
    wrong, classes = predicted_codes(scores) != codes, np.unique(codes)
    values = {
        "error": float(wrong.mean()),
        "balanced_error": float(np.mean([wrong[codes == code].mean() for code in classes])),
    }
    if scores.shape[1] == 1 and len(classes) == 2:
        values["average_precision"] = average_precision(codes, scores[:, 0])
    return values

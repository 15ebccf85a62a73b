"""What the columns of a problem stand for: weights of the unlabelled rows, folds held out, classes against the rest."""

from typing import Any

import numpy as np
from sklearn.utils import compute_sample_weight

from s3vm._utils.typing import Array

__all__ = ["class_factors", "class_priors", "make_columns", "one_against_rest", "scores_held_out"]


def one_against_rest(codes: Array) -> Array:
    """Classes against the rest: a column for the second of two classes, else one column per class."""
    positive = np.arange(1, 2) if codes.max() == 1 else np.arange(codes.max() + 1)
    return np.where(codes[:, None] == positive, 1.0, -1.0)


def class_factors(class_weight: Any, classes: Array, codes: Array) -> Array:
    """The factor on C of each class."""
    try:
        row_factors = compute_sample_weight(class_weight, classes[codes])
    except (TypeError, ValueError):
        row_factors = np.zeros(len(codes))
    factors = np.array([row_factors[np.argmax(codes == code)] for code in range(len(classes))])
    if not np.all((factors > 0) & (factors < np.inf)):
        raise ValueError(
            f"class_weight={class_weight!r} is not valid: give a dict with a finite number above 0 for each class of "
            f'{classes.tolist()}, "balanced" or None'
        )
    return factors


def class_priors(class_prior: Any, n_classes: int, codes: Array, weight: Array, held_out: Array) -> Array:
    """The class shares expected among the unlabelled rows, for each group held out: shape (groups, n_classes)."""
    if class_prior is None:
        counts = (weight[:, None] * ~held_out).T @ (codes[:, None] == np.arange(n_classes))
        return counts / counts.sum(axis=1, keepdims=True)
    try:
        prior = np.asarray(class_prior, dtype=np.float64)
    except (TypeError, ValueError):
        prior = np.empty(0)
    if prior.shape != (n_classes,) or not np.all(prior > 0) or not np.isclose(prior.sum(), 1.0):
        raise ValueError(
            f"class_prior={class_prior!r} is not valid: give one positive number per class ({n_classes} classes), in "
            "the order of classes_, that sum to 1"
        )
    return np.tile(prior, (held_out.shape[1], 1))


def make_columns(weights: list[float], held_out: Array, codes: Array, row_cost: Array, priors: Array) -> dict[str, Any]:
    """The columns of a problem: weights of unlabelled rows, times groups held out, times classes against the rest."""
    targets = one_against_rest(codes)
    n_outputs = targets.shape[1]
    costs = np.repeat(row_cost[:, None] * ~held_out, n_outputs, axis=1)
    n_groups = len(weights) * held_out.shape[1]
    return {
        "targets": np.tile(targets, n_groups),
        "costs": np.tile(costs, len(weights)),
        "unlabelled_cost": np.concatenate([weight * costs.sum(axis=0) for weight in weights]),
        "prior": np.tile(priors[:, -n_outputs:].ravel(), len(weights)),
        "n_models": n_outputs,
    }


def scores_held_out(scores: Array, held_out: Array) -> Array:
    """The score of each row by the model that was trained without it; NaN where no model was."""
    result = np.full((scores.shape[0], scores.shape[2]), np.nan)
    rows, groups = np.nonzero(held_out)
    result[rows] = scores[rows, groups]
    return result

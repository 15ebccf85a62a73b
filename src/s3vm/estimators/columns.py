"""What the columns of a problem stand for: weights of the unlabelled rows, folds left out, classes against the rest."""

from typing import Any

import numpy as np
from sklearn.utils import compute_sample_weight

from s3vm._utils.typing import Array

__all__ = ["class_factors", "make_columns", "one_against_rest", "scores_held_out"]


def one_against_rest(codes: Array) -> Array:
    """Classes against the rest: a column for the second of two classes, else a column a class."""
    positive = np.arange(1, 2) if codes.max() == 1 else np.arange(codes.max() + 1)
    return np.where(codes[:, None] == positive, 1.0, -1.0)


def class_factors(class_weight: Any, classes: Array, codes: Array) -> Array:
    """The factor on C of each class."""
    try:
        of_rows = compute_sample_weight(class_weight, classes[codes])
    except (TypeError, ValueError):
        of_rows = np.zeros(len(codes))
    factors = np.array([of_rows[np.argmax(codes == code)] for code in range(len(classes))])
    if not np.all((factors > 0) & (factors < np.inf)):
        raise ValueError(
            f"class_weight={class_weight!r} is not valid: give a dict with a finite number above 0 for each class of "
            f'{classes.tolist()}, "balanced" or None'
        )
    return factors


def make_columns(weights: list[float], left_out: Array, codes: Array, row_cost: Array, priors: Array) -> dict[str, Any]:
    """The columns of a problem: weights of unlabelled rows, times what is left out, times classes against the rest."""
    targets = one_against_rest(codes)
    n_outputs = targets.shape[1]
    costs = np.repeat(row_cost[:, None] * ~left_out, n_outputs, axis=1)
    n_groups = len(weights) * left_out.shape[1]
    return {
        "targets": np.tile(targets, n_groups),
        "costs": np.tile(costs, len(weights)),
        "unlabelled_cost": np.concatenate([weight * costs.sum(axis=0) for weight in weights]),
        "prior": np.tile(priors[:, -n_outputs:].ravel(), len(weights)),
        "n_models": n_outputs,
    }


def scores_held_out(scores: Array, left_out: Array) -> Array:
    """The score of each row by the model that was trained without it; NaN where there is none."""
    result = np.full((scores.shape[0], scores.shape[2]), np.nan)
    rows, groups = np.nonzero(left_out)
    result[rows] = scores[rows, groups]
    return result

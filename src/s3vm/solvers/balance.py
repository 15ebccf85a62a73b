"""The balance: the mean output over the unlabelled rows to hold, so that they do not all end up in one class."""

import numpy as np
from scipy import optimize, special

from s3vm._utils.typing import Array
from s3vm.problem import Problem

_FEW_LABELS = 40


def means_to_hold(problem: Problem, start: Array, columns: Array | None = None) -> Array:
    """The mean output over unlabelled rows that each column should keep; `start` has the supervised scores there.

    `columns` are the numbers of those columns that `start` has, if it has not all: all outputs of some models.

    It is the mean of the supervised solution. This is shifted first if the class shares are known, so that it has
    them, or if its shares are far from the labelled ones: by more than two standard errors, or one if labels are few.
    """
    means = start.mean(axis=0)
    columns, known = np.arange(problem.n_columns) if columns is None else columns, {}
    for first in range(0, len(columns), problem.n_models):
        group = slice(first, first + problem.n_models)
        scores, share = start[:, group], problem.prior[columns[group]]
        n_labeled = int(np.count_nonzero(problem.costs[:, columns[first]]))
        key = scores.tobytes(), share.tobytes(), n_labeled  # candidates with other gaps start from the same scores
        if key not in known:
            known[key] = _shift(problem, scores, share, n_labeled)
        means[group] += known[key]
    return means


def _shift(problem: Problem, scores: Array, share: Array, n_labeled: int) -> Array | float:
    """What to add to the scores of all outputs of a model: those of classes are matched together."""
    low, high = _interval(problem, share, n_labeled)
    if problem.n_models == 1:
        return shift_to_share(scores[:, 0], float(low[0]), float(high[0]))
    if not problem.prior_is_known:
        now = np.bincount(scores.argmax(axis=1), minlength=len(share)) / len(scores)
        if np.all((now >= low) & (now <= high)):
            return 0.0
        share = np.clip(now, low, high)
    return _shift_to_shares(scores, share / share.sum())


def _interval(problem: Problem, share: Array, n_labeled: int) -> tuple[Array, Array]:
    """Where the shares of classes among the unlabelled rows may lie."""
    if problem.prior_is_known:
        return share, share
    n_errors = 1 if n_labeled < _FEW_LABELS else 2
    share = (share * n_labeled + 0.5) / (n_labeled + 1)
    error = n_errors * np.sqrt(share * (1 - share) / max(n_labeled, 1))
    return share - error, share + error


def shift_to_share(scores: Array, low: float, high: float) -> float:
    """What to add to the scores so that the fraction of positive ones is between `low` and `high`, or close to it."""
    share = float(np.mean(scores > 0))
    if low <= share <= high:
        return 0.0
    values = np.unique(scores)
    cuts = np.concatenate([values[:1] - 1e-6, (values[1:] + values[:-1]) / 2, values[-1:] + 1e-6])
    shares = 1 - np.searchsorted(np.sort(scores), cuts) / len(scores)
    return float(-cuts[np.argmin(np.abs(shares - (low if share < low else high)))])


def _shift_to_shares(scores: Array, shares: Array) -> Array:
    """What to add to each class's scores so that each class has the highest score for its share of the rows.

    The shifts minimise ``mean_i max_k (scores[i, k] + shift[k]) - shares.shift``, whose derivative is the
    excess of the shares; the maximum is slightly smoothed for the gradients.
    """
    sharpness = 20 / max(float(scores.std()), 1e-12)

    def gap(shift: Array) -> tuple[float, Array]:
        shifted = sharpness * (scores + shift)
        softmax = special.softmax(shifted, axis=1)
        value = special.logsumexp(shifted, axis=1).mean() / sharpness - shares @ shift
        return float(value), softmax.mean(axis=0) - shares

    shift: Array = optimize.minimize(gap, np.zeros(len(shares)), jac=True, method="L-BFGS-B").x
    return shift - shift.mean()

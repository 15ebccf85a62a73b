"""The balance: the mean output over the unlabelled rows to hold, so that they do not all end up in one class."""

import numpy as np
from scipy import optimize, special

from s3vm._utils.typing import Array
from s3vm.problem import Problem

_FEW_LABELS = 40


def means_to_hold(problem: Problem, start: Array) -> Array:
    """The mean output over unlabelled rows that each column should keep; `start` has the supervised scores there.

    It is the mean of the supervised solution. This is shifted first if the class shares are known, so that it has
    them, or if labels are few, so that its shares are within a standard error of the labelled ones.
    """
    means = start.mean(axis=0)
    if problem.n_models > 1:
        # One against the rest: the shares of all classes add up to 1, so they are matched together.
        for first in range(0, problem.n_columns * problem.prior_is_known, problem.n_models):
            group = slice(first, first + problem.n_models)
            means[group] += _shift_to_shares(start[:, group], problem.prior[group])
        return means
    for k in range(problem.n_columns):
        n_labeled = int(np.count_nonzero(problem.costs[:, k]))
        share, error = problem.prior[k], 0.0
        if not problem.prior_is_known:
            if n_labeled >= _FEW_LABELS:
                continue
            share = (share * n_labeled + 0.5) / (n_labeled + 1)
            error = np.sqrt(share * (1 - share) / n_labeled)
        means[k] += shift_to_share(start[:, k], share - error, share + error)
    return means


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

"""The exact solution on the labelled rows alone: where a semi-supervised run starts, and what it is measured by."""

import numpy as np
from sklearn.svm import SVC

from s3vm._typing import Array, Rows
from s3vm.kernels import Kernel
from s3vm.problem import Problem

__all__ = ["labelled_gram", "means_to_hold", "supervised"]

_MOST_BYTES = 2 << 30
_FEW_LABELS = 40


def labelled_gram(kernel: Kernel, labelled: Rows) -> Array:
    """The kernel matrix of the labelled rows, in float64; a ValueError if they are too many for one."""
    n_bytes = 8 * labelled.shape[0] ** 2
    if n_bytes > _MOST_BYTES:
        raise ValueError(
            f"the exact supervised solution of {labelled.shape[0]} labelled rows needs a kernel matrix of "
            f"{n_bytes / 2**30:.0f} GiB: use solver=TSG.as_printed() with a number for unlabeled_weight, "
            "or label fewer rows"
        )
    return kernel.gram(labelled, labelled).astype(np.float64)


def supervised(gram: Array, targets: Array, costs: Array) -> tuple[Array, Array]:
    """The kernel SVM of every column: dual coefficients ``(n_l, K)`` and intercepts ``(K,)``.

    ``f_k(x) = sum_i dual[i, k] k(x_i, x) + intercept[k]`` minimises
    ``||f||^2 / 2 + sum_i costs[i, k] max(0, 1 - targets[i, k] f(x_i))``. Rows of cost 0 are left out; a column that has
    rows of one sign only is that sign. Equal columns are solved once.
    """
    if not np.isfinite(gram).all():
        raise ValueError("the kernel of the labelled rows is not finite: standardise the features")
    dual, intercept = np.zeros(targets.shape), np.zeros(targets.shape[1])
    solved: dict[tuple[bytes, bytes], int] = {}
    for k in range(targets.shape[1]):
        first = solved.setdefault((targets[:, k].tobytes(), costs[:, k].tobytes()), k)
        if first < k:
            dual[:, k], intercept[k] = dual[:, first], intercept[first]
            continue
        at = np.flatnonzero(costs[:, k] > 0)
        y = targets[at, k]
        if np.all(y == y[0]):
            intercept[k] = y[0]
            continue
        svc = SVC(C=1.0, kernel="precomputed", tol=1e-6).fit(gram[np.ix_(at, at)], y, sample_weight=costs[at, k])
        dual[at[svc.support_], k] = svc.dual_coef_[0]
        intercept[k] = svc.intercept_[0]
    return dual, intercept


def means_to_hold(problem: Problem, start: Array) -> Array:
    """The mean output over unlabelled rows that each column should keep; `start` has the supervised scores there.

    It is the mean of the supervised solution. If the class shares are known, that solution is shifted first so that
    its shares are these; if there are few labels, so that they are within a standard error of the labelled ones.
    """
    means = start.mean(axis=0)
    for k in range(problem.n_columns):
        n_labelled = int(np.count_nonzero(problem.costs[:, k]))
        share, error = problem.prior[k], 0.0
        if not problem.prior_is_known:
            if n_labelled >= _FEW_LABELS or problem.n_models > 1:
                continue
            share = (share * n_labelled + 0.5) / (n_labelled + 1)
            error = np.sqrt(share * (1 - share) / n_labelled)
        means[k] += _shift_to_share(start[:, k], share - error, share + error)
    return means


def _shift_to_share(scores: Array, low: float, high: float) -> float:
    """What to add to the scores so that the share of positive ones is between `low` and `high`, or nearest to it."""
    share = float(np.mean(scores > 0))
    if low <= share <= high:
        return 0.0
    values = np.unique(scores)
    cuts = np.concatenate([values[:1] - 1e-6, (values[1:] + values[:-1]) / 2, values[-1:] + 1e-6])
    shares = 1 - np.searchsorted(np.sort(scores), cuts) / len(scores)
    return float(-cuts[np.argmin(np.abs(shares - (low if share < low else high)))])

"""Which rows to label next."""

from typing import Any

import numpy as np

from s3vm import backends
from s3vm._utils.arrays import host, row_digests
from s3vm._utils.settings import check, integer
from s3vm._utils.typing import Array, Rows
from s3vm.estimators.labels import as_column, is_labeled
from s3vm.estimators.prediction import Temperature, scores_of
from s3vm.estimators.validation import checked_rows
from s3vm.kernels import RBF
from s3vm.problem.projection import project

_POOL = 2_000  # rows among which informative ones are searched, and labelled ones that they should differ from
_EVERY = 5  # one of so many suggestions is drawn at random
_NOISE = 0.1  # variance of a label, relative to that of the function
_LEAST_DOUBT = 1e-3  # of rows whose class seems certain


def suggest(clf: Any, X: Any, n: int, y: Any, seed: int) -> Array:
    """The numbers of `n` rows of X; see `RowAttributes.suggest`."""
    check("n", n, integer(1, _POOL))
    backend = backends.backend(clf.backend, clf.dtype, clf.n_jobs)
    X, rng = checked_rows(clf, X, reset=False, backend=backend), np.random.default_rng(seed)
    labeled, fitted, order = None, clf._fitted_rows, rng.permutation(X.shape[0])
    if y is not None:
        has_label = is_labeled(as_column(y), clf.unlabeled)
        labeled, order = X[np.flatnonzero(has_label)], order[~has_label[order]]
    elif fitted is not None:
        labeled = fitted.rows.X[fitted.labeled_at]
        order = order[: _POOL + n + labeled.shape[0]]
        order = order[~np.isin(row_digests(host(X[order])), row_digests(host(labeled)))]
    if len(order) < n:
        raise ValueError(f"n={n} rows cannot be suggested: only {len(order)} of {X.shape[0]} have no label")
    at_random = np.arange(n) % _EVERY == _EVERY - 1
    pool = order[:_POOL]
    probabilities = getattr(clf, "_calibrator", Temperature(1.0)).predict_proba(
        scores_of(clf.model_, X, pool, clf.dtype, backend)
    )
    doubt = 1 - (probabilities**2).sum(axis=1) + _LEAST_DOUBT
    if labeled is not None:
        some = host(labeled[rng.permutation(labeled.shape[0])[:_POOL]])
        labeled = project(some, clf.model_.projection)
    best = pool[most_informative(project(host(X[pool]), clf.model_.projection), doubt, n - at_random.sum(), labeled)]
    suggestions = np.empty(n, dtype=np.intp)
    suggestions[~at_random] = best
    suggestions[at_random] = order[~np.isin(order, best)][::-1][: at_random.sum()]
    return suggestions


def most_informative(rows: Rows, doubt: Array, n: int, labeled: Rows | None = None) -> list[int]:
    """The rows whose labels would tell most about the others, one after the other.

    The function is a Gaussian process of covariance k. A label of row i lowers the variance of row j by
    ``k_ij^2 / (k_ii + noise)``; the row is taken that lowers the sum over all rows most, each weighted by how much its
    class is in doubt. Rows far from all others tell little, and rows near one that has a label already add little.
    """
    kernel = RBF("median").resolve(rows)
    K = kernel.gram(rows, rows).astype(np.float64)
    if labeled is not None and labeled.shape[0]:
        cross = kernel.gram(labeled, rows)
        inner = kernel.gram(labeled, labeled) + _NOISE * np.eye(labeled.shape[0])
        K -= cross.T @ np.linalg.solve(inner, cross)
    chosen: list[int] = []
    for _ in range(n):
        gain = doubt @ K**2 / (K.diagonal() + _NOISE)
        gain[chosen] = -1.0
        best = int(gain.argmax())
        chosen.append(best)
        K -= np.outer(K[best], K[best] / (K[best, best] + _NOISE))
    return chosen

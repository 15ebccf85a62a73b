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


class SuggestionMixin:
    """A fitted classifier that says which rows to label next."""

    def suggest(self: Any, X: Any, n: int = 20, y: Any = None, *, random_state: int = 0) -> Array:
        """The numbers of the `n` rows of X to label next, the most informative first.

        They are in doubt, differ from each other and from the rows that have a label, and are near many others. Every
        fifth is drawn at random, so that the shares of the classes can be estimated from these.

        Parameters
        ----------
        X : array, CSR matrix or data frame of shape (n_rows, n_features)
            Rows with or without labels; of more than 2,000 without, a random sample is searched.
        n : int, default 20
        y : array of shape (n_rows,) or None, default None
            The labels of X, with marks, so that no labelled row is suggested; None: those given to `fit`.
        random_state : int, default 0
        """
        check("n", n, integer(1, _POOL))
        backend = backends.backend(self.backend, self.dtype, self.n_jobs)
        X, rng = checked_rows(self, X, reset=False, backend=backend), np.random.default_rng(random_state)
        labeled, fitted, order = None, self._fitted_rows, rng.permutation(X.shape[0])
        if y is not None:
            has_label = is_labeled(as_column(y), self.unlabeled)
            labeled, order = X[np.flatnonzero(has_label)], order[~has_label[order]]
        elif fitted is not None:
            labeled = fitted.rows.X[self._held_out.labeled_at]
            order = order[: _POOL + n + labeled.shape[0]]
            order = order[~np.isin(row_digests(host(X[order])), row_digests(host(labeled)))]
        if len(order) < n:
            raise ValueError(f"n={n} rows cannot be suggested: only {len(order)} of {X.shape[0]} have no label")
        at_random = np.arange(n) % _EVERY == _EVERY - 1
        pool = order[:_POOL]
        probabilities = getattr(self, "_calibrator", Temperature(1.0)).predict_proba(
            scores_of(self.model_, X, pool, self.dtype, backend)
        )
        doubt = 1 - (probabilities**2).sum(axis=1) + _LEAST_DOUBT
        if labeled is not None:
            some = host(labeled[rng.permutation(labeled.shape[0])[:_POOL]])
            labeled = project(some, self.model_.projection)
        rows = project(host(X[pool]), self.model_.projection)
        best = pool[most_informative(rows, doubt, n - at_random.sum(), labeled)]
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

"""scikit-learn's scorers, for rows of which some carry the mark of an unlabelled row."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score, get_scorer
from sklearn.utils import _safe_indexing, check_consistent_length

from s3vm.estimators.labels import is_labeled, scored_labels


class LabeledScoreMixin(ClassifierMixin):
    """A classifier some of whose rows may carry the mark `unlabeled`."""

    unlabeled: Any

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy on the labelled rows; rows that carry the mark `unlabeled` are skipped."""
        known, labels = scored_labels(y, self.unlabeled)
        predicted = self.predict(X)
        check_consistent_length(predicted, known, sample_weight)
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(accuracy_score(labels, predicted[known], sample_weight=weight))


class LabeledScorer:
    """A scorer that leaves out the rows without a label; `scorer` makes it."""

    def __init__(self, scoring: Any, unlabeled: Any) -> None:
        self._scorer, self._unlabeled = get_scorer(scoring), unlabeled

    def __call__(self, estimator: Any, X: Any, y: Any, **params: Any) -> float:
        known, labels = scored_labels(y, self._unlabeled)
        mark = _mark_of(estimator)
        if mark not in (None, self._unlabeled) and not is_labeled(labels, mark).all():
            raise ValueError(
                f"rows carry {mark!r}, the classifier's mark of unlabelled rows, but this scorer takes "
                f"{self._unlabeled!r} for the mark: give scorer(..., unlabeled={mark!r})"
            )
        at = np.flatnonzero(known)
        params = {name: None if rows is None else _safe_indexing(rows, at) for name, rows in params.items()}
        return float(self._scorer(estimator, _safe_indexing(X, at), labels, **params))

    def set_score_request(self, **requests: Any) -> Self:
        """Requests metadata, such as `sample_weight`, as other scorers do."""
        self._scorer.set_score_request(**requests)
        return self

    def get_metadata_routing(self) -> Any:
        return self._scorer.get_metadata_routing()

    def __repr__(self) -> str:
        return f"{self._scorer!r} of labelled rows"


def _mark_of(estimator: Any) -> Any:
    """The mark of the classifier inside searches and pipelines; None if there is none or it is not known."""
    for inside in ("best_estimator_", "_final_estimator"):
        estimator = getattr(estimator, inside, estimator)
    return getattr(estimator, "unlabeled", None)


def scorer(scoring: str | Callable[..., float], *, unlabeled: Any = -1) -> LabeledScorer:
    """A scorer for searches and cross-validation that leaves out the rows marked as unlabelled.

    `S3VMClassifier.score` does so by itself. With `LabeledKFold`, which puts only labelled rows into test parts, any
    scorer will do.

    Parameters
    ----------
    scoring : str or callable
        A name of scikit-learn's, such as ``"roc_auc"``, or a scorer.
    unlabeled : label or None, default -1
        The mark of an unlabelled row, as in `S3VMClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_moons
    >>> from sklearn.model_selection import cross_val_score
    >>> from s3vm import S3VMClassifier, scorer
    >>> X, y = make_moons(300, noise=0.1, random_state=0)
    >>> some = np.where(np.arange(300) < 60, y, -1)
    >>> cross_val_score(S3VMClassifier(random_state=0), X, some, cv=3, scoring=scorer("roc_auc"))
    array([1., 1., 1.])
    """
    return LabeledScorer(scoring, unlabeled)

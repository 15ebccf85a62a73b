"""What a fitted classifier says of some rows, in columns of numbers: plots draw them, reports hand them out."""

from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from s3vm._utils.typing import Array
from s3vm.estimators.labels import split_labels

__all__ = [
    "Columns",
    "Sample",
    "ahead",
    "class_names",
    "codes_of",
    "curves",
    "interval",
    "learner",
    "plane",
    "reliability",
    "score_bins",
]

Columns = dict[str, Array]

_MOST = 5_000  # rows of each kind that are looked at: a picture has no use for more
_TAIL = 0.001  # the share of rows on either side that may lie beyond the outermost bins
_Z = 1.96  # standard errors either way that hold 95%


def learner(clf: Any) -> Any:
    """The classifier itself, be it the last step of a pipeline or the best of a search; it must be fitted."""
    found = getattr(clf, "best_estimator_", clf)
    if isinstance(found, Pipeline):
        found = found[-1]
    check_is_fitted(found)
    return found


def class_names(clf: Any) -> list[str]:
    return [str(name) for name in clf.classes_.tolist()]


def codes_of(clf: Any, X: Any, y: Any) -> Array:
    """The code of each row's class in `classes_`, -1 if y marks it as unlabelled."""
    labelled, labels = split_labels(y, getattr(learner(clf), "unlabeled", -1))
    check_consistent_length(X, labelled)
    known = {label: code for code, label in enumerate(clf.classes_.tolist())}
    strange = sorted({repr(label) for label in set(labels.tolist()) - set(known)})
    if strange:
        raise ValueError(
            f"y has labels that the classifier was not taught: {', '.join(strange)}; it knows {list(known)}"
        )
    codes = np.full(len(labelled), -1)
    codes[labelled] = [known[label] for label in labels.tolist()]
    return codes


class Sample:
    """Rows, at most so many labelled and so many unlabelled ones, and what a classifier says of them.

    `codes` are those of the rows' classes in `classes_`, -1 for unlabelled rows.
    """

    def __init__(self, clf: Any, X: Any, y: Any, most: int = _MOST) -> None:
        codes = codes_of(clf, X, y)
        rng = np.random.default_rng(0)
        kinds = (np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0))
        some = [rng.choice(rows, most, replace=False) if len(rows) > most else rows for rows in kinds]
        chosen = np.sort(np.concatenate(some))
        self.clf, self.X, self.codes = clf, _safe_indexing(X, chosen), codes[chosen]

    @cached_property
    def scores(self) -> Array:
        return self.clf.decision_function(self.X)

    @property
    def points(self) -> Array:
        return np.asarray(self.X.toarray() if sparse.issparse(self.X) else self.X, dtype=np.float64)

    @property
    def feature_names(self) -> list[str]:
        names = getattr(self.X, "columns", getattr(self.clf, "feature_names_in_", None))
        return [f"feature {at}" for at in range(self.X.shape[1])] if names is None else [str(name) for name in names]


def ahead(scores: Array) -> Array:
    """By how much each class is ahead of the best other one, ``(n, n_classes)``: above 0 for the predicted class.

    With two classes that is ``(-f, f)``.
    """
    if scores.ndim == 1:
        return np.column_stack([-scores, scores])
    ordered = np.sort(scores, axis=1)
    best, second = ordered[:, -1:], ordered[:, -2:-1]
    return scores - np.where(scores == best, second, best)


def curves(clf: Any) -> Columns:
    """The history of the fit, one entry an iteration."""
    history = getattr(learner(clf), "history_", None)
    if not history:
        raise ValueError(f"this {type(learner(clf)).__name__} has no history_ of its training")
    return dict(history)


def score_bins(sample: Sample, bins: int = 40) -> Columns:
    """How many unlabelled rows, and how many labelled rows of each class, have scores from here to there.

    With two classes the score is f. With more it is that of the row's class less that of the best other class; the
    class of an unlabelled row is the predicted one. The outermost bins also hold what lies beyond them.
    """
    codes, scores, names = sample.codes, sample.scores, class_names(sample.clf)
    if scores.ndim > 1:
        own = np.where(codes < 0, scores.argmax(axis=1), codes)
        scores = ahead(scores)[np.arange(len(own)), own]
    low, high = np.quantile(scores, [_TAIL, 1 - _TAIL])
    edges = np.linspace(low, high, bins + 1) if low < high else np.linspace(low - 1, low + 1, bins + 1)
    groups = {"unlabelled": codes < 0} | {f"class {name}": codes == code for code, name in enumerate(names)}
    inside = np.clip(scores, edges[0], edges[-1])
    return {"from": edges[:-1], "to": edges[1:]} | {
        name: np.histogram(inside[rows], edges)[0] for name, rows in groups.items()
    }


def reliability(clf: Any, X: Any, y: Any, bins: int = 10) -> Columns:
    """How often that came true which was given a probability from here to there.

    With two classes it is that a row is of ``classes_[1]``; with more, that it is of the predicted class. `low` and
    `high` bound the 95% interval of the observed share. Unlabelled rows do not count, empty bins are left out, and of
    many rows a sample is taken.
    """
    if not hasattr(clf, "predict_proba"):
        raise ValueError(f"this {type(learner(clf)).__name__} gives no probabilities: fit it with probability=True")
    sample = Sample(clf, X, y, 2 * _MOST)
    codes = sample.codes[sample.codes >= 0]
    probabilities = clf.predict_proba(_safe_indexing(sample.X, np.flatnonzero(sample.codes >= 0)))
    binary = probabilities.shape[1] == 2
    claimed = probabilities[:, 1] if binary else probabilities.max(axis=1)
    true = codes == (1 if binary else probabilities.argmax(axis=1))
    edges = np.linspace(0, 1, bins + 1)
    at = np.clip(np.digitize(claimed, edges) - 1, 0, bins - 1)
    full = np.unique(at)
    rows, sum_claimed, sum_true = (np.bincount(at, weights=what)[full] for what in (np.ones(len(at)), claimed, true))
    low, high = interval(sum_true, rows)
    return {
        "from": edges[full],
        "to": edges[full + 1],
        "probability": sum_claimed / rows,
        "observed": sum_true / rows,
        "low": low,
        "high": high,
        "rows": rows.astype(int),
    }


def plane(sample: Sample) -> Columns:
    """Rows of few features, in columns, with their labels, empty if unlabelled, and scores."""
    names, scores = class_names(sample.clf), sample.scores
    columns = {f"x{at} ({name})": sample.points[:, at] for at, name in enumerate(sample.feature_names)}
    columns["label"] = np.array([*names, ""], dtype=object)[sample.codes]
    if scores.ndim == 1:
        return columns | {"score": scores}
    return columns | {f"score of {name}": scores[:, code] for code, name in enumerate(names)}


def interval(hits: Any, rows: Any) -> tuple[Any, Any]:
    """The 95% interval of a share, `hits` of `rows` having been seen (Wilson's)."""
    share, spread = hits / rows, _Z**2 / rows
    middle = (share + spread / 2) / (1 + spread)
    half = np.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    return np.clip(middle - half, 0.0, share), np.clip(middle + half, share, 1.0)

"""The numbers behind the plots and reports of a fitted classifier: columns, errors and their uncertainty."""

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.metrics import average_precision_score, confusion_matrix, precision_recall_fscore_support, roc_auc_score
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from s3vm._utils.scores import predicted_codes
from s3vm._utils.typing import Array
from s3vm.estimators.classifier import S3VMClassifier
from s3vm.estimators.labels import split_labels
from s3vm.model import Model

Columns = dict[str, Array]

_MAX_ROWS = 5_000  # labelled rows, and unlabelled ones, in a sample: enough for any plot
_TAIL = 0.001  # the fraction of rows on either side that may lie beyond the outermost bins
_Z = 1.96  # standard errors on either side of a 95% interval


def final_classifier(clf: Any) -> Any:
    """The classifier itself, the last step of a pipeline, or the best estimator of a search."""
    estimator = getattr(clf, "best_estimator_", clf)
    if isinstance(estimator, Pipeline):
        estimator = estimator[-1]
    check_is_fitted(estimator)
    return estimator


def class_names(clf: Any) -> list[str]:
    return [str(name) for name in clf.classes_.tolist()]


def class_codes(clf: Any, X: Any, y: Any) -> Array:
    """The index of each row's class in `classes_`, -1 for unlabelled rows."""
    labeled, labels = split_labels(y, getattr(final_classifier(clf), "unlabeled", -1))
    check_consistent_length(X, labeled)
    known = {label: code for code, label in enumerate(clf.classes_.tolist())}
    unknown = sorted({repr(label) for label in set(labels.tolist()) - set(known)})
    if unknown:
        raise ValueError(f"y has labels unknown to the classifier: {', '.join(unknown)}; it knows {list(known)}")
    codes = np.full(len(labeled), -1)
    codes[labeled] = [known[label] for label in labels.tolist()]
    return codes


class Sample:
    """At most `max_rows` labelled and `max_rows` unlabelled rows, with their scores.

    `codes` are the indices of the rows' classes in `classes_`, -1 for unlabelled rows.
    """

    def __init__(self, clf: Any, X: Any, y: Any, max_rows: int = _MAX_ROWS) -> None:
        if hasattr(X, "dask"):
            raise ValueError("plots and reports need rows in memory: give some of them, such as X[:5000].compute()")
        X = X if hasattr(X, "shape") else np.asarray(X)
        codes = class_codes(clf, X, y)
        rng = np.random.default_rng(0)
        groups = (np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0))
        samples = [rng.choice(rows, max_rows, replace=False) if len(rows) > max_rows else rows for rows in groups]
        chosen = np.sort(np.concatenate(samples))
        self.clf, self.X, self.codes = clf, _safe_indexing(X, chosen), codes[chosen]

    @cached_property
    def scores(self) -> Array:
        return self.clf.decision_function(self.X)

    @property
    def is_plane(self) -> bool:
        """Whether every row is two numbers."""
        with suppress(TypeError, ValueError):  # text, dates
            return self.X.shape[1:] == (2,) and bool(np.isfinite(self.points).all())
        return False

    @property
    def points(self) -> Array:
        return np.asarray(self.X.toarray() if sparse.issparse(self.X) else self.X, dtype=np.float64)

    @property
    def feature_names(self) -> list[str]:
        names = getattr(self.X, "columns", getattr(self.clf, "feature_names_in_", None))
        unnamed = [f"feature {at}" for at in range(np.prod(self.X.shape[1:], dtype=int))]  # one of a list of texts
        return unnamed if names is None else [str(name) for name in names]


def class_margins(scores: Array) -> Array:
    """The score of each class minus that of the best other one, ``(n, n_classes)``: positive for the predicted class.

    With two classes that is ``(-f, f)``.
    """
    if scores.ndim == 1:
        return np.column_stack([-scores, scores])
    ordered = np.sort(scores, axis=1)
    best, second = ordered[:, -1:], ordered[:, -2:-1]
    return scores - np.where(scores == best, second, best)


def score_bins(sample: Sample, bins: int = 40) -> Columns:
    """The number of unlabelled rows, and of labelled rows per class, in each bin of `plot.score_histogram`."""
    codes, scores, names = sample.codes, sample.scores, class_names(sample.clf)
    if scores.ndim > 1:
        own = np.where(codes < 0, scores.argmax(axis=1), codes)
        scores = class_margins(scores)[np.arange(len(own)), own]
    low, high = np.quantile(scores, [_TAIL, 1 - _TAIL])
    edges = np.linspace(low, high, bins + 1) if low < high else np.linspace(low - 1, low + 1, bins + 1)
    groups = {"unlabelled": codes < 0} | {f"class {name}": codes == code for code, name in enumerate(names)}
    inside = np.clip(scores, edges[0], edges[-1])
    return {"from": edges[:-1], "to": edges[1:]} | {
        name: np.histogram(inside[rows], edges)[0] for name, rows in groups.items()
    }


def reliability(clf: Any, X: Any, y: Any, bins: int = 10) -> Columns:
    """Predicted probabilities and observed frequencies, in each bin of `plot.calibration` that is not empty."""
    if not hasattr(clf, "predict_proba"):
        name = type(final_classifier(clf)).__name__
        raise ValueError(f"this {name} gives no probabilities: fit it with probability=True")
    sample = Sample(clf, X, y, 2 * _MAX_ROWS)
    codes = sample.codes[sample.codes >= 0]
    probabilities = clf.predict_proba(_safe_indexing(sample.X, np.flatnonzero(sample.codes >= 0)))
    binary = probabilities.shape[1] == 2
    predicted = probabilities[:, 1] if binary else probabilities.max(axis=1)
    events = codes == (1 if binary else probabilities.argmax(axis=1))
    edges = np.linspace(0, 1, bins + 1)
    at = np.clip(np.digitize(predicted, edges) - 1, 0, bins - 1)
    full = np.unique(at)
    rows, predicted_sum, n_events = (np.bincount(at, weights)[full] for weights in (None, predicted, events))
    low, high = wilson_interval(n_events, rows)
    return {
        "from": edges[full],
        "to": edges[full + 1],
        "probability": predicted_sum / rows,
        "observed": n_events / rows,
        "low": low,
        "high": high,
        "rows": rows,
    }


def sample_columns(sample: Sample) -> Columns:
    """The features, labels and scores of the rows; unlabelled rows have an empty label."""
    names, scores = class_names(sample.clf), sample.scores
    columns = {f"x{at} ({name})": sample.points[:, at] for at, name in enumerate(sample.feature_names)}
    columns["label"] = np.array([*names, ""], dtype=object)[sample.codes]
    if scores.ndim == 1:
        return columns | {"score": scores}
    return columns | {f"score of {name}": scores[:, code] for code, name in enumerate(names)}


def wilson_interval(hits: Any, rows: Any) -> tuple[Any, Any]:
    """Wilson's 95% interval of a fraction observed as `hits` of `rows`."""
    fraction, spread = hits / rows, _Z**2 / rows
    middle = (fraction + spread / 2) / (1 + spread)
    half = np.sqrt(spread * (fraction * (1 - fraction) + spread / 4)) / (1 + spread)
    return np.clip(middle - half, 0.0, fraction), np.clip(middle + half, fraction, 1.0)


def error_measures(n_wrong: float, n_rows: int) -> dict[str, Any]:
    """An error rate with its standard error and its 95% interval."""
    error = n_wrong / n_rows
    low, high = wilson_interval(n_wrong, n_rows)
    standard_error = float(np.sqrt(error * (1 - error) / n_rows))
    return {"error": error, "standard_error": standard_error, "low": float(low), "high": float(high), "rows": n_rows}


def score_measures(
    codes: Array, scores: Array, classes: Array, probabilities: Array | None = None, positive: int = 1
) -> dict[str, Any]:
    """Errors, recall and precision of scores ``(n, K)`` of rows whose classes are known.

    The average precision of two classes is that of the class with the code `positive`.
    """
    predicted, labels = predicted_codes(scores), np.arange(len(classes))
    by_class = precision_recall_fscore_support(codes, predicted, labels=labels, zero_division=np.nan)
    result = error_measures(int(np.sum(predicted != codes)), len(codes))
    result["balanced_error"] = float(1 - np.nanmean(by_class[1]))
    if scores.shape[1] == 1 and len(np.unique(codes)) == 2:
        signed = (2 * positive - 1) * scores[:, 0]
        result["average_precision"] = float(average_precision_score(codes == positive, signed))
        result["roc_auc"] = float(roc_auc_score(codes, scores[:, 0]))
    if probabilities is not None:
        result["brier"] = float(np.mean(np.sum((probabilities - (codes[:, None] == labels)) ** 2, axis=1)) / 2)
    result["classes"] = {
        name: dict(zip(("precision", "recall", "f1", "rows"), facts, strict=True))
        for name, facts in zip(classes.tolist(), zip(*(part.tolist() for part in by_class), strict=True), strict=True)
    }
    result["confusion"] = confusion_matrix(codes, predicted, labels=labels).tolist()
    return result


def held_out_error(clf: S3VMClassifier) -> dict[str, Any] | None:
    """The cross-validated error on the labelled rows, if known, and that of the supervised SVM.

    A model file has that with the threshold 0 only.
    """
    measures, safety = held_out_measures(clf), clf.safety_
    scores = {} if safety is None else safety.scores
    if measures is None and safety is not None and scores:
        chosen = scores[safety.weight]
        measures = error_measures(chosen["error"] * safety.n_labeled, safety.n_labeled) | chosen
    if measures is None:
        return None
    result = {key: measures[key] for key in ("error", "standard_error", "low", "high", "rows", "balanced_error")}
    return result | ({"supervised_error": scores[0.0]["error"]} if scores else {})


def held_out_measures(clf: S3VMClassifier) -> dict[str, Any] | None:
    """Errors, recall and precision of the labelled rows held out by a fit; None if there are none, or after loading."""
    if not hasattr(clf, "_held_out"):
        return None
    codes, scores = clf._held_out.codes, clf._held_out.scores
    known = np.isfinite(scores).all(axis=1)
    return score_measures(codes[known], scores[known], clf.classes_) if known.any() else None


def projection_text(model: Model, names: Sequence[str] | None = None, most: int = 5) -> str | None:
    """What is done to the columns in front of the kernel, in a few words; None if they are taken as they are."""
    if model.projection is None:
        return None
    weights = model.column_weights
    if weights is None:
        return f"{model.n_dims:,} direction{'s' * (model.n_dims > 1)} of {model.n_features_in:,} columns"
    largest = np.argsort(-np.abs(weights), kind="stable")[:most].tolist()
    texts = [f"{names[at] if names else f'feature {at}'} {weights[at]:.2g}" for at in largest]
    more = f" and {len(weights) - most:,} more" if len(weights) > most else ""
    return f"column weights: {', '.join(texts)}{more}"


def model_facts(clf: S3VMClassifier, names: Sequence[str] | None = None) -> dict[str, Any]:
    """What a fitted classifier consists of."""
    model = clf.model_
    weight: Any = clf.safety_.weight if clf.safety_ is not None else clf.unlabeled_weight
    return {
        "solver": clf.solver if isinstance(clf.solver, str) else repr(clf.solver),
        "kernel": type(clf.kernel_).__name__,
        "gamma": clf.kernel_.width,
        "C": clf.C_,
        "weight": weight,
        "threshold": clf.threshold_,
        "iterations": clf.n_iter_,
        "classes": clf.classes_.tolist(),
        "features": int(np.prod(model.coefficients.shape[:2])),
        "centers": 0 if model.weights is None else len(model.weights),
        "dimensions": model.n_features_in,
        "projection": projection_text(model, names),
    }

"""Facts about a model, and measures of its errors with their uncertainty."""

from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, confusion_matrix, roc_auc_score

from s3vm import S3VMClassifier
from s3vm._utils.scores import predicted_codes
from s3vm._utils.typing import Array
from s3vm.inspect.diagnostics import wilson_interval


def error_measures(n_wrong: float, n_rows: int) -> dict[str, Any]:
    """An error rate with its standard error and its 95% interval."""
    error = n_wrong / n_rows
    low, high = wilson_interval(n_wrong, n_rows)
    standard_error = float(np.sqrt(error * (1 - error) / n_rows))
    return {"error": error, "standard_error": standard_error, "low": float(low), "high": float(high), "rows": n_rows}


def score_measures(codes: Array, scores: Array, classes: Array, probabilities: Array | None = None) -> dict[str, Any]:
    """Errors, recall and precision of scores ``(n, K)`` of rows whose classes are known."""
    predicted = predicted_codes(scores)
    confusion = confusion_matrix(codes, predicted, labels=np.arange(len(classes)))
    n_rows, n_correct, n_predicted = confusion.sum(axis=1), confusion.diagonal(), confusion.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        recall, precision = n_correct / n_rows, n_correct / n_predicted
    result = error_measures(int(np.sum(predicted != codes)), len(codes))
    result["balanced_error"] = float(1 - np.nanmean(recall))
    if scores.shape[1] == 1 and len(np.unique(codes)) == 2:
        result["average_precision"] = float(average_precision_score(codes, scores[:, 0]))
        result["roc_auc"] = float(roc_auc_score(codes, scores[:, 0]))
    if probabilities is not None:
        truth = codes[:, None] == np.arange(len(classes))
        result["brier"] = float(np.mean(np.sum((probabilities - truth) ** 2, axis=1)) / 2)
    result["classes"] = {
        name: {"rows": int(n_rows[k]), "recall": float(recall[k]), "precision": float(precision[k])}
        for k, name in enumerate(classes.tolist())
    }
    result["confusion"] = confusion.tolist()
    return result


def held_out_error(clf: S3VMClassifier, n_labelled: int = 0) -> dict[str, Any] | None:
    """The cross-validated error on the labelled rows, if known, and that of the supervised SVM."""
    safety, history = getattr(clf, "safety_", None), getattr(clf, "history_", {})
    if safety is not None:
        scores, n_rows = safety.scores, safety.n_labelled
        if not scores:
            return None
        chosen = scores[safety.weight]
        result = error_measures(chosen["error"] * n_rows, n_rows) | {"balanced_error": chosen["balanced_error"]}
        return result | {"supervised_error": scores[0.0]["error"]}
    if not n_labelled or "held_out_error" not in history:
        return None
    error, balanced = (float(history[f"held_out_{name}"][-1]) for name in ("error", "balanced_error"))
    return error_measures(error * n_labelled, n_labelled) | {"balanced_error": balanced}


def verdict(clf: S3VMClassifier) -> dict[str, Any] | None:
    """Whether the unlabelled rows helped, if that was tested."""
    return None if clf.safety_ is None else {"weight": clf.safety_.weight, "verdict": clf.safety_.sentence}


def model_facts(clf: S3VMClassifier) -> dict[str, Any]:
    """What a fitted classifier consists of."""
    model = clf.model_
    weight: Any = clf.safety_.weight if clf.safety_ is not None else clf.unlabeled_weight
    return {
        "solver": clf.solver if isinstance(clf.solver, str) else repr(clf.solver),
        "kernel": type(clf.kernel_).__name__,
        "gamma": clf.kernel_.width,
        "C": clf.C_,
        "weight": weight,
        "iterations": clf.n_iter_,
        "classes": clf.classes_.tolist(),
        "features": int(np.prod(model.coefficients.shape[:2])),
        "centres": 0 if model.weights is None else len(model.weights),
        "dimensions": model.n_dims,
    }

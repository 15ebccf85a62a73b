"""A second fit, on half of the labels: whether more labels would help, and which columns matter."""

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from s3vm._utils.typing import Array
from s3vm.estimators.folds import stratified_folds
from s3vm.inspect.diagnostics import error_measures, final_classifier

_FEWEST = 20  # labelled rows, of which half are left out
_MOST_COLUMNS, _MOST_ROWS = 100, 500  # columns that are shuffled, and rows in which
_REPEATS = 5


class HalfFit(NamedTuple):
    """An estimator that was fitted with half of the labels, and the rows whose labels it was not given."""

    estimator: Any
    X: Any
    y: Array
    measures: dict[str, Any]  # its error there, and the number of labels


def fit_on_half(clf: Any, X: Any, codes: Array) -> HalfFit | None:
    """The classifier, fitted again; None if there are too few labels of a class, or the fit fails."""
    labeled = np.flatnonzero(codes >= 0)
    counts, mark = np.bincount(codes[labeled]), final_classifier(clf).unlabeled
    if len(labeled) < _FEWEST or counts.min() < 2:
        return None
    is_left_out = stratified_folds(codes[labeled], 2, seed=0) == 1
    known, left_out = labeled[~is_left_out], labeled[is_left_out]
    y, truth = np.full(len(codes), mark, dtype=object), clf.classes_[codes[left_out]]
    y[known] = clf.classes_[codes[known]].tolist()
    estimator, rows = clone(clf), _safe_indexing(X, left_out)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wrong = estimator.fit(X, y).predict(rows) != truth
    except (MemoryError, ValueError):
        return None
    return HalfFit(estimator, rows, truth, error_measures(int(wrong.sum()), len(wrong)) | {"n_labeled": len(known)})


def more_labels(half: dict[str, Any], full: dict[str, Any], n_labeled: int) -> dict[str, Any]:
    """Whether more labels would help, in a sentence, and the error that twice as many might give.

    `half` and `full` are errors with half of the labels and with all of them.
    """
    spread = float(np.hypot(half["standard_error"], full["standard_error"]))
    text = (
        f"With {half['n_labeled']:,} labels the error is {_error_text(half)}, with all {n_labeled:,} it is "
        f"{_error_text(full)}."
    )
    if half["error"] - full["error"] <= spread:
        text += " The difference is within chance: these rows do not show that more labels would help."
        return {"sentence": text, "error_at_twice": None}
    best = full["error"] ** 2 / half["error"]
    worst = (full["error"] + best) / 2
    text += (
        f" If twice as many again ({2 * n_labeled:,}) lower it by the same factor, or by half as much, it would be "
        f"about {best:.1%} to {worst:.1%}."
    )
    return {"sentence": text, "error_at_twice": [best, worst]}


def _error_text(measures: dict[str, Any]) -> str:
    return f"{measures['error']:.1%} (95% interval {100 * measures['low']:.1f} to {measures['high']:.1%})"


def column_importance(estimator: Any, X: Any, y: Array, names: list[str]) -> dict[str, list[Any]] | None:
    """By how much the error rises where a column's values are shuffled among rows that were not trained on.

    `names` are those of the columns that the features come from: features of one column are shuffled together.
    """
    is_frame = hasattr(X, "isetitem")
    is_matrix = sparse.issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2)  # not a list of texts
    if len(set(names)) > _MOST_COLUMNS or not (is_frame or is_matrix):
        return None
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(y))[:_MOST_ROWS]
    X, y = _safe_indexing(X, rows), y[rows]
    X = X.toarray() if sparse.issparse(X) else X
    correct, rises = np.mean(estimator.predict(X) == y), {}
    for name in dict.fromkeys(names):
        columns, rise = [at for at, other in enumerate(names) if other == name], []
        for _ in range(_REPEATS):
            shuffled, order = X.copy(), rng.permutation(len(y))
            for at in columns:
                if is_frame:
                    shuffled.isetitem(at, X.iloc[order, at].array)
                else:
                    shuffled[:, at] = X[order, at]
            rise.append(100 * (correct - np.mean(estimator.predict(shuffled) == y)))
        rises[name] = np.mean(rise), np.std(rise)
    matter = sorted((name for name in rises if rises[name][0] > 0), key=lambda name: -rises[name][0])
    return {"column": matter, "rise of the error": ["{:.1f} ± {:.1f} points".format(*rises[name]) for name in matter]}

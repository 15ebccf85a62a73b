"""The report of one fitted classifier."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, balanced_accuracy_score
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

from s3vm._utils.optional import optional
from s3vm._utils.typing import Array
from s3vm.estimators.safety import Safety
from s3vm.inspect import diagnostics, plot
from s3vm.inspect.diagnostics import Sample, class_names, learner
from s3vm.inspect.page import Section, write

__all__ = ["sections", "settings", "write_report"]

_MEASURES = {
    "brier": ("Brier score", ".4f"),
    "z": ("change of it, in standard errors", ".2f"),
    "error": ("error", ".1%"),
    "balanced_error": ("balanced error", ".1%"),
    "average_precision": ("average precision", ".1%"),
}
_WIDTH = 4.8  # inches: narrow enough for the letters to be read on a phone


def write_report(
    clf: Any,
    X: Any,
    y: Any,
    path: Any,
    test: tuple[Any, Any] | None = None,
    *,
    title: str = "What the classifier has learnt",
    more: Mapping[str, Any] | None = None,
) -> Path:
    """Writes the report of a fitted classifier and returns its path.

    Parameters
    ----------
    clf : fitted S3VMClassifier, a pipeline that ends in one, or a search for the best of them
    X, y : the rows and labels that it was fitted to
    path : str or path
        The HTML file.
    test : pair of rows and labels, or None
        Rows that were not trained on. Only with them does the report have a calibration.
    title : str
    more : mapping or None
        More to list with the settings, such as the names of files.
    """
    fit = _Fit(clf, X, y, test)
    return write(path, title, fit.summary(), fit.sections(), {**(more or {}), **settings(clf)}, fit.headline())


def sections(clf: Any, X: Any, y: Any, test: tuple[Any, Any] | None = None) -> list[Section]:
    """The sections of `of_fit`, to stand beside others."""
    return list(_Fit(clf, X, y, test).sections())


def settings(clf: Any) -> dict[str, Any]:
    """The parameters of a classifier, and what became of those that were left to it."""
    found = learner(clf)
    steps = getattr(clf, "best_estimator_", clf)
    before = {"steps before": ", ".join(map(repr, steps[:-1]))} if isinstance(steps, Pipeline) else {}
    fitted = {name: getattr(found, name) for name in ("C_", "kernel_", "n_iter_") if hasattr(found, name)}
    return before | found.get_params(deep=False) | fitted


class _Fit:
    """A classifier, the rows it was fitted to, and what it says of test rows."""

    def __init__(self, clf: Any, X: Any, y: Any, test: tuple[Any, Any] | None) -> None:
        self.clf, self.X, self.test = clf, X if hasattr(X, "shape") else np.asarray(X), test
        self.learner = learner(clf)
        self.safety = getattr(self.learner, "safety_", None)
        self.names = class_names(clf)
        self.codes, self.sample = diagnostics.codes_of(clf, X, y), Sample(clf, self.X, y)
        self.n_labelled, self.n_unlabelled = int((self.codes >= 0).sum()), int((self.codes < 0).sum())
        if test is not None:
            codes = diagnostics.codes_of(clf, *test)
            rows = _safe_indexing(test[0], np.flatnonzero(codes >= 0))
            self.truth, self.scores = codes[codes >= 0], clf.decision_function(rows)
            self.guess = diagnostics.ahead(self.scores).argmax(axis=1)

    def weight(self) -> float:
        """The weight of the unlabelled rows in the model."""
        if not self.n_unlabelled:
            return 0.0
        if self.safety is not None:
            return float(self.safety.weight)
        given = self.learner.unlabeled_weight
        return float(self.n_labelled / self.n_unlabelled if given == "paper" else given)

    def summary(self) -> str:
        rows = f"Learnt from {self.n_labelled:,} labelled and {self.n_unlabelled:,} unlabelled rows"
        if self.safety is not None:
            return f"{rows}: {self.safety.sentence}."
        if self.weight() == 0:
            return f"{rows}: a supervised SVM, to which unlabelled rows mean nothing."
        return f"{rows}, the unlabelled ones with weight {self.weight():.3g}."

    def headline(self) -> dict[str, str]:
        figures = {}
        if self.test is not None:
            figures["Test error"] = _with_interval(int((self.guess != self.truth).sum()), len(self.truth))
        held_out = self.held_out_error()
        if held_out is not None:
            error, rows = held_out
            figures["Cross-validated error"] = _with_interval(round(error * rows), rows)
        figures["Labelled rows"] = f"{self.n_labelled:,}\n{len(self.names)} classes, {self.X.shape[1]:,} features"
        figures["Unlabelled rows"] = f"{self.n_unlabelled:,}\nweight {self.weight():.3g}"
        return figures

    def held_out_error(self) -> tuple[float, int] | None:
        """The error on labelled rows that were left out of training, and the number of those rows."""
        if self.safety is not None:
            chosen = self.safety.scores.get(self.safety.weight)
            return (chosen["error"], self.safety.n_labelled) if chosen else None
        curve = getattr(self.learner, "history_", {}).get("held_out_error")
        return None if curve is None else (float(curve[-1]), self.n_labelled)

    def sections(self) -> Iterator[Section]:
        if self.safety is not None and self.safety.scores:
            yield Section(
                "Did unlabelled rows help?",
                f"{_capital(self.safety.sentence)}.\n\nAll measures are of {self.safety.n_labelled:,} labelled rows, "
                "each scored by a model that has not seen it. Weight 0 is the supervised SVM.",
                table=_weights(self.safety),
            )
        if self.test is not None:
            yield Section("On test rows", f"{len(self.truth):,} rows that were not trained on.", table=self.measures())
        yield Section("The classes", table=self.classes())
        yield from self.pictures()

    def measures(self) -> dict[str, list[Any]]:
        wrong, rows = int((self.guess != self.truth).sum()), len(self.truth)
        found = {"error": wrong / rows}
        if len(np.unique(self.truth)) > 1:
            found["balanced error"] = 1 - balanced_accuracy_score(self.truth, self.guess)
            if self.scores.ndim == 1:
                found[f"average precision of {self.names[1]}"] = average_precision_score(self.truth, self.scores)
        bounds = [_interval(wrong, rows)] + [""] * (len(found) - 1)
        return {"measure": list(found), "value": [f"{value:.1%}" for value in found.values()], "95% interval": bounds}

    def classes(self) -> dict[str, list[Any]]:
        many = range(len(self.names))
        table: dict[str, list[Any]] = {
            "class": self.names,
            "labelled rows": [int((self.codes == code).sum()) for code in many],
        }
        if self.n_unlabelled:
            guess = diagnostics.ahead(self.sample.scores).argmax(axis=1)[self.sample.codes < 0]
            table["share of unlabelled rows, predicted"] = [f"{np.mean(guess == code):.1%}" for code in many]
        if self.test is not None:
            table["test rows"] = [int((self.truth == code).sum()) for code in many]
            table["of these found"] = [_share(self.guess[self.truth == code] == code) for code in many]
            table["predictions that are right"] = [_share(self.truth[self.guess == code] == code) for code in many]
        return table

    def pictures(self) -> Iterator[Section]:
        clf = self.clf
        if getattr(self.learner, "history_", None):
            text = "Thin lines are single iterations, thick ones their running mean."
            tried = list(self.safety.scores)[1:2] if self.safety is not None else []
            if tried and tried[0] != self.weight():
                text += (
                    f" The curves are of weight {tried[0]:g}, the first that was tried; {self.weight():g} was chosen."
                )
            figure = _drawn(plot.learning_curve, clf, height=5.2)
            yield Section("Learning curve", text, figure=figure, data=diagnostics.curves(clf))
        bins = diagnostics.score_bins(self.sample)
        text = (
            "The boundary is at 0. If it runs through a gap between the rows, few unlabelled rows have scores near 0."
        )
        if len(self.names) == 2:
            text += " Dashed lines are the margin."
        if len(self.sample.codes) < len(self.codes):
            text += f" Counted on {len(self.sample.codes):,} rows, a sample."
        yield Section("Scores of the training rows", text, figure=_drawn(plot.draw_scores, bins), data=bins)
        if self.test is not None and hasattr(clf, "predict_proba"):
            points = diagnostics.reliability(clf, *self.test)
            yield Section(
                "Calibration on test rows",
                "Of rows with probability p, a share p should turn out so: points belong on the diagonal. Bars are "
                "95% intervals, numbers the rows in each bin.",
                figure=_drawn(plot.draw_calibration, points, self.names),
                data=points,
            )
        if self.X.shape[1] == 2:
            figure = _drawn(plot.draw_boundary, self.sample, height=3.8)
            yield Section("Decision boundary", figure=figure, data=diagnostics.plane(self.sample))


def _drawn(draw: Callable[..., Any], *args: Any, height: float = 3.4) -> Any:
    """A picture in matplotlib's own style, whatever the user's, in a figure that pyplot knows nothing of."""
    with optional("matplotlib.style", "report").context("default"):
        figure = optional("matplotlib.figure", "report").Figure(figsize=(_WIDTH, height), layout="constrained")
        draw(*args, ax=figure)
        figure.draw_without_rendering()  # makes the ticks while the style holds
    return figure


def _weights(safety: Safety) -> dict[str, list[Any]]:
    """The weights that were tried, and what came of each."""
    tried = sorted(safety.scores)
    table: dict[str, list[Any]] = {"weight": tried, "chosen": ["yes" if one == safety.weight else "" for one in tried]}
    for name, (title, form) in _MEASURES.items():
        if name in safety.scores[0.0]:
            table[title] = [format(safety.scores[weight][name], form) for weight in tried]
    return table


def _interval(hits: int, rows: int) -> str:
    low, high = diagnostics.interval(hits, rows)
    return f"{100 * low:.1f}–{high:.1%}"


def _with_interval(hits: int, rows: int) -> str:
    return f"{hits / rows:.1%}\n95% interval {_interval(hits, rows)}"


def _share(hits: Array) -> str:
    return f"{hits.mean():.1%}" if len(hits) else "–"


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]

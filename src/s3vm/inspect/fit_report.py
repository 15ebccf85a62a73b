"""The report of a fitted classifier."""

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
from s3vm.inspect.diagnostics import Sample, class_names, final_classifier
from s3vm.inspect.page import Section, write_page

__all__ = ["sections", "settings", "write_report"]

_MEASURES = {
    "brier": ("Brier score", ".4f"),
    "z": ("change of the Brier score, in standard errors", ".2f"),
    "error": ("error", ".1%"),
    "balanced_error": ("balanced error", ".1%"),
    "average_precision": ("average precision", ".1%"),
}
_WIDTH = 4.8  # inches: narrow enough to be readable on a phone


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
    """Writes an HTML report of a fitted classifier and returns its path.

    Parameters
    ----------
    clf : fitted S3VMClassifier, a pipeline that ends in one, or a search over one
    X, y : the rows and labels that it was fitted to
    path : str or path
        The HTML file.
    test : pair of rows and labels, or None
        Rows that were not trained on. The report shows the calibration only if they are given.
    title : str
    more : mapping or None
        Further entries for the list of settings, such as file names.
    """
    fit = _Fit(clf, X, y, test)
    return write_page(path, title, fit.summary(), fit.sections(), {**(more or {}), **settings(clf)}, fit.headline())


def sections(clf: Any, X: Any, y: Any, test: tuple[Any, Any] | None = None) -> list[Section]:
    """The sections of `write_report`, for use in another report."""
    return list(_Fit(clf, X, y, test).sections())


def settings(clf: Any) -> dict[str, Any]:
    """The parameters of a classifier, and the values that the fit chose."""
    classifier = final_classifier(clf)
    estimator = getattr(clf, "best_estimator_", clf)
    steps = {"previous steps": ", ".join(map(repr, estimator[:-1]))} if isinstance(estimator, Pipeline) else {}
    fitted = {name: getattr(classifier, name) for name in ("C_", "kernel_", "n_iter_") if hasattr(classifier, name)}
    return steps | classifier.get_params(deep=False) | fitted


class _Fit:
    """A classifier, the rows it was fitted to, and its predictions for test rows."""

    def __init__(self, clf: Any, X: Any, y: Any, test: tuple[Any, Any] | None) -> None:
        self.clf, self.X, self.test = clf, X if hasattr(X, "shape") else np.asarray(X), test
        self.classifier = final_classifier(clf)
        self.safety = getattr(self.classifier, "safety_", None)
        self.names = class_names(clf)
        self.codes, self.sample = diagnostics.class_codes(clf, X, y), Sample(clf, self.X, y)
        self.n_labelled, self.n_unlabelled = int((self.codes >= 0).sum()), int((self.codes < 0).sum())
        if test is not None:
            codes = diagnostics.class_codes(clf, *test)
            rows = _safe_indexing(test[0], np.flatnonzero(codes >= 0))
            self.test_codes, self.scores = codes[codes >= 0], clf.decision_function(rows)
            self.predicted = diagnostics.class_margins(self.scores).argmax(axis=1)

    def weight(self) -> float:
        """The weight of the unlabelled rows in the model."""
        if not self.n_unlabelled:
            return 0.0
        if self.safety is not None:
            return float(self.safety.weight)
        weight = self.classifier.unlabeled_weight
        return float(self.n_labelled / self.n_unlabelled if weight == "paper" else weight)

    def summary(self) -> str:
        rows = f"Learnt from {self.n_labelled:,} labelled and {self.n_unlabelled:,} unlabelled rows"
        if self.safety is not None:
            return f"{rows}: {self.safety.sentence}."
        if self.weight() == 0:
            return f"{rows}: a supervised SVM, which ignores the unlabelled ones."
        return f"{rows}, the unlabelled ones with weight {self.weight():.3g}."

    def headline(self) -> dict[str, str]:
        figures = {}
        if self.test is not None:
            figures["Test error"] = _with_interval(int((self.predicted != self.test_codes).sum()), len(self.test_codes))
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
        curve = getattr(self.classifier, "history_", {}).get("held_out_error")
        return None if curve is None else (float(curve[-1]), self.n_labelled)

    def sections(self) -> Iterator[Section]:
        if self.safety is not None and self.safety.scores:
            yield Section(
                "Did unlabelled rows help?",
                f"{_capitalize(self.safety.sentence)}.\n\nMeasured on {self.safety.n_labelled:,} labelled rows, each "
                "scored by a model trained without it. Weight 0 is the supervised SVM.",
                table=_weights(self.safety),
            )
        if self.test is not None:
            yield Section(
                "On test rows", f"{len(self.test_codes):,} rows that were not trained on.", table=self.measures()
            )
        yield Section("The classes", table=self.classes())
        yield from self.pictures()

    def measures(self) -> dict[str, list[Any]]:
        wrong, rows = int((self.predicted != self.test_codes).sum()), len(self.test_codes)
        values = {"error": wrong / rows}
        if len(np.unique(self.test_codes)) > 1:
            values["balanced error"] = 1 - balanced_accuracy_score(self.test_codes, self.predicted)
            if self.scores.ndim == 1:
                values[f"average precision of {self.names[1]}"] = average_precision_score(self.test_codes, self.scores)
        return {
            "measure": list(values),
            "value": [f"{value:.1%}" for value in values.values()],
            "95% interval": [_interval(wrong, rows)] + [""] * (len(values) - 1),
        }

    def classes(self) -> dict[str, list[Any]]:
        codes = range(len(self.names))
        table: dict[str, list[Any]] = {
            "class": self.names,
            "labelled rows": [int((self.codes == code).sum()) for code in codes],
        }
        if self.n_unlabelled:
            predicted = diagnostics.class_margins(self.sample.scores).argmax(axis=1)[self.sample.codes < 0]
            table["share of unlabelled rows, predicted"] = [f"{np.mean(predicted == code):.1%}" for code in codes]
        if self.test is not None:
            table["test rows"] = [int((self.test_codes == code).sum()) for code in codes]
            table["recall"] = [_mean(self.predicted[self.test_codes == code] == code) for code in codes]
            table["precision"] = [_mean(self.test_codes[self.predicted == code] == code) for code in codes]
        return table

    def pictures(self) -> Iterator[Section]:
        clf = self.clf
        if getattr(self.classifier, "history_", None):
            text = "Thin lines are single iterations, thick ones their running mean."
            first = list(self.safety.scores)[1:2] if self.safety is not None else []
            if first and first[0] != self.weight():
                text += f" The curves are those of weight {first[0]:g}, tried first; {self.weight():g} was chosen."
            figure = _draw(plot.learning_curve, clf, height=5.2)
            yield Section("Learning curve", text, figure=figure, data=diagnostics.history_columns(clf))
        bins = diagnostics.score_bins(self.sample)
        text = "The boundary is at 0. If it lies in a gap between the rows, few unlabelled rows have scores near 0."
        if len(self.names) == 2:
            text += " Dashed lines are the margin."
        if len(self.sample.codes) < len(self.codes):
            text += f" Counts of a sample of {len(self.sample.codes):,} rows."
        yield Section("Scores of the training rows", text, figure=_draw(plot.draw_scores, bins), data=bins)
        if self.test is not None and hasattr(clf, "predict_proba"):
            points = diagnostics.reliability(clf, *self.test)
            yield Section(
                "Calibration on test rows",
                "Of the rows with predicted probability p, a fraction p should be of the class: points should lie on "
                "the diagonal. Bars are 95% intervals; numbers count the rows per bin.",
                figure=_draw(plot.draw_calibration, points, self.names),
                data=points,
            )
        if self.X.shape[1] == 2:
            figure = _draw(plot.draw_boundary, self.sample, height=3.8)
            yield Section("Decision boundary", figure=figure, data=diagnostics.sample_columns(self.sample))


def _draw(draw: Callable[..., Any], *args: Any, height: float = 3.4) -> Any:
    """A figure in matplotlib's default style, whatever the user's style, and unknown to pyplot."""
    with optional("matplotlib.style", "report").context("default"):
        figure = optional("matplotlib.figure", "report").Figure(figsize=(_WIDTH, height), layout="constrained")
        draw(*args, ax=figure)
        figure.draw_without_rendering()  # creates the ticks while the style applies
    return figure


def _weights(safety: Safety) -> dict[str, list[Any]]:
    """The weights that were tried, with their measures."""
    weights = sorted(safety.scores)
    chosen = ["yes" if weight == safety.weight else "" for weight in weights]
    table: dict[str, list[Any]] = {"weight": weights, "chosen": chosen}
    for name, (title, form) in _MEASURES.items():
        if name in safety.scores[0.0]:
            table[title] = [format(safety.scores[weight][name], form) for weight in weights]
    return table


def _interval(hits: int, rows: int) -> str:
    low, high = diagnostics.wilson_interval(hits, rows)
    return f"{100 * low:.1f}–{high:.1%}"


def _with_interval(hits: int, rows: int) -> str:
    return f"{hits / rows:.1%}\n95% interval {_interval(hits, rows)}"


def _mean(hits: Array) -> str:
    return f"{hits.mean():.1%}" if len(hits) else "–"


def _capitalize(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]

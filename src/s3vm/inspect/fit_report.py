"""The report of a fitted classifier."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

from s3vm._utils.optional import optional
from s3vm.estimators.safety import Safety
from s3vm.inspect import diagnostics, plot
from s3vm.inspect.diagnostics import Sample, class_names, final_classifier, held_out_error, score_measures
from s3vm.inspect.page import Section, write_page
from s3vm.model import Model

_MEASURES = {
    "brier": ("Brier score", ".4f"),
    "z": ("change of the Brier score, in standard errors", ".2f"),
    "error": ("error", ".1%"),
    "balanced_error": ("balanced error", ".1%"),
    "average_precision": ("average precision", ".1%"),
}
_MOST_COLUMNS = 20
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
        self.clf, self.X, self.test_rows, self.test = clf, X if hasattr(X, "shape") else np.asarray(X), test, None
        self.classifier = final_classifier(clf)
        self.safety = getattr(self.classifier, "safety_", None)
        self.names = class_names(clf)
        self.codes, self.sample = diagnostics.class_codes(clf, X, y), Sample(clf, self.X, y)
        self.n_labeled, self.n_unlabeled = int((self.codes >= 0).sum()), int((self.codes < 0).sum())
        if test is not None:
            codes = diagnostics.class_codes(clf, *test)
            rows = np.flatnonzero(codes >= 0)
            scores = clf.decision_function(_safe_indexing(test[0], rows)).reshape(len(rows), -1)
            self.test = score_measures(codes[rows], scores, clf.classes_)

    def weight(self) -> float:
        """The weight of the unlabelled rows in the model."""
        if not self.n_unlabeled:
            return 0.0
        if self.safety is not None:
            return float(self.safety.weight)
        weight = self.classifier.unlabeled_weight
        return float(self.n_labeled / self.n_unlabeled if weight == "paper" else weight)

    def summary(self) -> str:
        rows = f"Learnt from {self.n_labeled:,} labelled and {self.n_unlabeled:,} unlabelled rows"
        if self.safety is not None:
            return f"{rows}: {self.safety.sentence}."
        if self.weight() == 0:
            return f"{rows}: a supervised SVM, which ignores the unlabelled ones."
        return f"{rows}, the unlabelled ones with weight {self.weight():.3g}."

    def headline(self) -> dict[str, str]:
        figures = {}
        held_out = held_out_error(self.classifier, self.n_labeled)
        for name, measures in {"Test error": self.test, "Cross-validated error": held_out}.items():
            if measures is not None:
                figures[name] = f"{measures['error']:.1%}\n95% interval {_interval(measures)}"
        figures["Labelled rows"] = f"{self.n_labeled:,}\n{len(self.names)} classes, {self.X.shape[1]:,} features"
        figures["Unlabelled rows"] = f"{self.n_unlabeled:,}\nweight {self.weight():.3g}"
        return figures

    def sections(self) -> Iterator[Section]:
        if self.safety is not None and self.safety.scores:
            sentence = self.safety.sentence[:1].upper() + self.safety.sentence[1:]
            text = (
                f"{sentence}.\n\nMeasured on {self.safety.n_labeled:,} labelled rows, each scored by a model trained "
                "without it. Weight 0 is the supervised SVM."
            )
            yield Section("Did unlabelled rows help?", text, table=_weights(self.safety))
        if self.test is not None:
            text = f"{self.test['rows']:,} rows that were not trained on."
            yield Section("On test rows", text, table=self.test_table(self.test))
        yield Section("The classes", table=self.classes())
        if self.classifier.model_.projection is not None:
            yield self.columns(self.classifier.model_)
        yield from self.pictures()

    def test_table(self, test: dict[str, Any]) -> dict[str, list[Any]]:
        values = {"error": test["error"]}
        if sum(facts["rows"] > 0 for facts in test["classes"].values()) > 1:
            values["balanced error"] = test["balanced_error"]
        if "average_precision" in test:
            values[f"average precision of {self.names[1]}"] = test["average_precision"]
        return {
            "measure": list(values),
            "value": [f"{value:.1%}" for value in values.values()],
            "95% interval": [_interval(test)] + [""] * (len(values) - 1),
        }

    def classes(self) -> dict[str, list[Any]]:
        codes = range(len(self.names))
        labeled = np.bincount(self.codes[self.codes >= 0], minlength=len(codes))
        table: dict[str, list[Any]] = {"class": self.names, "labelled rows": labeled.tolist()}
        if self.n_unlabeled:
            predicted = diagnostics.class_margins(self.sample.scores).argmax(axis=1)[self.sample.codes < 0]
            table["share of unlabelled rows, predicted"] = [f"{np.mean(predicted == code):.1%}" for code in codes]
        if self.test is not None:
            facts = self.test["classes"].values()
            table["test rows"] = [entry["rows"] for entry in facts]
            for name in ("recall", "precision"):
                table[name] = ["–" if np.isnan(entry[name]) else f"{entry[name]:.1%}" for entry in facts]
        return table

    def columns(self, model: Model) -> Section:
        largest = diagnostics.largest_weights(model, self.sample.feature_names, _MOST_COLUMNS)
        if largest is None:
            text = f"Rows are projected on {diagnostics.projection_text(model)}."
            return Section("The columns", text)
        text = "Factors of the columns in front of the kernel: the score varies most along those with the largest."
        weights = [f"{weight:.3g}" for weight in largest.values()]
        return Section("The columns", text, table={"column": list(largest), "weight": weights})

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
        if self.test_rows is not None and hasattr(clf, "predict_proba"):
            points = diagnostics.reliability(clf, *self.test_rows)
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
    weights = sorted(safety.scores)
    chosen = ["yes" if weight == safety.weight else "" for weight in weights]
    table: dict[str, list[Any]] = {"weight": weights, "chosen": chosen}
    for name, (title, form) in _MEASURES.items():
        if name in safety.scores[0.0]:
            table[title] = [format(safety.scores[weight][name], form) for weight in weights]
    return table


def _interval(measures: dict[str, Any]) -> str:
    return f"{100 * measures['low']:.1f}–{measures['high']:.1%}"

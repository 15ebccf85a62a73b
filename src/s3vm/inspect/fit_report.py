"""The report of a fitted classifier."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

from s3vm._utils.optional import optional
from s3vm._utils.typing import Array
from s3vm.estimators.safety import Safety, change_text
from s3vm.inspect import diagnostics, plot
from s3vm.inspect.diagnostics import Sample, class_names, final_classifier, score_measures
from s3vm.inspect.half_fit import HalfFit, column_importance, fit_on_half, more_labels
from s3vm.inspect.page import Section, cell_text, write_page
from s3vm.inspect.tables import confusion_columns, weight_columns

_MOST_COLUMNS, _MOST_ROWS, _MOST_VALUES = 20, 10, 4  # in tables: columns, rows, and columns of these rows
_MOST_TEXT = 80  # letters of a cell
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
    return FitReport(clf, X, y, test).write(path, title, more)


def settings(clf: Any) -> dict[str, Any]:
    """The parameters of a classifier, and the values that the fit chose."""
    classifier, estimator = final_classifier(clf), getattr(clf, "best_estimator_", clf)
    steps = {"previous steps": ", ".join(map(repr, estimator[:-1]))} if isinstance(estimator, Pipeline) else {}
    fitted = {name: getattr(classifier, name) for name in ("C_", "kernel_", "n_iter_") if hasattr(classifier, name)}
    return steps | classifier.get_params(deep=False) | fitted


def _names_after_steps(clf: Any, names: list[str]) -> list[str]:
    """The names of the features that the last step of a pipeline takes; none if another step does not tell."""
    with suppress(AttributeError, ValueError):
        return list(map(str, clf[:-1].get_feature_names_out(names))) if isinstance(clf, Pipeline) else names
    return []


class Origin(NamedTuple):
    """The file that rows come from: the names of the features, the column of each, and what a row says."""

    features: list[str]
    columns: list[str]
    row_text: Callable[[int], str]
    first: int = 1  # the number of the first row


class FitReport:
    """A classifier, the rows it was fitted to, and its predictions for test rows."""

    def __init__(
        self, clf: Any, X: Any, y: Any, test: tuple[Any, Any] | None = None, origin: Origin | None = None
    ) -> None:
        clf = getattr(clf, "best_estimator_", clf)
        self.clf, self.X, self.y = clf, X if hasattr(X, "shape") else np.asarray(X), y
        self.classifier, self.names = final_classifier(clf), class_names(clf)
        self.safety: Safety | None = getattr(self.classifier, "safety_", None)
        self.codes, self.sample = diagnostics.class_codes(clf, X, y), Sample(clf, self.X, y)
        self.n_labeled, self.n_unlabeled = int((self.codes >= 0).sum()), int((self.codes < 0).sum())
        self.test_rows, self.test = test, None
        if test is not None:
            codes = diagnostics.class_codes(clf, *test)
            rows = np.flatnonzero(codes >= 0)
            self.test_rows = _safe_indexing(test[0], rows), clf.classes_[codes[rows]]
            scores = clf.decision_function(self.test_rows[0]).reshape(len(rows), -1)
            self.test = score_measures(codes[rows], scores, clf.classes_)
        self.held_out = diagnostics.held_out_measures(self.classifier)
        self.judged, self.judge = self.test or self.held_out, "test" if self.test else "held-out"
        names = self.sample.feature_names
        self.origin = origin or Origin(_names_after_steps(clf, names), names, self._row_text, first=0)

    def write(self, path: Any, title: str, more: Mapping[str, Any] | None = None) -> Path:
        """Writes the page; see `write_report`."""
        listed = {**(more or {}), **settings(self.clf)}
        return write_page(path, title, self.summary(), self.sections(), listed, self.headline())

    @property
    def outlook(self) -> dict[str, Any] | None:
        """Whether more labels would help; None if that cannot be said."""
        if self.half is None or self.held_out is None:
            return None
        return more_labels(self.half.measures, self.held_out, self.n_labeled)

    @cached_property
    def half(self) -> HalfFit | None:
        """The same, fitted with half of the labels."""
        return fit_on_half(self.clf, self.X, self.codes)

    def weight(self) -> float:
        """The weight of the unlabelled rows in the model."""
        if not self.n_unlabeled:
            return 0.0
        if self.safety is not None:
            return float(self.safety.weight)
        weight = self.classifier.unlabeled_weight
        return float(self.n_labeled / self.n_unlabeled if weight == "paper" else weight)

    def summary(self) -> str:
        """What the figures mean, a paragraph each."""
        return "\n\n".join(filter(None, [self._quality(), self._gain(), self._warning()]))

    def _quality(self) -> str:
        if self.judged is None:
            return "No held-out prediction is known, so nothing can be said of errors: give test rows."
        n_rows = self.judged["rows"]
        name, largest = max(self.judged["classes"].items(), key=lambda entry: entry[1]["rows"])
        right, low, high = (round(100 * (1 - self.judged[key])) for key in ("error", "high", "low"))
        text = (
            f"Of 100 such rows, about {right} are classified correctly (95% interval {low} to {high}); always guessing "
            f"the largest class, {name}, gets {round(100 * largest['rows'] / n_rows)}. This was measured on {n_rows:,}"
        )
        if self.test is not None:
            return f"{text} test rows."
        return (
            f"{text} labelled rows, each predicted by a model trained without it; it is slightly optimistic if the "
            "same rows chose the settings."
        )

    def _gain(self) -> str:
        """Whether unlabelled rows helped."""
        safety = self.safety
        if safety is None:
            used = f"were used with weight {self.weight():.3g}, untested" if self.weight() else "were not used"
            return f"Unlabelled rows {used}." if self.n_unlabeled else ""
        if not safety.weight:
            reason = "There were too few labelled rows to see whether unlabelled rows help"
            if safety.scores:
                reason = "Unlabelled rows were tried and did not clearly help"
            return f"{reason}, so the classifier has learnt from the labelled rows alone."
        change = change_text(safety.scores[0.0]["error"], safety.scores[safety.weight]["error"])
        text = {
            "helped": "Unlabelled rows helped: the held-out error {}.",
            "helped the probabilities": "Unlabelled rows made the probabilities more accurate; the held-out error {}.",
            "mixed": "Unlabelled rows made the probabilities more accurate, but the held-out error {}.",
        }[safety.outcome].format(change)
        doubt = f" With only {safety.n_labeled} labelled rows to hold out, this is uncertain."
        return text + doubt * safety.uncertain

    def _warning(self) -> str:
        if self.safety is None or not self.safety.weight:
            return ""
        before, after = (self.safety.scores[weight]["balanced_error"] for weight in (0.0, self.safety.weight))
        change = change_text(before, after)
        if not change.startswith("rose"):
            return ""
        return (
            f"Warning: with unlabelled rows, the balanced error {change}: rows of rare classes are missed more often. "
            "If these matter, compare with unlabeled_weight=0."
        )

    def headline(self) -> dict[str, str]:
        figures = {}
        for name, measures in {"Test error": self.test, "Held-out error": self.held_out}.items():
            if measures is not None:
                interval = f"{100 * measures['low']:.1f}–{measures['high']:.1%}"
                figures[name] = f"{measures['error']:.1%}\n95% interval {interval}"
        figures["Labelled rows"] = (
            f"{self.n_labeled:,}\n{len(self.names)} classes, {self.classifier.n_features_in_:,} features"
        )
        figures["Unlabelled rows"] = f"{self.n_unlabeled:,}\nweight {self.weight():.3g}"
        return figures

    def sections(self) -> Iterator[Section]:
        yield from self.answers()
        yield from (replace(section, folded=True) for section in self.details())

    def answers(self) -> Iterator[Section]:
        """What somebody who decides about the classifier needs."""
        if self.judged is not None:
            names = {"error": "error", "balanced error": "balanced_error"}
            names[f"average precision of class {self.names[1]}"] = "average_precision"
            measures = [f"{name} {self.judged[key]:.1%}" for name, key in names.items() if key in self.judged]
            text = f"Numbers of {self.judge} rows, by their class and by the predicted one: {', '.join(measures)}."
            yield Section(
                "Which classes are confused", text, table=confusion_columns(self.judged, f"{self.judge} rows")
            )
        if self.held_out is not None and len(self.classifier.doubtful_["row"]):
            yield self.rows_to_check()
        if self.n_unlabeled:
            yield self.next_rows()
        if self.outlook is not None:
            yield Section("Would more labels help?", self.outlook["sentence"])
        if self.test_rows is not None:
            table = column_importance(self.clf, *self.test_rows, self.origin.columns)
        else:
            table = self.half and column_importance(self.half.estimator, self.half.X, self.half.y, self.origin.columns)
        if table:
            text = "By how much the error rises where the values of a column are shuffled among rows not trained on."
            n_others = len(set(self.origin.columns)) - len(table["column"])
            text += f" Of the other {n_others:,} columns, no effect is measurable." if n_others else ""
            yield Section("Which columns matter", text, table={k: v[:_MOST_COLUMNS] for k, v in table.items()})

    def rows_to_check(self) -> Section:
        doubtful = self.classifier.doubtful_
        n, rows = len(doubtful["row"]), doubtful["row"][:_MOST_ROWS]
        text = (
            f"Labels that contradict the prediction of a model that was not trained on them: {n:,}, the worst first. "
            f"Either the label is wrong, or the row is unusual. Rows are counted from {self.origin.first}."
        )
        doubts = [f"{doubt:.1%}" for doubt in doubtful["doubt"][:_MOST_ROWS]]
        columns = {name: doubtful[name][:_MOST_ROWS] for name in ("label", "predicted")}
        return Section("Rows to check", text, table=self._rows(rows, columns | {"doubt": doubts}))

    def next_rows(self) -> Section:
        X = self.clf[:-1].transform(self.X) if isinstance(self.clf, Pipeline) else self.X
        rows = self.classifier.suggest(X, min(_MOST_ROWS, self.n_unlabeled), self.y)
        text = (
            "The labels of these rows would tell most about the others: they are in doubt, near many other rows, and "
            "differ from each other. Every fifth is drawn at random, so that the classes' shares can be estimated."
        )
        predicted = self.clf.predict(_safe_indexing(self.X, rows))
        return Section("What to label next", text, table=self._rows(rows, {"predicted": predicted}))

    def _rows(self, rows: Array, columns: dict[str, Any]) -> dict[str, Any]:
        """A table of rows by number, with what is in them in one column, which a narrow screen can wrap."""
        texts = [self.origin.row_text(int(row)) for row in rows]
        return {"row": rows + self.origin.first} | columns | ({"first columns": texts} if any(texts) else {})

    def _row_text(self, row: int) -> str:
        """What is in the first columns of a frame."""
        if not hasattr(self.X, "columns") or row >= len(self.X):
            return ""
        some = _safe_indexing(self.X, [row])
        return row_text({str(name): cell_text(next(iter(some[name]))) for name in some.columns[:_MOST_VALUES]})

    def details(self) -> Iterator[Section]:
        if self.safety is not None and self.safety.scores:
            text = (
                f"{self.safety.sentence[:1].upper()}{self.safety.sentence[1:]}.\n\nMeasured on "
                f"{self.safety.n_labeled:,} labelled rows held out. Weight 0 is the supervised SVM; a star marks "
                "the choice. The change is that of the Brier score, in standard errors."
            )
            table = weight_columns(self.safety.scores, self.safety.weight)
            yield Section("With and without unlabelled rows", text, table=table)
        columns = diagnostics.projection_text(self.classifier.model_, self.origin.features, _MOST_COLUMNS)
        if columns is not None:
            yield Section("The columns", f"In front of the kernel: {columns}.")
        yield from self.pictures()

    def pictures(self) -> Iterator[Section]:
        clf = self.clf
        if len(getattr(self.classifier, "history_", {}).get("iteration", ())) > 1:
            text = "Thin lines are single iterations, thick ones their running mean."
            first = list(self.safety.scores)[1:2] if self.safety is not None else []
            if first and first[0] != self.weight():
                text += f" The curves are those of weight {first[0]:g}, tried first; {self.weight():g} was chosen."
            figure = _draw(plot.learning_curve, clf, height=5.2)
            yield Section("Learning curve", text, figure=figure, data=self.classifier.history_)
        bins = diagnostics.score_bins(self.sample)
        text = "The boundary is at 0. If it lies in a gap between the rows, few unlabelled rows have scores near 0."
        if len(self.names) == 2:
            text += " Dashed lines are the margin."
        if len(self.sample.codes) < len(self.codes):
            text += f" Counts of a sample of {len(self.sample.codes):,} rows."
        figure = _draw(plot.score_histogram, clf, self.X, self.y)
        yield Section("Scores of the training rows", text, figure=figure, data=bins)
        if self.test_rows is not None and hasattr(clf, "predict_proba"):
            text = (
                "Of the rows with predicted probability p, a fraction p should be of the class: points should lie on "
                "the diagonal. Bars are 95% intervals; numbers count the rows per bin."
            )
            points, figure = (
                diagnostics.reliability(clf, *self.test_rows),
                _draw(plot.calibration, clf, *self.test_rows),
            )
            yield Section("Calibration on test rows", text, figure=figure, data=points)
        if self.sample.is_plane:
            figure = _draw(plot.decision_boundary, clf, self.X, self.y, height=3.8)
            yield Section("Decision boundary", figure=figure, data=diagnostics.sample_columns(self.sample))


def row_text(cells: Mapping[str, str]) -> str:
    """The first cells of a row, in a line."""
    return ", ".join(f"{name} {shorten(cell, _MOST_TEXT) or '–'}" for name, cell in list(cells.items())[:_MOST_VALUES])


def _draw(draw: Callable[..., Any], *args: Any, height: float = 3.4) -> Any:
    """A figure in matplotlib's default style, whatever the user's style, and unknown to pyplot."""
    with optional("matplotlib.style", "report").context("default"):
        figure = optional("matplotlib.figure", "report").Figure(figsize=(_WIDTH, height), layout="constrained")
        draw(*args, ax=figure)
        figure.draw_without_rendering()  # creates the ticks while the style applies
    return figure

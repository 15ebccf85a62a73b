"""Plots of a fitted classifier, with matplotlib (``pip install "s3vm[report]"``).

Every function draws into the given axes, or into those of a new figure, and returns them. Nothing is shown or saved,
and no global setting is changed. The classifier may be the last step of a pipeline or the best estimator of a search.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.ndimage import uniform_filter1d

from s3vm._utils.input_checks import printable
from s3vm._utils.optional import optional
from s3vm._utils.typing import Array
from s3vm.inspect import diagnostics
from s3vm.inspect.diagnostics import Sample, class_names, final_classifier

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

__all__ = ["calibration", "decision_boundary", "learning_curve", "score_histogram"]

# Okabe and Ito's colours for the colour-blind, except those that do not show on white or on black.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# Markers, with factors that make them look as large as a circle. One more than colours, so that 42 classes differ.
_MARKERS = (("o", 1.0), ("s", 0.9), ("D", 0.7), ("^", 1.3), ("v", 1.3), ("P", 1.2), ("X", 1.2))
_GRAY = "#8A8A8A"
_DASHES = ("solid", "dashed", "dashdot")
_LABELED_HEIGHT = 0.6  # of labelled rows in a histogram, relative to that of unlabelled ones
_RESOLUTION = 128
_FEW = 20  # iterations up to which each is marked
_MAX_LENGTH = 24  # of a class name

# The panels of the learning curve: names in the history, and their labels.
_PANELS = {
    "objective": {"objective": "R(f)"},
    "mean loss": {"labeled_loss": "labelled rows", "unlabeled_loss": "unlabelled rows"},
    "held-out rows": {
        "held_out_error": "error",
        "held_out_balanced_error": "balanced error",
        "held_out_average_precision": "1 − average precision",
    },
}


def decision_boundary(clf: Any, X: Any, y: Any, *, resolution: int = _RESOLUTION, ax: "Axes | None" = None) -> "Axes":
    """The decision boundary over rows with two features.

    Labelled rows are coloured by class, unlabelled ones are faint. With two classes the dashed lines are the margin,
    f = 1 and f = -1. Large data are sampled.

    Parameters
    ----------
    clf : fitted classifier of two features
    X : array, CSR matrix or data frame of shape (n_rows, 2)
    y : array of shape (n_rows,)
        Labels, with unlabelled rows marked as for `fit`.
    resolution : int, default 128
        Points of the grid in each direction.
    ax : matplotlib axes or None, default None
    """
    sample = Sample(clf, X, y)
    if not sample.is_plane:
        raise ValueError(
            f"a decision boundary needs rows of two numbers, but X has the shape {sample.X.shape}, text, dates or "
            "missing values: fit a classifier to two columns of numbers, or to two components of a PCA"
        )
    X, codes, points = sample.X, sample.codes, sample.points
    low, high = points.min(axis=0), points.max(axis=0)
    edge = np.where(high > low, 0.06 * (high - low), 1.0)
    across, up = np.linspace(low - edge, high + edge, resolution).T
    grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    names = getattr(X, "columns", None)
    scores = clf.decision_function(grid if names is None else type(X)(dict(zip(names, grid.T, strict=True))))
    margins = diagnostics.class_margins(scores).reshape(resolution, resolution, -1)

    ax, ink = _axes(ax)
    for code in range(margins.shape[2]):
        margin, color = margins[:, :, code], _COLORS[code % len(_COLORS)]
        if margin.max() > 0:
            ax.contourf(across, up, margin, levels=[0, margin.max() + 1], colors=[color], alpha=0.16)
        if margin.min() < 0 < margin.max():
            ax.contour(across, up, margin, levels=[0], colors=[ink], linewidths=1.5)
    lines = ax.plot([], [], color=ink, linewidth=1.5, label="boundary")
    levels = [level for level in (-1, 1) if scores.ndim == 1 and scores.min() < level < scores.max()]
    if levels:
        ax.contour(across, up, margins[:, :, 1], levels=levels, colors=[ink], linewidths=0.9, linestyles="dashed")
        lines += ax.plot([], [], color=ink, linewidth=0.9, linestyle="dashed", label="margin, f = ±1")
    unlabeled, handles = points[codes < 0], []
    for code, name in enumerate(class_names(clf)):
        marker, factor = _MARKERS[code % len(_MARKERS)]
        look: dict[str, Any] = {"color": _COLORS[code % len(_COLORS)], "marker": marker, "linewidths": 0.6}
        labeled = points[codes == code]
        if len(labeled):
            look |= {"s": factor * float(np.clip(4_000 / len(labeled), 14, 40)), "edgecolors": [ax.get_facecolor()]}
            handles.append(ax.scatter(*labeled.T, zorder=3, label=f"class {_label_text(name)}", **look))
    if len(unlabeled):
        # As vectors, thousands of dots would make a file large and slow.
        look = {"s": float(np.clip(8_000 / len(unlabeled), 4, 14)), "rasterized": True}
        ax.scatter(*unlabeled.T, color=_GRAY, alpha=0.6, linewidths=0, **look)
        handles.append(ax.scatter([], [], s=14, color=_GRAY, linewidths=0, label="unlabelled"))
    xlabel, ylabel = map(_label_text, sample.feature_names)
    ax.set(xlim=across[[0, -1]], ylim=up[[0, -1]], xlabel=xlabel, ylabel=ylabel)
    ax.legend(handles=[*handles, *lines], ncols=1 + len(handles) // 7, fontsize="small", framealpha=0.9)
    return ax


def learning_curve(clf: Any, *, ax: "FigureBase | Sequence[Axes] | None" = None) -> Array:
    """The objective, the mean losses and the errors on held-out labelled rows, by iteration (from `history_`).

    Thin lines are single iterations, thick ones their running mean. Held-out errors are those of the models of the
    cross-validation; the dotted line is the supervised SVM's error on the same rows. If the weight is chosen
    (``unlabeled_weight="auto"``), the curves are those of the first weight tried, which is 1.

    Parameters
    ----------
    clf : fitted classifier
    ax : matplotlib figure, one axes per panel, or None, default None
        There are three panels, or fewer if the history has less.

    Returns
    -------
    axes : array of matplotlib axes
    """
    classifier = final_classifier(clf)
    history = getattr(classifier, "history_", None)
    if not history:
        raise ValueError(f"this {type(classifier).__name__} has no history_ of its training")
    panels = {
        title: {name: label for name, label in names.items() if name in history} for title, names in _PANELS.items()
    }
    panels = {title: names for title, names in panels.items() if names}
    scores = getattr(getattr(classifier, "safety_", None), "scores", None)
    axes = _panels(ax, len(panels))
    for panel, (title, names) in zip(axes, panels.items(), strict=True):
        for (name, label), color, dashes in zip(names.items(), _COLORS, _DASHES, strict=False):
            curve = 1 - history[name] if name == "held_out_average_precision" else history[name]
            panel.plot(history["iteration"], curve, color=color, linewidth=0.8, alpha=0.35)
            look = {"color": color, "linestyle": dashes, "marker": "o" if len(curve) < _FEW else None, "markersize": 3}
            panel.plot(history["iteration"], _smooth(curve), linewidth=1.6, label=label, **look)
        if title == "held-out rows" and scores:
            error = scores[0.0]["error"]
            panel.axhline(error, color=_GRAY, linewidth=1.2, linestyle="dotted", label="error, supervised")
        panel.set_title(title, loc="left", fontsize="small")
        if title != "objective":
            panel.set_ylim(bottom=-0.03 * panel.get_ylim()[1])
            above = {"loc": "lower right", "bbox_to_anchor": (1, 1), "borderaxespad": 0}
            panel.legend(ncols=2, frameon=False, fontsize="small", **above)
        panel.margins(x=0.01)
        panel.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("iteration")
    return axes


def score_histogram(clf: Any, X: Any, y: Any, *, bins: int = 40, ax: "Axes | None" = None) -> "Axes":
    """Histogram of the scores: unlabelled rows upwards, labelled rows by class downwards.

    If the boundary lies in a gap between the rows, few of them have scores near 0. With more than two classes the score
    is that of the row's class minus that of the best other class, negative if the row is misclassified; an unlabelled
    row has its predicted class. The outermost bars also count the scores beyond them. Large data are sampled.

    Parameters
    ----------
    clf : fitted classifier
    X : array, CSR matrix or data frame of shape (n_rows, n_features)
    y : array of shape (n_rows,)
        Labels, with unlabelled rows marked as for `fit`.
    bins : int, default 40
    ax : matplotlib axes or None, default None
    """
    columns = diagnostics.score_bins(Sample(clf, X, y), bins)
    left, right, unlabeled = (columns[name] for name in ("from", "to", "unlabelled"))
    counts = {name: column for name, column in columns.items() if name not in ("from", "to", "unlabelled")}
    binary = len(counts) == 2
    if len(counts) > len(_COLORS):
        counts = {"labelled": np.sum(list(counts.values()), axis=0)}
    labeled = np.sum(list(counts.values()), axis=0)

    ax, ink = _axes(ax)
    bar: dict[str, Any] = {"width": right - left, "align": "edge"}
    # Few rows are labelled and many are not, so each side has its own scale.
    down = -_LABELED_HEIGHT * unlabeled.max() / max(labeled.max(), 1) if unlabeled.any() else 1.0
    if unlabeled.any():
        ax.bar(left, unlabeled, color=_GRAY, label="unlabelled", **bar)
    base = np.zeros(len(left))
    for (name, count), color in zip(counts.items(), _COLORS, strict=False):
        ax.bar(left, down * count, bottom=base, color=color, label=_label_text(name), **bar)
        base += down * count
    entries = len(counts) + bool(unlabeled.any())
    ax.set_ylim(1.06 * base.min(), (1.2 if entries <= 4 else 1.32) * max(unlabeled.max(), base.max()))
    ax.axhline(0, color=ink, linewidth=0.8)
    ax.axvline(0, color=ink, linewidth=1.5)
    if binary:
        for level in (-1, 1):
            ax.axvline(level, color=ink, linewidth=0.9, linestyle="dashed")
    upper, lower = [0, *_ticks(unlabeled.max(), 4)], _ticks(labeled.max(), 2)
    ax.set_yticks([*upper, *(down * n for n in lower)], [f"{n:,}" for n in upper + lower])
    ax.set(xlabel="score f(x)" if binary else "score of the class minus that of the best other", ylabel="rows")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize="small", loc="upper center", ncols=min(entries, 4), framealpha=1, edgecolor="none")
    return ax


def calibration(clf: Any, X: Any, y: Any, *, bins: int = 10, ax: "Axes | None" = None) -> "Axes":
    """Reliability diagram: observed frequencies against predicted probabilities.

    The event is ``classes_[1]`` with two classes, and the predicted class with more. Bars are 95% intervals; points
    further than that from the diagonal show over- or underconfident probabilities. Numbers count the rows per bin. Give
    rows that were not trained on: on training rows any classifier looks better than it is.

    Parameters
    ----------
    clf : fitted classifier with `predict_proba`
    X : array, CSR matrix or data frame of shape (n_rows, n_features)
    y : array of shape (n_rows,)
        Labels; unlabelled rows are ignored.
    bins : int, default 10
    ax : matplotlib axes or None, default None
    """
    points, names = diagnostics.reliability(clf, X, y, bins), class_names(clf)
    ax, ink = _axes(ax)
    binary = len(names) == 2
    height = 0.18 * points["rows"] / points["rows"].max()
    width = points["to"] - points["from"]
    ax.bar(points["from"], height, width, align="edge", color=_GRAY, alpha=0.35, label="rows")
    for left, step, rows in zip(points["from"], width, points["rows"], strict=True):  # above all that is drawn
        ax.text(left + step / 2, 1.05, f"{rows:,}", ha="center", va="bottom", fontsize="x-small")
    ax.plot([0, 1], [0, 1], color=ink, linewidth=0.9, linestyle="dashed", label="ideal")
    spread = np.maximum([points["observed"] - points["low"], points["high"] - points["observed"]], 0)
    ax.errorbar(
        points["probability"], points["observed"], spread, color=_COLORS[0], marker="o", capsize=2, label="observed"
    )
    event = f"class {_label_text(names[1])}" if binary else "the predicted class"
    ax.set(xlim=(-0.02, 1.02), ylim=(0, 1.12), xlabel=f"probability of {event}", ylabel=f"fraction of {event}")
    if not binary:
        ax.set(xlim=(points["from"][0] - 0.02, 1.02), ylabel="fraction classified correctly")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(0, 0.93))
    return ax


def _axes(ax: Any) -> tuple["Axes", Any]:
    """The given or new axes, and the colour of their text."""
    ax = _panels(ax, 1)[0]
    return ax, ax.xaxis.label.get_color()


def _panels(ax: Any, count: int) -> Array:
    """The given axes, or new ones below each other in the given figure or a new one."""
    if ax is None:
        height = 3.6 if count == 1 else 1.7 * count + 0.4
        ax = optional("matplotlib.pyplot", "report").figure(figsize=(5.4, height), layout="constrained")
    if hasattr(ax, "subplots"):
        return ax.subplots(count, sharex=True, squeeze=False)[:, 0]
    axes = np.ravel(np.asarray(ax, dtype=object))
    if len(axes) != count:
        raise ValueError(f"this plot has {count} panels: ax must be a figure or {count} axes, not {len(axes)}")
    return axes


def _ticks(top: int, count: int) -> list[int]:
    """A few round positive numbers up to `top`."""
    locator = optional("matplotlib.ticker", "report").MaxNLocator(count, integer=True)
    return [int(tick) for tick in locator.tick_values(0, top) if 0 < tick <= top]


def _smooth(curve: Array) -> Array:
    """The running mean over a tenth of the iterations."""
    total, counts = (
        uniform_filter1d(values, 2 * (len(curve) // 20) + 1, mode="constant") for values in (curve, np.ones(len(curve)))
    )
    return total / counts


def _label_text(name: str) -> str:
    """The name shortened to one line, with dollar signs escaped, which matplotlib takes for mathematics."""
    name = name if len(name) <= _MAX_LENGTH else name[: _MAX_LENGTH - 1] + "…"
    return printable(name).replace("$", r"\$")

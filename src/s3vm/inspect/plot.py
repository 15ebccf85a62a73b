"""Pictures of a fitted classifier, by matplotlib (``pip install "s3vm[report]"``).

Every function draws into the axes it is given, or into those of a new figure, and returns them. Nothing is shown or
saved, and nothing is set for other pictures. The classifier may be the last step of a pipeline or the best of a search.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from s3vm._utils.optional import optional
from s3vm._utils.typing import Array
from s3vm.inspect import diagnostics
from s3vm.inspect.diagnostics import Columns, Sample, class_names, learner

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

__all__ = ["calibration", "decision_boundary", "learning_curve", "score_histogram"]

# Of Okabe and Ito's colours, which colour-blind people can tell apart, those that show on white and on black.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# Markers, and what makes them look as large as a circle: one more than colours, so that 42 classes look different.
_MARKERS = (("o", 1.0), ("s", 0.9), ("D", 0.7), ("^", 1.3), ("v", 1.3), ("P", 1.2), ("X", 1.2))
_GREY = "#8A8A8A"
_DASHES = ("solid", "dashed", "dashdot")
_DOWN = 0.6  # the height of labelled rows in a histogram, as a share of that of unlabelled ones
_RESOLUTION = 128
_FEW = 20  # iterations that are marked one by one
_LONGEST_NAME = 24

# What of the history is drawn, and what it is called.
_PANELS = {
    "objective": {"objective": "R(f)"},
    "mean loss": {"labelled_loss": "labelled rows", "unlabelled_loss": "unlabelled rows"},
    "held-out rows": {
        "held_out_error": "error",
        "held_out_balanced_error": "balanced error",
        "held_out_average_precision": "1 − average precision",
    },
}


def decision_boundary(clf: Any, X: Any, y: Any, *, resolution: int = _RESOLUTION, ax: "Axes | None" = None) -> "Axes":
    """Rows of two features, and the line where the classifier changes its mind.

    Labelled rows are coloured by class, unlabelled ones faint. With two classes the dashed lines are the margin, f = 1
    and f = -1. Of more than a few thousand rows a sample is drawn.

    Parameters
    ----------
    clf : fitted classifier of two features
    X : array, CSR matrix or data frame of shape (n_rows, 2)
    y : array of shape (n_rows,)
        Labels, with unlabelled rows marked as they were for `fit`.
    resolution : int, default 128
        Points of the grid in each direction.
    ax : matplotlib axes or None, default None
    """
    return draw_boundary(Sample(clf, X if hasattr(X, "shape") else np.asarray(X), y), resolution=resolution, ax=ax)


def draw_boundary(sample: Sample, *, resolution: int = _RESOLUTION, ax: Any = None) -> "Axes":
    """What `decision_boundary` draws."""
    clf, X, codes = sample.clf, sample.X, sample.codes
    if X.shape[1] != 2:
        raise ValueError(
            f"a decision boundary is drawn over two features, and X has {X.shape[1]}: fit a classifier to two of them, "
            "or to two components of a PCA"
        )
    points = sample.points
    low, high = points.min(axis=0), points.max(axis=0)
    edge = np.where(high > low, 0.06 * (high - low), 1.0)
    across, up = np.linspace(low - edge, high + edge, resolution).T
    grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    names = getattr(X, "columns", None)
    scores = clf.decision_function(grid if names is None else type(X)(dict(zip(names, grid.T, strict=True))))
    ahead = diagnostics.ahead(scores).reshape(resolution, resolution, -1)

    ax = _axes(ax)
    ink = ax.xaxis.label.get_color()
    for code in range(ahead.shape[2]):
        win, colour = ahead[:, :, code], _COLOURS[code % len(_COLOURS)]
        if win.max() > 0:
            ax.contourf(across, up, win, levels=[0, win.max() + 1], colors=[colour], alpha=0.16)
        if win.min() < 0 < win.max():
            ax.contour(across, up, win, levels=[0], colors=[ink], linewidths=1.5)
    lines = ax.plot([], [], color=ink, linewidth=1.5, label="boundary")
    margin = [level for level in (-1, 1) if scores.ndim == 1 and scores.min() < level < scores.max()]
    if margin:
        ax.contour(across, up, ahead[:, :, 1], levels=margin, colors=[ink], linewidths=0.9, linestyles="dashed")
        lines += ax.plot([], [], color=ink, linewidth=0.9, linestyle="dashed", label="margin, f = ±1")
    dots, kinds = points[codes < 0], []
    for code, name in enumerate(class_names(clf)):
        marker, factor = _MARKERS[code % len(_MARKERS)]
        look: dict[str, Any] = {"color": _COLOURS[code % len(_COLOURS)], "marker": marker, "linewidths": 0.6}
        own = points[codes == code]
        if len(own):
            look |= {"s": factor * float(np.clip(4_000 / len(own), 14, 40)), "edgecolors": [ax.get_facecolor()]}
            kinds.append(ax.scatter(*own.T, zorder=3, label=f"class {_plain(name)}", **look))
    if len(dots):
        # Thousands of dots are a picture in the picture: as drawings they would make a file large and slow.
        look = {"s": float(np.clip(8_000 / len(dots), 4, 14)), "rasterized": True}
        ax.scatter(*dots.T, color=_GREY, alpha=0.6, linewidths=0, **look)
        kinds.append(ax.scatter([], [], s=14, color=_GREY, linewidths=0, label="unlabelled"))
    ax.set(xlim=across[[0, -1]], ylim=up[[0, -1]])
    across_name, up_name = sample.feature_names
    ax.set(xlabel=_plain(across_name), ylabel=_plain(up_name))
    ax.legend(handles=[*kinds, *lines], ncols=1 + len(kinds) // 7, fontsize="small", framealpha=0.9)
    return ax


def learning_curve(clf: Any, *, ax: "FigureBase | Sequence[Axes] | None" = None) -> Array:
    """How training went, from `history_`: the objective, the mean losses, and the errors on held-out labelled rows.

    Thin lines are single iterations, thick ones their running mean. Held-out rows are labelled rows that models trained
    beside the wanted one have not seen; the dotted line is the supervised SVM's error on them. If the weight is chosen
    (``unlabeled_weight="auto"``), the curves are those of the first weight that is tried, which is 1.

    Parameters
    ----------
    clf : fitted classifier
    ax : matplotlib figure, as many axes as there are panels, or None, default None
        There are three panels, or fewer if the history has less.

    Returns
    -------
    axes : array of matplotlib axes
    """
    history = diagnostics.curves(clf)
    panels = {title: [name for name in names if name in history] for title, names in _PANELS.items()}
    panels = {title: names for title, names in panels.items() if names}
    scores = getattr(getattr(learner(clf), "safety_", None), "scores", None)
    axes = _panels(ax, len(panels))
    for panel, (title, names) in zip(axes, panels.items(), strict=True):
        for name, colour, dashes in zip(names, _COLOURS, _DASHES, strict=False):
            curve = 1 - history[name] if name == "held_out_average_precision" else history[name]
            panel.plot(history["iteration"], curve, color=colour, linewidth=0.8, alpha=0.35)
            look = {"color": colour, "linestyle": dashes, "marker": "o" if len(curve) < _FEW else None, "markersize": 3}
            panel.plot(history["iteration"], _smooth(curve), linewidth=1.6, label=_PANELS[title][name], **look)
        if title == "held-out rows" and scores:
            error = scores[0.0]["error"]
            panel.axhline(error, color=_GREY, linewidth=1.2, linestyle="dotted", label="error, supervised")
        panel.set_title(title, loc="left", fontsize="small")
        if title != "objective":
            panel.set_ylim(bottom=-0.03 * panel.get_ylim()[1])
            above = {"loc": "lower right", "bbox_to_anchor": (1, 1), "borderaxespad": 0}
            panel.legend(ncols=2, frameon=False, fontsize="small", **above)
        panel.margins(x=0.01)
        _light(panel)
    axes[-1].set_xlabel("iteration")
    return axes


def score_histogram(clf: Any, X: Any, y: Any, *, bins: int = 40, ax: "Axes | None" = None) -> "Axes":
    """Where the scores lie: those of unlabelled rows upwards, those of labelled rows by class downwards.

    A boundary in a gap between the rows has few of them around 0. With more than two classes the score is that of a
    row's class less that of the best other class, below 0 if it is predicted wrongly; the class of an unlabelled row is
    the predicted one. The outermost bars also hold what lies beyond. Of many rows a sample is counted.

    Parameters
    ----------
    clf : fitted classifier
    X : array, CSR matrix or data frame of shape (n_rows, n_features)
    y : array of shape (n_rows,)
        Labels, with unlabelled rows marked as they were for `fit`.
    bins : int, default 40
    ax : matplotlib axes or None, default None
    """
    return draw_scores(diagnostics.score_bins(Sample(clf, X, y), bins), ax=ax)


def draw_scores(columns: Columns, *, ax: Any = None) -> "Axes":
    """What `score_histogram` draws."""
    left, right, unlabelled = (columns[name] for name in ("from", "to", "unlabelled"))
    counts = {name: column for name, column in columns.items() if name not in ("from", "to", "unlabelled")}
    binary = len(counts) == 2
    if len(counts) > len(_COLOURS):
        counts = {"labelled": np.sum(list(counts.values()), axis=0)}
    labelled = np.sum(list(counts.values()), axis=0)

    ax = _axes(ax)
    ink = ax.xaxis.label.get_color()
    bar: dict[str, Any] = {"width": right - left, "align": "edge"}
    # Labelled rows are few and unlabelled ones many: each side has its own scale.
    down = -_DOWN * unlabelled.max() / max(labelled.max(), 1) if unlabelled.any() else 1.0
    if unlabelled.any():
        ax.bar(left, unlabelled, color=_GREY, label="unlabelled", **bar)
    base = np.zeros(len(left))
    for (name, count), colour in zip(counts.items(), _COLOURS, strict=False):
        ax.bar(left, down * count, bottom=base, color=colour, label=_plain(name), **bar)
        base += down * count
    entries = len(counts) + bool(unlabelled.any())
    ax.set_ylim(1.06 * base.min(), (1.2 if entries <= 4 else 1.32) * max(unlabelled.max(), base.max()))
    ax.axhline(0, color=ink, linewidth=0.8)
    ax.axvline(0, color=ink, linewidth=1.5)
    if binary:
        for level in (-1, 1):
            ax.axvline(level, color=ink, linewidth=0.9, linestyle="dashed")
    ticks = [
        (1.0, 0),
        *((1.0, n) for n in _ticks(unlabelled.max(), 4)),
        *((down, n) for n in _ticks(labelled.max(), 2)),
    ]
    ax.set_yticks([scale * n for scale, n in ticks], [f"{n:,}" for _, n in ticks])
    ax.set(xlabel="score f(x)" if binary else "score of the class, less the best other", ylabel="rows")
    _light(ax)
    ax.legend(fontsize="small", loc="upper center", ncols=min(entries, 4), framealpha=1, edgecolor="none")
    return ax


def calibration(clf: Any, X: Any, y: Any, *, bins: int = 10, ax: "Axes | None" = None) -> "Axes":
    """Whether rows of probability p are what they are said to be in a share p of cases (a reliability diagram).

    With two classes p is the probability of ``classes_[1]``, with more that of the predicted class. Points off the
    diagonal by more than their bars, 95% intervals, show probabilities that are too sure or too timid; the numbers are
    the rows in each bin. Give rows that were not trained on: on others any classifier looks better than it is.

    Parameters
    ----------
    clf : fitted classifier with `predict_proba`
    X : array, CSR matrix or data frame of shape (n_rows, n_features)
    y : array of shape (n_rows,)
        Labels; rows marked as unlabelled do not count.
    bins : int, default 10
    ax : matplotlib axes or None, default None
    """
    return draw_calibration(diagnostics.reliability(clf, X, y, bins), class_names(clf), ax=ax)


def draw_calibration(points: Columns, names: list[str], *, ax: Any = None) -> "Axes":
    """What `calibration` draws; `names` are those of the classes."""
    ax = _axes(ax)
    ink = ax.xaxis.label.get_color()
    binary = len(names) == 2
    height = 0.18 * points["rows"] / points["rows"].max()
    width = points["to"] - points["from"]
    ax.bar(points["from"], height, width, align="edge", color=_GREY, alpha=0.35, label="rows")
    for left, top, step, rows in zip(points["from"], height, width, points["rows"], strict=True):
        ax.text(left + step / 2, top + 0.01, f"{rows:,}", ha="center", va="bottom", fontsize="x-small")
    ax.plot([0, 1], [0, 1], color=ink, linewidth=0.9, linestyle="dashed", label="ideal")
    spread = np.maximum([points["observed"] - points["low"], points["high"] - points["observed"]], 0)
    ax.errorbar(
        points["probability"], points["observed"], spread, color=_COLOURS[0], marker="o", capsize=2, label="observed"
    )
    what = f"class {_plain(names[1])}" if binary else "the predicted class"
    ax.set(xlim=(-0.02, 1.02), ylim=(0, 1.03), xlabel=f"probability of {what}", ylabel=f"share of {what}")
    if not binary:
        ax.set(xlim=(points["from"][0] - 0.02, 1.02), ylabel="share predicted rightly")
    _light(ax)
    ax.legend(fontsize="small", loc="upper left")
    return ax


def _axes(ax: Any) -> "Axes":
    return _panels(ax, 1)[0]


def _panels(ax: Any, count: int) -> Array:
    """The axes that were given, or new ones, one below the other, in the figure that was given or in a new one."""
    if ax is None:
        height = 3.6 if count == 1 else 1.7 * count + 0.4
        ax = optional("matplotlib.pyplot", "report").figure(figsize=(5.4, height), layout="constrained")
    if hasattr(ax, "subplots"):
        return ax.subplots(count, sharex=True, squeeze=False)[:, 0]
    axes = np.ravel(np.asarray(ax, dtype=object))
    if len(axes) != count:
        raise ValueError(f"this picture has {count} panels: give as ax a figure or {count} axes, not {len(axes)}")
    return axes


def _ticks(top: int, count: int) -> list[int]:
    """A few round numbers above 0, up to `top`."""
    step = max(top // count, 1)
    size = 10 ** (len(str(step)) - 1)
    step = -(-step // size) * size
    return list(range(step, top + 1, step))


def _smooth(curve: Array) -> Array:
    """The running mean over a tenth of the iterations."""
    half = len(curve) // 20
    total = np.concatenate([[0.0], np.cumsum(curve)])
    at = np.arange(len(curve))
    low, high = np.maximum(at - half, 0), np.minimum(at + half + 1, len(curve))
    return (total[high] - total[low]) / (high - low)


def _light(ax: "Axes") -> None:
    ax.spines[["top", "right"]].set_visible(False)


def _plain(name: str) -> str:
    """A name that matplotlib writes as it is: short, on one line, and without the dollars that mean mathematics."""
    name = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)
    if len(name) > _LONGEST_NAME:
        name = name[: _LONGEST_NAME - 1] + "…"
    return name.replace("$", r"\$")

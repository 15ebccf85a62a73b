"""The pictures of an experiment."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.ablation import VARIANTS
from experiments.report.tally import Law, Tally, exponent, title
from s3vm._utils.optional import optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["ablation", "boxes", "curves", "theory", "times"]

_WIDTH, _PANEL = 7.1, 2.15  # inches: the page's width, and the height of a row of panels
_SMALL = 7.5  # points
# Okabe and Ito's colours, and a marker each, so that colour is not needed; what is printed is dashed.
_LOOKS: dict[str, tuple[str, str, str]] = {
    "tsg": ("#0072B2", "o", "-"),
    "frs": ("#009E73", "s", "-"),
    "bgs": ("#E69F00", "D", "-"),
    "cccp": ("#D55E00", "^", "-"),
    "light": ("#CC79A7", "v", "-"),
    "newton": ("#56B4E9", "P", "-"),
    "incremental": ("#000000", "X", "-"),
    "svm": ("#8A8A8A", "d", "-"),
    "tsg, as printed": ("#0072B2", "o", "--"),
    "frs, as printed": ("#009E73", "s", "--"),
    "tsg, safe": ("#0072B2", "*", "-"),
}
_MARKERS, _COLOURS = (
    "os^vDPX*d",
    ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8A8A", "#000000"),
)


def times(tally: Tally, sets: Sequence[str]) -> "Figure":
    """Seconds against rows, log-log, a panel a set; the number beside a line is its fitted slope."""

    def draw(ax: "Axes", name: str) -> None:
        ax.loglog()  # also if no run went well
        ends = []
        limits = {row["limit_seconds"] for row in tally.of("times", set=name)}
        for solver in tally.solvers:
            sizes, seconds = tally.times(name, solver)
            look = _look(solver)
            if sizes:
                ax.plot(sizes, seconds, **look)
                ends.append((seconds[-1], sizes[-1], exponent(sizes, seconds, upper=True), look["color"]))
            for row in tally.failures(name, solver):
                mark = "x" if row["status"] == "timeout" else "+"
                ax.plot(row["n"], row["limit_seconds"], mark, color=look["color"], markersize=6, mew=1.6)
                if sizes:
                    path = [sizes[-1], row["n"]], [seconds[-1], row["limit_seconds"]]
                    ax.plot(*path, ":", color=look["color"], linewidth=0.8)
        for limit in limits:
            ax.axhline(limit, color="#8A8A8A", linewidth=0.6, linestyle=(0, (6, 3)))
        _slopes(ax, ends)
        _ticks(ax)
        ax.set_title(title(name), fontsize=9)

    figure, axes = _grid(sets, draw)
    axes[0].set_ylabel("seconds to train", fontsize=8)
    axes[len(sets) - 1].set_xlabel("training rows", fontsize=8)
    _legend(figure, [one for one in tally.solvers if any(tally.times(name, one)[0] for name in sets)])
    return figure


def boxes(tally: Tally, sets: Sequence[str], protocol: str, quantity: str, label: str) -> "Figure":
    """A quantity over the trials, a panel a set and a box a solver; single points where trials are few."""
    solvers = [one for one in tally.solvers if any(tally.trials(name, one, protocol) for name in sets)]

    def draw(ax: "Axes", name: str) -> None:
        for at, solver in enumerate(solvers):
            values = [100 * value for value in tally.trials(name, solver, protocol, quantity).values()]
            look = _look(solver)
            if len(values) >= 5:
                line = {"color": look["color"], "linewidth": 1.2, "linestyle": look["linestyle"]}
                dot = {
                    "marker": look["marker"],
                    "markersize": 3,
                    "markeredgecolor": look["color"],
                    "markerfacecolor": "none",
                }
                ax.boxplot(
                    values,
                    positions=[at],
                    widths=0.6,
                    boxprops=line,
                    whiskerprops=line,
                    capprops=line,
                    medianprops=line | {"linewidth": 2.2},
                    flierprops=dot,
                )
            else:
                ax.plot([at] * len(values), values, **look | {"linestyle": "none"})
        _frame(ax, {solver: list(tally.trials(name, solver, protocol, quantity).values()) for solver in solvers})
        ax.set_xticks(range(len(solvers)), solvers, rotation=90, fontsize=6.5)
        ax.set_xlim(-0.7, len(solvers) - 0.3)
        ax.set_title(title(name), fontsize=9)

    figure, axes = _grid(sets, draw, share=False)
    axes[0].set_ylabel(label, fontsize=8)
    return figure


def curves(tally: Tally, sets: Sequence[str]) -> "Figure":
    """Test error against iterations: the mean, and the range over the trials."""
    solvers = list(dict.fromkeys(row["solver"] for row in tally.of("curves")))

    def draw(ax: "Axes", name: str) -> None:
        for solver in solvers:
            found: dict[int, list[float]] = {}
            for row in tally.of("curves", set=name, solver=solver, status="ok"):
                found.setdefault(row["max_iter"], []).append(100 * row["error"])
            if found:
                at = sorted(found)
                look = _look(solver)
                ax.plot(at, [np.mean(found[one]) for one in at], **look)
                low, high = [min(found[one]) for one in at], [max(found[one]) for one in at]
                ax.fill_between(at, low, high, color=look["color"], alpha=0.12, linewidth=0)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.axvspan(64, 128, color="#8A8A8A", alpha=0.15, linewidth=0)
        ax.set_title(title(name), fontsize=9)

    figure, axes = _grid(sets, draw)
    axes[0].set_ylabel("test error, %", fontsize=8)
    axes[len(sets) - 1].set_xlabel("iterations", fontsize=8)
    _legend(figure, solvers)
    return figure


def theory(laws: Mapping[str, Law]) -> "Figure":
    """What the theorems bound, the bounds, and the fitted slopes."""
    figure = _figure(2.9)
    left, right = figure.subplots(1, 2)
    shown = {
        "distance": (left, "#0072B2", "o", "mean over x, at t = T"),
        "worst_distance": (left, "#D55E00", "^", "largest over x and t"),
        "gradient": (right, "#0072B2", "o", "mean over t"),
    }
    for name, (ax, colour, marker, label) in shown.items():
        law = laws[name]
        ax.loglog(law.T, law.values, marker + "-", color=colour, markersize=4, label=f"{label}: slope {law.slope:.2f}")
    left.loglog(laws["distance"].T, laws["distance"].bound, "--", color="#000000", label="bound $D/\\sqrt{T}$")
    right.loglog(laws["gradient"].T, laws["gradient"].bound, "--", color="#000000", label="bound $E/T^{1/4}+F/T^{3/4}$")
    left.set_title("Theorem 1:  E |f(x) − h(x)|²", fontsize=9)
    right.set_title("Theorem 2:  E ‖∇R(h)‖²", fontsize=9)
    for ax in (left, right):
        _plain(ax)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        low, high = ax.get_ylim()
        ax.set_ylim(low, high * (high / low) ** 0.45)  # room for the legend
        ax.set_xlabel("iterations T", fontsize=8)
        ax.legend(frameon=False, fontsize=_SMALL, loc="upper right")
    return figure


def ablation(rows: Sequence[Mapping[str, Any]]) -> "Figure":
    """Error, and predicted share of positive rows beside the true one, of every variant on every set."""
    variants = [one for one in VARIANTS if any(row["solver"] == one for row in rows)]
    sets = list(dict.fromkeys(row["set"] for row in rows))
    figure = _figure(0.27 * len(variants) + 1.1)
    left, right = figure.subplots(1, 2, sharey=True)
    for k, name in enumerate(sets):
        look = {"color": _COLOURS[k % len(_COLOURS)], "marker": _MARKERS[k % len(_MARKERS)], "linestyle": "none"}
        for ax, of in (
            (left, lambda row: 100 * row["error"]),
            (right, lambda row: 100 * (row["predicted_positive"] - row["positive"])),
        ):
            means = [
                np.mean([of(row) for row in rows if row["set"] == name and row["solver"] == one] or [np.nan])
                for one in variants
            ]
            ax.plot(means, range(len(variants)), **look, markersize=4.5, label=title(name))
    left.set_yticks(range(len(variants)), variants, fontsize=_SMALL)
    left.invert_yaxis()
    left.set_xlabel("test error, %", fontsize=8)
    right.set_xlabel("positive share, predicted minus true, points", fontsize=8)
    right.axvline(0, color="#8A8A8A", linewidth=0.8)
    for ax in (left, right):
        _plain(ax)
        ax.grid(axis="y", color="#cccccc", linewidth=0.5)
        ax.tick_params(axis="y", labelsize=_SMALL)
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=min(7, len(names)), frameon=False, fontsize=_SMALL)
    return figure


def _frame(ax: "Axes", found: Mapping[str, Sequence[float]]) -> None:
    """Bounds that show the solvers as they are now; a printed one that lies above them is named by its median."""
    shown = [100 * value for solver, values in found.items() if "printed" not in solver for value in values]
    if not shown:
        return
    room = 0.06 * (max(shown) - min(shown)) or 0.1
    top = max(shown) + 3 * room
    lowest = min(100 * value for values in found.values() for value in values)
    ax.set_ylim(lowest - room, top)
    for at, (solver, values) in enumerate(found.items()):
        if "printed" in solver and values and 100 * np.median(values) > top - 2 * room:
            place: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": 6}
            ax.text(at, top, f"↑{100 * np.median(values):.0f}", color=_look(solver)["color"], **place)


def _slopes(ax: "Axes", ends: list[tuple[float, int, float, str]]) -> None:
    """The slopes to the right of the axes, at the height of the lines' ends, moved apart where they would touch."""
    ends = sorted(end for end in ends if not np.isnan(end[2]))
    low, high = (np.log(limit) for limit in ax.get_ylim())
    heights = [(np.log(end[0]) - low) / (high - low) for end in ends]
    gap = 0.085
    for k in range(1, len(heights)):
        heights[k] = max(heights[k], heights[k - 1] + gap)
    for k in range(len(heights) - 1, -1, -1):  # and down again, if the topmost are above the frame
        heights[k] = min(heights[k], 0.98 - gap * (len(heights) - 1 - k))
    for height, (_, _, slope, colour) in zip(heights, ends, strict=True):
        place: dict[str, Any] = {"transform": ax.transAxes, "va": "center", "ha": "left", "fontsize": 6.5}
        ax.text(1.01, height, f"{slope:.1f}", color=colour, **place)


def _ticks(ax: "Axes") -> None:
    """Rows as 1k, 10k, 100k; between them, too, where there is room."""
    ticker = optional("matplotlib.ticker", "report")
    low, high = ax.get_xlim()
    ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1,) if high > 30 * low else (1, 2, 5)))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}k")
    ax.xaxis.set_minor_formatter(ticker.NullFormatter())


def _grid(
    sets: Sequence[str], draw: Callable[["Axes", str], None], share: bool = True
) -> tuple["Figure", list["Axes"]]:
    n_columns = min(3, len(sets))
    n_rows = -(-len(sets) // n_columns)
    figure = _figure(_PANEL * n_rows + 0.75)
    axes = np.atleast_1d(figure.subplots(n_rows, n_columns, sharex=share, squeeze=False)).ravel().tolist()
    for ax, name in zip(axes, sets, strict=False):
        draw(ax, name)
        _plain(ax)
        ax.tick_params(axis="x", labelbottom=True)
    for ax in axes[len(sets) :]:
        ax.set_visible(False)
    return figure, axes


def _figure(height: float) -> "Figure":
    figure: Figure = optional("matplotlib.figure", "report").Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure


def _plain(ax: "Axes") -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=_SMALL)
    ax.grid(color="#cccccc", linewidth=0.5)
    ax.set_axisbelow(True)


def _look(solver: str) -> dict[str, Any]:
    colour, marker, line = _LOOKS.get(solver, ("#8A8A8A", ".", ":"))
    face = colour if line == "-" else "none"
    return {
        "color": colour,
        "marker": marker,
        "linestyle": line,
        "markerfacecolor": face,
        "markersize": 4,
        "linewidth": 1.3,
    }


def _legend(figure: "Figure", solvers: Sequence[str]) -> None:
    line = optional("matplotlib.lines", "report").Line2D
    handles = [line([], [], **_look(solver), label=solver) for solver in solvers]
    figure.legend(handles=handles, loc="outside upper center", ncols=5, frameon=False, fontsize=_SMALL)

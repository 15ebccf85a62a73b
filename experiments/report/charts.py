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

    from experiments.report.claims import Evaluation

__all__ = ["ablation", "boxes", "curves", "effects", "styles", "theory", "theory_settings", "times"]

_WIDTH, _PANEL = 7.1, 2.15  # inches: the page's width, and the height of a row of panels
_SMALL = 7.5  # points
# Okabe and Ito's colours, and a marker for each solver, so that colour is not needed.
_COLORS = ("#0072B2", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#8A8A8A")
_MARKERS = "osD^vPXd*p"


def styles(tally: Tally) -> dict[str, dict[str, Any]]:
    """How the lines of each solver look: one colour per algorithm, in their order; dashed and hollow if printed."""
    kinds = list(dict.fromkeys([*tally.rivals, *map(tally.kind, tally.solvers)]))
    looks: dict[str, dict[str, Any]] = {}
    used: set[tuple[str, bool]] = set()
    spare = len(kinds)
    for solver in tally.solvers:
        kind, is_printed = tally.kind(solver), tally.is_printed(solver)
        number = kinds.index(kind)
        color, marker = _COLORS[number % len(_COLORS)], _MARKERS[number % len(_MARKERS)]
        if (kind, is_printed) in used:  # other settings of the same algorithm
            marker, spare = _MARKERS[spare % len(_MARKERS)], spare + 1
        used.add((kind, is_printed))
        looks[solver] = {
            "color": color,
            "marker": marker,
            "linestyle": "--" if is_printed else "-",
            "markerfacecolor": "none" if is_printed else color,
            "markersize": 4,
            "linewidth": 1.3,
        }
    return looks


def times(tally: Tally, sets: Sequence[str], quantity: str = "seconds") -> "Figure":
    """Seconds, or megabytes, against rows, log-log, a panel per set; the number next to a line is its fitted slope."""
    looks = styles(tally)

    def draw(ax: "Axes", name: str) -> None:
        ax.loglog()  # even if no run succeeded
        ends = []
        limits = {row[f"limit_{quantity}"] for row in tally.of("times", set=name)}
        for solver, look in looks.items():
            sizes, values = tally.times(name, solver, quantity)
            values, color = np.maximum(values, 1e-3).tolist(), look["color"]
            if sizes:
                ax.plot(sizes, values, **look)
                ends.append((values[-1], sizes[-1], exponent(sizes, values, upper=True), color))
            for row in tally.failures(name, solver):
                mark = "x" if row["status"] == "timeout" else "+"
                ax.plot(row["n"], row[f"limit_{quantity}"], mark, color=color, markersize=6, mew=1.6)
                if sizes:
                    line = [sizes[-1], row["n"]], [values[-1], row[f"limit_{quantity}"]]
                    ax.plot(*line, ":", color=color, linewidth=0.8)
        for limit in limits:
            ax.axhline(limit, color="#8A8A8A", linewidth=0.6, linestyle=(0, (6, 3)))
        _slopes(ax, ends)
        _ticks(ax)
        ax.set_title(title(name), fontsize=9)

    figure, axes = _grid(sets, draw)
    axes[0].set_ylabel(f"{quantity} to train", fontsize=8)
    axes[len(sets) - 1].set_xlabel("training rows", fontsize=8)
    _legend(figure, {solver: looks[solver] for solver in looks if any(tally.times(name, solver)[0] for name in sets)})
    return figure


def boxes(tally: Tally, sets: Sequence[str], protocol: str, quantity: str, label: str) -> "Figure":
    """A quantity over the trials, one panel per set and one box per solver; single points where trials are few."""
    looks = styles(tally)
    solvers = [solver for solver in looks if any(tally.trials(name, solver, protocol) for name in sets)]

    def draw(ax: "Axes", name: str) -> None:
        values = {
            solver: [100 * value for value in tally.trials(name, solver, protocol, quantity).values()]
            for solver in solvers
        }
        for position, solver in enumerate(solvers):
            if len(values[solver]) >= 5:
                _box(ax, position, values[solver], looks[solver])
            else:
                ax.plot([position] * len(values[solver]), values[solver], **looks[solver] | {"linestyle": "none"})
        printed = {solver: looks[solver]["color"] for solver in solvers if tally.is_printed(solver)}
        _frame(ax, values, printed)
        ax.set_xticks(range(len(solvers)), solvers, rotation=90, fontsize=6.5)
        ax.set_xlim(-0.7, len(solvers) - 0.3)
        ax.set_title(title(name), fontsize=9)

    figure, axes = _grid(sets, draw, share=False)
    axes[0].set_ylabel(label, fontsize=8)
    return figure


def curves(tally: Tally, sets: Sequence[str]) -> "Figure":
    """Test error against iterations: the mean, and the range over the trials."""
    looks = styles(tally)
    solvers = [solver for solver in looks if tally.of("curves", solver=solver)]

    def draw(ax: "Axes", name: str) -> None:
        for solver in solvers:
            errors: dict[int, list[float]] = {}
            for row in tally.of("curves", set=name, solver=solver, status="ok"):
                errors.setdefault(row["max_iter"], []).append(100 * row["error"])
            if errors:
                iterations = sorted(errors)
                ax.plot(iterations, [np.mean(errors[t]) for t in iterations], **looks[solver])
                low, high = ([extreme(errors[t]) for t in iterations] for extreme in (min, max))
                ax.fill_between(iterations, low, high, color=looks[solver]["color"], alpha=0.12, linewidth=0)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.axvspan(64, 128, color="#8A8A8A", alpha=0.15, linewidth=0)
        ax.set_title(title(name), fontsize=9)

    figure, axes = _grid(sets, draw)
    axes[0].set_ylabel("test error, %", fontsize=8)
    axes[len(sets) - 1].set_xlabel("iterations", fontsize=8)
    _legend(figure, {solver: looks[solver] for solver in solvers})
    return figure


def theory(laws: Mapping[str, Law]) -> "Figure":
    """Both sides of the theorems, with fitted slopes."""
    figure = _figure(2.9)
    left, right = figure.subplots(1, 2)
    lines = {
        "distance": (left, "#0072B2", "o", "mean over x, at t = T"),
        "worst_distance": (left, "#D55E00", "^", "largest over x and t"),
        "gradient": (right, "#0072B2", "o", "mean over t"),
    }
    for name, (ax, color, marker, label) in lines.items():
        law = laws[name]
        ax.loglog(law.T, law.values, marker + "-", color=color, markersize=4, label=f"{label}: slope {law.slope:.2f}")
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
    """Error, and the predicted fraction of positive rows against the true one, of every variant on every set."""
    variants = [name for name in VARIANTS if any(row["solver"] == name for row in rows)]
    sets = list(dict.fromkeys(row["set"] for row in rows))
    figure = _figure(0.27 * len(variants) + 1.1)
    left, right = figure.subplots(1, 2, sharey=True)
    for number, name in enumerate(sets):
        look = {"color": _COLORS[number % len(_COLORS)], "marker": _MARKERS[number % len(_MARKERS)]}
        for ax, measure in (
            (left, lambda row: 100 * row["error"]),
            (right, lambda row: 100 * (row["predicted_positive"] - row["positive"])),
        ):
            means = [
                np.mean([measure(row) for row in rows if row["set"] == name and row["solver"] == variant] or [np.nan])
                for variant in variants
            ]
            ax.plot(means, range(len(variants)), **look, linestyle="none", markersize=4.5, label=title(name))
    left.set_yticks(range(len(variants)), variants, fontsize=_SMALL)
    left.invert_yaxis()
    left.set_xlabel("test error, %", fontsize=8)
    right.set_xlabel("positive rows, predicted minus true, points", fontsize=8)
    right.axvline(0, color="#8A8A8A", linewidth=0.8)
    for ax in (left, right):
        _plain(ax)
        ax.grid(axis="y", color="#cccccc", linewidth=0.5)
        ax.tick_params(axis="y", labelsize=_SMALL)
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=min(7, len(names)), frameon=False, fontsize=_SMALL)
    return figure


def _box(ax: "Axes", position: int, values: Sequence[float], look: Mapping[str, Any]) -> None:
    line = {"color": look["color"], "linewidth": 1.2, "linestyle": look["linestyle"]}
    dot = {
        "marker": look["marker"],
        "markersize": 3,
        "markeredgecolor": look["color"],
        "markerfacecolor": "none",
    }
    ax.boxplot(
        values,
        positions=[position],
        widths=0.6,
        boxprops=line,
        whiskerprops=line,
        capprops=line,
        medianprops=line | {"linewidth": 2.2},
        flierprops=dot,
    )


def _frame(ax: "Axes", values: Mapping[str, Sequence[float]], printed: Mapping[str, str]) -> None:
    """Limits that show the current solvers; of a printed one above them, the median is written, in its colour."""
    current = [value for solver in values if solver not in printed for value in values[solver]]
    if not current:
        return
    room = 0.06 * (max(current) - min(current)) or 0.1
    top = max(current) + 3 * room
    ax.set_ylim(min(min(trials) for trials in values.values() if trials) - room, top)
    for position, (solver, trials) in enumerate(values.items()):
        if solver in printed and trials and np.median(trials) > top - 2 * room:
            place: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": 6}
            ax.text(position, top, f"↑{np.median(trials):.0f}", color=printed[solver], **place)


def _slopes(ax: "Axes", ends: list[tuple[float, int, float, str]]) -> None:
    """Writes the slopes to the right of the axes, at the ends of the lines, moved apart where they would touch."""
    ends = sorted(end for end in ends if not np.isnan(end[2]))
    low, high = (np.log(limit) for limit in ax.get_ylim())
    heights = [(np.log(end[0]) - low) / (high - low) for end in ends]
    gap = 0.085
    for k in range(1, len(heights)):
        heights[k] = max(heights[k], heights[k - 1] + gap)
    for k in range(len(heights) - 1, -1, -1):  # and down again, if the topmost are above the frame
        heights[k] = min(heights[k], 0.98 - gap * (len(heights) - 1 - k))
    for height, (_, _, slope, color) in zip(heights, ends, strict=True):
        place: dict[str, Any] = {"transform": ax.transAxes, "va": "center", "ha": "left", "fontsize": 6.5}
        ax.text(1.01, height, f"{slope:.1f}", color=color, **place)


def _ticks(ax: "Axes") -> None:
    """Rows as 1k, 10k, 100k, and between them where there is room."""
    ticker = optional("matplotlib.ticker", "experiments")
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
    figure: Figure = optional("matplotlib.figure", "experiments").Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure


def _plain(ax: "Axes") -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=_SMALL)
    ax.grid(color="#cccccc", linewidth=0.5)
    ax.set_axisbelow(True)


def _legend(figure: "Figure", looks: Mapping[str, Mapping[str, Any]]) -> None:
    line = optional("matplotlib.lines", "experiments").Line2D
    handles = [line([], [], **look, label=solver) for solver, look in looks.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=5, frameon=False, fontsize=_SMALL)


def theory_settings(evaluation: "Evaluation") -> "Figure":
    """What the theorems bound against T, a line per setting, with the bounds of the first."""
    settings = evaluation.settings_of_theory()
    figure = _figure(4.2)
    left, right = figure.subplots(1, 2)
    for number, name in enumerate(settings):
        laws = evaluation.real.laws(name)
        look: dict[str, Any] = {"color": _COLORS[number % len(_COLORS)], "marker": _MARKERS[number % len(_MARKERS)]}
        look |= {"markersize": 4, "linewidth": 1.3, "linestyle": "--" if number == len(settings) - 1 else "-"}
        left.loglog(laws["distance"].T, laws["distance"].values, **look, label=name)
        right.loglog(laws["gradient"].T, laws["gradient"].values, **look)
    first = evaluation.real.laws(settings[0])
    for ax, law in ((left, first["distance"]), (right, first["gradient"])):
        ax.loglog(law.T, law.bound, ":", color="#000000", label="bound of the first")
        _plain(ax)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.set_xlabel("iterations T", fontsize=8)
    left.set_title("Theorem 1:  E |f(x) − h(x)|²", fontsize=9)
    right.set_title("Theorem 2:  E ‖∇R(h)‖²", fontsize=9)
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=4, frameon=False, fontsize=_SMALL)
    return figure


def effects(evaluation: "Evaluation") -> "Figure":
    """Error minus that of the SVM, of every variant: the mean over sets with two standard errors, and each set."""
    variants = [name for name in VARIANTS if name != "svm" and evaluation.effects(name, "svm")]
    figure = _figure(0.24 * len(variants) + 1.1)
    ax = figure.subplots()
    sets = list(evaluation.effects(variants[0], "svm"))
    for number, name in enumerate(sets):
        look: dict[str, Any] = {"color": _COLORS[number % len(_COLORS)], "marker": _MARKERS[number % len(_MARKERS)]}
        values = [100 * evaluation.effects(variant, "svm")[name].mean for variant in variants]
        places = [place + 0.25 for place in range(len(variants))]
        ax.plot(values, places, **look, linestyle="none", markersize=3, alpha=0.6, label=title(name))
    for place, variant in enumerate(variants):
        means = [100 * effect.mean for effect in evaluation.effects(variant, "svm").values()]
        error = 2 * np.std(means, ddof=1) / len(means) ** 0.5 if len(means) > 1 else 0.0
        ax.errorbar(np.mean(means), place - 0.1, xerr=error, fmt="o", color="#000000", markersize=4.5, capsize=2)
    ax.axvline(0, color="#D55E00", linewidth=1.2, label="SVM")
    ax.set_xscale("symlog", linthresh=2)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:+g}" if value else "0")
    ax.set_yticks(range(len(variants)), variants, fontsize=_SMALL)
    ax.invert_yaxis()
    ax.set_xlabel("test error minus the SVM's, points (logarithmic beyond 2)", fontsize=8)
    _plain(ax)
    ax.tick_params(axis="y", labelsize=_SMALL)
    figure.legend(loc="outside upper center", ncols=6, frameon=False, fontsize=_SMALL)
    return figure

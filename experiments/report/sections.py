"""The sections of an experiment's report, each a table, a figure or both."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.ablation import VARIANTS
from experiments.datasets import KNOWN
from experiments.report import TABLE_1, charts
from experiments.report.tally import RACES, Tally, exponent, title
from s3vm.inspect.page import Section

__all__ = ["Sections", "points"]

_QUANTITIES = ("error", "balanced_error", "auc")
# Rows and columns in Table 3 of the paper, with its own name where that differs.
_TABLE_3 = {
    "codrna": "59,535 × 8",
    "w8a": "49,749 × 300 (called W6a)",
    "ijcnn1": "49,990 × 22",
    "susy": "5,000,000 × 18",
    "skin": "245,057 × 3",
    "higgs": "1,100,000 × 28 (LIBSVM and UCI have 11,000,000)",
    "dota2": "102,944 × 16 (UCI has 116 columns)",
    "hepmass": "10,500,000 × 28",
}
_PROTOCOLS = {
    "honest": "C and width by cross-validation of a supervised SVM on the labelled rows only, once per set and trial, "
    "and the same for all solvers; no test label is used for anything but testing.",
    "oracle": "The paper's: C and width by the true labels of test rows, from a 7 × 7 grid of powers of ten, chosen "
    "with tsg, once per set and trial, for all solvers; those as printed had a choice of their own, and of the step.",
}


class Sections:
    """The sections in their order; parts that were not run are left out."""

    def __init__(self, tally: Tally, notes: str) -> None:
        self.tally, self.notes = tally, notes

    def __iter__(self) -> Iterator[Section]:
        if self.notes:
            yield Section("What was run, and what was not", self.notes)
        if self.tally.of("times"):
            yield from self._time_sections()
        for protocol in self.tally.protocols():
            yield from self._error_sections(protocol)
        if self.tally.skewed() and self.tally.protocols():
            yield self._skewed_section(self.tally.protocols()[0])
        if self.tally.of("curves", status="ok"):
            yield self._curve_section()
        if self.tally.laws():
            yield self._theory_section()
        if self.tally.of("ablation", status="ok"):
            yield self._ablation_section()
        yield self._data_section()
        yield from self._failure_sections()

    def _time_sections(self) -> Iterator[Section]:
        rows, succeeded = self.tally.of("times"), self.tally.of("times", status="ok")
        limit = max((row["limit_seconds"], row["limit_megabytes"]) for row in rows)
        synthetic = sorted({title(row["set"]) for row in rows if row["synthetic"]})
        text = (
            "Processor seconds of the fit, one thread, the median where there are several trials. The numbers on the "
            "right are slopes in log-log over the four largest sizes. A cross is a run that was stopped after "
            f"{limit[0]:g} seconds (×) or asked for more than {limit[1] / 1000:g} GB (+); larger ones were not tried."
        )
        if synthetic:
            text += f" {', '.join(synthetic)}: synthetic rows of the same shape, for speed alone."
        columns = ("set", "solver", "trial", "n", "dims", "seconds", "wall", "megabytes", "error")
        figure = charts.times(self.tally, list(dict.fromkeys(row["set"] for row in succeeded)))
        yield Section("Running time and training size", text, figure=figure, data=_columns(succeeded, columns))
        for which, when in RACES.items():
            races = {
                verdict.name: race for verdict in self.tally.verdicts("honest") if (race := getattr(verdict, which))
            }
            lines = [self._race(name, race.size) | {"fastest": race.fastest} for name, race in races.items()]
            if lines:
                note = "Where there is no number: why a solver stopped, here or with fewer rows; a dash: not run."
                yield Section(f"Seconds {when}", note, table=_columns(lines, lines[0]))
        yield self._exponent_section()

    def _race(self, name: str, size: int) -> dict[str, Any]:
        line: dict[str, Any] = {"set": title(name), "rows": size}
        for solver in self.tally.solvers:
            seconds = dict(zip(*self.tally.times(name, solver), strict=True))
            failures = [row["status"] for row in self.tally.failures(name, solver)]
            if self.tally.of("times", solver=solver):
                line[solver] = f"{seconds[size]:.2f}" if size in seconds else failures[0] if failures else "–"
        return line

    def _exponent_section(self) -> Section:
        lines = []
        for solver in self.tally.solvers:
            slopes: dict[str, list[float]] = {"seconds": [], "megabytes": []}
            for name in self.tally.sets:
                for quantity in slopes:
                    sizes, values = self.tally.times(name, solver, quantity)
                    if len(sizes) >= 4:
                        slopes[quantity].append(exponent(sizes, np.maximum(values, 1e-9).tolist(), upper=True))
            if slopes["seconds"]:
                time, memory = TABLE_1.get(self.tally.kind(solver), ("not listed", "not listed"))
                measured = [f"{np.median(some):.2f} ({min(some):.1f} to {max(some):.1f})" for some in slopes.values()]
                lines.append((solver, time, measured[0], memory, measured[1]))
        columns = ("solver", "time in Table 1", "exponent of n, time", "memory in Table 1", "exponent of n, memory")
        text = (
            "Slopes over the four largest sizes: the median over the sets, and the range. T is the number of "
            "iterations, m of random features, n of rows."
        )
        return Section("Table 1, measured", text, table=_table(columns, lines))

    def _error_sections(self, protocol: str) -> Iterator[Section]:
        rows = self.tally.of("errors", protocol=protocol, status="ok")
        if not rows:  # no run succeeded
            return
        with_rows = {row["set"] for row in rows}
        sets = [name for name in self.tally.sets if name in with_rows]
        yield self._error_figure(protocol, rows, sets)
        errors = self._means(sets, protocol, "error")
        note = "In brackets the trials, where they are fewer than 10."
        yield Section(f"Mean test error in % ± standard deviation, {protocol} protocol", note, table=errors)
        seconds = self._means(sets, protocol, "seconds", 1.0)
        yield Section(f"Seconds of these fits ± standard deviation, {protocol} protocol", table=seconds)
        verdicts = [verdict for verdict in self.tally.verdicts(protocol) if verdict.against_best is not None]
        table: dict[str, list[Any]] = {
            "set": [title(verdict.name) for verdict in verdicts],
            "tsg minus frs, points": [points(verdict.against_frs) for verdict in verdicts],
            "best solver": [verdict.best for verdict in verdicts],
            "tsg minus best, points": [points(verdict.against_best) for verdict in verdicts],
            "within 0.2 of frs and 1 of the best": [verdict.is_near for verdict in verdicts],
        }
        text = "Differences of means over the trials that both solvers have."
        yield Section(f"tsg against the others, {protocol} protocol", text, table=table)

    def _error_figure(self, protocol: str, rows: list[dict[str, Any]], sets: list[str]) -> Section:
        text = (
            f"{_PROTOCOLS[protocol]} In each trial 200 labels are drawn, one fifth of the other rows is trained on, "
            f"and the others are tested on. Here {_range([row['n'] for row in rows])} rows were trained on, and up to "
            f"{max(row['n_test'] for row in rows):,} tested on. Boxes where there are five trials or "
            "more; an arrow where a printed solver's median is above the frame."
        )
        columns = ("set", "solver", "trial", "n", "n_test", "C", "gamma", "step", "seconds", "megabytes", *_QUANTITIES)
        figure = charts.boxes(self.tally, sets, protocol, "error", "test error, %")
        heading = f"Test error over trials, {protocol} protocol"
        return Section(heading, text, figure=figure, data=_columns(rows, columns))

    def _means(self, sets: list[str], protocol: str, quantity: str, scale: float = 100.0) -> dict[str, list[Any]]:
        """A table of a quantity: one line per solver, one column per set."""
        solvers = self._solvers(sets, protocol)
        table: dict[str, list[Any]] = {"solver": solvers}
        for name in sets:
            table[title(name)] = [
                _mean(self.tally.trials(name, solver, protocol, quantity), scale) for solver in solvers
            ]
        return table

    def _solvers(self, sets: list[str], protocol: str) -> list[str]:
        return [
            solver for solver in self.tally.solvers if any(self.tally.trials(name, solver, protocol) for name in sets)
        ]

    def _skewed_section(self, protocol: str) -> Section:
        sets = self.tally.skewed()
        table: dict[str, list[Any]] = {"solver": self._solvers(sets, protocol)}
        for name in sets:
            for heading, quantity in (
                (f"{title(name)}: error", "error"),
                (f"balanced error {title(name)}", "balanced_error"),
                (f"AUC {title(name)}", "auc"),
            ):
                trials = (self.tally.trials(name, solver, protocol, quantity) for solver in table["solver"])
                table[heading] = list(map(_mean, trials))
        fractions = ", ".join(f"{title(name)} {_positive(self.tally, name):.0%} positive" for name in sets)
        text = (
            f"{fractions}: a classifier that never says positive has a small error there. All in %, {protocol} "
            "protocol."
        )
        figure = charts.boxes(self.tally, sets, protocol, "balanced_error", "balanced error, %")
        return Section("Skewed sets: balanced error and AUC", text, table=table, figure=figure)

    def _curve_section(self) -> Section:
        rows = self.tally.of("curves", status="ok")
        sets = list(dict.fromkeys(row["set"] for row in rows))
        text = (
            "Each point is a run with that many iterations, its steps and annealing adapted to them; bands are the "
            "range over the trials. The paper has good results after 64 to 128 iterations, the grey band."
        )
        data = _columns(rows, ("set", "solver", "trial", "max_iter", "error", "seconds"))
        return Section("Test error and iterations", text, figure=charts.curves(self.tally, sets), data=data)

    def _theory_section(self) -> Section:
        text = (
            "Algorithm 1 as printed (f) next to its twin on the exact kernel (h), on two moons with 20 labelled rows: "
            "one labelled row, one unlabelled row and one random feature per iteration, step θ/T^(3/4) with θ = 1, the "
            "rounded hinge and DA, C = C* = 3. Unlabelled rows come from a pool of 280, so that R and the norm of its "
            "gradient are exact. Means over seeds. R* is the smallest R of any run, which can only lower the bound."
        )
        laws = self.tally.laws()
        table: dict[str, list[Any]] = {
            "T": laws["distance"].T,
            "E|f − h|²": laws["distance"].values,
            "largest over x and t": laws["worst_distance"].values,
            "bound D/√T": laws["distance"].bound,
            "E‖∇R(h)‖²": laws["gradient"].values,
            "bound of it": laws["gradient"].bound,
        }
        rows = {
            name: [float(f"{value:.3g}") if name != "T" else value for value in column]
            for name, column in table.items()
        }
        return Section("The theorems as an experiment", text, table=rows, figure=charts.theory(laws), data=table)

    def _ablation_section(self) -> Section:
        rows = self.tally.of("ablation", status="ok")
        text = (
            "Upper part: Algorithm 1, each line one change away from another, with the same decaying step. As printed, "
            "the derivative of an unlabelled row's loss pushes every row to the positive side; C* = C n_l/n_u hides "
            "that, since it all but switches the unlabelled rows off. Lower part: the default solver without one of "
            "its parts. Right: a classifier that calls everything positive, or nothing, is far from 0."
        )
        lines = []
        for name in VARIANTS:
            runs = [row for row in rows if row["solver"] == name]
            if runs:
                distances = [100 * abs(row["predicted_positive"] - row["positive"]) for row in runs]
                error = 100 * np.mean([row["error"] for row in runs])
                lines.append((name, f"{error:.2f}", f"{np.mean(distances):.1f}", f"{max(distances):.1f}"))
        columns = ("variant", "mean error, %", "mean distance from the true positive fraction, points", "largest")
        data = _columns(rows, ("set", "solver", "trial", "error", "balanced_error", "predicted_positive", "positive"))
        return Section(
            "What our changes to the algorithm are worth",
            text,
            table=_table(columns, lines),
            figure=charts.ablation(rows),
            data=data,
        )

    def _data_section(self) -> Section:
        lines = []
        for name in self.tally.sets:
            rows = [row for row in self.tally.rows if row["set"] == name and row["n"]]
            if not rows:
                continue
            source = "synthetic" if all(row["synthetic"] for row in rows) else next(row["source"] for row in rows)
            published = f"{KNOWN[name].n_rows:,} × {KNOWN[name].n_dims}" if name in KNOWN else "–"
            positive, n_most = f"{_positive(self.tally, name):.1%}", max(row["n"] for row in rows)
            line = (title(name), _TABLE_3.get(name, "–"), published, source, positive, rows[0]["dims"], n_most)
            lines.append(line)
        columns = (
            "set",
            "Table 3",
            "published",
            "read from",
            "positive",
            "columns after coding",
            "most rows trained on",
        )
        text = (
            "Measurements are standardised and clipped to ten standard deviations; w8a and Dota2 stay as they are, but "
            "for Dota2's three id columns, which become 0/1 columns."
        )
        return Section("Table 3, as used", text, table=_table(columns, lines))

    def _failure_sections(self) -> Iterator[Section]:
        columns = ("part", "set", "solver", "n", "status", "message")
        failed = [row for row in self.tally.rows if row["status"] not in ("ok", "skipped")]
        lines = dict.fromkeys(tuple(row[name] for name in columns) for row in failed)
        if lines:
            table = _table(columns, list(lines))
            table["set"] = list(map(title, table["set"]))
            yield Section(
                "Runs that did not finish",
                "Runs of the same solver and set that ask for as much or more were not tried after these.",
                table=table,
            )


def _columns(rows: Sequence[Mapping[str, Any]], names: Iterable[str]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in names}


def _table(names: Sequence[str], lines: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    return {name: [line[at] for line in lines] for at, name in enumerate(names)}


def points(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:+.2f}"


def _range(sizes: list[int]) -> str:
    return f"{min(sizes):,}" + (f" to {max(sizes):,}" if max(sizes) > min(sizes) else "")


def _mean(trials: dict[int, float], scale: float = 100.0) -> str | None:
    if not trials:
        return None
    values = scale * np.array(list(trials.values()))
    n_trials = f" ({len(values)})" if len(values) < 10 else ""
    spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{values.mean():.2f}{spread}{n_trials}"


def _positive(tally: Tally, name: str) -> float:
    """The fraction of positive rows in a set."""
    fractions = (row["positive"] for row in tally.rows if row["set"] == name and row["positive"] is not None)
    return float(next(fractions, float("nan")))

"""What the rows of the evaluation say about the paper's claims: numbers, and verdicts by fixed rules."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.config import Tuning
from experiments.report.tally import Tally, exponent

__all__ = ["COLUMNS", "EXACT", "MOST_TIMES_SLOWER", "RIVALS", "Difference", "Evaluation", "Race", "Slope"]

Row = dict[str, Any]

COLUMNS = ("tsg, as printed", "tsg, decaying step", "tsg", "default")
EXACT = ("cccp", "light", "newton", "incremental")
RIVALS = ("frs", "frs, as printed", "bgs", "bgs, as printed", *EXACT)
_POINT, _FEWEST_PAIRS, _RESAMPLES = 0.01, 2, 2000
MOST_TIMES_SLOWER = 1.2


class Race(NamedTuple):
    """A column against its rivals at one size of one set: its seconds divided by those of the fastest rival, and how
    many rivals have been run, those that exceeded a limit included."""

    name: str
    rival: str
    ratio: float
    n_run: int

    @property
    def is_complete(self) -> bool:
        return self.n_run == len(RIVALS)


class Difference(NamedTuple):
    """Errors of two solvers in the same trials: the mean difference, its standard error, and the number of trials."""

    mean: float
    error: float
    n_trials: int

    @property
    def is_clear(self) -> bool:
        return self.n_trials >= 3 and abs(self.mean) > 2 * self.error


class Slope(NamedTuple):
    """A slope in log-log with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


class Evaluation:
    """Questions that the page asks.

    Parameters
    ----------
    rows : sequence of dict
    config : mapping
        The experiment, as TOML describes it.
    """

    def __init__(self, rows: Sequence[Row], config: Mapping[str, Any]) -> None:
        times = config["times"]
        self.error_rows = int(times["error_rows"])
        self.sizes = [size for size in times["sizes"] if size > 0]
        trials = [
            row | {"part": "errors"}
            for row in rows
            if row["part"] == "times" and row["n"] == self.error_rows and not row["synthetic"]
        ]
        self.tally = Tally([*rows, *trials], config["solvers"])
        self.real = Tally([row for row in [*rows, *trials] if not row["synthetic"]], config["solvers"])
        finished = {row["set"] for row in self.real.rows if row["part"] != "tuning" and row["status"] == "ok"}
        self.sets = [name for name in config["sets"] if name in finished]
        self.protocol = str(config["tuning"]["protocol"])
        self.highest_log_c = max(config["tuning"].get("log_c", Tuning.log_c))
        self._theory = list(config.get("theory", {}).get("settings", {}))
        self._n_labeled = int(config.get("n_labeled", 200))
        self._seconds = {
            (name, solver): dict(zip(*self.real.times(name, solver), strict=True))
            for name in self.sets
            for solver in self.real.solvers
        }

    def has(self, solver: str) -> bool:
        return bool(self.real.of("times", solver=solver, status="ok"))

    def seconds(self, name: str, solver: str, size: int) -> float | None:
        return self._seconds.get((name, solver), {}).get(size)

    def largest(self, name: str) -> int:
        """The largest number of rows of a set that any solver finished."""
        return max((size for solver in self.real.solvers for size in self._seconds[name, solver]), default=0)

    def n_run(self, name: str, size: int) -> int:
        """How many rivals have been run with so many rows, or exceeded a limit with as many or fewer."""
        failed = {rival: self.failures(rival).get(name, ("", size + 1))[1] <= size for rival in RIVALS}
        return sum(failed[rival] or self.seconds(name, rival, size) is not None for rival in RIVALS)

    def accurate(self, name: str) -> list[str]:
        """Rivals whose mean error is at most a point above the lowest of the rivals."""
        trials = {rival: list(self.real.trials(name, rival, self.protocol).values()) for rival in RIVALS}
        means = {rival: float(np.mean(errors)) for rival, errors in trials.items() if errors}
        return [rival for rival, mean in means.items() if mean <= min(means.values()) + _POINT]

    def race(self, name: str, column: str, size: int, rivals: Sequence[str] = RIVALS) -> Race | None:
        """Rivals that exceeded a limit have lost; without any that finished, there is no race."""
        own = self.seconds(name, column, size)
        finished = {rival: taken for rival in rivals if (taken := self.seconds(name, rival, size)) is not None}
        if own is None or not finished:
            return None
        fastest = min(finished, key=lambda rival: finished[rival])
        return Race(name, fastest, own / finished[fastest], self.n_run(name, size))

    def races(self, column: str, size: int | None) -> list[Race]:
        """One race per set, with that many rows or with the most that any solver finished (None)."""
        found = (self.race(name, column, self.largest(name) if size is None else size) for name in self.sets)
        return [race for race in found if race is not None]

    def against_accurate(self, column: str) -> list[tuple[int, Race]]:
        """Sizes and races in which only rivals with errors like the best take part."""
        found = (
            (size, self.race(name, column, size, self.accurate(name))) for size in self.sizes for name in self.sets
        )
        return [(size, race) for size, race in found if race is not None and race.is_complete]

    def difference(self, name: str, solver: str, other: str) -> Difference | None:
        """How much larger the error of `solver` is than that of `other`, in the trials that both have."""
        a, b = (self.real.trials(name, one, self.protocol) for one in (solver, other))
        both = sorted(a.keys() & b.keys())
        if len(both) < _FEWEST_PAIRS:
            return None
        differences = np.array([a[trial] - b[trial] for trial in both])
        return Difference(float(differences.mean()), float(differences.std(ddof=1) / len(both) ** 0.5), len(both))

    def differences(self, solver: str, other: str) -> dict[str, Difference]:
        found = {name: self.difference(name, solver, other) for name in self.sets}
        return {name: difference for name, difference in found.items() if difference is not None}

    def best_rival(self, name: str, column: str, rivals: Iterable[str]) -> tuple[str, Difference] | None:
        """The rival with the lowest error, by the trials shared with the column."""
        found = {rival: self.difference(name, column, rival) for rival in rivals}
        known = {rival: difference for rival, difference in found.items() if difference is not None}
        return max(known.items(), key=lambda pair: pair[1].mean) if known else None

    def near_exact(self, column: str) -> tuple[list[str], dict[str, tuple[str, Difference]]]:
        """Sets on which the error is at most one point above that of the best exact solver, and that comparison."""
        found = {name: self.best_rival(name, column, EXACT) for name in self.sets}
        best = {name: rival for name, rival in found.items() if rival is not None}
        return [name for name, (_, difference) in best.items() if difference.mean <= _POINT], best

    def at_the_edge(self, solver: str) -> list[str]:
        """Sets on which the oracle, at its most rows, chose the largest C that it looked at for any set."""
        chosen = {}
        for row in sorted(self.real.of("tuning", solver=solver, status="ok"), key=lambda row: row["n"]):
            chosen[row["set"]] = row["C"]
        highest = 10.0**self.highest_log_c / (self._n_labeled if self.real.is_printed(solver) else 1)
        return [name for name, C in chosen.items() if 0.99 * highest <= C]

    def one_class(self, solver: str) -> list[str]:
        """Sets on which more than half of the trials put every test row into one class."""
        found = []
        for name in self.sets:
            fractions = self.real.trials(name, solver, self.protocol, "predicted_positive").values()
            if fractions and np.mean([fraction in (0.0, 1.0) for fraction in fractions]) > 0.5:
                found.append(name)
        return found

    def failures(self, solver: str) -> dict[str, tuple[str, int]]:
        """Of each set on which a solver ran out of time or memory: which, and the fewest rows with which it did."""
        found = {name: self.real.failures(name, solver) for name in self.sets}
        return {name: (rows[0]["status"], rows[0]["n"]) for name, rows in found.items() if rows}

    def exponents(self, solver: str, quantity: str) -> list[float]:
        """Slopes over at least four sizes, of every set that has so many."""
        found = []
        for name in self.sets:
            sizes, values = self.real.times(name, solver, quantity)
            slope = exponent(sizes, np.maximum(values, 1e-3).tolist(), upper=True) if sizes else float("nan")
            if not np.isnan(slope):
                found.append(slope)
        return found

    def curve(self, name: str, solver: str) -> dict[int, tuple[float, float]]:
        """Mean error and its standard error by the number of iterations."""
        errors: dict[int, list[float]] = {}
        for row in self.real.of("curves", set=name, solver=solver, status="ok"):
            errors.setdefault(row["max_iter"], []).append(row["error"])
        return {
            t: (float(np.mean(errors[t])), float(np.std(errors[t], ddof=1) / len(errors[t]) ** 0.5))
            for t in sorted(errors)
            if len(errors[t]) > 1
        }

    def settled(self, solver: str) -> tuple[int, int, list[str]]:
        """Of how many sets the error at 128 iterations is at most a point above the lowest of the curve, of how many
        curves, and on which sets the last point is clearly (two standard errors) above the lowest."""
        curves = {name: curve for name in self.sets if 128 in (curve := self.curve(name, solver))}
        lowest = {name: min(curve.values()) for name, curve in curves.items()}
        n_good = sum(curve[128][0] <= lowest[name][0] + _POINT for name, curve in curves.items())
        worse = []
        for name, curve in curves.items():
            last = curve[max(curve)]
            if last[0] - lowest[name][0] > 2 * float(np.hypot(last[1], lowest[name][1])):
                worse.append(name)
        return n_good, len(curves), worse

    def law(self, setting: str, quantity: str) -> Slope | None:
        """The slope against T of the distance or the gradient, with an interval from resampled seeds."""
        rows = sorted(self.tally.of("theory", solver=setting, status="ok"), key=lambda row: row["max_iter"])
        if len(rows) < 4:
            return None
        T = np.log([row["max_iter"] for row in rows])
        values = np.array([json.loads(row["values"])[quantity] for row in rows])
        rng = np.random.default_rng(0)
        n_seeds = values.shape[1]
        drawn = rng.integers(n_seeds, size=(_RESAMPLES, n_seeds))
        means = np.log(values[:, drawn].mean(axis=2))
        slopes = np.polyfit(T, means, 1)[0]
        low, high = np.quantile(slopes, [0.025, 0.975])
        return Slope(float(np.polyfit(T, np.log(values.mean(axis=1)), 1)[0]), float(low), float(high))

    def settings_of_theory(self) -> list[str]:
        """As the configuration orders them: the first one is the paper's."""
        measured = {row["solver"] for row in self.tally.of("theory", status="ok")}
        return [name for name in self._theory if name in measured]

    def effects(self, variant: str, base: str) -> dict[str, Difference]:
        """Of the ablation: how much larger the error of a variant is than that of another one, per set."""
        rows = self.real.of("ablation", status="ok")
        found = {}
        for name in dict.fromkeys(row["set"] for row in rows):
            a, b = (
                {row["trial"]: row["error"] for row in rows if row["set"] == name and row["solver"] == one}
                for one in (variant, base)
            )
            both = sorted(a.keys() & b.keys())
            if len(both) >= _FEWEST_PAIRS:
                d = np.array([a[trial] - b[trial] for trial in both])
                found[name] = Difference(float(d.mean()), float(d.std(ddof=1) / len(both) ** 0.5), len(both))
        return found

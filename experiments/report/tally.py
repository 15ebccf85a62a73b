"""The rows of an experiment as numbers to show: which solver is fastest, how errors compare, how fast time grows."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from experiments.config import PARTS
from experiments.datasets import KNOWN
from s3vm.solvers import SOLVERS

__all__ = ["RACES", "Law", "Race", "Tally", "Verdict", "exponent", "title"]

Row = dict[str, Any]

RACES = {"common": "at the largest size that all solvers finished", "whole": "with all rows of a set"}
_WORSE_THAN_FRS, _FROM_THE_BEST = 0.002, 0.01


def title(name: str) -> str:
    return KNOWN[name].title if name in KNOWN else name


class Race(NamedTuple):
    """Seconds of the solvers that finished so many rows of a set."""

    size: int
    seconds: dict[str, float]

    @property
    def fastest(self) -> str:
        return min(self.seconds, key=lambda solver: self.seconds[solver])


class Verdict(NamedTuple):
    """How `tsg` does on a set: who is fastest at the largest size that all solvers finished (common) and at the largest
    of all (whole), and errors under the same tuning."""

    name: str
    common: Race | None
    whole: Race | None
    against_frs: float | None
    best: str | None
    against_best: float | None

    @property
    def is_near(self) -> bool:
        """Whether the error is at most 0.2 points above that of frs, and 1 point above the best."""
        near_frs = self.against_frs is None or self.against_frs <= _WORSE_THAN_FRS
        return near_frs and self.against_best is not None and self.against_best <= _FROM_THE_BEST


class Law(NamedTuple):
    """A quantity against T: its values, the bound on it, and the fitted slope in log-log."""

    T: list[int]
    values: list[float]
    bound: list[float]
    slope: float

    @property
    def holds(self) -> bool:
        return all(value <= limit for value, limit in zip(self.values, self.bound, strict=True))


class Tally:
    """Questions that a report asks of the rows.

    Parameters
    ----------
    rows : sequence of dict
    subjects : mapping of str to mapping
        The solvers of the configuration with their settings, in the order in which they are shown.

    Attributes
    ----------
    solvers : list of str
        Those that have times, errors or curves.
    rivals : list of str
        Those of them that race: the package's solvers under their own names.
    sets : list of str
    """

    def __init__(self, rows: Sequence[Row], subjects: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.rows = list(rows)
        self._index: dict[tuple[str, str | None, str | None], list[Row]] = {}
        self._subjects = subjects or {}
        present = _in_order(row["solver"] for row in self.rows if row["part"] in PARTS)
        self.solvers = [name for name in _in_order([*self._subjects, *present]) if name in present]
        self.rivals = [name for name in self.solvers if name in SOLVERS]
        self.sets = _in_order(row["set"] for row in self.rows if row["set"] and row["part"] != "theory")

    def kind(self, solver: str) -> str:
        """The algorithm behind a name."""
        return str(self._subjects.get(solver, {}).get("kind", solver))

    def is_printed(self, solver: str) -> bool:
        """Whether it is the algorithm as the paper prints it."""
        return bool(self._subjects.get(solver, {}).get("printed", False))

    def of(self, part: str, **values: Any) -> list[Row]:
        """The rows of a part with these values."""
        if not self._index:
            for row in self.rows:
                for key in product((row["part"],), (row["set"], None), (row["solver"], None)):
                    self._index.setdefault(key, []).append(row)
        known = self._index.get((part, values.pop("set", None), values.pop("solver", None)), [])
        return [row for row in known if all(row[key] == values[key] for key in values)]

    def protocols(self) -> list[str]:
        return _in_order(row["protocol"] for row in self.of("errors"))

    def times(self, name: str, solver: str, quantity: str = "seconds") -> tuple[list[int], list[float]]:
        """Sizes, and the median of a quantity at each, or the most megabytes, of the runs that succeeded."""
        values: dict[int, list[float]] = {}
        for row in self.of("times", set=name, solver=solver, status="ok"):
            if row.get("machine") == self._machines[name, row["n"]]:
                values.setdefault(row["n"], []).append(row[quantity])
        typical = max if quantity == "megabytes" else np.median
        return sorted(values), [float(typical(values[size])) for size in sorted(values)]

    @cached_property
    def _machines(self) -> dict[tuple[str, int], str | None]:
        """The machine that times are compared on, for each set and size: the one that has run most solvers there."""
        runs = {(row["set"], row["n"], row.get("machine"), row["solver"]) for row in self.of("times", status="ok")}
        counts = Counter(run[:3] for run in sorted(runs, key=str))
        return {(name, size): machine for (name, size, machine), _ in reversed(counts.most_common())}

    def failures(self, name: str, solver: str) -> list[Row]:
        """The smallest run that ran out of time or memory, or crashed, in a list."""
        rows = self.of("times", set=name, solver=solver)
        failed = [row for row in rows if row["status"] in ("timeout", "memory", "crash") and row["n"]]
        return sorted(failed, key=lambda row: row["n"])[:1]

    def trials(self, name: str, solver: str, protocol: str, quantity: str = "error") -> dict[int, float]:
        """A quantity by trial."""
        rows = self.of("errors", set=name, solver=solver, protocol=protocol, status="ok")
        return {row["trial"]: row[quantity] for row in rows if row[quantity] is not None}

    def behind(self, name: str, solver: str, other: str, protocol: str) -> float | None:
        """How much larger the mean error of `solver` is than that of `other`, on the trials that both have."""
        a, b = self.trials(name, solver, protocol), self.trials(name, other, protocol)
        both = a.keys() & b.keys()
        return float(np.mean([a[trial] - b[trial] for trial in both])) if both else None

    def verdict(self, name: str, protocol: str) -> Verdict:
        sizes = [set(times) for solver in self.rivals if (times := self.times(name, solver)[0])]
        common, whole = (set.intersection(*sizes), set.union(*sizes)) if sizes else (set(), set())
        leads = {solver: self.behind(name, "tsg", solver, protocol) for solver in self.rivals if solver != "tsg"}
        known = {solver: lead for solver, lead in leads.items() if lead is not None}
        best = max(known, key=lambda solver: known[solver]) if known else None
        if best is not None and known[best] <= 0:
            best = "tsg"
        behind = None if best is None else max(0.0, known.get(best, 0.0))
        return Verdict(name, self._race(name, common), self._race(name, whole), known.get("frs"), best, behind)

    def _race(self, name: str, sizes: set[int]) -> Race | None:
        """The seconds at the largest of the sizes."""
        if not sizes:
            return None
        size = max(sizes)
        times = {solver: dict(zip(*self.times(name, solver), strict=True)) for solver in self.rivals}
        return Race(size, {solver: by_size[size] for solver, by_size in times.items() if size in by_size})

    def verdicts(self, protocol: str) -> list[Verdict]:
        """Of every set, except for synthetic ones that are for speed alone."""
        synthetic = {row["set"] for row in self.of("times") if row["synthetic"]}
        sets = [name for name in self.sets if name not in synthetic or self.of("errors", set=name)]
        return [self.verdict(name, protocol) for name in sets]

    def skewed(self, below: float = 0.15) -> list[str]:
        """Sets with so few positive rows, or negative ones, that the error says little."""
        positive = {row["set"]: row["positive"] for row in self.of("errors") if row["positive"] is not None}
        return [name for name in self.sets if name in positive and min(positive[name], 1 - positive[name]) < below]

    def laws(self, setting: str | None = None) -> dict[str, Law]:
        """What both theorems bound, and the bounds, with the smallest R of any run in place of R*; of the first setting
        or a named one."""
        rows = sorted(self.of("theory", status="ok"), key=lambda row: row["max_iter"])
        rows = [row for row in rows if row["solver"] == (setting or rows[0]["solver"])]
        if not rows:
            return {}
        T = [row["max_iter"] for row in rows]
        runs = [json.loads(row["values"]) for row in rows]
        least, first = min(run["least"] for run in runs), runs[0]
        t = np.array(T, dtype=float)
        E = first["E"] + (first["start"] - least) / first["theta"]
        bounds = {"distance": first["D"] / np.sqrt(t), "gradient": E / t**0.25 + first["F"] / t**0.75}
        bounds["worst_distance"] = bounds["distance"]
        return {
            name: Law(T, [run[name] for run in runs], bound.tolist(), exponent(T, [run[name] for run in runs]))
            for name, bound in bounds.items()
        }


_FEWEST_SIZES = 4


def exponent(sizes: Sequence[float], values: Sequence[float], upper: bool = False) -> float:
    """The slope of log value against log size; of the four largest sizes, or the upper half of more, if asked."""
    n_used = max(_FEWEST_SIZES, (len(sizes) + 1) // 2) if upper else len(sizes)
    if len(sizes) < max(2, n_used) or min(values[-n_used:]) <= 0:
        return float("nan")
    return float(np.polyfit(np.log(sizes[-n_used:]), np.log(values[-n_used:]), 1)[0])


def _in_order(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))

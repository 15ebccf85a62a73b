"""The rows of an experiment as numbers to show: who is fastest, how errors compare, how fast time grows."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.datasets import KNOWN

__all__ = ["RACES", "SEVEN", "Law", "Race", "Tally", "Verdict", "exponent", "title"]

Row = dict[str, Any]

SEVEN = ("tsg", "frs", "bgs", "cccp", "light", "newton", "incremental")
RACES = {"common": "at the largest size at which all seven finished", "whole": "with all rows of a set"}
_WORSE_THAN_FRS, _FROM_THE_BEST = 0.002, 0.01


def title(name: str) -> str:
    return KNOWN[name].title if name in KNOWN else name


class Race(NamedTuple):
    """Seconds of those of the seven solvers that manage so many rows of a set."""

    size: int
    seconds: dict[str, float]

    @property
    def fastest(self) -> str:
        return min(self.seconds, key=lambda one: self.seconds[one])


class Verdict(NamedTuple):
    """What a set says of `tsg`: who is fast at the largest size that all solvers manage (common) and at the largest of
    all (whole), and errors under one tuning."""

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
    """Questions that a report asks of the rows."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)
        there = _in_order(row["solver"] for row in self.rows if row["part"] in ("times", "errors"))
        self.solvers = [*(one for one in SEVEN if one in there), *(one for one in there if one not in SEVEN)]
        self.sets = _in_order(row["set"] for row in self.rows if row["set"] and row["part"] != "theory")

    def of(self, part: str, **wanted: Any) -> list[Row]:
        return [row for row in self.rows if row["part"] == part and all(row[key] == wanted[key] for key in wanted)]

    def protocols(self) -> list[str]:
        return _in_order(row["protocol"] for row in self.of("errors"))

    def times(self, name: str, solver: str, quantity: str = "seconds") -> tuple[list[int], list[float]]:
        """Sizes, and the median of a quantity at each, of the runs that went well."""
        found: dict[int, list[float]] = {}
        for row in self.of("times", set=name, solver=solver, status="ok"):
            found.setdefault(row["n"], []).append(row[quantity])
        return sorted(found), [float(np.median(found[size])) for size in sorted(found)]

    def failures(self, name: str, solver: str) -> list[Row]:
        """The smallest runs that ran out of time or memory, or crashed."""
        bad = [
            row for row in self.of("times", set=name, solver=solver) if row["status"] in ("timeout", "memory", "crash")
        ]
        return sorted((row for row in bad if row["n"]), key=lambda row: row["n"])[:1]

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
        seven = [one for one in SEVEN if self.times(name, one)[0]]
        sizes = [set(self.times(name, one)[0]) for one in seven]
        common, every = (set.intersection(*sizes), set.union(*sizes)) if sizes else (set(), set())
        leads = {one: self.behind(name, "tsg", one, protocol) for one in SEVEN if one != "tsg"}
        known = {one: lead for one, lead in leads.items() if lead is not None}
        best = max(known, key=lambda one: known[one]) if known else None
        if best is not None and known[best] <= 0:
            best = "tsg"
        behind = None if best is None else max(0.0, known.get(best, 0.0))
        return Verdict(name, self._race(name, common), self._race(name, every), leads["frs"], best, behind)

    def _race(self, name: str, sizes: set[int]) -> Race | None:
        """The seconds at the largest of the sizes."""
        if not sizes:
            return None
        size = max(sizes)
        found = {one: dict(zip(*self.times(name, one), strict=True)) for one in SEVEN}
        return Race(size, {one: times[size] for one, times in found.items() if size in times})

    def verdicts(self, protocol: str) -> list[Verdict]:
        """Of every set; sets that are made are for speed alone, and none of the paper's."""
        made = {row["set"] for row in self.of("times") if row["synthetic"]}
        real = [name for name in self.sets if name not in made or self.of("errors", set=name)]
        return [self.verdict(name, protocol) for name in real]

    def skewed(self, below: float = 0.15) -> list[str]:
        """Sets whose positive rows, or negative ones, are so few that the error says little."""
        share = {row["set"]: row["positive"] for row in self.of("errors") if row["positive"] is not None}
        return [name for name in self.sets if name in share and min(share[name], 1 - share[name]) < below]

    def laws(self) -> dict[str, Law]:
        """Both theorems: what they bound, and the bounds, with the smallest R seen in place of R*."""
        rows = sorted(self.of("theory", status="ok"), key=lambda row: row["max_iter"])
        if not rows:
            return {}
        T = [row["max_iter"] for row in rows]
        found = [json.loads(row["values"]) for row in rows]
        least, first = min(one["least"] for one in found), found[0]
        t = np.array(T, dtype=float)
        E = first["E"] + (first["start"] - least) / first["theta"]
        bounds = {"distance": first["D"] / np.sqrt(t), "gradient": E / t**0.25 + first["F"] / t**0.75}
        bounds["worst_distance"] = bounds["distance"]
        return {
            name: Law(T, [one[name] for one in found], bound.tolist(), exponent(T, [one[name] for one in found]))
            for name, bound in bounds.items()
        }


def exponent(sizes: Sequence[float], values: Sequence[float], upper: bool = False) -> float:
    """The slope of log value against log size; of the upper half of the sizes, two at least, if asked."""
    n_used = max(2, (len(sizes) + 1) // 2) if upper else len(sizes)
    if len(sizes) < 2 or min(values[-n_used:]) <= 0:
        return float("nan")
    return float(np.polyfit(np.log(sizes[-n_used:]), np.log(values[-n_used:]), 1)[0])


def _in_order(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))

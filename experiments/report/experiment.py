"""The report of an experiment: what came out, every figure, what was not run, and how it was made."""

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from experiments import results
from experiments.report.sections import Sections, points
from experiments.report.tally import RACES, SEVEN, Race, Tally, Verdict, title
from s3vm._utils.optional import optional
from s3vm.inspect.page import write_page

__all__ = ["of_experiment"]


def of_experiment(path: Any, output: Any) -> Path:
    """Writes the report of a file of results and returns its path."""
    rows, config = results.read(path)
    if not rows:
        raise ValueError(f"{path} has no rows: run s3vm bench first")
    try:
        with optional("matplotlib.style", "report").context("default"):
            report = _Report(rows, config)
            said = report.title, report.summary(), Sections(report.tally, report.notes), report.settings()
            return write_page(output, *said, report.headline())
    except (ArithmeticError, AttributeError, LookupError, TypeError) as problem:
        raise ValueError(f"{path} is not a file of results: its rows do not make sense ({problem!r})") from problem


class _Report:
    def __init__(self, rows: list[dict[str, Any]], config: str) -> None:
        self.tally = Tally(rows)
        self.described = tomllib.loads(config)
        self.title = f"TSGS³VM beside the other solvers: {self.described.pop('title', 'an experiment')}"
        self.notes = self.described.pop("notes", "")
        self.protocols = self.tally.protocols()
        self.laws = self.tally.laws()

    # What came out

    def summary(self) -> str:
        said = [self._on_speed(), *(self._on_errors(protocol) for protocol in self.protocols), self._on_theory()]
        return " ".join(filter(None, said))

    def _on_speed(self) -> str:
        return " ".join(
            _speed(words, [(one.name, race) for one in self.tally.verdicts("honest") if (race := getattr(one, which))])
            for which, words in RACES.items()
        ).strip()

    def _on_errors(self, protocol: str) -> str:
        judged = [one for one in self.tally.verdicts(protocol) if one.against_best is not None]
        if not judged:
            return ""
        near = [one for one in judged if one.is_near]
        text = f"Tuned by the {protocol} protocol, its mean test error is within 1 point of the best solver's"
        text += f" and at most 0.2 points above that of frs on {len(near)} of {len(judged)} sets"
        far = [f"{title(one.name)} ({_distances(one)})" for one in judged if not one.is_near]
        return text + (f"; it is not on {', '.join(far)}." if far else ".")

    def _on_theory(self) -> str:
        if not self.laws:
            return ""
        law = self.laws["distance"]
        holds = all(one.holds for one in self.laws.values())
        steep = "as steep as Theorem 1 says or steeper" if law.slope <= -0.5 else "less steep than Theorem 1 says"
        bounds = "both theorems' bounds hold" if holds else "the theorems' bounds do NOT hold"
        return f"E|f − h|² falls as T to the power {law.slope:.2f}, {steep}; {bounds}."

    def headline(self) -> dict[str, str]:
        figures = {}
        for which, words in RACES.items():
            found = [getattr(one, which) for one in self.tally.verdicts("honest")]
            races = [race for race in found if race and "tsg" in race.seconds and len(race.seconds) > 1]
            if races:
                won = sum(race.fastest == "tsg" for race in races)
                rivals = [min(v for k, v in race.seconds.items() if k != "tsg") / race.seconds["tsg"] for race in races]
                ratio = f"the next best takes {np.median(rivals):.2g} times as long, by the median"
                figures[f"tsg is the fastest, {words}"] = f"{won} of {len(races)} sets\n{ratio}"
        for protocol in self.protocols:
            judged = [one for one in self.tally.verdicts(protocol) if one.against_best is not None]
            if judged:
                near = sum(one.is_near for one in judged)
                figures[f"Errors near the best, {protocol}"] = (
                    f"{near} of {len(judged)} sets\nwithin 1 point, and 0.2 of frs"
                )
        if self.laws:
            figures["Theorem 1"] = f"T^{self.laws['distance'].slope:.2f}\nbound: T^-0.5"
        counted = [row for row in self.tally.rows if row["part"] != "tuning"]
        hours = sum(row["seconds"] or 0 for row in self.tally.rows) / 3600
        figures["Runs"] = f"{len(counted):,}\n{hours:.2f} hours of one core in fits"
        return figures

    def settings(self) -> dict[str, Any]:
        versions = sorted({row["versions"] for row in self.tally.rows if row["versions"]})
        machines = sorted({row["machine"] for row in self.tally.rows if row["machine"]})
        made = {f"runs made on{f' ({at})' if at else ''}": _listed(one) for at, one in enumerate(machines)}
        made |= {f"with{f' ({at})' if at else ''}": _listed(one) for at, one in enumerate(versions)}
        return made | _flat(self.described)


def _flat(described: dict[str, Any], within: str = "") -> dict[str, str]:
    """A configuration as names and values; tables that hold no others are one line."""
    flat: dict[str, str] = {}
    for name, value in described.items():
        if isinstance(value, dict) and any(isinstance(one, dict) for one in value.values()):
            flat |= _flat(value, f"{within}{name}: ")
        elif isinstance(value, dict):
            flat[within + name] = ", ".join(f"{key} = {one}" for key, one in value.items()) or "defaults"
        else:
            flat[within + name] = str(value)
    return flat


def _speed(words: str, races: list[tuple[str, Race]]) -> str:
    if not races:
        return ""
    won = sum(race.fastest == "tsg" for _, race in races)
    lost = [f"{title(name)} ({race.fastest} is)" for name, race in races if race.fastest != "tsg"]
    fewest = min(len(race.seconds) for _, race in races)
    run = "all seven" if fewest == len(SEVEN) else "those that were run"
    text = f"{_capital(words)}, tsg is the fastest of {run} on {won} of {len(races)} sets"
    return text + (f"; it is not on {', '.join(lost)}." if lost else ".")


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _distances(one: Verdict) -> str:
    frs = "" if one.against_frs is None else f"{points(one.against_frs)} from frs, "
    return f"{frs}{points(one.against_best)} from {one.best}"


def _listed(text: str) -> str:
    return ", ".join(f"{name} {value}" for name, value in json.loads(text).items())

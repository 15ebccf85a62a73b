"""The report of an experiment: its results, every figure, what was not run, and how it was made."""

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from experiments import results
from experiments.report.sections import Sections, points
from experiments.report.tally import RACES, Race, Tally, Verdict, title
from s3vm._utils.optional import optional
from s3vm.inspect.page import write_page

__all__ = ["of_experiment"]


def of_experiment(path: Any, output: Any) -> Path:
    """Writes the report of a file of results and returns its path."""
    rows, config = results.read(path)
    if not rows:
        raise ValueError(f"{path} has no rows: run python -m experiments bench first")
    try:
        with optional("matplotlib.style", "experiments").context("default"):
            report = _Report(rows, config)
            sections = Sections(report.tally, report.notes)
            return write_page(output, report.title, report.summary(), sections, report.settings(), report.headline())
    except (ArithmeticError, AttributeError, LookupError, TypeError) as problem:
        raise ValueError(f"{path} is not a file of results: its rows do not make sense ({problem!r})") from problem


class _Report:
    def __init__(self, rows: list[dict[str, Any]], config: str) -> None:
        self.config = tomllib.loads(config)
        self.tally = Tally(rows, self.config.get("solvers"))
        self.title = f"TSGS³VM beside the other solvers: {self.config.pop('title', 'an experiment')}"
        self.notes = self.config.pop("notes", "")
        self.protocols = self.tally.protocols()
        self.laws = self.tally.laws()

    def summary(self) -> str:
        sentences = [self._on_speed(), *(self._on_errors(protocol) for protocol in self.protocols), self._on_theory()]
        return " ".join(filter(None, sentences))

    def _on_speed(self) -> str:
        verdicts, n_rivals = self.tally.verdicts("honest"), len(self.tally.rivals)
        races = {
            when: [(verdict.name, race) for verdict in verdicts if (race := getattr(verdict, which))]
            for which, when in RACES.items()
        }
        return " ".join(filter(None, (_speed(when, named, n_rivals) for when, named in races.items())))

    def _on_errors(self, protocol: str) -> str:
        judged = self._judged(protocol)
        if not judged:
            return ""
        near = [verdict for verdict in judged if verdict.is_near]
        text = f"Tuned by the {protocol} protocol, its mean test error is within 1 point of the best solver's"
        text += f" and at most 0.2 points above that of frs on {len(near)} of {len(judged)} sets"
        far = [f"{title(verdict.name)} ({_distances(verdict)})" for verdict in judged if not verdict.is_near]
        return text + (f"; it is not on {', '.join(far)}." if far else ".")

    def _on_theory(self) -> str:
        if not self.laws:
            return ""
        law = self.laws["distance"]
        holds = all(law.holds for law in self.laws.values())
        steep = "as steep as Theorem 1 says or steeper" if law.slope <= -0.5 else "less steep than Theorem 1 says"
        bounds = "both theorems' bounds hold" if holds else "the theorems' bounds do NOT hold"
        return f"E|f − h|² falls as T to the power {law.slope:.2f}, {steep}; {bounds}."

    def headline(self) -> dict[str, str]:
        figures = {}
        for which, when in RACES.items():
            candidates = [getattr(verdict, which) for verdict in self.tally.verdicts("honest")]
            races = [race for race in candidates if race and "tsg" in race.seconds and len(race.seconds) > 1]
            if races:
                n_won = sum(race.fastest == "tsg" for race in races)
                rivals = [min(v for k, v in race.seconds.items() if k != "tsg") / race.seconds["tsg"] for race in races]
                ratio = f"the next best takes {np.median(rivals):.2g} times as long, by the median"
                figures[f"tsg is the fastest, {when}"] = f"{n_won} of {len(races)} sets\n{ratio}"
        for protocol in self.protocols:
            judged = self._judged(protocol)
            if judged:
                n_near = sum(verdict.is_near for verdict in judged)
                text = f"{n_near} of {len(judged)} sets\nwithin 1 point, and 0.2 of frs"
                figures[f"Errors near the best, {protocol}"] = text
        if self.laws:
            figures["Theorem 1"] = f"T^{self.laws['distance'].slope:.2f}\nbound: T^-0.5"
        n_runs = sum(row["part"] != "tuning" for row in self.tally.rows)
        hours = sum(row["seconds"] or 0 for row in self.tally.rows) / 3600
        figures["Runs"] = f"{n_runs:,}\n{hours:.2f} hours of one core in fits"
        return figures

    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        for name, column in (("runs made on", "machine"), ("with", "versions")):
            distinct = sorted({row[column] for row in self.tally.rows if row[column]})
            settings |= {f"{name}{f' ({at})' if at else ''}": _listed(facts) for at, facts in enumerate(distinct)}
        return settings | _flat(self.config)

    def _judged(self, protocol: str) -> list[Verdict]:
        return [verdict for verdict in self.tally.verdicts(protocol) if verdict.against_best is not None]


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """A configuration as names and values; a table without tables in it is one line."""
    flat: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, dict) and any(isinstance(entry, dict) for entry in value.values()):
            flat |= _flat(value, f"{prefix}{name}: ")
        elif isinstance(value, dict):
            flat[prefix + name] = ", ".join(f"{key} = {entry}" for key, entry in value.items()) or "defaults"
        else:
            flat[prefix + name] = str(value)
    return flat


def _speed(when: str, races: list[tuple[str, Race]], n_rivals: int) -> str:
    if not races:
        return ""
    n_won = sum(race.fastest == "tsg" for _, race in races)
    lost = [f"{title(name)} ({race.fastest} is)" for name, race in races if race.fastest != "tsg"]
    took_part = all(len(race.seconds) == n_rivals for _, race in races)
    rivals = f"all {n_rivals}" if took_part else "those that were run"
    text = f"{when[:1].upper()}{when[1:]}, tsg is the fastest of {rivals} on {n_won} of {len(races)} sets"
    return text + (f"; it is not on {', '.join(lost)}." if lost else ".")


def _distances(verdict: Verdict) -> str:
    frs = "" if verdict.against_frs is None else f"{points(verdict.against_frs)} from frs, "
    return f"{frs}{points(verdict.against_best)} from {verdict.best}"


def _listed(text: str) -> str:
    return ", ".join(f"{name} {value}" for name, value in json.loads(text).items())

"""The runs that an experiment asks for, in the order in which they depend on each other."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from typing import Any

from experiments.ablation import VARIANTS
from experiments.config import Config, Errors, Subject, Times, digest
from experiments.results import Results

__all__ = ["Plan", "Task", "key_of"]

Task = dict[str, Any]
"""What a run depends on."""

_TEST_ROWS = 4000  # of ablation and curves
_SYNTHETIC = {"C": 10.0, "gamma": None, "step": None}  # synthetic rows cannot be tuned on: a usual C, the median width


def key_of(task: Task) -> str:
    """The identity of a run: everything that it depends on, and no limit."""
    return digest(task)


class Plan:
    """The tasks of an experiment."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def stages(self, results: Results) -> Iterator[Iterator[Task]]:
        """The tasks in stages, each to be finished before the next is asked for.

        For each protocol, C and width are chosen first, then come the runs that use the choices. The first protocol's
        choices also serve times, ablation and curves.
        """
        for protocol in self._trials():
            yield self._tuning(protocol)
            yield self._with_choices(self._errors(protocol), results)
            if protocol == self._first_protocol():
                yield self._theory()
                yield self._with_choices(self._ablation(), results)
                yield self._with_choices(self._times(), results)
                yield self._synthetic_times()
                yield self._with_choices(self._curves(), results)

    def _tuning(self, protocol: str) -> Iterator[Task]:
        # Only the oracle can distinguish between settings that look alike on the labelled rows.
        subjects = self._subjects("errors") if protocol == "oracle" else []
        owners = ["shared", *(name for name, subject in subjects if subject.tuned == "own")]
        for name, trial, owner in product(self.config.sets, range(self._trials()[protocol]), owners):
            subject = self.config.solvers[self.config.tuning.by if owner == "shared" else owner]
            task = self._task("tuning", name, trial, protocol=protocol, rows=self._rows(), solver=owner)
            yield task | {"subject": subject.identity(), "grid": asdict(self.config.tuning)}

    def _with_choices(self, tasks: Iterator[Task], results: Results) -> Iterator[Task]:
        """The tasks with the C, width and step chosen for them; without a choice, a task is left out."""
        choices = {
            (row["set"], row["protocol"], row["trial"], row["solver"]): {
                name: row[name] for name in ("C", "gamma", "step")
            }
            for row in results.rows()
            if row["part"] == "tuning" and row["status"] == "ok"
        }
        for task in tasks:
            trial = task["set"], task["protocol"], task["trial"]
            choice = choices.get((*trial, task["solver"])) or choices.get((*trial, "shared"))
            if choice is not None:
                yield task | choice

    def _errors(self, protocol: str) -> Iterator[Task]:
        errors = self.config.errors
        if errors is None:
            return
        for name, trial in product(self.config.sets, range(self._trials()[protocol])):
            for solver, subject in self._subjects("errors"):
                if protocol in subject.protocols and (subject.trials is None or trial < subject.trials):
                    task = self._task("errors", name, trial, solver=solver, protocol=protocol, rows=self._rows())
                    yield task | {"subject": subject.identity(), "test_rows": errors.test_rows}

    def _times(self) -> Iterator[Task]:
        times = self.config.times
        if times is None:
            return
        for size, name, (solver, subject) in product(times.sizes, self.config.sets, self._subjects("times")):
            for trial in range(subject.repeats):
                task = self._task("times", name, trial, solver=solver, rows=size, test_rows=times.test_rows)
                yield task | {"subject": subject.identity(), "protocol": self._first_protocol()}

    def _synthetic_times(self) -> Iterator[Task]:
        shapes = self.config.times.synthetic if self.config.times else {}
        for name, sizes in shapes.items():
            for size, (solver, subject) in product(sizes, self._subjects("times")):
                task = self._task("times", name, 0, solver=solver, rows=size, test_rows=Times.test_rows)
                yield task | {"subject": subject.identity(), "synthetic": True} | _SYNTHETIC

    def _theory(self) -> Iterator[Task]:
        theory = self.config.theory
        for iterations in theory.iterations if theory else ():
            task = self._task("theory", "", 0, solver="tsg, as printed", max_iter=iterations, rows=None)
            yield task | {"seeds": theory.seeds if theory else 0}

    def _ablation(self) -> Iterator[Task]:
        ablation = self.config.ablation
        if ablation is None:
            return
        for name, trial, variant in product(ablation.sets or self.config.sets, range(ablation.trials), VARIANTS):
            task = self._task("ablation", name, trial, solver=variant, rows=self._rows(), test_rows=_TEST_ROWS)
            yield task | {"protocol": self._first_protocol(), "max_iter": ablation.max_iter}

    def _curves(self) -> Iterator[Task]:
        curves = self.config.curves
        if curves is None:
            return
        subjects = self._subjects("curves")
        for name, trial, (solver, subject) in product(self.config.sets, range(curves.trials), subjects):
            for iterations in curves.iterations:
                task = self._task("curves", name, trial, solver=solver, rows=self._rows(), max_iter=iterations)
                task |= {"subject": subject.identity(), "protocol": self._first_protocol()}
                yield task | {"test_rows": _TEST_ROWS}

    def _task(self, part: str, name: str, trial: int, **more: Any) -> Task:
        config = self.config
        folds = config.errors.folds if config.errors is not None else Errors.folds
        common = {"n_labeled": config.n_labeled, "folds": folds, "synthetic": config.synthetic}
        return {"part": part, "set": name, "trial": trial, "protocol": "", **common, **more}

    def _subjects(self, part: str) -> list[tuple[str, Subject]]:
        return [(name, subject) for name, subject in self.config.solvers.items() if part in subject.parts]

    def _first_protocol(self) -> str:
        """The protocol whose choices times, curves and ablation use."""
        return next(iter(self._trials()))

    def _trials(self) -> dict[str, int]:
        """How many trials each protocol has; settings are chosen at least once."""
        config = self.config
        if config.errors is None:
            curves, ablation = config.curves, config.ablation
            return {"honest": max(curves.trials if curves else 1, ablation.trials if ablation else 1)}
        trials = dict.fromkeys(config.errors.protocols, config.errors.trials)
        if "oracle" in trials and config.errors.oracle_trials is not None:
            trials["oracle"] = config.errors.oracle_trials
        return trials

    def _rows(self) -> int | None:
        return self.config.errors.rows if self.config.errors is not None else None

"""The runs that an experiment asks for, in the order in which they depend on each other."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from typing import Any

from experiments.ablation import VARIANTS
from experiments.config import Config, Subject, Times, digest
from experiments.results import Results

__all__ = ["Plan", "Task", "key_of"]

Task = dict[str, Any]
"""What a run depends on."""

_FEW = 5000  # rows: runs with more come last, a trial at a time
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
                yield self._with_choices(self._times(-1, _FEW), results)
                yield self._theory()
                yield self._with_choices(self._ablation(), results)
                yield self._with_choices(self._curves(), results)
                yield self._with_choices(self._error_trials(), results)
                yield self._with_choices(self._times(_FEW, math.inf), results)
                yield self._synthetic_times()

    def _tuning(self, protocol: str) -> Iterator[Task]:
        tuning = self.config.tuning
        owners = {"shared": self.config.solvers[tuning.by]} if self.config.sets else {}
        if protocol == "oracle":  # only it can distinguish between settings that look alike on the labelled rows
            owners |= {name: subject for name, subject in self.config.solvers.items() if subject.tuned == "own"}
        trials = range(1 if tuning.once else self._trials()[protocol])
        for name, trial, (owner, subject) in product(self.config.sets, trials, owners.items()):
            for size in subject.tuned_at if owner != "shared" and subject.tuned_at else (tuning.rows,):
                task = self._task("tuning", name, trial, protocol=protocol, rows=self._rows(), solver=owner)
                yield task | {"tuned_at": size, "subject": subject.identity(), "grid": asdict(tuning)}

    def _with_choices(self, tasks: Iterator[Task], results: Results) -> Iterator[Task]:
        """The tasks with the C, width and step chosen for them; without a choice, a task is left out."""
        choices: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
        for row in results.rows():
            if row["part"] == "tuning" and row["status"] == "ok":
                key = row["set"], row["protocol"], row["trial"], row["solver"]
                choices.setdefault(key, {})[row["n"]] = {name: row[name] for name in ("C", "gamma", "step")}
        for task in tasks:
            trial = task["set"], task["protocol"], 0 if self.config.tuning.once else task["trial"]
            subject = self.config.solvers.get(task["solver"])
            owner = task["solver"] if subject is None or subject.tuned in ("own", "shared") else subject.tuned
            by_size = choices.get((*trial, owner)) or choices.get((*trial, "shared"))
            if by_size:
                n_rows = task["rows"] if task["rows"] is not None and task["rows"] > 0 else math.inf
                yield task | by_size[max((n for n in by_size if n <= n_rows), default=min(by_size))]

    def _errors(self, protocol: str) -> Iterator[Task]:
        errors = self.config.errors
        if errors is None:
            return
        for name, trial in product(self.config.sets, range(self._trials()[protocol])):
            for solver, subject in self._subjects("errors"):
                if protocol in subject.protocols and (subject.trials is None or trial < subject.trials):
                    task = self._task("errors", name, trial, solver=solver, protocol=protocol, rows=self._rows())
                    yield task | {"subject": subject.identity(), "test_rows": errors.test_rows}

    def _times(self, above: float, up_to: float) -> Iterator[Task]:
        """Runs with more rows than one number and at most as many as the other; all rows are more than any number."""
        times = self.config.times
        if times is None:
            return
        sizes = [size for size in times.sizes if above < (size if size > 0 else math.inf) <= up_to]
        n_trials = max((subject.repeats for _, subject in self._subjects("times")), default=0)
        for trial, size, name, (solver, subject) in product(
            range(n_trials), sizes, self.config.sets, self._subjects("times")
        ):
            if trial < subject.repeats:
                yield self._run(name, trial, solver, subject, size)

    def _error_trials(self) -> Iterator[Task]:
        """The trials of `error_rows` beyond those that times have."""
        times = self.config.times
        if times is None:
            return
        for trial, name, (solver, subject) in product(
            range(times.error_trials), self.config.sets, self._subjects("times")
        ):
            is_new = trial >= subject.repeats or times.error_rows not in times.sizes
            if is_new and (subject.trials is None or trial < subject.trials):
                yield self._run(name, trial, solver, subject, times.error_rows)

    def _run(self, name: str, trial: int, solver: str, subject: Subject, size: int) -> Task:
        assert self.config.times is not None
        task = self._task("times", name, trial, solver=solver, rows=size, test_rows=self.config.times.test_rows)
        return task | {"subject": subject.identity(), "protocol": self._first_protocol()}

    def _synthetic_times(self) -> Iterator[Task]:
        shapes = self.config.times.synthetic if self.config.times else {}
        for name, sizes in shapes.items():
            for size, (solver, subject) in product(sizes, self._subjects("synthetic")):
                task = self._task("times", name, 0, solver=solver, rows=size, test_rows=Times.test_rows)
                yield task | {"subject": subject.identity(), "synthetic": True} | _SYNTHETIC

    def _theory(self) -> Iterator[Task]:
        theory = self.config.theory
        if theory is None:
            return
        for name, iterations in product(theory.settings or {"": {}}, theory.iterations):
            setting = theory.settings.get(name, {})
            task = self._task("theory", "", 0, solver=name or "tsg, as printed", max_iter=iterations, rows=None)
            yield task | {"seeds": theory.seeds, "setting": setting}

    def _ablation(self) -> Iterator[Task]:
        ablation = self.config.ablation
        if ablation is None:
            return
        rows = ablation.rows or self._rows()
        for trial, name, variant in product(range(ablation.trials), ablation.sets or self.config.sets, VARIANTS):
            task = self._task("ablation", name, trial, solver=variant, rows=rows, test_rows=_TEST_ROWS)
            yield task | {"protocol": self._first_protocol(), "max_iter": ablation.max_iter}

    def _curves(self) -> Iterator[Task]:
        curves = self.config.curves
        if curves is None:
            return
        subjects, rows = self._subjects("curves"), curves.rows or self._rows()
        for trial, name, (solver, subject) in product(range(curves.trials), self.config.sets, subjects):
            for iterations in curves.iterations:
                task = self._task("curves", name, trial, solver=solver, rows=rows, max_iter=iterations)
                task |= {"subject": subject.identity(), "protocol": self._first_protocol()}
                yield task | {"test_rows": _TEST_ROWS}

    def _task(self, part: str, name: str, trial: int, **more: Any) -> Task:
        config = self.config
        folds = config.errors.folds if config.errors is not None else 0  # 0: as many rows as are asked for
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
            return {config.tuning.protocol: max(curves.trials if curves else 1, ablation.trials if ablation else 1)}
        trials = dict.fromkeys(config.errors.protocols, config.errors.trials)
        if "oracle" in trials and config.errors.oracle_trials is not None:
            trials["oracle"] = config.errors.oracle_trials
        return trials

    def _rows(self) -> int | None:
        return self.config.errors.rows if self.config.errors is not None else None

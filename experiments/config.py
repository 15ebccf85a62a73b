"""An experiment's protocol, as a TOML file describes it, and the runs that it asks for."""

import hashlib
import json
import math
import tomllib
import types
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from experiments.ablation import VARIANTS
from experiments.datasets import KNOWN
from experiments.results import Results
from s3vm.solvers import SOLVERS
from s3vm.sources.readers.errors import shortened

__all__ = ["Config", "Subject", "key_of", "read"]

Task = dict[str, Any]

PROTOCOLS = ("honest", "oracle")
_COUNT = (1, 1_000_000_000)
_POWER = (-307, 307)  # of ten, as a number can hold
_RANGES: dict[str, tuple[float, float]] = {  # of numbers, and of each of several; -1 in `sizes` is all rows
    "n_labelled": _COUNT,
    "processes": (1, 1000),
    "seconds": (0.001, 1e7),
    "megabytes": (1, 1e9),
    "weight": (0, 1e9),
    "folds": (2, _COUNT[1]),
    **dict.fromkeys(("trials", "oracle_trials", "repeats", "seeds", "max_iter", "iterations"), _COUNT),
    **dict.fromkeys(("sizes", "rows", "test_rows"), _COUNT),
    **dict.fromkeys(("log_c", "log_gamma", "log_eta"), _POWER),
}


@dataclass(frozen=True)
class Subject:
    """What is compared: a solver with its settings.

    Parameters
    ----------
    kind : str
        A solver's name, or ``"svm"``, which ignores the unlabelled rows.
    printed : bool
        Whether to take it as printed, with the paper's losses, features and weight.
    settings : dict
        Of the solver.
    weight : float, "auto" or "paper"
        Of the unlabelled rows.
    trials : int or None
        The most trials of errors that it takes part in; None is all.
    repeats : int
        Trials of times.
    parts : of times, errors and curves, those that it takes part in
    protocols : the protocols under which its errors are judged
    tuned : "shared" or "own"
        Whether the oracle chooses C, width and step for it alone.
    """

    kind: str
    printed: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    weight: float | str = 1.0
    trials: int | None = None
    repeats: int = 1
    parts: tuple[str, ...] = ("times", "errors")
    protocols: tuple[str, ...] = PROTOCOLS
    tuned: str = "shared"

    def described(self) -> dict[str, Any]:
        """What a run of it depends on; that others are asked for changes nothing for those that are done."""
        whole = asdict(self)
        return {name: whole[name] for name in ("kind", "printed", "settings", "weight")}


@dataclass(frozen=True)
class Tuning:
    """The oracle's grid: powers of ten of C, of the width and of 1/step; `by` is who is tuned for all."""

    by: str = "tsg"
    log_c: tuple[int, ...] = (-3, -2, -1, 0, 1, 2, 3)
    log_gamma: tuple[int, ...] = (-3, -2, -1, 0, 1, 2, 3)
    log_eta: tuple[int, ...] = (0, 1, 2, 3)
    rows: int = 2000
    test_rows: int = 4000


@dataclass(frozen=True)
class Times:
    """Running time against training size; -1 is every row but those to test on. `seconds` is a limit of its own."""

    sizes: tuple[int, ...] = ()
    seconds: float | None = None
    test_rows: int = 4000
    synthetic: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Errors:
    """Test error over trials: labels drawn, one of `folds` of the other rows to train on, the others to test on."""

    protocols: tuple[str, ...] = ("honest",)
    trials: int = 10
    oracle_trials: int | None = None
    folds: int = 5
    rows: int | None = None
    test_rows: int = 20_000


@dataclass(frozen=True)
class Curves:
    """Test error against iterations."""

    iterations: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512, 1024)
    trials: int = 3


@dataclass(frozen=True)
class Ablation:
    sets: tuple[str, ...] = ()
    trials: int = 3
    max_iter: int = 256


@dataclass(frozen=True)
class Theory:
    """The bounds of Theorems 1 and 2; see `experiments.theory`."""

    iterations: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    seeds: int = 20


@dataclass(frozen=True)
class Config:
    """A whole experiment; a part that is None is left out.

    Parameters
    ----------
    seconds, megabytes : float
        Limits of one fit: of the processor's seconds, and of memory above what the process had before.
    processes : int
        How many runs at a time, one thread each.
    """

    title: str
    sets: tuple[str, ...]
    solvers: dict[str, Subject]
    n_labelled: int = 200
    seconds: float = 60.0
    megabytes: float = 4000.0
    processes: int = 2
    tuning: Tuning = field(default_factory=Tuning)
    times: Times | None = None
    errors: Errors | None = None
    curves: Curves | None = None
    ablation: Ablation | None = None
    theory: Theory | None = None
    synthetic: bool = False
    notes: str = ""

    @property
    def digest(self) -> str:
        return _digest(asdict(self))

    def limit(self, part: str) -> float:
        """The seconds that a fit of that part may take."""
        own = self.times.seconds if self.times is not None and part == "times" else None
        return self.seconds if own is None else own

    def stages(self, results: Results) -> Iterator[Iterator[Task]]:
        """The runs in the order in which they depend on each other; a stage is to be done before the next is asked for.

        Protocol by protocol, first the choices of C and width, then the runs that are made with them; with the first
        protocol come times, theory, ablation and curves, too.
        """
        for protocol in self._trials():
            yield self._tuned(protocol)
            yield self._settled(self._judged(protocol), results)
            if protocol == self._usual():
                yield self._theorems()
                yield self._settled(self._varied(), results)
                yield self._settled(self._timed(), results)
                yield self._made()
                yield self._settled(self._followed(), results)

    def _tuned(self, protocol: str) -> Iterator[Task]:
        owners = [one for one, subject in self._in("errors") if subject.tuned == "own"]
        for name in self.sets:
            for trial in range(self._trials()[protocol]):
                asked = self._task("tuning", name, trial, protocol=protocol, rows=self._rows())
                # Only the oracle can tell settings apart that labelled rows cannot.
                for owner in ["shared", *(owners if protocol == "oracle" else [])]:
                    subject = self.solvers[self.tuning.by if owner == "shared" else owner]
                    yield asked | {"solver": owner, "subject": subject.described(), "grid": asdict(self.tuning)}

    def _settled(self, tasks: Iterator[Task], results: Results) -> Iterator[Task]:
        """The tasks with C, width and step as they were chosen; those for which nothing was chosen are left out."""
        chosen = {
            (row["set"], row["protocol"], row["trial"], row["solver"]): {
                key: row[key] for key in ("C", "gamma", "step")
            }
            for row in results.rows()
            if row["part"] == "tuning" and row["status"] == "ok"
        }
        for task in tasks:
            where = task["set"], task["protocol"], task["trial"]
            setting = chosen.get((*where, task["solver"])) or chosen.get((*where, "shared"))
            if setting is not None:
                yield task | setting

    def _judged(self, protocol: str) -> Iterator[Task]:
        if self.errors is None:
            return
        for name, trial in product(self.sets, range(self._trials()[protocol])):
            for solver, subject in self._in("errors"):
                few = subject.trials is not None and trial >= subject.trials
                if not few and protocol in subject.protocols:
                    asked = self._task("errors", name, trial, solver=solver, protocol=protocol, rows=self._rows())
                    yield asked | {"subject": subject.described(), "test_rows": self.errors.test_rows}

    def _timed(self) -> Iterator[Task]:
        if self.times is None:
            return
        for size, name, (solver, subject) in product(self.times.sizes, self.sets, self._in("times")):
            for trial in range(subject.repeats):
                asked = self._task("times", name, trial, solver=solver, rows=size, test_rows=self.times.test_rows)
                yield asked | {"subject": subject.described(), "protocol": self._usual()}

    def _made(self) -> Iterator[Task]:
        """Times on made rows, on which nothing can be tuned: the median width, and a usual C."""
        for name, sizes in self.times.synthetic.items() if self.times else ():
            for size, (solver, subject) in product(sizes, self._in("times")):
                asked = self._task("times", name, 0, solver=solver, rows=size, test_rows=Times.test_rows)
                usual = {"C": 10.0, "gamma": None, "step": None}
                yield asked | {"subject": subject.described(), "synthetic": True} | usual

    def _theorems(self) -> Iterator[Task]:
        for iterations in self.theory.iterations if self.theory else ():
            asked = self._task("theory", "", 0, solver="tsg, as printed", max_iter=iterations, rows=None)
            yield asked | {"seeds": self.theory.seeds if self.theory else 0}

    def _varied(self) -> Iterator[Task]:
        if self.ablation is None:
            return
        for name, trial, solver in product(self.ablation.sets or self.sets, range(self.ablation.trials), VARIANTS):
            asked = self._task("ablation", name, trial, solver=solver, rows=self._rows(), test_rows=4000)
            yield asked | {"protocol": self._usual(), "max_iter": self.ablation.max_iter}

    def _followed(self) -> Iterator[Task]:
        if self.curves is None:
            return
        for name, trial, (solver, subject) in product(self.sets, range(self.curves.trials), self._in("curves")):
            for iterations in self.curves.iterations:
                asked = self._task("curves", name, trial, solver=solver, rows=self._rows(), max_iter=iterations)
                yield asked | {"subject": subject.described(), "protocol": self._usual(), "test_rows": 4000}

    def _task(self, part: str, name: str, trial: int, **more: Any) -> Task:
        folds = self.errors.folds if self.errors is not None else Errors.folds
        made = {"n_labelled": self.n_labelled, "folds": folds, "synthetic": self.synthetic}
        return {"part": part, "set": name, "trial": trial, "protocol": "", **made, **more}

    def _in(self, part: str) -> list[tuple[str, Subject]]:
        return [(name, subject) for name, subject in self.solvers.items() if part in subject.parts]

    def _usual(self) -> str:
        """The protocol that times, curves and ablation take their settings from."""
        return next(iter(self._trials()))

    def _trials(self) -> dict[str, int]:
        """How many trials each protocol has; there is one choice of settings at least."""
        if self.errors is None:
            return {
                "honest": max(self.curves.trials if self.curves else 1, self.ablation.trials if self.ablation else 1)
            }
        oracle = self.errors.trials if self.errors.oracle_trials is None else self.errors.oracle_trials
        return {name: oracle if name == "oracle" else self.errors.trials for name in self.errors.protocols}

    def _rows(self) -> int | None:
        return self.errors.rows if self.errors is not None else None


def read(path: Any) -> Config:
    """The configuration in a TOML file; a ValueError says what is wrong with it."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a file: give an experiment, a TOML file")
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is not UTF-8: save the file as UTF-8") from None
    except ValueError as problem:  # of Python's own, too, if a number has thousands of digits
        raise ValueError(f"{path.name} is not valid TOML: {problem}") from None
    subjects = given.pop("solvers", {})
    if not isinstance(subjects, dict) or not all(isinstance(one, dict) for one in subjects.values()):
        raise ValueError(f"{path.name}: solvers are tables of settings: [solvers.tsg]")
    solvers = {name: _made(Subject, {"kind": name, **one}, path, name) for name, one in subjects.items()}
    for part, kind in _PARTS.items():
        if part in given:
            given[part] = _made(kind, given[part], path, part)
    config: Config = _made(Config, {"title": path.stem, "sets": [], **given, "solvers": solvers}, path, "the file")
    _check(config, path)
    return config


_PARTS: dict[str, type] = {
    "tuning": Tuning,
    "times": Times,
    "errors": Errors,
    "curves": Curves,
    "ablation": Ablation,
    "theory": Theory,
}


def key_of(task: Task) -> str:
    """What a run is known by: everything that it depends on, and no limit."""
    return _digest(task)


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _made(kind: type, given: Any, path: Path, where: str) -> Any:
    if not isinstance(given, Mapping):
        raise ValueError(f"{path.name}: {where} is {given!r}, where a table of settings is needed")
    known = [one.name for one in fields(kind)]
    strange = [name for name in given if name not in known]
    if strange:
        raise ValueError(f"{path.name}: {where} has {strange[0]!r}, which is not known; there are {', '.join(known)}")
    made = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    hints = get_type_hints(kind)
    for name, value in made.items():
        if not _is_a(value, hints[name]):
            wanted = hints[name].__name__ if isinstance(hints[name], type) else str(hints[name])
            raise ValueError(f"{path.name}: {where} has {name} = {value!r}, where {wanted} is needed")
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, int | float) and not (name == "sizes" and one == -1):
                _check_number(name, one, path, where)
    return kind(**made)


def _check_number(name: str, value: float, path: Path, where: str) -> None:
    """Raises a ValueError if a number is not in the range that its name allows."""
    low, high = _RANGES.get(name, (-math.inf, math.inf))
    if not low <= value <= high:
        shown = shortened(repr(value), 60)
        raise ValueError(f"{path.name}: {where} has {name} = {shown}: give a number from {low:,} to {high:,.0f}")


def _is_a(value: Any, hint: Any) -> bool:
    """Whether a value of a TOML file is what a field is annotated as."""
    kinds = get_args(hint)
    match get_origin(hint) or hint:
        case types.UnionType:
            return any(_is_a(value, one) for one in kinds)
        case origin if origin in (tuple, list):
            return isinstance(value, list | tuple) and all(_is_a(one, kinds[0]) for one in value)
        case origin if origin is dict:
            return isinstance(value, dict) and all(_is_a(one, kinds[1]) for one in value.values())
        case kind if kind is Any:
            return True
        case kind if kind is float:
            return isinstance(value, int | float) and not isinstance(value, bool)
        case kind:
            return type(value) is kind


def _check(config: Config, path: Path) -> None:
    for name, subject in config.solvers.items():
        if subject.kind not in (*SOLVERS, "svm"):
            raise ValueError(
                f"{path.name}: solver {subject.kind!r} is not known: give one of {', '.join(SOLVERS)}, svm"
            )
        if subject.tuned not in ("shared", "own"):
            raise ValueError(f'{path.name}: {name} has tuned = {subject.tuned!r}: give "shared" or "own"')
        for given, known in (("parts", ("times", "errors", "curves")), ("protocols", PROTOCOLS)):
            strange = [one for one in getattr(subject, given) if one not in known]
            if strange:
                raise ValueError(f"{path.name}: {name} has {strange[0]!r} in {given}: give of {', '.join(known)}")
    if config.sets and config.tuning.by not in config.solvers:
        raise ValueError(f"{path.name}: tuning is by {config.tuning.by!r}, which is none of the solvers")
    strange = [one for one in config.errors.protocols if one not in PROTOCOLS] if config.errors else []
    if strange:
        raise ValueError(f"{path.name}: protocol {strange[0]!r} is not known: give {' or '.join(PROTOCOLS)}")
    if config.synthetic or (config.times and config.times.synthetic):
        made = [*(config.sets if config.synthetic else ()), *(config.times.synthetic if config.times else ())]
        for name in made:
            if name not in KNOWN:
                raise ValueError(f"{path.name}: no synthetic rows of {name!r} can be made: give {', '.join(KNOWN)}")
    for name, sizes in config.times.synthetic.items() if config.times else ():
        for size in sizes:
            _check_number("rows", size, path, f"synthetic {name}")
    parts = [part for part in _PARTS if part != "tuning"]
    rows = config.sets or config.theory or (config.times and config.times.synthetic)
    if not rows or all(getattr(config, part) is None for part in parts):
        raise ValueError(f"{path.name} asks for no run: give sets, solvers and a part, one of {', '.join(parts)}")

"""An experiment as a TOML file describes it: its settings, and how they are read and checked."""

import hashlib
import json
import math
import tomllib
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from experiments.datasets import KNOWN
from s3vm._utils.input_checks import shortened
from s3vm.solvers import SOLVERS

__all__ = ["PARTS", "Config", "Errors", "Subject", "Times", "digest", "read"]

PARTS = ("times", "errors", "curves", "synthetic")  # that a solver may take part in
PROTOCOLS = ("honest", "oracle")
_COUNT = (1, 1_000_000_000)
_EXPONENT = (-307, 307)  # of ten, in a float
_RANGES: dict[str, tuple[float, float]] = {  # of numbers and of sequences of them; -1 in `sizes` is all rows
    "n_labeled": _COUNT,
    "draws": (1, 1000),
    "processes": (1, 1000),
    "seconds": (0.001, 1e7),
    "megabytes": (1, 1e9),
    "weight": (0, 1e9),
    "folds": (2, _COUNT[1]),
    **dict.fromkeys(("trials", "oracle_trials", "repeats", "seeds", "max_iter", "iterations", "error_trials"), _COUNT),
    **dict.fromkeys(("sizes", "rows", "test_rows", "tuned_at", "error_rows"), _COUNT),
    **dict.fromkeys(("log_c", "log_gamma", "log_eta"), _EXPONENT),
}


@dataclass(frozen=True)
class Subject:
    """A solver with its settings, as it is compared with others.

    Parameters
    ----------
    kind : str
        A solver's name, ``"auto"``, or ``"svm"``, which ignores the unlabelled rows.
    printed : bool
        Whether to take the solver as printed, with the paper's losses, features and weight.
    settings : dict
        Of the solver.
    weight : float, "auto" or "paper"
        Of the unlabelled rows.
    trials : int or None
        The most trials of errors that it takes part in; None is all.
    repeats : int
        Trials of times.
    parts : tuple of "times", "errors", "curves" and "synthetic"
        Those that it takes part in.
    protocols : tuple of "honest" and "oracle"
        Those under which its errors are measured.
    tuned : "shared", "own" or another solver's name
        Whose C, width and step it has: those chosen for all, for it alone, or for that other one.
    tuned_at : tuple of int
        Training rows at which the oracle chooses for it alone, instead of those of `tuning`. A run takes the choice at
        the largest of these sizes that it reaches.
    backend : "cpu" or "gpu"
        On a GPU, seconds are of the wall clock and megabytes are the device's.
    """

    kind: str
    printed: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    weight: float | str = 1.0
    trials: int | None = None
    repeats: int = 1
    parts: tuple[str, ...] = ("times", "errors", "synthetic")
    protocols: tuple[str, ...] = PROTOCOLS
    tuned: str = "shared"
    tuned_at: tuple[int, ...] = ()
    backend: str = "cpu"

    def identity(self) -> dict[str, Any]:
        """What the result of a run depends on, without how many runs there are."""
        own = {name: getattr(self, name) for name in ("kind", "printed", "settings", "weight")}
        return own if self.backend == "cpu" else own | {"backend": self.backend}


@dataclass(frozen=True)
class Tuning:
    """How C, width and step are chosen.

    Parameters
    ----------
    by : str
        The solver whose choice is shared.
    log_c, log_gamma, log_eta : tuple of int
        The oracle's grid: powers of ten of C, of the width and of 1/step. C is the cost of one labelled row; for
        solvers as printed, it is that of all labelled rows together, as in the paper.
    rows, test_rows : int
        Rows that the oracle trains and tests on.
    protocol : "honest" or "oracle"
        Who chooses where there is no part `errors`, which has protocols of its own.
    once : bool
        Whether the first trial's choice serves all trials.
    draws : int
        Draws of labelled rows over which the oracle averages the error.
    coarse : bool
        Whether the oracle looks at every second power of ten of C and width first, then around the best.
    """

    by: str = "tsg"
    log_c: tuple[int, ...] = (-3, -2, -1, 0, 1, 2, 3)
    log_gamma: tuple[int, ...] = (-3, -2, -1, 0, 1, 2, 3)
    log_eta: tuple[int, ...] = (0, 1, 2, 3)
    rows: int = 2000
    test_rows: int = 4000
    protocol: str = "honest"
    once: bool = False
    draws: int = 1
    coarse: bool = False


@dataclass(frozen=True)
class Times:
    """Running time against training size; -1 is every row but the test rows. `seconds` is a limit of its own.

    With `error_rows` training rows there are `error_trials`, for errors.
    """

    sizes: tuple[int, ...] = ()
    error_rows: int = 0
    error_trials: int = 0
    seconds: float | None = None
    test_rows: int = 4000
    synthetic: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Errors:
    """Test error over trials: labels are drawn, one of `folds` of the other rows is trained on, the rest tested on."""

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
    rows: int | None = None


@dataclass(frozen=True)
class Ablation:
    """Test error of the variants of `experiments.ablation`."""

    sets: tuple[str, ...] = ()
    trials: int = 3
    max_iter: int = 256
    rows: int | None = None


@dataclass(frozen=True)
class Theory:
    """The bounds of Theorems 1 and 2 in several settings, by name; see `experiments.theory.Setting`."""

    iterations: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    seeds: int = 20
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Config:
    """A whole experiment; a part that is None is left out.

    Parameters
    ----------
    title : str
    sets : tuple of str
    solvers : dict of str to Subject
    n_labeled : int
        Labels shown in each trial.
    seconds, megabytes : float
        Limits of one fit: processor seconds, and memory above what the process had before.
    processes : int
        How many runs at a time, one thread each.
    tuning, times, errors, curves, ablation, theory : the parts
    synthetic : bool
        Whether to use synthetic rows of the sets' shapes.
    notes : str
        Text for the report.
    """

    title: str
    sets: tuple[str, ...]
    solvers: dict[str, Subject]
    n_labeled: int = 200
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
        return digest(asdict(self))

    def limit(self, part: str) -> float:
        """The seconds that a fit of that part may take."""
        own = self.times.seconds if self.times is not None and part == "times" else None
        return self.seconds if own is None else own


_SECTIONS: dict[str, type] = {
    "tuning": Tuning,
    "times": Times,
    "errors": Errors,
    "curves": Curves,
    "ablation": Ablation,
    "theory": Theory,
}


def digest(content: Any) -> str:
    """A hash of what JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def read(path: Any) -> Config:
    """The configuration in a TOML file; a ValueError says what is wrong with it."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a file: give an experiment, a TOML file")
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is not UTF-8: save the file as UTF-8") from None
    except ValueError as problem:  # Python's own, too, if a number has thousands of digits
        raise ValueError(f"{path.name} is not valid TOML: {problem}") from None
    try:
        subjects = given.pop("solvers", {})
        if not isinstance(subjects, dict) or not all(isinstance(settings, dict) for settings in subjects.values()):
            raise ValueError("solvers must be tables of settings: [solvers.tsg]")
        given["solvers"] = {
            name: _build(Subject, {"kind": name, **settings}, name) for name, settings in subjects.items()
        }
        for name, section in _SECTIONS.items():
            if name in given:
                given[name] = _build(section, given[name], name)
        config: Config = _build(Config, {"title": path.stem, "sets": [], **given}, "the file")
        _check(config)
    except ValueError as problem:
        raise ValueError(f"{path.name}: {problem}") from None
    return config


def _build(kind: type, given: Any, where: str) -> Any:
    """A dataclass from a table of a TOML file; `where` names the table in messages."""
    if not isinstance(given, Mapping):
        raise ValueError(f"{where} must be a table of settings, not {given!r}")
    known = [setting.name for setting in fields(kind)]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(f"{where} has an unknown setting {unknown[0]!r}: give one of {', '.join(known)}")
    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    hints = get_type_hints(kind)
    for name, value in settings.items():
        if not _matches(value, hints[name]):
            expected = hints[name].__name__ if isinstance(hints[name], type) else str(hints[name])
            raise ValueError(f"{where} has {name} = {value!r}, which must be {expected}")
        for entry in value if isinstance(value, tuple) else (value,):
            if isinstance(entry, int | float) and not (name == "sizes" and entry == -1):
                _check_number(name, entry, where)
    return kind(**settings)


def _matches(value: Any, hint: Any) -> bool:
    """Whether a value of a TOML file has the annotated type of a field."""
    arguments = get_args(hint)
    match get_origin(hint) or hint:
        case types.UnionType:
            return any(_matches(value, option) for option in arguments)
        case origin if origin in (tuple, list):
            return isinstance(value, list | tuple) and all(_matches(entry, arguments[0]) for entry in value)
        case origin if origin is dict:
            return isinstance(value, dict) and all(_matches(entry, arguments[1]) for entry in value.values())
        case kind if kind is Any:
            return True
        case kind if kind is float:
            return isinstance(value, int | float) and not isinstance(value, bool)
        case kind:
            return type(value) is kind


def _check_number(name: str, value: float, where: str) -> None:
    """Raises a ValueError if a number is outside the range that its name allows."""
    low, high = _RANGES.get(name, (-math.inf, math.inf))
    if not low <= value <= high:
        text = shortened(repr(value), 60)
        raise ValueError(f"{where} has {name} = {text}: give a number from {low:,} to {high:,.0f}")


def _check(config: Config) -> None:
    """Raises a ValueError if settings contradict each other, or ask for nothing."""
    for name, subject in config.solvers.items():
        if subject.kind not in (*SOLVERS, "auto", "svm"):
            raise ValueError(f"unknown solver {subject.kind!r}: give one of {', '.join(SOLVERS)}, auto, svm")
        _check_choices(f"{name} has tuned", [subject.tuned], ("shared", "own", *config.solvers))
        _check_choices(f"{name} has parts", subject.parts, PARTS)
        _check_choices(f"{name} has backend", [subject.backend], ("cpu", "gpu"))
        _check_choices(f"{name} has protocols", subject.protocols, PROTOCOLS)
    if config.sets and config.tuning.by not in config.solvers:
        raise ValueError(f"tuning is by {config.tuning.by!r}, which is not among the solvers")
    _check_choices("tuning has protocol", [config.tuning.protocol], PROTOCOLS)
    if config.errors is not None:
        _check_choices("errors has protocols", config.errors.protocols, PROTOCOLS)
    shapes = config.times.synthetic if config.times is not None else {}
    for name in [*(config.sets if config.synthetic else ()), *shapes]:
        if name not in KNOWN:
            raise ValueError(f"the shape of {name!r} for synthetic rows is unknown: give one of {', '.join(KNOWN)}")
    for name, sizes in shapes.items():
        for size in sizes:
            _check_number("rows", size, f"synthetic {name}")
    parts = [name for name in _SECTIONS if name != "tuning"]
    has_rows = config.sets or config.theory or shapes
    if not has_rows or all(getattr(config, part) is None for part in parts):
        raise ValueError(f"no runs: give sets, solvers and at least one of {', '.join(parts)}")


def _check_choices(what: str, given: Any, allowed: tuple[str, ...]) -> None:
    for choice in given:
        if choice not in allowed:
            raise ValueError(f"{what} = {choice!r}: give {' or '.join(map(repr, allowed))}")

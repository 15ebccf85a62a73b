"""The options that several commands share: what to read, how to train, what to print."""

import csv
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import partial, wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from s3vm import S3VMClassifier, TableEncoder
    from s3vm.cli.console import Screen

# The panels of the help.
_MODEL, _CLASSES, COLUMNS, OUTPUT, _LONG = "Model", "Classes", "Columns and rows", "Output", "Long runs"
OF_CLASSES = ("class_weight", "prior", "threshold", "positive")
LONG_RUNS = ("stream", "checkpoint", "resume", "max_seconds")  # the options that only `fit` has


class UsageError(ValueError):
    """Options that are invalid, or do not go together."""


def option(*names: str, panel: str | None = None, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, **settings)


_model_option, _column_option = partial(option, panel=_MODEL), partial(option, panel=COLUMNS)


def with_options(command: Callable[..., None], without: Sequence[str] = ()) -> Callable[..., None]:
    """The command with an option per field of its `InputFiles`, `Settings` and `Verbosity`, except those `without`."""
    groups = {name: kind for name, kind in command.__annotations__.items() if kind in _GROUPS}
    parameters: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        for entry in fields(groups[parameter.name]) if parameter.name in groups else ():
            default = Parameter.empty if entry.default is MISSING else entry.default
            parameters.append(Parameter(entry.name, Parameter.KEYWORD_ONLY, default=default, annotation=entry.type))
        if parameter.name not in groups:
            parameters.append(parameter)

    @wraps(command)
    def run(**values: Any) -> None:
        for name, kind in groups.items():
            names = [entry.name for entry in fields(kind) if entry.name in values]
            try:
                values[name] = kind(**{entry: values.pop(entry) for entry in names})
            except ValueError as problem:
                raise UsageError(str(problem)) from problem
        command(**values)

    vars(run)["__signature__"] = Signature([entry for entry in parameters if entry.name not in without])
    return run


def names_option(**settings: Any) -> Any:
    """An option that takes names, separated by commas, in quotes if they contain one; it can be repeated."""
    return option(metavar="A,B,…", callback=_split_names, default_factory=list, show_default=False, **settings)


def _split_names(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for line in csv.reader(texts or ()) for name in line if name)


def _completion(module: str, names: str) -> Callable[[str], list[str]]:
    """Completes the names in a mapping of a module, which is imported when it is needed."""
    return lambda incomplete: [
        name for name in ("auto", *getattr(import_module(module), names)) if name.startswith(incomplete)
    ]


_complete_solver, _complete_kernel = _completion("s3vm.solvers", "SOLVERS"), _completion("s3vm.kernels", "KERNELS")


def from_stream(ctx: typer.Context, name: str | None) -> str | None:
    """The file, or a copy of what comes from standard input or a pipe, which can be read again and again."""
    is_stream = name in ("-", "/dev/stdin") or (name and os.path.exists(name) and not os.path.isfile(name))
    if name is None or not is_stream or os.path.isdir(name) or ctx.resilient_parsing:
        return name
    folder = ctx.with_resource(TemporaryDirectory(prefix="s3vm-stdin-"))
    path = os.path.join(folder, f"stdin.{ctx.params.get('file_format') or 'csv'}")
    with open(path, "wb") as copy:
        if name in ("-", "/dev/stdin"):
            copyfileobj(sys.stdin.buffer, copy)
        else:
            with open(name, "rb") as pipe:
                copyfileobj(pipe, copy)
    return path


def from_streams(ctx: typer.Context, names: list[str] | None) -> list[str]:
    return [str(from_stream(ctx, name)) for name in names or ()]


Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="CSV (or .csv.gz), Parquet, JSON lines, SVMlight or NPZ file, or a folder; - is standard input.",
        show_default=False,
        callback=from_stream,
    ),
]
Format = Annotated[
    str | None,
    option(
        "--format",
        metavar="NAME",
        help="Format of standard input and output: csv (the default), jsonl; for input also parquet, svmlight or npz.",
        panel=COLUMNS,
        is_eager=True,
    ),
]
Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Model file written by [bold]s3vm fit[/].", show_default=False)
]
Target = Annotated[
    str | None, option("--target", "-t", metavar="COLUMN", help="Label column; required for CSV and Parquet.")
]
Test = Annotated[str | None, option(metavar="FILE", help="Labelled rows to test on.", callback=from_stream)]
Output = Annotated[
    str,
    option("--output", "-o", metavar="FILE", help="CSV (or .csv.gz), Parquet or .jsonl file; - is standard output."),
]
Drop = Annotated[list[str], names_option(help="Columns to ignore.", panel=COLUMNS)]
Mark = Annotated[
    list[str], names_option(help="Labels that mean unlabelled, such as -1; by default NA, None, ?.", panel=COLUMNS)
]
Solvers = Annotated[
    list[str] | None,
    _model_option(
        "--solver", metavar="NAME", help="Run this s3vm solver, too. Repeatable.", autocompletion=_complete_solver
    ),
]
ZeroBased = Annotated[
    bool | None,
    option(
        "--zero-based/--one-based",
        help="Count columns of SVMlight files from 0 or 1; by default from 0 if a file has a column 0.",
        panel=COLUMNS,
    ),
]
Positive = Annotated[
    str | None,
    option(metavar="CLASS", help="The class that F1, precision, recall and a threshold are about.", panel=_CLASSES),
]
Jobs = Annotated[int, option("--jobs", "-j", metavar="N", help="Number of threads; -1 uses all cores.")]
Report = Annotated[str | None, option(metavar="FILE", help="Also write an HTML report.", panel=OUTPUT)]
Json = Annotated[bool, option("--json", help="Print only JSON to standard output.", panel=OUTPUT)]
Quiet = Annotated[bool, option("--quiet", "-q", help="Print errors only.", panel=OUTPUT)]
Verbose = Annotated[
    bool, option("--verbose", "-v", help="Show losses while training, and tracebacks of errors.", panel=OUTPUT)
]


@dataclass(frozen=True)
class Verbosity:
    """What to print."""

    json: Json = False
    quiet: Quiet = False
    verbose: Verbose = False

    def screen(self) -> "Screen":
        from s3vm.cli.console import Screen

        return Screen(self.json, self.quiet, self.verbose)


@dataclass(frozen=True)
class InputFiles:
    """The files to read, and how."""

    data: Data
    target: Target = None
    file_format: Format = None
    unlabeled: Annotated[
        list[str],
        _column_option(
            metavar="FILE",
            help="Additional unlabelled rows. Repeatable.",
            default_factory=list,
            show_default=False,
            callback=from_streams,
        ),
    ] = field(default_factory=list)
    features: Annotated[
        list[str],
        names_option(
            help="Feature columns, or their number in SVMlight; by default all but the target.", panel=COLUMNS
        ),
    ] = field(default_factory=list)
    drop: Drop = field(default_factory=list)
    mark: Mark = field(default_factory=list)
    number: Annotated[list[str], names_option(help="Columns to treat as numbers.", panel=COLUMNS)] = field(
        default_factory=list
    )
    category: Annotated[list[str], names_option(help="Columns to one-hot encode.", panel=COLUMNS)] = field(
        default_factory=list
    )
    text: Annotated[list[str], names_option(help="Columns of free text.", panel=COLUMNS)] = field(default_factory=list)
    zero_based: ZeroBased = None
    stream: Annotated[
        bool | None,
        _column_option(
            "--stream/--no-stream",
            help="Stream unlabelled rows from disk, or keep them in memory; by default stream large files.",
        ),
    ] = None

    def encoder(self, scale: bool = True) -> "TableEncoder":
        """An unfitted encoder of these columns; those to drop are not even read."""
        from s3vm import TableEncoder

        kinds: dict[str, Any] = {"number": self.number, "category": self.category, "text": self.text}
        return TableEncoder(**kinds, scale="auto" if scale else "none", unlabeled=None)


@dataclass(frozen=True)
class Settings:
    """The user's settings of the model, checked before any file is read; `C` and `gamma` are tuned if None."""

    solver: Annotated[
        str, _model_option(metavar="NAME", help="Training algorithm.", autocompletion=_complete_solver)
    ] = "auto"
    kernel: Annotated[
        str,
        _model_option(metavar="NAME", help="auto, rbf, laplacian, matern or poly.", autocompletion=_complete_kernel),
    ] = "auto"
    C: Annotated[
        float | None,
        _model_option("--C", metavar="NUMBER", help="Cost of errors on labelled rows. Tuned if not given."),
    ] = None
    gamma: Annotated[
        str | None,
        _model_option(metavar="NUMBER", help='Kernel width: a number, "scale" or "median". Tuned if not given.'),
    ] = None
    weight: Annotated[
        str,
        _model_option(
            metavar="NUMBER", help='Weight of the unlabelled rows; 0 ignores them, "auto" uses them only if that helps.'
        ),
    ] = "auto"
    no_scale: Annotated[bool, _model_option("--no-scale", help="Leave numbers on the scale they have.")] = False
    class_weight: Annotated[
        str | None, option(metavar="A=5,B=1", help='Factors on C per class, or "balanced".', panel=_CLASSES)
    ] = None
    prior: Annotated[
        str | None,
        option(metavar="A=0.9,B=0.1", help="Shares of the classes among the unlabelled rows.", panel=_CLASSES),
    ] = None
    threshold: Annotated[
        str | None,
        option(
            metavar="AIM", help="Boundary of two classes: f1, precision=0.9, recall=0.9 or a number.", panel=_CLASSES
        ),
    ] = None
    positive: Positive = None
    checkpoint: Annotated[
        str | None, option(metavar="FILE", help="Save the training state to this file.", panel=_LONG)
    ] = None
    resume: Annotated[bool, option("--resume", help="Resume from the checkpoint, if it exists.", panel=_LONG)] = False
    max_seconds: Annotated[
        float | None, option(metavar="SECONDS", help="Time limit for the training.", panel=_LONG)
    ] = None
    seed: Annotated[int, _model_option(help="The same seed gives the same model.")] = 0
    jobs: Jobs = -1

    def __post_init__(self) -> None:
        from s3vm._utils.settings import above, at_least, check, integer, threads
        from s3vm.kernels import KERNELS
        from s3vm.solvers import SOLVERS

        check("--solver", self.solver, "auto", *SOLVERS)
        check("--kernel", self.kernel, "auto", *KERNELS)
        if self.C is not None:
            check("--C", self.C, above(0))
        if self.gamma is not None:
            check("--gamma", _number(self.gamma), above(0), "scale", "median")
        check("--weight", _number(self.weight), at_least(0), "auto", "paper")
        check("--seed", self.seed, integer(0, 2**32 - 1))
        if self.max_seconds is not None:
            check("--max-seconds", self.max_seconds, above(0))
        check("--jobs", self.jobs, threads)
        if self.resume and self.checkpoint is None:
            raise ValueError("--resume needs --checkpoint FILE")

    def classifier(self, verbose: Any = 0) -> "S3VMClassifier":
        """An unfitted classifier, for labels in which None means unlabelled."""
        from s3vm import S3VMClassifier, S3VMClassifierCV

        common: dict[str, Any] = {
            "solver": self.solver,
            "kernel": self.kernel,
            "unlabeled_weight": _number(self.weight),
            "unlabeled": None,
            "n_jobs": self.jobs,
            "random_state": self.seed,
            "verbose": verbose,
            "max_seconds": self.max_seconds,
        }
        width: Any = "median" if self.gamma is None else _number(self.gamma)
        if self.C is not None and self.gamma is not None:
            return S3VMClassifier(**common, C=self.C, gamma=width)
        candidates: dict[str, Any] = {} if self.C is None else {"Cs": (self.C,)}
        if self.gamma is not None:
            candidates["factors"] = (1.0,)
        return S3VMClassifierCV(**common, **candidates, gamma=width)

    def of_classes(self, classes: Iterable[Any]) -> dict[str, Any]:
        """The settings of the classifier that are about these classes, in order."""
        labels = {str(label): label for label in classes}
        settings: dict[str, Any] = {}
        if self.class_weight is not None:
            weights = self.class_weight
            settings["class_weight"] = (
                weights if weights == "balanced" else _by_class("--class-weight", weights, labels)
            )
        if self.prior is not None:
            shares = _by_class("--prior", self.prior, labels)
            settings["class_prior"] = [shares[label] for label in labels.values()]
        return settings

    def set_threshold(self, clf: "S3VMClassifier") -> None:
        """Moves the boundary of the fitted classifier, if that is wanted."""
        if self.threshold is not None:
            clf.set_threshold(_number(self.threshold), positive=class_named(self.positive, clf.classes_.tolist()))

    @property
    def tuned(self) -> list[str]:
        """The settings that cross-validation chooses."""
        return [name for name in ("C", "gamma") if getattr(self, name) is None]


def class_named(name: str | None, classes: Sequence[Any]) -> Any:
    """The class that is written so; None for None."""
    if name is None:
        return None
    labels = {str(label): label for label in classes}
    if name not in labels:
        raise ValueError(f"--positive {name}: the classes are {', '.join(labels)}")
    return labels[name]


def _by_class(option: str, text: str, labels: Mapping[str, Any]) -> dict[Any, float]:
    """Numbers by class, from text such as ``spam=5,ham=1``, which must name every class."""
    pairs = [entry.rpartition("=") for entry in text.split(",")]
    numbers = {labels.get(name.strip()): _number(value) for name, _, value in pairs}
    if set(numbers) != set(labels.values()) or not all(isinstance(value, float) for value in numbers.values()):
        example = ",".join(f"{name}=1" for name in labels)
        raise ValueError(f"{option} {text}: give a number for every class, such as {example}")
    return numbers


_GROUPS = (InputFiles, Settings, Verbosity)


def _number(text: str) -> Any:
    """The text as a number, if it is one."""
    try:
        return float(text)
    except ValueError:
        return text

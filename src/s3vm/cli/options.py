"""The options of the command line: what to read, how to train, what to print."""

import csv
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import MISSING, dataclass, field
from functools import partial
from importlib import import_module
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

import typer
from typer.models import ParameterInfo

if TYPE_CHECKING:
    from s3vm import S3VMClassifier, TableEncoder
    from s3vm.cli.console import Screen

OF_CLASSES = ("class_weight", "prior", "threshold", "positive")
_OTHER_FORMATS = ".csv .tsv .txt .parquet .pq .json .jsonl .ndjson .svmlight .libsvm .svm .npz .npy .xlsx "
_OTHER_FORMATS += ".gz .bz2 .xz .zip .onnx .pmml .pkl .pickle .joblib .html .htm .pdf .png .svg"
LONG_RUNS = ("stream", "checkpoint", "resume", "max_seconds")  # the options that only `fit` has


class UsageError(ValueError):
    """Options that are invalid, or do not go together."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Options:
    """Options of commands: the subclasses are frozen dataclasses whose defaults are those of the command line."""

    hidden: ClassVar[tuple[str, ...]] = ()  # fields that are not options of this command
    module: ClassVar[str] = ""  # of this room, where its function run_... is; by default named as the command

    def __init_subclass__(cls) -> None:
        for name, info in list(vars(cls).items()):
            if isinstance(info, ParameterInfo):
                default = MISSING if info.default is ... else info.default
                setattr(cls, name, field(default=default, metadata={"option": info}))
        dataclass(frozen=True, kw_only=True)(cls)


def argument(default: Any, metavar: str, text: str, **more: Any) -> Any:
    return typer.Argument(default, metavar=metavar, help=text, show_default=False, **more)


def option(default: Any, metavar: str | None, text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    return typer.Option(default, *names, metavar=metavar, help=text, rich_help_panel=panel, **more)


model_option, _classes = partial(option, panel="Model"), partial(option, panel="Classes")
column_option, output_option = partial(option, panel="Columns and rows"), partial(option, panel="Output")
_long_run = partial(option, panel="Long runs")


def names_option(text: str, panel: str | None = "Columns and rows") -> Any:
    """An option that takes names, separated by commas, in quotes if they contain one; it can be repeated."""
    return option((), "A,B,…", text, panel=panel, callback=_split_names)


def _split_names(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for line in csv.reader(texts or ()) for name in line if name)


def _completion(module: str, names: str) -> Callable[[str], list[str]]:
    """Completes the names in a mapping of a module, which is imported when it is needed."""
    return lambda incomplete: [
        name for name in ("auto", *getattr(import_module(module), names)) if name.startswith(incomplete)
    ]


complete_solver, _complete_kernel = _completion("s3vm.solvers", "SOLVERS"), _completion("s3vm.kernels", "KERNELS")


def from_stream(ctx: typer.Context, name: str | None) -> str | None:
    """The file, or a copy of what comes from standard input or a pipe, which can be read again and again."""
    is_input = name in ("-", "/dev/stdin")
    is_stream = is_input or (name and os.path.exists(name) and not os.path.isfile(name))
    if name is None or not is_stream or os.path.isdir(name) or ctx.resilient_parsing:
        return name
    folder = ctx.with_resource(TemporaryDirectory(prefix="s3vm-stdin-"))
    path = os.path.join(folder, f"stdin.{ctx.params.get('file_format') or 'csv'}")
    with open(path, "wb") as copy, nullcontext(sys.stdin.buffer) if is_input else open(name, "rb") as source:
        copyfileobj(source, copy)
    return path


def _from_streams(ctx: typer.Context, names: list[str] | None) -> list[str]:
    return [str(from_stream(ctx, name)) for name in names or ()]


MODEL = argument(..., "MODEL", "Model file written by [bold]s3vm fit[/].")
DATA = argument(
    ...,
    "DATA",
    "CSV (or .csv.gz), Parquet, JSON lines, SVMlight or NPZ file, or a folder; - is standard input.",
    callback=from_stream,
)
FORMAT = column_option(
    None,
    "NAME",
    "Format of standard input and output: csv (the default), jsonl; for input also parquet, svmlight or npz.",
    "--format",
    is_eager=True,
)
TARGET = option(None, "COLUMN", "Label column; required for CSV and Parquet.", "--target", "-t")
TEST = option(None, "FILE", "Labelled rows to test on.", callback=from_stream)
OUTPUT = option("-", "FILE", "CSV (or .csv.gz), Parquet or .jsonl file; - is standard output.", "--output", "-o")
DROP = names_option("Columns to ignore.")
MARK = names_option("Labels that mean unlabelled, such as -1; by default NA, None, ?.")
ZERO_BASED = column_option(
    None,
    None,
    "Count columns of SVMlight files from 0 or 1; by default from 0 if a file has a column 0.",
    "--zero-based/--one-based",
)
POSITIVE = _classes(None, "CLASS", "The class that F1, precision, recall and a threshold are about.")
JOBS = option(-1, "N", "Number of threads; -1 uses all cores.", "--jobs", "-j")
REPORT = output_option(None, "FILE", "Also write an HTML report.")
JSON = output_option(False, None, "Print only JSON to standard output.", "--json")
QUIET = output_option(False, None, "Print errors only.", "--quiet", "-q")
VERBOSE = output_option(False, None, "Show losses while training, and tracebacks of errors.", "--verbose", "-v")


class Verbosity(Options):
    """What to print."""

    json: bool = JSON
    quiet: bool = QUIET
    verbose: bool = VERBOSE

    def screen(self) -> "Screen":
        from s3vm.cli.console import Screen

        return Screen(self.json, self.quiet, self.verbose)


class InputFiles(Options):
    """The files to read, and how."""

    data: str = DATA
    target: str | None = TARGET
    file_format: str | None = FORMAT
    unlabeled: list[str] = column_option((), "FILE", "Additional unlabelled rows. Repeatable.", callback=_from_streams)
    features: list[str] = names_option("Feature columns, or their number in SVMlight; by default all but the target.")
    drop: list[str] = DROP
    mark: list[str] = MARK
    number: list[str] = names_option("Columns to treat as numbers.")
    category: list[str] = names_option("Columns to one-hot encode.")
    text: list[str] = names_option("Columns of free text.")
    zero_based: bool | None = ZERO_BASED
    stream: bool | None = column_option(
        None,
        None,
        "Stream unlabelled rows from disk, or keep them in memory; by default stream large files.",
        "--stream/--no-stream",
    )
    no_scale: bool = model_option(False, None, "Leave numbers on the scale they have.", "--no-scale")

    def encoder(self) -> "TableEncoder":
        """An unfitted encoder of these columns; those to drop are not even read."""
        from s3vm import TableEncoder

        kinds: dict[str, Any] = {"number": self.number, "category": self.category, "text": self.text}
        return TableEncoder(**kinds, scale="none" if self.no_scale else "auto", unlabeled=None)


class Settings(Options):
    """The user's settings of the model, checked before any file is read; `C` and `gamma` are tuned if None."""

    solver: str = model_option("auto", "NAME", "Training algorithm.", autocompletion=complete_solver)
    kernel: str = model_option("auto", "NAME", "auto, rbf, laplacian, matern or poly.", autocompletion=_complete_kernel)
    C: float | None = model_option(None, "NUMBER", "Cost of errors on labelled rows. Tuned if not given.", "--C")
    gamma: str | None = model_option(None, "NUMBER", 'Kernel width: a number, "scale" or "median". Tuned if not given.')
    weight: str = model_option(
        "auto", "NUMBER", 'Weight of the unlabelled rows; 0 ignores them, "auto" uses them only if that helps.'
    )
    class_weight: str | None = _classes(None, "A=5,B=1", 'Factors on C per class, or "balanced".')
    prior: str | None = _classes(None, "A=0.9,B=0.1", "Shares of the classes among the unlabelled rows.")
    threshold: str | None = _classes(None, "AIM", "Boundary of two classes: f1, precision=0.9, recall=0.9 or a number.")
    positive: str | None = POSITIVE
    checkpoint: str | None = _long_run(None, "FILE", "Save the training state to this file.")
    resume: bool = _long_run(False, None, "Resume from the checkpoint, if it exists.", "--resume")
    max_seconds: float | None = _long_run(None, "SECONDS", "Time limit for the training.")
    seed: int = model_option(0, "NUMBER", "The same seed gives the same model.")
    jobs: int = JOBS

    def __post_init__(self) -> None:
        from s3vm._utils.settings import above, at_least, check, integer, threads
        from s3vm.kernels import KERNELS
        from s3vm.solvers import SOLVERS

        check("--solver", self.solver, "auto", *SOLVERS)
        check("--kernel", self.kernel, "auto", *KERNELS)
        if self.gamma is not None:
            check("--gamma", _number(self.gamma), above(0), "scale", "median")
        check("--weight", _number(self.weight), at_least(0), "auto", "paper")
        check("--seed", self.seed, integer(0, 2**32 - 1))
        for name, value in {"--C": self.C, "--max-seconds": self.max_seconds}.items():
            if value is not None:
                check(name, value, above(0))
        check("--jobs", self.jobs, threads)
        if self.resume and self.checkpoint is None:
            raise ValueError("--resume needs --checkpoint FILE")

    def classifier(self, verbose: Any = 0) -> "S3VMClassifier":
        """An unfitted classifier, for labels in which None means unlabelled."""
        from s3vm import S3VMClassifier, S3VMClassifierCV

        settings: dict[str, Any] = {
            "solver": self.solver,
            "kernel": self.kernel,
            "unlabeled_weight": _number(self.weight),
            "unlabeled": None,
            "n_jobs": self.jobs,
            "random_state": self.seed,
            "verbose": verbose,
            "max_seconds": self.max_seconds,
            "gamma": _number(self.gamma or "median"),
        }
        if self.C is not None and self.gamma is not None:
            return S3VMClassifier(**settings, C=self.C)
        settings |= {} if self.C is None else {"Cs": (self.C,)}
        settings |= {} if self.gamma is None else {"factors": (1.0,)}
        return S3VMClassifierCV(**settings)

    def of_classes(self, classes: Iterable[Any]) -> dict[str, Any]:
        """The settings of the classifier that are about these classes, in order."""
        labels = {str(label): label for label in classes}
        settings: dict[str, Any] = {}
        if self.class_weight == "balanced":
            settings["class_weight"] = "balanced"
        elif self.class_weight is not None:
            settings["class_weight"] = _by_class("--class-weight", self.class_weight, labels)
        if self.prior is not None:
            shares = _by_class("--prior", self.prior, labels)
            settings["class_prior"] = [shares[label] for label in labels.values()]
        return settings

    def set_threshold(self, clf: "S3VMClassifier") -> None:
        """Moves the boundary of the fitted classifier, if that is wanted."""
        if self.threshold is not None:
            clf.set_threshold(_number(self.threshold), positive=positive_class(self.positive, clf.classes_.tolist()))

    @property
    def tuned(self) -> list[str]:
        """The settings that cross-validation chooses."""
        return [name for name in ("C", "gamma") if getattr(self, name) is None]


def check_ending(path: str | None, *endings: str) -> None:
    """Raises a UsageError unless the name of the file, if there is one, has one of these endings."""
    if path is not None and not path.lower().endswith(endings):
        raise UsageError(f"{path}: the name of the file must end in {', '.join(endings)}")


def check_model_name(path: str) -> None:
    """Raises a UsageError if the name of a model file has the ending of another format; it may have none."""
    ending = os.path.splitext(path)[1].lower()
    if ending in _OTHER_FORMATS.split():
        hint = "; s3vm export converts a model to ONNX" if ending == ".onnx" else ""
        raise UsageError(f"{path}: the name of the file must end in .s3vm, not in {ending}{hint}")


def positive_class(name: str | None, classes: Sequence[Any]) -> Any:
    """The class that is written so; by default the last of two, and none of more."""
    labels = {str(label): label for label in classes}
    if name is not None and name not in labels:
        raise ValueError(f"--positive {name}: the classes are {', '.join(labels)}")
    return labels[name] if name is not None else classes[1] if len(classes) == 2 else None


def _by_class(option: str, text: str, labels: Mapping[str, Any]) -> dict[Any, float]:
    """Numbers by class, from text such as ``spam=5,ham=1``, which must name every class."""
    pairs = [entry.rpartition("=") for entry in text.split(",")]
    numbers = {labels.get(name.strip()): _number(value) for name, _, value in pairs}
    if set(numbers) != set(labels.values()) or not all(isinstance(value, float) for value in numbers.values()):
        example = ",".join(f"{name}=1" for name in labels)
        raise ValueError(f"{option} {text}: give a number for every class, such as {example}")
    return numbers


def _number(text: str) -> Any:
    """The text as a number, if it is one."""
    with suppress(ValueError):
        return float(text)
    return text

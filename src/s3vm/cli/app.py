"""The commands and their options, as `s3vm --help` shows them. Each command's work is imported when it runs."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import cleandoc
from io import TextIOWrapper
from pathlib import Path
from threading import current_thread, main_thread
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from s3vm import __version__
from s3vm._utils.machine import with_advice
from s3vm.cli import options
from s3vm.cli.options import InputFiles, Settings, Verbosity, option

_USAGE = 2  # the exit code of invalid options, as of other tools


class PlainFlags:
    """A command whose help has no type beside options that take no value."""

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            param.metavar = "" if getattr(param, "is_flag", False) else param.metavar
        return params


class Command(PlainFlags, TyperCommand):
    """A command; see `PlainFlags`."""


class Commands(PlainFlags, TyperGroup):
    """Prints the user's errors in one line and exits: 1 for invalid data, 2 for invalid options, 130 for Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            _print_error(str(stop) or "interrupted")
            raise typer.Exit(130) from None

    def main(self, args: Any = None, *, standalone_mode: bool = True, **extra: Any) -> Any:  # type: ignore[override]
        for stream in (sys.stdout, sys.stderr):  # what a terminal cannot show should not end a command
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            with _cleaning_up(), with_advice("use fewer rows, or stream them with --stream"):
                code = super().main(args, standalone_mode=False, **extra)
            if sys.stdout is not None:
                sys.stdout.flush()  # a full disk shows here, if not before
        except typer.TyperException as problem:
            context = getattr(problem, "ctx", None)
            hint = f". See {context.command_path} --help" if context else ""
            _print_error(problem.format_message().rstrip(".") + hint)
            code = _USAGE
        except (ImportError, MemoryError, OSError, ValueError) as problem:
            if {"-v", "--verbose"} & set(sys.argv[1:] if args is None else args):
                raise
            _print_error(str(problem) or type(problem).__name__)
            code = _USAGE if isinstance(problem, options.UsageError) else 1
        if standalone_mode:
            sys.exit(code)
        return code


@contextmanager
def _cleaning_up() -> Iterator[None]:
    """Ends the command at SIGTERM or SIGHUP as an error would, so that it leaves no temporary files."""

    def end(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    names = {"SIGTERM", "SIGHUP"} & set(dir(signal)) if current_thread() is main_thread() else ()
    before = {name: signal.signal(getattr(signal, name), end) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def _print_error(message: str) -> None:
    """Prints a one-line error."""
    from s3vm.cli.console import printable

    text = printable(" ".join(message.split()))
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text.assemble(("s3vm: ", "bold red"), text))


app = typer.Typer(
    name="s3vm",
    cls=Commands,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="[bold]Start here:[/]  s3vm demo  ·  s3vm fit data.csv --target label  ·  s3vm fit --help",
)


def _help_text(function: Callable[..., None]) -> str:
    """The docstring, with each paragraph on one line, to be wrapped to the width of the terminal."""
    return "\n\n".join(" ".join(text.split()) for text in cleandoc(function.__doc__ or "").split("\n\n"))


def _command(*examples: str, without: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a command of a function; its help is the docstring followed by the examples.

    Its `InputFiles`, `Settings` and `Verbosity` become one option per field, except those in `without`.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        epilog = "\n\n".join(["[bold]Examples[/]", *[f"$ {line}" for line in examples]])
        return app.command(cls=Command, help=_help_text(function), epilog=epilog)(
            options.with_options(function, without)
        )

    return decorate


def _main(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    """Train classifiers on a few labelled and many unlabelled rows.

    A semi-supervised support vector machine moves the decision boundary into gaps between the unlabelled rows, if
    cross-validation on the labelled rows shows that this helps.
    """
    if version:
        typer.echo(f"s3vm {__version__}")
    elif ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


app.callback(invoke_without_command=True, help=_help_text(_main))(_main)


@_command(
    "s3vm fit mails.csv --target label -o spam.s3vm",
    "s3vm fit few.csv -t label --unlabeled many.parquet --test held.csv --report fit.html",
    "s3vm fit data.npz --mark -1 --C 10 --gamma 0.05 --weight 1",
    "s3vm fit folder/ -t label --checkpoint run.checkpoint --resume --max-seconds 3600",
)
def fit(
    *,
    files: InputFiles,
    output: Annotated[
        str | None, option("--output", "-o", metavar="FILE", help="Model file; by default DATA's name with .s3vm.")
    ] = None,
    test: options.Test = None,
    settings: Settings,
    report: options.Report = None,
    verbosity: Verbosity,
) -> None:
    """Train a model on labelled and unlabelled rows, and save it.

    Rows whose label is empty, NA, None or ? are unlabelled. Features are standardised, and C and gamma are tuned by
    cross-validation on the labelled rows. Ctrl-C stops the training and saves the model so far. Files larger than a
    quarter of the memory are streamed.
    """
    from s3vm.cli.fit import run_fit

    run_fit(verbosity.screen(), files, settings, output, test, report)


@_command(
    "s3vm predict spam.s3vm new.parquet -o out.csv",
    "s3vm predict spam.s3vm new.csv --probabilities --keep id -o out.parquet",
    "s3vm predict spam.s3vm new.csv | head",
)
def predict(
    *,
    model: options.Model,
    data: options.Data,
    output: options.Output = "-",
    file_format: options.Format = None,
    scores: Annotated[bool, option("--scores", help="Add the scores.")] = False,
    probabilities: Annotated[bool, option("--probabilities", "-p", help="Add the probabilities.")] = False,
    keep: Annotated[list[str], options.names_option(help="Columns of DATA to copy to the output.")],
    drop: options.Drop,
    zero_based: options.ZeroBased = None,
    jobs: options.Jobs = -1,
    verbosity: Verbosity,
) -> None:
    """Predict the class of every row of a file of any size.

    Columns are matched by name, in any order; other columns are ignored.
    """
    from s3vm.cli.model import run_predict

    if verbosity.json and output == "-":
        raise options.UsageError("--json needs a file for the predictions: -o out.csv")
    if output == "-" and file_format not in (None, "csv", "jsonl"):
        raise options.UsageError(f"--format {file_format}: standard output is csv or jsonl; give a file, -o FILE")
    run_predict(
        verbosity.screen(),
        model,
        data,
        output,
        file_format or "csv",
        scores,
        probabilities,
        keep,
        drop,
        zero_based,
        jobs,
    )


@_command("s3vm evaluate spam.s3vm held.csv --target label", "s3vm evaluate m.s3vm test.npz --json")
def evaluate(
    *,
    model: options.Model,
    data: options.Data,
    target: options.Target = None,
    file_format: options.Format = None,
    mark: options.Mark,
    zero_based: options.ZeroBased = None,
    positive: options.Positive = None,
    jobs: options.Jobs = -1,
    verbosity: Verbosity,
) -> None:
    """Test a model on labelled rows.

    Rows without a label are skipped.
    """
    from s3vm.cli.model import run_evaluate

    run_evaluate(verbosity.screen(), model, data, target, mark, zero_based, positive, jobs)


@_command("s3vm info spam.s3vm", "s3vm info spam.s3vm --json", without=("quiet", "verbose"))
def info(model: options.Model, verbosity: Verbosity) -> None:
    """Describe a model file."""
    from s3vm.cli.model import run_info

    run_info(verbosity.screen(), model)


@_command(
    "s3vm export spam.s3vm spam.onnx",
    "s3vm export spam.s3vm small.onnx --compress unlabelled.parquet",
    "s3vm export spam.s3vm small.s3vm --compress unlabelled.parquet --tolerance 0.005",
    without=("verbose",),
)
def export(
    *,
    model: options.Model,
    output: Annotated[
        str | None,
        typer.Argument(metavar="OUTPUT", help="An .onnx file, or .s3vm with --compress.", show_default=False),
    ] = None,
    named: Annotated[str | None, option("--output", "-o", metavar="FILE", help="The same as OUTPUT.")] = None,
    compress: Annotated[
        str | None,
        option(
            metavar="FILE",
            help="Make the model smaller, using rows like those to predict.",
            callback=options.from_stream,
        ),
    ] = None,
    tolerance: Annotated[float, option(help="Fraction of rows whose class may change.")] = 0.01,
    verbosity: Verbosity,
) -> None:
    """Convert a model to ONNX, or to a smaller one that predicts nearly the same."""
    from s3vm.cli.model import run_export

    if (output is None) == (named is None):
        raise options.UsageError("give one file to write: s3vm export MODEL OUTPUT, or -o OUTPUT")
    run_export(verbosity.screen(), model, output or named or "", compress, tolerance)


@_command(
    "s3vm tune mails.csv --target label",
    "s3vm tune mails.csv -t label --kernel matern --json",
    without=("threshold", "positive", *options.LONG_RUNS),
)
def tune(files: InputFiles, settings: Settings, verbosity: Verbosity) -> None:
    """Choose C, gamma and the weight of the unlabelled rows by cross-validation on the labelled ones.

    [bold]s3vm fit[/] makes the same choice; this command shows the candidates.
    """
    from s3vm.cli.fit import run_tune

    run_tune(verbosity.screen(), files, settings)


@_command(
    "s3vm compare mails.csv --target label",
    "s3vm compare few.csv -t label --unlabeled many.parquet --test held.csv --report compare.html",
    without=("solver", *options.OF_CLASSES, *options.LONG_RUNS),
)
def compare(
    *,
    files: InputFiles,
    test: options.Test = None,
    max_rows: Annotated[
        int,
        option(metavar="N", help="Size of the random sample of unlabelled rows; 0 uses all.", panel=options.COLUMNS),
    ] = 5000,
    time_limit: Annotated[
        float, option("--max-seconds", metavar="SECONDS", help="Start no further fit of other methods after this time.")
    ] = 60.0,
    solvers: options.Solvers = None,
    settings: Settings,
    report: options.Report = None,
    verbosity: Verbosity,
) -> None:
    """Compare s3vm with an SVM, a forest, boosting, logistic regression, self-training and label spreading.

    Errors are measured by cross-validation on the labelled rows, or on the rows of --test. It says which to take.
    """
    from s3vm.cli.compare import run_compare

    run_compare(verbosity.screen(), files, settings, test, report, max_rows, time_limit, solvers or ())


@_command(
    "s3vm label mails.csv --target label --classes spam,ham",
    "s3vm label photos.csv -t kind -o labelled.csv --port 8000 --no-browser",
    without=("unlabeled", "quiet", *options.OF_CLASSES, *options.LONG_RUNS),
)
def label(
    *,
    files: InputFiles,
    classes: Annotated[list[str], options.names_option(help="The classes; more can be added on the page.")],
    output: Annotated[
        str | None,
        option("--output", "-o", metavar="FILE", help="CSV file with the labels; by default DATA-labelled.csv."),
    ] = None,
    port: Annotated[int, option(metavar="N", help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    browser: Annotated[bool, option("--browser/--no-browser", help="Open the page.")] = True,
    settings: Settings,
    verbosity: Verbosity,
) -> None:
    """Label the rows of a CSV file in the browser, the most informative ones first.

    Shows one row after the other, takes its label by a key, and saves every label at once; the model is fitted again
    meanwhile, and chooses the rows that come next. Another call with the same output continues.
    """
    if output is None and Path(files.data).name.startswith("stdin."):
        raise options.UsageError("--output FILE is needed for rows of standard input")
    from s3vm.cli.label import run_label

    run_label(verbosity.screen(), files, settings, output, classes, port, browser)


@_command("s3vm suggest spam.s3vm mails.csv -n 20 -o next.csv", "s3vm suggest spam.s3vm mails.csv -t label | head")
def suggest(
    *,
    model: options.Model,
    data: options.Data,
    n: Annotated[int, option("--number", "-n", metavar="N", help="How many rows.")] = 20,
    output: options.Output = "-",
    target: options.Target = None,
    file_format: options.Format = None,
    mark: options.Mark,
    seed: Annotated[int, option(help="The same seed suggests the same rows.")] = 0,
    jobs: options.Jobs = -1,
    verbosity: Verbosity,
) -> None:
    """Choose the rows of a file to label next, the most informative first.

    They are in doubt, near many others, and differ from each other and from labelled rows; every fifth is drawn at
    random. Rows of a CSV file are written with all their columns. Rows are counted from 1.
    """
    from s3vm.cli.suggest import run_suggest

    if verbosity.json and output == "-":
        raise options.UsageError("--json needs a file for the rows: -o next.csv")
    run_suggest(verbosity.screen(), model, data, n, output, target, mark, seed, jobs, file_format or "csv")


@_command("s3vm demo", "s3vm demo --picture demo.png", without=("verbose",))
def demo(
    *,
    picture: Annotated[
        str | None, option("--picture", "-o", metavar="FILE", help="Also draw a picture.", panel=options.OUTPUT)
    ] = None,
    jobs: options.Jobs = -1,
    verbosity: Verbosity,
) -> None:
    """Try it on handwritten digits with a handful of labels. Takes half a minute."""
    from s3vm.cli.demo import run_demo

    run_demo(verbosity.screen(), jobs, picture)

"""The commands and their options: what `s3vm --help` shows. The work is done elsewhere, and imported when needed."""

import sys
from collections.abc import Callable
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from s3vm import __version__

__all__ = ["app"]


class Commands(TyperGroup):
    """Errors of the user's in one line: exit code 1 for wrong data or arguments, 130 for Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            _complain(str(stop) or "interrupted")
            raise typer.Exit(130) from None

    def main(self, args: Any = None, *, standalone_mode: bool = True, **extra: Any) -> Any:  # type: ignore[override]
        try:
            code = super().main(args, standalone_mode=False, **extra)
            if sys.stdout is not None:
                sys.stdout.flush()  # a full disk shows here, or not before the very end
        except typer.TyperException as problem:
            asked = getattr(problem, "ctx", None)
            code = _complain(problem.format_message() + (f" See {asked.command_path} --help" if asked else ""))
        except (ImportError, MemoryError, OSError, ValueError) as problem:
            if {"-v", "--verbose"} & set(sys.argv[1:] if args is None else args):
                raise
            little = "there is not enough memory: give fewer rows, or read them with --stream"
            code = _complain(str(problem) or (little if isinstance(problem, MemoryError) else type(problem).__name__))
        if standalone_mode:
            sys.exit(code)
        return code


def _complain(problem: str) -> int:
    from s3vm.cli.console import printable

    text = printable(" ".join(problem.split()))
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text.assemble(("s3vm: ", "bold red"), text))
    return 1


app = typer.Typer(
    name="s3vm",
    cls=Commands,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="[bold]Start here:[/]  s3vm demo  ·  s3vm fit data.csv --target label  ·  s3vm fit --help",
)


@app.callback(invoke_without_command=True)
def s3vm(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    """Learn from a few labelled rows and very many unlabelled ones.

    A semi-supervised support vector machine: the boundary is moved into gaps between the unlabelled rows, if
    cross-validation on the labelled ones says that this helps.
    """
    if version:
        typer.echo(f"s3vm {__version__}")
    elif ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def _names(value: str | None) -> tuple[str, ...]:
    return tuple(name for name in (value or "").split(",") if name)


def _solvers(incomplete: str) -> list[str]:
    from s3vm.solvers import SOLVERS

    return [name for name in SOLVERS if name.startswith(incomplete)]


def _kernels(incomplete: str) -> list[str]:
    from s3vm.kernels import KERNELS

    return [name for name in KERNELS if name.startswith(incomplete)]


_MODEL, _COLUMNS, _OUTPUT, _RUN = "Model", "Columns and rows", "Output", "Long runs"

Data = Annotated[
    str,
    typer.Argument(metavar="DATA", help="csv (or csv.gz), parquet, svmlight or npz, or a folder.", show_default=False),
]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A file that [bold]s3vm fit[/] wrote.", show_default=False)]
Target = Annotated[
    str | None,
    typer.Option("--target", "-t", metavar="COLUMN", help="Column of the labels, unless DATA is svmlight or npz."),
]
Unlabeled = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE", help="More rows, without labels. Repeatable.", rich_help_panel=_COLUMNS),
]
Features = Annotated[
    str | None,
    typer.Option(metavar="A,B,…", help="Columns to learn from; all but the target.", rich_help_panel=_COLUMNS),
]
Drop = Annotated[str | None, typer.Option(metavar="A,B,…", help="Columns to leave out.", rich_help_panel=_COLUMNS)]
Mark = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,…", help="Labels that mean unlabelled, such as -1; else NA, None, ?.", rich_help_panel=_COLUMNS
    ),
]
Test = Annotated[str | None, typer.Option(metavar="FILE", help="Labelled rows to judge by.")]
Report = Annotated[
    str | None, typer.Option(metavar="FILE", help="Also write a report, one HTML file.", rich_help_panel=_OUTPUT)
]
Solver = Annotated[
    str, typer.Option(metavar="NAME", help="How to train.", autocompletion=_solvers, rich_help_panel=_MODEL)
]
Kernel = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="rbf, laplacian, matern or poly.", autocompletion=_kernels, rich_help_panel=_MODEL
    ),
]
Cost = Annotated[
    float | None,
    typer.Option("--C", metavar="NUMBER", help="Cost of a labelled row. Tuned if not given.", rich_help_panel=_MODEL),
]
Gamma = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER", help='Width of the kernel, or "scale", "median". Tuned if not given.', rich_help_panel=_MODEL
    ),
]
Weight = Annotated[
    str,
    typer.Option(
        metavar="NUMBER",
        help='Weight of the unlabelled rows, 0 to ignore them; "auto" uses them only if that helps.',
        rich_help_panel=_MODEL,
    ),
]
Seed = Annotated[int, typer.Option(help="The same seed gives the same model.", rich_help_panel=_MODEL)]
NoScale = Annotated[bool, typer.Option("--no-scale", help="Take the features as they are.", rich_help_panel=_MODEL)]
Jobs = Annotated[int, typer.Option("--jobs", "-j", metavar="N", help="Threads; -1 is all cores.")]
Json = Annotated[bool, typer.Option("--json", help="Only JSON on standard output.", rich_help_panel=_OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only errors.", rich_help_panel=_OUTPUT)]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Losses while training; the whole story of an error.", rich_help_panel=_OUTPUT
    ),
]


def _command(*examples: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a command of a function: its docstring is the help, with examples below."""

    def made(function: Callable[..., None]) -> Callable[..., None]:
        paragraphs = cleandoc(function.__doc__ or "").split("\n\n")
        shown = "\n\n".join(["[bold]Examples[/]", *[f"$ {line}" for line in examples]])
        return app.command(help="\n\n".join(" ".join(text.split()) for text in paragraphs), epilog=shown)(function)

    return made


@_command(
    "s3vm fit mails.csv --target label -o spam.s3vm",
    "s3vm fit few.csv -t label --unlabeled many.parquet --test held.csv --report fit.html",
    "s3vm fit data.npz --mark -1 --C 10 --gamma 0.05 --weight 1",
    "s3vm fit folder/ -t label --checkpoint run.checkpoint --resume --max-seconds 3600",
)
def fit(
    data: Data,
    target: Target = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Model file; by default DATA's name with .s3vm."),
    ] = None,
    test: Test = None,
    unlabeled: Unlabeled = None,
    features: Features = None,
    drop: Drop = None,
    mark: Mark = None,
    solver: Solver = "tsg",
    kernel: Kernel = "rbf",
    C: Cost = None,
    gamma: Gamma = None,
    weight: Weight = "auto",
    no_scale: NoScale = False,
    encode: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help="Columns of text to encode as 0 and 1.", rich_help_panel=_COLUMNS),
    ] = None,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream",
            help="Read unlabelled rows again and again, or keep them; by default what memory allows.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="FILE", help="Keep the state of the training here.", rich_help_panel=_RUN)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint, if there is one.", rich_help_panel=_RUN)
    ] = False,
    max_seconds: Annotated[
        float | None, typer.Option(metavar="S", help="Stop training then.", rich_help_panel=_RUN)
    ] = None,
    seed: Seed = 0,
    jobs: Jobs = -1,
    report: Report = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Learn a model from labelled and unlabelled rows, and write it to a file.

    Rows with an empty label, or NA, None, ?, are unlabelled. Features are standardised, C and gamma tuned by
    cross-validation on the labelled rows. Ctrl-C ends the training and keeps the model so far. Rows that are more than
    a quarter of the memory are read in a stream.
    """
    from s3vm.cli import fit as fitting
    from s3vm.cli.console import Screen
    from s3vm.cli.inputs import Files
    from s3vm.cli.settings import Settings

    columns = _names(features), _names(drop), _names(mark), _names(encode)
    files = Files(data, target, unlabeled or (), *columns, stream)
    settings = Settings(solver, kernel, C, gamma, weight, seed, jobs, not no_scale, max_seconds, checkpoint, resume)
    output = f"{Path(data).resolve().name.split('.')[0]}.s3vm" if output is None else output
    fitting.fit(Screen(json, quiet, verbose), files, settings, output, test, report)


@_command(
    "s3vm predict spam.s3vm new.parquet -o out.csv",
    "s3vm predict spam.s3vm new.csv --probabilities --keep id -o out.parquet",
    "s3vm predict spam.s3vm new.csv | head",
)
def predict(
    model: Model,
    data: Data,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="csv (or csv.gz) or parquet; - is standard output.")
    ] = "-",
    scores: Annotated[bool, typer.Option("--scores", help="The scores, too.")] = False,
    probabilities: Annotated[bool, typer.Option("--probabilities", "-p", help="The probabilities, too.")] = False,
    keep: Annotated[str | None, typer.Option(metavar="A,B,…", help="Columns of DATA to hand on.")] = None,
    drop: Drop = None,
    jobs: Jobs = -1,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Predict the class of every row of a file of any size.

    Columns are found by their names, in any order; others are ignored.
    """
    from s3vm.cli import predict as serving
    from s3vm.cli.console import Screen

    if json and output == "-":
        raise ValueError("--json needs a file for the predictions: -o out.csv")
    screen = Screen(json, quiet, verbose)
    serving.predict(screen, model, data, output, scores, probabilities, _names(keep), _names(drop), jobs)


@_command("s3vm evaluate spam.s3vm held.csv --target label", "s3vm evaluate m.s3vm test.npz --json")
def evaluate(
    model: Model,
    data: Data,
    target: Target = None,
    mark: Mark = None,
    jobs: Jobs = -1,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Judge a model by rows whose labels are known.

    Rows without a label are left out.
    """
    from s3vm.cli import predict as serving
    from s3vm.cli.console import Screen

    serving.evaluate(Screen(json, quiet, verbose), model, data, target, _names(mark), jobs)


@_command("s3vm info spam.s3vm", "s3vm info spam.s3vm --json")
def info(model: Model, json: Json = False) -> None:
    """Say what is in a model file."""
    from s3vm.cli import predict as serving
    from s3vm.cli.console import Screen

    serving.info(Screen(json), model)


@_command(
    "s3vm export spam.s3vm spam.onnx",
    "s3vm export spam.s3vm small.onnx --compress unlabelled.parquet",
    "s3vm export spam.s3vm small.s3vm --compress unlabelled.parquet --tolerance 0.005",
)
def export(
    model: Model,
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="An .onnx file, or .s3vm with --compress.")],
    compress: Annotated[
        str | None, typer.Option(metavar="FILE", help="Rows like those to be predicted, to make the model smaller by.")
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Share of rows that may change their class.")] = 0.01,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a model as ONNX, or a smaller one that predicts nearly the same."""
    from s3vm.cli import predict as serving
    from s3vm.cli.console import Screen

    serving.export(Screen(json, quiet), model, output, compress, tolerance)


@_command("s3vm tune mails.csv --target label", "s3vm tune mails.csv -t label --kernel matern --json")
def tune(
    data: Data,
    target: Target = None,
    unlabeled: Unlabeled = None,
    features: Features = None,
    drop: Drop = None,
    mark: Mark = None,
    solver: Solver = "tsg",
    kernel: Kernel = "rbf",
    C: Cost = None,
    gamma: Gamma = None,
    weight: Weight = "auto",
    no_scale: NoScale = False,
    seed: Seed = 0,
    jobs: Jobs = -1,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Choose C, gamma and the weight of the unlabelled rows by cross-validation on the labelled ones.

    [bold]s3vm fit[/] does the same by itself; this shows what was tried.
    """
    from s3vm.cli import fit as fitting
    from s3vm.cli.console import Screen
    from s3vm.cli.inputs import Files
    from s3vm.cli.settings import Settings

    files = Files(data, target, unlabeled or (), _names(features), _names(drop), _names(mark))
    settings = Settings(solver, kernel, C, gamma, weight, seed, jobs, not no_scale)
    fitting.tune(Screen(json, quiet, verbose), files, settings)


@_command(
    "s3vm compare mails.csv --target label",
    "s3vm compare few.csv -t label --unlabeled many.parquet --test held.csv --report compare.html",
)
def compare(
    data: Data,
    target: Target = None,
    test: Test = None,
    unlabeled: Unlabeled = None,
    features: Features = None,
    drop: Drop = None,
    mark: Mark = None,
    max_rows: Annotated[
        int,
        typer.Option(metavar="N", help="Unlabelled rows to use, a random sample; 0 is all.", rich_help_panel=_COLUMNS),
    ] = 5000,
    solver: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Of ours, only this; repeatable.", autocompletion=_solvers, rich_help_panel=_MODEL
        ),
    ] = None,
    kernel: Kernel = "rbf",
    C: Cost = None,
    gamma: Gamma = None,
    weight: Weight = "auto",
    no_scale: NoScale = False,
    seed: Seed = 0,
    jobs: Jobs = -1,
    report: Report = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compare a supervised SVM, self-training, label spreading and our solvers on your data.

    Errors are those of labelled rows left out in turn, or of the rows of --test.
    """
    from s3vm.cli import compare as comparing
    from s3vm.cli.console import Screen
    from s3vm.cli.inputs import Files
    from s3vm.cli.settings import Settings

    files = Files(data, target, unlabeled or (), _names(features), _names(drop), _names(mark))
    settings = Settings("tsg", kernel, C, gamma, weight, seed, jobs, not no_scale)
    comparing.compare(Screen(json, quiet, verbose), files, settings, test, report, max_rows, solver or ())


@_command("s3vm demo")
def demo(jobs: Jobs = -1, json: Json = False, quiet: Quiet = False) -> None:
    """See it work: handwritten digits, of which a few have labels. Half a minute."""
    from s3vm.cli import demo as showing
    from s3vm.cli.console import Screen

    showing.demo(Screen(json, quiet), jobs)

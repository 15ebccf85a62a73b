"""The options and arguments that several commands share."""

from typing import Annotated, Any

import typer

__all__ = [
    "COLUMNS",
    "OUTPUT",
    "Checkpoint",
    "Cost",
    "Data",
    "Drop",
    "Encode",
    "Features",
    "Gamma",
    "Jobs",
    "Json",
    "Kernel",
    "Mark",
    "MaxSeconds",
    "Model",
    "NoScale",
    "Quiet",
    "Report",
    "Resume",
    "Seed",
    "Solver",
    "Solvers",
    "Stream",
    "Target",
    "Test",
    "Unlabeled",
    "Verbose",
    "Weight",
    "option",
]

# The panels of the help.
_MODEL, COLUMNS, OUTPUT, _LONG_RUNS = "Model", "Columns and rows", "Output", "Long runs"


def option(*names: str, panel: str | None = None, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, **settings)


def _complete_solver(incomplete: str) -> list[str]:
    from s3vm.solvers import SOLVERS

    return [name for name in SOLVERS if name.startswith(incomplete)]


def _complete_kernel(incomplete: str) -> list[str]:
    from s3vm.kernels import KERNELS

    return [name for name in KERNELS if name.startswith(incomplete)]


Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="CSV (or .csv.gz), Parquet, SVMlight or NPZ file, or a folder.", show_default=False
    ),
]
Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Model file written by [bold]s3vm fit[/].", show_default=False)
]
Target = Annotated[
    str | None, option("--target", "-t", metavar="COLUMN", help="Label column; required for CSV and Parquet.")
]
Test = Annotated[str | None, option(metavar="FILE", help="Labelled rows to test on.")]
Jobs = Annotated[int, option("--jobs", "-j", metavar="N", help="Number of threads; -1 uses all cores.")]

Unlabeled = Annotated[
    list[str] | None, option(metavar="FILE", help="More rows, without labels. Repeatable.", panel=COLUMNS)
]
Features = Annotated[
    str | None, option(metavar="A,B,…", help="Feature columns; by default all but the target.", panel=COLUMNS)
]
Drop = Annotated[str | None, option(metavar="A,B,…", help="Columns to ignore.", panel=COLUMNS)]
Mark = Annotated[
    str | None,
    option(metavar="A,B,…", help="Labels that mean unlabelled, such as -1; by default NA, None, ?.", panel=COLUMNS),
]
Encode = Annotated[str | None, option(metavar="A,B,…", help="Text columns to one-hot encode.", panel=COLUMNS)]
Stream = Annotated[
    bool | None,
    option(
        "--stream/--no-stream",
        help="Stream unlabelled rows from disk, or keep them in memory; by default stream large files.",
        panel=COLUMNS,
    ),
]

Solver = Annotated[
    str, option(metavar="NAME", help="Training algorithm.", autocompletion=_complete_solver, panel=_MODEL)
]
Solvers = Annotated[
    list[str] | None,
    option(
        metavar="NAME", help="The only s3vm solver to run. Repeatable.", autocompletion=_complete_solver, panel=_MODEL
    ),
]
Kernel = Annotated[
    str,
    option(metavar="NAME", help="rbf, laplacian, matern or poly.", autocompletion=_complete_kernel, panel=_MODEL),
]
Cost = Annotated[
    float | None,
    option("--C", metavar="NUMBER", help="Cost of errors on labelled rows. Tuned if not given.", panel=_MODEL),
]
Gamma = Annotated[
    str | None,
    option(metavar="NUMBER", help='Kernel width, or "scale", "median". Tuned if not given.', panel=_MODEL),
]
Weight = Annotated[
    str,
    option(
        metavar="NUMBER",
        help='Weight of the unlabelled rows; 0 ignores them, "auto" uses them only if that helps.',
        panel=_MODEL,
    ),
]
NoScale = Annotated[bool, option("--no-scale", help="Do not standardise the features.", panel=_MODEL)]
Seed = Annotated[int, option(help="The same seed gives the same model.", panel=_MODEL)]

Checkpoint = Annotated[
    str | None, option(metavar="FILE", help="Save the state of the training here.", panel=_LONG_RUNS)
]
Resume = Annotated[bool, option("--resume", help="Resume from the checkpoint, if it exists.", panel=_LONG_RUNS)]
MaxSeconds = Annotated[float | None, option(metavar="SECONDS", help="Time limit for the training.", panel=_LONG_RUNS)]

Report = Annotated[str | None, option(metavar="FILE", help="Also write an HTML report.", panel=OUTPUT)]
Json = Annotated[bool, option("--json", help="Print only JSON to standard output.", panel=OUTPUT)]
Quiet = Annotated[bool, option("--quiet", "-q", help="Print errors only.", panel=OUTPUT)]
Verbose = Annotated[
    bool, option("--verbose", "-v", help="Show losses while training, and tracebacks of errors.", panel=OUTPUT)
]

"""The commands of the paper's evaluation: `python -m experiments bench|report|page|datasets`."""

from typing import Annotated

import typer

from experiments import cli
from s3vm.cli.app import Commands
from s3vm.cli.console import Screen
from s3vm.cli.options import JSON, QUIET, VERBOSE

app = typer.Typer(
    name="experiments",
    help="The paper's evaluation: every solver on every set, one row per run.",
    cls=Commands,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def datasets(json: bool = JSON) -> None:
    """List data sets: scikit-learn's own, files in the folder that S3VM_DATA names, sets to download."""

    cli.list_datasets(Screen(json))


@app.command()
def bench(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="The experiment, a TOML file.", show_default=False)],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Parquet file; by default CONFIG's name with .parquet."),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option("--processes", "-p", metavar="N", min=1, max=1000, help="Runs at a time; by default CONFIG's."),
    ] = None,
    json: bool = JSON,
    quiet: bool = QUIET,
    verbose: bool = VERBOSE,
) -> None:
    """Run an experiment: solvers on data sets, each run in a process of its own with limits.

    Each run is saved as soon as it is done; the same command resumes an interrupted experiment.
    """
    cli.bench(Screen(json, quiet, verbose), config, output, processes, live=not (json or quiet))


@app.command()
def report(
    results: Annotated[str, typer.Argument(metavar="RESULTS", help="A file that [bold]bench[/] wrote.")],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="HTML file; by default RESULTS's name with .html."),
    ] = None,
    json: bool = JSON,
    quiet: bool = QUIET,
    verbose: bool = VERBOSE,
) -> None:
    """Make a report of an experiment, one HTML file: tables, figures, settings and the machine."""

    cli.report(Screen(json, quiet, verbose), results, output)


@app.command()
def page(
    results: Annotated[
        str, typer.Argument(metavar="RESULTS", help="Rows of experiments/evaluation.toml.", show_default=False)
    ],
    root: Annotated[str, typer.Option("--root", metavar="FOLDER", help="The checkout whose pages are written.")] = ".",
    json: bool = JSON,
    quiet: bool = QUIET,
) -> None:
    """Write docs/evaluation.md, its figures, and what other pages say of the rows."""

    cli.page(Screen(json, quiet), results, root)


if __name__ == "__main__":
    app(prog_name="python -m experiments")

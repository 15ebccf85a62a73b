"""The commands and their options, as `s3vm --help` shows them. Each command's work is imported when it runs."""

import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from importlib import import_module
from inspect import Parameter, Signature, cleandoc
from io import TextIOWrapper
from threading import current_thread, main_thread
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from s3vm import __version__
from s3vm._utils.machine import with_advice
from s3vm.cli.commands import COMMANDS
from s3vm.cli.options import Options, UsageError

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
            message = re.sub(r"(?<![.?])$", ".", problem.format_message())
            _print_error(f"{message} See {context.command_path} --help" if context else message)
            code = _USAGE
        except (ImportError, MemoryError, OSError, ValueError) as problem:
            if {"-v", "--verbose"} & set(sys.argv[1:] if args is None else args):
                raise
            _print_error(str(problem) or type(problem).__name__)
            code = _USAGE if isinstance(problem, UsageError) else 1
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


def _help_texts(kind: Any) -> tuple[str, str]:
    """The docstring, its paragraphs on one line each, to be wrapped to the width of the terminal; and the examples."""
    text, *examples = cleandoc(kind.__doc__).split("\n\n$ ")
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    lines = [f"$ {line}" for line in "".join(examples).split("\n$ ")]
    return "\n\n".join(paragraphs), "\n\n".join(["[bold]Examples[/]", *lines])


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


def _add_command(kind: type[Options]) -> None:
    """Adds the command with these options, whose work is imported when it runs."""
    name = kind.__name__.lower()
    parameters = [
        Parameter(entry.name, Parameter.KEYWORD_ONLY, default=entry.metadata["option"], annotation=entry.type)
        for entry in fields(kind)  # type: ignore[arg-type]
        if entry.name not in kind.hidden
    ]

    def run(**values: Any) -> None:
        try:
            given = kind(**values)
        except ValueError as problem:
            raise UsageError(str(problem)) from problem
        getattr(import_module(f"s3vm.cli.{kind.module or name}"), f"run_{name}")(given)

    vars(run)["__signature__"] = Signature(parameters)
    text, examples = _help_texts(kind)
    app.command(name, cls=Command, help=text, epilog=examples)(run)


app.callback(invoke_without_command=True, help=_help_texts(_main)[0])(_main)
for kind in COMMANDS:
    _add_command(kind)

"""What a person sees, or a machine: progress, tables, warnings, JSON."""

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

__all__ = ["Screen", "bytes_of", "grid", "percent", "printable", "seconds"]


class Told(Protocol):
    """How a bar is told that so much is done, of so much, and what is being done."""

    def __call__(self, done: int, total: int | None = None, what: str | None = None) -> None: ...


class Screen:
    """Results go to standard output, all else to standard error.

    Parameters
    ----------
    as_json : bool
        Only JSON on standard output, and nothing on standard error but errors.
    quiet : bool
        Only errors.
    verbose : bool
        What goes on inside, too.
    """

    def __init__(self, as_json: bool = False, quiet: bool = False, verbose: bool = False) -> None:
        self._json, self._quiet, self.verbose = as_json, quiet, verbose
        self._out, self._err = Console(highlight=False), Console(stderr=True, highlight=False)
        self._warnings: list[str] = []

    @contextmanager
    def progress(self, what: str, unit: str = "rows") -> Iterator[Told]:
        """A bar that vanishes at the end."""
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[count]}"),
            _Clock(),
        )
        hidden = self._json or self._quiet or not self._err.is_terminal
        with Progress(*columns, console=self._err, transient=True, disable=hidden) as bar:
            task = bar.add_task(printable(what), total=None, count="")

            def told(done: int, total: int | None = None, what: str | None = None) -> None:
                count = f"{done:,} of {total:,} {unit}" if total else f"{done:,} {unit}"
                bar.update(task, description=what, completed=done, total=total, count=count)

            yield told

    @contextmanager
    def listening(self) -> Iterator[list[type[Warning]]]:
        """Keeps what the library warns of for the end; yields the kinds of the warnings so far."""
        kinds: list[type[Warning]] = []
        with warnings.catch_warnings():
            warnings.simplefilter("always")

            def keep(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
                kinds.append(category)
                if issubclass(category, UserWarning) or self.verbose:
                    self.warn(str(message))

            warnings.showwarning = keep  # put back by catch_warnings
            yield kinds

    def warn(self, text: str) -> None:
        """Says something at the end that the user should know."""
        if text[1:2].islower():  # a word, and no name such as S3VM_DATA or C
            text = text[0].lower() + text[1:]
        if text not in self._warnings:
            self._warnings.append(text)

    def finish(self, result: Mapping[str, Any], *shown: RenderableType) -> None:
        """The result, for a machine or for a person, and the warnings."""
        if self._json:
            print(json.dumps(_plain({**result, "warnings": self._warnings}), indent=2, allow_nan=False))
            return
        if self._quiet:
            return
        for part in shown:
            self._out.print(part)
        for text in self._warnings:
            self._err.print(Text.assemble(("warning: ", "bold yellow"), printable(text)))


class _Clock(ProgressColumn):
    """How long it will take, or has taken."""

    def render(self, task: Task) -> Text:
        left = task.time_remaining
        return Text(seconds(task.elapsed or 0.0) if left is None else f"{left:.0f} s left", style="dim")


def printable(value: Any) -> Any:
    """Text without signs that steer a terminal: names of classes and columns are as whoever made the file likes."""
    if isinstance(value, str):
        return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in value)
    if isinstance(value, Mapping):
        return {printable(key): printable(entry) for key, entry in value.items()}
    return [printable(entry) for entry in value] if isinstance(value, list | tuple) else value


def grid(facts: Mapping[str, RenderableType | None]) -> Table:
    """Names and what there is to say of each; None is left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, fact in facts.items():
        if fact is not None:
            table.add_row(f"  {name}", fact)
    return table


def percent(share: float) -> str:
    return f"{share:.2%}" if 0 < share < 0.01 else f"{share:.1%}"


def seconds(duration: float) -> str:
    if duration < 100:
        return f"{duration:.1f} s" if duration >= 1 else f"{duration:.2f} s"
    return f"{duration / 60:.1f} min" if duration < 6000 else f"{duration / 3600:.1f} h"


def bytes_of(n_bytes: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} GB"


def _plain(value: Any) -> Any:
    """What JSON can hold: no NumPy, no NaN, and names of classes as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value

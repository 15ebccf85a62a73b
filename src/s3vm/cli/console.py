"""Output for people and for scripts: progress bars, tables, warnings, JSON."""

import json
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from typing import Any

import numpy as np
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from s3vm import __version__
from s3vm._utils import input_checks
from s3vm._utils.progress import Bar

_COPY = re.compile(r"[^\s\"']*s3vm-stdin-\w+[\\/]+stdin\.\w+")  # of `options.from_stream`
_OPTIONS = {  # of parameters that warnings of the library name
    "unlabeled_weight": "--weight",
    "class_prior": "--prior",
    "class_weight": "--class-weight",
    "max_seconds": "--max-seconds",
}


class Screen:
    """Prints results to standard output and everything else to standard error.

    As JSON, the warnings are in the result, and nothing but errors goes to standard error. A quiet screen prints errors
    only; a verbose one also prints losses during training and every kind of warning.
    """

    def __init__(self, as_json: bool = False, quiet: bool = False, verbose: bool = False) -> None:
        self._json, self._quiet, self.verbose = as_json, quiet, verbose
        self._out, self._err = Console(highlight=False), Console(stderr=True, highlight=False)
        self._warnings: list[str] = []

    @contextmanager
    def progress(self, description: str, unit: str = "rows") -> Iterator[Callable[..., None]]:
        """Shows a progress bar, which disappears at the end; yields its `show`."""
        hidden = self._json or self._quiet or not self._err.is_terminal
        with Bar(unit, printable(description), hidden=hidden) as bar:
            Thread(target=_refresh, args=(bar,), daemon=True).start()
            yield bar.show

    @contextmanager
    def collected_warnings(self) -> Iterator[list[warnings.WarningMessage]]:
        """Holds the library's warnings back until the end; yields the list of them."""
        with warnings.catch_warnings(record=True) as recorded:
            warnings.simplefilter("always")
            yield recorded
        for warning in recorded:
            if issubclass(warning.category, UserWarning) or self.verbose:
                text = str(warning.message)
                for parameter, option in _OPTIONS.items():
                    text = text.replace(parameter, option)
                self.warn(text)

    def warn(self, text: str) -> None:
        """Adds a warning, to be printed at the end."""
        if text[1:2].islower():  # an ordinary word, not a name such as S3VM_DATA or C
            text = text[0].lower() + text[1:]
        if text not in self._warnings:
            self._warnings.append(text)

    def warn_of(self, misfits: Any, where: str = "") -> None:
        """Adds a warning per column with values that its plan has no place for."""
        for sentence in misfits.sentences():
            self.warn(where + sentence)

    def finish(
        self, command: str, result: dict[str, Any], summary: Callable[[dict[str, Any]], Iterable[RenderableType]]
    ) -> None:
        """Prints the result of a command as JSON, or its `summary` for people, and the warnings."""
        if self._json:
            result = {"command": command, "s3vm": __version__, **result, "warnings": self._warnings}
            print(_COPY.sub("standard input", json.dumps(_to_json(result), indent=2, allow_nan=False)))
            return
        if not self._quiet:
            for part in summary(printable(result)):
                self._out.print(part)
            for text in self._warnings:
                self._err.print(Text.assemble(("warning: ", "bold yellow"), printable(text)))


def _refresh(bar: Bar) -> None:
    """Keeps the clock of the bar running until it is closed, whatever takes long."""
    while not bar.disable:
        time.sleep(0.5)
        with bar.get_lock():  # or the line could return once it has been closed
            bar.refresh()


def printable(value: Any) -> Any:
    """The value with `input_checks.printable` text."""
    if isinstance(value, str):
        return input_checks.printable(_COPY.sub("standard input", value))
    if isinstance(value, Mapping):
        return {printable(key): printable(entry) for key, entry in value.items()}
    return [printable(entry) for entry in value] if isinstance(value, list | tuple) else value


def grid(facts: Mapping[str, RenderableType | None]) -> Table:
    """Two columns, names and facts; facts that are None or empty are left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, fact in facts.items():
        if fact:
            table.add_row(f"  {name}", fact)
    return table


def seconds(duration: float) -> str:
    if duration < 100:
        return f"{duration:.1f} s" if duration >= 1 else f"{duration:.2f} s"
    return f"{duration / 60:.1f} min" if duration < 6000 else f"{duration / 3600:.1f} h"


def _to_json(value: Any) -> Any:
    """The value in types that JSON has: no NumPy, None for NaN, and text for keys."""
    if isinstance(value, Mapping):
        return {str(key): _to_json(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_to_json(entry) for entry in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value

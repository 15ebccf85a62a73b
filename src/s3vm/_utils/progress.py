"""The progress bar of the command line and of ``verbose=1``, or the function that the user gives instead."""

import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from tqdm import tqdm

Progress = Callable[[int, int, Mapping[str, float]], None]
"""A function that is called after every iteration with the number done, the maximum, and the line of the history."""

_WAITING = "{desc}{elapsed}{bar:0}"  # the bar without length makes tqdm cut the line at the terminal's width
_TOTAL_UNKNOWN = "{desc}{n:,} {unit}, {elapsed}{bar:0}"
_COMPILING = "compiling, once after installation: "
_LONG_COMPILATION = 2.0  # seconds
_TOTAL_KNOWN = "{desc}[{bar}] {n:,} of {total:,}, {remaining} left{postfix}"


class CompileClock:
    """How long this process has been waiting for functions to be compiled, which a bar says once it is long."""

    def __init__(self) -> None:
        self._depth, self._began, self._spent = 0, 0.0, 0.0

    def start(self, *_: Any) -> None:
        if not self._depth:
            self._began = time.monotonic()
        self._depth += 1

    def stop(self, *_: Any) -> None:
        self._depth -= 1
        if not self._depth:
            self._spent += time.monotonic() - self._began

    def is_long(self) -> bool:
        """Whether a function is being compiled, and two seconds have gone into such already."""
        return self._depth > 0 and self._spent + time.monotonic() - self._began > _LONG_COMPILATION


compile_clock = CompileClock()


class NotebookLine:
    """An output of a notebook's cell: whatever is written replaces what was there."""

    def __init__(self) -> None:
        self._display = import_module("IPython.display").display({"text/plain": ""}, raw=True, display_id=True)

    def write(self, text: str) -> None:
        if text.strip():
            self._display.update({"text/plain": text.strip()}, raw=True)

    def flush(self) -> None:
        """Nothing is held back."""


def output() -> Any:
    """Where progress is shown: on standard error, or in a notebook, in a line that is replaced."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return NotebookLine() if getattr(shell, "kernel", None) is not None else sys.stderr


class Bar(tqdm):
    """A line on standard error that is as wide as the terminal at most, and disappears at the end."""

    bar_format: str
    total: int | None
    desc: str
    monitor_interval = 0  # no thread that watches bars that stand still

    def __init__(self, unit: str, title: str = "", hidden: bool = False, file: Any = None) -> None:
        shape = {"ascii": " #", "bar_format": _WAITING, "nrows": 24}  # some terminals do not know their height
        pace = {"mininterval": 0.2, "miniters": 0, "leave": False}
        super().__init__(
            desc=title and f"{title} ", unit=unit, file=file or sys.stderr, disable=hidden, **shape, **pace
        )

    @property
    def format_dict(self) -> dict[str, Any]:
        shown = super().format_dict
        return shown | {"prefix": _COMPILING, "bar_format": _WAITING} if compile_clock.is_long() else shown

    def show(self, done: int, total: int | None = None, title: str | None = None, note: str = "") -> None:
        """Shows how many of `total` are done, which may be unknown; `title` replaces the text in front."""
        if self.disable:
            return
        total = max(done, total) if total else None
        with self.get_lock():  # another thread may refresh the line
            self.bar_format, self.postfix = _TOTAL_KNOWN if total else _TOTAL_UNKNOWN, note
            self.desc = self.desc if title is None else f"{title} "
            if total != self.total:  # a new stage, with its own clock
                self.total, self.n, self.initial, self.last_print_n = total, done, done, done
                self.start_t = self.last_print_t = time.time()
                self.refresh()
            self.update(done - self.n)


class ProgressBar:
    """The bar of a fit, to be called like a `Progress` and closed at the end.

    With ``verbose=0`` it shows nothing; a function is called instead.
    """

    def __init__(self, verbose: int | Progress, unit: str = "iterations") -> None:
        self._verbose, self._unit = verbose, unit
        self._start, self._summary = time.monotonic(), "nothing was done"
        self._bar: Bar | None = None
        self._file: Any = None

    def __call__(self, done: int, total: int | None, record: Mapping[str, float]) -> None:
        """Shows how many of `total` are done, which may be unknown, and the losses in `record`."""
        if callable(self._verbose):
            self._verbose(done, total, record)  # type: ignore[arg-type]
        elif self._verbose > 0:
            seconds, losses = time.monotonic() - self._start, losses_text(record)
            objective = f"objective {record['objective']:.4g}" if "objective" in record else ""
            facts = [f"done after {done:,} {self._unit} in {seconds:.1f} s", objective, losses]
            self._summary = ", ".join(filter(None, facts))
            if self._bar is None:
                self._file = output()
                self._bar = Bar(self._unit, file=self._file)
            self._bar.show(done, total, note=losses)

    def close(self, note: str = "") -> None:
        """Replaces the bar by a summary and `note`."""
        if self._bar is not None:
            self._bar.close()
        if not callable(self._verbose) and self._verbose > 0:
            (self._file or sys.stderr).write(", ".join(filter(None, [self._summary, note])) + "\n")


def losses_text(record: Mapping[str, float]) -> str:
    """The losses in a line of the history."""
    losses = [f"{value:.3g} {name.removesuffix('_loss')}" for name, value in record.items() if name.endswith("_loss")]
    return f"loss {', '.join(losses)}" if losses else ""

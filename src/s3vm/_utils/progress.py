"""The progress bar of ``verbose=1``, or the function that the user gives instead."""

import sys
import time
from collections.abc import Callable, Mapping

from tqdm import tqdm

Progress = Callable[[int, int, Mapping[str, float]], None]
"""A function that is called after every iteration with the number done, the maximum, and the line of the history."""


class _Bar(tqdm):
    """Without the thread that watches bars that stand still."""

    monitor_interval = 0


class ProgressBar:
    """A progress bar on standard error, to be called like a `Progress` and closed at the end.

    With ``verbose=0`` it shows nothing; a function is called instead. `first` is how many units were done before.
    """

    def __init__(self, verbose: int | Progress, unit: str = "iterations", first: int = 0) -> None:
        self._verbose, self._unit, self._first = verbose, unit, first
        self._start, self._summary = time.monotonic(), "nothing was done"
        self._bar: _Bar | None = None

    def __call__(self, done: int, total: int | None, record: Mapping[str, float]) -> None:
        """Shows how many of `total` are done, which may be unknown, and the losses in `record`."""
        if callable(self._verbose):
            self._verbose(done, total, record)  # type: ignore[arg-type]
        elif self._verbose > 0:
            shown = {name: value for name, value in record.items() if name == "objective" or "loss" in name}
            losses = [f"{name.replace('_', ' ')} {value:.4g}" for name, value in shown.items()]
            seconds = time.monotonic() - self._start
            self._summary = "  ".join([f"done after {done:,} {self._unit} in {seconds:.1f} s", *losses])
            self._show(done, total, "  ".join(losses))

    def _show(self, done: int, total: int | None, losses: str) -> None:
        if self._bar is None:
            shape = "[{bar:30}] {n_fmt}/{total_fmt}  {desc}  {remaining} left"
            if total is None:
                shape = f"{{n_fmt}} {self._unit}  {{desc}}"
            style = {"file": sys.stderr, "mininterval": 0.2, "leave": False, "ascii": " #", "bar_format": shape}
            self._bar = _Bar(desc=losses, total=total, initial=self._first, **style)
        self._bar.set_description_str(losses, refresh=False)
        self._bar.update(done - self._bar.n)

    def close(self, note: str = "") -> None:
        """Replaces the bar by a summary and `note`."""
        if self._bar is not None:
            self._bar.close()
        if not callable(self._verbose) and self._verbose > 0:
            sys.stderr.write("  ".join([self._summary, *[note] * bool(note)]) + "\n")

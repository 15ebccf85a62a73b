"""The one loop that drives any solver: history, progress, and what Ctrl-C leaves behind."""

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from threadpoolctl import threadpool_limits

from s3vm._typing import Array
from s3vm.backends import Backend
from s3vm.memory import check_memory
from s3vm.models import winners
from s3vm.problem import Problem
from s3vm.solvers import Solver, State

__all__ = ["Interrupted", "Line", "Progress", "train"]

History = dict[str, Array]

Progress = Callable[[int, int, Mapping[str, float]], None]
"""Told after every iteration how many are done, how many there are at most, and the line of the history."""

_SECONDS_BETWEEN_LINES = 0.2


class Interrupted(UserWarning):
    """Ctrl-C ended the training, and the model so far is kept."""


def train(
    solver: Solver, problem: Problem, backend: Backend, state: State | None = None, verbose: int | Progress = 0
) -> tuple[State, History]:
    """Runs a solver to its end, or to Ctrl-C, which keeps what has been learnt and warns.

    Returns
    -------
    state : the last state
    history : dict of arrays, one entry an iteration
    """
    check_memory(solver, problem, backend)
    records: list[dict[str, float]] = []
    held_out = _HeldOut(problem)
    states: Iterator[State] = solver.run(problem, backend, state)
    total = solver.iterations(problem)
    line = Line(active=not callable(verbose) and verbose > 0)
    show = verbose if callable(verbose) else line.show
    try:
        # The products between sweeps are small: threads of the BLAS would only wait for each other.
        with threadpool_limits(limits=1, user_api="blas"):
            for state in states:
                records.append({"iteration": state.iteration, **state.record})
                held_out.keep(state.labelled_scores())
                show(state.iteration, total, records[-1])
    except KeyboardInterrupt:
        if not records or state is None:
            raise
        warnings.warn(
            f"interrupted after {state.iteration} of {total} iterations; the model so far is kept",
            Interrupted,
            stacklevel=4,
        )
    finally:
        line.close(backend.used())
    if state is None:
        raise ValueError("the solver made no iteration")
    names = dict.fromkeys(name for record in records for name in record)
    history = {name: np.array([record.get(name, np.nan) for record in records]) for name in names}
    return state, history | held_out.curves()


class _HeldOut:
    """Learning curves on labelled rows that columns beside the wanted ones are trained without.

    Only their scores are kept while training; the measures are made at the end, for all iterations together.
    """

    def __init__(self, problem: Problem) -> None:
        n_outputs, n_groups = problem.n_models, problem.n_columns // problem.n_models
        left_out = (problem.costs == 0).reshape(problem.n_labelled, n_groups, n_outputs)[:, :, 0]
        self._rows = np.flatnonzero(left_out[:, 1:].any(axis=1) & ~left_out[:, 0])
        self._groups = left_out[self._rows, :].argmax(axis=1)
        self._shape = (problem.n_labelled, n_groups, n_outputs)
        targets = problem.targets[self._rows, :n_outputs]
        self._codes = winners(targets)
        self._scores: list[Array] = []

    def keep(self, scores: Array | None) -> None:
        if scores is not None and len(self._rows):
            self._scores.append(scores.reshape(self._shape)[self._rows, self._groups])

    def curves(self) -> dict[str, Array]:
        if not self._scores:
            return {}
        scores = np.array(self._scores)
        binary = scores.shape[2] == 1
        predicted = (scores[:, :, 0] > 0).astype(np.intp) if binary else scores.argmax(axis=2)
        wrong = predicted != self._codes
        curves = {"held_out_error": wrong.mean(axis=1)}
        by_class = [wrong[:, self._codes == code].mean(axis=1) for code in np.unique(self._codes)]
        curves["held_out_balanced_error"] = np.mean(by_class, axis=0)
        if binary and len(by_class) == 2:
            positive = self._codes[np.argsort(-scores[:, :, 0], axis=1, kind="stable")]
            precision = positive.cumsum(axis=1) / np.arange(1, len(self._codes) + 1)
            curves["held_out_average_precision"] = (precision * positive).sum(axis=1) / self._codes.sum()
        return curves


class Line:
    """A line on standard error that is written over, at most a few times a second."""

    def __init__(self, active: bool, of: str = "iterations") -> None:
        self._active, self._of = active, of
        self._start = self._last = time.monotonic()
        self._end, self._width = "nothing was done", 0

    def show(self, done: int, total: int, record: Mapping[str, float]) -> None:
        if not self._active:
            return
        shown = {name: value for name, value in record.items() if name == "objective" or "loss" in name}
        losses = "  ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in shown.items())
        now = time.monotonic()
        self._end = f"done after {done} {self._of} in {now - self._start:.1f} s  {losses}"
        if now - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = now
        bar = "#" * (30 * done // total)
        left = (now - self._start) * (total - done) / done
        self._write(f"[{bar:<30}] {done}/{total}  {losses}  {left:.0f} s left")

    def close(self, note: str = "") -> None:
        if self._active:
            self._write("  ".join([self._end, *[note] * bool(note)]))
            sys.stderr.write("\n")

    def _write(self, text: str) -> None:
        """Over what was there."""
        sys.stderr.write(f"\r{text:<{self._width}}")
        sys.stderr.flush()
        self._width = len(text)

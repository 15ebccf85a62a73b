"""The history of a run: a line per iteration, and learning curves on labelled rows that were held out."""

from array import array
from typing import Any

import numpy as np

from s3vm._utils.scores import brier_losses, measures, predicted_codes
from s3vm._utils.settings import is_integer
from s3vm._utils.typing import Array
from s3vm.problem import Problem
from s3vm.solvers import State

History = dict[str, Array]

_MAX_LINES = 1 << 16  # beyond, every second line is dropped


def join_histories(first: History, second: History) -> History:
    """Two histories, one after the other, with NaN for what one of them lacks."""
    missing = [np.full(len(part["iteration"]), np.nan) for part in (first, second)]
    return {
        name: np.concatenate([first.get(name, missing[0]), second.get(name, missing[1])])
        for name in {**first, **second}
    }


def thin_history(history: History) -> History:
    """A history without every second line, repeatedly if it is too long; the last line stays."""
    while (n_lines := len(history["iteration"])) > _MAX_LINES + 1:
        at = np.union1d(np.arange(1, n_lines, 2), n_lines - 1)
        history = {name: values[at] for name, values in history.items()}
    return history


class HeldOutRows:
    """The labelled rows that the columns of cross-validation folds are trained without."""

    def __init__(self, problem: Problem) -> None:
        n_outputs, n_groups = problem.n_models, problem.n_columns // problem.n_models
        left_out = (problem.costs == 0).reshape(problem.n_labeled, n_groups, n_outputs)[:, :, 0]
        self._rows = np.flatnonzero(left_out[:, 1:].any(axis=1) & ~left_out[:, 0])
        self._groups = left_out[self._rows, :].argmax(axis=1)
        self._shape = (problem.n_labeled, n_groups, n_outputs)
        self._codes = predicted_codes(problem.targets[self._rows, :n_outputs])

    def __bool__(self) -> bool:
        return len(self._rows) > 0

    def _scores(self, scores: Array) -> Array:
        """The score of each row by the column trained without it, given those of all labelled rows in all columns."""
        return scores.reshape(self._shape)[self._rows, self._groups]

    def brier(self, scores: Array) -> float:
        """The Brier score, given the scores of all labelled rows in all columns."""
        return float(brier_losses(self._codes, self._scores(scores)).mean())

    def measures(self, scores: Array) -> dict[str, float]:
        """The measures of a line of the history, given the scores of all labelled rows in all columns."""
        return {f"held_out_{name}": value for name, value in measures(self._codes, self._scores(scores)).items()}


class HistoryLog:
    """The lines of the history so far. Memory is bounded: of very many lines, every second one is dropped."""

    def __init__(self, problem: Problem) -> None:
        self._held_out, self._stride = HeldOutRows(problem), 1
        self._columns: dict[str, array[float]] = {}
        self.last: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self.last)

    def add(self, state: State) -> None:
        scores = state.labeled_scores() if self._held_out else None
        measured = {} if scores is None else self._held_out.measures(scores)
        self.last = {"iteration": state.iteration, **state.record, **measured}
        if state.iteration % self._stride == 0:
            self._append(self.last)
        if len(self._columns.get("iteration", ())) > _MAX_LINES:
            self._stride *= 2
            at = [k for k, number in enumerate(self._columns["iteration"]) if number % self._stride == 0]
            self._columns = {name: array("d", [values[k] for k in at]) for name, values in self._columns.items()}

    def history(self) -> History:
        """The history, which ends with the last iteration."""
        if self.last and (not self._columns or self._columns["iteration"][-1] != self.last["iteration"]):
            self._append(self.last)
        columns = {"iteration": np.empty(0)} | self._columns
        return {name: np.array(values, np.intp if name == "iteration" else None) for name, values in columns.items()}

    def to_checkpoint(self) -> dict[str, Any]:
        """What `restore` needs."""
        columns = {name: np.array(values) for name, values in self._columns.items()}
        return {"columns": columns, "stride": self._stride, "last": self.last}

    def restore(self, stored: dict[str, Any]) -> None:
        """Continues the log of a checkpoint; a ValueError if it is invalid."""
        self._columns = columns = {name: array("d", values) for name, values in stored["columns"].items()}
        self._stride, self.last = stored["stride"], stored["last"]
        if not self.last and not columns:  # a run that made no iteration
            return
        if not (
            all(isinstance(name, str) for name in (*columns, *self.last))
            and all(isinstance(value, int | float) for value in self.last.values())
            and len({len(values) for values in columns.values()}) == 1
            and np.isfinite(columns.get("iteration", np.nan)).all()
            and "iteration" in self.last
            and is_integer(self._stride)
        ):
            raise ValueError("the checkpoint's record of the history is invalid")

    def _append(self, line: dict[str, float]) -> None:
        """Appends a line, which may lack columns or have new ones; these are filled up with NaN."""
        n_before = len(self._columns.get("iteration", ()))
        for name in {**self._columns, **line}:
            column = self._columns.setdefault(name, array("d", [np.nan] * n_before))
            column.append(line.get(name, np.nan))

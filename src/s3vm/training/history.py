"""The history of a run: a line per iteration, and learning curves on labelled rows that were held out."""

from array import array
from typing import Any

import numpy as np

from s3vm._utils.scores import brier_losses, predicted_codes
from s3vm._utils.settings import is_integer
from s3vm._utils.typing import Array
from s3vm.problem import Problem
from s3vm.solvers import State

History = dict[str, Array]

_MAX_LINES = 1 << 16  # beyond, every second line is dropped
_SCORES_AT_ONCE = 256  # iterations whose held-out scores are evaluated together


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

    def scores_of(self, scores: Array) -> Array:
        """The score of each row by the column trained without it, given those of all labelled rows in all columns."""
        return scores.reshape(self._shape)[self._rows, self._groups]

    def fits(self, scores: Array) -> bool:
        """Whether `scores_of` may have returned these."""
        return scores.shape == (len(self._rows), self._shape[2]) and scores.dtype.kind == "f"

    def brier(self, scores: Array) -> float:
        """The Brier score, given the scores of all labelled rows in all columns."""
        return float(brier_losses(self._codes, self.scores_of(scores)).mean())

    def curves(self, scores: Array) -> dict[str, Array]:
        """The measures of some iterations, given the scores of the held-out rows in each."""
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


class HistoryLog:
    """The lines of the history so far. Memory is bounded: of very many lines, every second one is dropped."""

    def __init__(self, problem: Problem) -> None:
        self._held_out, self._stride = HeldOutRows(problem), 1
        self._columns: dict[str, array[float]] = {}
        self._waiting: list[tuple[dict[str, float], Array | None]] = []  # lines, whose scores are evaluated together
        self.last: dict[str, float] = {}
        self._last_scores: Array | None = None

    def __bool__(self) -> bool:
        return bool(self.last)

    def add(self, state: State) -> None:
        self.last = {"iteration": state.iteration, **state.record}
        scores = state.labeled_scores() if self._held_out else None
        self._last_scores = None if scores is None else self._held_out.scores_of(scores)
        if state.iteration % self._stride == 0:
            self._waiting.append((self.last, self._last_scores))
        if len(self._waiting) == _SCORES_AT_ONCE:
            self._evaluate()

    def history(self) -> History:
        """The history, which ends with the last iteration."""
        self._evaluate()
        if self.last and (not self._columns or self._columns["iteration"][-1] != self.last["iteration"]):
            self._append([(self.last, self._last_scores)])
        columns = {"iteration": np.empty(0)} | self._columns
        return {name: np.array(values, np.intp if name == "iteration" else None) for name, values in columns.items()}

    def to_checkpoint(self) -> dict[str, Any]:
        """What `restore` needs."""
        self._evaluate()
        columns = {name: np.array(values) for name, values in self._columns.items()}
        return {"columns": columns, "stride": self._stride, "last": self.last, "scores": self._last_scores}

    def restore(self, stored: dict[str, Any]) -> None:
        """Continues the log of a checkpoint; a ValueError if it is invalid."""
        self._columns = columns = {name: array("d", values) for name, values in stored["columns"].items()}
        self._stride, self.last, self._last_scores = stored["stride"], stored["last"], stored["scores"]
        if not self.last and not columns:  # a run that made no iteration
            return
        if not (
            all(isinstance(name, str) for name in (*columns, *self.last))
            and all(isinstance(value, int | float) for value in self.last.values())
            and len({len(values) for values in columns.values()}) == 1
            and np.isfinite(columns.get("iteration", np.nan)).all()
            and "iteration" in self.last
            and is_integer(self._stride)
            and (self._last_scores is None or self._held_out.fits(self._last_scores))
        ):
            raise ValueError("the checkpoint's record of the history is invalid")

    def _evaluate(self) -> None:
        """Adds the lines that are waiting; drops every second line while there are too many."""
        if self._waiting:
            self._append(self._waiting)
            self._waiting = []
        while len(self._columns.get("iteration", ())) > _MAX_LINES:
            self._stride *= 2
            at = [k for k, number in enumerate(self._columns["iteration"]) if number % self._stride == 0]
            self._columns = {name: array("d", [values[k] for k in at]) for name, values in self._columns.items()}

    def _append(self, lines: list[tuple[dict[str, float], Array | None]]) -> None:
        """Appends lines, which may lack columns or have new ones; these are filled up with NaN."""
        names = {name: None for line, _ in lines for name in line}
        more: dict[str, Any] = {name: [line.get(name, np.nan) for line, _ in lines] for name in names}
        scores = [part for _, part in lines if part is not None]
        if scores:
            more |= self._held_out.curves(np.array(scores))
        n_before = len(self._columns.get("iteration", ()))
        for name in {**self._columns, **more}:
            column = self._columns.setdefault(name, array("d", [np.nan] * n_before))
            column.extend(more.get(name, [np.nan] * len(lines)))

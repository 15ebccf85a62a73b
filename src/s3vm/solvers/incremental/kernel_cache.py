"""The rows of a run that resumes from an earlier one, and what is known of them from there."""

from collections import defaultdict, deque
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np

from s3vm._utils.arrays import blocks, row_digests, stack
from s3vm._utils.typing import Array, Rows
from s3vm.kernels import Kernel
from s3vm.problem import Problem
from s3vm.solvers.gram import check_finite
from s3vm.solvers.supervised import supervised_start

_PANEL = 256  # rows of the kernel matrix that are computed together
_ROOM = 1.2  # factor by which the room grows when it is full
_WASTE = 1.25  # factor by which there may be more rows than needed before removed ones are dropped


class _Matrix:
    """The kernel matrix of all rows so far, ``values[:n, :n]``; entries never change, so several users can add rows."""

    def __init__(self, kernel: Kernel, rows: Rows, values: Array | None = None) -> None:
        self._kernel, self._rows, self._lock = kernel, rows, Lock()
        self.values = np.empty((0, 0)) if values is None else values
        self.n = len(self.values)

    def add(self, rows: Rows) -> Array:
        """Adds rows, and returns their numbers."""
        with self._lock:
            before, n = self.n, self.n + rows.shape[0]
            if n == before:
                return np.arange(0)
            values, rows = self.values, stack([self._rows, rows])
            if n > len(values):
                values = np.empty((max(n, int(_ROOM * before)),) * 2)
                values[:before, :before] = self.values[:before, :before]
            for part in blocks(n, _PANEL, first=before):
                new = self._kernel.gram(rows[part], rows)
                check_finite(new)
                values[part, :n], values[:n, part] = new, new.T
            self._rows, self.values, self.n = rows, values, n
            return np.arange(before, n)

    def only(self, numbers: Array) -> "_Matrix":
        """The matrix of these rows alone."""
        return _Matrix(self._kernel, self._rows[numbers], self.values[np.ix_(numbers, numbers)])


@dataclass(frozen=True, eq=False)
class Carryover:
    """What a run leaves to the next one to make it faster. Copies and files omit it, since it can be recomputed.

    The kernel matrix, and the numbers `at` of the run's rows in it; by number, the sum of the kernel over the
    unlabelled rows, and the scores of the supervised solutions without intercept; these solutions, and their labels and
    costs.
    """

    matrix: Any = None
    at: Any = None
    total: Any = None
    scores: Any = None
    dual: Any = None
    intercept: Any = None
    targets: Any = None
    costs: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Carryover, ()

    def compact(self) -> "Carryover":
        """The same without removed rows, if there are many."""
        if self.matrix is None or self.matrix.n <= _WASTE * len(self.at):
            return self
        at, total, scores = np.arange(len(self.at)), self.total[self.at], self.scores[self.at]
        return replace(self, matrix=self.matrix.only(self.at), at=at, total=total, scores=scores)


class KernelCache:
    """The n rows of a problem, then those of an earlier run that have been removed.

    `before` are the rows of the earlier run, the number of labelled ones, and its carryover. `known` is the position of
    each row there, or -1 for a new row; `is_same` says that all are known, in the same order. `at` is the number of
    each row in the kernel matrix `gram`, which may have room for more.
    """

    def __init__(self, problem: Problem, before: tuple[Rows, int, Carryover] | None) -> None:
        rows = self.centers = problem.all_rows() if problem.uses_unlabeled else problem.labeled
        self.n, self.n_labeled = int(rows.shape[0]), problem.n_labeled
        old, self.n_labeled_before, earlier = before or (rows[:0], 0, Carryover())
        labeled = _find(rows[: self.n_labeled], old[: self.n_labeled_before])
        unlabeled = _find(rows[self.n_labeled :], old[self.n_labeled_before :])
        known = np.append(labeled, np.where(unlabeled < 0, -1, unlabeled + self.n_labeled_before))
        gone = np.setdiff1d(np.arange(old.shape[0]), known)
        self.known = np.append(known, gone)
        self.is_same = np.array_equal(self.known, np.arange(self.n))
        self.carryover = self._carry_over(problem, stack([rows, old[gone]]) if len(gone) else rows, earlier.compact())
        self.gram = self.carryover.matrix.values

    def _carry_over(self, problem: Problem, rows: Rows, before: Carryover) -> Carryover:
        """Updates what is known of the earlier rows; new rows have the last numbers."""
        n, n_l, known = self.n, self.n_labeled, self.known
        is_new = (known < 0) | (before.matrix is None)
        matrix = before.matrix or _Matrix(problem.kernel, rows[:0].astype(np.float64))
        new = matrix.add(rows[is_new].astype(np.float64))
        self.at = np.empty(len(known), dtype=np.intp)
        self.at[is_new] = new
        self.at[~is_new] = before.at[known[~is_new]] if before.matrix else new[:0]
        end = int(new[-1]) + 1 if len(new) else len(before.total)
        values, start, of_labeled = matrix.values, end - len(new), self.at[:n_l]

        total, is_unlabeled = np.zeros(end), np.zeros(end)
        is_unlabeled[self.at[n_l:n]] = 1
        if start > 0:
            added = self.at[n_l:n][is_new[n_l:n]]
            removed = self.at[n:][known[n:] >= self.n_labeled_before]
            total[: len(before.total)] = before.total
            total[:start] += values[added, :start].sum(axis=0) - values[removed, :start].sum(axis=0)
        total[start:] = values[start:end, :end] @ is_unlabeled

        same_labeled = before.dual is not None and np.array_equal(known[:n_l], np.arange(self.n_labeled_before))
        same_labeled = same_labeled and np.array_equal(before.targets, problem.targets)
        if same_labeled and np.array_equal(before.costs, problem.costs):
            dual, intercept = before.dual, before.intercept
            scores = np.zeros((end, problem.n_columns))
            scores[: len(before.scores)] = before.scores
            scores[start:] = values[start:end, of_labeled] @ dual
        else:
            gram = values[np.ix_(of_labeled, of_labeled)]
            _, dual, intercept = supervised_start(problem, gram)
            scores = values[of_labeled, :end].T @ dual
        return Carryover(matrix, self.at[:n], total, scores, dual, intercept, problem.targets, problem.costs)


def _find(rows: Rows, among: Rows) -> Array:
    """The position of each row `among` others with the same content; -1 for a row not there, or not as often."""
    places = defaultdict[int, deque[int]](deque)
    for place, content in enumerate(row_digests(among).tolist()):
        places[content].append(place)
    wanted = (places[content] for content in row_digests(rows).tolist())
    return np.array([known.popleft() if known else -1 for known in wanted], dtype=np.intp)

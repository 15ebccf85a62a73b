"""ILS3VM: the solution of CCCP's problem, kept while rows come and leave (Gu, Yuan, Chen and Huang 2018)."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from s3vm._utils.settings import check_whole, number
from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.kernels import Kernel
from s3vm.losses import Hat, Hinge, Ramp
from s3vm.problem import Problem
from s3vm.solvers.balance import means_to_hold
from s3vm.solvers.base import Column, Expansion, Losses, Solver, State, in_step, needs
from s3vm.solvers.cccp import CCCP
from s3vm.solvers.incremental.active_set_path import AWAY, MARGIN, ActiveSetPath, Point, side_of
from s3vm.solvers.incremental.kernel_cache import Carryover, KernelCache

__all__ = ["Incremental"]

_EQUAL = 1e-9  # difference of two objectives that is none


@dataclass(frozen=True)
class Incremental(Solver):
    """The exact solution of CCCP's problem, followed while rows come and leave; see `active_set_path`.

    A run goes on from any earlier one with the same kernel. It knows rows again by what is in them: others come, and
    those it does not find have left. What has left or changed, and labelled rows that come, are moved in together;
    then unlabelled rows come one by one. Without an earlier run all rows come, and f is constant before.

    A path leads to one of many minima, and not always to a good one. So whenever enough rows are new, the problem is
    solved by `CCCP` as well, and the better solution is kept. A column that the unlabelled rows do not matter to is a
    supervised SVM, and is solved as a whole.

    The kernel matrix is kept for the next run: 8 bytes times the square of the number of rows, and up to 2.3 times as
    much when rows have come and left.

    Parameters
    ----------
    block_size : int, default 50
        Unlabelled rows that come in an iteration, one after the other.
    restart : float >= 0, default 0.02
        `CCCP` is tried at the end of a run if more than this share of the problem has changed since it last was: the
        costs of rows that came and left, or are other than they were, as a share of all costs, and half of what the
        mean that is held has changed by. With 0 it is tried in every run; with infinity only if rounding has led the
        path astray, in which case its solution is taken.
    balance : "supervised" or "prior", default "supervised"
        The mean of f over the unlabelled rows that is held, as in `CCCP`.
    done : int, default 0
        The iterations of earlier runs, which `longer` sets.
    """

    losses: ClassVar[Losses] = (Hinge, Ramp)
    keeps_all_rows: ClassVar[bool] = True

    block_size: int = 50
    restart: float = 0.02
    balance: Literal["supervised", "prior"] = "supervised"
    done: int = 0

    def __post_init__(self) -> None:
        check_whole(self, "block_size")
        check_whole(self, "done", least=0)
        if not number(self.restart) >= 0:
            raise ValueError(f"Incremental needs restart >= 0; got restart={self.restart!r}")
        if self.balance not in ("supervised", "prior"):
            raise ValueError(f'Incremental needs balance "supervised" or "prior"; got balance={self.balance!r}')

    def iterations(self, problem: Problem) -> int:
        n_unlabelled = problem.n_rows - problem.n_labelled if problem.uses_unlabelled else 0
        return self.done + 1 + max(1, -(-n_unlabelled // self.block_size))

    def memory(self, problem: Problem, backend: Backend) -> int:
        n_rows = problem.n_rows if problem.uses_unlabelled else problem.n_labelled
        return 8 * n_rows**2 + self._batch().memory(problem, backend)

    def extended(self, problem: Problem, done: int) -> "Incremental":
        return replace(self, done=done)

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        needs(self, problem, (Hinge,), (Ramp, Hat))
        last = _earlier(state, problem.kernel)
        this = _Run(self, problem, last)
        for after in in_step(problem, this.centres, this.along, last, backend.n_threads):
            last = after
            yield after
        if last is None or not any(self._is_due(column) for column in last.columns):
            return
        whole = deque(self._batch().run(problem, backend), maxlen=1).pop()
        assert isinstance(whole, Expansion)

        def better(k: int, before: Column | None) -> Iterator[Column]:
            if before is not None and self._is_due(before):
                yield this.better(k, before, whole.columns[k])

        yield from in_step(problem, this.centres, better, last, backend.n_threads)

    def _batch(self) -> CCCP:
        return CCCP(balance=self.balance)

    def _is_due(self, column: Column) -> bool:
        """Whether CCCP is to be tried: enough has changed, or the path is lost."""
        stale = column.memory.stale
        return bool(stale > self.restart or np.isinf(stale))


class _Memory(NamedTuple):
    """What a column needs to go on: its point, and the labels, boxes and target that the point is the solution for.

    A supervised SVM has no point. `stale` is how much has changed since CCCP was tried, as a share of the problem; it
    is infinite if the path was lost.
    """

    kept: Carryover
    n_labelled: int
    label: Array
    cap: Array
    target: float
    point: Point | None
    stale: float

    def agrees(self, other: "_Memory") -> bool:
        """Whether both are of the same labels, boxes and target."""
        same = np.array_equal(self.label, other.label) and np.array_equal(self.cap, other.cap)
        return same and self.target == other.target and (self.point is None) == (other.point is None)


class _Run:
    """A run, which may go on from an earlier one: n rows of the problem, and those that were there and are gone."""

    def __init__(self, solver: Incremental, problem: Problem, earlier: Expansion | None) -> None:
        before = (earlier.centres, *earlier.columns[0].memory[1::-1]) if earlier is not None else None
        self._ground = ground = KernelCache(problem, before)
        self._problem, self._block_size, self.centres = problem, solver.block_size, ground.centres
        self._n, self._n_l, self._n_all = ground.n, ground.n_labelled, len(ground.known)
        loss, n_u = problem.unlabelled_loss, ground.n - ground.n_labelled
        self._s = loss.s if isinstance(loss, Ramp) else 0.0
        self._cost = problem.unlabelled_cost / n_u if n_u else np.zeros(problem.n_columns)
        self._target = 2 * problem.prior - 1
        if solver.balance == "supervised" and n_u:
            of_unlabelled = ground.kept.scores[ground.at[self._n_l : self._n]]
            self._target = means_to_hold(problem, of_unlabelled + ground.kept.intercept)
        self._share, self._mean = np.zeros(len(ground.kept.total)), ground.kept.total / max(1, n_u)
        self._share[ground.at[self._n_l : self._n]] = 1 / max(1, n_u)

    def along(self, k: int, before: Column | None) -> Iterator[Column]:
        """Column k on its path: first all that has changed, then, in blocks, the unlabelled rows that come."""
        ground, problem, cost, n, n_l = self._ground, self._problem, self._cost[k], self._n, self._n_l
        label, cap = np.zeros(self._n_all), np.zeros(self._n_all)
        label[:n_l], cap[:n_l] = problem.targets[:, k], problem.costs[:, k]
        memory = _Memory(ground.kept, n_l, label, cap, float(self._target[k]), None, 0.0)
        if cost == 0:
            if before is None or not ground.is_same or not memory.agrees(before.memory):
                yield self._supervised(k, memory)
            return
        if before is None or before.memory.point is None:
            point, is_changed = self._start(memory.target), True
            memory = memory._replace(stale=1.0)
        else:
            old, everyone = before.memory, cap.copy()
            everyone[n_l:n] = cost
            cap[n_l:n] = cost * ((ground.known >= 0) & (old.cap[ground.known] > 0))[n_l:n]
            point = old.point if ground.is_same else self._carried(before, old.point)
            is_changed = not ground.is_same or not memory._replace(point=point).agrees(old)
            change = self._difference(memory._replace(cap=everyone), old) if is_changed else 0.0
            memory = memory._replace(stale=old.stale + change)
        waiting = np.flatnonzero(cap[n_l:n] == 0) + n_l
        while is_changed or len(waiting):
            block, waiting = np.split(waiting, [self._block_size])
            path = self._path(memory, point)
            settled = path.settle()
            for j in block:
                path.resize(ground.at[[j]], np.array([cost]))
                settled = path.settle() and settled
            cap = memory.cap.copy()
            cap[block] = cost
            memory = memory._replace(cap=cap, stale=memory.stale if settled and path.holds() else np.inf)
            column = self._column(k, memory, self._point(path))
            yield column
            memory, point, is_changed = column.memory, column.memory.point, False

    def better(self, k: int, before: Column, whole: Column) -> Column:
        """The better solution: the one that was `before`, or the one of the `whole` problem by CCCP, made exact."""
        memory, n, n_l, at = before.memory, self._n, self._n_l, self._ground.at[: self._n]
        weights = np.zeros(len(self._share))
        weights[at] = whole.weights
        f = (weights @ self._ground.gram[: len(weights), : len(weights)])[at] + whole.intercept
        a, lift = whole.memory.a[:n], float(whole.memory.a[n])
        side = np.append(memory.label[:n_l], side_of(f[n_l:], self._s))
        is_inside = (side * a > 0) & (side * a < memory.cap)
        point = Point(a, side, np.where(is_inside, MARGIN, AWAY), f, lift, whole.intercept)
        path = self._path(memory, point)
        point = self._point(path)  # good to SMO's tolerance, if the path should be lost
        if path.settle() and path.holds():
            point = self._point(path)
        after = self._column(k, memory._replace(stale=0.0), point)
        if np.isinf(memory.stale) or after.objective < (1 - _EQUAL) * before.objective:
            return after
        return before._replace(memory=memory._replace(stale=0.0))

    def _path(self, memory: _Memory, point: Point) -> ActiveSetPath:
        """A path from `point`, by the numbers of the rows in the kernel matrix."""
        at, size = self._ground.at[: len(point.a)], len(self._share)

        def by_number(values: Array, others: float = 0) -> Array:
            result = np.full(size, others, dtype=values.dtype)
            result[at] = values
            return result

        places = by_number(point.place, AWAY)
        start = Point(by_number(point.a), by_number(point.side), places, by_number(point.f), *point[4:])
        boxes = by_number(memory.label), self._share, self._mean, by_number(memory.cap)
        return ActiveSetPath(self._ground.gram, *boxes, memory.target, self._s, start)

    def _point(self, path: ActiveSetPath) -> Point:
        """Where a path is, by the rows of the problem; the others are gone from there."""
        at = self._ground.at[: self._n]
        a, side, place, f, lift, intercept = path.point
        return Point(a[at], side[at], place[at], f[at], lift, intercept)

    def _start(self, f: float) -> Point:
        """Where a column starts afresh: no row is there, and f is constant."""
        n = self._n_all
        return Point(np.zeros(n), np.zeros(n), np.full(n, AWAY), np.full(n, f), 0.0, f)

    def _carried(self, before: Column, point: Point) -> Point:
        """The point of an earlier run in terms of these rows, with the same f.

        The mean adds a part to the coefficient of each unlabelled row. To make up for it, a row that comes starts with
        as much less than nothing, and one that is gone with as much more than it had.
        """
        ground, n, n_l, known = self._ground, self._n, self._n_l, self._ground.known
        part = point.lift / max(1, len(point.a) - ground.n_labelled_before)
        here, new = np.flatnonzero(known >= 0), np.flatnonzero(known < 0)
        a, side, place, f, *_ = self._start(point.intercept)
        a[n_l:n] = -part
        a[here], side[here], place[here], f[here] = (values[known[here]] for values in point[:4])
        a[n:] += part * (known[n:] >= ground.n_labelled_before)
        f[new] += ground.gram[np.ix_(ground.at[new], ground.at[here])] @ before.weights[known[here]]
        return Point(a, side, place, f, part * (n - n_l), point.intercept)

    def _difference(self, memory: _Memory, before: _Memory) -> float:
        """How much of a problem is other than it was before: a share of its costs, and of the mean that it holds."""
        known = self._ground.known
        new, old = _signed(memory), np.zeros(self._n_all)
        old[known >= 0] = _signed(before)[known[known >= 0]]
        return float(np.abs(new - old).sum() / np.abs(new).sum() + abs(memory.target - before.target) / 2)

    def _column(self, k: int, memory: _Memory, point: Point) -> Column:
        """Column k at `point`."""
        n, n_l = self._n, self._n_l
        memory = memory._replace(label=memory.label[:n], cap=memory.cap[:n], point=point)
        weights = point.a.copy()
        weights[n_l:] += point.lift / (n - n_l)
        norm = float(weights @ (point.f - point.intercept))
        objective = self._problem.objective(k, norm, point.f[:n_l], point.f[n_l:])
        return Column(weights, point.intercept, point.f, objective, memory)

    def _supervised(self, k: int, memory: _Memory) -> Column:
        """Column k, if the unlabelled rows do not matter to it."""
        n, n_l, kept = self._n, self._n_l, self._ground.kept
        weights, f = np.append(kept.dual[:, k], np.zeros(n - n_l)), kept.scores[kept.at, k]
        scores = f + kept.intercept[k]
        objective = self._problem.objective(k, float(weights @ f), scores[:n_l], scores[n_l:])
        memory = memory._replace(label=memory.label[:n], cap=memory.cap[:n])
        return Column(weights, float(kept.intercept[k]), scores, objective, memory)


def _signed(memory: _Memory) -> Array:
    """The boxes, those of the negative side below 0."""
    return np.where(memory.label < 0, -memory.cap, memory.cap)


def _earlier(state: State | None, kernel: Kernel) -> Expansion | None:
    """The state to go on from."""
    if state is None:
        return None
    if not isinstance(state, Expansion) or not all(isinstance(one.memory, _Memory) for one in state.columns):
        raise ValueError("a state of another solver cannot be gone on from: set warm_start=False to start afresh")
    if state.kernel != kernel:
        raise ValueError("Incremental goes on with the same kernel only: set warm_start=False to start afresh")
    return state

"""ILS3VM: the solution of CCCP's problem, updated as rows are added and removed (Gu, Yuan, Chen and Huang 2018)."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from s3vm._utils.settings import check_settings, integer, real
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

_EQUAL = 1e-9  # difference of two objectives that is none


@dataclass(frozen=True)
class Incremental(Solver):
    """The exact solution of CCCP's problem, updated as rows are added and removed; see `active_set_path`.

    A run can resume from any earlier one with the same kernel. It recognises rows by their content: unknown rows have
    been added, and missing ones removed. Removed or changed rows and new labelled rows are processed together; then
    new unlabelled rows are added one by one. Without an earlier run all rows are new, and f starts constant.

    A path leads to one of many minima, not always a good one. Whenever enough rows are new, the problem is therefore
    solved by `CCCP` as well, and the better solution is kept. A column in which unlabelled rows have no weight is a
    supervised SVM, which is solved directly.

    The kernel matrix is kept for the next run: 8 bytes times the square of the number of rows, and up to 2.3 times as
    much after rows have been added and removed.

    Parameters
    ----------
    block_size : int, default 50
        Unlabelled rows added per iteration, one after the other.
    restart : float >= 0, default 0.02
        `CCCP` is tried at the end of a run if more than this fraction of the problem has changed since it was last
        tried: the costs of rows that were added, removed or changed, as a fraction of all costs, plus half the change
        of the mean to hold. With 0 it is tried in every run; with infinity only if rounding has led the path astray, in
        which case its solution is taken.
    balance : "supervised" or "prior", default "supervised"
        The mean of f over the unlabelled rows to hold, as in `CCCP`.
    done : int, default 0
        The iterations of earlier runs, which `extended` sets.
    """

    losses: ClassVar[Losses] = (Hinge, Ramp)
    keeps_all_rows: ClassVar[bool] = True

    block_size: int = 50
    restart: float = 0.02
    balance: Literal["supervised", "prior"] = "supervised"
    done: int = 0

    def __post_init__(self) -> None:
        check_settings(self, block_size=integer(), restart=real(0, np.inf), balance=("supervised", "prior"))
        check_settings(self, done=integer(0))

    def iterations(self, problem: Problem) -> int:
        n_unlabeled = problem.n_rows - problem.n_labeled if problem.uses_unlabeled else 0
        return self.done + 1 + max(1, -(-n_unlabeled // self.block_size))

    def memory(self, problem: Problem, backend: Backend) -> int:
        n_rows = problem.n_rows if problem.uses_unlabeled else problem.n_labeled
        return 8 * n_rows**2 + self._batch().memory(problem, backend)

    def extended(self, problem: Problem, done: int) -> "Incremental":
        return replace(self, done=done)

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        needs(self, problem, (Hinge,), (Ramp, Hat))
        last = _earlier(state, problem.kernel)
        this = _Run(self, problem, last)
        for after in in_step(problem, this.centers, this.along, last, backend.n_threads):
            last = after
            yield after
        if last is None or not any(self._is_due(column) for column in last.columns):
            return
        whole = deque(self._batch().run(problem, backend), maxlen=1).pop()
        assert isinstance(whole, Expansion)

        def better(k: int, before: Column | None) -> Iterator[Column]:
            if before is not None and self._is_due(before):
                yield this.better(k, before, whole.columns[k])

        yield from in_step(problem, this.centers, better, last, backend.n_threads)

    def _batch(self) -> CCCP:
        return CCCP(balance=self.balance)

    def _is_due(self, column: Column) -> bool:
        """Whether to try CCCP: enough has changed, or the path is lost."""
        stale = column.resume_state.stale
        return bool(stale > self.restart or np.isinf(stale))


class _ResumeState(NamedTuple):
    """What a column resumes from: its point, and the labels, boxes and target that the point is the solution for.

    A supervised SVM has no point. `stale` is the fraction of the problem that has changed since CCCP was last tried; it
    is infinite if the path was lost.
    """

    carryover: Carryover
    n_labeled: int
    label: Array
    cap: Array
    target: float
    point: Point | None
    stale: float

    def agrees(self, other: "_ResumeState") -> bool:
        """Whether both have the same labels, boxes and target."""
        same = np.array_equal(self.label, other.label) and np.array_equal(self.cap, other.cap)
        return same and self.target == other.target and (self.point is None) == (other.point is None)


class _Run:
    """A run, which may resume from an earlier one: the n rows of the problem, then those that have been removed."""

    def __init__(self, solver: Incremental, problem: Problem, earlier: Expansion | None) -> None:
        before = None
        if earlier is not None:
            last = earlier.columns[0].resume_state
            before = earlier.centers, last.n_labeled, last.carryover
        self._cache = cache = KernelCache(problem, before)
        self._problem, self._block_size, self.centers = problem, solver.block_size, cache.centers
        self._n, self._n_l, self._n_all = cache.n, cache.n_labeled, len(cache.known)
        loss, n_u = problem.unlabeled_loss, cache.n - cache.n_labeled
        self._s = loss.s if isinstance(loss, Ramp) else 0.0
        self._cost = problem.unlabeled_cost / n_u if n_u else np.zeros(problem.n_columns)
        self._target = 2 * problem.prior - 1
        if solver.balance == "supervised" and n_u:
            of_unlabeled = cache.carryover.scores[cache.at[self._n_l : self._n]]
            self._target = means_to_hold(problem, of_unlabeled + cache.carryover.intercept)
        self._share, self._mean = np.zeros(len(cache.carryover.total)), cache.carryover.total / max(1, n_u)
        self._share[cache.at[self._n_l : self._n]] = 1 / max(1, n_u)

    def along(self, k: int, before: Column | None) -> Iterator[Column]:
        """Column k on its path: first all that has changed, then the new unlabelled rows, in blocks."""
        cache, problem, cost, n, n_l = self._cache, self._problem, self._cost[k], self._n, self._n_l
        label, cap = np.zeros(self._n_all), np.zeros(self._n_all)
        label[:n_l], cap[:n_l] = problem.targets[:, k], problem.costs[:, k]
        state = _ResumeState(cache.carryover, n_l, label, cap, float(self._target[k]), None, 0.0)
        if cost == 0:
            if before is None or not cache.is_same or not state.agrees(before.resume_state):
                yield self._supervised(k, state)
            return
        if before is None or before.resume_state.point is None:
            point, is_changed = self._start(state.target), True
            state = state._replace(stale=1.0)
        else:
            old, final_cap = before.resume_state, cap.copy()
            final_cap[n_l:n] = cost
            cap[n_l:n] = cost * ((cache.known >= 0) & (old.cap[cache.known] > 0))[n_l:n]
            point = old.point if cache.is_same else self._carry_over(before, old.point)
            is_changed = not cache.is_same or not state._replace(point=point).agrees(old)
            change = self._difference(state._replace(cap=final_cap), old) if is_changed else 0.0
            state = state._replace(stale=old.stale + change)
        waiting = np.flatnonzero(cap[n_l:n] == 0) + n_l
        while is_changed or len(waiting):
            block, waiting = np.split(waiting, [self._block_size])
            path = self._path(state, point)
            settled = path.settle()
            for j in block:
                path.resize(cache.at[[j]], np.array([cost]))
                settled = path.settle() and settled
            cap = state.cap.copy()
            cap[block] = cost
            state = state._replace(cap=cap, stale=state.stale if settled and path.holds() else np.inf)
            column = self._column(k, state, self._point(path))
            yield column
            state, point, is_changed = column.resume_state, column.resume_state.point, False

    def better(self, k: int, before: Column, whole: Column) -> Column:
        """The better solution: the one `before`, or that of the `whole` problem by CCCP, made exact."""
        state, n, n_l, at = before.resume_state, self._n, self._n_l, self._cache.at[: self._n]
        weights = np.zeros(len(self._share))
        weights[at] = whole.weights
        f = (weights @ self._cache.gram[: len(weights), : len(weights)])[at] + whole.intercept
        a, lift = whole.resume_state.a[:n], float(whole.resume_state.a[n])
        side = np.append(state.label[:n_l], side_of(f[n_l:], self._s))
        is_inside = (side * a > 0) & (side * a < state.cap)
        point = Point(a, side, np.where(is_inside, MARGIN, AWAY), f, lift, whole.intercept)
        path = self._path(state, point)
        point = self._point(path)  # exact to SMO's tolerance, in case the path is lost
        if path.settle() and path.holds():
            point = self._point(path)
        after = self._column(k, state._replace(stale=0.0), point)
        if np.isinf(state.stale) or after.objective < (1 - _EQUAL) * before.objective:
            return after
        return before._replace(resume_state=state._replace(stale=0.0))

    def _path(self, state: _ResumeState, point: Point) -> ActiveSetPath:
        """A path from `point`, whose rows are those of the kernel matrix."""
        at, size = self._cache.at[: len(point.a)], len(self._share)

        def by_number(values: Array, others: float = 0) -> Array:
            result = np.full(size, others, dtype=values.dtype)
            result[at] = values
            return result

        places = by_number(point.place, AWAY)
        start = Point(by_number(point.a), by_number(point.side), places, by_number(point.f), *point[4:])
        boxes = by_number(state.label), self._share, self._mean, by_number(state.cap)
        return ActiveSetPath(self._cache.gram, *boxes, state.target, self._s, start)

    def _point(self, path: ActiveSetPath) -> Point:
        """The point of a path for the rows of the problem; the others have left it."""
        at = self._cache.at[: self._n]
        a, side, place, f, lift, intercept = path.point
        return Point(a[at], side[at], place[at], f[at], lift, intercept)

    def _start(self, f: float) -> Point:
        """The first point of a column: no row takes part, and f is constant."""
        n = self._n_all
        return Point(np.zeros(n), np.zeros(n), np.full(n, AWAY), np.full(n, f), 0.0, f)

    def _carry_over(self, before: Column, point: Point) -> Point:
        """The point of an earlier run for these rows, with the same f.

        The mean adds a part to the coefficient of each unlabelled row. To compensate, a new row starts with minus this
        part, and a removed one with this part added.
        """
        cache, n, n_l, known = self._cache, self._n, self._n_l, self._cache.known
        part = point.lift / max(1, len(point.a) - cache.n_labeled_before)
        here, new = np.flatnonzero(known >= 0), np.flatnonzero(known < 0)
        a, side, place, f, *_ = self._start(point.intercept)
        a[n_l:n] = -part
        a[here], side[here], place[here], f[here] = (values[known[here]] for values in point[:4])
        a[n:] += part * (known[n:] >= cache.n_labeled_before)
        f[new] += cache.gram[np.ix_(cache.at[new], cache.at[here])] @ before.weights[known[here]]
        return Point(a, side, place, f, part * (n - n_l), point.intercept)

    def _difference(self, state: _ResumeState, before: _ResumeState) -> float:
        """How much of a problem has changed: the fraction of its costs, plus half the change of the mean to hold."""
        known = self._cache.known
        new, boxes_before = (np.where(part.label < 0, -part.cap, part.cap) for part in (state, before))
        old = np.zeros(self._n_all)
        old[known >= 0] = boxes_before[known[known >= 0]]
        return float(np.abs(new - old).sum() / np.abs(new).sum() + abs(state.target - before.target) / 2)

    def _column(self, k: int, state: _ResumeState, point: Point) -> Column:
        n, n_l = self._n, self._n_l
        state = state._replace(label=state.label[:n], cap=state.cap[:n], point=point)
        weights = point.a.copy()
        weights[n_l:] += point.lift / (n - n_l)
        norm = float(weights @ (point.f - point.intercept))
        objective = self._problem.objective(k, norm, point.f[:n_l], point.f[n_l:])
        return Column(weights, point.intercept, point.f, objective, state)

    def _supervised(self, k: int, state: _ResumeState) -> Column:
        """Column k, if unlabelled rows have no weight in it."""
        n, n_l, carryover = self._n, self._n_l, self._cache.carryover
        weights, f = np.append(carryover.dual[:, k], np.zeros(n - n_l)), carryover.scores[carryover.at, k]
        scores = f + carryover.intercept[k]
        objective = self._problem.objective(k, float(weights @ f), scores[:n_l], scores[n_l:])
        state = state._replace(label=state.label[:n], cap=state.cap[:n])
        return Column(weights, float(carryover.intercept[k]), scores, objective, state)


def _earlier(state: State | None, kernel: Kernel) -> Expansion | None:
    """The state to resume from."""
    if state is None:
        return None
    if not isinstance(state, Expansion) or not all(
        isinstance(column.resume_state, _ResumeState) for column in state.columns
    ):
        raise ValueError("cannot resume from another solver's state: set warm_start=False to start again")
    if state.kernel != kernel:
        raise ValueError("Incremental can resume only with the same kernel: set warm_start=False to start again")
    return state

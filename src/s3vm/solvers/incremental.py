"""ILS3VM: the solution of CCCP's problem, kept while rows come and leave (Gu, Yuan, Chen and Huang 2018)."""

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numba import njit
from scipy import sparse

from s3vm._typing import Array, Rows
from s3vm.backends import Backend
from s3vm.kernels import Kernel
from s3vm.losses import Hat, Hinge, Ramp
from s3vm.problem import Problem
from s3vm.solvers.balance import means_to_hold
from s3vm.solvers.base import Column, Expansion, Losses, State, in_step, needs
from s3vm.solvers.cccp import CCCP
from s3vm.solvers.path import AWAY, MARGIN, Path, Point, side_of
from s3vm.solvers.supervised import supervised
from s3vm.sources import stack

__all__ = ["Incremental"]

_PANEL = 256  # rows of the kernel matrix that are computed together
_EQUAL = 1e-9  # difference of two objectives that is none


@dataclass(frozen=True)
class Incremental:
    """The exact solution of CCCP's problem, followed while rows come and leave; see `s3vm.solvers.path`.

    A run goes on from any earlier one with the same kernel. It knows rows again by what is in them: others come, and
    those it does not find have left. What has left or changed, and labelled rows that come, are moved in together;
    then unlabelled rows come one by one. Without an earlier run all rows come, and f is constant before.

    A path leads to one of many minima, and not always to a good one. So whenever enough rows are new, the problem is
    solved by `CCCP` as well, and the better solution is kept. A column that the unlabelled rows do not matter to is a
    supervised SVM, and is solved as a whole.

    The kernel matrix is kept for the next run: 8 bytes times the square of the number of rows. While a run goes on from
    an earlier one there are two, or three if rows have left.

    Parameters
    ----------
    block_size : int, default 50
        Unlabelled rows that come in an iteration, one after the other.
    restart : float >= 0, default 0.02
        `CCCP` is tried at the end of a run if more than this share of the problem has changed since it last was: the
        costs of rows that came and left, or are other than they were, as a share of all costs, and half of what the
        mean that is held has changed by. With 0 it is tried in every run; with infinity only if rounding makes the path
        lose its way.
    balance : "supervised" or "prior", default "supervised"
        The mean of f over the unlabelled rows that is held, as in `CCCP`.
    done : int, default 0
        The iterations of earlier runs, which `longer` sets.
    """

    losses: ClassVar[Losses] = (Hinge, Ramp)
    takes_rows: ClassVar[bool] = True

    block_size: int = 50
    restart: float = 0.02
    balance: Literal["supervised", "prior"] = "supervised"
    done: int = 0

    def __post_init__(self) -> None:
        size = self.block_size
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
            raise ValueError(f"Incremental needs a whole number block_size of at least 1; got block_size={size!r}")
        if not (isinstance(self.restart, int | float) and self.restart >= 0):
            raise ValueError(f"Incremental needs restart >= 0; got restart={self.restart!r}")
        if self.balance not in ("supervised", "prior"):
            raise ValueError(f'Incremental needs balance "supervised" or "prior"; got balance={self.balance!r}')

    def iterations(self, problem: Problem) -> int:
        n_unlabelled = problem.n_rows - problem.n_labelled if problem.uses_unlabelled else 0
        return self.done + 1 + max(1, -(-n_unlabelled // self.block_size))

    def memory(self, problem: Problem, backend: Backend) -> int:
        n_rows = problem.n_rows if problem.uses_unlabelled else problem.n_labelled
        return 8 * n_rows**2 + self._batch().memory(problem, backend)

    def longer(self, problem: Problem, done: int) -> "Incremental":
        return replace(self, done=done)

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        needs(self, problem, (Hinge,), (Ramp, Hat))
        ground = _Ground(problem, _earlier(state, problem.kernel), self.balance)

        def along(k: int, before: Column | None) -> Iterator[Column]:
            return _along(ground, self.block_size, k, before)

        last = ground.earlier
        for after in in_step(problem, ground.centres, along, last, backend.n_threads):
            last = after
            yield after
        if last is None or not any(self._is_due(column) for column in last.columns):
            return
        whole = deque(self._batch().run(problem, backend), maxlen=1).pop()
        assert isinstance(whole, Expansion)

        def better(k: int, before: Column | None) -> Iterator[Column]:
            if before is not None and self._is_due(before):
                yield _better(ground, k, before, whole.columns[k])

        yield from in_step(problem, ground.centres, better, last, backend.n_threads)

    def _batch(self) -> CCCP:
        return CCCP(balance=self.balance)

    def _is_due(self, column: Column) -> bool:
        """Whether CCCP is to be tried: enough has changed, or the path is lost."""
        stale = column.memory.stale
        return bool(stale > self.restart or np.isinf(stale))


class _Matrix:
    """A kernel matrix that copies and files do without: it can be computed again, to rounding."""

    def __init__(self, values: Any = None) -> None:
        self.values = values

    def __reduce__(self) -> tuple[Any, ...]:
        return _Matrix, ()


class _Memory(NamedTuple):
    """What a column needs to go on: its point, and the labels, boxes and target that the point is the solution for.

    A supervised SVM has no point. `stale` is how much has changed since CCCP was tried, as a share of all costs; it is
    infinite if the path was lost.
    """

    matrix: _Matrix
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


class _Ground:
    """What the columns of a run share: n rows of the problem, then those of an earlier run that are gone.

    `known` is where each of these rows was in the earlier run, or -1 for one that was not.
    """

    def __init__(self, problem: Problem, earlier: Expansion | None, balance: str) -> None:
        self.problem, self.earlier = problem, earlier
        self.centres = problem.everything() if problem.uses_unlabelled else problem.labelled
        self.n, self.n_l, self.n_l_before = self.centres.shape[0], problem.n_labelled, 0
        self.known, rows, gram = np.full(self.n, -1), self.centres, None
        if earlier is not None:
            matrix, self.n_l_before, *_ = earlier.columns[0].memory
            gram = matrix.values
            n_l, there, old = self.n_l, self.n_l_before, earlier.centres
            unlabelled = _find(rows[n_l:], old[there:])
            self.known = np.append(_find(rows[:n_l], old[:there]), np.where(unlabelled < 0, -1, unlabelled + there))
            gone = np.setdiff1d(np.arange(earlier.centres.shape[0]), self.known)
            rows, self.known = stack([rows, earlier.centres[gone]]), np.append(self.known, gone)
        self.is_same = earlier is not None and np.array_equal(self.known, np.arange(self.n))
        if gram is None or not self.is_same:
            gram = _gram(problem.kernel, rows.astype(np.float64), self.known, gram)
        self.gram, self.matrix = gram, _Matrix(np.ascontiguousarray(gram[: self.n, : self.n]))
        self.share = np.zeros(len(gram))
        self.share[self.n_l : self.n] = 1 / max(1, self.n - self.n_l)
        self.mean = self.share[self.n_l :] @ gram[self.n_l :]
        loss = problem.unlabelled_loss
        self.s = loss.s if isinstance(loss, Ramp) else 0.0
        # The supervised solutions, and the means to hold.
        at = slice(0, self.n_l)
        self.dual, self.intercept = supervised(gram[at, at], problem.targets, problem.costs)
        self.target = 2 * problem.prior - 1
        if balance == "supervised" and self.n > self.n_l:
            self.target = means_to_hold(problem, gram[self.n_l : self.n, at] @ self.dual + self.intercept)

    def path(self, memory: _Memory, point: Point) -> Path:
        """A path from `point`, over all rows or, if the point is of these, over those of the problem."""
        n = len(point.a)
        gram = self.gram if n == len(self.gram) else self.matrix.values
        return Path(gram, memory.label, self.share[:n], self.mean[:n], memory.cap, memory.target, self.s, point)

    def start(self, f: float) -> Point:
        """Where a column starts afresh: no row is there, and f is constant."""
        a, side, place = np.zeros(len(self.gram)), np.zeros(len(self.gram)), np.full(len(self.gram), AWAY)
        return Point(a, side, place, np.full(len(self.gram), f), 0.0, f)

    def carried(self, before: Column, point: Point) -> Point:
        """The point of an earlier run in terms of these rows, with the same f.

        The mean adds a part to the coefficient of each unlabelled row. To make up for it, a row that comes starts with
        as much less than nothing, and one that is gone with as much more than it had.
        """
        n, n_l, known = self.n, self.n_l, self.known
        part = point.lift / max(1, len(point.a) - self.n_l_before)
        here, new = np.flatnonzero(known >= 0), np.flatnonzero(known < 0)
        a, side, place, f, *_ = self.start(point.intercept)
        a[n_l:n] = -part
        a[here], side[here], place[here], f[here] = (values[known[here]] for values in point[:4])
        a[n:] += part * (known[n:] >= self.n_l_before)
        f[new] += self.gram[np.ix_(new, here)] @ before.weights[known[here]]
        return Point(a, side, place, f, part * (n - n_l), point.intercept)

    def difference(self, memory: _Memory, before: _Memory) -> float:
        """How much of a problem is other than it was before: a share of its costs, and of the mean that it holds."""
        known = self.known >= 0
        new, old = memory.cap * _sign(memory.label), np.zeros(len(known))
        old[known] = (before.cap * _sign(before.label))[self.known[known]]
        return float(np.abs(new - old).sum() / np.abs(new).sum() + abs(memory.target - before.target) / 2)

    def column(self, k: int, memory: _Memory, point: Point) -> Column:
        """Column k at `point`, without the rows that are gone."""
        n, n_l = self.n, self.n_l
        point = point._replace(a=point.a[:n], side=point.side[:n], place=point.place[:n], f=point.f[:n])
        memory = memory._replace(label=memory.label[:n], cap=memory.cap[:n], point=point)
        weights = point.a + point.lift * self.share[:n]
        norm = float(weights @ (point.f - point.intercept))
        objective = self.problem.objective(k, norm, point.f[:n_l], point.f[n_l:])
        return Column(weights, point.intercept, point.f, objective, memory)

    def supervised(self, k: int, memory: _Memory) -> Column:
        """Column k, if the unlabelled rows do not matter to it."""
        n, n_l = self.n, self.n_l
        weights, f = np.append(self.dual[:, k], np.zeros(n - n_l)), self.gram[:n, :n_l] @ self.dual[:, k]
        scores = f + self.intercept[k]
        objective = self.problem.objective(k, float(weights @ f), scores[:n_l], scores[n_l:])
        memory = memory._replace(label=memory.label[:n], cap=memory.cap[:n])
        return Column(weights, float(self.intercept[k]), scores, objective, memory)


def _along(ground: _Ground, block_size: int, k: int, before: Column | None) -> Iterator[Column]:
    """Column k on its path: first all that has changed, then, in blocks, the unlabelled rows that come."""
    problem, n, n_l = ground.problem, ground.n, ground.n_l
    cost = problem.unlabelled_cost[k] / (n - n_l) if n > n_l else 0.0
    label, cap = np.zeros(len(ground.gram)), np.zeros(len(ground.gram))
    label[:n_l], cap[:n_l] = problem.targets[:, k], problem.costs[:, k]
    memory = _Memory(ground.matrix, n_l, label, cap, float(ground.target[k]), None, 0.0)
    if cost == 0:
        if before is None or not ground.is_same or not memory.agrees(before.memory):
            yield ground.supervised(k, memory)
        return
    if before is None or before.memory.point is None:
        point, is_changed = ground.start(memory.target), True
        memory = memory._replace(stale=1.0)
    else:
        old, everyone = before.memory, cap.copy()
        everyone[n_l:n] = cost
        cap[n_l:n] = cost * ((ground.known >= 0) & (old.cap[ground.known] > 0))[n_l:n]
        point = old.point if ground.is_same else ground.carried(before, old.point)
        is_changed = not ground.is_same or not memory._replace(point=point).agrees(old)
        change = ground.difference(memory._replace(cap=everyone), old) if is_changed else 0.0
        memory = memory._replace(stale=old.stale + change)
    waiting = np.flatnonzero(cap[n_l:n] == 0) + n_l
    while is_changed or len(waiting):
        block, waiting = np.split(waiting, [block_size])
        path = ground.path(memory, point)
        settled = path.settle()
        for i in range(len(block)):
            path.resize(block[i : i + 1], np.array([cost]))
            settled = path.settle() and settled
        cap = memory.cap.copy()
        cap[block] = cost
        column = ground.column(k, memory._replace(cap=cap, stale=memory.stale if settled else np.inf), path.point)
        yield column
        memory, point, is_changed = column.memory, column.memory.point, False


def _better(ground: _Ground, k: int, before: Column, whole: Column) -> Column:
    """The better solution: the one that was `before`, or the one of the `whole` problem by CCCP, made exact."""
    memory, n_l = before.memory, ground.n_l
    a, lift = np.split(whole.memory.a, [ground.n])
    f = ground.matrix.values @ whole.weights + whole.intercept
    side = np.append(memory.label[:n_l], side_of(f[n_l:], ground.s))
    is_inside = (side * a > 0) & (side * a < memory.cap)
    point = Point(a, side, np.where(is_inside, MARGIN, AWAY), f, float(lift[0]), whole.intercept)
    path = ground.path(memory, point)
    point = path.point  # good to SMO's tolerance, if the path should be lost
    if path.settle():
        point = path.point
    after = ground.column(k, memory._replace(stale=0.0), point)
    if np.isinf(memory.stale) or after.objective < (1 - _EQUAL) * before.objective:
        return after
    return before._replace(memory=memory._replace(stale=0.0))


def _sign(label: Array) -> Array:
    return np.where(label < 0, -1.0, 1.0)


def _earlier(state: State | None, kernel: Kernel) -> Expansion | None:
    """The state to go on from."""
    if state is None:
        return None
    if not isinstance(state, Expansion) or not all(isinstance(one.memory, _Memory) for one in state.columns):
        raise ValueError("a state of another solver cannot be gone on from: set warm_start=False to start afresh")
    if state.kernel != kernel:
        raise ValueError("Incremental goes on with the same kernel only: set warm_start=False to start afresh")
    return state


def _find(rows: Rows, among: Rows) -> Array:
    """Where `among` others each row is, by what is in it; -1 for a row that is not there, or not as often."""
    most = min(rows.shape[0], among.shape[0])
    differs = rows[:most] != among[:most]
    result = np.full(rows.shape[0], -1)
    still = np.flatnonzero(np.diff(differs.indptr) == 0 if sparse.issparse(differs) else ~differs.any(axis=1))
    result[still] = still
    places = defaultdict(list)
    others = np.setdiff1d(np.arange(among.shape[0]), still)
    for place, content in zip(others, _contents(among[others]), strict=True):
        places[content].append(place)
    moved = np.flatnonzero(result < 0)
    found = [places[content] for content in _contents(rows[moved])]
    result[moved] = [there.pop(0) if there else -1 for there in found]
    return result


def _contents(rows: Rows) -> list[bytes]:
    if sparse.issparse(rows):
        parts = (slice(*ends) for ends in pairwise(rows.indptr))
        return [rows.indices[part].tobytes() + rows.data[part].tobytes() for part in parts]
    return [row.tobytes() for row in rows]


def _gram(kernel: Kernel, rows: Rows, known: Array, before: Array | None) -> Array:
    """The kernel matrix of `rows`. What is `known` is where it was in the matrix `before`, if there is one."""
    gram = np.empty((len(known), len(known)))
    if before is not None:
        _take_over(before, known, gram)
    new = np.flatnonzero((known < 0) | (before is None))
    for part in (new[i : i + _PANEL] for i in range(0, len(new), _PANEL)):
        values = kernel.gram(rows[part], rows)
        if not np.isfinite(values).all():
            raise ValueError("the kernel of the rows is not finite: standardise the features")
        gram[part], gram[:, part] = values, values.T
    return gram


@njit(cache=True, nogil=True)
def _take_over(before, known, gram):
    for i in range(len(known)):
        if known[i] >= 0:
            row = before[known[i]]
            for j in range(len(known)):
                if known[j] >= 0:
                    gram[i, j] = row[known[j]]

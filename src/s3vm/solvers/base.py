"""What a solver is: settings, and a generator of states. And what the solvers that need all rows at once share."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from s3vm._utils.arrays import host, is_tensor, namespace
from s3vm._utils.registry import state_part
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.kernels import Kernel
from s3vm.losses import LabelledLoss, UnlabelledLoss
from s3vm.model import Model
from s3vm.problem import Problem

__all__ = [
    "Column",
    "Expansion",
    "Losses",
    "Solver",
    "State",
    "in_step",
    "needs",
    "record",
    "record_unlabelled",
    "same_rows",
    "settled",
]

Losses = tuple[type[LabelledLoss], type[UnlabelledLoss]]


@runtime_checkable
class State(Protocol):
    """Where a solver stands after an iteration.

    A state never changes once it has been yielded, so that the last one is good whenever a run is broken off.
    """

    @property
    def iteration(self) -> int:
        """How many iterations are done."""
        ...

    @property
    def record(self) -> Mapping[str, float]:
        """What is worth a line in the history."""
        ...

    @property
    def kernel(self) -> Kernel: ...

    @property
    def seed(self) -> int: ...

    def model(self) -> Model: ...

    def labelled_scores(self) -> Array | None:
        """f at the labelled rows in every column, ``(n_l, K)``, if that is known without more work."""
        ...

    def detached(self) -> "State":
        """The same state without what belongs to the rows it was trained on, so that others may follow."""
        ...


_AnyState = TypeVar("_AnyState", bound=State)


@runtime_checkable
class Solver(Protocol):
    """Settings of an algorithm, and the algorithm as a generator of states.

    A solver subclasses this, and overrides what it can do beyond `run`.

    Attributes
    ----------
    losses : the losses of labelled and unlabelled rows that it takes by default
    keeps_all_rows : whether it can continue with other rows, all of which it keeps, and any number of columns
    follows_stream : whether it can continue with rows that have come since and will be forgotten
    takes_remote_rows : whether it can train on a `RemoteSource`, whose rows stay where they are
    takes_tensors : whether rows may be torch's tensors, which stay on their device
    """

    losses: ClassVar[Losses]
    keeps_all_rows: ClassVar[bool] = False
    follows_stream: ClassVar[bool] = False
    takes_remote_rows: ClassVar[bool] = False
    takes_tensors: ClassVar[bool] = False

    def iterations(self, problem: Problem) -> int:
        """The number of iterations after which `run` ends at the latest."""
        ...

    def memory(self, problem: Problem, backend: Backend) -> int:
        """About how many bytes `run` needs beside the rows."""
        ...

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        """Yields the state after every iteration, going on from `state` if one is given."""
        ...

    def extended(self, problem: Problem, done: int) -> "Solver":
        """This solver, with the `done` iterations of an earlier run added to its own."""
        ...

    def full_weight_from(self, problem: Problem) -> int:
        """The iteration from which on the unlabelled rows have their full weight."""
        return 0

    def pilot(self, max_iter: int) -> "Solver | None":
        """This solver for a short run that only compares settings; None if it has no short runs."""
        return None

    def for_streaming(self) -> "Solver":
        """This solver for rows that never end."""
        return self

    def for_new_rows(self, done: int, n_new: int) -> "Solver":
        """This solver, to go once through `n_new` rows that have come after `done` iterations."""
        return self

    def follow(self, problem: Problem, backend: Backend, state: State) -> State:
        """A state of earlier rows as one of this problem's."""
        return state.detached()


def record(problem: Problem, norm: Array, r_l: Array, y: Array, costs: Array, r_u: Array | None) -> dict[str, Any]:
    """A line of the history: R(f), mean losses over labelled and unlabelled rows, share of the latter above 0.

    It speaks of the wanted columns only, and is kept short, since it is written in every iteration. `norm` is
    ``||f||^2``. If the rows are a batch, `costs` are what they stand for, and R(f) is an estimate. Numbers on a
    device stay there until they are `settled`.
    """
    main = slice(0, problem.n_models)
    costs = costs[:, main]
    loss = (costs * problem.labelled_loss.value(r_l[:, main], y[:, main])).sum()
    line = {"objective": norm[main].sum() / 2 + loss, "labelled_loss": loss / costs.sum()}
    if r_u is not None:
        r_u = r_u[:, main]
        loss = problem.unlabelled_loss.value(r_u).sum(axis=0) / len(r_u)
        return record_unlabelled(problem, line, loss, (r_u > 0).sum(axis=0) / len(r_u))
    return _plain(line)


def settled(states: Iterator[_AnyState], at_once: int = 16) -> Iterator[_AnyState]:
    """The same states with records of plain numbers.

    A number on a device is waited for, and so is all that was asked of the device before it: states are therefore held
    back until there are some, and their numbers are fetched together.
    """
    waiting: list[_AnyState] = []
    for state in states:
        if not any(is_tensor(value) for value in state.record.values()):
            yield state
            continue
        waiting.append(state)
        if len(waiting) == at_once:
            yield from _fetched(waiting)
            waiting = []
    yield from _fetched(waiting)


def _fetched(states: list[_AnyState]) -> list[_AnyState]:
    if not states:
        return []
    lines: list[dict[str, Any]] = [dict(state.record) for state in states]
    at = [(line, name) for line in lines for name, value in line.items() if is_tensor(value)]
    values = host(namespace(at[0][0][at[0][1]]).stack([line[name] for line, name in at]))
    for (line, name), value in zip(at, values, strict=True):
        line[name] = float(value)
    return [replace(state, record=line) for state, line in zip(states, lines, strict=True)]  # type: ignore[type-var]


def record_unlabelled(problem: Problem, line: dict[str, Any], loss: Array, positive: Array) -> dict[str, Any]:
    """A line of the history with the mean loss of the unlabelled rows, and their share above 0, of each column."""
    loss = loss[: problem.n_models]
    line = {
        **line,
        "objective": line["objective"] + (problem.unlabelled_cost[: problem.n_models] * loss).sum(),
        "unlabelled_loss": loss.sum() / problem.n_models,
    }
    if problem.n_models == 1:
        line["positive_share"] = positive[0]
    return _plain(line)


def _plain(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value if is_tensor(value) else float(value) for name, value in line.items()}


def needs(solver: Solver, problem: Problem, labelled: tuple[type, ...], unlabelled: tuple[type, ...]) -> None:
    """Raises a ValueError unless the problem's losses are among those that the solver can minimise."""
    name = type(solver).__name__
    for parameter, loss, known in (
        ("labeled_loss", problem.labelled_loss, labelled),
        ("loss", problem.unlabelled_loss, unlabelled),
    ):
        if not isinstance(loss, known):
            names = " or ".join(f"{kind.__name__}()" for kind in known)
            raise ValueError(
                f'{name} cannot minimise {parameter}={loss!r}: leave it at "auto", give {names}, or use solver="tsg", '
                "which takes any loss"
            )


# Solvers that look at all rows at once write down one column as a generator; what follows runs all of them.


@state_part("Column")
class Column(NamedTuple):
    """Where one column stands: ``f(x) = sum_i weights[i] k(centre_i, x) + intercept``.

    `scores` are f at the labelled rows, then at the unlabelled ones; `objective` is what must not rise; `memory` is
    what its solver needs to go on from here.
    """

    weights: Array
    intercept: float
    scores: Array
    objective: float
    memory: Any = None


@state_part("Expansion")
@dataclass(frozen=True, eq=False)
class Expansion:
    """The state of all columns, each a kernel expansion on the same centres."""

    kernel: Kernel
    seed: int
    centres: Rows
    n_labelled: int
    columns: Sequence[Column]
    iteration: int
    record: Mapping[str, float]

    def model(self) -> Model:
        weights = np.column_stack([column.weights for column in self.columns])
        nothing = np.empty((0, 1, len(self.columns)))
        intercept = np.array([column.intercept for column in self.columns])
        return Model(self.kernel, self.seed, self.centres.shape[1], nothing, intercept, self.centres, weights)

    def labelled_scores(self) -> Array:
        return np.column_stack([column.scores[: self.n_labelled] for column in self.columns])

    def detached(self) -> "Expansion":
        return self


def same_rows(state: State | None, centres: Rows) -> "Expansion | None":
    """The state to go on from, which must be one of these centres."""
    if state is None:
        return None
    if isinstance(state, Expansion) and state.centres.shape == centres.shape and not (state.centres != centres).sum():
        return state
    raise ValueError("this solver goes on only with the rows it began with: set warm_start=False to start afresh")


def in_step(
    problem: Problem,
    centres: Rows,
    column: Callable[[int, Column | None], Iterator[Column]],
    state: Expansion | None = None,
    n_threads: int = 1,
) -> Iterator[Expansion]:
    """Runs the generators ``column(k, before)`` of all columns side by side, a state for each round.

    A column that has ended stays as it is until all have. `before` is where `state`, if one is given, left the column;
    it is None for a column that the state has not.
    """
    known = list(state.columns) if state is not None else []
    columns: list[Column | None] = [*known, *[None] * problem.n_columns][: problem.n_columns]
    running = [column(k, before) for k, before in enumerate(columns)]
    stale = state is not None and len(known) != problem.n_columns  # its columns are not those that are asked for
    iteration = state.iteration if state is not None else 0
    n_l = problem.n_labelled
    with ThreadPoolExecutor(n_threads) as pool:
        while True:
            # One thread is this one, which Ctrl-C can stop at once.
            each: Any = map if n_threads == 1 else pool.map
            fresh = list(each(lambda one: next(one, None), running))
            if all(one is None for one in fresh) and not stale:
                return
            stale = False
            columns = [one or before for one, before in zip(fresh, columns, strict=True)]
            iteration += 1
            known = [one for one in columns if one is not None]
            scores = np.column_stack([one.scores for one in known[: problem.n_models]])
            r_u = scores[n_l:] if len(scores) > n_l else None
            line = record(problem, np.zeros(problem.n_columns), scores[:n_l], problem.targets, problem.costs, r_u)
            line["objective"] = sum(one.objective for one in known[: problem.n_models])
            yield Expansion(problem.kernel, problem.seed, centres, n_l, known, iteration, line)

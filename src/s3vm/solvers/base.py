"""What a solver is: settings and a generator of states; and what the solvers that need all rows at once share."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from s3vm._utils.arrays import are_equal, host, is_tensor, namespace
from s3vm._utils.registry import state_part
from s3vm._utils.typing import Array, Rows
from s3vm._utils.warn import PendingWarning, deferred_warnings, warn
from s3vm.backends import Backend
from s3vm.kernels import Kernel
from s3vm.losses import LabeledLoss, UnlabeledLoss
from s3vm.model import Model
from s3vm.problem import Problem

Losses = tuple[type[LabeledLoss], type[UnlabeledLoss]]


@runtime_checkable
class State(Protocol):
    """Where a solver stands after an iteration.

    A state never changes once it has been yielded, so the last one is valid whenever a run is interrupted.
    """

    @property
    def iteration(self) -> int:
        """The number of iterations done."""

    @property
    def record(self) -> Mapping[str, float]:
        """A line of the history."""

    @property
    def kernel(self) -> Kernel: ...

    @property
    def seed(self) -> int: ...

    def model(self) -> Model: ...

    def labeled_scores(self) -> Array | None:
        """f at the labelled rows in every column, ``(n_l, K)``, if known without further work."""

    def detached(self) -> "State":
        """The same state without what depends on its training rows, so that it can continue with others."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RunState:
    """What the states of all solvers here have in common; see `State`."""

    kernel: Kernel
    seed: int
    iteration: int = 0
    record: Mapping[str, float] = field(default_factory=dict)

    def detached(self) -> Self:
        return self

    def expansion(self, centers: Rows, weights: Array, intercept: Array) -> Model:
        """The model of kernel functions without random features."""
        nothing = np.empty((0, 1, len(intercept)))
        return Model(self.kernel, self.seed, centers.shape[1], nothing, intercept, centers, weights)


_AnyState = TypeVar("_AnyState", bound=RunState)


@runtime_checkable
class Solver(Protocol):
    """Settings of an algorithm, and the algorithm as a generator of states.

    Solvers subclass this and override what they can do beyond `run`.

    Attributes
    ----------
    losses : its default losses of labelled and unlabelled rows
    keeps_all_rows : whether it keeps all rows and can resume after rows or columns have been added or removed
    follows_stream : whether it can resume with new rows that it will not keep
    takes_graph : whether it can minimise over the problem's graph of neighbors
    takes_tensors : whether it can train on rows that stay on the device of its backend
    """

    losses: ClassVar[Losses]
    keeps_all_rows: ClassVar[bool] = False
    follows_stream: ClassVar[bool] = False
    takes_graph: ClassVar[bool] = False
    takes_tensors: ClassVar[bool] = False

    def iterations(self, problem: Problem) -> int:
        """The number of iterations after which `run` ends at the latest."""

    def memory(self, problem: Problem, backend: Backend) -> int:
        """About how many bytes `run` needs in addition to the rows."""

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        """Yields the state after every iteration, resuming from `state` if one is given."""

    def extended(self, problem: Problem, done: int) -> "Solver":
        """This solver, its own iterations added to the `done` ones of an earlier run."""
        return replace(self, max_iter=done + self.max_iter)  # type: ignore

    def full_weight_from(self, problem: Problem) -> int:
        """The first iteration in which the unlabelled rows have their full weight."""
        return 0

    def pilot(self, max_iter: int) -> "Solver | None":
        """This solver, limited to a short run for comparing settings; None if it has no short runs."""
        return None

    def for_streaming(self) -> "Solver":
        """This solver for an endless stream of rows."""
        return self

    def for_cluster(self) -> "Solver | None":
        """This solver with defaults for a `RemoteSource`, whose rows stay where they are; None if it needs all here."""
        return None

    def for_new_rows(self, done: int, n_new: int) -> "Solver":
        """This solver for one pass over `n_new` rows that have arrived after `done` iterations."""
        return self

    def follow(self, problem: Problem, backend: Backend, state: State) -> State:
        """The state of an earlier problem, adapted to this one."""
        return state.detached()


def record(
    problem: Problem,
    norm: Array,
    r_l: Array,
    y: Array,
    costs: Array,
    r_u: Array | None = None,
    means: tuple[Array, Array] | None = None,
) -> dict[str, Any]:
    """A line of the history: R(f), mean losses of labelled and unlabelled rows, fraction of the latter above 0.

    It covers only the columns of the model, and little of these, since it is computed in every iteration. `norm` is
    ``||f||^2``. If the rows are a batch, `costs` are those of the rows that they represent, and R(f) is an estimate.
    `means` are the mean loss of the unlabelled rows and the fraction of them above 0, of each column, instead of `r_u`.
    Numbers on a device stay there until `settled` fetches them.
    """
    main = slice(0, problem.n_models)
    costs = costs[:, main]
    loss = (costs * problem.labeled_loss.value(r_l[:, main], y[:, main])).sum()
    line = {"objective": norm[main].sum() / 2 + loss, "labeled_loss": loss / costs.sum()}
    if r_u is not None:
        r_u = r_u[:, main]
        means = problem.unlabeled_loss.value(r_u).sum(axis=0) / len(r_u), (r_u > 0).sum(axis=0) / len(r_u)
    if means is not None:
        loss = means[0][main]
        objective = line["objective"] + (problem.unlabeled_cost[main] * loss).sum()
        line |= {"objective": objective, "unlabeled_loss": loss.sum() / problem.n_models}
        if problem.n_models == 1:
            line["positive_share"] = means[1][0]
    return {name: value if is_tensor(value) else float(value) for name, value in line.items()}


def settled(states: Iterator[_AnyState], at_once: int = 16) -> Iterator[_AnyState]:
    """The same states, their records as plain numbers.

    Fetching a number from a device waits for all work queued before it: states are therefore held back until there are
    `at_once` of them, whose numbers are fetched together.
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
    entries = [(line, name) for line in lines for name, value in line.items() if is_tensor(value)]
    tensors = [line[name] for line, name in entries]
    for (line, name), value in zip(entries, host(namespace(tensors[0]).stack(tensors)), strict=True):
        line[name] = float(value)
    return [replace(state, record=line) for state, line in zip(states, lines, strict=True)]


def needs(solver: Solver, problem: Problem, labeled: tuple[type, ...], unlabeled: tuple[type, ...]) -> None:
    """Raises a ValueError unless the solver can minimise the losses of the problem."""
    name = type(solver).__name__
    for parameter, loss, known in (
        ("labeled_loss", problem.labeled_loss, labeled),
        ("loss", problem.unlabeled_loss, unlabeled),
    ):
        if not isinstance(loss, known):
            names = " or ".join(f"{kind.__name__}()" for kind in known)
            raise ValueError(
                f'{name} cannot minimise {parameter}={loss!r}: leave it at "auto", give {names}, or use solver="tsg", '
                "which takes any loss"
            )


def check_graph(solver: Solver, counts: bool) -> None:
    """Raises a ValueError if a graph of neighbors counts and the solver cannot minimise over it."""
    if counts and not solver.takes_graph:
        raise ValueError(
            f"{type(solver).__name__} needs a problem without a graph of neighbors: leave neighbor_weight at "
            '"auto", which is 0 here, or use a solver that takes a graph: "auto", "batch", "newton", "cccp", "bgs" or '
            '"tsg"'
        )


# Solvers that need all rows at once implement a single column as a generator; what follows runs all columns.


@state_part("Column")
class Column(NamedTuple):
    """The solution of one column so far: ``f(x) = sum_i weights[i] k(centre_i, x) + intercept``.

    `scores` are f at the labelled rows, then at the unlabelled ones; `objective` must never rise; `resume_state` is
    what the solver needs to resume from here.
    """

    weights: Array
    intercept: float
    scores: Array
    objective: float
    resume_state: Any = None


@state_part("Expansion")
@dataclass(frozen=True, eq=False)
class Expansion(RunState):
    """The state of all columns: kernel expansions on the same centres."""

    centers: Rows
    n_labeled: int
    columns: Sequence[Column]

    def model(self) -> Model:
        weights = np.column_stack([column.weights for column in self.columns])
        return self.expansion(self.centers, weights, np.array([column.intercept for column in self.columns]))

    def labeled_scores(self) -> Array:
        return np.column_stack([column.scores[: self.n_labeled] for column in self.columns])


def same_rows(state: State | None, centers: Rows) -> "Expansion | None":
    """The state to resume from, which must have these centres."""
    if state is None:
        return None
    if isinstance(state, Expansion) and are_equal(state.centers, centers):
        return state
    raise ValueError("this solver can resume only with the same rows: set warm_start=False to start again")


def in_step(
    problem: Problem,
    centers: Rows,
    column: Callable[[int, Column | None], Iterator[Column]],
    state: Expansion | None = None,
    n_threads: int = 1,
) -> Iterator[Expansion]:
    """Runs the generators ``column(k, before)`` of all columns side by side, and yields a state per round.

    A finished column stays as it is until all are finished. `before` is the column of `state` to resume from, or None
    if there is no state or it lacks this column.
    """
    known = list(state.columns) if state is not None else []
    columns: list[Column | None] = [*known, *[None] * problem.n_columns][: problem.n_columns]
    running = [column(k, before) for k, before in enumerate(columns)]
    lacks_columns = state is not None and len(known) != problem.n_columns
    iteration = state.iteration if state is not None else 0
    with ThreadPoolExecutor(n_threads) as pool:
        while True:
            # The only thread is the main one, which Ctrl-C can interrupt at once.
            apply: Any = map if n_threads == 1 else pool.map
            advanced, pending = zip(*apply(_advance, running), strict=True)
            for message, category in chain(*pending):
                warn(message, category)
            if all(after is None for after in advanced) and not lacks_columns:
                return
            lacks_columns = False
            columns = [after or before for after, before in zip(advanced, columns, strict=True)]
            iteration += 1
            yield _expansion(problem, centers, [known for known in columns if known is not None], iteration)


def _advance(generator: Iterator[Column]) -> tuple[Column | None, list[PendingWarning]]:
    """The next column if there is one, and the warnings on the way, which the thread of the caller issues."""
    with deferred_warnings() as pending:
        return next(generator, None), pending


def _expansion(problem: Problem, centers: Rows, columns: list[Column], iteration: int) -> Expansion:
    """The state of these columns, with its line of the history."""
    n_l, wanted = problem.n_labeled, columns[: problem.n_models]
    scores = np.column_stack([column.scores for column in wanted])
    r_u = scores[n_l:] if len(scores) > n_l else None
    line = record(problem, np.zeros(problem.n_columns), scores[:n_l], problem.targets, problem.costs, r_u)
    line["objective"] = sum(column.objective for column in wanted)
    return Expansion(centers, n_l, columns, kernel=problem.kernel, seed=problem.seed, iteration=iteration, record=line)

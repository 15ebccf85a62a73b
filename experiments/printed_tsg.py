"""PrintedTSG: Algorithm 1 of the paper, restructured so that no score is computed twice.

    from experiments.printed_tsg import PrintedTSG

Every iteration draws labelled rows, unlabelled rows and a block of random features. The package has its successor,
`s3vm.TSG`; models of this solver can be pickled, but not saved with `s3vm.save`.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, ClassVar, NamedTuple

import numpy as np

from s3vm._utils.arrays import cast, host, is_tensor, namespace, stack
from s3vm._utils.settings import check_settings, integer, switch
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend, Features
from s3vm.model import Model
from s3vm.philox import Purpose
from s3vm.problem import Problem
from s3vm.solvers.base import RunState, State, record, settled
from s3vm.solvers.steps import Step, step, stiffness
from s3vm.solvers.stochastic import (
    FeatureCount,
    StochasticSolver,
    labeled_batches,
    labeled_slope,
    on_device,
    unlabeled_slope,
)
from s3vm.sources import ExhaustedError

_SMALLEST_SCALE = 1e-8


@dataclass(frozen=True)
class PrintedTSG(StochasticSolver):
    """Triply stochastic gradients as printed in the paper: labelled rows, unlabelled rows and random features.

    Iteration t of Algorithm 1 draws a labelled batch, an unlabelled batch and block t of m random features, and steps
    along

        ``alpha_t = -gamma_t (sum_l C_l l'(f(x), y) phi_t(x) + C* mean_u u'(f(x)) phi_t(x))``,

    after which all older coefficients shrink by ``1 - gamma_t``. `TSG` is more accurate. The paper's features are those
    of ``RBF(features="phase")``, its weight is ``unlabeled_weight="paper"``.

    Parameters
    ----------
    max_iter, passes, batch_size, n_features, step, intercept, balance, ramp, n_reference, draw_labeled
        As those of `s3vm.FRS`, with the defaults of the paper.
    max_blocks : int or None, default None
        The maximum number of blocks of features. Further iterations visit these blocks in turn, as doubly stochastic
        gradients may, and memory stops growing. None adds a block per iteration.
    look_ahead : int, default 16
        The number of iterations whose batches are evaluated in one sweep over the old features. It affects the speed
        only.
    """

    takes_tensors: ClassVar[bool] = True

    max_iter: int = 128
    passes: float | None = None
    batch_size: int = 256
    n_features: FeatureCount = "sqrt"
    step: str | Step = "constant"
    intercept: bool = False
    balance: bool = False
    ramp: float = 0.0
    n_reference: int = 2000
    max_blocks: int | None = None
    draw_labeled: bool = True
    look_ahead: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(self, max_iter=integer(), intercept=switch, draw_labeled=switch)
        check_settings(self, max_blocks=(integer(), None), look_ahead=integer())
        if self.balance and not self.intercept:
            raise ValueError("PrintedTSG: the intercept holds the balance: balance=True needs intercept=True")

    def iterations(self, problem: Problem) -> int:
        return self.iterations_for(problem)

    def memory(self, problem: Problem, backend: Backend) -> int:
        size, n_iterations = backend.dtype.itemsize, self.iterations(problem)
        n_features = min(n_iterations, self.max_blocks or n_iterations) * self.block_size(problem)
        n_scored = self.look_ahead * 2 * self.batch_size + problem.n_labeled + self.n_reference
        n_bytes = 2 * size * n_features * problem.n_columns + size * n_scored * problem.n_dims
        return n_bytes + self.frequency_bytes(problem, backend, n_features)

    def pilot(self, max_iter: int) -> "PrintedTSG":
        return replace(self, max_iter=min(self.max_iter, max_iter), passes=None)

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        yield from settled(_algorithm1(self, problem, backend, state))


def _algorithm1(
    solver: PrintedTSG, problem: Problem, backend: Backend, state: State | None = None
) -> Iterator["_State"]:
    """The states of a run of `solver`."""
    n_iterations = solver.iterations(problem)
    m = state.coefficients.shape[1] if isinstance(state, _State) else solver.block_size(problem)
    features = backend.features(problem.kernel, problem.seed, m, problem.n_dims)
    steps, stiff = step(solver.step), stiffness(problem)
    balanced = solver.balanced_columns(problem)
    target = np.where(balanced, 2 * problem.prior - 1, 0.0)
    now = _start(problem, backend, features, target, state).resumed(solver, n_iterations, problem.n_columns, backend)
    layout = _Layout(solver, problem, backend, balanced)

    def pool_of(t: int) -> _Pool:
        start = t - t % solver.look_ahead
        return _Pool(layout, problem, backend, range(start, min(start + solver.look_ahead, n_iterations)))

    arrays = on_device(problem, backend), layout, backend.put(balanced), backend.put(target)
    graphs, one = _graphs(backend), _Iteration(*arrays, solver.intercept)
    scan = graphs.Scan(one) if graphs else partial(scan_steps, one)
    upcoming: _Pool | None = None
    while now.iteration < n_iterations:
        pool = upcoming or pool_of(now.iteration)
        first, stop = now.iteration, pool.iterations.stop
        if solver.max_blocks is not None:  # blocks are visited again, each round starting with the first
            first %= solver.max_blocks
            stop = min(stop, now.iteration + solver.max_blocks - first)
        ahead = range(now.iteration, stop)
        rows, labeled = pool.following(ahead.start)
        now = now.scored(rows, features, backend)
        sizes = [steps.sizes(t, n_iterations, stiff) for t in ahead]
        ready = graphs.ready(features, rows) if graphs else rows
        blocks = graphs.window(features, first, len(ahead)) if graphs else _Window(features, first)
        gammas = backend.put(np.array(sizes))
        shares = backend.put(np.array([solver.annealed_share(t, n_iterations) for t in ahead]))
        drawn = _Inputs(rows, ready, blocks, gammas, shares, labeled)
        results = scan(_Result(now.scores, now.intercept, now.norm), drawn, len(ahead))
        upcoming = pool if stop < pool.iterations.stop else None
        if is_tensor(rows) and upcoming is None and stop < n_iterations:
            with suppress(ExhaustedError):  # the next round will raise it
                upcoming = pool_of(stop)  # while the device is busy with this one
        for block, gamma, result in zip(count(first), sizes, results, strict=False):
            now = now.after(block, result, gamma, layout.labeled_of(result.scores), backend)
            yield now


def _start(problem: Problem, backend: Backend, features: Features, target: Array, state: State | None) -> "_State":
    """The zero function, its intercept at the mean to hold; or the state to resume from, after a check."""
    if state is None:
        coefficients = np.empty((0, features.n_features, problem.n_columns), backend.dtype)
        zeros = np.zeros_like(target)
        arrays = coefficients, target, zeros + 1, zeros
        return _State(problem.n_dims, *arrays, kernel=problem.kernel, seed=problem.seed)
    if not isinstance(state, _State):
        raise ValueError("cannot resume from another algorithm's state: set warm_start=False to start again")
    if state.coefficients.shape[2] != problem.n_columns:
        raise ValueError(
            f"cannot resume with {problem.n_columns} columns from a state of {state.coefficients.shape[2]}"
        )
    return state


def _graphs(backend: Backend) -> Any:
    """The module that records the steps on a GPU of NVIDIA; None elsewhere."""
    if getattr(getattr(backend, "device", None), "type", None) != "cuda":
        return None
    from experiments import cuda_graphs

    return cuda_graphs


def scan_steps(step: Callable[[int, Any, Any], Any], carry: Any, given: Any, n: int) -> Iterator[Any]:
    """``carry = step(i, carry, given)`` for each i below n."""
    for i in range(n):
        carry = step(i, carry, given)
        yield carry


class _Window(NamedTuple):
    """Features counted from block `first` on."""

    features: Features
    first: int

    def adjoint(self, G: Array, X: Rows, n_blocks: int, first_block: int = 0) -> Array:
        return self.features.adjoint(G, X, n_blocks, self.first + first_block)

    def decision(self, coefficients: Array, X: Rows, first_block: int = 0) -> Array:
        return self.features.decision(coefficients, X, self.first + first_block)


class _Inputs(NamedTuple):
    """What some iterations need: rows, the same as the features take them, blocks, step sizes, fractions of C*, and the
    numbers of the labelled rows."""

    rows: Rows
    ready: Any
    blocks: Any
    gammas: Array
    shares: Array
    labeled: Array


class _Result(NamedTuple):
    """The result of an iteration: what it has learnt, and the scores without intercept of the rows of later ones."""

    scores: Array
    intercept: Array
    norm: Array
    alpha: Array | None = None
    line: dict[str, Any] | None = None


@dataclass(frozen=True)
class _Iteration:
    """One iteration, the i-th of those that `drawn` is for: a function of arrays only, which a device can record."""

    problem: Problem
    layout: "_Layout"
    holds: Array
    target: Array
    has_intercept: bool

    def __call__(self, i: int, before: _Result, drawn: _Inputs) -> _Result:
        size = self.layout.step_size
        gamma, rows, later = drawn.gammas[i], drawn.rows[i * size :], drawn.ready[(i + 1) * size :]
        at, gradient, line = self._gradient(before, drawn.labeled[i], drawn.shares[i])
        alpha = -gamma * drawn.blocks.adjoint(gradient, rows[at], 1, first_block=i)[0]
        # ||f||^2 as it would be with the exact kernel; ||alpha||^2 estimates the gradient's share of it.
        norm = (1 - gamma) * ((1 - gamma) * before.norm - 2 * gamma * (gradient * before.scores[at]).sum(axis=0))
        norm = (norm + (alpha * alpha).sum(axis=0)).clip(0)
        scores = (1 - gamma) * before.scores[size:] + drawn.blocks.decision(alpha[None], later, first_block=i)
        intercept = (1 - gamma) * before.intercept - self.has_intercept * gamma * gradient.sum(axis=0)
        if self.layout.n_reference:
            answer = self.target - scores[-self.layout.n_reference :].mean(axis=0)
            intercept = namespace(intercept).where(self.holds, answer, intercept)
        return _Result(scores, intercept, norm, alpha, line)

    def _gradient(self, before: _Result, chosen: Array, share: Array) -> tuple[Array, Array, dict[str, Any]]:
        """The derivative of R with respect to f at some scored rows: their places, the slopes, and a history line."""
        problem, n_reference = self.problem, self.layout.n_reference
        places = self.layout.places(chosen, len(before.scores))
        r_l, r_u = before.scores[places[0]] + before.intercept, None
        parts = [labeled_slope(problem, chosen, r_l)]
        if self.layout.draws_unlabeled:
            r_u = before.scores[places[1]] + before.intercept
            parts.append(unlabeled_slope(problem, r_u, share))
        xp = namespace(r_l)
        if n_reference:
            # The intercept answers every change of the mean over the reference rows, so the gradient is centred there.
            total = self.holds * sum(part.sum(axis=0) for part in parts)
            parts.append(xp.broadcast_to(-total / n_reference, (n_reference, problem.n_columns)))
        costs = problem.n_labeled / len(chosen) * problem.costs[chosen]
        line = record(problem, before.norm, r_l, problem.targets[chosen], costs, r_u)
        return xp.concatenate(places), xp.concatenate(parts), line


class _Pool:
    """The rows whose scores are kept up to date over some iterations: their batches, then the rows that stay.

    A batch does not depend on the model. All batches of the pool are therefore drawn, and scored by the old features,
    at once; each new block is added to the scores of later batches. Labelled rows stay, unless they are so many that
    drawing them is cheaper, and so does the reference sample, which comes last.
    """

    def __init__(self, layout: "_Layout", problem: Problem, backend: Backend, iterations: range) -> None:
        self.iterations, self._layout = iterations, layout
        self._labeled = labeled_batches(problem, iterations, layout.batch_size, layout.draws_labeled)
        drawn: list[Rows] = []
        if not layout.keeps_labeled:
            drawn.append(backend.put(problem.labeled[self._labeled.ravel()]))
        if layout.draws_unlabeled and problem.unlabeled is not None:
            rows = problem.unlabeled.batches(problem.seed, Purpose.UNLABELED, iterations, layout.batch_size)
            drawn.append(backend.put(rows))
        if len(drawn) == 2:
            by_kind = np.arange(2 * len(iterations) * layout.batch_size).reshape(2, len(iterations), -1)
            drawn = [stack(drawn)[backend.put(by_kind.swapaxes(0, 1).ravel())]]
        if layout.keeps_labeled:
            drawn.append(backend.put(problem.labeled))
        if layout.reference is not None:
            drawn.append(layout.reference)
        self._rows, self._labeled = stack(drawn), backend.put(self._labeled)

    def following(self, t: int) -> tuple[Rows, Array]:
        """What iteration t and later ones need: rows, and for each iteration the numbers of its labelled rows."""
        n_done = t - self.iterations.start
        return self._rows[n_done * self._layout.step_size :], self._labeled[n_done:]


class _Layout:
    """Where rows are in the scores of a pool: those of an iteration come first, its unlabelled ones at their end."""

    def __init__(self, solver: PrintedTSG, problem: Problem, backend: Backend, balanced: Array) -> None:
        self.batch_size, self._n_labeled = solver.batch_size, problem.n_labeled
        self.draws_labeled = solver.draw_labeled or self._n_labeled > self.batch_size
        self.keeps_labeled = self._n_labeled <= solver.look_ahead * self.batch_size
        self.draws_unlabeled = problem.uses_unlabeled
        self.step_size = (self.draws_unlabeled + (not self.keeps_labeled)) * self.batch_size
        self.reference, self.n_reference = None, 0
        if balanced.any() and problem.unlabeled is not None:
            self.reference = backend.put(problem.unlabeled.sample(problem.seed, solver.n_reference))
            self.n_reference = self.reference.shape[0]
        n_scores = solver.look_ahead * self.step_size + self._n_labeled + self.n_reference
        self._all_places = backend.put(np.arange(n_scores))

    def places(self, chosen: Array, n: int) -> list[Array]:
        """The places among n scores of the chosen labelled rows, the unlabelled batch, and the reference sample."""
        all_places = self._all_places[:n]
        places = [
            n - self.n_reference - self._n_labeled + chosen if self.keeps_labeled else all_places[: self.batch_size]
        ]
        if self.draws_unlabeled:
            places.append(all_places[self.step_size - self.batch_size : self.step_size])
        if self.n_reference:
            places.append(all_places[-self.n_reference :])
        return places

    def labeled_of(self, scores: Array) -> Array | None:
        """The scores of all labelled rows, if they are kept up to date."""
        end = len(scores) - self.n_reference
        return scores[end - self._n_labeled : end] if self.keeps_labeled else None


@dataclass(frozen=True, eq=False)
class _State(RunState):
    """What Algorithm 1 knows after an iteration.

    The coefficients are ``scale * coefficients[:born]``: shrinking all older ones takes one product per column. The
    array is written only beyond `born`, which no earlier state reads, or copied if a block is visited again. `scores`
    are those of the rows that `made_by`, the solver and its number of iterations, needs next, without intercept;
    `labeled` are those of all labelled rows, if they are kept.
    """

    n_dims: int
    coefficients: Array
    intercept: Array
    scale: Array
    norm: Array
    scores: Array = field(default_factory=lambda: np.empty((0, 0)))
    labeled: Array | None = None
    made_by: "tuple[PrintedTSG, int] | None" = None

    @property
    def born(self) -> int:
        """The number of blocks of features so far."""
        return min(self.iteration, len(self.coefficients))

    def after(self, block: int, result: _Result, gamma: Array, labeled: Array | None, backend: Backend) -> "_State":
        """The state after an iteration on that block."""
        coefficients, scale = self.coefficients, self.scale * (1 - gamma)
        if scale.min() < _SMALLEST_SCALE:
            coefficients = coefficients * cast(backend.put(scale), coefficients.dtype)
            scale = np.ones_like(scale)
        alpha = cast(result.alpha / backend.put(scale), coefficients.dtype)
        if block < self.born:
            coefficients = coefficients + 0  # a copy, since earlier states read it
            coefficients[block] += alpha
        else:
            coefficients[block] = alpha
        now = replace(self, coefficients=coefficients, scale=scale, labeled=labeled, iteration=self.iteration + 1)
        line = {"step": float(gamma[0])} | (result.line or {})
        return replace(now, intercept=result.intercept, norm=result.norm, scores=result.scores, record=line)

    def model(self) -> Model:
        coefficients = host(self.coefficients[: self.born])
        scaled = coefficients * self.scale.astype(coefficients.dtype)
        return Model(self.kernel, self.seed, self.n_dims, scaled, host(self.intercept))

    def labeled_scores(self) -> Array | None:
        return None if self.labeled is None else host(self.labeled + self.intercept)

    def detached(self) -> "_State":
        arrays: dict[str, Any] = {name: host(getattr(self, name)) for name in ("coefficients", "intercept", "norm")}
        return replace(self, scores=np.empty((0, 0)), labeled=None, made_by=None, **arrays)

    def resumed(self, solver: PrintedTSG, n_iterations: int, n_columns: int, backend: Backend) -> "_State":
        """This state for `solver` to resume from: with an array of its own, and its scores if they are of its rows."""
        made_by = (solver, n_iterations)
        before = backend.put(self.coefficients)
        n_blocks = max(min(n_iterations, solver.max_blocks or n_iterations), self.born)
        room = backend.put(np.zeros((n_blocks, *before.shape[1:]), host(before[:0]).dtype))
        room[: self.born] = before[: self.born]
        scores = self.scores if self.made_by == made_by else np.empty((0, n_columns))
        arrays = {name: backend.put(getattr(self, name)) for name in ("intercept", "norm")}
        return replace(self, coefficients=room, scores=backend.put(scores), made_by=made_by, **arrays)

    def scored(self, rows: Rows, features: Features, backend: Backend) -> "_State":
        """This state with the scores of all `rows`; those of the last ones may be known already."""
        missing = rows.shape[0] - len(self.scores)
        if missing == 0:
            return self
        scores = features.decision(self.coefficients[: self.born], rows[:missing]) * backend.put(self.scale)
        return replace(self, scores=namespace(scores).concatenate([scores, self.scores]))

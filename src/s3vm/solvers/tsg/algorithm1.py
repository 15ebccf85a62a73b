"""Algorithm 1 of the paper, restructured so that no work is done twice: labelled rows, unlabelled rows and a block of
random features drawn in every iteration."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from s3vm import philox
from s3vm._utils.arrays import cast, host, is_tensor, namespace, stack
from s3vm._utils.registry import state_part
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend, Features, Sums
from s3vm.kernels import Kernel
from s3vm.model import Model
from s3vm.philox import Purpose
from s3vm.problem import Problem
from s3vm.solvers.base import record
from s3vm.solvers.steps import step
from s3vm.solvers.stochastic import annealed_share, labelled_slope, on_device, stiffness, unlabelled_slope
from s3vm.sources import ExhaustedError

if TYPE_CHECKING:
    from s3vm.solvers.tsg.tsg import TSG

__all__ = ["algorithm1"]

_SMALLEST_SCALE = 1e-8


def algorithm1(solver: "TSG", problem: Problem, backend: Backend, state: "_State | None" = None) -> Iterator["_State"]:
    """The states of a run of `solver`."""
    n_iterations = solver.iterations(problem)
    m = state.coefficients.shape[1] if isinstance(state, _State) else solver.block_size(problem)
    features = backend.features(problem.kernel, problem.seed, m, problem.n_dims)
    steps, stiff = step(solver.step), stiffness(problem)
    balanced = solver.balanced(problem)
    target = np.where(balanced, 2 * problem.prior - 1, 0.0)
    if state is None:
        coefficients = np.empty((0, features.n_features, problem.n_columns), backend.dtype)
        none = np.zeros_like(target)
        state = _State(problem.kernel, problem.seed, problem.n_dims, coefficients, target, none + 1, none)
    elif not isinstance(state, _State):
        raise ValueError("a state of another algorithm cannot be gone on from: set warm_start=False to start afresh")
    elif state.coefficients.shape[2] != problem.n_columns:
        raise ValueError(
            f"cannot go on with {problem.n_columns} columns from a state that has {state.coefficients.shape[2]}"
        )
    state = state.continued(solver, n_iterations, problem.n_columns, backend)
    here, holds, held = on_device(problem, backend), backend.put(balanced), backend.put(target)
    layout = _Layout(solver, problem, backend)

    def _pool(t: int) -> _Pool:
        start = t - t % solver.look_ahead
        return _Pool(layout, problem, backend, range(start, min(start + solver.look_ahead, n_iterations)))

    scan = backend.scan(_Move(here, layout, holds, held, solver.intercept))
    upcoming: _Pool | None = None
    while state.iteration < n_iterations:
        pool = upcoming or _pool(state.iteration)
        first = solver.block_of(state.iteration)
        stop = pool.iterations.stop
        if solver.max_blocks is not None:  # blocks that are visited again begin a round of their own
            stop = min(stop, state.iteration + solver.max_blocks - first)
        now = range(state.iteration, stop)
        rows = pool.rows_from(now.start)
        state = state.scored(rows, features, backend)
        sizes = [steps.sizes(t, n_iterations, stiff) for t in now]
        shares = [annealed_share(solver.ramp, t, n_iterations) for t in now]
        drawn = _Drawn(
            rows,
            features.ready(rows),
            features.window(first, len(now)),
            backend.put(np.array(sizes)),
            backend.put(np.array(shares)),
            pool.labelled_from(now.start),
        )
        moves = scan(_Moved(state.scores, state.intercept, state.norm), drawn, len(now))
        upcoming = pool if now.stop < pool.iterations.stop else None
        if is_tensor(rows) and upcoming is None and now.stop < n_iterations:
            with suppress(ExhaustedError):  # of which the next round hears
                upcoming = _pool(now.stop)  # while the device is busy with this one
        for block, gamma, moved in zip(count(first), sizes, moves, strict=False):
            state = state.after(block, moved, gamma, layout.labelled_of(moved.scores), backend)
            yield state


class _Drawn(NamedTuple):
    """What some iterations need: rows, also as the features take them, blocks, step sizes, shares of C*, and which
    labelled rows."""

    rows: Rows
    ready: Any
    blocks: Sums
    gammas: Array
    shares: Array
    labelled: Array


class _Moved(NamedTuple):
    """Where an iteration ends: scores without intercept of the rows that later ones need, and what it has learnt."""

    scores: Array
    intercept: Array
    norm: Array
    alpha: Array | None = None
    line: dict[str, Any] | None = None


@dataclass(frozen=True)
class _Move:
    """One iteration, the i-th of those that `drawn` is for: a function of arrays alone, which a device can record."""

    problem: Problem
    layout: "_Layout"
    holds: Array
    target: Array
    has_intercept: bool

    def __call__(self, i: int, before: _Moved, drawn: _Drawn) -> _Moved:
        size = self.layout.step_size
        gamma, rows, later = drawn.gammas[i], drawn.rows[i * size :], drawn.ready[(i + 1) * size :]
        at, gradient, line = self._gradient(before, drawn.labelled[i], drawn.shares[i])
        alpha = -gamma * drawn.blocks.adjoint(gradient, rows[at], 1, first_block=i)[0]
        # ||f||^2 as it would be with the exact kernel; ||alpha||^2 estimates the gradient's share of it.
        norm = (1 - gamma) * ((1 - gamma) * before.norm - 2 * gamma * (gradient * before.scores[at]).sum(axis=0))
        norm = (norm + (alpha * alpha).sum(axis=0)).clip(0)
        scores = (1 - gamma) * before.scores[size:] + drawn.blocks.decision(alpha[None], later, first_block=i)
        intercept = (1 - gamma) * before.intercept - self.has_intercept * gamma * gradient.sum(axis=0)
        if self.layout.n_reference:
            answer = self.target - scores[-self.layout.n_reference :].mean(axis=0)
            intercept = namespace(intercept).where(self.holds, answer, intercept)
        return _Moved(scores, intercept, norm, alpha, line)

    def _gradient(self, before: _Moved, chosen: Array, share: Array) -> tuple[Array, Array, dict[str, Any]]:
        """The derivative of R with respect to f at some of the scored rows: where, how much, and what to record."""
        problem, n_reference = self.problem, self.layout.n_reference
        places = self.layout.places(chosen, len(before.scores))
        r_l, r_u = before.scores[places[0]] + before.intercept, None
        parts = [labelled_slope(problem, chosen, r_l)]
        if self.layout.draws_unlabelled:
            r_u = before.scores[places[1]] + before.intercept
            parts.append(unlabelled_slope(problem, r_u, share))
        xp = namespace(r_l)
        if n_reference:
            # The intercept answers every change of the mean over the reference rows, so the gradient is centred there.
            total = self.holds * sum(part.sum(axis=0) for part in parts)
            parts.append(xp.broadcast_to(-total / n_reference, (n_reference, problem.n_columns)))
        costs = problem.n_labelled / len(chosen) * problem.costs[chosen]
        line = record(problem, before.norm, r_l, problem.targets[chosen], costs, r_u)
        return xp.concatenate(places), xp.concatenate(parts), line


class _Pool:
    """The rows whose scores are kept up to date over some iterations: their batches, then the rows that always stay.

    A batch does not depend on the model. All batches of the pool are therefore drawn, and swept over the old features,
    at once; each new block is added to the scores of later batches as it is born. Labelled rows stay, unless they are
    so many that drawing them is cheaper, and so does the reference sample, which comes last.
    """

    def __init__(self, layout: "_Layout", problem: Problem, backend: Backend, iterations: range) -> None:
        self.iterations, self._layout = iterations, layout
        self._labelled = layout.labelled(problem, iterations)
        drawn: list[Rows] = []
        if not layout.keeps_labelled:
            drawn.append(backend.put(problem.labelled[self._labelled.ravel()]))
        if layout.draws_unlabelled and problem.unlabelled is not None:
            rows = problem.unlabelled.batches(problem.seed, Purpose.UNLABELLED, iterations, layout.batch_size)
            drawn.append(backend.put(rows))
        if len(drawn) == 2:
            by_kind = np.arange(2 * len(iterations) * layout.batch_size).reshape(2, len(iterations), -1)
            drawn = [stack(drawn)[backend.put(by_kind.swapaxes(0, 1).ravel())]]
        if layout.keeps_labelled:
            drawn.append(backend.put(problem.labelled))
        if layout.reference is not None:
            drawn.append(layout.reference)
        self._rows, self._labelled = stack(drawn), backend.put(self._labelled)

    def rows_from(self, t: int) -> Rows:
        """The rows that iteration t and later ones need."""
        return self._rows[(t - self.iterations.start) * self._layout.step_size :]

    def labelled_from(self, t: int) -> Array:
        """Which labelled rows iteration t and later ones of the pool look at, a line each."""
        return self._labelled[t - self.iterations.start :]


class _Layout:
    """Where in the scores of a pool which rows are: those of an iteration first, its unlabelled ones last of them."""

    def __init__(self, solver: "TSG", problem: Problem, backend: Backend) -> None:
        self.batch_size, self._n_labelled = solver.batch_size, problem.n_labelled
        self._draws_labelled = solver.draw_labelled or self._n_labelled > self.batch_size
        self.keeps_labelled = self._n_labelled <= solver.look_ahead * self.batch_size
        self.draws_unlabelled = problem.uses_unlabelled
        self.step_size = (self.draws_unlabelled + (not self.keeps_labelled)) * self.batch_size
        self.reference, self.n_reference = None, 0
        if solver.balanced(problem).any() and problem.unlabelled is not None:
            self.reference = backend.put(problem.unlabelled.sample(problem.seed, solver.n_reference))
            self.n_reference = self.reference.shape[0]
        n_scores = solver.look_ahead * self.step_size + self._n_labelled + self.n_reference
        self._everywhere = backend.put(np.arange(n_scores))

    def labelled(self, problem: Problem, iterations: range) -> Array:
        """The labelled rows of each iteration: drawn, or all of them."""
        if not self._draws_labelled:
            return np.tile(np.arange(self._n_labelled), (len(iterations), 1))
        return philox.indices(problem.seed, Purpose.LABELLED, iterations, self.batch_size, self._n_labelled)

    def places(self, chosen: Array, n: int) -> list[Array]:
        """Where among n scores the chosen labelled rows are, the unlabelled batch, and the reference sample."""
        everywhere = self._everywhere[:n]
        places = [
            n - self.n_reference - self._n_labelled + chosen if self.keeps_labelled else everywhere[: self.batch_size]
        ]
        if self.draws_unlabelled:
            places.append(everywhere[self.step_size - self.batch_size : self.step_size])
        if self.n_reference:
            places.append(everywhere[-self.n_reference :])
        return places

    def labelled_of(self, scores: Array) -> Array | None:
        """The scores of all labelled rows, if they are kept up to date."""
        end = len(scores) - self.n_reference
        return scores[end - self._n_labelled : end] if self.keeps_labelled else None


@state_part("Algorithm1.State")
@dataclass(frozen=True, eq=False)
class _State:
    """What TSG knows after an iteration.

    The coefficients are ``scale * coefficients[:born]``: the shrinking of all older ones each iteration is one
    product a column, and the array is only ever written beyond `born`, where no earlier state looks, or copied where a
    block is visited again. `scores` are
    those of the rows that the solver `made_by` looks at next, without intercept; `labelled` are those of all labelled
    rows, where they are kept.
    """

    kernel: Kernel
    seed: int
    n_dims: int
    coefficients: Array
    intercept: Array
    scale: Array
    norm: Array
    iteration: int = 0
    scores: Array = field(default_factory=lambda: np.empty((0, 0)))
    labelled: Array | None = None
    made_by: "tuple[TSG, int] | None" = None
    record: Mapping[str, float] = field(default_factory=dict)

    @property
    def born(self) -> int:
        """How many blocks of features there are."""
        return min(self.iteration, len(self.coefficients))

    def after(self, block: int, moved: _Moved, gamma: Array, labelled: Array | None, backend: Backend) -> "_State":
        coefficients, scale = self.coefficients, self.scale * (1 - gamma)
        if scale.min() < _SMALLEST_SCALE:
            coefficients = coefficients * cast(backend.put(scale), coefficients.dtype)
            scale = np.ones_like(scale)
        alpha = cast(moved.alpha / backend.put(scale), coefficients.dtype)
        if block < self.born:
            coefficients = coefficients + 0  # which an earlier state looks at
            coefficients[block] += alpha
        else:
            coefficients[block] = alpha
        return replace(
            self,
            coefficients=coefficients,
            intercept=moved.intercept,
            scale=scale,
            norm=moved.norm,
            iteration=self.iteration + 1,
            scores=moved.scores,
            labelled=labelled,
            record={"step": float(gamma[0])} | (moved.line or {}),
        )

    def model(self) -> Model:
        coefficients = host(self.coefficients[: self.born])
        scaled = coefficients * self.scale.astype(coefficients.dtype)
        return Model(self.kernel, self.seed, self.n_dims, scaled, host(self.intercept))

    def labelled_scores(self) -> Array | None:
        return None if self.labelled is None else host(self.labelled + self.intercept)

    def detached(self) -> "_State":
        return replace(
            self,
            coefficients=host(self.coefficients),
            intercept=host(self.intercept),
            norm=host(self.norm),
            scores=np.empty((0, 0)),
            labelled=None,
            made_by=None,
        )

    def continued(self, solver: "TSG", n_iterations: int, n_columns: int, backend: Backend) -> "_State":
        """This state as `solver` goes on from it: on an array of its own, and with scores if they are of its rows."""
        made_by = (solver, n_iterations)
        before = backend.put(self.coefficients)
        n_blocks = max(min(n_iterations, solver.max_blocks or n_iterations), self.born)
        room = backend.put(np.zeros((n_blocks, *before.shape[1:]), host(before[:0]).dtype))
        room[: self.born] = before[: self.born]
        scores = self.scores if self.made_by == made_by else np.empty((0, n_columns))
        there = {name: backend.put(getattr(self, name)) for name in ("intercept", "norm")}
        return replace(self, coefficients=room, scores=backend.put(scores), made_by=made_by, **there)

    def scored(self, rows: Rows, features: Features, backend: Backend) -> "_State":
        """This state with the scores of all `rows`, of which the last ones may be known already."""
        missing = rows.shape[0] - len(self.scores)
        if missing == 0:
            return self
        fresh = features.decision(self.coefficients[: self.born], rows[:missing])
        fresh = fresh * backend.put(self.scale)
        return replace(self, scores=namespace(fresh).concatenate([fresh, self.scores]))

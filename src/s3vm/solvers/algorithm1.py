"""Algorithm 1 of the paper, restructured so that no work is done twice: labelled rows, unlabelled rows and a block of
random features drawn in every iteration."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from s3vm import philox
from s3vm._typing import Array, Rows
from s3vm.backends import Backend, Features
from s3vm.kernels import Kernel
from s3vm.models import Model
from s3vm.philox import Stream
from s3vm.problem import Problem
from s3vm.solvers.base import record
from s3vm.solvers.steps import step
from s3vm.solvers.stochastic import grown, labelled_slope, stiffness, unlabelled_slope
from s3vm.sources import stack

if TYPE_CHECKING:
    from s3vm.solvers.tsg import TSG

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
    state = state.continued(solver, n_iterations, problem.n_columns)
    pool = None
    for t in range(state.iteration, n_iterations):
        if pool is None or t % solver.look_ahead == 0:
            start = t - t % solver.look_ahead
            pool = _Pool(solver, problem, range(start, min(start + solver.look_ahead, n_iterations)))
        rows = pool.rows_from(t)
        state = state.scored(rows, features)
        gamma = steps.sizes(t, n_iterations, stiff)
        at, gradient, line = _gradient(solver, problem, pool, state, grown(solver.ramp, t, n_iterations))
        block = solver.block_of(t)
        alpha = -gamma * (gradient.T @ features.features(block, rows[at])).T
        # ||f||^2 as it would be with the exact kernel; ||alpha||^2 estimates the gradient's share of it.
        norm = (1 - gamma) * ((1 - gamma) * state.norm - 2 * gamma * np.einsum("ik,ik->k", gradient, state.scores[at]))
        norm = np.maximum(0, norm + np.einsum("jk,jk->k", alpha, alpha))
        later = slice(pool.step_size, None)
        scores = (1 - gamma) * state.scores[later] + features.decision(alpha[None], rows[later], first_block=block)
        intercept = (1 - gamma) * state.intercept - solver.intercept * gamma * gradient.sum(axis=0)
        if pool.n_reference:
            held = target - scores[-pool.n_reference :].mean(axis=0)
            intercept = np.where(balanced, held, intercept)
        line["step"] = float(gamma[0])
        state = state.after(block, alpha, gamma, scores, intercept, norm, pool.labelled_of(scores), line)
        yield state


def _gradient(
    solver: "TSG", problem: Problem, pool: "_Pool", state: "_State", share: float
) -> tuple[Array, Array, dict[str, float]]:
    """The derivative of R with respect to f at some of the scored rows: where, how much, and what to record."""
    everywhere = np.arange(len(state.scores))
    at, rows = pool.labelled(state.iteration, everywhere)
    r_l, r_u = state.scores[at] + state.intercept, None
    places, parts = [at], [labelled_slope(problem, rows, r_l)]
    if problem.uses_unlabelled:
        at = pool.unlabelled(everywhere)
        r_u = state.scores[at] + state.intercept
        places.append(at)
        parts.append(unlabelled_slope(problem, r_u, share))
    if pool.n_reference:
        # The intercept answers every change of the mean over the reference rows, so the gradient is centred there.
        total = solver.balanced(problem) * sum(part.sum(axis=0) for part in parts)
        places.append(everywhere[-pool.n_reference :])
        parts.append(np.broadcast_to(-total / pool.n_reference, (pool.n_reference, problem.n_columns)))
    costs = problem.n_labelled / len(rows) * problem.costs[rows]
    line = record(problem, state.norm, r_l, problem.targets[rows], costs, r_u)
    return np.concatenate(places), np.concatenate(parts), line


class _Pool:
    """The rows whose scores are kept up to date over some iterations: their batches, then the rows that always stay.

    A batch does not depend on the model. All batches of the pool are therefore drawn, and swept over the old features,
    at once; each new block is added to the scores of later batches as it is born. Labelled rows stay, unless they are
    so many that drawing them is cheaper, and so does the reference sample, which comes last.
    """

    def __init__(self, solver: "TSG", problem: Problem, iterations: range) -> None:
        self._first, self._batch_size, self._n_labelled = iterations.start, solver.batch_size, problem.n_labelled
        self._keeps_labelled = self._n_labelled <= solver.look_ahead * self._batch_size
        self._draws_labelled = solver.draw_labelled or self._n_labelled > self._batch_size
        self._labelled = philox.indices(problem.seed, Stream.LABELLED, iterations, self._batch_size, self._n_labelled)
        drawn: list[Rows] = []
        if not self._keeps_labelled:
            drawn.append(problem.labelled[self._labelled.ravel()])
        if problem.uses_unlabelled and problem.unlabelled is not None:
            drawn.append(problem.unlabelled.batches(problem.seed, Stream.UNLABELLED, iterations, self._batch_size))
        self.step_size = len(drawn) * self._batch_size
        if len(drawn) == 2:
            by_kind = np.arange(2 * len(iterations) * self._batch_size).reshape(2, len(iterations), -1)
            drawn = [stack(drawn)[by_kind.swapaxes(0, 1).ravel()]]
        if self._keeps_labelled:
            drawn.append(problem.labelled)
        self.n_reference = 0
        if solver.balanced(problem).any() and problem.unlabelled is not None:
            drawn.append(problem.unlabelled.sample(problem.seed, solver.n_reference))
            self.n_reference = drawn[-1].shape[0]
        self._rows = stack(drawn)

    def rows_from(self, t: int) -> Rows:
        """The rows that iteration t and later ones need."""
        return self._rows[(t - self._first) * self.step_size :]

    def labelled(self, t: int, everywhere: Array) -> tuple[Array, Array]:
        """The labelled batch of iteration t: where in the scores, and which rows."""
        rows = self._labelled[t - self._first] if self._draws_labelled else np.arange(self._n_labelled)
        if self._keeps_labelled:
            at = everywhere[len(everywhere) - self.n_reference - self._n_labelled :][rows]
        else:
            at = everywhere[: self._batch_size]
        return at, rows

    def labelled_of(self, scores: Array) -> Array | None:
        """The scores of all labelled rows among those that are kept up to date."""
        end = len(scores) - self.n_reference
        return scores[end - self._n_labelled : end] if self._keeps_labelled else None

    def unlabelled(self, everywhere: Array) -> Array:
        """Where in the scores the unlabelled batch is: the last of the first rows, which are of this iteration."""
        return everywhere[self.step_size - self._batch_size : self.step_size]


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

    def after(
        self,
        block: int,
        alpha: Array,
        gamma: Array,
        scores: Array,
        intercept: Array,
        norm: Array,
        labelled: Array | None,
        record: dict[str, float],
    ) -> "_State":
        coefficients, scale = self.coefficients, self.scale * (1 - gamma)
        if scale.min() < _SMALLEST_SCALE:
            coefficients, scale = coefficients * scale.astype(coefficients.dtype), np.ones_like(scale)
        if block < self.born:
            coefficients = coefficients.copy()
            coefficients[block] += (alpha / scale).astype(coefficients.dtype)
        else:
            coefficients[block] = alpha / scale
        return replace(
            self,
            coefficients=coefficients,
            intercept=intercept,
            scale=scale,
            norm=norm,
            iteration=self.iteration + 1,
            scores=scores,
            labelled=labelled,
            record=record,
        )

    def model(self) -> Model:
        coefficients = self.coefficients[: self.born]
        scaled = coefficients * self.scale.astype(coefficients.dtype)
        return Model(self.kernel, self.seed, self.n_dims, scaled, self.intercept)

    def labelled_scores(self) -> Array | None:
        return None if self.labelled is None else self.labelled + self.intercept

    def detached(self) -> "_State":
        return replace(self, scores=np.empty((0, 0)), labelled=None, made_by=None)

    def continued(self, solver: "TSG", n_iterations: int, n_columns: int) -> "_State":
        """This state as `solver` goes on from it: on an array of its own, and with scores if they are of its rows."""
        made_by = (solver, n_iterations)
        n_blocks = max(min(n_iterations, solver.max_blocks or n_iterations), self.born)
        room = np.zeros((n_blocks, *self.coefficients.shape[1:]), self.coefficients.dtype)
        room[: self.born] = self.coefficients[: self.born]
        scores = self.scores if self.made_by == made_by else np.empty((0, n_columns))
        return replace(self, coefficients=room, scores=scores, made_by=made_by)

    def scored(self, rows: Rows, features: Features) -> "_State":
        """This state with the scores of all `rows`, of which the last ones may be known already."""
        missing = rows.shape[0] - len(self.scores)
        if missing == 0:
            return self
        fresh = features.decision(self.coefficients[: self.born], rows[:missing])
        return replace(self, scores=np.concatenate([self.scale * fresh, self.scores]))

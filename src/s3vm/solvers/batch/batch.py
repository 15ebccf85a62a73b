"""Batch: the objective over a sample of rows, minimised on landmarks for all columns at once."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from s3vm import philox
from s3vm._utils.arrays import blocks, cast, host, stack
from s3vm._utils.blas import one_blas_thread
from s3vm._utils.registry import state_part
from s3vm._utils.settings import check_settings, integer, real
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.losses import Exponential, SquaredHinge
from s3vm.model import Model
from s3vm.philox import Purpose
from s3vm.problem import Problem
from s3vm.solvers.balance import means_to_hold
from s3vm.solvers.base import Losses, RunState, Solver, State, needs, record
from s3vm.solvers.batch.convex import convex_solution
from s3vm.solvers.batch.descent import Descent, Point
from s3vm.solvers.batch.space import BLOCK, LandmarkSpace, RowMap, row_map, sum_over_blocks

_RIDGE = 1e-5  # per row, where a function of the space is to be near to another one
_HIGHEST = {"float32": 1e5, "float64": 1e13}  # cost times kernel; with more, the norm is lost in rounding


@dataclass(frozen=True)
class Batch(Solver):
    """The optimum on landmarks, for the squared hinge and ``exp(-s f^2)``.

    Each column minimises

        ``R(f) = ||f||^2 / 2 + sum_i C_i max(0, 1 - y_i f(x_i))^2 / 2 + C* mean_u exp(-s f(x)^2) + c/2 (1/n) f'Lf``

    over the functions on the labelled rows and some unlabelled ones, the landmarks; L is the Laplacian of the
    problem's graph. Without gaps (``C* = 0``) this is convex and solved by Newton's method on the labelled rows. With
    gaps, the run starts there, holds the mean output over the unlabelled rows, raises ``C*`` over the first half of the
    steps, and goes down in the metric of a quadratic above the objective. Costs so high that rounding would hide
    the norm (``C_i k(x, x)`` above 1e5 in float32, 1e13 in float64) are all lowered by the same factor.

    Parameters
    ----------
    max_iter : int, default 200
        Steps with gaps.
    n_landmarks : int, default 1000
        Rows that f is an expansion on: labelled ones first, then unlabelled ones drawn at random.
    max_rows : int, default 10_000
        Unlabelled rows that are looked at: all if there are no more, else a sample.
    ramp : float in [0, 1], default 0.5
        Fraction of the steps over which the unlabelled cost grows from 0 to ``C*``.
    """

    losses: ClassVar[Losses] = (SquaredHinge, Exponential)
    takes_graph: ClassVar[bool] = True
    takes_tensors: ClassVar[bool] = True

    max_iter: int = 200
    n_landmarks: int = 1000
    max_rows: int = 10_000
    ramp: float = 0.5

    def __post_init__(self) -> None:
        check_settings(self, max_iter=integer(), n_landmarks=integer(2), max_rows=integer(2), ramp=real(0, 1))

    def iterations(self, problem: Problem) -> int:
        return 1 + self.max_iter if problem.uses_gaps else 1

    def memory(self, problem: Problem, backend: Backend) -> int:
        n = problem.n_labeled + min(self.max_rows, problem.unlabeled.n_rows if problem.unlabeled is not None else 0)
        m = min(n, self.n_landmarks)
        return int(n * m * backend.dtype.itemsize * 2 + 5 * 8 * m**2 + 8 * (n + 6 * m) * problem.n_columns)

    def full_weight_from(self, problem: Problem) -> int:
        return int(np.ceil(self.ramp * self.iterations(problem)))

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        needs(self, problem, (SquaredHinge,), (Exponential,))
        with one_blas_thread, row_map(backend.n_threads) as each:
            run = BatchRun(self, problem, backend, each)
            if state is None:
                state = run.first()
                yield state
            elif not isinstance(state, _State) or state.w.shape != (len(run.space.mean), problem.n_columns):
                raise ValueError("cannot resume from another algorithm's state: set warm_start=False")
            yield from run.descend(state)


@state_part("Batch.State")
@dataclass(frozen=True, eq=False)
class _State(RunState):
    """Coefficients and intercepts of all columns; `ahead` and `momentum` are the descent's."""

    landmarks: Rows
    root: Array
    mean: Array
    w: Any
    ahead: Any
    momentum: Any
    intercept: Array
    scores: Any

    def model(self) -> Model:
        w = host(self.w).astype(np.float64)
        return self.expansion(self.landmarks, self.root @ w, self.intercept - self.mean @ w)

    def labeled_scores(self) -> Array:
        return host(self.scores)

    def detached(self) -> "_State":
        arrays: dict[str, Any] = {name: host(getattr(self, name)) for name in ("w", "ahead", "momentum", "scores")}
        return replace(self, **arrays)


class BatchRun:
    """The steps of one run: `convex`, then `minimise` or, a recorded step at a time, `descend`.

    `rows` are those of the space, labelled ones first; otherwise the graph's, or those that the objective needs.
    """

    def __init__(
        self, solver: Batch, problem: Problem, backend: Backend, each: RowMap, rows: Rows | None = None
    ) -> None:
        self._solver, self._backend, self._each = solver, backend, each
        graph, n_l = problem.graph if problem.uses_graph else None, problem.n_labeled
        if rows is None:
            rows = graph.rows if graph is not None else _sample(problem, solver.max_rows)
        landmarks = rows[_landmarks(problem.seed, n_l, int(rows.shape[0]), solver.n_landmarks)]
        laplacian = graph.laplacian if graph is not None else None
        self.space = LandmarkSpace.of(problem.kernel, rows, n_l, landmarks, laplacian, backend, each)
        self._problem = _within_precision(problem, host(self.space.features[:n_l]))

    def convex(self) -> tuple[Array, Array]:
        """Coefficients and intercepts without gaps."""
        return convex_solution(self.space, self._problem)

    def means(self, w: Array, intercept: Array, columns: Array) -> Array:
        """The mean outputs that these columns hold with gaps: their intercepts, since features are centred."""
        scores = host(self.space.features[self._problem.n_labeled :]) @ w[:, columns] + intercept[columns]
        return means_to_hold(self._problem, scores, columns)

    def minimize(self, w: Array, intercept: Array, columns: Array) -> Array:
        """The coefficients of these columns after all steps from `w`, which has those of all columns."""
        put, dtype, total = self._backend.put, self._backend.dtype, self._solver.max_iter
        descent = self._descent(columns, intercept)
        start = cast(put(w[:, descent.columns]), dtype)
        point = Point(start, start, cast(put(np.ones(len(columns))), dtype))
        for step in range(total):
            point = descent.step(point, self._share(step, total))
        result = np.empty((len(w), len(columns)))
        result[:, np.searchsorted(columns, descent.columns)] = host(point.w)
        return result

    def scores(self, w: Array, intercept: Array, n: int | None = None) -> Array:
        """The scores of all rows, or of the first n, labelled ones first."""
        features, there = self.space.features, cast(self._backend.put(w), self._backend.dtype)
        parts = blocks(len(features) if n is None else n, BLOCK)
        return np.concatenate([host(features[part] @ there) for part in parts]).astype(np.float64) + intercept

    def nearest(self, scores: Array) -> tuple[Array, Array]:
        """Coefficients and intercepts of the functions that are nearest to the scores ``(n, K)`` on all rows."""
        Z, mean, dtype = self.space.features, scores.mean(axis=0), self._backend.dtype
        n, target = len(Z), cast(self._backend.put(scores - mean), dtype)
        gram, right = (
            host(cast(sum_over_blocks(of_block, Z, 0, self._each), np.float64))
            for of_block in (lambda part: Z[part].T @ Z[part], lambda part: Z[part].T @ target[part])
        )
        center = host(cast(Z, np.float64).mean(axis=0))
        gram = gram - n * np.outer(center, center)
        gram.flat[:: len(gram) + 1] += _RIDGE * n
        w = cho_solve(cho_factor(gram, lower=True, check_finite=False), right, check_finite=False)
        return w, mean - center @ w

    @cached_property
    def _spread(self) -> Any:
        """The sum of ``zz'`` over the unlabelled rows, in float64."""
        Z = self.space.features
        parts = sum_over_blocks(lambda part: Z[part].T @ Z[part], Z, self._problem.n_labeled, self._each)
        return cast(parts, np.float64)

    def _descent(self, columns: Array, intercept: Array) -> Descent:
        """The descent of these columns, in groups with a metric each."""
        groups = _groups(self._problem, columns)
        return Descent(self.space, self._problem, groups, intercept, self._spread, self._backend, self._each)

    def _share(self, step: int, total: int) -> float:
        """The fraction of the unlabelled cost that counts in a step."""
        return min(1.0, (step + 1) / max(1.0, self._solver.ramp * total))

    def first(self) -> "_State":
        w, intercept = self.convex()
        if self._problem.uses_gaps:
            moving = np.flatnonzero(self._problem.unlabeled_cost > 0)
            intercept[moving] = self.means(w, intercept, moving)
        momentum, nothing = np.ones(w.shape[1], self._backend.dtype), np.empty(0)
        ahead = w.astype(self._backend.dtype)
        space, problem = self.space, self._problem
        arrays = space.landmarks, space.root, space.mean, w, ahead, momentum, intercept, nothing
        return self._recorded(_State(*arrays, kernel=problem.kernel, seed=problem.seed, iteration=1))

    def descend(self, state: "_State") -> "Iterator[_State]":
        problem, total = self._problem, self._solver.iterations(self._problem) - 1
        moving = np.flatnonzero(problem.unlabeled_cost > 0) if problem.uses_gaps else np.empty(0, np.intp)
        if not len(moving) or state.iteration > total:
            return
        descent = self._descent(moving, state.intercept)
        columns = descent.columns
        put, dtype = self._backend.put, self._backend.dtype
        state = replace(state, w=cast(put(state.w), dtype), ahead=put(state.ahead), momentum=put(state.momentum))
        for step in range(state.iteration - 1, total):
            # copies, wherever they are
            w, ahead, momentum = (part + 0 for part in (state.w, state.ahead, state.momentum))
            point = Point(w[:, columns], ahead[:, columns], momentum[columns])
            w[:, columns], ahead[:, columns], momentum[columns] = descent.step(point, self._share(step, total))
            state = self._recorded(replace(state, w=w, ahead=ahead, momentum=momentum, iteration=step + 2))
            yield state

    def _recorded(self, state: "_State") -> "_State":
        """The state with its scores of the labelled rows, and its line of the history."""
        problem, space, main = self._problem, self.space, slice(0, self._problem.n_models)
        n_l, features = problem.n_labeled, self.space.features
        at = cast(self._backend.put(state.w), self._backend.dtype)
        scores = host(features[:n_l] @ at) + state.intercept
        w, b, cost = host(at[:, main]).astype(np.float64), state.intercept[main], problem.graph_costs[main]
        r_u = host(features[n_l:] @ at[:, main]) + b if problem.uses_gaps else None
        u = np.vstack([w, b])
        norm = np.zeros(problem.n_columns)
        norm[main] = np.sum(w**2, axis=0) + cost * np.sum(u * (space.rough @ u), axis=0)
        line = record(problem, norm, scores, problem.targets, problem.costs, r_u)
        return replace(state, scores=scores, record=line)


def _within_precision(problem: Problem, labeled: Array) -> Problem:
    """The problem with costs that do not exceed `_HIGHEST`, given z of the labelled rows."""
    size = max(float(np.mean(np.sum(labeled**2, axis=1))), 1e-300)
    factor = _HIGHEST[labeled.dtype.name] / size / max(float(problem.costs.max()), 1e-300)
    if factor >= 1:
        return problem
    graph_cost = None if problem.graph_cost is None else factor * problem.graph_cost
    lowered = factor * problem.costs, factor * problem.unlabeled_cost, graph_cost
    return replace(problem, costs=lowered[0], unlabeled_cost=lowered[1], graph_cost=lowered[2])


def _groups(problem: Problem, columns: Array) -> list[Array]:
    """Columns whose costs differ by a factor only, which share a metric."""
    total = np.maximum(problem.costs[:, columns].sum(axis=0), 1e-300)
    ratios = np.array([problem.unlabeled_cost[columns] / total, problem.graph_costs[columns] / total])
    keys = [tuple(f"{ratio:.6g}" for ratio in each) for each in ratios.T]
    return [columns[[key == other for other in keys]] for key in dict.fromkeys(keys)]


def _sample(problem: Problem, most: int) -> Rows:
    """Labelled rows, then unlabelled ones: all of them, or a sample."""
    if problem.unlabeled is None or not problem.uses_gaps:
        return problem.labeled
    return stack([problem.labeled, host(problem.unlabeled.sample(problem.seed, most))])


def _landmarks(seed: int, n_labeled: int, n: int, most: int) -> Array:
    """The numbers of the rows that f is an expansion on."""
    n_unlabeled = n - n_labeled
    from_labeled = min(n_labeled, max(most // 2, most - n_unlabeled))  # of very many labelled rows, some
    labeled = philox.distinct(seed, Purpose.LABELED, 0, from_labeled, n_labeled)
    return np.append(labeled, n_labeled + philox.distinct(seed, Purpose.UNLABELED, 0, most - from_labeled, n_unlabeled))

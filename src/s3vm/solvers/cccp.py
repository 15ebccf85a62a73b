"""BLS3VM: the concave-convex procedure for the ramp loss (Collobert, Sinz, Weston and Bottou 2006)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from s3vm._utils.registry import state_part
from s3vm._utils.settings import between, check_settings, integer
from s3vm._utils.typing import Array
from s3vm._utils.warn import warn
from s3vm.backends import Backend
from s3vm.losses import Hat, Hinge, Ramp
from s3vm.problem import Problem, first_equal
from s3vm.solvers import gram, smo
from s3vm.solvers.balance import means_to_hold
from s3vm.solvers.base import Column, Expansion, Losses, Solver, State, in_step, needs, same_rows
from s3vm.solvers.deformed import DeformedKernel
from s3vm.solvers.supervised import supervised_start

_MOST_STEPS = 10_000_000
_START_TOL = 1e-6  # of the first solution with a graph
_TIGHTER = 5  # times, each by a factor of 10, where the objective would rise


@dataclass(frozen=True)
class CCCP(Solver):
    """The concave-convex procedure: a sequence of convex problems, none of which raises R(f).

    An unlabelled row counts once as +1 and once as -1, each time with the ramp ``H_1(y f) - H_s(y f)``. The second term
    is concave and is replaced by its tangent at the last solution, which moves the box of the row's dual coefficient.
    With c the cost of one unlabelled row, and `side` the sign of the last ``f(x)``, or 0 where ``|f(x)| <= -s``, it is
    ``c (side - 1) <= a <= c (side + 1)``, and the row counts as +1 below ``c side``, as -1 above. Each problem is
    solved by SMO starting from the previous solution, until no row changes its side. The first solution is the
    supervised one, its intercept moved so that it holds the balance.

    A graph of the problem deforms the kernel (`s3vm.solvers.deformed`). The first solution is then that of the labelled
    rows and the graph, and the kernel matrix of all rows is kept in float64, once for each cost of the graph.

    Parameters
    ----------
    max_iter : int, default 100
        Maximum number of convex problems.
    tol : float, default 1e-3
        Tolerance of a solution in units of f (the gap of its optimality conditions). It is lowered where the
        objective would rise otherwise.
    balance : "supervised", "prior" or None, default "supervised"
        The mean of f over the unlabelled rows that every solution holds. ``"supervised"`` is the mean of the supervised
        solution, shifted to the right class shares if these are given or labels are few; ``"prior"`` is the original
        ``2 prior - 1``, which does badly on skewed classes. With None, all rows may end up in one class.
    """

    losses: ClassVar[Losses] = (Hinge, Ramp)
    takes_graph: ClassVar[bool] = True

    max_iter: int = 100
    tol: float = 1e-3
    balance: Literal["supervised", "prior"] | None = "supervised"

    def __post_init__(self) -> None:
        check_settings(self, max_iter=integer(), tol=between(0, 1), balance=("supervised", "prior", None))

    def iterations(self, problem: Problem) -> int:
        return 1 + self.max_iter if problem.uses_gaps else 1

    def memory(self, problem: Problem, backend: Backend) -> int:
        n = problem.n_rows if problem.uses_unlabeled else problem.n_labeled
        at_once = min(backend.n_threads, problem.n_columns)
        columns = 2 * 8 * 8 * n * problem.n_columns  # eight arrays each, of this state and the last
        deformed = np.unique(problem.graph_costs[problem.graph_costs > 0])
        of_graph = 8 * n**2 * (2 + len(deformed)) if len(deformed) else 0
        return gram.memory(problem.labeled, n, backend, at_once) + columns + 3 * 8 * problem.n_labeled**2 + of_graph

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        needs(self, problem, (Hinge,), (Ramp, Hat))
        rounds = _Rounds(self, problem, backend)
        before = same_rows(state, rounds.centers)
        yield from in_step(problem, rounds.centers, rounds.column, rounds.checked(before), backend.n_threads)


@state_part("CCCP.ResumeState")
class _ResumeState(NamedTuple):
    """The coefficients of the rows and of their mean, f without intercept, and the boxes that they are optimal for.

    With a graph f has the intercept, and belongs to a cost of the graph.
    """

    a: Array
    f: Array
    boxes: Array
    graph_cost: float = 0.0


class _Rounds:
    """What the columns share: the kernel matrix, the supervised solutions and the means to hold."""

    def __init__(self, solver: CCCP, problem: Problem, backend: Backend) -> None:
        self._solver, self._problem = solver, problem
        self.centers = problem.all_rows() if problem.uses_unlabeled else problem.labeled
        n_l, n = self._n_labeled, self._n = problem.n_labeled, int(self.centers.shape[0])
        self._n_left = solver.iterations(problem) - 1
        self._flat = -problem.unlabeled_loss.s if isinstance(problem.unlabeled_loss, Ramp) else 0.0
        self._matters = (problem.unlabeled_cost > 0) & (n > n_l)
        self._balanced = solver.balance is not None and n > n_l
        mean_of = slice(n_l, n) if self._balanced else None
        self._gram = gram.Gram(problem.kernel, self.centers, backend.cache_bytes, backend.dtype, mean_of)
        _, dual, self._intercept = supervised_start(problem)
        self._dual = np.concatenate([dual, np.zeros((self._gram.n - n_l, problem.n_columns))])
        self._start = np.column_stack([self._gram.times(np.arange(n_l), values) for values in dual.T])
        self._held = 2 * problem.prior - 1
        self._deformed = self._deformed_kernels(mean_of)
        self._smooth = self._smooth_starts()
        if self._balanced and solver.balance == "supervised":
            scores = self._start[n_l:n] + self._intercept
            for k, (_, f) in self._smooth.items():
                scores[:, k] = f[n_l:n]
            self._held = means_to_hold(problem, scores)

    def _deformed_kernels(self, mean_of: slice | None) -> dict[float, DeformedKernel]:
        """The kernel of each cost of the graph."""
        problem, costs = self._problem, np.unique(self._problem.graph_costs)
        if problem.graph is None or not problem.uses_graph:
            return {}
        fixed = problem.kernel, self.centers, problem.graph.form_on(self.centers)
        return {cost: DeformedKernel(*fixed, cost, mean_of) for cost in costs[costs > 0].tolist()}

    def _smooth_starts(self) -> dict[int, tuple[Array, Array]]:
        """The SVM of the labelled rows with each deformed kernel: coefficients and f; equal ones are solved once."""
        problem, n_l = self._problem, self._n_labeled
        first = first_equal(problem.targets, problem.costs, problem.graph_costs)
        starts: dict[int, tuple[Array, Array]] = {}
        for k in np.flatnonzero(problem.graph_costs > 0).tolist():
            if first[k] == k:
                boxes = self._boxes(k, np.zeros(self._n - n_l))
                boxes[1:, n_l:-1] = 0.0  # of unlabelled rows and their mean
                z, lower, knee, upper = boxes
                kernel = self._gram_of(k)
                solution = smo.solve(kernel, z, lower, upper, knee=knee, tol=_START_TOL, max_steps=_MOST_STEPS)
                starts[k] = solution.a, solution.f
            starts[k] = starts[first[k]]
        return starts

    def _gram_of(self, k: int) -> gram.Gram:
        cost = float(self._problem.graph_costs[k])
        return self._deformed[cost].gram if cost else self._gram

    def checked(self, before: Expansion | None) -> Expansion | None:
        """The state to resume from, which must come from this solver."""
        if before is None:
            return None
        for k, column in enumerate(before.columns[: self._problem.n_columns]):
            if not isinstance(column.resume_state, _ResumeState) or len(column.resume_state.a) != self._gram_of(k).n:
                raise ValueError(
                    "CCCP can resume only from a CCCP run with the same kind of balance, and with a graph only from "
                    "one with a graph: set warm_start=False to start again"
                )
        self._n_left -= before.iteration - 1
        return before

    def column(self, k: int, before: Column | None) -> Iterator[Column]:
        """The supervised solution, then those of the convex problems."""
        if before is None or before.resume_state.graph_cost != self._problem.graph_costs[k]:
            a, f = self._smooth.get(k, (self._dual[:, k], self._start[:, k]))
            before = self._column_at(k, a, f, self._intercept[k], np.empty(0))
            yield before
        else:  # the costs may have changed
            a, f, boxes, _ = before.resume_state
            before = self._column_at(k, a, f, before.intercept, boxes)
        for _ in range(self._n_left if self._matters[k] else 0):
            boxes = self._boxes(k, before.scores[self._n_labeled :])
            if np.array_equal(boxes, before.resume_state.boxes):
                return
            after = self._solve(k, boxes, before)
            if after is None:
                return
            before = after
            yield before

    def _solve(self, k: int, boxes: Array, before: Column) -> Column | None:
        """The solution of a convex problem, exact enough not to raise the objective; None if that is impossible."""
        a, f, *_ = before.resume_state
        z, lower, knee, upper = boxes
        tol, max_steps = self._solver.tol, _MOST_STEPS
        for _ in range(_TIGHTER):
            a, f, intercept, gap, _ = smo.solve(
                self._gram_of(k), z, lower, upper, knee=knee, start=(a, f), tol=tol, max_steps=max_steps
            )
            if gap >= self._solver.tol:
                warn(
                    f"CCCP: after {max_steps:,} steps the conditions of a convex problem were still off by {gap:.1e}: "
                    "standardise the features, or lower C",
                    ConvergenceWarning,
                )
            after = self._column_at(k, a, f, intercept, boxes)
            if after.objective <= before.objective:
                return after
            if gap >= tol:  # as exact as the precision allows
                return None
            tol, max_steps = tol / 10, _MOST_STEPS // 10
        return None

    def _boxes(self, k: int, r_u: Array) -> Array:
        """``z``, lower bounds, knees and upper bounds: of labelled rows, of unlabelled ones and of their mean.

        A deformed kernel has one more variable.
        """
        side = np.sign(r_u) * (np.abs(r_u) > self._flat)
        cost = self._problem.unlabeled_cost[k] / len(side)
        y, c = self._problem.targets[:, k], self._problem.costs[:, k]
        of_labeled = np.array([y, np.minimum(0, c * y), np.maximum(0, c * y), np.maximum(0, c * y)])
        of_unlabeled = np.array([np.ones(len(side)), cost * (side - 1), cost * side, cost * (side + 1)])
        of_mean = np.array([[self._held[k]], [-np.inf], [np.inf], [np.inf]])
        boxes = [of_labeled, of_unlabeled, of_mean][: 2 + self._balanced]
        if self._problem.graph_costs[k] > 0:
            boxes.append(np.array([[0.0], [-np.inf], [np.inf], [np.inf]]))
        return np.hstack(boxes)

    def _column_at(self, k: int, a: Array, f: Array, intercept: float, boxes: Array) -> Column:
        n_l, n = self._n_labeled, self._n
        graph_cost = float(self._problem.graph_costs[k])
        if graph_cost:
            scores = f[:n]
            weights, intercept = self._deformed[graph_cost].function(a, scores)
        else:
            weights = a[:n].copy()
            if self._balanced and self._matters[k]:
                # The last variable is the mean of the unlabelled rows; the intercept is what it lacks to the mean held.
                weights[n_l:] += a[n] / (n - n_l)
                intercept = self._held[k] - f[n]
            scores = f[:n] + intercept
        objective = self._problem.objective(k, float(a @ f), scores[:n_l], scores[n_l:])
        return Column(weights, float(intercept), scores, objective, _ResumeState(a, f, boxes, graph_cost))

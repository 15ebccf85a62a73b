"""NTS3VM: Newton steps in the primal, with an unlabelled cost that grows from round to round (Chapelle 2007)."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from scipy import sparse

from s3vm._utils.registry import state_part
from s3vm._utils.settings import above, check_settings, integer
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.losses import Exponential, SquaredHinge
from s3vm.problem import Problem, first_equal
from s3vm.solvers.balance import means_to_hold
from s3vm.solvers.base import Column, Losses, Solver, State, in_step, needs, same_rows
from s3vm.solvers.newton.function_spaces import CHUNK, SAMPLE, Function, Space, curved_inverse, kernel_matrix, space_on
from s3vm.solvers.newton.risk import Risk, SmoothSolution, backtrack, smooth_solution

_SUPERVISED_STEPS = 100  # at most, for the start; five are usual
_STEPS = 8  # per round except the last
_ROUGH = 0.01  # such a round ends at a gradient of this times sqrt(C*), about 5e-5 C* above its minimum


@dataclass(frozen=True)
class Newton(Solver):
    """Newton's method on the kernel expansion, for the squared hinge and ``exp(-s f^2)``.

    Each column minimises Eq. 1,

        ``R(f) = ||f||^2 / 2 + sum_i C_i max(0, 1 - y_i f(x_i))^2 / 2 + C* mean_u exp(-s f(x)^2) + c/2 (1/n) f'Lf``,

    over the functions with a given mean output over the unlabelled rows; L is the Laplacian of the problem's graph. It
    starts at the solution without unlabelled loss and with a free intercept, that of the labelled rows and the graph,
    and with a small ``C*``, which each round multiplies by `growth` before minimising again: the objective is not
    convex, and this leads to better minima than the full ``C*`` at once. A step solves Newton's equations by conjugate
    gradients, preconditioned by the factorised Hessian without its negative curvature; where negative curvature is met,
    they stop with the step so far. The step is halved until the objective falls.

    The gradient in the history is that of the objective of the round in the norm of f (the kernel's Hilbert space), the
    largest of the wanted columns.

    Parameters
    ----------
    max_iter : int, default 300
        The maximum number of iterations: Newton steps, and the start of each round.
    tol : float > 0, default 1e-5
        The norm of the gradient at which it ends; less for a column with a total cost of labelled rows below 1.
    rounds : int, default 10
        The number of rounds; the last one has the full ``C*``.
    growth : float > 1, default 2.0
        The factor between the unlabelled costs of two rounds.
    balance : "supervised" or "prior", default "supervised"
        The mean output over the unlabelled rows: that of the supervised solution (shifted first to the class shares, if
        these are known or there are few labels), or ``2 prior - 1``.
    n_landmarks : int or None, default None
        The number of unlabelled rows, drawn at random, in the expansion, in addition to the labelled ones; None takes
        all. With a number, time and memory grow with ``n`` instead of its square.
    max_factor : int, default 1600
        The maximum number of rows whose curvature is factorised exactly; more are represented by a sample.
    """

    losses: ClassVar[Losses] = (SquaredHinge, Exponential)
    takes_graph: ClassVar[bool] = True

    max_iter: int = 300
    tol: float = 1e-5
    rounds: int = 10
    growth: float = 2.0
    balance: Literal["supervised", "prior"] = "supervised"
    n_landmarks: int | None = None
    max_factor: int = 1600

    def __post_init__(self) -> None:
        check_settings(self, max_iter=integer(), tol=above(0), rounds=integer(), growth=above(1))
        check_settings(self, balance=("supervised", "prior"), n_landmarks=(integer(), None), max_factor=integer())

    def iterations(self, problem: Problem) -> int:
        return self.max_iter

    def memory(self, problem: Problem, backend: Backend) -> int:
        n_rows, n_labeled = problem.n_rows, problem.n_labeled
        at_once, spanned = min(backend.n_threads, problem.n_columns), self.spanned(problem)
        if not problem.uses_unlabeled:
            return 8 * n_labeled**2 * (1 + at_once)
        n_dims = 0 if sparse.issparse(problem.labeled) else problem.n_dims
        n_numbers = n_rows * (n_labeled + 3 * n_dims + 20 * problem.n_columns)
        if spanned == n_rows <= self.max_factor:
            n_deformed = len(np.unique(problem.graph_costs[problem.graph_costs > 0]))
            return 8 * (n_numbers + (1 + at_once + n_deformed) * n_rows**2)
        n_features, n_kept = spanned, n_rows * spanned
        if spanned == n_rows:
            n_features = min(n_rows, n_labeled + SAMPLE)
            n_kept = n_rows**2 + 2 * n_rows * n_features
        scaled = min(n_rows, CHUNK) * n_features
        return 8 * (n_numbers + n_kept + 3 * n_features**2 + at_once * (scaled + n_features**2))

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        needs(self, problem, (SquaredHinge,), (Exponential,))
        work = _Work(self, problem)
        before = same_rows(state, work.centers)
        done = before.iteration if before is not None else 0
        states = in_step(problem, work.centers, work.column, before, backend.n_threads)
        for _, now in zip(range(done, self.max_iter), states, strict=False):
            gradient = max(column.resume_state.gradient for column in now.columns[: problem.n_models])
            yield replace(now, record={**now.record, "gradient": gradient})

    def spanned(self, problem: Problem) -> int:
        """The number of rows in the expansion."""
        return min(problem.n_rows, problem.n_labeled + (self.n_landmarks or problem.n_rows))


@state_part("Newton.ResumeState")
class _ResumeState(NamedTuple):
    """What a column resumes from; `gradient` is the norm of the gradient, `step` counts the steps of the round."""

    gradient: float
    function: Function
    round: int = 0
    step: int = 0


class _Work:
    """What the columns of a run share: kernel values, and the function space of columns with unlabelled rows."""

    def __init__(self, solver: Newton, problem: Problem) -> None:
        self._solver, self._problem, self._n_labeled = solver, problem, problem.n_labeled
        rows = problem.all_rows() if problem.uses_unlabeled else problem.labeled
        exact = rows.astype(np.float64)
        self._to_labeled = kernel_matrix(problem.kernel, exact, exact[: self._n_labeled])
        self._space: Space | None = None
        self.centers: Rows = problem.labeled
        if problem.uses_unlabeled:
            self._dual, scores = self._supervised_start()
            spanned = solver.spanned(problem)
            self._space, chosen = space_on(problem, exact, spanned, solver.max_factor)
            self.centers = rows if spanned == problem.n_rows else rows[chosen]
            self._smooth = self._smooth_starts(self._space)
            for k, start in self._smooth.items():
                scores[:, k] = start.function.values[self._n_labeled :] + start.intercept
            self._targets = means_to_hold(problem, scores) if solver.balance == "supervised" else 2 * problem.prior - 1

    def column(self, k: int, before: Column | None) -> Iterator[Column]:
        if self._space is not None and self._problem.unlabeled_cost[k] > 0:
            return self._annealed(self._space, k, before)
        if self._space is not None and k in self._smooth:
            return self._smooth_alone(self._space, k, before)
        return self._supervised(k, before)

    def _tolerance(self, k: int) -> float:
        return self._solver.tol * min(1.0, float(self._problem.costs[:, k].sum()))

    def _fits(self, k: int, dual: Array, intercept: float) -> Iterator[tuple[float, Array, float]]:
        gram = self._to_labeled[: self._n_labeled]
        return _supervised_fits(gram, self._problem, k, dual, intercept, self._tolerance(k))

    def _supervised(self, k: int, before: Column | None) -> Iterator[Column]:
        """The columns on the way to the SVM of the labelled rows."""
        n_l = self._n_labeled
        start = (np.zeros(n_l), 0.0) if before is None else (before.weights[:n_l], before.intercept)
        for gradient, dual, intercept in islice(self._fits(k, *start), 0 if before is None else 1, None):
            weights = np.zeros(self.centers.shape[0])
            weights[:n_l] = dual
            scores = self._to_labeled @ dual + intercept
            norm = float(dual @ (scores[:n_l] - intercept))
            objective = self._problem.objective(k, norm, scores[:n_l], scores[n_l:])
            yield Column(weights, intercept, scores, objective, _ResumeState(gradient, Function(dual, scores)))

    def _supervised_start(self) -> tuple[Array, Array]:
        """The supervised solution of every column, equal ones solved once, and its scores at the unlabelled rows."""
        problem, n_l = self._problem, self._n_labeled
        dual, intercept = np.zeros(problem.targets.shape), np.zeros(problem.n_columns)
        for k, first in enumerate(first_equal(problem.targets, problem.costs)):
            if first == k:
                fits = islice(self._fits(k, np.zeros(n_l), 0.0), _SUPERVISED_STEPS)
                _, dual[:, k], intercept[k] = deque(fits, maxlen=1)[0]
            dual[:, k], intercept[k] = dual[:, first], intercept[first]
        return dual, self._to_labeled[n_l:] @ dual + intercept

    def _smooth_starts(self, space: Space) -> dict[int, SmoothSolution]:
        """The solution with the graph and without gaps of each column that the graph counts in, equal ones once."""
        problem, starts = self._problem, dict[int, SmoothSolution]()
        first = first_equal(problem.targets, problem.costs, problem.graph_costs)
        for k in np.flatnonzero(problem.graph_costs > 0).tolist():
            is_new = first[k] == k
            starts[k] = smooth_solution(problem, k, space, self._tolerance(k)) if is_new else starts[first[k]]
        return starts

    def _smooth_alone(self, space: Space, k: int, before: Column | None) -> Iterator[Column]:
        """The column without gaps, which is the solution, unless the run before has ended there."""
        f, intercept, gradient = self._smooth[k]
        column = self._column(space, k, f, intercept, _ResumeState(gradient, f))
        if before is None or not np.array_equal(before.weights, column.weights):
            yield column

    def _column(self, space: Space, k: int, f: Function, intercept: float, resume_state: "_ResumeState") -> Column:
        n_l, scores = self._n_labeled, f.values + intercept
        weights, constant = space.expansion(f.coefficients)
        norm = space.inner(f, f)
        if self._problem.graph_costs[k]:
            norm += self._problem.graph_costs[k] * (scores @ (space.form @ scores))
        objective = self._problem.objective(k, norm, scores[:n_l], scores[n_l:])
        return Column(weights, intercept + constant, scores, objective, resume_state)

    def _annealed(self, space: Space, k: int, before: Column | None) -> Iterator[Column]:
        """The columns on the way to a minimum of Eq. 1, round by round."""
        problem, n_l, last = self._problem, self._n_labeled, self._solver.rounds - 1
        target = float(self._targets[k])
        if before is None and k in self._smooth:
            f, turn, step = self._smooth[k].function, 0, 0
        elif before is None:
            on_rows = np.concatenate([self._dual[:, k], np.zeros(problem.n_rows - n_l)])
            f, turn, step = space.function(space.adjoint(on_rows)), 0, 0
        else:
            _, f, turn, step = before.resume_state
        while True:
            risk = Risk(problem, k, space, target, self._solver.growth ** (turn - last))
            gradient, curvature = risk.derivatives(f)
            size = float(np.sqrt(max(space.inner(gradient, gradient), 0.0)))
            if before is None:
                yield self._column(space, k, f, target, _ResumeState(size, f, turn, step))
            before = None
            moved = None
            if turn == last or step < _STEPS:
                enough = self._tolerance(k) if turn == last else _ROUGH * np.sqrt(problem.unlabeled_cost[k])
                moved = risk.step(f, gradient, curvature) if size > enough else None
            if moved is not None:
                f, step = moved, step + 1
            elif turn < last:
                turn, step = turn + 1, 0
            else:
                return


def _supervised_fits(
    gram: Array, problem: Problem, k: int, dual: Array, intercept: float, tolerance: float
) -> Iterator[tuple[float, Array, float]]:
    """The start, and the fit after each Newton step on Eq. 1 without its unlabelled part; the intercept costs nothing.

    Each is the norm of the gradient, the dual coefficients and the intercept.
    """
    y, costs, loss = problem.targets[:, k], problem.costs[:, k], problem.labeled_loss

    def value(at: Array, r: Array, by: Array, change: Array, intercept: float, shift: float, t: float) -> float:
        """The objective after a fraction `t` of a step: `r` are the scores, `change` is what the whole step adds."""
        r = r + t * change
        norm = (at + t * by) @ (r - intercept - t * shift)
        return float(norm / 2 + costs @ loss.value(r, y))

    while True:
        r = gram @ dual + intercept
        slope, curvature = costs * loss.grad(r, y), costs * (y * r < 1)
        gradient, total = dual + slope, slope.sum()
        of_gradient = gram @ gradient
        size = float(np.sqrt(max(gradient @ of_gradient, 0.0) + total**2))
        yield size, dual, intercept
        if size <= tolerance:
            return
        # The step s and the shift b of the intercept: q = s + gradient = -curvature (K s + b), and q sums to total.
        inverse, shift = curved_inverse(gram, curvature), 0.0
        if curvature.any():
            shift = (inverse(of_gradient).sum() - total) / inverse(np.ones_like(r)).sum()
        step = inverse(of_gradient - shift) - gradient
        way = partial(value, dual, r, step, gram @ step + shift, intercept, shift)
        t = backtrack(way, float(of_gradient @ step + total * shift))
        if t == 0:
            return
        dual, intercept = dual + t * step, float(intercept + t * shift)

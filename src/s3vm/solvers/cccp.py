"""BLS3VM: the concave-convex procedure for the ramp loss (Collobert, Sinz, Weston and Bottou 2006)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from s3vm._typing import Array, Rows
from s3vm.backends import Backend
from s3vm.losses import Hat, Hinge, Ramp
from s3vm.problem import Problem
from s3vm.solvers import smo
from s3vm.solvers.balance import means_to_hold
from s3vm.solvers.base import Column, Losses, State, in_step, needs, same_rows
from s3vm.solvers.supervised import labelled_gram, supervised

__all__ = ["CCCP"]

_TIGHTER = (1.0, 1e-1, 1e-2, 1e-3, 1e-4)


@dataclass(frozen=True)
class CCCP:
    """The concave-convex procedure: convex problems one after the other, whose solutions never raise Eq. 1.

    An unlabelled row counts once as +1 and once as -1, each time with the ramp ``H_1(y f) - H_s(y f)``. The second term
    is concave: its tangent at the last solution takes its place, which moves the box of the row's dual coefficient.
    With c the cost of one unlabelled row, and `side` the sign of the last ``f(x)``, or 0 where ``|f(x)| <= -s``, it is
    ``c (side - 1) <= a <= c (side + 1)``, and the row counts as +1 below ``c side``, as -1 above. Each problem is
    solved by SMO from where the last one ended, until no row changes its side. The first solution is the supervised
    one, its intercept moved so that it holds the balance.

    Parameters
    ----------
    max_iter : int, default 100
        Convex problems at most.
    tol : float, default 1e-3
        By how much a solution may be off, in units of f (the gap of its optimality conditions). It is found more
        exactly where the objective would rise otherwise.
    balance : "supervised", "prior" or None, default "supervised"
        The mean of f over the unlabelled rows that every solution holds. ``"supervised"`` is the mean of the supervised
        solution, moved to the right class shares if these are given, or if there are few labels; ``"prior"`` is the
        original's ``2 prior - 1``, which skewed classes suffer from. With None, one class may swallow all rows.
    """

    losses: ClassVar[Losses] = (Hinge, Ramp)

    max_iter: int = 100
    tol: float = 1e-3
    balance: Literal["supervised", "prior"] | None = "supervised"

    def __post_init__(self) -> None:
        if not isinstance(self.max_iter, int | np.integer) or isinstance(self.max_iter, bool) or self.max_iter < 1:
            raise ValueError(f"CCCP needs a whole number max_iter of at least 1; got max_iter={self.max_iter!r}")
        if not 0 < self.tol < 1:
            raise ValueError(f"CCCP needs tol between 0 and 1; got tol={self.tol!r}")
        if self.balance not in ("supervised", "prior", None):
            raise ValueError(f'CCCP needs balance "supervised", "prior" or None; got balance={self.balance!r}')

    def iterations(self, problem: Problem) -> int:
        return 1 + self.max_iter if problem.uses_unlabelled else 1

    def memory(self, problem: Problem, backend: Backend) -> int:
        n_labelled, n_columns = problem.n_labelled, problem.n_columns
        n_bytes = 3 * 8 * n_labelled**2
        if not problem.uses_unlabelled:
            return n_bytes
        at_once = min(backend.n_threads, n_columns)
        return (
            n_bytes + smo.memory(problem.labelled, problem.n_rows, backend, at_once) + 80 * problem.n_rows * n_columns
        )

    def longer(self, problem: Problem, done: int) -> "CCCP":
        return replace(self, max_iter=done + self.max_iter)

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        needs(self, problem, (Hinge,), (Ramp, Hat))
        centres = problem.everything() if problem.uses_unlabelled else problem.labelled
        before = same_rows(state, centres)
        n_left = self.iterations(problem) - 1 - (max(0, before.iteration - 1) if before is not None else 0)
        rounds = _Rounds(self, problem, backend, centres)
        yield from in_step(problem, centres, lambda k, one: rounds.column(k, one, n_left), before, backend.n_threads)


class _Memory(NamedTuple):
    """The coefficients of the rows and of their mean, what they give without intercept, and the sides they are for."""

    a: Array
    f: Array
    side: Array


class _Rounds:
    """What the columns share: the kernel matrix, the supervised solutions, and the means that are held."""

    def __init__(self, solver: CCCP, problem: Problem, backend: Backend, centres: Rows) -> None:
        self._solver, self._problem = solver, problem
        n_l, n = self._n_labelled, self._n = problem.n_labelled, int(centres.shape[0])
        self._flat = -problem.unlabelled_loss.s if isinstance(problem.unlabelled_loss, Ramp) else 0.0
        self._matters = (problem.unlabelled_cost > 0) & (n > n_l)
        self._balanced = solver.balance is not None and n > n_l
        mean_of = slice(n_l, n) if self._balanced else None
        self._gram = smo.Gram(problem.kernel, centres, backend.cache_bytes, backend.dtype, mean_of)
        gram = labelled_gram(problem.kernel, problem.labelled)
        dual, self._intercept = supervised(gram, problem.targets, problem.costs)
        self._dual = np.zeros((self._gram.n, problem.n_columns))
        self._dual[:n_l] = dual
        self._held = 2 * problem.prior - 1
        if self._balanced and solver.balance == "supervised":
            start = [self._gram.times(np.arange(n_l), dual[:, k])[n_l:n] for k in range(problem.n_columns)]
            self._held = means_to_hold(problem, np.column_stack(start) + self._intercept)

    def column(self, k: int, before: Column | None, n_left: int) -> Iterator[Column]:
        """The supervised solution, then those of the convex problems."""
        if before is None:
            f = self._gram.times(np.arange(self._n_labelled), self._dual[: self._n_labelled, k])
            undecided = np.full(self._n - self._n_labelled, np.nan)
            before = self._reached(k, self._dual[:, k], f, self._intercept[k], undecided)
            yield before
        if not self._matters[k]:
            return
        for _ in range(n_left):
            a, f, last = before.memory
            side = self._sides(before)
            if np.array_equal(side, last):
                return
            z, lower, knee, upper = self._boxes(k, side)
            for tighter in _TIGHTER:
                tol = tighter * self._solver.tol
                a, f, intercept, *_ = smo.solve(self._gram, z, lower, upper, knee=knee, start=(a, f), tol=tol)
                after = self._reached(k, a, f, intercept, side)
                if after.objective <= before.objective:
                    break
            else:
                return
            before = after
            yield before

    def _sides(self, column: Column) -> Array:
        """+1 or -1 for an unlabelled row that is on that side of the flat tip of its loss, 0 for one below it."""
        r_u = column.scores[self._n_labelled :]
        return np.sign(r_u) * (np.abs(r_u) > self._flat)

    def _boxes(self, k: int, side: Array) -> tuple[Array, Array, Array, Array]:
        """``z``, and the ends and knees of the boxes: of labelled rows, of unlabelled ones, of the mean."""
        y, cost = self._problem.targets[:, k], self._problem.unlabelled_cost[k] / len(side)
        signed = self._problem.costs[:, k] * y
        endless = [np.inf] * self._balanced
        z = np.concatenate([y, np.ones(len(side)), [self._held[k]] * self._balanced])
        lower = np.concatenate([np.minimum(0, signed), cost * (side - 1), np.negative(endless)])
        knee = np.concatenate([np.maximum(0, signed), cost * side, endless])
        upper = np.concatenate([np.maximum(0, signed), cost * (side + 1), endless])
        return z, lower, knee, upper

    def _reached(self, k: int, a: Array, f: Array, intercept: float, side: Array) -> Column:
        n_l, n = self._n_labelled, self._n
        weights = a[:n].copy()
        if self._balanced and self._matters[k]:
            # The last variable is the mean of the unlabelled rows. What it lacks to the mean held is the intercept.
            weights[n_l:] += a[n] / (n - n_l)
            intercept = self._held[k] - f[n]
        scores = f[:n] + intercept
        objective = self._problem.objective(k, float(a @ f), scores[:n_l], scores[n_l:])
        return Column(weights, float(intercept), scores, objective, _Memory(a, f, side))

"""BLS3VM: the concave-convex procedure for the ramp loss (Collobert, Sinz, Weston and Bottou 2006)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from s3vm._typing import Array
from s3vm.backends import Backend
from s3vm.losses import Hat, Hinge, LabelledLoss, Ramp, UnlabelledLoss
from s3vm.problem import Problem
from s3vm.solvers.base import Column, State, in_step, needs, same_rows
from s3vm.solvers.smo import Gram, solve
from s3vm.solvers.supervised import labelled_gram, supervised

__all__ = ["CCCP"]

_TIGHTER = 0.1 ** np.arange(5)


@dataclass(frozen=True)
class CCCP:
    """The concave-convex procedure: a row of convex problems whose solutions never raise the objective of Eq. 1.

    An unlabelled row counts once as +1 and once as -1, each with the ramp ``H_1(y f) - H_s(y f)``. The second term is
    concave: its tangent at the last solution takes its place, which moves the box of the row's dual coefficient. With
    c the cost of one unlabelled row, and `side` the sign of the last ``f(x)``, or 0 where ``|f(x)| <= -s``, the box is
    ``c (side - 1) <= a <= c (side + 1)``, and the row counts as +1 below ``c side``, as -1 above. That convex problem
    is solved by SMO from where the last one ended, until no row changes its side.

    Parameters
    ----------
    max_iter : int, default 100
        Convex problems at most.
    tol : float, default 1e-3
        How far the optimality conditions of a convex problem may be off, in units of f. Where the objective would
        rise, it is solved more tightly.
    balance : bool, default True
        Whether the mean of f over the unlabelled rows is held at ``2 prior - 1``. Without it, one class may swallow
        all of them.
    """

    losses: ClassVar[tuple[type[LabelledLoss], type[UnlabelledLoss]]] = (Hinge, Ramp)

    max_iter: int = 100
    tol: float = 1e-3
    balance: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.max_iter, int | np.integer) or isinstance(self.max_iter, bool) or self.max_iter < 1:
            raise ValueError(f"CCCP needs a whole number max_iter of at least 1; got max_iter={self.max_iter!r}")
        if not (isinstance(self.tol, int | float) and 0 < self.tol < 1):
            raise ValueError(f"CCCP needs tol between 0 and 1; got tol={self.tol!r}")

    def iterations(self, problem: Problem) -> int:
        return self.max_iter if problem.uses_unlabelled else 1

    def memory(self, problem: Problem, backend: Backend) -> int:
        return 1

    def longer(self, problem: Problem, done: int) -> "CCCP":
        return replace(self, max_iter=done + self.iterations(problem))

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        needs(self, problem, (Hinge,), (Ramp, Hat))
        dual, intercept = supervised(labelled_gram(problem.kernel, problem.labelled), problem.targets, problem.costs)
        centres = problem.everything() if problem.uses_unlabelled else problem.labelled
        n_l, n = problem.n_labelled, centres.shape[0]
        balance = self.balance and n > n_l
        gram = Gram(problem.kernel, centres, backend.cache_bytes, backend.dtype, slice(n_l, n) if balance else None)
        before = same_rows(state, centres)
        n_left = self.max_iter - (before.iteration if before is not None else 0)
        flat = -problem.unlabelled_loss.s if isinstance(problem.unlabelled_loss, Ramp) else 0.0

        def reached(k: int, a: Array, f: Array, intercept: float, side: Array | None) -> Column:
            weights, scores = a[:n].copy(), f[:n] + intercept
            if balance:
                weights[n_l:] += a[n] / (n - n_l)
            objective = problem.objective(k, float(a @ f), scores[:n_l], scores[n_l:])
            return Column(weights, intercept, scores, objective, (a, f, side))

        def column(k: int, before: Column | None) -> Iterator[Column]:
            if before is None:
                a = np.append(dual[:, k], np.zeros(gram.n - n_l))
                before = reached(k, a, gram.times(np.arange(n_l), dual[:, k]), float(intercept[k]), None)
                if n == n_l or problem.unlabelled_cost[k] == 0:
                    yield before
                # It does not hold the balance: the first solution that does is what others are measured by.
                before = before._replace(objective=np.inf)
            if n == n_l or problem.unlabelled_cost[k] == 0:
                return
            cost, y = problem.unlabelled_cost[k] / (n - n_l), problem.targets[:, k]
            z = np.concatenate([y, np.ones(n - n_l), [2 * problem.prior[k] - 1] * balance])
            of_labelled = problem.costs[:, k] * y
            for _ in range(n_left):
                r_u = before.scores[n_l:]
                side = np.sign(r_u) * (np.abs(r_u) > flat)
                a, f, last = before.memory
                if last is not None and np.array_equal(side, last):
                    return
                lower = np.concatenate([np.minimum(0, of_labelled), cost * (side - 1), [-np.inf] * balance])
                knee = np.concatenate([np.maximum(0, of_labelled), cost * side, [np.inf] * balance])
                upper = np.concatenate([np.maximum(0, of_labelled), cost * (side + 1), [np.inf] * balance])
                for tighter in _TIGHTER:
                    a, f, b, *_ = solve(gram, z, lower, upper, knee=knee, start=(a, f), tol=self.tol * tighter)
                    after = reached(k, a, f, float(z[n] - f[n]) if balance else b, side)
                    if after.objective <= before.objective:
                        break
                else:
                    return
                before = after
                yield after

        yield from in_step(problem, centres, column, before, backend.n_threads)

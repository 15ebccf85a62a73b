"""S3VMlight: label switching with annealed costs (Joachims 1999)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from s3vm._utils.registry import state_part
from s3vm._utils.settings import number
from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.losses import Hat, Hinge
from s3vm.problem import Problem
from s3vm.solvers import smo
from s3vm.solvers.base import Column, Expansion, Losses, Solver, State, in_step, needs, same_rows
from s3vm.solvers.smo import Gram, Solution, solve

__all__ = ["Light"]


@dataclass(frozen=True)
class Light(Solver):
    """Gives every unlabelled row a label, and switches labels in pairs as long as that lowers the objective.

    The rows that the supervised SVM scores highest become positive, as many as the prior says, and the SVM

        ``||f||^2 / 2 + sum_l C_l hinge(y f(x)) + b sum_u C_u hinge(y_u f(x))``

    is trained on all rows, with slacks ``xi``. A positive and a negative row whose slacks add up to more than 2 lower
    the objective if they swap their labels, since ``2 - xi_i < xi_j`` and ``2 - xi_j < xi_i``; then the SVM is trained
    again from where it was. When no pair is left, the share b of the cost grows, up to 1. Positive rows cost
    ``(1 - p) / p`` times what negative ones do, so that both classes weigh the same.

    The share of positive labels never changes: it is exactly the prior; that of positive predictions may differ. Time
    grows about with the square of the number of rows.

    Parameters
    ----------
    growth : float > 1, default 1.5
        The factor by which the cost of unlabelled rows grows.
    first : float in (0, 1], default 1e-5
        The share of the cost to begin with.
    tol : float > 0, default 1e-3
        How far the SVM may be from its Karush-Kuhn-Tucker conditions.
    """

    losses: ClassVar[Losses] = (Hinge, Hat)

    growth: float = 1.5
    first: float = 1e-5
    tol: float = 1e-3

    def __post_init__(self) -> None:
        if not 1 < number(self.growth) < np.inf:
            raise ValueError(f"Light needs a finite growth > 1; got growth={self.growth!r}")
        if not 0 < number(self.first) <= 1:
            raise ValueError(f"Light needs first > 0 and at most 1; got first={self.first!r}")
        if not 0 < number(self.tol) < 1:
            raise ValueError(f"Light needs tol between 0 and 1; got tol={self.tol!r}")

    def iterations(self, problem: Problem) -> int:
        return 1 + len(self._shares()) if problem.uses_unlabelled else 1

    def memory(self, problem: Problem, backend: Backend) -> int:
        at_once = min(backend.n_threads, problem.n_columns)
        shared = smo.memory(problem.labelled, problem.n_rows, backend, at_once)
        return shared + 80 * problem.n_rows * problem.n_columns

    def extended(self, problem: Problem, done: int) -> "Light":
        return self

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[Expansion]:
        needs(self, problem, (Hinge,), (Hat,))
        centres = problem.all_rows() if problem.uses_unlabelled else problem.labelled
        gram = Gram(problem.kernel, centres, backend.cache_bytes, backend.dtype)

        def column(k: int, before: Column | None) -> Iterator[Column]:
            return self._column(problem, gram, k, before)

        return in_step(problem, centres, column, same_rows(state, centres), backend.n_threads)

    def _shares(self) -> Array:
        """The shares b of the cost, one after the other."""
        n_steps = int(np.ceil(np.log(1 / self.first) / np.log(self.growth)))
        return np.minimum(1.0, self.first * self.growth ** np.arange(n_steps + 1))

    def _column(self, problem: Problem, gram: Gram, k: int, before: Column | None) -> Iterator[Column]:
        n_l, n_u = problem.n_labelled, gram.n - problem.n_labelled
        each = problem.unlabelled_cost[k] / max(1, n_u)
        share = np.clip(problem.prior[k], 0.5 / max(1, n_u), 1 - 0.5 / max(1, n_u))

        def costs(y: Array, b: float) -> Array:
            of_unlabelled = b * each * np.where(y[n_l:] > 0, 0.5 / share, 0.5 / (1 - share))
            return np.concatenate([problem.costs[:, k], of_unlabelled])

        def column(done: int, y: Array, found: Solution) -> Column:
            scores = found.f + found.intercept
            objective = found.a @ found.f / 2 + costs(y, 1.0) @ np.maximum(0, 1 - y * scores)
            return Column(found.a, found.intercept, scores, float(objective), _Memory(done, y, found, asked))

        # Labels that were found for other costs are not those of these: another problem starts afresh.
        asked = (self, problem.targets[:, k].tobytes(), problem.costs[:, k].tobytes(), each, share)
        if before is None or before.memory.asked != asked:
            y = np.concatenate([problem.targets[:, k], np.ones(n_u)])
            found = _train(gram, y, costs(y, 0.0), None, self.tol)
            # As many of the highest scores are positive as the prior says, but some on either side.
            lowest = np.argsort(found.f[n_l:], kind="stable")[: n_u - max(1, round(share * n_u))]
            y[n_l + lowest] = -1.0
            before = column(0, y, found)
            yield before
        done, y, found, _ = before.memory
        if each == 0:
            return
        for level, b in enumerate(self._shares()[done:], done + 1):
            while True:
                found = _train(gram, y, costs(y, b), found, self.tol)
                switched = _switched(y, found.f + found.intercept, n_l, 2 + 2 * self.tol)
                if switched is None:
                    break
                y = switched
            yield column(level, y, found)


@state_part("Light.Memory")
class _Memory(NamedTuple):
    """How many shares of the cost are done, the labels of all rows, the SVM, and the problem that it solves."""

    done: int
    y: Array
    found: Solution
    asked: tuple[Any, ...]


def _train(gram: Gram, y: Array, costs: Array, before: Solution | None, tol: float) -> Solution:
    """The SVM of rows with these labels and costs, from where the last one was."""
    start = None if before is None else (before.a, before.f)
    bound = y * costs
    return solve(gram, y, np.minimum(0, bound), np.maximum(0, bound), start=start, tol=tol)


def _switched(y: Array, scores: Array, n_l: int, most: float) -> Array | None:
    """The labels after the worse half of the pairs whose slacks exceed `most` has swapped them; None if there are none.

    Pairs are made of the largest slacks of either side, and no row is in two of them: with f as it is, each swap lowers
    the objective on its own. Half of them at a time comes down to one by one at the end.
    """
    slack = np.maximum(0, 1 - y * scores)
    sides = [n_l + np.flatnonzero(y[n_l:] == sign) for sign in (1.0, -1.0)]
    positive, negative = (side[np.argsort(-slack[side], kind="stable")] for side in sides)
    n_pairs = min(len(positive), len(negative))
    positive, negative = positive[:n_pairs], negative[:n_pairs]
    bad = (slack[positive] > 0) & (slack[negative] > 0) & (slack[positive] + slack[negative] > most)
    n_bad = int(bad.sum())  # the first ones: the slacks fall
    if n_bad == 0:
        return None
    n_swaps = (n_bad + 1) // 2
    y = y.copy()
    y[positive[:n_swaps]], y[negative[:n_swaps]] = -1.0, 1.0
    return y

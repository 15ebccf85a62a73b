"""S3VMlight: label switching with annealed costs (Joachims 1999)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from s3vm._utils.registry import state_part
from s3vm._utils.settings import above, between, check_settings
from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.losses import Hat, Hinge
from s3vm.problem import Problem
from s3vm.solvers.base import Column, Expansion, Losses, Solver, State, in_step, needs, same_rows
from s3vm.solvers.gram import Gram, memory
from s3vm.solvers.smo import Solution, solve


@dataclass(frozen=True)
class Light(Solver):
    """Labels every unlabelled row, and switches pairs of labels as long as that lowers the objective.

    The rows with the highest supervised scores become positive, as many as the prior says, and the SVM

        ``||f||^2 / 2 + sum_l C_l hinge(y f(x)) + b sum_u C_u hinge(y_u f(x))``

    is trained on all rows, with slacks ``xi``. A positive and a negative row whose slacks add up to more than 2 lower
    the objective if they swap their labels, since ``2 - xi_i < xi_j`` and ``2 - xi_j < xi_i``; then the SVM is trained
    again, starting from the last solution. When no pair is left, the fraction b of the cost grows, up to 1. Positive
    rows cost ``(1 - p) / p`` times what negative ones do, so that both classes have the same weight.

    The fraction of positive labels is always the prior; that of positive predictions may differ. Time grows roughly
    with the square of the number of rows.

    Parameters
    ----------
    growth : float > 1, default 1.5
        The factor by which the cost of unlabelled rows grows.
    first : float in (0, 1], default 1e-5
        The fraction of the cost to begin with.
    tol : float > 0, default 1e-3
        How far the SVM may be from its Karush-Kuhn-Tucker conditions.
    """

    losses: ClassVar[Losses] = (Hinge, Hat)

    growth: float = 1.5
    first: float = 1e-5
    tol: float = 1e-3

    def __post_init__(self) -> None:
        check_settings(self, growth=above(1), first=above(0, 1), tol=between(0, 1))

    def iterations(self, problem: Problem) -> int:
        return 1 + len(self._shares()) if problem.uses_unlabeled else 1

    def memory(self, problem: Problem, backend: Backend) -> int:
        at_once = min(backend.n_threads, problem.n_columns)
        shared = memory(problem.labeled, problem.n_rows, backend, at_once)
        return shared + 80 * problem.n_rows * problem.n_columns

    def extended(self, problem: Problem, done: int) -> "Light":
        return self

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[Expansion]:
        needs(self, problem, (Hinge,), (Hat,))
        centers = problem.all_rows() if problem.uses_unlabeled else problem.labeled
        gram = Gram(problem.kernel, centers, backend.cache_bytes, backend.dtype)
        column = partial(self._column, problem, gram)
        return in_step(problem, centers, column, same_rows(state, centers), backend.n_threads)

    def _shares(self) -> Array:
        """The fractions b of the cost, in order."""
        n_steps = int(np.ceil(np.log(1 / self.first) / np.log(self.growth)))
        return np.minimum(1.0, self.first * self.growth ** np.arange(n_steps + 1))

    def _column(self, problem: Problem, gram: Gram, k: int, before: Column | None) -> Iterator[Column]:
        n_l, n_u = problem.n_labeled, gram.n - problem.n_labeled
        each = problem.unlabeled_cost[k] / max(1, n_u)
        share = np.clip(problem.prior[k], 0.5 / max(1, n_u), 1 - 0.5 / max(1, n_u))
        # Labels are good for one problem only: another one starts again.
        key = (self, problem.targets[:, k].tobytes(), problem.costs[:, k].tobytes(), each, share)

        def costs(y: Array, b: float) -> Array:
            of_unlabeled = b * each * np.where(y[n_l:] > 0, 0.5 / share, 0.5 / (1 - share))
            return np.concatenate([problem.costs[:, k], of_unlabeled])

        def column(n_levels: int, y: Array, svm: Solution) -> Column:
            scores = svm.f + svm.intercept
            objective = svm.a @ svm.f / 2 + costs(y, 1.0) @ np.maximum(0, 1 - y * scores)
            return Column(svm.a, svm.intercept, scores, float(objective), _ResumeState(n_levels, y, svm, key))

        if before is None or before.resume_state.key != key:
            y = np.concatenate([problem.targets[:, k], np.ones(n_u)])
            svm = _train(gram, y, costs(y, 0.0), None, self.tol)
            # The prior says how many of the highest scores are positive, but both classes get some.
            lowest = np.argsort(svm.f[n_l:], kind="stable")[: n_u - max(1, round(share * n_u))]
            y[n_l + lowest] = -1.0
            before = column(0, y, svm)
            yield before
        n_levels, y, svm, _ = before.resume_state
        if each == 0:
            return
        for level, b in enumerate(self._shares()[n_levels:], n_levels + 1):
            while True:
                svm = _train(gram, y, costs(y, b), svm, self.tol)
                switched = _switched(y, svm.f + svm.intercept, n_l, 2 + 2 * self.tol)
                if switched is None:
                    break
                y = switched
            yield column(level, y, svm)


@state_part("Light.ResumeState")
class _ResumeState(NamedTuple):
    """How many levels of the cost are done, the labels of all rows, their SVM, and the problem that they belong to."""

    n_levels: int
    y: Array
    svm: Solution
    key: tuple[Any, ...]


def _train(gram: Gram, y: Array, costs: Array, before: Solution | None, tol: float) -> Solution:
    """The SVM of rows with these labels and costs, starting from the one `before`."""
    start = None if before is None else (before.a, before.f)
    bound = y * costs
    return solve(gram, y, np.minimum(0, bound), np.maximum(0, bound), start=start, tol=tol)


def _switched(y: Array, scores: Array, n_l: int, most: float) -> Array | None:
    """The labels after swapping the worse half of the pairs whose slacks exceed `most`; None if there are none.

    The largest slacks of both sides are paired, each row once: with f as it is, each swap on its own lowers the
    objective. Swapping half of them at a time ends in single swaps.
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

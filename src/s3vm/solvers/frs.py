"""FRS3VM: stochastic gradients on one fixed block of random features, the simplest solver here."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from s3vm._utils.registry import state_part
from s3vm._utils.settings import check_settings, integer, switch
from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.model import Model
from s3vm.philox import Purpose
from s3vm.problem import Problem
from s3vm.solvers.base import RunState, State, record
from s3vm.solvers.steps import Step, step, stiffness
from s3vm.solvers.stochastic import FeatureCount, StochasticSolver, labeled_batches, labeled_slope, unlabeled_slope

_INTERCEPT_STEP = 0.1  # of a step: all labelled rows act on the intercept at once, and it acts on all of them


@dataclass(frozen=True)
class FRS(StochasticSolver):
    """Stochastic gradients on fixed random features: ``f(x) = phi(x).w + b`` with one block of m features.

    Iteration t draws a labelled and an unlabelled batch and steps along the gradient of Eq. 1, that of the paper's
    Algorithm 1 but on the same features every time:

        ``w <- (1 - gamma_t) w - gamma_t (sum_l C_l l'(f(x), y) phi(x) + C* mean_u u'(f(x)) phi(x))``.

    The error of m features remains however long it runs; memory is m numbers per column, whatever the number of rows.

    Parameters
    ----------
    max_iter : int or "auto", default "auto"
        Number of iterations. ``"auto"`` is ten passes over the unlabelled rows, but from 500 to 1000 iterations.
    passes : float or None, default None
        Instead of `max_iter`: the number of passes over the unlabelled rows.
    batch_size : int, default 256
        Unlabelled rows per iteration, and labelled ones if there are more.
    n_features : int or "sqrt", default 4096
        Number of random features, m. ``"sqrt"`` is the paper's ``ceil(sqrt(n))``, at least 64.
    step : Step, "decaying", "constant" or "theorem", default "decaying"
        The step sizes; see `s3vm.solvers.steps`.
    intercept : bool, default True
        Whether the decision function has a constant term, which is not penalised.
    balance : bool, default True
        Whether the intercept holds the mean output over a sample of unlabelled rows at the expected mean label. Without
        it, all of them may end up in one class.
    ramp : float in [0, 1], default 0.5
        The fraction of the iterations over which the unlabelled cost grows from 0 to ``C*``.
    n_reference : int, default 500
        The size of the sample over which the mean is held.
    draw_labeled : bool, default False
        Whether to draw a batch of labelled rows, with replacement, even if there are no more than `batch_size`;
        otherwise all of them are used in that case.
    """

    max_iter: int | Literal["auto"] = "auto"
    passes: float | None = None
    batch_size: int = 256
    n_features: FeatureCount = 4096
    step: str | Step = "decaying"
    intercept: bool = True
    balance: bool = True
    ramp: float = 0.5
    n_reference: int = 500
    draw_labeled: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(self, max_iter=(integer(), "auto"), intercept=switch, draw_labeled=switch)
        if self.balance and not self.intercept:
            raise ValueError("FRS: the intercept holds the balance: intercept=False needs balance=False")

    @classmethod
    def as_printed(cls, **settings: Any) -> "FRS":
        """The paper's protocol: ten passes, ``ceil(sqrt(n))`` features, labelled rows drawn, constant steps.

        The paper's features are those of ``RBF(features="phase")``, its weight is ``unlabeled_weight="paper"``.
        """
        paper = {"passes": 10.0, "n_features": "sqrt", "step": "constant", "draw_labeled": True}
        return cls(**{"intercept": False, "balance": False, "ramp": 0.0, **paper, **settings})

    def iterations(self, problem: Problem) -> int:
        return self.iterations_for(problem, auto_passes=10, fewest=500)

    def memory(self, problem: Problem, backend: Backend) -> int:
        m = self.block_size(problem)
        n_rows = 2 * self.batch_size + self.n_reference
        n_frequencies = problem.kernel.rows(problem.kernel.whole(m)) * problem.n_dims
        return backend.dtype.itemsize * (n_rows * (m + problem.n_dims) + n_frequencies) + 32 * m * problem.n_columns

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        n_iterations, m = self.iterations(problem), self.block_size(problem)
        features = backend.features(problem.kernel, problem.seed, m, problem.n_dims)
        zeros = np.zeros((features.n_features, problem.n_columns))
        nothing = np.zeros(problem.n_columns)
        start = _State(problem.n_dims, zeros, nothing, kernel=problem.kernel, seed=problem.seed)
        now = start if state is None else state
        if not isinstance(now, _State) or now.w.shape != (features.n_features, problem.n_columns):
            raise ValueError("FRS can resume only with the same columns and features: set warm_start=False")
        steps, stiff = step(self.step), stiffness(problem)
        unlabeled = problem.unlabeled if problem.uses_unlabeled else None
        held, target = self.balanced_columns(problem), 2 * problem.prior - 1
        mean = np.zeros(features.n_features)
        if unlabeled is not None:
            sample = unlabeled.sample(problem.seed, self.n_reference)
            mean = features.features(0, sample).mean(axis=0, dtype=np.float64)
        draw = self.draw_labeled or problem.n_labeled > self.batch_size
        phi_of_all = None if draw else features.features(0, problem.labeled)
        for t in range(now.iteration, n_iterations):
            gamma, w = steps.sizes(t, n_iterations, stiff), now.w.astype(backend.dtype)
            rows = labeled_batches(problem, range(t, t + 1), self.batch_size, draw)[0]
            phi = features.features(0, problem.labeled[rows]) if phi_of_all is None else phi_of_all
            r_l, r_u = phi @ w + now.intercept, None
            slope = labeled_slope(problem, rows, r_l)
            gradient, total = phi.T @ slope.astype(phi.dtype), slope.sum(axis=0)
            if unlabeled is not None:
                batch = unlabeled.batches(problem.seed, Purpose.UNLABELED, range(t, t + 1), self.batch_size)
                phi = features.features(0, batch)
                r_u = phi @ w + now.intercept
                slope = unlabeled_slope(problem, r_u, self.annealed_share(t, n_iterations))
                gradient, total = gradient + phi.T @ slope.astype(phi.dtype), total + slope.sum(axis=0)
            costs = problem.n_labeled / len(rows) * problem.costs[rows]
            line = record(problem, np.sum(now.w**2, axis=0), r_l, problem.targets[rows], costs, r_u)
            line["step"] = float(gamma[0])
            # Where the intercept answers every change of the mean, the features are centred there.
            moved = (1 - gamma) * now.w - gamma * (gradient - mean[:, None] * (held * total))
            free = now.intercept - self.intercept * _INTERCEPT_STEP * gamma * total
            now = replace(
                now, w=moved, intercept=np.where(held, target - mean @ moved, free), iteration=t + 1, record=line
            )
            yield now


@state_part("FRS.State")
@dataclass(frozen=True, eq=False)
class _State(RunState):
    """The weights ``w`` of the features and the intercepts, one column each."""

    n_dims: int
    w: Array
    intercept: Array

    def model(self) -> Model:
        return Model(self.kernel, self.seed, self.n_dims, self.w[None], self.intercept)

    def labeled_scores(self) -> None:
        return None

"""What the stochastic solvers share: their settings, and the slopes of the losses over a batch."""

from dataclasses import replace
from typing import ClassVar, Literal, Self

import numpy as np

from s3vm import philox
from s3vm._utils.settings import above, check_settings, integer, real, switch
from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.losses import Exponential, SmoothHinge
from s3vm.philox import Purpose
from s3vm.problem import Problem
from s3vm.solvers.base import Losses, Solver
from s3vm.solvers.steps import Step, step
from s3vm.sources import ENDLESS

FeatureCount = int | Literal["sqrt"]

_FEWEST_FEATURES = 64


class StochasticSolver(Solver):
    """A solver that draws batches of rows and random features; subclasses are dataclasses with these settings."""

    losses: ClassVar[Losses] = (SmoothHinge, Exponential)
    follows_stream: ClassVar[bool] = True

    max_iter: int | Literal["auto"]
    passes: float | None
    batch_size: int
    n_features: FeatureCount
    step: str | Step
    balance: bool
    ramp: float
    n_reference: int

    def __post_init__(self) -> None:
        check_settings(self, passes=(above(0), None), batch_size=integer(), n_features=(integer(), "sqrt"))
        check_settings(self, balance=switch, ramp=real(0, 1), n_reference=integer())
        step(self.step)

    def iterations_for(self, problem: Problem, auto_passes: float = 1, fewest: int = 1) -> int:
        """The iterations by `passes` or `max_iter`; ``"auto"`` is `auto_passes`, but from `fewest` to 1000."""
        if self.passes is None and not isinstance(self.max_iter, str):
            return self.max_iter
        n_rows = problem.unlabeled.n_rows if problem.unlabeled is not None else problem.n_labeled
        if self.passes is None:
            return int(np.clip(np.ceil(auto_passes * n_rows / self.batch_size), fewest, 1000))
        if n_rows == ENDLESS:
            raise ValueError("the number of rows of this stream is unknown: give max_iter instead of passes")
        return int(np.ceil(self.passes * n_rows / self.batch_size))

    def block_size(self, problem: Problem) -> int:
        """The number m of features in a block: ``"sqrt"`` is the paper's ``ceil(sqrt(n))``, at least 64."""
        if self.n_features != "sqrt":
            return self.n_features
        if problem.n_rows >= ENDLESS:
            raise ValueError('the number of rows of this stream is unknown: give n_features as a number, not "sqrt"')
        return max(_FEWEST_FEATURES, int(np.ceil(np.sqrt(problem.n_rows))))

    def balanced_columns(self, problem: Problem) -> Array:
        """Which columns hold their mean output: with `balance`, those in which unlabelled rows cost something."""
        matters = problem.unlabeled_cost > 0 if problem.unlabeled is not None else np.zeros(problem.n_columns)
        return np.asarray(matters * self.balance, dtype=bool)

    def annealed_share(self, t: int, n_iterations: int) -> float:
        """The fraction of ``C*`` in iteration t, which grows to 1 over the fraction `ramp` of the iterations."""
        return 1.0 if self.ramp == 0 else min(1.0, (t + 1) / (self.ramp * n_iterations))

    def frequency_bytes(self, problem: Problem, backend: Backend, n_features: int) -> int:
        """The memory for the cached frequencies of so many features, at most: padded rows, in room that doubles."""
        row_bytes = backend.dtype.itemsize * (problem.n_dims + 1) + 64
        return min(backend.cache_bytes, 2 * problem.kernel.rows(n_features) * row_bytes)

    def extended(self, problem: Problem, done: int) -> Self:
        return replace(self, max_iter=done + self.iterations(problem), passes=None)  # type: ignore[type-var]

    def full_weight_from(self, problem: Problem) -> int:
        return int(np.ceil(self.ramp * self.iterations(problem)))

    def for_new_rows(self, done: int, n_new: int) -> Self:
        return replace(self, max_iter=done + max(1, -(-n_new // self.batch_size)), passes=None)  # type: ignore[type-var]


def on_device(problem: Problem, backend: Backend) -> Problem:
    """The problem with everything that slopes depend on where the backend computes."""
    arrays = {name: backend.put(getattr(problem, name)) for name in ("targets", "costs", "unlabeled_cost")}
    losses = {name: backend.loss(getattr(problem, name)) for name in ("labeled_loss", "unlabeled_loss")}
    return replace(problem, **arrays, **losses)


def labeled_batches(problem: Problem, iterations: range, size: int, draw: bool) -> Array:
    """The numbers of the labelled rows in each iteration: all of them, or `size` drawn with replacement."""
    if draw:
        return philox.indices(problem.seed, Purpose.LABELED, iterations, size, problem.n_labeled)
    return np.tile(np.arange(problem.n_labeled), (len(iterations), 1))


def labeled_slope(problem: Problem, rows: Array, r: Array) -> Array:
    """The derivative of R with respect to f at labelled rows that represent all of them, where f is `r`."""
    weight = problem.n_labeled / len(rows)
    return weight * problem.costs[rows] * problem.labeled_loss.grad(r, problem.targets[rows])


def unlabeled_slope(problem: Problem, r: Array, share: float | Array) -> Array:
    """The same at a batch of unlabelled rows, whose cost is a fraction `share` of ``C*``."""
    return share * problem.unlabeled_cost / len(r) * problem.unlabeled_loss.grad(r)

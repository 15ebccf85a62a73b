"""PrintedTSG: Algorithm 1 of the paper."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from s3vm._utils.settings import above, check_settings, integer, real, switch
from s3vm.backends import Backend
from s3vm.losses import Exponential, SmoothHinge
from s3vm.problem import Problem
from s3vm.solvers.base import Losses, Solver, State, settled
from s3vm.solvers.steps import Step, step
from s3vm.solvers.stochastic import FeatureCount, block_size, frequency_bytes, iterations_for
from s3vm.solvers.tsg.algorithm1 import algorithm1

__all__ = ["PrintedTSG"]


@dataclass(frozen=True)
class PrintedTSG(Solver):
    """Triply stochastic gradients as printed in the paper: labelled rows, unlabelled rows and random features.

    Iteration t of Algorithm 1 draws a labelled batch, an unlabelled batch and block t of m random features, and steps
    along

        ``alpha_t = -gamma_t (sum_l C_l l'(f(x), y) phi_t(x) + C* mean_u u'(f(x)) phi_t(x))``,

    after which all older coefficients shrink by ``1 - gamma_t``. `TSG` is more accurate. The paper's features are those
    of ``RBF(features="phase")``, its weight is ``unlabeled_weight="paper"``.

    Parameters
    ----------
    max_iter : int, default 128
        Number of iterations T.
    passes : float or None, default None
        Instead of `max_iter`: the number of passes over the unlabelled rows.
    batch_size : int, default 256
        Unlabelled rows per iteration, and labelled ones.
    n_features : int or "sqrt", default "sqrt"
        Random features per block, m. ``"sqrt"`` is the paper's ``ceil(sqrt(n))``, at least 64.
    step : Step, "decaying", "constant" or "theorem", default "constant"
        The step sizes; see `s3vm.solvers.steps`.
    intercept : bool, default False
        Whether the decision function has a constant term.
    balance : bool, default False
        Whether the intercept holds the mean output over a sample of unlabelled rows at the expected mean label. Without
        it, all of them may end up in one class.
    ramp : float in [0, 1], default 0.0
        The fraction of the iterations over which the unlabelled cost grows from 0 to ``C*``.
    n_reference : int, default 2000
        The size of the sample over which the mean is held.
    max_blocks : int or None, default None
        The maximum number of blocks of features. Further iterations visit these blocks in turn, as doubly stochastic
        gradients may, and memory stops growing. None adds a block per iteration.
    draw_labelled : bool, default True
        Whether to draw a batch of labelled rows, with replacement, even if there are no more than `batch_size`;
        otherwise all of them are used in that case.
    look_ahead : int, default 16
        The number of iterations whose batches are evaluated in one sweep over the old features. It affects the speed
        only.
    """

    losses: ClassVar[Losses] = (SmoothHinge, Exponential)
    follows_stream: ClassVar[bool] = True
    takes_tensors: ClassVar[bool] = True

    max_iter: int = 128
    passes: float | None = None
    batch_size: int = 256
    n_features: FeatureCount = "sqrt"
    step: str | Step = "constant"
    intercept: bool = False
    balance: bool = False
    ramp: float = 0.0
    n_reference: int = 2000
    max_blocks: int | None = None
    draw_labelled: bool = True
    look_ahead: int = 16

    def __post_init__(self) -> None:
        check_settings(self, max_iter=integer(), passes=(above(0), None), batch_size=integer())
        check_settings(self, n_features=(integer(), "sqrt"), intercept=switch, balance=switch, ramp=real(0, 1))
        check_settings(self, n_reference=integer(), max_blocks=(integer(), None), draw_labelled=switch)
        check_settings(self, look_ahead=integer())
        if self.balance and not self.intercept:
            raise ValueError("PrintedTSG: the intercept holds the balance: balance=True needs intercept=True")
        step(self.step)

    def iterations(self, problem: Problem) -> int:
        if self.passes is None:
            return self.max_iter
        n_rows = problem.unlabelled.n_rows if problem.unlabelled is not None else problem.n_labelled
        return iterations_for(self.passes, n_rows, self.batch_size)

    def memory(self, problem: Problem, backend: Backend) -> int:
        size, n_iterations = backend.dtype.itemsize, self.iterations(problem)
        n_features = min(n_iterations, self.max_blocks or n_iterations) * self.block_size(problem)
        n_scored = self.look_ahead * 2 * self.batch_size + problem.n_labelled + self.n_reference
        n_bytes = 2 * size * n_features * problem.n_columns + size * n_scored * problem.n_dims
        return n_bytes + frequency_bytes(problem, backend, n_features)

    def extended(self, problem: Problem, done: int) -> "PrintedTSG":
        return replace(self, max_iter=done + self.iterations(problem), passes=None)

    def full_weight_from(self, problem: Problem) -> int:
        return int(np.ceil(self.ramp * self.iterations(problem)))

    def pilot(self, max_iter: int) -> "PrintedTSG":
        return replace(self, max_iter=min(self.max_iter, max_iter), passes=None)

    def for_new_rows(self, done: int, n_new: int) -> "PrintedTSG":
        return replace(self, max_iter=done + max(1, -(-n_new // self.batch_size)), passes=None)

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        yield from settled(algorithm1(self, problem, backend, state))

    def block_of(self, t: int) -> int:
        """The block of features that iteration t acts on."""
        return t if self.max_blocks is None else t % self.max_blocks

    def block_size(self, problem: Problem) -> int:
        """The number m of features in a block."""
        return block_size(self.n_features, problem)

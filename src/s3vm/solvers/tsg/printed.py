"""PrintedTSG: Algorithm 1 of the paper."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from s3vm._utils.settings import check_settings, integer, switch
from s3vm.backends import Backend
from s3vm.problem import Problem
from s3vm.solvers.base import State, settled
from s3vm.solvers.steps import Step
from s3vm.solvers.stochastic import FeatureCount, StochasticSolver
from s3vm.solvers.tsg.algorithm1 import algorithm1


@dataclass(frozen=True)
class PrintedTSG(StochasticSolver):
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
        super().__post_init__()
        check_settings(self, max_iter=integer(), intercept=switch, max_blocks=(integer(), None))
        check_settings(self, draw_labelled=switch, look_ahead=integer())
        if self.balance and not self.intercept:
            raise ValueError("PrintedTSG: the intercept holds the balance: balance=True needs intercept=True")

    def iterations(self, problem: Problem) -> int:
        return self.iterations_for(problem)

    def memory(self, problem: Problem, backend: Backend) -> int:
        size, n_iterations = backend.dtype.itemsize, self.iterations(problem)
        n_features = min(n_iterations, self.max_blocks or n_iterations) * self.block_size(problem)
        n_scored = self.look_ahead * 2 * self.batch_size + problem.n_labelled + self.n_reference
        n_bytes = 2 * size * n_features * problem.n_columns + size * n_scored * problem.n_dims
        return n_bytes + self.frequency_bytes(problem, backend, n_features)

    def pilot(self, max_iter: int) -> "PrintedTSG":
        return replace(self, max_iter=min(self.max_iter, max_iter), passes=None)

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        yield from settled(algorithm1(self, problem, backend, state))

"""TSG: triply stochastic gradients that start from the supervised solution."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from s3vm._utils.settings import check_settings, integer, real
from s3vm.backends import Backend
from s3vm.problem import Problem
from s3vm.solvers.base import State, settled
from s3vm.solvers.steps import Step
from s3vm.solvers.stochastic import FeatureCount, StochasticSolver
from s3vm.solvers.tsg.anchored import anchored, rebase
from s3vm.solvers.tsg.batch_gradient import CHUNK
from s3vm.solvers.tsg.spans import GRAM_BYTES


@dataclass(frozen=True)
class TSG(StochasticSolver):
    """Triply stochastic gradients, anchored at the supervised solution.

    The run starts from the exact SVM of the labelled rows. Each iteration draws a batch of unlabelled rows and steps
    along the gradient of Eq. 1. Labelled rows act on their own kernel functions, without noise; unlabelled rows act on
    random features, all of which share each gradient, or, if they are few, on their own kernel functions too. The
    intercept holds the mean output over the unlabelled rows at that of the supervised solution. `PrintedTSG` is the
    algorithm as printed in the paper.

    If no unlabelled row is used, the result is the supervised solution.

    Parameters
    ----------
    max_iter : int or "auto", default "auto"
        Number of iterations T. ``"auto"`` is one pass over the unlabelled rows, but from 400 to 1000 iterations.
    passes : float or None, default None
        Instead of `max_iter`: the number of passes over the unlabelled rows.
    batch_size : int, default 64
        Unlabelled rows per iteration.
    n_features : int or "sqrt", default 512
        Random features per block, m. ``"sqrt"`` is the paper's ``ceil(sqrt(n))``, at least 64.
    step : Step, "decaying", "constant" or "theorem", default "decaying"
        The step sizes; see `s3vm.solvers.steps`.
    max_features : int, default 8192
        The number of random features at the end.
    growth : float in [0, 1], default 0.5
        The fraction of the iterations over which features are added; a quarter of them is there from the start.
    span : "auto", "rows" or "features", default "auto"
        What the unlabelled rows act on: their own kernel functions (exact, the paper's h_t) or random features.
        ``"auto"`` takes rows if there are at most `max_rows`.
    max_rows : int, default 8192
    balance : bool, default True
        Whether the intercept holds the mean output over a sample of unlabelled rows. Without it, all of them may end
        up in one class.
    ramp : float in [0, 1], default 0.5
        The fraction of the iterations over which the unlabelled cost grows from 0 to ``C*``.
    n_reference : int, default 2000
        The size of the sample over which the mean is held.
    """

    takes_remote_rows: ClassVar[bool] = True
    takes_tensors: ClassVar[bool] = True

    max_iter: int | Literal["auto"] = "auto"
    passes: float | None = None
    batch_size: int = 64
    n_features: FeatureCount = 512
    step: str | Step = "decaying"
    max_features: int = 8192
    growth: float = 0.5
    span: Literal["auto", "rows", "features"] = "auto"
    max_rows: int = 8192
    balance: bool = True
    ramp: float = 0.5
    n_reference: int = 2000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(self, max_iter=(integer(), "auto"), max_features=integer(), growth=real(0, 1))
        check_settings(self, span=("auto", "rows", "features"), max_rows=integer())

    def iterations(self, problem: Problem) -> int:
        if self.passes is None and not problem.uses_unlabelled:
            return 1
        return self.iterations_for(problem, fewest=400)

    def memory(self, problem: Problem, backend: Backend) -> int:
        size, n_columns = backend.dtype.itemsize, problem.n_columns
        n_bytes = 8 * problem.n_labelled**2
        if problem.unlabelled is None or not problem.uses_unlabelled:
            return n_bytes
        if self.spans_rows(problem.unlabelled.n_rows):
            n_spanned = problem.unlabelled.n_rows
            n_bytes += 2 * size * n_spanned * problem.n_dims + min(GRAM_BYTES, size * n_spanned * problem.n_rows)
            return n_bytes + 2 * size * n_spanned * (n_columns + self.batch_size)
        n_bytes += self.frequency_bytes(problem, backend, self.max_features)
        n_bytes += size * self.max_features * problem.n_labelled
        n_bytes += 2 * size * min(self.batch_size, CHUNK) * (problem.n_labelled + self.n_reference)
        return n_bytes + (2 * size + 16) * self.max_features * n_columns  # gradients are summed in float64

    def pilot(self, max_iter: int) -> "TSG":
        limit = self.max_iter if isinstance(self.max_iter, str) else min(self.max_iter, max_iter)
        return replace(self, max_iter=limit, passes=None)

    def for_streaming(self) -> "TSG":
        return replace(self, span="features") if self.span == "auto" else self

    def follow(self, problem: Problem, backend: Backend, state: State) -> State:
        return rebase(self, problem, backend, state)

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        yield from settled(anchored(self, problem, backend, state))

    def spans_rows(self, n_unlabelled: int) -> bool:
        """Whether unlabelled rows act on their own kernel functions."""
        return self.span == "rows" or (self.span == "auto" and n_unlabelled <= self.max_rows)

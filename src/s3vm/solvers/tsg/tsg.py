"""TSGS3VM: triply stochastic gradients, as printed or anchored at the supervised solution."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from s3vm._utils.settings import check_switches, check_whole, number
from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.losses import Exponential, SmoothHinge
from s3vm.problem import Problem
from s3vm.solvers.balance import means_to_hold
from s3vm.solvers.base import Losses, Solver, State, settled
from s3vm.solvers.steps import Step, step
from s3vm.solvers.stochastic import FeatureCount, balanced, block_size, iterations_for
from s3vm.solvers.tsg.algorithm1 import algorithm1
from s3vm.solvers.tsg.anchored import GRAM_BYTES, anchored
from s3vm.solvers.tsg.batch_gradient import CHUNK
from s3vm.solvers.tsg.rebase import rebase

__all__ = ["TSG"]


@dataclass(frozen=True)
class TSG(Solver):
    """Triply stochastic gradients: labelled rows, unlabelled rows and random features.

    Iteration t of the paper's Algorithm 1 draws a labelled batch, an unlabelled batch and block t of m random features,
    and steps along

        ``alpha_t = -gamma_t (sum_l C_l l'(f(x), y) phi_t(x) + C* mean_u u'(f(x)) phi_t(x))``,

    after which all older coefficients shrink by ``1 - gamma_t``. What makes it beat the supervised SVM it competes with
    are the options below, all on by default. `TSG.as_printed` has them all off.

    Parameters
    ----------
    max_iter : int or "auto", default "auto"
        Number of iterations T. ``"auto"`` is one pass over the unlabelled rows, but from 400 to 1000 iterations.
    passes : float or None, default None
        Instead of `max_iter`: how often to go through as many unlabelled rows as there are.
    batch_size : int, default 64
        Unlabelled rows in an iteration.
    n_features : int or "sqrt", default 512
        Random features in a block, m. ``"sqrt"`` is the paper's ``ceil(sqrt(n))``, at least 64.
    step : Step, "decaying", "constant" or "theorem", default "decaying"
        The step sizes; see `s3vm.solvers.steps`.
    anchor : bool, default True
        Whether to start from the exact supervised solution, and hold the balance at its mean output.
    exact_labelled : bool, default True
        Whether labelled rows act on their own kernel functions, without noise, instead of on random features.
    reuse : bool, default True
        Whether each gradient acts on all features born so far instead of on one new block.
    max_features : int, default 8192
        With `reuse`: how many features there are in the end.
    growth : float in [0, 1], default 0.5
        With `reuse`: share of the iterations over which features are born; a quarter of them is there from the start.
    span : "auto", "rows" or "features", default "auto"
        What the unlabelled rows act on: their own kernel functions (exact, the paper's h_t) or random features.
        ``"auto"`` takes rows if there are at most `max_rows`.
    max_rows : int, default 8192
    intercept : bool, default True
        Whether the decision function has a constant term.
    balance : bool, default True
        Whether the intercept holds the mean output over a sample of unlabelled rows. Without it, one class may swallow
        all of them.
    ramp : float in [0, 1], default 0.5
        Share of the iterations over which the unlabelled cost grows from 0 to ``C*``.
    n_reference : int, default 2000
        Unlabelled rows over which the mean is held.
    max_blocks : int or None, default None
        Algorithm 1 only: how many blocks of features there are at most. Once they are born, the iterations visit them
        in turn, as doubly stochastic gradients may, and memory does not grow any more. None adds one an iteration.
    draw_labelled : bool, default False
        Algorithm 1 only: whether to draw a batch of labelled rows, with replacement, even if there are no more than
        `batch_size`; otherwise all of them are used then.
    look_ahead : int, default 16
        Algorithm 1 only: how many iterations' batches are evaluated in one sweep over the old features. It changes the
        speed and nothing else.
    """

    losses: ClassVar[Losses] = (SmoothHinge, Exponential)
    follows_stream: ClassVar[bool] = True
    takes_remote_rows: ClassVar[bool] = True
    takes_tensors: ClassVar[bool] = True

    max_iter: int | Literal["auto"] = "auto"
    passes: float | None = None
    batch_size: int = 64
    n_features: FeatureCount = 512
    step: str | Step = "decaying"
    anchor: bool = True
    exact_labelled: bool = True
    reuse: bool = True
    max_features: int = 8192
    growth: float = 0.5
    span: Literal["auto", "rows", "features"] = "auto"
    max_rows: int = 8192
    intercept: bool = True
    balance: bool = True
    ramp: float = 0.5
    n_reference: int = 2000
    max_blocks: int | None = None
    draw_labelled: bool = False
    look_ahead: int = 16

    def __post_init__(self) -> None:
        check_switches(self)
        whole = ["batch_size", "max_features", "max_rows", "n_reference", "look_ahead"]
        whole += ["max_blocks"] * (self.max_blocks is not None)
        whole += ["max_iter"] * (self.max_iter != "auto") + ["n_features"] * (self.n_features != "sqrt")
        check_whole(self, *whole)
        if self.passes is not None and not 0 < number(self.passes) < np.inf:
            raise ValueError(f"TSG needs passes > 0 or None; got passes={self.passes!r}")
        for name in ("ramp", "growth"):
            if not 0 <= number(getattr(self, name)) <= 1:
                raise ValueError(f"TSG needs {name} between 0 and 1; got {name}={getattr(self, name)!r}")
        if self.span not in ("auto", "rows", "features"):
            raise ValueError(f'TSG needs span "auto", "rows" or "features"; got span={self.span!r}')
        if self.span == "rows" and not (self.exact_labelled and self.reuse):
            raise ValueError('span="rows" has no random features: it needs exact_labelled=True and reuse=True')
        if self.balance and not self.intercept:
            raise ValueError("the intercept holds the balance: intercept=False needs balance=False")
        if self.anchor and not self.intercept:
            raise ValueError("the supervised start has an intercept: intercept=False needs anchor=False")
        step(self.step)

    @classmethod
    def as_printed(cls, **settings: Any) -> "TSG":
        """Algorithm 1 as it is printed: none of the options, labelled rows drawn, constant steps.

        The paper's features are those of ``RBF(features="phase")``, its weight is ``unlabeled_weight="paper"``.
        """
        off = {
            "anchor": False,
            "exact_labelled": False,
            "reuse": False,
            "intercept": False,
            "balance": False,
            "ramp": 0.0,
        }
        paper = {"max_iter": 128, "batch_size": 256, "n_features": "sqrt", "step": "constant", "draw_labelled": True}
        return cls(**{**off, **paper, **settings})

    def iterations(self, problem: Problem) -> int:
        n_rows = problem.unlabelled.n_rows if problem.unlabelled is not None else problem.n_labelled
        if self.passes is not None:
            return iterations_for(self.passes, n_rows, self.batch_size)
        if self._is_algorithm1(problem):
            return 128 if isinstance(self.max_iter, str) else self.max_iter
        if not problem.uses_unlabelled and self.anchor:
            return 1
        if isinstance(self.max_iter, str):
            return int(np.clip(np.ceil(n_rows / self.batch_size), 400, 1000))
        return self.max_iter

    def memory(self, problem: Problem, backend: Backend) -> int:
        size, n_columns = backend.dtype.itemsize, problem.n_columns
        if self._is_algorithm1(problem):
            n_iterations = self.iterations(problem)
            n_features = min(n_iterations, self.max_blocks or n_iterations) * self.block_size(problem)
            n_seen = self.look_ahead * 2 * self.batch_size + problem.n_labelled + self.n_reference
            n_bytes = 2 * size * n_features * n_columns + size * n_seen * problem.n_dims
            return n_bytes + _kept_bytes(problem, backend, n_features)
        n_bytes = 8 * problem.n_labelled**2
        if problem.unlabelled is None or not problem.uses_unlabelled:
            return n_bytes
        if self.spans_rows(problem.unlabelled.n_rows):
            n_spanned = problem.unlabelled.n_rows
            n_bytes += 2 * size * n_spanned * problem.n_dims + min(GRAM_BYTES, size * n_spanned * problem.n_rows)
            return n_bytes + 2 * size * n_spanned * (n_columns + self.batch_size)
        n_spanned = self.max_features if self.reuse else self.iterations(problem) * self.block_size(problem)
        n_bytes += size * n_spanned * problem.n_labelled + _kept_bytes(problem, backend, n_spanned)
        n_bytes += 2 * size * min(self.batch_size, CHUNK) * (problem.n_labelled + self.n_reference)
        return n_bytes + (2 * size + 16) * n_spanned * n_columns  # gradients are summed in float64

    def extended(self, problem: Problem, done: int) -> "TSG":
        return replace(self, max_iter=done + self.iterations(problem), passes=None)

    def full_weight_from(self, problem: Problem) -> int:
        return int(np.ceil(self.ramp * self.iterations(problem)))

    def pilot(self, max_iter: int) -> "TSG":
        limit = self.max_iter if isinstance(self.max_iter, str) else min(self.max_iter, max_iter)
        return replace(self, max_iter=limit, passes=None)

    def for_new_rows(self, done: int, n_new: int) -> "TSG":
        return replace(self, max_iter=done + max(1, -(-n_new // self.batch_size)), passes=None)

    def for_streaming(self) -> "TSG":
        """This solver for rows that never end: unlabelled rows act on random features, never on themselves."""
        return replace(self, span="features") if self.span == "auto" else self

    def follow(self, problem: Problem, backend: Backend, state: State) -> State:
        """A state of other rows as one of these."""
        return state.detached() if self._is_algorithm1(problem) else rebase(self, problem, backend, state)

    def block_of(self, t: int) -> int:
        """The block of features that iteration t of Algorithm 1 acts on."""
        return t if self.max_blocks is None else t % self.max_blocks

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        yield from settled((algorithm1 if self._is_algorithm1(problem) else anchored)(self, problem, backend, state))  # type: ignore[arg-type]

    def _is_algorithm1(self, problem: Problem) -> bool:
        """Whether there is nothing to anchor: no option asks for it, or no unlabelled row and no supervised start."""
        asked = self.anchor or self.exact_labelled or self.reuse
        return not asked or not (self.anchor or problem.uses_unlabelled)

    def block_size(self, problem: Problem) -> int:
        """The number m of features in a block."""
        return block_size(self.n_features, problem)

    def balanced(self, problem: Problem) -> Array:
        """Which columns hold their mean output: those that the unlabelled rows matter to."""
        return balanced(problem, self.balance)

    def spans_rows(self, n_unlabelled: int) -> bool:
        """Whether unlabelled rows act on their own kernel functions."""
        if self.span == "auto":
            return self.exact_labelled and self.reuse and n_unlabelled <= self.max_rows
        return self.span == "rows"

    def target(self, problem: Problem, start: Array) -> Array:
        """The mean output over the reference sample that each column holds; `start` has the supervised scores there."""
        return means_to_hold(problem, start) if self.anchor else 2 * problem.prior - 1


def _kept_bytes(problem: Problem, backend: Backend, n_features: int) -> int:
    """What frequencies of so many features take at most, as far as they are kept: in rows that are filled up, and room
    that grows by doubling."""
    row_bytes = backend.dtype.itemsize * (problem.n_dims + 1) + 64
    return min(backend.cache_bytes, 2 * problem.kernel.rows(n_features) * row_bytes)

"""The state of an anchored run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from s3vm._utils.arrays import host
from s3vm._utils.registry import state_part
from s3vm._utils.typing import Array, Rows
from s3vm.kernels import Kernel
from s3vm.model import Model
from s3vm.problem import Problem

if TYPE_CHECKING:
    from s3vm.solvers.tsg.tsg import TSG

__all__ = ["AnchoredState"]


@state_part("TSG.State")
@dataclass(frozen=True, eq=False)
class AnchoredState:
    """What an anchored run knows after an iteration.

    `centres` are the labelled rows and then those that `span` or the mean over R needs. `scores` of the labelled rows
    and `mean` over R are without intercept. `n_features` is the size of a block, or 0 if the span is the kernel
    functions of rows. `start_dual` and `start_intercept` are the supervised solution.
    """

    kernel: Kernel
    seed: int
    centres: Rows
    n_reference: int
    n_features: int
    targets: Array
    costs: Array
    start_dual: Array
    start_intercept: Array
    made_by: "TSG"
    dual: Array
    intercept: Array
    lift: Array
    span: Array
    scores: Array
    mean: Array
    norm: Array
    iteration: int = 0
    record: Mapping[str, float] = field(default_factory=dict)

    def model(self) -> Model:
        n_l, n_columns = self.dual.shape
        span = host(self.span)
        weights = np.zeros((self.centres.shape[0], n_columns), span.dtype)
        weights[:n_l] = host(self.dual)
        coefficients = np.empty((0, 1, n_columns), span.dtype)
        if self.n_features:
            coefficients = span.reshape(-1, self.n_features, n_columns)
        else:
            weights[n_l:] = span
        if self.n_reference:
            weights[n_l : n_l + self.n_reference] += host(self.lift) / self.n_reference
        n_dims = self.centres.shape[1]
        return Model(self.kernel, self.seed, n_dims, coefficients, host(self.intercept), self.centres, weights)

    def labelled_scores(self) -> Array:
        return host(self.scores + self.intercept)

    def moved(self, move: Callable[[Any], Any]) -> "AnchoredState":
        """This state with the arrays of the function moved to a device, or back."""
        arrays = ("dual", "intercept", "lift", "span", "scores", "mean", "norm")
        return replace(self, **{name: move(getattr(self, name)) for name in arrays})

    def detached(self) -> "AnchoredState":
        return self.moved(host)

    def fits(self, problem: Problem, centres: Rows) -> bool:
        """Whether this state has these rows and costs."""
        if self.centres.shape != centres.shape or (self.centres != centres).sum() > 0:
            return False
        return (
            np.array_equal(self.targets, problem.targets)
            and np.array_equal(self.costs, problem.costs)
            and np.shape(self.start_dual) == problem.targets.shape
            and np.shape(self.start_intercept) == (problem.n_columns,)
        )

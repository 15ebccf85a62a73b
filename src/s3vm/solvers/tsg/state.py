"""The state of an anchored run, and how it continues with other labelled rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from s3vm._utils.arrays import host, row_digests, stack
from s3vm._utils.registry import state_part
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.kernels import Kernel
from s3vm.model import Model
from s3vm.problem import Problem
from s3vm.solvers.balance import means_to_hold
from s3vm.solvers.base import State
from s3vm.solvers.supervised import supervised_start

if TYPE_CHECKING:
    from s3vm.solvers.tsg.tsg import TSG


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


def rebase(solver: "TSG", problem: Problem, backend: Backend, state: State) -> AnchoredState:
    """The state of an anchored run, moved to other labelled rows and another reference sample.

    The function was the supervised solution ``s`` of the old labelled rows plus the change by the unlabelled ones,
    ``f = s + c``. It becomes ``f' = s' + c`` with the supervised solution of the new rows. The part of `c` on labelled
    rows that are no longer there is lost; its mean over the reference sample becomes one over the new sample.
    """
    if not isinstance(state, AnchoredState) or not state.n_features or state.dual.shape[1] != problem.n_columns:
        raise ValueError(
            "cannot resume from another algorithm's state, or from one with other columns: call fit with all rows"
        )
    assert problem.unlabelled is not None
    state = state.moved(host)
    kernel, labelled = problem.kernel, problem.labelled
    reference = host(problem.unlabelled.sample(problem.seed, solver.n_reference))
    gram, start, start_intercept = supervised_start(problem)
    dual = start.copy()
    new, old = _common_rows(labelled, problem.targets, state.centres[: len(state.dual)], state.targets)
    dual[new] += (state.dual - state.start_dual)[old]
    features = backend.features(kernel, problem.seed, state.n_features, problem.n_dims)
    coefficients = state.span.reshape(-1, state.n_features, problem.n_columns)
    of_labelled = kernel.gram(labelled, reference).mean(axis=1)
    of_reference = float(kernel.gram(reference, reference).mean())
    at_labelled = features.decision(coefficients, labelled)
    at_reference = features.decision(coefficients, reference).mean(axis=0)
    mean = of_labelled @ dual + of_reference * state.lift + at_reference
    target = means_to_hold(problem, kernel.gram(reference, labelled) @ start + start_intercept)
    free = state.intercept + start_intercept - state.start_intercept
    # With the kernel that the features stand for: f is sum_j span_j psi_j, and k is the mean of psi psi' over blocks.
    norm = np.einsum("ik,ik->k", dual, gram @ dual + 2 * (of_labelled[:, None] * state.lift + at_labelled))
    of_span = len(coefficients) * np.sum(state.span**2, axis=0)
    norm += state.lift * (of_reference * state.lift + 2 * at_reference) + of_span
    return replace(
        state,
        centres=stack([labelled, reference]),
        n_reference=reference.shape[0],
        targets=problem.targets,
        costs=problem.costs,
        start_dual=start,
        start_intercept=start_intercept,
        dual=dual,
        intercept=np.where(solver.balanced_columns(problem), target - mean, free),
        scores=gram @ dual + of_labelled[:, None] * state.lift + at_labelled,
        mean=mean,
        norm=np.maximum(0, norm),
    )


def _common_rows(rows: Rows, targets: Array, old_rows: Rows, old_targets: Array) -> tuple[Array, Array]:
    """The positions of the labelled rows that are in both sets, in the new one and in the old one."""
    known = {key: at for at, key in enumerate(_keys(old_rows, old_targets))}
    pairs = [(at, known[key]) for at, key in enumerate(_keys(rows, targets)) if key in known]
    new, old = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    return new, old


def _keys(rows: Rows, targets: Array) -> list[tuple[int, bytes]]:
    return [(int(number), target.tobytes()) for number, target in zip(row_digests(rows), targets, strict=True)]

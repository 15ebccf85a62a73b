"""An anchored TSG whose labelled rows come and go: what it has learnt from the unlabelled ones stays."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from s3vm._utils.arrays import host, row_digests, stack
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.problem import Problem
from s3vm.solvers.base import State
from s3vm.solvers.supervised import labelled_gram, supervised, supervised_start

if TYPE_CHECKING:
    from s3vm.solvers.tsg.tsg import TSG

__all__ = ["rebase"]


def rebase(solver: "TSG", problem: Problem, backend: Backend, state: State) -> State:
    """The state of an anchored run as one of other labelled rows and another reference sample.

    The function was the supervised solution ``s`` of the old labelled rows and what the unlabelled rows have changed,
    ``f = s + c``. It becomes ``f' = s' + c`` with the supervised solution of the new ones. What `c` has on labelled
    rows that are not there any more is lost; its mean over the reference sample is one over the new sample.
    """
    from s3vm.solvers.tsg.anchored import _State

    if not isinstance(state, _State) or not state.n_features or state.dual.shape[1] != problem.n_columns:
        raise ValueError("a state of another algorithm, or of other columns, cannot be gone on from: start afresh")
    assert problem.unlabelled is not None
    state = state.moved(host)
    kernel, labelled, n_before = problem.kernel, problem.labelled, len(state.dual)
    reference = host(problem.unlabelled.sample(problem.seed, solver.n_reference))
    before = state.centres[:n_before]
    start, start_intercept = np.zeros(problem.targets.shape), np.zeros(problem.n_columns)
    old, old_intercept = np.zeros(state.targets.shape), np.zeros(problem.n_columns)
    if not solver.anchor:
        gram = labelled_gram(kernel, labelled)
    else:
        gram, start, start_intercept = supervised_start(problem)
        old, old_intercept = supervised(labelled_gram(kernel, before), state.targets, state.costs)
    here, there = _same(labelled, problem.targets, before, state.targets)
    dual = start.copy()
    dual[here] += (state.dual - old)[there]
    features = backend.features(kernel, problem.seed, state.n_features, problem.n_dims)
    coefficients = state.span.reshape(-1, state.n_features, problem.n_columns)
    of_labelled = kernel.gram(labelled, reference).mean(axis=1)
    of_reference = float(kernel.gram(reference, reference).mean())
    at_labelled = features.decision(coefficients, labelled)
    at_reference = features.decision(coefficients, reference).mean(axis=0)
    mean = of_labelled @ dual + of_reference * state.lift + at_reference
    target = solver.target(problem, kernel.gram(reference, labelled) @ start + start_intercept)
    free = state.intercept + start_intercept - old_intercept
    # With the kernel that the features stand for: f is sum_j span_j psi_j, and k is the mean of psi psi' over blocks.
    n_blocks = len(coefficients) if solver.reuse else 1
    norm = np.einsum("ik,ik->k", dual, gram @ dual + 2 * (of_labelled[:, None] * state.lift + at_labelled))
    norm += state.lift * (of_reference * state.lift + 2 * at_reference) + n_blocks * np.sum(state.span**2, axis=0)
    return replace(
        state,
        centres=stack([labelled, reference]),
        n_reference=reference.shape[0],
        targets=problem.targets,
        costs=problem.costs,
        dual=dual,
        intercept=np.where(solver.balanced(problem), target - mean, free),
        scores=gram @ dual + of_labelled[:, None] * state.lift + at_labelled,
        mean=mean,
        norm=np.maximum(0, norm),
    )


def _same(rows: Rows, targets: Array, before: Rows, targets_before: Array) -> tuple[Array, Array]:
    """Where the labelled rows that were there before are now, and where they were."""
    known = {key: at for at, key in enumerate(_keys(before, targets_before))}
    pairs = [(at, known[key]) for at, key in enumerate(_keys(rows, targets)) if key in known]
    here, there = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    return here, there


def _keys(rows: Rows, targets: Array) -> list[tuple[int, bytes]]:
    return [(int(number), target.tobytes()) for number, target in zip(row_digests(rows), targets, strict=True)]

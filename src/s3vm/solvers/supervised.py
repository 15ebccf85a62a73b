"""The exact solution of the labelled rows alone: where a semi-supervised run starts, and what it has to beat."""

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from s3vm._utils.typing import Array, Rows
from s3vm._utils.warn import warn
from s3vm.kernels import Kernel
from s3vm.problem import Problem, SupervisedSolution, first_equal
from s3vm.solvers.gram import check_finite
from s3vm.solvers.smo import solve_svm

_TOL, _SOLVED = 1e-9, 1e-6  # violation of the optimality conditions: the goal, and what is enough
_MOST_STEPS = 3_000_000
_MOST_BYTES = 2 << 30


def labeled_gram(kernel: Kernel, labeled: Rows) -> Array:
    """The kernel matrix of the labelled rows, in float64; a ValueError if it would be too large."""
    n_labeled = labeled.shape[0]
    n_bytes = 8 * n_labeled**2
    if n_bytes > _MOST_BYTES:
        raise ValueError(
            f"the exact supervised solution of {n_labeled} labelled rows needs a kernel matrix of "
            f'{n_bytes / 2**30:.0f} GiB: use solver="auto", which learns from any number on landmarks, '
            "or FRS() with a number for unlabeled_weight"
        )
    return kernel.gram(labeled, labeled).astype(np.float64)


def supervised(gram: Array, targets: Array, costs: Array) -> tuple[Array, Array]:
    """The kernel SVM of every column: dual coefficients ``(n_l, K)`` and intercepts ``(K,)``.

    ``f_k(x) = sum_i dual[i, k] k(x_i, x) + intercept[k]`` minimises
    ``||f||^2 / 2 + sum_i costs[i, k] max(0, 1 - targets[i, k] f(x_i))``. Rows of cost 0 are left out; a column with
    rows of only one sign is that sign. Equal columns are solved once. Where classes overlap and costs are high, the
    exact solution may be out of reach: after three million steps of the solver, a ConvergenceWarning says so.
    """
    dual, intercept, is_solved = in_steps(gram, targets, costs, _MOST_STEPS)
    if not is_solved:
        warn(
            f"the supervised SVM has not converged after {_MOST_STEPS:,} steps: lower C, or standardise the features",
            ConvergenceWarning,
        )
    return dual, intercept


def start_gram(problem: Problem) -> Array:
    """The kernel matrix of the problem's labelled rows, computed here unless the problem brings it along."""
    if problem.supervised is not None:
        return problem.supervised.gram
    return labeled_gram(problem.kernel, problem.labeled)


def supervised_start(problem: Problem, gram: Array | None = None) -> SupervisedSolution:
    """The supervised solution of every column, computed here unless the problem brings it along.

    `gram` is the kernel matrix of the labelled rows, if it is known.
    """
    if problem.supervised is not None:
        return problem.supervised
    gram = start_gram(problem) if gram is None else gram
    return SupervisedSolution(gram, *supervised(gram, problem.targets, problem.costs))


def in_steps(gram: Array, targets: Array, costs: Array, most: int) -> tuple[Array, Array, bool]:
    """The result of `supervised` after at most `most` steps per column, and whether these were enough."""
    check_finite(gram)
    dual, intercept = np.zeros(targets.shape), np.zeros(targets.shape[1])
    is_solved, known = True, (np.empty(0, np.intp), np.empty((0, 0)))
    for k, first in enumerate(first_equal(targets, costs)):
        if first < k:
            dual[:, k], intercept[k] = dual[:, first], intercept[first]
            continue
        at = np.flatnonzero(costs[:, k] > 0)
        y = targets[at, k]
        if np.all(y == y[0]):
            intercept[k] = y[0]
            continue
        if not np.array_equal(at, known[0]):  # columns of one fold have the same rows
            known = at, np.ascontiguousarray(gram[np.ix_(at, at)])
        solution = solve_svm(known[1], y, costs[at, k], _TOL, most)
        dual[at, k], intercept[k] = solution.a, solution.intercept
        is_solved = is_solved and solution.gap < _SOLVED
    return dual, intercept, is_solved

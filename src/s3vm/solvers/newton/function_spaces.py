"""The spaces that Newton's method works in: functions with coefficients, an inner product and values at all rows.

The mean over the unlabelled rows is subtracted from all values, so that an intercept can hold any mean output there.

A space has the `form` M of the problem's graph, if there is one: ``f'Mf = (1/n) f'Lf`` with f at all rows. What the
graph adds to the Hessian of a function with values v is ``cost M v``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from s3vm import philox
from s3vm._utils.arrays import blocks
from s3vm._utils.registry import state_part
from s3vm._utils.typing import Array, Rows
from s3vm.kernels import Kernel
from s3vm.philox import Purpose
from s3vm.problem import Problem
from s3vm.solvers.deformed import deformed
from s3vm.solvers.gram import check_finite

CHUNK = 1024  # rows at a time, where a copy of all would be large
SAMPLE = 500  # unlabelled rows that represent all of them in the preconditioner
_NEGLIGIBLE = 0.1  # curvature that the preconditioner may omit; that of the norm is 1
_ROUNDING = 1e-15
_RANK = 1e-10  # eigenvalues of a kernel matrix below this fraction of the largest are noise


@state_part("Newton.Function")
class Function(NamedTuple):
    """A function in a space: its coefficients there, and its values at all rows."""

    coefficients: Array
    values: Array

    def plus(self, t: float, other: "Function") -> "Function":
        return Function(self.coefficients + t * other.coefficients, self.values + t * other.values)


class WholeKernel:
    """Expansions on all rows: ``f(x) = sum_i a_i <phi(x_i) - mean, phi(x) - mean>``, the mean over unlabelled rows."""

    def __init__(self, problem: Problem, rows: Rows, max_factor: int, form: Any = None) -> None:
        self._n_labeled, self.form = problem.n_labeled, form
        gram = kernel_matrix(problem.kernel, rows, rows)
        self._mean = gram[:, self._n_labeled :].mean(axis=1)
        gram -= self._mean[:, None]
        gram -= self._mean
        gram += self._mean[self._n_labeled :].mean()
        self._gram = gram
        self._deformed: dict[float, Array] = {}
        self._sample = None
        if len(gram) > max_factor:
            self._sample = _labeled_and_some(problem, SAMPLE)
            self._root = _root(gram[np.ix_(self._sample, self._sample)])
            self._features = gram[:, self._sample] @ self._root
            self._rough = _rough(self._features, form)

    def function(self, coefficients: Array) -> Function:
        return Function(coefficients, self._gram @ coefficients)

    def adjoint(self, slope: Array) -> Array:
        """The coefficients of the function whose inner product with f is the sum of ``slope_i f(x_i)``."""
        return slope

    def inner(self, f: Function, g: Function) -> float:
        return float(f.coefficients @ g.values)

    def expansion(self, coefficients: Array) -> tuple[Array, float]:
        """The weights of the centres' kernel functions, and the constant that makes the mean 0."""
        weights = coefficients.copy()
        weights[self._n_labeled :] -= coefficients.sum() / (len(weights) - self._n_labeled)
        return weights, float(-self._mean @ weights)

    def preconditioner(self, curvature: Array, graph_cost: float = 0.0) -> Callable[[Function], Array]:
        """Solves with the Hessian of this curvature, none of it negative: exactly, or on the span of a sample."""
        if self._sample is None and graph_cost:
            return self._with_graph(curvature, graph_cost)
        if self._sample is None:
            inverse = curved_inverse(self._gram, curvature, _NEGLIGIBLE)
            return lambda r: r.coefficients - inverse(r.values)
        of_span = _inverse_of_features(self._features, curvature, graph_cost, self._rough)

        def precondition(r: Function) -> Array:
            part = self._features.T @ r.coefficients
            result = r.coefficients.copy()
            result[self._sample] -= self._root @ (part - of_span(part))
            return result

        return precondition

    def _with_graph(self, curvature: Array, graph_cost: float) -> Callable[[Function], Array]:
        """``(1 + (D + c M) K)^-1 = S (1 + D G)^-1`` with ``S = (1 + c M K)^-1 = 1 - c M G`` and ``G = K S``."""
        if graph_cost not in self._deformed:  # columns of equal costs share it
            self._deformed[graph_cost] = deformed(self._gram, self.form, graph_cost)
        G = self._deformed[graph_cost]
        inverse = curved_inverse(G, curvature, _NEGLIGIBLE)

        def precondition(r: Function) -> Array:
            part = r.coefficients - inverse(G @ r.coefficients)
            return part - graph_cost * (self.form @ (G @ part))

        return precondition


class Landmarks:
    """Expansions on the labelled rows and some landmarks: linear functions of ``k(x, centers) K^(-1/2)`` (Nystroem)."""

    def __init__(self, kernel: Kernel, rows: Rows, centers: Rows, n_labeled: int, form: Any = None) -> None:
        self._root = _root(kernel_matrix(kernel, centers, centers))
        self._features = kernel_matrix(kernel, rows, centers, self._root)
        self._mean = self._features[n_labeled:].mean(axis=0)
        self._features -= self._mean
        self.form, self._rough = form, _rough(self._features, form)

    def function(self, coefficients: Array) -> Function:
        return Function(coefficients, self._features @ coefficients)

    def adjoint(self, slope: Array) -> Array:
        return self._features.T @ slope

    def inner(self, f: Function, g: Function) -> float:
        return float(f.coefficients @ g.coefficients)

    def expansion(self, coefficients: Array) -> tuple[Array, float]:
        return self._root @ coefficients, float(-self._mean @ coefficients)

    def preconditioner(self, curvature: Array, graph_cost: float = 0.0) -> Callable[[Function], Array]:
        inverse = _inverse_of_features(self._features, curvature, graph_cost, self._rough)
        return lambda r: inverse(r.coefficients)


Space = WholeKernel | Landmarks


def space_on(problem: Problem, rows: Rows, n_spanned: int, max_factor: int) -> tuple[Space, Array]:
    """The space of expansions on `n_spanned` of all rows, and the numbers of these."""
    form = problem.graph.form_on(problem.all_rows()) if problem.graph is not None and problem.uses_graph else None
    if n_spanned == problem.n_rows:
        return WholeKernel(problem, rows, max_factor, form), np.arange(n_spanned)
    chosen = _labeled_and_some(problem, n_spanned - problem.n_labeled)
    return Landmarks(problem.kernel, rows, rows[chosen], problem.n_labeled, form), chosen


def curved_inverse(gram: Array, curvature: Array, negligible: float = 0.0) -> Callable[[Array], Array]:
    """``values -> D^(1/2) (1 + D^(1/2) K D^(1/2))^(-1) D^(1/2) values`` with ``D = diag(curvature)``, by Cholesky.

    By this much the inverse of ``1 + D K`` differs from 1. Rows whose curvature adds up to no more than `negligible`
    are left out.
    """
    order = np.argsort(curvature, kind="stable")
    total = np.cumsum(curvature[order]) * max(float(gram.diagonal().max()), 1e-300)
    at = np.sort(order[np.searchsorted(total, negligible, side="right") :])
    if len(at) == 0:
        return np.zeros_like
    root = np.sqrt(curvature[at])
    matrix = gram[np.ix_(at, at)]
    matrix *= root
    matrix *= root[:, None]
    # Rounding may make a kernel matrix a little indefinite.
    matrix.flat[:: len(at) + 1] += 1.0 + _ROUNDING * matrix.trace()
    factor = cho_factor(matrix.T, lower=True, overwrite_a=True, check_finite=False)

    def apply(values: Array) -> Array:
        result = np.zeros_like(values)
        result[at] = root * cho_solve(factor, root * values[at], check_finite=False)
        return result

    return apply


def _rough(features: Array, form: Any) -> Array | None:
    """``Z'MZ``, Z the features and M the form of the graph."""
    return None if form is None else features.T @ (form @ features)


def _inverse_of_features(
    features: Array, curvature: Array, graph_cost: float = 0.0, rough: Array | None = None
) -> Callable[[Array], Array]:
    """Solves with ``1 + Z' (D + graph_cost M) Z``, Z the features and ``D = diag(curvature)``."""
    matrix, at = np.eye(features.shape[1]), np.flatnonzero(curvature)
    if graph_cost and rough is not None:
        matrix += graph_cost * rough
    for start in range(0, len(at), CHUNK):
        part = at[start : start + CHUNK]
        scaled = features[part]
        scaled *= np.sqrt(curvature[part])[:, None]
        matrix += scaled.T @ scaled
    factor = cho_factor(matrix.T, lower=True, overwrite_a=True, check_finite=False)
    return lambda values: cho_solve(factor, values, check_finite=False)


def kernel_matrix(kernel: Kernel, rows: Rows, centers: Rows, times: Array | None = None) -> Array:
    """The kernel matrix, times another one if given, a few rows at a time; a ValueError if it is not finite."""
    result = np.empty((rows.shape[0], centers.shape[0] if times is None else times.shape[1]))
    for part in blocks(rows.shape[0], CHUNK):
        values = kernel.gram(rows[part], centers)
        result[part] = values if times is None else values @ times
        check_finite(result[part])
    return result


def _root(gram: Array) -> Array:
    """R with ``R R' = K^-1`` where K is not 0."""
    values, vectors = np.linalg.eigh(gram)
    significant = values > _RANK * max(float(values[-1]), 1e-300)
    if not significant.any():
        return np.zeros((len(gram), 1))
    return vectors[:, significant] / np.sqrt(values[significant])


def _labeled_and_some(problem: Problem, n_unlabeled: int) -> Array:
    """The numbers of all labelled rows and of some unlabelled ones drawn at random, in order."""
    n_l = problem.n_labeled
    order = np.argsort(philox.words(problem.seed, Purpose.UNLABELED, 0, problem.n_rows - n_l, 1)[:, 0], kind="stable")
    return np.concatenate([np.arange(n_l), n_l + np.sort(order[:n_unlabeled])])

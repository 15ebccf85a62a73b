"""The convex part: squared hinge on labelled rows, the norm and the graph, with a free intercept.

Where the graph counts with ``c``, the minimiser over w given what labelled rows pull, ``beta``, is
``w = D (Z'beta - c b tilt)`` with ``D = 1 / (1 + c roughness)``. On the labelled rows f is then

    ``f = G beta + e b``,  ``G = Z D Z'``,  ``e = 1 - c Z D tilt``,

an SVM of the labelled rows alone whose kernel G has been deformed by the graph (Sindhwani, Niyogi and Belkin 2005). So
a weight of the graph costs one matrix of labelled rows, however many rows the graph joins.
"""

from collections.abc import Iterator

import numpy as np
from scipy.linalg import solve

from s3vm._utils.arrays import host
from s3vm._utils.typing import Array
from s3vm.problem import Problem
from s3vm.solvers.batch.space import LandmarkSpace

_MOST_STEPS = 100


def convex_solution(space: LandmarkSpace, problem: Problem, graph_cost: Array) -> tuple[Array, Array]:
    """Coefficients ``(p, K)`` and intercepts ``(K,)`` that minimise every column's objective without its gaps."""
    Z = host(space.features[: problem.n_labeled]).astype(np.float64)
    w, intercept = np.zeros((Z.shape[1], problem.n_columns)), np.zeros(problem.n_columns)
    for cost, columns in _groups(graph_cost):
        D = 1 / (1 + cost * space.roughness)
        G = (Z * D) @ Z.T
        pull = D * space.tilt
        e, h = 1 - cost * (Z @ pull), cost * (space.flat - cost * space.tilt @ pull)
        solved: dict[tuple[bytes, bytes], int] = {}  # candidates with other gaps are equal here
        for k in columns:
            y, costs = problem.targets[:, k], problem.costs[:, k]
            first = solved.setdefault((y.tobytes(), costs.tobytes()), k)
            if first < k:
                w[:, k], intercept[k] = w[:, first], intercept[first]
                continue
            beta, b = _squared_hinge(G, e, float(h), y, costs)
            w[:, k], intercept[k] = D * (Z.T @ beta) - cost * b * pull, b
    return w, intercept


def _groups(costs: Array) -> Iterator[tuple[float, Array]]:
    for cost in np.unique(costs):
        yield float(cost), np.flatnonzero(costs == cost)


def _squared_hinge(G: Array, e: Array, h: float, y: Array, costs: Array) -> tuple[Array, float]:
    """Minimises ``beta'G beta / 2 + h b^2 / 2 + sum_i costs_i max(0, 1 - y_i f_i)^2 / 2`` with ``f = G beta + e b``.

    Newton's method: the active rows, those inside the margin, decide the next point by one linear system; a step that
    does not lower the objective is halved.
    """
    beta, b = np.zeros(len(y)), 0.0
    used = np.flatnonzero(costs > 0)
    if len(used) == 0 or np.all(y[used] == y[used[0]]):
        return beta, float(y[used[0]]) if len(used) else 0.0
    f = np.zeros(len(y))

    def objective(beta: Array, b: float, f: Array) -> float:
        return float(beta @ (f - e * b) / 2 + h * b**2 / 2 + costs @ np.maximum(0, 1 - y * f) ** 2 / 2)

    value = objective(beta, b, f)
    for _ in range(_MOST_STEPS):
        active = np.flatnonzero((costs > 0) & (y * f < 1))
        matrix = np.empty((len(active) + 1, len(active) + 1))
        matrix[:-1, :-1] = G[np.ix_(active, active)]
        matrix[:-1, :-1].flat[:: len(active) + 1] += 1 / costs[active]
        matrix[-1, :-1] = matrix[:-1, -1] = e[active]
        matrix[-1, -1] = -h
        *of_active, new_b = solve(matrix, np.append(y[active], 0.0), assume_a="sym", check_finite=False)
        new = np.zeros(len(y))
        new[active] = of_active
        new_f = G[:, active] @ new[active] + e * new_b
        step, lower = 1.0, objective(new, new_b, new_f)
        while lower > value and step > 1e-6:
            step /= 2
            lower = objective(beta + step * (new - beta), b + step * (new_b - b), f + step * (new_f - f))
        if lower > value:
            break
        beta, b, f = beta + step * (new - beta), float(b + step * (new_b - b)), f + step * (new_f - f)
        is_done = value - lower <= 1e-12 * abs(value)
        value = lower
        if is_done:
            break
    return beta, b

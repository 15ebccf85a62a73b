"""The convex part: squared hinge on labelled rows, the norm and the graph, with a free intercept.

With ``u = (w, b)`` and the rows ``a_i = (z_i, 1)``, every column minimises

    ``u'Qu / 2 + sum_i costs_i max(0, 1 - y_i a_i.u)^2 / 2``,

where Q is the norm and the graph. The minimiser is a combination of the labelled rows, as the metric ``Q_ww`` sees
them, so it is looked for in an orthonormal basis of these. All columns go down together, by accelerated descent in the
metric of a quadratic that lies above all of them: ``M = Q + sum_i max(costs_i) a_i a_i'``.
"""

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from s3vm._utils.arrays import blocks, host
from s3vm._utils.linalg import inverse
from s3vm._utils.typing import Array
from s3vm.problem import Problem, first_equal
from s3vm.solvers.batch.space import BLOCK, LandmarkSpace

# Steps at most, and the length of a step, relative to the first, at which a column is done.
_LIMITS = {"float32": (500, 1e-4), "float64": (20_000, 1e-10)}
_CHECKED = 10  # steps between two checks of which columns are done
_COLUMNS = 512  # that go down together, so that memory is bounded


def convex_solution(space: LandmarkSpace, problem: Problem) -> tuple[Array, Array]:
    """Coefficients ``(p, K)`` and intercepts ``(K,)`` that minimise every column's objective without its gaps."""
    features = host(space.features[: problem.n_labeled])
    u = np.empty((features.shape[1] + 1, problem.n_columns))
    for cost in np.unique(problem.graph_costs):
        lower, basis, rows, border = _in_span(features, float(cost) * space.rough)
        columns = np.flatnonzero(problem.graph_costs == cost)
        equal = columns[first_equal(problem.targets[:, columns], problem.costs[:, columns])]
        distinct = np.unique(equal)  # candidates with other gaps are equal here
        for part in np.array_split(distinct, -(-len(distinct) // _COLUMNS)):
            solution = _minimize(rows, problem.targets[:, part], problem.costs[:, part], border)
            u[:-1, part] = solve_triangular(lower, basis @ solution[:-1], lower=True, trans=1, check_finite=False)
            u[-1, part] = solution[-1]
        u[:, columns] = u[:, equal]
    return u[:-1], u[-1]


def _in_span(features: Array, rough: Array) -> tuple[Array, Array, Array, Array]:
    """The lower factor of Q_ww, in whose coordinates it is the identity; there, a basis of the rows' combinations.

    Also the rows ``(z, 1)`` in this basis, and the last row of Q.
    """
    dtype, p = features.dtype, features.shape[1]
    lower = cholesky(np.eye(p) + rough[:-1, :-1], lower=True, check_finite=False).astype(dtype)
    seen = np.column_stack([features.T, rough[:-1, -1].astype(dtype)])
    seen = solve_triangular(lower, seen, lower=True, check_finite=False)
    basis = np.linalg.qr(seen)[0] if seen.shape[1] < p else np.eye(p, dtype=dtype)
    inside = seen.T @ basis
    border = np.append(inside[-1], rough[-1, -1])
    rows = np.column_stack([inside[:-1], np.ones(len(features), dtype)])
    return lower, basis, rows, border


def _minimize(rows: Array, y: Array, costs: Array, border: Array) -> Array:
    """The minimiser of every column. A column whose direction turns uphill starts its acceleration again.

    Q is the identity with `border` as its last row and column.
    """
    dtype, largest = rows.dtype, costs.max(axis=1)
    most_steps, tol = _LIMITS[dtype.name]
    metric = np.eye(rows.shape[1])
    metric[-1], metric[:, -1] = border, border
    metric[-1, -1] += 1e-12  # invertible even if no row counts
    for part in blocks(len(rows), BLOCK):
        exact = rows[part].astype(np.float64)
        metric += (exact.T * largest[part]) @ exact
    inverse_metric = inverse(metric).astype(dtype)
    y, costs, border = y.astype(dtype), costs.astype(dtype), border.astype(dtype)
    result = np.zeros((rows.shape[1], y.shape[1]), dtype)
    columns, u, momentum, first = np.arange(y.shape[1]), result, np.ones(y.shape[1], dtype), None
    ahead = u
    for step in range(most_steps):
        slope = costs * y * np.maximum(0, 1 - y * (rows @ ahead))
        gradient = ahead + np.outer(border, ahead[-1])
        gradient[-1] = border @ ahead
        new = ahead - inverse_metric @ (gradient - rows.T @ slope)
        length = np.abs(new - u).max(axis=0)
        first = length if first is None else first
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        turns = ((ahead - new) * (new - u)).sum(axis=0) > 0
        ahead = new + np.where(turns, 0, (momentum - 1) / grown) * (new - u)
        u, momentum = new, np.where(turns, 1, grown).astype(dtype)
        if step % _CHECKED == 0 or step == most_steps - 1:  # columns that are done rest
            result[:, columns] = u
            moves = length > tol * first
            if not moves.any():
                break
            columns, u, ahead, y, costs = columns[moves], u[:, moves], ahead[:, moves], y[:, moves], costs[:, moves]
            momentum, first = momentum[moves], first[moves]
    return result

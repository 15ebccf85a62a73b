"""The steps of BGS: the graph of neighbours, batches of its edges and of labelled rows, and the steps along them."""

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from s3vm import philox
from s3vm._utils.typing import Array, Rows
from s3vm.kernels import Kernel
from s3vm.philox import Purpose
from s3vm.problem import Problem
from s3vm.solvers.bgs.state import BGSState, history_line, kernel_of_pairs
from s3vm.solvers.stochastic import labelled_batches, labelled_slope

if TYPE_CHECKING:
    from s3vm.solvers.bgs.bgs import BGS

_FLAT = 1e-3  # differences below which the graph term is treated as quadratic


class NeighbourGraph:
    """Two rows are joined if one is a nearest neighbour of the other; edges are drawn in proportion to their kernel.

    The weight of an edge is ``k(x_u, x_v) / sqrt(k(x_u, x_u) k(x_v, x_v))``, or 0 if that is negative. `diagonal` is
    ``k(x, x)`` of every row.
    """

    def __init__(self, rows: Rows, n_neighbours: int, kernel: Kernel, diagonal: Array, n_threads: int = 1) -> None:
        n = rows.shape[0]
        search = NearestNeighbors(n_neighbors=min(n_neighbours, n - 1), n_jobs=n_threads).fit(rows)
        with threadpool_limits(limits=n_threads, user_api="openmp"):  # which n_jobs does not limit
            nearest = search.kneighbors(return_distance=False)
        this = np.repeat(np.arange(n), nearest.shape[1])
        other = nearest.ravel()
        # An edge is one number, so that it counts once if found from both ends.
        number = np.unique(np.minimum(this, other) * n + np.maximum(this, other))
        self.edges = np.column_stack(np.divmod(number, n))
        size = np.sqrt(diagonal)[self.edges].prod(axis=1)
        # A row of size 0 always has the same output, so its edges may have any weight.
        weights = np.where(size > 0, kernel_of_pairs(kernel, rows, *self.edges.T), 1.0) / np.where(size > 0, size, 1.0)
        self.weights = np.maximum(weights, 0) if weights.max() > 0 else np.ones_like(weights)
        self._sums = np.cumsum(self.weights)

    def draw(self, seed: int, steps: range, size: int) -> Array:
        """For each step `size` edges, drawn with replacement: row numbers of shape ``(steps, size, 2)``."""
        chances = np.stack([philox.uniforms(seed, Purpose.UNLABELLED, t, size, 1)[:, 0] for t in steps])
        drawn = np.searchsorted(self._sums, chances * self._sums[-1], side="right")
        return self.edges[np.minimum(drawn, len(self.edges) - 1)]


class Batch(NamedTuple):
    """The rows of some steps, and all that the steps need of them.

    The labelled rows and the unlabelled rows `ends` are numbered as rows of `gram` and `scores`; `labelled` and `edges`
    have these numbers for each step. `line` is the history line of the function before the first step.
    """

    labelled: Array
    edges: Array
    ends: Array
    gram: Array
    scores: Array
    line: dict[str, float]


def draw_batch(
    solver: "BGS", problem: Problem, graph: NeighbourGraph | None, ahead: range, now: BGSState, gram: Array
) -> Batch:
    """The batch of the steps `ahead`: draws do not depend on the model, so all rows are evaluated at once."""
    n_l, size = problem.n_labelled, solver.batch_size
    labelled = labelled_batches(problem, ahead, size, solver.draw_labelled)
    drawn = np.empty((len(ahead), 0, 2), dtype=np.intp) if graph is None else graph.draw(problem.seed, ahead, size)
    ends = np.unique(drawn[drawn >= n_l])
    edges = np.where(drawn < n_l, drawn, n_l + np.searchsorted(ends, drawn))
    rows = now.rows[ends]
    below = problem.kernel.gram(rows, problem.labelled).astype(np.float64)
    among = problem.kernel.gram(rows, rows).astype(np.float64)
    whole = np.block([[gram, below.T], [below, among]])
    scores = np.concatenate([now.scores, now.evaluate(rows)])
    r = scores + now.intercept
    line = history_line(solver, problem, now.norms, r[:n_l], r[edges.reshape(-1, 2)])
    return Batch(labelled, edges, ends, whole, scores, line)


def take_steps(solver: "BGS", problem: Problem, now: BGSState, batch: Batch, gammas: list[Array]) -> BGSState:
    """The state after the steps of a batch, not yet within the budgets."""
    main, n_l = slice(0, problem.n_models), problem.n_labelled
    scores, intercept, norms, gram = batch.scores, now.intercept, now.norms, batch.gram
    shrinkage, change = np.ones(problem.n_columns), np.zeros_like(scores)
    for labelled, (u, v), gamma in zip(batch.labelled, batch.edges.swapaxes(1, 2), gammas, strict=True):
        slope = labelled_slope(problem, labelled, scores[labelled] + intercept)
        # f loses gamma times this effect, of the labelled rows and then of the edges.
        effect = (slope.T @ gram[labelled]).T
        along = gram[u] - gram[v]
        if solver.implicit:
            ahead = (1 - gamma) * scores - gamma * effect
            on_edges = _implicit_edge_slope(solver, problem, ahead[u] - ahead[v], along[:, u] - along[:, v], gamma)
        else:
            on_edges = _edge_slope(solver, problem, scores[u] - scores[v])
        effect += (on_edges.T @ along).T
        inner = np.sum(slope * scores[labelled], axis=0) + np.sum(on_edges * (scores[u] - scores[v]), axis=0)
        square = np.sum(slope * effect[labelled], axis=0) + np.sum(on_edges * (effect[u] - effect[v]), axis=0)
        norms = ((1 - gamma) ** 2)[main] * norms - (2 * gamma * (1 - gamma) * inner - gamma**2 * square)[main]
        scores = (1 - gamma) * scores - gamma * effect
        if solver.intercept:
            intercept = np.where(gamma > 0, _best_intercept(problem, scores[:n_l]), intercept)
        shrinkage, change = (1 - gamma) * shrinkage, (1 - gamma) * change
        np.subtract.at(change, labelled, gamma * slope)
        np.subtract.at(change, u, gamma * on_edges)
        np.add.at(change, v, gamma * on_edges)
    at = np.concatenate([now.at[:n_l], np.union1d(now.at[n_l:], batch.ends)])
    weights = np.zeros((len(at), problem.n_columns))
    weights[np.searchsorted(at, now.at)] = shrinkage * now.weights
    weights[np.searchsorted(at, np.concatenate([now.at[:n_l], batch.ends]))] += change
    return replace(
        now,
        at=at,
        weights=weights,
        intercept=intercept,
        scores=scores[:n_l],
        norms=norms,
        iteration=now.iteration + 1,
        record=batch.line,
    )


def _best_intercept(problem: Problem, scores: Array) -> Array:
    """The b that minimises ``sum_i C_i max(0, 1 - y_i (scores_i + b))``: a weighted quantile of ``y_i - scores_i``.

    The slope in b is the cost of all rows with ``y_i - scores_i < b`` minus that of all positive rows. Where it is 0
    over an interval, b is the middle.
    """
    breaks = np.where(problem.costs > 0, problem.targets - scores, np.inf)
    order = np.argsort(breaks, axis=0, kind="stable")
    breaks, costs = (np.take_along_axis(part, order, axis=0) for part in (breaks, problem.costs))
    below, positive = np.cumsum(costs, axis=0), np.sum(problem.costs * (problem.targets > 0), axis=0)
    close = 1e-9 * below[-1]
    first = np.argmax(below >= positive - close, axis=0)
    second = np.where(below[-1] > positive + close, np.argmax(below > positive + close, axis=0), first)
    column = np.arange(problem.n_columns)
    return (breaks[first, column] + breaks[second, column]) / 2


def _edge_slope(solver: "BGS", problem: Problem, gaps: Array) -> Array:
    """The slope of the graph term along edges whose ends differ by `gaps`."""
    p = solver.exponent
    return problem.unlabelled_cost / max(1, len(gaps)) * p * np.abs(gaps) ** (p - 1) * np.sign(gaps)


def _implicit_edge_slope(solver: "BGS", problem: Problem, gaps: Array, gram: Array, gamma: Array) -> Array:
    """The same at the end of the step, which changes the gaps by ``-gamma gram @ slope``.

    With ``|gap|^p`` replaced by the parabola that touches it in the present gap, ``slope = w (gaps - gamma gram @
    slope)`` is a linear system, where ``w`` is ``C* p |gap|^(p - 2)`` over the number of edges.
    """
    p, slope, matters = solver.exponent, np.zeros_like(gaps), problem.unlabelled_cost > 0
    gaps = gaps[:, matters].T
    inverse = len(gram) * np.maximum(np.abs(gaps), _FLAT) ** (2 - p) / (p * problem.unlabelled_cost[matters, None])
    systems = gamma[matters, None, None] * gram + inverse[:, :, None] * np.eye(len(gram))
    slope[:, matters] = np.linalg.solve(systems, gaps[:, :, None])[:, :, 0].T
    return slope

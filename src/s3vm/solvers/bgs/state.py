"""The state of BGS: a kernel expansion, what is known of it, and the budgets of its support sets."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from s3vm._utils.arrays import are_equal, blocks
from s3vm._utils.compiled import compiled
from s3vm._utils.registry import state_part
from s3vm._utils.typing import Array, Rows
from s3vm.kernels import Kernel
from s3vm.model import Model
from s3vm.problem import Problem
from s3vm.solvers.balance import shift_to_share
from s3vm.solvers.base import RunState, record
from s3vm.solvers.gram import check_finite
from s3vm.solvers.supervised import supervised_start

if TYPE_CHECKING:
    from s3vm.solvers.bgs.bgs import BGS

NEAREST = 5  # rows that a removed one is projected onto
_GROUP = 16  # rows projected in one go
_NUGGET = 1e-8
_CHUNK = 64  # pairs whose kernel values are evaluated at once
_TILE = 8192  # centres that are evaluated at once


@state_part("BGS.State")
@dataclass(frozen=True, eq=False)
class BGSState(RunState):
    """The expansion ``f(x) = sum_i weights[i] k(rows[at[i]], x) + intercept``, and what is known of it.

    `diagonal` is ``k(x, x)`` of all rows. `at` are row numbers: all labelled rows, then unlabelled ones in order.
    `scores` are f at the labelled rows without intercept, `norms` the ``||f||^2`` of the model's columns, `shares` the
    bounds on the fraction of positive rows in `reference`.
    """

    rows: Rows
    diagonal: Array
    at: Array
    weights: Array
    intercept: Array
    scores: Array
    norms: Array
    reference: Rows
    shares: Array

    def model(self) -> Model:
        intercept = self.intercept
        if self.reference is not None:
            r = self.evaluate(self.reference) + intercept
            shifts = [shift_to_share(r[:, k], low, high) for k, (low, high) in enumerate(self.shares)]
            intercept = intercept + shifts
        return self.expansion(self.rows[self.at], self.weights, intercept)

    def labeled_scores(self) -> Array:
        return self.scores + self.intercept

    def evaluate(self, X: Rows) -> Array:
        """f at the rows of X without intercept."""
        scores = np.zeros((X.shape[0], self.weights.shape[1]))
        for part in blocks(len(self.at), _TILE):
            gram = self.kernel.gram(X, self.rows[self.at[part]])
            scores += gram @ self.weights[part].astype(gram.dtype)
        return scores

    def fits(self, rows: Rows, problem: Problem) -> bool:
        """Whether this state has these rows and columns."""
        return self.scores.shape == problem.targets.shape and are_equal(self.rows, rows)


def first_state(solver: "BGS", problem: Problem, rows: Rows, gram: Array) -> BGSState:
    """The expansion that a run starts from: the supervised solution, or 0."""
    dual, intercept = np.zeros(problem.targets.shape), np.zeros(problem.n_columns)
    if solver.anchor:
        gram, dual, intercept = supervised_start(problem, gram)
    scores = gram @ dual
    norms = np.sum(dual * scores, axis=0)[: problem.n_models]
    reference = None
    if problem.unlabeled is not None and solver.balance:
        reference = problem.unlabeled.sample(problem.seed, solver.n_reference)
    numbers = np.arange(rows.shape[0])
    state = BGSState(
        kernel=problem.kernel,
        seed=problem.seed,
        rows=rows,
        diagonal=kernel_of_pairs(problem.kernel, rows, numbers, numbers),
        at=numbers[: problem.n_labeled],
        weights=dual,
        intercept=intercept,
        scores=scores,
        norms=norms,
        reference=reference,
        shares=_shares(problem, reference),
        record=history_line(solver, problem, norms, scores + intercept, np.empty((0, 2, problem.n_columns))),
    )
    check_finite(state.diagonal)
    return within_budgets(solver, problem, state)


def kernel_of_pairs(kernel: Kernel, rows: Rows, first: Array, second: Array) -> Array:
    """``k(x_i, x_j)`` for each pair of row numbers: the diagonal of small kernel matrices."""
    result = np.empty(len(first))
    for part in blocks(len(first), _CHUNK):
        result[part] = np.diagonal(kernel.gram(rows[first[part]], rows[second[part]]))
    return result


def _shares(problem: Problem, reference: Rows) -> Array:
    """The bounds on the fraction of positive rows that each column may end with."""
    held = (problem.unlabeled_cost > 0) & (reference is not None)
    share, error = problem.prior, np.zeros(problem.n_columns)
    if held.any() and not problem.prior_is_known:
        n = np.count_nonzero(problem.costs, axis=0)
        share = (share * n + 0.5) / (n + 1)
        error = np.sqrt(share * (1 - share) * (1 / n + 1 / reference.shape[0]))
    return np.column_stack([np.where(held, share - error, 0.0), np.where(held, share + error, 1.0)])


def history_line(solver: "BGS", problem: Problem, norms: Array, r_l: Array, r_edges: Array) -> dict[str, float]:
    """A line of the history: the objective of BGS, with drawn edges instead of all, and its parts.

    `r_l` is f at the labelled rows, `r_edges` f at both ends of the edges, shape ``(edges, 2, K)``.
    """
    line = record(problem, norms, r_l, problem.targets, problem.costs)
    if len(r_edges):
        main = slice(0, problem.n_models)
        gaps = np.abs(r_edges[:, 0, main] - r_edges[:, 1, main])
        graph = np.mean(gaps**solver.exponent, axis=0)
        r_u = r_edges.reshape(-1, problem.n_columns)
        objective = line["objective"] + float(problem.unlabeled_cost[main] @ graph)
        line = record(problem, norms, r_l, problem.targets, problem.costs, r_u)
        line |= {"objective": objective, "graph_loss": float(graph.mean())}
    return line


def within_budgets(solver: "BGS", problem: Problem, now: BGSState) -> BGSState:
    """The state with support sets reduced to their budgets, and without rows that no column uses."""
    n_l = problem.n_labeled
    over = _beyond(now.weights, n_l, solver.budgets(problem))
    weights = np.where(over, 0.0, now.weights)
    if over.any():
        if solver.maintenance == "projection":
            weights += _projection(now.kernel, now.rows[now.at], now.diagonal[now.at], now.weights, over)
        change = weights - now.weights
        moved = np.flatnonzero(change.any(axis=1))
        scores = now.scores + now.kernel.gram(problem.labeled, now.rows[now.at[moved]]) @ change[moved]
        # ||f + d||^2 - ||f||^2 = <d, f + (f + d)>, for the model's columns only, as it takes many kernel values.
        change = change[:, : problem.n_models]
        moved = np.flatnonzero(change.any(axis=1))
        both = replace(now, weights=(now.weights + weights)[:, : problem.n_models])
        norms = now.norms + np.sum(change[moved] * both.evaluate(now.rows[now.at[moved]]), axis=0)
        now = replace(now, weights=weights, scores=scores, norms=norms)
    used = np.concatenate([np.ones(n_l, dtype=bool), weights[n_l:].any(axis=1)])
    return now if used.all() else replace(now, at=now.at[used], weights=weights[used])


def _beyond(weights: Array, n_first: int, budgets: tuple[int, int]) -> Array:
    """Which weights ``(n, K)`` to remove: the smallest beyond the budgets of the first and of the other rows."""
    over = np.zeros(weights.shape, dtype=bool)
    for part, budget in zip((slice(n_first), slice(n_first, None)), budgets, strict=True):
        order = np.argsort(-np.abs(weights[part]), axis=0, kind="stable")
        np.put_along_axis(over[part], order[budget:], True, axis=0)
    return over & (weights != 0)


def _projection(kernel: Kernel, rows: Rows, diagonal: Array, weights: Array, over: Array) -> Array:
    """What to add to the weights of the rows that stay, to compensate for the removed ones.

    Each removed row is projected onto the few rows of its column that individually explain most of it, in terms of
    ``k(x, z)^2 / k(z, z)``. `diagonal` is ``k(x, x)`` of every row.
    """
    rows, added = rows.astype(np.float64), np.zeros(weights.shape)
    removed = np.flatnonzero(over.any(axis=1))
    gram = kernel.gram(rows[removed], rows)
    explained = gram**2 / np.where(diagonal > 0, diagonal, np.inf)
    for k in range(weights.shape[1]):
        stays = ~over[:, k] & (weights[:, k] != 0)
        which, n_nearest = np.flatnonzero(over[removed, k]), min(NEAREST, int(stays.sum()))
        if not len(which) or not n_nearest:
            continue
        nearest = _largest(explained, which, stays, n_nearest)
        for start in range(0, len(which), _GROUP):
            some, near = which[start : start + _GROUP], nearest[start : start + _GROUP]
            own = np.arange(len(some))
            among = kernel.gram(rows[near.ravel()], rows[near.ravel()])
            blocks = among.reshape(len(some), n_nearest, len(some), n_nearest)[own, :, own]
            blocks += _NUGGET * diagonal[near][:, :, None] * np.eye(n_nearest)
            shares = np.linalg.solve(blocks, gram[some[:, None], near][:, :, None])[:, :, 0]
            np.add.at(added[:, k], near, shares * weights[removed[some], k][:, None])
    return added


@compiled()
def _largest(values, which, allowed, n):
    """The positions of the `n` largest entries of each row of `values` in `which`, among the allowed columns."""
    result = np.zeros((len(which), n), np.int64)
    best = np.empty(n)
    for i in range(len(which)):
        best[:] = -np.inf
        for j in range(values.shape[1]):
            value = values[which[i], j]
            if not allowed[j] or value <= best[n - 1]:
                continue
            place = n - 1
            while place > 0 and value > best[place - 1]:
                best[place], result[i, place] = best[place - 1], result[i, place - 1]
                place -= 1
            best[place], result[i, place] = value, j
    return result

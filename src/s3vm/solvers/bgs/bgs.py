"""BGS3VM: stochastic gradients on a hinge and a neighbour graph, with budgets on the support sets (Le et al., 2016)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from s3vm import philox
from s3vm._utils.arrays import row_bytes
from s3vm._utils.registry import state_part
from s3vm._utils.settings import check_switches, check_whole, number
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.kernels import Kernel
from s3vm.losses import Hat, Hinge, SmoothHinge
from s3vm.model import Model
from s3vm.philox import Purpose
from s3vm.problem import Problem
from s3vm.solvers.balance import shift_to_share
from s3vm.solvers.base import Losses, Solver, State, needs, record
from s3vm.solvers.bgs.budget import NEAREST, beyond, projection
from s3vm.solvers.bgs.graph import NeighbourGraph, kernel_of_pairs
from s3vm.solvers.steps import Decaying, Step, step
from s3vm.solvers.stochastic import balanced, labelled_slope, stiffness
from s3vm.solvers.supervised import labelled_gram, supervised

__all__ = ["BGS"]

_FLAT = 1e-3  # differences below which the graph term is treated as quadratic
_TILE = 8192  # centres that are looked at in one go


@dataclass(frozen=True)
class BGS(Solver):
    """Budgeted stochastic gradients on a neighbour graph: neighbours should have the same output.

    The graph term stands in for the unlabelled loss ``u`` of Eq. 1, which BGS does not look at. It minimises

        ``||f||^2 / 2 + sum_i C_i l(f(x_i), y_i) + C* mean over edges (u, v) of |f(x_u) - f(x_v)|^p``

    over the edges of the graph that joins every row, labelled or not, to its nearest ones; the mean is weighted by the
    kernel ``k(x_u, x_v)`` (divided by the root of ``k(x_u, x_u) k(x_v, x_v)``). Divided by ``sum_i C_i`` this is the
    ``lambda/2 ||w||^2 + mean hinge + mean over edges`` of Le et al., and a step of size ``1/t`` is their
    ``1 / (lambda t)``. The function is a kernel expansion on labelled rows and on ends of edges that were drawn;
    support sets beyond their budgets lose the rows of the smallest coefficients.

    What differs from Le et al. by default: the run starts from the supervised SVM; a step takes all labelled rows and a
    batch of edges, which are pulled together no further than to equality; there is an intercept; in the end it is moved
    so that the share of positive rows is the expected one. `BGS.as_printed` has all this off.

    Parameters
    ----------
    max_iter : int or "auto", default "auto"
        Number of iterations of `look_ahead` steps. ``"auto"`` draws as many edges as there are unlabelled rows, but
        takes from 400 to 1000 steps.
    passes : float or None, default None
        Instead of `max_iter`: how often to draw as many edges as there are unlabelled rows.
    batch_size : int, default 64
        Edges in a step.
    look_ahead : int, default 4
        Steps in an iteration: their edges are drawn together, and budgets are kept from iteration to iteration.
    n_neighbors : int, default 10
        Each row is joined to so many others that are nearest in Euclidean distance.
    exponent : float in [1, 2], default 1.0
        The p of the graph term. At 1 the output may jump between clusters; 2 is that of the Laplacian SVM.
    labelled_budget : int or None, default None
        Most labelled rows in the expansion of a column; None keeps all.
    unlabelled_budget : int, float below 1 or None, default 2000
        The same for unlabelled rows, or a share of them.
    maintenance : "projection" or "removal", default "projection"
        What happens to rows beyond the budget: they are replaced by their projection onto the nearest rows that stay,
        or left out, which costs less and may undo what the edges have done.
    step : Step, "decaying", "constant" or "theorem", default "decaying"
        The step sizes; see `s3vm.solvers.steps`.
    anchor : bool, default True
        Whether to start from the exact supervised solution instead of 0.
    implicit : bool, default True
        Whether the slope of the graph term is that at the end of a step rather than at its beginning: no weight is then
        too large for the step size.
    intercept : bool, default True
        Whether the decision function has a constant term, which costs nothing.
    balance : bool, default True
        Whether the intercept of the result is moved so that the share of positive rows in a sample of unlabelled ones
        is that of the labelled rows, give or take a standard error, or the one that was given. The larger the graph
        term, the flatter f is, and the less its sign means.
    n_reference : int, default 5000
        Unlabelled rows in that sample.
    draw_labelled : bool, default False
        Whether a step draws `batch_size` labelled rows, with replacement, instead of taking all.
    """

    losses: ClassVar[Losses] = (SmoothHinge, Hat)

    max_iter: int | Literal["auto"] = "auto"
    passes: float | None = None
    batch_size: int = 64
    look_ahead: int = 4
    n_neighbors: int = 10
    exponent: float = 1.0
    labelled_budget: int | None = None
    unlabelled_budget: int | float | None = 2000
    maintenance: Literal["projection", "removal"] = "projection"
    step: str | Step = "decaying"
    anchor: bool = True
    implicit: bool = True
    intercept: bool = True
    balance: bool = True
    n_reference: int = 5000
    draw_labelled: bool = False

    def __post_init__(self) -> None:
        check_switches(self)
        whole = ["batch_size", "look_ahead", "n_neighbors", "n_reference"]
        whole += ["max_iter"] * (self.max_iter != "auto")
        whole += ["labelled_budget"] * (self.labelled_budget is not None)
        share = isinstance(self.unlabelled_budget, float) and 0 < self.unlabelled_budget < 1
        whole += ["unlabelled_budget"] * (self.unlabelled_budget is not None and not share)
        check_whole(self, *whole)
        if self.passes is not None and not 0 < number(self.passes) < np.inf:
            raise ValueError(f"BGS needs passes > 0 or None; got passes={self.passes!r}")
        if not 1 <= number(self.exponent) <= 2:
            raise ValueError(f"BGS needs exponent between 1 and 2; got exponent={self.exponent!r}")
        if self.maintenance not in ("removal", "projection"):
            raise ValueError(f'BGS needs maintenance "removal" or "projection"; got maintenance={self.maintenance!r}')
        for name in ("balance", "anchor"):
            if getattr(self, name) and not self.intercept:
                raise ValueError(f"{name} has an intercept: intercept=False needs {name}=False")
        step(self.step)

    @classmethod
    def as_printed(cls, **settings: Any) -> "BGS":
        """The algorithm of Le et al. under the paper's protocol: one labelled row and one edge a step, one pass.

        Its weight is ``unlabeled_weight="paper"``. Budgets are kept every 256 steps.
        """
        off = {"anchor": False, "implicit": False, "intercept": False, "balance": False, "draw_labelled": True}
        paper = {"passes": 1.0, "batch_size": 1, "look_ahead": 256, "step": Decaying(t0=0)}
        budgets = {"labelled_budget": 100, "unlabelled_budget": 0.2, "maintenance": "removal"}
        return cls(**{**off, **paper, **budgets, **settings})

    def iterations(self, problem: Problem) -> int:
        if self.anchor and not problem.uses_unlabelled:
            return 1
        if self.passes is None and not isinstance(self.max_iter, str):
            return self.max_iter
        n_rows = problem.unlabelled.n_rows if problem.unlabelled is not None else problem.n_labelled
        n_steps = (self.passes or 1) * n_rows / self.batch_size
        return int(np.ceil((n_steps if self.passes else np.clip(n_steps, 400, 1000)) / self.look_ahead))

    def memory(self, problem: Problem, backend: Backend) -> int:
        n_l, size = problem.n_labelled, problem.labelled.dtype.itemsize
        n_bytes = 8 * n_l**2
        if problem.unlabelled is None or not problem.uses_unlabelled:
            return n_bytes
        n_u = problem.unlabelled.n_rows
        drawn = min(n_u, 2 * self.batch_size * self.look_ahead)
        support = n_l + min(n_u, (self.budgets(problem)[1] + drawn) * problem.n_columns)
        near = 1 + NEAREST * (self.maintenance == "projection")
        a_row = row_bytes(problem.labelled)
        n_bytes += int(problem.n_rows * (2 * a_row + 40 * self.n_neighbors))
        n_bytes += 8 * (n_l + drawn) ** 2 + 2 * size * near * drawn * support
        return n_bytes + int(support * (48 * problem.n_columns + a_row))

    def extended(self, problem: Problem, done: int) -> "BGS":
        return replace(self, max_iter=done + self.iterations(problem), passes=None)

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        needs(self, problem, (Hinge, SmoothHinge), (Hat,))
        gram = labelled_gram(problem.kernel, problem.labelled)
        rows = problem.all_rows() if problem.uses_unlabelled else problem.labelled
        now = _start(self, problem, rows, gram) if state is None else state
        if not isinstance(now, _State) or not now.fits(rows, problem):
            raise ValueError("BGS goes on only with the rows it began with: set warm_start=False to start afresh")
        if self.anchor and not problem.uses_unlabelled:
            if state is None:  # the start is the solution
                yield replace(now, iteration=1)
            return
        graph = None
        if problem.uses_unlabelled:
            graph = NeighbourGraph(rows, self.n_neighbors, problem.kernel, now.diagonal, backend.n_threads)
        # A column that the unlabelled rows do not matter to is solved by its start.
        moves = problem.unlabelled_cost > 0 if self.anchor else np.ones(problem.n_columns)
        steps, stiff = step(self.step), max(1.0, float(np.diag(gram).mean())) * stiffness(problem)
        n_steps = self.iterations(problem) * self.look_ahead
        for t in range(now.iteration, self.iterations(problem)):
            ahead = range(t * self.look_ahead, (t + 1) * self.look_ahead)
            gammas = [moves * steps.sizes(i, n_steps, stiff) for i in ahead]
            batch = _draw(self, problem, graph, ahead, now, gram)
            now = _within_budgets(self, problem, _stepped(self, problem, now, batch, gammas))
            yield now

    def budgets(self, problem: Problem) -> tuple[int, int]:
        """The budgets of labelled and unlabelled rows as numbers."""
        n_u = problem.unlabelled.n_rows if problem.unlabelled is not None else 0
        budget = self.unlabelled_budget
        share = int(np.ceil(budget * n_u)) if isinstance(budget, float) else budget
        return self.labelled_budget or problem.n_labelled, n_u if share is None else share


@state_part("BGS.State")
@dataclass(frozen=True, eq=False)
class _State:
    """The expansion ``f(x) = sum_i weights[i] k(rows[at[i]], x) + intercept``, and what is known of it.

    `diagonal` is ``k(x, x)`` of all rows. `at` are row numbers: all labelled rows, then unlabelled ones in order.
    `scores` are f at the labelled rows without intercept, `norms` the ``||f||^2`` of the wanted columns, `shares` the
    bounds that the share of positive rows in `reference` is to keep.
    """

    kernel: Kernel
    seed: int
    rows: Rows
    diagonal: Array
    at: Array
    weights: Array
    intercept: Array
    scores: Array
    norms: Array
    reference: Rows
    shares: Array
    iteration: int = 0
    record: Mapping[str, float] = field(default_factory=dict)

    def model(self) -> Model:
        intercept = self.intercept
        if self.reference is not None:
            r = self.evaluate(self.reference) + intercept
            shifts = [shift_to_share(r[:, k], low, high) for k, (low, high) in enumerate(self.shares)]
            intercept = intercept + shifts
        nothing = np.empty((0, 1, len(intercept)))
        n_dims = self.rows.shape[1]
        return Model(self.kernel, self.seed, n_dims, nothing, intercept, self.rows[self.at], self.weights)

    def labelled_scores(self) -> Array:
        return self.scores + self.intercept

    def detached(self) -> "_State":
        return self

    def evaluate(self, X: Rows) -> Array:
        """f at the rows of X without intercept."""
        scores = np.zeros((X.shape[0], self.weights.shape[1]))
        for start in range(0, len(self.at), _TILE):
            part = slice(start, start + _TILE)
            gram = self.kernel.gram(X, self.rows[self.at[part]])
            scores += gram @ self.weights[part].astype(gram.dtype)
        return scores

    def fits(self, rows: Rows, problem: Problem) -> bool:
        """Whether this state is of these rows and columns."""
        same = self.rows.shape == rows.shape and self.scores.shape == problem.targets.shape
        return same and not (self.rows != rows).sum()


def _start(solver: BGS, problem: Problem, rows: Rows, gram: Array) -> _State:
    """The supervised solution, or 0."""
    dual, intercept = np.zeros(problem.targets.shape), np.zeros(problem.n_columns)
    if solver.anchor:
        dual, intercept = supervised(gram, problem.targets, problem.costs)
    scores = gram @ dual
    norms = np.sum(dual * scores, axis=0)[: problem.n_models]
    reference = None
    if problem.unlabelled is not None and solver.balance:
        reference = problem.unlabelled.sample(problem.seed, solver.n_reference)
    everyone = np.arange(rows.shape[0])
    start = _State(
        problem.kernel,
        problem.seed,
        rows,
        diagonal=kernel_of_pairs(problem.kernel, rows, everyone, everyone),
        at=everyone[: problem.n_labelled],
        weights=dual,
        intercept=intercept,
        scores=scores,
        norms=norms,
        reference=reference,
        shares=_shares(problem, reference),
        record=_line(solver, problem, norms, scores + intercept, np.empty((0, 2, problem.n_columns))),
    )
    if not np.isfinite(start.diagonal).all():
        raise ValueError("the kernel of the rows is not finite: standardise the features")
    return _within_budgets(solver, problem, start)


def _shares(problem: Problem, reference: Rows) -> Array:
    """The least and the largest share of positive rows that each column may end with."""
    held = balanced(problem, reference is not None)
    share, error = problem.prior, np.zeros(problem.n_columns)
    if held.any() and not problem.prior_is_known:
        n = np.count_nonzero(problem.costs, axis=0)
        share = (share * n + 0.5) / (n + 1)
        error = np.sqrt(share * (1 - share) * (1 / n + 1 / reference.shape[0]))
    return np.column_stack([np.where(held, share - error, 0.0), np.where(held, share + error, 1.0)])


class _Batch(NamedTuple):
    """The rows of some steps, and all that the steps need to know of them.

    The labelled rows and the unlabelled rows `ends` are numbered as rows of `gram` and `scores`; `labelled` and `edges`
    have such numbers for each step, `line` what is known of the function before the first.
    """

    labelled: Array
    edges: Array
    ends: Array
    gram: Array
    scores: Array
    line: dict[str, float]


def _draw(
    solver: BGS, problem: Problem, graph: NeighbourGraph | None, ahead: range, now: _State, gram: Array
) -> _Batch:
    """The batch of the steps `ahead`: what is drawn does not depend on the model, so all of it is evaluated at once."""
    n_l, size = problem.n_labelled, solver.batch_size
    labelled = np.tile(np.arange(n_l), (len(ahead), 1))
    if solver.draw_labelled:
        labelled = philox.indices(problem.seed, Purpose.LABELLED, ahead, size, n_l)
    drawn = np.empty((len(ahead), 0, 2), dtype=np.intp) if graph is None else graph.draw(problem.seed, ahead, size)
    ends = np.unique(drawn[drawn >= n_l])
    edges = np.where(drawn < n_l, drawn, n_l + np.searchsorted(ends, drawn))
    rows = now.rows[ends]
    below = problem.kernel.gram(rows, problem.labelled).astype(np.float64)
    among = problem.kernel.gram(rows, rows).astype(np.float64)
    whole = np.block([[gram, below.T], [below, among]])
    scores = np.concatenate([now.scores, now.evaluate(rows)])
    r = scores + now.intercept
    line = _line(solver, problem, now.norms, r[:n_l], r[edges.reshape(-1, 2)])
    return _Batch(labelled, edges, ends, whole, scores, line)


def _line(solver: BGS, problem: Problem, norms: Array, r_l: Array, r_edges: Array) -> dict[str, float]:
    """A line of the history: what BGS minimises, with drawn edges in place of all, and its parts.

    `r_l` is f at the labelled rows, `r_edges` f at both ends of the edges, shape ``(edges, 2, K)``.
    """
    line = record(problem, norms, r_l, problem.targets, problem.costs, None)
    if len(r_edges):
        main = slice(0, problem.n_models)
        gaps = np.abs(r_edges[:, 0, main] - r_edges[:, 1, main])
        graph = np.mean(gaps**solver.exponent, axis=0)
        r_u = r_edges.reshape(-1, problem.n_columns)
        objective = line["objective"] + float(problem.unlabelled_cost[main] @ graph)
        line = record(problem, norms, r_l, problem.targets, problem.costs, r_u)
        line |= {"objective": objective, "graph_loss": float(graph.mean())}
    return line


def _stepped(solver: BGS, problem: Problem, now: _State, batch: _Batch, gammas: list[Array]) -> _State:
    """The state after the steps of a batch, budgets not yet kept."""
    main, n_l = slice(0, problem.n_models), problem.n_labelled
    scores, intercept, norms, gram = batch.scores, now.intercept, now.norms, batch.gram
    kept, change = np.ones(problem.n_columns), np.zeros_like(scores)
    for labelled, (u, v), gamma in zip(batch.labelled, batch.edges.swapaxes(1, 2), gammas, strict=True):
        slope = labelled_slope(problem, labelled, scores[labelled] + intercept)
        # f loses gamma times this, by the labelled rows and then by the edges.
        effect = (slope.T @ gram[labelled]).T
        along = gram[u] - gram[v]
        if solver.implicit:
            ahead = (1 - gamma) * scores - gamma * effect
            pull = _implicit_pull(solver, problem, ahead[u] - ahead[v], along[:, u] - along[:, v], gamma)
        else:
            pull = _pull(solver, problem, scores[u] - scores[v])
        effect += (pull.T @ along).T
        inner = np.sum(slope * scores[labelled], axis=0) + np.sum(pull * (scores[u] - scores[v]), axis=0)
        square = np.sum(slope * effect[labelled], axis=0) + np.sum(pull * (effect[u] - effect[v]), axis=0)
        norms = ((1 - gamma) ** 2)[main] * norms - (2 * gamma * (1 - gamma) * inner - gamma**2 * square)[main]
        scores = (1 - gamma) * scores - gamma * effect
        if solver.intercept:
            intercept = np.where(gamma > 0, _best_intercept(problem, scores[:n_l]), intercept)
        kept, change = (1 - gamma) * kept, (1 - gamma) * change
        np.subtract.at(change, labelled, gamma * slope)
        np.subtract.at(change, u, gamma * pull)
        np.add.at(change, v, gamma * pull)
    at = np.concatenate([now.at[:n_l], np.union1d(now.at[n_l:], batch.ends)])
    weights = np.zeros((len(at), problem.n_columns))
    weights[np.searchsorted(at, now.at)] = kept * now.weights
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

    The slope in b is what all rows with ``y_i - scores_i < b`` cost less what all positive rows cost. Where it is 0
    over an interval, b is its middle.
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


def _pull(solver: BGS, problem: Problem, gaps: Array) -> Array:
    """The slope of the graph term along edges whose ends differ by `gaps`."""
    p = solver.exponent
    return problem.unlabelled_cost / max(1, len(gaps)) * p * np.abs(gaps) ** (p - 1) * np.sign(gaps)


def _implicit_pull(solver: BGS, problem: Problem, gaps: Array, gram: Array, gamma: Array) -> Array:
    """The same where these edges will be after the step, which changes their gaps by ``-gamma gram @ pull``.

    With ``|gap|^p`` replaced by the parabola that touches it in today's gap, ``pull = w (gaps - gamma gram @ pull)`` is
    a linear system, ``w`` being ``C* p |gap|^(p - 2)`` over the number of edges.
    """
    p, pull, matters = solver.exponent, np.zeros_like(gaps), problem.unlabelled_cost > 0
    gaps = gaps[:, matters].T
    inverse = len(gram) * np.maximum(np.abs(gaps), _FLAT) ** (2 - p) / (p * problem.unlabelled_cost[matters, None])
    systems = gamma[matters, None, None] * gram + inverse[:, :, None] * np.eye(len(gram))
    pull[:, matters] = np.linalg.solve(systems, gaps[:, :, None])[:, :, 0].T
    return pull


def _within_budgets(solver: BGS, problem: Problem, now: _State) -> _State:
    """The state with support sets cut back to their budgets, and without rows that no column uses."""
    n_l = problem.n_labelled
    over = beyond(now.weights, n_l, solver.budgets(problem))
    weights = np.where(over, 0.0, now.weights)
    if over.any():
        if solver.maintenance == "projection":
            weights += projection(now.kernel, now.rows[now.at], now.diagonal[now.at], now.weights, over)
        change = weights - now.weights
        moved = np.flatnonzero(change.any(axis=1))
        scores = now.scores + now.kernel.gram(problem.labelled, now.rows[now.at[moved]]) @ change[moved]
        # ||f + d||^2 - ||f||^2 = <d, f + (f + d)>, for the wanted columns only, since it takes so many kernel values.
        change = change[:, : problem.n_models]
        moved = np.flatnonzero(change.any(axis=1))
        both = replace(now, weights=(now.weights + weights)[:, : problem.n_models])
        norms = now.norms + np.sum(change[moved] * both.evaluate(now.rows[now.at[moved]]), axis=0)
        now = replace(now, weights=weights, scores=scores, norms=norms)
    used = np.concatenate([np.ones(n_l, dtype=bool), weights[n_l:].any(axis=1)])
    return now if used.all() else replace(now, at=now.at[used], weights=weights[used])

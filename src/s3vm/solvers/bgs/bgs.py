"""BGS3VM: stochastic gradients on a hinge and a neighbour graph, with budgets on the support sets (Le et al., 2016)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from s3vm._utils.arrays import row_bytes
from s3vm._utils.settings import above, between, check_settings, integer, real, switch
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.kernels import Kernel
from s3vm.losses import Hat, Hinge, SmoothHinge
from s3vm.philox import Purpose
from s3vm.problem import Problem
from s3vm.problem.graph import Edges
from s3vm.solvers.base import Losses, Solver, State, needs
from s3vm.solvers.bgs.state import NEAREST, BGSState, first_state, history_line, kernel_of_pairs, within_budgets
from s3vm.solvers.steps import Decaying, Step, step, stiffness
from s3vm.solvers.stochastic import labeled_batches, labeled_slope
from s3vm.solvers.supervised import start_gram

_FLAT = 1e-3  # differences below which the graph term is treated as quadratic
_TO_MEAN = 4  # a factor 1/2, and where all degrees are equal (1/n) f'Lf is half the mean of (f_u - f_v)^2 over edges


@dataclass(frozen=True)
class BGS(Solver):
    """Budgeted stochastic gradients on a neighbour graph: neighbours should have the same output.

    A graph term takes the place of the unlabelled loss ``u`` of Eq. 1, which BGS does not use. It minimises

        ``||f||^2 / 2 + sum_i C_i l(f(x_i), y_i) + C* mean over edges (u, v) of |f(x_u) - f(x_v)|^p``

    over the edges of the graph that joins every row, labelled or not, to its nearest neighbours; the mean is weighted
    by the kernel ``k(x_u, x_v)`` (divided by the root of ``k(x_u, x_u) k(x_v, x_v)``). Divided by ``sum_i C_i`` this is
    the ``lambda/2 ||w||^2 + mean hinge + mean over edges`` of Le et al., and a step of size ``1/t`` is their
    ``1 / (lambda t)``. The function is a kernel expansion on labelled rows and on ends of edges that were drawn;
    support sets beyond their budgets lose the rows of the smallest coefficients.

    If the problem has a graph, its edges and weights take the place of these, and a quarter of its cost that of C*:
    with p = 2 and equal degrees this is ``graph_cost / 2 (1/n) f'Lf``.

    By default it differs from Le et al. in the following: the run starts from the supervised SVM; a step takes all
    labelled rows and a batch of edges, which are pulled together no further than to equality; there is an intercept,
    which is moved at the end so that the fraction of positive rows is the expected one. `BGS.as_printed` has none of
    this.

    Parameters
    ----------
    max_iter : int or "auto", default "auto"
        Number of iterations of `look_ahead` steps. ``"auto"`` draws as many edges as there are unlabelled rows, but
        takes from 400 to 1000 steps.
    passes : float or None, default None
        Instead of `max_iter`: the number of edges drawn, divided by the number of unlabelled rows.
    batch_size : int, default 64
        Edges per step.
    look_ahead : int, default 4
        Steps per iteration: their edges are drawn together, and budgets are enforced after each iteration.
    n_neighbors : int, default 10
        The number of nearest neighbours, in Euclidean distance, that each row is joined to.
    exponent : float in [1, 2], default 1.0
        The p of the graph term. At 1 the output may jump between clusters; 2 is that of the Laplacian SVM.
    labeled_budget : int or None, default None
        The maximum number of labelled rows in the expansion of a column; None keeps all.
    unlabeled_budget : int, float below 1 or None, default 2000
        The same for unlabelled rows, as a number or as a fraction of them.
    maintenance : "projection" or "removal", default "projection"
        What happens to rows beyond the budget: they are projected onto the nearest rows that stay, or removed, which
        is cheaper and may undo the effect of the edges.
    step : Step, "decaying", "constant" or "theorem", default "decaying"
        The step sizes; see `s3vm.solvers.steps`.
    anchor : bool, default True
        Whether to start from the exact supervised solution instead of 0.
    implicit : bool, default True
        Whether the graph term's slope is taken at the end of a step instead of its beginning, so that no weight is too
        large for the step size.
    intercept : bool, default True
        Whether the decision function has a constant term, which is not penalised.
    balance : bool, default True
        Whether the intercept of the result is moved so that the fraction of positive rows in an unlabelled sample is
        that of the labelled rows within a standard error, or the given one. The larger the graph term, the flatter f
        is, and the less its sign means.
    n_reference : int, default 5000
        The size of that sample.
    draw_labeled : bool, default False
        Whether a step draws `batch_size` labelled rows, with replacement, instead of taking all.
    """

    losses: ClassVar[Losses] = (SmoothHinge, Hat)
    takes_graph: ClassVar[bool] = True

    max_iter: int | Literal["auto"] = "auto"
    passes: float | None = None
    batch_size: int = 64
    look_ahead: int = 4
    n_neighbors: int = 10
    exponent: float = 1.0
    labeled_budget: int | None = None
    unlabeled_budget: int | float | None = 2000
    maintenance: Literal["projection", "removal"] = "projection"
    step: str | Step = "decaying"
    anchor: bool = True
    implicit: bool = True
    intercept: bool = True
    balance: bool = True
    n_reference: int = 5000
    draw_labeled: bool = False

    def __post_init__(self) -> None:
        check_settings(self, max_iter=(integer(), "auto"), passes=(above(0), None), batch_size=integer())
        check_settings(self, look_ahead=integer(), n_neighbors=integer(), exponent=real(1, 2), n_reference=integer())
        check_settings(self, labeled_budget=(integer(), None), unlabeled_budget=(integer(), between(0, 1), None))
        check_settings(self, maintenance=("projection", "removal"), anchor=switch, implicit=switch, intercept=switch)
        check_settings(self, balance=switch, draw_labeled=switch)
        for name in ("balance", "anchor"):
            if getattr(self, name) and not self.intercept:
                raise ValueError(f"BGS: {name}=True needs an intercept: intercept=False needs {name}=False")
        step(self.step)

    @classmethod
    def as_printed(cls, **settings: Any) -> "BGS":
        """The algorithm of Le et al. with the paper's protocol: one labelled row and one edge per step, one pass.

        Its weight is ``unlabeled_weight="paper"``. Budgets are enforced every 256 steps.
        """
        off = {"anchor": False, "implicit": False, "intercept": False, "balance": False, "draw_labeled": True}
        paper = {"passes": 1.0, "batch_size": 1, "look_ahead": 256, "step": Decaying(t0=0)}
        budgets = {"labeled_budget": 100, "unlabeled_budget": 0.2, "maintenance": "removal"}
        return cls(**{**off, **paper, **budgets, **settings})

    def iterations(self, problem: Problem) -> int:
        if self.anchor and not problem.uses_unlabeled:
            return 1
        if self.passes is None and not isinstance(self.max_iter, str):
            return self.max_iter
        n_rows = problem.unlabeled.n_rows if problem.unlabeled is not None else problem.n_labeled
        n_steps = (self.passes or 1) * n_rows / self.batch_size
        return int(np.ceil((n_steps if self.passes else np.clip(n_steps, 400, 1000)) / self.look_ahead))

    def memory(self, problem: Problem, backend: Backend) -> int:
        n_l, size = problem.n_labeled, problem.labeled.dtype.itemsize
        n_bytes = 8 * n_l**2
        if problem.unlabeled is None or not problem.uses_unlabeled:
            return n_bytes
        n_u = problem.unlabeled.n_rows
        drawn = min(n_u, 2 * self.batch_size * self.look_ahead)
        support = n_l + min(n_u, (self.budgets(problem)[1] + drawn) * problem.n_columns)
        near = 1 + NEAREST * (self.maintenance == "projection")
        a_row = row_bytes(problem.labeled)
        n_bytes += int(problem.n_rows * (2 * a_row + 40 * self.n_neighbors))
        n_bytes += 8 * (n_l + drawn) ** 2 + 2 * size * near * drawn * support
        return n_bytes + int(support * (48 * problem.n_columns + a_row))

    def extended(self, problem: Problem, done: int) -> "BGS":
        return replace(self, max_iter=done + self.iterations(problem), passes=None)

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        needs(self, problem, (Hinge, SmoothHinge), (Hat,))
        if problem.uses_graph:
            problem = replace(problem, unlabeled_cost=problem.graph_costs / _TO_MEAN)
        rows = problem.all_rows() if problem.uses_unlabeled else problem.labeled
        gram = start_gram(problem)
        now = first_state(self, problem, rows, gram) if state is None else state
        if not isinstance(now, BGSState) or not now.fits(rows, problem):
            raise ValueError("BGS can resume only with the same rows: set warm_start=False to start again")
        if self.anchor and not problem.uses_unlabeled:
            if state is None:  # the start is the solution
                yield replace(now, iteration=1)
            return
        edges = None
        if problem.uses_graph:
            edges = _edges_of_graph(problem, rows)
        elif problem.uses_unlabeled:
            edges = kernel_edges(rows, self.n_neighbors, problem.kernel, now.diagonal, backend.n_threads)
        # A column in which unlabelled rows have no weight is solved by its start.
        moves = problem.unlabeled_cost > 0 if self.anchor else np.ones(problem.n_columns)
        schedule, stiff = step(self.step), max(1.0, float(np.diag(gram).mean())) * stiffness(problem)
        n_steps = self.iterations(problem) * self.look_ahead
        for t in range(now.iteration, self.iterations(problem)):
            ahead = range(t * self.look_ahead, (t + 1) * self.look_ahead)
            gammas = [moves * schedule.sizes(i, n_steps, stiff) for i in ahead]
            batch = _draw_batch(self, problem, edges, ahead, now, gram)
            now = within_budgets(self, problem, _take_steps(self, problem, now, batch, gammas))
            yield now

    def budgets(self, problem: Problem) -> tuple[int, int]:
        """The budgets of labelled and unlabelled rows as numbers."""
        n_u = problem.unlabeled.n_rows if problem.unlabeled is not None else 0
        budget = n_u if self.unlabeled_budget is None else self.unlabeled_budget
        return self.labeled_budget or problem.n_labeled, int(np.ceil(budget * n_u) if 0 < budget < 1 else budget)


def kernel_edges(rows: Rows, n_neighbors: int, kernel: Kernel, diagonal: Array, n_threads: int = 1) -> Edges:
    """The edges of Le et al.: two rows are joined if one is a nearest neighbour of the other.

    The weight of an edge is ``k(x_u, x_v) / sqrt(k(x_u, x_u) k(x_v, x_v))``, or 0 if that is negative. `diagonal` is
    ``k(x, x)`` of every row.
    """
    n = rows.shape[0]
    search = NearestNeighbors(n_neighbors=min(n_neighbors, n - 1), n_jobs=n_threads).fit(rows)
    with threadpool_limits(limits=n_threads, user_api="openmp"):  # which n_jobs does not limit
        nearest = search.kneighbors(return_distance=False)
    this = np.repeat(np.arange(n), nearest.shape[1])
    other = nearest.ravel()
    # An edge is one number, so that it counts once if found from both ends.
    number = np.unique(np.minimum(this, other) * n + np.maximum(this, other))
    pairs = np.column_stack(np.divmod(number, n))
    size = np.sqrt(diagonal)[pairs].prod(axis=1)
    # A row of size 0 always has the same output, so its edges may have any weight.
    weights = np.where(size > 0, kernel_of_pairs(kernel, rows, *pairs.T), 1.0) / np.where(size > 0, size, 1.0)
    return Edges(pairs, np.maximum(weights, 0) if weights.max() > 0 else np.ones_like(weights))


def _edges_of_graph(problem: Problem, rows: Rows) -> Edges | None:
    """The edges of the problem's graph, between these rows, if there are any."""
    assert problem.graph is not None
    edges = problem.graph.edges()
    return replace(edges, pairs=problem.graph.positions_in(rows)[edges.pairs]) if len(edges.pairs) else None


class _Batch(NamedTuple):
    """The rows of some steps, and all that the steps need of them.

    The labelled rows and the unlabelled rows `ends` are numbered as rows of `gram` and `scores`; `labeled` and `edges`
    have these numbers for each step. `line` is the history line of the function before the first step.
    """

    labeled: Array
    edges: Array
    ends: Array
    gram: Array
    scores: Array
    line: dict[str, float]


def _draw_batch(solver: BGS, problem: Problem, edges: Edges | None, ahead: range, now: BGSState, gram: Array) -> _Batch:
    """The batch of the steps `ahead`: draws do not depend on the model, so all rows are evaluated at once."""
    n_l, size = problem.n_labeled, solver.batch_size
    labeled = labeled_batches(problem, ahead, size, solver.draw_labeled)
    drawn = np.empty((len(ahead), 0, 2), dtype=np.intp)
    if edges is not None:
        drawn = edges.pairs[edges.draw(problem.seed, Purpose.UNLABELED, ahead, size)]
    ends = np.unique(drawn[drawn >= n_l])
    pairs = np.where(drawn < n_l, drawn, n_l + np.searchsorted(ends, drawn))
    rows = now.rows[ends]
    below = problem.kernel.gram(rows, problem.labeled).astype(np.float64)
    among = problem.kernel.gram(rows, rows).astype(np.float64)
    whole = np.block([[gram, below.T], [below, among]])
    scores = np.concatenate([now.scores, now.evaluate(rows)])
    r = scores + now.intercept
    line = history_line(solver, problem, now.norms, r[:n_l], r[pairs.reshape(-1, 2)])
    return _Batch(labeled, pairs, ends, whole, scores, line)


def _take_steps(solver: BGS, problem: Problem, now: BGSState, batch: _Batch, gammas: list[Array]) -> BGSState:
    """The state after the steps of a batch, not yet within the budgets."""
    main, n_l = slice(0, problem.n_models), problem.n_labeled
    scores, intercept, norms, gram = batch.scores, now.intercept, now.norms, batch.gram
    shrinkage, change = np.ones(problem.n_columns), np.zeros_like(scores)
    for labeled, (u, v), gamma in zip(batch.labeled, batch.edges.swapaxes(1, 2), gammas, strict=True):
        slope = labeled_slope(problem, labeled, scores[labeled] + intercept)
        # f loses gamma times this effect, of the labelled rows and then of the edges.
        effect = (slope.T @ gram[labeled]).T
        along = gram[u] - gram[v]
        if solver.implicit:
            ahead = (1 - gamma) * scores - gamma * effect
            on_edges = _implicit_edge_slope(solver, problem, ahead[u] - ahead[v], along[:, u] - along[:, v], gamma)
        else:
            gaps, p = scores[u] - scores[v], solver.exponent
            on_edges = problem.unlabeled_cost / max(1, len(gaps)) * p * np.abs(gaps) ** (p - 1) * np.sign(gaps)
        effect += (on_edges.T @ along).T
        inner = np.sum(slope * scores[labeled], axis=0) + np.sum(on_edges * (scores[u] - scores[v]), axis=0)
        square = np.sum(slope * effect[labeled], axis=0) + np.sum(on_edges * (effect[u] - effect[v]), axis=0)
        norms = ((1 - gamma) ** 2)[main] * norms - (2 * gamma * (1 - gamma) * inner - gamma**2 * square)[main]
        scores = (1 - gamma) * scores - gamma * effect
        if solver.intercept:
            intercept = np.where(gamma > 0, _best_intercept(problem, scores[:n_l]), intercept)
        shrinkage, change = (1 - gamma) * shrinkage, (1 - gamma) * change
        np.subtract.at(change, labeled, gamma * slope)
        np.subtract.at(change, u, gamma * on_edges)
        np.add.at(change, v, gamma * on_edges)
    at = np.concatenate([now.at[:n_l], np.union1d(now.at[n_l:], batch.ends)])
    weights = np.zeros((len(at), problem.n_columns))
    weights[np.searchsorted(at, now.at)] = shrinkage * now.weights
    weights[np.searchsorted(at, np.concatenate([now.at[:n_l], batch.ends]))] += change
    now = replace(now, at=at, weights=weights, intercept=intercept, scores=scores[:n_l], norms=norms)
    return replace(now, iteration=now.iteration + 1, record=batch.line)


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


def _implicit_edge_slope(solver: BGS, problem: Problem, gaps: Array, gram: Array, gamma: Array) -> Array:
    """The slope of the graph term at the end of the step, which changes the gaps by ``-gamma gram @ slope``.

    With ``|gap|^p`` replaced by the parabola that touches it in the present gap, ``slope = w (gaps - gamma gram @
    slope)`` is a linear system, where ``w`` is ``C* p |gap|^(p - 2)`` over the number of edges.
    """
    p, slope, matters = solver.exponent, np.zeros_like(gaps), problem.unlabeled_cost > 0
    gaps = gaps[:, matters].T
    inverse = len(gram) * np.maximum(np.abs(gaps), _FLAT) ** (2 - p) / (p * problem.unlabeled_cost[matters, None])
    systems = gamma[matters, None, None] * gram + inverse[:, :, None] * np.eye(len(gram))
    slope[:, matters] = np.linalg.solve(systems, gaps[:, :, None])[:, :, 0].T
    return slope

"""TSG: triply stochastic gradients that start from the supervised solution.

The function is a kernel expansion, and a span that the unlabelled rows act on:

    ``f(x) = sum over labeled i of dual_i k(x_i, x) + lift mean_R k(x_r, x) + sum_j span_j psi_j(x) + intercept``.

It starts from the exact supervised solution. Labelled rows act on their own kernel functions, without noise. Unlabelled
rows act on random features, all of which share each gradient, or, if they are few enough, on the kernel functions of
the unlabelled rows themselves: the paper's update h_t with the exact kernel. The intercept holds the mean output over a
reference sample R, so every gradient is centred there, and `lift` is what centring adds to the kernel functions of R.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from s3vm._utils.arrays import are_equal, host, namespace, product, row_bytes, row_digests, stack
from s3vm._utils.registry import state_part
from s3vm._utils.settings import check_settings, integer, real
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.model import Model
from s3vm.problem import Problem, SupervisedSolution
from s3vm.solvers.balance import means_to_hold
from s3vm.solvers.base import RunState, State, record, settled
from s3vm.solvers.steps import Step, step, stiffness
from s3vm.solvers.stochastic import FeatureCount, StochasticSolver, labeled_slope, on_device
from s3vm.solvers.supervised import start_gram, supervised_start
from s3vm.solvers.tsg.batch_gradient import CHUNK
from s3vm.solvers.tsg.spans import GRAM_BYTES, FeatureSpan, RowSpan, column_dots, rows_cost_less


@dataclass(frozen=True)
class TSG(StochasticSolver):
    """Triply stochastic gradients, anchored at the supervised solution.

    The run starts from the exact SVM of the labelled rows. Each iteration draws a batch of unlabelled rows and steps
    along the gradient of Eq. 1. Labelled rows act on their own kernel functions, without noise; unlabelled rows act on
    random features, all of which share each gradient, or, if they are few, on their own kernel functions too. The
    intercept holds the mean output over the unlabelled rows at that of the supervised solution. If the problem has a
    graph, `batch_size` of its edges are drawn as well (`s3vm.solvers.tsg.edges`); a column with a graph and without
    unlabelled loss has a free intercept. ``experiments/`` has the paper's Algorithm 1.

    If no unlabelled row is used, the result is the supervised solution.

    Parameters
    ----------
    max_iter : int or "auto", default "auto"
        Number of iterations T. ``"auto"`` is one pass over the unlabelled rows, but from 400 to 1000 iterations.
    passes : float or None, default None
        Instead of `max_iter`: the number of passes over the unlabelled rows.
    batch_size : int, default 64
        Unlabelled rows per iteration.
    n_features : int or "sqrt", default 512
        Random features per block, m. ``"sqrt"`` is the paper's ``ceil(sqrt(n))``, at least 64.
    step : Step, "decaying", "constant" or "theorem", default "decaying"
        The step sizes; see `s3vm.solvers.steps`.
    max_features : int, default 8192
        The number of random features at the end.
    growth : float in [0, 1], default 0.5
        The fraction of the iterations over which features are added; a quarter of them is there from the start.
    span : "auto", "rows" or "features", default "auto"
        What the unlabelled rows act on: their own kernel functions (exact, the paper's h_t) or random features.
        ``"auto"`` takes rows if there are at most `max_rows`, or if they are sparse and so wide that it costs less.
    max_rows : int, default 8192
    balance : bool, default True
        Whether the intercept holds the mean output over a sample of unlabelled rows. Without it, all of them may end
        up in one class.
    ramp : float in [0, 1], default 0.5
        The fraction of the iterations over which the unlabelled cost grows from 0 to ``C*``.
    n_reference : int, default 2000
        The size of the sample over which the mean is held.
    """

    takes_graph: ClassVar[bool] = True
    takes_tensors: ClassVar[bool] = True

    max_iter: int | Literal["auto"] = "auto"
    passes: float | None = None
    batch_size: int = 64
    n_features: FeatureCount = 512
    step: str | Step = "decaying"
    max_features: int = 8192
    growth: float = 0.5
    span: Literal["auto", "rows", "features"] = "auto"
    max_rows: int = 8192
    balance: bool = True
    ramp: float = 0.5
    n_reference: int = 2000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(self, max_iter=(integer(), "auto"), max_features=integer(), growth=real(0, 1))
        check_settings(self, span=("auto", "rows", "features"), max_rows=integer())

    def iterations(self, problem: Problem) -> int:
        if self.passes is None and not problem.uses_unlabeled:
            return 1
        return self.iterations_for(problem, fewest=400)

    def memory(self, problem: Problem, backend: Backend) -> int:
        size, n_columns = backend.dtype.itemsize, problem.n_columns
        n_bytes, batch_size = 8 * problem.n_labeled**2, self.batch_size * (3 if problem.uses_graph else 1)
        if problem.unlabeled is None or not problem.uses_unlabeled:
            return n_bytes
        if self.spans_rows(problem):
            n_spanned = problem.unlabeled.n_rows
            row_size = size / 4 * row_bytes(problem.labeled)
            n_bytes += int(n_spanned * row_size) + min(GRAM_BYTES, size * n_spanned * problem.n_rows)
            return n_bytes + 2 * size * n_spanned * (n_columns + batch_size)
        n_bytes += self.frequency_bytes(problem, backend, self.max_features)
        n_bytes += size * self.max_features * problem.n_labeled
        n_scored = min(self.batch_size, CHUNK) + batch_size - self.batch_size
        n_bytes += 2 * size * n_scored * (problem.n_labeled + self.n_reference)
        return n_bytes + (2 * size + 16) * self.max_features * n_columns  # gradients are summed in float64

    def pilot(self, max_iter: int) -> "TSG":
        limit = self.max_iter if isinstance(self.max_iter, str) else min(self.max_iter, max_iter)
        return replace(self, max_iter=limit, passes=None)

    def for_streaming(self) -> "TSG":
        return replace(self, span="features") if self.span == "auto" else self

    def for_cluster(self) -> "TSG":
        return replace(self, batch_size=4096)  # so that workers have enough to do between two messages

    def follow(self, problem: Problem, backend: Backend, state: State) -> State:
        return _rebase(self, problem, backend, state)

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        yield from settled(_anchored(self, problem, backend, state))

    def spans_rows(self, problem: Problem) -> bool:
        """Whether unlabelled rows act on their own kernel functions."""
        if self.span != "auto" or problem.unlabeled is None:
            return self.span != "features"
        return problem.unlabeled.n_rows <= self.max_rows or rows_cost_less(problem, self)


@state_part("TSG.State")
@dataclass(frozen=True, eq=False)
class AnchoredState(RunState):
    """What an anchored run knows after an iteration.

    `centers` are the labelled rows and then those that `span` or the mean over R needs. `scores` of the labelled rows
    and `mean` over R are without intercept. `n_features` is the size of a block, or 0 if the span is the kernel
    functions of rows. `start_dual` and `start_intercept` are the supervised solution.
    """

    centers: Rows
    n_reference: int
    n_features: int
    targets: Array
    costs: Array
    start_dual: Array
    start_intercept: Array
    made_by: TSG
    dual: Array
    intercept: Array
    lift: Array
    span: Array
    scores: Array
    mean: Array
    norm: Array

    def model(self) -> Model:
        n_l, n_columns = self.dual.shape
        span = host(self.span)
        weights = np.zeros((self.centers.shape[0], n_columns), span.dtype)
        weights[:n_l] = host(self.dual)
        coefficients = np.empty((0, 1, n_columns), span.dtype)
        if self.n_features:
            coefficients = span.reshape(-1, self.n_features, n_columns)
        else:
            weights[n_l:] = span
        if self.n_reference:
            weights[n_l : n_l + self.n_reference] += host(self.lift) / self.n_reference
        n_dims = self.centers.shape[1]
        return Model(self.kernel, self.seed, n_dims, coefficients, host(self.intercept), self.centers, weights)

    def labeled_scores(self) -> Array:
        return host(self.scores + self.intercept)

    def moved(self, move: Callable[[Any], Any]) -> "AnchoredState":
        """This state with the arrays of the function moved to a device, or back."""
        arrays = ("dual", "intercept", "lift", "span", "scores", "mean", "norm")
        return replace(self, **{name: move(getattr(self, name)) for name in arrays})

    def detached(self) -> "AnchoredState":
        return self.moved(host)

    def fits(self, problem: Problem, centers: Rows) -> bool:
        """Whether this state has these rows and costs."""
        return (
            are_equal(self.centers, centers)
            and np.array_equal(self.targets, problem.targets)
            and np.array_equal(self.costs, problem.costs)
            and np.shape(self.start_dual) == problem.targets.shape
            and np.shape(self.start_intercept) == (problem.n_columns,)
        )


def _anchored(solver: TSG, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[AnchoredState]:
    """The states of a run of `solver`."""
    if problem.unlabeled is None or not problem.uses_unlabeled:
        if state is None:  # the start is the solution
            first = _supervised_state(solver, problem, supervised_start(problem))
            r_l = first.labeled_scores()
            line = record(problem, first.norm, r_l, problem.targets, problem.costs)
            yield replace(first, iteration=1, record=line)
        return
    kind = RowSpan if solver.spans_rows(problem) else FeatureSpan
    span = kind(solver, problem, problem.unlabeled, backend)
    if state is not None and not (isinstance(state, AnchoredState) and state.fits(problem, span.centers)):
        raise ValueError("TSG can resume only with the same rows and costs: set warm_start=False to start again")
    if state is None:
        start = supervised_start(problem)
    else:
        start = SupervisedSolution(start_gram(problem), state.start_dual, state.start_intercept)
    advance = _Iteration(solver, problem, backend, span, start)
    if state is None:
        state = advance.first_state(_supervised_state(solver, problem, start))
    elif state.made_by != solver:
        span.keep_at_least(len(state.span))
        state = replace(state, made_by=solver)
    state = state.moved(backend.put)
    advance.move_to_device()
    while state.iteration < advance.n_iterations:
        state = advance(state)
        yield state


def _supervised_state(solver: TSG, problem: Problem, start: SupervisedSolution) -> AnchoredState:
    """The supervised solution as a state, without a span and a reference sample."""
    gram, dual, intercept = start
    zeros, scores = np.zeros((0, problem.n_columns)), gram @ dual
    return AnchoredState(
        kernel=problem.kernel,
        seed=problem.seed,
        centers=problem.labeled,
        n_reference=0,
        n_features=0,
        targets=problem.targets,
        costs=problem.costs,
        start_dual=dual,
        start_intercept=intercept,
        made_by=solver,
        dual=dual,
        intercept=intercept,
        lift=zeros,
        span=zeros,
        scores=scores,
        mean=zeros,
        norm=column_dots(dual, scores),
    )


class _Iteration:
    """An iteration as a function of states, and what stays the same in all iterations.

    `of_labeled` are the means over R of the labelled rows' kernel functions, `of_reference` is that of R's own;
    `holds` says which columns hold their mean output over R, at `target`.
    """

    def __init__(
        self, solver: TSG, problem: Problem, backend: Backend, span: RowSpan | FeatureSpan, start: SupervisedSolution
    ) -> None:
        kernel, labeled, reference = problem.kernel, problem.labeled, backend.put(span.reference)
        at_reference = kernel.gram(span.reference, labeled) @ start.dual + start.intercept
        size = max(1.0, float(np.diag(start.gram).mean()))  # 1 for kernels of x - x'
        self.problem, self.backend, self.span, self.gram = problem, backend, span, start.gram
        self.solver, self.steps, self.n_iterations = solver, step(solver.step), solver.iterations(problem)
        self.stiffness = size * stiffness(problem)
        self.graph_costs = problem.graph_costs
        if span.edges is not None:
            self.stiffness += problem.graph_costs * span.edges.stiffness(kernel, span.edge_rows)
        self.of_labeled = kernel.gram(labeled, span.reference).mean(axis=1)
        self.of_reference = float(backend.gram(kernel, reference, reference).mean())
        self.holds, self.target = solver.balanced_columns(problem), means_to_hold(problem, at_reference)
        self.all_labeled = np.arange(problem.n_labeled)

    def first_state(self, supervised: AnchoredState) -> AnchoredState:
        """The supervised solution, its intercept moved so that it holds the mean."""
        n_columns, span, mean = self.problem.n_columns, self.span, self.of_labeled @ supervised.dual
        intercept, lift = np.where(self.holds, self.target - mean, supervised.intercept), np.zeros(n_columns)
        state = replace(supervised, intercept=intercept, lift=lift, span=span.start(n_columns), mean=mean)
        return replace(state, centers=span.centers, n_reference=span.reference.shape[0], n_features=span.n_features)

    def move_to_device(self) -> None:
        for name in ("gram", "of_labeled", "holds", "target", "all_labeled", "graph_costs"):
            setattr(self, name, self.backend.put(getattr(self, name)))
        self.problem = on_device(self.problem, self.backend)

    def __call__(self, state: AnchoredState) -> AnchoredState:
        t, problem, span, holds = state.iteration, self.problem, self.span, self.holds
        sizes = self.steps.sizes(t, self.n_iterations, self.stiffness)
        gamma = self.backend.put(sizes)
        keep = 1 - gamma
        cost = self.solver.annealed_share(t, self.n_iterations) * problem.unlabeled_cost / span.batch_size
        r_l = state.scores + state.intercept
        slope = labeled_slope(problem, self.all_labeled, r_l)
        batch, edges, norm = span.gradient(state, cost), None, state.norm
        if span.edges is not None:
            edges = span.edges.batch(t)
            batch, on_labeled, rough = span.edge_gradient(batch, edges, state, self.graph_costs)
            slope, norm = slope + on_labeled, norm + rough
        moved = span.move(state, batch, edges, gamma, holds)
        lift = holds * (slope.sum(axis=0) + moved.total)
        mean = keep * state.mean - gamma * (product(self.of_labeled, slope) + moved.mean - self.of_reference * lift)
        total = slope.sum(axis=0) + batch.total
        change = product(self.gram, slope) + moved.labeled - self.of_labeled[:, None] * lift
        scores = keep * state.scores - gamma * change
        # ||f'||^2 = keep^2 ||f||^2 - gamma <g, keep f + f'>, where g is the centred gradient.
        at_batch = 2 * keep * batch.along - gamma * (column_dots(batch.labeled, slope) - batch.mean * lift)
        dots = column_dots(slope, keep * state.scores + scores) + at_batch - gamma * moved.along
        dots -= holds * total * (keep * state.mean + mean)
        means = batch.loss / span.batch_size, batch.positive / span.batch_size
        line = record(problem, norm, r_l, problem.targets, problem.costs, means=means)
        return replace(
            state,
            iteration=t + 1,
            dual=keep * state.dual - gamma * slope,
            lift=keep * state.lift + gamma * lift,
            span=moved.span,
            scores=scores,
            mean=mean,
            norm=(keep**2 * state.norm - gamma * dots).clip(0),
            intercept=namespace(gamma).where(holds, self.target - mean, keep * state.intercept - gamma * total),
            record={"step": float(sizes[0])} | line,
        )


def _rebase(solver: TSG, problem: Problem, backend: Backend, state: State) -> AnchoredState:
    """The state of an anchored run, moved to other labelled rows and another reference sample.

    The function was the supervised solution ``s`` of the old labelled rows plus the change by the unlabelled ones,
    ``f = s + c``. It becomes ``f' = s' + c`` with the supervised solution of the new rows. The part of `c` on labelled
    rows that are no longer there is lost; its mean over the reference sample becomes one over the new sample.
    """
    if not isinstance(state, AnchoredState) or not state.n_features or state.dual.shape[1] != problem.n_columns:
        raise ValueError(
            "cannot resume from another algorithm's state, or from one with other columns: call fit with all rows"
        )
    assert problem.unlabeled is not None
    state = state.moved(host)
    kernel, labeled = problem.kernel, problem.labeled
    reference = host(problem.unlabeled.sample(problem.seed, solver.n_reference))
    gram, start, start_intercept = supervised_start(problem)
    dual = start.copy()
    new, old = _common_rows(labeled, problem.targets, state.centers[: len(state.dual)], state.targets)
    dual[new] += (state.dual - state.start_dual)[old]
    features = backend.features(kernel, problem.seed, state.n_features, problem.n_dims)
    coefficients = state.span.reshape(-1, state.n_features, problem.n_columns)
    of_labeled = kernel.gram(labeled, reference).mean(axis=1)
    of_reference = float(kernel.gram(reference, reference).mean())
    at_labeled = features.decision(coefficients, labeled)
    at_reference = features.decision(coefficients, reference).mean(axis=0)
    mean = of_labeled @ dual + of_reference * state.lift + at_reference
    target = means_to_hold(problem, kernel.gram(reference, labeled) @ start + start_intercept)
    free = state.intercept + start_intercept - state.start_intercept
    # With the kernel that the features stand for: f is sum_j span_j psi_j, and k is the mean of psi psi' over blocks.
    norm = np.einsum("ik,ik->k", dual, gram @ dual + 2 * (of_labeled[:, None] * state.lift + at_labeled))
    of_span = len(coefficients) * np.sum(state.span**2, axis=0)
    norm += state.lift * (of_reference * state.lift + 2 * at_reference) + of_span
    return replace(
        state,
        centers=stack([labeled, reference]),
        n_reference=reference.shape[0],
        targets=problem.targets,
        costs=problem.costs,
        start_dual=start,
        start_intercept=start_intercept,
        dual=dual,
        intercept=np.where(solver.balanced_columns(problem), target - mean, free),
        scores=gram @ dual + of_labeled[:, None] * state.lift + at_labeled,
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

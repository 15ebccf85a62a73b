"""TSG anchored at the supervised solution: the steps that make unlabelled rows help.

The function is a kernel expansion, and a span that the unlabelled rows act on:

    ``f(x) = sum over labelled i of dual_i k(x_i, x) + lift mean_R k(x_r, x) + sum_j span_j psi_j(x) + intercept``.

It starts from the exact supervised solution. Labelled rows act on their own kernel functions, without noise. Unlabelled
rows act on random features, all of which share each gradient, or, if they are few enough, on the kernel functions of
the unlabelled rows themselves: the paper's update h_t with the exact kernel. The intercept holds the mean output over a
reference sample R, so every gradient is centred there, and `lift` is what centring adds to the kernel functions of R.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from s3vm._utils.arrays import namespace, product
from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.problem import Problem, SupervisedSolution
from s3vm.solvers.balance import means_to_hold
from s3vm.solvers.base import State, record, record_unlabelled
from s3vm.solvers.steps import Step, step
from s3vm.solvers.stochastic import annealed_share, balanced_columns, labelled_slope, on_device, stiffness
from s3vm.solvers.supervised import start_gram, supervised_start
from s3vm.solvers.tsg.spans import FeatureSpan, RowSpan, column_dots
from s3vm.solvers.tsg.state import AnchoredState

if TYPE_CHECKING:
    from s3vm.solvers.tsg.tsg import TSG

__all__ = ["anchored"]


def anchored(solver: "TSG", problem: Problem, backend: Backend, state: State | None = None) -> Iterator[AnchoredState]:
    """The states of a run of `solver`."""
    if problem.unlabelled is None or not problem.uses_unlabelled:
        if state is None:  # the start is the solution
            yield _supervised_state(solver, problem)
        return
    span: RowSpan | FeatureSpan
    if solver.spans_rows(problem.unlabelled.n_rows):
        span = RowSpan(solver, problem, problem.unlabelled, backend)
    else:
        span = FeatureSpan(solver, problem, problem.unlabelled, backend)
    if state is not None and not (isinstance(state, AnchoredState) and state.fits(problem, span.centres)):
        raise ValueError("TSG can resume only with the same rows and costs: set warm_start=False to start again")
    start = _start(problem, state)
    advance = _Iteration.of(solver, problem, backend, span, start)
    if state is None:
        state = _first_state(solver, problem, span, start, advance)
    elif state.made_by != solver:
        span.keep_at_least(len(state.span))
        state = replace(state, made_by=solver)
    state = state.moved(backend.put)
    advance = advance.moved(problem, backend)
    while state.iteration < advance.n_iterations:
        state = advance(state)
        yield state


def _start(problem: Problem, state: AnchoredState | None) -> SupervisedSolution:
    """The supervised solution, which a state brings along."""
    if state is None:
        return supervised_start(problem)
    return SupervisedSolution(start_gram(problem), state.start_dual, state.start_intercept)


def _supervised_state(solver: "TSG", problem: Problem) -> AnchoredState:
    """The only state of a run in which no unlabelled row is used."""
    gram, dual, intercept = supervised_start(problem)
    zeros = np.zeros((0, problem.n_columns))
    scores = gram @ dual
    norm = column_dots(dual, scores)
    return AnchoredState(
        problem.kernel,
        problem.seed,
        problem.labelled,
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
        norm=norm,
        iteration=1,
        record=record(problem, norm, scores + intercept, problem.targets, problem.costs, None),
    )


def _first_state(
    solver: "TSG",
    problem: Problem,
    span: RowSpan | FeatureSpan,
    start: SupervisedSolution,
    iteration: "_Iteration",
) -> AnchoredState:
    """The supervised solution, its intercept moved so that it holds the mean."""
    gram, dual, intercept = start
    scores, mean = gram @ dual, iteration.of_labelled @ dual
    return AnchoredState(
        problem.kernel,
        problem.seed,
        span.centres,
        n_reference=span.reference.shape[0],
        n_features=span.n_features,
        targets=problem.targets,
        costs=problem.costs,
        start_dual=dual,
        start_intercept=intercept,
        made_by=solver,
        dual=dual,
        intercept=np.where(iteration.holds, iteration.target - mean, intercept),
        lift=np.zeros(problem.n_columns),
        span=span.start(problem.n_columns),
        scores=scores,
        mean=mean,
        norm=column_dots(dual, scores),
    )


@dataclass(frozen=True, eq=False)
class _Iteration:
    """An iteration as a function of states, and what stays the same in all iterations.

    `of_labelled` are the means over R of the labelled rows' kernel functions, `of_reference` is that of R's own;
    `holds` says which columns hold their mean output over R, at `target`.
    """

    ramp: float
    steps: Step
    n_iterations: int
    stiffness: Array
    problem: Problem
    backend: Backend
    span: RowSpan | FeatureSpan
    gram: Array
    of_labelled: Array
    of_reference: float
    holds: Array
    target: Array
    all_labelled: Array

    @classmethod
    def of(
        cls,
        solver: "TSG",
        problem: Problem,
        backend: Backend,
        span: RowSpan | FeatureSpan,
        start: SupervisedSolution,
    ) -> "_Iteration":
        kernel, labelled, reference = problem.kernel, problem.labelled, backend.put(span.reference)
        at_reference = kernel.gram(span.reference, labelled) @ start.dual + start.intercept
        size = max(1.0, float(np.diag(start.gram).mean()))  # 1 for kernels of x - x'
        return cls(
            solver.ramp,
            step(solver.step),
            solver.iterations(problem),
            size * stiffness(problem),
            problem,
            backend,
            span,
            start.gram,
            of_labelled=kernel.gram(labelled, span.reference).mean(axis=1),
            of_reference=float(backend.gram(kernel, reference, reference).mean()),
            holds=balanced_columns(problem, solver.balance),
            target=means_to_hold(problem, at_reference),
            all_labelled=np.arange(problem.n_labelled),
        )

    def moved(self, problem: Problem, backend: Backend) -> "_Iteration":
        """The same where the backend computes."""
        arrays = ("gram", "of_labelled", "holds", "target", "all_labelled")
        moved = {name: backend.put(getattr(self, name)) for name in arrays}
        return replace(self, problem=on_device(problem, backend), **moved)

    def __call__(self, state: AnchoredState) -> AnchoredState:
        t, problem, span, holds = state.iteration, self.problem, self.span, self.holds
        sizes = self.steps.sizes(t, self.n_iterations, self.stiffness)
        gamma = self.backend.put(sizes)
        keep = 1 - gamma
        cost = annealed_share(self.ramp, t, self.n_iterations) * problem.unlabelled_cost / span.batch_size
        r_l = state.scores + state.intercept
        slope = labelled_slope(problem, self.all_labelled, r_l)
        batch = span.gradient(t, state, cost)
        moved = span.move(t, batch, state.span, keep, gamma, holds)
        lift = holds * (slope.sum(axis=0) + moved.total)
        mean = keep * state.mean - gamma * (product(self.of_labelled, slope) + moved.mean - self.of_reference * lift)
        total = slope.sum(axis=0) + batch.total
        change = product(self.gram, slope) + moved.labelled - self.of_labelled[:, None] * lift
        scores = keep * state.scores - gamma * change
        # ||f'||^2 = keep^2 ||f||^2 - gamma <g, keep f + f'>, where g is the centred gradient.
        at_batch = 2 * keep * batch.along - gamma * (column_dots(batch.labelled, slope) - batch.mean * lift)
        dots = column_dots(slope, keep * state.scores + scores) + at_batch - gamma * moved.along
        dots -= holds * total * (keep * state.mean + mean)
        line = {"step": float(sizes[0])} | record(problem, state.norm, r_l, problem.targets, problem.costs, None)
        line = record_unlabelled(problem, line, batch.loss / span.batch_size, batch.positive / span.batch_size)
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
            record=line,
        )

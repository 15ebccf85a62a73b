"""TSG anchored at the supervised solution: the steps that make unlabelled rows help.

The function is a kernel expansion, and a span that the unlabelled rows act on:

    ``f(x) = sum over labelled i of dual_i k(x_i, x) + lift mean_R k(x_r, x) + sum_j span_j psi_j(x) + intercept``.

It starts from the exact supervised solution. Labelled rows act on their own kernel functions, without noise. Unlabelled
rows act on random features, of which all born so far share each gradient, or, when they are few enough, on the kernel
functions of the unlabelled rows themselves: the paper's update h_t with the exact kernel. The intercept holds the mean
output over a reference sample R, so every gradient is centred there, and `lift` is what centring adds to the kernel
functions of R.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from s3vm import philox
from s3vm._utils.arrays import cast, host, namespace, product, stack
from s3vm._utils.registry import state_part
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.kernels import Kernel
from s3vm.model import Model
from s3vm.philox import Purpose
from s3vm.problem import Problem
from s3vm.solvers.base import record, record_unlabelled
from s3vm.solvers.steps import step
from s3vm.solvers.stochastic import annealed_share, labelled_slope, on_device, stiffness
from s3vm.solvers.supervised import labelled_gram, supervised_start
from s3vm.solvers.tsg.batch_gradient import BatchGradient, BatchGradientWorker, Iterate, pulled
from s3vm.sources import RemoteSource, Source

if TYPE_CHECKING:
    from s3vm.solvers.tsg.tsg import TSG

__all__ = ["GRAM_BYTES", "anchored"]

_FIRST_SHARE = 0.25  # of the features that are there from the start
GRAM_BYTES = 64 << 20  # the kernel matrix of the unlabelled rows is kept up to here


def anchored(solver: "TSG", problem: Problem, backend: Backend, state: "_State | None" = None) -> Iterator["_State"]:
    """The states of a run of `solver`, whose options say which of the steps are taken."""
    kernel, labelled = problem.kernel, problem.labelled
    if solver.anchor:
        gram, dual, intercept = supervised_start(problem)
    else:
        gram = labelled_gram(kernel, labelled)
        dual, intercept = np.zeros(problem.targets.shape), np.zeros(problem.n_columns)
    if problem.unlabelled is None or not problem.uses_unlabelled:
        if state is None:  # the start is the solution
            none = np.zeros((0, problem.n_columns))
            fixed = (problem.targets, problem.costs, solver)
            r_l = gram @ dual
            norm = _dot(dual, r_l)
            line = record(problem, norm, r_l + intercept, problem.targets, problem.costs, None)
            yield _State(
                kernel, problem.seed, labelled, 0, 0, *fixed, dual, intercept, none, none, r_l, none, norm, 1, line
            )
        return
    span: _RowSpan | _FeatureSpan
    if solver.spans_rows(problem.unlabelled.n_rows):
        span = _RowSpan(solver, problem, problem.unlabelled, backend)
    else:
        span = _FeatureSpan(solver, problem, problem.unlabelled, backend)
    # Means over R, which are nothing where no balance is held.
    balanced = solver.balanced(problem)
    start = kernel.gram(span.reference, labelled) @ dual + intercept
    target = solver.target(problem, start)
    of_labelled = kernel.gram(labelled, span.reference).mean(axis=1)
    reference = backend.put(span.reference)
    of_reference = float(backend.gram(kernel, reference, reference).mean())
    steps, n_iterations = step(solver.step), solver.iterations(problem)
    size = max(1.0, float(np.diag(gram).mean()))  # 1 for kernels of x - x'
    stiff = size * stiffness(problem)
    if state is None:
        state = _State(
            kernel,
            problem.seed,
            span.centres,
            span.reference.shape[0],
            span.n_features,
            dual=dual,
            costs=problem.costs,
            targets=problem.targets,
            made_by=solver,
            intercept=np.where(balanced, target - of_labelled @ dual, intercept),
            lift=np.zeros(problem.n_columns),
            span=span.start(problem.n_columns),
            scores=gram @ dual,
            mean=of_labelled @ dual,
            norm=_dot(dual, gram @ dual),
        )
    elif not isinstance(state, _State) or not state.fits(problem, span.centres):
        raise ValueError(
            "an anchored TSG goes on only with the rows and costs it began with: set warm_start=False to start afresh"
        )
    if state.made_by != solver:
        span.take_over(len(state.span))
        state = replace(state, made_by=solver)
    state, here = state.moved(backend.put), on_device(problem, backend)
    gram, of_labelled, target, holds = (backend.put(part) for part in (gram, of_labelled, target, balanced))
    everyone = backend.put(np.arange(problem.n_labelled))
    xp = namespace(gram)
    for t in range(state.iteration, n_iterations):
        sizes = steps.sizes(t, n_iterations, stiff)
        gamma = backend.put(sizes)
        keep = 1 - gamma
        cost = annealed_share(solver.ramp, t, n_iterations) * here.unlabelled_cost / span.batch_size
        r_l = state.scores + state.intercept
        slope_l = labelled_slope(here, everyone, r_l)
        pull = span.pull(t, state, cost)
        moved = span.move(t, pull, state.span, keep, gamma, slope_l, holds)
        on_dual = slope_l if solver.exact_labelled else xp.zeros_like(slope_l)
        lift = holds * (on_dual.sum(axis=0) + moved.total)
        mean = keep * state.mean - gamma * (product(of_labelled, on_dual) + moved.mean - of_reference * lift)
        held = target - mean
        total = slope_l.sum(axis=0) + pull.total
        free = keep * state.intercept - gamma * total * solver.intercept
        scores = keep * state.scores - gamma * (product(gram, on_dual) + moved.labelled - of_labelled[:, None] * lift)
        # ||f'||^2 = keep^2 ||f||^2 - gamma <g, keep f + f'>, where g is the centred gradient.
        at_batch = 2 * keep * pull.along - gamma * (_dot(pull.labelled, on_dual) - pull.mean * lift)
        dots = _dot(slope_l, keep * state.scores + scores) + at_batch - gamma * moved.along
        dots -= holds * total * (keep * state.mean + mean)
        line = {"step": float(sizes[0])} | record(here, state.norm, r_l, here.targets, here.costs, None)
        line = record_unlabelled(here, line, pull.loss / span.batch_size, pull.positive / span.batch_size)
        state = replace(
            state,
            iteration=t + 1,
            dual=keep * state.dual - gamma * on_dual,
            lift=keep * state.lift + gamma * lift,
            span=moved.span,
            scores=scores,
            mean=mean,
            norm=(keep**2 * state.norm - gamma * dots).clip(0),
            intercept=xp.where(holds, held, free),
            record=line,
        )
        yield state


def _dot(a: Array, b: Array) -> Array:
    """The inner product of each column."""
    return namespace(a).einsum("ik,ik->k", a, b)


class _Moved(NamedTuple):
    """A span after a step, and what the step did: to the labelled rows, to the mean over R, the slope that is still to
    be centred, and to the batch, along its own slopes."""

    span: Array
    labelled: Array
    mean: Array
    total: Array
    along: Array


class _RowSpan:
    """The kernel functions of the unlabelled rows, in an order drawn once; R is the first of them."""

    n_features = 0

    def __init__(self, solver: "TSG", problem: Problem, source: Source, backend: Backend) -> None:
        rows = host(source.sample(problem.seed, source.n_rows))
        order = np.argsort(philox.words(problem.seed, Purpose.UNLABELLED, 0, source.n_rows, 1)[:, 0], kind="stable")
        rows, self._n_rows, self._n_labelled = rows[order], source.n_rows, problem.n_labelled
        self._kernel, self._backend, self._loss = problem.kernel, backend, backend.loss(problem.unlabelled_loss)
        self.batch_size = min(solver.batch_size, source.n_rows)
        self._n_reference = min(solver.n_reference, source.n_rows)
        self.reference = rows[: self._n_reference]
        self.centres = stack([problem.labelled, rows])
        self._rows, self._centres = backend.put(rows), backend.put(self.centres)
        n_bytes = self._n_rows * self.centres.shape[0] * rows.dtype.itemsize
        often = solver.iterations(problem) * self.batch_size >= 2 * source.n_rows
        keeps = often and n_bytes <= GRAM_BYTES
        self._gram = backend.gram(problem.kernel, self._rows, self._centres) if keeps else None
        self._seen = self._n_reference

    def take_over(self, n_functions: int) -> None:
        """Reckons with coefficients that a run of other settings has left, here on any row."""
        self._seen = n_functions

    def start(self, n_columns: int) -> Array:
        return np.zeros((self._n_rows, n_columns), self.centres.dtype)

    def _at(self, t: int) -> Array:
        """Which rows are the batch of iteration t."""
        return self._backend.put((t * self.batch_size + np.arange(self.batch_size)) % self._n_rows)

    def _values(self, at: Array, columns: slice | Array) -> Array:
        """Kernel values of some unlabelled rows with some centres."""
        if self._gram is not None:
            return self._gram[at, columns] if isinstance(columns, slice) else self._gram[at[:, None], columns]
        return self._backend.gram(self._kernel, self._rows[at], self._centres[columns])

    def pull(self, t: int, state: "_State", cost: Array) -> BatchGradient:
        seen = min(self._n_rows, max((t + 1) * self.batch_size, self._seen))  # beyond, coefficients are still 0
        n_l = self._n_labelled
        gram = self._values(self._at(t), slice(n_l + seen))
        to_labelled, to_mean = gram[:, :n_l], gram[:, n_l : n_l + self._n_reference].mean(axis=1)
        point = Iterate(state.dual, state.lift, state.intercept, state.span[:seen], cost, 0, 0)
        r = product(to_labelled, point.dual) + to_mean[:, None] * point.lift + point.intercept
        r += product(gram[:, n_l:], point.span)
        slope, sums = pulled(self._loss, point, r, to_labelled, to_mean)
        return sums._replace(span=slope)

    def move(
        self, t: int, pull: BatchGradient, span: Array, keep: Array, gamma: Array, slope_l: Array, balanced: Array
    ) -> _Moved:
        moved, at = span * cast(keep, span.dtype), self._at(t)
        moved[at] -= cast(gamma * pull.span, span.dtype)
        along = _dot(pull.span, product(self._values(at, self._n_labelled + at), pull.span))
        return _Moved(moved, pull.labelled, pull.mean, pull.total, along)


class _FeatureSpan:
    """Random features, born block by block; a gradient acts on all of them (`reuse`) or on the newest block."""

    def __init__(self, solver: "TSG", problem: Problem, source: Source, backend: Backend) -> None:
        self._solver, self._problem, self._source = solver, problem, source
        self._n_iterations = solver.iterations(problem)
        self._features = backend.features(problem.kernel, problem.seed, solver.block_size(problem), problem.n_dims)
        self.n_features = self._features.n_features
        self._n_blocks = max(1, solver.max_features // self.n_features)
        self.reference = host(source.sample(problem.seed, solver.n_reference))
        self.centres = stack([problem.labelled, self.reference])
        self._backend, self._centres = backend, backend.put(self.centres)
        self._labelled = backend.put(np.empty((problem.n_labelled, 0), backend.dtype))
        self._mean = backend.put(np.empty(0, backend.dtype))
        self._fewest_blocks = 0
        self.batch_size = solver.batch_size
        fixed = problem.kernel, problem.seed, self.n_features, self.centres, problem.n_labelled
        self._puller = BatchGradientWorker(*fixed, problem.unlabelled_loss)
        self._here = self._puller.on(backend)

    def take_over(self, n_functions: int) -> None:
        """Reckons with features that a run of other settings has left."""
        self._fewest_blocks = n_functions // self.n_features

    def start(self, n_columns: int) -> Array:
        return np.zeros((0, n_columns), self._backend.dtype)

    def _born(self, t: int) -> int:
        """How many blocks there are in iteration t."""
        solver = self._solver
        if not solver.reuse:
            return t + 1
        annealed_share = 1.0 if solver.growth == 0 else min(1.0, t / (solver.growth * self._n_iterations))
        born = int(np.ceil(self._n_blocks * (_FIRST_SHARE + (1 - _FIRST_SHARE) * annealed_share)))
        return max(born, self._fewest_blocks)

    def pull(self, t: int, state: "_State", cost: Array) -> BatchGradient:
        born, known = self._born(t), len(self._mean) // self.n_features
        n_l, xp = self._problem.n_labelled, namespace(self._mean)
        for block in range(known, born):
            psi = self._features.features(block, self._centres)
            self._labelled = xp.concatenate([self._labelled, psi[:n_l]], axis=1)
            self._mean = xp.concatenate([self._mean, psi[n_l:].mean(axis=0)])
        first = 0 if self._solver.reuse else born - 1
        point = Iterate(state.dual, state.lift, state.intercept, state.span, cost, first, born - first)
        draw = self._problem.seed, Purpose.UNLABELLED, range(t, t + 1), self.batch_size
        if isinstance(self._source, RemoteSource):
            return BatchGradient(*map(self._backend.put, self._source.pull(self._puller, *draw, point.moved(host))))
        return self._here.pull(self._backend, self._features, self._backend.put(self._source.batches(*draw)), point)

    def move(
        self, t: int, pull: BatchGradient, span: Array, keep: Array, gamma: Array, slope_l: Array, balanced: Array
    ) -> _Moved:
        dtype, n_older = span.dtype, len(self._mean) - len(pull.span)
        slope, total = cast(pull.span, dtype) + 0, pull.total
        if not self._solver.exact_labelled:
            slope += self._labelled[:, n_older:].T @ cast(slope_l, dtype)
            total = total + slope_l.sum(axis=0)
        slope -= self._mean[n_older:, None] * cast(balanced * total, dtype)
        if self._solver.reuse:
            slope /= len(slope) // self.n_features
        unborn = self._backend.put(np.zeros((len(self._mean) - len(span), span.shape[1]), self._backend.dtype))
        moved = namespace(span).concatenate([cast(keep, dtype) * span, unborn])
        moved[n_older:] -= cast(gamma, dtype) * slope
        along = _dot(pull.span, cast(slope, pull.span.dtype))
        return _Moved(moved, self._labelled[:, n_older:] @ slope, self._mean[n_older:] @ slope, 0 * total, along)


@state_part("TSG.State")
@dataclass(frozen=True, eq=False)
class _State:
    """What an anchored run knows after an iteration; `scores` of labelled rows and `mean` over R are without intercept.

    `n_features` is the size of a block, 0 where the span is the kernel functions of rows.
    """

    kernel: Kernel
    seed: int
    centres: Rows
    n_reference: int
    n_features: int
    targets: Array
    costs: Array
    made_by: "TSG"
    dual: Array
    intercept: Array
    lift: Array
    span: Array
    scores: Array
    mean: Array
    norm: Array
    iteration: int = 0
    record: Mapping[str, float] = field(default_factory=dict)

    def model(self) -> Model:
        n_l, n_columns = self.dual.shape
        span = host(self.span)
        weights = np.zeros((self.centres.shape[0], n_columns), span.dtype)
        weights[:n_l] = host(self.dual)
        coefficients = np.empty((0, 1, n_columns), span.dtype)
        if self.n_features:
            coefficients = span.reshape(-1, self.n_features, n_columns)
        else:
            weights[n_l:] = span
        if self.n_reference:
            weights[n_l : n_l + self.n_reference] += host(self.lift) / self.n_reference
        n_dims = self.centres.shape[1]
        return Model(self.kernel, self.seed, n_dims, coefficients, host(self.intercept), self.centres, weights)

    def labelled_scores(self) -> Array:
        return host(self.scores + self.intercept)

    def moved(self, move: Callable[[Any], Any]) -> "_State":
        """This state with its arrays elsewhere."""
        moving = ("dual", "intercept", "lift", "span", "scores", "mean", "norm")
        return replace(self, **{name: move(getattr(self, name)) for name in moving})

    def detached(self) -> "_State":
        return self.moved(host)

    def fits(self, problem: Problem, centres: Rows) -> bool:
        """Whether this state is of these rows and costs."""
        if self.centres.shape != centres.shape or (self.centres != centres).sum() > 0:
            return False
        return np.array_equal(self.targets, problem.targets) and np.array_equal(self.costs, problem.costs)

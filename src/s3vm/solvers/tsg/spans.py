"""What the unlabelled rows of an anchored run act on: their own kernel functions, or random features."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import sparse

from s3vm import philox
from s3vm._utils.arrays import cast, host, namespace, product, stack
from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.philox import Purpose
from s3vm.problem import Problem
from s3vm.solvers.tsg.batch_gradient import BatchGradient, BatchGradientWorker, Iterate, slopes_and_sums, sums_of
from s3vm.solvers.tsg.edges import EdgeBatch, EdgeBatches
from s3vm.sources import ArraySource, RemoteSource, Source

if TYPE_CHECKING:
    from s3vm.solvers.tsg.tsg import TSG, AnchoredState

_FIRST_FRACTION = 0.25  # of the features that are there from the start
_SPARSE_ENTRY = 10  # the cost of an entry of sparse products, relative to one of random features
GRAM_BYTES = 64 << 20  # up to here, the kernel matrix of the unlabelled rows is kept


def column_dots(a: Array, b: Array) -> Array:
    """The inner product of each column of `a` with that of `b`."""
    return namespace(a).einsum("ik,ik->k", a, b)


def rows_cost_less(problem: Problem, solver: "TSG") -> bool:
    """Whether an iteration costs less on the kernel functions of sparse rows in memory than on random features.

    A batch meets the stored entries of all rows there; here the frequencies of all columns, however few are stored.
    """
    source, labeled = problem.unlabeled, problem.labeled
    if not isinstance(source, ArraySource) or not sparse.issparse(labeled):
        return False
    stored = labeled.nnz / labeled.shape[0]
    by_rows = _SPARSE_ENTRY * source.n_rows * (solver.batch_size + 3 * stored)
    return bool(by_rows <= solver.max_features * (problem.n_dims + solver.batch_size * stored))


class SpanStep(NamedTuple):
    """A span after a step, and the effects of the step before it is scaled by the step size.

    `labeled` and `mean` are its effects on the labelled rows and on the mean over R, `total` is the part of the slopes
    that is still to be centred, and `along` the effect on the batch, weighted by its slopes.
    """

    span: Array
    labeled: Array
    mean: Array
    total: Array
    along: Array


class EdgeStep(NamedTuple):
    """The sums over a batch and its edges, and what the edges add to the slopes at the labelled rows.

    `rough` estimates ``c (1/n) f'Lf`` of each column.
    """

    sums: BatchGradient
    on_labeled: Array
    rough: Array


class RowSpan:
    """The kernel functions of the unlabelled rows, in an order drawn once; R is the first of them."""

    n_features = 0

    def __init__(self, solver: "TSG", problem: Problem, source: Source, backend: Backend) -> None:
        rows = host(source.sample(problem.seed, source.n_rows))
        order = np.argsort(philox.words(problem.seed, Purpose.UNLABELED, 0, source.n_rows, 1)[:, 0], kind="stable")
        rows, self._n_rows, self._n_labeled = rows[order], source.n_rows, problem.n_labeled
        self._kernel, self._backend, self._loss = problem.kernel, backend, backend.loss(problem.unlabeled_loss)
        self.batch_size = min(solver.batch_size, source.n_rows)
        self._n_reference = min(solver.n_reference, source.n_rows)
        self.reference = rows[: self._n_reference]
        self.centers = stack([problem.labeled, rows])
        self._rows, self._centers = backend.put(rows), backend.put(self.centers)
        n_bytes = self._n_rows * self.centers.shape[0] * rows.dtype.itemsize
        is_reused = solver.iterations(problem) * self.batch_size >= 2 * source.n_rows
        keeps_gram = is_reused and n_bytes <= GRAM_BYTES
        self._gram = backend.gram(problem.kernel, self._rows, self._centers) if keeps_gram else None
        self._n_used = self._n_reference  # coefficients beyond are 0
        self.edges: EdgeBatches | None = None
        if problem.graph is not None and problem.uses_graph:
            positions = problem.graph.positions_in(self.centers)
            self.edges = EdgeBatches.of(problem.graph, positions, problem.seed, solver.batch_size)
            self.edge_rows, self._n_used = self.centers, self._n_rows  # edges act on any row

    def keep_at_least(self, n_functions: int) -> None:
        """Allows for the coefficients of a run with other settings, which may be on any row."""
        self._n_used = n_functions

    def start(self, n_columns: int) -> Array:
        return np.zeros((self._n_rows, n_columns), self.centers.dtype)

    def _batch(self, state: "AnchoredState") -> Array:
        return self._backend.put((state.iteration * self.batch_size + np.arange(self.batch_size)) % self._n_rows)

    def _values(self, at: Array, columns: slice | Array) -> Array:
        if self._gram is not None:
            return self._gram[at, columns] if isinstance(columns, slice) else self._gram[at[:, None], columns]
        return self._backend.gram(self._kernel, self._rows[at], self._centers[columns])

    def _evaluate(self, at: Array, now: Iterate) -> tuple[Array, Array, Array]:
        """f at some rows, and their kernel values with the labelled rows and with the mean over R."""
        n_l = self._n_labeled
        gram = self._values(at, slice(n_l + len(now.span)))
        to_labeled, to_mean = gram[:, :n_l], gram[:, n_l : n_l + self._n_reference].mean(axis=1)
        r = product(to_labeled, now.dual) + to_mean[:, None] * now.lift + now.intercept
        r += product(gram[:, n_l:], now.span)
        return r, to_labeled, to_mean

    def gradient(self, state: "AnchoredState", cost: Array) -> BatchGradient:
        """The sums over the batch of iteration t; on the span, these are the slopes at the rows of the batch."""
        n_used = min(self._n_rows, max((state.iteration + 1) * self.batch_size, self._n_used))
        now = Iterate(state.dual, state.lift, state.intercept, state.span[:n_used], cost, 0)
        r, to_labeled, to_mean = self._evaluate(self._batch(state), now)
        slope, sums = slopes_and_sums(self._loss, now, r, to_labeled, to_mean)
        return sums._replace(span=slope)

    def edge_gradient(self, batch: BatchGradient, edges: EdgeBatch, state: "AnchoredState", cost: Array) -> EdgeStep:
        """Adds the edges: each of their ends acts on its own kernel function, labelled or not."""
        at, n = self._ends(edges), int(np.sum(edges.ends < self._n_labeled))
        labeled = self._backend.put(edges.ends[:n])
        now = Iterate(state.dual, state.lift, state.intercept, state.span, cost, 0)
        r, to_labeled, to_mean = self._evaluate(at, now)
        ends = namespace(r).concatenate([(state.scores + state.intercept)[labeled], r])
        slope, rough = edges.slopes(ends, cost, self._backend)
        on_labeled = 0 * state.scores
        on_labeled[labeled] = cast(slope[:n], on_labeled.dtype)
        sums = batch._replace(span=slope[:0]).plus(sums_of(slope[n:], r - now.intercept, to_labeled, to_mean))
        span = namespace(r).concatenate([batch.span, slope[n:]])
        return EdgeStep(sums._replace(span=span), on_labeled, rough)

    def _ends(self, edges: EdgeBatch) -> Array:
        return self._backend.put(edges.ends[edges.ends >= self._n_labeled] - self._n_labeled)

    def move(
        self, state: "AnchoredState", batch: BatchGradient, edges: EdgeBatch | None, gamma: Array, holds: Array
    ) -> SpanStep:
        dtype, at = state.span.dtype, self._batch(state)
        moved, change = state.span * cast(1 - gamma, dtype), cast(gamma * batch.span, dtype)
        moved[at] -= change[: len(at)]
        if edges is not None:  # a row may be in both
            ends = self._ends(edges)
            moved[ends] -= change[len(at) :]
            at = namespace(at).concatenate([at, ends])
        along = column_dots(batch.span, product(self._values(at, self._n_labeled + at), batch.span))
        return SpanStep(moved, batch.labeled, batch.mean, batch.total, along)


class FeatureSpan:
    """Random features, which are added block by block; a gradient acts on all of them."""

    def __init__(self, solver: "TSG", problem: Problem, source: Source, backend: Backend) -> None:
        self._growth, self._problem, self._source = solver.growth, problem, source
        self._n_iterations = solver.iterations(problem)
        self._features = backend.features(problem.kernel, problem.seed, solver.block_size(problem), problem.n_dims)
        self.n_features = self._features.n_features
        self._n_blocks = max(1, solver.max_features // self.n_features)
        self.reference = host(source.sample(problem.seed, solver.n_reference))
        self.centers = stack([problem.labeled, self.reference])
        self._backend, self._centers = backend, backend.put(self.centers)
        self._labeled = backend.put(np.empty((problem.n_labeled, 0), backend.dtype))
        self._mean = backend.put(np.empty(0, backend.dtype))
        self._least_blocks = 0
        self.batch_size = solver.batch_size
        fixed = problem.kernel, problem.seed, self.n_features, self.centers, problem.n_labeled
        self._worker = BatchGradientWorker(*fixed, problem.unlabeled_loss)
        self._local_worker = self._worker.on(backend)
        self.edges: EdgeBatches | None = None
        if problem.graph is not None and problem.uses_graph:
            self.edge_rows = problem.graph.rows
            every = np.arange(self.edge_rows.shape[0])
            self.edges = EdgeBatches.of(problem.graph, every, problem.seed, solver.batch_size)

    def keep_at_least(self, n_functions: int) -> None:
        """Allows for the features of a run with other settings."""
        self._least_blocks = n_functions // self.n_features

    def start(self, n_columns: int) -> Array:
        return np.zeros((0, n_columns), self._backend.dtype)

    def _n_blocks_in(self, state: "AnchoredState") -> int:
        grown = 1.0 if self._growth == 0 else min(1.0, state.iteration / (self._growth * self._n_iterations))
        n_blocks = int(np.ceil(self._n_blocks * (_FIRST_FRACTION + (1 - _FIRST_FRACTION) * grown)))
        return max(n_blocks, self._least_blocks)

    def gradient(self, state: "AnchoredState", cost: Array) -> BatchGradient:
        n_blocks, n_l, xp = self._n_blocks_in(state), self._problem.n_labeled, namespace(self._mean)
        for block in range(len(self._mean) // self.n_features, n_blocks):
            psi = self._features.features(block, self._centers)
            self._labeled = xp.concatenate([self._labeled, psi[:n_l]], axis=1)
            self._mean = xp.concatenate([self._mean, psi[n_l:].mean(axis=0)])
        now = Iterate(state.dual, state.lift, state.intercept, state.span, cost, n_blocks)
        draw = self._problem.seed, Purpose.UNLABELED, range(state.iteration, state.iteration + 1), self.batch_size
        if isinstance(self._source, RemoteSource):
            return BatchGradient(*map(self._backend.put, self._source.pull(self._worker, *draw, now.moved(host))))
        rows = self._backend.put(self._source.batches(*draw))
        return self._local_worker.gradient(self._backend, self._features, rows, now)

    def edge_gradient(self, batch: BatchGradient, edges: EdgeBatch, state: "AnchoredState", cost: Array) -> EdgeStep:
        """Adds the edges: all of their ends act on the features."""
        rows, n_blocks = self._backend.put(self.edge_rows[edges.ends]), self._n_blocks_in(state)
        now = Iterate(state.dual, state.lift, state.intercept, state.span, cost, n_blocks)
        r, to_labeled, to_mean = self._local_worker.evaluate(self._backend, self._features, rows, now)
        slope, rough = edges.slopes(r, cost, self._backend)
        sums = sums_of(slope, r - now.intercept, to_labeled, to_mean)
        gradient = self._features.adjoint(slope, rows, n_blocks).reshape(-1, r.shape[1])
        return EdgeStep(batch.plus(sums._replace(span=gradient)), 0 * state.scores, rough)

    def move(
        self, state: "AnchoredState", batch: BatchGradient, edges: EdgeBatch | None, gamma: Array, holds: Array
    ) -> SpanStep:
        span, dtype = state.span, state.span.dtype
        slope = cast(batch.span, dtype) - self._mean[:, None] * cast(holds * batch.total, dtype)
        slope /= len(slope) // self.n_features
        new = self._backend.put(np.zeros((len(self._mean) - len(span), span.shape[1]), self._backend.dtype))
        moved = namespace(span).concatenate([cast(1 - gamma, dtype) * span, new])
        moved -= cast(gamma, dtype) * slope
        along = column_dots(batch.span, cast(slope, batch.span.dtype))
        return SpanStep(moved, self._labeled @ slope, self._mean @ slope, 0 * batch.total, along)

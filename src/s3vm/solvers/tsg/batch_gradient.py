"""The gradient of a batch of unlabelled rows: sums over the rows, computed wherever these are.

An anchored step (`s3vm.solvers.tsg.tsg`) needs only these sums of a batch. They add up over parts of the batch,
which may therefore lie on several machines: these exchange gradients and never rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from s3vm._utils.arrays import product
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend, Features
from s3vm.kernels import Kernel
from s3vm.losses import UnlabeledLoss

CHUNK = 1024  # rows whose kernel values with the centres are held at once


class Iterate(NamedTuple):
    """The function of an iteration, as in `s3vm.solvers.tsg.tsg`.

    `cost` is the cost of one row of the batch in each column, and `n_blocks` the number of blocks of features that the
    gradient is needed on, which may be more than `span` has.
    """

    dual: Array
    lift: Array
    intercept: Array
    span: Array
    cost: Array
    n_blocks: int

    def moved(self, move: Callable[[Any], Any]) -> "Iterate":
        """The same with its arrays moved to a device, or back."""
        arrays = {name: move(getattr(self, name)) for name in ("dual", "lift", "intercept", "span", "cost")}
        return self._replace(**arrays)


class BatchGradient(NamedTuple):
    """Sums over rows i with ``slope_i = cost u'(f(x_i))``, for each column.

    `span` is ``sum_i slope_i psi(x_i)``; `labelled` and `mean` are the same for the kernel functions of the labelled
    rows and for the mean kernel function of R. `total` is the sum of the slopes, `along` that of
    ``slope_i (f(x_i) - intercept)``. For the history: `loss` is the sum of ``u(f(x_i))``, and `positive` the number of
    rows above 0.
    """

    span: Array
    labeled: Array
    mean: Array
    total: Array
    along: Array
    loss: Array
    positive: Array

    def plus(self, other: "BatchGradient") -> "BatchGradient":
        return BatchGradient(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def moved(self, move: Callable[[Any], Any]) -> "BatchGradient":
        """This with its arrays elsewhere."""
        return BatchGradient(*map(move, self))


def slopes_and_sums(
    loss: UnlabeledLoss, now: Iterate, r: Array, to_labeled: Array, to_mean: Array
) -> tuple[Array, BatchGradient]:
    """The slopes at rows where f is `r`, and all sums except `span`, given their kernel values."""
    slope = now.cost * loss.grad(r)
    sums = sums_of(slope, r - now.intercept, to_labeled, to_mean)
    return slope, sums._replace(loss=loss.value(r).sum(axis=0), positive=(r > 0).sum(axis=0))


def sums_of(slope: Array, f: Array, to_labeled: Array, to_mean: Array) -> BatchGradient:
    """The sums except `span` and those for the history, where f without the intercept is `f`."""
    total = slope.sum(axis=0)
    return BatchGradient(
        span=slope[:0],
        labeled=product(to_labeled.T, slope),
        mean=product(to_mean, slope),
        total=total,
        along=(slope * f).sum(axis=0),
        loss=0 * total,
        positive=0 * total,
    )


@dataclass(frozen=True, eq=False)
class BatchGradientWorker:
    """Computes the gradients of a run on random features, wherever the rows are; it travels there once."""

    kernel: Kernel
    seed: int
    n_features: int
    centers: Rows
    n_labeled: int
    loss: UnlabeledLoss

    def on(self, backend: Backend) -> "BatchGradientWorker":
        """The same with its arrays where the backend computes."""
        return replace(self, centers=backend.put(self.centers), loss=backend.loss(self.loss))

    def gradient(self, backend: Backend, features: Features, rows: Rows, now: Iterate) -> BatchGradient:
        """The sums over these rows, which may be none. `features` are those of this kernel and seed."""
        if rows.shape[0] == 0:
            shapes = [(now.n_blocks * self.n_features,), (self.n_labeled,), (), (), (), (), ()]
            return BatchGradient(*(backend.put(np.zeros((*shape, len(now.cost)))) for shape in shapes))
        chunks = (rows[start : start + CHUNK] for start in range(0, rows.shape[0], CHUNK))
        return reduce(BatchGradient.plus, (self._of_chunk(backend, features, chunk, now) for chunk in chunks))

    def _of_chunk(self, backend: Backend, features: Features, rows: Rows, now: Iterate) -> BatchGradient:
        r, to_labeled, to_mean = self.evaluate(backend, features, rows, now)
        slope, sums = slopes_and_sums(self.loss, now, r, to_labeled, to_mean)
        gradient = features.adjoint(slope, rows, now.n_blocks)
        return sums._replace(span=gradient.reshape(-1, r.shape[1]))

    def evaluate(self, backend: Backend, features: Features, rows: Rows, now: Iterate) -> tuple[Array, Array, Array]:
        """f at these rows, and their kernel values with the labelled rows and with the mean over R."""
        gram = backend.gram(self.kernel, rows, self.centers)
        to_labeled, to_mean = gram[:, : self.n_labeled], gram[:, self.n_labeled :].mean(axis=1)
        r = product(to_labeled, now.dual) + to_mean[:, None] * now.lift + now.intercept
        blocks = now.span.reshape(-1, self.n_features, r.shape[1])
        if len(blocks):
            r += features.decision(blocks, rows)
        return r, to_labeled, to_mean

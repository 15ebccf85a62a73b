"""What unlabelled rows do to the function: sums over the rows of a batch, made wherever those rows are.

An anchored step (`s3vm.solvers.tsg.anchored`) needs nothing of a batch but these sums. They add up over parts of the
batch, so that the parts may lie on several machines, which then exchange gradients and never rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from s3vm._utils.arrays import product
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend, Features
from s3vm.kernels import Kernel
from s3vm.losses import UnlabelledLoss

__all__ = ["CHUNK", "BatchGradient", "BatchGradientWorker", "Iterate", "pulled"]

CHUNK = 1024  # rows whose kernel values with the centres are in memory at once


class Iterate(NamedTuple):
    """Where the function stands:

    ``f(x) = sum over labelled i of dual_i k(x_i, x) + lift mean_R k(x_r, x) + sum_j span_j psi_j(x) + intercept``.

    `cost` is what one row of the batch costs in each column, and `first`, `n_blocks` say which blocks of features the
    gradient is wanted on.
    """

    dual: Array
    lift: Array
    intercept: Array
    span: Array
    cost: Array
    first: int
    n_blocks: int

    def moved(self, move: Callable[[Any], Any]) -> "Iterate":
        """This with its arrays elsewhere."""
        arrays = {name: move(getattr(self, name)) for name in ("dual", "lift", "intercept", "span", "cost")}
        return self._replace(**arrays)


class BatchGradient(NamedTuple):
    """Sums over rows i with ``slope_i = cost u'(f(x_i))``, for each column.

    `span` is ``sum_i slope_i psi(x_i)``; `labelled` and `mean` are the same of the kernel functions of the labelled
    rows, and of their mean over R. `total` is the sum of the slopes, `along` that of ``slope_i (f(x_i) - intercept)``.
    For the history: `loss` is the sum of ``u(f(x_i))``, and `positive` the number of rows above 0.
    """

    span: Array
    labelled: Array
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


def pulled(
    loss: UnlabelledLoss, point: Iterate, r: Array, to_labelled: Array, to_mean: Array
) -> tuple[Array, BatchGradient]:
    """The slopes at rows where f is `r`, and their sums but for `span`, given their kernel values."""
    slope = point.cost * loss.grad(r)
    return slope, BatchGradient(
        span=slope[:0],
        labelled=product(to_labelled.T, slope),
        mean=product(to_mean, slope),
        total=slope.sum(axis=0),
        along=(slope * (r - point.intercept)).sum(axis=0),
        loss=loss.value(r).sum(axis=0),
        positive=(r > 0).sum(axis=0),
    )


@dataclass(frozen=True, eq=False)
class BatchGradientWorker:
    """What stays the same over a run in which the span is random features; it travels to the rows once."""

    kernel: Kernel
    seed: int
    n_features: int
    centres: Rows
    n_labelled: int
    loss: UnlabelledLoss

    def on(self, backend: Backend) -> "BatchGradientWorker":
        """This where the backend computes."""
        return replace(self, centres=backend.put(self.centres), loss=backend.loss(self.loss))

    def pull(self, backend: Backend, features: Features, rows: Rows, point: Iterate) -> BatchGradient:
        """The sums over these rows, of which there may be none. `features` are those of this kernel and seed."""
        if rows.shape[0] == 0:
            shapes = [(point.n_blocks * self.n_features,), (self.n_labelled,), (), (), (), (), ()]
            return BatchGradient(*(backend.put(np.zeros((*shape, len(point.cost)))) for shape in shapes))
        first, *others = (
            self._pull(backend, features, rows[start : start + CHUNK], point)
            for start in range(0, rows.shape[0], CHUNK)
        )
        for other in others:
            first = first.plus(other)
        return first

    def _pull(self, backend: Backend, features: Features, rows: Rows, point: Iterate) -> BatchGradient:
        gram = backend.gram(self.kernel, rows, self.centres)
        to_labelled, to_mean = gram[:, : self.n_labelled], gram[:, self.n_labelled :].mean(axis=1)
        r = product(to_labelled, point.dual) + to_mean[:, None] * point.lift + point.intercept
        blocks = point.span.reshape(-1, self.n_features, r.shape[1])
        if len(blocks):
            r += features.decision(blocks, rows)
        slope, sums = pulled(self.loss, point, r, to_labelled, to_mean)
        gradient = features.adjoint(slope, rows, point.n_blocks, point.first)
        return sums._replace(span=gradient.reshape(-1, r.shape[1]))

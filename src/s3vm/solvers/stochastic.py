"""What the stochastic solvers share: the slopes of the losses over a batch, and the meaning of their settings."""

from dataclasses import replace
from typing import Literal

import numpy as np

from s3vm import philox
from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.philox import Purpose
from s3vm.problem import Problem
from s3vm.sources import ENDLESS

__all__ = [
    "FeatureCount",
    "annealed_share",
    "balanced_columns",
    "block_size",
    "frequency_bytes",
    "iterations_for",
    "labelled_batch",
    "labelled_slope",
    "on_device",
    "stiffness",
    "unlabelled_slope",
]

FeatureCount = int | Literal["sqrt"]

_FEWEST_FEATURES = 64


def iterations_for(passes: float, n_rows: int, batch_size: int) -> int:
    """The iterations of `passes` passes over so many rows; a ValueError for a stream of unknown length."""
    if n_rows == ENDLESS:
        raise ValueError("the number of rows of this stream is unknown: give max_iter instead of passes")
    return int(np.ceil(passes * n_rows / batch_size))


def block_size(n_features: FeatureCount, problem: Problem) -> int:
    """The number m of features in a block: ``"sqrt"`` is the paper's ``ceil(sqrt(n))``, at least 64."""
    if n_features == "sqrt":
        if problem.n_rows >= ENDLESS:
            raise ValueError('the number of rows of this stream is unknown: give n_features as a number, not "sqrt"')
        return max(_FEWEST_FEATURES, int(np.ceil(np.sqrt(problem.n_rows))))
    return n_features


def stiffness(problem: Problem) -> Array:
    """How steep each column's objective is: the cost of its labelled rows, or a tenth of it if the loss is straight."""
    return max(0.1, problem.labelled_loss.curvature) * problem.costs.sum(axis=0)


def annealed_share(ramp: float, t: int, n_iterations: int) -> float:
    """The fraction of ``C*`` in iteration t, if it grows to 1 over the fraction `ramp` of the iterations."""
    return 1.0 if ramp == 0 else min(1.0, (t + 1) / (ramp * n_iterations))


def balanced_columns(problem: Problem, balance: bool) -> Array:
    """Which columns hold their mean output: with `balance`, those in which unlabelled rows cost something."""
    matters = problem.unlabelled_cost > 0 if problem.unlabelled is not None else np.zeros(problem.n_columns)
    return np.asarray(matters * balance, dtype=bool)


def frequency_bytes(problem: Problem, backend: Backend, n_features: int) -> int:
    """The memory for the cached frequencies of so many features, at most: padded rows, in room that doubles."""
    row_bytes = backend.dtype.itemsize * (problem.n_dims + 1) + 64
    return min(backend.cache_bytes, 2 * problem.kernel.rows(n_features) * row_bytes)


def on_device(problem: Problem, backend: Backend) -> Problem:
    """The problem with everything that slopes depend on where the backend computes."""
    return replace(
        problem,
        targets=backend.put(problem.targets),
        costs=backend.put(problem.costs),
        unlabelled_cost=backend.put(problem.unlabelled_cost),
        labelled_loss=backend.loss(problem.labelled_loss),
        unlabelled_loss=backend.loss(problem.unlabelled_loss),
    )


def labelled_batch(problem: Problem, t: int, size: int, draw: bool) -> Array:
    """The numbers of the labelled rows in iteration t: all of them, or `size` drawn with replacement."""
    if draw:
        return philox.indices(problem.seed, Purpose.LABELLED, range(t, t + 1), size, problem.n_labelled)[0]
    return np.arange(problem.n_labelled)


def labelled_slope(problem: Problem, rows: Array, r: Array) -> Array:
    """The derivative of R with respect to f at labelled rows that represent all of them, where f is `r`."""
    weight = problem.n_labelled / len(rows)
    return weight * problem.costs[rows] * problem.labelled_loss.grad(r, problem.targets[rows])


def unlabelled_slope(problem: Problem, r: Array, share: float | Array) -> Array:
    """The same at a batch of unlabelled rows, whose cost is a fraction `share` of ``C*``."""
    return share * problem.unlabelled_cost / len(r) * problem.unlabelled_loss.grad(r)

"""How to look at the rows: the kernel, weights of columns, and directions, by cross-validation on the labelled rows.

All of this is supervised, except that gradients and directions are taken at unlabelled rows, too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from s3vm import philox
from s3vm._utils.arrays import host, stack
from s3vm._utils.typing import Array, Rows
from s3vm.estimators.candidates import Representation
from s3vm.estimators.grid import Cell, Grid, LabeledRows, best_cell
from s3vm.estimators.planning import Tuning, has_candidates, one_against_rest
from s3vm.estimators.preparation import PreparedRows
from s3vm.kernels import Kernel, Laplacian, has_own
from s3vm.philox import Purpose
from s3vm.problem.projection import column_weights, principal_directions, project
from s3vm.solvers.supervised import in_steps, labeled_gram

_DIRECTIONS = (4, 16, 32)
_FEWEST_COLUMNS = 40  # from which on directions are tried
_MOST_COLUMNS = 2_000  # that weights are learnt for, one gradient each
_GRADIENT_ROWS, _SAMPLE = 300, 2_000  # unlabelled rows for gradients and for directions
_MAX_STEPS = 50_000


class Tuned(NamedTuple):
    """A representation that was tuned, and its cell of the grid."""

    representation: Representation
    cell: Cell


def tune_representations(kernel: Kernel, grid: Grid, settings: Any, sample: Rows, seed: int) -> tuple[Tuning, Array]:
    """The kernel and the weights of columns of the supervised solution, and directions for the candidates.

    `sample` are unlabelled rows. Also returns the error of each cell of the grid for `kernel`.
    """
    rows = stack([grid.data.X, sample])
    kernels = [kernel, Laplacian("median").resolve(rows, seed=seed)] if settings.kernel == "auto" else [kernel]
    at = sample[philox.distinct(seed, Purpose.UNLABELED, 2, _GRADIENT_ROWS, int(sample.shape[0]))]
    tuned = [one for each in kernels for one in _tuned(each, grid, at)]
    others = []
    for projection, mapped in _directions(settings, rows, seed):
        at = grid._replace(data=grid.data._replace(X=mapped[: len(grid.data.codes)]))
        cell = best_cell(_median(kernel, mapped, seed), at)
        others.append(Representation(cell.kernel, cell.C, projection))
    best = best_of(tuned)
    chosen, C, weights, relearn = best.representation
    return Tuning(C, chosen, chosen, {}, tuple(others), weights, relearn, _gain(tuned[0], best)), tuned[0].cell.errors


def usual_representations(kernel: Kernel, C: float, settings: Any, data: PreparedRows, seed: int) -> Tuning:
    """The kernel as it is, and directions in kernels of their median width, with nothing tuned."""
    tuning = Tuning(C, kernel, kernel)
    if settings.n_components != "auto" or data.source is None or not has_candidates(settings, data):
        return tuning
    rows = stack([data.X, host(data.source.sample(seed, _SAMPLE))])
    directions = _directions(settings, rows, seed)
    others = [Representation(_median(kernel, mapped, seed), C, projection) for projection, mapped in directions]
    return tuning._replace(others=tuple(others))


def _tuned(kernel: Kernel, grid: Grid, at: Rows) -> Iterator[Tuned]:
    """The kernel on the columns as they are, and on columns weighted by the gradients at some rows."""
    data = grid.data
    cell = best_cell(kernel, grid)
    yield Tuned(Representation(cell.kernel, cell.C), cell)
    if not has_own(kernel, "gradient") or not 1 < data.X.shape[1] <= _MOST_COLUMNS:
        return

    def learn(in_training: Array) -> Array:
        return _weights(cell, data, in_training, at)

    def relearn(in_training: Array) -> Array:
        return learn(in_training if data.at is None else in_training[data.at])

    weights = learn(np.ones(len(data.codes), dtype=bool))
    views = [project(data.X, learn(data.folds != fold)) for fold in range(int(data.folds.max()) + 1)]
    weighted = best_cell(_median(kernel, project(data.X, weights)), grid.around(cell, kernel), views)
    yield Tuned(Representation(weighted.kernel, weighted.C, weights, relearn), weighted)


def best_of(tuned: Sequence[Tuned]) -> Tuned:
    """The one with the lowest Brier score of those that beat the first by a standard error, row by row."""
    first = tuned[0]
    better = [other for other in tuned[1:] if other.cell.clearly_beats(first.cell)]
    return min(better, key=lambda other: float(other.cell.losses.mean()), default=first)


def _gain(first: Tuned, best: Tuned) -> str:
    """What the SVM gains by column weights, or by another kernel."""
    if best is first:
        return ""
    kernel = f"the {type(best.cell.kernel).__name__} kernel" * (type(best.cell.kernel) is not type(first.cell.kernel))
    weights = "column weights" * (best.representation.projection is not None)
    lowered = 1 - best.cell.losses.mean() / first.cell.losses.mean()
    cause = " with ".join(filter(None, [kernel, weights]))
    return f"{cause} lowered the cross-validated Brier score of the SVM by {lowered:.0%}"


def _directions(settings: Any, rows: Rows, seed: int) -> Iterator[tuple[Array, Rows]]:
    """Several numbers of leading principal directions of the rows, and the rows on them."""
    if settings.n_components != "auto" or int(rows.shape[1]) <= _FEWEST_COLUMNS:
        return
    basis = principal_directions(rows, max(_DIRECTIONS), seed)
    for q in _DIRECTIONS:
        if q <= basis.shape[1]:
            projection = np.ascontiguousarray(basis[:, :q])
            yield projection, project(rows, projection)


def _weights(cell: Cell, data: LabeledRows, in_training: Array, at: Rows) -> Array:
    """Column weights by the SVM of some labelled rows."""
    rows, targets = data.X[in_training], one_against_rest(data.codes)[in_training]
    costs = np.repeat(cell.C * data.cost[in_training, None], targets.shape[1], axis=1)
    dual, _, _ = in_steps(labeled_gram(cell.kernel, rows), targets, costs, _MAX_STEPS)
    return column_weights(cell.kernel, rows, dual, at)


def _median(kernel: Kernel, rows: Rows, seed: int = 0) -> Kernel:
    return replace(kernel, gamma="median").resolve(rows, seed=seed)

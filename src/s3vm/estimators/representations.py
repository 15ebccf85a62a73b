"""How to look at the rows: cost, kernel, weights of columns and directions, by cross-validation on the labelled rows.

All of this is supervised, except that gradients and directions are taken at unlabelled rows, too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from s3vm import philox
from s3vm._utils.arrays import host, project, stack
from s3vm._utils.scores import brier_losses, predicted_codes
from s3vm._utils.typing import Array, Rows
from s3vm.estimators.candidates import Representation
from s3vm.estimators.planning import Tuning, has_candidates, one_against_rest
from s3vm.estimators.preparation import PreparedRows
from s3vm.estimators.safety import standard_errors
from s3vm.kernels import Kernel, Laplacian, has_own
from s3vm.philox import Purpose
from s3vm.problem.projection import column_weights, principal_directions
from s3vm.solvers.supervised import in_steps, labeled_gram

_USUAL_C, _USUAL_FACTOR = 10.0, 2.0  # do well on most sets; the factor is of the median width
_MORE_ERRORS, _NOISE = 2, 0.5
_MAX_STEPS = 50_000  # of the SVM in a cell; on real sets at most half of that were needed
_DIRECTIONS = (4, 16, 32)
_FEWEST_COLUMNS = 40  # from which on directions are tried
_MOST_COLUMNS = 2_000  # that weights are learnt for, one gradient each
_GRADIENT_ROWS, _SAMPLE = 300, 2_000  # unlabelled rows for gradients and for directions


class Grid(NamedTuple):
    """The costs and the factors on a kernel's width that are tried on labelled rows."""

    X: Rows
    codes: Array
    cost: Array  # of each row at C = 1
    folds: Array  # -1 for rows that are never held out
    Cs: list[float]
    factors: list[float]
    groups: Array | None = None
    at: Array | None = None  # the numbers of the rows among all labelled ones, if they are some of these

    def around(self, cell: "Cell", kernel: Kernel) -> "Grid":
        """The part of the grid around a cell of `kernel`."""
        ratio = cell.representation.kernel.width / kernel.width
        factor = int(np.argmin(np.abs(np.array(self.factors) - ratio)))
        places = self.Cs.index(cell.representation.C), factor
        near_C, near_factor = (slice(max(0, at - 1), at + 2) for at in places)
        return self._replace(Cs=self.Cs[near_C], factors=self.factors[near_factor])


class Cell(NamedTuple):
    """The best cell of a grid, and the Brier losses of the rows held out there."""

    representation: Representation
    losses: Array
    errors: Array  # of all cells, by C and factor
    groups: Array | None  # of the rows held out

    def clearly_beats(self, other: "Cell") -> bool:
        """Whether the losses are lower by a standard error, row by row."""
        return bool(standard_errors(self.losses - other.losses, self.groups) <= -1)


def best_cell(kernel: Kernel, grid: Grid, views: Sequence[Rows] = ()) -> Cell:
    """The cell of the grid of costs and widths that does best on held-out rows.

    A few hundred rows cannot distinguish good cells: the fewest errors are often luck. So a cell counts as good if its
    Brier score is within half a standard error of the best, row by row, and it makes at most two errors more than the
    fewest; of these, the one nearest to C = 10 and a factor of 2, on a logarithmic scale, is taken. `views` are the
    rows as the training part of each fold sees them, if that differs from fold to fold.
    """
    Cs, factors, known = grid.Cs, grid.factors, grid.folds >= 0
    groups = None if grid.groups is None else grid.groups[known]
    codes, cost = grid.codes[known], grid.cost[known]
    wrong, losses = np.ones((2, len(Cs), len(factors), len(codes)))
    for j, factor in enumerate(factors):
        grams = [labeled_gram(replace(kernel, gamma=factor * kernel.width), rows) for rows in views or [grid.X]]
        for i, C in enumerate(Cs):
            scores = _scores_held_out(grams, grid, C)
            if scores is not None:
                wrong[i, j] = predicted_codes(scores[known]) != codes
                losses[i, j] = brier_losses(codes, scores[known])
    weight = cost / cost.sum()
    errors, briers = wrong @ weight, losses @ weight
    errors[wrong.all(axis=2)] = 1  # to the last bit
    excess = losses - losses.reshape(-1, len(codes))[briers.argmin()]
    noise = np.sqrt((excess - (excess @ weight)[..., None]) ** 2 @ weight / len(codes))
    good = (errors <= errors.min() + (_MORE_ERRORS + 0.5) / len(codes)) & (excess @ weight <= _NOISE * noise)
    if not good.any():
        good = errors <= errors.min()
    distance = np.abs(np.log(Cs) - np.log(_USUAL_C))[:, None] + np.abs(np.log(factors) - np.log(_USUAL_FACTOR))
    row, column = divmod(int(np.where(good, distance, np.inf).argmin()), len(factors))
    chosen = replace(kernel, gamma=factors[column] * kernel.width)
    return Cell(Representation(chosen, float(Cs[row])), losses[row, column], errors, groups)


def _scores_held_out(grams: list[Array], grid: Grid, C: float) -> Array | None:
    """The score of each row by the SVM trained without its fold; None if one needs too many steps.

    There is one kernel matrix for all folds, or one for each.
    """
    if not all(np.isfinite(gram).all() for gram in grams):
        return None
    folds, targets = grid.folds, one_against_rest(grid.codes)
    n_folds, n_outputs = int(folds.max()) + 1, targets.shape[1]
    scores = np.full(targets.shape, np.nan)
    for number, gram in enumerate(grams):
        part = np.arange(n_folds) if len(grams) == 1 else np.array([number])
        costs = C * grid.cost[:, None] * np.repeat(folds[:, None] != part, n_outputs, axis=1)
        dual, intercept, is_solved = in_steps(gram, np.tile(targets, len(part)), costs, _MAX_STEPS)
        if not is_solved:
            return None
        by_fold = (gram @ dual + intercept).reshape(len(folds), len(part), n_outputs)
        at = np.flatnonzero(np.isin(folds, part))
        scores[at] = by_fold[at, np.searchsorted(part, folds[at])]
    return scores


def tune_representations(kernel: Kernel, grid: Grid, settings: Any, sample: Rows, seed: int) -> tuple[Tuning, Array]:
    """The kernel and the weights of columns of the supervised solution, and directions for the candidates.

    `sample` are unlabelled rows. Also returns the error of each cell of the grid for `kernel`.
    """
    rows = stack([grid.X, sample])
    kernels = [kernel, Laplacian("median").resolve(rows, seed=seed)] if settings.kernel == "auto" else [kernel]
    at = sample[philox.distinct(seed, Purpose.UNLABELED, 2, _GRADIENT_ROWS, int(sample.shape[0]))]
    first, *cells = [cell for each in kernels for cell in _cells(each, grid, at)]
    better = [cell for cell in cells if cell.clearly_beats(first)]
    best = min(better, key=lambda cell: float(cell.losses.mean()), default=first)
    others = []
    for projection, mapped in _directions(settings, rows, seed):
        cell = best_cell(_median(kernel, mapped, seed), grid._replace(X=mapped[: len(grid.codes)]))
        others.append(cell.representation._replace(projection=projection))
    return Tuning(best.representation, tuple(others), gain=_gain(first, best)), first.errors


def usual_representations(kernel: Kernel, C: float, settings: Any, data: PreparedRows, seed: int) -> Tuning:
    """The kernel as it is, and directions in kernels of their median width, with nothing tuned."""
    tuning = Tuning(Representation(kernel, C))
    if settings.n_components != "auto" or data.source is None or not has_candidates(settings, data):
        return tuning
    rows = stack([data.X, host(data.source.sample(seed, _SAMPLE))])
    directions = _directions(settings, rows, seed)
    others = [Representation(_median(kernel, mapped, seed), C, projection) for projection, mapped in directions]
    return tuning._replace(others=tuple(others))


def _cells(kernel: Kernel, grid: Grid, at: Rows) -> Iterator[Cell]:
    """The best cell with the columns as they are, and with columns weighted by the gradients at some rows."""
    cell = best_cell(kernel, grid)
    yield cell
    if not has_own(kernel, "gradient") or not 1 < grid.X.shape[1] <= _MOST_COLUMNS:
        return

    def learn(in_training: Array) -> Array:
        """Column weights by the SVM of some labelled rows."""
        rows, targets = grid.X[in_training], one_against_rest(grid.codes)[in_training]
        costs = np.repeat(cell.representation.C * grid.cost[in_training, None], targets.shape[1], axis=1)
        chosen = cell.representation.kernel
        dual, _, _ = in_steps(labeled_gram(chosen, rows), targets, costs, _MAX_STEPS)
        return column_weights(chosen, rows, dual, at)

    def relearn(in_training: Array) -> Array:
        return learn(in_training if grid.at is None else in_training[grid.at])

    weights = learn(np.ones(len(grid.codes), dtype=bool))
    views = [project(grid.X, learn(grid.folds != fold)) for fold in range(int(grid.folds.max()) + 1)]
    weighted = best_cell(_median(kernel, project(grid.X, weights)), grid.around(cell, kernel), views)
    yield weighted._replace(representation=weighted.representation._replace(projection=weights, relearn=relearn))


def _gain(first: Cell, best: Cell) -> str:
    """What the SVM gains by column weights, or by another kernel."""
    if best is first:
        return ""
    before, after = first.representation, best.representation
    kernel = f"the {type(after.kernel).__name__} kernel" * (type(after.kernel) is not type(before.kernel))
    cause = " with ".join(filter(None, [kernel, "column weights" * (after.projection is not None)]))
    lowered = 1 - best.losses.mean() / first.losses.mean()
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


def _median(kernel: Kernel, rows: Rows, seed: int = 0) -> Kernel:
    return replace(kernel, gamma="median").resolve(rows, seed=seed)

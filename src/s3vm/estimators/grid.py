"""C and the kernel's width of the supervised SVM, by cross-validation on the labelled rows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from s3vm._utils.scores import brier_losses, predicted_codes
from s3vm._utils.typing import Array, Rows
from s3vm.estimators.planning import one_against_rest
from s3vm.estimators.safety import standard_errors
from s3vm.kernels import Kernel
from s3vm.solvers.supervised import in_steps, labeled_gram

_USUAL_C, _USUAL_FACTOR = 10.0, 2.0  # do well on most sets; the factor is of the median width
_MORE_ERRORS, _NOISE = 2, 0.5
_MAX_STEPS = 50_000  # of the SVM in a cell; on real sets at most half of that were needed


class LabeledRows(NamedTuple):
    """The labelled rows of a grid search, their folds, and the cost of each at C = 1.

    `at` are their numbers among all labelled rows; None means all of them.
    """

    X: Rows
    codes: Array
    cost: Array
    folds: Array  # -1 for rows that are never held out
    groups: Array | None = None
    at: Array | None = None


class Grid(NamedTuple):
    """The costs and the factors on a kernel's width that are tried on labelled rows."""

    data: LabeledRows
    Cs: list[float]
    factors: list[float]

    def around(self, cell: "Cell", kernel: Kernel) -> "Grid":
        """The part of the grid around a cell of `kernel`."""
        C, factor = (
            self.Cs.index(cell.C),
            int(np.argmin(np.abs(np.array(self.factors) - cell.kernel.width / kernel.width))),
        )
        near_C, near_factor = (slice(max(0, at - 1), at + 2) for at in (C, factor))
        return self._replace(Cs=self.Cs[near_C], factors=self.factors[near_factor])


class Cell(NamedTuple):
    """The best cell of a grid, and the Brier losses of the rows held out there."""

    C: float
    kernel: Kernel
    losses: Array
    errors: Array  # of all cells, by C and factor
    groups: Array | None  # of the rows held out

    def clearly_beats(self, other: "Cell") -> bool:
        """Whether the losses are lower by a standard error, row by row."""
        return bool(standard_errors(self.losses - other.losses, self.groups) <= -1)


def best_cell(kernel: Kernel, grid: Grid, views: Sequence[Rows] | None = None) -> Cell:
    """The cell of the grid of costs and widths that does best on held-out rows.

    A few hundred rows cannot distinguish good cells: the fewest errors are often luck. So a cell counts as good if its
    Brier score is within half a standard error of the best, row by row, and it makes at most two errors more than the
    fewest; of these, the one nearest to C = 10 and a factor of 2, on a logarithmic scale, is taken. `views` are the
    rows as the training part of each fold sees them, if that differs from fold to fold.
    """
    data, Cs, factors = grid
    known = data.folds >= 0
    groups = None if data.groups is None else data.groups[known]
    codes, cost = data.codes[known], data.cost[known]
    wrong, losses = np.empty((2, len(Cs), len(factors), len(codes)))
    for j, factor in enumerate(factors):
        grams = [labeled_gram(replace(kernel, gamma=factor * kernel.width), rows) for rows in views or [data.X]]
        for i, C in enumerate(Cs):
            scores = _scores_held_out(grams, data, C)
            if scores is None:
                wrong[i, j] = losses[i, j] = 1
            else:
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
    width = factors[column] * kernel.width
    return Cell(float(Cs[row]), replace(kernel, gamma=width), losses[row, column], errors, groups)


def _scores_held_out(grams: list[Array], data: LabeledRows, C: float) -> Array | None:
    """The score of each row by the SVM trained without its fold; None if one needs too many steps.

    There is one kernel matrix for all folds, or one for each.
    """
    if not all(np.isfinite(gram).all() for gram in grams):
        return None
    folds, targets = data.folds, one_against_rest(data.codes)
    n_folds, n_outputs = int(folds.max()) + 1, targets.shape[1]
    scores = np.full(targets.shape, np.nan)
    for number, gram in enumerate(grams):
        part = np.arange(n_folds) if len(grams) == 1 else np.array([number])
        costs = C * data.cost[:, None] * np.repeat(folds[:, None] != part, n_outputs, axis=1)
        dual, intercept, is_solved = in_steps(gram, np.tile(targets, len(part)), costs, _MAX_STEPS)
        if not is_solved:
            return None
        by_fold = (gram @ dual + intercept).reshape(len(folds), len(part), n_outputs)
        at = np.flatnonzero(np.isin(folds, part))
        scores[at] = by_fold[at, np.searchsorted(part, folds[at])]
    return scores

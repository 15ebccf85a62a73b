"""C and the kernel's width, by cross-validation on the labelled rows: first of the supervised SVM, then of ours."""

import time
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from s3vm._utils.arrays import host
from s3vm._utils.progress import ProgressBar
from s3vm._utils.scores import brier_losses
from s3vm._utils.settings import check, integer
from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.estimators.choice import choose_model, finite_model
from s3vm.estimators.classifier import S3VMClassifier
from s3vm.estimators.folds import N_FOLDS, some_rows, stratified_folds
from s3vm.estimators.planning import Tuning, has_candidates, make_plan
from s3vm.estimators.preparation import PreparedRows
from s3vm.estimators.representations import Grid, best_cell, tune_representations, usual_representations
from s3vm.estimators.safety import FEW_LABELS, required_z, standard_errors
from s3vm.estimators.settings import inherits_settings, numbers_above_0
from s3vm.kernels import Gamma, Kernel, KernelName
from s3vm.solvers import Solver, SolverName, solver
from s3vm.sources import ArraySource
from s3vm.training.loop import StoppingRules, train

_FEW_LABELS_C = 30.0
_GRID_ROWS, _GRID_CLASSES = 1_000, 20  # labelled rows by which the grid is searched, and their classes
_PILOT_ROWS, _PILOT_ITERATIONS = 2_000, 400  # unlabelled rows with which a width is chosen, and iterations
_NEIGHBOR_OCTAVES = 1.5  # how far another width may be away
_CLEARLY_BETTER_Z = -1.5  # of the Brier loss, for another width if unlabelled rows help at the first


class S3VMClassifierCV(S3VMClassifier):
    """`S3VMClassifier` that chooses C and the kernel's width by cross-validation on the labelled rows.

    The grid is searched with the supervised SVM, which a few hundred labelled rows make cheap, by its errors and its
    Brier score on held-out rows (see `best_cell`); of more than 1,000 labelled rows, with some of them. Another kernel
    and learnt weights of the columns are taken where they beat it by a standard error, row by row. Candidates of what
    the unlabelled rows know are then compared as by `S3VMClassifier`, also on 4, 16 and 32 principal directions if
    there are more than 40 columns.

    With another solver and ``unlabeled_weight="auto"``, neighbouring widths are tried with 2,000 of the unlabelled
    rows, and one is taken where its Brier score is clearly lower. After `max_seconds`, no other width is tried.

    With fewer than 40 labelled rows there is too little to choose by: C is 30 and the width is `gamma`, unless `Cs` or
    `factors` has a single entry.

    Parameters
    ----------
    Cs : sequence of float, default (0.3, 1, 3, 10, 30, 100, 1000)
    kernel : as in `S3VMClassifier`, or "auto", the default
        ``"auto"`` is the RBF kernel, or the Laplacian one where it is clearly better.
    factors : sequence of float, default (0.25, 0.5, 1, 2, 4, 8)
        The widths tried, as multiples of `gamma`.
    gamma : float, "scale" or "median", default "median"
    n_folds : int, default 5
    solver, unlabeled_weight, neighbor_weight, n_neighbors, max_rows, n_components, loss, labeled_loss,
    class_prior, class_weight, unlabeled, probability, backend, dtype, cache_bytes, n_jobs, random_state, verbose,
    max_seconds, early_stopping
        As in `S3VMClassifier`.

    Attributes
    ----------
    C_ : float
        The chosen cost.
    kernel_ : Kernel
        The kernel with the chosen width.
    cv_errors_ : array of shape (len(Cs), len(factors)) or None
        Error on held-out rows of each cell of the grid; 1 where the SVM needs too many steps.
    cv_gammas_ : array of shape (len(factors),) or None
        The widths of its columns.
    cv_briers_ : dict of width to float, or None
        The Brier score on held-out rows of the width that the SVM would have, first, and of neighbouring ones: with
        unlabelled rows if they help there, else without. None if others were not tried.
    """

    cv_errors_: Array | None
    cv_gammas_: Array | None
    cv_briers_: dict[float, float] | None

    @inherits_settings(S3VMClassifier, without=("C", "warm_start"))
    def __init__(
        self,
        solver: SolverName | Solver = "auto",
        *,
        kernel: KernelName | Kernel = "auto",
        gamma: Gamma = "median",
        n_components: int | Literal["auto"] | None = "auto",
        Cs: Sequence[float] = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0),
        factors: Sequence[float] = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
        n_folds: int = 5,
        **settings: Any,
    ) -> None:
        super().__init__(solver, kernel=kernel, gamma=gamma, n_components=n_components, **settings)
        self.Cs = Cs
        self.factors = factors
        self.n_folds = n_folds

    def _check_settings(self) -> None:
        super()._check_settings()
        check("Cs", self.Cs, numbers_above_0)
        check("factors", self.factors, numbers_above_0)
        check("n_folds", self.n_folds, integer(2))

    def _tune(self, resolved: Kernel, data: PreparedRows, seed: int, backend: Backend) -> Tuning:
        Cs, factors = ([float(value) for value in values] for values in (self.Cs, self.factors))
        folds = stratified_folds(data.codes, self.n_folds, seed, 1, data.groups)
        report: dict[str, Any] = {"cv_errors_": None, "cv_gammas_": None, "cv_briers_": None}
        if len(data.codes) < FEW_LABELS or folds.max() < 1:
            C, factor = Cs[0] if len(Cs) == 1 else _FEW_LABELS_C, factors[0] if len(factors) == 1 else 1.0
            usual = replace(resolved, gamma=factor * resolved.width)
            return usual_representations(usual, C, self, data, seed)._replace(report=report)
        grid = _grid_of(data, folds, seed, Cs, factors)
        widths = resolved.width * np.array(factors)
        if data.source is not None and has_candidates(self, data):
            sample = host(data.source.sample(seed, _PILOT_ROWS))
            tuning, errors = tune_representations(resolved, grid, self, sample, seed)
            return tuning._replace(report=report | {"cv_errors_": errors, "cv_gammas_": widths})
        cell = best_cell(resolved, grid)
        kernel, errors = cell.representation.kernel, cell.errors
        report |= {"cv_errors_": errors, "cv_gammas_": widths}
        tuning = Tuning(cell.representation, report=report)
        octaves = np.abs(np.log2(widths / kernel.width))
        neighbors = widths[
            (errors[Cs.index(cell.representation.C)] < 1) & (octaves > 0) & (octaves < _NEIGHBOR_OCTAVES)
        ]
        pilot_solver = solver(self.solver).pilot(_PILOT_ITERATIONS)
        if data.source is None or self.unlabeled_weight != "auto" or pilot_solver is None or not len(neighbors):
            return tuning
        pilots = self._pilots(tuning, neighbors, pilot_solver, data, seed, backend)
        report["cv_briers_"] = {width: float(losses.mean()) for width, (_, losses) in pilots.items()}
        return tuning._replace(kernel=replace(kernel, gamma=_best_width(kernel.width, pilots)))

    def _pilots(
        self, tuning: Tuning, neighbors: Array, solver: Solver, data: PreparedRows, seed: int, backend: Backend
    ) -> "dict[float, _Pilot]":
        """Short runs at the kernel's width and at the neighbouring ones; widths that cannot be trained are left out."""
        assert data.source is not None
        data = data._replace(source=ArraySource(data.source.sample(seed, _PILOT_ROWS), None, self.dtype))
        kernel = tuning.supervised.kernel
        short = copy(self).set_params(neighbor_weight="auto")  # no graph
        progress = ProgressBar(0 if callable(self.verbose) else self.verbose, unit="widths")
        pilots: dict[float, _Pilot] = {}
        start = time.monotonic()
        try:
            for width in (kernel.width, *map(float, neighbors)):
                at_width = Tuning(tuning.supervised._replace(kernel=replace(kernel, gamma=width)))
                try:
                    pilots[width] = _pilot(short, solver, data, at_width, seed, backend)
                except (ValueError, MemoryError):
                    if not pilots:
                        raise
                progress(len(pilots), 1 + len(neighbors), {})
                if self.max_seconds is not None and time.monotonic() - start > self.max_seconds:
                    break
        finally:
            progress.close()
        return pilots


def _grid_of(data: PreparedRows, folds: Array, seed: int, Cs: list[float], factors: list[float]) -> Grid:
    """The grid on the labelled rows, or on some of very many."""
    cost = data.weight * data.factor
    if len(data.codes) <= _GRID_ROWS:
        return Grid(data.X, data.codes, cost, folds, Cs, factors, data.groups)
    at = some_rows(data.codes, folds, seed, _GRID_ROWS, _GRID_CLASSES)
    codes = np.unique(data.codes[at], return_inverse=True)[1]
    groups = None if data.groups is None else data.groups[at]
    return Grid(data.X[at], codes, cost[at], folds[at], Cs, factors, groups, at)


_Pilot = tuple[float, Array]
"""The weight of the unlabelled rows in a short run, and the Brier losses of labelled rows held out."""


def _pilot(settings: Any, solver: Solver, data: PreparedRows, tuning: Tuning, seed: int, backend: Backend) -> _Pilot:
    plan = make_plan(settings, solver, data, tuning, seed, N_FOLDS, backend)
    state, _ = train(solver, plan.problem, backend, rules=StoppingRules(keeps=False))
    _, scores, safety = choose_model(finite_model(state), plan, data.codes, data.groups, backend)
    known = np.isfinite(scores).all(axis=1)
    return safety.weight if safety is not None else 0.0, brier_losses(data.codes[known], scores[known])


def _best_width(first_width: float, pilots: dict[float, _Pilot]) -> float:
    """The width with the lowest Brier score, if unlabelled rows help there and it is clearly better than the first."""
    first_weight, first = pilots[first_width]
    z = required_z(len(first)) if first_weight == 0 else _CLEARLY_BETTER_Z
    better = {width: losses for width, (weight, losses) in pilots.items() if weight > 0}
    better = {width: losses for width, losses in better.items() if standard_errors(losses - first) <= z}
    return min(better, key=lambda width: float(better[width].mean()), default=first_width)

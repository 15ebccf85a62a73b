"""C and the kernel's width, by cross-validation on the labelled rows: first of the supervised SVM, then of ours."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from s3vm._utils.progress import Progress, ProgressBar
from s3vm._utils.scores import brier_losses, predicted_codes
from s3vm._utils.settings import is_whole, positive
from s3vm._utils.typing import Array, Rows
from s3vm.estimators.classifier import S3VMClassifier
from s3vm.estimators.columns import one_against_rest
from s3vm.estimators.folds import stratified_folds
from s3vm.estimators.safety import FEW_LABELS, Safety, needed, standard_errors
from s3vm.estimators.training_rows import TrainingRows
from s3vm.kernels import Gamma, Kernel
from s3vm.losses import LabelledLoss, UnlabelledLoss
from s3vm.model import Model
from s3vm.solvers import Solver, solver
from s3vm.solvers.supervised import in_steps, labelled_gram
from s3vm.sources import Source
from s3vm.training.early_stopping import EarlyStopping
from s3vm.training.loop import StoppingRules

__all__ = ["S3VMClassifierCV", "tune"]

_FEW_LABELS_C = 30.0
_USUAL_C, _USUAL_FACTOR = 10.0, 2.0  # do well on most sets; the factor is of the median width
_MORE_ERRORS, _NOISE = 2, 0.5
_PILOT, _PILOT_STEPS = 2_000, 400  # unlabelled rows by which a width is chosen, and iterations
_BESIDE = 1.5  # how many octaves away it may be
_SURELY = -1.5  # standard errors of the Brier loss by which another width must be better, if the first is good
_MOST_STEPS = 50_000  # of the SVM in a cell; on real sets at most half of that were needed


class S3VMClassifierCV(S3VMClassifier):
    """`S3VMClassifier` that chooses C and the kernel's width by cross-validation on the labelled rows.

    The grid is searched with the supervised SVM, which a few hundred labelled rows make cheap, by its errors and its
    Brier score on held-out rows (see `tune`). Clusters often have another width than the border between classes: with
    TSG and ``unlabeled_weight="auto"``, the widths beside it on the grid are tried with a sample of 2,000 unlabelled
    rows in place. One at which they help is taken if its Brier score on held-out labelled rows is clearly lower: by 1.5
    standard errors, row by row; where unlabelled rows do not help at the first width, by half of one (a whole one with
    fewer than 100 labelled rows). Their weight is then chosen as `S3VMClassifier` does; if it is 0, the model is the
    SVM at its own width. All this takes about as long as three fits of 2,000 rows; when `max_seconds` are
    over, no other width is tried.

    With fewer than 40 labelled rows there is nothing to choose by: C is 30 and the width is `gamma`, unless `Cs` or
    `factors` has a single entry.

    Parameters
    ----------
    Cs : sequence of float, default (0.3, 1, 3, 10, 30, 100, 1000)
    factors : sequence of float, default (0.25, 0.5, 1, 2, 4, 8)
        The widths tried, as multiples of `gamma`.
    gamma : float, "scale" or "median", default "median"
    n_folds : int, default 5
    solver, kernel, unlabeled_weight, loss, labeled_loss, class_prior, class_weight, unlabeled, probability, backend,
    dtype, cache_bytes, n_jobs, random_state, verbose, max_seconds, early_stopping
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
        The Brier score on held-out rows of the width that the SVM would have, first, and of those beside it: with
        unlabelled rows in place if they help there, else without. None if others were not tried.
    """

    cv_errors_: Array | None
    cv_gammas_: Array | None
    cv_briers_: dict[float, float] | None

    def __init__(
        self,
        solver: str | Solver = "tsg",
        *,
        kernel: str | Kernel = "rbf",
        gamma: Gamma = "median",
        Cs: Sequence[float] = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0),
        factors: Sequence[float] = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
        n_folds: int = 5,
        unlabeled_weight: float | Literal["auto", "paper"] = "auto",
        loss: str | UnlabelledLoss = "auto",
        labeled_loss: str | LabelledLoss = "auto",
        class_prior: Any = None,
        class_weight: Any = None,
        unlabeled: Any = -1,
        probability: bool = True,
        backend: str = "auto",
        dtype: str = "float32",
        cache_bytes: int | Literal["auto"] = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int | Progress = 0,
        max_seconds: float | None = None,
        early_stopping: EarlyStopping = None,
    ) -> None:
        super().__init__(
            solver,
            kernel=kernel,
            gamma=gamma,
            unlabeled_weight=unlabeled_weight,
            loss=loss,
            labeled_loss=labeled_loss,
            class_prior=class_prior,
            class_weight=class_weight,
            unlabeled=unlabeled,
            probability=probability,
            backend=backend,
            dtype=dtype,
            cache_bytes=cache_bytes,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
            max_seconds=max_seconds,
            early_stopping=early_stopping,
        )
        self.Cs = Cs
        self.factors = factors
        self.n_folds = n_folds

    def _cost_and_kernel(
        self, resolved: Kernel, labelled: TrainingRows, cost: Array, source: Source | None, seed: int
    ) -> tuple[float, Kernel, Kernel]:
        for name in ("Cs", "factors"):
            values = getattr(self, name)
            if not isinstance(values, Sequence | np.ndarray) or len(values) == 0:
                raise ValueError(f"{name}={values!r} is not valid: give a sequence of numbers above 0")
            for value in values:
                positive(name, value)
        if not is_whole(self.n_folds, 2):
            raise ValueError(f"n_folds={self.n_folds!r} is not valid: give a whole number of at least 2")
        Cs, factors = ([float(value) for value in values] for values in (self.Cs, self.factors))
        codes = np.unique(labelled.y, return_inverse=True)[1]
        folds = stratified_folds(codes, self.n_folds, seed, draw=1)
        self.cv_errors_ = self.cv_gammas_ = self.cv_briers_ = None
        if len(codes) < FEW_LABELS or folds.max() == 0:
            C, factor = Cs[0] if len(Cs) == 1 else _FEW_LABELS_C, factors[0] if len(factors) == 1 else 1.0
            usual = replace(resolved, gamma=factor * resolved.width)
            return C, usual, usual
        targets = one_against_rest(codes)
        C, chosen, self.cv_errors_ = tune(resolved, labelled.X, targets, codes, cost, folds, Cs, factors)
        self.cv_gammas_ = resolved.width * np.array(factors)
        steps = np.abs(np.log2(self.cv_gammas_ / chosen.width))
        beside = self.cv_gammas_[(self.cv_errors_[Cs.index(C)] < 1) & (steps > 0) & (steps < _BESIDE)]
        pilot = solver(self.solver).pilot(_PILOT_STEPS)
        if source is None or self.unlabeled_weight != "auto" or pilot is None or not len(beside):
            return C, chosen, chosen
        return C, self._in_place(C, chosen, beside, labelled, cost, source.sample(seed, _PILOT), seed), chosen

    def _in_place(
        self, C: float, kernel: Kernel, others: Array, labelled: TrainingRows, cost: Array, sample: Rows, seed: int
    ) -> Kernel:
        """The kernel, or the same with one of the `other` widths, if that is better with unlabelled rows in place."""
        short_run = solver(self.solver).pilot(_PILOT_STEPS)
        assert short_run is not None
        same = ("loss", "labeled_loss", "class_prior", "unlabeled", "backend", "dtype", "cache_bytes", "n_jobs")
        settings: dict[str, Any] = {name: getattr(self, name) for name in same}
        settings["class_weight"] = dict(zip(labelled.y.tolist(), (cost / labelled.weight).tolist(), strict=True))
        progress = ProgressBar(0 if callable(self.verbose) else self.verbose, unit="widths")
        pilots: dict[float, _Pilot] = {}
        start = time.monotonic()
        try:
            for width in (kernel.width, *map(float, others)):
                pilot = _Pilot(
                    short_run,
                    kernel=replace(kernel, gamma=width),
                    C=C,
                    probability=False,
                    random_state=seed,
                    **settings,
                )
                try:
                    pilots[width] = pilot.run(labelled, sample)
                except (ValueError, MemoryError):
                    if not pilots:
                        raise
                progress(len(pilots), 1 + len(others), {})
                if self.max_seconds is not None and time.monotonic() - start > self.max_seconds:
                    break
        finally:
            progress.close()
        first = pilots[kernel.width]
        self.cv_briers_ = {width: float(pilot.losses.mean()) for width, pilot in pilots.items()}
        needs = needed(len(first.losses)) if first.weight == 0 else _SURELY
        better = [
            width
            for width, pilot in pilots.items()
            if pilot.weight > 0 and standard_errors(pilot.losses - first.losses) <= needs
        ]
        best = min(better, key=self.cv_briers_.__getitem__, default=kernel.width)
        return replace(kernel, gamma=best)


class _Pilot(S3VMClassifier):
    """A short run: what it learns is how well rows are predicted that were left out."""

    losses: Array  # of Brier, of the labelled rows
    weight: float  # of the unlabelled ones

    def run(self, labelled: TrainingRows, sample: Rows) -> "_Pilot":
        seen, source = self._given(*labelled, sample, reset=True)
        self._learn(seen, None, source=source, rules=StoppingRules(keeps=False))
        return self

    def _choice(self, *args: Any, codes: Array, **rest: Any) -> tuple[Model, Array, Safety | None]:
        chosen, held_out, safety = super()._choice(*args, codes=codes, **rest)
        known = np.isfinite(held_out).all(axis=1)
        self.losses, self.weight = brier_losses(codes[known], held_out[known]), safety.weight if safety else 0.0
        return chosen, held_out, safety

    def _warn_of_collapse(self, source: Source | None, codes: Array, weight: Array) -> None:
        """It is not the model that anyone will have."""


def tune(
    kernel: Kernel,
    rows: Rows,
    targets: Array,
    codes: Array,
    cost: Array,
    folds: Array,
    Cs: Sequence[float],
    factors: Sequence[float],
) -> tuple[float, Kernel, Array]:
    """The cell of the grid `Cs` times ``factors * kernel.width`` that does best on held-out rows.

    A few hundred rows cannot tell good cells from each other: the fewest errors are often luck. So every cell counts as
    good whose Brier score is within half a standard error of the best, row by row, and which makes at most two errors
    more than the fewest; of these, the one nearest to C = 10 and a factor of 2, in steps of the logarithm, is taken.
    `cost` is the cost of each row at C = 1, `folds` their folds.

    Returns
    -------
    C : float
    kernel : Kernel
        With the chosen width.
    errors : array of shape (len(Cs), len(factors))
    """
    n_folds, n_outputs = int(folds.max()) + 1, targets.shape[1]
    kept = np.repeat(folds[:, None] != np.arange(n_folds), n_outputs, axis=1)
    everyone = np.arange(len(codes))
    wrong, losses = np.empty((2, len(Cs), len(factors), len(codes)))
    for j, factor in enumerate(factors):
        gram = labelled_gram(replace(kernel, gamma=factor * kernel.width), rows)
        if not np.isfinite(gram).all():
            wrong[:, j] = losses[:, j] = 1
            continue
        for i, C in enumerate(Cs):
            costs = C * cost[:, None] * kept
            dual, intercept, is_solved = in_steps(gram, np.tile(targets, n_folds), costs, _MOST_STEPS)
            if not is_solved:
                wrong[i, j] = losses[i, j] = 1
                continue
            scores = (gram @ dual + intercept).reshape(len(codes), n_folds, n_outputs)[everyone, folds]
            wrong[i, j], losses[i, j] = predicted_codes(scores) != codes, brier_losses(codes, scores)
    share = cost / cost.sum()
    errors, briers = wrong @ share, losses @ share
    errors[wrong.all(axis=2)] = 1  # to the last bit
    behind = losses - losses.reshape(-1, len(codes))[briers.argmin()]
    noise = np.sqrt((behind - (behind @ share)[..., None]) ** 2 @ share / len(codes))
    good = (errors <= errors.min() + (_MORE_ERRORS + 0.5) / len(codes)) & (behind @ share <= _NOISE * noise)
    if not good.any():
        good = errors <= errors.min()
    away = np.abs(np.log(Cs) - np.log(_USUAL_C))[:, None] + np.abs(np.log(factors) - np.log(_USUAL_FACTOR))
    row, column = divmod(int(np.where(good, away, np.inf).argmin()), len(factors))
    return float(Cs[row]), replace(kernel, gamma=factors[column] * kernel.width), errors

"""The second step of a fit: the problem, whose columns are classes, folds held out, and weights to choose from."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.estimators.columns import class_priors, make_columns
from s3vm.estimators.folds import N_FOLDS, folds_by_content, held_out_groups
from s3vm.estimators.preparation import PreparedRows
from s3vm.estimators.safety import FEW_LABELS
from s3vm.estimators.settings import losses_of
from s3vm.kernels import Kernel
from s3vm.problem import Problem
from s3vm.solvers import Solver
from s3vm.solvers.supervised import supervised_start
from s3vm.sources import ENDLESS
from s3vm.training.memory_check import check_memory

__all__ = ["Plan", "Tuning", "make_plan", "with_supervised"]

_AUTO_WEIGHTS = (1.0, 0.3)
_FEW_LABELS_WEIGHTS = (0.1,)


class Tuning(NamedTuple):
    """The cost and the kernel of a fit."""

    C: float  # of a labelled row of weight 1
    kernel: Kernel  # with a numeric width
    supervised_kernel: Kernel  # of the SVM of the labelled rows, with which unlabelled rows have to compete
    report: dict[str, Any] = {}  # noqa: RUF012 - never changed; attributes of the estimator that say how they were chosen


class Plan(NamedTuple):
    """A problem, and what its columns stand for: `weights`, times `held_out`, times classes against the rest."""

    problem: Problem
    weights: list[float]
    held_out: Array
    tuning: Tuning
    chooses_weight: bool  # whether the supervised solution and several weights are compared

    @property
    def n_folds(self) -> int:
        return self.held_out.shape[1] - 1


def make_plan(
    settings: Any, solver: Solver, data: PreparedRows, tuning: Tuning, seed: int, *, n_folds: int, rows_will_come: bool
) -> Plan:
    """The problem to solve. Where other rows will come, folds and weights depend on none of those there are now."""
    weights = _weights(settings.unlabeled_weight, len(data.codes), data.n_unlabeled, rows_will_come)
    if settings.probability or settings.unlabeled_weight == "auto":
        fixed_folds = folds_by_content(data.X, N_FOLDS) if rows_will_come else None
        held_out = held_out_groups(data.codes, n_folds, seed, fixed_folds)
    else:
        held_out = np.zeros((len(data.codes), 1), dtype=bool)
    priors = class_priors(settings.class_prior, len(data.classes), data.codes, data.weight, held_out)
    labeled_loss, unlabeled_loss = losses_of(settings, solver)
    problem = Problem(
        labelled=data.X,
        unlabelled=data.source,
        kernel=tuning.kernel,
        labelled_loss=labeled_loss,
        unlabelled_loss=unlabeled_loss,
        seed=seed,
        prior_is_known=settings.class_prior is not None,
        **make_columns(weights, held_out, data.codes, tuning.C * data.weight * data.factor, priors),
    )
    chooses_weight = settings.unlabeled_weight == "auto" and data.source is not None
    return Plan(problem, weights, held_out, tuning, chooses_weight)


def with_supervised(plan: Plan, solver: Solver, backend: Backend) -> Plan:
    """The plan with the supervised solution, from which solvers start, if it is one of the choices."""
    if not plan.chooses_weight:
        return plan
    check_memory(solver, plan.problem, backend)  # before the first large matrix is made
    return plan._replace(problem=replace(plan.problem, supervised=supervised_start(plan.problem)))


def _weights(unlabeled_weight: Any, n_labeled: int, n_unlabeled: int, rows_will_come: bool) -> list[float]:
    """The weights of the unlabelled rows to try; the history describes the first."""
    if n_unlabeled == 0:
        return [0.0]
    if unlabeled_weight == "auto":
        has_few = rows_will_come or n_labeled < FEW_LABELS
        return [*_AUTO_WEIGHTS, *_FEW_LABELS_WEIGHTS] if has_few else list(_AUTO_WEIGHTS)
    if unlabeled_weight == "paper":
        if n_unlabeled == ENDLESS:
            raise ValueError(
                'unlabeled_weight="paper" needs the number of unlabelled rows, which this source does not know'
            )
        return [n_labeled / n_unlabeled]
    return [float(unlabeled_weight)]

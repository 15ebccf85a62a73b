"""Rows that come over time: what `partial_fit` remembers of them."""

from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

from s3vm._utils.settings import check, integer
from s3vm.estimators.folds import newest_labels
from s3vm.estimators.labels import split_labels
from s3vm.estimators.preparation import SAMPLE
from s3vm.estimators.resuming import ResumePoint
from s3vm.estimators.training_rows import TrainingRows
from s3vm.solvers import Solver
from s3vm.sources.reservoir import ReservoirSource

__all__ = ["Arrival", "arrive", "check_max_labeled"]


class Arrival(NamedTuple):
    """The labelled rows that are remembered, and the source of the unlabelled ones, which still has the newest."""

    labeled: TrainingRows
    unlabeled: ReservoirSource


def check_max_labeled(max_labeled: int | None, solver: Solver) -> None:
    if solver.keeps_all_rows and max_labeled is not None:
        raise ValueError(
            f"max_labeled={max_labeled!r} is for tsg and frs: this solver keeps all rows, and forget(rows) removes some"
        )
    check("max_labeled", max_labeled, integer(2), None)


def arrive(
    settings: Any,
    rows: TrainingRows,
    remembered: TrainingRows | None,
    previous: ResumePoint | None,
    max_labeled: int | None,
) -> Arrival:
    """New rows, split into labelled and unlabelled ones, after those that are `remembered` from earlier calls."""
    arrivals = ReservoirSource(SAMPLE, settings.dtype)
    if previous is not None and previous.arrivals is not None:
        arrivals = deepcopy(previous.arrivals)  # an error must leave the old ones as they are
    if remembered is not None:
        rows = remembered.and_then(rows)
    is_labeled, labels = split_labels(rows.y, settings.unlabeled)
    arrivals.add(rows.X[np.flatnonzero(~is_labeled)])
    at = np.flatnonzero(is_labeled)
    if max_labeled is not None:
        at = at[newest_labels(labels, max_labeled)]
    return Arrival(rows.at(at), arrivals)

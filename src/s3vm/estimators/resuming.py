"""What a fit leaves for the next one, what must be the same then, and which rows `partial_fit` remembers."""

from collections.abc import Hashable
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

from s3vm._utils.settings import check, integer
from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.estimators.folds import newest_labels
from s3vm.estimators.labels import is_labeled, split_labels
from s3vm.estimators.preparation import SAMPLE, TrainingRows
from s3vm.estimators.settings import fixed_settings
from s3vm.problem import Problem
from s3vm.solvers import Solver, State
from s3vm.sources.reservoir import ReservoirSource


class ResumePoint(NamedTuple):
    """What a fit leaves for its continuation."""

    state: State
    settings: tuple[Any, ...]  # those that must not change
    classes: Array
    n_folds: int
    C: float
    rows: TrainingRows | None = None  # all, if the solver keeps them; the labelled ones that `partial_fit` remembers
    arrivals: ReservoirSource | None = None  # the unlabelled rows of `partial_fit`
    directions: Array | None = None  # on which rows are projected

    def check_classes(self, classes: Array) -> None:
        if not np.array_equal(classes, self.classes):
            raise ValueError(
                f"training can only continue with the same classes, {self.classes.tolist()}, but these are "
                f"{classes.tolist()}; set warm_start=False, or call fit with all rows, to start again"
            )


def resume_point(estimator: Any) -> ResumePoint | None:
    """The resume point of an estimator, if it has one; a ValueError if settings have changed since."""
    point: ResumePoint | None = estimator._resume_point
    if point is not None and point.settings != fixed_settings(estimator):
        raise ValueError(
            "training can only continue with the same solver, kernel, gamma, C, n_components, dtype, probability and "
            "random_state; set warm_start=False, or call fit with all rows, to start again"
        )
    return point


def has_new_class(estimator: Any, previous: ResumePoint | None, rows: TrainingRows, announced: Any) -> bool:
    """Whether rows have a label for the first time that this or an earlier call of `partial_fit` announced."""
    if announced is not None:
        estimator._announced_classes = np.asarray(announced).tolist()
    labels = {
        label for label in rows.y[is_labeled(rows.y, estimator.unlabeled)].tolist() if isinstance(label, Hashable)
    }
    new = labels - set([] if previous is None else previous.classes.tolist())
    return previous is not None and bool(new) and new <= set(getattr(estimator, "_announced_classes", ()))


def all_rows(estimator: Any, missing: type[Exception] = ValueError) -> TrainingRows:
    """All rows given so far, which must not have changed; `missing` is raised if they were not kept."""
    fitted, point = estimator._fitted_rows, estimator._resume_point
    if fitted is not None:
        return fitted.unchanged()
    if point is not None and point.rows is not None and point.arrivals is None:
        return point.rows
    raise missing(
        "transduction_, partial_fit and forget need the training rows, which a model does not keep when it is loaded, "
        "copied, given X_unlabeled, or trained on a stream or on dask collections: predict(X) gives labels; to "
        "continue learning, begin with partial_fit, or call fit with all rows"
    )


def continued(
    chosen: Solver, problem: Problem, backend: Backend, previous: ResumePoint | None, arrivals: ReservoirSource | None
) -> tuple[Solver, State | None]:
    """The solver and the state to start from."""
    if previous is None:
        return chosen, None
    state = previous.state
    if arrivals is None:
        return chosen.extended(problem, state.iteration), state
    chosen = chosen.for_new_rows(state.iteration, arrivals.n_new)
    return chosen, chosen.follow(problem, backend, state)


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
) -> tuple[TrainingRows, ReservoirSource]:
    """The labelled rows that are remembered, and the source of the unlabelled ones, which still has the newest."""
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
    return rows.at(at), arrivals

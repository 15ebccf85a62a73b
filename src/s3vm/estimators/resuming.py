"""What a fit leaves behind for the next one, and what must be the same then."""

from typing import Any, NamedTuple

import numpy as np

from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.estimators.settings import fixed_settings
from s3vm.estimators.training_rows import FittedRows, TrainingRows
from s3vm.problem import Problem
from s3vm.solvers import Solver, State
from s3vm.sources.reservoir import ReservoirSource

__all__ = ["ResumePoint", "all_rows", "checked", "continued"]


class ResumePoint(NamedTuple):
    """What a fit leaves for its continuation.

    Attributes
    ----------
    state : of the solver
    settings : those that must not change
    classes, n_folds, C : as they were
    rows : all rows, if the solver keeps them; if there are `arrivals`, the labelled rows that are remembered
    arrivals : the unlabelled rows of `partial_fit`
    """

    state: State
    settings: tuple[Any, ...]
    classes: Array
    n_folds: int
    C: float
    rows: TrainingRows | None = None
    arrivals: ReservoirSource | None = None

    def check_classes(self, classes: Array) -> None:
        if not np.array_equal(classes, self.classes):
            raise ValueError(
                f"training can only continue with the same classes, {self.classes.tolist()}, but these are "
                f"{classes.tolist()}; set warm_start=False, or call fit with all rows, to start again"
            )


def checked(resume_point: ResumePoint | None, settings: Any) -> ResumePoint | None:
    """The resume point, if there is one; a ValueError if settings have changed since."""
    if resume_point is not None and resume_point.settings != fixed_settings(settings):
        raise ValueError(
            "training can only continue with the same solver, kernel, gamma, C, dtype, probability and random_state; "
            "set warm_start=False, or call fit with all rows, to start again"
        )
    return resume_point


def all_rows(fitted: FittedRows | None, resume_point: ResumePoint | None, missing: type[Exception]) -> TrainingRows:
    """All rows given so far, which must not have changed; `missing` is raised if they were not kept."""
    if fitted is not None:
        return fitted.unchanged()
    if resume_point is not None and resume_point.rows is not None and resume_point.arrivals is None:
        return resume_point.rows
    raise missing(
        "transduction_, partial_fit and forget need the training rows, which a model does not keep when it is loaded, "
        "copied or trained on a stream or on dask collections: predict(X) gives labels; to continue learning, begin "
        "with partial_fit, or call fit with all rows"
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

"""What every fit does: prepare the rows, plan the problem, train, choose."""

from typing import Any, NamedTuple

import numpy as np

from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.estimators.auto import learn_from_candidates
from s3vm.estimators.candidates import Representation
from s3vm.estimators.choice import Choice, calibrate, choose_model, finite_model, kept_if_memory_ends
from s3vm.estimators.folds import N_FOLDS
from s3vm.estimators.planning import Tuning, make_plan
from s3vm.estimators.preparation import (
    FittedRows,
    PreparedRows,
    TrainingRows,
    prepare,
    project_rows,
    resolve_kernel,
    warn_of_single_rows,
)
from s3vm.estimators.resuming import ResumePoint, continued
from s3vm.estimators.row_attributes import HeldOut
from s3vm.estimators.settings import fixed_settings, seed_of
from s3vm.solvers import Solver, is_auto, solver
from s3vm.sources import Source
from s3vm.sources.reservoir import ReservoirSource
from s3vm.training import checkpoints
from s3vm.training.history import join_histories, thin_history
from s3vm.training.loop import StoppingRules, train

_NAMED_IN_CHECKPOINTS = (
    "unlabeled_weight",
    "neighbor_weight",
    "n_neighbors",
    "max_rows",
    "n_components",
    "class_prior",
    "class_weight",
    "probability",
)


class Learned(NamedTuple):
    """The results of a fit."""

    given: TrainingRows
    directions: Array | None  # on which the rows were projected
    data: PreparedRows
    tuning: Tuning
    history: dict[str, Array]
    choice: Choice
    n_iter: int
    resume_point: ResumePoint | None = None


def learn(
    estimator: Any,
    rows: TrainingRows,
    backend: Backend,
    *,
    source: Source | None = None,
    rules: StoppingRules | None = None,
    previous: ResumePoint | None = None,
    expected_classes: Any = None,
    with_solver: Solver | None = None,
) -> Learned:
    """Learns from the rows, and from unlabelled ones of a source, continuing from `previous` if there is one.

    The parameters of the estimator are read, and its `_tune` is called; nothing is set.
    """
    rules = rules or StoppingRules(estimator.max_seconds, estimator.early_stopping)
    is_followed = isinstance(source, ReservoirSource)
    chosen = with_solver or solver(estimator.solver, is_followed)
    if source is not None and chosen.keeps_all_rows:
        raise ValueError(f"{type(chosen).__name__} keeps all rows: give them in X, marked in y, not as a source")
    seed = _seed(estimator, rules) if previous is None else previous.state.seed
    projected, directions = project_rows(
        estimator, rows, source, seed, None if previous is None else previous.directions
    )
    data = prepare(estimator, *projected)
    if expected_classes is not None and not np.isin(data.classes, np.unique(expected_classes)).all():
        others = np.setdiff1d(data.classes, expected_classes).tolist()
        raise ValueError(f"classes={expected_classes} is not valid: the rows also have {others}")
    if previous is not None:
        previous.check_classes(data.classes)
    warn_of_single_rows(data)
    if previous is None:
        tuning = estimator._tune(resolve_kernel(estimator, data, seed), data, seed, backend)
    else:
        tuning = Tuning(Representation(previous.state.kernel, previous.C))
    if data.arrivals is not None:
        chosen = chosen.for_streaming()
    n_folds = previous.n_folds if previous is not None and not chosen.keeps_all_rows else N_FOLDS
    if is_auto(estimator.solver) and not is_followed:
        history, choice = learn_from_candidates(estimator, data, tuning, seed, backend, rules)
        return Learned(rows, directions, data, tuning, history, choice, n_iter=1)
    plan = make_plan(estimator, chosen, data, tuning, seed, n_folds, backend)
    chosen, start = continued(chosen, plan.problem, backend, previous, data.arrivals)
    C = tuning.supervised.C
    named = {"C": repr(C), **{name: repr(getattr(estimator, name)) for name in _NAMED_IN_CHECKPOINTS}}
    state, history = train(chosen, plan.problem, backend, start, estimator.verbose, rules, named)
    trained, n_outputs = finite_model(state), plan.problem.n_models
    unknown = np.full((len(data.codes), n_outputs), np.nan)
    choice = Choice(trained.columns(slice(0, n_outputs)), unknown, None)  # the first weight
    with kept_if_memory_ends("to compare it with others"):
        choice = choose_model(trained, plan, data.codes, data.groups, backend)
    point = None
    if data.arrivals is not None or estimator.warm_start or chosen.keeps_all_rows:
        if data.arrivals is not None:
            data.arrivals.release()  # the newest rows have been learnt from
        kept = rows if chosen.keeps_all_rows or data.arrivals is not None else None
        fixed, n_folds = fixed_settings(estimator), plan.held_out.shape[1] - 1
        point = ResumePoint(state.detached(), fixed, data.classes, n_folds, C, kept, data.arrivals, directions)
    return Learned(rows, directions, data, tuning, history, choice, state.iteration, point)


def _seed(estimator: Any, rules: StoppingRules) -> int:
    """The seed of a new run; without a random_state, that of the checkpoint it resumes from."""
    if rules.resume and estimator.random_state is None:
        stored = checkpoints.seed_of(rules.checkpoint)
        if stored is not None:
            return stored
    return seed_of(estimator.random_state)


def attributes(
    estimator: Any, learned: Learned, backend: Backend, previous: ResumePoint | None = None
) -> dict[str, Any]:
    """What a fit sets on the estimator, all at once, since another thread may be predicting."""
    given, directions, data, tuning, history, choice, n_iter, resume_point = learned
    model = choice.model.after(directions)
    if previous is not None:
        history = thin_history(join_histories(estimator.history_, history))
    values = {
        "classes_": data.classes,
        "history_": history,
        "n_iter_": n_iter,
        "C_": tuning.supervised.C,
        "kernel_": model.kernel,
        "column_weights_": model.column_weights,
        "safety_": choice.safety,
        "model_": model,
        "_resume_point": resume_point,
        "_fitted_rows": None if data.is_streamed else FittedRows.of(given),
        "_labeled_rows": None,
        "_transduction": None,
        "threshold_": 0.0,
        **tuning.report,
    }
    temperature = None
    if estimator.probability:
        with kept_if_memory_ends("for predict_proba"):
            temperature = calibrate(choice, data, backend)
    if temperature is not None:
        values["_calibrator"] = temperature
    else:
        estimator.__dict__.pop("_calibrator", None)  # of another model
    return values | {"_held_out": HeldOut.of(data, choice.held_out_scores, temperature)}

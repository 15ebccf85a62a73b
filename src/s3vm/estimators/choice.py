"""The last step of a fit: which of the trained columns become the model, judged on labelled rows held out."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from s3vm._utils.scores import predicted_codes
from s3vm._utils.typing import Array
from s3vm._utils.warn import warn
from s3vm.backends import Backend
from s3vm.estimators.planning import Plan, class_priors, scores_held_out
from s3vm.estimators.prediction import Temperature, calibrator
from s3vm.estimators.preparation import PreparedRows
from s3vm.estimators.safety import Safety, choose
from s3vm.kernels import Kernel
from s3vm.model import Model
from s3vm.problem import Problem, SupervisedSolution
from s3vm.solvers import State
from s3vm.solvers.supervised import supervised_start

_COLLAPSE_SAMPLE, _COLLAPSE_ROWS = 500, 50  # unlabelled rows that are predicted, and how many there must be
_FREQUENT = 0.1  # expected fraction of the rows from which on a class is watched
_COLLAPSED = 0.1  # fraction of the expected rows below which it has collapsed


class Choice(NamedTuple):
    """The model, its scores of labelled rows held out, and why its weight was chosen, if several were tried."""

    model: Model
    held_out_scores: Array
    safety: Safety | None


def choose_model(trained: Model, plan: Plan, codes: Array, groups: Array | None, backend: Backend) -> Choice:
    """The columns of the weight that does best on held-out rows, or the supervised solution."""
    problem, held_out = plan.problem, plan.held_out
    n_outputs, n_groups = problem.n_models, held_out.shape[1]
    shape = len(codes), len(plan.weights), n_groups, n_outputs
    scores = trained.decision(problem.labeled, backend).reshape(shape)
    by_weight = {weight: scores_held_out(scores[:, w], held_out) for w, weight in enumerate(plan.weights)}
    if not plan.chooses_weight:
        return Choice(trained.columns(slice(0, n_outputs)), by_weight[plan.weights[0]], None)
    gram, dual, intercept = _supervised(problem, plan.supervised_kernel, n_groups * n_outputs)
    supervised = scores_held_out((gram @ dual + intercept).reshape(len(codes), n_groups, n_outputs), held_out)
    safety = choose(codes, supervised, by_weight, groups)
    if safety.weight == 0:
        svm = replace(
            trained,
            kernel=plan.supervised_kernel,
            coefficients=np.empty((0, 1, dual.shape[1]), backend.dtype),
            intercept=intercept,
            centers=problem.labeled,
            weights=dual,
        )
        return Choice(svm.columns(slice(0, n_outputs)), supervised, safety)
    start = plan.weights.index(safety.weight) * n_groups * n_outputs
    return Choice(trained.columns(slice(start, start + n_outputs)), by_weight[safety.weight], safety)


def finite_model(state: State) -> Model:
    """The model that was trained; a ValueError if its coefficients overflowed."""
    model = state.model()
    if not model.is_finite:
        raise ValueError("the coefficients overflowed: standardise the features, or lower C, gamma or the degree")
    return model


@contextmanager
def kept_if_memory_ends(purpose: str) -> Iterator[None]:
    """Warns if the memory does not suffice for a step after the training, which is not lost then."""
    try:
        yield
    except MemoryError as problem:
        warn(f"the model was trained, but there is not enough memory {purpose} ({problem}): use fewer labelled rows")


def _supervised(problem: Problem, kernel: Kernel, n_columns: int) -> SupervisedSolution:
    """The supervised solution of the first columns, which is solved again only for another kernel."""
    if kernel != problem.kernel:
        targets, costs = problem.targets[:, :n_columns], problem.costs[:, :n_columns]
        problem = replace(problem, kernel=kernel, targets=targets, costs=costs, supervised=None)
    gram, dual, intercept = supervised_start(problem)
    return SupervisedSolution(gram, np.ascontiguousarray(dual[:, :n_columns]), intercept[:n_columns])


def calibrate(choice: Choice, data: PreparedRows, backend: Backend) -> Temperature:
    """Probabilities from held-out scores; from scores of training rows if none could be held out."""
    scores = choice.held_out_scores
    known = np.isfinite(scores).all(axis=1)
    if not known.any():
        scores, known = choice.model.decision(data.X, backend), np.ones_like(known)
    return calibrator(scores[known], data.codes[known], data.weight[known])


def warn_of_collapse(model: Model, data: PreparedRows, class_prior: object, backend: Backend) -> None:
    """Warns if a frequent class is hardly predicted at all."""
    if data.source is None or data.n_unlabeled < _COLLAPSE_ROWS:
        return
    sample = data.source.sample(model.seed, _COLLAPSE_SAMPLE)
    n_classes = len(data.classes)
    predicted = np.bincount(predicted_codes(model.decision(sample, backend)), minlength=n_classes)
    expected = class_priors(class_prior, data)[0]
    for code in np.flatnonzero((expected > _FREQUENT) & (predicted / predicted.sum() < _COLLAPSED * expected)):
        warn(
            f"collapse: {predicted[code]} of {predicted.sum()} unlabelled rows are predicted as "
            f"{data.classes.tolist()[code]!r}, where {expected[code]:.0%} were expected. Lower unlabeled_weight, "
            "give class_prior, or use a solver that balances the classes"
        )

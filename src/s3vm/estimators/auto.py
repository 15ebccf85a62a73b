"""``solver="auto"``: candidates of gaps and neighbors, chosen on labelled rows held out, averaged into one function.

The candidates of a space, times folds, times classes, are the columns of one run of the batch optimiser. They are
compared on a pilot sample of the unlabelled rows. Those accepted are trained again on a larger sample, and averaged; if
they are of several spaces, the result is the function of one of these that is nearest to the average on all rows.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from s3vm import philox
from s3vm._utils.arrays import host, stack
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.estimators.candidates import Candidate, Space, class_shares, select, spaces_of
from s3vm.estimators.choice import Choice
from s3vm.estimators.folds import N_FOLDS, held_out_groups
from s3vm.estimators.planning import (
    GRAPH_ROWS,
    Plan,
    Tuning,
    class_priors,
    neighbor_graph,
    one_against_rest,
    scores_held_out,
)
from s3vm.estimators.preparation import PreparedRows
from s3vm.estimators.safety import FEW_LABELS, FEWEST_TO_CHOOSE, safety_of, undecided
from s3vm.losses import Exponential, Hinge, SquaredHinge
from s3vm.model import Model
from s3vm.philox import Purpose
from s3vm.problem import Problem
from s3vm.solvers.batch.batch import Batch
from s3vm.solvers.batch.space import LandmarkSpace, row_map
from s3vm.solvers.supervised import supervised_start
from s3vm.sources import ArraySource
from s3vm.training.history import History
from s3vm.training.loop import StoppingRules, train

_PILOT_ROWS = 2_500  # unlabelled rows on which candidates are compared
_PILOT, _FINAL = Batch(max_iter=120, n_landmarks=600), Batch()
_RIDGE = 1e-5  # per row, where functions of several spaces become one


class _Setting(NamedTuple):
    """What all runs of a fit share."""

    estimator: Any
    data: PreparedRows
    supervised: Problem
    rules: StoppingRules
    backend: Backend


class _Run(NamedTuple):
    """A space after training: the functions of its candidates, side by side, and their scores."""

    space: Space
    model: Model
    held_out: Array  # (candidates, n_labeled, K), by functions trained without the row
    on_sample: Array  # (candidates, n_sample, K), by functions trained on all labelled rows
    history: History

    @property
    def sizes(self) -> Array:
        """The mean size of each candidate's scores."""
        return np.maximum(np.abs(self.on_sample).mean(axis=(1, 2)), 1e-12)

    def average(self, n_total: int) -> Model:
        """The part of these candidates in an average of `n_total` functions, each divided by its size."""
        assert self.model.weights is not None
        share = 1 / self.sizes / n_total
        weights = np.einsum("mck,c->mk", self.model.weights.reshape(len(self.model.weights), len(share), -1), share)
        intercept = np.einsum("ck,c->k", self.model.intercept.reshape(len(share), -1), share)
        return replace(self.model, coefficients=_no_features(weights), weights=weights, intercept=intercept)


def learn_from_candidates(
    estimator: Any, data: PreparedRows, tuning: Tuning, seed: int, backend: Backend, rules: StoppingRules
) -> tuple[Plan, History, Choice]:
    """Chooses among the candidates and the supervised solution, and makes one function of those accepted."""
    assert data.source is not None
    held_out = _held_out(data.codes, seed)
    plan = _supervised_plan(estimator, data, tuning, seed, held_out)
    svm, supervised = _supervised_model(plan)
    known = np.asarray(np.isfinite(supervised).all(axis=1))
    if known.sum() < FEWEST_TO_CHOOSE:
        return plan, _history_of(plan), Choice(svm, supervised, undecided(int(known.sum())))
    setting = _Setting(estimator, data, plan.problem, rules, backend)
    sample = host(data.source.sample(seed, GRAPH_ROWS))
    pilot = sample[_drawn(seed, int(sample.shape[0]), _PILOT_ROWS)]
    weights = estimator.unlabeled_weight, estimator.neighbor_weight
    runs = _train(setting, spaces_of(tuning.kernel, tuning.C, pilot, seed, *weights), pilot, held_out, _PILOT)
    accepted = _accepted(setting, runs, svm.decision(pilot, backend), supervised, known)
    codes, chosen = data.codes[known], [(run, at) for run, at in zip(runs, accepted, strict=True) if at.any()]
    if not chosen:
        return plan, _history_of(plan), Choice(svm, supervised, safety_of(codes, supervised[known], None, []))
    average = np.concatenate([(run.held_out / run.sizes[:, None, None])[at] for run, at in chosen]).mean(axis=0)
    candidates = [candidate for run, at in chosen for candidate in _taken(run.space, at)]
    spaces = [run.space._replace(candidates=_taken(run.space, at)) for run, at in chosen]
    finals = _train(setting, spaces, sample, held_out[:, :1], _FINAL)
    model = _one_function([run.average(len(candidates)) for run in finals], data, sample, backend)
    safety = safety_of(codes, supervised[known], average[known], candidates)
    return plan, finals[0].history, Choice(model, average, safety)


def _held_out(codes: Array, seed: int) -> Array:
    """Folds as columns; a row that is the only one of its class is always in training, and the others are held out."""
    if len(codes) < FEW_LABELS and codes.max() == 1:
        return held_out_groups(codes, N_FOLDS, seed)
    shuffle = philox.words(seed, Purpose.FOLD, 0, len(codes), 1)[:, 0]
    folds = np.empty(len(codes), dtype=np.intp)
    folds[np.lexsort((shuffle, codes))] = np.arange(len(codes)) % N_FOLDS
    has_others = np.bincount(codes)[codes] > 1
    return np.hstack([np.zeros((len(codes), 1), bool), (folds[:, None] == np.arange(N_FOLDS)) & has_others[:, None]])


def _supervised_plan(estimator: Any, data: PreparedRows, tuning: Tuning, seed: int, held_out: Array) -> Plan:
    """The problem of the labelled rows alone, folds as columns."""
    targets = one_against_rest(data.codes)
    n_outputs = targets.shape[1]
    costs = np.repeat((tuning.C * data.weight * data.factor)[:, None] * ~held_out, n_outputs, axis=1)
    priors = class_priors(estimator.class_prior, len(data.classes), data.codes, data.weight, held_out)
    problem = Problem(
        labeled=data.X,
        targets=np.tile(targets, held_out.shape[1]),
        costs=costs,
        unlabeled=None,
        unlabeled_cost=np.zeros(costs.shape[1]),
        prior=priors[:, -n_outputs:].ravel(),
        prior_is_known=estimator.class_prior is not None,
        kernel=tuning.supervised_kernel,
        labeled_loss=Hinge(),
        unlabeled_loss=Exponential(),
        seed=seed,
        n_models=n_outputs,
    )
    return Plan(replace(problem, supervised=supervised_start(problem)), [0.0], held_out, tuning, True)


def _supervised_model(plan: Plan) -> tuple[Model, Array]:
    """The SVM of all labelled rows, and scores of rows held out."""
    problem, held_out = plan.problem, plan.held_out
    assert problem.supervised is not None
    gram, dual, intercept = problem.supervised
    scores = scores_held_out((gram @ dual + intercept).reshape(*held_out.shape, problem.n_models), held_out)
    arguments = problem.kernel, problem.seed, problem.n_dims, _no_features(dual), intercept, problem.labeled, dual
    return Model(*arguments).columns(slice(0, problem.n_models)), scores


def _history_of(plan: Plan) -> History:
    """The one line of the supervised solution."""
    assert plan.problem.supervised is not None
    gram, dual, intercept = plan.problem.supervised
    scores, nobody = gram @ dual, np.empty(0)
    columns = range(plan.problem.n_models)
    values = [
        plan.problem.objective(k, dual[:, k] @ scores[:, k], scores[:, k] + intercept[k], nobody) for k in columns
    ]
    return {"iteration": np.array([1]), "objective": np.array([sum(values)])}


def _train(setting: _Setting, spaces: list[Space], sample: Rows, held_out: Array, solver: Batch) -> list[_Run]:
    """Trains the candidates of every space on the labelled rows and a sample of unlabelled ones."""
    estimator, data, backend = setting.estimator, setting.data, setting.backend
    graph = None if estimator.neighbor_weight == 0 else neighbor_graph(estimator, data, sample, backend)
    n_outputs, n_groups = setting.supervised.n_models, held_out.shape[1]
    group = slice(0, n_groups * n_outputs)
    runs = []
    for space in spaces:
        n = len(space.candidates)
        costs = np.repeat((space.C * data.weight * data.factor)[:, None] * ~held_out, n_outputs, axis=1)
        gaps, neighbors = (
            np.array(weights)[:, None] * costs.sum(axis=0) for weights in zip(*space.candidates, strict=True)
        )
        problem = replace(
            setting.supervised,
            targets=np.tile(setting.supervised.targets[:, group], n),
            costs=np.tile(costs, n),
            unlabeled=ArraySource(sample, None, backend.dtype),
            unlabeled_cost=gaps.ravel(),
            prior=np.tile(setting.supervised.prior[group], n),
            kernel=space.kernel,
            labeled_loss=SquaredHinge(),
            graph=graph,
            graph_cost=neighbors.ravel(),
            supervised=None,
        )
        rules = replace(setting.rules, early_stopping=None, keeps=False)
        state, history = train(solver, problem, backend, None, estimator.verbose, rules)
        scores = state.labeled_scores()
        assert scores is not None
        by_candidate = scores.reshape(len(scores), n, n_groups, n_outputs)
        model = _on_all_rows(state.model(), n, n_groups)
        on_sample = model.decision(sample, backend).reshape(-1, n, n_outputs)
        held = np.stack([scores_held_out(by_candidate[:, c], held_out) for c in range(n)])
        runs.append(_Run(space, model, held, np.moveaxis(on_sample, 1, 0), history))
    return runs


def _accepted(setting: _Setting, runs: list[_Run], svm_on_pilot: Array, supervised: Array, known: Array) -> list[Array]:
    """Which candidates of each run are accepted."""
    data, n_classes = setting.data, len(setting.data.classes)
    on_sample = [svm_on_pilot, *(scores for run in runs for scores in run.on_sample)]
    shares = np.array([class_shares(scores, n_classes) for scores in on_sample])
    no_rows = np.zeros((len(data.codes), 1), dtype=bool)
    expected = class_priors(setting.estimator.class_prior, n_classes, data.codes, data.weight, no_rows)[0]
    held = np.concatenate([run.held_out[:, known] for run in runs])
    accepted = select(data.codes[known], supervised[known], held, shares, expected)
    return np.split(accepted, np.cumsum([len(run.on_sample) for run in runs])[:-1])


def _taken(space: Space, accepted: Array) -> tuple[Candidate, ...]:
    return tuple(candidate for candidate, is_taken in zip(space.candidates, accepted, strict=True) if is_taken)


def _on_all_rows(model: Model, n_candidates: int, n_groups: int) -> Model:
    """The columns that were trained on all labelled rows."""
    assert model.weights is not None
    at = np.arange(len(model.intercept)).reshape(n_candidates, n_groups, -1)[:, 0].ravel()
    weights = model.weights[:, at]
    return replace(model, coefficients=_no_features(weights), intercept=model.intercept[at], weights=weights)


def _one_function(parts: list[Model], data: PreparedRows, sample: Rows, backend: Backend) -> Model:
    """The sum of the parts as an expansion in the kernel of the first: the nearest one on all rows."""
    first = parts[0]
    if len(parts) == 1:
        return first
    rows = stack([data.X, sample])
    scores = np.sum([part.decision(rows, backend) for part in parts], axis=0)
    with row_map(backend.n_threads) as each:
        space = LandmarkSpace.of(first.kernel, rows, 0, first.centers, None, backend, each)
    Z, mean = host(space.features).astype(np.float64), scores.mean(axis=0)
    factor = cho_factor(Z.T @ Z + _RIDGE * len(Z) * np.eye(Z.shape[1]), lower=True, check_finite=False)
    w = cho_solve(factor, Z.T @ (scores - mean), check_finite=False)
    weights, intercept = space.expansion(w, mean)
    return replace(first, weights=weights, intercept=intercept)


def _no_features(weights: Array) -> Array:
    return np.empty((0, 1, weights.shape[1]), weights.dtype)


def _drawn(seed: int, n: int, size: int) -> Array:
    """The numbers of a random sample of n rows; all of them if there are no more."""
    if n <= size:
        return np.arange(n)
    return np.sort(np.argsort(philox.words(seed, Purpose.UNLABELED, 1, n, 1)[:, 0], kind="stable")[:size])

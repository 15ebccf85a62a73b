"""``solver="auto"``: candidates of what unlabelled rows know, chosen on labelled rows held out, averaged.

The candidates of a space, times folds, times classes, are the columns of one problem. They are compared on a pilot
sample of the unlabelled rows: first those without gaps, which are convex and cheap, then gaps where these are not far
behind. Those accepted in the two best spaces are trained again on a larger sample, and their average is one function.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from s3vm import philox
from s3vm._utils.arrays import host
from s3vm._utils.progress import ProgressBar
from s3vm._utils.scores import brier_losses
from s3vm._utils.typing import Array, Rows
from s3vm._utils.warn import warn
from s3vm.backends import Backend
from s3vm.estimators.candidates import Representation, class_shares, select, spaces_of
from s3vm.estimators.choice import Choice
from s3vm.estimators.folds import N_FOLDS, held_out_groups
from s3vm.estimators.pilots import (
    Pilot,
    Setting,
    final_model,
    no_features,
    pilots_of,
    supervised_on_landmarks,
)
from s3vm.estimators.planning import (
    Plan,
    Tuning,
    class_priors,
    has_candidates,
    one_against_rest,
    scores_held_out,
    solves_exactly,
)
from s3vm.estimators.preparation import PreparedRows
from s3vm.estimators.safety import FEWEST_TO_CHOOSE, after_gain, not_compared, safety_of, undecided
from s3vm.kernels import kernel
from s3vm.losses import Exponential, Hinge, SquaredHinge
from s3vm.model import Model
from s3vm.philox import Purpose
from s3vm.problem import Problem
from s3vm.problem.projection import project
from s3vm.solvers.supervised import labeled_gram, supervised, supervised_start
from s3vm.training.history import History
from s3vm.training.loop import Interrupted, OutOfTime, StoppingRules

_PILOT_ROWS = 2_500  # unlabelled rows on which candidates are compared
_MOST_SPACES = 2  # whose candidates are averaged


def learn_from_candidates(
    estimator: Any, data: PreparedRows, tuning: Tuning, seed: int, backend: Backend, rules: StoppingRules
) -> tuple[Plan, History, Choice]:
    """Chooses among the candidates and the supervised solution, and makes one function of those accepted.

    Of very many labelled rows, the supervised solution is on landmarks, one fold is held out, and only gaps compete.
    """
    held_out = held_out_groups(data.codes, N_FOLDS, seed, groups=data.groups)
    is_exact = solves_exactly(data)
    plan = _supervised_plan(estimator, data, tuning, seed, held_out if is_exact else held_out[:, :2])
    neighbors = estimator.neighbor_weight if is_exact or estimator.neighbor_weight != "auto" else 0
    setting = Setting(estimator, data, plan.problem, backend, neighbors)
    if is_exact:
        svm = Choice(*_exact_svm(plan, data.X), None)
    else:
        svm = Choice(*supervised_on_landmarks(setting, tuning.all[0], plan.held_out), None)
    history = _history_of(plan.problem, svm.model, backend)
    if data.source is None or not has_candidates(estimator, data):
        return plan, history, svm
    choice = _choose(setting, tuning, plan.held_out, svm, rules)
    assert choice.safety is not None
    return plan, history, choice._replace(safety=after_gain(tuning.gain, choice.safety))


def _choose(setting: Setting, tuning: Tuning, held_out: Array, svm: Choice, rules: StoppingRules) -> Choice:
    """The average of the candidates that are accepted, or the supervised solution."""
    estimator, data, seed = setting.estimator, setting.data, setting.supervised.seed
    known = np.asarray(np.isfinite(svm.held_out_scores).all(axis=1))
    assert data.source is not None
    if known.sum() < FEWEST_TO_CHOOSE:
        return svm._replace(safety=undecided(int(known.sum())))
    codes, supervised = data.codes[known], svm.held_out_scores[known]
    sample = host(data.source.sample(seed, estimator.max_rows))
    pilot_at = philox.distinct(seed, Purpose.UNLABELED, 1, _PILOT_ROWS, int(sample.shape[0]))
    pilot = sample[pilot_at]
    weights = estimator.unlabeled_weight, setting.neighbor_weight
    spaces = spaces_of(tuning.all, kernel(estimator.kernel), pilot, seed, *weights)
    with _Watch(estimator.verbose, rules, 2 * len(spaces) + _MOST_SPACES) as watch:
        graph = setting.graph_of(pilot)
        pilots = pilots_of(setting, spaces, pilot, graph, held_out, known, watch.tick)
        best = _best(setting, pilots, svm.model.decision(pilot, setting.backend), svm.held_out_scores, known)
        if best:
            graph = graph if len(pilot_at) == sample.shape[0] else setting.graph_of(sample)
            model = final_model(setting, [run.space for run in best], sample, graph, watch.tick)
            average = np.concatenate([run.scores_held_out() for run in best]).mean(axis=0)
            groups = None if data.groups is None else data.groups[known]
            safety = safety_of(codes, supervised, average[known], *_reasons(best), groups)
            return Choice(model, average, safety)
    safety = safety_of(codes, supervised)
    return svm._replace(safety=not_compared(safety) if watch.was_ended else safety)


def _supervised_plan(estimator: Any, data: PreparedRows, tuning: Tuning, seed: int, held_out: Array) -> Plan:
    """The problem of the labelled rows alone, folds as columns."""
    targets = one_against_rest(data.codes)
    n_outputs = targets.shape[1]
    costs = np.repeat((tuning.C * data.weight * data.factor)[:, None] * ~held_out, n_outputs, axis=1)
    priors = class_priors(estimator.class_prior, len(data.classes), data.codes, data.weight, held_out)
    problem = Problem(
        labeled=project(data.X, tuning.projection),
        targets=np.tile(targets, held_out.shape[1]),
        costs=costs,
        unlabeled=None,
        unlabeled_cost=np.zeros(costs.shape[1]),
        prior=priors[:, -n_outputs:].ravel(),
        prior_is_known=estimator.class_prior is not None,
        kernel=tuning.supervised_kernel,
        labeled_loss=Hinge() if solves_exactly(data) else SquaredHinge(),
        unlabeled_loss=Exponential(),
        seed=seed,
        n_models=n_outputs,
    )
    return Plan(problem, [0.0], held_out, tuning, True)


def _exact_svm(plan: Plan, X: Rows) -> tuple[Model, Array]:
    """The SVM of all labelled rows, and scores of rows held out."""
    problem, held_out = plan.problem, plan.held_out
    gram, dual, intercept = supervised_start(problem)
    scores = scores_held_out((gram @ dual + intercept).reshape(*held_out.shape, problem.n_models), held_out)
    if plan.tuning.relearn is not None:
        scores = _scores_relearnt(plan, X, plan.tuning.relearn)
    arguments = problem.kernel, problem.seed, problem.n_dims, no_features(dual), intercept, problem.labeled, dual
    return Model(*arguments, projection=plan.tuning.projection).columns(slice(0, problem.n_models)), scores


def _scores_relearnt(plan: Plan, X: Rows, relearn: Callable[[Array], Array]) -> Array:
    """Scores of rows held out, by projections that were learnt without them, too."""
    problem, (n, n_groups), n_outputs = plan.problem, plan.held_out.shape, plan.problem.n_models
    scores = np.empty((n, n_groups, n_outputs))
    for group in range(n_groups):
        rows = project(X, relearn(~plan.held_out[:, group]))
        columns = slice(group * n_outputs, (group + 1) * n_outputs)
        gram = labeled_gram(problem.kernel, rows)
        dual, intercept = supervised(gram, problem.targets[:, columns], problem.costs[:, columns])
        scores[:, group] = gram @ dual + intercept
    return scores_held_out(scores, plan.held_out)


def _history_of(problem: Problem, svm: Model, backend: Backend) -> History:
    """The one line of the supervised solution."""
    assert svm.weights is not None
    scores = replace(svm, projection=None).decision(problem.labeled, backend)
    norms = np.einsum("ik,ik->k", svm.weights, problem.kernel.gram(svm.centers, svm.centers) @ svm.weights)
    values = [problem.objective(k, norm, scores[:, k], np.empty(0)) for k, norm in enumerate(norms)]
    return {"iteration": np.array([1]), "objective": np.array([sum(values)])}


def _best(setting: Setting, pilots: list[Pilot], svm_on_pilot: Array, supervised: Array, known: Array) -> list[Pilot]:
    """The candidates accepted, of the two best spaces. The space with most columns comes first, as the richer one."""
    data, n_classes = setting.data, len(setting.data.classes)
    on_sample = [svm_on_pilot, *(scores for pilot in pilots for scores in pilot.on_sample)]
    shares = np.array([class_shares(scores, n_classes) for scores in on_sample])
    no_rows = np.zeros((len(data.codes), 1), dtype=bool)
    expected = class_priors(setting.estimator.class_prior, n_classes, data.codes, data.weight, no_rows)[0]
    held, codes = np.concatenate([pilot.held_out[:, known] for pilot in pilots]), data.codes[known]
    groups = None if data.groups is None else data.groups[known]
    accepted = select(codes, supervised[known], held, shares, expected, groups)
    parts = np.split(accepted, np.cumsum([len(pilot.on_sample) for pilot in pilots])[:-1])
    chosen = [pilot.only(part) for pilot, part in zip(pilots, parts, strict=True) if part.any()]
    chosen.sort(key=lambda pilot: min(brier_losses(codes, scores[known]).mean() for scores in pilot.held_out))
    return sorted(chosen[:_MOST_SPACES], key=lambda pilot: _n_columns(pilot.space.representation, data), reverse=True)


def _reasons(best: list[Pilot]) -> tuple[list[float], list[str]]:
    """The weights of the candidates accepted, and what they know of the rows."""
    candidates = [candidate for pilot in best for candidate in pilot.space.candidates]
    projections = [pilot.space.representation.projection for pilot in best]
    knows = {
        "gaps": any(candidate.unlabeled_weight > 0 for candidate in candidates),
        "neighbors": any(candidate.neighbor_weight > 0 for candidate in candidates),
        "directions": any(projection is not None and projection.ndim == 2 for projection in projections),
    }
    weights = [max(candidate.unlabeled_weight, candidate.neighbor_weight) for candidate in candidates]
    return weights, [name for name, is_known in knows.items() if is_known]


def _n_columns(representation: Representation, data: PreparedRows) -> int:
    """How many columns the kernel sees."""
    projection = representation.projection
    return int(data.X.shape[1]) if projection is None else projection.shape[-1]


class _OutOfTimeError(Exception):
    """No time is left."""


class _Watch:
    """Shows the steps of the choice, and ends it at a time limit or Ctrl-C: the supervised solution is then kept."""

    def __init__(self, verbose: Any, rules: StoppingRules, n_steps: int) -> None:
        self._bar, self._rules, self._n_steps = ProgressBar(verbose, unit="steps"), rules, n_steps
        self._done, self._start, self.was_ended = 0, time.monotonic(), False

    def tick(self) -> None:
        most = self._rules.max_seconds
        if most is not None and time.monotonic() - self._start > most:
            raise _OutOfTimeError
        self._bar(self._done, self._n_steps, {})
        self._done += 1

    def __enter__(self) -> "_Watch":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self._bar.close()
        if kind is _OutOfTimeError:
            warn("max_seconds is over before candidates were compared: using the supervised solution", OutOfTime)
        elif kind is KeyboardInterrupt and self._rules.keeps:
            warn("interrupted before candidates were compared: using the supervised solution", Interrupted)
        else:
            return False
        self.was_ended = True
        return True

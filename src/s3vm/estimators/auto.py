"""``solver="auto"``: candidates of what unlabelled rows know, chosen on labelled rows held out, averaged.

The candidates of a space, times folds, times classes, are the columns of one problem. They are compared on a pilot
sample of the unlabelled rows: first those without gaps, which are convex and cheap, then gaps where these are not far
behind. Those accepted in the two best spaces are trained again on a larger sample, and their average is one function.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from s3vm import philox
from s3vm._utils.arrays import host, project
from s3vm._utils.progress import ProgressBar
from s3vm._utils.scores import brier_losses
from s3vm._utils.typing import Array
from s3vm._utils.warn import warn
from s3vm.backends import Backend
from s3vm.estimators.candidates import Representation, class_shares, select, spaces_of
from s3vm.estimators.choice import Choice, kept_if_memory_ends
from s3vm.estimators.folds import N_FOLDS, held_out_groups
from s3vm.estimators.pilots import Pilot, Setting, Tick, final_model, no_features, pilots_of, supervised_on_landmarks
from s3vm.estimators.planning import (
    Tuning,
    class_priors,
    has_candidates,
    labeled_problem,
    neighbor_graph,
    scores_held_out,
    solves_exactly,
)
from s3vm.estimators.preparation import PreparedRows
from s3vm.estimators.safety import FEWEST_TO_CHOOSE, Safety, safety_of, undecided
from s3vm.kernels import kernel
from s3vm.losses import Exponential, Hinge, SquaredHinge
from s3vm.model import Model
from s3vm.philox import Purpose
from s3vm.problem import Problem
from s3vm.solvers.supervised import labeled_gram, supervised, supervised_start
from s3vm.training.history import History
from s3vm.training.loop import Interrupted, OutOfTime, StoppingRules

_PILOT_ROWS = 2_500  # unlabelled rows on which candidates are compared
_MOST_SPACES = 2  # whose candidates are averaged


def learn_from_candidates(
    estimator: Any, data: PreparedRows, tuning: Tuning, seed: int, backend: Backend, rules: StoppingRules
) -> tuple[History, Choice]:
    """Chooses among the candidates and the supervised solution, and makes one function of those accepted.

    Of very many labelled rows, the supervised solution is on landmarks, one fold is held out, and only gaps compete.
    """
    held_out = held_out_groups(data.codes, N_FOLDS, seed, groups=data.groups)
    is_exact = solves_exactly(data)
    if not is_exact:
        held_out = held_out[:, :2]
    losses = Hinge() if is_exact else SquaredHinge(), Exponential()
    problem = labeled_problem(estimator, data, tuning.supervised, held_out, losses, seed)
    setting = Setting(data, problem, backend, held_out)
    solve = _exact_svm if is_exact else supervised_on_landmarks
    svm = Choice(*solve(setting, tuning.supervised), None)
    history = _history_of(problem, svm.model, backend)
    if data.source is None or not has_candidates(estimator, data):
        return history, svm
    known = np.asarray(np.isfinite(svm.held_out_scores).all(axis=1))
    if known.sum() < FEWEST_TO_CHOOSE:
        return history, svm._replace(safety=_after(tuning.gain, undecided(int(known.sum()))))
    safety = safety_of(data.codes[known], svm.held_out_scores[known])
    sentence = "training ended before candidates were compared; using the supervised solution"
    choice = svm._replace(safety=replace(safety, uncertain=True, sentence=sentence))
    with kept_if_memory_ends("to compare it with others"):
        choice = _choose(estimator, setting, tuning, svm._replace(safety=safety), known, rules) or choice
    assert choice.safety is not None
    return history, choice._replace(safety=_after(tuning.gain, choice.safety))


def _after(gain: str, safety: Safety) -> Safety:
    """The choice, after what the supervised solution had gained."""
    return replace(safety, sentence=f"{gain}; {safety.sentence}") if gain else safety


def _choose(
    estimator: Any, setting: Setting, tuning: Tuning, svm: Choice, known: Array, rules: StoppingRules
) -> Choice | None:
    """The average of the candidates that are accepted, or the supervised solution; None if the time was up."""
    data, seed, backend = setting.data, setting.supervised.seed, setting.backend
    assert data.source is not None
    sample = host(data.source.sample(seed, estimator.max_rows))
    pilot_at = philox.distinct(seed, Purpose.UNLABELED, 1, _PILOT_ROWS, int(sample.shape[0]))
    neighbor_weight = estimator.neighbor_weight
    if neighbor_weight == "auto" and not solves_exactly(data):
        neighbor_weight = 0
    weights = estimator.unlabeled_weight, neighbor_weight
    pilot = sample[pilot_at]
    spaces = spaces_of((tuning.supervised, *tuning.others), kernel(estimator.kernel), pilot, seed, *weights)
    with _limited(rules, estimator.verbose, 2 * len(spaces) + _MOST_SPACES) as tick:
        graph = neighbor_graph(estimator, data, pilot, backend) if neighbor_weight != 0 else None
        setting = setting._replace(sample=pilot, graph=graph)
        pilots = pilots_of(setting, spaces, known, tick)
        best = _best(estimator, setting, pilots, svm, known)
        if not best:
            return svm
        if graph is not None and len(pilot_at) < sample.shape[0]:
            graph = neighbor_graph(estimator, data, sample, backend)
        setting = setting._replace(sample=sample, graph=graph, held_out=np.zeros((len(data.codes), 1), dtype=bool))
        model = final_model(setting, [run.space for run in best], tick)
        average = np.concatenate([run.scores_held_out() for run in best]).mean(axis=0)
        groups = None if data.groups is None else data.groups[known]
        scores = data.codes[known], svm.held_out_scores[known], average[known]
        return Choice(model, average, safety_of(*scores, *_reasons(best), groups))
    return None


def _exact_svm(setting: Setting, representation: Representation) -> tuple[Model, Array]:
    """The SVM of all labelled rows, and scores of rows held out, by projections learnt without them, too."""
    problem, held_out = setting.supervised, setting.held_out
    gram, dual, intercept = supervised_start(problem)
    scores = (gram @ dual + intercept).reshape(*held_out.shape, problem.n_models)
    if representation.relearn is not None:
        by_group = np.split(np.arange(problem.n_columns), held_out.shape[1])
        for group, columns in enumerate(by_group):
            rows = project(setting.data.X, representation.relearn(~held_out[:, group]))
            gram = labeled_gram(problem.kernel, rows)
            part, bias = supervised(gram, problem.targets[:, columns], problem.costs[:, columns])
            scores[:, group] = gram @ part + bias
    arguments = problem.kernel, problem.seed, problem.n_dims, no_features(dual), intercept, problem.labeled, dual
    model = Model(*arguments, projection=representation.projection).columns(slice(0, problem.n_models))
    return model, scores_held_out(scores, held_out)


def _history_of(problem: Problem, svm: Model, backend: Backend) -> History:
    """The one line of the supervised solution."""
    assert svm.weights is not None
    scores = replace(svm, projection=None).decision(problem.labeled, backend)
    norms = np.einsum("ik,ik->k", svm.weights, problem.kernel.gram(svm.centers, svm.centers) @ svm.weights)
    values = [problem.objective(k, norm, scores[:, k], np.empty(0)) for k, norm in enumerate(norms)]
    return {"iteration": np.array([1]), "objective": np.array([sum(values)])}


def _best(estimator: Any, setting: Setting, pilots: list[Pilot], svm: Choice, known: Array) -> list[Pilot]:
    """The candidates accepted, of the two best spaces. The space with most columns comes first, as the richer one."""
    data, n_classes = setting.data, len(setting.data.classes)
    on_sample = [svm.model.decision(setting.sample, setting.backend)]
    on_sample += [scores for pilot in pilots for scores in pilot.on_sample]
    shares = np.array([class_shares(scores, n_classes) for scores in on_sample])
    expected = class_priors(estimator.class_prior, data)[0]
    held, codes = np.concatenate([pilot.held_out[:, known] for pilot in pilots]), data.codes[known]
    groups = None if data.groups is None else data.groups[known]
    accepted = select(codes, svm.held_out_scores[known], held, shares, expected, groups)
    parts = np.split(accepted, np.cumsum([len(pilot.on_sample) for pilot in pilots])[:-1])
    chosen = [pilot.only(part) for pilot, part in zip(pilots, parts, strict=True) if part.any()]
    chosen.sort(key=lambda pilot: min(brier_losses(codes, scores[known]).mean() for scores in pilot.held_out))

    def n_columns(pilot: Pilot) -> int:
        projection = pilot.space.representation.projection
        return int(data.X.shape[1]) if projection is None else projection.shape[-1]

    return sorted(chosen[:_MOST_SPACES], key=n_columns, reverse=True)


def _reasons(best: list[Pilot]) -> tuple[list[float], list[str]]:
    """The weights of the candidates accepted, and what they know of the rows."""
    candidates = [candidate for pilot in best for candidate in pilot.space.candidates]
    projections = [pilot.space.representation.projection for pilot in best]
    gaps, neighbors, _ = zip(*candidates, strict=True)
    directions = any(projection is not None and projection.ndim == 2 for projection in projections)
    knows = {"gaps": max(gaps) > 0, "neighbors": max(neighbors) > 0, "directions": directions}
    return list(map(max, gaps, neighbors)), [name for name, is_known in knows.items() if is_known]


class _OutOfTimeError(Exception):
    """No time is left."""


@contextmanager
def _limited(rules: StoppingRules, verbose: Any, n_steps: int) -> Iterator[Tick]:
    """Shows the steps of the choice, and ends it at a time limit or Ctrl-C, with a warning."""
    bar, start, steps = ProgressBar(verbose, unit="steps"), time.monotonic(), count()

    def tick() -> None:
        if rules.max_seconds is not None and time.monotonic() - start > rules.max_seconds:
            raise _OutOfTimeError
        bar(next(steps), n_steps, {})

    try:
        yield tick
    except _OutOfTimeError:
        warn("max_seconds is over before candidates were compared: using the supervised solution", OutOfTime)
    except KeyboardInterrupt:
        if not rules.keeps:
            raise
        warn("interrupted before candidates were compared: using the supervised solution", Interrupted)
    finally:
        bar.close()

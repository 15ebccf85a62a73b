"""Runs of candidates: short ones side by side, to compare them, and final ones of those accepted."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from s3vm._utils.arrays import project, stack
from s3vm._utils.scores import brier_losses
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.estimators.candidates import Candidate, Representation, Space, class_shares, likely_shares, promising
from s3vm.estimators.planning import costs_held_out, scores_held_out, with_unlabeled
from s3vm.estimators.preparation import PreparedRows
from s3vm.losses import SquaredHinge
from s3vm.model import Model
from s3vm.problem import Problem
from s3vm.problem.graph import NeighborGraph
from s3vm.solvers.batch.batch import Batch, BatchRun
from s3vm.solvers.batch.space import RowMap, row_map
from s3vm.sources import ArraySource

_PILOT, _FINAL = Batch(max_iter=40, n_landmarks=300), Batch(max_iter=60, n_landmarks=600)
_SUPERVISED = Batch(n_landmarks=1000)
_KEPT_SHARE = 0.5  # of the rows that a class has without gaps, which it must have with them
_LANDMARKS_PER_ROW, _MOST_LANDMARKS = 0.05, 2000  # of the final runs, where their sample is large

Tick = Callable[[], None]
"""What is called after each step of the work, to show the progress or to stop."""

_Step = TypeVar("_Step")


Function = tuple[Array, Array]
"""Coefficients ``(p, K)`` in a space of landmarks, and intercepts ``(K,)``."""


class Setting(NamedTuple):
    """What runs of candidates share: the labelled rows, groups of which are held out, and a sample of the others."""

    data: PreparedRows
    supervised: Problem
    backend: Backend
    held_out: Array
    sample: Rows = None
    graph: NeighborGraph | None = None


class Pilot(NamedTuple):
    """A space whose candidates have been trained for a short time: scores to compare them by."""

    space: Space
    held_out: Array  # (candidates, n_labeled, K), by functions trained without the row
    on_sample: Array  # (candidates, n_sample, K), by functions trained on all labelled rows

    def only(self, taken: Array) -> "Pilot":
        """The pilot with some of its candidates."""
        return Pilot(self.space.only(taken), self.held_out[taken], self.on_sample[taken])

    def scores_held_out(self) -> Array:
        """The held-out scores of each candidate, divided by the mean size of its scores."""
        return self.held_out / mean_sizes(self.on_sample)[:, None, None]


def mean_sizes(scores: Array) -> Array:
    """The mean size of each candidate's scores ``(candidates, n, K)``."""
    return np.maximum(np.abs(scores).mean(axis=(1, 2)), 1e-12)


def pilots_of(setting: Setting, spaces: list[Space], known: Array, tick: Tick) -> list[Pilot]:
    """Short runs of all candidates; gaps only where they are promising.

    `known` says which labelled rows are held out of some group.
    """
    codes = setting.data.codes[known]

    def prepared(space: Space) -> list[_Trial]:
        return _trials(_PILOT, setting, space, map)

    def descended(task: tuple[list[_Trial], Array]) -> Pilot | None:
        trials, is_good = task
        for trial in trials:
            trial.descend(is_good)
        space = trials[0].space
        return Pilot(space, _scores_held_out(trials), trials[0].on_sample()) if space.candidates else None

    with row_map(setting.backend.n_threads) as each:  # spaces side by side, since the sample is small
        by_space = list(_ticking(tick, each(prepared, spaces)))
        held_out = np.concatenate([_scores_held_out(trials)[:, known] for trials in by_space])
        is_promising = promising(np.array([brier_losses(codes, scores) for scores in held_out]))
        good = np.split(is_promising, np.cumsum([len(space.candidates) for space in spaces])[:-1])
        pilots = _ticking(tick, each(descended, zip(by_space, good, strict=True)))
        return [pilot for pilot in pilots if pilot is not None]


def supervised_on_landmarks(setting: Setting, representation: Representation) -> tuple[Model, Array]:
    """The supervised solution of very many labelled rows, with a squared hinge, and scores of rows held out."""
    space = Space(representation, (Candidate(0.0, 0.0),))
    with row_map(setting.backend.n_threads) as each:
        trials = _trials(_SUPERVISED, setting._replace(sample=setting.data.X[:0]), space, each)
        return trials[0].model(trials[0].main()), _scores_held_out(trials)[0]


def final_model(setting: Setting, spaces: list[Space], tick: Tick) -> Model:
    """The average of the candidates of one or two spaces, trained on all labelled rows and the sample.

    It is a function of the first space: that of the second is replaced by the nearest one there.
    """
    n_candidates = sum(len(space.candidates) for space in spaces)
    n_landmarks = min(_MOST_LANDMARKS, max(_FINAL.n_landmarks, int(_LANDMARKS_PER_ROW * setting.sample.shape[0])))
    solver = replace(_FINAL, n_landmarks=n_landmarks)
    n_threads = setting.backend.n_threads
    with row_map(n_threads) as each, row_map(n_threads) as side_by_side:

        def trained(space: Space) -> _Trial:
            trial = _Trial(solver, setting, space, each)
            trial.descend(np.ones(len(space.candidates), dtype=bool))
            return trial

        first, *others = _ticking(tick, side_by_side(trained, spaces))
        w, intercept = first.average(n_candidates)
        for other in others:
            nearest = first.run.nearest(other.run.scores(*other.average(n_candidates)))
            w, intercept = w + nearest[0], intercept + nearest[1]
        return first.model((w, intercept))


def _ticking(tick: Tick, steps: Iterable[_Step]) -> Iterator[_Step]:
    for step in steps:
        tick()
        yield step


class _Trial:
    """The candidates of one space, times groups held out, times outputs, as columns that are trained together."""

    def __init__(self, solver: Batch, setting: Setting, space: Space, each: RowMap) -> None:
        self.space, self._held_out = space, setting.held_out
        self._n_outputs = setting.supervised.n_models
        self._problem = self._problem_of(setting)
        rows = stack([self._problem.labeled, project(setting.sample, space.representation.projection)])
        self.run = BatchRun(solver, self._problem, setting.backend, each, rows)
        self._w, self._intercept = self.run.convex()
        spreads = np.array([candidate.spreads for candidate in space.candidates])
        if spreads.any() and setting.graph is not None:
            start = self.run.nearest(self._spread(setting, setting.graph))
            at = np.repeat(spreads, len(self._intercept) // len(spreads))
            self._w[:, at], self._intercept[at] = (np.tile(part, spreads.sum()) for part in start)
        if self._problem.prior_is_known and setting.sample.shape[0]:
            every = np.arange(self._problem.n_columns)
            self._intercept = self.run.means(self._w, self._intercept, every)

    def _spread(self, setting: Setting, graph: NeighborGraph) -> Array:
        """What reaches each row of the labels that are not held out, as scores: columns are groups, times outputs."""
        codes, n_classes = setting.data.codes, len(setting.data.classes)
        labels = ~self._held_out[:, :, None] & (codes[:, None, None] == np.arange(n_classes))
        counts = labels.sum(axis=0)
        shares = np.array([likely_shares(count) for count in counts])
        by_class = labels * (shares / np.maximum(counts, 1))
        reached = graph.spread(by_class.reshape(len(codes), -1)).reshape(-1, *counts.shape)
        odds = reached**2  # squared, so that rows are surer of their class
        share = odds / np.maximum(odds.sum(axis=2, keepdims=True), 1e-300)
        margins = 2 * share - 1
        return (margins if self._n_outputs > 1 else margins[:, :, 1:]).reshape(len(margins), -1)

    def _problem_of(self, setting: Setting) -> Problem:
        (kernel, C, projection, _), candidates = self.space
        data, supervised, graph = setting.data, setting.supervised, setting.graph
        costs = costs_held_out(C, data, self._held_out, self._n_outputs)
        problem = replace(
            supervised,
            labeled=project(data.X, projection),
            targets=supervised.targets[:, : costs.shape[1]],
            costs=costs,
            prior=supervised.prior[: costs.shape[1]],
            kernel=kernel,
            labeled_loss=SquaredHinge(),
        )
        if graph is not None:
            graph = replace(graph, rows=project(graph.rows, projection))
        source = ArraySource(project(setting.sample, projection), None, setting.backend.dtype)
        gaps, neighbors, _ = zip(*candidates, strict=True)
        return with_unlabeled(problem, source, gaps, graph, neighbors)

    def held_out(self) -> Array:
        """The scores of labelled rows held out, for each candidate."""
        n_l, shape = self._problem.n_labeled, (*self._held_out.shape, self._n_outputs)
        scores = self.run.scores(self._w, self._intercept, n_l)
        parts = np.split(scores, len(self.space.candidates), axis=1)
        return np.array([scores_held_out(part.reshape(shape), self._held_out) for part in parts])

    def descend(self, good: Array) -> None:
        """Trains the candidates with gaps that are good, and drops those that are not.

        Gaps that take a class most of its rows are not taken: the candidate stays as it was.
        """
        with_gaps = np.array([candidate.unlabeled_weight > 0 for candidate in self.space.candidates])
        width = self._w.shape[1] // len(good)
        columns = np.flatnonzero(np.repeat(good & with_gaps, width))
        if len(columns):
            before, shares = self._w.copy(), self._shares()
            start = self._intercept.copy()
            self._intercept[columns] = self.run.means(self._w, self._intercept, columns)
            self._w[:, columns] = self.run.minimize(self._w, self._intercept, columns)
            lost = np.repeat((self._shares() < _KEPT_SHARE * shares).any(axis=1), width)
            self._w[:, lost], self._intercept[lost] = before[:, lost], start[lost]
        stays = np.flatnonzero(np.repeat(good | ~with_gaps, width))
        self._w, self._intercept = self._w[:, stays], self._intercept[stays]
        self.space = self.space.only(good | ~with_gaps)

    def on_sample(self) -> Array:
        """The scores of the sample by the functions of all labelled rows, ``(candidates, n_sample, K)``."""
        n = len(self.space.candidates)
        scores = self.run.scores(*self.main())[self._problem.n_labeled :]
        return scores.reshape(-1, n, self._n_outputs).swapaxes(0, 1)

    def _shares(self) -> Array:
        """The classes' shares of the sample, by each candidate."""
        n_classes = max(2, self._n_outputs)
        return np.array([class_shares(scores, n_classes) for scores in self.on_sample()])

    def average(self, n_total: int) -> Function:
        """The part of these candidates in an average of `n_total` functions, each divided by its mean size."""
        share = 1 / mean_sizes(self.on_sample()) / n_total
        w, intercept = self.main()
        w = np.einsum("pck,c->pk", w.reshape(len(w), len(share), -1), share)
        return w, np.einsum("ck,c->k", intercept.reshape(len(share), -1), share)

    def model(self, function: Function) -> Model:
        problem, landmarks = self._problem, self.run.space.landmarks
        weights, intercept = self.run.space.expansion(*function)
        arguments = problem.kernel, problem.seed, problem.n_dims, no_features(weights), intercept, landmarks, weights
        return Model(*arguments, projection=self.space.representation.projection)

    def main(self) -> Function:
        """The functions that were trained on all labelled rows."""
        main = np.arange(len(self._intercept)).reshape(len(self.space.candidates), -1, self._n_outputs)[:, 0].ravel()
        return self._w[:, main], self._intercept[main]


def _trials(solver: Batch, setting: Setting, space: Space, each: RowMap) -> list[_Trial]:
    """The trial of a space; if its projection has to be learnt again without the rows held out, a trial per group."""
    representation = space.representation
    if representation.relearn is None:
        return [_Trial(solver, setting, space, each)]
    trials = []
    for held_out in np.split(setting.held_out, setting.held_out.shape[1], axis=1):
        projection = representation.relearn(~held_out[:, 0])
        projected = space._replace(representation=representation._replace(projection=projection))
        trials.append(_Trial(solver, setting._replace(held_out=held_out), projected, each))
    return trials


def _scores_held_out(trials: list[_Trial]) -> Array:
    """The scores of labelled rows held out of one of the trials, ``(candidates, n_labeled, K)``; NaN for the others."""
    return np.fmax.reduce([trial.held_out() for trial in trials])


def no_features(weights: Array) -> Array:
    """The coefficients of a model without random features."""
    return np.empty((0, 1, weights.shape[1]), weights.dtype)

"""The second step of a fit: the problem, whose columns are classes, folds held out, and weights to choose from."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from s3vm._utils.arrays import host, project, stack
from s3vm._utils.settings import invalid
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.estimators.candidates import Representation
from s3vm.estimators.folds import N_FOLDS, folds_by_content, held_out_groups
from s3vm.estimators.preparation import PreparedRows
from s3vm.estimators.safety import FEW_LABELS
from s3vm.estimators.settings import ignores_unlabeled, losses_of
from s3vm.kernels import Kernel
from s3vm.losses import LabeledLoss, UnlabeledLoss
from s3vm.problem import Problem
from s3vm.problem.graph import NeighborGraph
from s3vm.solvers import Solver, is_auto
from s3vm.solvers.supervised import supervised_start
from s3vm.sources import ENDLESS, Source
from s3vm.training.memory_check import check_memory

EXACT_ROWS, _EXACT_COLUMNS = 4_096, 100_000  # labelled rows, and these times classes, of an exact supervised SVM


class Tuning(NamedTuple):
    """The cost and the kernel of a fit."""

    supervised: Representation  # of the SVM of the labelled rows, with which unlabelled rows have to compete
    others: tuple[Representation, ...] = ()  # of which labelled rows held out may confirm some
    kernel: Kernel | None = None  # of the model, if its width was chosen with unlabelled rows
    gain: str = ""  # a sentence about column weights or another kernel, if the supervised solution has them
    report: dict[str, Any] = {}  # noqa: RUF012 - never changed; attributes of the estimator that say how they were chosen


class Plan(NamedTuple):
    """A problem, and what its columns stand for: `weights`, times `held_out`, times classes against the rest."""

    problem: Problem
    weights: list[float]
    held_out: Array
    supervised_kernel: Kernel
    chooses_weight: bool  # whether the supervised solution and several weights are compared


def has_candidates(settings: Any, data: PreparedRows) -> bool:
    """Whether candidates of what unlabelled rows know are compared; a single solver follows rows of `partial_fit`."""
    is_followed = data.source is None or data.arrivals is not None
    return is_auto(settings.solver) and not is_followed and not ignores_unlabeled(settings)


def solves_exactly(data: PreparedRows) -> bool:
    """Whether ``solver="auto"`` solves the supervised SVM exactly, and holds out all folds."""
    return len(data.codes) <= EXACT_ROWS and len(data.codes) * len(data.classes) <= _EXACT_COLUMNS


def make_plan(
    settings: Any, solver: Solver, data: PreparedRows, tuning: Tuning, seed: int, n_folds: int, backend: Backend
) -> Plan:
    """The problem to solve, with the supervised solution, from which solvers start, if it is one of the choices.

    Its columns are weights of unlabelled rows, times groups held out, times classes against the rest. Where other rows
    will come, folds and weights depend on none of those there are now.
    """
    rows_will_come = data.arrivals is not None
    weights = _weights(settings.unlabeled_weight, len(data.codes), data.n_unlabeled, rows_will_come)
    if settings.probability or settings.unlabeled_weight == "auto":
        fixed_folds = folds_by_content(data.X, N_FOLDS) if rows_will_come else None
        held_out = held_out_groups(data.codes, n_folds, seed, fixed_folds, data.groups)
    else:
        held_out = np.zeros((len(data.codes), 1), dtype=bool)
    representation = Representation(tuning.kernel or tuning.supervised.kernel, tuning.supervised.C)
    problem = labeled_problem(settings, data, representation, held_out, losses_of(settings, solver), seed)
    graph, neighbor_weight = None, 0.0
    if settings.neighbor_weight not in ("auto", 0) and data.source is not None:
        neighbor_weight = settings.neighbor_weight
        graph = neighbor_graph(settings, data, host(data.source.sample(seed, settings.max_rows)), backend)
    problem = with_unlabeled(problem, data.source, weights, graph, [neighbor_weight] * len(weights))
    chooses_weight = settings.unlabeled_weight == "auto" and data.source is not None
    if chooses_weight:
        check_memory(solver, problem, backend)  # before the first large matrix is made
        problem = replace(problem, supervised=supervised_start(problem))
    return Plan(problem, weights, held_out, tuning.supervised.kernel, chooses_weight)


def labeled_problem(
    settings: Any,
    data: PreparedRows,
    representation: Representation,
    held_out: Array,
    losses: tuple[LabeledLoss, UnlabeledLoss],
    seed: int,
) -> Problem:
    """The problem of the labelled rows alone; its columns are groups held out, times classes against the rest."""
    kernel, C, projection, _ = representation
    targets = one_against_rest(data.codes)
    n_outputs, n_groups = targets.shape[1], held_out.shape[1]
    priors = class_priors(settings.class_prior, data, held_out)
    return Problem(
        labeled=project(data.X, projection),
        targets=np.tile(targets, n_groups),
        costs=costs_held_out(C, data, held_out, n_outputs),
        unlabeled=None,
        unlabeled_cost=np.zeros(n_outputs * n_groups),
        prior=priors[:, -n_outputs:].ravel(),
        prior_is_known=settings.class_prior is not None,
        kernel=kernel,
        labeled_loss=losses[0],
        unlabeled_loss=losses[1],
        seed=seed,
        n_models=n_outputs,
    )


def costs_held_out(C: float, data: PreparedRows, held_out: Array, n_outputs: int) -> Array:
    """The costs of the labelled rows in columns of groups held out, times outputs."""
    return np.repeat((C * data.weight * data.factor)[:, None] * ~held_out, n_outputs, axis=1)


def with_unlabeled(
    problem: Problem,
    source: Source | None,
    weights: Sequence[float],
    graph: NeighborGraph | None,
    neighbor_weights: Sequence[float],
) -> Problem:
    """All columns of a problem of labelled rows, once for each weight of the unlabelled rows and of the neighbors."""
    n, total = len(weights), problem.costs.sum(axis=0)
    return replace(
        problem,
        targets=np.tile(problem.targets, n),
        costs=np.tile(problem.costs, n),
        prior=np.tile(problem.prior, n),
        unlabeled=source,
        unlabeled_cost=np.concatenate([weight * total for weight in weights]),
        graph=graph,
        graph_cost=np.concatenate([weight * total for weight in neighbor_weights]),
    )


def neighbor_graph(settings: Any, data: PreparedRows, sample: Rows, backend: Backend) -> NeighborGraph:
    """The graph of the labelled rows and a sample of unlabelled ones."""
    return NeighborGraph.of(stack([data.X, sample]), settings.n_neighbors, backend.n_threads, put=backend.put)


def _weights(unlabeled_weight: Any, n_labeled: int, n_unlabeled: int, rows_will_come: bool) -> list[float]:
    """The weights of the unlabelled rows to try; the history describes the first."""
    if n_unlabeled == 0:
        return [0.0]
    if unlabeled_weight == "auto":
        return [1.0, 0.3, 0.1] if rows_will_come or n_labeled < FEW_LABELS else [1.0, 0.3]
    if unlabeled_weight == "paper":
        if n_unlabeled == ENDLESS:
            raise ValueError('unlabeled_weight="paper" needs the number of unlabelled rows, unknown to this source')
        return [n_labeled / n_unlabeled]
    return [float(unlabeled_weight)]


def one_against_rest(codes: Array) -> Array:
    """Classes against the rest: a column for the second of two classes, else one column per class."""
    positive = np.arange(1, 2) if codes.max() == 1 else np.arange(codes.max() + 1)
    return np.where(codes[:, None] == positive, 1.0, -1.0)


def class_priors(class_prior: Any, data: PreparedRows, held_out: Array | None = None) -> Array:
    """The class shares expected among the unlabelled rows, for each group held out: shape (groups, n_classes)."""
    n_classes = len(data.classes)
    if held_out is None:
        held_out = np.zeros((len(data.codes), 1), dtype=bool)
    if class_prior is None:
        counts = (data.weight[:, None] * ~held_out).T @ (data.codes[:, None] == np.arange(n_classes))
        return counts / counts.sum(axis=1, keepdims=True)
    try:
        prior = np.asarray(class_prior, dtype=np.float64)
    except (TypeError, ValueError):
        prior = np.empty(0)
    if prior.shape != (n_classes,) or not np.all(prior > 0) or not np.isclose(prior.sum(), 1.0):
        expected = f"one positive number per class ({n_classes} classes), in the order of classes_, that sum to 1"
        raise invalid("class_prior", class_prior, expected)
    return np.tile(prior, (held_out.shape[1], 1))


def scores_held_out(scores: Array, held_out: Array) -> Array:
    """The score of each row by the model that was trained without it; NaN where no model was."""
    result = np.full((scores.shape[0], scores.shape[2]), np.nan)
    rows, groups = np.nonzero(held_out)
    result[rows] = scores[rows, groups]
    return result

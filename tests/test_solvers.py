"""The contract that every solver keeps: whatever is registered is tested here.

`make test` tries each pair of solver, losses, kernel, and backend with precision; `make test-long` tries everything.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from dense import with_graph
from effort import pairwise
from s3vm.backends import backend
from s3vm.kernels import RBF, Kernel
from s3vm.losses import LABELED_LOSSES
from s3vm.solvers import SOLVERS, Solver, base
from s3vm.training.loop import train
from toy import BACKENDS_HERE, KERNELS, KINDS, TOLERANCE, VARIANTS, configured, last, make_problem, rows

CONTRACT = pairwise(
    [
        (variant, (labeled, loss), kernel, (name, dtype))
        for variant, (_, losses) in VARIANTS.items()
        for labeled, unlabeled in losses
        for loss in unlabeled
        for kernel in KERNELS.values()
        for name in BACKENDS_HERE
        for dtype in ("float32", "float64")
    ]
)


@pytest.fixture(scope="module", autouse=True)
def frequencies_are_kept():
    """The reference draws them again for every sum, which is most of its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "frequencies", cache(Kernel.frequencies))
        yield


def problem_for(variant, **settings):
    """A problem with losses that the solver takes."""
    labeled, unlabeled = VARIANTS[variant][1][0]
    return make_problem(RBF(0.7), unlabeled[0], labeled_loss=LABELED_LOSSES[labeled](), **settings)


def test_every_solver_is_in_the_table():
    assert {variant.split(",")[0] for variant in VARIANTS} == set(KINDS)


@cache
def exact_scores(variant, labeled, loss, kernel):
    """What the other backends and precisions are held against."""
    problem = make_problem(kernel, loss, "float64", columns=2, labeled_loss=LABELED_LOSSES[labeled]())
    engine = backend("reference", "float64")
    return last(configured(variant).run(problem, engine)).model().decision(rows()[0], engine)


@pytest.mark.parametrize(("variant", "losses", "kernel", "where"), CONTRACT, ids=str)
def test_contract(variant, losses, kernel, where):
    chosen, (labeled, loss), (name, dtype) = configured(variant), losses, where
    assert isinstance(chosen, Solver)
    problem = make_problem(kernel, loss, dtype, columns=2, labeled_loss=LABELED_LOSSES[labeled]())
    engine = backend(name, dtype)
    X, _ = rows()
    points = X.astype(dtype)
    states = list(chosen.run(problem, engine))
    assert [state.iteration for state in states] == list(range(1, len(states) + 1))
    assert 1 <= len(states) <= chosen.iterations(problem)
    assert chosen.memory(problem, engine) > 0
    assert len({tuple(state.record) for state in states}) == 1, "every line of the history says the same things"
    scores = states[-1].model().decision(points, engine)
    assert scores.shape == (len(X), 2)
    assert all(np.isfinite(value) for state in states for value in state.record.values())

    expected = exact_scores(variant, labeled, loss, kernel)
    size = np.abs(expected).max()
    np.testing.assert_allclose(scores / size, expected / size, rtol=0, atol=10 * TOLERANCE[dtype])

    again = last(chosen.run(problem, engine)).model()
    np.testing.assert_array_equal(again.decision(points, engine), scores)
    for stop in {1, len(states) // 2, len(states) - 1} - {0, len(states)}:
        resumed = last(chosen.run(problem, engine, states[stop - 1])).model()
        np.testing.assert_array_equal(resumed.coefficients, again.coefficients)
        np.testing.assert_array_equal(resumed.weights, again.weights)
        np.testing.assert_array_equal(resumed.intercept, again.intercept)


TAKE_GRAPH = [variant for variant in VARIANTS if configured(variant).takes_graph]


def graph_problem(variant, graph_cost=20.0, dtype="float64", columns=2):
    return with_graph(problem_for(variant, dtype=dtype, columns=columns), graph_cost)


@cache
def exact_scores_with_graph(variant):
    engine = backend("reference", "float64")
    return last(configured(variant).run(graph_problem(variant), engine)).model().decision(rows()[0], engine)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BACKENDS_HERE)
@pytest.mark.parametrize("variant", TAKE_GRAPH)
def test_contract_with_a_graph(variant, name, dtype):
    """The graph counts, on every backend and in every precision, and a run with it is resumed bit for bit."""
    chosen, problem, engine = configured(variant), graph_problem(variant, dtype=dtype), backend(name, dtype)
    X = rows()[0].astype(dtype)
    states = list(chosen.run(problem, engine))
    assert 1 <= len(states) <= chosen.iterations(problem)
    assert chosen.memory(problem, engine) > 0
    scores, expected = states[-1].model().decision(X, engine), exact_scores_with_graph(variant)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=10 * TOLERANCE[dtype] * np.abs(expected).max())
    without = last(chosen.run(problem_for(variant, dtype=dtype, columns=2), engine)).model().decision(X, engine)
    assert np.abs(without - scores).max() > 0.01
    for stop in {1, len(states) // 2} - {0, len(states)}:
        resumed = last(chosen.run(problem, engine, states[stop - 1].detached())).model()
        np.testing.assert_array_equal(resumed.decision(X, engine), scores)


@pytest.mark.parametrize("variant", TAKE_GRAPH)
def test_a_graph_that_costs_nothing_changes_no_bit(variant):
    engine = backend("cpu", "float64")
    models = [
        last(configured(variant).run(problem, engine)).model()
        for problem in (problem_for(variant, columns=2), graph_problem(variant, graph_cost=0.0))
    ]
    for name in ("coefficients", "intercept", "weights", "centers"):
        np.testing.assert_array_equal(*(getattr(model, name) for model in models))


@pytest.mark.parametrize("gaps", [0.0, 5.0])
@pytest.mark.parametrize("variant", TAKE_GRAPH)
def test_columns_with_graphs_are_independent(variant, gaps):
    """Columns may differ in the cost of the graph, even by all of it."""
    exact = {"tol": 1e-9} if variant.startswith("cccp") else {}  # two roundings may differ by as much as it allows
    chosen, engine, both = configured(variant, **exact), backend("cpu", "float64"), graph_problem(variant)
    both.graph_cost[1], both.unlabeled_cost[0] = 3.0, gaps
    scores = last(chosen.run(both, engine)).model().decision(rows()[0], engine)
    for k in (0, 1):
        alone = graph_problem(variant, graph_cost=both.graph_cost[k], columns=1)
        alone.targets[:], alone.prior[:] = both.targets[:, [k]], both.prior[[k]]
        alone.unlabeled_cost[:] = both.unlabeled_cost[[k]]
        single = last(chosen.run(alone, engine)).model().decision(rows()[0], engine)
        np.testing.assert_allclose(scores[:, [k]], single, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_graph_is_taken_or_refused(name):
    problem, engine = graph_problem(name, columns=1), backend("cpu", "float64")
    if name in TAKE_GRAPH:
        train(configured(name), problem, engine)
    else:
        with pytest.raises(ValueError, match="needs a problem without a graph of neighbors"):
            train(configured(name), problem, engine)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_state_never_changes(variant):
    engine = backend("cpu", "float64")
    X, _ = rows()
    seen = []
    states = []
    for state in configured(variant).run(problem_for(variant), engine):
        states.append(state)
        seen.append(state.model().decision(X, engine))
    for state, scores in zip(states, seen):
        np.testing.assert_array_equal(state.model().decision(X, engine), scores)


@pytest.mark.parametrize("weight", [0.0, 3.0])
@pytest.mark.parametrize("variant", VARIANTS)
def test_columns_are_independent(variant, weight):
    """Two columns of one run are the two runs of one column."""
    chosen = configured(variant)
    engine = backend("cpu", "float64")
    both = problem_for(variant, columns=2)
    both.costs[:, 1] *= 0.5
    both.costs[0, 1] = 0.0
    both.unlabeled_cost[1] *= weight
    model = last(chosen.run(both, engine)).model()
    X, _ = rows()
    # Alone, a column that the unlabelled rows do not matter to may be solved without them, along another way.
    alone_differs = variant.startswith(("tsg", "light"))
    for k in (0,) if alone_differs and not weight else (0, 1):
        alone = problem_for(variant, columns=1)
        alone.targets[:], alone.costs[:] = both.targets[:, [k]], both.costs[:, [k]]
        alone.prior[:], alone.unlabeled_cost[:] = both.prior[[k]], both.unlabeled_cost[[k]]
        single = last(chosen.run(alone, engine)).model().decision(X, engine)
        np.testing.assert_allclose(model.decision(X, engine)[:, [k]], single, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_run_goes_on_longer(variant):
    problem, engine = problem_for(variant), backend("cpu", "float64")
    first = last(configured(variant).run(problem, engine)).detached()
    more = list(configured(variant).extended(problem, first.iteration).run(problem, engine, first))
    assert [state.iteration for state in more] == list(range(first.iteration + 1, first.iteration + 1 + len(more)))
    assert more or variant.startswith(("cccp", "newton", "light", "incremental")), "those are at the end already"


@pytest.mark.parametrize(
    ("variant", "settings", "words"),
    [
        ("bgs", {"n_labeled": 8}, "BGS can resume only with the same rows"),
        ("cccp", {"n_labeled": 8}, "can resume only with the same rows"),
        ("light", {"n_labeled": 8}, "can resume only with the same rows"),
        ("newton", {"n_labeled": 8}, "can resume only with the same rows"),
        ("printed_tsg", {"columns": 2}, "cannot resume with 2 columns from a state of 1"),
    ],
)
def test_what_a_run_cannot_go_on_from(variant, settings, words):
    engine = backend("cpu", "float64")
    state = last(configured(variant).run(problem_for(variant), engine))
    with pytest.raises(ValueError, match=words):
        last(configured(variant).run(problem_for(variant, **settings), engine, state))


def test_without_unlabeled_rows_everything_is_the_labeled_ones():
    problem = problem_for("tsg")
    assert len(problem.all_rows()) == problem.n_rows == 36
    assert replace(problem, unlabeled=None).all_rows() is problem.labeled


@dataclass(frozen=True)
class Recorded:
    record: dict[str, Any]


def test_numbers_on_a_device_are_fetched_together(monkeypatch):
    """Here an array of no dimension is what lies on a device: some states are held back, and none is lost."""
    asked = []
    monkeypatch.setattr(base, "is_tensor", lambda value: isinstance(value, np.ndarray))
    monkeypatch.setattr(base, "host", lambda values: asked.append(len(values)) or values)
    plain = list(base.settled(Recorded({"t": np.array(t), "loss": 0.5}) for t in range(7)))
    held = base.settled((Recorded({"t": np.array(t), "loss": 0.5}) for t in range(7)), at_once=3)
    assert list(held) == plain == [Recorded({"t": float(t), "loss": 0.5}) for t in range(7)]
    assert asked == [7, 3, 3, 1]
    here = [Recorded({"t": 1.0})]
    assert next(base.settled(iter(here))) is here[0]

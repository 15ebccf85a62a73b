"""BGS: stochastic gradients on a neighbour graph, against a literal loop, and its budgets."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_moons

from effort import cases
from s3vm import BGS, Decaying, S3VMClassifier
from s3vm.backends import backend
from s3vm.kernels import RBF, Polynomial
from s3vm.losses import Hinge, SmoothHinge
from s3vm.philox import Purpose, indices
from s3vm.solvers.bgs.bgs import kernel_edges
from s3vm.sources import ArraySource
from toy import last, make_problem, rows

ENGINE = backend("cpu", "float64")
PLAIN = {"anchor": False, "implicit": False, "balance": False, "intercept": False, "draw_labeled": True}


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_equals_a_literal_loop(p):
    """Le et al.'s update on a dictionary of coefficients, without budgets."""
    problem = make_problem(RBF(0.7), "hat", labeled_loss=Hinge())
    settings = {"look_ahead": 3, "n_neighbors": 4, "exponent": p, "unlabeled_budget": None, "step": Decaying(t0=1)}
    state = last(BGS(max_iter=5, batch_size=2, **settings, **PLAIN).run(problem, ENGINE))
    X, y = rows()
    edges = kernel_edges(X, 4, RBF(0.7), np.ones(len(X)))
    coefficients = dict.fromkeys(range(len(X)), 0.0)

    def f(i):
        return sum(a * np.exp(-0.7 * np.sum((X[j] - X[i]) ** 2)) for j, a in coefficients.items())

    for t in range(15):
        gamma, slopes = 1 / (2 + t), dict.fromkeys(range(len(X)), 0.0)
        for i in indices(problem.seed, Purpose.LABELED, range(t, t + 1), 2, 6)[0]:
            if y[i] * f(i) < 1:
                slopes[i] -= 6 / 2 * 2.0 * y[i]
        for u, v in edges.pairs[edges.draw(problem.seed, Purpose.UNLABELED, range(t, t + 1), 2)[0]]:
            gap = f(u) - f(v)
            pull = 5.0 / 2 * p * abs(gap) ** (p - 1) * np.sign(gap)
            slopes[u] += pull
            slopes[v] -= pull
        coefficients = {i: (1 - gamma) * a - gamma * slopes[i] for i, a in coefficients.items()}
    expected = np.array([f(i) for i in range(len(X))])
    np.testing.assert_allclose(state.model().decision(X, ENGINE)[:, 0], expected, atol=1e-10)


def test_the_graph_joins_nearest_rows():
    X, _ = rows()
    edges = kernel_edges(X, 3, RBF(0.7), np.ones(len(X)))
    distance = np.linalg.norm(X[:, None] - X, axis=2) + np.diag(np.full(len(X), np.inf))
    nearest = np.argsort(distance, axis=1)[:, :3]
    expected = {tuple(sorted((i, int(j)))) for i in range(len(X)) for j in nearest[i]}
    assert {tuple(edge) for edge in edges.pairs.tolist()} == expected
    u, v = edges.pairs.T
    np.testing.assert_allclose(edges.weights, np.exp(-0.7 * np.sum((X[u] - X[v]) ** 2, axis=1)), rtol=1e-9)
    drawn = edges.draw(0, Purpose.UNLABELED, range(2000), 5)
    counts = np.bincount(drawn.ravel(), minlength=len(edges.pairs)) / drawn.size
    np.testing.assert_allclose(counts, edges.weights / edges.weights.sum(), atol=0.02)


@pytest.mark.parametrize("maintenance", ["removal", "projection"])
def test_budgets_are_kept(maintenance):
    problem = make_problem(RBF(0.7), "hat", columns=2, labeled_loss=SmoothHinge())
    solver = BGS(max_iter=20, batch_size=8, labeled_budget=3, unlabeled_budget=0.2, maintenance=maintenance)
    for state in solver.run(problem, ENGINE):
        used = state.weights != 0
        assert used[state.at < 6].sum(axis=0).max() <= 3
        assert used[state.at >= 6].sum(axis=0).max() <= 6
        f = state.evaluate(problem.labeled)
        np.testing.assert_allclose(state.scores, f, atol=1e-9)


def test_projection_changes_the_function_less_than_removal():
    changes = {"removal": [], "projection": []}
    for seed in range(cases(2, 5)):
        X, y = make_moons(200, noise=0.15, random_state=seed)
        some = np.where(np.arange(200) < 20, y, -1)
        settings = {"C": 10, "gamma": 5.0, "unlabeled_weight": 1.0, "probability": False, "random_state": 0}
        free = S3VMClassifier(BGS(unlabeled_budget=None, balance=False), **settings).fit(X, some)
        for maintenance, found in changes.items():
            solver = BGS(unlabeled_budget=40, maintenance=maintenance, balance=False)
            clf = S3VMClassifier(solver, **settings).fit(X, some)
            found.append(np.sqrt(np.mean((clf.decision_function(X) - free.decision_function(X)) ** 2)))
    assert np.mean(changes["projection"]) < np.mean(changes["removal"])


def test_two_moons():
    """What a graph sees and a margin does not."""
    gains = []
    for seed in range(4):
        X, y = make_moons(400, noise=0.08, random_state=seed)
        some = np.full(400, -1)
        for code in (0, 1):
            some[np.flatnonzero(y == code)[:4]] = code
        settings = {"C": 10, "gamma": 10.0, "probability": False, "random_state": 0}
        clf = S3VMClassifier("bgs", unlabeled_weight=1.0, **settings).fit(X, some)
        alone = S3VMClassifier("bgs", unlabeled_weight=0.0, **settings).fit(X, some)
        gains.append(clf.score(X, y) - alone.score(X, y))
    assert np.mean(gains) > 0.02


def test_without_cost_it_is_the_supervised_svm():
    problem = make_problem(RBF(0.7), "hat", C_star=0.0, labeled_loss=SmoothHinge())
    assert len(list(BGS().run(problem, ENGINE))) == 1


def test_rows_that_are_all_alike():
    some = np.array([0, 1, 0, 1] + [-1] * 16)
    clf = S3VMClassifier("bgs", gamma=1.0, unlabeled_weight=1.0, probability=False).fit(np.ones((20, 2)), some)
    assert np.isfinite(clf.decision_function(np.ones((1, 2)))).all()


def test_as_printed():
    """One row and one edge a step, no intercept, and the budgets of the paper."""
    problem = make_problem(RBF(0.7), "hat", labeled_loss=SmoothHinge())
    solver = BGS.as_printed(look_ahead=4)
    states = list(solver.run(problem, ENGINE))
    assert len(states) == solver.iterations(problem) == 8, "30 steps, four at a time"
    assert all(state.model().intercept == 0 for state in states)
    found = np.array([len(set(state.at.tolist()) - set(range(6))) for state in states])
    assert found.max() == 0.2 * 30, "a fifth of the unlabelled rows"


def test_unlabeled_rows_that_the_kernel_cannot_take():
    problem = make_problem(Polynomial(1.0, degree=3, coef0=0.0), "hat", labeled_loss=SmoothHinge())
    far = ArraySource(1e120 * rows()[0], np.arange(6, 36), np.float64)
    with pytest.raises(ValueError, match="standardise"):
        last(BGS().run(replace(problem, unlabeled=far), ENGINE))


def test_a_kernel_that_is_not_finite():
    with pytest.raises(ValueError, match="standardise"):
        last(BGS().run(make_problem(Polynomial(1e200, degree=3, coef0=0.0), "hat", labeled_loss=SmoothHinge()), ENGINE))


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"exponent": 3.0},
        {"maintenance": "no"},
        {"unlabeled_budget": 1.5},
        {"step": "no"},
        {"intercept": False},
    ],
)
def test_settings_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        BGS(**wrong)


def test_other_losses_are_refused():
    with pytest.raises(ValueError, match="BGS cannot minimise loss"):
        last(BGS().run(make_problem(RBF(0.7), "exp", labeled_loss=SmoothHinge()), ENGINE))

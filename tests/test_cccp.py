"""CCCP: never uphill, ends at a minimum, holds the balance, and is the supervised SVM where nothing else is there."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning

from s3vm import S3VMClassifier
from s3vm.backends import backend
from s3vm.kernels import RBF, Laplacian, Matern, Polynomial
from s3vm.losses import Exponential, Hat, Hinge, Ramp, SmoothHinge
from s3vm.problem import Problem
from s3vm.solvers import CCCP, smo
from s3vm.solvers.supervised import labeled_gram, supervised
from s3vm.sources import ArraySource
from toy import last

KERNELS = [RBF(0.5), Laplacian(0.3), Matern(0.5), Polynomial(0.5, degree=2), Polynomial(0.5, degree=1, coef0=0.0)]
ENGINE = backend("cpu", "float64", cache_bytes=64 << 20)


def make(kernel=None, loss=None, seed=0, n_labeled=12, n_unlabeled=80, C=10.0, weight=1.0, X=None, y=None, columns=1):
    rng = np.random.default_rng(seed)
    if X is None:
        X = rng.normal(size=(n_labeled + n_unlabeled, 3))
        y = np.where(X[:, 0] + 0.3 * rng.normal(size=len(X)) > 0.2, 1.0, -1.0)
    targets = np.tile(y[:n_labeled, None], columns)
    if np.all(targets == targets[0]):
        targets[0] *= -1
    return Problem(
        labeled=X[:n_labeled],
        targets=targets,
        costs=np.full(targets.shape, C),
        unlabeled=ArraySource(X, np.arange(n_labeled, X.shape[0]), X.dtype) if n_unlabeled else None,
        unlabeled_cost=np.full(columns, weight * C * n_labeled),
        prior=(targets > 0).mean(axis=0),
        prior_is_known=False,
        kernel=kernel or RBF(0.5),
        labeled_loss=Hinge(),
        unlabeled_loss=loss or Ramp(),
        seed=seed,
        n_models=1,
    )


def objectives(solver, problem, engine=ENGINE):
    return np.array([state.record["objective"] for state in solver.run(problem, engine)])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("balance", ["supervised", "prior", None])
@pytest.mark.parametrize("loss", [Ramp(), Ramp(-0.8), Hat()], ids=repr)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_objective_never_rises(kernel, loss, balance, dtype):
    for seed in range(4):
        for C in (0.1, 100.0):
            problem = make(kernel, loss, seed, C=C)
            found = objectives(CCCP(balance=balance), problem, backend("cpu", dtype))
            assert len(found) >= 1
            assert np.all(np.diff(found) <= 0)


def test_the_objective_never_rises_even_if_problems_are_solved_roughly():
    for seed in range(10):
        assert np.all(np.diff(objectives(CCCP(tol=0.5), make(seed=seed, C=100.0))) <= 0)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_ends_at_a_minimum(kernel):
    """No small step to another function of the same mean lowers Eq. 1."""
    problem = make(kernel)
    column = last(CCCP(tol=1e-8).run(problem, ENGINE)).columns[0]
    n_l, K = problem.n_labeled, kernel.gram(problem.all_rows(), problem.all_rows())
    rng = np.random.default_rng(0)

    def objective(weights):
        f = K @ weights
        scores = f + column.scores[n_l:].mean() - f[n_l:].mean()
        return problem.objective(0, weights @ f, scores[:n_l], scores[n_l:])

    least = objective(column.weights)
    assert least == pytest.approx(column.objective, rel=1e-6)
    for size in (1e-4, 1e-3):
        for _ in range(100):
            assert objective(column.weights + size * rng.normal(size=len(K))) > least - 1e-9 * least


@pytest.mark.parametrize("n_columns", [1, 3])
def test_holds_the_balance(n_columns):
    problem = make(columns=n_columns, n_labeled=50)
    for state in CCCP(balance="prior").run(problem, ENGINE):
        for k, column in enumerate(state.columns):
            assert column.scores[50:].mean() == pytest.approx(2 * problem.prior[k] - 1, abs=1e-9)
    start = labeled_gram(problem.kernel, problem.labeled)
    dual, intercept = supervised(start, problem.targets, problem.costs)
    mean = (problem.kernel.gram(problem.all_rows()[50:], problem.labeled) @ dual + intercept).mean(axis=0)
    for state in CCCP().run(problem, ENGINE):
        np.testing.assert_allclose([column.scores[50:].mean() for column in state.columns], mean, atol=1e-6)


def test_without_balance_it_goes_lower():
    for seed in range(5):
        problem = make(seed=seed)
        assert objectives(CCCP(balance=None), problem)[-1] <= objectives(CCCP(balance="prior"), problem)[-1]


@pytest.mark.parametrize("settings", [{"n_unlabeled": 0}, {"weight": 0.0}, {"weight": 0.0, "n_unlabeled": 1}])
def test_is_the_supervised_svm_without_unlabeled_rows(settings):
    problem = make(**settings)
    (state,) = CCCP().run(problem, ENGINE)
    dual, intercept = supervised(labeled_gram(problem.kernel, problem.labeled), problem.targets, problem.costs)
    np.testing.assert_array_equal(state.model().weights, dual)
    np.testing.assert_array_equal(state.model().intercept, intercept)


def test_a_column_of_weight_zero_is_supervised_beside_others():
    problem = make(columns=2)
    problem.unlabeled_cost[1] = 0.0
    state = last(CCCP().run(problem, ENGINE))
    dual, intercept = supervised(labeled_gram(problem.kernel, problem.labeled), problem.targets, problem.costs)
    np.testing.assert_array_equal(state.columns[1].weights[: len(dual)], dual[:, 1])
    assert state.columns[1].intercept == intercept[1]
    assert not np.array_equal(state.columns[0].weights[: len(dual)], dual[:, 0])


def test_hat_is_the_ramp_at_zero():
    a, b = (last(CCCP().run(make(loss=loss), ENGINE)).columns[0] for loss in (Hat(), Ramp(0.0)))
    np.testing.assert_array_equal(a.weights, b.weights)


def _edge_cases():
    X = np.random.default_rng(3).normal(size=(60, 3))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    one_class = make(columns=2)
    one_class.costs[one_class.targets[:, 1] < 0, 1] = 0.0
    one_class.prior[1] = 1.0
    return {
        "one unlabelled row": make(n_unlabeled=1),
        "tiny cost": make(C=1e-3),
        "huge cost": make(C=1e4),
        "equal rows": make(X=np.repeat(X[:15], 4, axis=0), y=np.repeat(y[:15], 4)),
        "labelled rows that are unlabelled too": make(X=np.vstack([X[:12], X]), y=np.append(y[:12], y)),
        "all rows equal": make(X=np.ones((60, 3)), y=y),
        "one class in a fold": one_class,
    }


@pytest.mark.parametrize("balance", ["supervised", "prior", None])
@pytest.mark.parametrize("name", _edge_cases())
def test_edges(name, balance):
    problem = _edge_cases()[name]
    found = list(CCCP(balance=balance).run(problem, ENGINE))
    assert all(np.isfinite(column.scores).all() for state in found for column in state.columns)
    for k in range(problem.n_columns):
        assert np.all(np.diff([state.columns[k].objective for state in found]) <= 0)


def test_says_so_if_the_kernel_is_not_finite():
    X = 1e60 * np.random.default_rng(0).normal(size=(30, 3))
    with pytest.raises(ValueError, match="standardise"):
        last(CCCP().run(make(Polynomial(1.0, degree=9), X=X, y=np.sign(X[:, 0])), ENGINE))


def test_threads_parts_and_sparse_rows_change_nothing(monkeypatch):
    problem = make(columns=3, n_unlabeled=200)
    problem.costs[:, 1] *= 3
    problem.costs[1:3, 2] = 0
    expected = last(CCCP(tol=1e-8).run(problem, ENGINE)).model()
    threaded = last(CCCP(tol=1e-8).run(problem, backend("cpu", "float64", 3, 64 << 20))).model()
    np.testing.assert_array_equal(threaded.weights, expected.weights)
    X = sparse.csr_array(problem.all_rows())
    rows = replace(problem, labeled=X[:12], unlabeled=ArraySource(X, np.arange(12, X.shape[0]), "float64"))
    from_sparse = last(CCCP(tol=1e-8).run(rows, ENGINE)).model()
    monkeypatch.setattr("s3vm.solvers.gram._PART", 32)
    in_parts = last(CCCP(tol=1e-8).run(problem, backend("cpu", "float64", 3, 0))).model()
    for found in (from_sparse, in_parts):
        scores = found.decision(X.toarray(), ENGINE)
        np.testing.assert_allclose(scores, expected.decision(X.toarray(), ENGINE), atol=1e-5)


def test_every_gap_is_small(monkeypatch):
    gaps, solve = [], smo.solve

    def watched(*given, **named):
        found = solve(*given, **named)
        gaps.append(found.gap)
        return found

    monkeypatch.setattr(smo, "solve", watched)
    for kernel in KERNELS:
        list(CCCP().run(make(kernel), ENGINE))
    assert len(gaps) > 10
    assert max(gaps) < 1e-3


def test_says_so_if_a_problem_is_too_hard(monkeypatch):
    monkeypatch.setattr("s3vm.solvers.cccp._MOST_STEPS", 10)
    with pytest.warns(ConvergenceWarning, match="standardise"):
        found = objectives(CCCP(), make())
    assert np.all(np.diff(found) <= 0)


def test_goes_on_with_other_costs():
    first = last(CCCP().run(make(), ENGINE))
    other = make(weight=0.2, C=3.0)
    found = [state.record["objective"] for state in CCCP().extended(other, first.iteration).run(other, ENGINE, first)]
    assert len(found) >= 1
    column = first.columns[0]
    scores = column.scores[:12], column.scores[12:]
    assert found[0] <= other.objective(0, column.resume_state.a @ column.resume_state.f, *scores)
    assert np.all(np.diff(found) <= 0)


def test_goes_on_only_from_its_own_runs():
    problem = make()
    for state in (last(CCCP(balance=None).run(problem, ENGINE)), last(CCCP().run(problem, ENGINE))):
        with pytest.raises(ValueError, match="warm_start=False"):
            next(CCCP().run(problem, ENGINE, replace(state, columns=[state.columns[0]._replace(resume_state=None)])))
    with pytest.raises(ValueError, match="warm_start=False"):
        next(CCCP().run(problem, ENGINE, last(CCCP(balance=None).run(problem, ENGINE))))


@pytest.mark.parametrize(("n_unlabeled", "cache_bytes"), [(2500, 64 << 20), (4000, 0)])
def test_memory_is_as_foretold(n_unlabeled, cache_bytes):
    problem, engine = make(n_unlabeled=n_unlabeled, n_labeled=100), backend("cpu", "float32", 1, cache_bytes)
    list(CCCP(max_iter=1).run(make(), engine))  # compiles
    tracemalloc.start()
    try:
        list(CCCP(max_iter=3).run(problem, engine))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.67 < CCCP().memory(problem, engine) / peak < 2


def test_two_moons():
    X, y = make_moons(300, noise=0.1, random_state=0)
    some = y.copy()
    some[10:] = -1
    assert np.mean(S3VMClassifier("cccp", random_state=0).fit(X, some).predict(X) == y) > 0.8
    clf = S3VMClassifier("cccp", unlabeled_weight=1.0, random_state=0).fit(X, some)
    assert np.mean(clf.predict(X) == y) > 0.95
    assert np.all(np.diff(clf.history_["objective"]) <= 0)
    clf = S3VMClassifier(CCCP(max_iter=2), unlabeled_weight=1.0, warm_start=True, random_state=0).fit(X, some)
    n_iter = clf.n_iter_
    assert clf.fit(X, some).n_iter_ >= n_iter
    assert np.all(np.diff(clf.history_["objective"]) <= 0)


def test_says_what_it_cannot_do():
    with pytest.raises(ValueError, match=r"CCCP cannot minimise loss=Exp.*Ramp\(\) or Hat\(\)"):
        next(CCCP().run(replace(make(), unlabeled_loss=Exponential()), ENGINE))
    with pytest.raises(ValueError, match="CCCP cannot minimise labeled_loss"):
        next(CCCP().run(replace(make(), labeled_loss=SmoothHinge()), ENGINE))
    for wrong in ({"max_iter": 0}, {"max_iter": 2.5}, {"tol": 0.0}, {"balance": "yes"}):
        with pytest.raises(ValueError, match=f"CCCP: {next(iter(wrong))}=.* is not valid: give"):
            CCCP(**wrong)


def test_a_second_fit_that_has_nothing_left_to_do():
    """It makes no iteration, and the history stays as it was."""
    X, y = make_moons(80, noise=0.1, random_state=0)
    clf = S3VMClassifier("cccp", C=1.0, gamma=1.0, warm_start=True, probability=False, unlabeled_weight=1.0)
    some = np.where(np.arange(80) < 10, y, -1)
    first = clf.fit(X, some).history_
    again = clf.fit(X, some).history_
    np.testing.assert_array_equal(again["objective"], first["objective"])

"""S3VMlight: labels switched in pairs until none is left."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_moons

from s3vm import Light, S3VMClassifier
from s3vm.backends import backend
from s3vm.kernels import RBF, Polynomial
from s3vm.solvers.light import _switched
from s3vm.solvers.supervised import labeled_gram, supervised
from s3vm.sources import ArraySource
from toy import last, make_problem, rows

ENGINE = backend("cpu", "float64", cache_bytes=1 << 24)


def pairs_left(y, scores, n_labeled):
    """The largest sum of slacks of a positive and a negative row."""
    slack = np.maximum(0, 1 - y * scores)[n_labeled:]
    signs = y[n_labeled:]
    return slack[signs > 0].max() + slack[signs < 0].max()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("prior", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("cost", [0.5, 20.0])
def test_ends_with_no_switchable_pair_and_the_exact_share(seed, prior, cost):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 3))
    source = ArraySource(X, np.arange(6, 60), "float64")
    problem = replace(make_problem(RBF(0.7), "hat", C_star=cost), labeled=X[:6], unlabeled=source)
    problem = replace(problem, prior=np.array([prior]))
    for state in Light().run(problem, ENGINE):
        column = state.columns[0]
        y, found = column.resume_state.y, column.resume_state.svm
        assert np.count_nonzero(y[6:] > 0) == round(prior * 54)
        assert found.gap < 1e-3
    slack = np.maximum(0, 1 - y * column.scores)[6:]
    assert pairs_left(y, column.scores, 6) <= 2.003 or min(slack[y[6:] > 0].max(), slack[y[6:] < 0].max()) == 0


def test_every_swap_lowers_the_objective_on_its_own():
    rng = np.random.default_rng(0)
    swaps = 0
    for _ in range(50):
        y = np.concatenate([[1.0, -1.0], rng.choice([-1.0, 1.0], 20)])
        scores = rng.normal(scale=2, size=22)
        costs = np.where(y > 0, rng.uniform(0.1, 3), rng.uniform(0.1, 3))
        by_sign = {sign: costs[y == sign][-1] for sign in (-1.0, 1.0)}
        new = _switched(y, scores, 2, 2.0)
        if new is None:
            assert pairs_left(y, scores, 2) <= 2
            continue
        swaps += 1
        assert np.array_equal(new[:2], y[:2])
        assert (new > 0).sum() == (y > 0).sum()
        loss = [sum(by_sign[s] * max(0, 1 - s * r) for s, r in zip(labels, scores)) for labels in (y, new)]
        assert loss[1] < loss[0]
    assert swaps > 20


def test_without_cost_it_is_the_supervised_svm():
    problem = make_problem(RBF(0.7), "hat", n_labeled=20, C_star=0.0)
    states = list(Light(tol=1e-5).run(problem, ENGINE))
    assert len(states) == 1
    dual, intercept = supervised(labeled_gram(problem.kernel, problem.labeled), problem.targets, problem.costs)
    expected = problem.kernel.gram(problem.all_rows(), problem.labeled) @ dual + intercept
    np.testing.assert_allclose(states[0].model().decision(problem.all_rows(), ENGINE), expected, atol=1e-3)


@pytest.mark.parametrize("C", [1e-3, 1e4])
@pytest.mark.parametrize("n_unlabeled", [1, 2, 30])
def test_few_rows_and_extreme_costs(n_unlabeled, C):
    X, _ = rows()
    X = np.concatenate([X, X[:6]])  # labelled rows that are unlabelled as well
    problem = make_problem(RBF(0.7), "hat", C=C, C_star=C)
    problem = replace(problem, unlabeled=ArraySource(X[::-1].copy(), np.arange(n_unlabeled), "float64"))
    assert np.isfinite(last(Light().run(problem, ENGINE)).model().decision(X, ENGINE)).all()


def test_rows_that_are_all_alike():
    X = np.ones((20, 2))
    some = np.array([0, 1, 0, 1] + [-1] * 16)
    scores = S3VMClassifier("light", gamma=1.0, unlabeled_weight=1.0, probability=False).fit(X, some).predict(X)
    assert len(set(scores)) == 1


def test_a_kernel_that_is_not_finite():
    problem = make_problem(Polynomial(1e200, degree=3, coef0=0.0), "hat")
    with pytest.raises(ValueError, match="standardise"):
        last(Light().run(problem, ENGINE))


def test_two_moons():
    X, y = make_moons(300, noise=0.1, random_state=0)
    some = np.where(np.arange(300) < 10, y, -1)
    clf = S3VMClassifier("light", C=10, gamma=2.0, unlabeled_weight=1.0, random_state=0).fit(X, some)
    alone = S3VMClassifier("light", C=10, gamma=2.0, unlabeled_weight=0.0, random_state=0).fit(X, some)
    assert clf.score(X, y) > alone.score(X, y)
    assert clf.history_["objective"][-1] < clf.history_["objective"][0]


@pytest.mark.parametrize("wrong", [{"growth": 1.0}, {"first": 0.0}, {"tol": 0.0}])
def test_settings_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Light(**wrong)


def test_other_losses_are_refused():
    with pytest.raises(ValueError, match=r'Light cannot minimise loss=.*"tsg"'):
        last(Light().run(make_problem(RBF(0.7), "exp"), ENGINE))

"""FRS: stochastic gradients on fixed features, against a literal loop and a convex solver."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import make_moons

from s3vm import FRS, Decaying, S3VMClassifier
from s3vm.backends import backend
from s3vm.kernels import RBF
from s3vm.losses import SquaredHinge
from s3vm.philox import Purpose, indices
from toy import last, make_problem, rows

ENGINE = backend("cpu", "float64")


@pytest.mark.parametrize("loss", ["hat", "squared_hat", "ramp", "exp"])
@pytest.mark.parametrize("draw", [False, True])
def test_equals_a_literal_loop(loss, draw):
    problem = make_problem(RBF(0.7), loss)
    T, m, batch = 30, 16, 8
    settings = {"intercept": False, "balance": False, "ramp": 0.0, "step": Decaying(t0=1), "draw_labeled": draw}
    w = last(FRS(max_iter=T, n_features=m, batch_size=batch, **settings).run(problem, ENGINE)).w[:, 0]
    X, y = rows()
    phi = backend("reference", "float64").features(RBF(0.7), problem.seed, m, 3).features(0, X)
    expected = np.zeros(m)
    for t in range(T):
        gamma = 1 / (2 + t)
        labeled = indices(problem.seed, Purpose.LABELED, range(t, t + 1), batch, 6)[0] if draw else np.arange(6)
        gradient = np.zeros(m)
        for i in labeled:
            if y[i] * (phi[i] @ expected) < 1:
                gradient -= 6 / len(labeled) * 2.0 * y[i] * phi[i]
        for i in indices(problem.seed, Purpose.UNLABELED, range(t, t + 1), batch, 30)[0]:
            r = phi[6 + i] @ expected
            gradient += 5.0 / batch * problem.unlabeled_loss.grad(np.array(r)) * phi[6 + i]
        expected = (1 - gamma) * expected - gamma * gradient
    np.testing.assert_allclose(w, expected, rtol=0, atol=1e-10)


def test_converges_to_the_minimizer_on_its_features():
    problem = make_problem(RBF(0.7), "hat", C_star=0.0, labeled_loss=SquaredHinge())
    model = last(
        FRS(max_iter=4000, n_features=64, step="decaying", intercept=False, balance=False).run(problem, ENGINE)
    )
    phi = ENGINE.features(RBF(0.7), problem.seed, 64, 3).features(0, problem.labeled)
    y, cost = problem.targets[:, 0], problem.costs[0, 0]

    def objective(w):
        return w @ w / 2 + cost * np.sum(np.maximum(0, 1 - y * (phi @ w)) ** 2) / 2

    best = minimize(objective, np.zeros(64)).fun
    assert objective(model.w[:, 0]) == pytest.approx(best, rel=1e-3)
    assert model.record["objective"] == pytest.approx(best, rel=1e-2)


def test_the_intercept_holds_the_balance():
    problem = make_problem(RBF(0.7), "exp")
    model = last(FRS(max_iter=50, n_features=64, batch_size=8).run(problem, ENGINE)).model()
    scores = model.decision(problem.unlabeled.sample(problem.seed, 500), ENGINE)
    assert scores.mean() == pytest.approx(2 * problem.prior[0] - 1, abs=1e-9)


def test_two_moons():
    X, y = make_moons(400, noise=0.1, random_state=0)
    some = np.where(np.arange(400) < 10, y, -1)
    settings = {"C": 10, "gamma": 2.0, "probability": False, "random_state": 0}
    clf = S3VMClassifier("frs", unlabeled_weight=1.0, **settings).fit(X, some)
    alone = S3VMClassifier("frs", unlabeled_weight=0.0, **settings).fit(X, some)
    assert clf.score(X, y) >= alone.score(X, y)
    printed = S3VMClassifier(FRS.as_printed(), unlabeled_weight="paper", labeled_loss="hinge", loss="hat", **settings)
    assert printed.fit(X, some).n_iter_ == 16  # ten passes over 390 rows


@pytest.mark.parametrize(
    "wrong", [{"max_iter": 0}, {"passes": 0}, {"ramp": 2}, {"n_features": 1.5}, {"intercept": False}, {"step": "no"}]
)
def test_settings_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FRS(**wrong)


def test_other_features_cannot_go_on():
    problem = make_problem(RBF(0.7), "exp")
    state = last(FRS(max_iter=5, n_features=16).run(problem, ENGINE))
    with pytest.raises(ValueError, match="warm_start=False"):
        last(FRS(max_iter=9, n_features=32).run(problem, ENGINE, state))

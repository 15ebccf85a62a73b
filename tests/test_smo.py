"""The quadratic problem solver against scikit-learn's, against itself in parts, and at the edges."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from sklearn.svm import SVC

from s3vm.kernels import RBF, Laplacian, Matern, Polynomial
from s3vm.solvers.gram import Gram
from s3vm.solvers.smo import feasible, solve

ENOUGH = 1 << 30
KERNELS = [RBF(0.3), Laplacian(0.2), Matern(0.3), Polynomial(0.1, degree=2), Polynomial(0.5, degree=1, coef0=0.0)]


@cache
def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, np.where(X[:, 0] + X[:, 1] ** 2 + 0.5 * rng.normal(size=n) > 0.7, 1.0, -1.0)


def box(y, C):
    return y, np.minimum(0, y * C), np.maximum(0, y * C)


def objective(K, a, z):
    return a @ K @ a / 2 - z @ a


def both_copies(n_l=40, cost=0.5, C=5.0, seed=1):
    """Labelled rows, then unlabelled ones whose boxes have been moved either way or not: z, lower, knee, upper."""
    _, y = rows()
    as_positive, as_negative = cost * np.eye(3)[np.random.default_rng(seed).integers(3, size=len(y) - n_l)][:, :2].T
    z, lower, upper = box(y[:n_l], C)
    knee = np.append(upper, as_negative - as_positive)
    upper = np.append(upper, cost - as_positive + as_negative)
    lower = np.append(lower, as_negative - as_positive - cost)
    return np.append(z, np.ones(len(y) - n_l)), lower, knee, upper


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_agrees_with_svc(kernel, C, weighted):
    X, y = rows()
    cost = C * (np.random.default_rng(1).uniform(0, 2, len(y)) if weighted else np.ones(len(y)))
    K = kernel.gram(X, X)
    svc = SVC(C=1.0, kernel="precomputed", tol=1e-7).fit(K, y, sample_weight=cost)
    dual = np.zeros(len(y))
    dual[svc.support_] = svc.dual_coef_[0]
    for dtype in (np.float32, np.float64):
        found = solve(Gram(kernel, X, ENOUGH, dtype), *box(y, cost), tol=1e-6)
        assert found.gap < 1e-6
        assert abs(found.a.sum()) < 1e-9 * cost.sum()
        assert objective(K, found.a, y) == pytest.approx(objective(K, dual, y), rel=1e-6)
        np.testing.assert_allclose(found.f + found.intercept, svc.decision_function(K), rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(found.f, K @ found.a, atol=1e-7 * cost.sum())


def test_a_huge_cost():
    X, y = rows()
    found = solve(Gram(RBF(0.3), X, ENOUGH, np.float64), *box(y, 1e4))
    svc = SVC(C=1e4, gamma=0.3, tol=1e-3).fit(X, y)
    assert found.gap < 1e-3
    assert objective(RBF(0.3).gram(X, X), found.a, y) == pytest.approx(-svc_dual_objective(svc, X), rel=1e-4)


def svc_dual_objective(svc, X):
    dual = svc.dual_coef_[0]
    return np.abs(dual).sum() - dual @ RBF(0.3).gram(X[svc.support_], X[svc.support_]) @ dual / 2


def test_parts_find_what_the_whole_matrix_finds(monkeypatch):
    monkeypatch.setattr("s3vm.solvers.gram._PART", 32)
    X, _ = rows()
    z, lower, knee, upper = both_copies()
    whole = Gram(RBF(0.3), X, ENOUGH, np.float64)
    parts = Gram(RBF(0.3), X, 0, np.float64)
    assert parts.whole is None
    expected, found = (solve(one, z, lower, upper, knee=knee, tol=1e-7) for one in (whole, parts))
    np.testing.assert_allclose(found.f + found.intercept, expected.f + expected.intercept, atol=1e-5)
    np.testing.assert_allclose(found.f, RBF(0.3).gram(X, X) @ found.a, atol=1e-10)


@pytest.mark.parametrize("n_bytes", [ENOUGH, 0])
def test_a_knee_is_two_copies_of_a_row(n_bytes):
    X, _ = rows()
    n_l, cost = 40, 0.5
    z, lower, knee, upper = both_copies(n_l, cost)
    found = solve(Gram(RBF(0.3), X, n_bytes, np.float64), z, lower, upper, knee=knee, tol=1e-7)
    # As +1 from -beta to cost - beta, as -1 from beta' - cost to beta': their sum is the box, and the knee is where the
    # first is at its end and the second at its start.
    of_positive = np.where(knee == -cost, cost, 0)[n_l:]
    of_negative = np.where(knee == cost, cost, 0)[n_l:]
    copies = solve(
        Gram(RBF(0.3), np.vstack([X, X[n_l:]]), n_bytes, np.float64),
        np.append(z, -np.ones(len(X) - n_l)),
        np.concatenate([lower[:n_l], -of_positive, of_negative - cost]),
        np.concatenate([upper[:n_l], cost - of_positive, of_negative]),
        tol=1e-7,
    )
    expected = copies.f[: len(X)] + copies.intercept
    np.testing.assert_allclose(found.f + found.intercept, expected, atol=1e-5)


@pytest.mark.parametrize("n_bytes", [ENOUGH, 0])
def test_the_extra_row_holds_the_mean(n_bytes, monkeypatch):
    monkeypatch.setattr("s3vm.solvers.gram._PART", 32)
    X, _ = rows()
    z, lower, knee, upper = (np.append(one, end) for one, end in zip(both_copies(), (0.3, -np.inf, np.inf, np.inf)))
    gram = Gram(RBF(0.3), X, n_bytes, np.float64, mean_of=slice(40, None))
    found = solve(gram, z, lower, upper, knee=knee, tol=1e-6)
    assert found.gap < 1e-6
    assert found.f[40:-1].mean() == pytest.approx(found.f[-1], abs=1e-12)
    assert found.f[-1] + found.intercept == pytest.approx(0.3, abs=1e-5)


def test_goes_on_from_any_start():
    X, y = rows()
    gram = Gram(RBF(0.3), X, ENOUGH, np.float64)
    cold = solve(gram, *box(y, 1.0), tol=1e-6)
    again = solve(gram, *box(y, 1.0), start=(cold.a, cold.f), tol=1e-6)
    assert again.n_steps == 0
    np.testing.assert_array_equal(again.a, cold.a)
    anywhere = np.random.default_rng(0).normal(size=len(y))
    for start in [(anywhere, None), (anywhere, RBF(0.3).gram(X, X) @ anywhere), (2 * cold.a, 2 * cold.f)]:
        warm = solve(gram, *box(y, 1.0), start=start, tol=1e-6)
        np.testing.assert_allclose(warm.f + warm.intercept, cold.f + cold.intercept, atol=1e-5)
    for start in [(anywhere[1:], None), (anywhere, cold.f[1:]), (anywhere, cold.f[:, None])]:
        with pytest.raises(ValueError, match="belong to another problem"):
            solve(gram, *box(y, 1.0), start=start)


def test_a_repaired_start_is_feasible():
    rng = np.random.default_rng(0)
    for _ in range(50):
        lower, upper = -rng.uniform(0, 1, 20), rng.uniform(0, 1, 20)
        a = feasible(rng.normal(size=20), lower, upper)
        assert np.all((lower <= a) & (a <= upper))
        assert abs(a.sum()) < 1e-12
    a = feasible(np.array([1.0, 1.0, 0.0]), np.array([0.0, 0.0, -np.inf]), np.array([1.0, 1.0, np.inf]))
    np.testing.assert_array_equal(a, [1.0, 1.0, -2.0])
    with pytest.raises(ValueError, match="sum 0"):
        feasible(np.zeros(2), np.ones(2), 2 * np.ones(2))


@pytest.mark.parametrize("n_bytes", [ENOUGH, 0])
def test_threads_share_a_matrix(n_bytes, monkeypatch):
    monkeypatch.setattr("s3vm.solvers.gram._PART", 32)
    X, y = rows()
    gram = Gram(RBF(0.3), X, n_bytes)
    alone = [solve(gram, *box(y, C)) for C in (0.1, 1.0, 10.0, 100.0)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda C: solve(gram, *box(y, C)), (0.1, 1.0, 10.0, 100.0)))
    for one, other in zip(alone, together):
        np.testing.assert_array_equal(one.a, other.a)
        assert one.intercept == other.intercept


def test_equal_rows_and_flat_kernels():
    X, y = rows()
    for same in (np.repeat(X[:30], 10, axis=0), np.ones_like(X)):
        found = solve(Gram(RBF(0.3), same, ENOUGH), *box(y, 1.0))
        assert found.gap < 1e-3
        assert np.isfinite(found.a).all()


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_one_class_is_its_sign(sign):
    X, _ = rows()
    found = solve(Gram(RBF(0.3), X, ENOUGH), *box(np.full(len(X), sign), 1.0))
    np.testing.assert_array_equal(found.a, 0)
    assert found.intercept == sign


def test_says_so_if_the_kernel_is_not_finite():
    X, _ = rows()
    with pytest.raises(ValueError, match="standardise"):
        Gram(Polynomial(1.0, degree=9), 1e60 * X, ENOUGH, np.float64)


def test_stops_after_max_steps():
    X, y = rows()
    found = solve(Gram(RBF(0.3), X, ENOUGH), *box(y, 10.0), max_steps=7)
    assert found.n_steps == 7
    assert found.gap > 1e-3

"""Every backend against the formula, and every row on its own."""

import numpy as np
import pytest
from joblib import parallel_config
from scipy import sparse

from s3vm import philox
from s3vm.backends import backend
from s3vm.backends.cpu import backend as cpu
from s3vm.backends.cpu import draws
from s3vm.kernels import RBF, Laplacian, Matern, Polynomial
from s3vm.philox import Purpose
from toy import BACKENDS_HERE

KERNELS = [
    RBF(0.4),
    RBF(0.4, features="phase"),
    Laplacian(0.1),
    Matern(0.4, nu=1.5),
    Polynomial(0.2, degree=3, coef0=1.0),
    Polynomial(0.2, degree=1, coef0=0.0),
]
FAST = [name for name in BACKENDS_HERE if name != "reference"]
M = 74
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}


def example(n, d, n_blocks=3, m=M, K=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) / np.sqrt(d)
    return X, rng.normal(size=(n_blocks, m, K)), rng.normal(size=(n, K))


def close(result, expected, dtype):
    size = np.sqrt(np.mean(expected**2)) + 1e-300
    np.testing.assert_allclose(result / size, expected / size, rtol=0, atol=10 * TOLERANCE[dtype])
    assert np.sqrt(np.mean((result - expected) ** 2)) / size < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BACKENDS_HERE)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_verbs_are_the_formula(name, kernel, dtype):
    """Against the sum written out in float64."""
    X, alpha, G = example(37, 5, K=2)
    features = backend(name, dtype).features(kernel, 3, M, 5)
    phi = []
    for block in range(4, 7):
        weights, offsets = kernel.frequencies(3, block, M, 5)
        z = X @ weights.T + offsets
        if kernel.activation == "pairs":
            phi.append(np.sqrt(2 / M) * np.hstack([np.cos(2 * np.pi * z), np.sin(2 * np.pi * z)]))
        elif kernel.activation == "phase":
            phi.append(np.sqrt(2 / M) * np.cos(2 * np.pi * z))
        else:
            phi.append(np.sqrt(1 / M) * z.reshape(37, M, -1).prod(axis=2))
    rows = X.astype(dtype)
    close(features.features(5, rows), phi[1], dtype)
    close(features.features(4, rows, 3), np.hstack(phi), dtype)
    close(features.decision(alpha, rows, first_block=4), sum(p @ a for p, a in zip(phi, alpha)), dtype)
    close(features.adjoint(G, rows, 3, first_block=4), np.stack([p.T @ G for p in phi]), dtype)


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("K", [1, 5])
def test_any_number_of_columns(name, kernel, K):
    X, alpha, G = example(9, 2, n_blocks=2, m=14, K=K)
    fast, slow = (backend(one, "float64").features(kernel, 3, 14, 2) for one in (name, "reference"))
    close(fast.decision(alpha, X), slow.decision(alpha, X), "float64")
    close(fast.adjoint(G, X, 2), slow.adjoint(G, X, 2), "float64")


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("n", [1, 5, 123, 256, 1025])
@pytest.mark.parametrize("d", [1, 3, 18, 300])
def test_shapes(name, n, d):
    X, alpha, G = example(n, d, K=3)
    X = X.astype(np.float32)
    fast = backend(name, "float32").features(RBF(0.4), 3, M, d)
    slow = backend("reference", "float64").features(RBF(0.4), 3, M, d)
    close(fast.features(1, X), slow.features(1, X), "float32")
    close(fast.decision(alpha, X), slow.decision(alpha, X), "float32")
    close(fast.adjoint(G, X, 3), slow.adjoint(G, X, 3), "float32")


@pytest.mark.parametrize("name", BACKENDS_HERE)
def test_adjoint_is_the_transpose(name):
    X, alpha, G = example(300, 4, K=2)
    features = backend(name, "float64").features(RBF(0.4), 3, M, 4)
    left = np.sum(features.decision(alpha, X) * G)
    assert left == pytest.approx(np.sum(features.adjoint(G, X, 3) * alpha), rel=1e-12)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_row_does_not_depend_on_threads_or_neighbors(kernel, dtype, monkeypatch):
    monkeypatch.setattr(cpu, "_WORTH_A_THREAD", 1)
    X, alpha, G = example(700, 5, n_blocks=11, K=2)
    X = X.astype(dtype)
    one = backend("cpu", dtype, n_jobs=1).features(kernel, 3, M, 5)
    phi, scores, gathered = one.features(2, X), one.decision(alpha, X), one.adjoint(G, X, 11)
    for n_jobs in (2, 3, 8):
        many = backend("cpu", dtype, n_jobs=n_jobs).features(kernel, 3, M, 5)
        np.testing.assert_array_equal(many.features(2, X), phi)
        np.testing.assert_array_equal(many.decision(alpha, X), scores)
        np.testing.assert_array_equal(many.adjoint(G, X, 11), gathered)
    assert many._pool is not None
    stored = sparse.csr_array(np.where(X > 0, X, 0))
    expected = one.decision(alpha, stored), one.adjoint(G, stored, 11)
    np.testing.assert_array_equal(many.decision(alpha, stored), expected[0])
    np.testing.assert_array_equal(many.adjoint(G, stored, 11), expected[1])
    for part in (slice(0, 1), slice(3, 260), slice(699, 700), slice(17, None, 5)):
        rows = np.ascontiguousarray(X[part])
        np.testing.assert_array_equal(one.features(2, rows), phi[part])
        np.testing.assert_array_equal(one.decision(alpha, rows), scores[part])


@pytest.mark.parametrize("name", BACKENDS_HERE)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_sparse_rows(name, kernel):
    X, alpha, G = example(300, 6, K=2)
    X = np.where(X > 0.2, X, 0)
    features = backend(name, "float64").features(kernel, 3, M, 6)
    rows = sparse.csr_array(X)
    np.testing.assert_allclose(features.features(1, rows), features.features(1, X), atol=1e-12)
    np.testing.assert_allclose(features.decision(alpha, rows), features.decision(alpha, X), atol=1e-12)
    np.testing.assert_allclose(features.adjoint(G, rows, 3), features.adjoint(G, X, 3), atol=1e-10)


@pytest.mark.parametrize("name", BACKENDS_HERE)
@pytest.mark.parametrize("size", [1e8, 1e30])
def test_huge_rows_stay_finite(name, size):
    X, alpha, _ = example(50, 3)
    scores = backend(name, "float32").features(RBF(1.0), 3, M, 3).decision(alpha, (size * X).astype(np.float32))
    assert np.all(np.abs(scores) <= np.abs(alpha).sum() * np.sqrt(2 / M) * 1.001)


@pytest.mark.parametrize("name", BACKENDS_HERE)
def test_no_blocks_and_no_rows(name):
    X, alpha, G = example(5, 3)
    features = backend(name, "float32").features(RBF(1.0), 3, M, 3)
    rows = X.astype(np.float32)
    np.testing.assert_array_equal(features.decision(alpha[:0], rows), np.zeros((5, 1)))
    assert features.decision(alpha, rows[:0]).shape == (0, 1)
    np.testing.assert_array_equal(features.adjoint(G[:0], rows[:0], 2), np.zeros((2, M, 1)))


@pytest.mark.parametrize("name", BACKENDS_HERE)
def test_pairs_need_an_even_number(name):
    assert backend(name).features(RBF(1.0), 3, 21, 3).n_features == 22
    assert backend(name).features(RBF(1.0, features="phase"), 3, 21, 3).n_features == 21


@pytest.mark.parametrize("rows", ["dense", "sparse"])
@pytest.mark.parametrize("cache_bytes", [1, 10_000, 10**9])
def test_keeping_frequencies_changes_nothing(rows, cache_bytes):
    X, alpha, G = example(300, 6, n_blocks=40, K=2)
    X = X.astype(np.float32) if rows == "dense" else sparse.csr_array(X.astype(np.float32))
    drawn = backend("cpu").features(RBF(0.4), 3, M, 6)
    kept = backend("cpu", cache_bytes=cache_bytes).features(RBF(0.4), 3, M, 6)
    for blocks in (1, 40, 7, 40):
        for first in (0, 3, 60):
            np.testing.assert_array_equal(
                kept.decision(alpha[:blocks], X, first_block=first),
                drawn.decision(alpha[:blocks], X, first_block=first),
            )
            np.testing.assert_array_equal(
                kept.adjoint(G, X, blocks, first_block=first), drawn.adjoint(G, X, blocks, first_block=first)
            )
        np.testing.assert_array_equal(kept.features(blocks, X), drawn.features(blocks, X))


def test_random_numbers_of_the_cpu_are_those_of_philox():
    for seed in (0, 5, 2**63 + 7):
        address = (seed, Purpose.FREQUENCY, 9, 333, 29)
        np.testing.assert_array_equal(draws.uniforms(*address), philox.uniforms(*address))
        np.testing.assert_allclose(draws.normals(*address), philox.normals(*address), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(draws.cauchy(*address), philox.cauchy(*address), rtol=1e-12)
        np.testing.assert_allclose(draws.students(*address, 3), philox.students(*address, 3), rtol=1e-9, atol=1e-12)


def test_shapes_that_do_not_fit_are_refused():
    X, alpha, G = example(20, 3)
    features = backend("cpu").features(RBF(1.0), 3, M, 3)
    with pytest.raises(ValueError, match="columns met frequencies"):
        features.features(0, X[:, :2])
    with pytest.raises(ValueError, match="coefficients met blocks"):
        features.decision(np.concatenate([alpha, alpha], axis=1), X)
    with pytest.raises(ValueError, match="19 rows of G met 20"):
        features.adjoint(G[:19], X, 1)


def test_settings_are_checked():
    with pytest.raises(ValueError, match=r"backend='tpu'.*\"auto\", \"reference\", \"cpu\""):
        backend("tpu")
    with pytest.raises(ValueError, match=r"dtype='float16'.*float32"):
        backend("cpu", "float16")
    with pytest.raises(ValueError, match="n_jobs=0"):
        backend("cpu", n_jobs=0)


def test_threads_are_counted_as_joblib_does():
    assert backend("cpu", n_jobs=None).n_threads == 1
    assert backend("cpu", n_jobs=3).n_threads == 3
    with parallel_config(backend="threading", n_jobs=2):
        assert backend("cpu", n_jobs=None).n_threads == 2

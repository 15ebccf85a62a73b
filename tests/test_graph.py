"""The graph of nearest neighbors, against loops and dense matrices."""

import numpy as np
import pytest
from scipy import sparse

from s3vm.problem.graph import NeighborGraph
from s3vm.problem.nearest import nearest_neighbors


def literal_laplacian(X, k):
    """``I - D^(-1/2) W D^(-1/2)`` with loops over rows, in float64."""
    n = len(X)
    D = np.sqrt(((X[:, None] - X[None]) ** 2).sum(axis=2))
    nearest = [[j for j in np.argsort(D[i], kind="stable") if j != i][:k] for i in range(n)]
    unit = [max(D[i, nearest[i][min(7, k) - 1]], 1e-12) for i in range(n)]
    W = np.zeros((n, n))
    for i in range(n):
        for j in nearest[i]:
            w = np.exp(-(D[i, j] ** 2) / (unit[i] * unit[j]))
            W[i, j] = W[j, i] = max(W[i, j], W[j, i], w)
    root = 1 / np.sqrt(np.maximum(W.sum(axis=1), 1e-12))
    return np.eye(n) - root[:, None] * W * root


@pytest.fixture(name="X")
def rows_of_three():
    return np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_laplacian(X, k):
    expected = literal_laplacian(X, k)
    np.testing.assert_allclose(NeighborGraph.of(X, k).laplacian.toarray(), expected, atol=1e-6)
    np.testing.assert_allclose(NeighborGraph.of(sparse.csr_array(X), k).laplacian.toarray(), expected, atol=1e-6)


def test_roughness_is_a_quadratic_form(X):
    graph, f = NeighborGraph.of(X, 5), np.random.default_rng(1).normal(size=(60, 2))
    expected = np.diag(f.T @ literal_laplacian(X, 5) @ f) / 60
    np.testing.assert_allclose(graph.roughness(f), expected, rtol=1e-6)


def test_smooth_functions_are_less_rough(X):
    graph = NeighborGraph.of(X, 5)
    noise = np.random.default_rng(1).choice([-1.0, 1.0], size=(60, 1))
    assert graph.roughness(np.sign(X[:, :1])) < 0.5 * graph.roughness(noise)


def test_threads_do_not_matter(X):
    rows = np.random.default_rng(2).normal(size=(1500, 4)).astype(np.float32)
    for one, two in zip(nearest_neighbors(rows, 6), nearest_neighbors(rows, 6, n_threads=3)):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_rows_far_from_the_origin(X, shift):
    """Products of large numbers would be rounded: rows are moved to their mean first."""
    np.testing.assert_allclose(NeighborGraph.of(X + shift, 5).laplacian.toarray(), literal_laplacian(X, 5), atol=0.02)


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1e25), (1e9, 1.0), (1e30, 1e25)])
def test_neighbors_of_large_numbers(shift, scale):
    rows = np.random.default_rng(2).normal(size=(300, 5))
    expected, large = nearest_neighbors(rows, 5), nearest_neighbors(shift + scale * rows, 5)
    assert np.mean(large[1] == expected[1]) > 0.99
    np.testing.assert_allclose(large[0], scale * expected[0], rtol=1e-3)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_fewer_rows_than_neighbors(n):
    laplacian = NeighborGraph.of(np.arange(3.0 * n).reshape(n, 3), 10).laplacian
    assert laplacian.shape == (n, n)
    assert np.isfinite(laplacian.toarray()).all()


def test_duplicates_isolated_rows_and_constant_columns(X):
    X[:30] = X[0]
    X[:, 1] = 2.0
    X[-1] = 1e6
    laplacian = NeighborGraph.of(X, 5).laplacian.toarray()
    assert np.isfinite(laplacian).all()
    assert np.linalg.eigvalsh(laplacian).min() > -1e-9
    np.testing.assert_allclose(laplacian, laplacian.T, atol=1e-15)

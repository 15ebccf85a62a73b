"""Linear maps of the rows in front of the kernel: directions, column weights, and models that have them."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from threadpoolctl import threadpool_limits

from s3vm import backends
from s3vm.kernels import RBF, Laplacian, Matern, Polynomial, has_own
from s3vm.model import Model
from s3vm.problem.projection import column_weights, principal_directions, project

CPU = backends.backend("cpu", "float32", 1)
SMOOTH = [
    RBF(0.3),
    Laplacian(0.2),
    *(Matern(0.3, nu=nu) for nu in (0.5, 1.5, 2.5)),
    Polynomial(0.3, degree=3, coef0=0.5),
    Polynomial(0.3, degree=1, coef0=0.0),
]


def draw(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def sparse_rows(n, d, seed=0):
    return sparse.random_array((n, d), density=0.1, format="csr", rng=seed, dtype=np.float32)


def expansion(n_columns=2, n_in=7, projection=None):
    """A model of centres and features, in three dimensions if rows are mapped by directions."""
    n_dims = 3 if np.ndim(projection) == 2 else n_in
    return Model(
        RBF(0.1), 3, n_dims, draw(4, 8, n_columns, seed=1), draw(n_columns, seed=2), draw(20, n_dims, seed=3),
        draw(20, n_columns, seed=4, dtype=np.float64), projection,
    )  # fmt: skip


PROJECTIONS = {"weights": np.abs(draw(7, seed=5, dtype=np.float64)), "directions": draw(7, 3, seed=6)}


def linear(X, projection):
    return X * projection if projection.ndim == 1 else X @ projection


@pytest.mark.parametrize("projection", PROJECTIONS.values(), ids=PROJECTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_are_mapped(projection, dtype):
    for X in (draw(150, 7, dtype=dtype), sparse_rows(150, 7).astype(dtype)):
        mapped = project(X, projection)
        assert mapped.dtype == dtype
        assert sparse.issparse(mapped) == (sparse.issparse(X) and projection.ndim == 1)
        dense, expected = (part.toarray() if sparse.issparse(part) else part for part in (mapped, X))
        assert_allclose(dense, linear(expected, projection), rtol=1e-5, atol=1e-6)
    assert project(X, None) is X


@pytest.mark.parametrize("projection", PROJECTIONS.values(), ids=PROJECTIONS)
def test_a_projected_row_does_not_depend_on_the_others(projection):
    X = draw(333, 7)
    for rows in (X, sparse.csr_array(X)):
        whole = project(rows, projection)
        for part in (slice(0, 1), slice(5, 70), slice(64, 333), slice(331, 333), slice(3, 3)):
            alone = project(rows[part], projection)
            if sparse.issparse(alone):
                alone, whole = alone.toarray(), whole.toarray() if sparse.issparse(whole) else whole
            assert_array_equal(alone, whole[part])


def test_rows_of_another_width_are_refused():
    with pytest.raises(ValueError, match="rows of 6 columns met a projection of 7"):
        project(draw(2, 6), PROJECTIONS["weights"])


@pytest.mark.parametrize("name", ["cpu", "reference"])
@pytest.mark.parametrize("projection", PROJECTIONS.values(), ids=PROJECTIONS)
def test_a_model_maps_its_rows(projection, name, monkeypatch):
    backend = backends.backend(name, "float32", 2)
    X, model = draw(500, 7), expansion(projection=projection)
    assert model.n_features_in == 7
    expected = replace(model, projection=None).decision(project(X, projection), backend)
    assert_array_equal(model.decision(X, backend), expected)
    assert_allclose(model.decision(sparse.csr_array(X), backend), expected, rtol=1e-4, atol=1e-4)
    assert model.decision(X[:0], backend).shape == (0, 2)
    monkeypatch.setattr("s3vm.model._PROJECTED_BYTES", 100 * 8 * model.n_dims)
    assert_array_equal(model.decision(X, backend), expected)
    one_by_one = np.concatenate([model.decision(X[i : i + 1], backend) for i in range(20)])
    assert_allclose(one_by_one, expected[:20], rtol=0, atol=0 if name == "cpu" else 1e-5)
    first = model.columns(slice(0, 1)).decision(X, backend)
    assert_allclose(first, expected[:, :1], atol=1e-5)


def test_a_projection_of_ones_changes_nothing():
    X, model = draw(300, 7), expansion()
    assert model.n_features_in == model.n_dims == 7
    assert_array_equal(replace(model, projection=np.ones(7)).decision(X, CPU), model.decision(X, CPU))
    assert not replace(model, projection=np.full(7, np.nan)).is_finite


def test_wide_sparse_rows_take_little_memory():
    """Ten thousand rows of a million columns would take 40 GB."""
    d = 1_000_000
    X = sparse.random_array((10_000, d), density=1e-5, format="csr", rng=0, dtype=np.float32)
    directions = np.zeros((d, 2), np.float32)
    directions[: d // 2, 0] = directions[d // 2 :, 1] = 1
    expected = np.column_stack([X[:, : d // 2].sum(axis=1), X[:, d // 2 :].sum(axis=1)])
    assert_allclose(project(X, directions), expected, rtol=1e-5)
    assert project(X, np.full(d, 2.0)).nnz == X.nnz


def right_singular_vectors(X):
    X = X.toarray() if sparse.issparse(X) else X
    X = X.astype(np.float64)
    return np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2]


@pytest.mark.parametrize("d", [30, 1500])
@pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "sparse"])
def test_directions_are_those_of_a_singular_value_decomposition(d, is_sparse):
    n, q = 400, 5
    scale = np.ones(d)
    scale[:q] = [40, 30, 20, 15, 10]
    X = (draw(n, d) * scale + 3 if not is_sparse else sparse_rows(n, d).multiply(scale).tocsr()).astype(np.float32)
    directions = principal_directions(X, q, seed=0)
    assert directions.shape == (d, q)
    assert directions.dtype == np.float32
    assert directions.flags.c_contiguous
    rows = right_singular_vectors(X)
    agreement = np.abs(np.sum(rows[:q].T * directions, axis=0))
    assert_allclose(agreement, 1, atol=1e-4)
    assert_allclose(directions.T @ directions, np.eye(q), atol=1e-5)
    assert (directions[np.abs(directions).argmax(axis=0), np.arange(q)] > 0).all()


@pytest.mark.parametrize("d", [30, 1100])
def test_directions_are_the_same_for_any_number_of_threads(d):
    X = draw(300, d)
    first = principal_directions(X, 8, seed=1)
    for n_threads in (1, 2, 4):
        with threadpool_limits(n_threads, "blas"):
            assert_array_equal(principal_directions(X, 8, seed=1), first)


def test_directions_of_many_rows_come_from_a_sample():
    X = draw(12_000, 4) * np.array([5, 3, 2, 1], np.float32)
    one, other = (principal_directions(X, 2, seed) for seed in (0, 1))
    assert_array_equal(one, principal_directions(X, 2, 0))
    assert np.any(one != other)
    assert_allclose(np.abs(one), np.eye(4)[:, :2], atol=0.05)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_no_more_directions_than_the_rows_have(make):
    X = draw(50, 6)
    assert principal_directions(make(X), 100, 0).shape == (6, 6)
    assert principal_directions(make(X[:4]), 5, 0).shape == (6, 3)  # four centred rows
    X[:, 2] = 7
    X[:, 4] = X[:, 1] + X[:, 0]
    directions = principal_directions(make(X), 6, 0)
    assert directions.shape == (6, 4)
    assert_allclose(directions[2], 0, atol=1e-6)
    assert principal_directions(make(np.ones((9, 6), np.float32)), 3, 0).shape == (6, 1)
    assert principal_directions(make(X[:1]), 3, 0).shape == (6, 1)
    assert principal_directions(make(np.ones((9, 1500), np.float32)), 3, 0).shape == (1500, 1)


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
def test_gradients_are_those_of_finite_differences(kernel):
    X, Z, weights = (draw(*shape, seed=i, dtype=np.float64) for i, shape in enumerate([(11, 4), (6, 4), (6, 3)]))
    gradient, step = kernel.gradient(X, Z, weights), 1e-5
    for j in range(4):
        move = step * np.eye(4)[j]
        slope = (kernel.gram(X + move, Z) - kernel.gram(X - move, Z)) @ weights / (2 * step)
        assert_allclose(gradient[:, :, j], slope.T, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
def test_the_gradient_at_a_center_is_finite(kernel):
    Z = draw(6, 4, dtype=np.float64)
    assert np.isfinite(kernel.gradient(Z, Z, np.ones((6, 1)))).all()


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
def test_column_weights_are_root_mean_square_slopes(kernel, monkeypatch):
    X, Z, weights = draw(40, 4), draw(9, 4, seed=1), draw(9, 2, seed=2, dtype=np.float64)
    slopes = np.sqrt((kernel.gradient(X.astype(float), Z.astype(float), weights) ** 2).sum(axis=0).mean(axis=0))
    found = column_weights(kernel, Z, weights, X)
    assert found.dtype == np.float64
    assert np.mean(found**2) == pytest.approx(1)
    assert_allclose(found, slopes / np.sqrt(np.mean(slopes**2)), rtol=1e-7)
    assert_allclose(column_weights(kernel, sparse.csr_array(Z), weights, sparse.csr_array(X)), found)
    monkeypatch.setattr("s3vm.problem.projection._BLOCK_BYTES", 100)  # a few rows and centres at a time
    assert_allclose(column_weights(kernel, Z, weights, X), found)


def test_a_column_that_the_function_ignores_has_weight_0():
    Z = draw(9, 3, seed=1)
    Z[:, 1] = 0
    X = draw(40, 3)
    X[:, 1] = 0
    assert column_weights(RBF(0.3), Z, np.ones((9, 1)), X)[1] == pytest.approx(0, abs=1e-12)
    assert_array_equal(column_weights(RBF(0.3), Z, np.zeros((9, 1)), X), np.ones(3))


def test_a_kernel_without_a_gradient_has_no_column_weights():
    class Squared(RBF):
        def gram(self, X, Z):
            return super().gram(X, Z) ** 2

    class WithGradient(Squared):
        def gradient(self, X, Z, weights):
            return RBF(2 * self.width).gradient(X, Z, weights)

    X, Z, weights = draw(20, 3), draw(5, 3, seed=1), draw(5, 1, seed=2)
    assert not has_own(Squared(0.3), "gradient")
    assert_allclose(column_weights(WithGradient(0.3), Z, weights, X), column_weights(RBF(0.6), Z, weights, X))

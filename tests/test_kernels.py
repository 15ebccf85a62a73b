import numpy as np
import pytest
from scipy import sparse
from sklearn.gaussian_process import kernels as gp
from sklearn.metrics import pairwise

from s3vm.backends import backend
from s3vm.kernels import RBF, Laplacian, Matern, Polynomial, kernel

KERNELS = [
    RBF(gamma=0.3),
    RBF(gamma=0.3, features="phase"),
    Laplacian(gamma=0.2),
    Matern(gamma=0.3, nu=0.5),
    Matern(gamma=0.3, nu=1.5),
    Matern(gamma=0.3, nu=2.5),
    Polynomial(gamma=0.3, degree=2, coef0=1.0),
    Polynomial(gamma=0.5, degree=3, coef0=0.5),
    Polynomial(gamma=0.5, degree=1, coef0=0.0),
]


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(24, 3))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_features_converge_to_the_kernel(kernel, name, rows):
    """The error of an average of m independent features halves when m is quadrupled."""
    exact = kernel.gram(rows, rows)
    scale = np.sqrt(np.mean(exact**2))

    def error(m):
        features = backend(name, np.float64).features(kernel, 7, m, rows.shape[1])
        squared = []
        for block in range(40):
            phi = features.features(block, rows)
            squared.append(np.mean((phi @ phi.T - exact) ** 2))
        return np.sqrt(np.mean(squared)) / scale

    errors = [error(m) for m in (64, 256, 1024)]
    for coarse, fine in zip(errors, errors[1:], strict=False):
        assert 0.375 < fine / coarse < 0.625, errors


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_features_are_unbiased(kernel, rows):
    phi = backend("cpu", np.float64).features(kernel, 1, 200_000, rows.shape[1]).features(0, rows)
    exact = kernel.gram(rows, rows)
    size = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    assert np.max(np.abs(phi @ phi.T - exact) / size) < 0.1


def test_exact_formulas(rows):
    other = rows[:5] + 0.1
    np.testing.assert_allclose(RBF(0.3).gram(rows, other), pairwise.rbf_kernel(rows, other, gamma=0.3))
    l1 = np.abs(rows[:, None] - other[None]).sum(axis=2)
    np.testing.assert_allclose(Laplacian(0.3).gram(rows, other), np.exp(-0.3 * l1))
    length = 1 / np.sqrt(2 * 0.3)
    for nu in (0.5, 1.5, 2.5):
        np.testing.assert_allclose(
            Matern(0.3, nu=nu).gram(rows, other), gp.Matern(length_scale=length, nu=nu)(rows, other), atol=1e-12
        )
    np.testing.assert_allclose(Polynomial(0.3, degree=3, coef0=2).gram(rows, other), (0.3 * rows @ other.T + 2) ** 3)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_sparse_rows(kernel, rows):
    rows = np.where(np.abs(rows) > 0.7, rows, 0)
    np.testing.assert_allclose(kernel.gram(sparse.csr_array(rows), sparse.csr_array(rows)), kernel.gram(rows, rows))


def test_widths(rows):
    assert RBF().resolve(rows).width == pytest.approx(1 / (3 * rows.var()))
    assert RBF().resolve(sparse.csr_array(rows)).width == pytest.approx(1 / (3 * rows.var()))
    weight = np.arange(len(rows)).astype(float)
    repeated = rows.repeat(np.arange(len(rows)), axis=0)
    assert RBF().resolve(rows, weight).width == pytest.approx(1 / (3 * repeated.var()))
    distances = pairwise.euclidean_distances(rows)[np.triu_indices(len(rows), 1)]
    assert RBF("median").resolve(rows).width == pytest.approx(1 / (2 * np.median(distances) ** 2), rel=0.2)
    assert Laplacian().resolve(2 * rows).width == pytest.approx(Laplacian().resolve(rows).width / 2)
    assert Laplacian("median").resolve(2 * rows).width == pytest.approx(Laplacian("median").resolve(rows).width / 2)
    assert Polynomial("median").resolve(2 * rows).width == pytest.approx(Polynomial("median").resolve(rows).width / 4)
    assert RBF(0.25).resolve(rows) == RBF(0.25)


@pytest.mark.parametrize("kind", [RBF, Laplacian, Matern, Polynomial])
def test_the_median_width_of_sparse_rows(kind):
    """The pairs would take 16 GB if they were dense."""
    X = sparse.random_array((300, 200_000), density=1e-4, format="csr", rng=0, dtype=np.float32)
    stored = np.unique(X.indices)  # the other columns are 0
    assert kind("median").resolve(X) == kind("median").resolve(X[:, stored].toarray())


@pytest.mark.parametrize("gamma", ["scale", "median"])
@pytest.mark.parametrize("kind", [RBF, Laplacian, Matern, Polynomial])
def test_constant_rows_have_some_width(gamma, kind):
    assert kind(gamma).resolve(np.zeros((10, 2))).width == 1.0


def test_what_no_kernel_fits():
    for gamma in ("median", "scale"):
        with pytest.raises(ValueError, match="too close together for any kernel width"):
            RBF(gamma).resolve(np.array([[0.0, 0.0], [1e-160, 0.0], [0.0, 1e-160]]))
    wide = sparse.csr_array((np.ones(1), ([0], [2**31 + 1])), shape=(1, 2**31 + 2))
    with pytest.raises(ValueError, match=r"at most 2\^31 sparse entries and columns"):
        Laplacian(1.0).gram(wide, wide)


def test_variance_survives_a_large_mean():
    rows = np.random.default_rng(0).normal(size=(20_000, 2)) + 1e8
    assert RBF().resolve(rows).width == pytest.approx(1 / (2 * rows.var()), rel=1e-6)


@pytest.mark.parametrize("gamma", [0, -1.0, np.nan, np.inf, "auto", None, True])
def test_wrong_widths_are_refused(gamma):
    with pytest.raises(ValueError, match=r"gamma=.*\"scale\" or \"median\""):
        RBF(gamma)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Matern(nu=1.0),
        lambda: Polynomial(degree=0),
        lambda: Polynomial(degree=1.5),
        lambda: Polynomial(coef0=-1),
    ],
)
def test_wrong_settings_are_refused(make):
    with pytest.raises(ValueError, match="is not valid: give"):
        make()


def test_pairs_have_the_smaller_error(rows):
    exact = RBF(0.3).gram(rows, rows)
    errors = []
    for law in ("phase", "pairs"):
        features = backend("cpu", np.float64).features(RBF(0.3, features=law), 7, 64, rows.shape[1])
        blocks = [features.features(block, rows) for block in range(40)]
        errors.append(np.mean([(phi @ phi.T - exact) ** 2 for phi in blocks]))
    assert errors[1] < 0.9 * errors[0]


def test_unknown_features_are_refused():
    with pytest.raises(ValueError, match=r"features='sines'.*\"pairs\" or \"phase\""):
        RBF(features="sines")


def test_lookup():
    assert kernel("rbf", 0.5) == RBF(0.5)
    assert kernel(Matern(0.1), 0.5) == Matern(0.1)
    with pytest.raises(ValueError, match=r"kernel='gauss'.*\"rbf\""):
        kernel("gauss")
    with pytest.raises(ValueError, match="resolve"):
        _ = RBF().width


@pytest.mark.parametrize("kernel", [RBF(0.5), Laplacian(0.5), Matern(0.5)])
def test_frequencies_have_eleven_bits(kernel):
    drawn, _ = kernel.draw(0, 0, 20_000, 2)
    W, _ = kernel.frequencies(0, 0, 20_000, 2)
    mantissa, _ = np.frexp(W)
    np.testing.assert_array_equal(mantissa * 2**11 % 1, 0)
    assert np.abs(W / drawn - 1).max() <= 2.0**-11
    np.testing.assert_array_equal(Polynomial(0.3).frequencies(0, 0, 10, 2)[0], Polynomial(0.3).draw(0, 0, 10, 2)[0])

"""The GPU backend: on a GPU if there is one, else its kernels by Triton's interpreter, the rest by torch on the CPU."""

from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from experiments.cuda_graphs import Scan, ready, window
from experiments.printed_tsg import PrintedTSG, scan_steps
from sklearn.datasets import make_moons

from s3vm import RBF, TSG, Hat, S3VMClassifier, backends, philox
from s3vm._utils.optional import optional
from s3vm.backends import backend
from s3vm.backends.gpu import Gpu
from s3vm.backends.reference import Reference
from s3vm.estimators import validation
from s3vm.kernels import Laplacian
from s3vm.losses import Exponential
from s3vm.philox import Purpose
from s3vm.problem.nearest import nearest_neighbors
from s3vm.solvers import SOLVERS
from s3vm.training.memory_check import check_memory
from toy import last, make_problem

CUDA = torch.cuda.is_available()
FLOAT32 = np.dtype(np.float32)
on_gpu = pytest.mark.skipif(not CUDA, reason="there is no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=on_gpu)]


@pytest.fixture
def fused(monkeypatch):
    """Triton's kernels, interpreted where there is no GPU."""
    pytest.importorskip("triton", reason="Triton is not installed: its kernels are not tested")
    monkeypatch.setattr(Gpu, "interprets", not CUDA)
    return Gpu


def relative(result, expected):
    return np.linalg.norm(result - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize(
    ("n", "d", "K"), [(n, d, K) for n, d in ((1, 1), (70, 3), (130, 18), (33, 40)) for K in (1, 3)] + [(20, 5, 130)]
)
@pytest.mark.parametrize("law", ["pairs", "phase"])
def test_kernels_are_the_formula(fused, law, n, d, K):
    kernel, rng = RBF(0.5 / d, features=law), np.random.default_rng(n + d)
    X = rng.normal(size=(n, d)).astype(np.float32)
    alpha, G = rng.normal(size=(3, 50, K)), rng.normal(size=(n, K))
    expected = Reference(np.dtype(np.float64)).features(kernel, 5, 50, d)
    rows = X.astype(np.float64)
    for cache_bytes in (0, 1 << 20):
        found = fused(FLOAT32, cache_bytes).features(kernel, 5, 50, d)
        assert found._kernels
        assert relative(found.decision(alpha, X, 2), expected.decision(alpha, rows, 2)) < 1e-5
        assert relative(found.adjoint(G, X, 3, 2), expected.adjoint(G, rows, 3, 2)) < 1e-5
        assert relative(found.features(1, X, 2), expected.features(1, rows, 2)) < 1e-5


@pytest.mark.parametrize("d", [3, 16, 70])
def test_halves_are_the_whole(fused, d):
    """Rows of any size, to 22 bits of their largest number."""
    from s3vm.backends.gpu.kernels import split

    rng = np.random.default_rng(d)
    A = (rng.normal(size=(9, d)) * 10.0 ** np.array([0, -20, 20, -37, 37, -30, 3, 1, 1])[:, None]).astype(np.float32)
    A[7] = 0
    A[8, 1:] *= 10.0 ** -rng.uniform(0, 9, size=d - 1)
    halves = split(Gpu(FLOAT32).put(A))
    for rows in (slice(0, 9), slice(4, 7)):
        found = halves[rows].whole(d).cpu().numpy()
        assert (np.abs(found - A[rows]) <= 2.0**-22 * np.abs(A[rows]).max(axis=1, keepdims=True)).all()


@pytest.mark.parametrize("seed", [0, 2**63 + 5])
def test_numbers_are_those_of_the_cpu(fused, seed):
    from s3vm.backends.gpu.random_kernels import DeviceNumbers

    for name in ("uniforms", "normals", "cauchy", "signs"):
        found = getattr(DeviceNumbers(Gpu(FLOAT32).device), name)(seed, Purpose.FREQUENCY, range(3, 5), 7, 5)
        expected = [getattr(philox, name)(seed, Purpose.FREQUENCY, block, 7, 5) for block in (3, 4)]
        np.testing.assert_allclose(found.cpu().numpy(), np.concatenate(expected), rtol=1e-12)


def test_kept_frequencies_change_nothing(fused):
    """Whether none, some or all are kept, and in whatever order they are asked for."""
    rng = np.random.default_rng(0)
    X, alpha = rng.normal(size=(40, 3)).astype(np.float32), rng.normal(size=(40, 8, 1))
    results = []
    for cache_bytes in (0, 20_000, 1 << 24):
        features = fused(FLOAT32, cache_bytes).features(RBF(0.4), 3, 8, 3)
        features.decision(alpha[:5], X)
        results.append(features.decision(alpha, X))
        there = Gpu(FLOAT32)
        part = window(features, 30, 4).decision(there.put(alpha[31:33]), ready(features, there.put(X)), first_block=1)
        assert relative(part.cpu().numpy(), features.decision(alpha[31:33], X, first_block=31)) < 1e-6
    assert relative(results[1], results[0]) < 1e-6
    assert relative(results[2], results[0]) < 1e-6


@pytest.mark.parametrize("as_printed", [True, False])
def test_a_whole_run_on_the_kernels(fused, as_printed):
    """Training on interpreted kernels is training on the CPU."""
    solver = TSG(max_iter=4, span="features", max_features=64, n_features=16, n_reference=10)
    if as_printed:
        solver = PrintedTSG(max_iter=5, n_features=16, batch_size=8)
    problem = make_problem(RBF(0.7), "exp", "float32")
    there = last(solver.run(problem, fused(FLOAT32, 1 << 20)))
    here = last(solver.run(problem, backend("cpu", "float32")))
    assert all(isinstance(value, float) for value in there.record.values())
    for found, expected in zip((there.model(), there), (here.model(), here), strict=True):
        if found is there:
            np.testing.assert_allclose(found.labeled_scores(), expected.labeled_scores(), atol=1e-4)
        else:
            np.testing.assert_allclose(found.coefficients, expected.coefficients, atol=1e-4)
            np.testing.assert_allclose(found.intercept, expected.intercept, atol=1e-4)


@pytest.fixture(scope="module")
def moons():
    X, y = make_moons(400, noise=0.15, random_state=0)
    some = y.copy()
    some[40:] = -1
    return X.astype(np.float32), y, some


@pytest.mark.parametrize("solver", [TSG(max_iter=60), TSG(max_iter=60, max_rows=10), PrintedTSG(max_iter=40), "frs"])
def test_models_of_one_backend_predict_on_another(moons, solver):
    X, _, some = moons
    settings = {"solver": solver, "random_state": 0, "unlabeled_weight": 1.0}
    gpu, cpu = (S3VMClassifier(backend=name, **settings).fit(X, some) for name in ("gpu", "cpu"))
    f, g = gpu.decision_function(X), cpu.decision_function(X)
    np.testing.assert_allclose(f, g, atol=2e-3)
    clear = np.abs(g) > 1e-3
    assert np.mean((f > 0)[clear] == (g > 0)[clear]) >= 0.999
    np.testing.assert_allclose(gpu.set_params(backend="cpu").decision_function(X), f, atol=1e-5)
    np.testing.assert_allclose(cpu.set_params(backend="gpu").decision_function(X), g, atol=1e-5)


def test_same_seed_same_bits(moons):
    X, _, some = moons
    for solver in (TSG(max_iter=40, max_rows=10), PrintedTSG(max_iter=20)):
        first, *others = (S3VMClassifier(solver, backend="gpu", random_state=3).fit(X, some) for _ in "123")
        for again in others:
            np.testing.assert_array_equal(first.decision_function(X), again.decision_function(X))


@pytest.mark.parametrize("device", DEVICES)
def test_bad_rows_of_a_tensor(moons, device):
    X, y, some = moons
    clf = S3VMClassifier(TSG(max_iter=40), backend="gpu", random_state=0).fit(torch.as_tensor(X, device=device), some)
    assert np.mean(clf.transduction_ == y) > 0.9
    bad = torch.as_tensor(X, device=device).clone()
    bad[3, 1] = float("nan")
    with pytest.raises(ValueError, match="NaN"):
        clf.fit(bad, some)
    with pytest.raises(ValueError, match=r"two dimensions|2D array"):
        clf.fit(bad[0], some)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("solver", sorted(SOLVERS))
@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_a_tensor_is_as_good_as_an_array(moons, name, solver, device):
    """Rows, labels and weights, of any solver and on any backend, wherever they are."""
    X, _, some = (part[:120] for part in moons)
    settings = {"max_iter": 30} if solver in ("tsg", "frs") else {}
    clf = S3VMClassifier(
        SOLVERS[solver](**settings),
        backend=name,
        gamma="median",
        unlabeled_weight=1.0,
        probability=False,
        random_state=0,
    )
    weight = np.ones(len(X))
    expected = clf.fit(X, some, sample_weight=weight).decision_function(X)
    there = [torch.as_tensor(part, device=device) for part in (X, some, weight)]
    found = clf.fit(there[0], there[1], sample_weight=there[2]).decision_function(there[0])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    short = there[0].to(torch.bfloat16)
    expected = clf.fit(short.float().cpu().numpy(), some).decision_function(X)
    np.testing.assert_allclose(clf.fit(short, some).decision_function(X), expected, atol=1e-5)


@pytest.mark.parametrize("solver", ["auto", "batch"])
def test_rows_that_stay_on_a_device_are_learnt_from(moons, monkeypatch, solver):
    """As a tensor on a GPU does, and here one on the CPU is made to."""
    X, _, some = moons

    def stays(estimator, X, *, reset, backend=None):
        validation.checked_rows(estimator, X[:1].cpu().numpy(), reset=reset)
        return X

    clf = S3VMClassifier(solver, backend="gpu", gamma="median", random_state=0)
    expected = clf.fit(X, some).decision_function(X)
    monkeypatch.setattr(validation, "_checked_tensor", stays)
    there = torch.as_tensor(X)
    np.testing.assert_allclose(clf.fit(there, some).decision_function(there), expected, atol=1e-5)
    assert clf._fitted_rows.rows.X is there
    assert len(clf.transduction_) == len(X)


@dataclass(frozen=True)
class Mine:
    """A loss of a user, who has never heard of torch."""

    def value(self, r):
        return np.maximum(0, 1 - np.abs(r))

    def grad(self, r):
        return np.where(np.abs(r) < 1, -np.sign(r), 0.0)


@dataclass(frozen=True)
class MyKernel(RBF):
    def gram(self, X, Z):
        return np.asarray(RBF(self.gamma).gram(np.asarray(X), np.asarray(Z)))


def test_losses_and_kernels_of_a_user(moons):
    X, _, some = moons
    solver = TSG(max_iter=30)
    plain = S3VMClassifier(solver, kernel=RBF(1.0), loss=Hat(), backend="gpu", random_state=0).fit(X, some)
    own = S3VMClassifier(solver, kernel=MyKernel(1.0), loss=Mine(), backend="gpu", random_state=0).fit(X, some)
    np.testing.assert_allclose(own.decision_function(X), plain.decision_function(X), atol=1e-5)


@pytest.mark.parametrize("kernel", [RBF(0.3), Laplacian(0.2), RBF(0.3, features="phase")])
def test_gram_and_expansion(kernel):
    rng = np.random.default_rng(0)
    X, Z, weights = rng.normal(size=(30, 4)), rng.normal(size=(20, 4)), rng.normal(size=(20, 2))
    there = Gpu(FLOAT32)
    gram = there.gram(kernel, there.put(X), there.put(Z)).cpu().numpy()
    np.testing.assert_allclose(gram, kernel.gram(X, Z), atol=1e-6)
    np.testing.assert_allclose(there.expansion(kernel, Z, weights, X), kernel.gram(X, Z) @ weights, atol=1e-6)


@on_gpu
def test_recorded_steps_are_the_steps():
    def step(i, carry, given):
        return {"x": carry["x"] * given[0][i] + i, "y": (carry["x"].sum(), None)}

    scan, rng = Scan(step), np.random.default_rng(0)
    for _ in range(4):
        x, factors = (torch.as_tensor(rng.normal(size=n), device="cuda") for n in (6, 5))
        found = list(scan({"x": x, "y": None}, (factors, "constant"), 5))
        expected = list(scan_steps(step, {"x": x, "y": None}, (factors, "constant"), 5))
        for one, other in zip(found, expected, strict=True):
            assert torch.equal(one["x"], other["x"])
            assert torch.equal(one["y"][0], other["y"][0])


def test_too_little_memory_is_said_before(monkeypatch):
    problem = make_problem(RBF(0.7), "exp", "float32")
    monkeypatch.setattr(Gpu, "used", lambda self: "at most nothing on the GPU")
    many = replace(TSG(), span="features", max_features=10**6)
    check_memory(many, problem, Gpu(FLOAT32, cache_bytes=1 << 50))  # more than is needed is not taken
    needed = many.memory(problem, Gpu(FLOAT32, cache_bytes=0))
    assert many.memory(problem, Gpu(FLOAT32, cache_bytes=1 << 50)) < needed + 2 * 10**6 * (
        4 * (problem.n_dims + 1) + 64
    )
    for there, advice in ((needed + 1000, r"smaller cache_bytes, or backend=.cpu."), (1000, "fewer rows, or backend")):
        monkeypatch.setattr(Gpu, "memory", lambda self, there=there: there)
        with pytest.raises(MemoryError, match=advice):
            check_memory(many, problem, Gpu(FLOAT32, cache_bytes=1 << 50))


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_what_is_kept_stays_within_its_bounds(monkeypatch, share):
    """In segments that are never copied; what does not fit is drawn again."""
    monkeypatch.setattr("s3vm.backends.gpu.frequencies._SEGMENT_BYTES", 3_000)
    monkeypatch.setattr("s3vm.backends.gpu.frequencies._AHEAD", 2)
    rng = np.random.default_rng(0)
    X, alpha = rng.normal(size=(9, 3)).astype(np.float32), rng.normal(size=(100, 16, 2))
    cache_bytes = int(share * 100 * 8 * 4 * (3 + 1))
    features = Gpu(FLOAT32, cache_bytes, device="cpu").features(RBF(0.4), 3, 16, 3)
    expected = Reference(np.dtype(np.float64)).features(RBF(0.4), 3, 16, 3)
    for n_blocks in (1, 7, 40, 100):
        found = features.decision(alpha[:n_blocks], X)
        assert relative(found, expected.decision(alpha[:n_blocks], X.astype(np.float64))) < 1e-5
    kept = [part for _, parts in features._frequencies._segments for part in parts]
    assert 0.9 * cache_bytes <= sum(part.nbytes for part in kept) <= cache_bytes
    assert len(kept) >= 2 * 3 or share < 1


def test_neighbors_found_on_a_device():
    rows = np.random.default_rng(2).normal(size=(1500, 4)).astype(np.float32)
    there = torch.device("cuda" if CUDA else "cpu")
    for one, two in zip(
        nearest_neighbors(rows, 6), nearest_neighbors(rows, 6, put=lambda x: torch.as_tensor(x, device=there))
    ):
        np.testing.assert_array_equal(one, two)


def test_auto_is_the_cpu_where_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert type(backend("auto")).__name__ == "Cpu"
    assert type(backend("gpu")).__name__ == "Gpu"
    monkeypatch.setattr(backends, "find_spec", lambda name: None)
    assert type(backend("auto")).__name__ == "Cpu"


def test_what_is_missing_is_named():
    with pytest.raises(ImportError, match=r"s3vm\[gpu\]"):
        optional("torch_that_is_not_there", "gpu")
    assert find_spec("torch") is not None
    assert Exponential().value(torch.zeros(3)).tolist() == [1.0, 1.0, 1.0]

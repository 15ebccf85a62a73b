"""Model files with right checksums and hostile numbers: what they may cost is bounded, and known before it is spent."""

import json

import numpy as np
import pytest
from scipy import sparse

import s3vm
from fuzz_targets import hostile_model
from fuzzing import memory_of
from s3vm import ModelFormatError
from s3vm.backends import backend as backend_of
from s3vm.backends.cpu import backend as cpu
from s3vm.backends.numpy_base import NumpyBackend
from s3vm.kernels import RBF, Laplacian, Matern, Polynomial

KERNELS = [RBF(gamma=1.0), RBF(gamma=1.0, features="phase"), Matern(gamma=1.0), Laplacian(gamma=1.0)]
KERNELS += [Polynomial(gamma=1.0, degree=2, coef0=1.0)]


def _load(folder, **numbers):
    path = folder / "x.s3vm"
    path.write_bytes(hostile_model(**numbers))
    return path, lambda: s3vm.load(path)


def test_settings_of_the_machine_do_not_come_from_a_file(tmp_path):
    """`n_jobs` of a file was the number of threads: 437 on two cores."""
    for name, value in (("n_jobs", 437), ("backend", "gpu"), ("cache_bytes", 1 << 50)):
        path, load = _load(tmp_path, settings={name: value})
        model = load()
        assert model.get_params()[name] == s3vm.S3VMClassifier().get_params()[name]
        model.save(path)
        assert name.encode() not in path.read_bytes()


def test_wide_names_of_classes(tmp_path):
    """A class dtype of 32 MB in a file of 32 kB: 400 predictions asked for 12.5 GiB."""
    _, load = _load(tmp_path, classes={"dtype": "<U8388608", "values": ["ham", "spam"]})
    grown, model = memory_of(load)
    assert grown < 20
    assert model.classes_.dtype == "<U4"
    grown, predicted = memory_of(lambda: model.predict(np.zeros((400, 3))))
    assert grown < 20
    assert predicted.dtype == "<U4"


@pytest.mark.parametrize("inner", ["[]", "{}", "[[]]", '{"":1}', "1", '"a"', "[1.5]"])
def test_headers_of_many_parts(tmp_path, inner):
    """Empty lists took seventy times their length in the file."""
    many = "[" + ",".join([inner] * ((2_000_000 - 4000) // (len(inner) + 1))) + "]"
    for kind in ("C", "steps"):
        text = json.dumps({kind: "HERE"})
        path, load = _load(
            tmp_path, header=lambda whole, text=text: whole[:-1] + "," + text[1:].replace('"HERE"', many)
        )
        size = path.stat().st_size / 2**20

        def refused(load=load):
            with pytest.raises(ModelFormatError):
                load()

        assert memory_of(refused)[0] < 2 * size + 100


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("form", [sparse.csr_array, np.asarray])
def test_what_a_prediction_takes_is_what_the_check_counts(tmp_path, kernel, form):
    """2^18 columns in a file of a few kB; dense rows took 33 times what was counted."""
    n_dims, block = 1 << 18, kernel.whole(4)
    blocks = np.ones((2, block, 1))
    _, load = _load(tmp_path, kernel=kernel, blocks=blocks)
    load().decision_function(form(np.ones((1, 3))))  # compiles
    _, load = _load(tmp_path, kernel=kernel, n_dims=n_dims, blocks=blocks)
    grown, model = memory_of(load)
    assert grown < 10, "nor is a number kept for each column"
    row = np.zeros((1, n_dims), np.float32)
    row[0, :5] = 1
    row = form(row)
    counted = cpu.prediction_bytes(kernel, block, n_dims) / 2**20
    grown, scores = memory_of(lambda: model.decision_function(row))
    assert grown < 1.1 * counted + 10 + 3 * 4 * n_dims / 2**20 * (form is np.asarray), "and copies of the row"
    assert np.isfinite(scores).all()


def test_threads_of_a_prediction_share_a_limit(monkeypatch):
    """Each thread needs room of its own for rows of very many columns."""
    monkeypatch.setattr(cpu, "_WORTH_A_THREAD", 1)
    started, submit = [], cpu.ThreadPoolExecutor.submit
    monkeypatch.setattr(
        cpu.ThreadPoolExecutor, "submit", lambda *args: (started.append(args[1].__name__), submit(*args))[1]
    )
    rows, kernel = np.ones((64, 50), np.float32), RBF(gamma=1.0)
    scores = []
    for room in (1 << 30, 3 * cpu.scratch_bytes(kernel, 50), 1):
        monkeypatch.setattr(cpu, "_SCRATCH_BYTES", room)
        started.clear()
        features = backend_of("cpu", "float32", 4).features(kernel, 0, 16, 50)
        scores.append((features.decision(np.ones((3, 16, 1)), rows), len(started)))
    assert [threads for _, threads in scores] == [4, 3, 0]
    assert all(np.array_equal(values, scores[0][0]) for values, _ in scores)


def test_models_that_need_more_than_is_promised_are_refused(tmp_path):
    for n_dims, block in ((1 << 25, 2), (1 << 20, 2048), (2**31 - 1, 2)):
        _, load = _load(tmp_path, n_dims=n_dims, blocks=np.ones((1, block, 1)))
        with pytest.raises(ModelFormatError, match="GiB to predict, which is too much"):
            load()
    _load(tmp_path, n_dims=1 << 20, blocks=np.ones((1, 64, 1)))[1]()


def test_very_many_centers(tmp_path):
    """400,000 Matérn centres in 3.2 MB took 3.9 GB for one row."""
    centers = np.random.default_rng(0).normal(size=(100_000, 2)).astype(np.float32)
    weights = np.full((100_000, 1), 1e-3, np.float32)
    _, load = _load(tmp_path, kernel=Matern(gamma=1.0), n_dims=2, centers=centers, weights=weights)
    model = load()
    rows = np.random.default_rng(1).normal(size=(3, 2))
    model.decision_function(rows)
    grown, scores = memory_of(lambda: model.decision_function(rows))
    assert grown < 200
    exact = model.model_.kernel.gram(rows, centers.astype(np.float64)) @ weights
    np.testing.assert_allclose(scores, exact[:, 0], rtol=1e-5)
    many = model.decision_function(np.tile(rows, (200, 1)))
    np.testing.assert_array_equal(many[300:303], scores, err_msg="a row's score depends on no other row")


@pytest.mark.parametrize("form", [sparse.csr_array, np.asarray])
def test_centers_of_very_many_columns(tmp_path, form):
    """A panel of 256 rows was filled up with zeros, whatever its width: 34 GB for one row of 2^24 columns."""
    n_dims = 1 << 20
    centers = sparse.random_array((4, n_dims), density=1e-5, format="csr", rng=0, dtype=np.float64)
    weights = np.ones((4, 1))
    _, load = _load(tmp_path, n_dims=n_dims, centers=centers, weights=weights)
    grown, model = memory_of(load)
    assert grown < 50
    row = form(centers[:1].toarray())
    grown, score = memory_of(lambda: model.decision_function(row))
    assert grown < 150
    expected = model.model_.kernel.gram(centers[:1], centers) @ weights
    np.testing.assert_allclose(score, expected[:, 0], rtol=1e-6)


def test_groups_of_centers_and_panels_are_the_same_sum(monkeypatch):
    X, Z = np.random.default_rng(0).normal(size=(2, 700, 30))
    weights, kernel = np.ones((700, 2)), Laplacian(gamma=0.1)
    whole = NumpyBackend.expansion(backend_of("cpu", "float64", 2), kernel, Z, weights, X)
    monkeypatch.setattr("s3vm.backends.numpy_base._PANEL_ENTRIES", 30 * 100)
    for centers in (Z, sparse.csr_array(Z)):
        parts = NumpyBackend.expansion(backend_of("cpu", "float64", 2), kernel, centers, weights, X)
        np.testing.assert_allclose(parts, whole, rtol=1e-12)


def test_labels_of_many_classes_are_predicted_in_chunks(tmp_path, monkeypatch):
    """`predict` keeps a number for each row, not the scores of all classes."""
    values = list(range(3000))
    blocks, intercept = np.zeros((1, 2, 3000)), np.arange(3000.0)
    model = _load(tmp_path, n_dims=2, blocks=blocks, intercept=intercept, classes={"dtype": "<i8", "values": values})[
        1
    ]()
    monkeypatch.setattr("s3vm.estimators.prediction._CHUNK_BYTES", 8 << 20)
    model.predict(np.zeros((10, 2)))
    grown, labels = memory_of(lambda: model.predict(np.zeros((4000, 2))))
    assert grown < 60, "not the 92 MB of all scores"
    assert set(labels.tolist()) == {2999}

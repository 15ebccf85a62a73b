"""Fitted models whose rows are projected: however the rows come, and whatever becomes of the model."""

import copy
import pickle
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import s3vm
from effort import pairwise
from fuzz_targets import sealed
from s3vm import FRS, TSG, ModelFormatError, S3VMClassifier, S3VMClassifierCV
from s3vm._utils import container
from s3vm._utils.arrays import project
from s3vm.problem.projection import principal_directions
from s3vm.sources import ArraySource
from s3vm.sources.batches import BatchSource

N, D, Q = 900, 20, 3
FEW = TSG(max_iter=25, batch_size=32, n_features=64, max_features=512, span="features")
ROWS = TSG(max_iter=25, batch_size=32, span="rows")
PLAIN = {"solver": FEW, "unlabeled_weight": 1.0, "random_state": 0, "gamma": "median"}


def rows(n_classes=2, seed=0):
    """Classes that differ in three of twenty directions, in which the rows vary most."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=N)
    low = rng.normal(size=(n_classes, Q))[y] * 3 + rng.normal(size=(N, Q))
    X = 2 * low @ np.linalg.qr(rng.normal(size=(D, Q)))[0].T + 0.3 * rng.normal(size=(N, D))
    return X.astype(np.float32), np.where(np.arange(N) < 60, y, -1)


@pytest.fixture(params=["directions", "column weights", "sparse column weights"])
def fitted(request):
    """Models of three classes."""
    X, some = rows(3)
    if request.param == "directions":
        return S3VMClassifier(**{**PLAIN, "solver": ROWS}, n_components=Q).fit(X, some), X
    weights = np.linspace(0.2, 1.8, D)
    given = sparse.csr_array(np.where(X > 0.5, X, 0)) if request.param.startswith("sparse") else X
    clf = S3VMClassifier(**{**PLAIN, "solver": ROWS}).fit(project(given, weights), some)
    clf.model_ = replace(clf.model_, projection=weights)
    clf.column_weights_ = weights
    return clf, given


def assert_same(one, other, X):
    for verb in ("decision_function", "predict", "predict_proba"):
        np.testing.assert_array_equal(getattr(one, verb)(X), getattr(other, verb)(X))


# What becomes of the model


def test_files_and_pickles(fitted, tmp_path):
    clf, X = fitted
    s3vm.save(clf, tmp_path / "m.s3vm")
    loaded = s3vm.load(tmp_path / "m.s3vm")
    np.testing.assert_array_equal(loaded.model_.projection, clf.model_.projection)
    assert loaded.model_.projection.dtype == clf.model_.projection.dtype
    assert loaded.get_params() == clf.get_params()
    assert loaded.n_features_in_ == D
    if clf.column_weights_ is None:
        assert loaded.column_weights_ is None
    else:
        np.testing.assert_array_equal(loaded.column_weights_, clf.column_weights_)
    for other in (loaded, pickle.loads(pickle.dumps(clf)), copy.deepcopy(clf)):
        assert_same(other, clf, X)
    with pytest.raises(ValueError, match="features"):
        loaded.predict(X[:, :Q])


def test_a_file_of_a_pipeline(tmp_path):
    X, some = rows()
    model = make_pipeline(StandardScaler(), S3VMClassifier(**PLAIN, n_components=Q)).fit(X, some)
    s3vm.save(model, tmp_path / "m.s3vm")
    assert_same(s3vm.load(tmp_path / "m.s3vm"), model, X)


def parts_of(clf, folder):
    s3vm.save(clf, folder / "m.s3vm")
    return container.read(folder / "m.s3vm")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("directions", np.full((D, Q), np.nan, np.float32), "not finite"),
        ("directions", np.full((D, Q), np.inf), "not finite"),
        ("directions", np.ones((D + 1, Q), np.float32), "does not fit"),
        ("directions", np.ones((D, Q + 1), np.float32), "does not fit"),  # the centres have Q columns
        ("directions", np.ones((D, 0), np.float32), "0 directions of 20 columns"),
        ("directions", np.ones((D, D + 1), np.float32), "21 directions of 20 columns"),
        ("directions", np.ones((D, Q), np.int64), "does not fit"),
        ("directions", np.ones(D), "does not fit"),
        ("directions", np.ones((D, Q, 1)), "does not fit"),
        ("column_weights", np.ones(D), "does not fit"),  # both
        ("column_weights", np.ones((D, Q)), "does not fit"),
        ("column_weights", np.ones(D - 1), "does not fit"),
        ("column_weights", np.full(D, np.nan), "not finite"),
    ],
)
def test_malice(tmp_path, name, value, reason):
    X, some = rows()
    header, tensors = parts_of(S3VMClassifier(**{**PLAIN, "solver": ROWS}, n_components=Q).fit(X, some), tmp_path)
    (tmp_path / "m.s3vm").write_bytes(sealed(header, {**tensors, name: value}))
    with pytest.raises(ModelFormatError, match=reason):
        s3vm.load(tmp_path / "m.s3vm")


def test_directions_that_are_missing(tmp_path):
    X, some = rows()
    header, tensors = parts_of(S3VMClassifier(**{**PLAIN, "solver": ROWS}, n_components=Q).fit(X, some), tmp_path)
    del tensors["directions"]
    (tmp_path / "m.s3vm").write_bytes(sealed(header, tensors))
    with pytest.raises(ModelFormatError, match="does not fit"):
        s3vm.load(tmp_path / "m.s3vm")


@pytest.mark.parametrize("into", ["features", "landmarks"])
def test_compression(fitted, into, tmp_path):
    clf, X = fitted
    small = s3vm.compress(clf, X, into=into, size=64)
    assert small.model_.projection is clf.model_.projection
    assert small.compression_.agreement > 0.8
    assert np.mean(small.predict(X) == clf.predict(X)) > 0.9
    if into == "landmarks":
        assert small.model_.centers.shape == (64, clf.model_.n_dims)
    s3vm.save(small, tmp_path / "m.s3vm")
    assert_same(s3vm.load(tmp_path / "m.s3vm"), small, X)
    same = s3vm.compress(small, X)
    assert same.model_.projection is clf.model_.projection


def test_onnx(fitted, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    clf, X = fitted
    X = X.toarray() if sparse.issparse(X) else X
    s3vm.to_onnx(clf, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    (scores,) = session.run(["scores"], {"X": X})
    np.testing.assert_allclose(scores, clf.decision_function(X), atol=2e-5)


# However the rows come


def assert_projected(clf, X, other, directions):
    """`clf` is what `other` is, on projected rows."""
    np.testing.assert_array_equal(clf.model_.projection, directions)
    assert (clf.n_features_in_, clf.model_.n_dims, other.model_.projection) == (D, Q, None)
    assert clf.kernel_ == other.kernel_
    np.testing.assert_array_equal(clf.decision_function(X), other.decision_function(project(X, directions)))
    assert clf.column_weights_ is None
    np.testing.assert_array_equal(other.column_weights_, np.ones(Q))


ALL_SOLVERS = [FEW, "newton", "cccp", "light", "batch", "bgs", "auto", "incremental"]
ALL_SOLVERS += [FRS(max_iter=20, n_features=64)]


@pytest.mark.parametrize(
    ("solver", "gamma", "make"),
    pairwise(product(ALL_SOLVERS, ["scale", "median", 0.1], [np.asarray, sparse.csr_array])),
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_solvers_see_projected_rows(solver, gamma, make):
    X, some = rows()
    X, some = make(X[:300]), some[:300]
    settings = {**PLAIN, "solver": solver, "gamma": gamma}
    if solver == "incremental":
        settings["probability"] = False
    clf = S3VMClassifier(**settings, n_components=Q).fit(X, some)
    directions = principal_directions(X, Q, 0)
    other = S3VMClassifier(**settings).fit(project(X, directions), some)
    assert_projected(clf, X, other, directions)
    np.testing.assert_array_equal(clf.transduction_, other.transduction_)


@pytest.mark.parametrize("Classifier", [S3VMClassifier, S3VMClassifierCV])
@pytest.mark.parametrize("solver", [FEW, "auto"])
def test_choices(Classifier, solver):
    """Weights, widths and candidates are chosen on projected rows, of several classes."""
    X, some = rows(3)
    settings = {"solver": solver, "random_state": 0, "gamma": "median"}
    clf = Classifier(**settings, n_components=Q).fit(X, some)
    directions = principal_directions(X, Q, 0)
    other = Classifier(**settings).fit(project(X, directions), some)
    assert str(clf.safety_) == str(other.safety_)
    assert clf.C_ == other.C_
    np.testing.assert_allclose(
        clf.decision_function(X), other.decision_function(project(X, directions)), rtol=1e-4, atol=1e-4
    )
    assert clone(clf).n_components == Q


def test_a_model_that_weights_directions():
    """What is learnt of the columns of projected rows changes the directions."""
    X = rows()[0]
    clf = S3VMClassifier(**PLAIN).fit(project(X, principal_directions(X, Q, 0)), rows()[1])
    directions, weights = principal_directions(X, Q, 0), np.array([0.5, 2.0, 1.0])
    for inner in (weights, np.eye(Q)[:, :2] @ np.diag([3.0, 1.0])):
        seen = replace(clf.model_, projection=inner)
        mapped = seen.after(directions)
        expected = project(project(X.astype(np.float64), directions), inner)
        np.testing.assert_allclose(project(X.astype(np.float64), mapped.projection), expected, atol=1e-12)
    assert clf.model_.after(None) is clf.model_


@pytest.mark.parametrize("given", ["array", "float64", "sparse", "list", "generator", "path"])
def test_unlabeled_rows_from_elsewhere(given, tmp_path):
    X, some = rows()
    labeled, unlabeled = X[some >= 0], X[some < 0]
    np.save(tmp_path / "rows.npy", unlabeled)
    source = {
        "array": lambda: unlabeled,
        "float64": lambda: ArraySource(unlabeled.astype(float), None, np.float64),
        "sparse": lambda: sparse.csr_array(unlabeled),
        "list": lambda: BatchSource([unlabeled[:500], unlabeled[500:]], n_rows=len(unlabeled)),
        "generator": lambda: iter([unlabeled[:500], unlabeled[500:]]),
        "path": lambda: tmp_path / "rows.npy",
    }[given]
    clf = S3VMClassifier(**PLAIN, n_components=Q).fit(labeled, some[some >= 0], X_unlabeled=source())
    assert clf.model_.projection.shape == (D, Q)
    exact = principal_directions(X, Q, 0)
    np.testing.assert_allclose(clf.model_.projection @ clf.model_.projection.T, exact @ exact.T, atol=0.02)
    whole = S3VMClassifier(**PLAIN, n_components=Q).fit(X, some)
    assert np.mean(clf.predict(X) == whole.predict(X)) > 0.97
    if given == "list":
        mapped = [project(part, clf.model_.projection) for part in (unlabeled[:500], unlabeled[500:])]
        other = S3VMClassifier(**PLAIN)
        other.fit(
            project(labeled, clf.model_.projection),
            some[some >= 0],
            X_unlabeled=BatchSource(mapped, n_rows=len(unlabeled), buffer_bytes=(32 << 20) * Q // D),
        )
        np.testing.assert_allclose(clf.kernel_.width, other.kernel_.width, rtol=1e-3)


def test_files(tmp_path):
    pytest.importorskip("pyarrow")
    X, some = rows()
    lines = [",".join([*map(str, x), str(label) if label >= 0 else ""]) for x, label in zip(X.tolist(), some)]
    names = ",".join([*(f"x{j}" for j in range(D)), "label"])
    (tmp_path / "rows.csv").write_text("\n".join([names, *lines]))
    clf = S3VMClassifier(**PLAIN, n_components=Q).fit(s3vm.FileSource(tmp_path / "rows.csv", target="label"))
    whole = S3VMClassifier(**PLAIN, n_components=Q).fit(X, some)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(D)])
    assert np.mean(clf.predict(frame).astype(str) == whole.predict(X).astype(str)) > 0.97


@pytest.mark.parametrize("settings", [{}, {"gamma": "median"}, {"n_components": Q}, {"solver": "tsg"}], ids=str)
def test_ignored_rows_do_not_matter(settings):
    """Neither for the function, nor for the kernel's width or the directions."""
    X, some = rows()
    labeled = some >= 0
    for Classifier in (S3VMClassifier, S3VMClassifierCV):
        clf = Classifier(unlabeled_weight=0, random_state=0, **settings)
        scores = clf.fit(X, some).decision_function(X)
        with pytest.warns(UserWarning, match="no unlabelled rows"):
            clf.fit(X[labeled], some[labeled])
        np.testing.assert_array_equal(scores, clf.decision_function(X))
        clf.fit(X[labeled], some[labeled], X_unlabeled=1.5 * X[~labeled])
        np.testing.assert_array_equal(scores, clf.decision_function(X))


@pytest.mark.parametrize("solver", [FEW, FRS(max_iter=20, n_features=64)], ids=["tsg", "frs"])
def test_the_first_rows_fix_the_directions(solver):
    X, some = rows()
    clf = S3VMClassifier(**{**PLAIN, "solver": solver}, n_components=Q).partial_fit(X[:300], some[:300])
    directions = clf.model_.projection
    other = S3VMClassifier(**{**PLAIN, "solver": solver}).partial_fit(project(X[:300], directions), some[:300])
    for start in (300, 600):
        part = slice(start, start + 300)
        clf.partial_fit(X[part] + 1, some[part])
        other.partial_fit(project(X[part] + 1, directions), some[part])
        assert clf.model_.projection is directions
        np.testing.assert_array_equal(clf.decision_function(X), other.decision_function(project(X, directions)))
    again = pickle.loads(pickle.dumps(clf)).partial_fit(X[:50], some[:50])
    np.testing.assert_array_equal(again.model_.projection, directions)
    with pytest.raises(ValueError, match="n_components"):
        clf.set_params(n_components=2).partial_fit(X, some)


def test_rows_that_come_and_leave():
    X, some = rows()
    settings = {**PLAIN, "solver": "incremental", "probability": False, "gamma": 0.05}
    clf = S3VMClassifier(**settings, n_components=Q).fit(X[:100], some[:100])
    directions = clf.model_.projection
    other = S3VMClassifier(**settings).fit(project(X[:100], directions), some[:100])
    clf.partial_fit(X[100:120], some[100:120])
    other.partial_fit(project(X[100:120], directions), some[100:120])
    np.testing.assert_array_equal(clf.decision_function(X), other.decision_function(project(X, directions)))
    clf.forget([3, 70])
    other.forget([3, 70])
    assert clf.model_.projection is directions
    np.testing.assert_array_equal(clf.decision_function(X), other.decision_function(project(X, directions)))


def test_warm_start():
    X, some = rows()
    clf = S3VMClassifier(**PLAIN, n_components=Q, warm_start=True).fit(X, some)
    directions = clf.model_.projection
    other = S3VMClassifier(**PLAIN, warm_start=True)
    for _ in range(2):
        other.fit(project(X, directions), some)
    assert clf.fit(X, some).model_.projection is directions
    assert_projected(clf, X, other, directions)


def test_checkpoints(tmp_path, monkeypatch):
    X, some = rows()
    settings = {**PLAIN, "solver": replace(FEW, max_iter=30)}
    whole = S3VMClassifier(**settings, n_components=Q).fit(X, some)

    def stop(done, total, record):
        if done == 10:
            raise KeyboardInterrupt

    path = tmp_path / "run"
    with pytest.warns(UserWarning, match="interrupted"):
        S3VMClassifier(**settings, n_components=Q, verbose=stop).fit(X, some, checkpoint=path, every=0)
    with pytest.raises(ValueError, match="n_components: was 3, is 2"):
        S3VMClassifier(**settings, n_components=2).fit(X, some, checkpoint=path, resume=True)
    resumed = S3VMClassifier(**settings, n_components=Q).fit(X, some, checkpoint=path, resume=True)
    assert_same(resumed, whole, X)


def test_more_directions_than_there_are():
    X, some = rows()
    clf = S3VMClassifier(**PLAIN, n_components=10_000).fit(X, some)
    assert clf.model_.projection.shape == (D, D)
    plain = S3VMClassifier(**PLAIN).fit(X, some)
    assert clf.kernel_.width == pytest.approx(plain.kernel_.width, rel=1e-4)  # distances are the same


def test_auto_is_for_the_solver_auto():
    X, some = rows()
    clf = S3VMClassifier(**PLAIN, n_components="auto").fit(X, some)
    assert clf.model_.projection is None
    assert_same(clf, S3VMClassifier(**PLAIN).fit(X, some), X)


def test_too_little_memory(monkeypatch):
    monkeypatch.setattr("s3vm.training.memory_check.machine_memory", lambda: 10_000)
    with pytest.raises(MemoryError, match=r"900 rows on 3 directions need .* give a smaller n_components"):
        S3VMClassifier(**PLAIN, n_components=Q).fit(*rows())


def test_float64():
    X, some = rows()
    X = X.astype(np.float64)
    clf = S3VMClassifier(**PLAIN, n_components=Q, dtype="float64").fit(X, some)
    directions = principal_directions(X, Q, 0)
    other = S3VMClassifier(**PLAIN, dtype="float64").fit(project(X, directions), some)
    np.testing.assert_array_equal(clf.decision_function(X), other.decision_function(project(X, directions)))


def test_digits():
    """The directions of the rows know something: pixels are noisy, and there are few labels."""
    X, y = load_digits(return_X_y=True)
    some = np.where(np.arange(len(y)) < 60, y, -1)
    errors = [
        np.mean(S3VMClassifier(unlabeled_weight=1.0, random_state=0, n_components=q).fit(X, some).predict(X) != y)
        for q in (None, 16)
    ]
    assert errors[1] < errors[0] + 0.02

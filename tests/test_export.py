"""ONNX files say what the model says, and a compressed model nearly so."""

import ast
import pickle
import re
import subprocess
import sys
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from experiments.printed_tsg import PrintedTSG
from scipy import sparse
from sklearn.datasets import load_digits, load_iris, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import s3vm
from s3vm import (
    FRS,
    RBF,
    TSG,
    LabeledKFold,
    Laplacian,
    Matern,
    Polynomial,
    S3VMClassifier,
    S3VMClassifierCV,
    compress,
    to_onnx,
)
from s3vm.model import Model
from s3vm.persistence import onnx as graphs
from s3vm.persistence.compression import Compression

FEW = TSG(max_iter=10, batch_size=16, n_features=64, span="features", max_features=256)
ROWS = TSG(max_iter=10, batch_size=16, span="rows")
FIXED = FRS(max_iter=20, n_features=300)
pytestmark = pytest.mark.filterwarnings("ignore:collapse:UserWarning")


def flowers(n_classes=3):
    X, y = load_iris(return_X_y=True)
    y = np.minimum(y, n_classes - 1)
    return X.astype(np.float32), np.where(np.arange(150) % 4 == 0, y, -1)


def served(path, X):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    outputs = session.run(None, {"X": np.asarray(X, np.float32)})
    return dict(zip([output.name for output in session.get_outputs()], outputs))


def assert_served(estimator, X, folder, tolerance=1e-5):
    path = folder / "m.onnx"
    to_onnx(estimator, path)
    found = served(path, X)
    scores = estimator.decision_function(X)
    assert found["scores"].shape == scores.shape
    np.testing.assert_allclose(found["scores"], scores, rtol=0, atol=tolerance * np.abs(scores).max())
    sure = np.abs(scores) > 1e-4 if scores.ndim == 1 else np.diff(np.sort(scores, axis=1)[:, -2:])[:, 0] > 1e-4
    assert sure.mean() > 0.9
    np.testing.assert_array_equal(found["label"][sure], estimator.predict(X)[sure])
    np.testing.assert_allclose(found["probabilities"], estimator.predict_proba(X), atol=1e-5)
    return found


# ONNX


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("solver", [FEW, ROWS, FIXED], ids=["both", "centres", "features"])
@pytest.mark.parametrize(
    "kernel",
    [
        RBF(),
        RBF(features="phase"),
        Laplacian(),
        Laplacian(features="phase"),
        Matern(nu=0.5),
        Matern(nu=1.5),
        Matern(nu=2.5),
        Polynomial(degree=1, coef0=0.0),
        Polynomial(degree=3),
    ],
    ids=repr,
)
def test_onnx_says_what_the_model_says(tmp_path, kernel, solver, n_classes):
    X, some = flowers(n_classes)
    # Some of this kernel's frequencies are so high that float32 does not know their phases.
    dtype = "float64" if kernel == Matern(nu=0.5) else "float32"
    clf = S3VMClassifier(solver, kernel=kernel, unlabeled_weight=1.0, random_state=0, dtype=dtype)
    assert_served(make_pipeline(StandardScaler(), clf).fit(X, some), X, tmp_path)


@pytest.mark.parametrize("size", [7, 64, 300])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly"])
def test_onnx_in_groups(tmp_path, monkeypatch, kernel, size):
    """However many centres and features are summed up at a time."""
    monkeypatch.setattr(graphs, "_GROUP", size)
    X, some = flowers()
    for solver in (FEW, ROWS):
        clf = S3VMClassifier(solver, kernel=kernel, unlabeled_weight=1.0, random_state=0).fit(X, some)
        assert_served(clf, X, tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_onnx_precision(tmp_path, dtype):
    X, some = flowers()
    clf = S3VMClassifierCV(FEW, dtype=dtype, random_state=0).fit(X, some)
    assert_served(clf, X, tmp_path, 1e-6)


def test_onnx_far_from_zero(tmp_path):
    """Distances of rows far from zero do not drown in their squares."""
    X, some = flowers()
    X = X + np.float32(4096)
    assert_served(S3VMClassifier(ROWS, gamma=1.0, unlabeled_weight=1.0, random_state=0).fit(X, some), X, tmp_path)


@pytest.mark.parametrize(
    "classes",
    [np.array([5, 9], np.int8), np.array(["no", "ünd"]), np.array([True, False]), np.array([1.0, 2.0])],
    ids=lambda classes: classes.dtype.name,
)
def test_onnx_labels_of_any_kind(tmp_path, classes):
    X, some = flowers(2)
    known = some >= 0
    with pytest.warns(UserWarning, match="no unlabelled rows"):
        clf = S3VMClassifier(FEW, unlabeled=None, random_state=0).fit(X[known], classes[some[known]])
    found = assert_served(clf, X, tmp_path)
    assert found["label"].tolist() == clf.predict(X).tolist()


def test_onnx_labels_that_are_too_large(tmp_path):
    clf = S3VMClassifier(FEW, random_state=0).fit(*flowers(2))
    clf.classes_ = np.array([3, 2**63], np.uint64)
    with pytest.raises(ValueError, match=r"class 9223372036854775808 is above.*classes below"):
        to_onnx(clf, tmp_path / "x.onnx")


def test_onnx_without_probabilities(tmp_path):
    clf = S3VMClassifier(FEW, probability=False, random_state=0).fit(*flowers())
    to_onnx(clf, tmp_path / "m.onnx")
    assert served(tmp_path / "m.onnx", flowers()[0]).keys() == {"label", "scores"}


def test_onnx_of_sparse_rows(tmp_path):
    X, some = flowers()
    X = np.maximum(X - 2, 0)
    scaled = make_pipeline(StandardScaler(with_mean=False), S3VMClassifier(FEW, random_state=0))
    assert_served(scaled.fit(sparse.csr_array(X), some), X, tmp_path)


def test_onnx_of_a_constant(tmp_path):
    X, some = flowers(2)
    clf = S3VMClassifier(FEW, random_state=0).fit(X, some)
    clf.model_ = Model(RBF(1.0), 0, 4, np.empty((0, 1, 1), np.float32), np.array([0.25]))
    np.testing.assert_array_equal(assert_served(clf, X, tmp_path)["scores"], np.full(150, 0.25, np.float32))


def test_one_row_and_none(tmp_path):
    X, some = flowers()
    to_onnx(S3VMClassifier(FEW, random_state=0).fit(X, some), tmp_path / "m.onnx")
    assert served(tmp_path / "m.onnx", X[:1])["probabilities"].shape == (1, 3)
    assert served(tmp_path / "m.onnx", X[:0])["label"].shape == (0,)


def test_onnx_outputs_are_in_the_usual_order(tmp_path):
    """That of skl2onnx, which others expect who read outputs by their number."""
    X, some = flowers()
    to_onnx(S3VMClassifier(FEW, random_state=0).fit(X, some), tmp_path / "m.onnx")
    assert list(served(tmp_path / "m.onnx", X)) == ["label", "probabilities", "scores"]


@pytest.mark.parametrize("opset", [13, 15, 21])
def test_onnx_of_older_and_newer_operators(tmp_path, opset):
    X, some = flowers(2)
    model = make_pipeline(StandardScaler(), S3VMClassifier(FEW, unlabeled_weight=1.0, random_state=0)).fit(X, some)
    to_onnx(model, tmp_path / "m.onnx", target_opset=opset)
    assert onnx.load(tmp_path / "m.onnx").opset_import[0].version == opset
    np.testing.assert_allclose(served(tmp_path / "m.onnx", X)["probabilities"], model.predict_proba(X), atol=1e-5)
    with pytest.raises(ValueError, match="target_opset=12 is not valid: give an integer of at least 13"):
        to_onnx(model, tmp_path / "m.onnx", target_opset=12)


def test_onnx_file_is_well_formed(tmp_path):
    X, some = flowers()
    to_onnx(S3VMClassifier(FEW, random_state=0).fit(X, some), tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert (model.producer_name, model.producer_version) == ("s3vm", s3vm.__version__)
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize("what", ["features", "centres"])
def test_more_than_onnx_holds(tmp_path, what):
    """Refused before a frequency is drawn, and with the reason."""
    X, some = flowers(2)
    clf = S3VMClassifier(FEW, random_state=0).fit(X, some)
    nothing = np.empty((0, 1, 1), np.float32)
    if what == "features":
        clf.model_ = Model(RBF(1.0), 0, 3000, np.zeros((100, 8192, 1), np.float32), np.zeros(1))
    else:
        centers = sparse.csr_array((60_000, 10_000), dtype=np.float32)
        clf.model_ = Model(RBF(1.0), 0, 10_000, nothing, np.zeros(1), centers, np.zeros((60_000, 1)))
    with pytest.raises(ValueError, match=r"2 GB at most.* (4\.92|2\.4) GB.*compress"):
        to_onnx(clf, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_onnx_of_a_search(tmp_path):
    X, some = flowers()
    clf = make_pipeline(StandardScaler(), S3VMClassifier(FEW, random_state=0))
    search = GridSearchCV(clf, {"s3vmclassifier__C": [1.0]}, cv=LabeledKFold(2)).fit(X, some)
    assert_served(search, X, tmp_path)
    s3vm.save(search, tmp_path / "m.s3vm")
    np.testing.assert_array_equal(s3vm.load(tmp_path / "m.s3vm").predict_proba(X), search.predict_proba(X))


@pytest.mark.parametrize("write", [s3vm.save, s3vm.to_onnx])
def test_a_search_without_a_best_estimator(write, tmp_path):
    """It has the right type, so that advice about types would mislead."""
    X, some = flowers()
    clf = S3VMClassifier(FEW, gamma=1.0, unlabeled_weight=0.0, probability=False)
    search = GridSearchCV(clf, {"C": [1.0]}, cv=LabeledKFold(2), refit=False)
    with pytest.raises(NotFittedError, match="This GridSearchCV instance is not fitted yet"):
        write(search, tmp_path / "m")
    with pytest.raises(ValueError, match=r"this GridSearchCV was fitted with refit=False .*: give refit=True"):
        write(search.fit(X, some), tmp_path / "m")


def test_onnx_of_something_else(tmp_path):
    with pytest.raises(TypeError, match="give an S3VMClassifier"):
        to_onnx(LogisticRegression(), tmp_path / "m.onnx")


# Kernels of one's own


def gallery_kernel():
    """The kernel class of the gallery's example, without the rest of the page."""
    page = ast.parse((Path(__file__).parents[1] / "examples" / "plot_custom_kernel_and_loss.py").read_text())
    (definition,) = [node for node in page.body if getattr(node, "name", "") == "Stretched"]
    scope = {"__name__": "gallery", "np": np, "RBF": RBF, "dataclass": dataclass}
    exec(compile(ast.Module([definition], []), "gallery", "exec"), scope)
    return scope["Stretched"]


Stretched = gallery_kernel()


class WithoutFormula(Stretched):
    """A formula of its own, in which the parent's ONNX formula would be wrong."""

    def gram(self, X, Z):
        return 1.0 + super().gram(X, Z)


class OtherFrequencies(RBF):
    """The formula of its parent, with random features that are drawn in another way."""

    def draw(self, seed, block, n_features, n_dims, *random):
        frequencies, offsets = super().draw(seed + 1, block, n_features, n_dims, *random)
        return frequencies[:, ::-1], offsets


FACTORS = (2.0, 0.1, 1.0, 0.3)


@pytest.mark.parametrize("solver", [FEW, ROWS, FIXED], ids=["both", "centres", "features"])
@pytest.mark.parametrize("features", ["pairs", "phase"])
@pytest.mark.parametrize("kind", [Stretched, OtherFrequencies])
def test_onnx_of_a_kernel_of_ones_own(tmp_path, kind, features, solver):
    X, some = flowers()
    chosen = {"factors": FACTORS} if kind is Stretched else {}
    kernel = kind(gamma=0.4, features=features, **chosen)
    clf = S3VMClassifier(solver, kernel=kernel, unlabeled_weight=1.0, random_state=0).fit(X, some)
    assert (clf.model_.weights is None) == (solver is FIXED)
    assert_served(clf, X, tmp_path)


def test_onnx_of_a_kernel_without_a_formula(tmp_path):
    """Refused where the formula is needed, and not exported as its parent."""
    X, some = flowers()
    kernel = WithoutFormula(gamma=0.4, factors=FACTORS)
    for solver in (FEW, ROWS):
        clf = S3VMClassifier(solver, kernel=kernel, unlabeled_weight=1.0, random_state=0).fit(X, some)
        reason = r"WithoutFormula overrides gram but has no ONNX formula for it: define onnx_gram in WithoutFormula"
        with pytest.raises(TypeError, match=reason):
            to_onnx(clf, tmp_path / "m.onnx")
        assert list(tmp_path.iterdir()) == []
    clf = S3VMClassifier(FIXED, kernel=kernel, unlabeled_weight=1.0, random_state=0).fit(X, some)
    assert_served(clf, X, tmp_path)


def test_onnx_that_is_not_there(tmp_path, monkeypatch):
    X, some = flowers(2)
    clf = S3VMClassifier(ROWS, kernel="matern", random_state=0).fit(X, some)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r'pip install "s3vm\[onnx\]"'):
        to_onnx(clf, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [{"kind": "zip"}, {"rms": np.nan}, {"size": "many"}])
def test_a_compression_that_makes_no_sense(wrong):
    with pytest.raises(ValueError, match="needs a kind, features or landmarks, and finite numbers"):
        Compression(**{"kind": "features", "size": 3, "size_before": 9} | wrong)


# Compression


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X, some = X / 16, np.where(np.arange(len(y)) < 200, y, -1)
    clf = S3VMClassifier(
        PrintedTSG(max_iter=60, n_features=512), unlabeled_weight=1.0, random_state=0, probability=False
    )
    return clf.fit(X, some), X, y


@pytest.fixture(scope="module")
def moons():
    X, y = make_moons(3000, noise=0.15, random_state=0)
    clf = S3VMClassifier(FRS(max_iter=40, n_features=10_240), gamma=2.0, unlabeled_weight=0.1, random_state=0)
    return clf.fit(X[:2000], np.where(np.arange(2000) < 60, y[:2000], -1)), X


def test_thirty_thousand_features_become_a_few_hundred(digits):
    clf, X, y = digits
    small = compress(clf, X)
    report = small.compression_
    assert report.size_before == 30_720
    assert report.size <= 512
    assert report.agreement >= 0.99
    assert report.least_agreement >= 0.9
    assert report.speed_up > 3
    assert np.mean(small.predict(X) == clf.predict(X)) >= 0.985
    assert abs(small.score(X, y) - clf.score(X, y)) < 0.01
    assert re.search(r"30,720 terms became \d+ (features|landmarks): 99\.\d+% of held-out rows", str(report))


@pytest.mark.parametrize("into", ["features", "landmarks"])
def test_what_it_is_made_of(moons, into):
    clf, X = moons
    small = compress(clf, X[:2000], into=into)
    assert small.compression_.kind == into
    assert small.compression_.size <= 256
    model = small.model_
    assert (model.weights is None) == (into == "features")
    assert len(model.coefficients) == (into == "features")
    assert np.mean(small.predict(X[2000:]) == clf.predict(X[2000:])) > 0.98, "rows that it has not seen"
    assert np.abs(small.predict_proba(X) - clf.predict_proba(X)).mean() < 0.05
    assert clf.model_.coefficients.shape == (1, 10_240, 1), "the model that it was made from stays as it was"
    assert small.get_params() == clf.get_params()


def test_a_lower_tolerance_takes_more(moons):
    clf, X = moons
    sizes = [compress(clf, X, tolerance=tolerance).compression_.size for tolerance in (0.03, 0.01, 0.003)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_a_rare_class_is_kept():
    """One row in a hundred: a model that forgets them would still agree on 99 % of the rows."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(3960, 5)), rng.normal(size=(40, 5)) * 0.4 + 2])
    y = np.r_[np.zeros(3960), np.ones(40)]
    some = np.where((np.arange(4000) % 20 == 0) | (np.arange(4000) > 3980), y, -1)
    clf = S3VMClassifier(FIXED, unlabeled_weight=0.0, random_state=0, probability=False).fit(X, some)
    assert 0.001 < clf.predict(X).mean() < 0.02
    small = compress(clf, X, tolerance=0.02)
    assert small.compression_.least_agreement >= 0.8
    assert small.predict(X).sum() > 0.7 * clf.predict(X).sum()


def test_the_same_every_time(moons):
    clf, X = moons
    for into in ("features", "landmarks"):
        first, second = (compress(clf, X, into=into).decision_function(X) for _ in range(2))
        np.testing.assert_array_equal(first, second)


def test_a_size_that_is_asked_for(moons):
    clf, X = moons
    for into in ("features", "landmarks"):
        assert compress(clf, X, into=into, size=200, tolerance=0.1).compression_.size == 200
    with pytest.warns(UserWarning, match=r"tolerance of 1\.00% is not reached: 10,240 terms became 4 features"):
        assert compress(clf, X, into="features", size=4).compression_.size == 4


@pytest.mark.filterwarnings("ignore:the tolerance:UserWarning")
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "matern", "poly"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_and_rows_of_any_kind(kernel, dtype):
    X, some = flowers()
    X = np.maximum(X - 2, 0)
    clf = S3VMClassifier(FIXED, kernel=kernel, dtype=dtype, unlabeled_weight=1.0, random_state=0)
    for rows in (X, sparse.csr_array(X)):
        small = compress(clf.fit(rows, some), rows, into="landmarks", size=50)
        assert small.compression_.agreement > 0.9
        assert sparse.issparse(small.model_.centers) == sparse.issparse(rows)
        assert np.isfinite(compress(clf, rows, into="features", size=50).decision_function(rows)).all()


def test_a_compressed_model_is_a_model(moons, tmp_path):
    """It is saved, loaded, exported and pickled like any other, in a pipeline or not."""
    clf, X = moons
    pipeline = make_pipeline(StandardScaler(), S3VMClassifier(FIXED, unlabeled_weight=0.1, random_state=0))
    some = np.where(np.arange(3000) < 60, clf.predict(X), -1)
    for estimator in (clf, pipeline.fit(X.astype(np.float32), some)):
        small = compress(estimator, X, tolerance=0.02)
        assert type(small) is type(estimator)
        s3vm.save(small, tmp_path / "m.s3vm")
        loaded = s3vm.load(tmp_path / "m.s3vm")
        np.testing.assert_array_equal(loaded.decision_function(X), small.decision_function(X))
        was, now = (one[-1] if estimator is pipeline else one for one in (small, loaded))
        assert now.compression_ == was.compression_
        copy = pickle.loads(pickle.dumps(small))
        np.testing.assert_array_equal(copy.decision_function(X), small.decision_function(X))
        assert_served(small, X.astype(np.float32), tmp_path)
        assert (tmp_path / "m.s3vm").stat().st_size < 60_000
    with pytest.raises(AttributeError, match="the training rows"):
        _ = compress(clf, X).transduction_


def test_what_is_small_already(moons):
    clf, X = moons
    some = np.where(np.arange(3000) < 60, clf.predict(X), -1)
    tiny = S3VMClassifier(FRS(max_iter=1, n_features=16), unlabeled_weight=0.0, random_state=0).fit(X, some)
    small = compress(tiny, X)
    assert (small.compression_.kind, small.compression_.size, small.compression_.agreement) == ("none", 16, 1.0)
    assert "too small" in str(small.compression_)
    np.testing.assert_array_equal(small.decision_function(X), tiny.decision_function(X))


def test_what_cannot_be_compressed_is_said(digits):
    """Fewer rows than it takes."""
    clf, X, _ = digits
    with pytest.warns(UserWarning, match="is not reached.*Give more rows"):
        small = compress(clf, X[:100], tolerance=0.001)
    assert small.compression_.agreement < 1


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"tolerance": 0}, "tolerance"),
        ({"into": "trees"}, "into"),
        ({"tolerance": None}, "tolerance=None is not valid: give a number above 0 and below 1"),
        ({"size": 0}, "size"),
        ({"size": "a"}, "size='a' is not valid: give an integer"),
        ({"size": 10**6}, "size"),
        ({"X": np.zeros((3, 2))}, "3 rows"),
        ({"X": np.zeros((300, 5))}, "5 features"),
        ({"X": np.full((300, 2), np.nan)}, "NaN"),
    ],
    ids=str,
)
def test_wrong_arguments(moons, wrong, reason):
    clf, X = moons
    with pytest.raises(ValueError, match=reason):
        compress(clf, **{"X": X, **wrong})


def test_scores_that_are_too_large(moons):
    """As a file that somebody has forged may give them."""
    clf, X = copy(moons[0]), moons[1]
    clf.model_ = replace(clf.model_, intercept=np.array([1.7e308]))
    with pytest.raises(ValueError, match=r"scores of this model are up to 1\.7e\+308.*keep the model as it is"):
        compress(clf, X)
    np.testing.assert_array_equal(clf.predict_proba(X[:3]), [[0, 1]] * 3)


def test_export_is_there_when_s3vm_is():
    code = "import s3vm, sys; assert 's3vm.persistence' not in sys.modules; s3vm.to_onnx, s3vm.compress"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)

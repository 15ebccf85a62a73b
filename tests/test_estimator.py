"""What a user of scikit-learn meets: labels and rows of any kind, clear errors, the same answer every time."""

import copy
import hashlib
import pickle
import re
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from experiments.printed_tsg import PrintedTSG
from scipy import sparse
from sklearn.datasets import load_iris, make_blobs, make_classification, make_moons
from sklearn.exceptions import DataConversionWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from s3vm import (
    TSG,
    Constant,
    Exponential,
    LabeledKFold,
    Matern,
    S3VMClassifier,
    S3VMClassifierCV,
    backends,
)
from s3vm.estimators import prediction, tuning
from s3vm.solvers import supervised

FEW = TSG(max_iter=20, batch_size=32, n_features=32, span="features", max_features=128)
# Algorithm 1 with an intercept that holds the balance.
PLAIN = {"intercept": True, "balance": True, "draw_labeled": False, "step": "decaying"}
PLAIN |= {"n_features": 32, "batch_size": 32}


@pytest.fixture(scope="module")
def moons():
    X, y = make_moons(300, noise=0.1, random_state=0)
    some = y.copy()
    some[40:] = -1
    return X, y, some


@pytest.fixture(scope="module")
def flowers():
    X, y = load_iris(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(y))
    X, y = StandardScaler().fit_transform(X)[order], y[order]
    some = y.copy()
    some[30:] = -1
    return X, y, some


def make(**chosen):
    return S3VMClassifier(**{"solver": FEW, "random_state": 0, **chosen})


# Learning


def test_binary(moons):
    X, y, some = moons
    clf = S3VMClassifier("tsg", C=10, gamma=2.0, random_state=0).fit(X, some)
    assert clf.score(X, y) > 0.95
    assert clf.decision_function(X).shape == (300,)
    np.testing.assert_array_equal(clf.classes_, [0, 1])
    np.testing.assert_array_equal(clf.predict(X), (clf.decision_function(X) > 0).astype(int))
    assert clf.n_iter_ == 400


def test_multiclass(flowers):
    X, y, some = flowers
    clf = S3VMClassifier(C=10, random_state=0).fit(X, some)
    assert clf.score(X, y) > 0.9
    assert clf.decision_function(X).shape == (150, 3)
    np.testing.assert_array_equal(clf.predict(X), clf.decision_function(X).argmax(axis=1))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities(n_classes):
    X, y = make_blobs(1600, centers=n_classes, cluster_std=3.0, random_state=4)
    X = StandardScaler().fit_transform(X)
    some = y.copy()
    some[300:] = -1
    clf = S3VMClassifier(C=1, random_state=0).fit(X, some)
    proba = clf.predict_proba(X)
    assert proba.shape == (1600, n_classes)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(clf.classes_[proba.argmax(axis=1)], clf.predict(X))
    sure = proba[300:].max(axis=1)
    right = clf.predict(X[300:]) == y[300:]
    assert abs(sure.mean() - right.mean()) < 0.05, "stated and real accuracy"


def test_probabilities_of_separated_classes_are_not_certainties():
    X, y = make_blobs(100, centers=[[-4, 0], [4, 0]], cluster_std=0.3, random_state=0)
    some = y.copy()
    some[10:] = -1
    proba = S3VMClassifier(C=10, random_state=0).fit(X, some).predict_proba(X)
    assert 0.8 < proba.max(axis=1).mean() < 0.999


def test_probability_can_be_declined(moons):
    X, _, some = moons
    clf = make(probability=False).fit(X, some)
    assert not hasattr(clf, "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba"):
        clf.predict_proba(X)
    # The folds are further columns, which do not change the model.
    np.testing.assert_allclose(clf.decision_function(X), make().fit(X, some).decision_function(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("counts", [(1, 3, 3), (1, 1, 1)])
def test_a_class_of_one_row_stays_in_training(flowers, counts):
    X, y, _ = flowers
    some = np.full(len(y), -1)
    for code, count in enumerate(counts):
        some[np.flatnonzero(y == code)[:count]] = code
    if max(counts) > 1:
        with pytest.warns(UserWarning, match="class 0 has a single labelled row, which cannot be held out"):
            clf = make(unlabeled_weight="auto").fit(X, some)
        assert clf.safety_.n_labeled == 6
    else:
        with pytest.warns(UserWarning, match="every class has a single labelled row"):
            clf = make().fit(X, some)
    assert np.isfinite(clf.predict_proba(X)).all()
    assert set(clf.predict(X)) == {0, 1, 2}


@pytest.mark.parametrize(
    "solver",
    [TSG(), PrintedTSG(**PLAIN | {"max_iter": 600, "batch_size": 256, "n_features": 256, "ramp": 0.5})],
    ids=["anchored", "Algorithm 1"],
)
def test_without_unlabeled_weight_it_is_an_svm(solver):
    """At C* = 0 the boundary is that of scikit-learn's SVC: at once, or after enough iterations of Algorithm 1."""
    X, y = make_moons(2200, noise=0.2, random_state=0)
    labeled, points = X[:200], X[200:]
    some = np.r_[y[:200], np.full(2000, -1)]
    svc = SVC(C=1.0, gamma=1.0).fit(labeled, y[:200])
    clf = S3VMClassifier(solver, C=1.0, gamma=1.0, unlabeled_weight=0, probability=False, random_state=0).fit(X, some)
    assert clf.n_iter_ == (1 if isinstance(solver, TSG) else 600)
    assert np.mean(clf.predict(points) == svc.predict(points)) >= 0.98


def test_unlabeled_rows_are_used(moons):
    X, _, some = moons
    ignored, used = (make(unlabeled_weight=w).fit(X, some).decision_function(X) for w in (0, 1.0))
    assert np.abs(ignored - used).max() > 0.05
    # The loss on unlabelled rows asks for scores away from 0.
    assert np.mean(np.abs(used) < 0.9) < np.mean(np.abs(ignored) < 0.9)


def test_paper_switch(moons):
    X, _, some = moons
    printed = PrintedTSG(max_iter=20, n_features=32, batch_size=32, step=Constant(eta=20))
    clf = make(solver=printed, unlabeled_weight="paper").fit(X, some)
    np.testing.assert_array_equal(clf.model_.intercept, [0.0])
    other = make(solver=printed, unlabeled_weight=40 / 260).fit(X, some)
    np.testing.assert_array_equal(clf.decision_function(X), other.decision_function(X))


def test_class_prior_moves_the_boundary(moons):
    X, _, some = moons
    low, high = ([0.8, 0.2], [0.2, 0.8])
    shares = [make(unlabeled_weight=1.0, C=0.3, class_prior=p).fit(X, some).predict(X).mean() for p in (low, high)]
    assert shares[0] + 0.1 < shares[1]


def test_class_weight_and_sample_weight(moons):
    X, _, some = moons
    # The same costs. What else counts rows by their weight, the prior and the spread of X, is given.
    given = {"class_prior": [0.5, 0.5], "gamma": 1.0}
    weighted = make(class_weight={0: 3.0, 1: 1.0}, **given).fit(X, some)
    rows = make(**given).fit(X, some, sample_weight=np.where(some == 0, 3.0, 1.0))
    np.testing.assert_allclose(weighted.decision_function(X), rows.decision_function(X), rtol=1e-4, atol=1e-5)
    balanced = make(class_weight="balanced").fit(X, some)
    assert np.isfinite(balanced.decision_function(X)).all()


def test_balanced_weights_count_every_row():
    X = np.r_[np.zeros((150, 1)), np.ones((3, 1))]
    y = np.r_[np.zeros(150), np.ones(3)].astype(int)
    X, y = np.r_[X, np.linspace(0, 1, 60)[:, None]], np.r_[y, np.full(60, -1)]
    clf = make(class_weight="balanced", unlabeled_weight=0, gamma=1.0, C=0.1).fit(X, y)
    svc = SVC(class_weight="balanced", gamma=1.0, C=0.1).fit(X[:153], y[:153])
    np.testing.assert_allclose(clf.decision_function(X), svc.decision_function(X), atol=1e-3)


def test_columns_far_from_zero(moons):
    X, _, some = moons
    near, far = (make(unlabeled_weight=0, gamma=1.0).fit(X + shift, some) for shift in (0, 1000))
    np.testing.assert_allclose(far.decision_function(X + 1000), near.decision_function(X), atol=0.05)


@pytest.mark.parametrize(
    "kind",
    [
        lambda y: pd.Series(y, dtype="Int64"),
        lambda y: pd.array(y, dtype="UInt8"),
        lambda y: pd.Series(y, dtype="int64[pyarrow]"),
        lambda y: pa.array(y, pa.int32()),
        lambda y: pa.chunked_array([y], pa.uint8()),
        pl.Series,
    ],
    ids=["pandas", "array of pandas", "pandas with Arrow", "Arrow", "chunks of Arrow", "Polars"],
)
@pytest.mark.parametrize("has_nulls", [True, False])
def test_nullable_integers_stay_integers(moons, kind, has_nulls):
    """NumPy makes floats of those with nulls."""
    X, y, some = moons
    labels = kind([None if value < 0 else int(value) for value in some] if has_nulls else [*map(int, y)])
    clf = make(unlabeled=None, unlabeled_weight=1.0)
    if not has_nulls:
        X, labels = X[:40], labels[:40]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore" if not has_nulls else "error", "no unlabelled rows")
        clf.fit(X, labels)
    assert clf.classes_.dtype.kind in "iu"
    assert clf.score(X, labels) > 0.8


@pytest.mark.parametrize(
    "frame",
    [
        lambda y: pd.DataFrame(y, dtype="Int64"),
        lambda y: pd.DataFrame(y, dtype="int64[pyarrow]"),
        pl.DataFrame,
        pa.table,
    ],
    ids=["pandas", "pandas with Arrow", "Polars", "Arrow"],
)
def test_nullable_integers_in_a_data_frame_of_one_column(moons, frame):
    X, _, some = moons
    labels = frame({"label": [None if value < 0 else int(value) for value in some]})
    with pytest.warns(DataConversionWarning, match="column-vector") as issued:
        clf = make(unlabeled=None).fit(X, labels)
    assert {entry.filename for entry in issued} == {__file__}, "the caller's line"
    assert clf.classes_.dtype.kind == "i"
    np.testing.assert_array_equal(clf.predict(X), make().fit(X, some).predict(X))


def test_nullable_booleans_stay_booleans(moons):
    X, _, some = moons
    labels = pd.array([None if value < 0 else bool(value) for value in some], dtype="boolean")
    assert make(unlabeled=None).fit(X, labels).classes_.tolist() == [False, True]


def test_a_table_of_arrow_and_nullable_labels(moons):
    X, _, some = moons
    frame = pa.table({"a": X[:, 0], "b": X[:, 1]})
    labels = pd.array(np.where(some < 0, None, some), dtype="Int64")
    clf = make(unlabeled=None).fit(frame, labels)
    np.testing.assert_array_equal(clf.predict(frame), clf.predict(pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})))


def test_history(moons):
    X, _, some = moons
    history = make().fit(X, some).history_
    losses = {"objective", "labeled_loss", "unlabeled_loss"}
    held_out = {"held_out_error", "held_out_balanced_error", "held_out_average_precision"}
    assert set(history) == {"iteration", "step", "positive_share"} | losses | held_out
    assert all(len(values) == 20 for values in history.values())
    assert history["unlabeled_loss"][-5:].mean() < history["unlabeled_loss"][:5].mean()
    np.testing.assert_array_equal(pd.DataFrame(history)["iteration"], np.arange(1, 21))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_history_on_held_out_rows_ends_where_the_choice_begins(n_classes):
    """The last point of each curve is what `safety_` says of the first weight, made by scikit-learn's measures."""
    X, y = make_classification(300, 6, n_informative=5, n_redundant=0, n_classes=n_classes, random_state=0)
    some = np.where(np.arange(300) < 90, y, -1)
    clf = S3VMClassifier(TSG(max_iter=30), random_state=0).fit(X, some)
    names = ["error", "balanced_error"] + ["average_precision"] * (n_classes == 2)
    for name in names:
        assert clf.history_[f"held_out_{name}"][-1] == pytest.approx(clf.safety_.scores[1.0][name], abs=0.012)
    without = S3VMClassifier(TSG(max_iter=30), unlabeled_weight=1.0, probability=False).fit(X, some)
    assert not [name for name in without.history_ if name.startswith("held_out")]


@pytest.mark.parametrize("solver", ["tsg", "auto"])
def test_known_shares_of_three_classes_are_met_together(solver):
    """Labels that misrepresent the shares, ten of each class: whatever the draw, knowing the shares mends that."""
    gaps = []
    for draw in range(3):
        X, y = make_blobs([120, 40, 240], 2, centers=[[0, 0], [1.5, 0], [0, 1.5]], cluster_std=0.8, random_state=draw)
        some, shares = np.full(len(y), -1), np.bincount(y) / len(y)
        for code in range(3):
            some[np.flatnonzero(y == code)[:10]] = code
        settings = {"C": 0.1, "unlabeled_weight": 0.3, "probability": False, "random_state": 0}
        fits = [S3VMClassifier(solver, class_prior=prior, **settings).fit(X, some) for prior in (shares, None)]
        gaps.append([np.abs(np.bincount(clf.predict(X), minlength=3) / len(y) - shares).max() for clf in fits])
    known, unknown = np.transpose(gaps)
    assert (known < unknown / 2).all()
    assert known.mean() < 0.06
    assert unknown.mean() > 0.16


def test_transduction(moons):
    X, _, some = moons
    clf = make().fit(X, some)
    np.testing.assert_array_equal(clf.transduction_[:40], some[:40])
    np.testing.assert_array_equal(clf.transduction_[40:], clf.predict(X[40:]))
    rows = X.copy()
    changed = make().fit(rows, some)
    rows *= -3
    with pytest.raises(ValueError, match="changed since"):
        _ = changed.transduction_
    loaded = pickle.loads(pickle.dumps(make().fit(X, some)))
    with pytest.raises(AttributeError, match="training rows"):
        _ = loaded.transduction_


def test_refitting_forgets_the_transduction(moons):
    X, _, some = moons
    clf = make().fit(X, some)
    assert len(clf.transduction_) == 300
    clf.fit(X[:100], some[:100])
    assert len(clf.transduction_) == 100


def test_warm_start_goes_on(moons):
    X, _, some = moons
    whole = make(solver=PrintedTSG(max_iter=20, **PLAIN)).fit(X, some)
    half = make(solver=PrintedTSG(max_iter=10, **PLAIN), warm_start=True).fit(X, some).fit(X, some)
    assert half.n_iter_ == 20
    assert all(len(values) == 20 for values in half.history_.values())
    np.testing.assert_allclose(half.decision_function(X), whole.decision_function(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["cccp", "light", "newton", "incremental"])
def test_warm_start_after_the_last_iteration(name):
    """A run that has nothing left to do has no new line of the history: it raised KeyError: 'iteration'."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    some = np.where(np.arange(60) < 20, (X[:, 0] > 0).astype(int), -1)
    clf = S3VMClassifier(name, gamma=1.0, C=1.0, unlabeled_weight=0.5, warm_start=True, random_state=0).fit(X, some)
    scores = clf.decision_function(X)
    for _ in range(2):
        clf.fit(X, some)
        assert clf.history_["iteration"][-1] == clf.n_iter_
    np.testing.assert_allclose(clf.decision_function(X), scores, atol=1e-3)


def test_warm_start_takes_other_rows(moons):
    """More rows would mean more features and more labels more folds; both stay as they were begun."""
    X, y, _ = moons
    few = np.where(np.arange(300) < 45, y, -1)
    solver = PrintedTSG(**{**PLAIN, "n_features": "sqrt", "max_iter": 128, "ramp": 0.5})
    clf = S3VMClassifier(solver, warm_start=True, C=10, unlabeled_weight=0.3, random_state=0).fit(X, few)
    n_features = clf.model_.coefficients.shape[1]
    more = np.tile(X, (40, 1))
    clf.fit(more, np.r_[np.where(np.arange(300) < 90, y, -1), np.full(len(more) - 300, -1)])
    assert clf.n_iter_ == 256
    assert clf.model_.coefficients.shape[1] == n_features
    assert clf.score(X, y) > 0.85


def test_warm_start_refuses_what_cannot_go_on(moons):
    X, _, some = moons
    clf = make(warm_start=True).fit(X, some)
    with pytest.raises(ValueError, match="same classes"):
        clf.fit(X, np.where(some == 1, 2, some))
    with pytest.raises(ValueError, match="3 features"):
        clf.fit(np.c_[X, X[:, 0]], some)
    for changed in ({"gamma": 3.0}, {"C": 5.0}, {"random_state": 7}, {"dtype": "float64"}, {"kernel": "laplacian"}):
        with pytest.raises(ValueError, match="same solver, kernel, gamma, C, n_components, dtype"):
            make(warm_start=True).fit(X, some).set_params(**changed).fit(X, some)
    with pytest.raises(ValueError, match="same rows and costs"):
        clf.fit(X[:200], some[:200])
    clf.set_params(warm_start=False).fit(X, some)
    clf.set_params(warm_start=True).fit(X, some)
    assert clf.n_iter_ == 20, "a cold fit leaves nothing to resume from"


@pytest.mark.parametrize("name", ["cccp", "light", "newton", "incremental"])
def test_warm_start_with_other_settings_is_their_solution(name):
    """More or fewer columns, another weight: what is found is what a fit from the start finds, or as good."""
    X, y = make_blobs(120, centers=[[0, 0], [2.5, 0]], random_state=0)
    some = np.where(np.arange(120) < 40, y, -1)
    clf = S3VMClassifier(name, gamma=0.5, warm_start=True, random_state=0).fit(X, some)
    for weight in (1.0, 0.2):
        clf.set_params(unlabeled_weight=weight).fit(X, some)
        cold = S3VMClassifier(name, gamma=0.5, unlabeled_weight=weight, random_state=0).fit(X, some)
        if name in ("light", "newton"):
            np.testing.assert_allclose(clf.decision_function(X), cold.decision_function(X), atol=0.02)
        assert np.mean(clf.predict(X) == cold.predict(X)) > 0.97  # the others may end in another minimum
    with pytest.raises(ValueError, match="same solver"):
        clf.set_params(solver="frs").fit(X, some)


def test_a_failed_fit_leaves_the_model_as_it_was(moons):
    X, _, some = moons
    clf = make().fit(X, some)
    scores = clf.decision_function(X)
    with pytest.raises(ValueError, match="class_prior"):
        clf.set_params(class_prior=[1.0]).fit(X, np.where(some == -1, -1, some + 5))
    np.testing.assert_array_equal(clf.classes_, [0, 1])
    np.testing.assert_array_equal(clf.decision_function(X), scores)


def test_squared_hinge_is_stable(moons):
    X, y, _ = moons
    some = np.where(np.arange(300) < 200, y, -1)
    for C in (1, 10, 100):
        clf = S3VMClassifier("tsg", C=C, gamma=2.0, labeled_loss="squared_hinge", random_state=0).fit(X, some)
        assert np.abs(clf.decision_function(X)).max() < 20
        assert clf.score(X, y) > 0.95


def test_other_losses_and_kernels(moons):
    X, y, some = moons
    for other in [{"loss": Exponential(s=3)}, {"kernel": Matern(2.0, nu=2.5)}, {"kernel": "laplacian"}]:
        assert S3VMClassifier("tsg", C=10, random_state=0, **other).fit(X, some).score(X, y) > 0.8
    with pytest.raises(ValueError, match=r'solver="auto" has losses of its own: give loss="auto", or solver="tsg"'):
        S3VMClassifier(loss="hat").fit(X, some)


# Labels of any kind


@pytest.mark.parametrize(
    ("encode", "unlabeled"),
    [
        (lambda y: y, -1),
        (lambda y: y.astype(float), -1),
        (lambda y: np.where(y == -1, np.nan, y), None),
        (lambda y: np.where(y == -1, 99, y), 99),
        (lambda y: np.array(["no", "yes", "-1"])[y], -1),
        (lambda y: np.array(["no", "yes", -1], dtype=object)[y], -1),
        (lambda y: np.array(["no", "yes", None], dtype=object)[y], None),
        (lambda y: np.array(["no", "yes", "?"])[y], "?"),
        (lambda y: np.where(y == -1, np.nan, 2 * y - 1), None),
        (lambda y: y.tolist(), -1),
        (lambda y: pd.Series(y), -1),
        (lambda y: pd.Series(np.array(["no", "yes", None], dtype=object)[y], dtype="string"), None),
        (lambda y: pd.Series(np.array(["no", "yes", None], dtype=object)[y], dtype="category"), None),
        (lambda y: pl.Series(["no" if v == 0 else "yes" if v == 1 else None for v in y]), None),
        (lambda y: pd.Series(y).replace(-1, pd.NA).astype("Int64"), None),
        (lambda y: np.where(y == -1, 2, y == 1), 2),
        (lambda y: [None if v == -1 else int(v) for v in y], None),
        (lambda y: [None if v == -1 else bool(v) for v in y], None),
        (lambda y: [float("nan") if v == -1 else ("no", "yes")[v] for v in y], None),
        (lambda y: ["?" if v == -1 else int(v) for v in y], "?"),
        (lambda y: np.array([pd.NA if v == -1 else int(v) for v in y], dtype=object), None),
    ],
)
def test_labels_of_any_kind(moons, encode, unlabeled):
    X, _, some = moons
    expected = make().fit(X, some).predict(X)
    labels = encode(some)
    clf = make(unlabeled=unlabeled).fit(X, labels)
    np.testing.assert_array_equal(clf.predict(X) == clf.classes_[1], expected == 1)
    np.testing.assert_array_equal(clf.classes_[expected][40:], clf.transduction_[40:])


def test_rows_of_any_kind(moons):
    X, _, some = moons
    X = np.round(X * 64).astype(np.int16)
    expected = make().fit(X.astype(np.float64), some).decision_function(X.astype(np.float64))
    mapped = np.asfortranarray(X.astype(np.float32))
    mapped.flags.writeable = False
    for rows in [
        X,
        X.astype(np.float16),
        X.astype(np.float32),
        X.astype(">f8"),
        np.asfortranarray(X.astype(np.float64)),
        np.repeat(X, 2, axis=0)[::2],
        np.c_[X, X].astype(float)[:, :2],
        mapped,
        X.tolist(),
        pd.DataFrame(X),
        pl.DataFrame(X),
        sparse.csr_matrix(X.astype(float)),
        sparse.csc_array(X.astype(float)),
    ]:
        before, labels = copy.deepcopy(rows), some.copy()
        weight = np.ones(len(labels))
        result = make().fit(rows, labels, sample_weight=weight).decision_function(rows)
        np.testing.assert_array_equal(labels, some)
        np.testing.assert_array_equal(weight, 1)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
        if isinstance(rows, np.ndarray):
            assert rows.tobytes() == before.tobytes()
        elif sparse.issparse(rows):
            assert rows.data.tobytes() == before.data.tobytes()
            assert rows.indices.tobytes() == before.indices.tobytes()
            assert rows.indptr.tobytes() == before.indptr.tobytes()
        else:
            np.testing.assert_array_equal(rows, before)


@pytest.mark.parametrize("kind", [list, pd.Series, pl.Series, lambda weight: pd.Series(weight, dtype="Float64")])
def test_weights_of_any_kind(moons, kind):
    X, _, some = moons
    weight = np.linspace(0.5, 2, len(some))
    expected = make().fit(X, some, sample_weight=weight).decision_function(X)
    np.testing.assert_array_equal(make().fit(X, some, sample_weight=kind(weight)).decision_function(X), expected)


def test_rows_in_a_memory_map(moons, tmp_path):
    X, _, some = moons
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    expected = make().fit(X, some).decision_function(X)
    np.testing.assert_array_equal(make().fit(mapped, some).decision_function(mapped), expected)


def test_sparse_entries_that_are_stored_twice(moons):
    X, _, some = moons
    n = len(X)
    halves = sparse.csr_matrix((np.repeat(X.ravel() / 2, 2), np.tile([0, 0, 1, 1], n), np.arange(0, 4 * n + 1, 4)))
    assert not halves.has_canonical_format
    scores = make().fit(halves, some).decision_function(halves)
    np.testing.assert_allclose(scores, make().fit(X, some).decision_function(X), rtol=1e-4, atol=1e-5)
    assert halves.nnz == 4 * n


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_feature_names(moons, frame):
    X, _, some = moons
    rows = frame({"left": X[:, 0], "right": X[:, 1]})
    clf = make().fit(rows, some)
    np.testing.assert_array_equal(clf.feature_names_in_, ["left", "right"])
    assert clf.n_features_in_ == 2
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(rows[["right", "left"]])


# The same answer every time


def test_same_seed_same_model(moons):
    X, _, some = moons
    first = make(n_jobs=1).fit(X, some)
    for n_jobs in (1, 2, 3, 8):
        again = make(n_jobs=n_jobs).fit(X, some)
        np.testing.assert_array_equal(again.decision_function(X), first.decision_function(X))
        np.testing.assert_array_equal(again.predict_proba(X), first.predict_proba(X))
    others = [
        make(unlabeled_weight=1.0, random_state=seed).fit(X, some).decision_function(X) for seed in (0, 1, 2**40, 2**41)
    ]
    assert len({scores.tobytes() for scores in others}) == 4


@pytest.mark.parametrize(("span", "digest"), [("auto", "d7f7ea6b674e58ef"), ("features", "0b18ac4f7f1a0d47")])
def test_the_same_model_as_ever(span, digest):
    """If this fails, results have changed: say so in CHANGELOG.md, and put the new digest here.

    Scores are rounded to hundredths, since machines and versions of libraries differ by a ten-thousandth.
    """
    X = np.random.default_rng(0).normal(size=(120, 3))
    some = np.where(np.arange(120) < 12, X[:, 0] + X[:, 1] * X[:, 2] > 0, -1)
    solver = TSG(max_iter=30, span=span, n_features=32)
    clf = S3VMClassifier(solver, unlabeled_weight=1.0, gamma=0.5, dtype="float64", random_state=0).fit(X, some)
    scores = np.rint(100 * clf.decision_function(X[:40])).astype("<i8")
    assert hashlib.sha256(scores.tobytes()).hexdigest().startswith(digest)


@pytest.mark.parametrize("size", [1, 7, 100])
def test_scores_do_not_depend_on_the_size_of_a_chunk(moons, monkeypatch, size):
    X, _, some = moons
    clf = make().fit(X, some)
    scores, labels = clf.decision_function(X), clf.transduction_
    monkeypatch.setattr(prediction, "_CHUNK", size)
    np.testing.assert_array_equal(clf.decision_function(X), scores)
    np.testing.assert_array_equal(make().fit(X, some).transduction_, labels)


@pytest.mark.parametrize("row", [0, 150, 299])
def test_rows_that_were_changed_after_the_fit_are_noticed(moons, row):
    X, _, some = moons
    X = X.copy()
    clf = make().fit(X, some)
    X[row:] *= -5
    with pytest.raises(ValueError, match="have been changed since"):
        _ = clf.transduction_


@pytest.mark.filterwarnings("ignore:collapse")  # which comes of it
def test_digits_that_float32_does_not_hold(moons):
    X, y, some = moons
    for offset in (1e7, 1.7e9):
        with pytest.warns(UserWarning, match=r"columns \[0, 1\] of X differ in digits that float32 does not hold"):
            make().fit(X + offset, some)
        assert make(dtype="float64").fit(X + offset, some).score(X + offset, y) > 0.8
    days = np.column_stack([10_000_000 + np.arange(300) % 7, np.full(300, 1e9)])  # whole numbers, and a constant
    make().fit(np.column_stack([X, days]), some)


def test_a_row_is_scored_alone(moons):
    X, _, some = moons
    clf = make().fit(X, some)
    scores = clf.decision_function(X)
    np.testing.assert_array_equal([clf.decision_function(x[None])[0] for x in X[:20]], scores[:20])


def test_pickle_keeps_the_model_and_not_the_rows(moons):
    X, _, some = moons
    clf = make().fit(np.tile(X, (100, 1)), np.tile(some, 100))
    stored = pickle.dumps(clf)
    assert len(stored) < 2_000_000
    np.testing.assert_array_equal(pickle.loads(stored).decision_function(X), clf.decision_function(X))


def test_scikit_learn_tools(moons):
    X, _, some = moons
    pipeline = make_pipeline(StandardScaler(), make())
    scores = cross_val_score(pipeline, X, some, cv=LabeledKFold(4))
    assert scores.shape == (4,)
    assert scores.mean() > 0.7
    search = GridSearchCV(make(), {"C": [0.1, 10.0], "solver": [FEW]}, cv=LabeledKFold(3, shuffle=True, random_state=0))
    search.fit(X, some)
    assert search.best_params_["C"] == 10.0


def test_labeled_folds(moons):
    X, _, some = moons
    tested = []
    for train, test in LabeledKFold(5).split(X, some):
        assert np.all(some[test] != -1)
        assert np.sum(some[train] == -1) == 260
        assert not set(train) & set(test)
        tested.extend(test)
    assert sorted(tested) == list(range(40))


# Interrupted


def test_ctrl_c_keeps_the_model(moons, monkeypatch):
    X, _, some = moons
    run = TSG.run

    def interrupted(self, problem, backend, state=None):
        for later in run(self, problem, backend, state):
            yield later
            if later.iteration == 7:
                raise KeyboardInterrupt

    monkeypatch.setattr(TSG, "run", interrupted)
    with pytest.warns(UserWarning, match="interrupted after 7 of 20 iterations"):
        clf = make().fit(X, some)
    assert clf.n_iter_ == 7
    assert np.isfinite(clf.predict_proba(X)).all()


def test_ctrl_c_before_anything_was_learnt(moons, monkeypatch):
    X, _, some = moons

    def interrupted(self, problem, backend, state=None):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(TSG, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make().fit(X, some)


def test_history_speaks_of_the_model(moons):
    X, _, some = moons
    with_folds, without = (make(probability=p).fit(X, some).history_ for p in (True, False))
    for name in without:
        np.testing.assert_allclose(with_folds[name], without[name], rtol=1e-4)


def test_progress(moons, capsys):
    X, _, some = moons
    make(verbose=1).fit(X, some)
    shown = capsys.readouterr().err
    assert "done after 20 iterations" in shown
    assert "objective" in shown
    assert re.search(r"loss .* labeled", shown)
    make().fit(X, some)
    assert capsys.readouterr().err == ""


def test_a_callable_watches(moons, capsys):
    X, _, some = moons
    seen = []
    clf = make(verbose=lambda done, total, line: seen.append((done, total, line["labeled_loss"]))).fit(X, some)
    assert [(done, total) for done, total, _ in seen] == [(k, 20) for k in range(1, 21)]
    np.testing.assert_array_equal([loss for *_, loss in seen], clf.history_["labeled_loss"])
    assert capsys.readouterr().err == ""


# Warnings, which name the caller's line


def warned_here(caught, words):
    """Whether that was warned of, and at a line of this file."""
    files = [warning.filename for warning in caught if words in str(warning.message)]
    return files == [__file__] * len(files) != []


def test_unlabeled_rows_under_their_old_name(moons):
    X, _, some = moons
    expected = make().fit(X[:40], some[:40], X_unlabeled=X[40:]).decision_function(X)
    for kind in (S3VMClassifier, S3VMClassifierCV):
        with pytest.warns(FutureWarning, match="X_unlabeled") as caught:
            clf = kind(FEW, random_state=0).fit(X[:40], some[:40], unlabeled=X[40:])
        assert warned_here(caught, "was renamed to fit(X_unlabeled=...)")
        if kind is S3VMClassifier:
            np.testing.assert_array_equal(clf.decision_function(X), expected)
    with pytest.raises(TypeError, match="give X_unlabeled only"):
        make().fit(X[:40], some[:40], X_unlabeled=X[40:], unlabeled=X[40:])


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_warnings_name_the_line_of_the_caller(flowers, method):
    X, y, some = flowers
    single = np.full(len(y), -1)
    single[[np.flatnonzero(y == code)[0] for code in range(3)]] = range(3)
    narrow = {"gamma": 1e3, "unlabeled_weight": 0.0, "C": 100.0, "class_prior": [0.3, 0.3, 0.4]}
    for words, settings, labels in (
        ("no unlabelled rows", {}, y),
        ("single labelled row", {}, single),
        ("collapse", narrow, some),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            getattr(make(**settings), method)(X, labels)
        if not (words.startswith("single") and method == "partial_fit"):  # whose folds go by content
            assert warned_here(caught, words), words


# Cost


def solves(monkeypatch, do):
    """How many SVMs of labelled rows are solved in that call."""
    solved = []
    in_steps = supervised.in_steps
    monkeypatch.setattr(supervised, "in_steps", lambda *args: solved.append(args) or in_steps(*args))
    do()
    monkeypatch.setattr(supervised, "in_steps", in_steps)
    return len(solved)


def test_the_supervised_svm_is_solved_once(moons, monkeypatch):
    X, _, some = moons
    for solver in (FEW, "frs", "cccp"):
        clf = make(solver=solver)
        assert solves(monkeypatch, lambda clf=clf: clf.fit(X, some)) == 1
    assert solves(monkeypatch, lambda: make(unlabeled_weight=1.0).fit(X, some)) == 1
    started = make()
    assert solves(monkeypatch, lambda: started.partial_fit(X[::2], some[::2])) == 1
    assert solves(monkeypatch, lambda: started.partial_fit(X[1::2], some[1::2])) == 1


def test_the_supervised_svm_of_another_width_is_solved_on_its_own(moons, monkeypatch):
    X, _, some = moons
    monkeypatch.setattr("s3vm.estimators.tuning._best_width", lambda width, pilots: 2 * width)
    pilots = []
    run = tuning._pilot
    monkeypatch.setattr(tuning, "_pilot", lambda *args: pilots.append(args) or run(*args))
    clf = S3VMClassifierCV(FEW, Cs=[10.0], factors=[1.0, 2.0], random_state=0)
    assert solves(monkeypatch, lambda: clf.fit(X, some)) == len(pilots) + 2


def test_memory_is_checked_before_the_supervised_svm_is_solved(moons, monkeypatch):
    X, _, some = moons
    monkeypatch.setattr("s3vm.backends.cpu.Cpu.memory", lambda self: 1000)
    monkeypatch.setattr(supervised, "in_steps", None)
    with pytest.raises(MemoryError, match="needs about"):
        make().fit(X, some)


def test_a_setting_from_an_array_of_text(moons):
    X, _, some = moons
    clf = make(unlabeled_weight=np.array(["paper"])[0], solver=np.array(["tsg"])[0]).fit(X, some)
    assert clf.safety_ is None


def test_the_backend_is_built_once(moons, monkeypatch):
    X, _, some = moons
    built, backend = [], backends.backend
    monkeypatch.setattr(backends, "backend", lambda *args: built.append(args) or backend(*args))
    make().fit(X, some)
    assert len(built) == 1


def test_too_many_labeled_rows_for_an_exact_start():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2))
    y = np.where(np.arange(20_000) < 19_000, (X[:, 0] > 0).astype(int), -1)
    with pytest.raises(ValueError, match=r'19000 labelled rows needs a kernel matrix of 3 GiB.*"auto".*FRS'):
        make(probability=False).fit(X, y)
    plain = PrintedTSG(max_iter=5)
    clf = make(solver=plain, unlabeled_weight=0.3, probability=False).fit(X, y)
    assert np.isfinite(clf.decision_function(X[:5])).all()


def in_a_new_process(code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_import_is_light():
    assert (
        in_a_new_process("import s3vm, sys; print({'torch', 'dask', 'triton', 'numba'} & set(sys.modules))") == "set()"
    )


@pytest.mark.long
def test_memory_is_the_data_and_a_chunk():
    """100,000 x 28 rows with default settings, 200 of them labelled: peak below the data plus 500 MB.

    To predict two million takes their scores, 16 MB, and one chunk of rows; as float32 all of them would take 224 MB.
    """
    peaks = in_a_new_process(
        """
from pathlib import Path
import numpy as np
from s3vm import TSG, S3VMClassifier
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
rng = np.random.default_rng(0)
X = rng.normal(size=(100_000, 28))
y = np.where(np.arange(len(X)) < 200, (X[:, 0] > 0).astype(int), -1)
S3VMClassifier(random_state=0).fit(X[:300], y[:300])
before = peak()
clf = S3VMClassifier(random_state=0).fit(X, y)
clf.predict(X[:2000])
print(peak() - before)
tiny = TSG(max_iter=2, batch_size=8, n_features=8, span="features", max_features=16)
clf = S3VMClassifier(tiny, unlabeled_weight=1.0, probability=False, random_state=0).fit(X[:300], y[:300])
many = np.broadcast_to(X[:1], (2_000_000, 28))
rest = np.ones(int((peak() + 50) * 2**17))  # so that what comes on top shows
before = peak()
clf.decision_function(many)
print(peak() - before)
"""
    )
    fitting, predicting = map(float, peaks.split())
    assert fitting < 500
    assert predicting < 100


@pytest.mark.parametrize("kind", [S3VMClassifier, S3VMClassifierCV])
@pytest.mark.parametrize("solver", ["auto", "tsg"])
def test_class_weights_of_text_that_reads_as_numbers(moons, kind, solver):
    X, y = moons[:2]
    X, y = X[:200], y[:200]
    some = np.where(np.arange(200) < 50, y.astype(str), "-1")
    weights = {"0": 1.0, "1": 3.0}
    text = kind(solver, class_weight=weights, random_state=0, max_seconds=None).fit(X, some)
    numbers = kind(solver, class_weight={0: 1.0, 1: 3.0}, random_state=0).fit(X, some.astype(int))
    np.testing.assert_array_equal(text.decision_function(X), numbers.decision_function(X))


def test_a_class_with_a_single_label_is_named_and_the_others_go_on():
    X, y = make_blobs(300, 2, centers=3, random_state=0)
    some = np.where(np.arange(300) < 70, y, -1)
    some[np.flatnonzero(some == 2)[1:]] = -1
    with pytest.warns(UserWarning, match="class 2 has a single labelled row, which cannot be held out"):
        clf = S3VMClassifierCV(random_state=0).fit(X, some)
    assert clf.cv_errors_ is not None
    assert clf.safety_.n_labeled == np.sum(some >= 0) - 1

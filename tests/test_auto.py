"""solver="auto": candidates of gaps and neighbors, chosen on labelled rows held out."""

import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import make_moons
from sklearn.svm import SVC

import s3vm
from s3vm import FileSource, Interrupted, OutOfTime, S3VMClassifier, S3VMClassifierCV, backends
from s3vm.backends.cpu import Cpu
from s3vm.estimators.candidates import Candidate, Representation, class_shares, select, spaces_of
from s3vm.estimators.folds import some_rows, stratified_folds
from s3vm.estimators.preparation import _joined
from s3vm.estimators.settings import training_backend
from s3vm.kernels import RBF


@pytest.fixture(scope="module")
def moons():
    """Two moons, 12 of whose rows have labels, and the truth."""
    X, y = make_moons(400, noise=0.08, random_state=1)
    known = np.concatenate([np.flatnonzero(y == label)[:6] for label in (0, 1)])
    labels = np.full(len(y), -1)
    labels[known] = y[known]
    return X, labels, y


def make(**settings):
    return S3VMClassifier("auto", **{"random_state": 0, **settings})


def test_neighbors_find_the_moons(moons):
    X, labels, y = moons
    clf, svm = make().fit(X, labels), SVC(C=10).fit(X[labels >= 0], y[labels >= 0])
    assert clf.score(X, y) > 0.97 > svm.score(X, y)
    assert "neighbors" in str(clf.safety_)
    assert clf.safety_.scores[clf.safety_.weight]["brier"] < clf.safety_.scores[0]["brier"]
    assert clf.predict_proba(X).shape == (400, 2)
    assert len(clf.transduction_) == 400


def test_the_model_does_not_depend_on_the_threads(moons):
    X, labels, _ = moons
    one, two = (make(n_jobs=n).fit(X, labels).decision_function(X) for n in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_sparse_rows_sources_and_files(moons, tmp_path):
    X, labels, y = moons
    dense = make().fit(X, labels)
    few = labels >= 0
    np.save(tmp_path / "rest.npy", X[~few])
    marked = np.column_stack([X, np.where(few, y, np.nan)])
    np.savetxt(tmp_path / "all.csv", marked, "%.9g", ",", header="a,b,label", comments="")
    for clf, rows in (
        (make().fit(sparse.csr_array(X), labels), X),
        (make().fit(X[few], y[few], X_unlabeled=X[~few]), X),
        (make().fit(X[few], y[few], X_unlabeled=tmp_path / "rest.npy"), X),
        (make().fit(FileSource(tmp_path / "all.csv", "label")), pd.DataFrame(X, columns=["a", "b"])),
    ):
        assert np.mean(clf.predict(rows).astype(int) == dense.predict(X)) > 0.98
        assert "neighbors" in str(clf.safety_)


def test_a_file_keeps_the_model(moons, tmp_path):
    X, labels, _ = moons
    clf = make().fit(X, labels)
    clf.save(tmp_path / "m.s3vm")
    loaded = s3vm.load(tmp_path / "m.s3vm")
    np.testing.assert_array_equal(loaded.decision_function(X), clf.decision_function(X))
    assert loaded.get_params() == clf.get_params()


def test_where_nothing_is_accepted_the_model_is_the_svm(moons, monkeypatch):
    X, labels, y = moons
    monkeypatch.setattr("s3vm.estimators.auto.select", lambda codes, svm, held, *shares: np.zeros(len(held), bool))
    clf, few = make(C=1.0).fit(X, labels), labels >= 0
    svm = SVC(C=1.0, gamma=clf.kernel_.gamma, tol=1e-6).fit(X[few], y[few])
    assert clf.safety_.weight == 0
    np.testing.assert_allclose(clf.decision_function(X), svm.decision_function(X), atol=1e-4)


def test_weight_0_is_the_svm(moons):
    X, labels, _ = moons
    zero = make(unlabeled_weight=0).fit(X, labels).decision_function(X)
    np.testing.assert_array_equal(zero, make(unlabeled_weight=0, n_neighbors=3).fit(X, labels).decision_function(X))


def test_a_class_with_one_label_stays_in_training():
    X, y = make_moons(300, noise=0.08, random_state=0)
    X, y = np.vstack([X, X[:100] + np.array([0, 5])]), np.append(y, np.full(100, 2))
    labels = np.full(400, -1)
    labels[[*range(30), 300]] = y[[*range(30), 300]]
    with pytest.warns(UserWarning, match="class 2 has a single labelled row"):
        clf = make().fit(X, labels)
    assert set(clf.predict(X)) == {0, 1, 2}
    assert clf.safety_.n_labeled == 30


@pytest.mark.parametrize(
    ("settings", "fit", "words"),
    [
        ({"warm_start": True}, {}, "set warm_start=False"),
        ({"unlabeled_weight": "paper"}, {}, 'give solver="auto" a number'),
        ({"loss": "hat"}, {}, 'solver="auto" has losses of its own'),
        ({"neighbor_weight": -1}, {}, "neighbor_weight=-1 is not valid"),
        ({"n_neighbors": 0}, {}, "n_neighbors=0 is not valid"),
        ({}, {"checkpoint": "c"}, "averages several short runs"),
        ({"solver": "frs", "neighbor_weight": 1.0}, {}, "FRS needs a problem without a graph of neighbors"),
    ],
)
def test_what_it_cannot_do(moons, settings, fit, words):
    X, labels, _ = moons
    with pytest.raises(ValueError, match=words):
        make().set_params(**settings).fit(X, labels, **fit)


def test_no_time_to_compare(moons):
    X, labels, _ = moons
    with pytest.warns(OutOfTime, match="using the supervised solution"):
        clf = make(max_seconds=1e-9, gamma=1.0).fit(X, labels)
    assert str(clf.safety_).startswith("training ended before candidates were compared; using the supervised solution")
    np.testing.assert_array_equal(
        clf.decision_function(X), make(unlabeled_weight=0, gamma=1.0).fit(X, labels).decision_function(X)
    )


def test_ctrl_c_while_candidates_are_compared(moons):
    def ctrl_c(done, total, line):
        if done == 3:
            raise KeyboardInterrupt

    X, labels, _ = moons
    with pytest.warns(Interrupted, match="using the supervised solution"):
        clf = make(gamma=1.0, verbose=ctrl_c).fit(X, labels)
    assert clf.safety_.sentence.startswith("training ended before candidates were compared")
    svm = make(unlabeled_weight=0, gamma=1.0).fit(X, labels)
    np.testing.assert_array_equal(clf.decision_function(X), svm.decision_function(X))


def test_early_stopping_has_no_effect(moons):
    with pytest.warns(UserWarning, match='early_stopping has no effect with solver="auto"'):
        make(early_stopping="held_out").fit(*moons[:2])


def test_what_column_weights_gain_is_said():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 20))
    X[:, :2] += 0.5 * np.sign(X[:, :2])
    labels = np.where(np.arange(600) < 100, X[:, 0] * X[:, 1] > 0, -1).astype(int)
    clf = S3VMClassifierCV(random_state=0).fit(X, labels)
    assert str(clf.safety_).startswith("column weights lowered the cross-validated Brier score of the SVM by ")
    assert np.argsort(-clf.column_weights_)[:2].sum() == 1, "the two columns that matter"


def test_directions_alone(monkeypatch):
    """A candidate that only projects the rows, without gaps or neighbors, can be all that is accepted."""
    monkeypatch.setattr("s3vm.estimators.candidates._TUNED", ())
    monkeypatch.setattr("s3vm.estimators.candidates._MANIFOLD", ())
    monkeypatch.setattr("s3vm.estimators.candidates._SPREAD", ())
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 500)
    X = rng.normal(size=(500, 80)) + 2.5 * (2 * y - 1)[:, None] * (np.arange(80) == 3)
    labels = np.where(np.arange(500) < 80, y, -1)
    clf = make(n_components="auto").fit(X, labels)
    assert str(clf.safety_).startswith("directions of the unlabelled rows lowered")
    assert clf.model_.projection.shape[0] == 80
    assert clf.score(X, y) > make(unlabeled_weight=0).fit(X, labels).score(X, y)


def test_fixed_weights_leave_the_others_to_be_chosen():
    given, rows = (Representation(RBF(1.0), 1.0),), np.random.default_rng(0).normal(size=(50, 2))
    fixed = [c for space in spaces_of(given, RBF(), rows, 0, "auto", 2.0) for c in space.candidates]
    assert {candidate.neighbor_weight for candidate in fixed} == {2.0}
    fixed = [c for space in spaces_of(given, RBF(), rows, 0, 0.5, "auto") for c in space.candidates]
    assert {candidate.unlabeled_weight for candidate in fixed} == {0.5}
    (space,) = spaces_of(given, RBF(), rows, 0, "auto", 0)
    assert space.candidates == (Candidate(0.3, 0.0), Candidate(1.0, 0.0))


def test_groups_share_a_fold(moons):
    """Every labelled row is there twice, with some noise; held out apart from its twin, it is never wrong."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 8)), np.tile([0, 1], 30)
    twins = np.tile(np.arange(60), 2)
    X, y = X[twins] + 0.01 * rng.normal(size=(120, 8)), y[twins]
    groups = np.array([f"person {k}" for k in twins], dtype=object)
    for clf in (make(C=100.0), S3VMClassifierCV(random_state=0), S3VMClassifier("tsg", C=100.0, random_state=0)):
        apart, together = (
            clf.fit(X, y, X_unlabeled=rng.normal(size=(200, 8)), groups=given).safety_.scores[0]["error"]
            for given in (None, groups)
        )
        assert apart < 0.2 < 0.3 < together
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        make().fit(X, y, groups=groups[1:])


@pytest.mark.parametrize("classifier", [S3VMClassifier, pytest.param(S3VMClassifierCV, marks=pytest.mark.long)])
def test_very_many_labels_are_learnt_on_landmarks(monkeypatch, classifier):
    X, y = make_moons(3000, noise=0.25, random_state=0)
    labels = np.where(np.arange(3000) < 1500, y, -1)
    exact = classifier(random_state=0).fit(X, labels)
    monkeypatch.setattr("s3vm.estimators.planning.EXACT_ROWS", 1000)
    monkeypatch.setattr("s3vm.estimators.tuning._GRID_ROWS", 500)
    many = classifier(random_state=0).fit(X, labels)
    assert len(many.model_.centers) <= 1000 < 1500
    assert many.score(X, y) > exact.score(X, y) - 0.01
    assert many.safety_.n_labeled == 300  # one fold of five
    prior = classifier(class_prior=[0.5, 0.5], random_state=0).fit(X, labels)
    assert prior.score(X, y) > exact.score(X, y) - 0.01
    np.testing.assert_allclose(many.predict_proba(X), exact.predict_proba(X), atol=0.3)


@pytest.mark.long
def test_a_fit_with_many_classes_and_labels_has_bounded_memory():
    n_classes, n = 300, 20_000
    code = f"""
        import resource, numpy as np
        from sklearn.datasets import make_blobs
        from s3vm import S3VMClassifier
        X, y = make_blobs({n} + 4000, 8, centers={n_classes}, cluster_std=1.0, random_state=0)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        clf = S3VMClassifier(random_state=0).fit(X, np.where(np.arange(len(y)) < {n}, y, -1))
        print(clf.score(X, y), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    score, megabytes = map(float, done.stdout.split())
    assert score > 0.9
    assert megabytes < 2_000


def test_rows_of_a_grid_have_every_class():
    codes = np.repeat([0, 1, 2], [4000, 4, 1])
    folds = np.append(stratified_folds(codes[:-1], 5, 0), -1)
    at = some_rows(codes, folds, 0, 1000, 20)
    assert np.bincount(codes[at]).tolist() == [996, 4], "one that cannot be held out is left out"
    assert len(np.unique(codes[some_rows(codes, folds, 0, 1000, 1)])) == 1


def test_no_graph_of_very_many_labels(monkeypatch):
    X, y = make_moons(1000, noise=0.25, random_state=0)
    monkeypatch.setattr("s3vm.estimators.planning.EXACT_ROWS", 200)
    monkeypatch.setattr("s3vm.estimators.auto.neighbor_graph", lambda *given: pytest.fail("a graph was built"))
    clf = make().fit(X, np.where(np.arange(1000) < 500, y, -1))
    assert len(clf.safety_.scores) >= 1


def test_noise_is_not_accepted():
    """Labels that have nothing to do with the rows: no candidate knows more than the classes' shares."""
    accepted = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, labels = rng.normal(size=(400, 20)), np.full(400, -1)
        labels[:100] = rng.permutation(np.tile([0, 1], 50))
        accepted += make(random_state=seed).fit(X, labels).safety_.weight > 0
    assert accepted <= 1


def test_equal_rows_join_their_groups():
    rows = np.array([[0.0], [1.0], [1.0], [2.0], [3.0]])
    groups = _joined(np.array(["a", "a", "b", "b", None], dtype=object), rows)
    assert groups[0] == groups[1] == groups[2] == groups[3] != groups[4]


def test_a_fit_with_groups_cannot_be_continued(moons):
    X, labels, _ = moons
    clf = make().fit(X, labels, groups=np.arange(len(X)))
    with pytest.raises(ValueError, match="partial_fit cannot continue a fit with groups"):
        clf.partial_fit(X, labels)


def test_all_rows_when_asked_for(moons):
    X, labels, _ = moons
    few, every, more = (make(max_rows=n).fit(X, labels) for n in (50, 388, 10_000))
    np.testing.assert_array_equal(every.decision_function(X), more.decision_function(X))
    assert np.any(few.decision_function(X) != every.decision_function(X))


def test_the_batch_solver_takes_a_graph(moons):
    X, labels, y = moons
    settings = {"C": 1000.0, "gamma": "median", "unlabeled_weight": 0.0, "random_state": 0}
    with_graph = S3VMClassifier("batch", neighbor_weight=1.0, **settings).fit(X, labels)
    without = S3VMClassifier("batch", **settings).fit(X, labels)
    assert with_graph.score(X, y) > without.score(X, y)


def test_selection():
    rng = np.random.default_rng(0)
    codes = np.tile([0, 1], 50)
    signs = 2.0 * codes - 1
    noisy = (signs * (rng.random(100) < 0.7) - signs * (rng.random(100) < 0.3))[:, None]
    good, bad = signs[:, None], -signs[:, None]
    labeled = np.array([0.5, 0.5])
    same, moved = np.array([0.5, 0.5]), np.array([0.95, 0.05])
    held = np.stack([good, bad, good])
    accepted = select(codes, noisy, held, np.stack([same, same, same, moved]), labeled)
    assert accepted.tolist() == [True, False, False], "the last one moves a class's share"
    np.testing.assert_array_equal(class_shares(good, 2), [0.5, 0.5])


def test_small_fits_look_for_no_gpu(monkeypatch):
    monkeypatch.setattr(backends, "_sees_gpu", lambda: pytest.fail("looked for a GPU"))
    assert isinstance(training_backend(S3VMClassifier(), np.empty((4_999, 2))), Cpu)
    for clf, X in ((S3VMClassifier("tsg"), np.empty((9, 2))), (S3VMClassifier(), np.empty((5_000, 2)))):
        with pytest.raises(pytest.fail.Exception, match="looked"):
            training_backend(clf, X)

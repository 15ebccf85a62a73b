"""partial_fit for ever: memory stays flat, blocks are visited again, labels that come count, and what is refused."""

import copy
import pickle

import numpy as np
import pytest
from experiments.printed_tsg import PrintedTSG
from scipy import sparse
from sklearn.datasets import make_blobs, make_moons

from s3vm import FRS, TSG, S3VMClassifier, backends
from s3vm.estimators.folds import folds_by_content, newest_labels
from s3vm.sources import ArraySource
from s3vm.sources.reservoir import Reservoir, ReservoirSource
from test_solvers import problem_for
from toy import configured, last, make_problem

SOLVERS = [
    TSG(n_features=64, max_features=256, n_reference=200, max_iter=60),
    FRS(n_features=256, max_iter=60),
    PrintedTSG(max_iter=60, n_features=64, max_blocks=20, intercept=True, balance=True, batch_size=64),
]
IDS = ["tsg", "frs", "Algorithm 1"]
FAST = {"C": 3.0, "gamma": 2.0, "random_state": 0, "unlabeled_weight": 1.0}
X_TEST, Y_TEST = make_moons(2000, noise=0.15, random_state=999)


def rows(number, n_rows=256, n_labeled=10):
    X, y = make_moons(n_rows, noise=0.15, random_state=number)
    return X, np.where(np.arange(n_rows) < n_labeled, y, -1)


@pytest.mark.parametrize("solver", SOLVERS, ids=IDS)
def test_rows_that_come_over_time(solver):
    clf = S3VMClassifier(solver, **FAST)
    for number in range(6):
        before = getattr(clf, "n_iter_", 0)
        clf.partial_fit(*rows(number, n_labeled=10 if number % 2 == 0 else 0))
        assert clf.n_iter_ == (60 if number == 0 else before + 256 // solver.batch_size)
    assert clf.score(X_TEST, Y_TEST) > 0.9
    assert len(clf.history_["objective"]) == clf.n_iter_
    assert np.isfinite(clf.history_["objective"]).all()
    assert clf.predict_proba(X_TEST[:3]).shape == (3, 2)
    with pytest.raises(AttributeError, match="stream"):
        clf.transduction_  # noqa: B018


@pytest.mark.parametrize("solver", SOLVERS, ids=IDS)
def test_memory_is_flat(solver, monkeypatch):
    monkeypatch.setattr("s3vm.estimators.resuming.SAMPLE", 300)
    monkeypatch.setattr("s3vm.training.history._MAX_LINES", 32)
    clf, sizes = S3VMClassifier(solver, **FAST), []
    for number in range(30):
        clf.partial_fit(*rows(number, 100, 10), max_labeled=30)
        sizes.append(len(pickle.dumps(clf)))
    assert max(sizes[15:]) < 1.05 * max(sizes[5:15])
    assert len(clf._resume_point.rows.y) == 30
    assert clf._resume_point.arrivals.n_new == 0
    assert len(clf.history_["objective"]) <= 33
    if getattr(solver, "max_blocks", None):
        assert clf._resume_point.state.coefficients.shape[0] == 20


def test_new_labels_count_at_once():
    """Without unlabelled rows to speak of, what is learnt is the supervised solution of all labels so far."""
    clf = S3VMClassifier(SOLVERS[0], **FAST | {"unlabeled_weight": 1e-9})
    labels = []
    for number in range(3):
        X, some = rows(number, n_labeled=20)
        clf.partial_fit(X, some)
        labels.append((X[:20], some[:20]))
    X, y = (np.concatenate(part) for part in zip(*labels))
    svm = S3VMClassifier(**FAST | {"unlabeled_weight": 0.0}).fit(np.r_[X, X_TEST], np.r_[y, np.full(2000, -1)])
    gap = np.abs(clf.decision_function(X_TEST) - svm.decision_function(X_TEST))
    assert gap.mean() < 0.1 * np.abs(svm.decision_function(X_TEST)).mean()


def test_rebased_on_the_same_rows_is_the_same():
    problem = problem_for("tsg, features", columns=2)
    solver, engine = configured("tsg, features"), backends.backend("cpu", "float64")
    state = last(solver.run(problem, engine))
    again = solver.follow(problem, engine, state)
    for name in ("dual", "intercept", "lift", "span", "scores", "mean"):
        np.testing.assert_allclose(getattr(again, name), getattr(state, name), rtol=1e-6, atol=1e-7, err_msg=name)
    assert again.norm.shape == state.norm.shape
    longer = configured("tsg, features", max_iter=25)
    assert last(longer.run(problem, engine, again)).iteration == 25
    with pytest.raises(ValueError, match="with other columns"):
        solver.follow(problem_for("tsg, features", columns=1), engine, state)


def test_blocks_are_visited_again():
    problem, engine = make_problem(problem_for("tsg").kernel, "exp"), backends.backend("reference", "float64")
    solver = configured("printed_tsg", max_iter=11, max_blocks=4)
    states = list(solver.run(problem, engine))
    shapes = [len(state.model().coefficients) for state in states]
    assert shapes == [1, 2, 3, 4, 4, 4, 4, 4, 4, 4, 4]
    before, after = states[5].model().coefficients, states[6].model().coefficients
    gamma = states[6].record["step"]
    np.testing.assert_allclose(after[[0, 1, 3]], (1 - gamma) * before[[0, 1, 3]], rtol=1e-12)
    assert np.abs(after[2] - (1 - gamma) * before[2]).max() > 1e-6
    # Up to the cap nothing is different, and scores that were carried on are those of the model.
    free = list(configured("printed_tsg", max_iter=11).run(problem, engine))
    np.testing.assert_array_equal(states[3].model().coefficients, free[3].model().coefficients)
    scores = states[-1].model().decision(problem.labeled, engine)
    np.testing.assert_allclose(states[-1].labeled_scores(), scores, rtol=1e-9, atol=1e-12)
    assert solver.memory(problem, engine) < configured("printed_tsg", max_iter=11).memory(problem, engine)
    for stop in (1, 5, 10):
        resumed = last(solver.run(problem, engine, states[stop - 1]))
        np.testing.assert_array_equal(resumed.model().coefficients, states[-1].model().coefficients)
    with pytest.raises(ValueError, match="max_blocks"):
        PrintedTSG(max_blocks=0)


def test_labeled_rows_only_at_first():
    clf = S3VMClassifier(SOLVERS[0], **FAST)
    X, some = rows(0, n_labeled=20)
    with pytest.warns(UserWarning, match="no unlabelled rows"):
        clf.partial_fit(X[:12], some[:12])
    with pytest.warns(UserWarning, match="no unlabelled rows"):
        clf.partial_fit(X[12:20], some[12:20])
    clf.partial_fit(X[20:], some[20:])
    same = S3VMClassifier(SOLVERS[0], **FAST).partial_fit(X, some)
    np.testing.assert_array_equal(clf.decision_function(X_TEST), same.decision_function(X_TEST))


def test_several_classes_text_and_sparse_rows():
    rng = np.random.RandomState(0)
    centers = 3 * rng.randn(3, 4)
    clf = S3VMClassifier(SOLVERS[0], **FAST | {"gamma": 0.2, "unlabeled": None})
    for _ in range(3):
        y = rng.randint(3, size=150)
        X = sparse.csr_array(centers[y] + rng.randn(150, 4))
        clf.partial_fit(X, [("a", "b", "c")[code] if at < 15 else None for at, code in enumerate(y)])
    assert clf.classes_.tolist() == ["a", "b", "c"]
    assert np.mean(clf.predict(X) == np.array(["a", "b", "c"])[y]) > 0.9


def test_a_copy_goes_on_alike_and_an_error_leaves_no_trace():
    clf = S3VMClassifier(SOLVERS[0], **FAST).partial_fit(*rows(0))
    copies = [copy.deepcopy(clf), pickle.loads(pickle.dumps(clf)), clf]
    with pytest.raises(ValueError, match="same classes"):
        clf.partial_fit(X_TEST[:2], [7, -1])
    with pytest.raises(ValueError, match="max_labeled=1"):
        clf.partial_fit(*rows(1), max_labeled=1)
    scores = [one.partial_fit(*rows(1)).decision_function(X_TEST) for one in copies]
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[2])
    with pytest.raises(ValueError, match="same solver, kernel"):
        clf.set_params(C=1.0).partial_fit(*rows(2))
    fitted = S3VMClassifier(SOLVERS[0], **FAST).fit(*rows(0)).partial_fit(*rows(1))
    both = [np.concatenate(part) for part in zip(rows(0), rows(1))]
    at_once = S3VMClassifier(SOLVERS[0], **FAST).partial_fit(*both)
    np.testing.assert_array_equal(fitted.decision_function(X_TEST), at_once.decision_function(X_TEST))


def test_the_reservoir_is_a_fair_sample():
    counts = np.zeros(100)
    for start in range(300):
        kept = Reservoir(20)
        for first in range(0, 100, 7):
            part = np.arange(first, min(first + 7, 100))[:, None]
            kept.add(part, 1000 * start + first)
        sample = kept.rows()[:, 0]
        assert len(set(sample)) == 20
        counts[sample] += 1
    assert 30 < counts.min() < counts.max() < 95  # 60 expected
    arrivals = ReservoirSource(10)
    arrivals.add(np.ones((5, 2)))
    arrivals.add(np.zeros((0, 2)))
    assert (arrivals.n_rows, arrivals.n_new, arrivals.n_dims) == (5, 0, 2)
    assert not isinstance(arrivals, ArraySource)


def test_which_labeled_rows_stay():
    labels = np.array(["a", "b", "a", "a", "a", "a", "a"])
    assert newest_labels(labels, 4).tolist() == [1, 4, 5, 6]
    assert newest_labels(labels, 2).tolist() == [1, 6]
    assert newest_labels(labels, 99).tolist() == list(range(7))
    X = np.random.RandomState(0).randn(50, 3)
    np.testing.assert_array_equal(folds_by_content(X, 5)[10:20], folds_by_content(X[10:20], 5))
    assert set(folds_by_content(X, 5)) == set(range(5))


def test_neighbors_of_rows_that_come_over_time():
    """The graph joins the labelled rows and the rows that are remembered, anew after each part."""
    plain, joined = (S3VMClassifier(SOLVERS[0], neighbor_weight=weight, **FAST) for weight in (0, 3.0))
    for number in range(3):
        for clf in (plain, joined):
            clf.partial_fit(*rows(number))
    assert joined.score(X_TEST, Y_TEST) > 0.9
    assert np.abs(joined.decision_function(X_TEST) - plain.decision_function(X_TEST)).max() > 0.01


@pytest.mark.parametrize("solver", ["incremental", "tsg"])
def test_classes_that_come_later(solver):
    """The first call need not have all classes; a new one that was announced starts training again."""
    X, y = make_blobs(300, 2, centers=[[0, 0], [6, 0], [0, 6]], random_state=0)
    first = np.where((y < 2) & (np.arange(300) < 60), y, -1)
    clf = S3VMClassifier(solver, random_state=0).partial_fit(X[:150], first[:150], classes=[0, 1, 2])
    assert clf.classes_.tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"same classes|also have \[3\]"):
        clf.partial_fit(X[150:200], np.where(y[150:200] == 2, 3, -1))
    clf.partial_fit(X[150:], np.where(np.arange(150) < 60, y[150:], -1))
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf.score(X, y) > 0.95

"""Folds of labelled rows, and scikit-learn's own tools around the classifier, with -1 for unlabelled rows."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_moons
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV, cross_val_score, cross_validate
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from s3vm import RBF, TSG, LabeledKFold, Newton, S3VMClassifier, scorer

FEW = TSG(max_iter=20, batch_size=16)


@pytest.fixture(scope="module")
def moons():
    X, y = make_moons(340, noise=0.1, random_state=3)
    return X, y, np.where(np.arange(340) < 40, y, -1)


def make(**settings):
    return S3VMClassifier(**{"solver": FEW, "unlabeled_weight": 1.0, "random_state": 0, **settings})


def test_each_labeled_row_is_tested_once_and_unlabeled_rows_are_always_trained_on(moons):
    X, y, some = moons
    splits = list(LabeledKFold(4, shuffle=True, random_state=0).split(X, some))
    assert len(splits) == LabeledKFold(4).get_n_splits() == 4
    np.testing.assert_array_equal(np.sort(np.concatenate([test for _, test in splits])), np.arange(40))
    for train, test in splits:
        assert set(train) == set(range(340)) - set(test)
        assert abs(y[test].mean() - y[:40].mean()) <= 0.1, "stratified"
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        next(LabeledKFold().split(X[:5], some))


def test_rows_of_any_kind_and_missing_labels(moons):
    X, _, some = moons
    frame = pd.DataFrame(X, columns=["a", "b"])
    labels = np.where(some == -1, None, np.where(some == 1, "yes", "no"))
    named = GridSearchCV(make(unlabeled=None), {"C": [1.0, 10.0]}, cv=LabeledKFold(unlabeled=None)).fit(frame, labels)
    assert set(named.predict(frame)) == {"yes", "no"}
    numbers = GridSearchCV(make(), {"C": [1.0, 10.0]}, cv=LabeledKFold()).fit(X, some)
    np.testing.assert_allclose(named.cv_results_["mean_test_score"], numbers.cv_results_["mean_test_score"])


def test_halving_search(moons):
    """scikit-learn's, with the solver's number of iterations as the resource."""
    X, y, some = moons
    search = HalvingGridSearchCV(
        S3VMClassifier(TSG(), gamma=4.0, unlabeled_weight=1.0, probability=False, random_state=0),
        {"C": [0.1, 1.0, 10.0, 100.0]},
        resource="solver__max_iter",
        max_resources=30,
        cv=LabeledKFold(3, shuffle=True, random_state=0),
        scoring="roc_auc",
        return_train_score=False,
        error_score="raise",
    ).fit(X, some)
    assert (search.n_candidates_, search.n_resources_) == ([4, 2], [10, 30])
    assert search.best_estimator_.solver == TSG(max_iter=30)
    assert np.mean(search.predict(X) == y) > 0.9


def test_pipeline_and_grid_search_with_marks(moons):
    """The example that any user of scikit-learn would write, unchanged but for the splitter."""
    X, y, some = moons
    pipeline = make_pipeline(StandardScaler(), make())
    search = GridSearchCV(pipeline, {"s3vmclassifier__C": [0.01, 10.0]}, cv=LabeledKFold(3)).fit(X, some)
    assert search.best_params_ == {"s3vmclassifier__C": 10.0}
    assert search.score(X[40:], y[40:]) > 0.85
    scores = cross_val_score(pipeline, X, some, cv=LabeledKFold(4))
    assert scores.shape == (4,)
    assert scores.mean() > 0.75


def test_calibrated(moons):
    """After training, on the labelled rows: with the others it would take their mark for a class."""
    X, y, some = moons
    known = some != -1
    calibrated = CalibratedClassifierCV(FrozenEstimator(make().fit(X, some))).fit(X[known], some[known])
    np.testing.assert_array_equal(calibrated.classes_, [0, 1])
    assert np.mean(calibrated.predict(X) == y) > 0.85


def test_one_against_rest():
    X = np.random.default_rng(0).normal(size=(240, 2)) + 4 * np.eye(3, 2)[np.arange(240) % 3]
    y = np.arange(240) % 3
    known = np.arange(240) < 60
    with pytest.warns(UserWarning, match="no unlabelled rows"):
        fitted = OneVsRestClassifier(make(unlabeled=None)).fit(X[known], y[known])
    assert fitted.score(X, y) > 0.9


def test_clone_and_parameters():
    one = make(kernel=RBF(2.0), C=3.0)
    two = clone(one)
    assert two is not one
    assert two.get_params() == one.get_params()
    assert repr(two.set_params(C=4.0)) != repr(one)


def test_settings_of_a_configured_part_are_parameters():
    one = S3VMClassifier(TSG(), kernel=RBF(2.0))
    before = one.solver
    params = one.get_params()
    assert (params["solver__batch_size"], params["kernel__gamma"]) == (before.batch_size, 2.0)
    assert set(one.get_params(deep=False)) < set(params)
    two = clone(one).set_params(C=3.0, solver__max_iter=7, solver__batch_size=16, kernel__gamma=1.0)
    assert (two.solver, two.kernel, two.C) == (TSG(max_iter=7, batch_size=16), RBF(1.0), 3.0)
    assert before == one.solver == TSG(), "parts are shared by clones, and do not change"
    assert two.set_params(solver=Newton(), solver__max_iter=3).solver == Newton(max_iter=3)
    with pytest.raises(ValueError, match=r"solver__max_itr=3 is not valid: .*'max_iter'"):
        two.set_params(solver__max_itr=3)
    with pytest.raises(ValueError, match=r"solver__max_iter=3 is not valid: give settings of a configured solver"):
        S3VMClassifier("tsg").set_params(solver__max_iter=3)
    with pytest.raises(ValueError, match="Invalid parameter 'Q'"):
        two.set_params(Q=3)
    with pytest.raises(ValueError, match="max_iter=0 is not valid"):
        two.set_params(solver__max_iter=0)


# Rows without a label among scikit-learn's tools


@pytest.mark.parametrize("mark", [-1, None, np.nan, "?"])
def test_scores_are_of_labeled_rows(moons, mark):
    X, _, some = moons
    labels = np.where(some == 1, "yes", "no") if mark == "?" else some.astype(object)
    labels = np.where(some == -1, mark, labels)
    unlabeled = mark if mark in (-1, "?") else None
    clf = make(unlabeled=unlabeled, gamma=4.0).fit(X, labels)
    assert clf.score(X, labels) == clf.score(X[:40], labels[:40]) > 0.9
    weight = np.where(clf.predict(X) == labels, 1.0, 3.0)
    assert clf.score(X, labels, weight) == np.average(clf.predict(X[:40]) == labels[:40], weights=weight[:40])
    assert clf.score(X[:1], labels[:1]) == 1.0, "one class is enough"
    with pytest.raises(ValueError, match="no labelled rows to score"):
        clf.score(X[40:], labels[40:])
    with pytest.raises(ValueError, match="inconsistent numbers"):
        clf.score(X, labels[:50])


def test_any_splitter_tests_on_labeled_rows(moons):
    """An integer puts unlabelled rows into test parts."""
    X, _, some = moons
    by_labels = cross_val_score(make(gamma=4.0), X, some, cv=LabeledKFold(3, shuffle=True, random_state=0))
    assert min(by_labels) > 0.8
    assert min(cross_val_score(make(gamma=4.0), X, some, cv=3)) > 0.8
    assert GridSearchCV(make(gamma=4.0), {"C": [1.0, 10.0]}, cv=3).fit(X, some).best_score_ > 0.8


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame, sparse.csr_array])
def test_scorer_skips_unlabeled_rows(moons, kind):
    X, _, some = moons
    rows = kind(X)
    clf = make(gamma=4.0).fit(rows, some)
    for name in ("roc_auc", "neg_brier_score", "balanced_accuracy"):
        expected = get_scorer(name)(clf, kind(X[:40]), some[:40])
        assert scorer(name)(clf, rows, some) == expected
        assert scorer(get_scorer(name))(clf, rows, some) == expected
    weight = np.arange(340.0) + 1
    expected = get_scorer("roc_auc")(clf, kind(X[:40]), some[:40], sample_weight=weight[:40])
    assert scorer("roc_auc")(clf, rows, some, sample_weight=weight) == expected
    assert "roc_auc" in repr(scorer("roc_auc"))
    with pytest.raises(ValueError, match="no labelled rows to score"):
        scorer("roc_auc")(clf, rows[40:], some[40:])


def test_scorer_in_a_search_with_several_measures(moons):
    X, _, some = moons
    labels = np.where(some == -1, "?", np.where(some == 1, "yes", "no"))
    scoring = {name: scorer(name, unlabeled="?") for name in ("roc_auc", "accuracy")}
    found = cross_validate(make(unlabeled="?", gamma=4.0), X, labels, cv=3, scoring=scoring, error_score="raise")
    assert found["test_roc_auc"].min() > 0.9
    assert found["test_accuracy"].min() > 0.8


@pytest.mark.parametrize("measure", ["accuracy", "roc_auc"])
def test_a_scorer_with_another_mark_says_so(moons, measure):
    """The accuracy counted the marks as errors; others were nan, for a reason of scikit-learn's insides."""
    X, _, some = moons
    labels = np.where(some == -1, "?", np.where(some == 1, "yes", "no"))
    clf = make(unlabeled="?", gamma=4.0)
    search = GridSearchCV(make_pipeline(StandardScaler(), clf), {"s3vmclassifier__C": [1.0]}, cv=2)
    for fitted in (clf.fit(X, labels), search.fit(X, labels)):
        with pytest.raises(ValueError, match=r"rows carry '\?', the classifier's mark .*scorer\(..., unlabeled='\?'\)"):
            scorer(measure)(fitted, X, labels)
    assert scorer(measure)(clf, X[:40], labels[:40]) > 0.8, "no row carries any mark"


def test_folds_say_if_no_row_carries_their_mark(moons):
    X, _, some = moons
    labels = np.where(some == -1, "?", np.where(some == 1, "yes", "no"))
    with pytest.warns(UserWarning, match=r"LabeledKFold\(unlabeled=-1\) found no row .*'\?', 'no', 'yes'"):
        next(LabeledKFold(3).split(X, labels))
    folds = LabeledKFold(3, unlabeled="?")
    folds.random_state = np.random.RandomState(0)  # as StackingClassifier does
    assert len(list(folds.split(X, labels))) == 3


def test_a_warning_names_the_line_that_fits_a_pipeline(moons):
    X, y, _ = moons
    search = GridSearchCV(make_pipeline(StandardScaler(), make()), {"s3vmclassifier__C": [1.0]}, cv=2)
    with pytest.warns(UserWarning, match="no unlabelled rows") as caught:
        search.fit(X[:40], y[:40])
    assert {warning.filename for warning in caught} == {__file__}


# Metadata routing


def test_metadata_is_routed(moons):
    X, y, some = moons
    weight = np.where(np.arange(340) < 20, 3.0, 1.0)
    scaler = StandardScaler().fit(X[:40])
    alone = make().fit(scaler.transform(X[:40]), y[:40], weight[:40], X_unlabeled=scaler.transform(X[40:]))
    with config_context(enable_metadata_routing=True):
        clf = make().set_fit_request(X_unlabeled=True, sample_weight=True, groups=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = Pipeline([("scaler", scaler), ("clf", clf)], transform_input=["X_unlabeled"])
        pipeline.fit(X[:40], y[:40], sample_weight=weight[:40], X_unlabeled=X[40:])
        np.testing.assert_array_equal(pipeline.decision_function(X), alone.decision_function(pipeline[0].transform(X)))
        scoring = scorer("roc_auc").set_score_request(sample_weight=True)
        search = GridSearchCV(clf, {"C": [1.0, 10.0]}, cv=LabeledKFold(3), scoring=scoring, error_score="raise")
        search.fit(X, some, sample_weight=weight, groups=np.arange(340) // 2)
        assert search.best_score_ > 0.8

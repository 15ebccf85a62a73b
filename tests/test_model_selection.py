"""Folds of labelled rows, and scikit-learn's own tools around the classifier, with -1 for unlabelled rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_moons
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from s3vm import RBF, TSG, LabeledKFold, S3VMClassifier

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
    """scikit-learn's, with a classifier whose number of iterations is a parameter."""
    X, y, some = moons

    class WithIterations(S3VMClassifier):
        def get_params(self, deep=True):
            return super().get_params(deep) | ({"max_iter": None} if deep else {})

        def set_params(self, max_iter=None, **params):
            if max_iter is not None:
                self.solver = TSG(max_iter=max_iter)
            return super().set_params(**params)

    search = HalvingGridSearchCV(
        WithIterations(gamma=4.0, unlabeled_weight=1.0, probability=False, random_state=0),
        {"C": [0.1, 1.0, 10.0, 100.0]},
        resource="max_iter",
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

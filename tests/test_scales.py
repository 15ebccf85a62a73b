"""Unlabelled rows that a pipeline has not transformed are noticed, and rows of one source are not."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, make_moons
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from effort import cases
from s3vm import BatchSource, Matern, S3VMClassifier, S3VMClassifierCV

WARNING = "unlabelled rows are on another scale"
SVM = {"unlabeled_weight": 0, "probability": False, "random_state": 0}  # fast, and as little as can be wrong


@pytest.fixture(scope="module")
def cancer():
    frame, y = load_breast_cancer(return_X_y=True, as_frame=True)
    order = np.random.RandomState(0).permutation(len(y))
    return frame.iloc[order], y.to_numpy()[order]


def test_a_pipeline_that_does_not_transform_unlabeled_rows(cancer):
    X, y = cancer
    pipeline = make_pipeline(StandardScaler(), S3VMClassifier(**SVM))
    with pytest.warns(UserWarning, match=WARNING) as caught:
        pipeline.fit(X[:60], y[:60], s3vmclassifier__X_unlabeled=X[60:].to_numpy())
    (warning,) = [str(warning.message) for warning in caught if WARNING in str(warning.message)]
    assert "mean 3.17e-09 and standard deviation 1 where labelled, 883 and 579 where not" in warning
    assert 'transform_input=["X_unlabeled"]' in warning
    # At weight 0 it is the SVM of the labelled rows all the same.
    svc = make_pipeline(StandardScaler(), SVC(C=10.0)).fit(X[:60], y[:60])
    np.testing.assert_array_equal(pipeline.predict(X), svc.predict(X))


def test_the_line_that_the_warning_shows(cancer):
    X, y = cancer
    with config_context(enable_metadata_routing=True):
        clf = S3VMClassifier(random_state=0).set_fit_request(X_unlabeled=True)
        pipeline = Pipeline([("scaler", StandardScaler()), ("svm", clf)], transform_input=["X_unlabeled"])
        pipeline.fit(X[:60], y[:60], X_unlabeled=X[60:])
        assert pipeline.score(X, y) > 0.93
        assert pipeline.predict_proba(X).shape == (569, 2)


@pytest.mark.parametrize("solver", ["auto", "tsg", "newton"])
@pytest.mark.parametrize("kind", [S3VMClassifier, S3VMClassifierCV])
def test_at_weight_0_it_is_the_svm_of_labeled_rows_to_the_last_bit(solver, kind):
    X, y = make_moons(300, noise=0.1, random_state=0)
    settings = {"solver": solver, "unlabeled_weight": 0, "random_state": 0}
    with pytest.warns(UserWarning, match="no unlabelled rows"):
        alone = kind(**settings).fit(X[:60], y[:60])
    far = 100 + 50 * X[60:]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", f"{WARNING}|collapse")
        given = kind(**settings).fit(X[:60], y[:60], X_unlabeled=far)
        marked = kind(**settings).fit(np.r_[X[:60], far], np.r_[y[:60], np.full(240, -1)])
    for other in (given, marked):
        np.testing.assert_array_equal(other.predict_proba(X), alone.predict_proba(X))
        np.testing.assert_array_equal(other.decision_function(X), alone.decision_function(X))


KINDS = {"array": lambda X: X, "sparse": sparse.csr_array, "batches": lambda X: BatchSource([X[:100], X[100:]])}


@pytest.mark.parametrize("kind", KINDS)
def test_one_column_in_other_units(kind):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 6)), rng.integers(0, 2, 300)
    other = X[30:] * [1, 1, 1, 1000, 1, 1]
    clf = S3VMClassifier(**SVM)
    with pytest.warns(UserWarning, match=rf"{WARNING}.*columns \[3, "):
        clf.fit(X[:30], y[:30], X_unlabeled=KINDS[kind](other))
    clf.fit(X[:30], y[:30], X_unlabeled=KINDS[kind](X[30:]))
    frame, names = pd.DataFrame(X[:30], columns=list("abcdef")), list("abcdef")
    with pytest.warns(UserWarning, match=r"columns \['d', "):
        clf.fit(frame, y[:30], X_unlabeled=pd.DataFrame(other, columns=names))


def skewed(X, y, n_labeled, rng):
    """Half of the labelled rows, but few of the others, are of the second class."""
    first, second = (rng.permutation(np.flatnonzero(y == code)) for code in (0, 1))
    half = n_labeled // 2
    labeled = np.r_[first[:half], second[:half]]
    return labeled, np.r_[first[half:], second[half : half + max(1, len(first) // 20)]]


def at_random(X, y, n_labeled, rng):
    order = rng.permutation(len(y))
    labeled = order[:n_labeled]
    if len(np.unique(y[labeled])) == 1:
        labeled[-1] = next(row for row in order[n_labeled:] if y[row] != y[labeled[0]])
    return labeled, np.setdiff1d(order, labeled)


@pytest.mark.parametrize("draw", [at_random, skewed])
@pytest.mark.parametrize("n_labeled", [4, 10, 40])
def test_rows_of_one_source_are_not_warned_about(draw, n_labeled):
    """Whatever their columns are, however few are labelled, and also if the labelled have other shares of classes."""
    heavy = np.random.default_rng(0).standard_cauchy((400, 20))
    rare = sparse.random_array((400, 200), density=0.01, rng=0, format="csr")
    sets = [load_iris(return_X_y=True), load_digits(return_X_y=True), load_breast_cancer(return_X_y=True)]
    sets += [(rows, np.arange(400) % 2) for rows in (heavy, rare)]
    for X, y in sets:
        for seed in range(cases(1, 20)):
            labeled, unlabeled = draw(X, y, n_labeled, np.random.default_rng(seed))
            clf = S3VMClassifier(kernel=Matern(1e-3), **SVM)
            with warnings.catch_warnings():
                warnings.filterwarnings(
                    "ignore", "collapse|(every )?class .*has a single labelled|features are not scaled"
                )
                clf.fit(X[labeled], y[labeled], X_unlabeled=X[unlabeled])

"""What a fit says of its rows: predictions of labelled rows held out, and labels to doubt."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.svm import SVC

from fitted import QUICK, blobs, moons
from s3vm import S3VMClassifier


@pytest.fixture(scope="module")
def few():
    """Thirty labels of two clusters, so that every labelled row is a fold of its own; two labels are wrong."""
    X, y = make_blobs(120, centers=[[-2, 0], [2, 0]], random_state=0)
    some = np.full(120, -1)
    labeled = np.arange(3, 120, 4)
    some[labeled] = y[labeled]
    flipped = labeled[[4, 20]]
    some[flipped] = 1 - some[flipped]
    return X, some, flipped


def test_held_out_scores_are_those_of_models_trained_without_the_row(few):
    X, some, _ = few
    clf = S3VMClassifier(gamma=0.5, C=2.0, unlabeled_weight=0, dtype="float64", random_state=0).fit(X, some)
    labeled = np.flatnonzero(some >= 0)
    expected = np.full(len(X), np.nan)
    for row in labeled:
        others = labeled[labeled != row]
        expected[row] = SVC(gamma=0.5, C=2.0, tol=1e-6).fit(X[others], some[others]).decision_function(X[[row]])[0]
    np.testing.assert_allclose(clf.held_out_scores_, expected, atol=2e-2)
    odds = clf.held_out_proba_[labeled, 1] / clf.held_out_proba_[labeled, 0]
    np.testing.assert_allclose(np.log(odds), 2 * clf._calibrator.beta * clf.held_out_scores_[labeled])
    assert np.isnan(clf.held_out_proba_[some == -1]).all()


def test_labels_that_were_flipped_are_doubted_most(few):
    X, some, flipped = few
    clf = S3VMClassifier(random_state=0).fit(X, some)
    doubtful = clf.doubtful_
    assert set(doubtful["row"][:2]) == set(flipped)
    np.testing.assert_array_equal(doubtful["label"], some[doubtful["row"]])
    assert (doubtful["label"] != doubtful["predicted"]).all()
    assert (np.diff(doubtful["doubt"]) <= 0).all()
    of_label = clf.held_out_proba_[doubtful["row"], doubtful["label"]]
    np.testing.assert_allclose(doubtful["doubt"], 1 - of_label)


def test_doubts_agree_with_the_held_out_predictions():
    for clf, _, y, _ in (moons(), blobs()):
        final = clf[-1] if hasattr(clf, "steps") else clf
        probabilities, rows = final.held_out_proba_, np.flatnonzero(np.isfinite(final.held_out_proba_[:, 0]))
        assert final.held_out_scores_.shape == (len(y),) + ((3,) if len(final.classes_) > 2 else ())
        predicted = final.classes_[probabilities[rows].argmax(axis=1)]
        assert set(final.doubtful_["row"]) == set(rows[predicted != y[rows]])


def test_equal_rows_have_equal_held_out_scores(few):
    X, some, _ = few
    twice = np.r_[np.arange(120), 3, 7, 7]
    clf = S3VMClassifier(QUICK, unlabeled_weight=0, random_state=0).fit(X[twice], some[twice])
    assert clf.held_out_scores_.shape == (123,)
    np.testing.assert_array_equal(clf.held_out_scores_[120:], clf.held_out_scores_[[3, 7, 7]])
    weight = np.where(np.arange(120) == 3, 0.0, 1.0)
    assert np.isnan(S3VMClassifier(QUICK, random_state=0).fit(X, some, weight).held_out_scores_[3])


def test_without_probabilities_there_are_scores_and_doubts(few):
    X, some, flipped = few
    clf = S3VMClassifier(probability=False, random_state=0).fit(X, some)
    assert not hasattr(clf, "held_out_proba_")
    assert set(clf.doubtful_["row"][:2]) == set(flipped)
    assert not hasattr(S3VMClassifier(), "doubtful_")

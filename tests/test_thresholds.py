"""Whether a threshold reaches its aim on held-out rows, and nothing but the classes changes."""

import numpy as np
import onnxruntime
import pytest
from scipy.special import expit
from sklearn import config_context
from sklearn.datasets import make_classification
from sklearn.metrics import f1_score
from sklearn.model_selection import TunedThresholdClassifierCV

from fitted import QUICK, blobs
from s3vm import S3VMClassifier, load, to_onnx
from s3vm.estimators.thresholds import best_threshold


@pytest.fixture
def skewed():
    """A tenth of the rows are of class "yes"; 200 of 600 are labelled."""
    X, y = make_classification(600, 6, weights=[0.9], flip_y=0.08, class_sep=0.7, random_state=3)
    some = np.array(["no", "yes"], dtype=object)[y]
    some[200:] = None
    clf = S3VMClassifier(QUICK, unlabeled=None, random_state=0).fit(X, some)
    return clf, X, np.flatnonzero(some == "yes"), np.flatnonzero(some != None)  # noqa: E711


def measured(scores, truth, threshold=0.0):
    """Precision, recall and F1 of the rows with scores above the threshold."""
    predicted = scores > threshold
    hits, n_predicted, n_true = np.sum(predicted & truth), predicted.sum(), truth.sum()
    return hits / max(n_predicted, 1), hits / n_true, 2 * hits / (n_predicted + n_true)


@pytest.mark.parametrize("name", ["yes", "no"])
def test_a_threshold_reaches_its_aim(skewed, name):
    clf, _, positives, labeled = skewed
    truth, sign = np.isin(labeled, positives) == (name == "yes"), 1 if name == "yes" else -1
    original = sign * clf.held_out_scores_[labeled]
    every = [measured(original, truth, threshold) for threshold in np.r_[original - 1e-9, original + 1e-9]]

    def reached(aim):
        return measured(sign * clf.set_threshold(aim, positive=name).held_out_scores_[labeled], truth)

    assert reached("f1")[2] == pytest.approx(max(f1 for _, _, f1 in every))
    precision, recall, _ = reached("precision=0.8")
    assert precision >= 0.8
    assert recall == pytest.approx(max(r for p, r, _ in every if p >= 0.8))
    precision, recall, _ = reached("recall=0.9")
    assert recall >= 0.9
    assert precision == pytest.approx(max(p for p, r, _ in every if r >= 0.9))


def test_only_the_classes_change(skewed, tmp_path):
    clf, X, positives, _ = skewed
    scores, probabilities, held_out = clf.decision_function(X), clf.predict_proba(X), clf.held_out_proba_
    clf.set_threshold("recall=0.9").set_threshold(-0.4)
    assert clf.threshold_ == -0.4
    np.testing.assert_allclose(clf.decision_function(X), scores + 0.4)
    np.testing.assert_allclose(clf.predict_proba(X), probabilities)
    np.testing.assert_allclose(clf.held_out_proba_, held_out)
    np.testing.assert_allclose(probabilities[:, 1], expit(2 * clf._calibrator.beta * scores))
    np.testing.assert_array_equal(clf.predict(X) == "yes", scores > -0.4)
    assert (clf.transduction_[200:] == "yes").sum() == (scores[200:] > -0.4).sum()
    clf.save(tmp_path / "a.s3vm")
    loaded = load(tmp_path / "a.s3vm")
    assert loaded.threshold_ == -0.4
    np.testing.assert_array_equal(loaded.predict_proba(X), clf.predict_proba(X))
    np.testing.assert_array_equal(loaded.predict(X), clf.predict(X))
    with pytest.raises(ValueError, match="choose it after fit"):
        loaded.set_threshold("f1")
    np.testing.assert_allclose(loaded.set_threshold(0.0).decision_function(X), scores)
    to_onnx(clf, tmp_path / "a.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx")
    label, _, shown = session.run(["label", "scores", "probabilities"], {"X": X.astype(np.float32)})
    np.testing.assert_allclose(shown, probabilities, atol=1e-4)
    assert np.mean(label == clf.predict(X)) > 0.99
    some = np.full(len(X), None, dtype=object)
    some[:200] = np.where(np.isin(np.arange(200), positives), "yes", "no")
    assert clf.fit(X, some).threshold_ == 0
    np.testing.assert_allclose(clf.decision_function(X), scores)


@pytest.mark.parametrize("aim", ["recall", "f2", "precision=2", np.nan, None])
def test_aims_that_do_not_exist(skewed, aim):
    with pytest.raises(ValueError, match='is not valid: give a number, "f1", or for example'):
        skewed[0].set_threshold(aim)


def test_thresholds_that_cannot_be():
    with pytest.raises(ValueError, match="for two classes, but there are 3"):
        blobs().clf[-1].set_threshold("f1")
    with pytest.raises(ValueError, match=r"no threshold reaches precision=0\.9"):
        best_threshold(np.array([True, False, False, True]), np.array([0.0, 3.0, 2.0, 1.0]), "precision=0.9")


def test_positive_is_a_class(skewed):
    with pytest.raises(ValueError, match="positive='maybe' is not valid: give one of"):
        skewed[0].set_threshold("f1", positive="maybe")


def test_tuned_threshold_classifier_takes_unlabeled_rows():
    """Where unlabelled rows are given apart, no splitter sees a mark."""
    X, y = make_classification(300, 4, weights=[0.8], random_state=0)
    with config_context(enable_metadata_routing=True):
        clf = S3VMClassifier(QUICK, random_state=0).set_fit_request(X_unlabeled=True)
        tuned = TunedThresholdClassifierCV(clf, scoring="f1", cv=3).fit(X[:100], y[:100], X_unlabeled=X[100:])
    assert f1_score(y[100:], tuned.predict(X[100:])) > 0.5
    assert tuned.estimator_.safety_.n_labeled == 100

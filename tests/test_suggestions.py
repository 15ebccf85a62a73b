"""Which rows to label next, and whether more labels would help."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import make_blobs
from sklearn.svm import SVC

from fitted import QUICK, moons
from s3vm import S3VMClassifier, load
from s3vm.estimators.suggestions import most_informative
from s3vm.inspect.diagnostics import error_measures
from s3vm.inspect.half_fit import column_importance, fit_on_half, more_labels
from s3vm.kernels import RBF


def test_most_informative_rows_are_central_in_doubt_and_apart():
    """Of three clusters and an outlier, the two in doubt come first, the larger one before the other."""
    rng = np.random.default_rng(0)
    sizes, centers = (40, 60, 40), np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    cluster = np.repeat(np.arange(3), sizes)
    rows = np.r_[centers[cluster] + rng.normal(size=(140, 2)), [[30.0, 30.0]]]
    doubt = np.r_[np.where(cluster == 2, 0.01, 0.5), 0.5]
    first, second = most_informative(rows, doubt, 2)
    assert [cluster[first], cluster[second]] == [1, 0]
    assert 140 not in most_informative(rows, doubt, 5)
    after_label = most_informative(rows, doubt, 1, labeled=centers[[1]])
    assert cluster[after_label[0]] == 0


def test_most_informative_lowers_the_sum_of_variances_most():
    rng = np.random.default_rng(1)
    rows, doubt = rng.normal(size=(30, 3)), rng.random(30)
    kernel = RBF("median").resolve(rows)

    def remaining(chosen):
        K, inner = kernel.gram(rows, rows), kernel.gram(rows[chosen], rows[chosen]) + 0.1 * np.eye(len(chosen))
        cross = kernel.gram(rows[chosen], rows)
        return doubt @ np.diag(K - cross.T @ np.linalg.solve(inner, cross))

    first, second, third = most_informative(rows, doubt, 3)
    others = [row for row in range(30) if row not in (first, second)]
    assert third == min(others, key=lambda row: remaining([first, second, row]))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_suggestions_are_new_rows_and_the_same_every_time(kind, tmp_path):
    clf, X, y, _ = moons()
    rows = clf.suggest(kind(X), 25)
    assert len(set(rows)) == 25
    assert (y[rows] == -1).all(), "rows that have a label are not suggested"
    np.testing.assert_array_equal(rows, clf.suggest(kind(X), 25, y))
    assert set(rows) != set(clf.suggest(X, 25, random_state=1))
    clf.save(tmp_path / "a.s3vm")
    loaded = load(tmp_path / "a.s3vm")
    assert (y[loaded.suggest(X, 25, y)] == -1).all(), "a model file has no training rows, but y says which are labelled"
    with pytest.raises(ValueError, match="n=261 rows cannot be suggested: only 260 of 300 have no label"):
        clf.suggest(X, 261)


@pytest.mark.filterwarnings("ignore:class .* has a single labelled row:UserWarning")
def test_every_fifth_suggestion_is_drawn_at_random():
    """Whatever a classifier thinks, it is the same rows that chance draws."""
    X, y = make_blobs([400, 400, 100], centers=[[-3, 0], [3, 0], [12, 0]], random_state=0)
    marks = [np.where(np.arange(900) % 40 == at, y, -1) for at in (0, 1)]
    first, second = (
        S3VMClassifier(QUICK, random_state=0).fit(X, some).suggest(X, 50, np.full(900, -1)) for some in marks
    )
    same = [np.isin(first[part], second[part]).mean() for part in (np.s_[4::5], np.arange(50) % 5 < 4)]
    assert same[0] > 0.7
    assert same[1] < 0.5


def test_suggested_labels_teach_more_than_random_ones():
    X, y = make_blobs(1200, n_features=5, centers=8, cluster_std=2.5, random_state=3)
    y, errors = y % 2, {"suggested": [], "random": []}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        first = rng.choice(600, 16, replace=False)
        some = np.full(600, -1)
        some[first] = y[first]
        clf = S3VMClassifier(QUICK, random_state=0, unlabeled_weight=0).fit(X[:600], some)
        others = np.setdiff1d(np.arange(600), first)
        more = {"suggested": clf.suggest(X[:600], 30), "random": rng.choice(others, 30, replace=False)}
        for kind, rows in more.items():
            labeled = np.r_[first, rows]
            svc = SVC(C=10).fit(X[labeled], y[labeled])
            errors[kind].append(np.mean(svc.predict(X[600:]) != y[600:]))
    assert np.mean(errors["suggested"]) < np.mean(errors["random"]) - 0.02


def test_more_labels_says_no_more_than_the_errors_allow():
    full = error_measures(10, 200)
    less = more_labels(error_measures(12, 200) | {"n_labeled": 100}, full, 200)
    assert less["error_at_twice"] is None
    assert "within chance" in less["sentence"]
    more = more_labels(error_measures(40, 200) | {"n_labeled": 100}, full, 200)
    low, high = more["error_at_twice"]
    assert 0 <= low < high < full["error"]
    assert f"it would be about {low:.1%} to {high:.1%}." in more["sentence"]


def test_a_fit_on_half_of_the_labels_is_judged_on_the_other_half():
    clf, X, y, _ = moons()
    half = fit_on_half(clf, X, y)
    assert half.measures["n_labeled"] == 20
    assert half.measures["rows"] == 20
    assert half.measures["error"] == np.mean(half.estimator.predict(half.X) != half.y)
    assert np.isfinite(half.estimator.held_out_scores_).sum() == 20
    assert fit_on_half(clf, X, np.where(np.cumsum(y >= 0) <= 10, y, -1)) is None, "too few"


def test_columns_that_matter():
    clf, _, _, (X, y) = moons()
    table = column_importance(clf, X, y, ["across", "up"])
    assert set(table["column"]) == {"across", "up"}
    assert column_importance(clf, sparse.csr_array(X), y, ["across", "up"]) == table
    frame = pd.DataFrame(X, columns=["a", "b"])
    assert column_importance(clf, frame.set_axis([0, 1], axis=1), y, ["across", "up"]) == table
    together = column_importance(clf, X, y, ["place", "place"])
    assert together["column"] == ["place"], "features of one column are shuffled together"
    assert column_importance(clf, X, y, [f"column {k}" for k in range(101)]) is None

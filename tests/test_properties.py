"""Any rows, any labels, any classifier: a finite prediction, or a ValueError that says what to do. Nothing else.

Hypothesis draws whole problems: few rows, values that are missing, infinite, huge, tiny, equal; labels of any number of
classes and marks. How many problems are tried is told by the profile (`conftest.py`).
"""

import re
import warnings
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from s3vm import BatchSource, S3VMClassifier, S3VMClassifierCV
from s3vm.kernels import KERNELS
from s3vm.solvers import SOLVERS
from toy import VARIANTS, configured

SOLVER_VARIANTS = [*SOLVERS, "tsg, features"]
TINY = {
    "max_iter": 3,
    "batch_size": 8,
    "n_features": 8,
    "n_reference": 8,
    "max_features": 24,
    "look_ahead": 2,
    "rounds": 2,
    "block_size": 5,
}
ODD = [0.0, -0.0, 1.0, -1.0, 1e-30, 1e30, -1e30, 1e38, 5e-324, np.nan, np.inf, -np.inf]
ORDINARY = st.floats(-4, 4, width=32)
# What an error must speak of, so that it helps: the rows, the labels, or what else is at fault.
HELPFUL = re.compile(
    "NaN|infinit|missing|too large|standardise|scale|preprocessed|overflowed|0 sample|features, but|label|classes|"
    "ambiguous|is not valid|not a width"
)


@st.composite
def problems(draw, ordinary=False):
    """Rows and labels. Ordinary ones are finite and of two classes at least, so that training begins."""
    n, d = draw(st.integers(4 if ordinary else 1, 12)), draw(st.integers(1, 3))
    odd = st.sampled_from(ODD[:7] if ordinary else ODD)
    X = draw(arrays(np.float64, (n, d), elements=ORDINARY | odd if draw(st.booleans()) else ORDINARY))
    if draw(st.booleans()):
        X[draw(st.integers(0, n - 1))] = X[0]  # twice the same row
    y = draw(arrays(np.int64, n, elements=st.integers(-1, 2)))
    if ordinary:
        y[:3] = [0, 1, -1]
    return X, y


def outcome(do):
    """What comes of it: an array, or the words of a ValueError."""
    with warnings.catch_warnings(action="ignore"):
        try:
            return do()
        except ValueError as problem:
            return str(problem)


def check(clf, X, y, learn=None):
    """Learns and predicts: both are finite, or one of them says why not."""
    before = X.tobytes(), y.tobytes()

    def all_of_it():
        (learn or clf.fit)(X, y)
        return clf.predict(X), clf.predict_proba(X), clf.decision_function(X)

    found = outcome(all_of_it)
    assert (X.tobytes(), y.tobytes()) == before
    if isinstance(found, str):
        assert HELPFUL.search(found), found
        return
    predicted, shares, scores = found
    assert set(predicted) <= set(clf.classes_)
    assert -1 not in clf.classes_
    assert np.isfinite(shares).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
    assert np.isfinite(scores).all()


def make(variant="tsg", kind=S3VMClassifier, **settings):
    known = {setting.name for setting in fields(configured(variant))}
    tiny = {name: value for name, value in TINY.items() if name in known}
    return kind(configured(variant, **tiny), random_state=0, **settings)


LOSSES = {
    f"{variant}, {labeled} and {unlabeled}": (variant, labeled, unlabeled)
    for variant in SOLVER_VARIANTS
    for labeled, others in VARIANTS[variant][1]
    for unlabeled in others
}


@pytest.mark.parametrize("variant", SOLVER_VARIANTS)
@given(problem=problems(), kernel=st.sampled_from(list(KERNELS)), dtype=st.sampled_from(["float32", "float64"]))
def test_every_solver(variant, problem, kernel, dtype):
    check(make(variant, kernel=kernel, dtype=dtype), *problem)


@given(problem=problems(ordinary=True), losses=st.sampled_from(list(LOSSES)), kernel=st.sampled_from(list(KERNELS)))
def test_every_loss(problem, losses, kernel):
    variant, labeled, unlabeled = LOSSES[losses]
    check(make(variant, kernel=kernel, labeled_loss=labeled, loss=unlabeled), *problem)


@given(problem=problems(), gamma=st.sampled_from(["scale", "median"]), kernel=st.sampled_from(list(KERNELS)))
def test_the_tuned_classifier(problem, gamma, kernel):
    check(make(kind=S3VMClassifierCV, gamma=gamma, kernel=kernel, Cs=[1, 10], factors=[1.0]), *problem)


@given(
    problem=problems(ordinary=True),
    C=st.floats(0, 1e4, exclude_min=True) | st.sampled_from([1e-300, 1e300, np.inf]),  # between, it takes long
    gamma=st.floats(0, allow_nan=False, exclude_min=True),
    weight=st.floats(0, allow_nan=False) | st.sampled_from(["auto", "paper"]),
    kernel=st.sampled_from(list(KERNELS)),
)
def test_any_numbers_as_settings(problem, C, gamma, weight, kernel):
    check(make(C=C, gamma=gamma, unlabeled_weight=weight, kernel=kernel), *problem)


@pytest.mark.parametrize("variant", ["tsg", "printed_tsg", "frs", "incremental"])
@given(first=problems(ordinary=True), then=problems())
def test_partial_fit(variant, first, then):
    clf = make(variant)
    if isinstance(outcome(lambda: clf.partial_fit(*first)), str):
        return
    X, y = then
    scores = clf.decision_function(first[0][:1])
    check(clf, X, y, clf.partial_fit)
    if clf.n_features_in_ == first[0].shape[1]:
        assert np.isfinite(clf.decision_function(first[0][:1])).all()
    if X.shape[1] != first[0].shape[1]:  # refused, and nothing has changed
        np.testing.assert_array_equal(clf.decision_function(first[0][:1]), scores)


@given(problem=problems(), as_batches=st.booleans())
def test_rows_beside(problem, as_batches):
    """Labelled rows in an array, the others in a source or an array of their own."""
    X, y = problem
    clf = make("tsg, features")

    def learn(X, y):
        rest = X[y == -1]
        return clf.fit(X[y != -1], y[y != -1], X_unlabeled=BatchSource([rest], len(rest)) if as_batches else rest)

    found = outcome(lambda: learn(X, y).predict_proba(X))
    assert HELPFUL.search(found) if isinstance(found, str) else np.isfinite(found).all()


@given(problem=problems(ordinary=True), kernel=st.sampled_from(list(KERNELS)))
def test_sparse_rows_are_as_good(problem, kernel):
    X, y = problem
    dense, thin = make(kernel=kernel, gamma=0.5), make(kernel=kernel, gamma=0.5)
    one = outcome(lambda: dense.fit(X, y).decision_function(X))
    two = outcome(lambda: thin.fit(sparse.csr_array(X), y).decision_function(sparse.csr_array(X)))
    if np.abs(X).max() < 1e6:  # beyond, rounding decides which of them is refused
        assert isinstance(one, str) == isinstance(two, str)
    if np.abs(X).max() < 10:
        np.testing.assert_allclose(one, two, rtol=1e-2, atol=1e-2 * (1 + np.abs(one).max()))


@given(seen=problems(ordinary=True), asked=problems())
def test_predict(seen, asked):
    """Rows that were never seen."""
    clf = make()
    if isinstance(outcome(lambda: clf.fit(*seen)), str):
        return
    X, _ = asked
    found = outcome(lambda: clf.predict_proba(X))
    assert HELPFUL.search(found) if isinstance(found, str) else np.isfinite(found).all()

"""What scikit-learn asks of every classifier, with either mark of an unlabelled row."""

import inspect
import sys

import numpy as np
import pytest
from experiments.printed_tsg import PrintedTSG
from sklearn import config_context
from sklearn.datasets import make_moons
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from effort import LONG
from s3vm import TSG, S3VMClassifier, S3VMClassifierCV, TableEncoder

FEW = TSG(max_iter=20, batch_size=16)


def expected_failures(estimator):
    if estimator.unlabeled == -1:
        return {"check_classifiers_classes": "it trains on the labels -1 and 1, where -1 marks an unlabelled row"}
    return {}


@pytest.mark.filterwarnings("ignore:no unlabelled rows:UserWarning")
@pytest.mark.filterwarnings("ignore:(every )?class .*has a single labelled row:UserWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [
        S3VMClassifier(),
        S3VMClassifier(unlabeled=None),
        S3VMClassifier(PrintedTSG(), unlabeled=None),
        S3VMClassifier("incremental", unlabeled=None),
        S3VMClassifierCV(),
        *([S3VMClassifierCV(unlabeled=None)] if LONG else []),
    ],
    expected_failed_checks=expected_failures,
)
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([TableEncoder(), TableEncoder(scale="common")])
def test_transformer_checks(estimator, check):
    """Of arrays and data frames of numbers, which are all that scikit-learn's checks know."""
    check(estimator)


@pytest.mark.filterwarnings("ignore:no unlabelled rows:UserWarning")
@pytest.mark.filterwarnings("ignore:(every )?class .*has a single labelled row:UserWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [S3VMClassifier(FEW, unlabeled=None), *([S3VMClassifier(), S3VMClassifierCV()] if LONG else [])],
    expected_failed_checks=expected_failures,
)
def test_estimator_checks_with_metadata_routing(estimator, check):
    with config_context(enable_metadata_routing=True):
        check(estimator)


@pytest.mark.parametrize("solver", ["auto", "tsg"])
@pytest.mark.parametrize("kind", [S3VMClassifier, S3VMClassifierCV])
def test_no_estimator_of_scikit_learn_is_fitted_inside_a_fit(kind, solver):
    """Metadata routing would refuse it, and MLflow's autolog would record each as a run of its own."""
    fitted = set()

    def watch(frame, event, _):
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("sklearn.") and frame.f_code.co_name.startswith(("fit", "partial_fit")):
            fitted.add(f"{name}.{frame.f_code.co_qualname}")

    X, y = make_moons(160, noise=0.1, random_state=0)
    some = np.where(np.arange(160) < 60, y, -1)
    clf = kind(solver, random_state=0).fit(X, some)  # compiles, which would be slow while it is watched
    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        SVC().fit(X, y)
        assert fitted, "this is seen"
        fitted.clear()
        clf.fit(X, some).predict_proba(X)
    finally:
        sys.setprofile(before)
    assert fitted == set()


def test_inherited_settings_are_in_the_signature():
    own, inherited = (inspect.signature(kind).parameters for kind in (S3VMClassifierCV, S3VMClassifier))
    assert (
        set(own)
        == set(inherited) - {"C", "warm_start"} | {"Cs", "factors", "n_folds"}
        == set(S3VMClassifierCV().get_params(deep=False))
    )
    assert {name for name in set(own) & set(inherited) if own[name] != inherited[name]} == {
        "kernel",
        "gamma",
        "n_components",
    }
    for name in ("C", "warm_start", "settings"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            S3VMClassifierCV(**{name: 1})

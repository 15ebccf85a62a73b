"""The search over settings, and scikit-learn's own tools around the classifier, with -1 for unlabelled rows."""

import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_moons
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from s3vm import CCCP, RBF, TSG, HalvingSearchCV, LabeledKFold, S3VMClassifier
from s3vm.estimators.model_selection import _negative_brier, _shorter, _usual_of_good
from s3vm.solvers import solver
from toy import make_problem

FEW = TSG(max_iter=20, batch_size=16)


@pytest.fixture(scope="module")
def moons():
    X, y = make_moons(340, noise=0.1, random_state=3)
    return X, y, np.where(np.arange(340) < 40, y, -1)


def make(**settings):
    return S3VMClassifier(**{"solver": FEW, "unlabeled_weight": 1.0, "random_state": 0, **settings})


def search_for(*args, **settings):
    return HalvingSearchCV(*args, **{"min_unlabeled": 30, "random_state": 0, **settings})


class Recorder(S3VMClassifier):
    """Writes down what it is trained on."""

    fits: list = []  # noqa: RUF012

    def fit(self, X, y, sample_weight=None):
        Recorder.fits.append((self.C, X, y, self.solver.max_iter))
        return super().fit(X, y, sample_weight)


# The search


def test_stochastic_solvers_make_fewer_iterations_at_first():
    assert _shorter(TSG(max_iter=200), 0.125, 100).max_iter == 25
    assert _shorter(TSG(passes=2.0), 0.125, 100) == TSG(passes=2.0)
    assert _shorter("cccp", 0.125, 100) == CCCP()
    problem = make_problem(RBF(1.0), "exp")
    for name in ("tsg", "frs", "bgs"):
        few = _shorter(name, 1 / 8, problem.unlabelled.n_rows).iterations(problem)
        assert 0.75 <= few / np.ceil(solver(name).iterations(problem) / 8) <= 1


def test_fewer_candidates_see_more_unlabelled_rows_and_always_all_labelled_ones(moons):
    X, _, some = moons
    Recorder.fits.clear()
    Cs = [0.001, 0.01, 0.1, 1.0, 3.0, 10.0, 30.0]
    search = search_for(Recorder(FEW, unlabeled_weight=1.0), {"C": Cs}, cv=4).fit(X, some)
    assert search.n_candidates_ == [7, 3]
    assert search.n_unlabeled_ == [30, 300]
    *trials, last = Recorder.fits
    assert len(trials) == 4 * (7 + 3)
    for at, (_, _, y, n_iter) in enumerate(trials):
        assert np.sum(y == -1) == (30 if at < 28 else 300)
        assert np.sum(y != -1) == 30
        assert n_iter == (3 if at < 28 else 20)
    for fold in range(4):  # the folds are the same for every candidate, and each row is left out once
        parts = [y[y != -1] for _, _, y, _ in trials[fold::4]]
        assert all(np.array_equal(part, parts[0]) for part in parts)
    first, later = ({tuple(row) for row in rows[y == -1]} for _, rows, y, _ in (trials[0], trials[28]))
    assert first < later
    assert last[0] == search.best_params_["C"]
    np.testing.assert_array_equal(last[2], some)
    assert last[3] == 20


def test_it_tests_on_labelled_rows_only(moons):
    X, _, some = moons
    tested = []

    def score(fitted, X, y):
        tested.extend(y)
        return 0.0

    search_for(make(), {"C": [1.0]}, cv=KFold(3, shuffle=True, random_state=0), scoring=score, refit=False).fit(X, some)
    assert sorted(tested) == sorted(some[:40])
    with pytest.raises(ValueError, match="leaves no labelled row to test on"):
        search_for(make(), {"C": [1.0]}, cv=[(np.arange(300), np.arange(300, 340))]).fit(X, some)


def test_results_are_those_of_scikit_learn_in_the_last_round(moons):
    """With one round it is GridSearchCV, score for score."""
    X, _, some = moons
    cv, grid = LabeledKFold(3), [{"C": [0.01, 1.0, 10.0]}, {"gamma": [0.5]}]
    ours = search_for(make(), grid, cv=cv, scoring="accuracy", min_unlabeled=300).fit(X, some)
    theirs = GridSearchCV(make(), grid, cv=cv).fit(X, some)
    for name in ("params", "mean_test_score", "std_test_score", "split1_test_score"):
        np.testing.assert_array_equal(ours.cv_results_[name], theirs.cv_results_[name])
    for name in ("param_C", "param_gamma"):
        np.testing.assert_array_equal(ours.cv_results_[name].mask, theirs.cv_results_[name].mask)
    for name in ("mean_fit_time", "std_fit_time", "mean_score_time", "std_score_time"):
        assert np.all(ours.cv_results_[name] >= 0)
    best = theirs.cv_results_["mean_test_score"].max()
    assert ours.cv_results_["mean_test_score"][ours.cv_results_["rank_test_score"].argmin()] == best
    assert ours.best_score_ == ours.cv_results_["mean_test_score"][ours.best_index_]
    assert ours.score(X[:40], some[:40]) == ours.best_estimator_.score(X[:40], some[:40])


def test_it_finds_a_good_cell_in_a_pipeline_and_is_a_classifier(moons):
    X, y, some = moons
    X = X * [1.0, 1000.0]  # so that only the scaler before the classifier tells the widths
    pipeline = Pipeline([("scale", StandardScaler()), ("svm", make())])
    search = search_for(pipeline, factor=20, cv=2).fit(X, some)
    assert set(search.best_params_) == {"svm__C", "svm__gamma", "svm__unlabeled_weight"}
    assert search.n_candidates_ == [60, 3]
    gammas = np.unique(search.cv_results_["param_svm__gamma"].astype(float))
    np.testing.assert_allclose(gammas[1:] / gammas[:-1], 2, rtol=0.01)
    scaled = RBF("median").resolve(StandardScaler().fit_transform(X)).width
    np.testing.assert_allclose(gammas[1], scaled, rtol=1e-3)
    assert search.score(X[40:], y[40:]) > 0.93
    assert is_classifier(search)
    np.testing.assert_array_equal(search.classes_, [0, 1])
    assert search.n_features_in_ == 2
    assert np.all((search.decision_function(X) > 0) == (search.predict(X) == 1))
    assert search.predict_proba(X).shape == (340, 2)
    again = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(again.predict(X), search.predict(X))
    assert clone(search).get_params()["estimator__svm__random_state"] == 0


def test_the_same_seed_gives_the_same_search(moons):
    X, _, some = moons
    grid = {"C": [0.01, 1.0, 10.0, 100.0]}
    one, two, other = (
        search_for(make(), grid, random_state=seed, refit=False, cv=2, n_jobs=n_jobs).fit(X, some)
        for seed, n_jobs in ((1, 1), (1, 2), (2, 1))
    )
    one, two, other = (search.cv_results_["mean_test_score"] for search in (one, two, other))
    np.testing.assert_array_equal(one, two)
    assert np.any(one != other)


def test_rows_of_any_kind_and_missing_labels(moons):
    X, _, some = moons
    frame = pd.DataFrame(X, columns=["a", "b"])
    labels = np.where(some == -1, None, np.where(some == 1, "yes", "no"))
    search = search_for(make(unlabeled=None), {"C": [1.0, 10.0]}).fit(frame, labels)
    assert set(search.predict(frame)) == {"yes", "no"}
    numbers = search_for(make(), {"C": [1.0, 10.0]}).fit(X, some)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], numbers.cv_results_["mean_test_score"])


def test_three_classes():
    X = np.random.default_rng(0).normal(size=(240, 2)) + 4 * np.eye(3, 2)[np.arange(240) % 3]
    y = np.arange(240) % 3 + 5
    some = np.where(np.arange(240) < 30, y, -1)
    search = search_for(make(), {"C": [0.001, 1.0, 10.0, 100.0]}).fit(X, some)
    assert search.score(X, y) > 0.9
    assert -0.2 < search.best_score_ < 0


def test_a_configured_kernel_keeps_its_width(moons):
    X, _, some = moons
    search = search_for(make(kernel=RBF(2.0)), refit=False, cv=2).fit(X, some)
    assert set(search.best_params_) == {"C", "unlabeled_weight"}


def test_rows_of_classes_that_were_not_trained_on_score_the_worst():
    fitted = SimpleNamespace(classes_=np.array([0, 1]), decision_function=lambda X: X[:, 0])
    rows = np.array([[5.0], [-5.0]])
    assert _negative_brier(fitted, rows, np.array([2, 2])) == -1.0
    both = _negative_brier(fitted, rows, np.array([1, 2]))
    assert both == pytest.approx((_negative_brier(fitted, rows[:1], np.array([1])) - 1.0) / 2)


def test_noise_does_not_choose():
    """A usual candidate is taken if the best is ahead by less than half a standard error, fold by fold."""
    best, close, far = [0.9, 0.8, 0.9, 0.8], [0.8, 0.9, 0.8, 0.89], [0.85, 0.75, 0.85, 0.75]
    assert _usual_of_good(np.array([best, close, far]), np.array([2.0, 1.0, 0.0])) == 1
    assert _usual_of_good(np.array([best, best]), np.array([1.0, 1.0])) == 0
    assert _usual_of_good(np.array([[0.1], [0.2]]), np.array([0.0, 5.0])) == 1
    assert _usual_of_good(np.array([[np.nan, 0.9], [0.2, 0.1]]), np.array([0.0, 5.0])) == 1


def test_progress(moons, capsys):
    X, _, some = moons
    calls = []
    search = search_for(make(), {"C": [0.01, 1.0, 10.0, 100.0]}, refit=False)
    search.set_params(verbose=lambda *news: calls.append(news)).fit(X, some)
    assert [(done, total) for done, total, _ in calls] == [(n, 6) for n in range(1, 7)]
    assert [news["n_unlabeled"] for _, _, news in calls] == [30] * 4 + [300] * 2
    assert capsys.readouterr().err == ""
    search.set_params(verbose=1).fit(X, some)
    assert "done after 6 candidates" in capsys.readouterr().err


def test_what_is_wrong_is_said(moons):
    X, _, some = moons
    for estimator in (StandardScaler(), S3VMClassifier, "abc", make_pipeline(StandardScaler())):
        with pytest.raises(TypeError, match="is not valid: give an S3VMClassifier, or a Pipeline"):
            search_for(estimator).fit(X, some)
    with pytest.raises(ValueError, match="C=-1") as failed:
        search_for(make(), {"C": [-1]}).fit(X, some)
    assert "This was the candidate {'C': -1}" in failed.value.__notes__
    with pytest.raises(NotFittedError):
        check_is_fitted(search_for(make()))
    search = search_for(make(), {"C": [1.0]}, refit=False).fit(X, some)
    check_is_fitted(search)
    with pytest.raises(AttributeError, match="refit=False"):
        search.predict(X)


# scikit-learn's own tools


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

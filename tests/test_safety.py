"""Whether unlabelled rows are used when they help, left alone when they do not, and what is said about it."""

import re
import warnings

import numpy as np
import pytest
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from s3vm import RBF, TSG, S3VMClassifier, S3VMClassifierCV, load
from s3vm._utils.scores import brier_losses, predicted_codes
from s3vm.estimators import learning, tuning
from s3vm.estimators.folds import stratified_folds
from s3vm.estimators.representations import Grid, best_cell
from s3vm.estimators.safety import choose
from s3vm.kernels import Polynomial
from s3vm.training.loop import OutOfTime


def clusters(n_labeled=60, n=800, noise=0.0, seed=0):
    """Two clusters in ten dimensions that a few labels show badly and many rows show well."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 10)) + 0.9 * np.where(y[:, None] == 1, 1, -1) * np.r_[np.ones(3), np.zeros(7)]
    given = np.where(rng.random(n) < noise, rng.integers(0, 2, n), y)
    return X, y, np.where(np.arange(n) < n_labeled, given, -1)


def test_unlabeled_rows_that_help_are_used():
    X, y, some = clusters()
    clf = S3VMClassifier("tsg", random_state=0).fit(X, some)
    svc = SVC(C=clf.C_, gamma=clf.kernel_.width).fit(X[:60], y[:60])
    assert clf.safety_.weight in (0.3, 1.0)
    assert clf.score(X[60:], y[60:]) > svc.score(X[60:], y[60:]) + 0.02
    before, after = clf.safety_.scores[0.0], clf.safety_.scores[clf.safety_.weight]
    assert clf.safety_.outcome == "helped"
    change = f"lowered the cross-validated error from {before['error']:.1%} to {after['error']:.1%} and the Brier score"
    assert change in str(clf.safety_)
    assert set(clf.safety_.scores) == {0.0, 0.3, 1.0}
    for measures in clf.safety_.scores.values():
        assert set(measures) == {"brier", "error", "balanced_error", "average_precision", "z"}


def test_unlabeled_rows_that_do_not_help_are_left_alone():
    """Labels without any relation to the rows: the answer is the supervised one, to the last digit."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(600, 5)), rng.integers(0, 2, 600)
    some = np.where(np.arange(600) < 100, y, -1)
    left_alone = 0
    for seed in range(5):
        clf = S3VMClassifier("tsg", random_state=seed).fit(X, some)
        if clf.safety_.weight == 0:
            left_alone += 1
            assert "using the supervised solution" in clf.safety_.sentence
            alone = S3VMClassifier(random_state=seed, unlabeled_weight=0, gamma=clf.kernel_.width).fit(X, some)
            np.testing.assert_allclose(clf.decision_function(X), alone.decision_function(X), atol=1e-6)
    assert left_alone >= 3


def test_without_weight_it_is_svc():
    X, y, some = clusters(n_labeled=100)
    clf = S3VMClassifier(C=3.0, gamma=0.05, unlabeled_weight=0, random_state=0).fit(X, some)
    svc = SVC(C=3.0, gamma=0.05).fit(X[:100], y[:100])
    np.testing.assert_allclose(clf.decision_function(X), svc.decision_function(X), atol=5e-3)
    assert clf.safety_ is None


@pytest.mark.parametrize("n_labeled", [6, 20, 40])
def test_few_labels_are_said_to_be_few(n_labeled):
    X, _, some = clusters(n_labeled=n_labeled, seed=3)
    safety = S3VMClassifier(random_state=0).fit(X, some).safety_
    assert safety.uncertain == (n_labeled < 30)
    assert ("uncertain" in safety.sentence) == (n_labeled < 30)


def test_multiclass():
    X, y = make_blobs(900, centers=4, n_features=8, cluster_std=4.0, random_state=0)
    X = StandardScaler().fit_transform(X)
    some = np.where(np.arange(900) < 60, y, -1)
    clf = S3VMClassifier(random_state=0).fit(X, some)
    assert "average_precision" not in clf.safety_.scores[1.0]
    assert clf.score(X[60:], y[60:]) >= SVC(C=10).fit(X[:60], y[:60]).score(X[60:], y[60:]) - 0.01


def test_the_rule():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 200)
    poor = (2.0 * codes - 1 + 2 * rng.normal(size=200))[:, None]
    good = (2.0 * codes - 1 + 0.5 * rng.normal(size=200))[:, None]
    assert choose(codes, poor, {0.3: good, 1.0: poor}).weight == 0.3
    assert choose(codes, poor, {0.3: good, 1.0: good}).weight == 1.0, "the largest that passes"
    assert choose(codes, good, {0.3: poor, 1.0: poor}).weight == 0
    assert choose(codes, good, {0.3: good}).weight == 0, "no better is not enough"
    assert choose(codes, poor, {0.3: 1000 * poor}).weight == 0, "the scale of scores does not count"
    unknown = np.where(np.arange(200)[:, None] < 197, np.nan, poor)
    assert "too few" in choose(codes, unknown, {1.0: good}).sentence


@pytest.mark.parametrize(
    ("supervised", "outcome", "text"),
    [
        ([3, -1, 2, 2], "helped", "lowered the cross-validated error from 25.0% to 0.0% and the Brier score from"),
        ([0.1, 0.2, 3, 2], "helped the probabilities", r"score from .*, while the error stayed at 0.0%;"),
    ],
)
def test_sentence_and_outcome_agree_with_the_numbers(supervised, outcome, text):
    codes = np.tile([0, 0, 1, 1], 25)
    signs = np.where(codes, 1.0, -1.0)
    before, after = (signs * np.tile(sizes, 25) for sizes in (supervised, [2.0, 2.0, 2.0, 2.0]))
    safety = choose(codes, before[:, None], {1.0: after[:, None]})
    assert safety.weight == 1
    assert safety.outcome == outcome
    assert re.search(text, safety.sentence)
    assert choose(codes, after[:, None], {1.0: before[:, None]}).outcome == "did not help"
    assert choose(codes[:2], after[:2, None], {1.0: before[:2, None]}).outcome == "not used"


def test_an_error_that_rose_is_never_said_to_have_been_lowered():
    """The Brier score falls, since most rows are surer, but one more row in 25 is wrong, all of a rare class."""
    codes = np.tile(np.r_[np.zeros(22, int), 1, 1, 1], 8)
    signs = np.where(codes, 1.0, -1.0)
    before = signs * np.tile(np.r_[np.full(22, 0.4), 0.4, 0.4, 3.0], 8)
    after = signs * np.tile(np.r_[np.full(22, 2.0), -0.1, 2.0, 2.0], 8)
    safety = choose(codes, before[:, None], {1.0: after[:, None]})
    assert safety.weight == 1
    assert safety.outcome == "mixed"
    assert ", while the error rose from 0.0% to 4.0%, but the balanced error rose from 0.0% to 16.7%;" in str(safety)


def test_brier_losses():
    codes = np.array([0, 1, 1])
    scores = np.array([[-1.0], [1.0], [-1.0]])
    right, wrong = (1 - 1 / (1 + np.exp(-2))) ** 2, (1 / (1 + np.exp(-2))) ** 2
    np.testing.assert_allclose(brier_losses(codes, scores), [right, right, wrong])


def test_collapse_is_said():
    """A kernel so narrow that every new row gets the intercept's class."""
    X, y, _ = clusters(n_labeled=100)
    some = np.where((np.arange(len(y)) < 100) & ((y == 1) | (np.arange(len(y)) % 2 == 0)), y, -1)
    words = r"collapse: 0 of 500 unlabelled rows are predicted as 0, where .* were expected.*class_prior"
    with pytest.warns(UserWarning, match=words):
        S3VMClassifier(gamma=1e3, unlabeled_weight=0, probability=False, random_state=0).fit(X, some)


# Tuning


def test_tuning_finds_a_better_width():
    X, y = make_moons(700, noise=0.15, random_state=0)
    X = np.c_[X, np.random.default_rng(0).normal(size=(700, 1))]
    some = np.where(np.arange(700) < 100, y, -1)
    clf = S3VMClassifierCV(random_state=0).fit(X, some)
    assert clf.C_ in clf.Cs
    assert clf.cv_errors_.shape == (7, 6)
    assert clf.score(X[100:], y[100:]) > 0.93
    again = S3VMClassifierCV(random_state=0).fit(X, some)
    np.testing.assert_array_equal(again.decision_function(X), clf.decision_function(X))


def test_tuning_is_the_search_it_says_it_is():
    X, y, some = clusters(n_labeled=80)
    clf = S3VMClassifierCV(Cs=[1.0, 10.0], factors=[0.5, 2.0], unlabeled_weight=0, random_state=0).fit(X, some)
    assert clf.cv_errors_[clf.Cs.index(clf.C_)].min() == clf.cv_errors_.min()
    svc = SVC(C=clf.C_, gamma=clf.kernel_.width).fit(X[:80], y[:80])
    np.testing.assert_allclose(clf.decision_function(X), svc.decision_function(X), atol=5e-3)


def test_tuning_where_the_best_score_makes_many_errors(monkeypatch):
    """No cell is good by both measures: errors decide."""

    def upside_down(codes, scores):
        return np.full(len(codes), 1 - np.mean(predicted_codes(scores) != codes))

    monkeypatch.setattr("s3vm.estimators.tuning.brier_losses", upside_down)
    X, _, some = clusters(n_labeled=80)
    clf = S3VMClassifierCV(Cs=[1e-4, 10.0], factors=[1e-3, 2.0, 1e4], unlabeled_weight=0, random_state=0).fit(X, some)
    assert clf.cv_errors_.max() > clf.cv_errors_.min() + 0.2
    assert clf.cv_errors_[clf.Cs.index(clf.C_)].min() == clf.cv_errors_.min()


def test_with_few_labels_nothing_is_tuned():
    X, _, some = clusters(n_labeled=12)
    clf = S3VMClassifierCV(random_state=0).fit(X, some)
    assert clf.cv_errors_ is None
    assert clf.C_ == 30.0


@pytest.mark.parametrize("wrong", [{"Cs": [0.0]}, {"factors": [-1.0]}, {"n_folds": 1}])
def test_grids_are_checked(wrong):
    X, _, some = clusters()
    name = next(iter(wrong))
    with pytest.raises(ValueError, match=re.escape(name)):
        S3VMClassifierCV(**wrong).fit(X, some)


def test_order_and_copies_of_labeled_rows_do_not_matter():
    X, _, some = clusters()
    order = np.random.default_rng(0).permutation(60)
    shuffled = np.r_[order, np.arange(60, len(X))]
    first = S3VMClassifier(gamma=0.05, random_state=0).fit(X, some)
    second = S3VMClassifier(gamma=0.05, random_state=0).fit(X[shuffled], some[shuffled])
    np.testing.assert_allclose(first.decision_function(X), second.decision_function(X), rtol=1e-9, atol=1e-9)
    twice = np.r_[np.arange(60), np.arange(len(X))]
    weight = np.where(np.arange(len(X)) < 60, 2.0, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weighted = S3VMClassifier(gamma=0.05, random_state=0).fit(X, some, sample_weight=weight)
        copied = S3VMClassifier(gamma=0.05, random_state=0).fit(X[twice], some[twice])
    np.testing.assert_allclose(weighted.decision_function(X), copied.decision_function(X), rtol=1e-9, atol=1e-9)


def test_tuning_takes_a_usual_cell_among_those_that_are_as_good():
    """Luck of single rows does not move the choice; a cell that is really worse is never taken."""
    X, y = make_moons(120, noise=0.25, random_state=1)
    Cs, factors = [0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0], [0.001, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
    kernel = RBF("median").resolve(X)
    cell = best_cell(kernel, Grid(X, y, np.ones(len(y)), stratified_folds(y, 5, 0), Cs, factors))
    errors, chosen = cell.errors, cell.representation
    at = Cs.index(chosen.C), factors.index(chosen.kernel.width / kernel.width)
    assert errors[at] <= errors.min() + 2.5 / len(y)
    assert errors[:, 0].min() > errors.min() + 5 / len(y), "a width that is far too large is worse"
    assert at[1] > 0


@pytest.fixture(scope="module")
def ring():
    """Two rings, whose border is simple where they are labelled and whose clusters are narrow."""
    X, y = make_circles(300, noise=0.12, factor=0.5, random_state=3)
    some = np.full(len(y), -1)
    some[:60] = y[:60]
    return X, some


def test_the_width_is_chosen_with_unlabeled_rows_in_place(ring):
    clf = S3VMClassifierCV("tsg", kernel="rbf", random_state=0).fit(*ring)
    svm = S3VMClassifierCV(random_state=0, unlabeled_weight=0.0, gamma=clf.cv_gammas_[2]).fit(*ring)
    assert next(iter(clf.cv_briers_)) == svm.kernel_.width
    assert clf.cv_briers_[clf.kernel_.width] <= clf.cv_briers_[svm.kernel_.width]
    assert set(clf.cv_briers_) <= set(clf.cv_gammas_)
    assert all(0.49 < width / svm.kernel_.width < 2.01 for width in clf.cv_briers_)
    assert 1 < len(clf.cv_briers_) <= 3
    at = S3VMClassifier("tsg", C=clf.C_, gamma=clf.kernel_.width, random_state=0).fit(*ring)
    assert at.safety_.scores[at.safety_.weight]["brier"] == clf.cv_briers_[clf.kernel_.width]  # all rows are the sample


def test_another_width_must_be_clearly_better(ring, monkeypatch):
    """Whatever is asked for, it has to be met by the paired losses of the rows."""
    widths = {}
    for surely in (-1e9, 1e9):
        monkeypatch.setattr("s3vm.estimators.tuning._CLEARLY_BETTER_Z", surely)
        monkeypatch.setattr("s3vm.estimators.tuning.required_z", lambda n, surely=surely: surely)
        clf = S3VMClassifierCV("tsg", random_state=0).fit(*ring)
        widths[surely] = clf.kernel_.width
        svm = next(iter(clf.cv_briers_))
    assert widths[-1e9] == svm
    assert clf.cv_briers_[widths[1e9]] == min(clf.cv_briers_.values())


@pytest.mark.parametrize(
    "settings", [{"unlabeled_weight": 1.0}, {"solver": "cccp"}, {"factors": [1.0]}, {"solver": "auto"}]
)
def test_where_there_is_no_other_width_to_try(ring, settings):
    assert S3VMClassifierCV(**{"solver": "tsg", **settings}, random_state=0).fit(*ring).cv_briers_ is None


def test_without_unlabeled_rows_it_is_the_svm_at_its_own_width(ring, monkeypatch):
    """Whatever width the pilots took: the sentence and the model speak of the same SVM."""
    monkeypatch.setattr("s3vm.estimators.tuning.required_z", lambda n: 1e9)
    monkeypatch.setattr("s3vm.estimators.tuning._CLEARLY_BETTER_Z", 1e9)
    monkeypatch.setattr(learning, "choose_model", never(learning.choose_model))
    clf = S3VMClassifierCV("tsg", random_state=0).fit(*ring)
    svm = S3VMClassifierCV(random_state=0, unlabeled_weight=0.0, gamma=clf.cv_gammas_[2]).fit(*ring)
    assert min(clf.cv_briers_.values()) < clf.cv_briers_[svm.kernel_.width], "another width was taken"
    assert clf.safety_.weight == 0
    assert clf.kernel_ == svm.kernel_
    np.testing.assert_allclose(clf.decision_function(ring[0]), svm.decision_function(ring[0]), atol=1e-9)


def never(choice):
    """The choice of the whole fit, which never takes unlabelled rows; pilots may."""

    def made(*given):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("s3vm.estimators.safety._REQUIRED_Z", ((0, -1e9),))
            return choice(*given)

    return made


def test_pilots_see_the_weights_of_the_fit(ring, monkeypatch, tmp_path):
    """Rows that are given several times are one row of a larger weight, which must not change the classes' weights."""
    given = []
    run = tuning._pilot

    def pilot(settings, solver, data, *rest):
        given.append(dict(zip(data.classes[data.codes].tolist(), data.factor)))
        return run(settings, solver, data, *rest)

    monkeypatch.setattr(tuning, "_pilot", pilot)
    X, some = ring
    twice = np.r_[np.flatnonzero(some == 1).repeat(3), np.arange(len(X))]
    clf = S3VMClassifierCV("tsg", class_weight="balanced", Cs=[1, 10], random_state=0).fit(X[twice], some[twice])
    share = np.mean(some[twice][some[twice] >= 0])
    assert given
    for weights in given:
        assert weights == pytest.approx({0: 0.5 / (1 - share), 1: 0.5 / share})
    clf.save(tmp_path / "a.s3vm")
    assert load(tmp_path / "a.s3vm").cv_briers_ == clf.cv_briers_


def test_pilots_are_short(ring):
    clf = S3VMClassifierCV(TSG(max_iter=10**6), Cs=[1, 10], max_seconds=1e-3, random_state=0)
    with pytest.warns(OutOfTime):
        clf.fit(*ring)
    assert list(clf.cv_briers_) == [clf.kernel_.width], "the time was up after one"


def test_cells_of_the_grid_that_take_too_long_are_avoided(ring, monkeypatch):
    monkeypatch.setattr("s3vm.estimators.representations._MAX_STEPS", 60)
    clf = S3VMClassifierCV("tsg", random_state=0).fit(*ring)
    slow = clf.cv_errors_ == 1
    assert slow.any()
    assert not slow.all()
    row = list(clf.Cs).index(clf.C_)
    assert not slow[row, np.argmin(np.abs(clf.cv_gammas_ - clf.kernel_.width))]


def test_cells_that_are_not_finite_are_avoided():
    X, y = make_moons(120, random_state=0)
    kernel = Polynomial(degree=12, gamma=1.0)
    clf = S3VMClassifierCV(kernel=kernel, factors=[0.1, 1.0, 1e40], Cs=[1.0], unlabeled_weight=0.0, random_state=0)
    clf.fit(5 * X, np.where(np.arange(120) < 60, y, -1))
    assert clf.cv_errors_[0, 2] == 1
    assert clf.cv_errors_[0, :2].max() < 0.5


class Stopped(TSG):
    """Ctrl-C after three iterations."""

    def run(self, problem, backend, state=None):
        for now in super().run(problem, backend, state):
            yield now
            if now.iteration == 3:
                raise KeyboardInterrupt


def test_ctrl_c_while_widths_are_tried(ring, capsys):
    with pytest.raises(KeyboardInterrupt):
        S3VMClassifierCV(Stopped(), Cs=[1.0, 10.0], random_state=0, verbose=1).fit(*ring)
    assert capsys.readouterr().err.endswith("\n"), "the line is closed"
    S3VMClassifierCV("tsg", Cs=[1.0, 10.0], random_state=0, verbose=1).fit(*ring)
    assert "widths in" in capsys.readouterr().err


def test_a_width_that_cannot_be_trained_is_left_out(ring, monkeypatch):
    run, widths = tuning._pilot, []

    def fails_later(settings, solver, data, at_width, *rest):
        widths.append(at_width.supervised.kernel.width)
        if len(widths) == 2:
            raise ValueError("the coefficients overflowed")
        return run(settings, solver, data, at_width, *rest)

    monkeypatch.setattr(tuning, "_pilot", fails_later)
    clf = S3VMClassifierCV("tsg", Cs=[1.0, 10.0], random_state=0).fit(*ring)
    assert list(clf.cv_briers_) == [widths[0], *widths[2:]]


def test_a_first_width_that_cannot_be_trained_ends_the_fit(ring, monkeypatch):
    def fails(*rest):
        raise ValueError("the coefficients overflowed")

    monkeypatch.setattr(tuning, "_pilot", fails)
    with pytest.raises(ValueError, match="the coefficients overflowed"):
        S3VMClassifierCV("tsg", Cs=[1.0, 10.0], random_state=0).fit(*ring)

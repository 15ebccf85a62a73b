"""Incremental: exact after whatever has come and left, and no worse than CCCP; partial_fit on top of it."""

import copy
import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_wine, make_moons
from sklearn.preprocessing import StandardScaler

from s3vm import S3VMClassifier
from s3vm.backends import backend
from s3vm.kernels import RBF, Laplacian, Matern, Polynomial
from s3vm.losses import Hat, Hinge, Ramp
from s3vm.problem import Problem
from s3vm.solvers import CCCP, TSG, Incremental
from s3vm.solvers.incremental import active_set_path as path
from s3vm.solvers.incremental.active_set_path import ActiveSetPath
from s3vm.solvers.supervised import labeled_gram, supervised
from s3vm.sources import ArraySource
from toy import last

ENGINE = backend("cpu", "float64", cache_bytes=64 << 20)
PATH = Incremental(block_size=9, restart=np.inf)
KERNELS = [RBF(0.5), Laplacian(0.3), Matern(0.5), Polynomial(0.5, degree=2), Polynomial(0.5, degree=1, coef0=0.0)]


def gaussian(seed, n=140):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0.2, 1.0, -1.0)


def moons(seed, n=140):
    X, y = make_moons(n, noise=0.2, random_state=seed)
    return 2 * X, np.where(y > 0, 1.0, -1.0)


def cancer(seed, n=140):
    X, y = load_breast_cancer(return_X_y=True)
    chosen = np.random.default_rng(seed).permutation(len(y))[:n]
    return StandardScaler().fit_transform(X[chosen]) / np.sqrt(10), np.where(y[chosen] > 0, 1.0, -1.0)


SETS = {"gaussian": gaussian, "moons": moons, "cancer": cancer}


def make(X, y, labeled, unlabeled, kernel=None, loss=None, C=10.0, weight=1.0, columns=1):
    """A problem with some of the rows labelled and some not; column k has its costs times k + 1."""
    targets = np.tile(y[labeled][:, None], columns)
    costs = C * np.tile(np.arange(1.0, columns + 1), (len(targets), 1))
    return Problem(
        labeled=X[labeled],
        targets=targets,
        costs=costs,
        unlabeled=ArraySource(X, np.asarray(unlabeled), X.dtype) if len(unlabeled) else None,
        unlabeled_cost=weight * costs.sum(axis=0),
        prior=(targets > 0).mean(axis=0),
        prior_is_known=False,
        kernel=kernel or RBF(0.5),
        labeled_loss=Hinge(),
        unlabeled_loss=loss or Ramp(),
        seed=0,
        n_models=1,
    )


def violation(problem, state, k=0):
    """By how much the conditions of CCCP's convex problem are missed, in units of f, and the balance.

    It is written down with two copies of an unlabelled row, as Collobert et al. have it, and with the beta that f asks
    for: a labelled row is in [0, yC], copies of an unlabelled one are in y [-beta, C* - beta].
    """
    column, n_l = state.columns[k], problem.n_labeled
    rows = problem.all_rows().astype(np.float64)
    f = problem.kernel.gram(rows, rows) @ column.weights + column.intercept
    np.testing.assert_allclose(column.scores, f, rtol=0, atol=1e-5 * max(1.0, np.abs(f).max()))
    n_u = len(f) - n_l
    a, lift = column.resume_state.point.a, column.resume_state.point.lift
    np.testing.assert_allclose(column.weights[:n_l], a[:n_l])
    np.testing.assert_allclose(column.weights[n_l:], a[n_l:] + lift / n_u)
    norm = column.weights @ (f - column.intercept)
    np.testing.assert_allclose(column.objective, problem.objective(k, norm, f[:n_l], f[n_l:]), rtol=1e-6, atol=1e-3)

    cost, s = problem.unlabeled_cost[k] / n_u, getattr(problem.unlabeled_loss, "s", 0.0)
    f_u, beta_up, beta_down = f[n_l:], cost * (f[n_l:] < s), cost * (-f[n_l:] < s)
    # One copy is at an end of its box, unless |f| = 1: the other then has the rest of the sum.
    up = np.where(f_u < 0, cost - beta_up, a[n_l:] + cost - beta_down)
    down = a[n_l:] - up
    y, c = problem.targets[:, k], problem.costs[:, k]
    variables = [
        (a[:n_l], y, f[:n_l], np.minimum(0, y * c), np.maximum(0, y * c)),
        (up, 1.0, f_u, -beta_up, cost - beta_up),
        (down, -1.0, f_u, beta_down - cost, beta_down),
    ]
    worst = [abs(f_u.mean() - column.resume_state.target), abs(a.sum() + lift) / np.abs(a).max()]
    for value, z, at, low, high in variables:
        rounding = 1e-8 * (high - low)
        assert np.all((value >= low - rounding) & (value <= high + rounding))
        worst.append(np.max((z - at) * (value < high - rounding)))
        worst.append(np.max((at - z) * (value > low + rounding)))
    return max(worst)


def stream(solver, X, y, seed, size, **settings):
    """The problem and the state after rows, labelled or not, have come and left at random, `size` at a time."""
    rng = np.random.default_rng(seed)
    labeled, unlabeled, fresh = list(range(16)), list(range(24, 84)), list(range(84, len(X)))
    more = list(range(16, 24))
    labeled[:2] = [int(np.argmax(y > 0)), int(np.argmax(y < 0))]
    problem = make(X, y, labeled, unlabeled, **settings)
    state = last(solver.run(problem, ENGINE))
    assert violation(problem, state) < 1e-5
    for what in rng.permutation(["more", "less", "label", "unlabel"] * 4):
        if what == "more":
            unlabeled, fresh = unlabeled + fresh[:size], fresh[size:]
        elif what == "less":
            unlabeled = list(np.delete(unlabeled, rng.choice(len(unlabeled), size, replace=False)))
        elif what == "label" and more:
            labeled = [*labeled, more.pop()]
        else:
            labeled.pop(int(rng.integers(2, len(labeled))))
        problem = make(X, y, labeled, unlabeled, **settings)
        state = last(solver.run(problem, ENGINE, state))
        assert violation(problem, state) < 1e-5
    return problem, state


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", SETS)
def test_exact_after_rows_came_and_left(name, seed, size):
    X, y = SETS[name](seed)
    for C, weight in ((1.0, 1.0), (10.0, 0.3), (10.0, 1.0)):
        stream(PATH, X, y, seed, size, C=C, weight=weight)


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.long), 7])
@pytest.mark.parametrize("name", SETS)
def test_no_worse_than_cccp(name, size):
    """With restart=0 in every run, and with the default in nearly all."""
    off = []
    for seed in range(4):
        X, y = SETS[name](seed)
        for C, weight in ((1.0, 1.0), (10.0, 0.3), (10.0, 1.0)):
            for restart, most in ((0.0, 1e-3), (Incremental().restart, np.inf)):
                problem, state = stream(Incremental(restart=restart), X, y, seed, size, C=C, weight=weight)
                whole = last(CCCP().run(problem, ENGINE))
                excess = state.columns[0].objective / whole.columns[0].objective - 1
                assert excess < most
            off.append(excess)
    assert np.mean(np.array(off) > 0.01) <= 0.1


@pytest.mark.parametrize("loss", [Ramp(), Ramp(-0.8), Hat()], ids=repr)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_kernels_and_losses(kernel, loss):
    X, y = gaussian(0)
    stream(PATH, X, y, 0, 5, kernel=kernel, loss=loss)


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize(
    "change",
    {
        "copies": lambda X: X[np.arange(len(X)) // 2],
        "labelled rows are unlabelled too": lambda X: np.concatenate([X[:24], X[:24], X[:24], X[72:]]),
        "few values": lambda X: np.round(X),
        "constant": np.ones_like,
        "one row apart": lambda X: np.eye(len(X))[:, :1] * 3,
    }.values(),
)
def test_rows_that_are_hard_to_tell_apart(change, C):
    X, y = gaussian(0)
    for weight in (0.1, 1.0):
        stream(PATH, change(X), y, 0, 5, C=C, weight=weight)


@pytest.mark.parametrize("n_unlabeled", [0, 1, 2])
def test_few_unlabeled_rows(n_unlabeled):
    X, y = gaussian(0)
    labeled = list(range(12))
    some = make(X, y, labeled, list(range(20, 20 + n_unlabeled)))
    many = make(X, y, labeled, list(range(20, 60)))
    first = last(Incremental().run(some, ENGINE))
    for problem, state in ((some, first), (many, last(Incremental().run(many, ENGINE, first)))):
        if problem.n_rows > 12:
            assert violation(problem, state) < 1e-5
    back = last(Incremental().run(some, ENGINE, last(Incremental().run(many, ENGINE))))
    if n_unlabeled:
        assert violation(some, back) < 1e-5
    else:
        np.testing.assert_allclose(back.columns[0].scores, first.columns[0].scores, atol=1e-9)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_a_column_of_one_sign(weight):
    X, y = gaussian(0)
    positive = list(np.flatnonzero(y > 0)[:6])
    problem = make(X, y, positive, list(range(60, 90)), weight=weight)
    assert np.all(last(Incremental().run(problem, ENGINE)).columns[0].scores[:6] > 0)


def test_supervised_without_a_weight():
    X, y = gaussian(0)
    problem = make(X, y, list(range(20)), list(range(30, 60)), weight=0.0)
    dual, intercept = supervised(labeled_gram(problem.kernel, problem.labeled), problem.targets, problem.costs)
    state = last(Incremental().run(problem, ENGINE))
    np.testing.assert_allclose(state.columns[0].weights[:20], dual[:, 0], rtol=1e-12)
    assert state.columns[0].intercept == pytest.approx(intercept[0], rel=1e-12)
    alone = make(X, y, list(range(20)), [], weight=0.0)
    np.testing.assert_allclose(last(Incremental().run(alone, ENGINE)).columns[0].weights, dual[:, 0], rtol=1e-12)


def test_costs_labels_and_weights_change():
    """The rows stay, and everything else is another: the same as if it had always been so, or another exact one."""
    X, y = gaussian(1)
    rows = list(range(20)), list(range(20, 80))
    problem = make(X, y, *rows)
    state = last(PATH.run(problem, ENGINE))
    assert list(PATH.run(problem, ENGINE, state)) == []
    flipped = make(X, np.where(np.arange(len(y)) == 5, -y, y), *rows)
    for changed in (make(X, y, *rows, C=1.0), make(X, y, *rows, weight=0.2), flipped, make(X, y, *rows, weight=0.0)):
        after = last(PATH.run(changed, ENGINE, state))
        if changed.uses_unlabeled:
            assert violation(changed, after) < 1e-5
        again = last(PATH.run(problem, ENGINE, after))
        assert violation(problem, again) < 1e-5


def test_columns_come_and_leave():
    X, y = gaussian(0)
    rows = list(range(20)), list(range(20, 60))
    for before, after in ((1, 3), (3, 2)):
        state = last(PATH.run(make(X, y, *rows, columns=before), ENGINE))
        problem = make(X, y, rows[0], rows[1] + [70, 71], columns=after)
        state = last(PATH.run(problem, ENGINE, state))
        assert len(state.columns) == after
        assert max(violation(problem, state, k) for k in range(after)) < 1e-5


def test_rows_in_another_order_are_the_same_rows():
    X, y = moons(0)
    problem = make(X, y, list(range(20)), list(range(20, 80)))
    state = last(PATH.run(problem, ENGINE))
    turned = make(X, y, list(range(20))[::-1], list(range(20, 80))[::-1])
    states = list(PATH.run(turned, ENGINE, state))
    assert len(states) == 1
    expected = np.concatenate([state.columns[0].scores[:20][::-1], state.columns[0].scores[20:][::-1]])
    np.testing.assert_allclose(states[0].columns[0].scores, expected, atol=1e-5)


def test_sparse_rows():
    X, y = gaussian(0)
    X[np.abs(X) < 0.5] = 0
    problem = make(sparse.csr_array(X), y, list(range(20)), list(range(20, 60)))
    state = last(PATH.run(problem, ENGINE))
    more = make(sparse.csr_array(X), y, list(range(1, 22)), list(range(25, 70)))
    state = last(PATH.run(more, ENGINE, state))
    assert violation(more, state) < 1e-5


def test_a_lost_path_ends_in_cccp(monkeypatch):
    X, y = moons(0)
    problem = make(X, y, list(range(20)), list(range(20, 80)))
    monkeypatch.setattr(ActiveSetPath, "settle", lambda self: False)
    state = last(PATH.run(problem, ENGINE))
    whole = last(CCCP().run(problem, ENGINE)).columns[0]
    np.testing.assert_allclose(state.columns[0].scores, whole.scores, atol=1e-6)
    monkeypatch.undo()
    more = make(X, y, list(range(20)), list(range(20, 90)))
    assert violation(more, last(PATH.run(more, ENGINE, state))) < 1e-5


def test_rounding_that_matters_is_noticed():
    """A kernel of values up to 1e12 and costs of 100: f is not what the path takes it to be, and CCCP takes over."""
    X, y = gaussian(0)
    problem = make(30 * X, y, list(range(20)), list(range(20, 80)), kernel=Polynomial(1.0, degree=3), C=100.0)
    state = None
    for n_unlabeled in (40, 50, 60):
        problem = replace(problem, unlabeled=ArraySource(30 * X, np.arange(20, 20 + n_unlabeled), X.dtype))
        state = last(PATH.run(problem, ENGINE, state))
        assert violation(problem, state) < 1e-3


def path_of(problem):
    """A path on which no unlabelled row has set out yet, and the settings it was made with."""
    rows, n_l = problem.all_rows(), problem.n_labeled
    gram, n = problem.kernel.gram(rows, rows), problem.n_rows
    share = np.where(np.arange(n) < n_l, 0.0, 1 / (n - n_l))
    label = np.append(problem.targets[:, 0], np.zeros(n - n_l))
    cap = np.append(problem.costs[:, 0], np.full(n - n_l, problem.unlabeled_cost[0] / (n - n_l)))
    start = path.Point(np.zeros(n), np.zeros(n), np.full(n, path.AWAY), np.zeros(n), 0.0, 0.0)
    boxes = gram, label, share, gram @ share, cap, 0.0, -0.2
    return boxes, ActiveSetPath(*boxes, start)


def test_a_path_in_small(monkeypatch):
    """Room on the margin is made as it is needed; a start on the margin may lie outside its box, or be hard to factor;
    and patience has an end."""
    X, y = moons(0)
    boxes, whole = path_of(make(X, y, list(range(6)), list(range(6, 20)), C=1.0))
    assert whole.settle()
    assert whole.holds()
    end = whole.point
    n_margin = np.count_nonzero(end.place == path.MARGIN)
    assert n_margin > 3
    monkeypatch.setattr(path, "_ROOM", 1)
    _, narrow = path_of(make(X, y, list(range(6)), list(range(6, 20)), C=1.0))
    assert narrow.settle()
    np.testing.assert_allclose(narrow.point.a, end.a, atol=1e-9)

    def again(point=end, **changes):
        found = ActiveSetPath(*boxes[:4], changes.get("cap", boxes[4]), *boxes[5:], point)
        assert found.settle()
        return found.point

    def refuse(matrix):
        raise np.linalg.LinAlgError

    np.testing.assert_allclose(again().a, end.a, atol=1e-9)
    with monkeypatch.context() as patch:
        patch.setattr(np.linalg, "cholesky", refuse)
        np.testing.assert_allclose(again().a, end.a, atol=1e-9)
    smaller = again(cap=boxes[4] / 4)
    assert np.all(np.abs(smaller.a) <= boxes[4] / 4 + 1e-9)
    np.testing.assert_allclose(again(smaller).a.sum(), -again(smaller).lift, atol=1e-9)
    monkeypatch.setattr(path, "_PATIENCE", (0, 0))
    _, hasty = path_of(make(X, y, list(range(6)), list(range(6, 20)), C=1.0))
    assert not hasty.settle()


def test_rows_that_left_leave_the_matrix():
    X, y = gaussian(0)
    labeled, state = list(range(20)), None
    for first in range(20, 80):
        problem = make(X, y, labeled, list(range(first, first + 40)))
        state = last(PATH.run(problem, ENGINE, state))
        assert state.columns[0].resume_state.carryover.matrix.n <= 1.25 * 60 + 2
    assert violation(problem, state) < 1e-5


def test_two_runs_go_on_from_one_state():
    X, y = moons(0)
    labeled = list(range(20))
    state = last(PATH.run(make(X, y, labeled, list(range(20, 80))), ENGINE))
    one, other = make(X, y, labeled, list(range(20, 90))), make(X, y, labeled, list(range(30, 95)))
    first = last(PATH.run(one, ENGINE, state))
    second = last(PATH.run(other, ENGINE, state))
    assert max(violation(one, first), violation(other, second)) < 1e-5
    again = last(PATH.run(one, ENGINE, state))
    np.testing.assert_allclose(again.columns[0].scores, first.columns[0].scores, atol=1e-9)


def test_a_state_without_its_matrix_goes_on():
    X, y = moons(0)
    state = last(PATH.run(make(X, y, list(range(20)), list(range(20, 80))), ENGINE))
    loaded = pickle.loads(pickle.dumps(state))
    assert loaded.columns[0].resume_state.carryover.matrix is None
    more = make(X, y, list(range(20)), list(range(20, 90)))
    expected, found = (last(PATH.run(more, ENGINE, one)).columns[0].scores for one in (state, loaded))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_what_it_cannot_go_on_from():
    X, y = moons(0)
    problem = make(X, y, list(range(20)), list(range(20, 80)))
    with pytest.raises(ValueError, match="another solver"):
        list(Incremental().run(problem, ENGINE, last(CCCP().run(problem, ENGINE))))
    with pytest.raises(ValueError, match="same kernel"):
        list(Incremental().run(replace(problem, kernel=RBF(2.0)), ENGINE, last(Incremental().run(problem, ENGINE))))
    with pytest.raises(ValueError, match="not finite"):
        list(Incremental().run(make(1e200 * X, y, [0, 1], [2, 3], kernel=Polynomial(1.0)), ENGINE))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"block_size": 0}, "block_size"),
        ({"block_size": 1.5}, "block_size"),
        ({"restart": -1}, "restart"),
        ({"restart": np.nan}, "restart"),
        ({"balance": None}, "balance"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Incremental(**settings)


def test_memory_is_foreseen():
    X, y = gaussian(0, 900)
    problem = make(X, y, list(range(100)), list(range(100, 900)), columns=2)
    foreseen = Incremental().memory(problem, ENGINE)
    last(Incremental().run(problem, ENGINE))
    tracemalloc.start()
    last(Incremental().run(problem, ENGINE))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak / 1.5 < foreseen < 1.5 * peak


# The estimator.

FITTED = {"unlabeled_weight": 1.0, "random_state": 0, "gamma": 1.0}


@pytest.fixture
def halves():
    X, y = make_moons(240, noise=0.15, random_state=0)
    some = y.copy()
    some[20:120] = some[130:] = -1
    return X, y, some


def test_rows_come_one_call_after_the_other(halves):
    X, y, some = halves
    clf = S3VMClassifier("incremental", **FITTED)
    for part in (slice(0, 100), slice(100, 125), slice(125, 126), slice(126, 240)):
        assert clf.partial_fit(X[part], some[part]) is clf
    whole = S3VMClassifier("incremental", **FITTED).fit(X, some)
    assert np.mean(clf.predict(X) == whole.predict(X)) > 0.97
    assert np.mean(clf.predict(X) == y) > 0.9
    np.testing.assert_array_equal(clf.transduction_[some != -1], y[some != -1])
    assert len(clf.transduction_) == 240
    assert len(clf.history_["objective"]) == clf.n_iter_
    assert clf.predict_proba(X).shape == (240, 2)


def test_rows_are_forgotten(halves):
    X, _, some = halves
    clf = S3VMClassifier("incremental", **FITTED).partial_fit(X[:150], some[:150])
    alone = copy.deepcopy(clf)
    clf.partial_fit(X[150:], some[150:]).forget(np.arange(150, 240))
    assert len(clf.transduction_) == 150
    assert np.mean(clf.predict(X) == alone.predict(X)) > 0.97
    with pytest.raises(ValueError, match="class"):
        clf.forget(np.flatnonzero(some[:150] == 1))


@pytest.mark.parametrize("rows", [[], (), np.array([], int)], ids=repr)
def test_nothing_is_forgotten(halves, rows):
    X, _, some = halves
    clf = S3VMClassifier("incremental", **FITTED).partial_fit(X[:150], some[:150])
    before = clf.decision_function(X)
    np.testing.assert_array_equal(clf.forget(rows).decision_function(X), before)
    assert len(clf.transduction_) == 150


def test_partial_fit_after_fit_and_after_a_copy(halves):
    X, _, some = halves
    clf = S3VMClassifier("incremental", **FITTED).fit(X[:150], some[:150])
    clf.partial_fit(X[150:200], some[150:200])
    loaded = pickle.loads(pickle.dumps(clf))
    for one in (clf, loaded):
        one.partial_fit(X[200:], some[200:])
    np.testing.assert_allclose(loaded.decision_function(X), clf.decision_function(X), atol=1e-4)
    assert len(loaded.transduction_) == 240
    fitted = pickle.loads(pickle.dumps(S3VMClassifier("incremental", **FITTED).fit(X[:200], some[:200])))
    width = fitted.kernel_.gamma
    assert len(fitted.partial_fit(X[200:], some[200:]).transduction_) == 240
    assert fitted.kernel_.gamma == width


def test_warm_start_with_other_rows(halves):
    X, _, some = halves
    clf = S3VMClassifier("incremental", warm_start=True, **FITTED).fit(X[:200], some[:200])
    n_iter = clf.n_iter_
    clf.fit(X[5:], some[5:])
    assert clf.n_iter_ > n_iter
    assert np.mean(clf.predict(X) == S3VMClassifier("incremental", **FITTED).fit(X[5:], some[5:]).predict(X)) > 0.97


def test_what_partial_fit_refuses(halves):
    X, _, some = halves
    assert not hasattr(S3VMClassifier(CCCP()), "partial_fit")
    assert not hasattr(S3VMClassifier(TSG()), "forget")
    assert not hasattr(S3VMClassifier("cccp"), "forget")
    with pytest.raises(AttributeError, match="partial_fit") as refused:
        S3VMClassifier("cccp").partial_fit(X, some)
    assert "incremental" in str(refused.value.__cause__)
    clf = S3VMClassifier("incremental", **FITTED)
    with pytest.raises(ValueError, match=r"the rows also have \[1\]"):
        clf.partial_fit(X, some, classes=[0, 2])
    clf.partial_fit(X[:150], some[:150], classes=[1, 0])
    with pytest.raises(ValueError, match="same classes"):
        clf.partial_fit(X[:2], [7, -1])
    with pytest.raises(ValueError, match="features"):
        clf.partial_fit(X[:, :1], some)
    with pytest.raises(ValueError, match="inconsistent"):
        clf.partial_fit(X[:3], some[:2])
    with pytest.raises(ValueError, match="same solver, kernel"):
        copy.deepcopy(clf).set_params(C=3.0).partial_fit(X[150:], some[150:])
    changed = X.copy()
    fitted = S3VMClassifier("incremental", **FITTED).fit(changed, some)
    changed[0] += 1
    with pytest.raises(ValueError, match="changed"):
        fitted.partial_fit(X, some)


def test_text_labels_weights_and_sparse_rows(halves):
    X, y, some = halves
    names = np.where(some < 0, "?", np.where(some > 0, "yes", "no"))
    clf = S3VMClassifier("incremental", unlabeled="?", **FITTED)
    clf.partial_fit(sparse.csr_array(X[:125]), names[:125], sample_weight=np.ones(125))
    clf.partial_fit(X[125:], names[125:].tolist())
    assert clf.classes_.tolist() == ["no", "yes"]
    assert np.mean((clf.predict(X) == "yes") == y) > 0.9


def test_three_classes_and_the_weight_by_itself():
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = StandardScaler().fit_transform(X)[order], y[order]
    some = np.where(np.arange(len(y)) % 4 == 0, y, -1)
    clf = S3VMClassifier("incremental", random_state=0)
    for part in np.array_split(np.arange(len(y)), 3):
        clf.partial_fit(X[part], some[part])
    assert clf.safety_ is not None
    assert np.mean(clf.predict(X) == y) > 0.95


def test_moons_with_defaults():
    X, y = make_moons(300, noise=0.1, random_state=0)
    some = y.copy()
    some[40:] = -1
    clf = S3VMClassifier("incremental", random_state=0).fit(X, some)
    assert np.mean(clf.predict(X) == y) > 0.95
    whole = S3VMClassifier("cccp", random_state=0).fit(X, some)
    assert clf.history_["objective"][-1] <= 1.001 * whole.history_["objective"][-1]

"""TSG against the literal Algorithm 1, and what its options do."""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from experiments import printed_tsg
from experiments.printed_tsg import PrintedTSG
from scipy import sparse
from sklearn.svm import SVC

import literal
from effort import pairwise
from s3vm.backends import backend
from s3vm.kernels import RBF
from s3vm.losses import UNLABELED_LOSSES, SmoothHinge, SquaredHinge
from s3vm.solvers import TSG, Constant, Decaying, Theorem, supervised
from s3vm.solvers.balance import means_to_hold
from s3vm.solvers.steps import step
from s3vm.solvers.tsg import batch_gradient
from s3vm.sources import ArraySource
from toy import BACKENDS_HERE, BALANCED, BATCH, KERNELS, TOLERANCE, M, T, configured, last, make_problem, rows


@cache
def literal_coefficients(kernel, loss, n_labeled=6, draw_labeled=True, slope=literal.hinge):
    X, y = rows(n_labeled)
    labeled = [(tuple(x), target) for x, target in zip(X[:n_labeled].tolist(), y.tolist())]
    unlabeled = [tuple(x) for x in X[n_labeled:].tolist()]
    alphas = literal.train(
        labeled,
        unlabeled,
        T=T,
        m=M,
        batch=BATCH,
        gamma=lambda i: 1 / (2 + i),
        C=12.0,
        C_star=5.0,
        kernel=kernel,
        loss=loss,
        seed=5,
        draw_labeled=draw_labeled,
        slope=slope,
    )
    x = X[-1].tolist()
    return np.array(alphas), literal.predict(x, alphas, kernel, 5, M)


PRINTED = PrintedTSG(max_iter=T, n_features=M, batch_size=BATCH, step=Decaying(t0=1))


@pytest.mark.parametrize(
    ("kernel", "loss", "engine"),
    pairwise(product(KERNELS, UNLABELED_LOSSES, product(BACKENDS_HERE, ("float32", "float64")))),
    ids=str,
)
def test_equals_the_literal_algorithm(kernel, loss, engine):
    name, dtype = engine
    expected, score = literal_coefficients(kernel, loss)
    engine = backend(name, dtype)
    model = last(PRINTED.run(make_problem(KERNELS[kernel], loss, dtype), engine)).model()
    size = np.abs(expected).max()
    np.testing.assert_allclose(model.coefficients[:, :, 0] / size, expected / size, rtol=0, atol=TOLERANCE[dtype])
    X, _ = rows()
    # Algorithm 2.
    assert model.decision(X[-1:].astype(dtype), engine)[0, 0] == pytest.approx(score, rel=TOLERANCE[dtype])


@pytest.mark.parametrize("draw_labeled", [False, True])
@pytest.mark.parametrize("n_labeled", [6, BATCH, BATCH + 1, 20])
@pytest.mark.parametrize("look_ahead", [1, 16])
def test_equals_the_literal_algorithm_however_labeled_rows_come(n_labeled, look_ahead, draw_labeled):
    """All of them, drawn from those that stay in the pool, or (`look_ahead=1`, many of them) drawn into it."""
    expected, _ = literal_coefficients(("rbf", 0.7), "hat", n_labeled, draw_labeled)
    solver = replace(PRINTED, look_ahead=look_ahead, draw_labeled=draw_labeled)
    problem = make_problem(RBF(0.7, features="phase"), "hat", n_labeled=n_labeled)
    model = last(solver.run(problem, backend("cpu", "float64"))).model()
    np.testing.assert_allclose(model.coefficients[:, :, 0], expected, rtol=1e-10, atol=1e-13)


def test_equals_the_literal_algorithm_with_squared_hinge():
    expected, _ = literal_coefficients(("rbf", 0.7), "squared_hat", slope=literal.squared_hinge)
    problem = make_problem(RBF(0.7, features="phase"), "squared_hat", labeled_loss=SquaredHinge())
    model = last(PRINTED.run(problem, backend("cpu", "float64"))).model()
    size = np.abs(expected).max()
    np.testing.assert_allclose(model.coefficients[:, :, 0] / size, expected / size, rtol=0, atol=1e-10)


@pytest.mark.parametrize("stop", [3, 18])
def test_going_on_with_other_settings(stop):
    """A state may be carried on by a longer run, or with other batches: nothing of the old run's rows is taken over."""
    engine = backend("cpu", "float64")
    problem = make_problem(RBF(0.7), "hat")
    state = list(configured("printed_tsg, balanced").run(problem, engine))[stop - 1]
    for changed in ({"max_iter": 40}, {"batch_size": 5}):
        other = configured("printed_tsg, balanced", **changed)
        carried = last(other.run(problem, engine, state)).model()
        restarted = last(other.run(problem, engine, state.detached())).model()
        np.testing.assert_array_equal(carried.coefficients, restarted.coefficients)
    assert list(configured("printed_tsg, balanced", max_iter=stop - 1).run(problem, engine, state)) == []


@pytest.mark.parametrize("variant", ["tsg", "tsg, features"])
def test_an_anchored_run_goes_on_longer(variant):
    engine = backend("cpu", "float64")
    problem = make_problem(RBF(0.7), "exp")
    state = last(configured(variant, max_iter=15).run(problem, engine))
    for changed in ({"max_iter": 100}, {"batch_size": 3}):
        model = last(configured(variant, **changed).run(problem, engine, state)).model()
        assert np.isfinite(model.decision(rows()[0], engine)).all()
    other = replace(problem, labeled=-problem.labeled)
    for wrong in (other, replace(problem, costs=2 * problem.costs)):
        with pytest.raises(ValueError, match="same rows and costs"):
            last(configured(variant).run(wrong, engine, state))
    with pytest.raises(ValueError, match="another algorithm"):
        last(PRINTED.run(problem, engine, state))


def test_the_supervised_solution_is_that_of_svc():
    X, y = rows(20)
    problem = make_problem(RBF(0.7), "hat", n_labeled=20, C=40.0, C_star=0.0)
    states = list(TSG().run(problem, backend("cpu", "float64")))
    assert len(states) == 1
    svc = SVC(C=2.0, gamma=0.7, tol=1e-4).fit(X[:20], y)
    scores = states[0].model().decision(X, backend("cpu", "float64"))[:, 0]
    np.testing.assert_allclose(scores, svc.decision_function(X), atol=1e-3)


@pytest.mark.parametrize("variant", ["tsg", "tsg, features"])
def test_an_anchored_run_holds_the_supervised_mean(variant):
    problem = make_problem(RBF(0.7), "exp", n_labeled=50)
    engine = backend("cpu", "float64")
    model = last(configured(variant).run(problem, engine)).model()
    reference = problem.unlabeled.sample(problem.seed, 500)
    before = last(TSG().run(make_problem(RBF(0.7), "exp", n_labeled=50, C_star=0.0), engine)).model()
    means = [m.decision(reference, engine).mean() for m in (model, before)]
    assert means[0] == pytest.approx(means[1], abs=1e-9)


def test_known_shares_move_the_target():
    scores = np.linspace(-1, 1, 101)[:, None] + 0.3
    problem = replace(make_problem(RBF(0.7), "exp", n_labeled=50), prior=np.array([0.25]), prior_is_known=True)
    shift = means_to_hold(problem, scores)[0] - scores.mean()
    assert np.mean(scores + shift > 0) == pytest.approx(0.25, abs=0.01)
    few = replace(make_problem(RBF(0.7), "exp", n_labeled=10), prior=np.array([0.5]))
    shift = means_to_hold(few, scores - 0.9)[0] - (scores - 0.9).mean()
    assert 0.3 < np.mean(scores - 0.9 + shift > 0) < 0.5, "within a standard error of the labelled share"
    tied = np.repeat([-1.0, 1.0], [95, 6])[:, None]
    assert np.isfinite(means_to_hold(few, tied)).all()


# What both have of their own.


def test_looking_ahead_changes_nothing():
    problem = make_problem(RBF(0.7), "hat")
    engine = backend("cpu", "float64")
    results = [
        last(PrintedTSG(max_iter=37, n_features=M, batch_size=4, look_ahead=k, **BALANCED).run(problem, engine)).model()
        for k in (1, 5, 16, 64)
    ]
    for model in results[1:]:
        np.testing.assert_allclose(model.coefficients, results[0].coefficients, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(model.intercept, results[0].intercept, rtol=1e-9)


def test_rows_that_are_drawn_early_are_the_same_rows(monkeypatch):
    """As they are where a device is busy meanwhile."""
    problem, solver = make_problem(RBF(0.7), "exp"), replace(PRINTED, look_ahead=7)
    plain = last(solver.run(problem, backend("cpu", "float64"))).model()
    monkeypatch.setattr(printed_tsg, "is_tensor", lambda rows: True)
    early = last(solver.run(problem, backend("cpu", "float64"))).model()
    np.testing.assert_array_equal(early.coefficients, plain.coefficients)


def test_a_batch_in_chunks(monkeypatch):
    problem = make_problem(RBF(0.7), "exp", labeled_loss=SmoothHinge())
    whole = last(configured("tsg, features").run(problem, backend("cpu", "float64"))).model()
    monkeypatch.setattr(batch_gradient, "CHUNK", 3)
    chunks = last(configured("tsg, features").run(problem, backend("cpu", "float64"))).model()
    np.testing.assert_allclose(chunks.coefficients, whole.coefficients, rtol=1e-9, atol=1e-12)


def test_balance_holds_the_mean_output():
    problem = make_problem(RBF(0.7), "hat", columns=2)
    problem.prior[:] = [0.9, 0.2]
    engine = backend("cpu", "float64")
    solver = PrintedTSG(max_iter=30, n_features=M, batch_size=BATCH, n_reference=1000, **BALANCED)
    model = last(solver.run(problem, engine)).model()
    reference = problem.unlabeled.sample(problem.seed, 1000)
    assert len(reference) == problem.unlabeled.n_rows
    np.testing.assert_allclose(model.decision(reference, engine).mean(axis=0), [0.8, -0.6], atol=1e-12)


def test_as_printed_has_no_intercept():
    model = last(PRINTED.run(make_problem(RBF(0.7), "hat"), backend("cpu"))).model()
    np.testing.assert_array_equal(model.intercept, [0.0])


def test_the_intercept_alone_is_a_constant_feature():
    """Without balance the intercept is what the kernel k + 1 would add: checked on rows where k says nothing."""
    problem = make_problem(RBF(1e9), "hat", C_star=0.0, n_labeled=6)
    X, y = rows()
    engine = backend("cpu", "float64")
    settings = BALANCED | {"balance": False, "step": Decaying(t0=1)}
    solver = PrintedTSG(max_iter=40, n_features=M, batch_size=BATCH, **settings)
    model = last(solver.run(problem, engine)).model()
    b, scores = 0.0, np.zeros(6)
    for t, state in enumerate(solver.run(problem, engine)):
        gradient = 12.0 / 6 * np.where(y * (scores + b) < 1, -y, 0.0).sum()
        gamma = 1 / (2 + t)
        b = (1 - gamma) * b - gamma * gradient
        scores = state.model().decision(X[:6], engine)[:, 0] - state.model().intercept[0]
    assert model.intercept[0] == pytest.approx(b)


def test_a_step_of_one_forgets():
    problem = make_problem(RBF(0.7), "hat")
    solver = PrintedTSG(max_iter=5, n_features=M, batch_size=BATCH, step=Constant(eta=1))
    coefficients = last(solver.run(problem, backend("cpu", "float64"))).model().coefficients
    assert np.all(coefficients[:-1] == 0)
    assert np.any(coefficients[-1] != 0)


def test_shrinking_does_not_underflow():
    """Each block is what it was when it was born times all later shrinking, though that is 2**-300 in the end."""
    problem = make_problem(RBF(0.7), "hat")
    solver = PrintedTSG(max_iter=300, n_features=2, batch_size=2, step=Constant(eta=2))
    states = list(solver.run(problem, backend("cpu", "float64")))
    born = np.stack([state.model().coefficients[-1] for state in states])
    shrunk = born * 0.5 ** np.arange(299, -1, -1.0)[:, None, None]
    np.testing.assert_allclose(states[-1].model().coefficients, shrunk, rtol=1e-12, atol=1e-300)
    assert np.any(born[-10:] != 0)


def test_steps():
    stiffness = np.array([7.0, 70.0])
    assert Constant(eta=50).sizes(3, 100, stiffness).tolist() == [1 / 50] * 2
    assert Theorem(theta=2).sizes(3, 16, stiffness).tolist() == [2 / 8] * 2
    assert Theorem(theta=1e9).sizes(3, 16, stiffness).tolist() == [1] * 2
    assert Decaying(t0=4).sizes(3, 100, stiffness).tolist() == [1 / 8] * 2
    assert Decaying().sizes(3, 100, stiffness).tolist() == [1 / 11, 1 / 74]
    assert step("theorem") == Theorem()
    with pytest.raises(ValueError, match=r"step='fast'.*\"decaying\""):
        step("fast")


def test_passes():
    problem = make_problem(RBF(0.7), "hat")
    assert TSG(passes=2, batch_size=8).iterations(problem) == 8
    assert TSG(passes=0.1, batch_size=8).iterations(problem) == 1


WRONG = [
    {"max_iter": 0},
    {"batch_size": 2.5},
    {"n_features": "many"},
    {"n_features": 0},
    {"passes": 0},
    {"passes": "1"},
    {"ramp": 2},
    {"n_reference": -1},
    {"step": "fast"},
    {"balance": 1},
]


@pytest.mark.parametrize("wrong", [*WRONG, {"span": "all"}, {"growth": -1}, {"max_features": 0}], ids=str)
def test_settings_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        TSG(**wrong)


@pytest.mark.parametrize(
    "wrong", [*WRONG, {"max_iter": "auto"}, {"look_ahead": 0}, {"max_blocks": 0}, {"draw_labeled": None}], ids=str
)
def test_settings_of_the_printed_algorithm_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PrintedTSG(**wrong)


def test_a_balance_needs_an_intercept():
    with pytest.raises(ValueError, match="balance=True needs intercept=True"):
        PrintedTSG(balance=True)


@pytest.mark.parametrize("make", [lambda: Constant(eta=0.5), lambda: Theorem(theta=0), lambda: Decaying(t0=-1)])
def test_step_settings_are_checked(make):
    with pytest.raises(ValueError, match="is not valid: give a finite number"):
        make()


@pytest.mark.parametrize("variant", ["tsg", "tsg, features", "tsg, no balance", "printed_tsg, balanced"])
def test_history_has_the_objective(variant):
    """The norm is kept step by step, as it would be with the exact kernel, and is that of the learnt function."""
    engine = backend("cpu", "float64")
    problem = make_problem(RBF(0.7), "exp", labeled_loss=SmoothHinge())
    changed = {"max_features": 8192} if variant == "tsg, features" else {}
    solver = configured(variant, max_iter=200, batch_size=30, n_features=256, **changed)
    states = list(solver.run(problem, engine))
    X, _ = rows()
    model = states[-1].model()
    f = (model.decision(X, engine) - model.intercept)[:, 0]
    gram = problem.kernel.gram(X, X)
    assert states[-1].norm[0] == pytest.approx(f @ np.linalg.solve(gram, f), rel=0.02)
    r_l, r_u = np.split(model.decision(X, engine)[:, 0], [problem.n_labeled])
    assert states[-1].record["objective"] == pytest.approx(problem.objective(0, states[-1].norm[0], r_l, r_u), rel=0.05)


def test_the_supervised_solution_is_solved_once(monkeypatch):
    solved, solve = [], supervised.supervised
    monkeypatch.setattr(supervised, "supervised", lambda *args: solved.append(1) or solve(*args))
    solver, engine = configured("tsg, features"), backend("cpu", "float64")
    problem = make_problem(RBF(0.7), "exp", labeled_loss=SmoothHinge())
    state = last(solver.run(problem, engine))
    assert len(solved) == 1
    other = replace(problem, costs=2 * problem.costs)
    followed = solver.follow(other, engine, state.detached())
    assert len(solved) == 2
    for start in (state, followed):
        this = problem if start is state else other
        assert last(configured("tsg, features", max_iter=25).run(this, engine, start)).iteration == 25
    known = replace(problem, supervised=supervised.supervised_start(other))
    model = last(solver.run(known, engine)).model()
    assert len(solved) == 3, "by this test"
    assert np.isfinite(model.decision(rows()[0], engine)).all()


@pytest.mark.parametrize(
    ("n", "d", "stored", "is_exact"),
    [
        (8_192, 50, 5, True),
        (8_193, 50, 5, False),
        (8_300, 10_000, 40, True),
        (20_000, 30_000, 40, True),
        (8_300, 100, 5, False),
        (2_000_000, 30_000, 40, False),
    ],
)
def test_the_span_depends_on_cost(n, d, stored, is_exact):
    """8,300 rows of 10,000 columns took fourteen times as long as 8,200, and 30,000 columns two hundred times."""
    X = sparse.csr_array((np.ones(stored), (np.zeros(stored, int), np.arange(stored))), shape=(1, d))
    for chosen in (None, np.zeros(n, int)):
        problem = replace(make_problem(RBF(0.7), "hat"), labeled=X, unlabeled=ArraySource(X, chosen))
        assert TSG().spans_rows(problem) == (is_exact or chosen is None)
        assert TSG(span="rows").spans_rows(problem)
        assert not TSG(span="features").spans_rows(problem)
    dense = replace(problem, labeled=np.ones((1, 50)), unlabeled=ArraySource(np.ones((1, 50)), np.zeros(n, int)))
    assert TSG().spans_rows(dense) == (n <= 8_192)


def test_wide_sparse_rows_take_memory_of_their_entries():
    """The check of memory counted all columns of rows that are mostly empty: 4.8 GB for 20,000 rows of texts."""
    X = sparse.csr_array((np.ones(40), (np.zeros(40, int), np.arange(40))), shape=(1, 30_000))
    problem = replace(make_problem(RBF(0.7), "hat"), labeled=X, unlabeled=ArraySource(X, np.zeros(20_000, int)))
    assert TSG().memory(problem, backend("cpu", "float32")) < 200 << 20

"""Newton's method: what it minimises, that it does, and the corners."""

import tracemalloc
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.datasets import make_moons

from s3vm import Newton, Polynomial, S3VMClassifier
from s3vm.backends import backend
from s3vm.kernels import RBF
from s3vm.losses import Exponential, Hinge, SquaredHinge
from s3vm.solvers.balance import means_to_hold
from s3vm.solvers.newton import newton
from s3vm.solvers.newton.newton import _Work
from s3vm.solvers.newton.risk import Risk, backtrack
from s3vm.sources import ArraySource
from toy import last, make_problem, rows

ENGINE = backend("cpu", "float64")
SPACES = {"rows": Newton(), "landmarks": Newton(n_landmarks=20), "conjugate gradients": Newton(max_factor=10)}


def problem_with(**settings):
    changed = {name: settings.pop(name) for name in list(settings) if name in ("unlabeled", "unlabeled_loss")}
    problem = make_problem(settings.pop("kernel", RBF(0.7)), "exp", labeled_loss=SquaredHinge(), **settings)
    return replace(problem, **changed)


def solve(problem, solver=None):
    return last((solver or Newton()).run(problem, ENGINE))


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("s", [0.5, 3.0, 5.0])
def test_derivatives_are_differences(name, s):
    problem = problem_with(unlabeled_loss=Exponential(s))
    work = _Work(SPACES[name], problem)
    space = work._space
    risk = Risk(problem, 0, space, 0.2, 0.7)
    rng = np.random.default_rng(0)
    size = len(space.function(space.adjoint(np.zeros(problem.n_rows))).coefficients)
    f, by = (space.function(rng.normal(size=size)) for _ in range(2))
    gradient, curvature = risk.derivatives(f)
    h = 1e-5
    there, back = risk.derivatives(f.plus(h, by))[0], risk.derivatives(f.plus(-h, by))[0]
    slope = (risk.value(f.plus(h, by)) - risk.value(f.plus(-h, by))) / (2 * h)
    assert space.inner(gradient, by) == pytest.approx(slope, rel=1e-6)
    image = by.coefficients + space.adjoint(curvature * by.values)
    difference = (there.coefficients - back.coefficients) / (2 * h)
    np.testing.assert_allclose(image, difference, rtol=1e-4, atol=1e-4 * np.abs(image).max())


@pytest.mark.parametrize("name", SPACES)
def test_preconditioner_is_the_inverse_of_the_convex_hessian(name):
    problem = problem_with()
    space = _Work(SPACES[name], problem)._space
    rng = np.random.default_rng(1)
    curvature = 10.0 * (rng.normal(size=problem.n_rows) > 0)
    f = space.function(space.adjoint(rng.normal(size=problem.n_rows)))
    solved = space.function(space.preconditioner(curvature)(f))
    image = space.function(solved.coefficients + space.adjoint(curvature * solved.values))
    wrong = image.plus(-1.0, f)
    # A sample stands for the rows in conjugate gradients, here all of them.
    assert space.inner(wrong, wrong) < 1e-12 * space.inner(f, f)


@pytest.mark.parametrize("unlabeled", [True, False])
@pytest.mark.parametrize("C", [0.1, 12.0, 1e4])
def test_without_unlabeled_rows_it_is_the_squared_hinge_svm(C, unlabeled):
    problem = problem_with(n_labeled=20, C=C, C_star=0.0)
    if not unlabeled:
        problem = replace(problem, unlabeled=None)
    column = solve(problem).columns[0]
    gram = problem.kernel.gram(problem.labeled, problem.labeled)
    y, costs = problem.targets[:, 0], problem.costs[:, 0]

    def objective(z):
        r = gram @ z[:-1] + z[-1]
        slope = costs * SquaredHinge().grad(r, y)
        value = z[:-1] @ gram @ z[:-1] / 2 + costs @ SquaredHinge().value(r, y)
        return value, np.append(gram @ (z[:-1] + slope), slope.sum())

    options = {"maxiter": 20000, "maxfun": 100000, "ftol": 1e-15, "gtol": 1e-10}
    found = minimize(objective, np.zeros(21), jac=True, method="L-BFGS-B", options=options)
    mine = objective(np.append(column.weights[:20], column.intercept))
    assert mine[0] <= found.fun + 1e-9 * abs(found.fun)
    assert np.abs(mine[1]).max() < 1e-4
    if C < 1e4:
        np.testing.assert_allclose(column.scores[:20], gram @ found.x[:-1] + found.x[-1], atol=1e-4)


def feature_objective(problem, target):
    """Eq. 1 of the first column over features of all rows, whose mean is held at `target`."""
    everything, n_l = problem.all_rows(), problem.n_labeled
    values, vectors = np.linalg.eigh(problem.kernel.gram(everything, everything))
    Z = vectors[:, values > 1e-10] * np.sqrt(values[values > 1e-10])
    Z -= Z[n_l:].mean(axis=0)
    y, costs, cost = problem.targets[:, 0], problem.costs[:, 0], problem.unlabeled_cost[0]

    def objective(v):
        r = Z @ v + target
        of_labeled, of_unlabeled = problem.labeled_loss.grad(r[:n_l], y), problem.unlabeled_loss.grad(r[n_l:])
        slope = np.concatenate([costs * of_labeled, cost / len(of_unlabeled) * of_unlabeled])
        return problem.objective(0, v @ v, r[:n_l], r[n_l:]), v + Z.T @ slope

    return Z, objective


def generic(problem, start):
    """What L-BFGS makes of the first column from the scores `start` on: the objective before and after, and the size
    of the gradient before."""
    target = start[problem.n_labeled :].mean()
    Z, objective = feature_objective(problem, target)
    v = np.linalg.lstsq(Z, start - target, rcond=None)[0]
    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(objective, v, jac=True, method="L-BFGS-B", options=options)
    value, gradient = objective(v)
    return value, found.fun, np.linalg.norm(gradient)


@pytest.mark.parametrize("s", [1.0, 3.0, 5.0])
@pytest.mark.parametrize("C", [1.0, 12.0, 100.0, 1000.0])
def test_objective_is_as_low_as_that_of_a_generic_optimizer(C, s):
    problem = problem_with(C=C, C_star=C, unlabeled_loss=Exponential(s))
    columns = [state.columns[0] for state in Newton().run(problem, ENGINE)]
    first_of_last_round = next(column for column in columns if column.resume_state.round == 9)
    end = columns[-1]
    _, found, _ = generic(problem, first_of_last_round.scores)
    assert end.objective <= found * (1 + 1e-8)
    value, found, gradient = generic(problem, end.scores)
    assert value == pytest.approx(end.objective, rel=1e-7)
    assert gradient < 1e-4
    assert found >= end.objective * (1 - 1e-8)


def test_annealing_finds_lower_minima_than_a_generic_optimizer():
    ratios = []
    for n_labeled in (6, 10, 14):
        for C in (100.0, 1000.0):
            problem = problem_with(n_labeled=n_labeled, C=C, C_star=C)
            columns = [state.columns[0] for state in Newton().run(problem, ENGINE)]
            ratios.append(columns[-1].objective / generic(problem, columns[0].scores)[1])
    assert np.mean(ratios) < 0.95


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0, 1e4])
def test_gradient_ends_small_and_no_round_rises(name, C):
    problem = problem_with(C=C, C_star=C, columns=2)
    solver = SPACES[name]
    work = _Work(solver, problem)
    states = list(solver.run(problem, ENGINE))
    assert states[-1].record["gradient"] < 1e-4
    assert all(column.resume_state.gradient < 1e-4 for column in states[-1].columns)
    for k in range(2):
        seen = {}
        for state in states:
            reached = state.columns[k].resume_state
            share = solver.growth ** (reached.round - solver.rounds + 1)
            value = Risk(problem, k, work._space, work._targets[k], share).value(reached.function)
            assert value <= seen.get(reached.round, np.inf) * (1 + 1e-12)
            seen[reached.round] = value


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("balance", ["supervised", "prior"])
def test_mean_output_is_held(balance, name):
    X, _ = rows()
    problem = problem_with(columns=2)
    scores = solve(problem_with(C_star=0.0, columns=2)).model().decision(X[6:], ENGINE)
    expected = means_to_hold(problem, scores) if balance == "supervised" else 2 * problem.prior - 1
    state = solve(problem, replace(SPACES[name], balance=balance))
    np.testing.assert_allclose(state.model().decision(X[6:], ENGINE).mean(axis=0), expected, atol=1e-6)


def test_model_is_what_the_scores_say():
    X, _ = rows()
    for solver in SPACES.values():
        state = solve(problem_with(columns=2), solver)
        scores = np.column_stack([column.scores for column in state.columns])
        np.testing.assert_allclose(state.model().decision(X, ENGINE), scores, atol=1e-8)


def test_conjugate_gradients_and_all_landmarks_end_where_cholesky_does():
    whole = solve(problem_with(columns=2)).columns
    for a, b in zip(whole, solve(problem_with(columns=2), Newton(max_factor=1)).columns):
        np.testing.assert_allclose(a.scores, b.scores, atol=1e-5)
    for a, b in zip(whole, solve(problem_with(columns=2), Newton(n_landmarks=29)).columns):
        assert a.objective < b.objective < 1.01 * a.objective
    exact = solve(problem_with(), Newton(n_landmarks=30))
    np.testing.assert_array_equal(exact.columns[0].scores, solve(problem_with()).columns[0].scores)


KERNELS = {"rbf": RBF(0.7), "ones": RBF(1e-30), "linear": Polynomial(1.0, degree=1, coef0=0.0)}


@pytest.mark.parametrize("solver", SPACES.values(), ids=list(SPACES))
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=list(KERNELS))
@pytest.mark.parametrize("C", [1e-3, 1e4])
@pytest.mark.parametrize("case", ["plain", "duplicates", "one class", "one unlabelled", "none costs"])
def test_corners(case, C, kernel, solver):
    problem = problem_with(kernel=kernel, C=C, C_star=C, columns=2)
    X, _ = rows()
    if case == "duplicates":
        both = np.concatenate([X[:6], X[:6], X[6:12], X[6:12]])
        problem = replace(problem, unlabeled=ArraySource(both, None, "float64"))
    if case == "one class":
        problem.costs[problem.targets[:, 1] > 0, 1] = 0.0
    if case == "one unlabelled":
        problem = replace(problem, unlabeled=ArraySource(X, np.array([7]), "float64"))
    if case == "none costs":
        problem.unlabeled_cost[1] = 0.0
    state = solve(problem, solver)
    assert np.isfinite(state.model().decision(X, ENGINE)).all()
    assert state.record["gradient"] < 1e-4


@pytest.mark.parametrize("columns", [1, 2])
def test_landmarks_are_the_same_rows_every_time(columns):
    centers = [solve(problem_with(columns=columns), Newton(n_landmarks=9)).centers for _ in range(2)]
    assert centers[0].shape == (15, 3)
    np.testing.assert_array_equal(*centers)


def test_a_step_that_does_not_fall_is_none():
    assert backtrack(lambda t: (t - 0.3) ** 2, -0.6) == 0.5
    assert backtrack(lambda t: abs(t), -1.0) == 0.0, "it only rises"
    assert backtrack(lambda t: -t, 0.0) == 0.0, "the slope promises nothing"


def test_a_supervised_fit_ends_where_no_step_falls(monkeypatch):
    monkeypatch.setattr(newton, "backtrack", lambda value, slope: 0.0)
    problem = problem_with(n_labeled=20)
    gram = problem.kernel.gram(problem.labeled, problem.labeled)
    fits = newton._supervised_fits(gram, problem, 0, np.zeros(20), 0.0, tolerance=0.0)
    assert len(list(islice(fits, 3))) == 1


def test_kernel_that_is_not_finite():
    problem = problem_with(kernel=Polynomial(1e150, degree=3, coef0=0.0))
    with pytest.raises(ValueError, match="standardise the features"):
        solve(problem)


def test_losses_it_cannot_take():
    with pytest.raises(ValueError, match=r"Newton cannot minimise labeled_loss=Hinge\(\)"):
        solve(replace(problem_with(), labeled_loss=Hinge()))


@pytest.mark.parametrize(
    "settings",
    [
        {"max_iter": 0},
        {"rounds": 1.5},
        {"max_factor": True},
        {"n_landmarks": 0},
        {"tol": 0.0},
        {"growth": 1.0},
        {"balance": "labels"},
    ],
)
def test_settings_are_checked(settings):
    with pytest.raises(ValueError, match=f"Newton: {next(iter(settings))}=.* is not valid: give"):
        Newton(**settings)


@pytest.mark.parametrize("solver", ["newton", Newton(n_landmarks=100)])
def test_two_moons(solver):
    X, y = make_moons(500, noise=0.1, random_state=1)
    some = y.copy()
    some[10:] = -1
    clf = S3VMClassifier(solver, random_state=0).fit(X, some)
    assert clf.score(X, y) > 0.97
    assert clf.history_["gradient"][-1] < 1e-4
    assert clf.history_["objective"][-1] < clf.history_["objective"][0]
    alone = S3VMClassifier("newton", unlabeled_weight=0.0, random_state=0).fit(X, some)
    assert alone.score(X, y) < clf.score(X, y)


def test_warm_start_goes_on():
    X, y = make_moons(100, noise=0.1, random_state=0)
    some = y.copy()
    some[20:] = -1
    settings = {"unlabeled_weight": 1.0, "probability": False, "random_state": 0}
    once = S3VMClassifier("newton", **settings).fit(X, some)
    short = S3VMClassifier(Newton(max_iter=5), warm_start=True, **settings).fit(X, some)
    assert short.n_iter_ == 5
    short.set_params(solver=Newton(max_iter=300)).fit(X, some)
    np.testing.assert_array_equal(short.decision_function(X), once.decision_function(X))


@pytest.mark.parametrize("solver", [Newton(), Newton(max_factor=500), Newton(n_landmarks=100)], ids=repr)
def test_memory_is_foreseen(solver):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 5))
    y = np.where(X[:, :1] > 0, 1.0, -1.0)[:50]
    problem = replace(
        problem_with(),
        labeled=X[:50],
        targets=y,
        costs=np.ones_like(y),
        unlabeled=ArraySource(X, np.arange(50, 1500), "float64"),
        kernel=RBF(0.1),
    )
    tracemalloc.start()
    solve(problem, solver)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak / 1.5 < solver.memory(problem, ENGINE) < 1.5 * peak


@pytest.mark.parametrize("stop", [1, 3])
def test_supervised_columns_are_resumed_bit_for_bit(stop):
    problem = problem_with(columns=2, n_labeled=20)
    problem.unlabeled_cost[1] = 0.0
    states = list(Newton().run(problem, ENGINE))
    resumed = last(Newton().run(problem, ENGINE, states[stop - 1]))
    for a, b in zip(states[-1].columns, resumed.columns):
        np.testing.assert_array_equal(a.weights, b.weights)
        assert a.intercept == b.intercept


@pytest.mark.parametrize("solver", SPACES.values(), ids=list(SPACES))
def test_sparse_rows_are_dense_rows(solver):
    X, y = make_moons(60, noise=0.1, random_state=0)
    some = y.copy()
    some[20:] = -1
    fits = [
        S3VMClassifier(solver, unlabeled_weight=1.0, probability=False, random_state=0).fit(rows, some)
        for rows in (X, sparse.csr_matrix(X))
    ]
    np.testing.assert_allclose(fits[0].decision_function(X), fits[1].decision_function(X), atol=1e-4)

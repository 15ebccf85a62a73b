"""The batch optimiser against minima that SciPy finds in float64, with the Laplacian as a dense matrix."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import make_moons

from s3vm import S3VMClassifier
from s3vm.backends import backend
from s3vm.kernels import RBF
from s3vm.losses import SquaredHinge
from s3vm.problem.graph import NeighborGraph
from s3vm.solvers import Batch, Newton
from toy import last, make_problem, rows

CPU = backend("cpu", "float64")


def problem_with_graph(graph_cost, C_star=0.0, columns=1):
    problem = make_problem(RBF(0.7), "exp", C_star=C_star, columns=columns, labeled_loss=SquaredHinge())
    X, _ = rows()
    return replace(problem, graph=NeighborGraph.of(X, 5), graph_cost=np.full(columns, graph_cost))


def objective(problem, k, f, norm):
    """R of a function with these values at all rows."""
    n_l = problem.n_labeled
    labeled = problem.costs[:, k] @ np.maximum(0, 1 - problem.targets[:, k] * f[:n_l]) ** 2 / 2
    gaps = problem.unlabeled_cost[k] * np.exp(-3 * f[n_l:] ** 2).mean()
    return norm / 2 + labeled + gaps + problem.graph_cost[k] / 2 * float(problem.graph.roughness(f[:, None])[0])


def value_of(problem, model, k):
    X, _ = rows()
    gram = problem.kernel.gram(model.centers.astype(float), model.centers.astype(float))
    norm = model.weights[:, k] @ gram @ model.weights[:, k]
    return objective(problem, k, model.decision(X, CPU)[:, k], float(norm))


@pytest.mark.parametrize("graph_cost", [0.0, 3.0, 300.0])
def test_convex_columns_reach_the_minimum(graph_cost):
    problem = problem_with_graph(graph_cost)
    X, _ = rows()
    K = problem.kernel.gram(X, X)
    L = problem.graph.laplacian.toarray()
    y, c = problem.targets[:, 0], problem.costs[:, 0]

    def risk(point):
        a, b = point[:-1], point[-1]
        f = K @ a + b
        slack = np.maximum(0, 1 - y * f[: len(y)])
        value = a @ K @ a / 2 + c @ slack**2 / 2 + graph_cost / 2 * f @ L @ f / len(X)
        slope = graph_cost * L @ f / len(X)
        slope[: len(y)] -= c * y * slack
        return value, np.append(K @ (a + slope), slope.sum())

    best = minimize(risk, np.zeros(len(X) + 1), jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 5000}).fun
    state = last(Batch().run(problem, CPU))
    assert state.iteration == 1
    # Components of the kernel matrix below a millionth of the largest are left out.
    assert value_of(problem, state.model(), 0) == pytest.approx(best, rel=1e-5)
    assert state.record["objective"] == pytest.approx(value_of(problem, state.model(), 0), rel=1e-6)


@pytest.mark.parametrize("graph_cost", [0.0, 3.0])
def test_gaps_end_in_a_minimum(graph_cost):
    """From where the descent ends, SciPy finds no way down that keeps the mean output over the unlabelled rows."""
    problem = problem_with_graph(graph_cost, C_star=5.0)
    X, _ = rows()
    K, L, y, c = problem.kernel.gram(X, X), problem.graph.laplacian, problem.targets[:, 0], problem.costs[:, 0]
    first, *_, end = Batch(max_iter=2000).run(problem, CPU)
    before, after = (state.model().decision(X, CPU)[6:].mean() for state in (first, end))
    assert before == pytest.approx(after, abs=1e-6)

    centered = K - K[:, 6:].mean(axis=1, keepdims=True)  # the functions of mean 0, at all rows

    def risk(a):
        f = centered.T @ a + after
        slack, gap = np.maximum(0, 1 - y * f[:6]), np.exp(-3 * f[6:] ** 2)
        value = a @ K @ a / 2 + c @ slack**2 / 2 + 5 * gap.mean() + graph_cost / 2 * f @ (L @ f) / len(X)
        slope = graph_cost * (L @ f) / len(X)
        slope[:6] -= c * y * slack
        slope[6:] += 5 / 30 * -6 * f[6:] * gap
        return value, K @ a + centered @ slope

    order = {row.tobytes(): at for at, row in enumerate(X)}
    start = np.zeros(len(X))
    model = end.model()
    start[[order[row.tobytes()] for row in np.ascontiguousarray(model.centers)]] = model.weights[:, 0]
    found = minimize(risk, start, jac=True, method="BFGS", options={"gtol": 1e-9})
    assert risk(start)[0] == pytest.approx(end.record["objective"], rel=1e-6)
    assert found.fun == pytest.approx(risk(start)[0], rel=1e-4)


def test_newton_and_batch_agree_without_a_graph():
    problem = make_problem(RBF(0.7), "exp", C_star=5.0, labeled_loss=SquaredHinge())
    ours = last(Batch(max_iter=500).run(problem, CPU))
    newton = last(Newton().run(problem, CPU))
    assert ours.record["objective"] <= newton.record["objective"] * 1.01


def test_columns_of_different_costs_are_those_of_runs_of_their_own():
    both = problem_with_graph(3.0, C_star=5.0, columns=2)
    both.graph_cost[1], both.unlabeled_cost[1] = 30.0, 1.0
    model = last(Batch().run(both, CPU)).model()
    X, _ = rows()
    for k in (0, 1):
        alone = problem_with_graph(float(both.graph_cost[k]), C_star=float(both.unlabeled_cost[k]), columns=2)
        alone.targets[:] = both.targets[:, [k, k]]
        alone.prior[:] = both.prior[[k, k]]
        single = last(Batch().run(alone, CPU)).model()
        np.testing.assert_allclose(model.decision(X, CPU)[:, k], single.decision(X, CPU)[:, 0], atol=1e-9)


def test_threads_do_not_matter():
    problem = problem_with_graph(3.0, C_star=5.0, columns=2)
    X, _ = rows()
    one, two = (
        last(Batch(max_iter=30).run(problem, backend("cpu", "float32", n))).model().decision(X, CPU) for n in (1, 3)
    )
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("C", [1e7, 1e17, 1e200])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_huge_costs(C, dtype):
    """Few different rows, of both classes: the norm and the graph were lost in rounding, and the metric with them."""
    X, y = make_moons(300, noise=0.35, random_state=0)
    some = np.where(np.arange(300) < 80, y, -1)
    settings = {"C": C, "dtype": dtype, "unlabeled_weight": 1.0, "neighbor_weight": 1.0, "random_state": 0}
    clf = S3VMClassifier("batch", probability=False, **settings).fit(np.round(X), some)
    assert clf.score(np.round(X), y) > 0.8

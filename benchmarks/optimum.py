"""How near the batch optimiser comes to the optimum, and at which size more unlabelled rows stop helping.

    S3VM_DATA=folder python benchmarks/optimum.py objective [--sets ...] [--rows 6000]
    S3VM_DATA=folder python benchmarks/optimum.py rows [--sets ...] [--draws 0 1 2] [--sizes 2500 10000 60000]

`objective`: 200 labelled rows (100 of the SSL-book sets) and up to 6,000 or `--rows` in all; C = 10, the median width,
gaps and neighbors with weight 1 each, alone and together. The objective of `batch` above that of `newton` in %, both on
all kernel functions: from its own start, and from newton's solution; then with the default 1,000 landmarks.

`rows`: error in % on rows never seen, C and width tuned on the labelled rows, gaps with weight 1, by the number of
unlabelled rows n: `newton` with 4,000 landmarks on all of them; `batch` on all of them and on the 10,000 that it looks
at by default; `tsg`.
"""

import argparse
import time
import warnings
from dataclasses import replace

import common
import numpy as np
import quality

from s3vm import RBF, S3VMClassifier, S3VMClassifierCV
from s3vm.backends import backend
from s3vm.losses import Exponential, SquaredHinge
from s3vm.model import Model
from s3vm.problem import Problem
from s3vm.problem.graph import NeighborGraph
from s3vm.solvers import TSG, Batch, Newton
from s3vm.solvers.batch.batch import BatchRun
from s3vm.sources import ArraySource

CPU = backend("cpu", "float64")


def problem_of(name, most_rows, gaps, neighbors):
    """The classes of even number against the others."""
    X, y, _ = quality.load(name)
    rng = np.random.default_rng(0)
    n_l = 100 if name in quality.SSL else 200
    used = rng.permutation(len(y))[:most_rows]
    rows, y = X[used].astype(np.float64), np.where(y[used[:n_l]] % 2, 1.0, -1.0)[:, None]
    costs = np.full((n_l, 1), 10.0)
    return Problem(
        labeled=rows[:n_l],
        targets=y,
        costs=costs,
        unlabeled=ArraySource(rows[n_l:], None, np.float64),
        unlabeled_cost=gaps * costs.sum(axis=0),
        prior=np.array([np.mean(y > 0)]),
        prior_is_known=False,
        kernel=RBF("median").resolve(rows, seed=0),
        labeled_loss=SquaredHinge(),
        unlabeled_loss=Exponential(),
        seed=0,
        n_models=1,
        graph=NeighborGraph.of(rows, 10, 2) if neighbors else None,
        graph_cost=neighbors * costs.sum(axis=0),
    )


def value(problem, model):
    """The objective of a model, by the definition, and its scores of all rows."""
    rows, n_l = problem.all_rows(), problem.n_labeled
    f = model.decision(rows, CPU)
    centers, weights = np.asarray(model.centers, np.float64), model.weights[:, 0]
    norm = float(weights @ (problem.kernel.gram(centers, centers) @ weights))
    if problem.graph is not None:
        norm += problem.graph_cost[0] * problem.graph.roughness(f)[0]
    return problem.objective(0, norm, f[:n_l, 0], f[n_l:, 0]), f


def solve(solver, problem):
    for state in solver.run(problem, CPU):
        model = state.model()
    return model


def from_solution(solver, problem, scores):
    """The objective of a run that starts at the function nearest to these scores of all rows."""
    run = BatchRun(solver, problem, CPU, map, problem.all_rows())
    Z, n_l = run.space.features, problem.n_labeled
    mean = scores[n_l:].mean(axis=0)  # features are centred over the unlabelled rows
    w = np.linalg.solve(Z.T @ Z + 1e-9 * len(Z) * np.eye(Z.shape[1]), Z.T @ (scores - mean))
    w = run.minimize(w, mean, np.array([0]))
    weights, intercept = run.space.expansion(w, mean)
    empty = np.empty((0, 1, 1))
    model = Model(problem.kernel, 0, problem.n_dims, empty, intercept, run.space.landmarks, weights)
    return value(problem, model)[0]


def objective(arguments):
    rows, every = [], Batch(max_iter=arguments.steps, n_landmarks=arguments.rows)
    names = arguments.sets or [*quality.SSL, *quality.TABLES, *quality.PAIRS]
    for name in names:
        for gaps, neighbors in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
            problem = problem_of(name, arguments.rows, gaps, neighbors)
            least, f = value(problem, solve(Newton(), problem))
            values = {
                "own start": value(problem, solve(every, problem))[0],
                "newton's solution": from_solution(replace(every, ramp=0.0), problem, f) if gaps else least,
                "1,000 landmarks": value(problem, solve(Batch(), problem))[0],
            }
            row = {"set": name, "gaps": gaps, "neighbors": neighbors, "newton": float(least)}
            rows.append(row | {kind: f"{100 * (v / least - 1):+.2f} %" for kind, v in values.items()})
            print(*rows[-1].values(), flush=True)
    common.report("Objective of batch above newton's", rows, False)


def rows(arguments):
    table = []
    for name in arguments.sets or ["codrna", "ijcnn1", "skin", "mnist"]:
        X, y, _ = quality.load(name)
        for size in arguments.sizes:
            errors = {}
            for draw in arguments.draws:
                order = np.random.default_rng(draw).permutation(len(y))
                n_l = 100 if name == "mnist" else 200
                unseen, order = order[:5_000], order[5_000:]
                used = order[: n_l + size]
                labels = np.where(np.arange(len(used)) < n_l, y[used], -1)
                tuned = S3VMClassifierCV("tsg", kernel="rbf", unlabeled_weight=0.0, random_state=draw)
                tuned.fit(X[used[:n_l]], labels[:n_l])
                fixed = {"C": tuned.C_, "kernel": tuned.kernel_, "unlabeled_weight": 1.0, "random_state": draw}
                solvers = {
                    "newton, 4,000 landmarks": Newton(n_landmarks=4_000) if n_l + size > 5_000 else Newton(),
                    "batch, all rows": Batch(max_rows=10**9),
                    "batch": Batch(),
                    "tsg": TSG(),
                }
                if arguments.without_newton:
                    del solvers["newton, 4,000 landmarks"]
                for kind, solver in solvers.items():
                    start = time.perf_counter()
                    clf = S3VMClassifier(solver, probability=False, **fixed).fit(X[used], labels)
                    error = 100 * np.mean(clf.predict(X[unseen]) != y[unseen])
                    errors.setdefault(kind, []).append((error, time.perf_counter() - start))
                errors.setdefault("svm", []).append((100 * np.mean(tuned.predict(X[unseen]) != y[unseen]), 0.0))
            means = {kind: np.mean(values, axis=0) for kind, values in errors.items()}
            row = {kind: f"{mean[0]:.2f} ({mean[1]:.1f} s)" for kind, mean in means.items()}
            table.append({"set": name, "unlabelled": size} | row)
            print(*table[-1].values(), flush=True)
    common.report(f"Error on rows never seen in % (seconds), {len(arguments.draws)} draws", table, False)


def main():
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for function in (objective, rows):
        command = commands.add_parser(function.__name__)
        command.add_argument("--sets", nargs="+", default=None)
        command.set_defaults(action=function)
        if function is objective:
            command.add_argument("--steps", type=int, default=200)
            command.add_argument("--rows", type=int, default=6_000)
        else:
            command.add_argument("--draws", type=int, nargs="+", default=[0, 1, 2])
            command.add_argument("--sizes", type=int, nargs="+", default=[2_500, 10_000, 20_000, 50_000])
            command.add_argument("--without-newton", action="store_true")
    arguments = parser.parse_args()
    arguments.action(arguments)


if __name__ == "__main__":
    main()

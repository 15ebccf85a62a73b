"""Rows that come one by one, against CCCP on all of them.

    S3VM_DATA=folder python benchmarks/incremental.py time [--sets ijcnn1 codrna] [--rows 500 1000 2000]
    S3VM_DATA=folder python benchmarks/incremental.py quality [--sets ...] [--seeds 10]

`time`: milliseconds of the processor for an unlabelled row that comes (median of 20; CCCP is not tried again meanwhile)
and for CCCP from nothing on the same problem, one column, a fifth of the rows labelled but at most 200. With them what
a row costs on average if CCCP is tried again as often as by default, a call of `partial_fit` with one row, and all rows
one by one from nothing.

`quality`: by how many % the objective is above that of CCCP, after 40 random steps from 40 labelled and 200 unlabelled
rows: a row comes, labelled or not, or leaves. Quantiles over seeds and settings, and the share above 1 %.
"""

import common  # isort: skip

import argparse
import time
import warnings
from collections import deque

import numpy as np
from quality import load
from sklearn.preprocessing import StandardScaler

from s3vm import CCCP, RBF, Hinge, Incremental, Ramp, S3VMClassifier
from s3vm.backends import backend
from s3vm.problem import Problem
from s3vm.sources import ArraySource

ENGINE = backend("cpu", "float64", 1, 256 << 20)
SETS = ["ijcnn1", "codrna", "g241c", "phoneme", "banana", "bci", "digit1"]


def rows(name, n, seed):
    """Rows drawn at random, standardised, their labels -1 and 1, and the kernel at the median width."""
    X, y, _ = load(name)
    chosen = np.random.default_rng(seed).permutation(len(y))[:n]
    X = np.clip(StandardScaler().fit_transform(X[chosen].astype(np.float64)), -10, 10)
    return X, np.where(y[chosen] == y.max(), 1.0, -1.0), RBF("median").resolve(X, seed=seed)


def make(X, y, kernel, labeled, unlabeled, C, weight):
    targets = y[labeled][:, None]
    return Problem(
        labeled=X[labeled],
        targets=targets,
        costs=np.full(targets.shape, C),
        unlabeled=ArraySource(X, np.asarray(unlabeled), X.dtype),
        unlabeled_cost=np.array([weight * C * len(labeled)]),
        prior=(targets > 0).mean(axis=0),
        prior_is_known=False,
        kernel=kernel,
        labeled_loss=Hinge(),
        unlabeled_loss=Ramp(),
        seed=0,
        n_models=1,
    )


def run(solver, problem, state=None):
    """The last state, or `state` if there was nothing to do, and the seconds of the processor."""
    start = time.process_time()
    states = deque(solver.run(problem, ENGINE, state), maxlen=1)
    return states.pop() if states else state, time.process_time() - start


def speed(arguments):
    table = []
    for name in arguments.sets:
        for n in arguments.rows:
            X, y, kernel = rows(name, n, 0)
            n = len(y) - 20
            labeled = np.arange(min(200, n // 5))
            for C in (1.0, 10.0):
                problems = [make(X, y, kernel, labeled, np.arange(len(labeled), n + i), C, 1.0) for i in range(21)]
                seconds = min(run(CCCP(), problems[0])[1] for _ in range(3))
                state, fresh = run(Incremental(), problems[0])
                changed, times = state.columns[0].resume_state.stale, []
                for problem in problems[1:]:
                    state, taken = run(Incremental(restart=np.inf), problem, state)
                    times.append(taken)
                a_row, n_until = np.median(times), 0.02 * 20 / (state.columns[0].resume_state.stale - changed)
                clf = S3VMClassifier("incremental", kernel=kernel, C=C, unlabeled_weight=1.0, probability=False)
                some = np.where(np.arange(n + 20) < len(labeled), y > 0, -1)
                clf.partial_fit(X[: n - 1], some[: n - 1]).partial_fit(X[n - 1 : n], some[n - 1 : n])
                start = time.process_time()
                clf.partial_fit(X[n : n + 1], some[n : n + 1])
                call = time.process_time() - start
                line = {"set": name, "rows": n, "C": C, "CCCP ms": 1e3 * seconds, "a row ms": 1e3 * a_row}
                line |= {"ratio": seconds / a_row, "with CCCP ms": 1e3 * (a_row + seconds / n_until)}
                line |= {"partial_fit ms": 1e3 * call, "all rows ms": 1e3 * fresh}
                margin = np.count_nonzero(state.columns[0].resume_state.point.place == 1)
                table.append(line | {"margin": margin})
    common.report("Milliseconds for a row that comes, and for CCCP", table, False)


def quality(arguments):
    table = []
    for restart in (np.inf, Incremental().restart, 0.0):
        excess = []
        for name in arguments.sets:
            for seed in range(arguments.seeds):
                X, y, kernel = rows(name, 400, seed)
                for C, weight in ((1.0, 1.0), (10.0, 0.3), (10.0, 1.0)):
                    excess.append(100 * after_steps(X, y, kernel, seed, Incremental(restart=restart), C, weight))
        quantiles = np.quantile(excess, [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1])
        names = ["least", "5 %", "25 %", "median", "75 %", "95 %", "most"]
        above = {"above 1 %": f"{np.sum(np.array(excess) > 1)} of {len(excess)}"}
        table.append({"restart": restart} | dict(zip(names, quantiles, strict=True)) | above)
    common.report("Objective above that of CCCP, %", table, False)


def after_steps(X, y, kernel, seed, solver, C, weight):
    rng = np.random.default_rng(seed)
    labeled, unlabeled, fresh = list(range(40)), list(range(60, 260)), list(range(260, len(y)))
    more = list(range(40, 60))
    labeled[:2] = int(np.argmax(y > 0)), int(np.argmax(y < 0))
    state = run(solver, make(X, y, kernel, labeled, unlabeled, C, weight))[0]
    for what in rng.choice(["comes", "comes", "comes", "leaves", "labelled comes", "labelled leaves"], 40):
        if what == "comes":
            unlabeled.append(fresh.pop())
        elif what == "leaves":
            unlabeled.pop(rng.integers(len(unlabeled)))
        elif what == "labelled comes" and more:
            labeled.append(more.pop())
        else:
            labeled.pop(rng.integers(2, len(labeled)))
        problem = make(X, y, kernel, labeled, unlabeled, C, weight)
        state = run(solver, problem, state)[0]
    return state.columns[0].objective / run(CCCP(), problem)[0].columns[0].objective - 1


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["time", "quality"])
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--rows", nargs="+", type=int, default=[500, 1000, 2000])
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    (speed if arguments.what == "time" else quality)(arguments)

"""How fast TSG trains, in ratios measured side by side in one run.

    python benchmarks/train.py [--json] [--n-jobs N] [--dims D] [--data]

s3vm          Algorithm 1 as printed, as `S3VMClassifier` runs it
literal       the same, vectorised in NumPy (float32): every iteration evaluates its labelled and its unlabelled batch
              over all earlier blocks, and block i is drawn again with seed i whenever it is needed
literal kept  the same with the frequencies drawn once and kept in memory
sampler       scikit-learn's RBFSampler, with as many features as TSG has at the end, + SGDClassifier on T batches of
              labelled rows: supervised, and so less work; it is here for scale

T = 128 iterations, m = ceil(sqrt(n)) features a block, batches of 256, 200 labelled rows.

With --data, one full pass over IJCNN1 and Skin, from the folder that S3VM_DATA names (ijcnn1.npz, skin.npz with X, y).
"""

import argparse
import functools
import os
import time
from pathlib import Path

import common
import numpy as np
from experiments import printed_tsg as algorithm1
from experiments.printed_tsg import PrintedTSG
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler

from s3vm import Constant, S3VMClassifier
from s3vm.solvers import base

T, BATCH, N_LABELED = 128, 256, 200


def literal(X, y, m, keep):
    """Algorithm 1 in NumPy. As printed, block i is drawn with seed i whenever it is needed; `keep` draws it once."""
    rng = np.random.default_rng(0)
    d = X.shape[1]

    def draw(i):
        block = np.random.default_rng(i)
        W = np.float32(np.sqrt(2 / d)) * block.standard_normal((m, d), dtype=np.float32)
        return W.T, np.float32(2 * np.pi) * block.random(m, dtype=np.float32)

    if keep:
        draw = functools.cache(draw)
    scale = np.float32(np.sqrt(2 / m))
    alpha = np.zeros((T, m), np.float32)
    labeled, targets = X[:N_LABELED], (2 * y[:N_LABELED] - 1).astype(np.float32)
    C, C_star, gamma = float(N_LABELED), float(N_LABELED) ** 2 / len(X), 0.01

    def features(t, rows):
        W, b = draw(t)
        z = rows @ W
        z += b
        np.cos(z, out=z)
        z *= scale
        return z

    for t in range(T):
        rows = X[rng.integers(N_LABELED, len(X), BATCH)]
        f_l = sum((features(i, labeled) @ alpha[i] for i in range(t)), np.zeros(N_LABELED, np.float32))
        f_u = sum((features(i, rows) @ alpha[i] for i in range(t)), np.zeros(BATCH, np.float32))
        slope_l = C * np.where(targets * f_l < 1, -targets, 0) / N_LABELED
        slope_u = C_star * np.where(np.abs(f_u) < 1, -np.sign(f_u), 0) / BATCH
        step = features(t, labeled).T @ slope_l + features(t, rows).T @ slope_u
        alpha[:t] *= 1 - gamma
        alpha[t] = -gamma * step


def sampler(X, y, m):
    Z = RBFSampler(gamma=1 / X.shape[1], n_components=T * m, random_state=0).fit(X[:1])
    sgd = SGDClassifier(random_state=0)
    rng = np.random.default_rng(0)
    for _ in range(T):
        rows = rng.integers(0, N_LABELED, BATCH)
        sgd.partial_fit(Z.transform(X[rows]), y[rows], classes=[0, 1])


def printed(**settings):
    solver = PrintedTSG(step=Constant(eta=100), **settings)
    return S3VMClassifier(solver, unlabeled_weight="paper", probability=False, random_state=0)


def sizes(n_jobs, n_dims):
    rng = np.random.default_rng(0)
    rows = []
    for n in (5_000, 50_000, 500_000):
        X = rng.standard_normal((n, n_dims)).astype(np.float32)
        y = (X[:, 0] > 0).astype(int)
        some = np.where(np.arange(n) < N_LABELED, y, -1)
        m = int(np.ceil(np.sqrt(n)))
        clf = printed(max_iter=T, n_features=m, batch_size=BATCH).set_params(n_jobs=n_jobs, gamma=1 / n_dims)
        runs = {
            "s3vm": lambda clf=clf, X=X, some=some: clf.fit(X, some),
            "literal": lambda X=X, y=y, m=m: literal(X, y, m, keep=False),
            "literal kept": lambda X=X, y=y, m=m: literal(X, y, m, keep=True),
            "sampler": lambda X=X, y=y, m=m: sampler(X, y, m),
        }
        t = common.medians(runs, 0, at_least=3)
        rows.append(
            {
                "n": n,
                "d": n_dims,
                "m": m,
                "s3vm s": t["s3vm"],
                "G evaluations/s": T**2 / 2 * m * BATCH / t["s3vm"] / 1e9,
                "literal/s3vm": t["literal"] / t["s3vm"],
                "literal kept/s3vm": t["literal kept"] / t["s3vm"],
                "sampler/s3vm": t["sampler"] / t["s3vm"],
            }
        )
    return rows


def passes(n_jobs):
    folder = Path(os.environ.get("S3VM_DATA", "data"))
    rows = []
    for name in ("ijcnn1", "skin"):
        with np.load(folder / f"{name}.npz") as stored:
            X = StandardScaler().fit_transform(stored["X"]).astype(np.float32)
            y = (stored["y"] > 0).astype(int)
        some = np.full(len(y), -1)
        chosen = np.random.default_rng(0).permutation(len(y))[:N_LABELED]
        some[chosen] = y[chosen]
        clf = printed(passes=1).set_params(n_jobs=n_jobs, gamma="scale")
        clf.fit(X[chosen[:50]], np.r_[some[chosen[:49]], -1])
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            clf.fit(X, some)
            seconds.append(time.perf_counter() - start)
        n_blocks, m, _ = clf.model_.coefficients.shape
        rows.append({"set": name, "rows": len(y), "iterations": n_blocks, "m": m, "seconds": float(np.median(seconds))})
    return rows


def defaults(n_jobs):
    """The default settings on IJCNN1, and the same with one fixed weight and no probabilities."""
    with np.load(Path(os.environ.get("S3VM_DATA", "data")) / "ijcnn1.npz") as stored:
        X = StandardScaler().fit_transform(stored["X"]).astype(np.float32)
        y = (stored["y"] > 0).astype(int)
    some = np.full(len(y), -1)
    chosen = np.random.default_rng(0).permutation(len(y))[:N_LABELED]
    some[chosen] = y[chosen]
    auto = S3VMClassifier(random_state=0, n_jobs=n_jobs)
    fixed = S3VMClassifier(random_state=0, n_jobs=n_jobs, unlabeled_weight=1.0, probability=False)
    quiet = {"auto": lambda: auto.fit(X, some), "fixed": lambda: fixed.fit(X, some)}
    t = common.medians(quiet, 0, at_least=3)
    return [
        {
            "set": "ijcnn1",
            "rows": len(y),
            "auto s": t["auto"],
            "fixed s": t["fixed"],
            "auto/fixed": t["auto"] / t["fixed"],
        }
    ]


def history():
    """A line of the history against an iteration: Algorithm 1 on 50,000 x 22 rows for one pass, 200 labels."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50_000, 22)).astype(np.float32)
    some = np.where(np.arange(len(X)) < N_LABELED, (X[:, 0] > 0).astype(int), -1)
    clf = printed(passes=1)
    clf.fit(X[:1000], some[:1000])
    spent = 0.0

    def timed(*arguments):
        nonlocal spent
        start = time.perf_counter()
        line = base.record(*arguments)
        spent += time.perf_counter() - start
        return line

    algorithm1.record = timed
    start = time.perf_counter()
    clf.fit(X, some)
    total = time.perf_counter() - start
    return [
        {
            "line us": 1e6 * spent / clf.n_iter_,
            "iteration ms": 1e3 * total / clf.n_iter_,
            "share %": 100 * spent / total,
        }
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--n-jobs", type=int, default=1, help="threads of s3vm (NumPy's BLAS keeps one)")
    parser.add_argument("--dims", type=int, default=18, help="columns of the rows")
    parser.add_argument("--data", action="store_true", help="full passes over IJCNN1 and Skin instead")
    parser.add_argument("--default", action="store_true", help="with --data: the default settings on IJCNN1 instead")
    parser.add_argument("--history", action="store_true", help="what a line of history_ costs instead")
    arguments = parser.parse_args()
    if arguments.history:
        common.report("Cost of the history", history(), arguments.json)
    elif arguments.data and arguments.default:
        common.report("Default settings", defaults(arguments.n_jobs), arguments.json)
    elif arguments.data:
        common.report("One full pass of Algorithm 1", passes(arguments.n_jobs), arguments.json)
    else:
        rows = sizes(arguments.n_jobs, arguments.dims)
        common.report(f"Training, T = {T}, {arguments.n_jobs} thread(s)", rows, arguments.json)


if __name__ == "__main__":
    main()

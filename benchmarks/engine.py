"""How fast ``f(x) = sum of alpha_j phi_j(x)`` and its adjoint are evaluated, in ratios measured side by side.

    python benchmarks/engine.py [--json] [--quick] [--threads]

Every rate counts features times rows a second, in float32, on one thread. What we are compared with:

numpy   a product in tiles of 128 rows by 512 features into a buffer, cosine in place, times the coefficients
sgemm   the same products alone, without the cosine: what a matrix product costs
torch   the same as numpy with PyTorch's CPU operators, if it is installed, at the better of two tile heights

They use random phases and cosines, as the paper does; ours are sin+cos pairs (`pairs`) and, for the same features as
theirs, `phase`. ``--threads`` compares two threads with one instead.
"""

import argparse

import common
import numpy as np

from s3vm.backends import backend
from s3vm.kernels import RBF

try:
    import torch

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
except ImportError:
    torch = None

N_FEATURES = 2048
DIMENSIONS = (3, 8, 18, 28, 116, 300, 784)
COLUMNS = 20


def numpy_tiled(X, W, b, alpha, out, z, f):
    for i in range(0, len(X), 128):
        rows = out[i : i + 128]
        rows[:] = 0
        for j in range(0, W.shape[1], 512):
            np.dot(X[i : i + 128], W[:, j : j + 512], out=z)
            np.add(z, b[j : j + 512], out=z)
            np.cos(z, out=z)
            np.dot(z, alpha[j : j + 512], out=f)
            rows += f


def sgemm_tiled(X, W, z):
    for i in range(0, len(X), 128):
        for j in range(0, W.shape[1], 512):
            np.dot(X[i : i + 128], W[:, j : j + 512], out=z)


def torch_tiled(X, W, b, alpha, out, z, height):
    for i in range(0, len(X), height):
        rows = out[i : i + height]
        rows.zero_()
        for j in range(0, W.shape[1], 512):
            torch.addmm(b[j : j + 512], X[i : i + height], W[:, j : j + 512], out=z)
            z.cos_()
            rows.addmv_(z, alpha[j : j + 512])


def case(n, d, seconds):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)).astype(np.float32)
    coefficients = rng.standard_normal((1, N_FEATURES, 1)).astype(np.float32)
    many = rng.standard_normal((1, N_FEATURES, COLUMNS)).astype(np.float32)
    G, G_many = rng.standard_normal((n, 1)), rng.standard_normal((n, COLUMNS))
    gamma = 1 / (2 * d)
    kept, drawn = backend("cpu", cache_bytes=1 << 30), backend("cpu", cache_bytes=0)
    pairs = kept.features(RBF(gamma), 0, N_FEATURES, d)
    phase = kept.features(RBF(gamma, features="phase"), 0, N_FEATURES, d)
    redrawn = drawn.features(RBF(gamma), 0, N_FEATURES, d)

    turns, offsets = RBF(gamma, features="phase").draw(0, 0, N_FEATURES, d)
    W = np.ascontiguousarray(2 * np.pi * turns.T, dtype=np.float32)
    b, alpha = (2 * np.pi * offsets).astype(np.float32), coefficients[0, :, 0].copy()
    z, f, out = np.empty((128, 512), np.float32), np.empty(128, np.float32), np.empty(n, np.float32)
    runs = {
        "numpy": lambda: numpy_tiled(X, W, b, alpha, out, z, f),
        "sgemm": lambda: sgemm_tiled(X, W, z),
        "pairs": lambda: pairs.decision(coefficients, X),
        "phase": lambda: phase.decision(coefficients, X),
        "adjoint": lambda: pairs.adjoint(G, X, 1),
        "redrawn": lambda: redrawn.decision(coefficients, X),
        "columns": lambda: pairs.decision(many, X),
        "columns adjoint": lambda: pairs.adjoint(G_many, X, 1),
    }
    if torch is not None:
        arguments = [torch.from_numpy(array) for array in (X, W, b, alpha)]
        result = torch.empty(n)
        for height in (128, min(512, n)):
            buffer = torch.empty(height, 512)
            runs[f"torch {height}"] = lambda height=height, z=buffer: torch_tiled(*arguments, result, z, height)
    rate = {name: n * N_FEATURES / t / 1e9 for name, t in common.medians(runs, seconds).items()}
    rate["torch"] = max((rate[name] for name in rate if name.startswith("torch")), default=float("nan"))
    return {
        "rows": n,
        "d": d,
        "pairs G/s": rate["pairs"],
        "pairs/numpy": rate["pairs"] / rate["numpy"],
        "phase/numpy": rate["phase"] / rate["numpy"],
        "pairs/torch": rate["pairs"] / rate["torch"],
        "pairs/sgemm": rate["pairs"] / rate["sgemm"],
        "adjoint/pairs": rate["adjoint"] / rate["pairs"],
        "redrawn/pairs": rate["redrawn"] / rate["pairs"],
        f"K={COLUMNS}/pairs": rate["columns"] / rate["pairs"],
        f"K={COLUMNS} adjoint/pairs": rate["columns adjoint"] / rate["pairs"],
    }


def threads(d, seconds, n=4096, n_blocks=4):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)).astype(np.float32)
    coefficients, G = rng.standard_normal((n_blocks, N_FEATURES, 1)), rng.standard_normal((n, 1))
    features = {k: backend("cpu", n_jobs=k, cache_bytes=1 << 30).features(RBF(1 / d), 0, N_FEATURES, d) for k in (1, 2)}
    runs = {("decision", k): lambda k=k: features[k].decision(coefficients, X) for k in (1, 2)}
    runs |= {("adjoint", k): lambda k=k: features[k].adjoint(G, X, n_blocks) for k in (1, 2)}
    t = common.medians(runs, seconds)
    return {"rows": n, "d": d} | {f"{verb} 2/1": t[verb, 1] / t[verb, 2] for verb in ("decision", "adjoint")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="a third of the time")
    parser.add_argument("--threads", action="store_true", help="compare two threads with one")
    arguments = parser.parse_args()
    seconds = 0.6 if arguments.quick else 2.0
    if arguments.threads:
        rows = [threads(d, seconds) for d in DIMENSIONS]
        common.report("Two threads against one", rows, arguments.json)
    else:
        rows = [case(n, d, seconds) for n in (4096, 256) for d in DIMENSIONS]
        common.report("Evaluation rates, one thread", rows, arguments.json)


if __name__ == "__main__":
    main()

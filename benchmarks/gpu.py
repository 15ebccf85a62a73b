"""The GPU backend: correctness against float64, then rates of its verbs and times of whole fits.

    python benchmarks/gpu.py [fit] [columns] [check] [rates] [train] [--dims 8 18 28 300 784]
                             [--sets higgs susy hepmass] [--share 1.0] [--json FILE]

`check` compares decision and adjoint, at many shapes, with float64 and frequencies drawn by the CPU. `rates` times them
in features times points a second, medians over CUDA events, with frequencies kept and drawn again, and the same sums
by torch in chunks, by torch.compile, and the ceilings: a device copy, a float16 matrix product. `train` is one pass of
Algorithm 1 (m = ceil(sqrt(n)), batches of 256, sin+cos pairs) over synthetic rows of the paper's shapes, from host
memory, and before it the default 128 iterations; with ``--share s`` only the first s of the iterations are run, and the
whole is estimated from a quadratic fitted to their times. `fit` is a default fit, there and on the CPU.
"""

import argparse
import cProfile
import io
import itertools
import json
import os
import pstats
import statistics
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import torch

sys.path.append(str(Path(__file__).parents[1]))  # where `experiments` is
from experiments.printed_tsg import PrintedTSG

from s3vm import Hat, Hinge, S3VMClassifier, S3VMClassifierCV
from s3vm.backends.gpu import Gpu
from s3vm.kernels import RBF
from s3vm.problem import Problem
from s3vm.sources import ArraySource

CUDA = torch.device("cuda")
FLOAT32 = np.dtype(np.float32)
M = 1024  # features in a block
SEED = 3
TILES = (  # points, frequency rows, warps, stages
    *((64, 64, 4, 2), (128, 32, 4, 3), (128, 32, 4, 2), (128, 32, 4, 4), (128, 16, 4, 3), (64, 128, 4, 2)),
    *((64, 128, 4, 3), (32, 128, 4, 3), (64, 256, 8, 2), (128, 128, 4, 2), (128, 256, 8, 2)),
)
SHAPES = {"higgs": (1_100_000, 28), "susy": (5_000_000, 18), "hepmass": (10_500_000, 28)}


def seconds(run, *arguments, at_least=7, budget=0.3):
    """The median time of a call on the device."""
    run(*arguments)
    torch.cuda.synchronize()
    times = []
    start = time.perf_counter()
    while len(times) < at_least or time.perf_counter() - start < budget:
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        run(*arguments)
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) / 1000)
    return statistics.median(times)


def case(n, d, n_blocks, K=1):
    g = torch.Generator(device=CUDA).manual_seed(n + d)
    X = torch.randn(n, d, generator=g, device=CUDA)
    A = torch.randn(n_blocks, M, K, generator=g, device=CUDA)
    return X, A, torch.randn(n, K, generator=g, device=CUDA)


def exact(X, A, G, kernel, n_blocks):
    """Decision and adjoint in float64, with the frequencies of the CPU."""
    parts = []
    for block in range(n_blocks):
        W, b = (torch.as_tensor(part, device=CUDA) for part in kernel.frequencies(SEED, block, M, X.shape[1]))
        angle = 2 * np.pi * (X.double() @ W.T + b)
        parts += [torch.cos(angle)] if kernel.features == "phase" else [torch.cos(angle), torch.sin(angle)]
    phi = torch.cat(parts, dim=1) * np.sqrt(2 / M)
    return phi @ A.double().reshape(-1, A.shape[2]), phi.T @ G.double()


def relative(result, expected):
    return float((result.double().reshape(expected.shape) - expected).norm() / expected.norm())


def check():
    worst = 0.0
    for d, law in itertools.product((1, 3, 8, 18, 28, 33, 70, 300, 784), ("pairs", "phase")):
        kernel = RBF(0.5 / d, features=law)
        features = Gpu(FLOAT32, 1 << 30).features(kernel, SEED, M, d)
        for n, K in itertools.product((1, 100, 4096), (1, 3, 20, 130)):
            X, A, G = case(n, d, 3, K)
            f, g = exact(X, A, G, kernel, 3)
            results = features.decision(A, X), features.adjoint(G, X, 3)
            errors = relative(results[0], f), relative(results[1], g)
            worst = max(worst, *errors)
            if max(errors) > 1e-5:
                print("error", law, d, n, K, errors)
            again = features.decision(A, X), features.adjoint(G, X, 3)
            assert all(torch.equal(a, b) for a, b in zip(results, again, strict=True))
    print(f"check: largest relative error {worst:.1e}, same bits twice", flush=True)
    assert worst <= 1e-5
    return worst


def one_chunk(X, W, C, S):
    angle = 2 * np.pi * (X @ W.T)
    return torch.cos(angle) @ C + torch.sin(angle) @ S


def chunked(chunk, X, W, C, S):
    """The sum by torch, over chunks of 128 MiB of angles."""
    size = (1 << 25) // len(X)
    total = torch.zeros(len(X), 1, device=CUDA)
    for start in range(0, len(W), size):
        rows = slice(start, start + size)
        total += chunk(X, W[rows], C[rows], S[rows])
    return total


def rates(dims):
    x = torch.empty(1 << 30, dtype=torch.uint8, device=CUDA)
    y = torch.empty_like(x)
    a = torch.randn(8192, 8192, device=CUDA).half()
    ceilings = {
        "copy TB/s": 2 * x.numel() / seconds(y.copy_, x) / 1e12,
        "float16 TFLOP/s": 2 * 8192**3 / seconds(torch.matmul, a, a) / 1e12,
    }
    print(ceilings, flush=True)
    table = []
    for d in dims:
        n_blocks = 8192 if d < 300 else 2048
        kernel = RBF(0.5 / d)
        features = Gpu(FLOAT32, 16 << 30).features(kernel, SEED, M, d)
        redrawn = Gpu(FLOAT32, 0).features(kernel, SEED, M, d)
        for n in (256, 4096):
            torch._dynamo.reset()  # what is compiled is for these shapes
            compiled = torch.compile(one_chunk, dynamic=False)
            X, A, G = case(n, d, n_blocks)
            work = n_blocks * M * n / 1e9
            W = torch.randn(n_blocks * M // 2, d, device=CUDA) / d
            C, S = torch.randn(2, len(W), 1, device=CUDA)
            row = {"d": d, "points": n}
            row["decision"] = work / seconds(features.decision, A, X)
            row["redrawn"] = work / seconds(redrawn.decision, A, X, at_least=3)
            row["adjoint"] = work / seconds(features.adjoint, G, X, n_blocks)
            A20 = A.repeat(1, 1, 20)
            row["decision, K=20"] = work / seconds(features.decision, A20, X)
            row["torch"] = work / seconds(chunked, one_chunk, X, W, C, S)
            row["torch.compile"] = work / seconds(chunked, compiled, X, W, C, S)
            f, _ = exact(X[:256], A[:8], G[:256], kernel, 8)
            row["error"] = relative(features.decision(A[:8], X[:256]), f)
            table.append(row)
            print({name: round(value) if value > 1 else f"{value:.1e}" for name, value in row.items()}, flush=True)
    return {"ceilings": ceilings, "rates": table}


def train(name, share):
    n, d = SHAPES[name]
    X = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    y = np.where(X[:200, 0] > 0, 1.0, -1.0)[:, None]
    problem = Problem(
        labeled=X[:200], targets=y, costs=np.full((200, 1), 0.05), unlabeled=ArraySource(X, np.arange(200, n)),
        unlabeled_cost=np.array([10.0 * 200 / n]), prior=np.array([0.5]), prior_is_known=False,
        kernel=RBF(0.5 / d), labeled_loss=Hinge(), unlabeled_loss=Hat(), seed=0, n_models=1,
    )  # fmt: skip
    solver = PrintedTSG(passes=1.0)
    total, m = solver.iterations(problem), solver.block_size(problem)
    n_run = int(total * share)
    torch.cuda.reset_peak_memory_stats()
    engine = Gpu(FLOAT32, 40 << 30)
    for _ in PrintedTSG(max_iter=33, n_features=m).run(problem, engine):
        pass  # kernels are compiled
    start = time.perf_counter()
    for _ in PrintedTSG().run(problem, engine):
        pass
    torch.cuda.synchronize()
    print(f"{name}: the default {PrintedTSG().iterations(problem)} iterations in {time.perf_counter() - start:.2f} s")
    start = time.perf_counter()
    marks = []
    for state in solver.run(problem, engine):
        if state.iteration % max(1, n_run // 16) == 0:
            marks.append((state.iteration, time.perf_counter() - start))
        if state.iteration == n_run:
            break
    torch.cuda.synchronize()
    spent = time.perf_counter() - start
    whole = spent
    if share < 1:
        t, s = np.array(marks).T
        whole = float(np.linalg.lstsq(np.stack([t, t * t], 1), s, rcond=None)[0] @ [total, total**2])
    peak = torch.cuda.max_memory_allocated() / 2**30
    print(
        f"{name}: {n_run} of {total} iterations, m={m}, in {spent:.2f} s; the whole pass {whole:.1f} s, "
        f"{256 * m * total**2 / 2 / whole / 1e9:.0f} G/s, peak {peak:.1f} GiB on the device",
        flush=True,
    )
    return {"set": name, "iterations": n_run, "of": total, "seconds": spent, "whole": whole, "peak GiB": peak}


def columns():
    """How fast 20 columns are compared with one, with several sizes of the tiles."""
    from s3vm.backends.gpu import kernels

    chosen, results = kernels._tile, []
    for d in (18, 28):
        n_blocks, n = 4096, 4096
        features = Gpu(FLOAT32, 16 << 30).features(RBF(0.5 / d), SEED, M, d)
        X, A, G = case(n, d, n_blocks, 20)
        f, g = exact(X[:256], A[:8], G[:256], RBF(0.5 / d), 8)
        results_of_20 = features.decision(A[:8], X[:256]), features.adjoint(G[:256], X[:256], 8)
        errors = [relative(*pair) for pair in zip(results_of_20, (f, g), strict=True)]
        work, one, g_one = n_blocks * M * n / 1e9, A[:, :, :1].contiguous(), G[:, :1].contiguous()
        first = {
            "decision": work / seconds(features.decision, one, X, budget=0.5),
            "adjoint": work / seconds(features.adjoint, g_one, X, n_blocks, budget=0.5),
        }
        print(
            f"d={d}, K=1: {first['decision']:.0f} and {first['adjoint']:.0f} G/s, errors of K=20", *errors, flush=True
        )
        for tile in (None, *TILES):
            if tile is not None:
                names = dict(zip(("N", "M", "num_warps", "num_stages"), tile, strict=True))
                kernels._tile = lambda parts, K, transposed, names=names: (names, 2112)
            row = {"d": d, "tile": tile or "as it is"}
            try:
                for verb, arguments in (("decision", (A, X)), ("adjoint", (G, X, n_blocks))):
                    rate = work / seconds(getattr(features, verb), *arguments, budget=0.3, at_least=3)
                    row |= {verb: rate, f"{verb}, of K=1": rate / first[verb]}
            except Exception as problem:  # too large for the device
                row["error"] = str(problem)[:80]
            kernels._tile = chosen
            results.append(row)
            print({k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    return results


def wall(run, *arguments):
    """Median seconds of three runs after a first one, and what the last one returned."""
    spent, result = [], run(*arguments)
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        result = run(*arguments)
        torch.cuda.synchronize()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent), result


def blobs(n, d, n_labels, n_classes=2):
    rng = np.random.default_rng(0)
    blob = rng.integers(0, 4 * n_classes, n)
    X = rng.standard_normal((n, d), dtype=np.float32)
    X += 0.8 * rng.standard_normal((4 * n_classes, d), dtype=np.float32)[blob]
    return X, np.where(np.arange(n) < n_labels, blob % n_classes, -1)


def fit():
    """Default fits, on the GPU and on all cores of its host, and predictions by their models."""
    results = []

    def line(what, seconds, **more):
        results.append({"what": what, "seconds": seconds, **more})
        print(f"{what}: {seconds:.3f} s", *(f"{k} {v}" for k, v in more.items()), flush=True)

    for n, d in ((1_000, 20), (5_000, 22), (50_000, 22), (5_000_000, 18)):
        X, y = blobs(n, d, 200)
        clf = {}
        for backend in ("gpu", "cpu"):
            there = S3VMClassifier(backend=backend, random_state=0, n_jobs=-1)
            spent, clf[backend] = wall(there.fit, X, y)
            line(f"default fit, {n} x {d}, {backend}", spent)
        some = X[:200_000]
        f, g = (clf[backend].decision_function(some) for backend in ("gpu", "cpu"))
        clear = np.abs(g) >= 1e-3
        print(
            f"labels of the two models agree on {np.mean((f > 0) == (g > 0), where=clear):.4%} of the rows", flush=True
        )
        if n == 50_000:
            profiled(clf["gpu"].fit, X, y)
    tensor = torch.as_tensor(X, device=CUDA)
    there = S3VMClassifier(backend="gpu", random_state=0)
    line(f"default fit, {n} x {d}, from a tensor", wall(there.fit, tensor, y)[0])
    prediction(line)
    images(line)
    return results


def profiled(run, *arguments):
    """Prints where the time goes."""
    profile = cProfile.Profile()
    profile.runcall(run, *arguments)
    out = io.StringIO()
    pstats.Stats(profile, stream=out).sort_stats("tottime").print_stats(14)
    for text in out.getvalue().splitlines():
        if ":" in text or "{" in text:
            print("   ", text[:130], flush=True)


def prediction(line):
    n, d = 4_000_000, 28
    X, y = blobs(n, d, 200)
    for backend, rows in (("gpu", X), ("gpu", torch.as_tensor(X, device=CUDA)), ("cpu", X)):
        clf = S3VMClassifier(backend=backend, random_state=0, n_jobs=-1).fit(X[:20_000], y[:20_000])
        spent, _ = wall(clf.predict, rows)
        kind, centers = type(rows).__name__, clf.model_.centers.shape[0]
        line(f"predict {n} x {d}, {backend}, {kind}", spent, rows_per_second=round(n / spent), centers=centers)


def images(line):
    """Ten classes: the images of mnist, if they are in the folder S3VM_DATA, else blobs of their shape."""
    path = Path(os.environ.get("S3VM_DATA", "data")) / "mnist.npz"
    if path.exists():
        with np.load(path) as stored:
            X, y = stored["X"][:60_000].astype(np.float32) / 255, stored["y"][:60_000].astype(int)
        truth, y = y, np.where(np.arange(len(y)) < 100, y, -1)
    else:
        (X, y), truth = blobs(60_000, 784, 100, 10), None
    for backend in ("gpu", "cpu"):
        for _ in "12":
            start = time.perf_counter()
            clf = S3VMClassifierCV(backend=backend, random_state=0, n_jobs=-1).fit(X, y)
            spent = time.perf_counter() - start
            if spent > 40:
                break
        more = {} if truth is None else {"error": f"{np.mean(clf.predict(X[100:]) != truth[100:]):.2%}"}
        line(f"S3VMClassifierCV, ten classes, {X.shape[0]} x {X.shape[1]}, {backend}", spent, **more)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["fit", "columns", "check", "rates", "train"])
    parser.add_argument("--dims", nargs="+", type=int, default=[8, 18, 28, 300, 784])
    parser.add_argument("--sets", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--json", default=None)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("torch sees no GPU of NVIDIA here, and nothing else is measured")
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    parts = {
        "fit": fit,
        "columns": columns,
        "check": check,
        "rates": lambda: rates(arguments.dims),
        "train": lambda: [train(name, arguments.share) for name in arguments.sets],
    }
    results, start = {}, time.perf_counter()
    for name in arguments.parts:
        try:
            results[name] = parts[name]()
        except Exception:
            traceback.print_exc()
        print(f"{name}: done after {time.perf_counter() - start:.0f} s", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump(results, out, indent=1)


if __name__ == "__main__":
    main()

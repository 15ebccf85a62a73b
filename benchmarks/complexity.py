"""How time and memory of every solver grow with the number of rows, compared with Table 1 of the paper.

    S3VM_DATA=folder python benchmarks/complexity.py [--sizes 1000 2000 4000 8000] [--solvers tsg cccp ...]
        [--limit SECONDS] [--json] [--picture complexity.png]

Rows of ijcnn1 (or, without its file, of scikit-learn's two Gaussian quantiles in 22 dimensions), 200 labelled, the
median width, C = 10, unlabelled weight 1, one column, one thread. Each run is a process of its own that has compiled
everything on 300 rows before: memory is what it takes above that, and seconds are those of the processor, so that other
programs do not count. A size that takes longer than the limit ends a solver's row. The exponents
are fitted to the upper half of the sizes, where constants no longer show.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import common
import numpy as np
from experiments.report import TABLE_1

from s3vm.solvers import SOLVERS

AS_PRINTED = ("tsg, as printed", "frs, as printed")
NAMES = sorted([*SOLVERS, *AS_PRINTED])


def one(name, n_rows):
    """Seconds, megabytes above the rows, and the test error of one run, as a line of JSON."""
    import resource
    import time

    from experiments.printed_tsg import PrintedTSG

    from s3vm import FRS, RBF, S3VMClassifier

    X, y = _rows()
    order = np.random.default_rng(0).permutation(len(y))
    test, order = order[-4000:], order[: n_rows + 200]
    labels = np.where(np.arange(len(order)) < 200, y[order], -1)
    kernel = RBF("median").resolve(X[order])
    solver = name
    if name in AS_PRINTED:
        solver = PrintedTSG(passes=1.0) if name.startswith("tsg") else FRS.as_printed(passes=10.0)

    def fit(rows, labels):
        settings = {"unlabeled_weight": 1.0, "probability": False, "random_state": 0}
        return S3VMClassifier(solver, kernel=kernel, C=10.0, **settings).fit(rows, labels)

    fit(X[order[:300]], labels[:300])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    clf = fit(X[order], labels)
    seconds = time.process_time() - start
    megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    error = float(np.mean(clf.predict(X[test]) != y[test]))
    print(json.dumps({"seconds": seconds, "megabytes": megabytes, "error": error}))


def _rows():
    import os

    from sklearn.datasets import make_gaussian_quantiles
    from sklearn.preprocessing import StandardScaler

    path = Path(os.environ.get("S3VM_DATA", "data")) / "ijcnn1.npz"
    if path.exists():
        with np.load(path) as stored:
            X, y = stored["X"], (stored["y"] > 0).astype(int)
    else:
        X, y = make_gaussian_quantiles(n_samples=60_000, n_features=22, n_classes=2, random_state=0)
    return StandardScaler().fit_transform(X).astype(np.float32), y


def exponent(sizes, values):
    """The slope of log value against log size over the upper half of the sizes, at least two of them."""
    n_used = max(2, (len(sizes) + 1) // 2)
    if len(sizes) < 2 or min(values[-n_used:]) <= 0:
        return float("nan")
    return float(np.polyfit(np.log(sizes[-n_used:]), np.log(values[-n_used:]), 1)[0])


def measure(name, sizes, limit):
    runs = {}
    for size in sizes:
        command = [sys.executable, __file__, "--one", name, str(size)]
        try:
            output = subprocess.run(command, capture_output=True, text=True, timeout=5 * limit + 60)
        except subprocess.TimeoutExpired:
            break
        if output.returncode:
            print(f"{name}, {size} rows: {output.stderr.strip().splitlines()[-1]}", file=sys.stderr)
            break
        runs[size] = json.loads(output.stdout.splitlines()[-1])
        print(name, size, runs[size], file=sys.stderr, flush=True)
        if runs[size]["seconds"] > limit / 2:  # twice the rows would not fit
            break
    return runs


def picture(results, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    colors = ["#d1495b", "#edae49", "#66a182", "#2e4057", "#8d96a3", "#00798c", "#a05195", "#f4845f", "#1b1b1e"]
    for (name, runs), color in zip(results.items(), colors, strict=False):
        for ax, quantity in zip(axes, ("seconds", "megabytes"), strict=True):
            values = [max(1e-3 if quantity == "seconds" else 0.3, run[quantity]) for run in runs.values()]
            ax.loglog(list(runs), values, "o-", color=color, label=name, markersize=4)
    axes[0].set(xlabel="unlabelled rows", ylabel="seconds to train")
    axes[1].set(xlabel="unlabelled rows", ylabel="megabytes above the rows")
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.2)
    axes[1].legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(path, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 1000, 2000, 4000, 8000, 16000, 32000])
    parser.add_argument("--solvers", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--picture", default=None)
    parser.add_argument("--one", nargs=2, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        one(arguments.one[0], int(arguments.one[1]))
        return
    results = {name: measure(name, arguments.sizes, arguments.limit) for name in arguments.solvers}
    table = []
    for name, runs in results.items():
        sizes = list(runs)
        row = {"solver": name}
        for size in arguments.sizes:
            known = runs.get(size)
            row[f"{size:,}"] = f"{known['seconds']:.2g} s, {max(0, known['megabytes']):.0f} MB" if known else "-"
        for quantity in ("seconds", "megabytes"):
            row[f"exponent of {quantity}"] = exponent(sizes, [run[quantity] for run in runs.values()])
        row["Table 1: time"], row["memory"] = TABLE_1.get(name.split(",")[0], ("", ""))
        table.append(row)
    common.report("Training with 200 labelled rows, by unlabelled rows", table, arguments.json)
    if arguments.picture:
        picture(results, arguments.picture)


if __name__ == "__main__":
    main()

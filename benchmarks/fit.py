"""How long a fit takes that nobody has configured, next to version 0.1 and to what else a user can do.

    python benchmarks/fit.py [--before FOLDER] [--json] [--sets small medium ...] [--runs 5]

FOLDER has version 0.1: an unpacked wheel, or the folder `src` of a checkout (``git worktree add ../v01 v0.1.0``).

s3vm          S3VMClassifier() with probabilities, warm; medians of the runs, which are taken in turns
cv            S3VMClassifierCV(), and cv/final: how many times as long as a fit with the cost and the kernel it chose
0.1, 0.1 cv   the same of version 0.1, and 0.1/s3vm: how many times as long
svc           scikit-learn's SVC on the labelled rows
self-training scikit-learn's SelfTrainingClassifier around calibrated SVCs
spreading     scikit-learn's LabelSpreading, 7 neighbors
rows/s        predictions per second, and those of version 0.1
kB            the size of the model's file
MB            memory that the fit takes at most, in addition to the rows

Ratios are those of processor time (of all threads together), which hardly depends on what else the machine does.
200 labelled rows (digits: 80). Methods whose time grows with the square of the rows get at most 10,000. Every version
runs in a process of its own. Two threads for everything.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "2")

import common
import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, make_classification
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC

from s3vm import S3VMClassifier, S3VMClassifierCV

SIZES = {"small": (1_000, 20), "medium": (5_000, 22), "large": (50_000, 22), "huge": (5_000_000, 18)}
MOST_ROWS = 10_000
SHARED = {"random_state": 0, "n_jobs": 2}


def rows(name):
    """Rows and labels, of which up to 200 are known."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(y))
        X, y, n_labels = np.float32(X[order] / 16), y[order], 80
    else:
        n, d = SIZES[name]
        X, y = make_classification(n, d, n_informative=8, n_redundant=4, class_sep=0.8, flip_y=0.05, random_state=0)
        X, n_labels = (X / X.std(axis=0)).astype(np.float32), 200
    return X, np.where(np.arange(len(y)) < n_labels, y, -1)


class Runs:
    """What is run in a process of one version: each method returns the figures that it measures."""

    def __init__(self, folder):
        self.X, self.y = np.load(Path(folder) / "X.npy"), np.load(Path(folder) / "y.npy")
        self._cv = None

    def fit(self):
        return seconds(S3VMClassifier(**SHARED).fit, self.X, self.y)

    def cv(self):
        self._cv = S3VMClassifierCV(**SHARED)
        return seconds(self._cv.fit, self.X, self.y)

    def final(self):
        return seconds(S3VMClassifier(kernel=self._cv.kernel_, C=self._cv.C_, **SHARED).fit, self.X, self.y)

    def svc(self):
        known = self.y >= 0
        return seconds(SVC(C=10).fit, self.X[known], self.y[known])

    def self_training(self):
        base = CalibratedClassifierCV(SVC(C=10), ensemble=False)
        return seconds(SelfTrainingClassifier(base, threshold=0.9).fit, self.X, self.y)

    def spreading(self):
        return seconds(LabelSpreading(kernel="knn", n_neighbors=7, max_iter=100).fit, self.X, self.y)

    def predict(self):
        """Rows per second."""
        clf = S3VMClassifier(**SHARED).fit(self.X[:50_000], self.y[:50_000])
        many = np.tile(self.X[:50_000], (-(-200_000 // len(self.X[:50_000])), 1))[:200_000]
        clf.predict(many[:1000])
        return [len(many) / spent for spent in seconds(clf.predict, many)]

    def kilobytes(self):
        clf = S3VMClassifier(**SHARED).fit(self.X[:50_000], self.y[:50_000])
        with tempfile.TemporaryDirectory() as folder:
            clf.save(Path(folder) / "m.s3vm")
            return (Path(folder) / "m.s3vm").stat().st_size / 1e3

    def megabytes(self):
        """What the process takes at most during a fit, minus what it takes before (Linux only)."""
        peak = Path("/proc/self/clear_refs")
        if not peak.exists():
            return np.nan
        before = status("VmRSS")
        peak.write_text("5")  # forget the peak so far
        S3VMClassifier(**SHARED).fit(self.X, self.y)
        return (status("VmHWM") - before) / 1e3


def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def seconds(run, *arguments):
    """The time that passes, and that of the processors."""
    start, processors = time.perf_counter(), time.process_time()
    run(*arguments)
    return time.perf_counter() - start, time.process_time() - processors


def serve(folder):
    """Runs what it is asked for, a line each, on the rows in `folder`."""
    runs = Runs(folder)
    for line in sys.stdin:
        print(json.dumps(getattr(runs, line.strip())()), flush=True)


class Version:
    """A process in which one version runs."""

    def __init__(self, folder, path=None):
        environment = dict(os.environ) | ({"PYTHONPATH": str(path)} if path else {})
        command = [sys.executable, "-W", "ignore", __file__, "--serve", folder]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, env=environment, text=True, **pipes)

    def __call__(self, name):
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait()


def figures(name, before, n_runs):
    """The line of a set: medians of runs in turns."""
    X, y = rows(name)
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "X.npy", X)
        np.save(Path(folder) / "y.npy", y)
        with Version(folder) as here, Version(folder, before) as there:
            runs = {"s3vm": (here, "fit"), "cv": (here, "cv"), "final": (here, "final"), "svc": (here, "svc")}
            if before:
                runs |= {"0.1": (there, "fit"), "0.1 cv": (there, "cv")}
            if len(y) <= MOST_ROWS:
                runs |= {"self-training": (here, "self_training"), "spreading": (here, "spreading")}
            runs |= {"rows/s": (here, "predict")} | ({"0.1 rows/s": (there, "predict")} if before else {})
            for version, run in runs.values():  # compile, and fill the caches
                version(run)
            values = {kind: [] for kind in runs}
            for _ in range(n_runs):
                for kind, (version, run) in runs.items():
                    values[kind].append(version(run))
            medians = {kind: float(np.median(each, axis=0)[0]) for kind, each in values.items()}
            medians |= {f"{kind}, processors": float(np.median(each, axis=0)[1]) for kind, each in values.items()}
            extra = {"kB": here("kilobytes"), "MB": here("megabytes")}
    medians["cv/final"] = medians["cv, processors"] / medians["final, processors"]
    medians["0.1/s3vm"] = medians.get("0.1, processors", np.nan) / medians["s3vm, processors"]
    names = ("s3vm", "s3vm, processors", "cv", "cv, processors", "cv/final", "0.1", "0.1, processors", "0.1/s3vm")
    names += ("0.1 cv", "svc", "self-training", "spreading")
    line = {"rows": f"{len(X):,} x {X.shape[1]}"} | {kind: medians.get(kind, np.nan) for kind in names}
    speeds = {kind: f"{medians[kind]:,.0f}" if kind in medians else "" for kind in ("rows/s", "0.1 rows/s")}
    return line | speeds | {kind: f"{value:,.0f}" for kind, value in extra.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="FOLDER", default=None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sets", nargs="+", default=["small", "medium", "digits", "large", "huge"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--serve", metavar="FOLDER", default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve)
        return
    table = []
    for name in arguments.sets:
        table.append(figures(name, arguments.before, arguments.runs))
        print(*table[-1].values(), flush=True)
    common.report("Seconds of a fit", table, arguments.json)


if __name__ == "__main__":
    main()

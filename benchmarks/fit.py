"""How long a default fit takes, compared with version 0.1 and with the alternatives a user has.

    python benchmarks/fit.py [--json] [--sets small medium ...] [--runs 5]

s3vm          S3VMClassifier() with probabilities, warm; medians of the runs, which are taken in turns
s3vm, cv      S3VMClassifierCV()
0.1           S3VMClassifier("tsg") and
0.1, cv       S3VMClassifierCV("tsg", kernel="rbf", n_components=None), the algorithms of version 0.1
svc           scikit-learn's SVC on the labelled rows
self-training scikit-learn's SelfTrainingClassifier around SVC(probability=True)
spreading     scikit-learn's LabelSpreading, 7 neighbors
predict       seconds for a million rows by s3vm, and the size of its file in MB

Up to 200 labelled rows (digits: 80). The largest sets are for s3vm only. Two threads for everything.
"""

import argparse
import os
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
MOST_ROWS = 10_000  # of methods whose time grows with the square of the rows


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


def fits(X, y):
    known, shared = y >= 0, {"random_state": 0, "n_jobs": 2}

    def run(clf, X, y):
        return lambda: clf.fit(X, y)

    runs = {
        "s3vm": run(S3VMClassifier(**shared), X, y),
        "s3vm, cv": run(S3VMClassifierCV(**shared), X, y),
        "0.1": run(S3VMClassifier("tsg", **shared), X, y),
        "0.1, cv": run(S3VMClassifierCV("tsg", kernel="rbf", n_components=None, **shared), X, y),
        "svc": run(SVC(C=10), X[known], y[known]),
    }
    if len(y) <= MOST_ROWS:
        base = CalibratedClassifierCV(SVC(C=10), ensemble=False)
        runs["self-training"] = run(SelfTrainingClassifier(base, threshold=0.9), X, y)
        runs["spreading"] = run(LabelSpreading(kernel="knn", n_neighbors=7, max_iter=100), X, y)
    return runs


def prediction(X, y):
    """Seconds per million rows, and the size of the model's file in MB."""
    clf = S3VMClassifier(random_state=0, n_jobs=2).fit(X, y)
    many = np.tile(X, (-(-200_000 // len(X)), 1))[:200_000]
    clf.predict(many[:1000])
    start = time.perf_counter()
    clf.predict(many)
    seconds = 5 * (time.perf_counter() - start)
    with tempfile.TemporaryDirectory() as folder:
        clf.save(Path(folder) / "m.s3vm")
        return {"predict": seconds, "MB": (Path(folder) / "m.s3vm").stat().st_size / 1e6}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sets", nargs="+", default=[*SIZES, "digits"], choices=[*SIZES, "digits"])
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    table = []
    for name in arguments.sets:
        X, y = rows(name)
        times = common.medians(fits(X, y), 0, arguments.runs)
        seconds = {kind: times.get(kind, np.nan) for kind in fits(X[:300], y[:300])}
        table.append({"rows": f"{len(X):,} x {X.shape[1]}"} | seconds | prediction(X, y))
        print(*table[-1].values(), flush=True)
    common.report("Seconds of a fit", table, arguments.json)


if __name__ == "__main__":
    main()

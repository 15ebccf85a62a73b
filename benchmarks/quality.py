"""Test error of s3vm and of what else a user can do with a few labels, on many sets and random draws.

    S3VM_DATA=folder python benchmarks/quality.py run results.jsonl [--labels 100] [--draws 12 13 14 15 16]
                                                                    [--sets ...] [--methods ...]
    python benchmarks/quality.py report benchmarks/results/quality.jsonl [--labels 100] [--picture quality.png]

`run` appends a line for each set, draw and method, and skips those that are there: several may write to one file. The
folder has the .npz files of the sets (X, y; the SSL-book sets with their official splits, of which draw 0 to 11 are;
later draws are random). With ``--labels 100`` the SSL-book sets (text: 300 singular vectors) and the ten classes of
mnist have 100 labelled rows, the others 200; digits are drawn with 40, 60, 80 and 160. Up to 4,000 rows are unlabelled
(images of two digits: 3,000; ten: 10,000), and up to 4,000 others are never seen in training. Tables are standardised
and clipped to 10 standard deviations, images are not. Nothing is tuned on a test label.

svm              supervised SVM, C and width by 5-fold cross-validation, chosen as S3VMClassifierCV does: the yardstick
svm, untuned     SVC(C=10)
self-training    scikit-learn's, around the yardstick with calibrated probabilities
spreading, knn   scikit-learn's LabelSpreading, 7 nearest neighbours
spreading, rbf   the same with a Gaussian kernel of four times the median width (digits: gamma 0.25 on raw pixels)
extra trees      scikit-learn's, 500 extremely randomised trees
0.1, default     S3VMClassifier of version 0.1: solver="tsg"
0.1, cv          S3VMClassifierCV of version 0.1: solver="tsg", kernel="rbf", n_components=None
s3vm             S3VMClassifier()
s3vm, cv         S3VMClassifierCV()
"""

import argparse
import json
import os
import time
import traceback
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import common
import numpy as np
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC

import s3vm
from s3vm import RBF, S3VMClassifier, S3VMClassifierCV

SSL = ["g241c", "g241d", "digit1", "usps", "bci", "text"]
TABLES = [
    *("codrna", "ijcnn1", "w8a", "skin", "dota2_train", "susy_30k", "higgs_46k", "magic", "phoneme", "banana", "a9a"),
    "hepmass_10k",
]
PAIRS = ["mnist3v5", "mnist4v9", "mnist7v9"]
DIGITS = ["digits40", "digits60", "digits80", "digits160"]
N_OFFICIAL = 12  # splits of the SSL-book sets
N_UNSEEN = 4_000


class Draw(NamedTuple):
    """Rows, their classes, and the numbers of the labelled and unlabelled ones and of those never seen."""

    X: np.ndarray
    y: np.ndarray
    labeled: np.ndarray
    unlabeled: np.ndarray
    unseen: np.ndarray
    gamma: float  # of label spreading

    def labels(self):
        """The labelled rows, then the unlabelled ones, and their labels or -1."""
        used = np.concatenate([self.labeled, self.unlabeled])
        return self.X[used], np.where(np.arange(len(used)) < len(self.labeled), self.y[used], -1)


def load(name):
    """Rows and classes, and the official numbers of labelled rows."""
    if name.startswith("digits"):
        return *load_digits(return_X_y=True), {}
    folder = Path(os.environ.get("S3VM_DATA", "data"))
    file = "mnist" if name.startswith("mnist") else f"ssl_{name}" if name in SSL else name
    with np.load(folder / f"{file}.npz") as stored:
        y = stored["y"]
        if "data" in stored:
            X = sparse.csr_matrix((stored["data"], stored["indices"], stored["indptr"]), stored["shape"])
        else:
            X = stored["X"]
        splits = {n: stored[f"labeled_{n}"] for n in (10, 100) if f"labeled_{n}" in stored}
    y = np.unique(y, return_inverse=True)[1]
    if name.startswith("mnist"):
        kept = np.isin(y, [int(name[5]), int(name[7])] if name in PAIRS else np.arange(10))
        return X[kept].astype(np.float32) / 255, np.unique(y[kept], return_inverse=True)[1], {}
    if name == "text":
        return TruncatedSVD(300, random_state=0).fit_transform(X.astype(np.float64)), y, splits
    X = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)
    if name not in SSL:
        X = np.clip(StandardScaler().fit_transform(X), -10, 10)
    return X.astype(np.float32), y, splits


def draw_of(name, number, n_labels):
    """The rows of a draw: at least two of every class are labelled."""
    X, y, splits = load(name)
    rng = np.random.default_rng(number)
    if name.startswith("digits"):
        n_labels, n_unlabeled, n_unseen, gamma = int(name[6:]), len(y), 0, 64.0  # 0.25 on pixels from 0 to 16
        X = X / 16
    else:
        n_labels = 200 if n_labels == 100 and name in TABLES + PAIRS else n_labels
        n_unlabeled, n_unseen = 10_000 if name == "mnist" else 3_000 if name in PAIRS else 4_000, N_UNSEEN
        gamma = 4 * RBF("median").resolve(X[rng.permutation(len(y))[:1000]], seed=0).width
    order = rng.permutation(len(y))
    if name in SSL and number < N_OFFICIAL:
        official = splits[n_labels][number].astype(int)
        order = np.concatenate([official, order[~np.isin(order, official)]])
    while np.bincount(y[order[:n_labels]], minlength=y.max() + 1).min() < min(2, n_labels // 10):
        order = rng.permutation(len(y))
    labeled, others = order[:n_labels], order[n_labels:]
    n_unseen = min(n_unseen, len(others) // (7 if name in SSL else 3))
    return Draw(X, y, labeled, others[n_unseen:][:n_unlabeled], others[:n_unseen], gamma)


def classifiers(draw, number):
    """Functions that make the classifier of each method; some stand on the tuned SVM."""
    y = draw.y[draw.labeled]
    svm = S3VMClassifierCV("tsg", kernel="rbf", unlabeled_weight=0.0, probability=False, random_state=number)

    def self_training():
        tuned = svm.fit(*draw.labels())
        n_folds = int(min(5, np.bincount(y).min()))
        base = SVC(C=tuned.C_, gamma=tuned.kernel_.width)
        if n_folds < 2:
            return base.set_params(probability=True)
        return SelfTrainingClassifier(CalibratedClassifierCV(base, cv=n_folds, ensemble=False), threshold=0.9)

    ours = {"random_state": number, "probability": False}
    return {
        "svm": lambda: svm,
        "svm, untuned": lambda: Supervised(SVC(C=10)),
        "self-training": self_training,
        "spreading, knn": lambda: LabelSpreading(kernel="knn", n_neighbors=7, max_iter=100),
        "spreading, rbf": lambda: LabelSpreading(kernel="rbf", gamma=draw.gamma, max_iter=100),
        "extra trees": lambda: Supervised(ExtraTreesClassifier(500, random_state=number)),
        "0.1, default": lambda: S3VMClassifier("tsg", **ours),
        "0.1, cv": lambda: S3VMClassifierCV("tsg", kernel="rbf", n_components=None, **ours),
        "s3vm": lambda: S3VMClassifier(**ours),
        "s3vm, cv": lambda: S3VMClassifierCV(**ours),
    }


METHODS = list(classifiers(Draw(*[np.zeros(1, int)] * 5, 1.0), 0))


class Supervised:
    """A classifier that is given the labelled rows only."""

    def __init__(self, clf):
        self._clf, self.predict = clf, clf.predict

    def fit(self, X, y):
        self._clf.fit(X[y >= 0], y[y >= 0])
        return self


def run_one(name, number, n_labels, methods):
    """A line of results for each method."""
    draw = draw_of(name, number, n_labels)
    makers = classifiers(draw, number)
    for method in methods:
        start = time.perf_counter()
        clf = makers[method]().fit(*draw.labels())
        seconds = time.perf_counter() - start
        parts = {"unlabeled": draw.unlabeled, "unseen": draw.unseen}
        errors = {part: float(np.mean(clf.predict(draw.X[at]) != draw.y[at])) for part, at in parts.items() if len(at)}
        line = {"set": name, "draw": number, "labels": n_labels, "method": method, "seconds": round(seconds, 3)}
        safety = getattr(clf, "safety_", None)
        yield line | errors | {"version": s3vm.__version__} | ({"safety": str(safety)} if safety else {})


def run(arguments):
    path, n_labels = Path(arguments.results), arguments.labels
    done = {_key(line) for line in (read(path) if path.exists() else [])}
    names = arguments.sets or (SSL if n_labels == 10 else [*SSL, *PAIRS, *TABLES])
    work = [(name, number) for number in arguments.draws for name in names]
    work.sort(key=lambda each: not each[0].startswith(("mnist", "digits")))  # slow ones first
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for name, number in work:
            methods = [m for m in arguments.methods or METHODS if (name, number, n_labels, m) not in done]
            if methods:
                pool.submit(_write_lines, path, name, number, n_labels, methods)


def _write_lines(path, name, number, n_labels, methods):
    warnings.simplefilter("ignore")
    try:
        for line in run_one(name, number, n_labels, methods):
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(*line.values(), flush=True)
    except Exception:
        print(f"{name}, draw {number}:", traceback.format_exc(), flush=True)


def _key(line):
    return line["set"], line["draw"], line["labels"], line["method"]


def read(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def report(arguments):
    lines = [line for line in read(arguments.results) if line["labels"] == arguments.labels]
    names = list(dict.fromkeys(line["set"] for line in lines))
    for part in ("unlabeled", "unseen"):
        errors = {_key(line): 100 * line[part] for line in lines if part in line}
        runs = [key[:3] for key in errors if key[3] == "svm"]
        complete = [run for run in runs if all((*run, method) in errors for method in METHODS)]
        table = np.array([[errors[(*run, method)] for method in METHODS] for run in complete])
        of_set = {name: table[[run[0] == name for run in complete]] for name in names}
        of_set = {name: values for name, values in of_set.items() if len(values)}
        rows = [{"set": name} | _cells(values) for name, values in of_set.items()]
        rows.append({"set": "**mean**"} | _cells(np.array([values.mean(axis=0) for values in of_set.values()])))
        common.report(f"Error on {part} rows in %, {arguments.labels} labels, {len(complete)} runs", rows, False)
        common.report("Differences to the tuned SVM, in points", _differences(table, of_set), False)
    common.report("Seconds of a fit", _seconds(lines), False)
    common.report("What was accepted", _causes(lines), False)
    if arguments.picture:
        picture(of_set, arguments.picture)


def _seconds(lines):
    """The mean and the longest time of each method."""
    times = {method: [line["seconds"] for line in lines if line["method"] == method] for method in METHODS}
    return [{"method": m, "mean": float(np.mean(t)), "longest": max(t)} for m, t in times.items() if t]


def _causes(lines):
    """In how many runs each kind of knowledge was accepted by s3vm, cv, and its gain over the tuned SVM there."""
    svm = {_key(line)[:3]: line["unlabeled"] for line in lines if line["method"] == "svm"}
    ours = [line for line in lines if line["method"] == METHODS[-1] and _key(line)[:3] in svm]
    rows = []
    for cause in ("gaps", "neighbors", "directions", "column weights", "Laplacian", "using the supervised"):
        at = [line for line in ours if cause in line.get("safety", "")]
        gains = [100 * (line["unlabeled"] - svm[_key(line)[:3]]) for line in at]
        names = Counter(line["set"] for line in at).most_common(5)
        name = "nothing of the unlabelled rows" if cause == "using the supervised" else cause
        row = {"accepted": name, "runs": f"{len(at)} of {len(ours)}"}
        row["error minus the SVM's there"] = f"{np.mean(gains):+.2f}" if at else ""
        rows.append(row | {"most often on": ", ".join(f"{name} {count}" for name, count in names)})
    return rows


def _cells(values):
    """The mean of each method, and its standard error over the runs."""
    spread = values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.zeros(values.shape[1])
    return {method: f"{values[:, k].mean():.1f} ± {spread[k]:.1f}" for k, method in enumerate(METHODS)}


def _differences(table, of_set):
    difference = table - table[:, :1]
    means = np.array([values.mean(axis=0) for values in of_set.values()])
    gains = means - means[:, :1]
    behind = means[:, -1:] - means  # how far s3vm, cv is behind each method
    return [
        {
            "method": method,
            "mean over sets": gains[:, k].mean(),
            "worst set": f"{list(of_set)[gains[:, k].argmax()]} {gains[:, k].max():+.2f}",
            "worst run": f"{difference[:, k].max():+.2f}",
            "sets where s3vm, cv is worse by .3": int((behind[:, k] > 0.3).sum()),
            "better by .3": int((behind[:, k] < -0.3).sum()),
        }
        for k, method in enumerate(METHODS)
    ]


def picture(of_set, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = {"s3vm, cv": "#d1495b", "self-training": "#66a182", "spreading, knn": "#8d96a3", "extra trees": "#edae49"}
    means = {name: values.mean(axis=0) - values.mean(axis=0)[0] for name, values in of_set.items()}
    order = sorted(means, key=lambda name: means[name][METHODS.index("s3vm, cv")])
    figure, axes = plt.subplots(figsize=(9, 4.6), layout="constrained")
    at = np.arange(len(order))
    for method, color in shown.items():
        values = np.array([means[name][METHODS.index(method)] for name in order])
        size = 9 if method == "s3vm, cv" else 6
        axes.plot(at, np.clip(values, -20, 8), "o", color=color, label=method, markersize=size)
    axes.axhline(0, color="black", linewidth=1)
    axes.set_xticks(at, order, rotation=60, ha="right")
    axes.set(ylabel="error minus that of a tuned SVM, points", ylim=(-20.5, 8.5))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=9)
    figure.savefig(path, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run")
    running.add_argument("results")
    running.add_argument("--labels", type=int, default=100, help="10, 50 or 100 (tables: 200)")
    running.add_argument("--draws", type=int, nargs="+", default=[12, 13, 14, 15, 16])
    running.add_argument("--jobs", type=int, default=1, help="processes; times are fair only with one")
    running.add_argument("--sets", nargs="+", default=None)
    running.add_argument("--methods", nargs="+", default=None, choices=METHODS)
    running.set_defaults(action=run)
    reporting = commands.add_parser("report")
    reporting.add_argument("results")
    reporting.add_argument("--labels", type=int, default=100)
    reporting.add_argument("--picture", default=None)
    reporting.set_defaults(action=report)
    arguments = parser.parse_args()
    arguments.action(arguments)


if __name__ == "__main__":
    main()

"""Test error of s3vm beside a tuned SVM and other ways of using unlabelled rows, on many sets and splits.

    S3VM_DATA=folder python benchmarks/quality.py run results.jsonl [--labels 100|10] [--splits 0 1 2 3 4] [--sets ...]
                                                                    [--methods svc cv ...]
    python benchmarks/quality.py report benchmarks/results/quality.jsonl [--picture quality.png]
    S3VM_DATA=folder python benchmarks/quality.py anchors [--sets g241c digit1 usps text]

`run` keeps a line for each set and split, and goes on where it stopped; with `--methods`, only these (and svc, on which
others stand) are run, again where they were run before. The folder has the .npz files of the sets (X, y; the
SSL-book sets with their official splits). SSL-book sets have 100 (or 10) labelled rows, as they are (text: 300 singular
vectors), and are tested on all others, which are the unlabelled ones. The others have 200 labelled rows, up to 6,000
unlabelled ones (images: 3,000) and up to 4,000 to test on; tables are standardised and clipped to 10 standard
deviations, images are not. Nothing is ever tuned on a test label.

`anchors` is for published figures (SSL-book, 100 labels, splits 0-2): *cv* over ten seeds, and, as theirs were found,
the best of 60 settings of `S3VMClassifier` by the test labels, one setting for the set or one for each split.

svc              supervised SVM, C and width by 5-fold cross-validation, chosen as S3VMClassifierCV does: the yardstick
grid search      scikit-learn's GridSearchCV of an SVC over the same grid, fewest errors
algorithm 1      TSG as printed, with the yardstick's C and width, at the paper's weight
default          S3VMClassifier()
cv               S3VMClassifierCV()
always           the same with the unlabelled rows always used, at weight 1
optimum          the objective of `always` minimised by L-BFGS on the kernel functions of labelled and 1,000 unlabelled
                 rows, its unlabelled cost raised in steps
self-training    scikit-learn's, around the yardstick with calibrated probabilities
label spreading  scikit-learn's, 7 nearest neighbours
"""

import argparse
import itertools
import json
import os
import time
import warnings
from pathlib import Path

import common
import numpy as np
from scipy import sparse
from scipy.optimize import minimize
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import TruncatedSVD
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC

from s3vm import RBF, Exponential, PrintedTSG, S3VMClassifier, S3VMClassifierCV, SmoothHinge

SSL = ["g241c", "g241d", "digit1", "usps", "bci", "text"]
TABULAR = [
    "codrna",
    "ijcnn1",
    "w8a",
    "skin",
    "dota2_train",
    "susy_30k",
    "higgs_46k",
    "magic",
    "phoneme",
    "banana",
    "a9a",
]
PAIRS = ["mnist3v5", "mnist4v9", "mnist7v9"]
METHODS = [
    "svc",
    "grid search",
    "algorithm 1",
    "default",
    "cv",
    "always",
    "optimum",
    "self-training",
    "label spreading",
]
N_LABELED, N_UNLABELED, N_TEST = 200, 6000, 4000
N_UNLABELED_IMAGES = 3000  # self-training would take minutes a run with more


def load(name):
    folder = Path(os.environ.get("S3VM_DATA", "data"))
    file = "mnist" if name.startswith("mnist") else f"ssl_{name}" if name in SSL else name
    with np.load(folder / f"{file}.npz") as stored:
        y = stored["y"]
        if "data" in stored:
            X = sparse.csr_matrix((stored["data"], stored["indices"], stored["indptr"]), stored["shape"])
        else:
            X = stored["X"]
        splits = {n: stored[f"labeled_{n}"] for n in (10, 100) if f"labeled_{n}" in stored}
    if name.startswith("mnist"):
        kept = np.isin(y, [int(name[5]), int(name[7])])
        return X[kept].astype(np.float32) / 255, (y[kept] == int(name[5])).astype(int), splits
    if name == "text":
        return TruncatedSVD(300, random_state=0).fit_transform(X.astype(np.float64)), (y > 0).astype(int), splits
    X = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)
    if name not in SSL:
        X = np.clip(StandardScaler().fit_transform(X), -10, 10)
    return X.astype(np.float32), (y > 0).astype(int), splits


def parts(name, split, n_labels):
    """Rows, labels with -1 for unlabelled ones, and which rows to test on."""
    X, y, splits = load(name)
    if name in SSL:
        labeled = splits[n_labels][split].astype(int)
        some = np.full(len(y), -1)
        some[labeled] = y[labeled]
        return X, y, some, np.flatnonzero(some == -1)
    n_unlabeled = N_UNLABELED_IMAGES if name in PAIRS else N_UNLABELED
    order = np.random.default_rng(split).permutation(len(y))[: N_LABELED + n_unlabeled + N_TEST]
    n_test = min(N_TEST, len(order) // 3)
    X, y = X[order], y[order]
    n_labeled = N_LABELED if n_labels == 100 else n_labels
    while len(np.unique(y[:n_labeled])) < 2 or np.bincount(y[:n_labeled]).min() < 2:
        turn = np.random.default_rng(split + 1000).permutation(len(y))
        X, y, split = X[turn], y[turn], split + 1
    some = np.where(np.arange(len(y)) < n_labeled, y, -1)
    some[-n_test:] = -2
    return X, y, some, np.flatnonzero(some == -2)


def optimum(kernel, C, X, some, seed):
    """Scores on X of a deterministic minimiser of the semi-supervised objective, by annealing."""
    labeled, unlabeled = np.flatnonzero(some >= 0), np.flatnonzero(some == -1)
    rng = np.random.default_rng(seed)
    centers = np.concatenate([labeled, rng.permutation(unlabeled)[:1000]])
    gram = kernel.gram(X[centers], X[centers]).astype(np.float64)
    values, vectors = np.linalg.eigh(gram)
    keep = values > 1e-6 * values[-1]
    root = vectors[:, keep] / np.sqrt(values[keep])  # features whose inner product is the kernel on the centres
    used = np.concatenate([labeled, unlabeled])
    Z = kernel.gram(X[used], X[centers]).astype(np.float64) @ root
    y = 2.0 * some[labeled] - 1
    n_l = len(labeled)
    start = SVC(C=C, kernel="linear").fit(Z[:n_l], y)
    held = start.decision_function(Z[n_l:]).mean()
    mean = Z[n_l:].mean(axis=0)
    Z -= mean
    w, hinge, exponential = start.coef_[0].copy(), SmoothHinge(), Exponential()

    def objective(w, cost):
        r = Z @ w + held
        slope = np.concatenate([C * hinge.grad(r[:n_l], y), cost / (len(r) - n_l) * exponential.grad(r[n_l:])])
        loss = C * hinge.value(r[:n_l], y).sum() + cost * exponential.value(r[n_l:]).mean()
        return w @ w / 2 + loss, w + Z.T @ slope

    for share in np.linspace(0.1, 1, 10):
        w = minimize(objective, w, (share * C * n_l,), jac=True, method="L-BFGS-B", options={"maxiter": 60}).x
    return lambda rows: (kernel.gram(rows, X[centers]) @ root - mean) @ w + held


def run_one(name, split, n_labels, methods):
    X, y, some, test = parts(name, split, n_labels)
    used = np.flatnonzero(some != -2)
    rows, labels = X[used], some[used]
    labeled = labels >= 0
    n_folds = int(min(5, np.bincount(labels[labeled]).min()))
    found = {"errors": {}, "seconds": {}}
    yardstick = S3VMClassifierCV(unlabeled_weight=0.0, probability=False, random_state=split)

    def fitted(method, clf):
        """Fits a classifier, and notes its error and how long it took."""
        start = time.perf_counter()
        clf.fit(rows, labels)
        found["seconds"][method] = time.perf_counter() - start
        found["errors"][method] = float(np.mean(clf.predict(X[test]) != y[test]))
        return clf

    fitted("svc", yardstick)
    C, kernel = yardstick.C_, yardstick.kernel_
    settings = {"C": C, "kernel": kernel, "random_state": split, "probability": False}
    if "grid search" in methods:
        width = RBF("median").resolve(rows[~labeled], seed=split).width
        grid = {"C": yardstick.Cs, "gamma": [factor * width for factor in yardstick.factors]}
        folds = StratifiedKFold(max(2, n_folds), shuffle=True, random_state=split)
        fitted("grid search", Labeled(GridSearchCV(SVC(), grid, cv=folds)))
    if "algorithm 1" in methods:
        solver = PrintedTSG(passes=max(1.0, 128 * 256 / len(rows)))
        printed = settings | {"kernel": RBF(kernel.width, features="phase"), "unlabeled_weight": "paper"}
        fitted("algorithm 1", S3VMClassifier(solver, **printed, loss="hat", labeled_loss="hinge"))
    if "default" in methods:
        fitted("default", S3VMClassifier(random_state=split, probability=False))
    if "cv" in methods:
        found["weight"] = fitted("cv", S3VMClassifierCV(random_state=split, probability=False)).safety_.weight
    if "always" in methods:
        fitted("always", S3VMClassifier(**settings, unlabeled_weight=1.0))
    if "optimum" in methods:
        fitted("optimum", Optimum(kernel, C, split))
    if "self-training" in methods:
        base = CalibratedClassifierCV(SVC(C=C, gamma=kernel.width), cv=n_folds, ensemble=False)
        try:
            fitted("self-training", SelfTrainingClassifier(base, threshold=0.9))
        except ValueError:
            found["errors"]["self-training"] = found["errors"]["svc"]
    if "label spreading" in methods:
        fitted("label spreading", LabelSpreading(kernel="knn", n_neighbors=7, max_iter=100))
    return found


class Labeled:
    """A classifier that is given the labelled rows only."""

    def __init__(self, clf):
        self._clf, self.predict = clf, clf.predict

    def fit(self, X, y):
        self._clf.fit(X[y >= 0], y[y >= 0])


class Optimum:
    """`optimum` as a classifier."""

    def __init__(self, kernel, C, seed):
        self._settings, self._seed = (kernel, C), seed

    def fit(self, X, y):
        self._score = optimum(*self._settings, X, y, self._seed)

    def predict(self, X):
        return (self._score(X) > 0).astype(int)


def run(arguments):
    path = Path(arguments.results)
    results = {(r["set"], r["split"], r["labels"]): r for r in (read(path) if path.exists() else [])}
    for name in arguments.sets or (SSL if arguments.labels == 10 else SSL + TABULAR + PAIRS):
        for split in arguments.splits:
            key = (name, split, arguments.labels)
            if key in results and not arguments.methods:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = run_one(*key, arguments.methods or METHODS)
            result = results.setdefault(key, dict(zip(("set", "split", "labels"), key, strict=True)))
            for part, new in found.items():
                result[part] = result.get(part, {}) | new if isinstance(new, dict) else new
            path.write_text("".join(json.dumps(line) + "\n" for line in results.values()))
            print(name, split, {method: round(error, 4) for method, error in found["errors"].items()}, flush=True)


def read(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def report(arguments):
    results = read(arguments.results)
    for labels in sorted({r["labels"] for r in results}, reverse=True):
        chosen = [r for r in results if r["labels"] == labels]
        errors = np.array([[r["errors"][method] for method in METHODS] for r in chosen])
        names = list(dict.fromkeys(r["set"] for r in chosen))
        of_set = np.array([errors[[r["set"] == name for r in chosen]].mean(axis=0) for name in names])
        rows = [
            {"set": name} | dict(zip(METHODS, 100 * line, strict=True))
            for name, line in zip(names, of_set, strict=True)
        ]
        rows.append({"set": "**mean**"} | dict(zip(METHODS, 100 * errors.mean(axis=0), strict=True)))
        common.report(f"Test error in %, {labels} labels, {len(chosen)} runs", rows, False)
        difference, of_sets = errors - errors[:, :1], of_set - of_set[:, :1]
        summary = [
            {
                "against svc": method,
                "mean difference": 100 * difference[:, k].mean(),
                "wins": int((difference[:, k] < -0.003).sum()),
                "losses": int((difference[:, k] > 0.003).sum()),
                "worst set": f"{names[of_sets[:, k].argmax()]} {100 * of_sets[:, k].max():+.2f}",
                "worst run": f"{100 * difference[:, k].max():+.2f}",
                "seconds": float(np.mean([r["seconds"].get(method, np.nan) for r in chosen])),
            }
            for k, method in enumerate(METHODS)
        ]
        common.report("Differences to the tuned SVM in points; wins and losses beyond 0.3", summary, False)
        if arguments.picture and labels == 100:
            picture(names, of_sets, arguments.picture)


def picture(names, of_sets, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = {"cv": "#d1495b", "self-training": "#66a182", "label spreading": "#8d96a3", "algorithm 1": "#edae49"}
    order = np.argsort(of_sets[:, METHODS.index("cv")])
    figure, axes = plt.subplots(figsize=(9, 4.6), layout="constrained")
    at = np.arange(len(names))
    for method, color in shown.items():
        values = 100 * of_sets[order, METHODS.index(method)]
        label = {"cv": "s3vm (S3VMClassifierCV)"}.get(method, method)
        axes.plot(at, np.clip(values, -8, 8), "o", color=color, label=label, markersize=9 if method == "cv" else 6)
    axes.axhline(0, color="black", linewidth=1)
    axes.set_xticks(at, [names[i] for i in order], rotation=60, ha="right")
    axes.set(ylabel="error minus that of a tuned SVM, points", ylim=(-8.5, 8.5))
    axes.text(
        0.01,
        0.02,
        "below 0: better than the supervised SVM; beyond 8: drawn at 8",
        transform=axes.transAxes,
        fontsize=9,
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=9)
    figure.savefig(path, dpi=130)


def anchors(arguments):
    lines = []
    for name in arguments.sets:
        tuned, picked = [], {}
        for split in range(3):
            X, y, some, test = parts(name, split, 100)
            width = RBF("median").resolve(X[some < 0], seed=0).width

            def error(clf, X=X, y=y, some=some, test=test):
                return 100 * float(np.mean(clf.fit(X, some).predict(X[test]) != y[test]))

            tuned += [error(S3VMClassifierCV(random_state=seed, probability=False)) for seed in range(10)]
            for C, factor, weight in itertools.product((0.3, 1, 3, 10, 30, 100), (0.25, 0.5, 1, 2, 4), (0.3, 1.0)):
                settings = {"C": C, "gamma": factor * width, "unlabeled_weight": weight}
                clf = S3VMClassifier(**settings, probability=False, random_state=0)
                picked.setdefault((C, factor, weight), []).append(error(clf))
        one, each = min(map(np.mean, picked.values())), np.mean(np.min(list(picked.values()), axis=0))
        lines.append({"set": name, "cv": np.mean(tuned), "picked for the set": one, "picked for each split": each})
        print(name, *(f"{value:.2f}" for value in (np.mean(tuned), one, each)), flush=True)
    common.report("Test error in %, splits 0-2", lines, False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run")
    running.add_argument("results")
    running.add_argument("--labels", type=int, default=100, choices=[10, 100])
    running.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    running.add_argument("--sets", nargs="+", default=None)
    running.add_argument("--methods", nargs="+", default=None, choices=METHODS, help="of runs made before, too")
    running.set_defaults(action=run)
    reporting = commands.add_parser("report")
    reporting.add_argument("results")
    reporting.add_argument("--picture", default=None)
    reporting.set_defaults(action=report)
    published = commands.add_parser("anchors")
    published.add_argument("--sets", nargs="+", default=["g241c", "digit1", "usps", "text"])
    published.set_defaults(action=anchors)
    arguments = parser.parse_args()
    arguments.action(arguments)


if __name__ == "__main__":
    main()

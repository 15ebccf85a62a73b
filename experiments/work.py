"""What one run does: it takes its rows, then chooses settings, or fits with given ones and measures the result."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from experiments import datasets
from experiments.ablation import variant
from experiments.datasets import Dataset
from experiments.plan import Task
from experiments.printed_tsg import PrintedTSG
from s3vm._utils.optional import optional
from s3vm._utils.typing import Array
from s3vm.estimators.classifier import S3VMClassifier
from s3vm.estimators.tuning import S3VMClassifierCV
from s3vm.kernels import RBF
from s3vm.solvers import SOLVERS, Constant, solver

__all__ = ["NotPossibleError", "Report", "dataset", "fit", "fit_on_gpu", "on_gpu", "tune", "warm"]

Report = Callable[[dict[str, Any]], None]
"""Takes facts about a run as soon as they are known: it may not live to return them."""
Limits = AbstractContextManager[dict[str, float]]

_WARM_ROWS = 300
_PAPER: dict[str, Any] = {"loss": "hat", "labeled_loss": "hinge"}
_WARM_BYTES = 1 << 16


class NotPossibleError(ValueError):
    """The set has fewer rows than a run asks for, or the machine no GPU."""


class Rows(NamedTuple):
    """Rows to train on with the codes of their labels (-1: hidden), and rows to test on."""

    X: Any
    labels: Array
    test: Any
    truth: Array


def dataset(task: Task) -> Dataset:
    """The rows of a task; of synthetic ones as many as it needs."""
    if not task["synthetic"]:
        return datasets.load(task["set"], progress=False)
    n_train = task.get("rows") or 0
    published = datasets.KNOWN[task["set"]].n_rows
    n_rows = n_train + task.get("test_rows", 0) if task["part"] == "times" and n_train > 0 else published
    return datasets.synthetic(task["set"], n_rows)


def fit(task: Task, data: Dataset, report: Report, limits: Limits) -> dict[str, Any]:
    """Trains as the task says, within limits, and tests; only training is measured."""
    rows = _rows(task, data)
    report(_facts(rows, data))
    clf = _classifier(task, len(rows.labels))
    start = time.perf_counter()
    with limits as cost:
        clf.fit(rows.X, rows.labels)
    wall = time.perf_counter() - start
    gamma = float(clf.kernel_.width)
    return cost | {"wall": wall, "gamma": gamma, "iterations": clf.n_iter_} | _measures(clf, rows)


def on_gpu(task: Task) -> bool:
    return "subject" in task and task["subject"].get("backend") == "gpu"


def fit_on_gpu(task: Task, data: Dataset, report: Report) -> dict[str, Any]:
    """`fit` on a GPU: seconds of the wall clock, megabytes of the device, and a first fit that is not measured."""
    torch = optional("torch", "gpu")
    if not torch.cuda.is_available():
        raise NotPossibleError("no GPU")
    warm(task, data)
    torch.cuda.reset_peak_memory_stats()
    measured = fit(task, data, report, nullcontext({}))
    return measured | {"seconds": measured["wall"], "megabytes": torch.cuda.max_memory_allocated() / 1e6}


def tune(task: Task, data: Dataset, report: Report) -> dict[str, Any]:
    """C, width and step: by cross-validation on labelled rows (honest), or by the error on test rows (oracle)."""
    start = time.process_time()
    chosen = (_tune_honestly if task["protocol"] == "honest" else _tune_by_oracle)(task, data, report)
    return chosen | {"seconds": time.process_time() - start}


def _tune_honestly(task: Task, data: Dataset, report: Report) -> dict[str, Any]:
    rows = _rows(task, data)
    report(_facts(rows, data))
    clf = S3VMClassifierCV(unlabeled_weight=0.0, probability=False, random_state=task["trial"])
    clf.fit(rows.X, rows.labels)
    return {"C": clf.C_, "gamma": float(clf.kernel_.width), "step": None}


def _tune_by_oracle(task: Task, data: Dataset, report: Report) -> dict[str, Any]:
    grid, subject = task["grid"], task["subject"]
    trials = range(task["trial"], task["trial"] + grid["draws"])
    size = {"rows": task["tuned_at"], "test_rows": grid["test_rows"]}
    draws = [_rows(task | size | {"trial": trial}, data) for trial in trials]
    report(_facts(draws[0], data))
    unit = task["n_labeled"] if subject["printed"] else 1  # the paper's C is that of all labelled rows together
    searches_step = subject["printed"] and subject["kind"] != "bgs" and "step" not in subject["settings"]

    def setting(c: int, g: int, eta: int | None) -> dict[str, Any]:
        return {"C": 10.0**c / unit, "gamma": 10.0**g, "step": None if eta is None else 10.0**-eta}

    def errors_of(cell: tuple[Any, ...]) -> tuple[float, float]:
        """The error, and the balanced error, which decides where many cells put all rows into the larger class."""
        scores = []
        for rows in draws:
            try:
                clf = _classifier(task | setting(*cell), len(rows.labels)).fit(rows.X, rows.labels)
            except (ArithmeticError, ValueError):  # a cell in which the coefficients overflow is a bad one
                return 1.0, 1.0
            predicted = clf.predict(rows.test)
            scores.append((np.mean(predicted != rows.truth), 1 - balanced_accuracy_score(rows.truth, predicted)))
        error, balanced_error = np.mean(scores, axis=0).tolist()
        return error, balanced_error

    cells = list(product(grid["log_c"], grid["log_gamma"], grid["log_eta"] if searches_step else [None]))
    errors: dict[tuple[Any, ...], tuple[float, float]] = {}
    best, ahead = None, [cell for cell in cells if not grid["coarse"] or (cell[0] % 2 and cell[1] % 2)]
    while ahead:  # then around the best, until no cell there is better
        errors |= {cell: errors_of(cell) for cell in ahead}
        best = min(errors, key=lambda cell: errors[cell])
        near = [cell for cell in cells if all(a is None or abs(a - b) <= 1 for a, b in zip(cell, best, strict=True))]
        ahead = [cell for cell in near if cell not in errors]
    assert best is not None
    return setting(*best) | {"error": errors[best][0], "balanced_error": errors[best][1]}


def warm(task: Task, data: Dataset) -> None:
    """Trains on a few rows, so that nothing is compiled or loaded while others are measured."""
    few = slice(0, min(_WARM_ROWS, data.n_rows))
    labels = np.full(few.stop, -1)
    labels[:40] = np.arange(40) % 2
    clf = _classifier(task | {"C": 1.0, "step": None, "trial": 0})
    clf.fit(data.X[few], labels)
    clf.set_params(cache_bytes=_WARM_BYTES).fit(data.X[few], labels)
    for_many_rows: Any = solver(clf.solver).for_streaming()
    if for_many_rows.pilot(1) is not None:
        clf.set_params(solver=replace(for_many_rows, max_iter=4, passes=None)).fit(data.X[few], labels)


def _rows(task: Task, data: Dataset) -> Rows:
    """Labels drawn with the trial's number; the other rows are split into folds or, for times, taken as asked."""
    trial, n_labeled, n_most = task["trial"], task["n_labeled"], task.get("rows")
    labels = datasets.mask(data.y, n_labeled, trial)
    labeled = np.flatnonzero(labels >= 0)
    others = np.random.default_rng([trial, 1]).permutation(np.flatnonzero(labels < 0))
    if task["part"] == "times" or not task["folds"]:
        n_test = task.get("test_rows") or 0
        test, train = others[:n_test], others[n_test:]
        n_train = len(train) if n_most is None or n_most < 0 else n_most - n_labeled
        if n_train > len(train):
            raise NotPossibleError(f"the set has {data.n_rows:,} rows")
        train = train[:n_train]
    else:
        folds = np.array_split(others, task["folds"])
        train = folds.pop(trial % task["folds"])[: None if n_most is None else n_most - n_labeled]
        test = np.random.default_rng([trial, 2]).permutation(np.concatenate(folds))[: task.get("test_rows")]
    used = np.sort(np.concatenate([labeled, train]))
    return Rows(data.X[used], labels[used], data.X[test], data.y[test])


def _classifier(task: Task, n_rows: int | None = None) -> S3VMClassifier:
    gamma: Any = "median" if task.get("gamma") is None else task["gamma"]
    common: dict[str, Any] = {"C": task["C"], "probability": False, "random_state": task["trial"]}
    common["backend"] = "gpu" if on_gpu(task) else "cpu"
    if task["part"] == "ablation":
        chosen, weight, settings = variant(task["solver"], task["max_iter"])
        kernel = RBF(gamma, features=settings.pop("features", "pairs"))
        return S3VMClassifier(chosen, kernel=kernel, unlabeled_weight=weight, **settings, **common)
    subject = task["subject"]
    kind, settings = subject["kind"], dict(subject["settings"])
    if kind == "svm":
        return S3VMClassifier("tsg", kernel=RBF(gamma), unlabeled_weight=0.0, **common)
    if kind == "auto":
        return S3VMClassifier(kernel=RBF(gamma), **common)
    if task.get("max_iter") is not None:
        settings |= {"max_iter": task["max_iter"], "passes": None}
    make: Any = SOLVERS[kind]
    if not subject["printed"]:
        return S3VMClassifier(make(**settings), kernel=RBF(gamma), unlabeled_weight=subject["weight"], **common)
    if task.get("step"):
        settings["step"] = Constant(1 / task["step"])
    if n_rows and kind in ("tsg", "frs"):
        settings["n_features"] = int(np.ceil(np.sqrt(n_rows)))  # the package's "sqrt" is at least 64
    if kind == "bgs":
        return S3VMClassifier(make.as_printed(**settings), kernel=RBF(gamma), unlabeled_weight="paper", **common)
    chosen = PrintedTSG(**settings) if kind == "tsg" else make.as_printed(**settings)
    return S3VMClassifier(chosen, kernel=RBF(gamma, features="phase"), unlabeled_weight="paper", **_PAPER, **common)


def _facts(rows: Rows, data: Dataset) -> dict[str, Any]:
    shape = {"n": len(rows.labels), "dims": data.n_dims, "n_test": len(rows.truth)}
    return shape | {"positive": float(np.mean(data.y == 1)), "source": data.source}


def _measures(clf: S3VMClassifier, rows: Rows) -> dict[str, float]:
    scores = clf.decision_function(rows.test)
    predicted = (scores > 0).astype(int)
    return {
        "error": float(np.mean(predicted != rows.truth)),
        "balanced_error": float(1 - balanced_accuracy_score(rows.truth, predicted)),
        "auc": float(roc_auc_score(rows.truth, scores)),
        "predicted_positive": float(predicted.mean()),
    }

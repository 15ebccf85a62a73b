"""What one run does: it takes its rows, chooses settings or fits with given ones, and says what came of it."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from experiments import datasets
from experiments.ablation import variant
from experiments.datasets import Dataset
from s3vm._utils.typing import Array
from s3vm.estimators.classifier import S3VMClassifier
from s3vm.estimators.tuning import S3VMClassifierCV
from s3vm.kernels import RBF
from s3vm.solvers import SOLVERS, TSG, Constant, PrintedTSG

__all__ = ["Tell", "TooFewRowsError", "dataset", "fit", "tune", "warm"]

Task = dict[str, Any]
Tell = Callable[[dict[str, Any]], None]
Measured = AbstractContextManager[dict[str, float]]

_SMALL = 300
_PRINTED: dict[str, Any] = {"loss": "hat", "labeled_loss": "hinge"}
_WARM_BYTES = 1 << 16


class TooFewRowsError(ValueError):
    """The set has not as many rows as a run asks for."""


class Rows(NamedTuple):
    """Rows to train on with the codes of their labels (-1: hidden), and rows to test on."""

    X: Any
    labels: Array
    test: Any
    truth: Array


def dataset(task: Task) -> Dataset:
    """The rows a task is about; made ones are as many as it needs."""
    if not task["synthetic"]:
        return datasets.load(task["set"], progress=False)
    asked = task.get("rows") or 0
    known = datasets.KNOWN[task["set"]].n_rows
    n_rows = asked + task.get("test_rows", 0) if task["part"] == "times" and asked > 0 else known
    return datasets.synthetic(task["set"], n_rows)


def fit(task: Task, data: Dataset, tell: Tell, measured: Measured) -> dict[str, Any]:
    """Trains as the task says and tests; only what is inside `measured` counts. It tells what it is about to do."""
    rows = _rows(task, data)
    tell(_facts(rows, data))
    clf = _classifier(task)
    start = time.perf_counter()
    with measured as cost:
        clf.fit(rows.X, rows.labels)
    wall = time.perf_counter() - start
    gamma = float(clf.kernel_.width)
    return cost | {"wall": wall, "gamma": gamma, "iterations": clf.n_iter_} | _measures(clf, rows)


def tune(task: Task, data: Dataset, tell: Tell) -> dict[str, Any]:
    """C, width and step: by cross-validation on labelled rows (honest), or by the error on test rows (oracle)."""
    grid, start = task["grid"], time.process_time()
    if task["protocol"] == "honest":
        rows = _rows(task, data)
        tell(_facts(rows, data))
        clf = S3VMClassifierCV(unlabeled_weight=0.0, probability=False, random_state=task["trial"])
        clf.fit(rows.X, rows.labels)
        chosen = {"C": clf.C_, "gamma": float(clf.kernel_.width), "step": None}
        return chosen | {"seconds": time.process_time() - start}
    rows = _rows(task | {"rows": grid["rows"], "test_rows": grid["test_rows"]}, data)
    tell(_facts(rows, data))

    def error(C: float, gamma: float, step: float | None) -> float:
        try:
            clf = _classifier(task | {"C": C, "gamma": gamma, "step": step}).fit(rows.X, rows.labels)
        except (ArithmeticError, ValueError):  # a cell in which the coefficients overflow is a bad one
            return 1.0
        return float(np.mean(clf.predict(rows.test) != rows.truth))

    cells = [(10.0**c, 10.0**g) for c in grid["log_c"] for g in grid["log_gamma"]]
    errors = {cell: error(*cell, None) for cell in cells}
    C, gamma = min(cells, key=lambda cell: errors[cell])
    step = None
    if task["subject"]["printed"]:
        step = min((10.0**-eta for eta in grid["log_eta"]), key=lambda one: error(C, gamma, one))
    chosen = {"C": C, "gamma": gamma, "step": step, "error": min(errors.values())}
    return chosen | {"seconds": time.process_time() - start}


def warm(task: Task, data: Dataset) -> None:
    """Trains on a few rows, so that nothing is compiled, or loaded, while others are measured."""
    few = slice(0, min(_SMALL, data.n_rows))
    labels = np.full(few.stop, -1)
    labels[:40] = np.arange(40) % 2
    clf = _classifier(task | {"C": 1.0, "step": None, "trial": 0})
    clf.fit(data.X[few], labels)
    clf.set_params(cache_bytes=_WARM_BYTES).fit(data.X[few], labels)
    if isinstance(clf.solver, TSG):
        clf.set_params(solver=TSG(span="features", max_iter=4)).fit(data.X[few], labels)


def _rows(task: Task, data: Dataset) -> Rows:
    """Labels drawn by the trial's number; the other rows are folds, or, for times, as many as asked."""
    trial, n_labelled, most = task["trial"], task["n_labelled"], task.get("rows")
    labels = datasets.mask(data.y, n_labelled, trial)
    labelled = np.flatnonzero(labels >= 0)
    others = np.random.default_rng([trial, 1]).permutation(np.flatnonzero(labels < 0))
    if task["part"] == "times":
        test, train = others[: task["test_rows"]], others[task["test_rows"] :]
        wanted = len(train) if most is None or most < 0 else most - n_labelled
        if wanted > len(train):
            raise TooFewRowsError(f"the set has {data.n_rows:,} rows")
        train = train[:wanted]
    else:
        folds = np.array_split(others, task["folds"])
        train = folds.pop(trial % task["folds"])[: None if most is None else most - n_labelled]
        test = np.random.default_rng([trial, 2]).permutation(np.concatenate(folds))[: task.get("test_rows")]
    used = np.sort(np.concatenate([labelled, train]))
    return Rows(data.X[used], labels[used], data.X[test], data.y[test])


def _classifier(task: Task) -> S3VMClassifier:
    gamma: Any = "median" if task.get("gamma") is None else task["gamma"]
    common: dict[str, Any] = {"C": task["C"], "probability": False, "random_state": task["trial"]}
    if task["part"] == "ablation":
        solver, weight, more = variant(task["solver"], task["max_iter"])
        kernel = RBF(gamma, features=more.pop("features", "pairs"))
        return S3VMClassifier(solver, kernel=kernel, unlabeled_weight=weight, **more, **common)
    subject = task["subject"]
    if subject["kind"] == "svm":
        return S3VMClassifier(kernel=RBF(gamma), unlabeled_weight=0.0, **common)
    kind, settings = SOLVERS[subject["kind"]], dict(subject["settings"])
    if task.get("max_iter") is not None:
        settings |= {"max_iter": task["max_iter"], "passes": None}
    if not subject["printed"]:
        return S3VMClassifier(kind(**settings), kernel=RBF(gamma), unlabeled_weight=subject["weight"], **common)
    if task.get("step"):
        settings["step"] = Constant(1 / task["step"])
    kernel = RBF(gamma, features="phase")
    solver = PrintedTSG(**settings) if kind is TSG else kind.as_printed(**settings)  # type: ignore[attr-defined]
    return S3VMClassifier(solver, kernel=kernel, unlabeled_weight="paper", **_PRINTED, **common)


def _facts(rows: Rows, data: Dataset) -> dict[str, Any]:
    shape = {"n": len(rows.labels), "dims": data.n_dims, "n_test": len(rows.truth)}
    return shape | {"positive": float(np.mean(data.y == 1)), "source": data.source}


def _measures(clf: S3VMClassifier, rows: Rows) -> dict[str, float]:
    scores = clf.decision_function(rows.test)
    guess = (scores > 0).astype(int)
    return {
        "error": float(np.mean(guess != rows.truth)),
        "balanced_error": float(1 - balanced_accuracy_score(rows.truth, guess)),
        "auc": float(roc_auc_score(rows.truth, scores)),
        "predicted_positive": float(guess.mean()),
    }

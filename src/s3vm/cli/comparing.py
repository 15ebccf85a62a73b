"""`s3vm compare`: what each way of learning makes of the user's data."""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC
from typer import Exit

import s3vm
from s3vm import LabeledKFold, tables
from s3vm._typing import Array, Rows
from s3vm.cli import summary
from s3vm.cli.data import Data, Files, gather, test_rows, writable
from s3vm.cli.fitting import scaled
from s3vm.cli.measures import error_of
from s3vm.cli.screen import Screen
from s3vm.cli.settings import Settings
from s3vm.kernels import Kernel
from s3vm.solvers import SOLVERS
from s3vm.training import Interrupted

__all__ = ["compare"]

_FOLDS = 5
_NEIGHBOURS, _SURE = 7, 0.9


class Part(NamedTuple):
    """Rows to learn from (codes of their classes, -1: unlabelled), rows to judge by, and the C and kernel to use."""

    rows: Rows
    codes: Array
    test: Rows
    truth: Array
    C: float
    kernel: Kernel


def compare(
    screen: Screen, files: Files, settings: Settings, test: str | None, report: str | None, max_rows: int
) -> None:
    settings.classifier()
    writable(report)
    data = gather(screen, files)
    held = test_rows(screen, files, data, test)
    fewer = _fewer(data, max_rows, settings.seed)
    with screen.progress("choosing C and gamma", "parts") as told:
        parts = _parts(screen, fewer, held, settings, told)
    methods = _methods(settings)
    found: list[dict[str, Any]] = []
    interrupted = False
    try:
        with screen.progress("comparing", "runs") as told:
            for name, method in methods.items():
                told(len(found) * len(parts), len(methods) * len(parts), name)
                found.append({"method": name} | _tried(method, parts))
    except KeyboardInterrupt:
        interrupted = True
        screen.warn(f"interrupted after {len(found)} of {len(methods)} methods")
    _against_the_first(found)
    result = {
        "command": "compare",
        "s3vm": s3vm.__version__,
        "data": data.described(files.data),
        "unlabelled_used": fewer.n_rows - fewer.n_labelled,
        "judged_by": test or f"{len(parts)}-fold cross-validation of the labelled rows",
        "rows": sum(len(part.truth) for part in parts),
        "methods": found,
        "interrupted": interrupted,
    }
    if report is not None and found:
        _report(report, result, settings)
        result["report"] = report
    screen.finish(result, *summary.of_comparison(result))
    if interrupted:
        raise Exit(130)


def _fewer(data: Data, max_rows: int, seed: int) -> Data:
    """The data with a random sample of the unlabelled rows, if there are more than `max_rows`."""
    unlabelled = np.flatnonzero(data.labels == None)  # noqa: E711
    if not max_rows or len(unlabelled) <= max_rows:
        return data
    sample = np.random.default_rng(seed).choice(unlabelled, max_rows, replace=False)
    kept = np.sort(np.concatenate([np.flatnonzero(data.labels != None), sample]))  # noqa: E711
    return replace(data, rows=data.rows[kept], labels=data.labels[kept])


def _parts(
    screen: Screen, data: Data, held: tuple[Rows, Array] | None, settings: Settings, told: Callable[..., None]
) -> list[Part]:
    """The test rows, or else folds of the labelled ones, each with a C and a width chosen on its training rows."""
    rows, scaler = scaled(screen, data, settings.scale)
    known = {label: code for code, label in enumerate(data.counts)} | {None: -1}
    codes = np.array([known[label] for label in data.labels], dtype=np.intp)
    if held is not None:
        test = held[0] if scaler is None else scaler.transform(held[0], copy=False)
        split = [(rows, codes, test, held[1])]
    else:
        least = min(data.counts, key=lambda label: data.counts[label])
        if data.counts[least] < 2:
            raise tables.TableError(f"class {least!r} has a single labelled row: label another, or give --test")
        folds = LabeledKFold(min(_FOLDS, data.counts[least]), shuffle=True, random_state=settings.seed)
        split = [(rows[train], codes[train], rows[test], codes[test]) for train, test in folds.split(rows, codes)]
    result: list[Part] = []
    for part in split:
        told(len(result), len(split))
        yardstick = replace(settings, weight="0").classifier().set_params(unlabeled=-1, probability=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yardstick.fit(*part[:2])
        result.append(Part(*part, yardstick.C_, yardstick.kernel_))
    return result


def _methods(settings: Settings) -> dict[str, Callable[[Part], Array]]:
    """Each learns from a part and predicts the codes of its test rows."""

    def ours(solver: str, weight: str) -> Callable[[Part], Array]:
        def learn(part: Part) -> Array:
            clf = replace(settings, solver=solver, weight=weight, C=part.C, gamma=str(part.kernel.width)).classifier()
            clf.set_params(unlabeled=-1, probability=False, kernel=part.kernel)
            return clf.fit(part.rows, part.codes).predict(part.test)

        return learn

    def self_training(part: Part) -> Array:
        n_folds = int(min(_FOLDS, np.bincount(part.codes[part.codes >= 0]).min()))
        if n_folds < 2:
            raise ValueError("needs two labelled rows of each class")
        svm = CalibratedClassifierCV(SVC(C=part.C, kernel=part.kernel.gram), cv=n_folds, ensemble=False)
        return SelfTrainingClassifier(svm, threshold=_SURE).fit(part.rows, part.codes).predict(part.test)

    def label_spreading(part: Part) -> Array:
        spreading = LabelSpreading(kernel="knn", n_neighbors=_NEIGHBOURS, max_iter=100, n_jobs=settings.jobs)
        return spreading.fit(part.rows, part.codes).predict(part.test)

    return {
        "supervised SVM": ours("tsg", "0"),
        "self-training": self_training,
        "label spreading": label_spreading,
        **{f"s3vm {name}": ours(name, settings.weight) for name in SOLVERS},
    }


def _tried(method: Callable[[Part], Array], parts: list[Part]) -> dict[str, Any]:
    """The error of a method over all parts, and its seconds for each; or why there is none."""
    wrong, start = [], time.perf_counter()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            for part in parts:
                wrong.append(method(part) != part.truth)
        except (ArithmeticError, MemoryError, RuntimeError, ValueError) as problem:
            return {"failed": str(problem).splitlines()[0] if str(problem) else type(problem).__name__}
    if any(issubclass(one.category, Interrupted) for one in heard):
        raise KeyboardInterrupt
    duration = (time.perf_counter() - start) / len(parts)
    missed = np.concatenate(wrong)
    collapsed = any(str(one.message).startswith("collapse") for one in heard)
    return error_of(int(missed.sum()), len(missed)) | {"seconds": duration, "collapsed": collapsed, "wrong": missed}


def _against_the_first(found: list[dict[str, Any]]) -> None:
    """How each error differs from that of the first method, and the standard error of that, row by row."""
    wrong = [one.pop("wrong", None) for one in found]
    for one, missed in zip(found, wrong, strict=True):
        if missed is not None and wrong[0] is not None:
            change = missed.astype(float) - wrong[0]
            one["change"] = float(change.mean())
            one["change_standard_error"] = float(change.std(ddof=1) / np.sqrt(len(change))) if len(change) > 1 else 0.0


def _report(path: str, result: dict[str, Any], settings: Settings) -> None:
    from matplotlib.figure import Figure

    from s3vm import report

    found = [one for one in result["methods"] if "failed" not in one]
    table = {
        "method": [one["method"] for one in result["methods"]],
        "error, %": [100 * one["error"] if "error" in one else None for one in result["methods"]],
        "± (standard error)": [100 * one["standard_error"] if "error" in one else None for one in result["methods"]],
        "against the SVM": [100 * one["change"] if "change" in one else None for one in result["methods"]],
        "± (row by row)": [
            100 * one["change_standard_error"] if "change" in one else None for one in result["methods"]
        ],
        "seconds": [one.get("seconds") for one in result["methods"]],
        "": [one.get("failed", "collapsed" if one.get("collapsed") else "") for one in result["methods"]],
    }
    figure = Figure(figsize=(5.4, 0.9 + 0.32 * len(found)), layout="constrained")
    axes = figure.subplots()
    at = np.arange(len(found))[::-1]
    errors, spread = (100 * np.array([one[key] for one in found]) for key in ("error", "standard_error"))
    axes.errorbar(errors, at, xerr=spread, fmt="o", color="#000000", capsize=3)
    axes.set_yticks(at, [one["method"] for one in found])
    axes.set_xlabel("error, % (± standard error)")
    axes.spines[["top", "right"]].set_visible(False)
    best = min(found, key=lambda one: one["error"]) if found else None
    data = result["data"]
    text = f"Judged by {result['judged_by']}: {result['rows']:,} rows. C and width of the kernel are those of the SVM."
    report.write(
        path,
        f"Ways to learn from {Path(data['file']).name}",
        "Every method failed." if best is None else f"The fewest errors: {best['method']}, {best['error']:.1%}.",
        [report.Section("Errors", text, table=table, figure=figure, data=table)],
        {**data, "unlabelled rows used": result["unlabelled_used"], **vars(settings)},
        {one["method"]: f"{one['error']:.1%}\n± {one['standard_error']:.1%}" for one in found},
    )

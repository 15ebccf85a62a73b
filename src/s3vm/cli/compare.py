"""`s3vm compare`: what each way of learning makes of the user's data."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC
from typer import Exit

import s3vm
from s3vm import LabeledKFold
from s3vm._utils.optional import optional
from s3vm._utils.typing import Array, Rows
from s3vm.cli import summary
from s3vm.cli.console import Screen, printable
from s3vm.cli.fit import scaled
from s3vm.cli.inputs import Data, Files, gather, held_rows, writable
from s3vm.cli.measures import error_of
from s3vm.cli.settings import Settings
from s3vm.inspect.page import Section, write
from s3vm.kernels import Kernel
from s3vm.solvers import SOLVERS, solver
from s3vm.sources import readers as tables
from s3vm.training.loop import Interrupted

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
    screen: Screen,
    files: Files,
    settings: Settings,
    test: str | None,
    report: str | None,
    max_rows: int,
    solvers: Sequence[str] = (),
) -> None:
    for name in solvers:
        solver(name)  # or it says which there are
    writable(report, inputs=[files.data, *files.unlabeled, test])
    if report is not None:
        optional("matplotlib", "report")
    data = gather(screen, files)
    held = held_rows(screen, files, data, test)
    fewer = _fewer(data, max_rows, settings.seed)
    with screen.progress("choosing C and gamma", "parts") as told:
        parts = _parts(screen, fewer, held, settings, told)
    methods = _methods(settings, solvers or tuple(SOLVERS))
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
    screen.finish(result, *summary.of_comparison(printable(result)))
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
        with _heard():
            yardstick.fit(*part[:2])
        result.append(Part(*part, yardstick.C_, yardstick.kernel_))
    return result


def _methods(settings: Settings, solvers: Sequence[str]) -> dict[str, Callable[[Part], Array]]:
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
        **{f"s3vm {name}": ours(name, settings.weight) for name in solvers},
    }


def _tried(method: Callable[[Part], Array], parts: list[Part]) -> dict[str, Any]:
    """The error of a method over all parts, and its seconds for each; or why there is none."""
    wrong, start = [], time.perf_counter()
    try:
        with _heard() as heard:
            for part in parts:
                wrong.append(method(part) != part.truth)
    except (ArithmeticError, MemoryError, RuntimeError, ValueError) as problem:
        return {"failed": str(problem).splitlines()[0] if str(problem) else type(problem).__name__}
    duration = (time.perf_counter() - start) / len(parts)
    missed = np.concatenate(wrong)
    collapsed = any(str(one.message).startswith("collapse") for one in heard)
    return error_of(int(missed.sum()), len(missed)) | {"seconds": duration, "collapsed": collapsed, "wrong": missed}


@contextmanager
def _heard() -> Iterator[list[warnings.WarningMessage]]:
    """The warnings, which are not shown; Ctrl-C, of which a training makes one, is Ctrl-C again."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        yield heard
    if any(issubclass(one.category, Interrupted) for one in heard):
        raise KeyboardInterrupt


def _against_the_first(found: list[dict[str, Any]]) -> None:
    """How each error differs from that of the first method, and the standard error of that, row by row."""
    wrong = [one.pop("wrong", None) for one in found]
    for one, missed in zip(found, wrong, strict=True):
        if missed is not None and wrong[0] is not None:
            change = missed.astype(float) - wrong[0]
            one["change"] = float(change.mean())
            one["change_standard_error"] = float(change.std(ddof=1) / np.sqrt(len(change))) if len(change) > 1 else 0.0


def _report(path: str, result: dict[str, Any], settings: Settings) -> None:
    found = [one for one in result["methods"] if "failed" not in one]
    figure = optional("matplotlib.figure", "report").Figure(
        figsize=(5.4, 0.9 + 0.32 * len(found)), layout="constrained"
    )
    axes, at = figure.subplots(), np.arange(len(found))[::-1]
    errors, spread = (100 * np.array([one[key] for one in found]) for key in ("error", "standard_error"))
    axes.errorbar(errors, at, xerr=spread, fmt="o", color="#000000", capsize=3)
    axes.set_yticks(at, [one["method"] for one in found])
    axes.set_xlabel("error, % (± standard error)")
    axes.spines[["top", "right"]].set_visible(False)
    data, plain = result["data"], dict(vars(settings))
    best = min(found, key=lambda one: one["error"]) if found else None
    write(
        path,
        f"Ways to learn from {Path(data['file']).name}",
        "Every method failed."
        if best is None
        else f"The fewest errors: {best['method']}, {_plus_minus(best, 'error')}.",
        [
            Section(
                "Errors",
                f"Of {result['rows']:,} rows, by {result['judged_by']}. C and the width of the kernel are those of the "
                "supervised SVM. The difference from it is taken row by row, which makes its standard error smaller.",
                table=_columns(result["methods"]),
                figure=figure,
                data={"method": [one["method"] for one in found], "error, %": errors, "standard error": spread},
            )
        ],
        {**data, "unlabelled rows used": result["unlabelled_used"]}
        | {name: value for name, value in plain.items() if value is not None and name != "solver"},
        {one["method"]: f"{one['error']:.1%}\n± {one['standard_error']:.1%}" for one in found},
    )


def _columns(methods: list[dict[str, Any]]) -> dict[str, list[str]]:
    columns = {
        "method": [one["method"] for one in methods],
        "error": [_plus_minus(one, "error") for one in methods],
        "difference from the SVM": [_plus_minus(one, "change", "+") for one in methods],
        "seconds": [f"{one['seconds']:.2f}" if "seconds" in one else "" for one in methods],
        "remark": [one.get("failed", "collapsed" if one.get("collapsed") else "") for one in methods],
    }
    return {name: column for name, column in columns.items() if any(column)}


def _plus_minus(one: dict[str, Any], name: str, sign: str = "") -> str:
    if name not in one:
        return "–"
    spread = one["standard_error" if name == "error" else f"{name}_standard_error"]
    return f"{one[name]:{sign}.1%} ± {spread:.1%}"

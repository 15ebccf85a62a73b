"""`s3vm compare`: what else a user could take, and ours, on the user's data."""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC

from s3vm._utils.typing import Array, Rows
from s3vm.cli.commands import Compare
from s3vm.cli.console import Screen
from s3vm.cli.inputs import Dataset, check_writable, class_codes, read_data, read_test_rows
from s3vm.cli.options import Settings, check_ending
from s3vm.cli.summary import comparison_summary
from s3vm.inspect.diagnostics import error_measures
from s3vm.inspect.page import Section, write_page
from s3vm.inspect.tables import comparison_columns
from s3vm.kernels import Kernel
from s3vm.solvers import solver
from s3vm.sources import readers
from s3vm.training.loop import Interrupted

_FOLDS = 5
_NEIGHBORS, _MIN_PROBABILITY = 7, 0.9
_MANY_LABELS = 1000  # from which on gradient boosting is by histograms, as scikit-learn advises
_OURS = "s3vm"
_SUPERVISED = ("logistic regression", "random forest", "gradient boosting")  # see the labelled rows only


class Split(NamedTuple):
    """Training rows (class codes, -1: unlabelled), test rows, and the C and kernel to use."""

    rows: Rows
    codes: Array
    test_rows: Rows
    test_codes: Array
    C: float
    kernel: Kernel


Method = Callable[[Split], Any]  # the unfitted classifier for a split


def run_compare(options: Compare) -> None:
    screen, test, report = options.screen(), options.test, options.report
    for name in options.solvers:
        solver(name)  # raises an error for an unknown name
    check_writable(report, inputs=[options.data, *options.unlabeled, test])
    check_ending(report, ".html", ".htm")
    data = read_data(screen, options)
    test_rows = read_test_rows(screen, options, data, test)
    sampled = _sample_unlabeled(data, options.max_rows, options.seed)
    with screen.progress("choosing C and gamma", "splits") as report_progress:
        splits = _splits(screen, sampled, test_rows, options, report_progress)
    methods = _methods(options, sparse.issparse(data.rows))
    deadline = time.perf_counter() + options.time_limit
    outcomes: list[dict[str, Any]] = []
    with screen.progress("comparing", "runs") as report_progress:
        for name, method in methods.items():
            report_progress(len(outcomes) * len(splits), len(methods) * len(splits), name)
            outcomes.append({"method": name} | _test_method(name, method, splits, deadline))
    advice = _advice(outcomes)
    _compare_to_first(outcomes)
    result = {
        "data": data.describe(options.data),
        "unlabeled_used": sampled.n_rows - sampled.n_labeled,
        "judged_by": test or f"{len(splits)}-fold cross-validation of the labelled rows",
        "rows": sum(len(split.test_codes) for split in splits),
        "methods": outcomes,
        "advice": advice,
    }
    if report is not None:
        _write_report(report, result, options)
        result["report"] = report
    screen.finish("compare", result, comparison_summary)


def _sample_unlabeled(data: Dataset, max_rows: int, seed: int) -> Dataset:
    """The data with at most `max_rows` unlabelled rows, drawn at random; 0 keeps all."""
    unlabeled = np.flatnonzero(data.labels == None)  # noqa: E711
    if not max_rows or len(unlabeled) <= max_rows:
        return data
    sample = np.random.default_rng(seed).choice(unlabeled, max_rows, replace=False)
    chosen = np.sort(np.concatenate([np.flatnonzero(data.labels != None), sample]))  # noqa: E711
    return replace(data, rows=data.rows[chosen], labels=data.labels[chosen])


def _splits(
    screen: Screen, data: Dataset, test: tuple[Rows, Array] | None, settings: Settings, show: Callable[..., None]
) -> list[Split]:
    """The test rows, or else folds of the labelled ones, each with a C and a width chosen on its training rows.

    The only row of a class is in every training part: no model could recognise it in a test part.
    """
    rows = data.rows
    codes = class_codes(data.labels, list(data.counts))
    if test is not None:
        parts = [(rows, codes, *test)]
    else:
        counts = np.array(list(data.counts.values()))
        for at in np.flatnonzero(counts == 1):
            screen.warn(f"class {list(data.counts)[at]!r} has a single labelled row: it is in no test part")
        if counts.max() < 2:
            raise readers.TableError("no class has two labelled rows, so that one could be held out: give --test")
        labeled = np.flatnonzero((codes >= 0) & (counts[codes] > 1))
        others = np.setdiff1d(np.arange(len(codes)), labeled)
        n_folds = min(_FOLDS, counts[counts > 1].min())
        folds = StratifiedKFold(n_folds, shuffle=True, random_state=settings.seed).split(labeled, codes[labeled])
        pairs = [(np.concatenate([labeled[train], others]), labeled[test]) for train, test in folds]
        parts = [(rows[train], codes[train], rows[test], codes[test]) for train, test in pairs]
    splits: list[Split] = []
    for part in parts:
        show(len(splits), len(parts))
        supervised = replace(settings, weight="0").classifier().set_params(unlabeled=-1, probability=False)
        with _recorded_warnings():
            supervised.fit(*part[:2])
        splits.append(Split(*part, supervised.C_, supervised.kernel_))
    return splits


def _methods(options: Compare, is_sparse: bool) -> dict[str, Method]:
    def ours(solver: str, weight: str) -> Method:
        """With C and the kernel of the supervised SVM."""
        fixed = replace(options, solver=solver, weight=weight, C=1.0, gamma="median").classifier()
        return lambda split: fixed.set_params(C=split.C, kernel=split.kernel, gamma=split.kernel.width, **of_codes)

    def self_training(split: Split) -> Any:
        n_folds = int(min(_FOLDS, np.bincount(split.codes[split.codes >= 0]).min()))
        if n_folds < 2:
            raise ValueError("needs two labelled rows of each class")
        svm = CalibratedClassifierCV(SVC(C=split.C, kernel=split.kernel.gram), cv=n_folds, ensemble=False)
        return SelfTrainingClassifier(svm, threshold=_MIN_PROBABILITY)

    def boosting(split: Split) -> Any:
        is_small = np.count_nonzero(split.codes >= 0) < _MANY_LABELS
        kind = GradientBoostingClassifier if is_small or is_sparse else HistGradientBoostingClassifier
        return kind(random_state=options.seed)

    of_codes = {"unlabeled": -1, "probability": False}
    return {
        "supervised SVM": ours("tsg", "0"),
        "logistic regression": lambda _: LogisticRegression(max_iter=1000),
        "random forest": lambda _: RandomForestClassifier(random_state=options.seed, n_jobs=options.jobs),
        "gradient boosting": boosting,
        "label spreading": lambda _: LabelSpreading(
            kernel="knn", n_neighbors=_NEIGHBORS, max_iter=100, n_jobs=options.jobs
        ),
        "self-training": self_training,
        _OURS: lambda _: options.classifier().set_params(**of_codes),
        **{f"s3vm {name}": ours(name, options.weight) for name in options.solvers},
    }


def _test_method(name: str, method: Method, splits: list[Split], deadline: float) -> dict[str, Any]:
    """The error of a method over all splits and its seconds per split, or why it failed."""
    mistakes, start = [], time.perf_counter()
    try:
        with _recorded_warnings() as recorded:
            for split in splits:
                if time.perf_counter() > deadline and name != _OURS:
                    return {"failed": "no time left: give --max-seconds"}
                chosen = np.flatnonzero(split.codes >= (0 if name in _SUPERVISED else -1))
                classifier = method(split).fit(split.rows[chosen], split.codes[chosen])
                mistakes.append(classifier.predict(split.test_rows) != split.test_codes)
    except (ArithmeticError, MemoryError, RuntimeError, ValueError) as problem:
        return {"failed": str(problem).splitlines()[0] if str(problem) else type(problem).__name__}
    duration = (time.perf_counter() - start) / len(splits)
    wrong = np.concatenate(mistakes)
    collapsed = any(str(warning.message).startswith("collapse") for warning in recorded)
    return error_measures(int(wrong.sum()), len(wrong)) | {"seconds": duration, "collapsed": collapsed, "wrong": wrong}


@contextmanager
def _recorded_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Hides warnings and yields them; Ctrl-C during a fit, which only warns, is raised again."""
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        yield recorded
    if any(issubclass(warning.category, Interrupted) for warning in recorded):
        raise KeyboardInterrupt


def _advice(outcomes: list[dict[str, Any]]) -> str:
    """Which method to take: the one with fewest errors, or any of those within a standard error of it, row by row."""
    ranked = sorted((outcome for outcome in outcomes if "wrong" in outcome), key=lambda outcome: outcome["error"])
    if not ranked:
        return "Every method failed."
    best = ranked[0]
    gaps = {other["method"]: _difference(other["wrong"], best["wrong"]) for other in ranked[1:]}
    close = [name for name, (change, spread) in gaps.items() if change <= spread]
    text = f"Take {best['method']}: its error is the lowest, {best['error']:.1%}."
    if close:
        text = (
            f"Lowest error: {best['method']}, {best['error']:.1%}. Within chance of it: {', '.join(close)}. Take the "
            "simplest of these."
        )
    behind = [name for name in gaps if name not in close and (name == _OURS or not close)]
    if behind:
        name = _OURS if _OURS in behind else behind[0]
        change, spread = gaps[name]
        text += f" That of {name} is {100 * change:.1f} ± {100 * spread:.1f} points higher."
    return text


def _difference(wrong: Array, other: Array) -> tuple[float, float]:
    """How many more of the rows are wrong than by another method, and the standard error of the paired difference."""
    change = wrong.astype(float) - other
    spread = change.std(ddof=1) / np.sqrt(len(change)) if len(change) > 1 else 0.0
    return float(change.mean()), float(spread)


def _compare_to_first(outcomes: list[dict[str, Any]]) -> None:
    """Adds how each error differs from the first method's, with the standard error of the paired difference."""
    mistakes = [outcome.pop("wrong", None) for outcome in outcomes]
    for outcome, wrong in zip(outcomes, mistakes, strict=True):
        if wrong is not None and mistakes[0] is not None:
            change, spread = _difference(wrong, mistakes[0])
            outcome.update(change=change, change_standard_error=spread)


def _write_report(path: str, result: dict[str, Any], options: Compare) -> None:
    text = (
        f"Tested on {result['rows']:,} rows ({result['judged_by']}). C and the kernel width are those of the "
        "supervised SVM. Differences from it are paired by row, which makes their standard errors smaller."
    )
    write_page(
        path,
        f"Methods compared on {Path(options.data).name}",
        result["advice"],
        [Section("Errors", text, table=comparison_columns(result["methods"]))],
        result["data"]
        | {"unlabelled rows used": result["unlabeled_used"]}
        | {name: getattr(options, name) for name in ("kernel", "C", "gamma", "weight", "no_scale", "seed", "jobs")},
        {
            outcome["method"]: f"{outcome['error']:.1%}\n± {outcome['standard_error']:.1%}"
            for outcome in result["methods"]
            if "error" in outcome
        },
    )

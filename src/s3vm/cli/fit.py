"""`s3vm fit` and `s3vm tune`."""

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from sklearn.utils.sparsefuncs import mean_variance_axis
from typer import Exit

import s3vm
from s3vm._utils.arrays import stack
from s3vm._utils.optional import optional
from s3vm._utils.progress import losses_text
from s3vm._utils.typing import Rows
from s3vm.cli.console import Screen, printable
from s3vm.cli.inputs import Dataset, check_writable, open_data, read_data, read_test_rows
from s3vm.cli.options import InputFiles, Settings
from s3vm.cli.summary import fit_summary, tuning_summary
from s3vm.estimators.safety import FEW_LABELS
from s3vm.inspect.diagnostics import held_out_error, model_facts, score_measures, threshold_facts, verdict
from s3vm.inspect.fit_report import FitReport
from s3vm.persistence.pipeline import FittedParts
from s3vm.training.loop import Interrupted

_UNEVEN = 10.0  # ratio of the features' spreads above which unscaled features get a warning
_SCALING_SAMPLE = 100_000  # rows of a stream to scale the features by, unless all are read first anyway
_REPORT_SAMPLE = 5000  # unlabelled rows of a stream in a report
_FAR = 1e4  # spreads from 0 beyond which single precision blurs a feature


class TrainedModel(NamedTuple):
    """A fitted classifier and its scaler, the scaled rows, what was tuned, and whether Ctrl-C stopped the training."""

    parts: FittedParts
    rows: Rows
    tuned: list[str]
    interrupted: bool


def run_fit(
    screen: Screen, files: InputFiles, settings: Settings, output: str, test: str | None, report: str | None
) -> None:
    check_writable(output, report, settings.checkpoint, inputs=[files.data, *files.unlabeled, test])
    if report is not None:
        optional("matplotlib", "report")
    start = time.perf_counter()
    data = open_data(screen, files)
    test_rows = read_test_rows(screen, files, data, test)
    reading = time.perf_counter() - start
    model = train(screen, data, settings)
    clf = model.parts.classifier
    training = time.perf_counter() - start - reading
    s3vm.save(model.parts.with_feature_names(data.names).to_pipeline(), output)
    result: dict[str, Any] = {
        "data": data.describe(files.data),
        "model": model_facts(clf, data.names)
        | {"tuned": model.tuned, "file": output, "bytes": Path(output).stat().st_size},
        "held_out": held_out_error(clf, data.n_labeled),
        "threshold": threshold_facts(clf, settings.positive) if settings.threshold is not None else None,
        "unlabeled": verdict(clf),
        "interrupted": model.interrupted,
        "seconds": {"reading": reading, "training": training},
    }
    if test_rows is not None:
        rows, codes = test_rows
        rows = model.parts.scale(rows, copy=False)
        scores = clf.decision_function(rows).reshape(len(codes), -1)
        result["test"] = {"file": test} | score_measures(codes, scores, clf.classes_)
        test_rows = rows, clf.classes_[codes]
    if report is not None:
        with screen.progress("writing the report"):
            labels = np.append(data.labels, np.full(model.rows.shape[0] - len(data.labels), None))
            title = f"What was learnt from {Path(files.data).name}"
            more = {"data": files.data, "scaled": not settings.no_scale}
            page = FitReport(clf, model.rows, labels, test_rows, data.names)
            page.write(report, title, more)
        result |= {"report": report, "more_labels": page.outlook}
    screen.finish("fit", result, *fit_summary(printable(result)))
    if model.interrupted:
        raise Exit(130)


def run_tune(screen: Screen, files: InputFiles, settings: Settings) -> None:
    data = read_data(screen, files)
    clf = train(screen, data, settings).parts.classifier
    facts = model_facts(clf)
    weight = f"{facts['weight']:g}" if isinstance(facts["weight"], float) else facts["weight"]
    result: dict[str, Any] = {
        "data": data.describe(files.data),
        "chosen": {name: facts[name] for name in ("C", "gamma", "weight")},
        "options": f"--C {clf.C_:g} --gamma {clf.kernel_.width:.4g} --weight {weight}",
        "held_out": held_out_error(clf, data.n_labeled),
        "weights": {} if clf.safety_ is None else clf.safety_.scores,
        "grid": None,
        "widths": None,
    }
    if getattr(clf, "cv_errors_", None) is not None:
        result["grid"] = {"C": list(clf.Cs), "gamma": clf.cv_gammas_, "error": clf.cv_errors_}
        if clf.cv_briers_ is not None:
            result["widths"] = {"gamma": list(clf.cv_briers_), "brier": list(clf.cv_briers_.values())}
    screen.finish("tune", result, *tuning_summary(printable(result)))


def train(screen: Screen, data: Dataset, settings: Settings) -> TrainedModel:
    """Scales the rows, in place, and trains the classifier on them."""
    source: Any = data.source
    with screen.progress("checking the features" if settings.no_scale else "scaling"):
        rows, scaler = scale_rows(screen, data, not settings.no_scale)
        if source is not None and scaler is not None:
            source = source.scaled(scaler)
    tuned = " and ".join(settings.tuned)
    with (
        screen.progress(f"choosing {tuned}" if tuned else "starting", "iterations") as report_progress,
        screen.collected_warnings() as categories,
    ):

        def show_iteration(done: int, total: int, record: Any) -> None:
            report_progress(done, total, "training", losses_text(record) if screen.verbose else "")

        classifier = settings.classifier(show_iteration).set_params(**settings.of_classes(data.counts))
        checkpoint: dict[str, Any] = {"checkpoint": settings.checkpoint, "resume": settings.resume}
        classifier.fit(rows, data.labels, X_unlabeled=source, **checkpoint)
        if source is not None:  # some of its rows, for the report
            rows = stack([rows, source.sample(settings.seed, _REPORT_SAMPLE)])
    settings.set_threshold(classifier)
    classifier.set_params(verbose=0, max_seconds=None).zero_based_ = data.zero_based
    is_tuned = getattr(classifier, "cv_errors_", None) is not None
    if tuned and not is_tuned:
        screen.warn(
            f"nothing was tuned: choosing {tuned} needs {FEW_LABELS} different labelled rows, and two of every class"
        )
    parts = FittedParts(classifier, scaler)
    return TrainedModel(parts, rows, settings.tuned if is_tuned else [], Interrupted in categories)


def scale_rows(screen: Screen, data: Dataset, scale: bool) -> tuple[Rows, StandardScaler | None]:
    """The rows with features of unit variance, and their scaler; sparse rows keep their zeros."""
    names = data.names or [str(number + 1) for number in range(data.rows.shape[1])]
    if not scale:
        _check_spreads(screen, data.rows, names)
        return data.rows, None
    if data.source is not None:
        scaler = data.source.scaler(None if data.source.needs_survey else _SCALING_SAMPLE)
        vars(scaler).pop("feature_names_in_", None)  # set when the model is saved
    else:
        scaler = StandardScaler(with_mean=not sparse.issparse(data.rows)).fit(data.rows)
    if scaler.with_mean:
        far = np.flatnonzero((np.abs(scaler.mean_) > _FAR * scaler.scale_) & (scaler.var_ > 0))
        if len(far):
            screen.warn(
                f"feature {names[far[0]]!r} is {scaler.mean_[far[0]]:.3g} ± {scaler.scale_[far[0]]:.3g}: subtract a "
                "constant first, since single precision cannot resolve it"
            )
    return scaler.transform(data.rows, copy=False), scaler


def _check_spreads(screen: Screen, rows: Rows, names: list[str]) -> None:
    """Warns if the spreads of unscaled features are so different that some hardly count."""
    spread = np.sqrt(mean_variance_axis(rows, 0)[1] if sparse.issparse(rows) else rows.var(axis=0))
    varying = np.flatnonzero(spread > 0)
    if len(varying) and spread[varying].max() > _UNEVEN * spread[varying].min():
        low, high = varying[spread[varying].argmin()], varying[spread[varying].argmax()]
        screen.warn(
            f"features are not scaled: {names[high]!r} has a standard deviation of {spread[high]:.3g} and "
            f"{names[low]!r} of {spread[low]:.3g}, so that the latter hardly counts; leave out --no-scale"
        )

"""`s3vm fit` and `s3vm tune`."""

import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from typer import Exit

import s3vm
from s3vm import S3VMClassifier
from s3vm._utils.arrays import stack
from s3vm._utils.optional import optional
from s3vm._utils.progress import losses_text
from s3vm._utils.typing import Array, Rows
from s3vm.cli.commands import Fit, Tune
from s3vm.cli.console import Screen
from s3vm.cli.inputs import Dataset, check_writable, default_output, open_data, read_data, read_test_rows
from s3vm.cli.model import fitted_facts
from s3vm.cli.options import InputFiles, Settings, check_ending, check_model_name, positive_class
from s3vm.cli.summary import fit_summary, tuning_summary
from s3vm.estimators.safety import FEW_LABELS
from s3vm.inspect.diagnostics import held_out_error, held_out_measures, model_facts, score_measures
from s3vm.inspect.fit_report import FitReport, Origin, row_text
from s3vm.inspect.labelling import LabelledTable
from s3vm.persistence.pipeline import FittedParts
from s3vm.training.loop import Interrupted

_MOST_TEXT = 50_000_000  # bytes of a file whose rows are shown in a report
_FEW_VALUES = 20_000  # in rows that are fitted a second time, to say whether more labels would help
_REPORT_SAMPLE = 5000  # unlabelled rows of a stream in a report


class TrainedModel(NamedTuple):
    """A fitted classifier, what was tuned, and whether Ctrl-C stopped the training."""

    classifier: S3VMClassifier
    tuned: list[str]
    interrupted: bool


def run_fit(options: Fit) -> None:
    screen = options.screen()
    output = default_output(options.data, options.resume) if options.output is None else options.output
    check_writable(output, options.report, options.checkpoint, inputs=[options.data, *options.unlabeled, options.test])
    check_model_name(output)
    if options.report is not None:
        check_ending(options.report, ".html", ".htm")
        optional("matplotlib", "report")
    start = time.perf_counter()
    data = open_data(screen, options)
    test = read_test_rows(screen, options, data, options.test)
    reading = time.perf_counter() - start
    clf, tuned, interrupted = train(screen, data, options)
    training = time.perf_counter() - start - reading
    _save(FittedParts(clf, data.encoder), output)
    result: dict[str, Any] = {
        "data": data.describe(options.data),
        **fitted_facts(clf, data.encoder),
        "threshold": None,
        "interrupted": interrupted,
        "seconds": {"reading": reading, "training": training},
    }
    result["model"] |= {"tuned": tuned, "file": output, "bytes": Path(output).stat().st_size}
    if options.threshold is not None:
        label, reached = positive_class(options.positive, clf.classes_.tolist()), held_out_measures(clf)
        result["threshold"] = {"value": clf.threshold_}
        result["threshold"] |= {} if reached is None else {"class": label} | reached["classes"][label]
    if test is not None:
        scores = clf.decision_function(test[0]).reshape(len(test[1]), -1)
        result["test"] = {"file": options.test} | score_measures(test[1], scores, clf.classes_)
    is_cheap = data.source is None and data.rows.size <= _FEW_VALUES and not (options.quiet or interrupted)
    if options.report is not None or is_cheap:
        with screen.progress("fitting half of the labels"):
            page = _report(options, data, clf, test and (test[0], clf.classes_[test[1]]))
            result["more_labels"] = page.outlook
    if options.report is not None:
        with screen.progress("writing the report"):
            title = f"What was learnt from {Path(options.data).name}"
            page.write(options.report, title, {"data": options.data, "scaled": not options.no_scale})
        result["report"] = options.report
    screen.finish("fit", result, fit_summary)
    if interrupted:
        raise Exit(130)


def _report(options: Fit, data: Dataset, clf: S3VMClassifier, test: tuple[Rows, Array] | None) -> FitReport:
    """The report of a fit; of a stream, it shows a sample."""
    more = [] if data.source is None else [data.source.sample(options.seed, _REPORT_SAMPLE)]
    rows = stack([data.rows, *more])
    labels = np.append(data.labels, np.full(rows.shape[0] - len(data.labels), None))
    names = data.encoder.get_feature_names_out().tolist()
    columns = [plan.name for plan in data.encoder.plan_ for _ in plan.feature_names]
    return FitReport(clf, rows, labels, test, Origin(names, columns or names, _row_texts(options)))


def _row_texts(files: InputFiles) -> Callable[[int], str]:
    """What a row of a csv file says; nothing for large files and others, and for rows of other files."""
    path = Path(files.data)
    if path.suffix.lower() not in (".csv", ".tsv") or path.stat().st_size > _MOST_TEXT:
        return lambda row: ""
    table = cache(lambda: LabelledTable(path, path, str(files.target)))  # read for the first row
    return lambda row: row_text(table().cells(row)) if row < len(table().rows) else ""


def _save(parts: FittedParts, output: str) -> None:
    """Saves the model; where that fails now, in a folder for temporary files, since it may have taken long."""
    try:
        s3vm.save(parts.to_pipeline(), output)
    except OSError as problem:
        other = Path(tempfile.mkdtemp(prefix="s3vm-"), Path(output).name)
        s3vm.save(parts.to_pipeline(), other)
        raise OSError(f"{problem}. The model is in {other} instead") from problem


def run_tune(options: Tune) -> None:
    screen = options.screen()
    data = read_data(screen, options)
    clf = train(screen, data, options).classifier
    facts = model_facts(clf)
    weight = f"{facts['weight']:g}" if isinstance(facts["weight"], float) else facts["weight"]
    result: dict[str, Any] = {
        "data": data.describe(options.data),
        "chosen": {name: facts[name] for name in ("C", "gamma", "weight")},
        "options": f"--C {clf.C_:g} --gamma {clf.kernel_.width:.4g} --weight {weight}",
        "held_out": held_out_error(clf),
        "weights": {} if clf.safety_ is None else clf.safety_.scores,
        "grid": None,
        "widths": None,
    }
    if getattr(clf, "cv_errors_", None) is not None:
        result["grid"] = {"C": list(clf.Cs), "gamma": clf.cv_gammas_, "error": clf.cv_errors_}
        if clf.cv_briers_ is not None:
            result["widths"] = {"gamma": list(clf.cv_briers_), "brier": list(clf.cv_briers_.values())}
    screen.finish("tune", result, tuning_summary)


def train(screen: Screen, data: Dataset, settings: Settings) -> TrainedModel:
    tuned = " and ".join(settings.tuned)
    with (
        screen.progress(f"choosing {tuned}" if tuned else "starting", "iterations") as report_progress,
        screen.collected_warnings() as recorded,
    ):

        def show_iteration(done: int, total: int, record: Any) -> None:
            report_progress(done, total, "training", losses_text(record) if screen.verbose else "")

        classifier = settings.classifier(show_iteration).set_params(**settings.of_classes(data.counts))
        checkpoint: dict[str, Any] = {"checkpoint": settings.checkpoint, "resume": settings.resume}
        classifier.fit(data.rows, data.labels, X_unlabeled=data.source, **checkpoint)
    settings.set_threshold(classifier)
    classifier.set_params(verbose=0, max_seconds=None).zero_based_ = data.zero_based
    is_tuned = getattr(classifier, "cv_errors_", None) is not None
    if tuned and not is_tuned:
        screen.warn(
            f"nothing was tuned: choosing {tuned} needs {FEW_LABELS} different labelled rows, and two of every class"
        )
    is_interrupted = any(issubclass(warning.category, Interrupted) for warning in recorded)
    return TrainedModel(classifier, settings.tuned if is_tuned else [], is_interrupted)

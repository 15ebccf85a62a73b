"""`s3vm fit` and `s3vm tune`."""

import time
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from sklearn.utils.sparsefuncs import mean_variance_axis
from typer import Exit

import s3vm
from s3vm import S3VMClassifier, S3VMClassifierCV
from s3vm._utils.arrays import stack
from s3vm._utils.optional import optional
from s3vm._utils.typing import Rows
from s3vm.cli import summary
from s3vm.cli.console import Screen, printable
from s3vm.cli.inputs import Data, Files, gather, held_rows, opened, writable
from s3vm.cli.measures import held_out, measured, model_facts, verdict
from s3vm.cli.settings import Settings
from s3vm.inspect.fit_report import write_report
from s3vm.persistence.pipeline import Parts
from s3vm.training.loop import Interrupted

__all__ = ["fit", "learn", "scaled", "tune"]

_UNEVEN = 10.0  # times the smallest spread of a feature that the largest may be
_SAMPLE = 100_000  # rows of a stream that the features are scaled by, if it need not be read once anyway
_SHOWN = 5000  # unlabelled rows of a stream in a report
_FAR = 1e4  # spreads from 0 at which single precision begins to blur a feature


class Learnt(NamedTuple):
    """A fitted classifier and its scaler, the rows as the classifier saw them, and whether Ctrl-C came between."""

    classifier: S3VMClassifier
    scaler: StandardScaler | None
    names: list[str] | None
    rows: Rows
    interrupted: bool

    def whole(self) -> Any:
        """The classifier, or the pipeline of both, which checks the columns of data frames by name."""
        classifier, scaler = copy(self.classifier), copy(self.scaler)
        if self.names is not None:
            first: Any = scaler or classifier
            first.feature_names_in_ = np.array(self.names, dtype=object)
        return Parts(classifier, scaler, ("scaler", "classifier") if scaler else ()).to_pipeline()


def fit(screen: Screen, files: Files, settings: Settings, output: str, test: str | None, report: str | None) -> None:
    writable(output, report, settings.checkpoint, inputs=[files.data, *files.unlabeled, test])
    if report is not None:
        optional("matplotlib", "report")
    start = time.perf_counter()
    data = opened(screen, files)
    held = held_rows(screen, files, data, test)
    read = time.perf_counter()
    learnt = learn(screen, data, settings)
    clf = learnt.classifier
    trained = time.perf_counter()
    s3vm.save(learnt.whole(), output)
    file = {"file": output, "bytes": Path(output).stat().st_size}
    result: dict[str, Any] = {
        "command": "fit",
        "s3vm": s3vm.__version__,
        "data": data.described(files.data),
        "model": model_facts(clf) | {"tuned": settings.tuned if _was_tuned(clf) else []} | file,
        "held_out": held_out(clf, data.n_labelled),
        "unlabelled": verdict(clf),
        "interrupted": learnt.interrupted,
        "seconds": {"reading": read - start, "training": trained - read},
    }
    if held is not None:
        rows, codes = held
        rows = rows if learnt.scaler is None else learnt.scaler.transform(rows, copy=False)
        scores = clf.decision_function(rows).reshape(len(codes), -1)
        result["test"] = {"file": test} | measured(codes, scores, clf.classes_)
    if report is not None:
        with screen.progress("writing the report"):
            named = None if held is None else (rows, clf.classes_[codes])
            more = {"data": files.data, "scaled": settings.scale}
            title = f"What was learnt from {Path(files.data).name}"
            labels = np.append(data.labels, np.full(learnt.rows.shape[0] - len(data.labels), None))
            write_report(clf, learnt.rows, labels, report, named, title=title, more=more)
        result["report"] = report
    screen.finish(result, *summary.write_report(printable(result)))
    if learnt.interrupted:
        raise Exit(130)


def tune(screen: Screen, files: Files, settings: Settings) -> None:
    data = gather(screen, files)
    clf = learn(screen, data, settings).classifier
    model = model_facts(clf)
    options = f"--C {clf.C_:g} --gamma {clf.kernel_.width:.4g} --weight {_short(model['weight'])}"
    result: dict[str, Any] = {
        "command": "tune",
        "s3vm": s3vm.__version__,
        "data": data.described(files.data),
        "chosen": {name: model[name] for name in ("C", "gamma", "weight")},
        "options": options,
        "held_out": held_out(clf, data.n_labelled),
        "weights": {} if clf.safety_ is None else clf.safety_.scores,
        "grid": None,
        "widths": None,
    }
    if isinstance(clf, S3VMClassifierCV) and clf.cv_errors_ is not None:
        result["grid"] = {"C": list(clf.Cs), "gamma": clf.cv_gammas_, "error": clf.cv_errors_}
        if clf.cv_briers_ is not None:
            result["widths"] = {"gamma": list(clf.cv_briers_), "brier": list(clf.cv_briers_.values())}
    elif settings.tuned:
        screen.warn(f"{data.n_labelled} labelled rows are too few to choose by: C and gamma are the usual ones")
    screen.finish(result, *summary.of_tuning(printable(result)))


def learn(screen: Screen, data: Data, settings: Settings) -> Learnt:
    """Scales the rows, which are changed in place, and trains the classifier on them."""
    source: Any = data.source
    with screen.progress("scaling" if settings.scale else "looking at the features"):
        rows, scaler = scaled(screen, data, settings.scale)
        if source is not None and scaler is not None:
            source = source.scaled(scaler)
    tuned = " and ".join(settings.tuned)
    with (
        screen.progress(f"choosing {tuned}" if tuned else "starting", "iterations") as told,
        screen.listening() as kinds,
    ):

        def watch(done: int, total: int, record: Any) -> None:
            losses = [f"{name.replace('_', ' ')} {value:.3f}" for name, value in record.items() if "loss" in name]
            told(done, total, "training" + (f" ({', '.join(losses)})" if screen.verbose else ""))

        classifier = settings.classifier(watch)
        kept: dict[str, Any] = {"checkpoint": settings.checkpoint, "resume": settings.resume}
        classifier.fit(rows, data.labels, X_unlabeled=source, **kept)
        if source is not None:  # a report shows some of them
            rows = stack([rows, source.sample(settings.seed, _SHOWN)])
    classifier.set_params(verbose=0, max_seconds=None)
    return Learnt(classifier, scaler, data.names, rows, Interrupted in kinds)


def scaled(screen: Screen, data: Data, scale: bool) -> tuple[Rows, StandardScaler | None]:
    """The rows, each feature with a spread of 1, and what did it; sparse rows keep their zeros."""
    names = data.names or [str(number + 1) for number in range(data.rows.shape[1])]
    if not scale:
        spread = np.sqrt(mean_variance_axis(data.rows, 0)[1] if sparse.issparse(data.rows) else data.rows.var(axis=0))
        moving = np.flatnonzero(spread > 0)
        if len(moving) and spread[moving].max() > _UNEVEN * spread[moving].min():
            low, high = moving[spread[moving].argmin()], moving[spread[moving].argmax()]
            screen.warn(
                f"features are not scaled: {names[high]!r} has a spread of {spread[high]:.3g}, {names[low]!r} one of "
                f"{spread[low]:.3g}, and hardly counts. Leave out --no-scale"
            )
        return data.rows, None
    if data.source is not None:
        scaler = data.source.scaler(None if data.source.needs_survey else _SAMPLE)
        vars(scaler).pop("feature_names_in_", None)  # they are put on at the end
    else:
        scaler = StandardScaler(with_mean=not sparse.issparse(data.rows)).fit(data.rows)
    if scaler.with_mean:
        far = np.flatnonzero((np.abs(scaler.mean_) > _FAR * scaler.scale_) & (scaler.var_ > 0))
        if len(far):
            screen.warn(
                f"feature {names[far[0]]!r} is {scaler.mean_[far[0]]:.3g} give or take {scaler.scale_[far[0]]:.3g}: "
                "subtract a constant first, or single precision blurs it"
            )
    return scaler.transform(data.rows, copy=False), scaler


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _was_tuned(clf: S3VMClassifier) -> bool:
    """Whether there was anything to choose by: with few labels there is not."""
    return isinstance(clf, S3VMClassifierCV) and clf.cv_errors_ is not None

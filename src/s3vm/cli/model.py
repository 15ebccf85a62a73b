"""Commands on a model file: `s3vm predict`, `evaluate`, `info`, `export` and `suggest`."""

import time
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import s3vm
from s3vm import S3VMClassifier, TableEncoder
from s3vm._utils import container
from s3vm._utils.arrays import stack
from s3vm._utils.scores import predicted_codes
from s3vm._utils.typing import Array, Rows
from s3vm.cli.commands import Evaluate, Export, Info, Predict, Suggest
from s3vm.cli.inputs import check_writable, class_codes, target_column
from s3vm.cli.options import positive_class
from s3vm.cli.summary import evaluation_summary, export_summary, model_summary, prediction_summary, suggestion_summary
from s3vm.inspect.diagnostics import class_names, held_out_error, model_facts, score_measures
from s3vm.inspect.labelling import LabelledTable
from s3vm.persistence.pipeline import FittedParts, split_pipeline
from s3vm.sources import readers
from s3vm.sources.encoding import Misfits
from s3vm.sources.values import USUAL_MARKS


@dataclass(frozen=True)
class LoadedModel:
    """A model from a file, the names of its columns if it has any, and the values that did not fit so far.

    Rows come from `stream`, so that the estimator itself need not check names.
    """

    parts: FittedParts
    feature_names: list[str] | None
    misfits: Misfits = field(default_factory=Misfits)

    @property
    def classifier(self) -> S3VMClassifier:
        return self.parts.classifier

    def stream(
        self, data: str, target: str | None = None, zero_based: bool | None = None, **options: Any
    ) -> readers.TableStream:
        """The rows of a file, as `scores` takes them; columns are counted as they were in training."""
        features: Any = self.feature_names or self.classifier.n_features_in_
        encoder, base = self.parts.encoder, self.classifier.zero_based_ if zero_based is None else zero_based
        if encoder is not None and encoder.plan_:
            options["encode"] = partial(encoder.encode, misfits=self.misfits)
        return readers.stream(data, target, features, zero_based=base, **options)

    @property
    def target(self) -> str | None:
        """The column of labels that it was trained with, if that is known."""
        return None if self.parts.encoder is None else self.parts.encoder.target_

    @property
    def has_probabilities(self) -> bool:
        return hasattr(self.classifier, "_calibrator")

    def scores(self, rows: Rows) -> Array:
        """Shape ``(n, K)``; dense rows may be scaled in place."""
        return self.classifier.decision_function(self.as_trained(rows)).reshape(rows.shape[0], -1)

    def as_trained(self, rows: Rows) -> Rows:
        """Rows of `stream` as the classifier takes them."""
        if self.parts.encoder is None:
            return rows if self.parts.scaler is None else self.parts.scaler.transform(rows, copy=False)
        return rows if self.parts.encoder.plan_ else self.parts.encoder.encode(rows, self.misfits)

    def probabilities(self, scores: Array) -> Array:
        return self.classifier._calibrator.predict_proba(scores)


def load_model(path: str, jobs: int | None = None) -> LoadedModel:
    if not Path(path).is_file():
        raise ValueError(f"{path}: there is no such file")
    parts = split_pipeline(s3vm.load(path))
    if jobs is not None:
        parts.classifier.set_params(n_jobs=jobs)
    return LoadedModel(parts.with_feature_names(None), parts.feature_names)


def run_predict(options: Predict) -> None:
    screen, model, data = options.screen(), options.model, options.data
    loaded = load_model(model, options.jobs)
    check_writable(options.output, inputs=[model, data])
    clf = loaded.classifier
    if options.probabilities and not loaded.has_probabilities:
        raise ValueError(f"{model} gives no probabilities: it was fitted with probability=False")
    names = class_names(clf)
    score_names = (["score"] if len(names) == 2 else [f"score_{name}" for name in names]) if options.scores else []
    probability_names = [f"probability_{name}" for name in names] if options.probabilities else []
    for name in options.keep:
        if name in ("prediction", *score_names, *probability_names):
            raise ValueError(f"--keep {name}: the predictions have a column of that name; rename it in {data}")
    stream = loaded.stream(data, keep=options.keep, drop=options.drop, zero_based=options.zero_based)
    classes, start = pa.array(clf.classes_), time.perf_counter()
    counts = np.zeros(len(classes), dtype=np.int64)
    with (
        screen.progress(f"predicting {Path(data).name}") as report_progress,
        readers.Writer(options.output, options.file_format or "csv") as writer,
    ):
        for batch in stream:
            scores = loaded.scores(batch.rows)
            codes = predicted_codes(scores)
            columns: dict[str, Any] = {**batch.passed_through, "prediction": classes.take(pa.array(codes))}
            # Single precision has all digits that mean something.
            if options.scores:
                columns |= dict(zip(score_names, scores.astype(np.float32).T, strict=True))
            if options.probabilities:
                probabilities = loaded.probabilities(scores).astype(np.float32)
                columns |= dict(zip(probability_names, probabilities.T, strict=True))
            writer.write(columns)
            counts += np.bincount(codes, minlength=len(classes))
            report_progress(int(counts.sum()), stream.n_rows)
    result = {
        "model": model,
        "data": data,
        "output": options.output,
        "rows": int(counts.sum()),
        "predicted": dict(zip(names, counts.tolist(), strict=True)),
        "seconds": time.perf_counter() - start,
    }
    screen.warn_of(loaded.misfits)
    if options.output != "-":
        screen.finish("predict", result, prediction_summary)


def run_evaluate(options: Evaluate) -> None:
    screen, data = options.screen(), options.data
    loaded = load_model(options.model, options.jobs)
    classes = loaded.classifier.classes_
    names = classes.tolist()
    label = positive_class(options.positive, names)
    mark = options.mark or tuple(USUAL_MARKS.difference(map(str, classes)))  # a class of the model is not a mark
    target = options.target or loaded.target or target_column(data, None)
    stream = loaded.stream(data, target, options.zero_based, mark=mark)
    code_batches, score_batches, n_rows = [], [], 0
    with screen.progress(f"predicting {Path(data).name}") as report_progress:
        for batch in stream:
            assert batch.labels is not None
            codes = class_codes(batch.labels, names, data)
            known = codes >= 0
            if known.any():
                code_batches.append(codes[known])
                score_batches.append(loaded.scores(batch.rows[known]))
            n_rows += len(codes)
            report_progress(n_rows, stream.n_rows)
    if not code_batches:
        raise readers.TableError(f"{data} has no labels to compare with")
    codes, scores = np.concatenate(code_batches), np.concatenate(score_batches)
    probabilities = loaded.probabilities(scores) if loaded.has_probabilities else None
    result: dict[str, Any] = {
        "model": options.model,
        "file": data,
        "unlabeled": n_rows - len(codes),
        "measures": score_measures(codes, scores, classes, probabilities, 0 if label == names[0] else 1),
    }
    result["positive"] = None if label is None else {"class": label} | result["measures"]["classes"][label]
    screen.warn_of(loaded.misfits)
    screen.finish("evaluate", result, evaluation_summary)


def run_info(options: Info) -> None:
    screen, model = options.screen(), options.model
    loaded = load_model(model)
    clf = loaded.classifier
    encoder, (header, _) = loaded.parts.encoder, container.read(model)
    scale = "none" if loaded.parts.transformer is None else "each"
    result = {
        "file": model,
        "bytes": Path(model).stat().st_size,
        "names": loaded.feature_names,
        "target": loaded.target,
        "seed": clf.model_.seed,
        "settings": header["settings"],
        "compression": str(clf.compression_) if hasattr(clf, "compression_") else None,
        "versions": header.get("versions"),
        **fitted_facts(clf, encoder, loaded.feature_names, scale),
    }
    screen.finish("info", result, model_summary)


def fitted_facts(
    clf: S3VMClassifier, encoder: TableEncoder | None, names: list[str] | None = None, scale: str = "none"
) -> dict[str, Any]:
    """What a model consists of and what is known of its errors; without an encoder, of columns with these names."""
    safety = clf.safety_
    if encoder is not None:
        names, scale = encoder.get_feature_names_out().tolist(), encoder.scale_
    return {
        "columns": None if encoder is None else encoder.outcomes,
        "scale": {"chosen": scale, "brier": {} if encoder is None else encoder.briers_},
        "model": model_facts(clf, names),
        "held_out": held_out_error(clf),
        "unlabeled": safety and {"weight": safety.weight, "outcome": safety.outcome, "verdict": safety.sentence},
    }


def run_export(options: Export) -> None:
    screen, model, output, compress = options.screen(), options.model, options.path, options.compress
    loaded = load_model(model)
    check_writable(output, inputs=[model, compress])
    estimator = s3vm.load(model)
    result: dict[str, Any] = {"model": model}
    if compress is not None:
        with screen.progress(f"reading {Path(compress).name}"):
            rows = stack([loaded.as_trained(batch.rows) for batch in loaded.stream(compress)])
        with screen.progress("searching for a smaller model"), screen.collected_warnings():
            smaller = s3vm.compress(loaded.parts.classifier, rows, tolerance=options.tolerance)
        parts = loaded.parts._replace(classifier=smaller).with_feature_names(loaded.feature_names)
        estimator, result["compression"] = parts.to_pipeline(), str(smaller.compression_)
    s3vm.to_onnx(estimator, output) if output.endswith(".onnx") else s3vm.save(estimator, output)
    result |= {"output": output, "bytes": Path(output).stat().st_size}
    screen.finish("export", result, export_summary)


def run_suggest(options: Suggest) -> None:
    screen, data, mark = options.screen(), options.data, options.mark
    loaded = load_model(options.model, options.jobs)
    check_writable(options.output, inputs=[options.model, data])
    clf, target = loaded.classifier, options.target or loaded.target
    with screen.progress(f"reading {Path(data).name}"):
        try:
            batches = list(loaded.stream(data, target, mark=mark))
        except readers.TableError:
            if options.target is not None or loaded.target is None:
                raise
            batches = list(loaded.stream(data, mark=mark))  # without a column of labels
        rows = stack([loaded.as_trained(batch.rows) for batch in batches])
    labels = [[None] * batch.rows.shape[0] if batch.labels is None else batch.labels for batch in batches]
    is_labeled = np.array([label is not None for label in chain.from_iterable(labels)])
    marks = np.where(is_labeled, clf.classes_[0], clf.unlabeled)
    with screen.progress("choosing"):
        chosen = clf.suggest(rows, options.n, marks, random_state=options.seed)
    columns: dict[str, Any] = {"row": chosen + 1, "prediction": clf.predict(rows[chosen])}
    if Path(data).suffix.lower() in (".csv", ".tsv"):  # with everything in the rows, to be labelled in any program
        table = LabelledTable(Path(data), Path(data), target or "label", mark)
        columns |= {name: [table.rows[row][name] for row in chosen] for name in table.names if name not in columns}
    with readers.Writer(options.output, options.file_format or "csv") as writer:
        writer.write(columns)
    screen.warn_of(loaded.misfits)
    result = {
        "model": options.model,
        "data": data,
        "output": options.output,
        "rows": chosen + 1,
        "labeled": int(is_labeled.sum()),
        "unlabeled": int((~is_labeled).sum()),
    }
    if options.output != "-":
        screen.finish("suggest", result, suggestion_summary)

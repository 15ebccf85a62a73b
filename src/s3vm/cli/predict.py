"""`s3vm predict`, `evaluate`, `info` and `export`: what is done with a model file."""

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from rich.markup import escape
from sklearn.preprocessing import StandardScaler

import s3vm
from s3vm import S3VMClassifier
from s3vm._utils import container
from s3vm._utils.scores import predicted_codes
from s3vm._utils.typing import Array, Rows
from s3vm.cli import summary
from s3vm.cli.console import Screen, bytes_of, grid, printable
from s3vm.cli.inputs import codes_of, target_of, writable
from s3vm.cli.measures import held_out, measured, model_facts, verdict
from s3vm.persistence.pipeline import Parts, split_pipeline
from s3vm.sources import readers as tables
from s3vm.sources.readers.labels import USUAL_MARKS

__all__ = ["evaluate", "export", "info", "predict"]


class Served(NamedTuple):
    """A model from a file, and the names of its features if it has any."""

    classifier: S3VMClassifier
    scaler: StandardScaler | None
    names: list[str] | None

    @property
    def features(self) -> list[str] | int:
        """What `tables` is asked for."""
        return self.names or self.classifier.n_features_in_

    def scores(self, rows: Rows) -> Array:
        """Shape ``(n, K)``."""
        rows = rows if self.scaler is None else self.scaler.transform(rows, copy=False)
        return self.classifier.decision_function(rows).reshape(rows.shape[0], -1)

    def probabilities(self, scores: Array) -> Array:
        return self.classifier._calibrator.predict_proba(scores)

    def whole(self) -> Any:
        """The classifier, or the pipeline of scaler and classifier."""
        return Parts(self.classifier, self.scaler, ("scaler", "classifier") if self.scaler else ()).to_pipeline()


def load(path: str, jobs: int | None = None) -> Served:
    if not Path(path).is_file():
        raise ValueError(f"{path}: there is no such file")
    parts = split_pipeline(s3vm.load(path))
    first: Any = parts.scaler or parts.classifier
    # Columns are asked for by name, and come as arrays: scikit-learn need not look for names again.
    names = vars(first).pop("feature_names_in_", None)
    if jobs is not None:
        parts.classifier.set_params(n_jobs=jobs)
    return Served(parts.classifier, parts.scaler, None if names is None else names.tolist())


def predict(
    screen: Screen,
    model: str,
    data: str,
    output: str,
    scores: bool = False,
    probabilities: bool = False,
    keep: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    jobs: int = -1,
) -> None:
    served = load(model, jobs)
    writable(None if output == "-" else output, inputs=[model, data])
    clf = served.classifier
    if probabilities and not hasattr(clf, "_calibrator"):
        raise ValueError(f"{model} gives no probabilities: it was fitted with probability=False")
    names = [str(name) for name in clf.classes_.tolist()]
    of_scores = (["score"] if len(names) == 2 else [f"score_{name}" for name in names]) if scores else []
    of_probabilities = [f"probability_{name}" for name in names] if probabilities else []
    taken = [name for name in keep if name in ("prediction", *of_scores, *of_probabilities)]
    if taken:
        raise ValueError(f"--keep {taken[0]}: that is the name of a column of the predictions; rename it in {data}")
    source = tables.stream(data, features=served.features, keep=keep, drop=drop)
    classes, start = pa.array(clf.classes_), time.perf_counter()
    counts = np.zeros(len(classes), dtype=np.int64)
    with screen.progress(f"predicting {Path(data).name}") as told, tables.Writer(output) as out:
        for batch in source:
            found = served.scores(batch.rows)
            codes = predicted_codes(found)
            shown = found.astype(np.float32)  # the digits that mean something
            columns: dict[str, Any] = {**batch.passed_through, "prediction": classes.take(pa.array(codes))}
            if scores:
                columns |= dict(zip(of_scores, shown.T, strict=True))
            if probabilities:
                columns |= dict(zip(of_probabilities, served.probabilities(found).astype(np.float32).T, strict=True))
            out.write(columns)
            counts += np.bincount(codes, minlength=len(classes))
            told(int(counts.sum()), source.n_rows)
    duration, n_rows = time.perf_counter() - start, int(counts.sum())
    result = {
        "command": "predict",
        "s3vm": s3vm.__version__,
        "model": model,
        "data": data,
        "output": output,
        "rows": n_rows,
        "predicted": dict(zip(names, counts.tolist(), strict=True)),
        "seconds": duration,
    }
    if output != "-":
        screen.finish(result, *summary.of_predictions(printable(result)))


def evaluate(
    screen: Screen, model: str, data: str, target: str | None, mark: tuple[str, ...] = (), jobs: int = -1
) -> None:
    served = load(model, jobs)
    clf = served.classifier
    mark = mark or tuple(USUAL_MARKS.difference(map(str, clf.classes_)))  # what it was taught is a class
    source = tables.stream(data, target_of(data, target), served.features, mark=mark)
    codes, scores, n_rows = [], [], 0
    with screen.progress(f"predicting {Path(data).name}") as told:
        for batch in source:
            assert batch.labels is not None
            of_batch = codes_of(batch.labels, clf.classes_, data)
            known = of_batch >= 0
            if known.any():
                codes.append(of_batch[known])
                scores.append(served.scores(batch.rows[known]))
            n_rows += len(of_batch)
            told(n_rows, source.n_rows)
    if not codes:
        raise tables.TableError(f"{data} has no labels to compare with")
    truth, found = np.concatenate(codes), np.concatenate(scores)
    probabilities = served.probabilities(found) if hasattr(clf, "_calibrator") else None
    result = {
        "command": "evaluate",
        "s3vm": s3vm.__version__,
        "model": model,
        "file": data,
        "unlabelled": n_rows - len(truth),
        "measures": measured(truth, found, clf.classes_, probabilities),
    }
    screen.finish(result, *summary.of_evaluation(printable(result)))


def info(screen: Screen, model: str) -> None:
    served = load(model)
    clf = served.classifier
    header, _ = container.read(model)
    result = {
        "command": "info",
        "s3vm": s3vm.__version__,
        "file": model,
        "bytes": Path(model).stat().st_size,
        "model": model_facts(clf),
        "names": served.names,
        "scaled": served.scaler is not None,
        "seed": clf.model_.seed,
        "settings": header["settings"],
        "held_out": held_out(clf),
        "unlabelled": verdict(clf),
        "compression": str(clf.compression_) if hasattr(clf, "compression_") else None,
        "versions": header.get("versions"),
    }
    screen.finish(result, *summary.of_model(printable(result)))


def export(screen: Screen, model: str, output: str, compress: str | None, tolerance: float) -> None:
    from s3vm import compress as compressed
    from s3vm import to_onnx

    if not output.endswith((".onnx", ".s3vm")) or (output.endswith(".s3vm") and compress is None):
        raise ValueError(f"{output}: give a file that ends in .onnx, or in .s3vm with --compress")
    served = load(model)
    writable(output, inputs=[model, compress])
    estimator = s3vm.load(model)
    result: dict[str, Any] = {"command": "export", "s3vm": s3vm.__version__, "model": model}
    if compress is not None:
        with screen.progress(f"reading {Path(compress).name}") as told:
            rows = tables.read(compress, features=served.features, progress=told).rows
        with screen.progress("looking for a smaller model"), screen.listening():
            estimator = compressed(served.whole(), rows, tolerance=tolerance)
            result["compression"] = str(split_pipeline(estimator).classifier.compression_)
    to_onnx(estimator, output) if output.endswith(".onnx") else s3vm.save(estimator, output)
    result |= {"output": output, "bytes": Path(output).stat().st_size}
    facts = {
        "Written": f"{escape(printable(output))}  [dim]{bytes_of(result['bytes'])}[/dim]",
        "Smaller": result.get("compression"),
    }
    screen.finish(result, grid(facts))

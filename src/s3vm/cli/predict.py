"""`s3vm predict`."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import s3vm
from s3vm._utils.scores import predicted_codes
from s3vm.cli.console import Screen, printable
from s3vm.cli.inputs import check_writable
from s3vm.cli.model import load_model
from s3vm.cli.summary import prediction_summary
from s3vm.sources import readers

__all__ = ["run_predict"]


def run_predict(
    screen: Screen,
    model: str,
    data: str,
    output: str,
    with_scores: bool = False,
    with_probabilities: bool = False,
    keep: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    jobs: int = -1,
) -> None:
    loaded = load_model(model, jobs)
    check_writable(None if output == "-" else output, inputs=[model, data])
    clf = loaded.classifier
    if with_probabilities and not loaded.has_probabilities:
        raise ValueError(f"{model} gives no probabilities: it was fitted with probability=False")
    names = [str(name) for name in clf.classes_.tolist()]
    score_names = (["score"] if len(names) == 2 else [f"score_{name}" for name in names]) if with_scores else []
    probability_names = [f"probability_{name}" for name in names] if with_probabilities else []
    for name in keep:
        if name in ("prediction", *score_names, *probability_names):
            raise ValueError(f"--keep {name}: the predictions have a column of that name; rename it in {data}")
    stream = readers.stream(data, features=loaded.features, keep=keep, drop=drop)
    classes, start = pa.array(clf.classes_), time.perf_counter()
    counts = np.zeros(len(classes), dtype=np.int64)
    with screen.progress(f"predicting {Path(data).name}") as report_progress, readers.Writer(output) as writer:
        for batch in stream:
            scores = loaded.scores(batch.rows)
            codes = predicted_codes(scores)
            columns: dict[str, Any] = {**batch.passed_through, "prediction": classes.take(pa.array(codes))}
            # Single precision has all digits that mean something.
            if with_scores:
                columns |= dict(zip(score_names, scores.astype(np.float32).T, strict=True))
            if with_probabilities:
                probabilities = loaded.probabilities(scores).astype(np.float32)
                columns |= dict(zip(probability_names, probabilities.T, strict=True))
            writer.write(columns)
            counts += np.bincount(codes, minlength=len(classes))
            report_progress(int(counts.sum()), stream.n_rows)
    result = {
        "command": "predict",
        "s3vm": s3vm.__version__,
        "model": model,
        "data": data,
        "output": output,
        "rows": int(counts.sum()),
        "predicted": dict(zip(names, counts.tolist(), strict=True)),
        "seconds": time.perf_counter() - start,
    }
    if output != "-":
        screen.finish(result, *prediction_summary(printable(result)))

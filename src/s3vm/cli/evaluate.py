"""`s3vm evaluate`."""

from pathlib import Path

import numpy as np

import s3vm
from s3vm.cli.console import Screen, printable
from s3vm.cli.inputs import class_codes, target_column
from s3vm.cli.measures import score_measures
from s3vm.cli.model import load_model
from s3vm.cli.summary import evaluation_summary
from s3vm.sources import readers
from s3vm.sources.readers.labels import USUAL_MARKS

__all__ = ["run_evaluate"]


def run_evaluate(
    screen: Screen, model: str, data: str, target: str | None, mark: tuple[str, ...] = (), jobs: int = -1
) -> None:
    loaded = load_model(model, jobs)
    classes = loaded.classifier.classes_
    mark = mark or tuple(USUAL_MARKS.difference(map(str, classes)))  # a class of the model is not a mark
    stream = readers.stream(data, target_column(data, target), loaded.features, mark=mark)
    code_batches, score_batches, n_rows = [], [], 0
    with screen.progress(f"predicting {Path(data).name}") as report_progress:
        for batch in stream:
            assert batch.labels is not None
            codes = class_codes(batch.labels, classes, data)
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
    result = {
        "command": "evaluate",
        "s3vm": s3vm.__version__,
        "model": model,
        "file": data,
        "unlabelled": n_rows - len(codes),
        "measures": score_measures(codes, scores, classes, probabilities),
    }
    screen.finish(result, *evaluation_summary(printable(result)))

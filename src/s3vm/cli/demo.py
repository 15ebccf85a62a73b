"""`s3vm demo`."""

import time
from typing import Any

import numpy as np
from rich.text import Text
from sklearn import datasets as toys
from sklearn.svm import SVC

import s3vm
from s3vm import S3VMClassifier
from s3vm._utils.typing import Array
from s3vm.cli.console import Screen
from s3vm.cli.summary import plain_table

__all__ = ["demo"]

_LABELS, _DRAWS, _C = (20, 40, 80), 3, 10.0


def demo(screen: Screen, jobs: int) -> None:
    """Handwritten digits of which a few have labels: a supervised SVM beside s3vm."""
    X, y = toys.load_digits(return_X_y=True)
    X = X / 16.0
    found: list[dict[str, Any]] = []
    with screen.progress("reading digits", "runs") as told:
        for n_labelled in _LABELS:
            errors, took = np.empty((2, _DRAWS)), np.empty((2, _DRAWS))
            for draw in range(_DRAWS):
                told(len(found) * _DRAWS + draw, len(_LABELS) * _DRAWS)
                labelled = _few(y, n_labelled, draw)
                for k, clf in enumerate((SVC(C=_C), S3VMClassifier(C=_C, random_state=draw, n_jobs=jobs))):
                    start = time.perf_counter()
                    clf.fit(X[labelled], y[labelled]) if k == 0 else clf.fit(X, np.where(labelled, y, -1))
                    took[k, draw] = time.perf_counter() - start
                    errors[k, draw] = np.mean(clf.predict(X[~labelled]) != y[~labelled])
            error, duration = errors.mean(axis=1), took.mean(axis=1)
            names = ("svm_error", "s3vm_error", "svm_seconds", "s3vm_seconds")
            found.append({"labels": n_labelled} | dict(zip(names, map(float, [*error, *duration]), strict=True)))
    table = plain_table("labels", "supervised SVM", "s3vm", "seconds")
    for line in found:
        errors_shown = [f"{line['svm_error']:.1%}", f"[bold green]{line['s3vm_error']:.1%}[/]"]
        table.add_row(str(line["labels"]), *errors_shown, f"{line['s3vm_seconds']:.1f}")
    head = Text.assemble(
        ("1,797 handwritten digits", "bold"),
        f", of which a few have labels. Error on all others, mean of {_DRAWS} draws:",
    )
    foot = Text("  Your own data: s3vm fit data.csv --target label", style="dim")
    screen.finish({"command": "demo", "s3vm": s3vm.__version__, "errors": found}, head, table, foot)


def _few(y: Array, n_labelled: int, seed: int) -> Array:
    """A mask of `n_labelled` random rows, as many of each class."""
    rng = np.random.default_rng(seed)
    labelled = np.zeros(len(y), dtype=bool)
    for digit in range(10):
        labelled[rng.choice(np.flatnonzero(y == digit), n_labelled // 10, replace=False)] = True
    return labelled

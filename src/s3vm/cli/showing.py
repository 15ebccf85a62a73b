"""`s3vm demo` and `s3vm datasets`."""

import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape
from rich.text import Text
from sklearn import datasets as toys
from sklearn.svm import SVC

import s3vm
from s3vm import S3VMClassifier
from s3vm import datasets as data
from s3vm._typing import Array
from s3vm.cli.screen import Screen
from s3vm.cli.summary import plain_table
from s3vm.datasets import KNOWN

__all__ = ["datasets", "demo"]

_LABELS, _DRAWS, _C = (20, 40, 80), 3, 10.0
_TOYS = ("iris", "wine", "breast_cancer", "digits")


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


def datasets(screen: Screen) -> None:
    """What there is to try things on."""
    found = []
    for name in _TOYS:
        X, y = getattr(toys, f"load_{name}")(return_X_y=True)
        found.append({"name": name, "where": "scikit-learn"} | _described(X.shape, y))
    for name, known in KNOWN.items():
        if not data.found(name):
            classes = {"0": 1 - known.positive, "1": known.positive}
            size = {"rows": known.n_rows, "features": known.n_dims}
            found.append({"name": name, "where": "download", **size, "classes": classes})
    folder = data.folder()
    paths = sorted(folder.glob("*.npz")) if folder else []
    with screen.progress("looking", "files") as told:
        for at, path in enumerate(paths):
            told(at, len(paths), path.name)
            with np.load(path, allow_pickle=False) as stored:
                if "y" in stored and ("X" in stored or "shape" in stored):
                    shape = tuple(stored["shape"]) if "shape" in stored else stored["X"].shape
                    found.append({"name": path.stem, "where": str(path)} | _described(shape, stored["y"]))
    if folder and not folder.is_dir():
        screen.warn(f"S3VM_DATA names {folder}, which is no folder")
    table = plain_table("name", "rows", "features")
    table.add_column("classes")
    table.add_column("where")
    for one in found:
        shares = [f"{label} {share:.0%}" for label, share in list(one["classes"].items())[:3]]
        others = len(one["classes"]) - len(shares)
        listed = ", ".join(shares) + (f" and {others} more" if others > 0 else "")
        where = escape(Path(one["where"]).name)
        table.add_row(escape(one["name"]), f"{one['rows']:,}", f"{one['features']:,}", listed, where)
    more = "" if folder else "  More: set S3VM_DATA to a folder of .npz files (arrays X and y)."
    screen.finish(
        {"command": "datasets", "s3vm": s3vm.__version__, "datasets": found},
        table,
        Text(more, style="dim", end="\n" * bool(more)),
    )


def _described(shape: tuple[int, ...], y: Array) -> dict[str, Any]:
    labels, counts = np.unique(y, return_counts=True)
    shares = dict(zip(map(str, labels.tolist()), (counts / counts.sum()).tolist(), strict=True))
    return {"rows": int(shape[0]), "features": int(shape[1]), "classes": shares}


def _few(y: Array, n_labelled: int, seed: int) -> Array:
    """A mask of `n_labelled` random rows, as many of each class."""
    rng = np.random.default_rng(seed)
    labelled = np.zeros(len(y), dtype=bool)
    for digit in range(10):
        labelled[rng.choice(np.flatnonzero(y == digit), n_labelled // 10, replace=False)] = True
    return labelled

"""`s3vm demo`: a supervised SVM, label spreading and s3vm on handwritten digits with a handful of labels."""

import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text
from sklearn.datasets import load_digits
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC

from s3vm import S3VMClassifier
from s3vm._utils.optional import optional
from s3vm._utils.typing import Array
from s3vm.cli.commands import Demo
from s3vm.cli.console import Screen, grid
from s3vm.cli.inputs import check_writable
from s3vm.cli.summary import table_of
from s3vm.inspect.tables import percent

_LABELS, _DRAWS, _C = (20, 40, 80, 160), 5, 10.0
_METHODS = {
    "svm": ("supervised SVM", "#999999"),
    "spreading": ("label spreading", "#edae49"),
    "s3vm": ("s3vm", "#d1495b"),
}
_SPREADING_GAMMA = 64  # that of scikit-learn's example, 0.25, for pixels from 0 to 1 instead of 16
_DIGITS_SHOWN = (3, 6)  # rows and columns


def run_demo(options: Demo) -> None:
    screen, picture = options.screen(), options.picture
    check_writable(picture)
    if picture is not None:
        optional("matplotlib", "report")
    X, y = load_digits(return_X_y=True)
    runs = _runs(screen, X / 16.0, y, options.jobs)
    keys = [f"{method}_{measure}" for measure in ("error", "seconds") for method in _METHODS]
    errors = [
        {"labels": n} | {key: float(np.mean([run[key] for run in runs if run["labels"] == n])) for key in keys}
        for n in _LABELS
    ]
    result: dict[str, Any] = {"errors": errors}
    if picture is not None:
        _draw(runs, X, y, picture)
        result["picture"] = picture
    screen.finish("demo", result, _summary)


def _runs(screen: Screen, X: Array, y: Array, jobs: int) -> list[dict[str, Any]]:
    """The errors, seconds and predictions of every method, by number of labels and draw of them."""
    runs: list[dict[str, Any]] = []
    with screen.progress("reading digits", "runs") as report_progress:
        # A small fit first, so that no compilation is timed.
        S3VMClassifier(random_state=0, n_jobs=jobs).fit(X[:100], np.where(np.arange(100) < 50, y[:100], -1))
        for n_labeled in _LABELS:
            for draw in range(_DRAWS):
                report_progress(len(runs), len(_LABELS) * _DRAWS)
                rng, labeled = np.random.default_rng(draw), np.zeros(len(y), dtype=bool)
                for digit in range(10):
                    labeled[rng.choice(np.flatnonzero(y == digit), n_labeled // 10, replace=False)] = True
                some = X, np.where(labeled, y, -1)
                fits: dict[str, tuple[Any, Any]] = {
                    "svm": (SVC(C=_C), (X[labeled], y[labeled])),
                    "spreading": (LabelSpreading(gamma=_SPREADING_GAMMA), some),
                    "s3vm": (S3VMClassifier(random_state=draw, n_jobs=jobs), some),
                }
                run: dict[str, Any] = {"labels": n_labeled, "unlabeled": ~labeled}
                for name, (classifier, rows_and_labels) in fits.items():
                    start = time.perf_counter()
                    classifier.fit(*rows_and_labels)
                    run[f"{name}_seconds"] = time.perf_counter() - start
                    run[name] = classifier.predict(X[~labeled])
                    run[f"{name}_error"] = np.mean(run[name] != y[~labeled])
                runs.append(run)
    return runs


def _summary(result: dict[str, Any]) -> list[RenderableType]:
    columns = {"labels": [str(row["labels"]) for row in result["errors"]]}
    for key, (name, _) in _METHODS.items():
        columns[name] = [percent(row[f"{key}_error"]) for row in result["errors"]]
        columns[f"{name}, s"] = [f"{row[f'{key}_seconds']:.2f}" for row in result["errors"]]
    head = Text.assemble(
        ("1,797 handwritten digits", "bold"),
        f", only a few of them labelled. Errors on all others, means of {_DRAWS} random draws:",
    )
    foot = Text("  Your own data: s3vm fit data.csv --target label", style="dim")
    parts: list[RenderableType] = [head, table_of(columns)]
    if "picture" in result:
        parts += [grid({"Picture": escape(str(Path(result["picture"]).resolve()))}), Text()]
    return [*parts, foot]


def _draw(runs: list[dict[str, Any]], X: Array, y: Array, path: str) -> None:
    """Draws the errors by number of labels, and digits that only s3vm classifies correctly."""
    figure = optional("matplotlib.figure", "report").Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.1])
    axes = left.subplots()
    for key, (name, color) in _METHODS.items():
        errors = 100 * np.array([run[f"{key}_error"] for run in runs]).reshape(len(_LABELS), _DRAWS)
        mean, spread = errors.mean(axis=1), errors.std(axis=1)
        axes.plot(_LABELS, mean, "o-", color=color, label=name, linewidth=2)
        axes.fill_between(_LABELS, mean - spread, mean + spread, color=color, alpha=0.15, linewidth=0)
    axes.set(xscale="log", xlabel="labelled digits", ylabel="error on the others, %", ylim=(0, None))
    axes.set_xticks(_LABELS, _LABELS)
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    axes.set_title("1,797 handwritten digits, few of them labelled", fontsize=10)

    run = runs[_DRAWS if len(_LABELS) > 1 else 0]
    images, classes = X[run["unlabeled"]], y[run["unlabeled"]]
    corrected = np.flatnonzero((run["svm"] != classes) & (run["s3vm"] == classes))
    added = np.count_nonzero((run["svm"] == classes) & (run["s3vm"] != classes))
    right.suptitle(
        f"{run['labels']} labels: s3vm corrects {len(corrected)} of the SVM's errors and adds {added}", fontsize=10
    )
    for n, axis in enumerate(right.subplots(*_DIGITS_SHOWN).ravel()):
        axis.axis("off")
        for at in corrected[n : n + 1]:
            axis.imshow(images[at].reshape(8, 8), cmap="Greys")
            axis.set_title(f"{run['svm'][at]} → {run['s3vm'][at]}", fontsize=9)
    figure.savefig(path, dpi=130)

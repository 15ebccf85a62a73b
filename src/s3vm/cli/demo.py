"""`s3vm demo`: a supervised SVM, label spreading and s3vm on handwritten digits with a handful of labels."""

import time
from pathlib import Path
from typing import Any, NamedTuple

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
from s3vm.cli.console import Screen, grid, percent
from s3vm.cli.inputs import check_writable
from s3vm.cli.summary import plain_table

_LABELS, _DRAWS, _C = (20, 40, 80, 160), 5, 10.0
_FORMATS = (".png", ".svg", ".pdf")
_METHODS = (("supervised SVM", "#999999"), ("label spreading", "#edae49"), ("s3vm", "#d1495b"))
_SPREADING_GAMMA = 64  # that of scikit-learn's example, 0.25, for pixels from 0 to 1 instead of 16


class Runs(NamedTuple):
    """Errors and seconds ``(methods, n_labels, n_draws)``, and one run to look at.

    Of that run: the number of labels, the unlabelled digits, their classes, and the predictions of the SVM and of s3vm.
    """

    errors: Array
    seconds: Array
    example: tuple[int, Array, Array, Array, Array]


def run_demo(options: Demo) -> None:
    screen, picture = options.screen(), options.picture
    check_writable(picture)
    if picture is not None:
        if not picture.endswith(_FORMATS):
            raise ValueError(f"{picture}: the picture must end in {', '.join(_FORMATS)}")
        optional("matplotlib", "report")
    X, y = load_digits(return_X_y=True)
    runs = _compare(screen, X / 16.0, y, options.jobs)
    keys = [f"{method}_{measure}" for measure in ("error", "seconds") for method in ("svm", "spreading", "s3vm")]
    means = np.concatenate([runs.errors, runs.seconds]).mean(axis=2).T
    result: dict[str, Any] = {
        "errors": [
            {"labels": n} | dict(zip(keys, row, strict=True)) for n, row in zip(_LABELS, means.tolist(), strict=True)
        ]
    }
    if picture is not None:
        _draw(runs, picture)
        result["picture"] = picture
    screen.finish("demo", result, *_summary(result, len(y)))


def _compare(screen: Screen, X: Array, y: Array, jobs: int) -> Runs:
    errors, seconds = np.empty((2, len(_METHODS), len(_LABELS), _DRAWS))
    examples = []
    with screen.progress("reading digits", "runs") as report_progress:
        # A small fit first, so that no compilation is timed.
        S3VMClassifier(random_state=0, n_jobs=jobs).fit(X[:100], np.where(np.arange(100) < 50, y[:100], -1))
        for i, n_labeled in enumerate(_LABELS):
            for draw in range(_DRAWS):
                report_progress(i * _DRAWS + draw, len(_LABELS) * _DRAWS)
                labeled = _draw_labels(y, n_labeled, draw)
                spreading, ours = LabelSpreading(gamma=_SPREADING_GAMMA), S3VMClassifier(random_state=draw, n_jobs=jobs)
                classifiers, rows_and_marks = (SVC(C=_C), spreading, ours), (X, np.where(labeled, y, -1))
                fits = (X[labeled], y[labeled]), rows_and_marks, rows_and_marks
                for k, (classifier, rows_and_labels) in enumerate(zip(classifiers, fits, strict=True)):
                    start = time.perf_counter()
                    classifier.fit(*rows_and_labels)
                    seconds[k, i, draw] = time.perf_counter() - start
                predictions = [classifier.predict(X[~labeled]) for classifier in classifiers]
                errors[:, i, draw] = [np.mean(predicted != y[~labeled]) for predicted in predictions]
                if draw == 0:
                    examples.append((n_labeled, X[~labeled], y[~labeled], predictions[0], predictions[-1]))
    return Runs(errors, seconds, examples[min(1, len(examples) - 1)])


def _draw_labels(y: Array, n_labeled: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    labeled = np.zeros(len(y), dtype=bool)
    for digit in range(10):
        labeled[rng.choice(np.flatnonzero(y == digit), n_labeled // 10, replace=False)] = True
    return labeled


def _summary(result: dict[str, Any], n_rows: int) -> list[RenderableType]:
    table = plain_table("labels", *(column for name, _ in _METHODS for column in (name, "seconds")))
    for row in result["errors"]:
        cells = [str(row["labels"])]
        for name in ("svm", "spreading", "s3vm"):
            error, seconds = percent(row[f"{name}_error"]), f"{row[f'{name}_seconds']:.2f}"
            cells += [f"[bold green]{error}[/]" if name == "s3vm" else error, seconds]
        table.add_row(*cells)
    head = Text.assemble(
        (f"{n_rows:,} handwritten digits", "bold"),
        f", only a few of them labelled. Errors on all others, means of {_DRAWS} random draws:",
    )
    foot = Text("  Your own data: s3vm fit data.csv --target label", style="dim")
    parts: list[RenderableType] = [head, table]
    if "picture" in result:
        parts += [grid({"Picture": escape(str(Path(result["picture"]).resolve()))}), Text()]
    return [*parts, foot]


def _draw(runs: Runs, path: str) -> None:
    """Draws the errors by number of labels, and digits that only s3vm classifies correctly."""
    figure = optional("matplotlib.figure", "report").Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.1])
    axes = left.subplots()
    for errors, (name, color) in zip(runs.errors, _METHODS, strict=True):
        mean, spread = 100 * errors.mean(axis=1), 100 * errors.std(axis=1)
        axes.plot(_LABELS, mean, "o-", color=color, label=name, linewidth=2)
        axes.fill_between(_LABELS, mean - spread, mean + spread, color=color, alpha=0.15, linewidth=0)
    axes.set(xscale="log", xlabel="labelled digits", ylabel="error on the others, %", ylim=(0, None))
    axes.set_xticks(_LABELS, _LABELS)
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    axes.set_title("1,797 handwritten digits, few of them labelled", fontsize=10)

    n_labeled, images, classes, supervised, semi_supervised = runs.example
    corrected = np.flatnonzero((supervised != classes) & (semi_supervised == classes))
    added = np.flatnonzero((supervised == classes) & (semi_supervised != classes))
    right.suptitle(
        f"{n_labeled} labels: s3vm corrects {len(corrected)} of the SVM's errors and adds {len(added)}", fontsize=10
    )
    for axis, at in zip(right.subplots(3, 6).ravel(), np.r_[corrected, [-1] * 18][:18], strict=True):
        axis.axis("off")
        if at >= 0:
            axis.imshow(images[at].reshape(8, 8), cmap="Greys")
            axis.set_title(f"{supervised[at]} → {semi_supervised[at]}", fontsize=9)
    figure.savefig(path, dpi=130)

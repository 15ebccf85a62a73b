"""Handwritten digits with a handful of labels: a supervised SVM beside s3vm, in a table and a picture.

Run by `make demo`. The data ship with scikit-learn.
"""

import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from s3vm import S3VMClassifier

LABELS = (20, 40, 80, 160)
DRAWS = 5
C = 10.0
EXAMPLE = (40, 0)
PICTURE = Path("demo.png")


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    print(f"{len(y)} handwritten digits, 10 classes; only some carry their label. Mean of {DRAWS} random draws.\n")
    print("labels   supervised SVM        s3vm")
    print("         error   seconds       error   seconds")
    errors, seconds = np.empty((2, len(LABELS), DRAWS)), np.empty((2, len(LABELS), DRAWS))
    S3VMClassifier(random_state=0).fit(X[:100], np.where(np.arange(100) < 50, y[:100], -1))  # compiles what is not yet
    for i, n_labelled in enumerate(LABELS):
        for draw in range(DRAWS):
            labelled = draw_labels(y, n_labelled, draw)
            supervised, semi = SVC(C=C), S3VMClassifier(C=C, random_state=draw)
            start = time.perf_counter()
            supervised.fit(X[labelled], y[labelled])
            between = time.perf_counter()
            semi.fit(X, np.where(labelled, y, -1))
            seconds[:, i, draw] = between - start, time.perf_counter() - between
            predicted = [model.predict(X[~labelled]) for model in (supervised, semi)]
            errors[:, i, draw] = [np.mean(guess != y[~labelled]) for guess in predicted]
            if (n_labelled, draw) == EXAMPLE:
                example = (X[~labelled], y[~labelled], *predicted)
        error, second = errors[:, i].mean(axis=1), seconds[:, i].mean(axis=1)
        print(f"{n_labelled:6d}   {error[0]:5.1%}   {second[0]:7.3f}      {error[1]:6.1%}   {second[1]:7.3f}")
    draw_picture(errors, example)
    print(f"\nPicture: {PICTURE.resolve()}")


def draw_labels(y: np.ndarray, n_labelled: int, seed: int) -> np.ndarray:
    """A mask of `n_labelled` random rows, as many of each class."""
    rng = np.random.default_rng(seed)
    labelled = np.zeros(len(y), dtype=bool)
    for digit in range(10):
        labelled[rng.choice(np.flatnonzero(y == digit), n_labelled // 10, replace=False)] = True
    return labelled


def draw_picture(errors: np.ndarray, example: tuple) -> None:
    figure = plt.figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.1])
    axes = left.subplots()
    for k, (name, colour) in enumerate([("supervised SVM", "#999999"), ("s3vm", "#d1495b")]):
        mean, spread = 100 * errors[k].mean(axis=1), 100 * errors[k].std(axis=1)
        axes.plot(LABELS, mean, "o-", color=colour, label=name, linewidth=2)
        axes.fill_between(LABELS, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
    axes.set(xscale="log", xlabel="labelled digits", ylabel="error on the others, %", xticks=LABELS)
    axes.set_xticklabels(LABELS)
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    axes.set_title("1,797 handwritten digits, few of them labelled", fontsize=10)

    images, truth, supervised, semi = example
    gained = np.flatnonzero((supervised != truth) & (semi == truth))
    lost = np.flatnonzero((supervised == truth) & (semi != truth))
    right.suptitle(
        f"{EXAMPLE[0]} labels: s3vm corrects {len(gained)} digits of the SVM's and spoils {len(lost)}",
        fontsize=10,
    )
    for axis, at in zip(right.subplots(3, 6).ravel(), np.r_[gained, [-1] * 18][:18], strict=True):
        axis.axis("off")
        if at >= 0:
            axis.imshow(images[at].reshape(8, 8), cmap="Greys")
            axis.set_title(f"{supervised[at]} → {semi[at]}", fontsize=9)
    figure.savefig(PICTURE, dpi=130)


if __name__ == "__main__":
    main()

"""
Gaps, neighbours, directions and columns
========================================

Unlabelled rows can tell four things, and none of them is true of all data. Each column of the picture believes in one
of them; in the last, labelled rows that are held out choose.
"""

# %%
# Five data sets
# --------------
# Two blobs are apart by a gap. Moons and rings are curved: their rows are connected through neighbours. The fourth set
# has 300 columns, and its classes lie along the direction in which the rows vary most. In the last, only two of twenty
# columns matter. Each has 600 rows, 10 of them with a label; 20 in 300 columns, 100 where there are columns to learn.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_circles, make_moons

from s3vm import S3VMClassifier, S3VMClassifierCV

rng = np.random.default_rng(6)


def blobs(n):
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, 2)) * [1.6, 0.5] + np.outer(2 * y - 1, [0.4, 1.3]), y, 10


def wide(n):
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 300))
    X[:, 0] += 2.5 * (2 * y - 1)
    return X @ np.linalg.qr(rng.normal(size=(300, 300)))[0], y, 20


def noise(n):
    X = rng.normal(size=(n, 20))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    X[:, :2] += 0.5 * np.sign(X[:, :2])
    return X, y, 100


sets = {
    "two blobs": blobs(600),
    "two moons": (*make_moons(600, noise=0.07, random_state=0), 10),
    "two rings": (*make_circles(600, noise=0.06, factor=0.5, random_state=0), 10),
    "300 columns": wide(600),
    "noise columns": noise(600),
}

# %%
# What each one sees
# ------------------
# Rows are drawn in the colour of the class that is predicted for them, and labelled rows are large. Above each picture
# is the error on all rows.

classifiers = {
    "SVM": S3VMClassifier(unlabeled_weight=0, gamma="median", random_state=0),
    "gaps": S3VMClassifier("batch", unlabeled_weight=1, gamma="median", random_state=0),
    "neighbours": S3VMClassifier(unlabeled_weight=0, neighbor_weight=1, gamma="median", random_state=0),
    "directions": S3VMClassifier("batch", unlabeled_weight=0.01, n_components=2, gamma="median", random_state=0),
    "columns, gaps": S3VMClassifierCV(neighbor_weight=0, n_components=None, random_state=0),
    "chosen": S3VMClassifierCV(random_state=0),
}
figure, axes = plt.subplots(len(sets), len(classifiers), figsize=(10, 8.6), layout="constrained")
for at, (name, (X, y, n_labels)) in enumerate(sets.items()):
    known = np.concatenate([rng.choice(np.flatnonzero(y == label), n_labels // 2, replace=False) for label in (0, 1)])
    labels = np.full(len(y), -1)
    labels[known] = y[known]
    shown = X if X.shape[1] != 300 else X @ np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:2].T
    axes[at, 0].set_ylabel(name)
    for axis, (kind, clf) in zip(axes[at], classifiers.items(), strict=True):
        clf.fit(X, labels)
        predicted = clf.predict(X)
        error = np.mean(predicted != y)
        axis.scatter(
            shown[:, 0], shown[:, 1], s=3, c=np.where(predicted, "#d1495b", "#00798c"), alpha=0.6, linewidths=0
        )
        axis.scatter(
            shown[known, 0], shown[known, 1], s=22, c=np.where(y[known], "#d1495b", "#00798c"), edgecolors="black"
        )
        axis.set(xticks=[], yticks=[])
        axis.set_title(f"{kind}\n{error:.1%}" if at == 0 else f"{error:.1%}", fontsize=10)
        if kind == "chosen":
            print(f"{name}: {clf.safety_}")
plt.show()

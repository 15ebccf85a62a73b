"""
Comparing the solvers
=====================

Seven algorithms for the same problem, one word apart. They differ in the losses that they can minimise, in how their
time grows with the number of rows, and in the minimum that they find.
"""

# %%
# Two moons, eight classifiers
# ----------------------------
#
# The supervised SVM, then each solver with the same kernel and cost. The unlabelled rows have weight 1, so every solver
# has to use them.

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from s3vm import FRS, S3VMClassifier
from s3vm.inspect import plot

X, y = make_moons(500, noise=0.2, random_state=4)
some = np.where(np.arange(len(y)) < 20, y, -1)

# Five hundred rows need fewer random features than the 4,096 that FRS takes by default.
classifiers = {
    "supervised": S3VMClassifier(unlabeled_weight=0),
    "tsg": S3VMClassifier("tsg"),
    "frs": S3VMClassifier(FRS(n_features=1024)),
    "bgs": S3VMClassifier("bgs"),
    "cccp": S3VMClassifier("cccp"),
    "light": S3VMClassifier("light"),
    "newton": S3VMClassifier("newton"),
    "incremental": S3VMClassifier("incremental"),
}
figure, axes = plt.subplots(2, 4, figsize=(13, 6), layout="constrained")
for ax, (name, clf) in zip(axes.ravel(), classifiers.items(), strict=True):
    clf.set_params(gamma=8, probability=False, random_state=0)
    if name != "supervised":
        clf.set_params(unlabeled_weight=1)
    clf.fit(X, some)
    plot.decision_boundary(clf, X, some, ax=ax).set_title(f"{name}: error {np.mean(clf.predict(X) != y):.1%}")
    ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
    if ax is not axes[0, 0]:
        ax.get_legend().remove()

# %%
# All but `bgs` look for a wide margin, each in its own way, and end in different minima. `bgs` instead wants neighbours
# to have the same output.
#
# Time
# ----
#
# By the number of unlabelled rows. The first fit of each is not counted, since it compiles. The
# :doc:`page on solvers </solvers>` continues to 32,000 rows.

SIZES = (125, 250, 500, 1000)
X, y = make_moons(20 + SIZES[-1], noise=0.2, random_state=0)
some = np.where(np.arange(len(y)) < 20, y, -1)
figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
print("rows        " + "".join(f"{size:>8,}" for size in SIZES))
for name, clf in list(classifiers.items())[1:]:
    seconds = []
    for size in SIZES:
        start = time.perf_counter()
        clf.fit(X[: 20 + size], some[: 20 + size])
        seconds.append(time.perf_counter() - start)
    print(f"{name:12}" + "".join(f"{second:8.2f}" for second in seconds))
    ax.plot(SIZES, seconds, "o-", label=name)
ax.set(xscale="log", yscale="log", xticks=SIZES, xlabel="unlabelled rows", ylabel="seconds to fit")
ax.set_xticks([], minor=True)
ax.set_xticklabels(f"{size:,}" for size in SIZES)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, ncols=2)

# %%
# Objectives of different solvers cannot be compared, since they minimise different losses. Each history shows how its
# own objective fell:

for name in ("cccp", "newton", "incremental"):
    history = classifiers[name].history_["objective"]
    print(f"{name:12} {len(history):3} iterations, objective {history[0]:8.2f} → {history[-1]:8.2f}")

# sphinx_gallery_thumbnail_number = 1

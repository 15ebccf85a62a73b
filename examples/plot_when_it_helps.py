"""
When unlabelled rows help, and when they do not
===============================================

A semi-supervised SVM moves its boundary to where there are few rows. That is right if gaps separate the classes,
useless if there are none, and wrong if the gaps are elsewhere. Four two-dimensional data sets show each case.
"""

# %%
# Four sets
# ---------
#
# In the first two the gap is between the classes. The third is one cloud with a boundary through its middle: there is
# no gap. In the fourth there is a gap, but it does not separate the classes, which meet inside a cluster.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from s3vm import S3VMClassifier
from s3vm.inspect import plot

N = 600


def clusters(rng):
    y = rng.randint(2, size=N)
    return np.column_stack([0.8 * rng.normal(size=N) + np.where(y, 1.7, -1.7), 2.2 * rng.normal(size=N)]), y


def moons(rng):
    return make_moons(N, noise=0.2, random_state=rng)


def cloud(rng):
    X = 1.5 * rng.normal(size=(N, 2))
    return X, (X[:, 0] + 0.3 * X[:, 1] + 0.5 * rng.normal(size=N) > 0).astype(int)


def elsewhere(rng):
    middle = np.where(rng.rand(N) < 0.7, 0, 2.6)
    X = np.column_stack([0.6 * rng.normal(size=N) + middle, 0.8 * rng.normal(size=N)])
    return X, (X[:, 0] > 0).astype(int)


# The generator of the rows, the number of labels, the width of the kernel, and the draw to show.
SETS = {
    "classes are clusters": (clusters, 20, 1, 0),
    "classes are moons": (moons, 40, 16, 0),
    "one cloud": (cloud, 40, 1, 0),
    "a gap elsewhere": (elsewhere, 20, 1, 1),
}


def draw(name, seed):
    """Rows, their true labels, and the known labels, equally many per class; the others are -1."""
    make, n_labeled, _, _ = SETS[name]
    rng = np.random.RandomState(seed)
    X, y = make(rng)
    known = [rng.choice(np.flatnonzero(y == k), n_labeled // 2, replace=False) for k in (0, 1)]
    return X, y, np.where(np.isin(np.arange(N), known), y, -1)


# %%
# One draw
# --------
#
# Above, the SVM of the labelled rows alone (``unlabeled_weight=0``). Below, the unlabelled rows count as much as the
# labelled ones, wise or not (``unlabeled_weight=1``). The line is the boundary, the dashes are the margin.

figure, axes = plt.subplots(2, 4, figsize=(13, 6), layout="constrained")
for column, (name, (_, _, gamma, seed)) in enumerate(SETS.items()):
    X, y, some = draw(name, seed)
    for ax, weight in zip(axes[:, column], (0, 1), strict=True):
        clf = S3VMClassifier(gamma=gamma, unlabeled_weight=weight, probability=False, random_state=0).fit(X, some)
        plot.decision_boundary(clf, X, some, ax=ax)
        error = np.mean(clf.predict(X) != y)
        ax.set(title=f"{name}\nerror {error:.1%}" if weight == 0 else f"error {error:.1%}", xlabel="", ylabel="")
        ax.set(xticks=[], yticks=[])
        if ax is not axes[0, 0]:
            ax.get_legend().remove()
axes[0, 0].set_ylabel("labelled rows alone")
axes[1, 0].set_ylabel("with unlabelled rows")

# %%
# Several draws
# -------------
#
# One draw may be luck. Here are six of each, including the default, ``unlabeled_weight="auto"``, which uses the
# unlabelled rows only if they help on labelled rows held out of training.

DRAWS, WEIGHTS = 6, {"labelled rows alone": 0, "unlabelled rows at weight 1": 1, "chosen by the labels": "auto"}
errors = np.empty((len(SETS), len(WEIGHTS), DRAWS))
for i, (name, (_, _, gamma, _)) in enumerate(SETS.items()):
    for seed in range(DRAWS):
        X, y, some = draw(name, seed)
        for j, weight in enumerate(WEIGHTS.values()):
            clf = S3VMClassifier(gamma=gamma, unlabeled_weight=weight, probability=False, random_state=0).fit(X, some)
            errors[i, j, seed] = np.mean(clf.predict(X) != y)

figure, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
places = np.arange(len(SETS))
for j, (label, color) in enumerate(zip(WEIGHTS, ("#8a8a8a", "#d55e00", "#0072b2"), strict=True)):
    mean, spread = 100 * errors[:, j].mean(axis=1), 100 * errors[:, j].std(axis=1, ddof=1) / np.sqrt(DRAWS)
    ax.bar(places + 0.27 * (j - 1), mean, 0.25, yerr=spread, color=color, label=label, capsize=3)
ax.set(xticks=places, xticklabels=SETS, ylabel="error in %, mean of 6 draws", title="Bars: one standard error")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)

# %%
# Conclusions:
#
# - Gaps between the classes are worth many labels.
# - Without a gap there is nothing to gain, and the boundary may move needlessly.
# - With a gap in the wrong place, unlabelled rows do harm, and more of them do not help.
# - Twenty labels are few to tell these cases apart. The choice asks for strong evidence, so it misses some gains; in
#   return it prevents the harm.
#
# You cannot plot your own data like this if they have a hundred features. A histogram of the scores shows the same in
# one dimension: unlabelled rows that stay away from 0 are a good sign.

figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
for ax, name in zip(axes, ("classes are moons", "one cloud"), strict=True):
    X, y, some = draw(name, SETS[name][3])
    clf = S3VMClassifier(gamma=SETS[name][2], unlabeled_weight=1, probability=False, random_state=0)
    clf.fit(X, some)
    plot.score_histogram(clf, X, some, ax=ax).set_title(name)

# sphinx_gallery_thumbnail_number = 1

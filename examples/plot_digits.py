"""
Digits with few labels
======================

scikit-learn includes 1,797 handwritten digits. Suppose that only a few of them are labelled: how much do the others
help?
"""

# %%
# Error by the number of labels
# -----------------------------
#
# Labels are drawn at random twice, equally many per digit. Features are scaled to the range from 0 to 1; both
# classifiers have the same C and the same kernel.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from s3vm import S3VMClassifier
from s3vm.inspect import plot

X, y = load_digits(return_X_y=True)
X = X / 16
LABELS, DRAWS = (20, 40, 80), 2


def known_rows(n_labels, seed):
    """A mask of that many rows, equally many per digit."""
    rng = np.random.RandomState(seed)
    known = np.zeros(len(y), dtype=bool)
    for digit in range(10):
        known[rng.choice(np.flatnonzero(y == digit), n_labels // 10, replace=False)] = True
    return known


errors = np.empty((2, len(LABELS), DRAWS))
for i, n_labels in enumerate(LABELS):
    for seed in range(DRAWS):
        known = known_rows(n_labels, seed)
        svm = SVC(C=10).fit(X[known], y[known])
        clf = S3VMClassifier(C=10, random_state=0).fit(X, np.where(known, y, -1))
        errors[:, i, seed] = [np.mean(model.predict(X[~known]) != y[~known]) for model in (svm, clf)]

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for name, error, color in zip(("supervised SVM", "s3vm"), errors, ("#8a8a8a", "#d55e00"), strict=True):
    ax.plot(LABELS, 100 * error.mean(axis=1), "o-", color=color, label=name, linewidth=2)
    ax.plot(LABELS, 100 * error, ".", color=color, alpha=0.5)
ax.set(xscale="log", xticks=LABELS, xlabel="labelled digits", ylabel="error on the others, %", ylim=(0, None))
ax.set_xticks([], minor=True)
ax.set_xticklabels(LABELS)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)

# %%
# What was chosen, and why
# ------------------------
#
# ``safety_`` says whether the unlabelled rows were used. Ten classes are ten functions, each class against the rest,
# and all of them are trained in one run; so are the folds for this choice.

known = known_rows(80, 0)
some = np.where(known, y, -1)
svm = SVC(C=10).fit(X[known], y[known])
clf = S3VMClassifier(C=10, random_state=0).fit(X, some)
print(clf.safety_)

# %%
# Digits that changed
# -------------------
#
# The SVM's prediction → that of s3vm. The first two rows show digits that it corrects, the last row some that it
# breaks.

before, after = svm.predict(X), clf.predict(X)
right = np.flatnonzero((before != y) & (after == y))
wrong = np.flatnonzero((before == y) & (after != y))
print(f"{len(right)} digits corrected, {len(wrong)} broken")
shown = np.r_[right[:16], wrong[:8]]
figure, axes = plt.subplots(3, 8, figsize=(9, 4.2), layout="constrained")
for ax in axes.ravel():
    ax.axis("off")
for ax, row in zip(axes.ravel(), shown, strict=False):
    ax.imshow(X[row].reshape(8, 8), cmap="Greys")
    ax.set_title(f"{before[row]} → {after[row]}", fontsize=10)

# %%
# How sure it is
# --------------
#
# Probabilities are calibrated on labelled rows that were held out of training. On the other digits, whose labels we do
# know, they can be compared with the truth.

plot.calibration(clf, X[~known], y[~known])

# sphinx_gallery_thumbnail_number = 2

"""
Skewed classes
==============

One row in twenty belongs to the class that matters. Two things go wrong with such data: the error rate says little, and
if somebody searched for rare rows to label, the class proportions of the labelled rows are not those of the rest.
"""

# %%
# Rare rows, labelled as often as common ones
# -------------------------------------------
#
# About one row in twenty is positive, but half of the 30 labelled rows are.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import average_precision_score, balanced_accuracy_score

from s3vm import S3VMClassifier
from s3vm.inspect import plot

rng = np.random.RandomState(6)
y = (rng.rand(3000) < 0.05).astype(int)
X = rng.normal(size=(3000, 2))
X[y == 1] = 0.55 * X[y == 1] + [2.2, 1.6]
known = np.zeros(len(y), dtype=bool)
for k in (0, 1):
    known[rng.choice(np.flatnonzero(y == k), 15, replace=False)] = True
some = np.where(known, y, -1)
print(f"positive: {y.mean():.0%} of all rows, {y[known].mean():.0%} of the labelled ones")

# %%
# Four ways to learn from them
# ----------------------------
#
# A semi-supervised SVM has to know roughly how many rows belong to each class; otherwise it could put all of them
# on one side, where no row is near the boundary. By default it assumes the proportions of the labelled rows, which are
# wrong by a factor of ten here. ``class_prior`` gives the right ones, in the order of ``classes_``; a rough guess is
# enough.

ways = {
    "labelled rows alone": {"unlabeled_weight": 0},
    "weight 1, labelled proportions": {"unlabeled_weight": 1},
    "weight 1, class_prior": {"unlabeled_weight": 1, "class_prior": [0.95, 0.05]},
    "default": {},
}
figure, axes = plt.subplots(2, 2, figsize=(10, 7.4), layout="constrained")
print(f"{'':40}  error  balanced  average    predicted")
print(f"{'':40}         error     precision  positive")
for ax, (name, settings) in zip(axes.ravel(), ways.items(), strict=True):
    clf = S3VMClassifier(random_state=0, **settings).fit(X, some)
    scores, truth = clf.decision_function(X[~known]), y[~known]
    error, balanced = np.mean((scores > 0) != truth), 1 - balanced_accuracy_score(truth, scores > 0)
    precision, positive = average_precision_score(truth, scores), np.mean(scores > 0)
    print(f"{name:40} {error:6.1%}  {balanced:7.1%}  {precision:9.1%}  {positive:9.1%}")
    plot.decision_boundary(clf, X, some, ax=ax).set_title(f"{name}: error {error:.1%}")
    ax.set(xlabel="", ylabel="", xticks=[], yticks=[])

# %%
# With the wrong proportions the boundary is pushed through the middle of the common class: a third of all rows become
# positive. With the right ones it runs around the rare class. The default tried the wrong proportions on held-out
# labelled rows, saw that they made things worse, and fell back on the supervised SVM:

print(clf.safety_)

# %%
# What to look at
# ---------------
#
# - The **error** of a classifier that never says "positive" is about 5 % here, lower than that of the supervised SVM.
#   Its **balanced error**, the mean of the error rates per class, is 50 %.
# - The **average precision** judges the order of the scores, wherever the boundary is: the right measure if
#   somebody inspects the highest scores first.
# - ``class_weight="balanced"`` is not ``class_prior``: it makes errors on rare labelled rows more expensive, as in
#   scikit-learn. Use it if missing a positive row costs more than a false alarm.
#
# ``history_`` and ``safety_`` have all three measures, on labelled rows held out of training.

for weight, measures in clf.safety_.scores.items():
    print(f"weight {weight:3g}  " + "  ".join(f"{name} {value:.3f}" for name, value in measures.items()))

# sphinx_gallery_thumbnail_number = 1

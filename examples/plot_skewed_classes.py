"""
Skewed classes
==============

One row in twenty is of the class that matters. Two things go wrong with such data: the error rate says little, and the
labelled rows, among which somebody looked for rare ones, have other shares of the classes than the rest.
"""

# %%
# Rare rows, labelled as often as common ones
# -------------------------------------------
#
# About one row in twenty is positive, but of the 30 labelled rows half are.

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
# on one side, where no row is near the boundary. Unless told otherwise it takes the shares of the labelled rows.
# Here these are wrong by a factor of ten. ``class_prior`` has the right ones, in the order of ``classes_``; a rough
# guess is enough.

ways = {
    "labelled rows alone": {"unlabeled_weight": 0},
    "weight 1, shares of the labelled rows": {"unlabeled_weight": 1},
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
    precision, share = average_precision_score(truth, scores), np.mean(scores > 0)
    print(f"{name:40} {error:6.1%}  {balanced:7.1%}  {precision:9.1%}  {share:9.1%}")
    plot.decision_boundary(clf, X, some, ax=ax).set_title(f"{name}: error {error:.1%}")
    ax.set(xlabel="", ylabel="", xticks=[], yticks=[])

# %%
# With the wrong shares the boundary is pushed through the middle of the common class: a third of all rows become
# positive. With the right ones it runs around the rare class. The default has tried the wrong shares on labelled
# rows left out of training, has seen that they make things worse, and has fallen back on the supervised SVM:

print(clf.safety_)

# %%
# What to look at
# ---------------
#
# - The **error** of a classifier that never says "positive" is about 5 % here, lower than that of the supervised SVM.
#   The **balanced error** is the mean of the errors of the classes, and 50 % for such a one.
# - The **average precision** judges the order of the scores, wherever the boundary is: the right measure if
#   somebody looks at the highest scores first.
# - ``class_weight="balanced"`` is another thing than ``class_prior``: it makes errors on rare labelled rows dearer,
#   as in scikit-learn. Use it if missing a positive row costs more than a false alarm.
#
# ``history_`` and ``safety_`` have all three measures, on labelled rows left out of training.

for weight, measures in clf.safety_.scores.items():
    print(f"weight {weight:3g}  " + "  ".join(f"{name} {value:.3f}" for name, value in measures.items()))

# sphinx_gallery_thumbnail_number = 1

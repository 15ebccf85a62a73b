"""
Pipeline and GridSearchCV, with -1 for "no label"
=================================================

`S3VMClassifier` is a scikit-learn classifier, so pipelines, searches and scores work as usual, with one difference: a
row without a label can be used for training, but not for testing.
"""

# %%
# Rows without a label are marked with -1, as in `sklearn.semi_supervised`. `LabeledKFold` splits the labelled
# rows and puts all others into every training part; scikit-learn's own splitters would take -1 for a class.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from s3vm import LabeledKFold, S3VMClassifier, S3VMClassifierCV

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=797, random_state=0)
some = np.where(np.arange(len(y)) < 100, y, -1)
print(f"{np.sum(some != -1)} labelled rows, {np.sum(some == -1)} unlabelled ones, {len(y_test)} to test on")

# %%
# A search
# --------
#
# The scaler is fitted to all rows: unlabelled ones say as much about the spread of a feature as labelled ones. Any
# parameter can be searched, here C and the weight of the unlabelled rows, where 0 is the supervised SVM.

pipe = make_pipeline(StandardScaler(), S3VMClassifier(probability=False, random_state=0))
grid = {
    "s3vmclassifier__C": [1, 10, 100],
    "s3vmclassifier__unlabeled_weight": [0, 0.3, 1],
}
search = GridSearchCV(pipe, grid, cv=LabeledKFold(3, shuffle=True, random_state=0)).fit(X, some)
print(search.best_params_)
print(f"accuracy: cross-validated {search.best_score_:.1%}, on the test rows {search.score(X_test, y_test):.1%}")

# %%
# With 100 labels many cells are indistinguishable, and the best of them is partly luck: trust the test rows more.

scores = search.cv_results_["mean_test_score"].reshape(3, 3)
figure, ax = plt.subplots(figsize=(5, 3.8), layout="constrained")
image = ax.imshow(100 * (1 - scores), cmap="cividis_r")
ax.set(xlabel="weight of the unlabelled rows", ylabel="C", title="cross-validated error in %")
ax.set_xticks(range(3), grid["s3vmclassifier__unlabeled_weight"])
ax.set_yticks(range(3), grid["s3vmclassifier__C"])
for (row, column), score in np.ndenumerate(scores):
    error = 100 * (1 - score)
    light = error > 100 * (1 - scores).mean()
    ax.text(column, row, f"{error:.0f}", ha="center", va="center", color="white" if light else "black")

# %%
# Without a search
# ----------------
#
# `S3VMClassifierCV` chooses C and the kernel's width by itself, mostly with the supervised SVM, which takes a fraction
# of the time. Among cells that the labels cannot tell apart it prefers a typical one. It tries half and twice that
# width with the unlabelled rows, and then decides whether to use them.

quick = make_pipeline(StandardScaler(), S3VMClassifierCV(random_state=0)).fit(X, some)
print(quick[-1].C_, quick[-1].kernel_)
print(quick[-1].safety_)
print(f"accuracy on the test rows {quick.score(X_test, y_test):.1%}")

# %%
# Scores
# ------
#
# `cross_val_score` takes the same splitter.

for name, weight in {"supervised": 0, "s3vm": 1}.items():
    pipe.set_params(s3vmclassifier__unlabeled_weight=weight)
    scores = cross_val_score(
        pipe, X, some, cv=LabeledKFold(3, shuffle=True, random_state=0), scoring="balanced_accuracy"
    )
    print(f"{name:11} balanced accuracy {scores.mean():.1%} ± {scores.std(ddof=1) / np.sqrt(3):.1%}")

# sphinx_gallery_thumbnail_number = 1

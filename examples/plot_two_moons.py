"""
Two moons: the boundary over the iterations
===========================================

Twenty labels and 1,480 rows without any. The solver starts from the SVM of the labelled rows and lets the unlabelled
rows push the boundary into the gap, little by little, since their cost grows over the first half of the run.
"""

# %%
# A solver that is watched
# ------------------------
#
# A solver is a generator of states: it yields one after every iteration, and a state never changes. Whoever wants
# to see them passes them on, so a subclass of a few lines can keep the models of some iterations.

import copy

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from s3vm import TSG, S3VMClassifier
from s3vm.inspect import plot

X, y = make_moons(1500, noise=0.2, random_state=4)
some = np.where(np.arange(len(y)) < 20, y, -1)  # -1: no label
wanted = (1, 25, 75, 150, 250, 400)
seen = {}


class Watched(TSG):
    """TSG that remembers what the function was after some of its iterations."""

    def run(self, problem, backend, state=None):
        for now in super().run(problem, backend, state):
            if now.iteration in wanted:
                seen[now.iteration] = now.model()
            yield now


# %%
# ``unlabeled_weight=1`` uses the unlabelled rows in any case, and ``probability=False`` leaves out the models that
# calibrate probabilities: what is left is a single function.

clf = S3VMClassifier(Watched(), gamma=8, unlabeled_weight=1, probability=False, random_state=0).fit(X, some)

# %%
# What it saw
# -----------
#
# The first state is nearly the supervised SVM, whose boundary keeps away from the twenty labels and from nothing else.

figure, axes = plt.subplots(2, 3, figsize=(12, 6.6), layout="constrained")
for ax, (iteration, model) in zip(axes.ravel(), seen.items(), strict=True):
    then = copy.copy(clf)
    then.model_ = model
    plot.decision_boundary(then, X, some, ax=ax)
    ax.set_title(f"iteration {iteration}: error {np.mean(then.predict(X) != y):.1%}")
    ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
    if ax is not axes[0, 0]:
        ax.get_legend().remove()

# %%
# The losses of every iteration are in ``history_``, measured on the batch of that iteration. That of the labelled rows
# stays where it is while that of the unlabelled rows falls.

plot.learning_curve(clf)

# %%
# In the end few rows are left near a score of 0.

plot.score_histogram(clf, X, some)

# sphinx_gallery_thumbnail_number = 1

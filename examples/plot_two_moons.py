"""
Two moons: the boundary over the iterations
===========================================

Twenty labelled rows and 1,480 unlabelled ones. The solver starts from the SVM of the labelled rows and lets the
unlabelled rows push the boundary into the gap, gradually, since their cost grows over the first half of the run.
"""

# %%
# Watching a solver
# -----------------
#
# A solver is a generator of states: it yields one after every iteration, and a state never changes. A subclass of a few
# lines can pass them on and keep the models of some iterations.

import copy

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from s3vm import TSG, S3VMClassifier
from s3vm.inspect import plot

X, y = make_moons(1500, noise=0.2, random_state=4)
some = np.where(np.arange(len(y)) < 20, y, -1)  # -1: no label
wanted = (1, 25, 75, 150, 250, 400)
models = {}


class Watched(TSG):
    """TSG that keeps the models after some iterations."""

    def run(self, problem, backend, state=None):
        for current in super().run(problem, backend, state):
            if current.iteration in wanted:
                models[current.iteration] = current.model()
            yield current


# %%
# ``unlabeled_weight=1`` always uses the unlabelled rows, and ``probability=False`` omits the functions that calibrate
# probabilities: what remains is a single function.

clf = S3VMClassifier(Watched(), gamma=8, unlabeled_weight=1, probability=False, random_state=0).fit(X, some)

# %%
# The boundary moves
# ------------------
#
# The first state is nearly the supervised SVM, whose boundary avoids only the twenty labelled rows.

figure, axes = plt.subplots(2, 3, figsize=(12, 6.6), layout="constrained")
for ax, (iteration, model) in zip(axes.ravel(), models.items(), strict=True):
    snapshot = copy.copy(clf)
    snapshot.model_ = model
    plot.decision_boundary(snapshot, X, some, ax=ax)
    ax.set_title(f"iteration {iteration}: error {np.mean(snapshot.predict(X) != y):.1%}")
    ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
    if ax is not axes[0, 0]:
        ax.get_legend().remove()

# %%
# ``history_`` has the losses of every iteration, measured on its batch. The loss of the labelled rows stays constant
# while that of the unlabelled rows falls.

plot.learning_curve(clf)

# %%
# In the end few rows have a score near 0.

plot.score_histogram(clf, X, some)

# sphinx_gallery_thumbnail_number = 1

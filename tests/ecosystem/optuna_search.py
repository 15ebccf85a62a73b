"""Optuna: an objective of held-out labelled rows."""

import numpy as np
import optuna
from sklearn.datasets import make_moons
from sklearn.model_selection import cross_val_score

from s3vm import LabeledKFold, S3VMClassifier

X, y = make_moons(300, noise=0.2, random_state=0)
some = np.where(np.arange(300) < 60, y, -1)
optuna.logging.set_verbosity(optuna.logging.WARNING)


def objective(trial):
    clf = S3VMClassifier(gamma=trial.suggest_float("gamma", 0.01, 10, log=True), random_state=0)
    return cross_val_score(clf, X, some, cv=LabeledKFold(3), scoring="roc_auc").mean()


study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
study.optimize(objective, n_trials=8)
assert study.best_value > 0.95
assert S3VMClassifier(random_state=0, **study.best_params).fit(X, some).score(X, y) > 0.9

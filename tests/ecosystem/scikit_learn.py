"""Estimators of scikit-learn that wrap a classifier: unlabelled rows travel beside the labelled ones, as metadata."""

import numpy as np
import sklearn
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_moons
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    learning_curve,
    permutation_test_score,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.svm import SVC

from s3vm import ArraySource, LabeledKFold, S3VMClassifier, scorer

X, y = make_moons(300, noise=0.1, random_state=0)
X_test, y_test = make_moons(300, noise=0.1, random_state=1)
known = np.arange(300) < 60
some = np.where(known, y, -1)  # for what knows the mark
labeled, labels = X[known], y[known]  # for what does not
unlabeled = ArraySource(X[~known])  # not an array: whoever splits rows leaves it whole

sklearn.set_config(enable_metadata_routing=True)
clf = S3VMClassifier(C=10, gamma=2.0, random_state=0).set_fit_request(X_unlabeled=True)
neighbors = KNeighborsClassifier(3)
wrapped = {
    "voting": VotingClassifier([("svm", clf), ("knn", neighbors)], voting="soft"),
    "bagging": BaggingClassifier(clf, n_estimators=3, random_state=0),
    "one against the rest": OneVsRestClassifier(clf),
    "one against one": OneVsOneClassifier(clf),
    "calibration": CalibratedClassifierCV(clf, cv=3),
    "threshold": TunedThresholdClassifierCV(clf, cv=3),
    "grid search": GridSearchCV(clf, {"C": [1.0, 10.0]}, cv=3),
}
for name, estimator in wrapped.items():
    estimator.fit(labeled, labels, X_unlabeled=unlabeled)
    assert estimator.score(X_test, y_test) > 0.95, name

# Cross-validation of the labelled rows, the others always in training.
params = {"X_unlabeled": unlabeled}
assert cross_val_score(clf, labeled, labels, cv=3, params=params).min() > 0.9
predicted = cross_val_predict(clf, labeled, labels, cv=3, method="predict_proba", params=params)
assert np.mean(predicted.argmax(axis=1) == labels) > 0.95
assert permutation_test_score(clf, labeled, labels, cv=3, n_permutations=5, params=params)[2] < 0.2
sizes, _, scores = learning_curve(clf, labeled, labels, cv=3, train_sizes=[0.5, 1.0], params=params)
assert scores.mean() > 0.9

# Steps that look at labels come first: they see labelled rows only, and transform the others like these.
pipeline = Pipeline(
    [("scaler", StandardScaler()), ("best", SelectKBest(k=2)), ("svm", clf)], transform_input=["X_unlabeled"]
)
noisy = np.hstack([X, np.random.default_rng(0).normal(size=(300, 5))])
pipeline.fit(noisy[known], labels, X_unlabeled=noisy[~known])
assert pipeline.score(noisy[~known], y[~known]) > 0.95
search = GridSearchCV(pipeline, {"svm__C": [1.0, 10.0]}, cv=3)
search.fit(noisy[known], labels, X_unlabeled=noisy[~known][:59])  # of 60 rows, a search would take those of its folds
assert search.predict_proba(noisy[~known]).argmax(axis=1).tolist() == search.predict(noisy[~known]).tolist()

# Where all rows are in X, marked: searches, and tools that take a fitted classifier as it is.
sklearn.set_config(enable_metadata_routing=False)
clf = S3VMClassifier(C=10, gamma=2.0, random_state=0)
search = GridSearchCV(make_pipeline(StandardScaler(), clf), {"s3vmclassifier__C": [1.0, 10.0]}, cv=LabeledKFold(3))
assert search.fit(X, some).best_score_ > 0.9
assert GridSearchCV(clf, {"C": [1.0, 10.0]}, cv=3, scoring=scorer("roc_auc")).fit(X, some).best_score_ > 0.9
fitted = clf.fit(X, some)
assert CalibratedClassifierCV(FrozenEstimator(fitted)).fit(labeled, labels).score(X_test, y_test) > 0.95
both = [("svm", fitted), ("knn", neighbors.fit(labeled, labels))]
assert StackingClassifier(both, cv="prefit").fit(labeled, labels).score(X_test, y_test) > 0.95

# Stacking without a bias: every fit has held out each labelled row anyway.
assert np.isnan(fitted.held_out_proba_[~known]).all()
columns = [
    fitted.held_out_proba_[known, 1],
    cross_val_predict(neighbors, labeled, labels, method="predict_proba")[:, 1],
]
on_top = LogisticRegression().fit(np.column_stack(columns), labels)
columns = [fitted.predict_proba(X_test)[:, 1], neighbors.predict_proba(X_test)[:, 1]]
assert on_top.score(np.column_stack(columns), y_test) > 0.95

# scikit-learn's own wrapper for unlabelled rows takes a supervised SVM: compare, do not combine.
self_training = SelfTrainingClassifier(CalibratedClassifierCV(SVC(C=10, gamma=2.0), cv=StratifiedKFold(3)))
assert fitted.score(X_test, y_test) >= self_training.fit(X, some).score(X_test, y_test)

"""Fairlearn: measures per group, and thresholds per group of a fitted classifier."""

import numpy as np
from fairlearn.metrics import MetricFrame
from fairlearn.postprocessing import ThresholdOptimizer
from sklearn.datasets import make_classification
from sklearn.metrics import accuracy_score

from s3vm import S3VMClassifier

X, y = make_classification(600, class_sep=1.5, random_state=0)
group = np.where(X[:, 0] > 0, "a", "b")
known = np.arange(600) < 100
clf = S3VMClassifier(random_state=0).fit(X, np.where(known, y, -1))
by_group = MetricFrame(metrics=accuracy_score, y_true=y, y_pred=clf.predict(X), sensitive_features=group).by_group
assert by_group.min() > 0.8
fair = ThresholdOptimizer(estimator=clf, prefit=True, predict_method="predict_proba")
fair.fit(X[known], y[known], sensitive_features=group[known])
assert accuracy_score(y, fair.predict(X, sensitive_features=group, random_state=0)) > 0.6

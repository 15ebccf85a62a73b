"""scikit-activeml: the most uncertain row is labelled next. Its mark of a missing label is NaN."""

import numpy as np
from skactiveml.classifier import SklearnClassifier
from skactiveml.pool import UncertaintySampling
from sklearn.datasets import make_moons

from s3vm import S3VMClassifier

X, y = make_moons(200, noise=0.1, random_state=0)
labels = np.where(np.arange(200) < 10, y, np.nan)
query = UncertaintySampling(method="margin_sampling", random_state=0)
for _ in range(3):
    clf = S3VMClassifier(unlabeled=None, random_state=0).fit(X, labels)  # learns from all rows
    wrapped = SklearnClassifier(clf, classes=[0, 1]).fit(X[:10], y[:10])  # only to be asked for probabilities
    wrapped.estimator_ = clf
    (chosen,) = query.query(X, labels, clf=wrapped, fit_clf=False)
    assert np.isnan(labels[chosen])
    labels[chosen] = y[chosen]
assert clf.score(X, y) > 0.9

"""MAPIE: prediction sets of a fitted classifier, conformalised on labelled rows that it has not seen."""

import numpy as np
from mapie.classification import SplitConformalClassifier
from sklearn.datasets import make_blobs

from s3vm import S3VMClassifier

X, y = make_blobs(1_500, centers=3, cluster_std=2.0, random_state=0)
some = np.where(np.arange(1_500) < 60, y, -1)
clf = S3VMClassifier(random_state=0).fit(X, some)
conformal = SplitConformalClassifier(clf, confidence_level=0.9, prefit=True, random_state=0)
conformal.conformalize(X[60:260], y[60:260])
_, sets = conformal.predict_set(X[260:])
covered = sets[np.arange(len(sets)), y[260:], 0].mean()
assert 0.85 < covered < 0.95

"""Classifiers of several kinds, fitted once, for what looks at fitted classifiers."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import make_blobs, make_moons
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from s3vm import TSG, S3VMClassifier

HOSTILE = "<script>document.title='run'</script>"
QUICK = TSG(max_iter=12, n_features=32, batch_size=32)


class Fitted(NamedTuple):
    clf: Any
    X: Any
    y: Any
    test: tuple[Any, Any]


@cache
def moons(**settings):
    """Two classes, two features, 40 labels."""
    X, y = make_moons(500, noise=0.15, random_state=0)
    some = np.where(np.arange(300) < 40, y[:300], -1)
    clf = S3VMClassifier(QUICK, random_state=0, **settings).fit(X[:300], some)
    return Fitted(clf, X[:300], some, (X[300:], y[300:]))


@cache
def blobs(n_classes=3, names=("ash", HOSTILE, "$x^$")):
    """Several classes with names, in a pipeline."""
    X, y = make_blobs(500, n_features=3, centers=n_classes, random_state=1)
    y = np.array(names, dtype=object)[y]
    some = y[:300].copy()
    some[20 * n_classes :] = None
    clf = make_pipeline(StandardScaler(), S3VMClassifier(QUICK, random_state=0, unlabeled=None)).fit(X[:300], some)
    return Fitted(clf, X[:300], some, (X[300:], y[300:]))


@cache
def supervised():
    """No unlabelled rows at all."""
    X, y = make_moons(200, noise=0.15, random_state=0)
    clf = S3VMClassifier(QUICK, random_state=0, unlabeled_weight=0, probability=False)
    known = np.where(np.arange(100) < 50, y[:100], -1)
    return Fitted(clf.fit(X[:100], known), X[:50], y[:50], (X[100:], y[100:]))

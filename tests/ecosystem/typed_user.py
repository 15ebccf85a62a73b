"""A user's script, for type checkers: what is inferred, and what must be an error. `make test` runs mypy on it."""

from typing import assert_type

import numpy as np

import s3vm
from s3vm import TSG, S3VMClassifier, S3VMClassifierCV
from s3vm._utils.typing import Array
from s3vm.estimators.safety import Safety

X, y = np.zeros((4, 2)), np.array([0, 1, -1, -1])
clf = assert_type(S3VMClassifier("tsg", C=10).fit(X, y), S3VMClassifier)
tuned = assert_type(S3VMClassifierCV(TSG(max_iter=100), kernel="laplacian").fit(X, y), S3VMClassifierCV)
assert_type(clf.predict(X), Array)
assert_type(clf.predict_proba(X), Array)
assert_type(clf.held_out_proba_, Array)
assert_type(clf.score(X, y), float)
assert_type(tuned.C_, float)
assert_type(tuned.n_iter_, int)
assert_type(tuned.safety_, Safety | None)
assert_type(S3VMClassifierCV.load("model.s3vm"), S3VMClassifierCV)
loaded = s3vm.load("model.s3vm")
if isinstance(loaded, S3VMClassifier):
    assert_type(loaded.C_, float)

S3VMClassifier("tgs")  # type: ignore[arg-type]
S3VMClassifier(kernel="rfb")  # type: ignore[arg-type]
S3VMClassifierCV("tgs")  # type: ignore[arg-type]
S3VMClassifier(solvr="tsg")  # type: ignore[call-arg]

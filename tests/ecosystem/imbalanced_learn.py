"""imbalanced-learn: a sampler sees the labelled rows only, and the unlabelled ones come as metadata."""

import numpy as np
import sklearn
from imblearn.over_sampling import RandomOverSampler
from imblearn.pipeline import Pipeline
from sklearn.datasets import make_classification

from s3vm import S3VMClassifier

X, y = make_classification(1_000, weights=[0.9], class_sep=2.0, random_state=0)
known = np.arange(1_000) < 100
sklearn.set_config(enable_metadata_routing=True)
clf = S3VMClassifier(class_prior=[0.9, 0.1], random_state=0).set_fit_request(X_unlabeled=True)
pipeline = Pipeline([("sampler", RandomOverSampler(random_state=0)), ("svm", clf)])
pipeline.fit(X[known], y[known], X_unlabeled=X[~known])
assert pipeline.score(X[~known], y[~known]) > 0.93

"""cleanlab: wrong labels are found by the probabilities that every fit has held out."""

import numpy as np
from cleanlab.filter import find_label_issues
from sklearn.datasets import make_blobs

from s3vm import S3VMClassifier

X, y = make_blobs(600, centers=3, cluster_std=0.6, random_state=2)
known, wrong = np.arange(600) < 150, np.arange(0, 150, 15)
some = np.where(known, y, -1)
some[wrong] = (some[wrong] + 1) % 3
clf = S3VMClassifier(random_state=0).fit(X, some)
found = find_label_issues(some[known], clf.held_out_proba_[known], return_indices_ranked_by="self_confidence")
assert set(wrong) <= set(found)
assert len(found) <= 15
assert set(wrong) <= set(clf.doubtful_["row"])  # without cleanlab

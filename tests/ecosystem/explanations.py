"""SHAP and LIME: explanations of single predictions."""

import numpy as np
import shap
from lime.lime_tabular import LimeTabularExplainer
from sklearn.datasets import load_iris
from sklearn.inspection import permutation_importance

from s3vm import S3VMClassifier, scorer

X, y = load_iris(return_X_y=True)
some = np.where(np.arange(150) % 3 == 0, y, -1)
clf = S3VMClassifier(random_state=0).fit(X, some)

values = shap.Explainer(clf.predict_proba, X[:50], seed=0)(X[:5]).values
assert values.shape == (5, 4, 3)
np.testing.assert_allclose(
    values.sum(axis=1) + clf.predict_proba(X[:50]).mean(axis=0), clf.predict_proba(X[:5]), atol=1e-6
)

lime = LimeTabularExplainer(X, mode="classification", random_state=0)
assert len(lime.explain_instance(X[0], clf.predict_proba, num_features=2).as_list()) == 2

importance = permutation_importance(clf, X, some, scoring=scorer("neg_log_loss"), random_state=0).importances_mean
assert importance.argmax() in (2, 3)  # the petals

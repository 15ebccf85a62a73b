"""MLflow: autolog records one run with the parameters of the classifier, and skops stores it.

MLflow patches scikit-learn's own classes only: put the classifier into a pipeline, or a search.
"""

import os
import tempfile
import time
from pathlib import Path

import mlflow
import numpy as np
from sklearn.datasets import make_moons
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from s3vm import SKOPS_TRUSTED, TSG, S3VMClassifier

X, y = make_moons(300, noise=0.1, random_state=0)
some = np.where(np.arange(300) < 40, y, -1)
plain = S3VMClassifier(TSG(max_iter=50), C=10, random_state=0).fit(X, some)

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # a database needs more than mlflow-skinny
with tempfile.TemporaryDirectory() as folder:
    mlflow.set_tracking_uri((Path(folder) / "runs").as_uri())
    mlflow.sklearn.autolog(log_models=False, silent=True)
    start = time.monotonic()
    make_pipeline(StandardScaler(), S3VMClassifier(TSG(max_iter=50), C=10, random_state=0)).fit(X, some)
    assert time.monotonic() - start < 10
    mlflow.sklearn.autolog(disable=True)
    (run,) = mlflow.search_runs(output_format="list")
    assert run.data.tags["estimator_name"] == "Pipeline"
    logged = {name: run.data.params[f"s3vmclassifier__{name}"] for name in ("C", "solver__max_iter")}
    assert logged == {"C": "10", "solver__max_iter": "50"}
    assert run.data.metrics["training_score"] > 0.8  # of the labelled rows

    with mlflow.start_run():
        settings = {"serialization_format": "skops", "skops_trusted_types": SKOPS_TRUSTED}
        stored = mlflow.sklearn.log_model(plain, name="model", **settings)
    again = mlflow.sklearn.load_model(stored.model_uri)
    np.testing.assert_array_equal(again.predict_proba(X), plain.predict_proba(X))

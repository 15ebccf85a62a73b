"""Writes the model files that every later version must be able to read: ``python tests/files/make.py``.

Run it once for each new format, keep the files of the older ones, and never change a file that is there.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from s3vm import FRS, TSG, Laplacian, Matern, Polynomial, S3VMClassifier, S3VMClassifierCV, save

HERE = Path(__file__).parent
FEW = TSG(max_iter=6, batch_size=8, n_features=16, span="features", max_features=48)


def rows(n=60, d=3):
    """Rows that any version of anything makes the same."""
    i, j = np.arange(n)[:, None], np.arange(d)
    return (np.sin(1.7 * i + j**2) + 0.5 * np.cos(0.3 * i * (j + 1))).astype(np.float32)


def models():
    X = rows()
    code = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.3)
    known = np.arange(len(X)) < 30
    two = np.where(known, np.where(code > 0, "yes", "no"), "-1")
    three = np.where(known, code, -1)
    always = {"random_state": 3, "unlabeled_weight": 1.0}
    yield "features", S3VMClassifier(FEW, **always).fit(X, two)
    fixed = FRS(max_iter=4, n_features=8)  # in format 1, TSG.as_printed
    yield "printed", S3VMClassifier(fixed, kernel=Laplacian(features="phase"), **always).fit(X, three)
    yield "sparse", S3VMClassifier(FEW, kernel=Matern(nu=2.5), **always).fit(sparse.csr_array(np.maximum(X, 0)), three)
    yield "polynomial", S3VMClassifierCV(FEW, kernel=Polynomial(degree=2), dtype="float64", **always).fit(X, three)
    yield "scaled", make_pipeline(StandardScaler(), S3VMClassifier(random_state=3)).fit(100 * X + 7, two)


def main(folder):
    truth = {}
    warnings.simplefilter("ignore")
    for name, model in models():
        save(model, folder / f"1-{name}.s3vm")
        truth[f"1-{name}"] = {
            "scores": model.decision_function(rows(10)).tolist(),
            "labels": model.predict(rows(10)).tolist(),
            "probabilities": model.predict_proba(rows(10)).tolist(),
        }
    (folder / "1.json").write_text(json.dumps(truth, indent=None) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)

"""What a model takes to serve, before and after compression: pieces, bytes, rows a second, and how well it agrees.

    S3VM_DATA=folder python benchmarks/serve.py [--sets codrna ijcnn1 ...] [--models printed default] [--json]

The folder has the .npz files of the sets (X, y); digits come with scikit-learn. Each set has 200 labelled rows, up to
20,000 unlabelled ones to train on, up to 30,000 others that `compress` is given, and up to 10,000 others of which
agreement, differences and errors are reported. "printed" is the paper's algorithm with 60 blocks of 512 features,
"default" is `S3VMClassifier(unlabeled_weight=1)`. Rows a second are of batches of 1,000 rows on one thread, the median
of runs taken in turns.
"""

import argparse
import os
import tempfile
import warnings
from pathlib import Path

import common
import numpy as np
import onnxruntime
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler

from s3vm import PrintedTSG, S3VMClassifier, compress, to_onnx

N_LABELED, N_UNLABELED, N_OTHERS, N_TEST, BATCH = 200, 20_000, 30_000, 10_000, 1000
MODELS = {
    "printed": {"solver": PrintedTSG(max_iter=60, n_features=512)},
    "default": {},
}


def rows_of(name):
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        X = X / 16
    else:
        stored = np.load(Path(os.environ["S3VM_DATA"]) / f"{name}.npz")
        X, y = stored["X"], stored["y"]
        X = X / 255 if name == "mnist" else np.clip(StandardScaler().fit_transform(X), -10, 10)
        y = y.astype(int) if name == "mnist" else (y > 0).astype(int)
    order = np.random.RandomState(0).permutation(len(y))
    X, y = X[order].astype(np.float32), y[order]
    n_train = N_LABELED + min(N_UNLABELED, (len(y) - N_LABELED) // 3)
    n_test = min(N_TEST, (len(y) - N_LABELED) // 3)
    some = np.where(np.arange(n_train) < N_LABELED, y[:n_train], -1)
    others = X[n_train:-n_test][:N_OTHERS]
    return X[:n_train], some, others, X[-n_test:], y[-n_test:]


def session_of(model, folder):
    path = Path(folder) / "m.onnx"
    to_onnx(model, path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]), path.stat().st_size


def lines(name, kind):
    X, some, others, X_test, y_test = rows_of(name)
    warnings.simplefilter("ignore")
    model = S3VMClassifier(unlabeled_weight=1.0, random_state=0, **MODELS[kind]).fit(X, some)
    models = {"as trained": model}
    for into in ("features", "landmarks"):
        models[into] = compress(model, others, into=into)
    pieces = {made: one.compression_.size for made, one in models.items() if one is not model}
    pieces["as trained"] = models["features"].compression_.size_before
    batch = X_test[:BATCH]
    truth, scores = model.predict(X_test), model.decision_function(X_test)
    with tempfile.TemporaryDirectory() as folder:
        sessions = {made: session_of(one, folder) for made, one in models.items()}
        runs = {made: lambda one=one: one.decision_function(batch) for made, one in models.items()}
        runs |= {
            f"onnx {made}": lambda session=session: session.run(["scores"], {"X": batch})
            for made, (session, _) in sessions.items()
        }
        seconds = common.medians(runs, 3.0)
        for made, one in models.items():
            path = Path(folder) / "m.s3vm"
            one.save(path)
            own, (served,) = one.decision_function(batch), sessions[made][0].run(["scores"], {"X": batch})
            predicted, here = one.predict(X_test), one.decision_function(X_test)
            kept = [np.mean(predicted[truth == code] == code) for code in np.unique(truth)]
            yield {
                "set": name,
                "model": kind,
                "made of": made,
                "pieces": f"{pieces[made]:,}",
                "agreement %": f"{100 * np.mean(predicted == truth):.2f}",
                "least in a class %": f"{100 * min(kept):.1f}",
                "rms %": f"{100 * np.sqrt(np.mean((here - scores) ** 2)) / scores.std():.1f}",
                "error %": f"{100 * np.mean(predicted != y_test):.2f}",
                "rows/s": f"{len(batch) / seconds[made]:,.0f}",
                "onnx rows/s": f"{len(batch) / seconds[f'onnx {made}']:,.0f}",
                "onnx difference": f"{np.abs(served - own).max() / np.abs(own).max():.0e}",
                ".s3vm kB": f"{path.stat().st_size / 1e3:,.0f}",
                ".onnx kB": f"{sessions[made][1] / 1e3:,.0f}",
            }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["codrna", "ijcnn1", "digits", "mnist", "skin", "a9a"])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    table = [line for name in asked.sets for kind in asked.models for line in lines(name, kind)]
    common.report("Serving", table, asked.json)

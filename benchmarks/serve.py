"""What a model takes to serve, before and after compression: pieces, bytes, rows a second, and how well it agrees.

    S3VM_DATA=folder python benchmarks/serve.py [--sets codrna ijcnn1 ...] [--models printed default] [--json]
    python benchmarks/serve.py --default [--json]

The folder has the .npz files of the sets (X, y); digits come with scikit-learn. Each set has 200 labelled rows, up to
20,000 unlabelled ones to train on, up to 30,000 others that `compress` is given, and up to 10,000 others of which
agreement, differences and errors are reported. "printed" is the paper's algorithm with 60 blocks of 512 features,
"default" is `S3VMClassifier(unlabeled_weight=1)`. Rows a second are of batches of 1,000 rows on one thread, the median
of runs taken in turns.

With ``--default``: a default fit of 20,000 x 28 rows with 200 labels predicts 100,000 rows at a time on two threads,
next to the same model in ONNX Runtime, and to scikit-learn's SVC with as many support vectors, which has one thread.
"""

import argparse
import os
import tempfile
import warnings
from pathlib import Path

import common
import numpy as np
import onnxruntime
from experiments.printed_tsg import PrintedTSG
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from s3vm import S3VMClassifier, compress, to_onnx

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


def session_of(model, folder, n_threads=1):
    path = Path(folder) / "m.onnx"
    to_onnx(model, path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = n_threads
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


def default_lines():
    rng = np.random.default_rng(0)
    blob, centers = rng.integers(0, 8, 20_000), 0.8 * rng.standard_normal((8, 28), dtype=np.float32)
    X = rng.standard_normal((len(blob), 28), dtype=np.float32) + centers[blob]
    model = S3VMClassifier(random_state=0, n_jobs=2).fit(X, np.where(np.arange(len(X)) < 200, blob % 2, -1))
    n = len(model.model_.centers)
    svc = SVC(C=1e-3).fit(X[:n], rng.permutation(n) % 2)  # labels without a pattern: every row supports
    many = np.tile(X, (5, 1))
    with tempfile.TemporaryDirectory() as folder:
        session, n_bytes = session_of(model, folder, n_threads=2)
        runs = {
            "s3vm": lambda: model.decision_function(many),
            "s3vm in ONNX Runtime": lambda: session.run(["scores"], {"X": many}),
            "SVC": lambda: svc.decision_function(many[:10_000]),
        }
        seconds = common.medians(runs, 5.0, 3)
        seconds["SVC"] *= 10
        model.save(Path(folder) / "m.s3vm")
        sizes = {"s3vm": (Path(folder) / "m.s3vm").stat().st_size, "s3vm in ONNX Runtime": n_bytes}
    pieces = {"s3vm": n, "s3vm in ONNX Runtime": n, "SVC": len(svc.support_)}
    for made in runs:
        kilobytes = f"{sizes[made] / 1e3:,.0f}" if made in sizes else ""
        yield {"model": made, "centers": pieces[made], "rows/s": f"{len(many) / seconds[made]:,.0f}", "kB": kilobytes}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["codrna", "ijcnn1", "digits", "mnist", "skin", "a9a"])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--default", action="store_true")
    asked = parser.parse_args()
    if asked.default:
        common.report("Serving a default model", list(default_lines()), asked.json)
        raise SystemExit
    table = [line for name in asked.sets for kind in asked.models for line in lines(name, kind)]
    common.report("Serving", table, asked.json)

"""Time and memory just below and above every switch: what takes another way must not cost much more.

``python benchmarks/switches.py`` trains each case in a process of its own, on sparse rows like those of texts, and
prints a line for each: seconds of the processor, peak memory, error. ``... switches.py tsg``: those of one solver.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings

import numpy as np
from scipy import sparse

WORDS = 40  # of a row
SWITCHES = {  # solver, rows, columns, labelled rows, classes: just below and above
    "tsg: rows beyond which random features are taken": [
        ("tsg", 8_200, 10_000, 100, 2),
        ("tsg", 8_400, 10_000, 100, 2),
    ],
    "tsg: the same, 30,000 columns": [("tsg", 8_200, 30_000, 100, 2), ("tsg", 20_000, 30_000, 100, 2)],
    "tsg: labelled rows of an exact start": [("tsg", 9_000, 1_000, 4_000, 2), ("tsg", 9_000, 1_000, 4_200, 2)],
    "auto: rows of a pilot": [("auto", 2_550, 30_000, 100, 2), ("auto", 2_650, 30_000, 100, 2)],
    "auto: rows of the sample": [("auto", 10_050, 30_000, 100, 2), ("auto", 10_150, 30_000, 100, 2)],
    "auto: labelled rows of an exact start": [("auto", 9_000, 1_000, 4_000, 2), ("auto", 9_000, 1_000, 4_200, 2)],
    "auto: labelled rows times classes": [("auto", 9_000, 1_000, 2_400, 40), ("auto", 9_000, 1_000, 2_600, 40)],
    "auto: columns": [("auto", 5_000, 1_900, 100, 2), ("auto", 5_000, 2_100, 100, 2)],
}


def texts(n_rows, n_columns, n_classes, seed=0):
    """Rows of a few words, frequent ones far more often; a tenth of them come from the class's own."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n_rows)
    words = (n_columns * rng.random((n_rows, WORDS)) ** 3).astype(int)
    own = (words // n_classes * n_classes + y[:, None]) % n_columns
    words = np.where(rng.random(words.shape) < 0.1, own, words)
    at = np.repeat(np.arange(n_rows), WORDS), words.ravel()
    X = sparse.csr_array((rng.random(words.size).astype(np.float32), at), shape=(n_rows, n_columns))
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1))).ravel()
    return sparse.csr_array(sparse.diags_array(1 / norms) @ X, dtype=np.float32), y


def run(solver, n_rows, n_columns, n_labeled, n_classes):
    """Trains one case, and prints what it took."""
    from s3vm import S3VMClassifier

    warnings.simplefilter("ignore")
    X, y = texts(n_rows, n_columns, n_classes)
    some = np.where(np.arange(n_rows) < n_labeled, y, -1)
    clf = S3VMClassifier(solver, random_state=0, n_jobs=2)
    start, used = time.perf_counter(), time.process_time()
    clf.fit(X, some)
    line = {"cpu": time.process_time() - used, "seconds": time.perf_counter() - start}
    line["MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    test = slice(n_labeled, n_labeled + 2000)
    print(json.dumps(line | {"error": 1 - clf.score(X[test], y[test])}))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("solver", nargs="?", help="only the cases of this solver")
    parser.add_argument("--seconds", type=float, default=600, help="time limit of a case")
    parser.add_argument("--case", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        return run(options.case[0], *map(int, options.case[1:]))
    for switch, cases in SWITCHES.items():
        if options.solver not in (None, cases[0][0]):
            continue
        print(switch)
        for case in cases:
            command = [sys.executable, __file__, "--case", *map(str, case)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=options.seconds, check=False)
                found = json.loads(done.stdout) if not done.returncode else done.stderr.splitlines()[-1]
            except subprocess.TimeoutExpired:
                found = f"more than {options.seconds:g} seconds"
            if isinstance(found, dict):
                found = "cpu {cpu:7.1f} s, {seconds:7.1f} s, {MB:6.0f} MB, error {error:.3f}".format(**found)
            print("  {:5} {:7,} rows x {:6,}, {:5,} labelled, {:3} classes: ".format(*case) + found, flush=True)
    return None


if __name__ == "__main__":
    main()

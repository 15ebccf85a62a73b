"""HalvingSearchCV beside the full grid and S3VMClassifierCV: test error and time.

    S3VM_DATA=folder python benchmarks/halving.py [--sets codrna usps banana] [--splits 0 1 2]

The sets and splits are those of `quality.py`. The full grid is the same search in one round, with all unlabelled rows
for every candidate: the same grid, folds, score and choice among the good ones.
"""

import argparse
import sys
import time
import warnings

import common
import numpy as np
import quality

from s3vm import HalvingSearchCV, S3VMClassifier, S3VMClassifierCV


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sets", nargs="+", default=["codrna", "usps", "banana"])
    options.add_argument("--splits", nargs="+", type=int, default=[0, 1, 2])
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    warnings.simplefilter("ignore")
    methods = {
        "halving": lambda: HalvingSearchCV(S3VMClassifier(random_state=0), random_state=0),
        "full grid": lambda: HalvingSearchCV(S3VMClassifier(random_state=0), random_state=0, min_unlabeled=10**9),
        "cv": lambda: S3VMClassifierCV(random_state=0),
        "default": lambda: S3VMClassifier(random_state=0),
    }
    rows = []
    for name in chosen.sets:
        errors, seconds = {method: [] for method in methods}, {method: [] for method in methods}
        for split in chosen.splits:
            X, y, some, test = quality.parts(name, split, 100)
            train = some != -2  # the others are to test on
            for method, make in methods.items():
                start = time.perf_counter()
                fitted = make().fit(X[train], some[train])
                seconds[method].append(time.perf_counter() - start)
                errors[method].append(100 * (1 - fitted.score(X[test], y[test])))
                found = f"{errors[method][-1]:.2f} % in {seconds[method][-1]:.1f} s"
                print(f"{name} {split} {method}: {found} {getattr(fitted, 'best_params_', '')}", file=sys.stderr)
        row = {"set": name} | {f"{method}, %": float(np.mean(found)) for method, found in errors.items()}
        row |= {f"{method}, s": float(np.mean(taken)) for method, taken in seconds.items()}
        rows.append(row | {"grid / halving": float(np.sum(seconds["full grid"]) / np.sum(seconds["halving"]))})
    common.report("Test error and seconds of tuning and training", rows, chosen.json)


if __name__ == "__main__":
    main()

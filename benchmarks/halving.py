"""scikit-learn's halving search (as in docs/guide.md), its full grid and S3VMClassifierCV: test error and time.

    S3VM_DATA=folder python benchmarks/halving.py [--sets codrna usps banana] [--splits 0 1 2] [--methods halving cv]

The sets and splits are those of `quality.py`. Both searches have the same 60 candidates, folds and scores. Seconds
are those of the processor.
"""

import argparse
import sys
import time
import warnings

import common
import numpy as np
import quality
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV

from s3vm import RBF, TSG, LabeledKFold, S3VMClassifier, S3VMClassifierCV

ITERATIONS = 400


class WithIterations(S3VMClassifier):
    """Its number of iterations is a parameter, as a resource of scikit-learn's search has to be."""

    def get_params(self, deep=True):
        return super().get_params(deep) | ({"max_iter": None} if deep else {})

    def set_params(self, max_iter=None, **params):
        if max_iter is not None:
            self.solver = TSG(max_iter=max_iter)
        return super().set_params(**params)


def grid(X):
    width = RBF("median").resolve(X).width
    gammas = [factor * width for factor in (0.5, 1.0, 2.0, 4.0, 8.0)]
    return {"C": [1.0, 10.0, 100.0, 1000.0], "gamma": gammas, "unlabeled_weight": [0.0, 0.3, 1.0]}


def halving(X):
    search = {"resource": "max_iter", "max_resources": ITERATIONS, "return_train_score": False}
    return HalvingGridSearchCV(WithIterations(probability=False, random_state=0), grid(X), **SCORED, **search)


def full_grid(X):
    return GridSearchCV(S3VMClassifier(TSG(max_iter=ITERATIONS), probability=False, random_state=0), grid(X), **SCORED)


SCORED = {"cv": LabeledKFold(5, shuffle=True, random_state=0), "scoring": "roc_auc"}
METHODS = {
    "halving": halving,
    "full grid": full_grid,
    "cv": lambda X: S3VMClassifierCV(random_state=0),
    "default": lambda X: S3VMClassifier(random_state=0),
}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sets", nargs="+", default=["codrna", "usps", "banana"])
    options.add_argument("--splits", nargs="+", type=int, default=[0, 1, 2])
    options.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name in chosen.sets:
        errors, seconds = {method: [] for method in chosen.methods}, {method: [] for method in chosen.methods}
        for split in chosen.splits:
            X, y, some, test = quality.parts(name, split, 100)
            train = some != -2  # the others are to test on
            for method in chosen.methods:
                start = time.process_time()
                fitted = METHODS[method](X[train]).fit(X[train], some[train])
                seconds[method].append(time.process_time() - start)
                errors[method].append(100 * np.mean(fitted.predict(X[test]) != y[test]))
                result = f"{errors[method][-1]:.2f} % in {seconds[method][-1]:.1f} s"
                print(f"{name} {split} {method}: {result} {getattr(fitted, 'best_params_', '')}", file=sys.stderr)
        row = {"set": name} | {f"{method}, %": float(np.mean(values)) for method, values in errors.items()}
        rows.append(row | {f"{method}, s": float(np.mean(values)) for method, values in seconds.items()})
    common.report("Test error and processor seconds of tuning and training", rows, chosen.json)


if __name__ == "__main__":
    main()

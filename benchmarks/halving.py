"""scikit-learn's halving search beside ours and S3VMClassifierCV: test error and time.

    S3VM_DATA=folder python benchmarks/halving.py [--sets codrna usps banana] [--splits 0 1 2]

The sets and splits are those of `quality.py`. All searches have the same 60 candidates and the same folds.
"""

import argparse
import sys
import time
import warnings

import common
import numpy as np
import quality
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import HalvingGridSearchCV

from s3vm import RBF, TSG, HalvingSearchCV, LabeledKFold, S3VMClassifier, S3VMClassifierCV
from s3vm.estimators.model_selection import _negative_brier

CS, FACTORS, WEIGHTS = (1.0, 10.0, 100.0, 1000.0), (0.5, 1.0, 2.0, 4.0, 8.0), (0.0, 0.3, 1.0)


class Budgeted(S3VMClassifier):
    """Its number of iterations is a parameter, as scikit-learn wants a resource to be."""

    def get_params(self, deep=True):
        return super().get_params(deep) | ({"max_iter": 400} if deep else {})

    def set_params(self, *, max_iter=None, **params):
        super().set_params(**params)
        if max_iter is not None:
            self.solver = TSG(max_iter=max_iter)
        return self


def grid(X):
    width = RBF("median").resolve(X).width
    return {"C": CS, "gamma": [factor * width for factor in FACTORS], "unlabeled_weight": WEIGHTS}


def theirs(X, scoring, resource, **settings):
    return HalvingGridSearchCV(
        Budgeted(probability=False, random_state=0),
        grid(X),
        cv=LabeledKFold(5, shuffle=True, random_state=0),
        scoring=scoring,
        resource=resource,
        return_train_score=False,
        random_state=0,
        **settings,
    )


METHODS = {
    "ours": lambda X: HalvingSearchCV(S3VMClassifier(random_state=0), random_state=0),
    "iterations, Brier": lambda X: theirs(X, _negative_brier, "max_iter", max_resources=400),
    "iterations, AUC": lambda X: theirs(X, "roc_auc", "max_iter", max_resources=400),
    "rows, Brier": lambda X: theirs(X, _negative_brier, "n_samples", min_resources=len(X) // 9),
    "cv": lambda X: S3VMClassifierCV(random_state=0),
}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sets", nargs="+", default=["codrna", "usps", "banana"])
    options.add_argument("--splits", nargs="+", type=int, default=[0, 1, 2])
    options.add_argument("--methods", nargs="+", default=list(METHODS))
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
                start = time.perf_counter()
                search = METHODS[method](X[train]).fit(X[train], some[train])
                seconds[method].append(time.perf_counter() - start)
                fitted = getattr(search, "best_estimator_", search)
                errors[method].append(100 * (1 - fitted.score(X[test], y[test])))
                came = f"{errors[method][-1]:.2f} % in {seconds[method][-1]:.1f} s"
                print(f"{name} {split} {method}: {came} {getattr(search, 'best_params_', '')}", file=sys.stderr, flush=True)
        row = {"set": name} | {f"{method}, %": float(np.mean(values)) for method, values in errors.items()}
        rows.append(row | {f"{method}, s": float(np.mean(values)) for method, values in seconds.items()})
    common.report("Test error and seconds of tuning and training", rows, chosen.json)


if __name__ == "__main__":
    main()

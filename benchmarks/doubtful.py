"""How many of the labels that `doubtful_` doubts most are wrong, where 5 and 10 % were flipped.

    S3VM_DATA=folder python benchmarks/doubtful.py [--sets ...] [--seeds 0 1 2]

200 random rows are labelled, 1,300 are not, and some labels are replaced by another class, drawn at random. Printed is
the precision at the number flipped: of as many rows as were flipped, those that are doubted most, the share that was.
With cleanlab installed, that of its ranking of the same held-out probabilities, too, by its three scores.
"""

import argparse
import warnings

import common  # noqa: F401
import numpy as np
from quality import load

from s3vm import S3VMClassifier

SETS = ["banana", "codrna", "magic", "phoneme", "skin", "a9a", "g241c", "digit1", "usps", "mnist3v5", "mnist"]
N_LABELED, N_ROWS = 200, 1_500

try:
    from cleanlab.rank import get_label_quality_scores
except ImportError:
    get_label_quality_scores = None


def precisions(name, seed, share):
    """Precision at the number flipped, of each ranking."""
    X, y, _ = load(name)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(y))[:N_ROWS]
    X, y = X[rows], y[rows]
    flipped = np.arange(round(share * N_LABELED))
    some = np.where(np.arange(len(y)) < N_LABELED, y, -1)
    some[flipped] = (some[flipped] + rng.integers(1, y.max() + 1, len(flipped))) % (y.max() + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = S3VMClassifier(random_state=seed).fit(X, some)
    doubted = clf.doubtful_["row"][: len(flipped)]
    result = {"doubtful_": np.isin(doubted, flipped).sum() / len(flipped)}
    known = np.flatnonzero(np.isfinite(clf.held_out_proba_[:, 0]))
    codes, probabilities = np.searchsorted(clf.classes_, some[known]), clf.held_out_proba_[known]
    for method in ("self_confidence", "normalized_margin", "confidence_weighted_entropy"):
        if get_label_quality_scores is not None:
            quality = get_label_quality_scores(codes, probabilities, method=method)
            worst = known[np.argsort(quality, kind="stable")[: len(flipped)]]
            result[f"cleanlab, {method}"] = np.isin(worst, flipped).mean()
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    arguments = parser.parse_args()
    for share in (0.05, 0.1):
        means = []
        for name in arguments.sets:
            runs = [precisions(name, seed, share) for seed in arguments.seeds]
            means.append({method: float(np.mean([run[method] for run in runs])) for method in runs[0]})
            print(
                f"{share:.0%} flipped", name, {method: round(mean, 2) for method, mean in means[-1].items()}, flush=True
            )
        print(f"{share:.0%} flipped, mean", {k: round(float(np.mean([m[k] for m in means])), 3) for k in means[0]})

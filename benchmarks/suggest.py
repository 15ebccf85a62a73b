"""Error against the number of labels, where `suggest` chooses the rows to label and where chance does.

    S3VM_DATA=folder python benchmarks/suggest.py run results.jsonl [--sets ...] [--seeds 0 1 2]
    python benchmarks/suggest.py report results.jsonl

Each run starts with the same 20 random rows of at most 1,500, with a label of every class, and asks for 10 to 20 more
at a time, up to 200. S3VMClassifier() is fitted before each question, and its error is that on 1,500 other rows. `run`
appends a line per set, seed and method, and skips those that are there. `report` says for each set how many labels
`suggest` needs for the error that chance reaches with 40, 60, 90, 130 and 200, interpolating the means over seeds.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import common  # noqa: F401
import numpy as np
from quality import load

from s3vm import S3VMClassifier

SETS = ["banana", "codrna", "magic", "phoneme", "skin", "a9a", "g241c", "digit1", "usps", "mnist3v5"]
STEPS = [20, 30, 40, 50, 60, 75, 90, 110, 130, 150, 170, 185, 200]
TARGETS = [40, 60, 90, 130, 200]
N_ROWS = 1_500


def errors_of(name, seed, method):
    """The error with each number of labels."""
    X, y, _ = load(name)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    n = min(N_ROWS, 2 * len(y) // 3)
    X, y, X_test, y_test = X[order[:n]], y[order[:n]], X[order[n:][:N_ROWS]], y[order[n:][:N_ROWS]]
    labeled = list(range(STEPS[0]))
    while len(np.unique(y[labeled])) <= y.max():
        labeled = list(rng.permutation(n)[: STEPS[0]])
    errors, clf, some = [], None, None
    for n_labels in STEPS:
        more = n_labels - len(labeled)
        if clf is not None and method == "suggested":
            labeled += list(clf.suggest(X, more, some, random_state=seed))
        else:
            labeled += list(rng.choice(np.setdiff1d(np.arange(n), labeled), more, replace=False))
        some = np.full(n, -1)
        some[labeled] = y[labeled]
        clf = S3VMClassifier(random_state=seed).fit(X, some)
        errors.append(float(np.mean(clf.predict(X_test) != y_test)))
    return errors


def run(arguments):
    path = Path(arguments.results)
    done = {(line["set"], line["seed"], line["method"]) for line in read(path)}
    for seed in arguments.seeds:
        for name in arguments.sets:
            for method in ("random", "suggested"):
                if (name, seed, method) not in done:
                    start = time.perf_counter()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        errors = errors_of(name, seed, method)
                    line = {"set": name, "seed": seed, "method": method, "labels": STEPS, "errors": errors}
                    with path.open("a") as lines:
                        lines.write(json.dumps(line | {"seconds": round(time.perf_counter() - start, 1)}) + "\n")


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def labels_needed(errors, goal):
    """With how many labels the falling mean curve first reaches the goal; 200 if it does not."""
    curve = np.minimum.accumulate(errors)
    return float(np.interp(-goal, -curve, STEPS)) if curve[-1] <= goal else float(STEPS[-1])


def report(arguments):
    lines = read(Path(arguments.results))
    rows, ratios = [], []
    for name in dict.fromkeys(line["set"] for line in lines):
        curves = {
            method: np.mean([x["errors"] for x in lines if (x["set"], x["method"]) == (name, method)], axis=0)
            for method in ("random", "suggested")
        }
        goals = np.minimum.accumulate(curves["random"])
        own = np.array([labels_needed(curves["suggested"], goals[STEPS.index(n)]) for n in TARGETS])
        by_chance = np.array([labels_needed(curves["random"], goals[STEPS.index(n)]) for n in TARGETS])
        ratios.append(own / by_chance)
        n_seeds = len({line["seed"] for line in lines if line["set"] == name})
        row = {"set": name, "seeds": n_seeds}
        for n in (60, 130, 200):
            at = STEPS.index(n)
            row[f"error with {n}, random"], row["suggested" + " " * n] = (
                f"{100 * curves[method][at]:.1f}" for method in ("random", "suggested")
            )
        rows.append(row | {f"labels for {n}": f"{value:.0f}" for n, value in zip(TARGETS, own, strict=True)})
    names = [name.strip() for name in rows[0]]
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")
    ratios = np.array(ratios)
    print(f"\nlabels needed, as a fraction of those at random: mean {ratios.mean():.2f}, worst {ratios.max():.2f}")
    print("mean by number of labels:", dict(zip(TARGETS, np.round(ratios.mean(axis=0), 2).tolist(), strict=True)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run")
    command.set_defaults(run=run)
    command.add_argument("results")
    command.add_argument("--sets", nargs="+", default=SETS)
    command.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    command = commands.add_parser("report")
    command.set_defaults(run=report)
    command.add_argument("results")
    arguments = parser.parse_args()
    arguments.run(arguments)

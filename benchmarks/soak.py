"""Rows that come without end, at full speed: whether memory stays flat and results stay what they are.

    python benchmarks/soak.py [--minutes 30] [--streams tsg frs incremental] [--json soak.json]

Each stream is a process of its own, all at the same time. It feeds batches to two classifiers: one is left alone; the
other is, every 20 batches, pickled and read back (but for `incremental`, whose copy finds its kernel matrix again and
rounds otherwise), saved, loaded, and asked for predictions. `incremental` forgets as many rows as come. Counted as a
fault:

- the two differ in a single bit, or a loaded model in a single prediction;
- `incremental`, every 200 batches, puts fewer than 95 % of the test rows into the class that a new fit of the same rows
  does (the objective is not convex: the path may be in another minimum, but not adrift);
- after a fifth of the time to warm up, the peak of the memory in the second half is above that in the first by more
  than 8 MB, or there are more threads or open files;
- the error on rows that nobody has learnt from is, in the last quarter, more than a point above that in the first.

It ends with an error if there is one. Needs Linux, which tells the memory of a process in /proc.
"""

import common  # isort: skip

import argparse
import json
import os
import pickle
import queue
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from s3vm import FRS, TSG, S3VMClassifier, load
from s3vm.training import history

D, ROWS, BETWEEN, BETWEEN_FITS = 10, 500, 20, 200
WARM_UP, GROWTH_MB, WORSE, AGREE = 0.2, 8.0, 0.01, 0.95
SETTINGS: dict[str, Any] = {"C": 1.0, "gamma": 0.05, "unlabeled_weight": 1.0, "random_state": 0}
STREAMS = {
    "tsg": lambda: S3VMClassifier(TSG(n_features=128, max_features=1024, n_reference=500, max_iter=200), **SETTINGS),
    "frs": lambda: S3VMClassifier(FRS(n_features=1024, max_iter=200), **SETTINGS),
    "incremental": lambda: S3VMClassifier("incremental", probability=False, **SETTINGS),
}


def drawn(number: int, n_rows: int) -> tuple[Any, Any]:
    """Rows of two overlapping clouds, the same whenever they are asked for."""
    rng = np.random.default_rng([number, 7])
    y = rng.integers(0, 2, n_rows)
    return rng.normal(size=(n_rows, D)) + 0.45 * (2 * y[:, None] - 1), y


def batch(number: int, n_rows: int, n_labeled: int) -> tuple[Any, Any]:
    X, y = drawn(number, n_rows)
    return X, np.where(np.arange(n_rows) < n_labeled, y, -1)


def steps(name: str, clf: Any) -> Iterator[None]:
    """Feeds `clf` a batch at a time."""
    if name != "incremental":
        for number in range(1 << 62):
            clf.partial_fit(*batch(number, ROWS, 5), max_labeled=300)
            yield
    clf.partial_fit(*batch(0, 240, 60))
    for number in range(1, 1 << 62):
        clf.partial_fit(*batch(number, 8, 2))
        clf.forget(np.arange(8))
        yield


def parts(clf: Any) -> tuple[Any, ...]:
    model = clf.model_
    return (
        model.coefficients,
        model.intercept,
        model.weights,
        getattr(clf, "_calibrator", None) and clf._calibrator.beta,
    )


def one(name: str, minutes: float) -> None:
    """One stream: a line of JSON a second."""
    history._MAX_LINES = 4096  # histories end to grow, and are thinned again and again, from the warm-up on
    warnings.simplefilter("ignore")  # of folds and classes of windows that happen to be poor
    X_test, y_test = drawn(-1 & 0xFFFFFFFF, 4000)
    straight, disturbed = STREAMS[name](), STREAMS[name]()
    first, second = steps(name, straight), steps(name, disturbed)
    counts = {"batches": 0, "rows": 0, "trips": 0, "fits": 0, "worst": 1.0, "faults": 0, "error": 0.0}
    end, spoken = time.monotonic() + 60 * minutes, 0.0
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            next(first)
            next(second)
            counts["batches"] += 1
            counts["rows"] += 8 if name == "incremental" else ROWS
            if counts["batches"] % BETWEEN == 0:
                path = Path(folder, "model.s3vm")
                disturbed.save(path)
                counts["trips"] += 1
                counts["faults"] += not np.array_equal(load(path).predict(X_test), straight.predict(X_test))
                counts["faults"] += not all(map(np.array_equal, parts(straight), parts(disturbed)))
                counts["error"] = 1 - straight.score(X_test, y_test)
                if name != "incremental":
                    disturbed = pickle.loads(pickle.dumps(disturbed))
                    second.close()
                    second = resumed(disturbed, counts["batches"])
            if name == "incremental" and counts["batches"] % BETWEEN_FITS == 0:
                rows = straight._all_rows()
                fresh = STREAMS[name]().fit(rows.X, rows.y)
                agree = float(np.mean(fresh.predict(X_test) == straight.predict(X_test)))
                counts["fits"], counts["worst"] = counts["fits"] + 1, min(counts["worst"], agree)
                counts["faults"] += agree < AGREE
            if time.monotonic() - spoken > 1:
                spoken = time.monotonic()
                print(json.dumps({**counts, **process()}), flush=True)


def resumed(clf: Any, number: int) -> Iterator[None]:
    """`steps` of a stochastic solver, from a batch on."""
    while True:
        clf.partial_fit(*batch(number, ROWS, 5), max_labeled=300)
        number += 1
        yield


def process() -> dict[str, float]:
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "mb": resident / 1e6,
        "threads": len(os.listdir("/proc/self/task")),
        "files": len(os.listdir("/proc/self/fd")),
    }


def judged(name: str, lines: list[dict[str, float]], status: int) -> dict[str, Any]:
    """A row of the table, and what is wrong in words."""
    warm = lines[int(WARM_UP * len(lines)) :]
    n = len(warm)
    wrong = [] if status == 0 else [f"ended with status {status}"]
    if n < 8:
        return {"stream": name, "wrong": "; ".join([*wrong, "too short to judge: give more --minutes"])}
    mb, errors = (np.array([line[what] for line in warm]) for what in ("mb", "error"))
    growth = float(mb[n // 2 :].max() - mb[: n // 2].max())
    change = float(errors[-n // 4 :].mean() - errors[: n // 4].mean())
    last = warm[-1]
    if last["faults"]:
        wrong.append(f"{last['faults']} differences from the reference")
    if growth > GROWTH_MB:
        wrong.append(f"memory grew by {growth:.1f} MB")
    wrong += [f"more {what} than before" for what in ("threads", "files") if last[what] > warm[0][what]]
    if change > WORSE:
        wrong.append(f"the error rose by {change:.1%}")
    return {
        "stream": name,
        "batches": last["batches"],
        "rows": last["rows"],
        "MB, first half": round(float(mb[: n // 2].max()), 1),
        "MB, second half": round(float(mb[n // 2 :].max()), 1),
        "MB an hour": round(float(np.polyfit(np.arange(n), mb, 1)[0] * 3600), 1),
        "error, first quarter": f"{errors[: n // 4].mean():.2%}",
        "error, last": f"{errors[-n // 4 :].mean():.2%}",
        "saved and loaded": last["trips"],
        "new fits": last["fits"],
        "least agreement": f"{last['worst']:.1%}" if last["fits"] else "",
        "differences": last["faults"],
        "wrong": "; ".join(wrong),
    }


def soak(minutes: float, names: list[str]) -> list[dict[str, Any]]:
    heard: queue.Queue[tuple[str, dict[str, float]]] = queue.Queue()
    runs = {name: subprocess.Popen(command(name, minutes), stdout=subprocess.PIPE, text=True) for name in names}

    def listen(name: str) -> None:
        stream = runs[name].stdout
        assert stream is not None
        for line in stream:
            heard.put((name, json.loads(line)))

    for name in names:
        threading.Thread(target=listen, args=(name,), daemon=True).start()
    lines: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    begun, shown, is_screen = time.monotonic(), 0.0, sys.stderr.isatty()
    try:
        while any(run.poll() is None for run in runs.values()) or not heard.empty():
            try:
                name, line = heard.get(timeout=1)
                lines[name].append(line)
            except queue.Empty:
                pass
            if time.monotonic() - shown > (1 if is_screen else 60):
                shown = time.monotonic()
                now = [
                    f"{name} {part[-1]['rows']:,} rows {part[-1]['mb']:.0f} MB" for name, part in lines.items() if part
                ]
                text = f"{(shown - begun) / 60:.1f} of {minutes:g} minutes  " + "  ".join(now)
                sys.stderr.write(f"\r\033[K{text}" if is_screen else text + "\n")
                sys.stderr.flush()
    finally:
        for run in runs.values():
            run.terminate() if run.poll() is None else None
        sys.stderr.write("\n" if is_screen else "")
    return [judged(name, lines[name], runs[name].wait()) for name in names]


def command(name: str, minutes: float) -> list[str]:
    return [sys.executable, __file__, "--one", name, "--minutes", str(minutes)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=list(STREAMS))
    parser.add_argument("--json", type=Path, help="a file for the table")
    parser.add_argument("--one", choices=STREAMS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not Path("/proc/self/statm").exists():
        sys.exit("the soak needs Linux: it reads the memory of its processes in /proc")
    if given.one:
        one(given.one, given.minutes)
        return
    rows = soak(given.minutes, given.streams)
    title = f"Rows without end, {given.minutes:g} minutes, {os.cpu_count()} cores"
    common.report(title, rows, as_json=False)
    if given.json:
        given.json.write_text(json.dumps({"title": title, "machine": common.machine(), "rows": rows}, indent=1) + "\n")
    if any(row["wrong"] for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()

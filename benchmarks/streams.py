"""Rows from files: how fast they are read, what memory a fit takes, and whether a killed fit resumes without a trace.

    python benchmarks/streams.py read --rows 20000000   # makes a folder of parquet files, measures, deletes it
    python benchmarks/streams.py kill --times 20

`read` prints the rate of pyarrow alone and of a cheap fit over all rows, taken in turns, each in a process of its own,
and the peak memory of the fits. `kill` sends SIGKILL to a checkpointed fit at a random moment, so often, resumes it,
and compares the model with that of a fit in one go.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

D = 28
COLUMNS = [f"x{k}" for k in range(D)]


def make(folder: Path, n_rows: int, n_labeled: int = 200, per_file: int = 1_000_000) -> None:
    """Two overlapping clouds; a few rows have a label."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(exist_ok=True, parents=True)
    rng = np.random.default_rng(0)
    centers = 0.4 * rng.normal(size=(2, D)).astype(np.float32)
    for number, start in enumerate(range(0, n_rows, per_file)):
        n = min(per_file, n_rows - start)
        y = rng.integers(0, 2, n)
        X = rng.standard_normal((n, D), dtype=np.float32) + centers[y]
        labeled = rng.random(n) < n_labeled / n_rows
        table = {name: X[:, k] for k, name in enumerate(COLUMNS)} | {"label": pa.array(y, mask=~labeled)}
        pq.write_table(pa.table(table), folder / f"part-{number:03d}.parquet", row_group_size=1 << 18)


def arrow(folder: str) -> dict:
    import pyarrow.dataset as ds

    start, n_rows = time.perf_counter(), 0
    for batch in ds.dataset(folder).to_batches(columns=COLUMNS):
        n_rows += len(batch)
    return {"rows": n_rows, "seconds": time.perf_counter() - start}


def cheap(folder: str) -> dict:
    """One pass over all rows by a model of 64 random features; the rows are counted once the first batch is there."""
    from s3vm import FRS, S3VMClassifier
    from s3vm.sources.files import FileSource

    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((100, D)).astype(np.float32), np.arange(100) % 2
    source, size = FileSource(folder, drop=["label"]), 1 << 14
    began: list[float] = []

    def watch(done: int, total: int, record: dict) -> None:
        began.append(time.perf_counter()) if not began else None

    solver = FRS(n_features=64, batch_size=size, passes=1.0)
    clf = S3VMClassifier(solver, unlabeled_weight=1.0, probability=False, gamma=0.02, random_state=0, verbose=watch)
    clf.fit(X, y, X_unlabeled=source)
    return {"rows": (clf.n_iter_ - 1) * size, "seconds": time.perf_counter() - began[0]}


def whole(folder: str) -> dict:
    """`fit(source)` with the defaults, scaled in one pass, labelled rows found in the same."""
    from s3vm import S3VMClassifier
    from s3vm.sources.files import FileSource

    start = time.perf_counter()
    source = FileSource(folder, "label")
    scaler = source.scaler()
    read = time.perf_counter()
    clf = S3VMClassifier(random_state=0).fit(source.scaled(scaler))
    return {"rows": source.n_rows, "survey": read - start, "seconds": time.perf_counter() - start, "n": clf.n_iter_}


def checkpointed(folder: str) -> dict:
    from s3vm import TSG, S3VMClassifier
    from s3vm.sources.files import FileSource

    path, model = os.environ["CHECKPOINT"], os.environ["MODEL"]
    solver = TSG(max_iter=300, max_features=512, batch_size=64)
    source = FileSource(folder, "label", buffer_bytes=1 << 18)
    clf = S3VMClassifier(solver, random_state=0).fit(source, checkpoint=path, every=0.02, resume=True)
    clf.save(model)
    return {"n": clf.n_iter_}


def apart(what: str, folder: Path, **environment: str) -> subprocess.Popen:
    command = [sys.executable, __file__, what, "--folder", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})


def read(folder: Path, n_rows: int, repeats: int) -> None:
    if not folder.exists():
        make(folder, n_rows)
    ratios = []
    for _ in range(repeats):
        measured = {what: json.loads(apart(what, folder).communicate()[0]) for what in ("arrow", "cheap")}
        rate = {what: one["rows"] / one["seconds"] / 1e6 for what, one in measured.items()}
        ratios.append(rate["cheap"] / rate["arrow"])
        print(
            f"pyarrow {rate['arrow']:.2f} million rows/s, a cheap fit {rate['cheap']:.2f}: {ratios[-1]:.0%}; "
            f"peak of the fit {measured['cheap']['peak']:.0f} MB, of pyarrow {measured['arrow']['peak']:.0f} MB",
            flush=True,
        )
    print(f"median {np.median(ratios):.0%}")
    print("defaults, labelled rows and scaling found in one pass:", apart("whole", folder).communicate()[0], flush=True)


def kill(times: int) -> None:
    from s3vm import load

    parts = ("coefficients", "intercept", "weights")
    with tempfile.TemporaryDirectory() as place:
        folder, path, straight = Path(place, "rows"), Path(place, "c"), Path(place, "straight.s3vm")
        make(folder, 50_000, n_labeled=100, per_file=10_000)
        run = apart("checkpointed", folder, CHECKPOINT=str(path), MODEL=str(straight))
        begun = _wait_for(path, run)
        run.wait()
        duration = time.perf_counter() - begun
        print(f"in one go {duration:.1f} s from the first checkpoint on", flush=True)
        rng, n_equal, n_killed = np.random.default_rng(0), 0, 0
        while n_killed < times:
            path.unlink(missing_ok=True)
            model = Path(place, f"{n_killed}.s3vm")
            run = apart("checkpointed", folder, CHECKPOINT=str(path), MODEL=str(model))
            _wait_for(path, run)
            time.sleep(rng.uniform(0, 0.8) * duration)
            if run.poll() is not None:  # it was faster this time
                continue
            run.send_signal(signal.SIGKILL)
            run.wait()
            n_killed += 1
            if apart("checkpointed", folder, CHECKPOINT=str(path), MODEL=str(model)).wait() != 0:
                raise RuntimeError("the resumed fit has failed")
            one, two = load(straight), load(model)
            n_equal += all(np.array_equal(getattr(one.model_, part), getattr(two.model_, part)) for part in parts)
            print(f"killed {n_killed} times, {n_equal} models identical", flush=True)


def _wait_for(path: Path, run: subprocess.Popen) -> float:
    while not path.exists() and run.poll() is None:
        time.sleep(0.005)
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["read", "kill", "arrow", "cheap", "whole", "checkpointed"])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--times", type=int, default=20)
    given = parser.parse_args()
    if given.what == "kill":
        kill(given.times)
    elif given.what == "read" and given.folder is not None:
        read(given.folder, given.rows, given.repeats)
    elif given.what == "read":
        with tempfile.TemporaryDirectory() as place:
            read(Path(place, "rows"), given.rows, given.repeats)
    else:
        result = globals()[given.what](str(given.folder))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        print(json.dumps({**result, "peak": peak}))


if __name__ == "__main__":
    main()

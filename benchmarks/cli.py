"""How long the command line takes over a large file, from its start to its exit.

    python benchmarks/cli.py [--json] [--rows 1000000] [--jobs 2]

`s3vm fit` on a csv of that many rows and 28 features, 200 of them labelled, at its defaults; then `s3vm predict` on the
same rows in a Parquet file. A small fit goes before, so that what Numba compiles is on disk. On a busy machine the
seconds of the processor say more than those of the clock: they are what a single free core would need.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

N_DIMS, N_LABELED, N_BLOBS = 28, 200, 8


def write(folder: Path, n_rows: int) -> None:
    """Two classes of four blobs each, features of different scales."""
    rng = np.random.default_rng(0)
    blob = rng.integers(0, N_BLOBS, n_rows)
    X = 0.8 * rng.normal(size=(N_BLOBS, N_DIMS))[blob] + rng.normal(size=(n_rows, N_DIMS))
    X = (X * rng.uniform(0.5, 20, N_DIMS)).astype(np.float32)
    labels = np.full(n_rows, "", dtype=object)
    known = rng.choice(n_rows, N_LABELED, replace=False)
    labels[known] = np.where(blob[known] % 2, "signal", "background")
    columns = {f"f{k}": X[:, k] for k in range(N_DIMS)}
    pa_csv.write_csv(pa.table({**columns, "label": pa.array(labels, pa.string())}), folder / "rows.csv")
    pq.write_table(pa.table(columns), folder / "rows.parquet")


def timed(folder: Path, *command: str) -> dict:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    as_users_have_it = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-m", "s3vm", *command, "--json"],
        cwd=folder,
        env=as_users_have_it,
        check=True,
        capture_output=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"result": json.loads(done.stdout), "seconds": time.perf_counter() - start, "processor": processor}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--jobs", default="2")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, 20_000)
        timed(folder, "fit", "rows.csv", "-t", "label", "-j", arguments.jobs)
        write(folder, arguments.rows)
        fit = timed(folder, "fit", "rows.csv", "-t", "label", "-j", arguments.jobs)
        predict = timed(folder, "predict", "rows.s3vm", "rows.parquet", "-o", "out.csv", "-j", arguments.jobs)
    inside, start = predict["result"]["seconds"], fit["seconds"] - sum(fit["result"]["seconds"].values())
    rows = [
        {"step": "fit: reading", "seconds": fit["result"]["seconds"]["reading"]},
        {"step": "fit: training", "seconds": fit["result"]["seconds"]["training"]},
        {"step": "fit: the rest, Python's start included", "seconds": start},
        {"step": f"fit: all, {fit['processor']:.1f} s of a processor", "seconds": fit["seconds"]},
        {"step": f"predict: {arguments.rows / inside:,.0f} rows a second", "seconds": inside},
        {
            "step": f"predict: all, {predict['processor']:.1f} s of a processor, at least "
            f"{arguments.rows / predict['processor']:,.0f} rows each",
            "seconds": predict["seconds"],
        },
    ]
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    common.report(
        f"s3vm on {arguments.rows:,} x {N_DIMS}, {arguments.jobs} threads, load {load:.1f}", rows, arguments.json
    )


if __name__ == "__main__":
    main()

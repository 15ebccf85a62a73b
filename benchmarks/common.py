"""What the benchmarks share: one thread a program, interleaved timing, tables.

Import this first: it sets the number of threads before NumPy loads its BLAS.
"""

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np

sys.path.append(str(Path(__file__).parents[1]))  # where `experiments` is


def medians(runs: dict[str, Callable[[], Any]], seconds: float, at_least: int = 5) -> dict[str, float]:
    """Median seconds of each run, all of them taken in turns so that a disturbance meets them alike."""
    once = {}
    for name, run in runs.items():
        run()
        start = time.perf_counter()
        run()
        once[name] = time.perf_counter() - start
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(max(at_least, min(60, int(seconds / sum(once.values()))))):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(values)) for name, values in times.items()}


def machine() -> str:
    """The processor and the versions that matter."""
    try:
        with open("/proc/cpuinfo") as lines:
            model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor()
    return f"{model}, NumPy {np.__version__}, Numba {numba.__version__}, Python {platform.python_version()}"


def report(title: str, rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Prints rows as a table in Markdown, or as one JSON object."""
    if as_json:
        json.dump({"title": title, "machine": machine(), "rows": list(rows)}, sys.stdout, indent=1)
        print()
        return
    print(f"\n{title} ({machine()})\n")
    names = list(rows[0])
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(_cell(row[name]) for name in names) + " |")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.2f}" if value >= 0.095 else f"{value:.3f}"
    return str(value)

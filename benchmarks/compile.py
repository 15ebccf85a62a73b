"""How long the first fit takes, with an empty cache of compiled functions and with a full one, and the command line.

    python benchmarks/compile.py [--before FOLDER]

FOLDER has version 0.1: an unpacked wheel, or the folder `src` of a checkout (``git worktree add ../v01 v0.1.0``).

Each fit is in a process of its own, which also predicts. Times are those of the processor, of all threads together,
which hardly depend on what else the machine does; a fit itself is part of both.

import  until S3VMClassifier is there: mostly NumPy, SciPy, scikit-learn and numba
first   the first fit, with an empty cache
next    the same in the next process, with a full cache
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

FIT = """
import sys, time
from s3vm import S3VMClassifier, S3VMClassifierCV
loaded = time.process_time()
import numpy as np
from scipy import sparse
kind, n, d, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
X = np.random.RandomState(0).normal(size=(n, d))
y = np.where(np.arange(n) < 200, (X[:, 0] > 0).astype(int), -1)
X = sparse.csr_array(X) if kind == "sparse" else X
begin = time.process_time()
settings = {"solver": "tsg"} if kind == "tsg" else {}
clf = (S3VMClassifierCV if kind == "cv" else S3VMClassifier)(random_state=0, **settings)
clf.fit(X, y).predict(X)
print(loaded, time.process_time() - begin)
clf.save(path)
"""
CASES = {
    "default, 2,000 x 28": ("default", 2_000, 28),
    "default, 50,000 x 22": ("default", 50_000, 22),
    "default, sparse, 2,000 x 28": ("sparse", 2_000, 28),
    "S3VMClassifierCV, 2,000 x 28": ("cv", 2_000, 28),
    "tsg, 2,000 x 28": ("tsg", 2_000, 28),
}


def seconds(command: list[str], environment: dict[str, str]) -> float:
    """Processor time of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(source: Path, case: tuple[str, int, int], model: str) -> list[float]:
    """Processor time of the import, and of the fit with an empty and with a full cache."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": str(source), "NUMBA_CACHE_DIR": cache, "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-W", "ignore", "-c", FIT, *map(str, case), model]
        runs = [subprocess.check_output(command, env=environment, text=True).split() for _ in range(2)]
    return [float(runs[1][0]), float(runs[0][1]), float(runs[1][1])]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, metavar="FOLDER")
    before = parser.parse_args().before
    sources = {"now": Path(__file__).parents[1] / "src"} | ({"0.1": before} if before else {})
    with tempfile.TemporaryDirectory() as folder:
        columns = ("import", "first", "next") * len(sources) + ("0.1/now",) * bool(before)
        print(f"{'seconds of the processor':30}" + "".join(f"{name:>9}" for name in columns))
        for name, case in CASES.items():
            found = [value for source in sources.values() for value in measure(source, case, f"{folder}/m.s3vm")]
            ratio = [found[4] / found[1]] if before else []
            print(f"{name:30}" + "".join(f"{value:9.2f}" for value in [*found, *ratio]), flush=True)
        for source in sources.values():
            environment = {**os.environ, "PYTHONPATH": str(source)}
            measure(source, CASES["default, 2,000 x 28"], f"{folder}/m.s3vm")
            for words in (["--help"], ["info", f"{folder}/m.s3vm"]):
                command = [sys.executable, "-m", "s3vm", *words]
                print(f"{source}: s3vm {words[0]} {min(seconds(command, environment) for _ in range(3)):.2f} s")

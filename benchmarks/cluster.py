"""What training on a Dask cluster costs: two workers against one, and a model of the time for more rows and workers.

    python benchmarks/cluster.py [--json] [--repeats R] [--rounds T]

Two clusters of one and of two workers, each of one thread, train in turns on the same rows (28 columns, 200 labelled
rows, 8192 random features). Milliseconds are medians over iterations. `columns` are the functions trained side by side:
1 with a given weight, 12 with `unlabeled_weight="auto"`. `processor` is what an iteration takes of the processors, that
of the client (in whose process the scheduler runs, too) and that of the busiest worker: where other programs run
beside, their sum says more than the clock.

The model of the time of an iteration has four constants, which are measured first, each on its own:

    seconds = round + hops message + batch / (N threads) row

round     what the client does between two batches, and the way to a worker and back
message   sending coefficients to one worker and adding up its gradients; `hops` is how many follow each other: N of up
          to 4 workers, and 4 more whenever the workers grow by another power of 4, since workers ask each other
row       what a worker does with a row of the batch, on one thread

and `load` is what a row costs once, before the first iteration.
"""

import argparse
import time

import common
import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from s3vm import TSG, S3VMClassifier
from s3vm.backends import backend
from s3vm.estimators.dask import _prepared
from s3vm.kernels import RBF
from s3vm.losses import Exponential
from s3vm.solvers.tsg.batch_gradient import BatchGradientWorker, Iterate
from s3vm.sources.dask import FAN_OUT

N_ROWS, N_DIMS, N_LABELED, N_FEATURES = 200_000, 28, 200, 8192
SETTINGS = {1: {"unlabeled_weight": 1.0, "probability": False}, 12: {}}


def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, N_DIMS)).astype(np.float32)
    y = np.where(X[:, 0] + X[:, 1] * X[:, 2] > 0, 1, 0)
    y[N_LABELED:] = -1
    return X, y


class Clock:
    """Keeps when iterations ended, and the seconds of processors that the first and the last of them ended at."""

    def __init__(self, client):
        self._client, self.start, self.ends, self._processor = client, time.perf_counter(), [], []

    def __call__(self, done, total, record):
        self.ends.append(time.perf_counter())
        if done in (1, total):
            workers = self._client.run(time.process_time)
            self._processor.append(np.array([time.process_time(), *(workers[name] for name in sorted(workers))]))

    def processor(self):
        """Seconds of the client and of the busiest worker in an iteration."""
        mine, *workers = (self._processor[-1] - self._processor[0]) / (len(self.ends) - 1)
        return mine, max(workers)


def fitted(client, data, n_columns, batch_size, n_iterations):
    """A clock that has seen a fit."""
    solver = TSG(batch_size=batch_size, max_iter=n_iterations, max_features=N_FEATURES, growth=0.0)
    clock = Clock(client)
    with client.as_current():
        S3VMClassifier(solver, verbose=clock, random_state=0, **SETTINGS[n_columns]).fit(*data)
    return clock


def seconds_a_row(n_columns, n_rows=2048, repeats=5):
    """What a worker does with a row of the batch, in seconds of one processor."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, N_DIMS)).astype(np.float32)
    centers = rng.normal(size=(N_LABELED + TSG().n_reference, N_DIMS)).astype(np.float32)
    m = TSG().n_features
    puller = BatchGradientWorker(RBF(1 / N_DIMS), 0, m, centers, N_LABELED, Exponential())
    engine = backend("cpu", np.float32, 1, 256 << 20)
    features = engine.features(puller.kernel, 0, m, N_DIMS)
    one = np.ones(n_columns)
    dual, span = np.ones((N_LABELED, n_columns)), np.ones((N_FEATURES, n_columns), np.float32)
    point = Iterate(dual, one, one, span, one, N_FEATURES // m)
    puller.gradient(engine, features, X, point)
    times = []
    for _ in range(repeats):
        start = time.process_time()
        puller.gradient(engine, features, X, point)
        times.append(time.process_time() - start)
    return float(np.median(times)) / n_rows


def seconds_to_load(repeats=5):
    """What a row costs a worker before the first iteration, in seconds of one processor."""
    X, y = rows()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        _prepared(0, X, y, -1, "float32")
        times.append(time.process_time() - start)
    return float(np.median(times)) / N_ROWS


def on_a_worker(client, measure, *arguments):
    """A measurement where the work is done: Dask has its workers give memory back at once, which takes time."""
    return client.submit(measure, *arguments, pure=False).result()


def hops(n_workers):
    """How many messages follow each other: all at the client, or 4 in each storey of the tree of workers."""
    n_storeys, room = 1, FAN_OUT
    while room < n_workers:
        n_storeys += 1
        room += FAN_OUT**n_storeys
    return n_workers if n_storeys == 1 else FAN_OUT * n_storeys


def predicted(constants, n_workers, batch_size, n_threads=1):
    messages = hops(n_workers) * constants["message"]
    return constants["round"] + messages + batch_size / (n_workers * n_threads) * constants["row"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8, help="iterations of a fit")
    options = parser.parse_args()
    one, two = (
        LocalCluster(n_workers=n, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50)
        for n in (1, 2)
    )
    with one, two, Client(one, set_as_default=False) as first, Client(two, set_as_default=False) as second:
        clients = {1: first, 2: second}
        data = {}
        for n, client in clients.items():
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
                lazy = [da.from_array(part, chunks=(N_ROWS // 8, *part.shape[1:])) for part in rows()]
                data[n] = client.persist(lazy)
            fitted(client, data[n], 12, 64, 2)  # the first fit loads the compiled kernels

        def alternated(n_columns, batch_size, n_iterations):
            """Median milliseconds of an iteration, and those of the client's and a worker's processor, by workers."""
            clocks = {n: [] for n in clients}
            for _ in range(options.repeats):
                for n, client in clients.items():
                    clocks[n].append(fitted(client, data[n], n_columns, batch_size, n_iterations))
            each = {
                n: float(np.median(np.concatenate([np.diff(clock.ends)[:-1] for clock in clocks[n]]))) for n in clocks
            }
            return each, {n: np.median([clock.processor() for clock in clocks[n]], axis=0) for n in clocks}

        table, of_columns = [], {}
        for n_columns in SETTINGS:
            empty, busy = alternated(n_columns, 2, 10 * options.rounds)
            message = max(0.0, empty[2] - empty[1])
            constants = {
                "round": empty[1] - message,
                "message": message,
                "row": on_a_worker(first, seconds_a_row, n_columns),
            }
            of_columns[n_columns] = constants
            for batch_size in (4096, 16384):
                each, busy = alternated(n_columns, batch_size, options.rounds)
                for n in clients:
                    model = predicted(constants, n, batch_size)
                    table.append(
                        {
                            "columns": n_columns,
                            "batch": batch_size,
                            "workers": n,
                            "ms": 1e3 * each[n],
                            "predicted": 1e3 * model,
                            "times one worker": each[1] / each[n],
                            "predicted times": predicted(constants, 1, batch_size) / model,
                            "processor: client": 1e3 * busy[n][0],
                            "worker": 1e3 * busy[n][1],
                            "times by processor": busy[1].sum() / busy[n].sum(),
                        }
                    )
        common.report("Iterations", table, options.json)
        load = on_a_worker(first, seconds_to_load)
    named = [
        {"columns": k, "round, ms": 1e3 * c["round"], "message, ms": 1e3 * c["message"], "row, us": 1e6 * c["row"]}
        for k, c in of_columns.items()
    ]
    common.report(f"Constants; load {1e6 * load:.2f} us a row", named, options.json)
    future = []
    for n_workers in (1, 2, 4, 16, 64, 256):
        line = {"workers of 8 threads": n_workers}
        for n_columns, constants in of_columns.items():
            default = 1000 * predicted(constants, n_workers, 4096, 8)
            line[f"{n_columns} columns: 1000 batches of 4096, s"] = default
            for n_rows in (10**8, 10**9):
                one_pass = n_rows / 65536 * predicted(constants, n_workers, 65536, 8)
                line[f"{n_columns}: one pass over {n_rows:.0e} rows, s"] = one_pass
        future.append(line | {"load 1e9 rows, s": load * 10**9 / (8 * n_workers)})
    common.report("What the model says of more rows", future, options.json)


if __name__ == "__main__":
    main()

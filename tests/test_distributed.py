"""Training on a Dask cluster: the model of a single process, whatever lies where, and what a lost worker leaves."""

import asyncio
import os
import pickle
import re
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import s3vm
from s3vm import (
    FRS,
    TSG,
    DaskS3VMClassifier,
    S3VMClassifier,
    S3VMClassifierCV,
    WorkerLostError,
    backends,
    philox,
)
from s3vm._utils.arrays import project
from s3vm.estimators import dask as dask_rows
from s3vm.estimators import preparation
from s3vm.estimators.dask import cluster_solver
from s3vm.philox import Purpose
from s3vm.problem.projection import principal_directions
from s3vm.solvers.tsg.batch_gradient import BatchGradientWorker, Iterate
from s3vm.sources import dask as cluster
from s3vm.sources.dask import Part

dask = pytest.importorskip("dask", reason='dask is not installed: pip install "s3vm[dask]"')
distributed = pytest.importorskip("distributed", reason='dask is not installed: pip install "s3vm[dask]"')
import dask.array as da  # noqa: E402
import dask.dataframe as dd  # noqa: E402
import pandas as pd  # noqa: E402

# Sockets of a worker that is killed are closed by the collector, and the others' words about it are not ours.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:.*:pytest.PytestUnraisableExceptionWarning")

N, SIZE = 900, 150
SMALL = TSG(batch_size=64, max_iter=25, n_features=64, max_features=512, n_reference=100, span="features")
PLAIN = {"solver": SMALL, "unlabeled_weight": 1.0, "probability": False, "random_state": 0}


@pytest.fixture(scope="module")
def client():
    settings = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "silence_logs": 60}
    config = {
        "distributed.deploy.lost-worker-timeout": "90s",  # a busy machine takes its time
        "distributed.scheduler.work-stealing": False,  # it copies rows, and what is copied is not lost
    }
    with (
        dask.config.set(config),
        distributed.LocalCluster(n_workers=2, **settings) as two,
        distributed.Client(two) as client,
    ):
        yield client


@pytest.fixture
def both(client):
    """The client with two workers, those that an earlier test has ended being back."""
    client.wait_for_workers(2, timeout=90)
    return client


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4)).astype(np.float32)
    y = (X[:, 0] + X[:, 1] * X[:, 2] > 0).astype(int)
    y[rng.permutation(N)[60:]] = -1
    return X, y


@pytest.fixture(scope="module")
def alone(rows):
    return S3VMClassifier(**PLAIN).fit(*rows)


def test_without_a_client_or_dask_the_error_says_what_to_do(rows, monkeypatch):
    with pytest.raises(ValueError, match=r"there is no Dask client: create one"):  # before `client`
        S3VMClassifier().fit(da.from_array(rows[0]), rows[1])
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"this needs distributed, .* pip install \"s3vm\[dask\]\""):
        S3VMClassifier().fit(da.from_array(rows[0]), rows[1])


def assert_same_model(one, other):
    assert one.kernel_ == other.kernel_
    for name in ("coefficients", "weights", "centers", "intercept"):
        ours, theirs = getattr(one.model_, name), getattr(other.model_, name)
        np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-5 * np.abs(ours).max(initial=1), err_msg=name)
    for name, curve in one.history_.items():
        np.testing.assert_allclose(other.history_[name], curve, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    "sizes",
    [(SIZE,) * 6, (N,), (10, 0, 500, 0, 390), (1,) * 5 + (N - 5,)],
    ids=["even", "one worker has nothing", "partitions without rows", "partitions of one row"],
)
def test_the_model_is_that_of_one_process(client, rows, alone, sizes):
    X, y = (da.from_array(part, chunks=(sizes, *part.shape[1:])) for part in rows)
    assert_same_model(alone, S3VMClassifier(**PLAIN).fit(X, y))


def test_workers_ask_each_other(client, rows, alone, monkeypatch):
    monkeypatch.setattr(cluster, "FAN_OUT", 1)
    X, y = (da.from_array(part, chunks=(SIZE, *part.shape[1:])) for part in rows)
    assert_same_model(alone, S3VMClassifier(**PLAIN, n_jobs=2).fit(X, y))


@pytest.mark.parametrize(("gamma", "weight"), [("scale", "auto"), ("median", 0.5)])
def test_weight_probabilities_and_classes(client, rows, gamma, weight):
    X, y = rows[0], np.where(rows[1] == -1, -1, rows[1] + 2 * (rows[0][:, 3] > 0.5))
    settings = {"solver": SMALL, "gamma": gamma, "unlabeled_weight": weight, "random_state": 1}
    one = S3VMClassifier(**settings).fit(X, y)
    many = S3VMClassifier(**settings).fit(da.from_array(X, chunks=(SIZE, 2)), da.from_array(y, chunks=100))
    assert_same_model(one, many)
    assert str(one.safety_) == str(many.safety_)
    lazy = da.from_array(X, chunks=(SIZE, 4))
    for method in ("predict", "decision_function", "predict_proba"):
        result, expected = getattr(many, method)(lazy), getattr(one, method)(X)
        assert isinstance(result, da.Array)
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(result.compute(), expected, atol=1e-4)
        np.testing.assert_allclose(getattr(many, method)(X), expected, atol=1e-4)


@pytest.mark.parametrize("gamma", ["scale", "median"])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_rows_on_directions(client, rows, gamma, make):
    """Directions come from a sample of the rows, which are projected where they are."""
    X, y = rows
    X = X * np.array([3.0, 2.0, 1.0, 0.3], np.float32)
    settings = {**PLAIN, "gamma": gamma}
    blocks = da.from_array(X, chunks=(SIZE, 4)).map_blocks(make)
    many = S3VMClassifier(**settings, n_components=2).fit(blocks, da.from_array(y, chunks=SIZE))
    directions = many.model_.projection
    exact = principal_directions(X, 2, 0)
    np.testing.assert_allclose(directions @ directions.T, exact @ exact.T, atol=0.05)
    assert many.n_features_in_ == 4
    one = S3VMClassifier(**settings).fit(project(X, directions), y)
    np.testing.assert_allclose(many.kernel_.width, one.kernel_.width, rtol=1e-6)
    assert_same_model(one, many)
    lazy = many.decision_function(da.from_array(X, chunks=(SIZE, 4)))
    np.testing.assert_allclose(lazy.compute(), one.decision_function(project(X, directions)), atol=1e-4)


@pytest.mark.filterwarnings("ignore:no unlabelled rows")
def test_the_width(client, rows, monkeypatch):
    """Of a sample where there are many rows, as given, and of labelled rows alone."""
    monkeypatch.setattr(preparation, "SAMPLE", 100)
    X, labels = rows
    few = {"solver": TSG(max_iter=2, span="features", n_features=32), "unlabeled_weight": 1.0, "random_state": 0}
    for gamma, y in (("median", labels), (0.7, labels), ("median", np.arange(N) % 2), ("scale", np.arange(N) % 2)):
        one, many = S3VMClassifier(**few, gamma=gamma), S3VMClassifier(**few, gamma=gamma)
        blocks = da.from_array(X, chunks=(SIZE, 4))
        assert many.fit(blocks, y).kernel_ == one.fit(X, y).kernel_


def test_partitions_stay_unless_a_worker_has_too_many():
    a, b, c = ("a",), ("b",), ("c",)
    two = {"a": 1, "b": 1}
    assert cluster.assign_partitions([5, 5, 5, 5], [a, b, b, a], two) == {"a": [0, 3], "b": [1, 2]}
    assert cluster.assign_partitions([5, 5, 5, 5], [a, a, a, b], two) == {"a": [0, 1], "b": [2, 3]}
    assert cluster.assign_partitions([5, 5, 5, 5], [a, a, a, a], {"a": 3, "b": 1}) == {"a": [0, 1, 2], "b": [3]}
    assert cluster.assign_partitions([9], [b], two) == {"b": [0]}
    assert cluster.assign_partitions([5, 5], [("b", "a"), c], two) == {"a": [0], "b": [1]}


def test_few_rows_are_trained_on_their_own_kernel_functions(client, rows):
    settings = PLAIN | {"solver": TSG(batch_size=64, max_iter=25)}
    X, y = (da.from_array(part, chunks=(SIZE, *part.shape[1:])) for part in rows)
    assert_same_model(S3VMClassifier(**settings).fit(*rows), S3VMClassifier(**settings).fit(X, y))


def test_data_frames_of_unknown_divisions_and_missing_labels(client, rows, alone):
    frame = pd.DataFrame(rows[0], columns=list("abcd"))
    labels = pd.Series(np.where(rows[1] == -1, np.nan, rows[1]))
    X, y = (dd.from_pandas(part, npartitions=3).clear_divisions() for part in (frame, labels))
    clf = S3VMClassifier(**PLAIN, unlabeled=None).fit(X, y)
    assert_same_model(alone, clf)
    assert clf.feature_names_in_.tolist() == list("abcd")
    np.testing.assert_array_equal(clf.predict(X).compute(), alone.predict(rows[0]))
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(X.rename(columns={"a": "z"}))
    in_memory = S3VMClassifier(**PLAIN, unlabeled=None).fit(X, labels)
    assert_same_model(alone, in_memory)


def test_labeled_rows_in_memory_and_unlabeled_ones_on_the_cluster(client, rows):
    X, y = rows
    known = y != -1
    one = S3VMClassifier(**PLAIN).fit(np.concatenate([X[known], X[~known]]), np.concatenate([y[known], y[~known]]))
    many = S3VMClassifier(**PLAIN).fit(X[known], y[known], X_unlabeled=da.from_array(X[~known], chunks=(SIZE, 4)))
    assert_same_model(one, many)


def test_blocks_of_sparse_rows(client, rows):
    X = sparse.csr_array(np.where(rows[0] > 0, rows[0], 0))
    blocks = da.from_array(X, chunks=(SIZE, 4))
    assert sparse.issparse(blocks.blocks[0].compute())
    one = S3VMClassifier(**PLAIN).fit(X, rows[1])
    many = S3VMClassifier(**PLAIN).fit(blocks, da.from_array(rows[1], chunks=SIZE))
    np.testing.assert_allclose(many.model_.coefficients, one.model_.coefficients, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(many.predict(blocks).compute(), one.predict(X))


class Ending:
    """Sends a signal to the process of a worker after some iterations."""

    def __init__(self, client, sent, address=None):
        pids = client.run(os.getpid)
        self.pid, self._sent, self.at = pids[address or next(iter(pids))], sent, None

    def __call__(self, done, total, record):
        if done == 5:
            self.at = time.monotonic()
            os.kill(self.pid, self._sent)


@pytest.mark.parametrize(
    ("fan_out", "reaches"),
    [
        pytest.param(4, True, id="the client asks it", marks=pytest.mark.long),
        pytest.param(1, True, id="a worker asks it"),
        pytest.param(4, False, id="the client asks it through the scheduler", marks=pytest.mark.long),
    ],
)
def test_a_killed_worker_is_made_up_for(both, rows, alone, monkeypatch, fan_out, reaches):
    monkeypatch.setattr(cluster, "FAN_OUT", fan_out)
    monkeypatch.setattr(cluster, "_reaches_workers", lambda client: reaches)
    X, y = (da.from_array(part, chunks=(SIZE, *part.shape[1:])) for part in rows)
    ending = Ending(both, signal.SIGKILL)
    with pytest.warns(UserWarning, match=r"worker tcp://.* was lost in iteration 6; the others continue"):
        clf = S3VMClassifier(**PLAIN, verbose=ending).fit(X, y)
    assert time.monotonic() - ending.at < 30
    assert_same_model(alone, clf)


@pytest.mark.long
def test_rows_that_cannot_be_made_again_end_the_fit(both, rows):
    sent = both.scatter([rows[0][start : start + SIZE] for start in range(0, N, SIZE)])
    blocks = [da.from_delayed(dask.delayed(block), (SIZE, 4), np.float32) for block in sent]
    ending = Ending(both, signal.SIGKILL, both.who_has(sent[0])[sent[0].key][0])
    expected = r"worker tcp://\S+ was lost in iteration 6: a worker was lost with rows .* call fit again"
    with pytest.warns(UserWarning, match="was lost"), pytest.raises(WorkerLostError, match=expected):
        S3VMClassifier(**PLAIN, verbose=ending).fit(da.concatenate(blocks), da.from_array(rows[1], chunks=SIZE))
    assert time.monotonic() - ending.at < 30


def test_a_silent_worker_ends_the_fit(both, rows):
    X, y = (da.from_array(part, chunks=(SIZE, *part.shape[1:])) for part in rows)
    ending = Ending(both, signal.SIGSTOP)
    try:
        silent = r"worker tcp://\S+ has been silent for 3 seconds: stop it, or"
        with dask.config.set({"s3vm.patience": 3}), pytest.raises(WorkerLostError, match=silent):
            S3VMClassifier(**PLAIN, verbose=ending).fit(X, y)
        assert time.monotonic() - ending.at < 30
    finally:
        os.kill(ending.pid, signal.SIGCONT)


class Scheduler:
    """A client whose scheduler knows these workers, each with the times at which it was heard of."""

    status, connection_args = "running", {}

    def __init__(self, **heard):
        self._heard = {name: list(times) for name, times in heard.items()}

    def scheduler_info(self, n_workers):
        last = {name: times.pop(0) if len(times) > 1 else times[0] for name, times in self._heard.items()}
        return {"workers": {name: {"last_seen": time, "nthreads": 1} for name, time in last.items()}}

    def sync(self, function):
        return asyncio.run(function())


def test_who_is_there(monkeypatch):
    monkeypatch.setattr(cluster, "_HEARTBEAT", -1.0)  # ask each time
    steady, silent = (cluster._Watch(Scheduler(**{"one": times}), 0.05) for times in (range(100), [0]))
    for _ in range(4):
        steady.check(["one"])
        time.sleep(0.02)
    silent.check(["one"])
    time.sleep(0.06)
    with pytest.raises(WorkerLostError, match=r"worker one has been silent for 0\.05 seconds"):
        silent.check(["one"])
    with pytest.raises(cluster._WorkerGoneError, match="two"):
        steady.check(["one", "two"])
    steady.check_any()
    nobody = cluster._Watch(Scheduler(), 0.05)
    nobody.check_any()
    time.sleep(0.06)
    with pytest.raises(WorkerLostError, match="the cluster has no workers: start some"):
        nobody.check_any()
    with pytest.raises(cluster._WorkerGoneError):
        cluster.assign_partitions([3], [()], {})
    closed = Scheduler(one=[0])
    closed.status = "closed"
    with pytest.raises(WorkerLostError, match="the Dask client is closed: create a new one"):
        cluster._Watch(closed, 1.0).check_any()
    with pytest.raises(WorkerLostError, match=r"a worker was lost with rows that Dask cannot recompute \(cancelled\)"):
        cluster.finished(Scheduler(one=[0]), [SimpleNamespace(status="cancelled")], 1.0)
    assert not cluster._reaches_workers(Scheduler(**{"tcp://127.0.0.1:1": [0]})), "a port where nobody listens"


class Called:
    """An answer that takes its time."""

    def __init__(self, answer, n_timeouts=1):
        self._answer, self._timeouts = answer, n_timeouts

    def result(self, timeout):
        if self._timeouts:
            self._timeouts -= 1
            raise TimeoutError
        return self._answer


def test_what_a_worker_does(rows):
    """Here, where one can look: its threads share its rows, it waits for those behind it, and can be told not to."""
    kernel, engine = s3vm.RBF(0.5), backends.backend("cpu", "float32", 1)
    puller = BatchGradientWorker(kernel, 3, 32, rows[0][:20], 12, s3vm.losses.Exponential(3.0))
    rng = np.random.default_rng(0)
    arrays = {"dual": (12, 2), "lift": (2,), "intercept": (2,), "span": (64, 2), "cost": (2,)}
    point = Iterate(**{name: rng.normal(size=shape).astype(np.float32) for name, shape in arrays.items()}, n_blocks=2)
    question = 3, Purpose.UNLABELED, range(4, 5), 200
    at = philox.indices(*question, N).ravel()
    whole = puller.on(engine).gradient(engine, engine.features(kernel, 3, 32, 4), rows[0][at], point)
    none = puller.on(engine).gradient(engine, engine.features(kernel, 3, 32, 4), rows[0][:0], point)
    assert [part.shape for part in none] == [part.shape for part in whole]
    assert not any(part.any() for part in none)
    blocks = {first: Part(rows[0][first : first + 300], None, None, None) for first in (0, 300, 600)}
    front, back = (cluster._Holder(firsts, [blocks[one] for one in firsts]) for firsts in ([0, 600], [300]))
    back.begin(puller, N, cluster.Engine("cpu", "float32", 2, "auto"), [])
    asked = SimpleNamespace(pull=lambda *question: Called(back.pull(*question)))
    front.begin(puller, N, cluster.Engine("cpu", "float32", 2, "auto"), [asked])
    for ours, theirs in zip(front.pull(*question, point), whole, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())
    asyncio.run(front.stop())
    with pytest.raises(RuntimeError, match="stopped"):
        front.pull(*question, point)
    nothing = dask_rows._prepared(0, rows[0][:0], rows[1][:0], -1, "float32")
    assert (nothing.unlabeled.shape, nothing.labeled.shape, len(nothing.labels)) == ((0, 4), (0, 4), 0)


@pytest.mark.parametrize(
    ("problem", "status", "kind", "words"),
    [
        (OSError("broken"), "finished", WorkerLostError, "broken: call fit again once the cluster works"),
        (RuntimeError("ours"), "finished", RuntimeError, "^ours$"),
        (OSError("broken"), "lost", WorkerLostError, "worker one was lost in iteration 8, the last of 3"),
    ],
)
@pytest.mark.filterwarnings("ignore:worker one was lost in iteration 8; the others continue")
def test_a_call_that_fails(monkeypatch, problem, status, kind, words):
    """Its worker is well; or lost, and so are those that come in its place."""

    def placed(self, puller):
        def pull(*question):
            raise problem

        self._holders = {"one": SimpleNamespace(pull=pull, stop=lambda: None)}
        self._futures = {"one": SimpleNamespace(status=status)}

    monkeypatch.setattr(cluster, "_NOTICE", 0.05)
    monkeypatch.setattr(cluster.ClusterSource, "_place", placed)
    source = cluster.ClusterSource(Scheduler(one=[0]), [], [3], 2, 1.0, None, 1.0)
    with pytest.raises(kind, match=words):
        source.pull(None, 0, Purpose.UNLABELED, range(7, 8), 4, None)


def test_the_model_needs_no_cluster(client, rows, tmp_path):
    X, y = (da.from_array(part, chunks=(SIZE, *part.shape[1:])) for part in rows)
    clf = S3VMClassifier(**PLAIN).fit(X, y)
    clf.save(tmp_path / "model.s3vm")
    expected = clf.decision_function(rows[0])
    for other in (s3vm.load(tmp_path / "model.s3vm"), pickle.loads(pickle.dumps(clf))):
        np.testing.assert_array_equal(other.decision_function(rows[0]), expected)
    with pytest.raises(AttributeError, match=r"trained on a stream or on dask collections: predict\(X\) gives labels"):
        _ = clf.transduction_


def test_what_is_wrong_is_said(client, rows, monkeypatch):
    X, y = (da.from_array(part, chunks=(SIZE, *part.shape[1:])) for part in rows)
    clf = S3VMClassifier(**PLAIN)
    for bad in ("frs", "cccp", FRS()):
        with pytest.raises(ValueError, match=r"needs all rows in one place"):
            S3VMClassifier(bad).fit(X, y)
    with pytest.raises(ValueError, match=r"partition 0: Input X contains NaN"):
        clf.fit(X * np.nan, y)
    with pytest.raises(ValueError, match=r"X has 6 partitions, but y has 1"):
        clf.fit(X, y[:-1].rechunk(-1))
    with pytest.raises(ValueError, match=r"X has 900 rows, but y has 899 labels"):
        clf.fit(X, rows[1][:-1])
    with pytest.raises(ValueError, match=r"no labelled rows"):
        clf.fit(X, y * 0 - 1)
    with pytest.raises(ValueError, match=r"y holds only -1 and 1, which is ambiguous"):
        clf.fit(X, da.where(y == 0, -1, y))
    with pytest.raises(ValueError, match=r"takes 4 columns"):
        clf.fit(X, y).predict(X[:, :3])
    with pytest.raises(ValueError, match=r"same number of columns, but they have \[3, 4\]"):
        clf.fit(X, y, X_unlabeled=X[:, :3])
    with pytest.raises(ValueError, match=r"patience=0 is not valid"), dask.config.set({"s3vm.patience": 0}):
        clf.fit(X, y)
    for unsupported in ("sample_weight", "checkpoint"):
        with pytest.raises(ValueError, match=f"{unsupported} is not supported for dask collections"):
            clf.fit(X, y, **{unsupported: "something"})
    with pytest.raises(ValueError, match="warm_start=True is not supported for dask collections"):
        S3VMClassifier(**PLAIN, warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="a source stands for X, y and X_unlabeled"):
        clf.fit(s3vm.ArraySource(rows[0]), X_unlabeled=X)
    monkeypatch.setattr(distributed, "get_client", lambda: SimpleNamespace(asynchronous=True))
    with pytest.raises(ValueError, match=r"give Client\(..., asynchronous=False\)"):
        clf.fit(X, y)


def test_the_page_runs(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[1] / "docs" / "distributed.md").read_text()
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[1]
    names = {"SMALL": SMALL}
    exec(code.replace("S3VMClassifier(", "S3VMClassifier(SMALL, "), names)
    assert names["labels"].compute().shape == (100_000,)
    assert Path("model.s3vm").exists()


def test_batches_are_large_unless_a_solver_is_configured(client, rows):
    large = cluster_solver("tsg")
    assert large.batch_size > 16 * TSG().batch_size
    assert replace(large, batch_size=TSG().batch_size) == TSG()
    assert cluster_solver(SMALL) == SMALL
    X, y = (da.from_array(part, chunks=(SIZE, *part.shape[1:])) for part in rows)
    settings = {"unlabeled_weight": 1.0, "probability": False, "random_state": 0, "max_seconds": 1e-3}
    totals = []
    watched = {"verbose": lambda done, total, line: totals.append(total)}
    for solver in ("tsg", large, TSG(max_iter=7)):
        with pytest.warns(s3vm.OutOfTime):
            S3VMClassifier(solver, **settings, **watched).fit(X, y)
    assert totals == [400, 400, 7]


def test_rows_on_a_cluster_do_not_come_and_leave(client, rows):
    X, y = (da.from_array(part, chunks=(SIZE, *part.shape[1:])) for part in rows)
    clf = S3VMClassifier(**PLAIN).fit(X, y)
    with pytest.raises(ValueError, match="partial_fit needs rows in memory"):
        clf.partial_fit(X, y)
    with pytest.raises(ValueError, match="need the training rows, which a model does not keep"):
        clf.partial_fit(*rows)


def test_early_stopping(client, rows):
    X, y = (da.from_array(part, chunks=(SIZE, *part.shape[1:])) for part in rows)
    solver = TSG(max_iter=400, ramp=0.0, n_features=64, span="features")
    settings = PLAIN | {"solver": solver, "unlabeled_weight": 0.01}
    one = S3VMClassifier(**settings, early_stopping="reference").fit(*rows)
    many = S3VMClassifier(**settings, early_stopping="reference").fit(X, y)
    assert many.n_iter_ == one.n_iter_ < 400


def test_tuning(client, rows):
    X, y = (da.from_array(part, chunks=(SIZE, *part.shape[1:])) for part in rows)
    settings = {"Cs": [1.0, 10.0], "factors": [1.0, 2.0], "random_state": 0}
    one, many = S3VMClassifierCV(SMALL, **settings).fit(*rows), S3VMClassifierCV(SMALL, **settings).fit(X, y)
    assert (many.C_, many.kernel_) == (one.C_, one.kernel_)
    np.testing.assert_allclose(many.cv_errors_, one.cv_errors_)
    assert many.cv_briers_.keys() == one.cv_briers_.keys()
    np.testing.assert_array_equal(many.predict(X).compute(), one.predict(rows[0]))


def test_a_local_model_predicts_dask_collections(rows, alone):
    lazy = alone.predict(da.from_array(rows[0], chunks=(SIZE, 4)))
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy.compute(scheduler="synchronous"), alone.predict(rows[0]))


def test_the_name_of_version_0_1(client, rows, alone, tmp_path):
    X, y = (da.from_array(part, chunks=(SIZE, *part.shape[1:])) for part in rows)
    with pytest.warns(FutureWarning, match="use S3VMClassifier, which uses the current client") as caught:
        clf = DaskS3VMClassifier(**PLAIN, client=client, patience=20.0)
    assert caught[0].filename == __file__
    assert_same_model(alone, clf.fit(X, y))
    with pytest.warns(FutureWarning, match="was renamed"):
        clf.fit(X, y, unlabeled=X)
    assert_same_model(alone, clf.fit(X, y))
    with pytest.raises(ValueError, match="rows in memory"):
        s3vm.plot.score_histogram(clf, X, y)
    clf.save(tmp_path / "model.s3vm")
    for other in (s3vm.load(tmp_path / "model.s3vm"), pickle.loads(pickle.dumps(clf)), clf.to_local()):
        np.testing.assert_array_equal(other.decision_function(rows[0]), clf.decision_function(rows[0]))
    with pytest.warns(FutureWarning, match="will be removed"):
        copied = clone(clf)
    assert copied.client is client
    assert copied.get_params() == clf.get_params()
    assert copied.patience == 20.0


def test_the_graph_of_a_sample_is_that_of_one_machine(both, rows):
    X, y = rows
    alone = S3VMClassifier(**PLAIN, neighbor_weight=1.0).fit(X, y)
    spread = S3VMClassifier(**PLAIN, neighbor_weight=1.0)
    spread.fit(da.from_array(X, chunks=(SIZE, 4)), da.from_array(y, chunks=SIZE))
    assert_same_model(alone, spread)

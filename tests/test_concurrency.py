"""Threads, forks, fresh processes, searches within searches: the same answers, no deadlock, no more threads than asked.

What could hang runs in a process of its own, which is killed when its time is up.
"""

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_moons
from threadpoolctl import threadpool_info, threadpool_limits

import s3vm
from effort import LONG, cases
from s3vm import BGS, FRS, TSG, BatchSource, Newton, S3VMClassifier, S3VMClassifierCV, compress
from s3vm._utils.blas import _OneThread, one_blas_thread
from s3vm._utils.compiled import compiled
from s3vm.philox import Purpose
from s3vm.solvers import SOLVERS
from s3vm.solvers.bgs.state import _largest

PATIENCE = 240  # seconds until a process counts as hung
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
LINUX = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads in /proc")

X, Y = make_moons(160, noise=0.1, random_state=0)
SOME = np.where(np.arange(160) < 30, Y, -1)
SMALL = {
    "tsg": TSG(max_iter=15, n_features=64),
    "frs": FRS(max_iter=15, n_features=64),
    "bgs": BGS(max_iter=15, batch_size=8, look_ahead=2),
    "newton": Newton(rounds=3),
}


def make(name="tsg", **settings):
    return S3VMClassifier(
        SMALL.get(name, name), **{"random_state": 0, "gamma": 1.0, "unlabeled_weight": 1.0, **settings}
    )


def answers(clf, rows=X):
    return clf.decision_function(rows), clf.predict(rows), clf.predict_proba(rows)


def assert_same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def at_once(*jobs):
    """What the functions return, each called in a thread of its own, all begun together."""
    gate = threading.Barrier(len(jobs))

    def begin(job):
        gate.wait(60)
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [one.result(PATIENCE) for one in [pool.submit(begin, job) for job in jobs]]


def apart(code, *arguments, **environment):
    """What a program prints in a process of its own, read as JSON; it has `make`, `answers`, X, Y and SOME."""
    start = "import sys; sys.path.insert(0, sys.argv[1]); from test_concurrency import *\n"
    command = [sys.executable, "-c", start + textwrap.dedent(code), os.path.dirname(__file__), *map(str, arguments)]
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# Threads


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("name", ["tsg", "frs"])
def test_eight_threads_predict_with_one_model(name, n_jobs):
    clf = make(name, n_jobs=n_jobs).fit(X, SOME)
    expected = answers(clf)

    def often():
        return [answers(clf) for _ in range(50)]

    for found in at_once(*[often] * 8):
        for each in found:
            assert_same(each, expected)


@pytest.mark.parametrize("name", SOLVERS)
def test_neither_threads_nor_fits_at_the_same_time_change_a_model(name):
    """Of any solver: n_jobs, threads of the BLAS, and fits in other threads."""
    expected = answers(make(name, n_jobs=1).fit(X, SOME))
    for threads in (1, 2):
        with threadpool_limits(limits=threads, user_api="blas"):
            assert_same(answers(make(name, n_jobs=3).fit(X, SOME)), expected)
    jobs = [lambda n=n: answers(make(name, n_jobs=n).fit(X, SOME)) for n in (1, 2)]
    for found in at_once(*jobs, lambda: answers(make(name, random_state=1).fit(X, SOME)))[:2]:
        assert_same(found, expected)


def stream():
    rows = make_moons(4000, noise=0.1, random_state=1)[0]
    return BatchSource(np.array_split(rows, 20), n_rows=4000, buffer_bytes=1 << 12)


def read(source, seed, steps=range(150)):
    """Batches of a source, one after the other, and a sample on the way."""
    return [source.batches(seed, Purpose.UNLABELED, range(k, k + 1), 64) for k in steps] + [source.sample(seed, 50)]


def test_searches_in_threads_leave_warnings_alone(monkeypatch):
    """Warning filters belong to the whole process: changing them in a thread may leave them changed.

    scikit-learn does so in places; we do not.
    """
    who, enter = set(), warnings.catch_warnings.__enter__

    def noticed(self):
        who.add(sys._getframe(1).f_globals["__name__"].split(".")[0])
        return enter(self)

    monkeypatch.setattr(warnings.catch_warnings, "__enter__", noticed)
    with warnings.catch_warnings():
        assert who == {__name__}, "it would notice us"
    some = np.where(np.arange(160) < 60, Y, -1)
    make = S3VMClassifierCV(SMALL["tsg"], Cs=(1, 10), factors=(0.5, 1, 2), random_state=0)
    with warnings.catch_warnings(), ThreadPoolExecutor(3) as pool:
        found = [job.result() for job in [pool.submit(clone(make).fit, X, some) for _ in range(6)]]
    assert "s3vm" not in who
    for clf in found[1:]:
        assert clf.cv_briers_ == found[0].cv_briers_
        assert_same(answers(clf), answers(found[0]))


def test_threads_read_one_source():
    source, often = stream(), sys.getswitchinterval()
    seeds = (1, 2, 1, 3)
    expected = [read(source, seed) for seed in seeds]
    try:
        sys.setswitchinterval(1e-5)
        together = at_once(*[lambda s=s: read(source, s) for s in seeds])
    finally:
        sys.setswitchinterval(often)
    for found, wanted in zip(together, expected):
        assert_same(found, wanted)


def test_predictions_during_partial_fit_are_of_one_model(tmp_path):
    """A call answers from the model before a partial_fit or from the one after it, and so does a saved file."""
    clf = make().partial_fit(X, SOME)
    known, stop = {digest(clf)}, threading.Event()

    def watch(number):
        found, path = set(), tmp_path / f"{number}.s3vm"
        while not stop.is_set():
            found.add(clf.predict_proba(X).tobytes())
            clf.save(path)
            found.add(s3vm.load(path).predict_proba(X).tobytes())
        return found

    with ThreadPoolExecutor(2) as pool:
        watching = [pool.submit(watch, number) for number in range(2)]
        for number in range(12):
            more, labels = make_moons(128, noise=0.1, random_state=number)
            clf.partial_fit(more, np.where(np.arange(128) < 8, labels, -1))
            known.add(digest(clf))
        stop.set()
        found = set.union(*(one.result(PATIENCE) for one in watching))
    assert len(known) == 13
    assert found <= known
    assert len(found) > 2, "somebody has seen the model change"


def digest(clf):
    return clf.predict_proba(X).tobytes()


# No more threads than were asked for


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_the_limit_on_the_blas_is_shared():
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas_threads()
        inside, outside = threading.Event(), threading.Event()

        def longer():
            with one_blas_thread:
                inside.set()
                outside.wait(60)
                return blas_threads()

        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(longer)
            inside.wait(60)
            with one_blas_thread:
                assert set(blas_threads()) == {1}
            assert set(blas_threads()) == {1}, "the other one is still at work"
            outside.set()
            assert set(other.result(60)) == {1}
        assert blas_threads() == before


def test_a_child_of_a_fork_is_free_of_the_limits_of_other_threads():
    """What runs in the child of a fork, run here: of all threads only the one that forked is there."""
    limit, inside, leave = _OneThread(), threading.Event(), threading.Event()

    def stay():
        with limit:
            inside.set()
            leave.wait(PATIENCE)

    with threadpool_limits(limits=2, user_api="blas"):
        before, thread = blas_threads(), threading.Thread(target=stay)
        thread.start()
        assert inside.wait(PATIENCE)
        assert set(blas_threads()) == {1}
        limit._lock.acquire()
        limit._in_child()
        assert blas_threads() == before
        assert not limit._lock.locked()
        leave.set()
        thread.join()


def test_the_blas_has_its_threads_back():
    """After fits, predictions and a compression at the same time, and in a child that was forked meanwhile."""
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas_threads()
        clf = make("frs").fit(X, SOME)

        def predict():
            for _ in range(20):
                clf.predict(X)

        at_once(lambda: make("newton").fit(X, SOME), lambda: compress(clf, X, size=16, tolerance=0.5), predict)
        assert blas_threads() == before


@LINUX
def test_no_more_threads_than_asked_for():
    code = """
    from sklearn.datasets import make_classification
    X, Y = make_classification(400, 40, n_informative=10, random_state=0)  # so many columns that no tree is used
    SOME = np.where(np.arange(400) < 100, Y, -1)
    np.ones((300, 300)) @ np.ones((300, 300))
    stop, most = threading.Event(), 0
    def watch():
        global most
        while not stop.wait(0.001):
            most = max(most, len(os.listdir("/proc/self/task")))
    watcher = threading.Thread(target=watch)
    watcher.start()
    before, found = len(os.listdir("/proc/self/task")), []
    for n_jobs in (1, 2):
        for name in SOLVERS:
            most = 0
            clf = make(name, gamma="scale", n_jobs=n_jobs).fit(X, SOME)
            clf.predict(np.repeat(X, 10, axis=0))
            found.append([n_jobs, name, most - before])
    stop.set()
    watcher.join()
    print(json.dumps(found))
    """
    # A process that was asked to end may still be there when the next one begins.
    allowed = {1: 0, 2: 4}
    assert [(n_jobs, name, extra) for n_jobs, name, extra in apart(code) if extra > allowed[n_jobs]] == []


@pytest.mark.long
def test_a_search_of_two_around_two():
    """GridSearchCV(n_jobs=2) around n_jobs=2 ends, and finds what one thread does, in processes and in threads."""
    code = """
    from joblib import parallel_config
    from sklearn.model_selection import GridSearchCV
    from s3vm import LabeledKFold

    def search(outer, inner):
        clf = S3VMClassifier(SMALL["tsg"], gamma=1.0, random_state=0, n_jobs=inner)
        clf = GridSearchCV(clf, {"C": [0.1, 1.0, 10.0]}, cv=LabeledKFold(2), n_jobs=outer).fit(X, SOME)
        return clf.cv_results_["mean_test_score"].tolist(), clf.best_params_["C"], clf.decision_function(X).tolist()

    found = [search(1, 1), search(2, 2)]
    with parallel_config("threading"):
        found.append(search(2, 2))
    print(json.dumps(found))
    """
    serial, *others = apart(code)
    assert others == [serial, serial]


# Forks and fresh processes


@FORKS
def test_a_limit_that_is_met_first_in_a_child():
    code = """
import os
from s3vm._utils.blas import one_blas_thread
child = os.fork()
if child == 0:
    with one_blas_thread:
        pass
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.strip() == "0", done.stderr


@FORKS
def test_forks():
    """After a fit, while other threads predict and fit, next to OpenMP, and in the middle of a stream."""
    code = """
    import signal, time
    from sklearn.ensemble import HistGradientBoostingClassifier

    def forked(job):
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if job() else 3)
            finally:
                os._exit(4)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "hangs"

    def same(found, wanted):
        return all(map(np.array_equal, found, wanted))

    def boosted():
        return HistGradientBoostingClassifier(max_iter=3, random_state=0).fit(X, Y).predict(X)

    def refit(name):
        return same(answers(make(name, n_jobs=2).fit(X, SOME)), answers(clf))

    found = {}
    trees = boosted()
    for name in ("tsg", "newton", "bgs"):
        clf = make(name, n_jobs=2).fit(X, SOME)
        wanted = answers(clf)
        found[name] = forked(lambda: same(answers(clf), wanted) and refit(name))
    found["openmp"] = [same([boosted()], [trees]), forked(lambda: same(answers(clf), wanted))]

    clf = make("frs", n_jobs=2).fit(X, SOME)
    wanted, before, stop = answers(clf), blas_threads(), threading.Event()

    def work(job):
        while not stop.is_set():
            job()

    jobs = [lambda: answers(clf), lambda: answers(clf), lambda: make("cccp").fit(X, SOME)]
    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()

    def child():
        return same(answers(clf), wanted) and blas_threads() == before and same(
            answers(make("frs").fit(X, SOME)), wanted
        )

    found["meanwhile"] = sorted({str(forked(child)) for _ in range(10)})
    stop.set()
    for thread in threads:
        thread.join()

    source = stream()
    wanted = read(source, 1)
    read(source, 1, range(3))
    found["source"] = forked(lambda: same(read(source, 1, range(3, 150)), wanted[3:]))
    print(json.dumps(found))
    """
    assert apart(code) == {
        "tsg": 0,
        "newton": 0,
        "bgs": 0,
        "openmp": [True, 0],
        "meanwhile": ["0"],
        "source": 0,
    }


@FORKS
@pytest.mark.long
def test_a_fork_while_another_thread_compiles(tmp_path):
    code = """
    import faulthandler, time
    thread = threading.Thread(target=largest, args=("float32",))
    thread.start()
    time.sleep(0.05)  # it has begun
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(60, exit=True)
        os._exit(largest("float64") != [[5, 4], [5, 4]])
    thread.join()
    print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
    """
    assert apart(code, NUMBA_CACHE_DIR=str(tmp_path)) == 0


def pickled_answers(raw):
    clf = pickle.loads(raw)
    return answers(clf), answers(clone(clf).fit(X, SOME)), pickle.dumps(clf)


@pytest.mark.long
def test_a_spawned_process_gets_and_gives_models():
    clf = make(n_jobs=2).fit(X, SOME)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there, again, back = pool.map_async(pickled_answers, [pickle.dumps(clf)]).get(PATIENCE)[0]
    assert_same(there, answers(clf))
    assert_same(again, answers(clf))
    assert_same(answers(pickle.loads(back)), answers(clf))


@FORKS
@pytest.mark.long
def test_processes_save_and_load_one_file(tmp_path):
    code = """
    import signal
    path = sys.argv[2]
    models = [make(C=C).fit(X, SOME) for C in (1.0, 10.0)]
    known = [digest(model) for model in models]
    models[0].save(path)
    writers = []
    for model in models:
        child = os.fork()
        if child == 0:
            while True:
                model.save(path)
        writers.append(child)
    found = [known.index(digest(s3vm.load(path))) for _ in range(int(sys.argv[3]))]
    for child in writers:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    print(json.dumps(sorted(set(found))))
    """
    assert apart(code, tmp_path / "m.s3vm", cases(100, 5000)) == [0, 1]


# The files of compiled functions


def largest(dtype):
    """What a small compiled function of ours makes of rows of that kind."""
    values = np.arange(12, dtype=dtype).reshape(2, 6)
    return _largest(values, np.arange(2), np.ones(6, dtype=bool), 2).tolist()


def doubled(x):
    return x + x


def test_compiled_functions_do_not_get_into_each_others_files(tmp_path, monkeypatch):
    """What two processes write who both found nothing; damage; a disk that is full."""
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    for value in (1.5, 2):
        function = compiled()(doubled)
        monkeypatch.setattr(function._cache._cache_file, "_load_index", dict)
        assert function(value) == 2 * value
    files = sorted(tmp_path.rglob("*.nbc"))
    assert len(files) == 2
    for value in (1.5, 2):
        function = compiled()(doubled)
        assert function(value) == 2 * value
        assert sum(function.stats.cache_hits.values()) == 1
    for path in files:
        path.write_bytes(path.read_bytes()[:100])
    function = compiled()(doubled)
    assert (function(2), sum(function.stats.cache_hits.values())) == (4, 0)
    function = compiled()(doubled)
    monkeypatch.setattr(
        type(function._cache._cache_file), "_save_data", lambda *_: (_ for _ in ()).throw(OSError("no space left"))
    )
    assert function(np.float32(2)) == 4


def test_without_a_folder_for_compiled_functions(monkeypatch):
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    assert compiled()(doubled)(3) == 6


@pytest.mark.long
def test_cold_processes_race_for_the_files_of_compiled_functions(tmp_path):
    code = """
    print(json.dumps([largest(dtype) for dtype in sys.argv[2].split(",")]))
    """
    orders = ["float32,float64", "float64,float32"] * cases(1, 4)
    jobs = [lambda order=order: apart(code, order, NUMBA_CACHE_DIR=str(tmp_path)) for order in orders]
    assert at_once(*jobs) == [[[[5, 4], [5, 4]]] * 2] * len(orders)
    assert len(list(tmp_path.rglob("*.nbc"))) == 2
    if LONG:  # and what is there can be read
        assert apart(code, orders[0], NUMBA_CACHE_DIR=str(tmp_path)) == [[[5, 4], [5, 4]]] * 2


# Others in the same process


@pytest.mark.torch
def test_alongside_torch():
    code = """
    import torch
    A = torch.ones(300, 300)
    torch.set_num_threads(2)
    before = float((A @ A).sum())
    wanted = answers(make("cccp", n_jobs=2).fit(X, SOME))
    def work():
        return [float((A @ A).sum()) for _ in range(50)]
    sums, *fits = at_once(work, *[lambda: answers(make("cccp", n_jobs=2).fit(X, SOME))] * 2)
    same = [all(map(np.array_equal, found, wanted)) for found in fits]
    print(json.dumps([set(sums) == {before}, same, torch.get_num_threads()]))
    """
    assert apart(code) == [True, [True, True], 2]

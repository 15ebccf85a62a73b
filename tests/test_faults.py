"""Faults: killed, interrupted, out of memory, out of disk, read-only, files that are damaged or go away.

What must be there afterwards: the old file or the new one, whole; a model, or an error that says what to do.
"""

import gzip
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import dump_svmlight_file, make_moons
from sklearn.exceptions import NotFittedError

import s3vm
from effort import cases
from s3vm import TSG, FileSource, S3VMClassifier, S3VMClassifierCV
from s3vm.solvers import SOLVERS
from s3vm.sources import readers as tables
from s3vm.sources.readers import matrices
from s3vm.training.loop import Interrupted

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs fork, signals and limits of a process"),
    pytest.mark.filterwarnings("ignore:collapse:UserWarning"),
]
X, Y = make_moons(200, noise=0.1, random_state=0)
X = X.astype(np.float32)
SOME = np.where(np.arange(200) < 40, Y, -1)
FAST = TSG(max_iter=10, batch_size=16, n_features=32)

_BEGIN = """
import ctypes, os, resource, signal, struct, sys, warnings
import numpy as np
import s3vm
from s3vm import S3VMClassifier, TSG
from s3vm.cli.app import app

def limited(what, value):
    resource.setrlimit(what, (value, value))

def disk_full(after):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing then fails, as it does on a full disk
    limited(resource.RLIMIT_FSIZE, after)

def powerless():
    # Root may write anywhere: what it may beyond others is given up.
    ctypes.CDLL(None).capset(struct.pack("Ii", 0x20080522, 0), bytes(24))

def raises(kinds, function, *args, **options):
    try:
        function(*args, **options)
    except kinds as problem:
        print(f"{type(problem).__name__}: {problem}")
    else:
        sys.exit("no error")

def command(*args):
    try:
        app(list(args))
    except SystemExit as end:
        return end.code

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 3)).astype(np.float32)
some = np.where(np.arange(200) < 40, (X[:, 0] > 0).astype(int), -1)
clf = S3VMClassifier(TSG(max_iter=10, batch_size=16, n_features=32), random_state=0)
"""


def apart(code, folder, **environment):
    """What a program of its own prints, in that folder; it must end well."""
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-c", _BEGIN + textwrap.dedent(code)]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


# Killed


@pytest.mark.parametrize("what", ["model", "checkpoint"])
def test_killed_while_writing(tmp_path, what):
    """Processes that write two files in turn under one name, each killed at some moment."""
    times = cases(15, 50)
    code = """
        import random, time
        from s3vm.training import checkpoints
        from s3vm.training.checkpoints import Checkpoint

        if sys.argv[-1] == "model":
            models = [S3VMClassifier(clf.solver, kernel=kernel).fit(X, some) for kernel in ("rbf", "laplacian")]
            def write(turn): models[turn].save("file")
            def read(): return str(s3vm.load("file").kernel_)
        else:
            big = [np.full((300, 300), float(turn)) for turn in (0, 1)]
            run = {"seed": "0"}
            def write(turn): checkpoints.write("file", run, Checkpoint(big[turn], {"turn": turn}))
            def read():
                state, memory = checkpoints.read("file", run)
                assert (state == memory["turn"]).all()
                return memory["turn"]

        kinds = []
        for number in range(TIMES):
            told, tell = os.pipe()
            child = os.fork()
            if child == 0:
                for turn in range(10**6):
                    write((number + turn) % 2)
                    if turn == 1:
                        os.write(tell, b"!")
            os.read(told, 1)
            time.sleep(0.05 * random.random())
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(told), os.close(tell)
            kinds.append(read())
        print(len(kinds), len(set(kinds)))
        """
    code = code.replace("sys.argv[-1]", repr(what)).replace("TIMES", str(times))
    assert apart(code, tmp_path).split() == [str(times), "2"]


# Interrupted


def interrupting_at(iteration):
    """A watcher at which Ctrl-C is pressed."""

    def watch(done, total, record):
        if done == iteration:
            signal.raise_signal(signal.SIGINT)

    return watch


@pytest.mark.parametrize("name", SOLVERS)
def test_ctrl_c_in_every_solver(name):
    clf = S3VMClassifier(name, random_state=0, verbose=interrupting_at(1))
    with pytest.warns(Interrupted, match=r"interrupted after 1 of \d+ iterations; the model so far is kept"):
        clf.fit(X, SOME)
    assert clf.n_iter_ == 1
    assert np.isfinite(clf.predict_proba(X)).all()


def test_ctrl_c_while_tuning_and_following():
    clf = S3VMClassifierCV(FAST, random_state=0, verbose=interrupting_at(3))
    with pytest.warns(Interrupted, match="interrupted after 3 of 10"):
        clf.fit(X, SOME)
    assert np.isfinite(clf.decision_function(X)).all()
    clf = S3VMClassifier(FAST, random_state=0).partial_fit(X[:100], SOME[:100])
    clf.set_params(verbose=interrupting_at(clf.n_iter_ + 1))
    with pytest.warns(Interrupted, match="the model so far is kept"):
        clf.partial_fit(X[100:], SOME[100:])
    clf.set_params(verbose=0).partial_fit(X[100:], SOME[100:])
    assert np.isfinite(clf.decision_function(X)).all()


def test_ctrl_c_at_any_moment():
    """A model that can be used and a warning, or KeyboardInterrupt and the model of before."""

    def ring(*_):
        raise KeyboardInterrupt

    clf = S3VMClassifier(TSG(max_iter=200, batch_size=16, n_features=32), random_state=0).fit(X, SOME)
    start = time.perf_counter()
    clf.fit(X, SOME)
    spent = time.perf_counter() - start
    chance, seen, before = random.Random(0), set(), signal.signal(signal.SIGALRM, ring)
    try:
        for _ in range(cases(20, 300)):
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.01, 1.5) * spent)
            try:
                with warnings.catch_warnings(record=True) as heard:
                    warnings.simplefilter("always")
                    clf.fit(X, SOME)
                seen.add("kept" if any(one.category is Interrupted for one in heard) else "done")
            except KeyboardInterrupt:
                seen.add("raised")
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert clf.score(X, Y) > 0.7
            assert np.isfinite(clf.predict_proba(X)).all()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert "kept" in seen


def test_ctrl_c_on_the_command_line(tmp_path):
    """The signal that a terminal sends, while a training runs: a model, one line that says so, and exit code 130."""
    rows = ["a,b,label"] + [f"{x:g},{y:g},{'' if label < 0 else label}" for (x, y), label in zip(X, SOME)]
    (tmp_path / "d.csv").write_text("\n".join(rows))
    code = """
        import threading, time
        from s3vm.solvers.tsg import tsg
        run = tsg.TSG.run
        def slow(self, problem, backend, state=None):
            for later in run(self, problem, backend, state):
                yield later
                time.sleep(0.01)
                if later.iteration == 5:
                    os.kill(os.getpid(), signal.SIGINT)
        tsg.TSG.run = slow
        options = ["--solver", "tsg", "--C", "1", "--gamma", "1"]
        sys.exit(command("fit", "d.csv", "-t", "label", "-o", "m.s3vm", *options) != 130)
        """
    assert "interrupted after 5 of 400 iterations; the model so far is kept" in apart(code, tmp_path)
    assert s3vm.load(tmp_path / "m.s3vm")[-1].n_iter_ == 5


# No room


def test_a_full_disk_leaves_the_old_file(tmp_path):
    """The model, the checkpoint, the report, predictions of each kind: an error with the name, nothing half-written."""
    code = """
        from s3vm.training.checkpoints import CheckpointNotWritten
        clf.fit(X, some, checkpoint="c").save("m.s3vm")
        s3vm.write_report(clf, X, some, "r.html")
        np.savez("rows.npz", X=np.tile(X, (2000, 1)), y=np.zeros(400_000))
        files = ["m.s3vm", "c", "r.html", "rows.npz", "p.csv", "p.parquet", "p.csv.gz"]
        for name in files[4:]:
            open(name, "w").write("old")
        before = {name: open(name, "rb").read() for name in files}
        disk_full(2000)
        raises(OSError, clf.save, "m.s3vm")
        raises(OSError, s3vm.write_report, clf, X, some, "r.html")
        for name in files[4:]:
            assert command("predict", "m.s3vm", "rows.npz", "-p", "--scores", "-o", name, "-j", "1") == 1
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            straight = clf.decision_function(X)
            clf.fit(X, some, checkpoint="c", resume=False, every=0)
        assert (clf.decision_function(X) == straight).all()
        print(heard[-1].category.__name__, heard[-1].message)
        os.replace("c.old", "c")
        assert {name: open(name, "rb").read() for name in files} == before
        assert sorted(os.listdir()) == sorted(files), os.listdir()
        """
    said = apart(code, tmp_path)
    assert "OSError: [Errno 27] File too large: m.s3vm could not be written. Any existing file is unchanged" in said
    assert "File too large: r.html could not be written" in said
    for name in ("p.csv", "p.parquet", "p.csv.gz"):
        assert f"s3vm: {name} could not be written; any existing file is unchanged" in said
    assert "CheckpointNotWritten no checkpoint was written after iteration 10; the training continues" in said
    assert "[Errno 27] File too large" in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device here")
@pytest.mark.long
def test_a_full_device_as_standard_output(tmp_path):
    S3VMClassifier(FAST, random_state=0).fit(X, SOME).save(tmp_path / "m.s3vm")
    np.savez(tmp_path / "rows.npz", X=X)
    command = [sys.executable, "-m", "s3vm", "predict", "m.s3vm", "rows.npz"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert line == "s3vm: standard output could not be written: [Errno 28] No space left on device"
    assert done.returncode == 1


def test_a_folder_that_is_read_only(tmp_path):
    code = """
        from s3vm.sources import readers
        powerless()
        clf.fit(X, some)
        os.mkdir("shut", 0o555)
        raises(OSError, clf.save, "shut/m.s3vm")
        raises(ValueError, clf.fit, X, some, checkpoint="shut/c")
        raises(ValueError, readers.Writer("shut/p.csv").__enter__)
        clf.save("m.s3vm")
        np.savez("rows.npz", X=X, y=some)
        assert command("predict", "m.s3vm", "rows.npz", "-o", "shut/p.csv", "-q") == 1
        assert command("fit", "rows.npz", "--mark", "-1", "-o", "shut/m.s3vm") == 1
        assert os.listdir("shut") == []
        """
    said = apart(code, tmp_path)
    assert "PermissionError: [Errno 13] Permission denied: shut/m.s3vm could not be written" in said
    assert "checkpoint='shut/c' cannot be written: " in said
    assert "s3vm: shut/p.csv cannot be written: " in said
    assert "s3vm: shut/m.s3vm cannot be written: no permission" in said


@pytest.mark.long
def test_no_place_for_compiled_code(tmp_path):
    """Numba keeps what it compiles beside the package or at home: neither can be written, or the disk is full."""
    package = tmp_path / "lib" / "s3vm"
    shutil.copytree(Path(s3vm.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    code = "\nprint(s3vm.__file__, np.isfinite(clf.fit(X, some).decision_function(X)).all())"
    for folder in (package.parent, *package.parent.rglob("*")):
        if folder.is_dir():
            folder.chmod(0o555)
    begin = "import ctypes, struct\nctypes.CDLL(None).capset(struct.pack('Ii', 0x20080522, 0), bytes(24))\n"
    for first, environment in ((begin, {"HOME": "/proc/none"}), (_FULL, {"NUMBA_CACHE_DIR": str(tmp_path / "cache")})):
        env = {**os.environ, "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"} | environment
        command = [sys.executable, "-c", first + _BEGIN + code]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.stdout.split() == [str(package / "__init__.py"), "True"], done.stderr
    for folder in (package.parent, *package.parent.rglob("*")):
        if folder.is_dir():
            folder.chmod(0o755)


_FULL = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
"""


def test_out_of_memory(tmp_path):
    """An error that says how much was asked for; then the process goes on."""
    code = """
        clf.set_params(n_jobs=1).fit(X, some)
        rows = np.zeros((100_000, 3), np.float32)
        exact = S3VMClassifier("cccp", n_jobs=1)
        many = {"centres": np.zeros((10_000_000, 3), np.float32), "weights": np.zeros((10_000_000, 1), np.float32)}
        s3vm._utils.container.write("big.s3vm", {}, many)
        del many
        now = int(open("/proc/self/statm").read().split()[0]) * 4096
        limited(resource.RLIMIT_AS, now + (100 << 20))
        raises(MemoryError, exact.fit, rows, np.r_[some, np.full(99_800, -1)])
        raises(MemoryError, s3vm.load, "big.s3vm")
        raises(MemoryError, clf.predict, np.broadcast_to(rows[:1], (30_000_000, 3)))
        assert command("info", "big.s3vm") == 1
        assert np.isfinite(clf.decision_function(X)).all()
        """
    said = apart(code, tmp_path)
    for advice in ('give fewer rows, or solver="tsg"', "predict fewer rows at a time"):
        assert f"): {advice}" in said
    assert said.count("MemoryError: there is not enough memory (Unable to allocate") == 2
    assert "MemoryError: big.s3vm has 153 MiB" in said
    assert "s3vm: big.s3vm has 153 MiB" in said


# Files that are damaged, go away, or change


@pytest.fixture
def parquet(tmp_path):
    """Ten groups of rows."""
    path = tmp_path / "rows.parquet"
    rows = np.random.default_rng(0).normal(size=(1000, 3))
    table = {"a": rows[:, 0], "b": rows[:, 1], "label": pa.array(rows[:, 2] > 0, mask=np.arange(1000) > 100)}
    pq.write_table(pa.table(table), path, row_group_size=100, compression="snappy", use_dictionary=False)
    return path


def test_a_damaged_group_of_rows(parquet):
    place = pq.ParquetFile(parquet).metadata.row_group(6).column(0)
    raw = bytearray(parquet.read_bytes())
    start = place.data_page_offset
    raw[start : start + place.total_compressed_size] = b"\xff" * place.total_compressed_size
    parquet.write_bytes(raw)
    reason = (
        r"rows\.parquet: row group 7 of 10, from row 601 on, is damaged \(.*\): write the file again, or leave it out"
    )
    with pytest.raises(tables.TableError, match=reason):
        tables.read(parquet, "label")
    with pytest.raises(tables.TableError, match=reason):
        S3VMClassifier(FAST, random_state=0).fit(FileSource(parquet, "label"))
    with pytest.raises(tables.TableError, match=reason):  # in the thread that reads ahead
        S3VMClassifier(FAST, gamma=1.0).fit(X[:, :2], Y, X_unlabeled=FileSource(parquet, drop=["label"]))
    assert len(list(tables.stream(parquet, "label", size=100).chunks[0].read())) == 1, "others can be read"


@pytest.mark.parametrize("kind", ["csv", "svm"])
def test_files_that_are_cut_off(tmp_path, kind):
    path = tmp_path / f"rows.{kind}.gz"
    plain = tmp_path / f"rows.{kind}"
    rows = np.random.default_rng(0).normal(size=(5000, 3))
    if kind == "csv":
        plain.write_text("a,b,c\n" + "\n".join(",".join(map(str, row)) for row in rows))
    else:
        dump_svmlight_file(rows, np.ones(5000), str(plain))
    raw = gzip.compress(plain.read_bytes())
    path.write_bytes(raw[: len(raw) // 2])
    for read in (tables.read, lambda name: FileSource(name).n_rows):
        with pytest.raises(
            tables.TableError, match=rf"rows\.{kind}\.gz cannot be read as {kind}.*(runcated|ended before)"
        ):
            read(path)
    text = plain.read_text()
    plain.write_text(text[: text.rindex(":" if kind == "svm" else ",")])
    with pytest.raises(
        tables.TableError, match=r"rows\.\w+, line 5,001: 2 values|line 5,000 cannot be read as svmlight"
    ):
        tables.read(plain)


def test_a_bad_line_of_an_svmlight_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(matrices, "_BLOCK", 1000)  # bytes of which the line is looked for at a time
    lines = ["1 1:2 3:4"] * 700
    for wrong, words in (
        ("1 1:x", "could not convert string to float"),
        ("1 2:1 1:1", "sorted and unique"),
        ("1 -1:2", "nvalid index"),
        ("1 2", "unpack"),
        ("1 99999999999:1", "too large"),
        ("x 1:2", "could not convert"),
    ):
        lines[665] = wrong
        (tmp_path / "rows.svm").write_text("\n".join(lines))
        with pytest.raises(tables.TableError, match=rf"rows\.svm, line 666 cannot be read as svmlight: .*{words}"):
            tables.read(tmp_path / "rows.svm")
    lines[665] = "1 2000000000:1"
    (tmp_path / "rows.svm").write_text("\n".join(lines))
    assert tables.read(tmp_path / "rows.svm", features=2_000_000_000).rows.shape == (700, 2_000_000_000)


def test_a_mapped_file_that_becomes_shorter(tmp_path):
    """Reading beyond the end of a file that is mapped kills the process: SIGBUS."""
    code = """
        rows = np.random.default_rng(0).normal(size=(200_000, 3)).astype(np.float32)
        labels = (X[:, 0] > 0).astype(int)
        long = TSG(max_iter=300, batch_size=64, n_features=32, span="features")
        for name in ("a.npy", "b.npy"):
            np.save(name, rows)
            def watch(done, total, record):
                if done == 5:
                    os.truncate(name, 4096)
            clf = S3VMClassifier(long, gamma=1.0, unlabeled_weight=0.5, random_state=0, verbose=watch)
            unlabeled = name if name == "a.npy" else np.load(name, mmap_mode="r")[100:]
            raises(ValueError, clf.fit, X, labels, X_unlabeled=unlabeled)
        """
    said = apart(code, tmp_path)
    assert said.count("has become shorter while its rows were read: ") == 2
    assert "a.npy" in said
    assert "b.npy" in said


@pytest.mark.parametrize("what", ["gone", "shorter", "longer"])
def test_files_that_go_away_or_change_while_training(parquet, what):
    rows = pq.read_table(parquet)

    def watch(done, total, record):
        if done == 5:
            parquet.unlink()
            if what != "gone":
                pq.write_table(rows[:500] if what == "shorter" else pa.concat_tables([rows, rows]), parquet)

    source = FileSource(parquet, "label", buffer_bytes=2000)
    clf = S3VMClassifier(
        TSG(span="features", max_iter=200, batch_size=32, n_features=32), random_state=0, verbose=watch
    )
    with pytest.raises(ValueError, match=r"rows\.parquet.*(No such file|damaged)|the files have changed"):
        clf.fit(source)
    with pytest.raises(NotFittedError):
        clf.predict(X[:, :2])

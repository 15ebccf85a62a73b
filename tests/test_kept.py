"""What was trained is kept, whatever fails afterwards; and a command that is ended leaves nothing half-written."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import s3vm
from effort import LONG
from s3vm import TSG, S3VMClassifier, WorkerLostError
from s3vm._utils.machine import with_advice
from s3vm.cli.app import app
from s3vm.cli.inputs import default_output
from s3vm.estimators import auto, choice, learning
from s3vm.sources import dask

X = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
SOME = np.where(np.arange(100) < 40, (X[:, 0] > 0).astype(int), -1)
FAST = TSG(max_iter=5, batch_size=16, n_features=16)
OPTIONS = ["--mark", "-1", "--C", "1", "--gamma", "1", "--solver", "tsg"]


def _no_memory(*_, **__):
    raise MemoryError("Unable to allocate 15 GiB")


def _fit(**settings):
    return S3VMClassifier(FAST, gamma=1.0, unlabeled_weight=0.5, random_state=0, **settings)


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("d.npz", X=X, y=SOME)
    return tmp_path


def test_a_model_without_memory_for_its_probabilities(monkeypatch):
    """1,000 classes asked for 15 GiB after the training, and the model was lost."""
    whole = _fit().fit(X, SOME)
    clf = _fit().fit(X, SOME)
    monkeypatch.setattr(learning, "calibrate", _no_memory)
    with pytest.warns(UserWarning, match="was trained, but there is not enough memory for predict_proba.*15 GiB"):
        clf.fit(X, SOME)
    np.testing.assert_array_equal(clf.decision_function(X), whole.decision_function(X))
    assert not hasattr(clf, "predict_proba"), "and not that of another model"


def test_a_model_without_memory_for_the_choice(monkeypatch):
    monkeypatch.setattr(choice, "scores_held_out", _no_memory)
    with pytest.warns(UserWarning, match="not enough memory to compare it with others"):
        clf = _fit().fit(X, SOME)
    assert clf.score(X[:40], SOME[:40]) > 0.9
    assert np.isfinite(clf.predict_proba(X)).all()


@pytest.mark.parametrize("step", ["neighbor_graph", "pilots_of", "final_model"])
def test_candidates_without_memory_leave_the_supervised_solution(monkeypatch, step):
    monkeypatch.setattr(auto, step, _no_memory)
    with pytest.warns(UserWarning, match="was trained, but there is not enough memory to compare it with others.*15"):
        clf = S3VMClassifier(random_state=0).fit(X, SOME)
    assert clf.safety_.sentence.startswith("training ended before candidates were compared; using the supervised")
    svm = S3VMClassifier(random_state=0, unlabeled_weight=0, gamma=clf.kernel_.width).fit(X, SOME)
    np.testing.assert_array_equal(clf.decision_function(X), svm.decision_function(X))


def test_probabilities_of_an_earlier_fit_are_not_saved(tmp_path):
    clf = _fit().fit(X, SOME).set_params(probability=False).fit(X, SOME)
    clf.save(tmp_path / "m.s3vm")
    assert not hasattr(s3vm.load(tmp_path / "m.s3vm"), "_calibrator")


def test_a_model_that_cannot_be_saved_where_it_should(data, monkeypatch):
    """A disk that is full at the end of a long run: the model is somewhere else."""
    save = s3vm.save

    def full(estimator, path):
        if Path(path).name == Path(path).as_posix():
            raise OSError(28, "No space left on device")
        save(estimator, path)

    monkeypatch.setattr(s3vm, "save", full)
    monkeypatch.setenv("TMPDIR", str(data))
    monkeypatch.setattr("tempfile.tempdir", None)
    result = CliRunner().invoke(app, ["fit", "d.npz", *OPTIONS, "-o", "m.s3vm"])
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "No space left on device. The model is in" in said
    (kept,) = data.glob("s3vm-*/m.s3vm")
    assert s3vm.load(kept)[-1].n_iter_ > 0


def test_the_name_of_a_model(data):
    """`sales.2023.csv` and `sales.2024.csv` both wrote `sales.s3vm`."""
    names = {
        "sales.2023.csv": "sales.2023.s3vm",
        "a.csv.gz": "a.s3vm",
        "b.parquet": "b.s3vm",
        "c.v2.svm.xz": "c.v2.s3vm",
    }
    names |= {"c.v2.svm.xz": "c.v2.s3vm", "x.y": "x.y.s3vm", ".hidden.csv": ".hidden.s3vm"}
    assert {name: default_output(name) for name in names} == names
    (data / "folder.2024").mkdir()
    assert default_output("folder.2024") == "folder.2024.s3vm"
    (data / "d.s3vm").write_text("my notes")
    result = CliRunner().invoke(app, ["fit", "d.npz", *OPTIONS])
    assert result.exit_code == 1
    assert "d.s3vm exists, and is not a model: give the name of the model, -o FILE" in " ".join(result.output.split())
    assert (data / "d.s3vm").read_text() == "my notes"
    assert CliRunner().invoke(app, ["fit", "d.npz", *OPTIONS, "-o", "d.s3vm"]).exit_code == 0, "as it was asked to"
    assert CliRunner().invoke(app, ["fit", "d.npz", *OPTIONS]).exit_code == 0, "a model is replaced by a newer one"
    (data / "other").mkdir()
    (data / "d.npz").rename(data / "other" / "d.npz")
    result = CliRunner().invoke(app, ["fit", "other/d.npz", *OPTIONS])
    assert result.exit_code == 1
    assert default_output("other/d.npz", resumes=True) == "d.s3vm", "the model of the part that was interrupted"
    assert "d.s3vm exists, perhaps of another d.npz: give the name of the model, -o FILE" in " ".join(
        result.output.split()
    )


@pytest.mark.skipif(os.name != "posix", reason="signals of Unix")
@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGHUP", marks=pytest.mark.long)])
def test_a_command_that_is_ended_leaves_no_temporary_file(data, name):
    _fit().fit(X, SOME).save("m.s3vm")
    code = "import sys; from s3vm.cli.app import app; sys.argv[0] = 's3vm'; app()"
    command = [sys.executable, "-c", code, "predict", "m.s3vm", "big.npz", "-o", "out.csv"]
    np.savez("big.npz", X=np.zeros((3_000_000, 2), np.float32))
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        while not list(data.glob(".*.part")):
            time.sleep(0.01)
            assert process.poll() is None
        process.send_signal(getattr(signal, name))
        process.communicate(timeout=60)
    assert process.returncode == 128 + getattr(signal, name)
    assert not list(data.glob(".*.part"))
    assert not Path("out.csv").exists()


def test_a_terminal_that_shows_ascii_only(data):
    """`fit` ended with exit code 1, after it had saved its model."""
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    names = np.where(SOME == 0, "größer", np.where(SOME == 1, "☃", "?"))
    np.savez("names.npz", X=X, y=names)
    base = [sys.executable, "-m", "s3vm"]
    fit = [*base, "fit", "names.npz", "--C", "1", "--gamma", "1", "--solver", "tsg", "-o", "n.s3vm"]
    done = subprocess.run(fit, env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert rb"gr\xf6\xdfer" in done.stdout
    if not LONG:
        return
    done = subprocess.run([*base, "predict", "n.s3vm", "names.npz"], env=env, capture_output=True, check=False)
    assert set(done.stdout.decode("utf-8").split()[1:]) == {"größer", "☃"}, "data are UTF-8, wherever they go"


@pytest.mark.parametrize("problem", [MemoryError("Allocation failed (probably too large)."), MemoryError()], ids=repr)
def test_memory_errors_of_others_get_advice(problem):
    with (
        pytest.raises(MemoryError, match=r"not enough memory.*: use fewer rows"),
        with_advice("use fewer rows"),
    ):
        raise problem
    with pytest.raises(MemoryError, match=r"^TSG needs 5 GiB: use less$"), with_advice("use fewer rows"):
        raise MemoryError("TSG needs 5 GiB: use less")


def test_a_closed_client_is_named():
    """Its workers are not known: KeyError: 'workers'."""
    closed = SimpleNamespace(status="closed", scheduler_info=lambda n_workers: {})
    with pytest.raises(WorkerLostError, match="the Dask client is closed: create a new one"):
        dask._workers_of(closed)
    with pytest.raises(WorkerLostError, match="is closed"):
        dask._reaches_workers(closed)

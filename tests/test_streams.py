"""Fits on rows that do not fit into memory: the same model as from arrays, checkpoints, limits, and what is refused."""

import copy
import os
import re
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.pipeline import make_pipeline

import s3vm
from effort import cases
from s3vm import CCCP, FRS, TSG, Light, ModelFormatError, S3VMClassifier, S3VMClassifierCV, backends
from s3vm._utils import container
from s3vm.philox import Purpose
from s3vm.sources import ArraySource
from s3vm.sources.batches import BatchSource
from s3vm.sources.files import FileSource
from s3vm.sources.readers import TableError
from s3vm.training import checkpoints
from s3vm.training.checkpoints import Checkpoint, CheckpointNotWritten
from s3vm.training.history import join_histories, thin_history
from s3vm.training.loop import OutOfRows, OutOfTime, StoppingRules, train
from test_solvers import problem_for
from toy import VARIANTS, configured, last

N, N_LABELED = 3000, 60
X, Y = make_moons(N, noise=0.2, random_state=0)
X = X.astype(np.float32)
SOME = np.where(np.arange(N) < N_LABELED, Y, -1)
FEATURES = {"span": "features", "n_features": 64, "max_features": 256, "max_iter": 60, "n_reference": 200}
FAST = {"solver": TSG(**FEATURES), "C": 3.0, "gamma": 2.0, "random_state": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("moons")
    order = np.random.RandomState(1).permutation(N)
    for number, part in enumerate(np.array_split(order, 3)):
        label = pa.array(np.array(["left", "right"])[Y[part]], mask=SOME[part] < 0)
        table = {"x": X[part, 0], "y": X[part, 1].astype(np.float64), "label": label}
        pq.write_table(pa.table(table), path / f"{number}.parquet", row_group_size=300)
    return path


def same(one, two):
    """Whether two models are equal to the last bit."""
    for name in ("coefficients", "intercept", "weights"):
        np.testing.assert_array_equal(getattr(one.model_, name), getattr(two.model_, name))
    assert one.history_.keys() == two.history_.keys()
    for name, values in one.history_.items():
        np.testing.assert_array_equal(values, two.history_[name])
    rows = make_frame(X[:100]) if hasattr(one, "feature_names_in_") else X[:100]
    np.testing.assert_array_equal(one.predict_proba(rows), two.predict_proba(rows))


def test_a_source_of_an_array_is_the_array():
    plain = S3VMClassifier(**FAST).fit(X, SOME)
    for rest in (X[N_LABELED:], ArraySource(X, np.arange(N_LABELED, N))):
        same(S3VMClassifier(**FAST).fit(X[:N_LABELED], Y[:N_LABELED], X_unlabeled=rest), plain)
    with pytest.raises(AttributeError, match="stream"):
        S3VMClassifier(**FAST).fit(X[:N_LABELED], Y[:N_LABELED], X_unlabeled=rest).transduction_  # noqa: B018


def test_memory_maps_are_not_copied(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    plain = S3VMClassifier(**FAST).fit(X, SOME)
    same(S3VMClassifier(**FAST).fit(mapped, SOME), plain)
    np.save(tmp_path / "rest.npy", X[N_LABELED:])
    same(S3VMClassifier(**FAST).fit(X[:N_LABELED], Y[:N_LABELED], X_unlabeled=tmp_path / "rest.npy"), plain)


@pytest.mark.parametrize("solver", [TSG(**FEATURES), FRS(max_iter=100, n_features=256), TSG(max_iter=100)])
def test_files_give_a_model_as_good_as_arrays(folder, solver):
    settings = FAST | {"solver": solver}
    clf = S3VMClassifier(**settings).fit(FileSource(folder, "label"))
    assert clf.classes_.tolist() == ["left", "right"]
    assert clf.feature_names_in_.tolist() == ["x", "y"]
    error = np.mean(clf.predict(make_frame(X)) != np.array(["left", "right"])[Y])
    of_arrays = S3VMClassifier(**settings).fit(X, SOME)
    assert error < np.mean(of_arrays.predict(X) != Y) + 0.02
    same(S3VMClassifier(**settings).fit(FileSource(folder, "label")), clf)
    assert clf.safety_.n_labeled == N_LABELED


def make_frame(rows):
    return pd.DataFrame(rows, columns=["x", "y"])


def test_scaled_in_the_stream_and_saved_with_the_scaler(folder, tmp_path):
    source = FileSource(folder, "label")
    scaler = source.scaler()
    clf = S3VMClassifier(**FAST).fit(source.scaled(scaler))
    whole = make_pipeline(scaler, clf)
    assert np.mean(whole.predict(make_frame(X)) == np.array(["left", "right"])[Y]) > 0.9
    s3vm.save(whole, tmp_path / "m.s3vm")
    np.testing.assert_array_equal(s3vm.load(tmp_path / "m.s3vm").predict(make_frame(X)), whole.predict(make_frame(X)))


def test_rows_that_are_read_are_counted(folder, capsys):
    S3VMClassifier(**FAST, verbose=1).fit(FileSource(folder, "label"))
    assert f"{N:,} rows read" in capsys.readouterr().err
    S3VMClassifier(**FAST, verbose=0).fit(FileSource(folder, "label"))
    assert capsys.readouterr().err == ""


def test_float64_from_float32_files(folder):
    clf = S3VMClassifier(**FAST, dtype="float64").fit(FileSource(folder, "label"))
    assert clf.model_.coefficients.dtype == np.float64


@pytest.mark.parametrize("as_csr", [False, True])
def test_batches_of_unknown_number(as_csr):
    def batches():
        for part in np.array_split(X[N_LABELED:], 40):
            yield sparse.csr_array(part) if as_csr else part

    labeled = sparse.csr_array(X[:N_LABELED]) if as_csr else X[:N_LABELED]
    again = S3VMClassifier(**FAST).fit(labeled, Y[:N_LABELED], X_unlabeled=batches)
    assert again.n_iter_ == 60
    assert again.score(X, Y) > 0.9
    with pytest.warns(OutOfRows, match=r"no more unlabelled rows after 45 of 60 iterations"):
        once = S3VMClassifier(**FAST).fit(labeled, Y[:N_LABELED], X_unlabeled=batches())
    assert once.n_iter_ == 45
    for solver, weight, message in (
        (TSG(passes=1), "auto", "give max_iter instead of passes"),
        (FRS(passes=1), "auto", "give max_iter instead of passes"),
        (FRS(n_features="sqrt"), "auto", 'not "sqrt"'),
        (TSG(), "paper", 'unlabeled_weight="paper"'),
        *((name, "auto", "all rows.* stream: use solver=") for name in ("cccp", "light", "newton", "bgs")),
    ):
        clf = S3VMClassifier(solver, unlabeled_weight=weight)
        with pytest.raises(ValueError, match=message):
            clf.fit(X[:N_LABELED], Y[:N_LABELED], X_unlabeled=batches)


@pytest.mark.parametrize("variant", ["tsg", "frs", "cccp", "bgs"])
def test_labeled_rows_may_be_dense_where_the_others_are_sparse(variant):
    def fit(labeled, unlabeled):
        clf = S3VMClassifier(configured(variant), gamma=2.0, random_state=0)
        return clf.fit(labeled(X[:N_LABELED]), Y[:N_LABELED], X_unlabeled=unlabeled(X[N_LABELED:]))

    both = fit(np.asarray, np.asarray).decision_function(X)
    for kinds in ((np.asarray, sparse.csr_array), (sparse.csr_array, np.asarray), (np.asarray, sparse.csc_matrix)):
        np.testing.assert_allclose(fit(*kinds).decision_function(X), both, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("solver", ["cccp", "light", "newton", "bgs", "incremental"])
def test_solvers_that_need_all_rows_refuse_a_stream(folder, solver):
    with pytest.raises(ValueError, match=r"stream: use solver=|keeps all rows"):
        S3VMClassifier(solver).fit(FileSource(folder, "label"))


def test_a_disk_that_is_full_costs_a_checkpoint_and_not_the_model(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    straight = S3VMClassifier(**FAST).fit(X, SOME)
    monkeypatch.setattr("s3vm.training.checkpoints.write", full)
    with pytest.warns(
        CheckpointNotWritten,
        match="no checkpoint was written after iteration 60; the training continues: .*No space",
    ):
        clf = S3VMClassifier(**FAST).fit(X, SOME, checkpoint=tmp_path / "c")
    same(straight, clf)


def test_what_a_checkpoint_holds(tmp_path):
    """Whatever a state may be made of comes back; what is no state's does not."""
    run, path = {"seed": "7"}, tmp_path / "c"
    content = {
        "sparse": sparse.csr_array(np.eye(3)[:, [0, 2]]),
        "mask": np.array([True, False]),
        "numbers": (1, 2.5, np.inf, None, b"bytes"),
        "names": frozenset({"a"}),
    }
    checkpoints.write(path, run, checkpoints.Checkpoint(None, content))
    assert checkpoints.seed_of(path) == 7
    assert checkpoints.seed_of(tmp_path / "none") is None
    found = checkpoints.read(path, run).memory
    np.testing.assert_array_equal(found.pop("sparse").toarray(), content.pop("sparse").toarray())
    assert found["mask"].dtype == bool
    np.testing.assert_array_equal(found.pop("mask"), content.pop("mask"))
    assert found == content
    with pytest.raises(TypeError, match="cannot be written to a file, which holds no code"):
        checkpoints.write(path, run, checkpoints.Checkpoint(None, {"code": print}))
    header, tensors = container.read(path)
    for change, words in (
        ({"content": {"dict": [["state", None], ["memory", {"code": "print"}]]}}, "its part 'code' is unknown"),
        ({"content": {"dict": [["state", None]]}}, "its content is not a valid checkpoint"),
    ):
        container.write(path, header | change, tensors)
        with pytest.raises(ModelFormatError, match=words):
            checkpoints.read(path, run)
    container.write(path, {"seed": "7"}, {})
    with pytest.raises(ModelFormatError, match="not a checkpoint, or is damaged: it has no seed"):
        checkpoints.seed_of(path)


def test_a_checkpoint_that_cannot_be_written(tmp_path):
    """Said before anything is read or tuned."""
    for path in (tmp_path / "none" / "c", tmp_path):
        with pytest.raises(ValueError, match="cannot be written: give a file in a folder that exists"):
            S3VMClassifierCV().fit(None, None, checkpoint=path)


# Checkpoints


@pytest.mark.parametrize(
    "variant", [variant for variant in VARIANTS if not variant.startswith(("incremental", "printed_tsg"))]
)
def test_a_state_comes_back_from_a_file(variant, tmp_path):
    solver, problem, engine = configured(variant), problem_for(variant, columns=2), backends.backend("cpu", "float64")
    states = list(solver.run(problem, engine))
    run = checkpoints.run_of(solver, problem, engine)
    for state in (states[0], states[len(states) // 2], states[-1]):
        checkpoints.write(tmp_path / "c", run, Checkpoint(state, {"of": [1, None, (np.nan, True)]}))
        stored = checkpoints.read(tmp_path / "c", run)
        assert repr(stored.memory) == repr({"of": [1, None, (np.nan, True)]})
        assert stored.state.iteration == state.iteration
        checkpoints.check(stored.state, problem, solver.iterations(problem))
        rest = list(solver.run(problem, engine, stored.state))
        end = rest[-1] if rest else stored.state
        assert end.iteration == states[-1].iteration
        assert dict(end.record) == dict(states[-1].record)
        for name in ("coefficients", "intercept", "weights"):
            np.testing.assert_array_equal(getattr(end.model(), name), getattr(states[-1].model(), name))


class KilledError(Exception):
    pass


def killed_at(iteration):
    def watch(done, total, record):
        if done == iteration:
            raise KilledError

    return watch


@pytest.mark.filterwarnings("ignore:early_stopping=.* has no effect:UserWarning")
@pytest.mark.parametrize("kind", ["array", "files", "batches"])
@pytest.mark.parametrize(
    ("solver", "neighbor_weight"),
    [
        (TSG(**FEATURES), "auto"),
        (TSG(**FEATURES), 3.0),
        (FRS(max_iter=60, n_features=128), "auto"),
    ],
)
def test_a_resumed_run_is_the_same_to_the_last_bit(folder, tmp_path, kind, solver, neighbor_weight):
    def fit(verbose=0, **settings):
        changed = {"solver": solver, "neighbor_weight": neighbor_weight}
        clf = S3VMClassifier(**FAST | changed, verbose=verbose, early_stopping="reference")
        if kind == "array":
            return clf.fit(X, SOME, **settings)
        if kind == "files":
            return clf.fit(FileSource(folder, "label", buffer_bytes=1 << 12), **settings)
        parts = BatchSource(iter(np.array_split(np.tile(X, (6, 1)), 30)), buffer_bytes=1 << 12)
        return clf.fit(X[:N_LABELED], Y[:N_LABELED], X_unlabeled=parts, **settings)

    straight, path = fit(), tmp_path / "run.checkpoint"
    for stop in cases((solver.max_iter // 2,), (1, solver.max_iter // 2, solver.max_iter - 1)):
        path.unlink(missing_ok=True)
        with pytest.raises(KilledError):
            fit(killed_at(stop), checkpoint=path, every=0)
        same(fit(checkpoint=path, every=0, resume=True), straight)
    same(fit(checkpoint=path, resume=True), straight)  # nothing is left to do
    path.unlink()
    same(fit(checkpoint=path, resume=True), straight)  # nothing was there


def test_a_run_without_a_seed_goes_on_with_its_own(tmp_path):
    clf = S3VMClassifier(**FAST | {"random_state": None})
    path = tmp_path / "c"
    with pytest.raises(KilledError):
        clone(clf).set_params(verbose=killed_at(30)).fit(X, SOME, checkpoint=path, every=0)
    one, two = (clone(clf).fit(X, SOME, checkpoint=path, every=1e9, resume=True) for _ in range(2))
    same(one, two)


def test_a_state_of_another_number_of_columns():
    state = next(configured("tsg").run(problem_for("tsg"), backends.backend("cpu", "float64")))
    checkpoints.check(state, problem_for("tsg"), 20)
    with pytest.raises(ValueError, match="its arrays have the wrong shapes"):
        checkpoints.check(state, problem_for("tsg", columns=2), 20)


def test_a_checkpoint_is_not_a_model(tmp_path):
    path = tmp_path / "c"
    S3VMClassifier(TSG(max_iter=4, n_features=16), random_state=0).fit(X[:200], SOME[:200], checkpoint=path)
    with pytest.raises(ModelFormatError, match="c is a checkpoint, not a model"):
        s3vm.load(path)


@pytest.mark.filterwarnings("ignore:early_stopping=.* has no effect:UserWarning")
def test_a_checkpoint_of_another_run_is_refused_with_the_reason(tmp_path):
    path = tmp_path / "c"
    S3VMClassifier(**FAST).fit(X, SOME, checkpoint=path)
    other = X.copy()
    other[0] += 1
    relabeled = SOME.copy()
    relabeled[:2] = 1 - relabeled[:2]
    for settings, rows, labels, reason in (
        ({"solver": TSG(**FEATURES | {"max_iter": 61})}, X, SOME, "solver: was TSG.*max_iter=60.*is.*max_iter=61"),
        ({"gamma": 1.0}, X, SOME, r"kernel: was RBF\(gamma=2.0.*is RBF\(gamma=1.0"),
        ({"C": 4.0}, X, SOME, r"C: was 3\.0, is 4\.0"),
        ({"class_weight": {0: 2, 1: 1}}, X, SOME, "class_weight: was None, is {0: 2, 1: 1}"),
        ({"class_prior": [0.4, 0.6]}, X, SOME, r"class_prior: was None, is \[0\.4, 0\.6\]"),
        ({"probability": False}, X, SOME, "probability: was True, is False"),
        ({"random_state": 1}, X, SOME, "seed: was 0, is 1"),
        ({"dtype": "float64"}, X, SOME, "precision: was float32"),
        ({"loss": "hat"}, X, SOME, "loss: was Exponential"),
        ({"early_stopping": "reference"}, X, SOME, "early_stopping: was None"),
        ({"unlabeled_weight": 0.5}, X, SOME, r"unlabeled_weight: was .*, is 0\.5"),
        ({}, other, SOME, "labelled rows: was 60"),
        ({}, X, relabeled, "labels: was|labelled rows: was"),
        ({}, X[:-1], SOME[:-1], "unlabelled rows: was 2,940 .*, is 2,939 "),
        ({}, np.r_[X[:N_LABELED], 1.01 * X[N_LABELED:]], SOME, "unlabelled rows: was 2,940 .*, is 2,940 "),
    ):
        clf = S3VMClassifier(**FAST | settings)
        with pytest.raises(ValueError, match=f"a checkpoint of another run: .*({reason})") as refused:
            clf.fit(rows, labels, checkpoint=path, resume=True)
        assert "resume=False" in str(refused.value)
    model = tmp_path / "model.s3vm"
    S3VMClassifier(**FAST).fit(X, SOME).save(model)
    with pytest.raises(ModelFormatError, match="a model, not a checkpoint"):
        S3VMClassifier(**FAST).fit(X, SOME, checkpoint=model, resume=True)
    with pytest.raises(ModelFormatError):
        s3vm.load(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelFormatError, match="damaged"):
        S3VMClassifier(**FAST).fit(X, SOME, checkpoint=path, resume=True)


FORGED = {
    "no state": (["state"], None, "None in place of a state"),
    "a list for a state": (["state"], {"list": []}, "in place of a state"),
    "a solver for a state": (["state"], {"TSG": {}}, "in place of a state"),
    "a state of another solver": (["state"], {"FRS.State": {"span": None}}, "unexpected keyword"),
    "no kernel": (["state", "fields", "kernel"], None, "its kernel or its seed"),
    "another seed": (["state", "fields", "seed"], 1, "its kernel or its seed"),
    "no iteration": (["state", "fields", "iteration"], 0, "0 of 60 iterations"),
    "too many iterations": (["state", "fields", "iteration"], 10**15, "10{15} of 60 iterations"),
    "half an iteration": (["state", "fields", "iteration"], 1.5, r"1\.5 of 60 iterations"),
    "no coefficients": (["state", "fields", "span"], None, "NoneType"),
    "no norm, which only the solver needs": (
        ["state", "fields", "norm"],
        None,
        "or the rows cannot be read.*'NoneType'",
    ),
    "no memory": (["memory"], None, "NoneType"),
    "an empty memory": (["memory"], {"dict": []}, "'log'"),
    "no last line": (["memory", "log", "last"], None, "NoneType"),
    "a last line of text": (["memory", "log", "last"], {"dict": [["iteration", "x"]]}, "of the history"),
    "no stride": (["memory", "log", "stride"], 0, "of the history"),
    "columns of another length": (["memory", "log", "columns"], {"dict": [["a", {"list": [1.0]}]]}, "of the history"),
    "no best score": (["memory", "stop", "best"], "x", "of early stopping"),
    "no codes": (["memory", "stop", "codes"], None, "NoneType"),
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The header and the tensors of a run that was broken off."""
    path = tmp_path_factory.mktemp("stopped") / "c"
    with pytest.raises(KilledError):
        S3VMClassifier(**FAST, verbose=killed_at(30)).fit(X, SOME, checkpoint=path, every=0)
    return container.read(path)


@pytest.mark.parametrize("name", FORGED)
def test_a_checkpoint_of_wrong_content(stopped, tmp_path, name):
    """A right checksum and the right run, and yet no place where a run can stand."""
    place, value, words = FORGED[name]
    header, path = copy.deepcopy(stopped[0]), tmp_path / "c"
    inner = header["content"]
    for key in place[:-1]:
        if key == "fields":
            (inner,) = inner.values()
        else:
            inner = dict(inner["dict"])[key] if "dict" in inner else inner[key]
    if "dict" in inner:
        next(pair for pair in inner["dict"] if pair[0] == place[-1])[1] = value
    else:
        inner[place[-1]] = value
    container.write(path, header, stopped[1])
    with pytest.raises(ModelFormatError, match=f"c is damaged.*{words}.*Start without resume=True"):
        S3VMClassifier(**FAST).fit(X, SOME, checkpoint=path, resume=True)


def test_a_checkpoint_of_the_right_run_and_other_centers(tmp_path):
    path, clf = tmp_path / "c", S3VMClassifier(Light(), gamma=2.0, random_state=0)
    with pytest.raises(KilledError):
        clone(clf).set_params(verbose=killed_at(2)).fit(X[:200], SOME[:200], checkpoint=path, every=0)
    header, tensors = container.read(path)
    place = dict(header["content"]["dict"])["state"]["Expansion"]["centers"]["array"]
    container.write(path, header, tensors | {place: tensors[place] + 1})
    with pytest.raises(ModelFormatError, match=r"c is damaged.*only with the same rows.*without resume=True"):
        clf.fit(X[:200], SOME[:200], checkpoint=path, resume=True)


@pytest.mark.parametrize(
    ("problem", "words"),
    [(TableError("rows.csv, line 7"), "^rows.csv, line 7$"), (ValueError("7 is odd"), "or the rows cannot.*7 is odd")],
)
def test_rows_that_cannot_be_read_are_not_the_checkpoint(stopped, monkeypatch, tmp_path, problem, words):
    read = ArraySource.batches

    def unreadable(source, seed, stream, steps, size):
        if stream == Purpose.UNLABELED:
            raise problem
        return read(source, seed, stream, steps, size)

    container.write(tmp_path / "c", *stopped)
    monkeypatch.setattr(ArraySource, "batches", unreadable)
    with pytest.raises(ValueError, match=words):
        S3VMClassifier(**FAST).fit(X, SOME, checkpoint=tmp_path / "c", resume=True)


_RUN = """
import sys, numpy as np
sys.path.insert(0, {tests!r})
from test_streams import FAST, FEATURES
from s3vm import S3VMClassifier, TSG
from s3vm.sources.files import FileSource
clf = S3VMClassifier(**FAST | {{"solver": TSG(**FEATURES | {{"max_iter": 300}})}})
clf.fit(FileSource({folder!r}, "label", buffer_bytes=1 << 14), checkpoint={path!r}, every=0, resume=True)
clf.save({model!r})
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
@pytest.mark.long
def test_killed_at_any_moment(folder, tmp_path):
    path, model = tmp_path / "c", tmp_path / "m.s3vm"
    program = _RUN.format(tests=os.path.dirname(__file__), folder=str(folder), path=str(path), model=str(model))
    random = np.random.RandomState(0)
    times = 0
    while not model.exists():
        run = subprocess.Popen([sys.executable, "-c", program])
        while not path.exists() and run.poll() is None:
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.5))
        if times < 2:
            run.send_signal(signal.SIGKILL)
            times += 1
        run.wait()
    assert times == 2
    clf = S3VMClassifier(**FAST | {"solver": TSG(**FEATURES | {"max_iter": 300})})
    same(s3vm.load(model), clf.fit(FileSource(folder, "label", buffer_bytes=1 << 14)))


# Limits


def test_the_time_limit_and_going_on_after_it(tmp_path):
    def slowly(done, total, record):
        time.sleep(0.01)

    straight = S3VMClassifier(**FAST).fit(X, SOME)
    path, calls = tmp_path / "c", 0
    clf = S3VMClassifier(**FAST, max_seconds=0.2, verbose=slowly)
    while True:
        calls += 1
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            clf.fit(X, SOME, checkpoint=path, resume=True)
        if clf.n_iter_ == 60:
            break
        assert [one.category for one in found] == [OutOfTime]
        assert re.search(rf"the time is up after {clf.n_iter_} of 60 iterations", str(found[0].message))
    assert calls > 2
    same(clf, straight)


@pytest.mark.filterwarnings("ignore:no unlabelled rows:UserWarning")
@pytest.mark.parametrize("kind", ["reference", "held_out"])
def test_early_stopping(kind):
    settings = FAST | {"solver": TSG(**FEATURES | {"max_iter": 1200, "ramp": 0.25, "batch_size": 16})}
    clf = S3VMClassifier(**settings, early_stopping=kind).fit(X, SOME)
    assert 300 <= clf.n_iter_ < 1200  # not before the unlabelled rows have their full weight
    assert clf.n_iter_ % 50 == 0
    assert len(clf.history_["objective"]) == clf.n_iter_
    whole = S3VMClassifier(**settings).fit(X, SOME)
    assert np.mean(clf.predict(X) != whole.predict(X)) < 0.02
    assert clone(clf).early_stopping == kind
    for solver in (TSG(**FEATURES), "cccp"):
        with pytest.warns(UserWarning, match=f"early_stopping='{kind}' has no effect.*Raise max_iter"):
            S3VMClassifier(solver, early_stopping=kind).fit(X[:100], SOME[:100])
    alone = S3VMClassifier("tsg", early_stopping=kind, probability=False, unlabeled_weight=1.0)
    with pytest.raises(ValueError, match=r"needs labelled rows that are held out|needs unlabelled rows"):
        alone.fit(*(X[:60], Y[:60]) if kind == "reference" else (X, SOME))


@pytest.mark.filterwarnings("ignore:early_stopping=.* has no effect:UserWarning")
def test_limits_of_the_tuned_classifier(tmp_path):
    clf = S3VMClassifierCV(TSG(**FEATURES), random_state=0, early_stopping="reference", max_seconds=100)
    path = tmp_path / "c"
    straight = clone(clf).fit(X, SOME)
    with pytest.raises(KilledError):
        clone(clf).set_params(verbose=killed_at(20)).fit(X, SOME, checkpoint=path, every=0)
    same(clf.fit(X, SOME, checkpoint=path, resume=True), straight)


def test_the_history_of_a_long_run_is_thinned(monkeypatch):
    monkeypatch.setattr("s3vm.training.history._MAX_LINES", 16)
    whole = problem_for("tsg, features", columns=1)
    solver = configured("tsg, features", max_iter=101)
    state, history = train(solver, whole, backends.backend("cpu", "float64"), rules=StoppingRules())
    records = {one.iteration: one.record for one in solver.run(whole, backends.backend("cpu", "float64"))}
    assert history["iteration"].tolist() == [*range(8, 101, 8), 101]
    for number, objective in zip(history["iteration"], history["objective"]):
        assert records[number]["objective"] == objective
    shorter = thin_history({name: np.concatenate([values] * 5) for name, values in history.items()})
    assert len(shorter["iteration"]) <= 17
    assert shorter["objective"][-1] == history["objective"][-1]
    assert last(solver.run(whole, backends.backend("cpu", "float64"))).iteration == state.iteration
    assert CCCP().keeps_all_rows is False


def test_a_thinned_history_has_the_held_out_error_to_its_end(monkeypatch):
    monkeypatch.setattr("s3vm.training.history._MAX_LINES", 16)
    history = S3VMClassifier(**FAST | {"solver": TSG(**FEATURES | {"max_iter": 61})}).fit(X, SOME).history_
    assert history["iteration"].tolist() == [*range(4, 61, 4), 61]
    assert len(history["held_out_error"]) == 16


def test_early_stopping_where_nobody_keeps_the_scores():
    solver = FRS(max_iter=1000, n_features=64)
    clf = S3VMClassifier(solver, C=3.0, gamma=2.0, early_stopping="held_out", random_state=0).fit(X, SOME)
    assert clf.n_iter_ < 1000
    assert clf.n_iter_ % 50 == 0


def test_a_checkpoint_of_another_buffer_is_refused(folder, tmp_path):
    """Rows would come in another order."""
    settings = {"solver": TSG(max_iter=20, max_rows=1), "random_state": 0, "unlabeled_weight": 1.0}
    path = tmp_path / "state.s3vm"
    S3VMClassifier(**settings).fit(FileSource(folder, target="label", buffer_bytes=400), checkpoint=path)
    source = FileSource(folder, target="label", buffer_bytes=1 << 20)
    with pytest.raises(ValueError, match=r"another run: unlabelled rows: was .*400 bytes.*, is .*1,048,576 bytes"):
        S3VMClassifier(**settings).fit(source, checkpoint=path, resume=True)


def test_a_checkpoint_does_not_overwrite_what_is_dear(tmp_path):
    X, y = make_moons(60, random_state=0)
    some, clf = np.where(np.arange(60) < 10, y, -1), S3VMClassifier(TSG(max_iter=3), random_state=0)
    text = tmp_path / "notes.txt"
    text.write_text("dear")
    with pytest.raises(ValueError, match="another kind of file"):
        clf.fit(X, some, checkpoint=text)
    assert text.read_text() == "dear"
    path = tmp_path / "state.s3vm"
    clf.fit(X, some, checkpoint=path)
    first = path.read_bytes()
    clf.fit(X, some, checkpoint=path)  # resume=True forgotten
    assert (tmp_path / "state.s3vm.old").read_bytes() == first


def test_a_file_whose_rows_all_have_labels_is_a_plain_svm(tmp_path):
    X, y = make_moons(60, random_state=0)
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "label": y}), tmp_path / "rows.parquet")
    with pytest.warns(UserWarning, match="no unlabelled rows"):
        clf = S3VMClassifier(random_state=0).fit(FileSource(tmp_path / "rows.parquet", target="label"))
    assert np.mean(clf.predict(pd.DataFrame(X, columns=["a", "b"])) == y) > 0.9


def test_histories_that_tell_different_things_are_joined():
    one, two = {"iteration": np.arange(2), "a": np.ones(2)}, {"iteration": np.arange(2, 5), "b": np.ones(3)}
    both = join_histories(one, two)
    assert both["iteration"].tolist() == [0, 1, 2, 3, 4]
    assert np.isnan(both["a"]).tolist() == [False, False, True, True, True]
    assert np.isnan(both["b"]).tolist() == [True, True, False, False, False]


@pytest.mark.parametrize("n_rows", [None, 400, 40_000])
def test_a_sample_of_what_can_be_read_once_is_still_there_to_be_trained_on(n_rows):
    """Whether it is known how many rows there are, fewer than a sample or more."""
    n = n_rows or 3_000
    batches = (np.full((100, 2), float(k)) for k in range(n // 100))
    source = BatchSource(batches, n_rows=n_rows)
    sample = source.sample(0, 500)
    assert sample.shape == (min(n, 500), 2)
    rows = source.batches(0, Purpose.UNLABELED, range(n // 100), 100)
    assert sorted(rows[:, 0]) == sorted(np.repeat(np.arange(n // 100), 100))


def test_a_sample_of_batches_has_each_row_once():
    """Also of fewer rows than asked for, whose number is not known. Copies would be each other's nearest neighbors."""
    rest = X[N_LABELED:].astype(np.float32)
    for batches in ([rest], [rest[:70], rest[70:71], rest[71:]], lambda: iter(np.array_split(rest, 7))):
        sample = BatchSource(batches).sample(0, 10_000)
        assert sample.shape == rest.shape
        np.testing.assert_array_equal(np.unique(sample, axis=0), np.unique(rest, axis=0))
    few = BatchSource([rest], buffer_bytes=40 * rest.itemsize * rest.shape[1]).sample(0, 100)
    assert len(np.unique(few, axis=0)) > 90


def test_few_batches_teach_the_default_as_an_array_does():
    moons, classes = make_moons(600, noise=0.1, random_state=0)
    clf = S3VMClassifier(C=10, gamma=2.0, random_state=0)
    for rest in (moons[40:], [moons[40:]], np.array_split(moons[40:], 5)):
        assert clf.fit(moons[:40], classes[:40], X_unlabeled=rest).score(moons, classes) > 0.98


@pytest.mark.torch
def test_batches_of_torch():
    """A `DataLoader`, with labels or without, and lists of tensors are batches like any others."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    rest = torch.tensor(X[N_LABELED:], dtype=torch.float32)
    expected = S3VMClassifier(**FAST).fit(X[:N_LABELED], Y[:N_LABELED], X_unlabeled=[rest.numpy()])
    loaders = [TensorDataset(rest), TensorDataset(rest, torch.zeros(len(rest))), rest]
    for batches in ([rest[:100], rest[100:]], *(DataLoader(rows, batch_size=64) for rows in loaders)):
        clf = S3VMClassifier(**FAST).fit(X[:N_LABELED], Y[:N_LABELED], X_unlabeled=batches)
        np.testing.assert_array_equal(clf.decision_function(X), expected.decision_function(X))
    S3VMClassifier(**FAST).fit(X[:N_LABELED], Y[:N_LABELED], X_unlabeled=[rest.bfloat16()])
    for rows in ([rest.to_sparse()], rest.to_sparse()):
        with pytest.raises(ValueError, match="sparse tensor"):
            S3VMClassifier(**FAST).fit(X[:N_LABELED], Y[:N_LABELED], X_unlabeled=rows)

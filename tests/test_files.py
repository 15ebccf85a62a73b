"""Model files: the same model comes back, and nothing but a model."""

import hashlib
import json
import pickle
import subprocess
import sys
import tracemalloc
import warnings
from dataclasses import fields
from functools import cache

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from safetensors.numpy import save as packed
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import s3vm
from fuzz_targets import KEPT, paths, sealed, usable
from s3vm import (
    FRS,
    RBF,
    TSG,
    Constant,
    Exponential,
    Laplacian,
    Matern,
    ModelFormatError,
    Polynomial,
    S3VMClassifier,
    S3VMClassifierCV,
    SmoothHinge,
    philox,
)
from s3vm._utils import codec, container
from s3vm.persistence import model_file
from s3vm.persistence.model_file import _PARTS
from s3vm.philox import Purpose
from s3vm.solvers import SOLVERS

FEW = TSG(max_iter=10, batch_size=16, n_features=32, span="features", max_features=64)
ROWS = TSG(max_iter=10, batch_size=16, span="rows")
FIXED = FRS(max_iter=5, n_features=16)
pytestmark = pytest.mark.filterwarnings("ignore:collapse:UserWarning")


@cache
def moons():
    X, y = make_moons(200, noise=0.1, random_state=0)
    return X, np.where(np.arange(200) < 40, y, -1)


@cache
def flowers():
    X, y = load_iris(return_X_y=True)
    return X, np.where(np.arange(150) % 4 == 0, y, -1)


def make(solver=FEW, data=moons, **chosen):
    X, some = data()
    return S3VMClassifier(solver, **{"random_state": 0, "unlabeled_weight": 1.0, **chosen}).fit(X, some)


def round_trip(estimator, folder):
    s3vm.save(estimator, folder / "m.s3vm")
    return s3vm.load(folder / "m.s3vm")


def assert_same(loaded, model, X):
    for verb in ("decision_function", "predict", "predict_proba"):
        before, after = getattr(model, verb)(X), getattr(loaded, verb)(X)
        np.testing.assert_array_equal(after, before)
        assert after.dtype == before.dtype


# The same model comes back


@pytest.mark.parametrize("data", [moons, flowers])
@pytest.mark.parametrize("solver", [FEW, ROWS, FIXED], ids=["features", "rows", "fixed"])
@pytest.mark.parametrize(
    "kernel", [RBF(), RBF(0.5, features="phase"), Laplacian(), Matern(nu=2.5), Polynomial(degree=2)], ids=repr
)
def test_round_trip(tmp_path, kernel, solver, data):
    X, _ = data()
    model = make(solver, data, kernel=kernel)
    loaded = round_trip(model, tmp_path)
    assert_same(loaded, model, X)
    for name in ("C_", "kernel_", "n_iter_", "n_features_in_", "safety_"):
        assert getattr(loaded, name) == getattr(model, name)
    assert loaded.get_params() == model.get_params()
    assert loaded.history_.keys() == model.history_.keys()
    for name, values in model.history_.items():
        np.testing.assert_array_equal(loaded.history_[name], values)
    np.testing.assert_array_equal(loaded.classes_, model.classes_)
    with pytest.raises(AttributeError, match="the training rows"):
        _ = loaded.transduction_
    private = {"_fitted_rows", "_held_out", "_labeled_rows", "_resume_point", "_transduction"}
    assert set(vars(model)) - set(vars(loaded)) == private


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("n_jobs", [1, 2, -1])
def test_backends_and_threads(tmp_path, backend, dtype, n_jobs):
    model = make(backend=backend, dtype=dtype)
    loaded = round_trip(model, tmp_path)
    assert (loaded.n_jobs, loaded.backend, loaded.cache_bytes) == (None, "auto", "auto"), "these are not in the file"
    loaded.set_params(n_jobs=n_jobs, backend=backend)
    X = np.tile(moons()[0], (300, 1))
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))


@pytest.mark.parametrize(
    ("kernel", "index"), [("rbf", np.int32), ("rbf", np.int64), ("laplacian", np.int32), ("poly", np.int32)]
)
def test_sparse_rows(tmp_path, kernel, index):
    X, some = flowers()
    X = sparse.csr_array(np.maximum(X - 2, 0))
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    model = S3VMClassifier(FEW, kernel=kernel, random_state=0, unlabeled_weight=1.0).fit(X, some)
    loaded = round_trip(model, tmp_path)
    assert sparse.issparse(loaded.model_.centers)
    assert_same(loaded, model, X)
    assert_same(loaded, model, X.toarray())


@pytest.mark.parametrize(
    "classes",
    [
        np.array([3, 7]),
        np.array([0, 200], np.uint8),
        np.array([-5, 3], np.int16),
        np.array([2**63 - 1, -(2**63)]),
        np.array([1.0, 1e9]),
        np.array([-1.0, 2.0], np.float32),
        np.array([True, False]),
        np.array(["no", "yes"]),
        np.array(["", "naïve ☃ \ud800"]),
        np.array(["wide", "er"], "<U30"),
    ],
    ids=lambda classes: f"{classes.dtype} {classes.tolist()!a}",
)
def test_classes_of_any_kind(tmp_path, classes):
    X, some = moons()
    some = np.where(some >= 0, some, 0)[:40]
    labels = classes[some]
    mark = None if labels.dtype.kind in "fb" else -1
    with pytest.warns(UserWarning, match="no unlabelled rows"):
        model = S3VMClassifier(FEW, unlabeled=mark, random_state=0).fit(X[:40], labels)
    loaded = round_trip(model, tmp_path)
    assert loaded.classes_.dtype == model.classes_.dtype
    assert_same(loaded, model, X)


def test_every_setting_comes_back(tmp_path):
    chosen = {
        "solver": TSG(max_iter=4, batch_size=8, n_features=8, step=Constant(eta=50.0), span="features"),
        "kernel": Matern(gamma=np.float32(0.5), nu=1.5),
        "loss": Exponential(s=5),
        "labeled_loss": SmoothHinge(0.2),
        "class_prior": np.array([0.4, 0.6]),
        "class_weight": {0: 1.0, 1: 2},
        "C": np.float64(3),
        "dtype": np.float64,
        "random_state": np.random.RandomState(0),
        "unlabeled": np.int64(-1),
    }
    model = make(**chosen)
    loaded = round_trip(model, tmp_path)
    assert_same(loaded, model, moons()[0])
    same = {**chosen, "class_prior": (0.4, 0.6), "dtype": "float64", "random_state": None}
    assert {name: loaded.get_params()[name] for name in same} == same
    assert loaded.model_.seed == model.model_.seed


def test_it_can_be_fitted_and_cloned_again(tmp_path):
    X, some = moons()
    model = make(warm_start=True)
    loaded = round_trip(model, tmp_path)
    again = clone(loaded).fit(X, some)
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert loaded.fit(X, some).n_iter_ == model.n_iter_, "from the beginning: the state is not in the file"


def test_without_probabilities(tmp_path):
    loaded = round_trip(make(probability=False), tmp_path)
    assert not hasattr(loaded, "predict_proba")


def test_tuned(tmp_path):
    X, some = moons()
    model = S3VMClassifierCV(FEW, random_state=0, Cs=np.array([1.0, 10.0])).fit(X, some)
    loaded = round_trip(model, tmp_path)
    assert type(loaded) is S3VMClassifierCV
    assert_same(loaded, model, X)
    np.testing.assert_array_equal(loaded.cv_errors_, model.cv_errors_)
    few = S3VMClassifierCV(FEW, random_state=0).fit(X, np.where(np.arange(200) < 10, some, -1))
    assert round_trip(few, tmp_path).cv_errors_ is None


def test_pipeline(tmp_path):
    X, some = moons()
    X = (100 * X + [1e3, -5]).astype(np.float32)
    model = make_pipeline(StandardScaler(), S3VMClassifier(FEW, random_state=0)).fit(X, some)
    loaded = round_trip(model, tmp_path)
    assert [name for name, _ in loaded.steps] == ["standardscaler", "s3vmclassifier"]
    assert_same(loaded, model, X)
    assert_same(loaded, model, X.astype(np.float64))
    np.testing.assert_array_equal(loaded[0].var_, model[0].var_)
    assert loaded[0].n_samples_seen_ == 200
    again = clone(loaded).fit(X, some)
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))


@pytest.mark.parametrize("scaler", [StandardScaler(with_mean=False), StandardScaler(with_std=False)], ids=repr)
def test_scalers(tmp_path, scaler):
    X, some = moons()
    X = X if scaler.with_mean else sparse.csr_array(np.maximum(X, 0))
    model = make_pipeline(scaler, S3VMClassifier(FEW, random_state=0)).fit(X, some)
    loaded = round_trip(model, tmp_path)
    assert loaded[0].get_params() == scaler.get_params()
    assert_same(loaded, model, X)


def test_feature_names(tmp_path):
    X, some = moons()
    frame = pd.DataFrame(X, columns=["größe", "line\nbreak"])
    model = S3VMClassifier(FEW, random_state=0).fit(frame, some)
    loaded = round_trip(model, tmp_path)
    assert loaded.feature_names_in_.tolist() == ["größe", "line\nbreak"]
    assert_same(loaded, model, frame)
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["line\nbreak", "größe"]])
    pipeline = make_pipeline(StandardScaler(), S3VMClassifier(FEW, random_state=0)).fit(frame, some)
    loaded = round_trip(pipeline, tmp_path)
    assert loaded[0].feature_names_in_.tolist() == ["größe", "line\nbreak"]
    assert not hasattr(loaded[1], "feature_names_in_")
    assert_same(loaded, pipeline, frame)


def test_methods(tmp_path):
    path = str(tmp_path / "m.s3vm")
    X, some = moons()
    make().save(path)
    assert type(S3VMClassifier.load(path)) is S3VMClassifier
    with pytest.raises(TypeError, match=r"holds a S3VMClassifier: s3vm\.load reads any"):
        S3VMClassifierCV.load(path)
    S3VMClassifierCV(FEW, random_state=0).fit(X, some).save(path)
    assert type(S3VMClassifier.load(path)) is S3VMClassifierCV
    s3vm.save(make_pipeline(StandardScaler(), S3VMClassifier(FEW)).fit(X, some), path)
    with pytest.raises(TypeError, match="holds a Pipeline"):
        S3VMClassifier.load(path)


def test_a_model_that_is_not_fitted(tmp_path):
    for estimator in (S3VMClassifier(), make_pipeline(StandardScaler(), S3VMClassifier())):
        with pytest.raises(NotFittedError):
            s3vm.save(estimator, tmp_path / "m.s3vm")
    assert list(tmp_path.iterdir()) == []


class MyKernel(RBF):
    pass


class MyClassifier(S3VMClassifier):
    pass


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(),
        MyClassifier(FEW),
        make_pipeline(MinMaxScaler(), S3VMClassifier(FEW)),
        make_pipeline(StandardScaler(), LogisticRegression()),
        make_pipeline(StandardScaler(), StandardScaler(), S3VMClassifier(FEW)),
    ],
    ids=lambda estimator: str(estimator).replace("\n", " ")[:60],
)
def test_what_cannot_be_saved(tmp_path, estimator):
    with pytest.raises(TypeError, match="pickle and skops"):
        s3vm.save(estimator.fit(*moons()), tmp_path / "m.s3vm")


def test_a_header_that_is_too_long(tmp_path):
    with pytest.raises(ValueError, match="too long for a model file: use pickle"):
        container.write(tmp_path / "m.s3vm", {"text": "a" * (3 << 20)}, {})
    assert list(tmp_path.iterdir()) == []


def test_who_watched_is_nothing_of_the_model(tmp_path):
    model = make(verbose=lambda done, total, record: None)
    assert round_trip(model, tmp_path).verbose == 0


class MySolver(TSG):
    pass


class MyLoss(Exponential):
    pass


class MySteps(Constant):
    pass


@pytest.mark.parametrize(
    "chosen",
    [
        {"kernel": MyKernel()},
        {"solver": MySolver(max_iter=5)},
        {"loss": MyLoss()},
        {"solver": TSG(max_iter=5, step=MySteps())},
    ],
    ids=repr,
)
def test_parts_of_ones_own_cannot_be_saved(tmp_path, chosen):
    """A subclass would come back as its base, and predict something else."""
    with pytest.raises(TypeError, match=r"My\w+\(.*\) cannot be written to a file, which holds no code"):
        make(**chosen).save(tmp_path / "m.s3vm")
    assert list(tmp_path.iterdir()) == []


def test_values_come_back_as_they_were():
    value = {"a": [1, (2.5, None)], 3: (True, RBF(0.5), [Matern(nu=2.5)]), "x": np.float32(0.5), "n": np.int64(7)}
    back = codec.decode(json.loads(json.dumps(codec.encode(value, _PARTS))), _PARTS)
    assert back == value
    assert repr(back) == repr({**value, "x": 0.5, "n": 7})
    assert codec.decode(codec.encode(np.array([[1, 2], [3, 4]]), _PARTS), _PARTS) == ((1, 2), (3, 4))


@pytest.mark.parametrize("value", [{1, 2}, b"x", np.inf, MyKernel(0.5), Purpose, print], ids=repr)
def test_values_that_json_cannot_hold(value):
    with pytest.raises(TypeError, match="cannot be written to a file"):
        codec.encode([value], _PARTS)


# Older files


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_files(path):
    """Files that an earlier version wrote are read, and mean what they meant."""
    truth = json.loads((path.parent / f"{path.stem.split('-')[0]}.json").read_text())[path.stem]
    model = s3vm.load(path)
    i, j = np.arange(10)[:, None], np.arange(3)
    X = (np.sin(1.7 * i + j**2) + 0.5 * np.cos(0.3 * i * (j + 1))).astype(np.float32)
    np.testing.assert_allclose(model.decision_function(X), truth["scores"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X), truth["probabilities"], rtol=1e-4, atol=1e-5)
    assert model.predict(X).tolist() == truth["labels"]


def test_there_are_kept_files():
    assert {path.stem.split("-")[0] for path in KEPT} == {str(number) for number in range(1, container.FORMAT + 1)}


# What the TSG of 0.1 was


OLD_TSG = {
    **{"max_iter": 4, "passes": None, "batch_size": 256, "n_features": 8, "step": "constant", "anchor": False},
    **{"exact_labelled": False, "reuse": False, "max_features": 8192, "growth": 0.5, "span": "auto", "max_rows": 8192},
    **{"intercept": False, "balance": False, "ramp": 0.0, "n_reference": 2000, "max_blocks": None},
    **{"draw_labelled": True, "look_ahead": 16},
}


def test_the_solver_of_a_kept_file():
    """Of either kind of TSG: settings that no longer exist are dropped."""
    for name in ("printed", "features", "sparse", "polynomial"):
        solver = s3vm.load(kept(name)).solver
        assert type(solver) is TSG
        was = container.read(kept(name))[0]["settings"]["solver"]["TSG"]
        now = {field.name: getattr(solver, field.name) for field in fields(solver)}
        assert len(now) > 5
        assert {setting: was[setting] for setting in now if setting in was} == {
            setting: value for setting, value in now.items() if setting in was
        }


def test_what_is_not_a_tsg_of_0_1_keeps_its_name():
    assert model_file._migrate("RBF", {"gamma": 1.0}) == ("RBF", {"gamma": 1.0})
    assert model_file._migrate("FRS", {"draw_labelled": True}) == ("FRS", {"draw_labeled": True})


@pytest.mark.parametrize("switch", ["anchor", "exact_labelled", "reuse", None])
def test_switches_of_an_old_tsg_are_dropped(switch):
    name, settings = model_file._migrate("TSG", OLD_TSG if switch is None else OLD_TSG | {switch: True})
    assert name == "TSG"
    assert TSG(**settings) == TSG(
        max_iter=4, batch_size=256, n_features=8, step="constant", balance=False, ramp=0.0, n_reference=2000
    )
    of_today = {"max_iter": 4, "momentum": 0.9}
    assert model_file._migrate("TSG", of_today) == ("TSG", of_today), "an unknown setting is reported, not dropped"


# Damage


def kept(name):
    return next(path for path in KEPT if path.stem.endswith(name))


def load_bytes(raw, folder):
    path = folder / "x.s3vm"
    path.write_bytes(raw)
    return s3vm.load(path)


def test_every_bit_counts(tmp_path):
    raw = kept("printed").read_bytes()
    for place in range(0, len(raw), 7):
        changed = bytearray(raw)
        changed[place] ^= 1 << place % 8
        with pytest.raises(ModelFormatError):
            load_bytes(bytes(changed), tmp_path)


def test_what_is_not_a_model_file(tmp_path):
    for raw in (b"", b"\0", b"PK\3\4 a zip file", b"{}" * 100, bytes(1000), pickle.dumps(make())):
        with pytest.raises(ModelFormatError, match=r"x\.s3vm: not a model file"):
            load_bytes(raw, tmp_path)
    with pytest.raises(ModelFormatError, match="no readable header"):
        load_bytes(packed({"a": np.zeros(3)}), tmp_path)
    with pytest.raises(ModelFormatError, match="not a file"):
        s3vm.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        s3vm.load(tmp_path / "nothing.s3vm")
    assert issubclass(ModelFormatError, ValueError)


# Malice: files that are well formed, and their checksums right


def changed(name, path, value):
    """The kept file `name` with another value in its header, a path of keys away."""
    header, tensors = container.read(kept(name))
    inner = header
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return sealed(header, tensors)


def with_tensor(name, tensor, change):
    """The kept file `name` with a tensor changed, added or (None) taken away."""
    header, tensors = container.read(kept(name))
    value = change(tensors.get(tensor)) if callable(change) else change
    tensors = {key: part for key, part in tensors.items() if key != tensor}
    return sealed(header, tensors if value is None else {**tensors, tensor: np.ascontiguousarray(value)})


def with_names(name, text, ends):
    """The kept file `name` with names of its columns."""
    header, tensors = container.read(kept(name))
    names = {"feature_names": np.frombuffer(text, np.uint8), "feature_names.ends": np.array(ends)}
    return sealed(header, tensors | names)


def bare(outer, data=b""):
    """A file of that outer header, which need not be true."""
    text = json.dumps(outer).encode()
    raw = len(text).to_bytes(8, "little") + text + data
    return raw + hashlib.sha256(raw).digest()


def outer(**tensors):
    header, _ = container.read(kept("printed"))
    return {"__metadata__": {"s3vm": json.dumps(header)}, **tensors}


def put(position, value):
    def change(array):
        array = array.copy()
        array[position] = value
        return array

    return change


SETTING = '{"format": 1, "estimator": "S3VMClassifier", "settings": {"C": '
DIGEST = {"dtype": "U8", "shape": [32], "data_offsets": [0, 32]}
RBF_OF = {"gamma": 1.0, "features": "pairs"}
MALICE = {
    "newer": (lambda: changed("features", ["format"], 2), "newer"),
    "no version": (lambda: changed("features", ["format"], None), "newer"),
    "another class": (lambda: changed("features", ["estimator"], "os.system"), "os.system"),
    "a class of no name": (lambda: changed("features", ["estimator"], ["x"]), "estimator"),
    "a part that is not ours": (lambda: changed("features", ["settings", "solver"], {"Popen": {}}), "Popen"),
    "a state of a solver": (
        lambda: changed("features", ["settings", "solver"], {"Column": {"weights": 0}}),
        "its part 'Column' is unknown",
    ),
    "an array for a setting": (
        lambda: changed("features", ["settings", "C"], {"array": "weights"}),
        "its part 'array' is unknown",
    ),
    "a setting that is not finite": (
        lambda: changed("features", ["settings", "C"], {"float": "inf"}),
        "its part 'float' is unknown",
    ),
    "a part of no name": (lambda: changed("features", ["settings", "solver"], {}), "not a valid model"),
    "a setting too many": (lambda: changed("features", ["settings", "x"], 1), "unexpected"),
    "settings that cannot be": (lambda: changed("features", ["settings", "solver"], {"TSG": {"ramp": 7}}), "ramp"),
    "precision": (lambda: changed("features", ["settings", "dtype"], "float16"), "precision"),
    "precision of no name": (lambda: changed("features", ["settings", "dtype"], {"dict": []}), "precision"),
    "kernel": (lambda: changed("features", ["kernel"], {"Hat": {}}), "in place of a Kernel"),
    "another kernel": (lambda: changed("features", ["kernel"], {"Laplacian": RBF_OF}), "does not reproduce"),
    "width": (lambda: changed("features", ["kernel", "RBF", "gamma"], -1), "gamma"),
    "no width": (lambda: changed("features", ["kernel", "RBF", "gamma"], "scale"), "width"),
    "degree": (lambda: changed("polynomial", ["kernel", "Polynomial", "degree"], 10**15), "GiB"),
    "a high degree": (lambda: changed("polynomial", ["kernel", "Polynomial", "degree"], 900), "'probes'"),
    "seed": (lambda: changed("features", ["seed"], 2**64), "seed"),
    "another seed": (lambda: changed("features", ["seed"], 4), "does not reproduce"),
    "another generator": (lambda: changed("features", ["random"], "mt19937"), "does not reproduce"),
    "dimensions": (lambda: changed("features", ["n_features_in"], 10**12), "number of features"),
    "many dimensions": (lambda: changed("printed", ["n_features_in"], 2**31 - 1), "GiB|probes"),
    "no dimensions": (lambda: changed("features", ["n_features_in"], 0), "number of features"),
    "other dimensions": (lambda: changed("features", ["n_features_in"], 9), "'(centres|probes)'"),
    "dimensions as text": (lambda: changed("features", ["n_features_in"], "3"), "n_features_in"),
    "classes": (lambda: changed("features", ["classes", "values"], ["a", "a"]), "different"),
    "one class": (lambda: changed("features", ["classes", "values"], ["a"]), "at least two"),
    "mixed classes": (lambda: changed("features", ["classes", "values"], ["a", 1]), "one kind"),
    "classes of real numbers": (lambda: changed("printed", ["classes", "values"], [0, 1, 1.5]), "one kind"),
    "classes that overflow": (
        lambda: changed("features", ["classes"], {"dtype": "<f2", "values": [0, 1e6]}),
        "finite numbers of type <f2",
    ),
    "more classes": (lambda: changed("features", ["classes", "values"], ["a", "b", "c"]), "'coefficients'"),
    "objects": (lambda: changed("features", ["classes", "dtype"], "|O"), "classes"),
    "a class of a long name": (
        lambda: changed("features", ["classes"], {"dtype": "<U1001", "values": ["a" * 1001, "b"]}),
        "too long",
    ),
    "classes that do not fit": (lambda: changed("features", ["classes", "values"], ["a" * 9, "b"]), "too long"),
    "classes as text": (lambda: changed("features", ["classes", "values"], "ab"), "classes"),
    "temperature": (lambda: changed("features", ["temperature"], -1.0), "temperature"),
    "a temperature that overflows": (lambda: changed("features", ["temperature"], 1e308), "temperature is 1e"),
    "temperature as text": (lambda: changed("features", ["temperature"], "1"), "temperature"),
    "safety": (lambda: changed("features", ["safety"], {"RBF": RBF_OF}), "in place of a Safety"),
    "history": (lambda: changed("features", ["history"], ["a"]), "'history'"),
    "steps": (lambda: changed("scaled", ["steps"], ["a", "a"]), "steps"),
    "steps of no name": (lambda: changed("scaled", ["steps"], [["a"], 1]), "steps|unhashable"),
    "steps without a scaler": (lambda: changed("features", ["steps"], ["a", "b"]), "steps"),
    "scaler": (lambda: changed("scaled", ["scaler", "x"], 1), "unexpected"),
    "scale": (lambda: with_tensor("scaled", "scaler.scale", put(0, 0.0)), "not positive"),
    "no mean": (lambda: with_tensor("scaled", "scaler.mean", None), "no mean"),
    "coefficients": (lambda: with_tensor("features", "coefficients", put((0, 0, 0), np.nan)), "not finite"),
    "no coefficients": (lambda: with_tensor("features", "coefficients", None), "missing"),
    "whole coefficients": (lambda: with_tensor("features", "coefficients", lambda a: a.astype(np.int32)), "int32"),
    "flat coefficients": (lambda: with_tensor("features", "coefficients", lambda a: a[0]), "shape"),
    "odd blocks": (lambda: with_tensor("features", "coefficients", lambda a: a[:, :-1]), "blocks of 15"),
    "empty blocks": (lambda: with_tensor("features", "coefficients", lambda a: a[:, :0]), "blocks of 0"),
    "no blocks, and those empty": (
        lambda: with_tensor("features", "coefficients", lambda a: a[:0, :0]),
        "blocks of 0",
    ),
    "fewer blocks": (lambda: with_tensor("features", "coefficients", lambda a: a[:2]), "does not reproduce"),
    "intercept": (lambda: with_tensor("features", "intercept", np.zeros(2)), "'intercept'"),
    "centres": (lambda: with_tensor("features", "centres", lambda a: a[:-1]), "'centres'"),
    "infinite centres": (lambda: with_tensor("features", "centres", put((0, 0), np.inf)), "not finite"),
    "no centres": (lambda: with_tensor("features", "centres", None), "missing"),
    "centres twice": (lambda: with_tensor("features", "centres.data", np.zeros(3)), "missing"),
    "weights": (lambda: with_tensor("features", "weights", None), "unexpected tensors"),
    "probes": (lambda: with_tensor("features", "probes", lambda a: a + 1e-3), "does not reproduce"),
    "columns": (lambda: with_tensor("sparse", "centres.indices", put(0, 10**6)), "not a valid model"),
    "negative columns": (lambda: with_tensor("sparse", "centres.indices", put(0, -1)), "not a valid model"),
    "rows": (lambda: with_tensor("sparse", "centres.indptr", put(1, 10**6)), "not a valid model"),
    "rows backwards": (lambda: with_tensor("sparse", "centres.indptr", lambda a: a[::-1]), "not a valid model"),
    "rows that end before the memory begins": (
        lambda: with_tensor("sparse", "centres.indptr", put(-1, -(2**31))),
        "not a valid model",
    ),
    "a tensor too many": (lambda: with_tensor("features", "more", np.zeros(3)), "more"),
    "names": (lambda: with_tensor("features", "feature_names", np.zeros(9, np.uint8)), "ends"),
    "an unexpected type": (lambda: with_tensor("features", "more", np.zeros(3, np.float16)), "F16"),
    "no header": (lambda: sealed("", {}), "no readable header"),
    "a list": (lambda: sealed([1], {}), "no readable header"),
    "an empty header": (lambda: sealed({"format": 1}, {}), "not a valid model"),
    "deep lists": (lambda: sealed("[" * 10**5, {}), "no readable header"),
    "deep parts": (
        lambda: sealed(SETTING + '{"dict":[[1,' * 200 + "1" + "]]}" * 200 + "}}", {}),
        "not a valid model",
    ),
    "deep settings": (lambda: sealed(SETTING + "[" * 900 + "]" * 900 + "}}", {}), "not a valid model"),
    "a part as a key": (lambda: changed("features", ["settings", "C"], {"dict": [[{"dict": []}, 1]]}), "unhashable"),
    "many lists": (lambda: sealed('{"format": 1, "x": [' + "[]," * 600_000 + "[]]}", {}), "no readable header"),
    "a long header": (lambda: sealed('{"format": 1, "x": "' + "x" * (2 << 20) + '"}', {}), "not a model file"),
    "a long number": (lambda: sealed('{"format": ' + "1" * 10**5 + "}", {}), "no readable header"),
    "no number": (lambda: sealed('{"format": 1, "x": NaN}', {}), "no readable header"),
    "an infinite number": (lambda: sealed('{"format": 1, "x": 1e999}', {}), "no readable header"),
    "no checksum": (lambda: bare(outer(), b""), "safetensors"),
    "a checksum of another name": (
        lambda: bare(outer(a={"dtype": "U8", "shape": [32], "data_offsets": [0, 32]})),
        "no checksum",
    ),
    "nothing, in a shape that cannot be": (
        lambda: bare(outer(a={"dtype": "F64", "shape": [0, 2**62], "data_offsets": [0, 0]})),
        "shape|checksum|safetensors",
    ),
    "a type of a long name": (
        lambda: bare(outer(a={"dtype": "x" * 10**4, "shape": [0], "data_offsets": [0, 0]})),
        "safetensors",
    ),
    "a shape of too many dimensions": (
        lambda: bare(outer(a={"dtype": "U8", "shape": [0, *[1] * 99], "data_offsets": [0, 0]}, sha256=DIGEST)),
        "invalid shape",
    ),
    "a verdict without a weight": (
        lambda: changed("scaled", ["safety", "Safety", "weight"], "much"),
        "needs a weight, scores, a number of rows",
    ),
    "a verdict for another weight": (
        lambda: changed("scaled", ["safety", "Safety", "weight"], 0.123),
        "needs the scores of weight 0 and of the weight",
    ),
    "names that overlap": (lambda: with_names("features", b"abc", [2, 1, 3]), "does not hold 3 names"),
    "names that end too late": (lambda: with_names("features", b"abc", [1, 2, 9]), "does not hold 3 names"),
    "a verdict without scores": (
        lambda: changed("scaled", ["safety", "Safety", "scores"], {"dict": [[0.0, {"dict": []}]]}),
        "error rates|needs the scores",
    ),
    "a huge tensor": (
        lambda: bare(outer(a={"dtype": "F64", "shape": [2**40, 2**20], "data_offsets": [0, 2**63]})),
        "safetensors",
    ),
    "a tensor of another length": (
        lambda: bare(outer(sha256={"dtype": "U8", "shape": [2**40], "data_offsets": [0, 32]})),
        "safetensors",
    ),
}


@pytest.mark.parametrize("name", MALICE)
def test_malice(tmp_path, name):
    forge, reason = MALICE[name]
    raw = forge()
    tracemalloc.start()
    with pytest.raises(ModelFormatError, match=reason) as caught:
        load_bytes(raw, tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 << 20
    assert len(str(caught.value)) < 400


PLACES = [(path.stem.split("-")[1], place) for path in KEPT for place in paths(container.read(path)[0]) if place]
PART = st.sampled_from(sorted(_PARTS))
NUMBER = st.integers(-(2**63), 2**64) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBER | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | PART, inner, max_size=2),
    max_leaves=5,
)


def assert_a_model_or_an_error(raw, folder):
    """An error that says why, or a model that can be used."""
    try:
        model = load_bytes(raw, folder)
    except ModelFormatError:
        return
    usable(model)


@given(place=st.sampled_from(PLACES), value=JSON)
@pytest.mark.filterwarnings("ignore")
def test_any_header(tmp_path_factory, place, value):
    assert_a_model_or_an_error(changed(*place, value), tmp_path_factory.getbasetemp())


TENSORS = [(path.stem.split("-")[1], name) for path in KEPT for name in container.read(path)[1]]
ARRAY = arrays(st.sampled_from(["f4", "f8", "i4", "i8", "u1", "f2", "?"]), array_shapes(min_dims=0, max_side=8))


@given(place=st.sampled_from(TENSORS), value=ARRAY | st.floats(), at=st.integers(0, 999))
@pytest.mark.filterwarnings("ignore")
def test_any_tensor(tmp_path_factory, place, value, at):
    """Another tensor in the place of one, or another number in it."""

    def change(array):
        if isinstance(value, np.ndarray) or array.size == 0:
            return value
        array = array.copy()
        array.flat[at % array.size] = np.float64(value).astype(array.dtype)
        return array

    assert_a_model_or_an_error(with_tensor(*place, change), tmp_path_factory.getbasetemp())


def test_other_random_features_are_noticed(monkeypatch):
    path = kept("features")
    s3vm.load(path)
    monkeypatch.setattr(philox, "_WEYL_0", np.uint64(0x9E3779B8))
    with pytest.raises(ModelFormatError, match="does not reproduce the random features"):
        s3vm.load(path)


# Writing


def in_a_new_process(code, *arguments):
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m.s3vm"
    model = make()
    model.save(path)
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda number: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space"):
        make(kernel="laplacian").save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link.s3vm").symlink_to(tmp_path / "m.s3vm")
    make().save(tmp_path / "link.s3vm")
    assert (tmp_path / "link.s3vm").is_symlink()
    assert (tmp_path / "m.s3vm").is_file()


def test_loading_needs_no_exporter():
    code = "import s3vm, sys; s3vm.load(sys.argv[1]); print({'onnx', 'onnxruntime', 'torch'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code, KEPT[0]], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.strip() == "set()"


# Other ways


@pytest.mark.parametrize("data", [moons, flowers])
@pytest.mark.parametrize("solver", [FEW, ROWS], ids=["features", "rows"])
def test_pickle_joblib_and_skops(tmp_path, solver, data):
    X, _ = data()
    model = make(solver, data, unlabeled_weight="auto", kernel=Matern(nu=2.5))
    assert_same(pickle.loads(pickle.dumps(model)), model, X)
    joblib.dump(model, tmp_path / "m.joblib")
    assert_same(joblib.load(tmp_path / "m.joblib"), model, X)
    stored = skops.io.dumps(model)
    assert_same(skops.io.loads(stored, trusted=s3vm.SKOPS_TRUSTED), model, X)


@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_types_to_trust_are_complete(solver):
    """Also those of states with which training continues."""
    X, some = moons()
    clf = S3VMClassifier(solver, unlabeled_weight=1.0, warm_start=solver != "auto", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.fit(X[::4], some[::4])
    assert set(skops.io.get_untrusted_types(data=skops.io.dumps(clf))) <= set(s3vm.SKOPS_TRUSTED)


def test_types_to_trust_include_those_of_tables_and_searches():
    X, some = moons()
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "town": np.where(X[:, 0] > 0, "Bonn", "Oslo")})[::4]
    model = make_pipeline(s3vm.TableEncoder(), S3VMClassifier(random_state=0)).fit(frame, some[::4])
    again = skops.io.loads(skops.io.dumps(model), trusted=s3vm.SKOPS_TRUSTED)
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    search = GridSearchCV(model, {"s3vmclassifier__C": [1]}, cv=s3vm.LabeledKFold(), scoring=s3vm.scorer("roc_auc"))
    types = skops.io.get_untrusted_types(data=skops.io.dumps(search))
    assert {name for name in types if name.startswith("s3vm")} <= set(s3vm.SKOPS_TRUSTED)

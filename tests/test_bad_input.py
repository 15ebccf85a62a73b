"""What a user may get wrong: one table. Every row is an input, the words that the error must have, and its type.

The tables of the command line and of broken files are in `test_cli.py` and `test_tables.py`, that of the cluster is in
`test_distributed.py`, where they have their folders and workers. Whatever else may come: `test_properties.py`.
"""

import copy
import datetime
import decimal
import inspect
import re
import warnings
from dataclasses import fields
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

import s3vm
from s3vm import (
    TSG,
    ArraySource,
    BatchSource,
    FileSource,
    Hat,
    Hinge,
    LabeledKFold,
    S3VMClassifier,
    S3VMClassifierCV,
)
from s3vm.kernels import KERNELS, Laplacian, Polynomial
from s3vm.losses import LABELED_LOSSES, UNLABELED_LOSSES
from s3vm.philox import Purpose
from s3vm.solvers import SOLVERS
from s3vm.solvers.steps import STEPS
from s3vm.sources import ExhaustedError
from s3vm.sources.readers import TableError

FEW = TSG(max_iter=5, batch_size=8, n_features=8)
X = np.random.RandomState(0).normal(size=(20, 2))
Y = np.r_[[0, 1] * 4, [-1] * 12]
NAN, INF, HUGE = (np.where(X > 1, value, X) for value in (np.nan, np.inf, 1e35))
FRAME = pd.DataFrame(X, columns=["a", "b"])
POLARS = pl.DataFrame({"a": X[:, 0], "b": X[:, 1]})


def make(kind=S3VMClassifier, **settings):
    return kind(**{"solver": FEW, "random_state": 0, **settings})


@cache
def fitted(frame=False):
    return make().fit(FRAME if frame else X, Y)


@cache
def started():
    return make().partial_fit(X, Y)


def raises(words, error=ValueError):
    return pytest.raises(error, match=re.compile(words, re.DOTALL))


def table(rows):
    """The rows of a table, each with its name."""
    return [pytest.param(*(row if isinstance(row, tuple) else (row,)), id=name) for name, row in rows.items()]


def broken(**parts):
    """A CSR matrix whose arrays somebody has written to."""
    rows = sparse.csr_matrix(X)
    for name, (at, value) in parts.items():
        array = getattr(rows, name).copy()
        array[at] = value
        setattr(rows, name, array)
    return rows


def broken_columns():
    rows = sparse.csc_array(X)
    rows.indices[0] = 10**8
    return rows


def broken_triples():
    rows = sparse.coo_array(X)
    rows.row[0] = 10**8
    return rows


# Rows

NUMBERS = "not a matrix of numbers.*encoded as numbers"
DATES = "dates or times.*make numbers of them, by a TableEncoder"
ROWS = {
    "NaN": (NAN, r"contains NaN\. Fill in missing values by an imputer.*TableEncoder\(\) in one$"),
    "infinity": (INF, "contains infinity"),
    "infinities of both signs": (np.where(X > 1, np.inf, np.where(X < -1, -np.inf, X)), "contains infinity"),
    "too large": (HUGE, "entries up to 1.0e\\+35, too large for float32: standardise"),
    "too large for anybody": (X * 1e300, "too large for float32: standardise"),
    "whole numbers without end": (np.full((20, 2), 10**400, dtype=object), NUMBERS),
    "zero rows": (X[:0], "0 sample"),
    "zero columns": (X[:, :0], "0 feature"),
    "one dimension": (X[:, 0], "Reshape your data"),
    "three dimensions": (X[:, :, None], "dim 3, while dim <= 2"),
    "a number": (5, "Expected 2D array"),
    "nothing": (None, "Expected 2D array"),
    "complex": (X * 1j, "Complex data"),
    "letters": (np.full((20, 2), "a"), NUMBERS),
    "bytes": (np.full((20, 2), b"a"), NUMBERS),
    "objects with None": (np.where(X > 1, None, X.astype(object)), "contains NaN"),
    "a text": ("rows.csv", NUMBERS),
    "a dict": ({"a": 1}, NUMBERS, TypeError),
    "a generator": ((row for row in X), NUMBERS, TypeError),
    "ragged lists": ([[1.0, 2.0], [1.0]] * 10, NUMBERS),
    "named fields": (np.zeros(20, dtype=[("a", float), ("b", float)]), NUMBERS, TypeError),
    "np.matrix": (np.matrix(X), "np.matrix is not supported", TypeError),
    "masked": (np.ma.masked_greater(X, 1), "masked entries: fill them in"),
    "dates": (np.full((20, 2), np.datetime64("2020-01-01")), DATES),
    "times": (np.full((20, 2), np.timedelta64(3, "s")), DATES),
    "lists of dates": ([[np.datetime64("2020-01-01")] * 2] * 20, DATES),
    "a list of rows of dates": ([np.full(2, np.datetime64("2020-01-01"))] * 20, DATES),
    "a list of masked rows": (list(np.ma.masked_greater(X, 1)), "masked entries: fill them in"),
    "float16 that overflowed": (np.array([[np.inf, 1.0]] * 20, dtype=np.float16), "contains infinity"),
    "sparse with NaN": (broken(data=(0, np.nan)), "contains NaN"),
    "sparse complex": (sparse.csr_array(X * 1j), "Complex data"),
    "sparse zero columns": (sparse.csr_array((20, 0)), "0 feature"),
    "sparse of one dimension": (
        sparse.coo_array(X[:, 0]),
        r"Expected 2D|\[1, 20\]|20 features",
    ),  # a row, in older SciPy
    "sparse column that is not there": (broken(indices=(0, 4000)), "outside its 2 columns"),
    "sparse column below zero": (broken(indices=(0, -1)), "outside its 2 columns"),
    "sparse beyond its end": (broken(indptr=(-1, 10**6)), "row pointers"),
    "sparse backwards": (broken(indptr=(3, 0)), "row pointers"),
    "sparse by column": (broken_columns(), "outside its 20 columns"),
    "sparse in triples": (broken_triples(), r"outside its shape \(20, 2\)"),
    "sparse column beyond int32": (broken(indices=(0, np.int32(2**31 - 1))), "outside its 2 columns"),
    "pandas series": (FRAME["a"], "Expected a 2-dimensional|Reshape your data"),
    "pandas with NA": (FRAME.astype("Float64").mask(FRAME > 1), "contains NaN"),
    "pandas whole numbers with NA": (FRAME.assign(a=pd.array([1, None] * 10, dtype="Int64")), "contains NaN"),
    "pandas categories": (FRAME.assign(a=pd.Categorical(list("xy") * 10)), NUMBERS),
    "pandas dates": (FRAME.assign(a=pd.date_range("2020", periods=20)), DATES),
    "pandas times": (FRAME.assign(a=pd.to_timedelta(np.arange(20), unit="s")), DATES),
    "pandas names of two kinds": (FRAME.rename(columns={"a": 1}), "string names.*convert them all", TypeError),
    "pandas names that come twice": (FRAME.rename(columns={"a": "b"}), "unique column names"),
    "polars with nulls": (POLARS.with_columns(a=pl.Series([None, *X[1:, 0]])), "contains NaN"),
    "polars text": (POLARS.with_columns(a=pl.Series(["q"] * 20)), NUMBERS),
    "polars categories": (POLARS.with_columns(a=pl.Series(["q"] * 20, dtype=pl.Categorical)), NUMBERS),
    "polars dates": (POLARS.with_columns(a=pl.Series([datetime.date(2020, 1, 1)] * 20)), DATES),
    "polars lists": (POLARS.with_columns(a=pl.Series([[1.0, 2.0]] * 20)), NUMBERS),
}
# A frame is refused for its names before its content is looked at, if the model knows others.
VERBS = {
    "fit": lambda rows: make().fit(rows, Y),
    "fit with a CV": lambda rows: make(S3VMClassifierCV).fit(rows, Y),
    "partial_fit": lambda rows: make().partial_fit(rows, Y),
    "predict": lambda rows: fitted(isinstance(rows, pd.DataFrame | pl.DataFrame)).predict(rows),
    "a source": lambda rows: make().fit(X[:8], Y[:8], X_unlabeled=ArraySource(rows)),
}


@pytest.mark.parametrize(("rows", "words", "error"), table({k: (*v, ValueError)[:3] for k, v in ROWS.items()}))
def test_rows(rows, words, error):
    wrong = []
    for verb, do in VERBS.items():
        if verb == "a source" and not (type(rows) is np.ndarray and rows.ndim == 2):
            continue  # refused at once, see below
        try:
            do(rows)
            wrong.append((verb, "nothing was said"))
        except error as said:
            if not re.search(words, str(said), re.DOTALL):
                wrong.append((verb, str(said)))
    assert not wrong


def test_rows_of_another_width():
    for do in (fitted().predict, fitted().predict_proba, fitted().decision_function):
        with raises("1 features, but S3VMClassifier is expecting 2"):
            do(X[:, :1])
    with raises("1 features, but S3VMClassifier is expecting 2"):
        started().partial_fit(X[:, :1], Y)


def test_rows_too_large_for_a_polynomial():
    clf = make(kernel=Polynomial(degree=12), unlabeled_weight=1.0).fit(X, Y)
    with raises("too large for this kernel: scale them"):
        clf.predict(np.full((3, 2), 1e29))


def test_a_model_that_is_not_fitted():
    for do in ("predict", "predict_proba", "decision_function"):
        with raises("not fitted yet", NotFittedError):
            getattr(make(), do)(X)


# Labels and weights

LABELS = {
    "of another length": (Y[:-1], r"inconsistent numbers of samples: \[20, 19\]"),
    "none of them": (np.full(20, -1), "no labelled rows.*each class"),
    "one class": (np.where(Y == 1, -1, Y), "at least two classes, got 1 class.*label some rows"),
    "-1 and 1": (np.where(Y == 1, 1, -1), "ambiguous.*recode.*unlabeled=None.*second class"),
    "-1 and 1 as text": (np.where(Y == 1, "1", "-1"), "ambiguous.*recode"),
    "NaN": (np.where(Y == -1, np.nan, Y), "contains NaN.*unlabeled=None"),
    "None": (np.array(["a", "b", None] * 6 + ["a", "b"], dtype=object), "set unlabeled=None"),
    "pandas NA": (pd.Series(pd.array([0, 1, None, None] * 5, dtype="Int64")), "set unlabeled=None"),
    "polars null": (pl.Series([0, 1, None, None] * 5), "set unlabeled=None"),
    "masked": (np.ma.masked_equal(Y, 0), "masked labels: y.filled"),
    "text and numbers": (["a", "b", 1, 2] * 5, "mixes text"),
    "infinity": (np.where(Y == 0, np.inf, Y), "infinity"),
    "measurements": (X[:, 0], "Unknown label type"),
    "fractions": (Y + 0.5, "Unknown label type: continuous"),
    "complex": (Y * 1j, "Complex data"),
    "bytes": (np.where(Y == 0, b"a", b"b"), "bytes is not supported. Convert", TypeError),
    "tuples": (np.array([*[(0, 1)] * 20, None], dtype=object)[:20], "lists or tuples: give one number or text"),
    "lists": (np.array([[1], [2, 3]] * 10, dtype=object), "lists or tuples: give one number or text"),
    "named fields": (np.zeros(20, dtype=[("a", int)]), "several values per row.*give one label"),
    "dates": (np.full(20, np.datetime64("2020")), "dates or times.*give numbers or text"),
    "dates, some missing": (pd.Series([pd.Timestamp("2020"), pd.NaT] * 10), "dates or times.*give numbers or text"),
    "objects": (np.array([object() for _ in range(20)]), "Unknown label type"),
    "decimals": (np.array([decimal.Decimal(1), decimal.Decimal(2)] * 10), "Unknown label type"),
    "two columns": (np.c_[Y, Y], "1d array"),
    "a number": (3, "1d array"),
    "a dict": (dict(enumerate(Y)), "1d array"),
    "a generator": ((label for label in Y), "1d array"),
    "nothing": (None, "requires y"),
}


@pytest.mark.parametrize(("labels", "words", "error"), table({k: (*v, ValueError)[:3] for k, v in LABELS.items()}))
def test_labels(labels, words, error):
    with raises(words, error):
        make().fit(X, labels)
    with raises(words, error):
        make().partial_fit(X, labels)


@pytest.mark.parametrize(
    ("weight", "words"),
    table(
        {
            "text": (["a"] * 20, "could not convert"),
            "a dict": ({}, "not 'dict'"),
            "too few": ([1.0] * 5, r"\(5,\)"),
            "NaN": (np.full(20, np.nan), "NaN"),
            "infinity": (np.full(20, np.inf), "infinity"),
            "negative": (-np.ones(20), "Negative"),
            "two columns": (np.ones((20, 2)), "2D array"),
            "complex": (np.ones(20) * 1j, "Complex"),
            "zero": (np.zeros(20), "non-zero"),
            "masked": (np.ma.masked_array(np.ones(20), mask=np.arange(20) < 10), "masked"),
            "dates": (np.full(20, np.datetime64("2020")), "dates"),
            "huge": (np.full(20, 1e307), r"of at most 1e\+12, not 1e\+307: divide all of them"),
        }
    ),
)
def test_sample_weight(weight, words):
    for do in (make().fit, started().partial_fit):
        with raises(f"sample_weight must have one non-negative value per row \\(20 rows\\).*{words}"):
            do(X, Y, sample_weight=weight)


def test_weights_that_leave_no_class():
    with raises("got 0 class.*weights above 0"):
        make().fit(X, Y, sample_weight=np.where(Y == -1, 1.0, 0.0))


def test_zero_is_one_label_with_either_sign():
    clf = make().fit(X, np.where(np.arange(20) == 0, -0.0, Y))
    assert clf.classes_.tolist() == [0, 1]


# Settings

WRONG = {"text": "a", "list": [1, 2], "object": object(), "NaN": np.nan, "array": np.array([1.0, 2.0]), "complex": 1j}
NONE, LESS, ENDLESS, BOOL, FRACTION = ({str(value): value} for value in (None, -3, np.inf, True, 2.5))
# Which other values are invalid for a setting; or all invalid ones, where those above are valid.
SETTINGS = {
    "solver": NONE | LESS | {"class": TSG, "unknown": "sgd"},
    "kernel": NONE | LESS | {"unknown": "gauss"},
    "gamma": NONE | LESS | ENDLESS | BOOL | {"zero": 0},
    "C": NONE | LESS | ENDLESS | BOOL | {"zero": 0, "too large": 10**400},
    "unlabeled_weight": NONE | LESS | ENDLESS | BOOL,
    "neighbor_weight": NONE | LESS | ENDLESS | BOOL,
    "n_neighbors": NONE | LESS | BOOL,
    "max_rows": NONE | LESS | BOOL,
    "n_components": LESS | BOOL | FRACTION | {"zero": 0},
    "loss": NONE | LESS | {"of labelled rows": Hinge()},
    "labeled_loss": NONE | LESS | {"of unlabelled rows": Hat()},
    "class_prior": LESS
    | {"too long": [0.2, 0.3, 0.5], "sum": [0.2, 0.3], "zero": [0, 1], "dict": {}, "table": [[0.5, 0.5]]},
    "class_weight": LESS
    | {"negative one": {0: -1, 1: 1}, "zero": {0: 0, 1: 0}, "infinity": {0: np.inf}, "NaN one": {0: np.nan, 1: 1}}
    | {"text one": {0: "a"}, "None one": {0: None}, "another class": {7: 1}},
    "unlabeled": [[1, 2], np.array([1.0, 2.0])],
    "probability": NONE | LESS | FRACTION,
    "warm_start": NONE | LESS | FRACTION,
    "backend": NONE | LESS,
    "dtype": NONE | LESS | {"float16": "float16"},
    "cache_bytes": NONE | LESS | BOOL,
    "n_jobs": {"zero": 0} | FRACTION | BOOL,
    "random_state": LESS | FRACTION,
    "verbose": NONE,
    "max_seconds": LESS | ENDLESS | BOOL | {"zero": 0},
    "early_stopping": LESS | BOOL,
    "Cs": ["a", ["a"], [], None, 2.5, [np.nan], [1, -1]],
    "factors": ["a", ["a"], [], None, 2.5, [np.nan], [1, -1]],
    "n_folds": NONE | FRACTION | BOOL | {"one": 1},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_classifiers(name):
    wrong = SETTINGS[name] if isinstance(SETTINGS[name], list) else (WRONG | SETTINGS[name]).values()
    for kind in (S3VMClassifier, S3VMClassifierCV):
        for value in wrong if name in inspect.signature(kind).parameters else []:
            with raises(rf"\b{name}="):
                make(kind, **{name: value}).fit(X, Y)


def test_every_setting_is_in_the_table():
    names = {name for kind in (S3VMClassifier, S3VMClassifierCV) for name in inspect.signature(kind).parameters}
    assert names == set(SETTINGS)


class Collection:
    """What looks like dask's."""

    dask = to_delayed = None


@pytest.mark.parametrize("name", ["probability", "verbose", "unlabeled", "C"])
def test_settings_of_the_cluster(name):
    with raises(rf"\b{name}="):  # before a client is looked for
        S3VMClassifier(**{name: WRONG["array"]}).fit(Collection(), Y)


PARTS = [*SOLVERS.values(), *STEPS.values(), *KERNELS.values(), *LABELED_LOSSES.values(), *UNLABELED_LOSSES.values()]


@pytest.mark.parametrize(
    ("part", "name"),
    [(part, field.name) for part in PARTS for field in fields(part) if field.init],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_settings_of_parts(part, name):
    for value in ("a", [1, 2], object(), np.nan, -3.0, 1j):
        with raises(rf"\b{name}="):
            part(**{name: value})


# Calls


class Idle(TSG):
    def run(self, problem, backend, state=None):
        return iter(())


class Starved(TSG):
    def run(self, problem, backend, state=None):
        raise ExhaustedError("not a single row")
        yield


SOURCE = ArraySource(X, np.arange(8, 20))
CALLS = {
    "every without a checkpoint": (lambda: make().fit(X, Y, every=5), 'every=5 .*checkpoint="path"'),
    "every": (lambda: make().fit(X, Y, every=-1), "every=-1.*seconds"),
    "resume": (lambda: make().fit(X, Y, resume=True), "resume=True needs"),
    "a checkpoint of rows": (lambda: make(solver="incremental").fit(X, Y, checkpoint="c"), "too much for a checkpoint"),
    "a checkpoint and a warm start": (
        lambda: make(warm_start=True).fit(X, Y, checkpoint="c"),
        "continues from the model",
    ),
    "a source and labels": (lambda: make().fit(SOURCE, Y), "give it alone"),
    "a source without labels": (lambda: make().fit(SOURCE), "has no labels"),
    "marked rows and a source": (lambda: make().fit(X, Y, X_unlabeled=SOURCE), "some rows of X are marked -1"),
    "no kind of rows": (lambda: make().fit(X[:8], Y[:8], X_unlabeled=3), "X_unlabeled=3 is not valid"),
    "a file that is not there": (lambda: make().fit(X[:8], Y[:8], X_unlabeled="none.csv"), "no such file", TableError),
    "classes to come": (lambda: make().partial_fit(X, Y, classes=[0, 2]), r"classes=\[0, 2\] .*also have \[1\]"),
    "another class": (lambda: started().partial_fit(X[:2], [7, -1]), "same classes"),
    "text after numbers": (lambda: started().partial_fit(X, ["a"] * 20), "mixes text"),
    "too few labels": (lambda: make().partial_fit(X, Y, max_labeled=1), "max_labeled=1.*at least 2"),
    "labels of a fraction": (lambda: make().partial_fit(X, Y, max_labeled=2.5), "max_labeled=2.5"),
    "fewer labels of all rows": (
        lambda: make(solver="incremental").partial_fit(X, Y, max_labeled=5),
        "max_labeled=5 is for tsg and frs.*forget",
    ),
    "a solver that cannot resume": (
        lambda: make(solver="cccp").partial_fit(X, Y),
        "has no attribute 'partial_fit'",
        AttributeError,
    ),
    "on after a stream": (
        lambda: make().fit(X[:8], Y[:8], X_unlabeled=SOURCE).partial_fit(X, Y),
        "does not keep when it is.*trained on a stream.*begin with partial_fit",
    ),
    "rows that are not there": (lambda: ArraySource(X, np.array([3, 20])), "row numbers from 0 to 19"),
    "a mask for numbers": (lambda: ArraySource(X, Y == -1), r"for a mask, give np.flatnonzero\(mask\)"),
    "numbers that are not whole": (lambda: ArraySource(X, np.array([0.5])), "row numbers from 0 to 19"),
    "a source of nothing": (
        lambda: make().fit(X[:8], Y[:8], X_unlabeled=ArraySource(X, np.array([], dtype=int))),
        "is empty: leave X_unlabeled=None",
    ),
    "names in another order": (
        lambda: make().fit(FRAME[:8], Y[:8], X_unlabeled=[FRAME[["b", "a"]]]),
        r"columns of X are \['a', 'b'\].* those of the source \['b', 'a'\]",
    ),
    "a checkpoint without a name": (lambda: make().fit(X, Y, checkpoint=""), "give a file in a folder that exists"),
    "a seed that is too large": (lambda: make(random_state=2**64).fit(X, Y), r"random_state=.*to 2\*\*64 - 1"),
    "a precision that is not known, later": (
        lambda: make().fit(X, Y).set_params(dtype="foo").predict(X),
        "dtype='foo' is not valid",
    ),
    "folds of other lengths": (lambda: list(LabeledKFold(2).split(X[:10], Y)), r"inconsistent.*\[10, 20\]"),
    "a copy that resumes": (
        lambda: copy.deepcopy(make().fit(X, Y)).partial_fit(X, Y),
        "does not keep when it is loaded, copied",
    ),
    "a solver that does nothing": (lambda: make(solver=Idle()).fit(X, Y), "the solver made no iterations"),
    "no row to begin with": (lambda: make(solver=Starved()).fit(X, Y), "not a single row", ExhaustedError),
    "forget what is not there": (
        lambda: make(solver="incremental").partial_fit(X, Y).forget([99]),
        "numbers from 0 to 19",
    ),
    "forget text": (lambda: make(solver="incremental").partial_fit(X, Y).forget("a"), "numbers from 0 to 19"),
    "forget all labels": (lambda: make(solver="incremental").partial_fit(X, Y).forget(range(8)), "no labelled rows"),
}


@pytest.mark.parametrize(("call", "words", "error"), table({k: (*v, ValueError)[:3] for k, v in CALLS.items()}))
def test_calls(call, words, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with raises(words, error):
        call()


def test_on_after_loading(tmp_path):
    fitted().save(tmp_path / "model.s3vm")
    with raises("does not keep when it is loaded.*begin with partial_fit, or call fit"):
        s3vm.load(tmp_path / "model.s3vm").partial_fit(X, Y)


# Sources


def drawn(source, n_rows=9):
    return source.batches(0, Purpose.UNLABELED, range(1), n_rows)


BATCHES = {
    "none": ([], "it is empty"),
    "no iterable": (3, "needs an iterable of arrays, not a int"),
    "a function of nothing": (lambda: None, "needs an iterable of arrays, not a NoneType"),
    "one iterator for ever": ((lambda only: lambda: only)(iter([X])), "same iterator every time"),
    "rows": ([X[0]], r"the first is a ndarray of shape \(2,\)"),
    "an array": (X, r"the first is a ndarray of shape \(2,\)"),
    "text": (["abc"], "the first is a str"),
    "lists": ([X.tolist()], "the first is a list"),
    "zero columns": ([X[:, :0]], r"of shape \(20, 0\)"),
    "zero rows": ([X[:0]], "no more rows"),
    "other columns": ([X[:2], X[:, :1]], r"shape \(20, 1\), but the first has 2"),
    "objects": ([X.astype(object)], "type object, which are not real numbers"),
    "text in an array": ([X.astype(str)], "which are not real numbers"),
    "complex": ([X * 1j], "type complex128, which are not real numbers"),
    "dates": ([np.full((9, 2), np.datetime64("2020"))], DATES),
    "masked": ([np.ma.masked_greater(X, 1)], "masked entries"),
    "NaN": ([X[:3], NAN], "missing or infinite: leave such rows out"),
    "too large": ([HUGE], "too large for float32"),
    "sparse and not": ([X[:3], sparse.csr_array(X)], "make all of them the same"),
    "sparse, rows in disorder": ([broken(indptr=(3, 0))], "row pointers"),
    "sparse, entries elsewhere": ([broken(indices=(0, 10**8))], "outside its 2 columns"),
    "sparse by column, likewise": ([broken_columns()], "outside its 20 columns"),
    "sparse in triples, likewise": ([broken_triples()], r"outside its shape \(20, 2\)"),
    "other names": ([FRAME, FRAME[["b", "a"]]], r"columns \['b', 'a'\], but the first has \['a', 'b'\]"),
    "names and none": ([FRAME, X], r"columns None, but the first has \['a', 'b'\]"),
}


@pytest.mark.parametrize(("batches", "words"), table(BATCHES))
def test_batches(batches, words):
    with raises(words):
        drawn(BatchSource(batches))


@pytest.mark.parametrize(
    ("settings", "words"),
    table(
        {
            "n_rows": ({"n_rows": -3}, "n_rows=-3"),
            "n_rows text": ({"n_rows": "a"}, "n_rows='a'"),
            "n_rows fraction": ({"n_rows": 2.5}, "n_rows=2.5"),
            "other rows": ({"n_rows": 50}, "50 rows were expected.*n_rows is wrong"),
            "dtype": ({"dtype": "foo"}, "dtype='foo'.*float32"),
            "whole numbers": ({"dtype": int}, "dtype=<class 'int'>"),
            "no buffer": ({"buffer_bytes": 0}, "buffer_bytes=0"),
            "buffer text": ({"buffer_bytes": "a"}, "buffer_bytes='a'"),
        }
    ),
)
def test_settings_of_batches(settings, words):
    with raises(words):
        drawn(BatchSource([X], **settings), 60)


@pytest.mark.parametrize(
    "rows", [X[:, 0], X.tolist(), FRAME, sparse.coo_array(X)], ids=["flat", "lists", "frame", "COO"]
)
def test_no_array_for_a_source(rows):
    with raises("needs an array, a CSR matrix or a tensor"):
        ArraySource(rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("files")
    for name, column in (("marks", Y), ("signs", np.where(Y == -1, "", 2 * Y - 1)), ("all", Y == 0)):
        FRAME.assign(label=column).to_csv(where / f"{name}.csv", index=False)
    FRAME.assign(b=HUGE[:, 1], label=Y).to_csv(where / "huge.csv", index=False)
    FRAME.assign(b=NAN[:, 1], label=Y).to_csv(where / "holes.csv", index=False)
    return where


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    table(
        {
            "labels that are not named": ("marks", {"drop": "label"}, "no column of labels was named"),
            "labels -1 and 1": ("signs", {"target": "label"}, "ambiguous.*unlabeled=None.*an empty cell of a file"),
            "no labels": (
                "all",
                {"target": "label", "mark": ["True", "False"]},
                "no row has a label in column 'label'",
            ),
            "a name that is not there": ("marks", {"target": "labl"}, "'labl'.*did you mean 'label'"),
            "no name": ("marks", {"target": 3}, "target=3 is not valid: give a column name"),
            "no names": ("marks", {"target": "label", "drop": 2}, r"drop=\[2\] is not valid"),
            "too large": ("huge", {"target": "label", "mark": -1}, "huge.csv: .*too large for float32"),
            "missing": ("holes", {"target": "label", "mark": -1.0}, r"the first in row \d+, column 'b'.*Fill them in"),
            "dtype": ("marks", {"target": "label", "dtype": "int8"}, "dtype='int8'"),
            "buffer": ("marks", {"target": "label", "buffer_bytes": None}, "buffer_bytes=None"),
        }
    ),
)
def test_files(folder, name, settings, words):
    with raises(words):
        make().fit(FileSource(folder / f"{name}.csv", **settings))


def test_no_path():
    for path in (None, 3, []):
        with raises("not a path: give the name of a file", TableError):
            FileSource(path)


def test_unlabeled_rows_that_do_not_fit(folder, tmp_path):
    np.save(tmp_path / "holes.npy", NAN)
    with raises("values are missing or infinite, the first in row 1", TableError):
        make().fit(X[:8], Y[:8], X_unlabeled=tmp_path / "holes.npy")
    clf, source = make(), FileSource(folder / "marks.csv", "label", mark=-1)
    with raises("have 3 columns, the unlabelled ones 2"):
        clf.fit(np.c_[X, X[:, :1]][:8], Y[:8], X_unlabeled=source)
    with raises(r"the columns of X are \['b', 'a'\]"):
        clf.fit(FRAME[["b", "a"]][:8], Y[:8], X_unlabeled=source)


# What is right, though it looks wrong


@pytest.mark.torch
def test_a_graphics_card_that_is_not_there():
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.warns(UserWarning, match=r'no GPU that torch sees.*give backend="auto"'):
        make(backend="gpu").fit(X, Y)


def test_no_unlabeled_rows_is_a_plain_svm():
    labels = (X[:, 0] > 0).astype(int)
    with pytest.warns(UserWarning, match=r"no unlabelled rows.*plain SVM.*-1"):
        clf = S3VMClassifier(C=10, gamma=2.0, random_state=0).fit(X, labels)
    assert clf.score(X, labels) > 0.95
    np.testing.assert_array_equal(clf.transduction_, labels)


def test_wide_column_numbers_do_for_every_kernel():
    rows = sparse.csr_array(sparse.random(30, 5, density=0.5, random_state=0))
    wide = sparse.csr_array((rows.data, rows.indices.astype(np.int64), rows.indptr.astype(np.int64)), shape=rows.shape)
    assert wide.indices.dtype == np.int64
    for kernel in KERNELS.values():
        np.testing.assert_array_equal(kernel(0.5).gram(wide, wide), kernel(0.5).gram(rows, rows))
    y = np.where(np.arange(30) < 10, np.arange(30) % 2, -1)
    one, two = (make(kernel=Laplacian(0.5)).fit(given, y).predict(rows) for given in (wide, rows))
    np.testing.assert_array_equal(one, two)


EXTREME = {
    "huge": X * 1e30 / 4,
    "tiny": X * 1e-30,
    "zero": np.zeros((20, 2)),
    "equal": np.tile(X[:1], (20, 1)),
    "constant column": np.c_[X, np.full(20, 1e20)],
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rows", table(EXTREME))
def test_extreme_rows_give_finite_scores_or_an_error(kernel, rows):
    scores, said = np.zeros(1), "scale"
    with warnings.catch_warnings(action="ignore"):
        try:
            scores = make(kernel=kernel).fit(rows, Y).decision_function(rows)
        except ValueError as problem:
            said = str(problem)
    assert np.isfinite(scores).all()
    assert re.search("scale|large|standardise", said)

"""Settings of the wrong type: an error that names the setting, wherever it is."""

from dataclasses import fields

import numpy as np
import pytest
from scipy import sparse

from s3vm import S3VMClassifier, S3VMClassifierCV
from s3vm.kernels import KERNELS, Laplacian
from s3vm.losses import LABELLED_LOSSES, UNLABELLED_LOSSES
from s3vm.solvers import SOLVERS
from s3vm.solvers.steps import STEPS

PARTS = [*SOLVERS.values(), *STEPS.values(), *KERNELS.values(), *LABELLED_LOSSES.values(), *UNLABELLED_LOSSES.values()]
WRONG = {"text": "a", "list": [1, 2], "object": object(), "nan": np.nan, "negative": -3.0}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    ("part", "name"),
    [(part, field.name) for part in PARTS for field in fields(part) if field.init],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_of_parts(part, name, wrong):
    if (part.__name__, name, wrong) == ("Ramp", "s", "negative"):
        pytest.skip("-3 is out of range and told so elsewhere")
    with pytest.raises(ValueError, match=name):
        part(**{name: WRONG[wrong]})


@pytest.mark.parametrize("wrong", [value for value in WRONG if value != "negative"])
@pytest.mark.parametrize(
    "name",
    [
        "solver",
        "kernel",
        "gamma",
        "C",
        "unlabeled_weight",
        "loss",
        "labeled_loss",
        "class_prior",
        "backend",
        "dtype",
        "cache_bytes",
        "n_jobs",
    ],
)
def test_of_the_classifier(name, wrong):
    X, y = np.arange(20.0).reshape(10, 2), np.array([0, 1, 0, 1, -1, -1, -1, -1, -1, -1])
    with pytest.raises((TypeError, ValueError), match=name):
        S3VMClassifier(**{name: WRONG[wrong]}).fit(X, y)


@pytest.mark.parametrize("name", ["Cs", "factors", "n_folds"])
def test_of_the_tuned_classifier(name):
    X, y = np.arange(20.0).reshape(10, 2), np.array([0, 1, 0, 1, -1, -1, -1, -1, -1, -1])
    for wrong in ("a", ["a"], None, 2.5):
        with pytest.raises((TypeError, ValueError), match=name):
            S3VMClassifierCV(**{name: wrong}).fit(X, y)


def test_missing_cost():
    with pytest.raises(ValueError, match="C=None is not valid"):
        S3VMClassifier(C=None).fit(np.eye(4), [0, 1, -1, -1])


def test_wide_column_numbers_do_for_every_kernel():
    X = sparse.csr_array(sparse.random(30, 5, density=0.5, random_state=0))
    wide = sparse.csr_array((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)), shape=X.shape)
    assert wide.indices.dtype == np.int64
    for kernel in KERNELS.values():
        np.testing.assert_array_equal(kernel(0.5).gram(wide, wide), kernel(0.5).gram(X, X))
    y = np.where(np.arange(30) < 10, np.arange(30) % 2, -1)
    one, two = (S3VMClassifier(kernel=Laplacian(0.5), random_state=0).fit(rows, y).predict(X) for rows in (wide, X))
    np.testing.assert_array_equal(one, two)

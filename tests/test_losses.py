import pickle

import numpy as np
import pytest

from s3vm.losses import (
    LABELED_LOSSES,
    UNLABELED_LOSSES,
    Exponential,
    Hat,
    Ramp,
    labeled_loss,
    unlabeled_loss,
)

UNLABELED = [*(kind() for kind in UNLABELED_LOSSES.values()), Ramp(s=0), Ramp(s=-0.9), Exponential(s=3)]
LABELED = [kind() for kind in LABELED_LOSSES.values()]
KINKS = [0.0, 1.0, 0.3, 0.9]


def points_off_the_kinks():
    r = np.random.default_rng(0).uniform(-2, 2, size=4000)
    return r[np.min(np.abs(np.abs(r)[:, None] - KINKS), axis=1) > 1e-3][:1000]


def central_difference(value, r, h=1e-6):
    return (value(r + h) - value(r - h)) / (2 * h)


@pytest.mark.parametrize("loss", UNLABELED, ids=repr)
def test_unlabeled_gradient(loss):
    r = points_off_the_kinks()
    assert len(r) == 1000
    np.testing.assert_allclose(loss.grad(r), central_difference(loss.value, r), rtol=5e-6, atol=1e-9)


@pytest.mark.parametrize("loss", LABELED, ids=repr)
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_labeled_gradient(loss, y):
    r = points_off_the_kinks()
    y = np.full_like(r, y)
    expected = central_difference(lambda r: loss.value(r, y), r)
    np.testing.assert_allclose(loss.grad(r, y), expected, rtol=5e-6, atol=1e-9)


@pytest.mark.parametrize("loss", UNLABELED, ids=repr)
def test_unlabeled_loss_takes_no_side(loss):
    r = points_off_the_kinks()
    np.testing.assert_array_equal(loss.value(-r), loss.value(r))
    np.testing.assert_array_equal(loss.grad(-r), -loss.grad(r))
    assert loss.grad(np.zeros(1)) == 0
    assert np.all(r * loss.grad(r) <= 0), "a step against the gradient must lead away from the boundary"
    assert np.all(loss.value(r) >= 0)


@pytest.mark.parametrize("loss", [*UNLABELED, *LABELED], ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_shapes_types_and_pickles(loss, dtype):
    r = np.linspace(-2, 2, 12, dtype=dtype).reshape(3, 4)
    arguments = (r,) if loss in UNLABELED else (r, np.ones_like(r))
    for result in (loss.value(*arguments), loss.grad(*arguments)):
        assert result.shape == r.shape
        assert result.dtype == dtype
    assert pickle.loads(pickle.dumps(loss)) == loss


def test_a_loss_of_a_free_label_is_its_minimum_over_the_labels():
    r = np.linspace(-2, 2, 101)
    for labeled, unlabeled in [("hinge", "hat"), ("squared_hinge", "squared_hat")]:
        free = np.minimum(*(LABELED_LOSSES[labeled]().value(r, y) for y in (-1.0, 1.0)))
        np.testing.assert_allclose(UNLABELED_LOSSES[unlabeled]().value(r), free)


@pytest.mark.parametrize("s", [0.0, -0.3, -0.9])
def test_ramp_is_a_row_taken_as_both_classes(s):
    r = np.linspace(-2, 2, 401)

    def one_sided(r):
        return np.maximum(0, 1 - r) - np.maximum(0, s - r)

    np.testing.assert_allclose(Ramp(s=s).value(r), one_sided(r) + one_sided(-r) - (1 - s), atol=1e-15)


def test_lookup():
    assert unlabeled_loss("hat") == Hat()
    assert unlabeled_loss(Ramp(s=-0.5)).s == -0.5
    with pytest.raises(ValueError, match=r"loss='hinge'.*\"hat\", \"squared_hat\", \"ramp\", \"exp\""):
        unlabeled_loss("hinge")
    with pytest.raises(ValueError, match="labeled_loss=None"):
        labeled_loss(None)
    with pytest.raises(ValueError, match="Hat"):
        unlabeled_loss(Hat)


@pytest.mark.parametrize("make", [lambda: Ramp(s=0.1), lambda: Ramp(s=-1), lambda: Exponential(s=0)])
def test_settings_are_checked(make):
    with pytest.raises(ValueError, match="is not valid: give"):
        make()

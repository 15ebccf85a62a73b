"""Whether unlabelled rows of a source are on the scale of the labelled ones: a pipeline does not transform them."""

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.sparsefuncs import mean_variance_axis

from s3vm import philox
from s3vm._utils.arrays import host
from s3vm._utils.typing import Array, Rows
from s3vm._utils.warn import warn
from s3vm.estimators.preparation import PreparedRows
from s3vm.philox import Purpose

_SAMPLE, _FEWEST_ROWS = 500, 8  # unlabelled rows that are looked at
_DRAWS, _BEYOND_CHANCE = 20, 2.0
_MOST_OF_ONE, _MOST_OF_HALF = 2.5, 1.0  # other shares of the classes change a column by less, and half of them
_MISSED = 3  # rows like the labelled ones that the sample of the others may have missed


def warn_of_other_scale(names: Any, data: PreparedRows, seed: int) -> bool:
    """Warns, and says so, if columns differ in centre or spread between the labelled rows and a source of others.

    A column differs by ``|m_l - m_u| / max(s_l, s_u)`` or ``|log(s_l / s_u)|``, whichever is larger. Beyond chance is
    twice what as many rows, drawn from the unlabelled ones, differ from all of these.
    """
    if data.source is None or not data.is_streamed or data.arrivals is not None:
        return False
    others, n_labeled = host(data.source.sample(seed, _SAMPLE)), len(data.codes)
    n, n_drawn = int(others.shape[0]), min(n_labeled, int(others.shape[0]) // 2)
    if n < _FEWEST_ROWS:
        return False
    mean, spread = _moments(others)
    labeled = _moments(data.X[np.linspace(0, n_labeled - 1, min(n_labeled, _SAMPLE)).astype(int)])
    missed = _MISSED / n * (labeled[1] ** 2 + (labeled[0] - mean) ** 2)
    found = _differences(*labeled, mean, np.sqrt(spread**2 + missed))
    draws = (philox.distinct(seed, Purpose.REFERENCE, 1000 + draw, n_drawn, n) for draw in range(_DRAWS))
    chance = np.array([_differences(*_moments(others[at]), mean, spread) for at in draws])
    one, half = _BEYOND_CHANCE * chance.max(), _BEYOND_CHANCE * np.median(chance, axis=1).max()
    if found.max() <= max(_MOST_OF_ONE, one) and np.median(found) <= max(_MOST_OF_HALF, half):
        return False
    worst = np.argsort(-found, kind="stable")[:5]
    columns = worst if names is None or len(names) != len(found) else np.asarray(names)[worst]
    column = worst[0]
    warn(
        f"unlabelled rows are on another scale than labelled ones: columns {columns.tolist()} differ more than chance "
        f"allows; the first has mean {labeled[0][column]:.3g} and standard deviation {labeled[1][column]:.3g} where "
        f"labelled, {mean[column]:.3g} and {spread[column]:.3g} where not. A pipeline transforms X_unlabeled only "
        'on request: sklearn.set_config(enable_metadata_routing=True); Pipeline([..., ("svm", S3VMClassifier()'
        '.set_fit_request(X_unlabeled=True))], transform_input=["X_unlabeled"]).fit(X, y, X_unlabeled=rows). Or put '
        "all rows into X, and mark the unlabelled ones in y"
    )
    return True


def _moments(rows: Rows) -> tuple[Array, Array]:
    """Mean and standard deviation of each column."""
    if sparse.issparse(rows):
        mean, variance = mean_variance_axis(sparse.csr_matrix(rows, dtype=np.float64), axis=0)
        return mean, np.sqrt(variance)
    return rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)


def _differences(mean_l: Array, spread_l: Array, mean: Array, spread: Array) -> Array:
    """By how much each column differs; not at all if it is constant among all rows."""
    largest = np.maximum(spread_l, spread)
    shift = np.divide(np.abs(mean_l - mean), largest, out=np.zeros_like(mean), where=largest > 0)
    varies = (spread_l > 0) & (spread > 0)
    ratio = np.divide(spread_l, spread, out=np.ones_like(mean), where=varies)
    return np.asarray(np.maximum(shift, np.abs(np.log(ratio))))

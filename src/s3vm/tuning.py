"""C and the kernel's width, by cross-validation of the supervised SVM on the labelled rows."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from s3vm._typing import Array, Rows
from s3vm.kernels import Kernel
from s3vm.models import winners
from s3vm.solvers.supervised import labelled_gram, supervised

__all__ = ["tune"]


def tune(
    kernel: Kernel,
    rows: Rows,
    targets: Array,
    codes: Array,
    cost: Array,
    folds: Array,
    Cs: Sequence[float],
    factors: Sequence[float],
) -> tuple[float, Kernel, Array]:
    """The cell of the grid `Cs` times ``factors * kernel.width`` with the fewest errors on held-out rows.

    Of cells with equally few, the one nearest to the middle of the grid, in steps of the logarithm. `cost` is the cost
    of each row at C = 1, `folds` their folds.

    Returns
    -------
    C : float
    kernel : Kernel
        With the chosen width.
    errors : array of shape (len(Cs), len(factors))
    """
    n_folds, n_outputs = int(folds.max()) + 1, targets.shape[1]
    kept = np.repeat(folds[:, None] != np.arange(n_folds), n_outputs, axis=1)
    everyone = np.arange(len(codes))
    errors = np.empty((len(Cs), len(factors)))
    for j, factor in enumerate(factors):
        gram = labelled_gram(replace(kernel, gamma=factor * kernel.width), rows)
        for i, C in enumerate(Cs):
            dual, intercept = supervised(gram, np.tile(targets, n_folds), C * cost[:, None] * kept)
            scores = (gram @ dual + intercept).reshape(len(codes), n_folds, n_outputs)[everyone, folds]
            errors[i, j] = np.average(winners(scores) != codes, weights=cost)
    away = np.abs(np.log(Cs) - np.median(np.log(Cs)))[:, None] + np.abs(np.log(factors))
    i, j = np.unravel_index(np.lexsort((away.ravel(), errors.ravel()))[0], errors.shape)
    return float(Cs[i]), replace(kernel, gamma=factors[j] * kernel.width), errors

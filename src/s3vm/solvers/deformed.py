"""The kernel deformed by a graph: with it, an SVM minimises the norm and the graph term together.

With the kernel matrix K of all rows and ``M = L / n``, the function and the intercept b that minimise

    ``||f||^2 / 2 + c/2 (f + b)'M(f + b) - p'(f + b)``

have the values ``K^ p`` at the rows, where ``K^ = G + ee' / h`` with ``G = (1 + c K M)^-1 K``, ``e = 1 - c G M 1`` and
``h = c 1'M e``; the minimum is ``-p'K^ p / 2`` (Sindhwani, Niyogi and Belkin 2005, with an intercept that costs nothing
but its roughness). So K^ takes the place of the kernel in any dual problem, which then has no intercept.
"""

from typing import Any

import numpy as np
from scipy.linalg import solve

from s3vm._utils.typing import Array, Rows
from s3vm.kernels import Kernel
from s3vm.solvers.gram import Gram

_LEAST = 1e-8  # h where constants are perfectly smooth


def deformed(K: Array, form: Any, cost: float) -> Array:
    """``G = (1 + cost K M)^-1 K``, a symmetric matrix."""
    matrix = ((cost * form) @ K).T
    matrix.flat[:: len(K) + 1] += 1.0
    G = solve(matrix, K.T, overwrite_a=True, check_finite=False)
    del matrix
    G = G + G.T  # equal but for rounding
    G /= 2
    return np.ascontiguousarray(G)


class DeformedKernel:
    """The deformed kernel matrix as a `Gram` for SMO: of all rows, of their mean if wanted, and one zero row.

    SMO keeps the sum of its coefficients at 0, and has an intercept. The last variable has no bounds and a kernel of 0:
    it takes up any sum, and its condition is that the intercept is 0.
    """

    def __init__(self, kernel: Kernel, rows: Rows, form: Any, cost: float, mean_of: slice | None) -> None:
        n = int(rows.shape[0])
        self._form, self._cost, self._mean_of = form, cost, mean_of
        K = Gram(kernel, rows, 8 * n**2, np.float64).whole
        assert K is not None
        G = deformed(K, form, cost)
        del K
        bent = cost * form.sum(axis=1)
        self._e = 1 - G @ bent
        self._h = max(float(bent @ self._e), _LEAST)
        whole = np.zeros((n + 1 + (mean_of is not None), n + 1 + (mean_of is not None)))
        whole[:n, :n] = G
        whole[:n, :n] += np.outer(self._e, self._e / self._h)
        if mean_of is not None:
            mean = whole[:n, mean_of].mean(axis=1)
            whole[n, :n] = whole[:n, n] = mean
            whole[n, n] = mean[mean_of].mean()
        self.gram = Gram.of_matrix(whole)

    def function(self, a: Array, scores: Array) -> tuple[Array, float]:
        """The weights of the rows' own kernel functions, and the intercept, of SMO's solution with these scores."""
        n = len(scores)
        pull = a[:n].copy()
        if self._mean_of is not None:
            pull[self._mean_of] += a[n] / (self._mean_of.stop - self._mean_of.start)
        return pull - self._cost * (self._form @ scores), float(self._e @ pull) / self._h

"""What the backends that compute with NumPy arrays have in common."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from s3vm._utils.blas import one_blas_thread
from s3vm._utils.distances import PANEL, by_panels
from s3vm._utils.machine import machine_memory
from s3vm._utils.typing import Array, Rows
from s3vm.kernels import Kernel

_PANELS = 4  # whose rows meet the centres together, since Python runs one thread at a time between their products,
_CENTERS = 8192  # so many of them,
_PANEL_ENTRIES = 1 << 22  # and fewer of either if they have very many columns

_Loss = TypeVar("_Loss")


class NumpyBackend:
    """Arrays stay what and where they are; kernel expansions are summed a panel of rows at a time."""

    n_threads: int

    def memory(self) -> int:
        return machine_memory()

    def used(self) -> str:
        return ""

    def put(self, x: Any) -> Any:
        return x

    def gram(self, kernel: Kernel, X: Rows, Z: Rows) -> Array:
        return kernel.gram(X, Z)

    def loss(self, loss: _Loss) -> _Loss:
        return loss

    def expansion(self, kernel: Kernel, centers: Rows, weights: Array, X: Rows) -> Array:
        scores, n_dims = np.zeros((X.shape[0], weights.shape[1])), int(X.shape[1])
        size = min(PANEL, max(1, _PANEL_ENTRIES // n_dims))
        at_once = _PANELS * size if size == PANEL else size
        most = _CENTERS if sparse.issparse(centers) else min(_CENTERS, max(1, _PANEL_ENTRIES // n_dims))

        def add(start: int) -> None:
            part = slice(start, min(start + at_once, X.shape[0]))
            with np.errstate(over="ignore", invalid="ignore"):  # the caller sees scores that are not finite
                gram = kernel.gram(_panels(X[part], size), some)
                scores[part] += by_panels(gram, weights[group])[: part.stop - start]

        starts = range(0, X.shape[0], at_once)
        # Products are small: threads of the BLAS would wait for each other longer than they work.
        with one_blas_thread, ThreadPoolExecutor(self.n_threads) as pool:
            for first in range(0, len(weights), most):
                group = slice(first, first + most)
                some = centers[group].astype(np.float64)
                list((map if self.n_threads == 1 or len(starts) == 1 else pool.map)(add, starts))
        return scores


def _panels(rows: Rows, size: int) -> Rows:
    """Rows in float64, padded with zeros to whole panels: every product then has the same shape, and the score of a row
    does not depend on the other rows."""
    if sparse.issparse(rows):
        return rows.astype(np.float64)
    panels = np.zeros((size * -(-rows.shape[0] // size), rows.shape[1]))
    panels[: len(rows)] = rows
    return panels

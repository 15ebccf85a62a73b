"""Rows of an array in memory."""

import os
from typing import Any

import numpy as np
from scipy import sparse

from s3vm import philox
from s3vm._utils.arrays import as_rows, is_tensor, namespace
from s3vm._utils.input_checks import RowsError, precision
from s3vm._utils.typing import Array, Rows
from s3vm.philox import Purpose


class ArraySource:
    """Chosen rows of an array, a CSR matrix or a tensor, which is not copied; only drawn rows are copied and cast.

    Parameters
    ----------
    X : array, CSR matrix or tensor of shape (n, d)
    chosen : array of row numbers, or None for all rows
    dtype : dtype of the drawn rows
    """

    def __init__(self, X: Any, chosen: Array | None = None, dtype: Any = np.float32) -> None:
        if len(getattr(X, "shape", ())) != 2 or (sparse.issparse(X) and X.format != "csr") or hasattr(X, "columns"):
            kind = f"a {type(X).__name__} of shape {getattr(X, 'shape', '?')}"
            raise ValueError(f"an ArraySource needs an array, a CSR matrix or a tensor of shape (n, d), not {kind}")
        if chosen is not None:
            chosen = np.asarray(chosen)
            are_integers = chosen.ndim == 1 and chosen.dtype.kind in "iu"
            if not are_integers or (len(chosen) and not 0 <= chosen.min() <= chosen.max() < X.shape[0]):
                raise ValueError(
                    f"chosen must hold row numbers from 0 to {X.shape[0] - 1}: for a mask, give np.flatnonzero(mask)"
                )
        self.X, self.chosen, self.dtype = X, chosen, precision(dtype)
        self.n_rows = int(X.shape[0] if chosen is None else len(chosen))
        self.n_dims = int(X.shape[1])
        self._map = _map_of(X)

    def take(self, positions: Any) -> Rows:
        """The rows at these positions (an index array or a slice)."""
        if self._map is not None:
            _check_map(self._map)
        if self.chosen is not None:
            positions = self.chosen[positions]
        if is_tensor(self.X) and not isinstance(positions, slice):
            positions = namespace(self.X).as_tensor(positions, device=self.X.device)
        return as_rows(self.X[positions], self.dtype)

    def batches(self, seed: int, stream: Purpose, steps: range, size: int) -> Rows:
        return self.take(philox.indices(seed, stream, steps, size, self.n_rows).ravel())

    def sample(self, seed: int, size: int) -> Rows:
        if self.n_rows <= size:
            return self.take(slice(None))
        return self.take(philox.distinct(seed, Purpose.REFERENCE, 0, size, self.n_rows))


def _map_of(X: Any) -> np.memmap[Any, Any] | None:
    """The memory map that an array is, or is a view of."""
    while X is not None and not isinstance(X, np.memmap):
        X = getattr(X, "base", None)
    return X


def _check_map(mapped: np.memmap[Any, Any]) -> None:
    """Raises an error if the file has become shorter: reading beyond its end would kill the process."""
    name = mapped.filename
    if name is None or not os.path.exists(name):  # the system keeps a deleted file as long as it is mapped
        return
    missing = mapped.offset + mapped.nbytes - os.path.getsize(name)
    if missing > 0:
        raise RowsError(f"{name} has become shorter while its rows were read: {missing:,} bytes are missing at its end")

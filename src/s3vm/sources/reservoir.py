"""Rows that arrive over time and are not kept."""

from typing import Any

import numpy as np

from s3vm import philox
from s3vm._utils.arrays import as_rows, stack
from s3vm._utils.typing import Array, Rows
from s3vm.philox import Purpose

__all__ = ["Reservoir", "ReservoirSource"]


class Reservoir:
    """A random sample of the rows that pass, each of which is in it with the same chance.

    A number is drawn for the place of every row, and the rows with the smallest numbers stay.
    """

    def __init__(self, size: int) -> None:
        self._size, self._limit, self._waiting = size, 1 << 32, 0
        self._parts: list[Rows] = []
        self._numbers: list[Array] = []

    def add(self, rows: Rows, first: int) -> None:
        """Rows of which the first is number `first` of all; it may be any number that was not there before."""
        block, at = divmod(first, 1 << 32)
        numbers = philox.words(at, Purpose.REFERENCE, block & 0xFFFFFFFF, 1, rows.shape[0])[0]
        small = np.flatnonzero(numbers < self._limit)
        self._parts.append(rows[small])
        self._numbers.append(numbers[small])
        self._waiting += len(small)
        if self._waiting > 2 * self._size:
            self._sift()

    def rows(self) -> Rows:
        """The sample, in random order."""
        self._sift()
        return self._parts[0]

    def _sift(self) -> None:
        numbers = np.concatenate(self._numbers)
        chosen = np.argsort(numbers, kind="stable")[: self._size]
        self._parts, self._numbers = [stack(self._parts)[chosen]], [numbers[chosen]]
        if len(chosen) == self._size:
            self._limit = int(numbers[chosen[-1]])
        self._waiting = len(chosen)


class ReservoirSource:
    """A source of the newest rows, and of a sample of all that have come.

    Parameters
    ----------
    size : int
        Rows of the sample.
    dtype : dtype of the rows
    """

    def __init__(self, size: int, dtype: Any = np.float32) -> None:
        self._kept, self._dtype, self._new, self._n_rows = Reservoir(size), np.dtype(dtype), None, 0

    @property
    def n_rows(self) -> int:
        return self._n_rows

    @property
    def n_dims(self) -> int:
        return int(self._kept.rows().shape[1])

    @property
    def n_new(self) -> int:
        return 0 if self._new is None else int(self._new.shape[0])

    def add(self, rows: Any) -> None:
        """Rows that have come now; those before are forgotten but for the sample."""
        rows = as_rows(rows, self._dtype)
        self._new = None
        if rows.shape[0]:
            self._kept.add(rows, self._n_rows)
            self._new, self._n_rows = rows, self._n_rows + rows.shape[0]

    def release(self) -> None:
        """Forgets the newest rows."""
        self._new = None

    def batches(self, seed: int, stream: Purpose, steps: range, size: int) -> Rows:
        rows = self._kept.rows() if self._new is None else self._new
        return rows[philox.indices(seed, stream, steps, size, rows.shape[0]).ravel()]

    def sample(self, seed: int, size: int) -> Rows:
        return self._kept.rows()[:size]

"""Rows that arrive over time and are not kept."""

from typing import Any

import numpy as np

from s3vm import philox
from s3vm._utils.arrays import as_rows, project, stack
from s3vm._utils.typing import Array, Rows
from s3vm.philox import Purpose


class Reservoir:
    """A random sample of a stream of rows, each with the same probability of being in it.

    A number is drawn for the position of every row, and the rows with the smallest numbers stay.
    """

    def __init__(self, size: int) -> None:
        self._size, self._limit, self._waiting = size, 1 << 32, 0
        self._parts: list[Rows] = []
        self._numbers: list[Array] = []

    def add(self, rows: Rows, first: int) -> None:
        """Adds rows; the first has number `first` in the stream, where each number may be used once."""
        block, at = divmod(first, 1 << 32)
        numbers = philox.words(at, Purpose.REFERENCE, block & 0xFFFFFFFF, 1, rows.shape[0])[0]
        small = np.flatnonzero(numbers < self._limit)
        self._parts.append(rows[small])
        self._numbers.append(numbers[small])
        self._waiting += len(small)
        if self._waiting > 2 * self._size:
            self._prune()

    def rows(self) -> Rows:
        """The sample, in random order."""
        self._prune()
        return self._parts[0]

    def _prune(self) -> None:
        """Drops all rows but those with the smallest numbers."""
        numbers = np.concatenate(self._numbers)
        chosen = np.argsort(numbers, kind="stable")[: self._size]
        self._parts, self._numbers = [stack(self._parts)[chosen]], [numbers[chosen]]
        if len(chosen) == self._size:
            self._limit = int(numbers[chosen[-1]])
        self._waiting = len(chosen)


class ReservoirSource:
    """A source of the newest rows, and of a sample of `size` of all rows so far."""

    def __init__(self, size: int, dtype: Any = np.float32) -> None:
        self._reservoir, self._dtype, self._new, self.n_rows = Reservoir(size), np.dtype(dtype), None, 0
        self._directions: Array | None = None

    @property
    def n_dims(self) -> int:
        return int(self._reservoir.rows().shape[1] if self._directions is None else self._directions.shape[1])

    @property
    def n_new(self) -> int:
        return 0 if self._new is None else int(self._new.shape[0])

    def add(self, rows: Any) -> None:
        """Adds rows, which replace the newest ones; earlier rows remain only in the sample."""
        rows = as_rows(rows, self._dtype)
        self._new = None
        if rows.shape[0]:
            self._reservoir.add(rows, self.n_rows)
            self._new, self.n_rows = rows, self.n_rows + rows.shape[0]

    def project(self, directions: Array) -> None:
        """Gives rows on these directions from now on; they come and stay as they are."""
        self._directions = directions

    def release(self) -> None:
        """Releases the newest rows."""
        self._new = None

    def batches(self, seed: int, stream: Purpose, steps: range, size: int) -> Rows:
        rows = self._reservoir.rows() if self._new is None else self._new
        return project(rows[philox.indices(seed, stream, steps, size, rows.shape[0]).ravel()], self._directions)

    def sample(self, seed: int, size: int) -> Rows:
        return project(self._reservoir.rows()[:size], self._directions)

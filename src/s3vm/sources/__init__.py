"""Where rows come from. A source yields batches and knows nothing of models.

Arrays are here; `s3vm.sources.streams` has rows that come one after the other, `s3vm.sources.files` those of files.
"""

import sys
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from scipy import sparse

from s3vm import philox
from s3vm._errors import RowsError
from s3vm._typing import Array, Rows
from s3vm.arrays import cast, is_tensor, namespace, precision
from s3vm.philox import Stream

if TYPE_CHECKING:
    from s3vm.solvers.pull import Point, Pull, Puller

__all__ = [
    "ENDLESS",
    "ArraySource",
    "ExhaustedError",
    "RemoteSource",
    "Source",
    "as_rows",
    "is_source",
    "row_bytes",
    "stack",
]

ENDLESS = sys.maxsize
"""The number of rows of a source that nobody has counted."""


class ExhaustedError(RowsError):
    """A source that cannot begin again has no more rows."""


class Source(Protocol):
    """Rows from the distribution P(x). The same seed and step always give the same batch."""

    @property
    def n_rows(self) -> int:
        """How many there are, or `ENDLESS`."""
        ...

    @property
    def n_dims(self) -> int: ...

    def batches(self, seed: int, stream: Stream, steps: range, size: int) -> Rows:
        """For each step, `size` rows drawn at random; the batches one below the other.

        Rows of an array are drawn with replacement. A stream gives every row once before it gives one again.
        """
        ...

    def sample(self, seed: int, size: int) -> Rows:
        """A fixed sample that stands for all rows: `size` of them, or every row if there are no more."""
        ...


@runtime_checkable
class RemoteSource(Source, Protocol):
    """A source whose rows stay where they are: the work goes to them, and sums over a batch come back."""

    def pull(self, puller: "Puller", seed: int, stream: Stream, steps: range, size: int, point: "Point") -> "Pull":
        """What `puller` makes of the batch that `batches` would give."""
        ...


def is_source(thing: Any) -> bool:
    """Whether this is a source of rows; it is not asked how many they are, which may take a while."""
    return all(callable(getattr(type(thing), name, None)) for name in ("batches", "sample"))


class ArraySource:
    """Chosen rows of an array, a CSR matrix or a tensor that stays as it is; only drawn rows are copied and cast.

    Parameters
    ----------
    X : array, CSR matrix or tensor of shape (n, d)
    chosen : array of row numbers, or None for all rows
    dtype : dtype of the rows handed out
    """

    def __init__(self, X: Any, chosen: Array | None = None, dtype: Any = np.float32) -> None:
        if len(getattr(X, "shape", ())) != 2 or (sparse.issparse(X) and X.format != "csr") or hasattr(X, "columns"):
            kind = f"a {type(X).__name__} of shape {getattr(X, 'shape', '?')}"
            raise ValueError(f"an ArraySource needs an array, a CSR matrix or a tensor of shape (n, d), not {kind}")
        if chosen is not None:
            chosen = np.asarray(chosen)
            whole = chosen.ndim == 1 and chosen.dtype.kind in "iu"
            if not whole or (len(chosen) and not 0 <= chosen.min() <= chosen.max() < X.shape[0]):
                raise ValueError(
                    f"chosen must be numbers of some of the {X.shape[0]} rows, counted from 0; np.flatnonzero(mask) "
                    "makes them of a mask"
                )
        self.X = X
        self.chosen = chosen
        self._dtype = precision(dtype)

    @property
    def dtype(self) -> Any:
        return self._dtype

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0] if self.chosen is None else len(self.chosen))

    @property
    def n_dims(self) -> int:
        return int(self.X.shape[1])

    def take(self, positions: Any) -> Rows:
        """The rows at those positions (an index array or a slice)."""
        if self.chosen is not None:
            positions = self.chosen[positions]
        if is_tensor(self.X) and not isinstance(positions, slice):
            positions = namespace(self.X).as_tensor(positions, device=self.X.device)
        return as_rows(self.X[positions], self._dtype)

    def batches(self, seed: int, stream: Stream, steps: range, size: int) -> Rows:
        return self.take(philox.indices(seed, stream, steps, size, self.n_rows).ravel())

    def sample(self, seed: int, size: int) -> Rows:
        return self.take(slice(None)) if self.n_rows <= size else self.batches(seed, Stream.REFERENCE, range(1), size)


def as_rows(X: Any, dtype: Any) -> Rows:
    """`X` as `Rows`: cast and made contiguous only where it has to be."""
    if sparse.issparse(X):
        return sparse.csr_array(X, dtype=dtype)
    if is_tensor(X):
        return cast(X, getattr(namespace(X), np.dtype(dtype).name)).contiguous()
    return np.ascontiguousarray(X, dtype=dtype)


def row_bytes(rows: Rows) -> float:
    """About how many bytes a row like these takes in float64."""
    return 12 * rows.nnz / max(1, rows.shape[0]) if sparse.issparse(rows) else 8.0 * rows.shape[1]


def stack(parts: list[Rows]) -> Rows:
    """Rows below rows, sparse if any are."""
    if is_tensor(parts[0]):
        return namespace(parts[0]).concatenate(parts)
    if not any(map(sparse.issparse, parts)):
        return np.concatenate(parts)
    return sparse.vstack([part if sparse.issparse(part) else sparse.csr_array(part) for part in parts], format="csr")

"""What a source of rows is."""

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from s3vm._utils.input_checks import RowsError
from s3vm._utils.typing import Rows
from s3vm.philox import Purpose

if TYPE_CHECKING:
    from s3vm.solvers.tsg.batch_gradient import BatchGradient, BatchGradientWorker, Iterate

ENDLESS = sys.maxsize
"""The number of rows of a source whose rows have not been counted."""

_Part = TypeVar("_Part")


class ExhaustedError(RowsError):
    """A source that can be read only once has no more rows."""


class Chunk(NamedTuple, Generic[_Part]):
    """Rows that can be read without the others."""

    n_rows: int | None  # None if unknown before they are read
    read: Callable[[], Iterator[_Part]]  # some at a time


class Source(Protocol):
    """Rows from the distribution P(x). The same seed and step always give the same batch."""

    @property
    def n_rows(self) -> int:
        """The number of rows, or `ENDLESS`."""
        ...

    @property
    def n_dims(self) -> int: ...

    def batches(self, seed: int, stream: Purpose, steps: range, size: int) -> Rows:
        """For each step, a batch of `size` random rows; all batches stacked.

        Rows of an array are drawn with replacement. A stream yields every row once before it repeats one.
        """
        ...

    def sample(self, seed: int, size: int) -> Rows:
        """A fixed sample that represents all rows: `size` of them, or all if there are fewer."""
        ...


@runtime_checkable
class RemoteSource(Source, Protocol):
    """A source whose rows stay where they are: the work is sent to them, and sums over a batch come back."""

    def pull(
        self, worker: "BatchGradientWorker", seed: int, stream: Purpose, steps: range, size: int, iterate: "Iterate"
    ) -> "BatchGradient":
        """What `worker` computes from the batch that `batches` would give."""
        ...


def is_source(candidate: Any) -> bool:
    """Whether this is a source of rows. Its rows are not counted, which may take a while."""
    return all(callable(getattr(type(candidate), name, None)) for name in ("batches", "sample"))

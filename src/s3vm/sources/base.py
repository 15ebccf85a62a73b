"""What a source of rows is."""

import sys
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from s3vm._utils.errors import RowsError
from s3vm._utils.typing import Rows
from s3vm.philox import Purpose

if TYPE_CHECKING:
    from s3vm.solvers.tsg.batch_gradient import BatchGradient, BatchGradientWorker, Iterate

__all__ = [
    "ENDLESS",
    "ExhaustedError",
    "RemoteSource",
    "Source",
    "is_source",
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

    def batches(self, seed: int, stream: Purpose, steps: range, size: int) -> Rows:
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

    def pull(
        self, puller: "BatchGradientWorker", seed: int, stream: Purpose, steps: range, size: int, point: "Iterate"
    ) -> "BatchGradient":
        """What `puller` makes of the batch that `batches` would give."""
        ...


def is_source(thing: Any) -> bool:
    """Whether this is a source of rows; it is not asked how many they are, which may take a while."""
    return all(callable(getattr(type(thing), name, None)) for name in ("batches", "sample"))

"""Tables read whole, or a sample of them: as rows of numbers, or column by column."""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from s3vm._utils.typing import Array, Rows
from s3vm.sources.readers.errors import TableError
from s3vm.sources.readers.labels import of_one_kind
from s3vm.sources.readers.table import concatenated, stream

_PLANNED = 16  # parts of a table that its columns are sampled from


class Table(NamedTuple):
    """A whole table.

    Attributes
    ----------
    rows : float array or CSR matrix of shape (n, d)
    labels : array of n objects, or None if none were asked for
        All of one kind, integers where possible; None where there is no label.
    names : names of the features, or None if the file has none
    zero_based : as in `TableStream`
    """

    rows: Rows
    labels: Array | None
    names: list[str] | None
    zero_based: bool | None = None


def read(
    path: Any,
    target: str | None = None,
    features: Sequence[str] | int | None = None,
    *,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> Table:
    """A whole file or folder; `progress` is called with the number of rows read, `options` are those of `stream`."""
    source = stream(path, target, features, size=sys.maxsize, **options)
    batches, n_rows = [], 0
    for batch in source.unchecked():
        batches.append(batch)
        n_rows += batch.rows.shape[0]
        if progress is not None:
            progress(n_rows)
    if not n_rows:
        raise TableError(f"{path} has no rows")
    whole = concatenated(batches)
    del batches  # as large as the table
    source.check_finite(whole.rows, 1)
    source.warn_of_lost_digits(whole.rows)
    labels = None if whole.labels is None else of_one_kind(whole.labels)
    return Table(whole.rows, labels, source.names, source.zero_based)


def read_columns(
    path: Any,
    target: str | None = None,
    features: Sequence[str] | None = None,
    *,
    drop: Iterable[str] = (),
    mark: Iterable[str] = (),
    most: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[dict[str, Any], Array | None]:
    """The columns of a csv or Parquet file, or of a folder of them, as they are, and the labels.

    Of at most `most` rows, if that is given: some from the start of each of up to 16 parts, spread over the whole.
    """
    names = stream(path, target, features, drop=drop, mark=mark, encode=_no_rows).names
    assert names is not None
    source = stream(path, target, names, keep=names, mark=mark, encode=_no_rows)
    batches, n_rows, chunks = [], 0, list(source.chunks)
    if most is not None:
        chunks = [
            chunks[at] for at in np.unique(np.linspace(0, len(chunks) - 1, min(len(chunks), _PLANNED)).astype(int))
        ]
    for number, chunk in enumerate(chunks):
        for batch in chunk.read():
            batches.append(batch)
            n_rows += batch.rows.shape[0]
            progress(n_rows)
            if most is not None and n_rows * len(chunks) >= most * (number + 1):
                break
    if not n_rows:
        raise TableError(f"{path} has no rows")
    whole = concatenated(batches)
    return whole.passed_through, None if whole.labels is None else of_one_kind(whole.labels)


def _no_rows(columns: Any) -> Rows:
    return np.empty((len(next(iter(columns.values()))), 0), np.float32)

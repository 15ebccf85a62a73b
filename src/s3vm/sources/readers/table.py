"""Tables: a file or the files of a folder, as a stream of batches or read whole."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from s3vm._utils.input_checks import check_size
from s3vm._utils.typing import Array, Rows
from s3vm._utils.warn import warn
from s3vm.sources.base import Chunk
from s3vm.sources.readers.base import MatrixFile, TabularFile
from s3vm.sources.readers.chunks import Batch, concatenated, grouped, matrix_chunks, tabular_chunks
from s3vm.sources.readers.columns import Columns, feature_names
from s3vm.sources.readers.errors import TableError, listed
from s3vm.sources.readers.formats import files_of, open_file
from s3vm.sources.readers.labels import USUAL_MARKS, of_one_kind

__all__ = ["MissingValues", "Table", "TableStream", "read", "stream"]


class Table(NamedTuple):
    """A whole table.

    Attributes
    ----------
    rows : float array or CSR matrix of shape (n, d)
    labels : array of n objects, or None if none were asked for
        All of one kind, integers where possible; None where there is no label.
    names : names of the features, or None if the file has none
    """

    rows: Rows
    labels: Array | None
    names: list[str] | None


class MissingValues:
    """Values that are missing or infinite: how many each column has, and where the first one is."""

    def __init__(self) -> None:
        self.counts = Counter[int]()  # of columns that have any: columns may be very many
        self.first: tuple[int, int] | None = None

    def count(self, rows: Rows, first: int) -> None:
        """Counts those of some rows, the first of which has number `first`."""
        finite = np.isfinite(rows.data if sparse.issparse(rows) else rows)
        if finite.all():
            return
        at, columns = np.nonzero(~finite) if not sparse.issparse(rows) else _places(rows, np.flatnonzero(~finite))
        self.counts.update(columns.tolist())
        if self.first is None:
            self.first = first + int(at[0]), int(columns[0])


def _places(rows: Rows, entries: Array) -> tuple[Array, Array]:
    """The rows and columns of entries of a CSR matrix."""
    return np.searchsorted(rows.indptr, entries, side="right") - 1, rows.indices[entries]


@dataclass(frozen=True)
class TableStream:
    """The batches of a file, or of all files of a folder, read again by each iteration.

    Attributes
    ----------
    path : str
    names : names of the features, or None if the file has none
    chunks : the parts that can be read alone, in order
    size : rows of a batch
    """

    path: str
    names: list[str] | None
    chunks: Sequence[Chunk[Batch]]
    size: int

    @property
    def n_rows(self) -> int | None:
        """The number of rows, or None if only reading them tells."""
        counts = [chunk.n_rows for chunk in self.chunks if chunk.n_rows is not None]
        return sum(counts) if len(counts) == len(self.chunks) else None

    def unchecked(self) -> Iterator[Batch]:
        """The rows in batches as the files give them, unchecked."""
        return chain.from_iterable(chunk.read() for chunk in self.chunks)

    def __iter__(self) -> Iterator[Batch]:
        first = 1
        for batch in grouped(self.unchecked(), self.size):
            self.check(batch.rows, first)
            yield batch
            first += batch.rows.shape[0]
        if first == 1:
            raise TableError(f"{self.path} has no rows")

    def check(self, rows: Rows, first: int, of: str = "") -> None:
        """Raises a TableError if any of these rows has missing, infinite or huge values.

        The first of them has number `first` of the whole table, or of the part that `of` names.
        """
        missing = MissingValues()
        missing.count(rows, first)
        self.refuse(missing, of)
        try:
            check_size(rows.data if sparse.issparse(rows) else rows, rows.dtype)
        except ValueError as problem:
            raise TableError(f"{self.path}: {problem}") from None

    def refuse(self, missing: MissingValues, of: str = "") -> None:
        """Raises a TableError if there are values that are missing or infinite."""
        if missing.first is None:
            return
        row, column = missing.first
        names = {at: str(at + 1) if self.names is None else self.names[at] for at in missing.counts}
        columns = listed([f"{names[at]!r} {count:,}" for at, count in sorted(missing.counts.items())])
        raise TableError(
            f"{self.path}: values are missing or infinite, the first in row {row:,}{of}, column {names[column]!r}; by "
            f"column: {columns}. Fill them in, or leave out those rows or columns"
        )

    def warn_of_lost_digits(self, rows: Rows) -> None:
        """Warns of columns whose values differ beyond the precision of float32, such as times in seconds."""
        if sparse.issparse(rows) or rows.dtype != np.float32 or not len(rows):
            return
        low, high = rows.min(axis=0), rows.max(axis=0)
        size = np.maximum(abs(low), abs(high))
        at = np.flatnonzero((size >= 2.0**24) & (high - low <= size * 2.0**-20))
        if len(at):
            names = self.names or [str(number + 1) for number in range(rows.shape[1])]
            warn(
                f"{self.path}: values of {listed([repr(names[column]) for column in at])} are so large that their "
                "differences are lost in float32: subtract a constant from them first"
            )


def stream(
    path: Any,
    target: str | None = None,
    features: Sequence[str] | int | None = None,
    *,
    drop: Iterable[str] = (),
    keep: Iterable[str] = (),
    mark: Iterable[str] = (),
    encode: Iterable[str] = (),
    size: int = 1 << 16,
    dtype: Any = np.float32,
    pieces: bool = False,
    file_format: str | None = None,
    header: bool | None = True,
) -> TableStream:
    """A file, or all files of a folder and below, as batches of `size` rows or a few more.

    Parameters
    ----------
    path : str, path or list of them
        ``.csv`` or ``.tsv``, ``.parquet``, ``.svmlight`` (``.libsvm``, ``.svm``), ``.npz`` with the array `X`, or the
        parts of a CSR matrix, and `y`; ``.npy``. Text and npz files may be compressed (``.csv.gz``, ``.bz2``, ``.xz``).
    target : the column of labels, or None; any name will do for svmlight files
    features : names of columns, in this order, or how many there must be; None takes all that have a name
        A feature ``"city=Bonn"`` is 1 where the column `city` is `Bonn`, else 0.
    drop : names of columns that are not features
    keep : names of columns to pass through as they are
    mark : labels that mean "no label", besides empty cells, missing values, nan and null
        By default NA, N/A, n/a, None, none and ?, which are classes if others are given.
    encode : names of columns to make a feature of 0 and 1 of each of their values; all values are read first
    pieces : whether to read svmlight files in pieces, after reading them once to find the columns
    file_format : "csv", "parquet", "svmlight", "npz" or "npy"; None: by the name of the file
    header : whether the first line of a csv file has names; else they are f0, f1, ...; None: if no number is in it

    Raises
    ------
    TableError
        The message says what is wrong, where, and what to do.
    """
    marks = frozenset(mark) or USUAL_MARKS
    columns = Columns(target, features, list(drop), list(keep), list(encode), marks, dtype)
    paths = _checked_paths(path)
    name = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    files = [open_file(inside, file_format, header) for path in paths for inside in files_of(path)]
    names, chunks = _chunks(name, files, columns, size, pieces)
    return TableStream(name, names, chunks, size)


def _checked_paths(path: Any) -> list[str]:
    """The path, or each of several, as text."""
    paths = path if isinstance(path, list | tuple) else [path]
    if not paths or not all(isinstance(entry, str | os.PathLike) for entry in paths):
        raise TableError(f"{path!r} is not a path: give the name of a file or folder, or a list of them")
    return [os.fspath(entry) for entry in paths]


def _chunks(
    name: str, files: Sequence[TabularFile | MatrixFile], columns: Columns, size: int, pieces: bool
) -> tuple[list[str] | None, list[Chunk[Batch]]]:
    """The names of the features, and the parts of all files."""
    tabular = [file for file in files if isinstance(file, TabularFile)]
    matrices = [file for file in files if isinstance(file, MatrixFile)]
    if tabular and matrices:
        raise TableError(f"{name} mixes files with column names and files without: read them separately")
    if tabular:
        names = feature_names(tabular, columns)
        return names, tabular_chunks(tabular, columns, names)
    if columns.drop or columns.keep or columns.encode:
        raise TableError(f"{name}: the columns have no names, so none can be dropped, kept or encoded")
    return columns.feature_names, matrix_chunks(matrices, columns, size, pieces)


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
    batches, missing, n_rows = [], MissingValues(), 0
    for batch in source.unchecked():
        batches.append(batch)
        missing.count(batch.rows, n_rows + 1)
        n_rows += batch.rows.shape[0]
        if progress is not None:
            progress(n_rows)
    if not n_rows:
        raise TableError(f"{path} has no rows")
    source.refuse(missing)
    whole = concatenated(batches)
    source.warn_of_lost_digits(whole.rows)
    return Table(whole.rows, None if whole.labels is None else of_one_kind(whole.labels), source.names)

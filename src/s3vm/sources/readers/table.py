"""Tables: a file or the files of a folder, as a stream of batches or read whole."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from scipy import sparse

from s3vm._utils.arrays import as_rows, stack
from s3vm._utils.input_checks import check_size
from s3vm._utils.typing import Array, Rows
from s3vm._utils.warn import warn
from s3vm.sources.base import Chunk
from s3vm.sources.readers.columns import Columns, check_columns, feature_names
from s3vm.sources.readers.compression import is_compressed
from s3vm.sources.readers.errors import TableError, listed
from s3vm.sources.readers.labels import labels_of
from s3vm.sources.readers.matrices import MatrixFile, NpyFile, NpzFile, Piece, SvmlightFile, settle_columns
from s3vm.sources.readers.tabular import CsvFile, JsonFile, ParquetFile, TabularFile, is_utf8
from s3vm.sources.values import USUAL_MARKS

FORMATS: dict[str, type[TabularFile] | type[MatrixFile]] = {
    ".csv": CsvFile,
    ".tsv": CsvFile,
    ".parquet": ParquetFile,
    ".pq": ParquetFile,
    ".jsonl": JsonFile,
    ".ndjson": JsonFile,
    ".svmlight": SvmlightFile,
    ".libsvm": SvmlightFile,
    ".svm": SvmlightFile,
    ".npz": NpzFile,
    ".npy": NpyFile,
}


class Batch(NamedTuple):
    """Some rows of a table.

    Attributes
    ----------
    rows : float array or CSR matrix of shape (n, d)
    labels : array of n objects, or None if none were asked for
        As they are in the file, text or numbers; None where there is no label.
    passed_through : dict of name to pyarrow array
        The columns to `keep`, as they are.
    """

    rows: Rows
    labels: Array | None
    passed_through: dict[str, Any]


@dataclass(frozen=True)
class TableStream:
    """The batches of a file, or of all files of a folder, read again by each iteration.

    Attributes
    ----------
    path : str
    names : names of the features, or None if the file has none
    chunks : the parts that can be read alone, in order
    size : rows of a batch
    zero_based : whether columns of svmlight files are counted from 0, or None if there are no such files
    """

    path: str
    names: list[str] | None
    chunks: Sequence[Chunk[Batch]]
    size: int
    zero_based: bool | None = None

    @property
    def n_rows(self) -> int | None:
        """The number of rows, or None if unknown before they are read."""
        counts = [chunk.n_rows for chunk in self.chunks if chunk.n_rows is not None]
        return sum(counts) if len(counts) == len(self.chunks) else None

    def unchecked(self) -> Iterator[Batch]:
        """The rows in batches as the files give them, unchecked."""
        return chain.from_iterable(chunk.read() for chunk in self.chunks)

    def __iter__(self) -> Iterator[Batch]:
        first = 1
        for batch in _grouped(self.unchecked(), self.size):
            self.check(batch.rows, first)
            yield batch
            first += batch.rows.shape[0]
        if first == 1:
            raise TableError(f"{self.path} has no rows")

    def check(self, rows: Rows, first: int, of: str = "") -> None:
        """Raises a TableError if any of these rows has missing, infinite or huge values.

        The first of them has number `first` of the whole table, or of the part that `of` names.
        """
        self.check_finite(rows, first, of)
        try:
            check_size(rows.data if sparse.issparse(rows) else rows, rows.dtype)
        except ValueError as problem:
            raise TableError(f"{self.path}: {problem}") from None

    def check_finite(self, rows: Rows, first: int, of: str = "") -> None:
        """Raises a TableError if any of these rows has missing or infinite values."""
        is_missing = ~np.isfinite(rows.data if sparse.issparse(rows) else rows)
        if not is_missing.any():
            return
        if sparse.issparse(rows):
            entries = np.flatnonzero(is_missing)
            at, columns = np.searchsorted(rows.indptr, entries, side="right") - 1, rows.indices[entries]
        else:
            at, columns = np.nonzero(is_missing)
        different, counts = np.unique(columns, return_counts=True)
        names = {k: repr(str(k + 1) if self.names is None else self.names[k]) for k in different.tolist()}
        by_column = listed([f"{name} {count:,}" for name, count in zip(names.values(), counts, strict=True)])
        raise TableError(
            f"{self.path}: values are missing or infinite, the first in row {first + at[0]:,}{of}, column "
            f"{names[int(columns[0])]}; by column: {by_column}. Fill them in, or leave out those rows or columns"
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
    encode: Callable[[Any], Rows] | None = None,
    size: int = 1 << 16,
    dtype: Any = np.float32,
    file_format: str | None = None,
    zero_based: bool | None = None,
) -> TableStream:
    """A file, or all files of a folder and below, as batches of `size` rows or a few more.

    Parameters
    ----------
    path : str, path or list of them
        ``.csv`` or ``.tsv``, ``.parquet``, ``.jsonl`` or ``.ndjson``, ``.svmlight`` (``.libsvm``, ``.svm``), ``.npz``
        with the array `X`, or the parts of a CSR matrix, and `y`; ``.npy``. Text and npz files may be compressed
        (``.csv.gz``, ``.bz2``, ``.xz``).
    target : the column of labels, or None; any name will do for svmlight files
    features : names of columns, in this order, or how many there must be; None takes all that have a name
    drop : names of columns that are not features
    keep : names of columns to pass through as they are
    mark : labels that mean "no label", besides empty cells, missing values, nan and null
        By default NA, N/A, n/a, None, none and ?, which are classes if others are given.
    encode : function that makes rows of a dict of columns, which may hold anything, or of a matrix, such as
        ``partial(encoder.encode, misfits=Misfits())`` of a fitted `s3vm.TableEncoder`; None: columns hold numbers
    file_format : "csv", "parquet", "jsonl", "svmlight", "npz" or "npy"; None: by the name of the file
    zero_based : whether columns of svmlight files are counted from 0; None: if any of the files has a column 0

    Raises
    ------
    TableError
        The message says what is wrong, where, and what to do.
    """
    marks = frozenset(mark) or USUAL_MARKS
    columns = Columns(target, features, list(drop), list(keep), encode, marks, dtype, zero_based)
    paths = _checked_paths(path)
    name = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    files = [format_of(inside, file_format)(inside) for path in paths for inside in files_of(path)]
    names, chunks = _chunks(name, files, columns, size)
    zero_based = next((file.zero_based for file in files if isinstance(file, SvmlightFile)), None)
    return TableStream(name, names, chunks, size, zero_based)


def _checked_paths(path: Any) -> list[str]:
    paths = path if isinstance(path, list | tuple) else [path]
    if not paths or not all(isinstance(entry, str | os.PathLike) for entry in paths):
        raise TableError(f"{path!r} is not a path: give the name of a file or folder, or a list of them")
    return [os.fspath(entry) for entry in paths]


def _chunks(
    name: str, files: Sequence[TabularFile | MatrixFile], columns: Columns, size: int
) -> tuple[list[str] | None, list[Chunk[Batch]]]:
    """The names of the features, and the parts of all files."""
    tabular = [file for file in files if isinstance(file, TabularFile)]
    matrices = [file for file in files if isinstance(file, MatrixFile)]
    if tabular and matrices:
        raise TableError(f"{name} mixes files with column names and files without: read them separately")
    if tabular:
        names = feature_names(tabular[0], columns)
        return names, _tabular_chunks(tabular, columns, names)
    if columns.drop or columns.keep:
        raise TableError(f"{name}: the columns have no names, so none can be dropped or kept")
    return columns.feature_names, _matrix_chunks(matrices, columns, size)


def _matrix_chunks(files: Sequence[MatrixFile], columns: Columns, size: int) -> list[Chunk[Batch]]:
    """The chunks of files without names: a file each, or some lines of an svmlight file."""
    n_features = settle_columns(files, columns.zero_based, columns.n_features)
    return [
        Chunk(piece.n_rows, partial(_read_piece, file, piece, n_features, columns, size))
        for file in files
        for piece in file.pieces
    ]


def _tabular_chunks(files: Sequence[TabularFile], columns: Columns, names: list[str]) -> list[Chunk[Batch]]:
    """The chunks of files whose columns have names: a chunk per group of rows."""
    chunks = list[Chunk[Batch]]()
    for file in files:
        check_columns(file, [*names, *columns.targets, *columns.keep])
        if columns.encode is None:
            file.check_numbers(names)
        file.check_labels(columns.targets)
        for group, n_rows in enumerate(file.groups):
            chunks.append(Chunk(n_rows, partial(_read_group, file, names, columns, group)))
    return chunks


def _read_piece(file: MatrixFile, piece: Piece, n_features: int | None, columns: Columns, size: int) -> Iterator[Batch]:
    """The rows of a piece of a file in batches of `size`."""
    X, y = file.arrays(columns.target, n_features, columns.dtype, piece)
    labels = None if y is None else labels_of(y, columns.marks)
    for start in range(0, X.shape[0], size):
        part = slice(start, start + size)
        yield Batch(_encoded(X[part], columns), None if labels is None else labels[part], {})


def _encoded(X: Any, columns: Columns) -> Rows:
    rows = as_rows(X, columns.dtype)
    return rows if columns.encode is None else columns.encode(rows)


def _read_group(file: TabularFile, names: list[str], columns: Columns, group: int) -> Iterator[Batch]:
    numbers = names if columns.encode is None else []
    others = dict.fromkeys([*([] if numbers else names), *columns.targets, *columns.keep])
    for batch in file.batches(numbers, list(others), columns.dtype, group):
        if columns.encode is not None:
            rows = as_rows(columns.encode({name: batch[name] for name in names}), columns.dtype)
        else:
            rows = np.empty((len(next(iter(batch.values()))), len(names)), columns.dtype)
            for at, name in enumerate(names):
                rows[:, at] = batch[name].to_numpy(zero_copy_only=False)
        labels = None if columns.target is None else labels_of(batch[columns.target], columns.marks)
        yield Batch(rows, labels, {name: batch[name] for name in columns.keep})


def _grouped(batches: Iterator[Batch], size: int) -> Iterator[Batch]:
    """Small batches concatenated until they have `size` rows."""
    waiting: list[Batch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(part.rows.shape[0] for part in waiting) >= size:
            yield concatenated(waiting)
            waiting = []
    if waiting:
        yield concatenated(waiting)


def concatenated(batches: list[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    labels = [batch.labels for batch in batches if batch.labels is not None]
    names = batches[0].passed_through
    passed_through = {name: chained([batch.passed_through[name] for batch in batches]) for name in names}
    return Batch(stack([batch.rows for batch in batches]), np.concatenate(labels) if labels else None, passed_through)


def chained(arrays: list[Any]) -> Any:
    """The arrays one after the other, as text if their types differ."""
    types = {array.type for array in arrays}
    return pa.chunked_array(arrays if len(types) == 1 else [array.cast(pa.string()) for array in arrays])


def files_of(path: str) -> list[str]:
    """The file itself; or all files of a known format in a folder and below, sorted by name.

    Names that begin with a dot or an underscore are skipped: other programs use them for their own files.
    """
    if not path:
        raise TableError("the file name is empty: give the name of a file or folder")
    if not Path(path).is_dir():
        return [path]
    inside = [file.relative_to(path) for file in Path(path).rglob("*") if file.is_file()]
    visible = [file for file in inside if not any(part.startswith((".", "_")) for part in file.parts)]
    files = [str(Path(path, file)) for file in sorted(visible) if _suffix_of(str(file)) in FORMATS]
    if not files:
        raise TableError(f"{path} is a folder without a file of a known format ({', '.join(FORMATS)})")
    return files


def format_of(path: str, file_format: str | None = None) -> type[TabularFile] | type[MatrixFile]:
    """The class that reads a file, by the end of its name unless its format is given."""
    if not os.path.exists(path):
        raise TableError(f"{path}: there is no such file or folder")
    suffix = _suffix_of(path) if file_format is None else f".{file_format}"
    if suffix not in FORMATS:
        raise TableError(f"{path} has an unknown format: its name must end in {', '.join(FORMATS)} (or .csv.gz)")
    if not Path(path).is_file():
        raise TableError(f"{path} is neither a file nor a folder: copy its content into a file")
    kind = FORMATS[suffix]
    if issubclass(kind, TabularFile) and not is_utf8(os.fsencode(path)):  # pyarrow takes no other names
        raise TableError(f"{path!r}: the file name is not UTF-8: rename the file")
    return kind


def _suffix_of(path: str) -> str:
    """The end of the name that says the format; that of a compression is skipped."""
    return Path(Path(path).stem if is_compressed(path) else path).suffix.lower()


def svmlight_columns(paths: Sequence[str], zero_based: bool | None) -> tuple[bool | None, int | None]:
    """How columns are counted if these are svmlight files of one data set, and how many there are.

    Other files say themselves, by names or by their shape, and so does a single one.
    """
    names = [inside for path in paths for inside in files_of(path)]
    if len(names) == 1 or not all(issubclass(format_of(name), SvmlightFile) for name in names):
        return zero_based, None
    files = [SvmlightFile(name) for name in names]
    n_features = settle_columns(files, zero_based, None)
    return files[0].zero_based, n_features


def stem_of(name: str) -> str:
    """The name of a file without the end that says its format, and that of a compression."""
    plain = Path(name).stem if is_compressed(name) else name
    return Path(plain).stem if Path(plain).suffix.lower() in FORMATS else plain


def has_names(path: str | os.PathLike[str]) -> bool:
    """Whether the columns of a file, or of the files of a folder, have names."""
    return issubclass(format_of(files_of(os.fspath(path))[0]), TabularFile)

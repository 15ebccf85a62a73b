"""Tables in files (csv, parquet, svmlight, npz, npy): read whole or a batch at a time, written a batch at a time.

A table is rows of numbers, and perhaps a label for some of them. Whatever a file looks like, `stream` makes batches of
it, each read when it is asked for; csv and parquet files may be of any size. `read` puts the batches together.
"""

import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

try:
    import pyarrow as pa
except ImportError:
    raise ImportError('files of rows need pyarrow, which is not installed: pip install "s3vm[cli]"') from None
from scipy import sparse

from s3vm._utils.arrays import as_rows, check_size, stack
from s3vm._utils.typing import Array, Rows
from s3vm.sources.readers.errors import TableError, listed, nearest, shortened
from s3vm.sources.readers.formats import Named, Svmlight, Unnamed, files_of, kind_of
from s3vm.sources.readers.labels import USUAL_MARKS, label_key, labels_of, of_one_kind
from s3vm.sources.readers.writer import Writer

__all__ = ["Batch", "Chunk", "Stream", "Table", "TableError", "Writer", "has_names", "label_key", "read", "stream"]

_MOST_VALUES = 1000  # of a column that is encoded


class Batch(NamedTuple):
    """Some rows of a table.

    Attributes
    ----------
    rows : float array or CSR matrix of shape (n, d)
    labels : array of n objects, or None if none were asked for
        As they are in the file, text or numbers; None where there is no label.
    kept : dict of name to pyarrow array
        Columns that are handed on as they are.
    """

    rows: Rows
    labels: Array | None
    kept: dict[str, Any]


class Table(NamedTuple):
    """A whole table.

    Attributes
    ----------
    rows : float array or CSR matrix of shape (n, d)
    labels : array of n objects, or None if none were asked for
        All of one kind, whole numbers where they are such; None where there is no label.
    names : names of the features, or None if the file has none
    """

    rows: Rows
    labels: Array | None
    names: list[str] | None


@dataclass(frozen=True)
class Chunk:
    """A part of a table that can be read without the others; `n_rows` is None if only reading it tells."""

    n_rows: int | None
    parts: Callable[[], Iterator[Batch]]


class Holes:
    """Values that are missing or infinite: how many each column has, and where the first one is."""

    def __init__(self) -> None:
        self.counts = Counter[int]()  # of columns that have any: columns may be very many
        self.first: tuple[int, int] | None = None

    def look(self, rows: Rows, first: int) -> None:
        """Counts those of some rows, which begin with number `first`."""
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
class Stream:
    """The batches of a file, or of all files of a folder; each iteration reads them afresh.

    Attributes
    ----------
    path : str
    names : names of the features, or None if the file has none
    chunks : the parts that can be read alone, in order
    """

    path: str
    names: list[str] | None
    chunks: Sequence[Chunk]
    size: int

    @property
    def n_rows(self) -> int | None:
        """The number of rows, or None if only reading them tells."""
        counts = [chunk.n_rows for chunk in self.chunks if chunk.n_rows is not None]
        return sum(counts) if len(counts) == len(self.chunks) else None

    def parts(self) -> Iterator[Batch]:
        """The rows as they come, unchecked."""
        return chain.from_iterable(chunk.parts() for chunk in self.chunks)

    def __iter__(self) -> Iterator[Batch]:
        first = 1
        for batch in _grouped(self.parts(), self.size):
            self.check(batch.rows, first)
            yield batch
            first += batch.rows.shape[0]
        if first == 1:
            raise TableError(f"{self.path} has no rows")

    def check(self, rows: Rows, first: int, of: str = "") -> None:
        """Raises a TableError if any of these rows, which begin with number `first`, has missing or infinite values."""
        holes = Holes()
        holes.look(rows, first)
        self.refuse(holes, of)
        try:
            check_size(rows.data if sparse.issparse(rows) else rows, rows.dtype)
        except ValueError as problem:
            raise TableError(f"{self.path}: {problem}") from None

    def refuse(self, holes: "Holes", of: str = "") -> None:
        """Raises a TableError if there are values that are missing or infinite; `of` is what the rows are those of."""
        if holes.first is None:
            return
        row, column = holes.first
        names = {at: str(at + 1) if self.names is None else self.names[at] for at in holes.counts}
        columns = listed([f"{names[at]!r} {count:,}" for at, count in sorted(holes.counts.items())])
        raise TableError(
            f"{self.path}: values are missing or infinite, the first in row {row:,}{of}, column {names[column]!r}; by "
            f"column: {columns}. Fill them in, or leave out those rows or columns"
        )

    def warn_of_lost_digits(self, rows: Rows) -> None:
        """Warns of columns whose values differ in digits that float32 does not hold, such as times in seconds."""
        if sparse.issparse(rows) or rows.dtype != np.float32 or not len(rows):
            return
        low, high = rows.min(axis=0), rows.max(axis=0)
        size = np.maximum(abs(low), abs(high))
        at = np.flatnonzero((size >= 2.0**24) & (high - low <= size * 2.0**-20))
        if len(at):
            names = self.names or [str(number + 1) for number in range(rows.shape[1])]
            warnings.warn(
                f"{self.path}: values of {listed([repr(names[column]) for column in at])} are so large that their "
                "differences are lost in float32: subtract a constant from them first",
                stacklevel=3,
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
) -> Stream:
    """A file, or all files of a folder and below, as batches of `size` rows or a few more.

    Parameters
    ----------
    path : str, path or list of them
        ``.csv`` or ``.tsv`` (names in the first line; perhaps compressed: ``.csv.gz``), ``.parquet``, ``.svmlight``
        (or ``.libsvm``, ``.svm``), ``.npz`` with the array `X`, or the parts of a CSR matrix, and `y`; ``.npy`` with
        an array of rows. Or a folder of such files, or a list of files and folders.
    target : str or None, default None
        The column of labels; None reads none. It is not asked for where a file can have but one.
    features : sequence of str, int or None, default None
        The columns wanted, in this order, of which the target is none; or how many there must be. None takes all but
        the target and `drop`. Columns with an empty name are never features: they are the row numbers of a data frame.
        A feature ``"city=Bonn"`` is 1 where the column `city` is `Bonn`, else 0.
    drop : names of columns that are no features
    keep : names of columns that are handed on as they are
    mark : labels that mean "no label", beside empty cells, missing values, nan and null
        By default the usual ones: NA, N/A, n/a, None, none and ?. Give others, ``["nan"]`` if there are none, and these
        are classes like any other.
    encode : names of columns of text (or of anything)
        Each becomes a feature of 0 and 1 for each of its values, such as ``"city=Bonn"``. They are read once to find
        the values.
    dtype : of the rows
    pieces : whether svmlight files, which are read at once otherwise, are read piece by piece
        They are then read once to find the columns.

    Raises
    ------
    TableError
        The message says what is wrong, where, and what to do.
    """
    given = path if isinstance(path, list | tuple) else [path]
    if not given or not all(isinstance(one, str | os.PathLike) for one in given):
        raise TableError(f"{path!r} is no path: give the name of a file or folder, or a list of them")
    paths = [os.fspath(one) for one in given]
    path = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    drop, keep, encode, marks = list(drop), list(keep), list(encode), frozenset(mark) or USUAL_MARKS
    opened = [kind_of(name)(name) for one in paths for name in files_of(one)]
    files = [file for file in opened if isinstance(file, Named)]
    if not files:
        if drop or keep or encode:
            raise TableError(f"{path}: columns have no names in such a file, so none can be dropped, kept or encoded")
        names = list(features) if isinstance(features, Sequence) else None
        n_features = len(features) if isinstance(features, Sequence) else features
        chunks = []
        for matrix in opened:
            assert isinstance(matrix, Unnamed)
            if pieces and isinstance(matrix, Svmlight):
                for where in matrix.pieces(n_features):
                    n_features = where["n_features"]
                    chunks.append(Chunk(where["rows"], partial(_piece, matrix, where, target, dtype, marks)))
            else:
                chunks.append(Chunk(None, partial(_slices, matrix, target, n_features, dtype, marks, size)))
        return Stream(path, names, chunks, size)
    if len(files) < len(opened):
        raise TableError(f"{path} has files with names of columns and files without: give them apart")
    chosen = _encoded(files, _chosen(files[0], target, features, drop, keep, encode), encode)
    others = [*([target] if target is not None else []), *keep]
    chunks = []
    for file in files:
        plain, indicators = _plan(file, chosen, others)
        file.check_numbers(plain)
        file.check_labels([*([target] if target is not None else []), *{column for column, _ in indicators.values()}])
        read_it = partial(_named, file, chosen, plain, indicators, target, keep, marks, dtype)
        chunks += [Chunk(n_rows, partial(read_it, group)) for group, n_rows in enumerate(file.groups)]
    return Stream(path, chosen, chunks, size)


def _slices(
    file: Unnamed, target: str | None, n_features: int | None, dtype: Any, marks: frozenset[str], size: int
) -> Iterator[Batch]:
    X, y = file.arrays(target, n_features, dtype)
    labels = None if y is None else labels_of(y, marks)
    for start in range(0, X.shape[0], size):
        part = slice(start, start + size)
        yield Batch(as_rows(X[part], dtype), None if labels is None else labels[part], {})


def _piece(
    file: Svmlight, where: dict[str, Any], target: str | None, dtype: Any, marks: frozenset[str]
) -> Iterator[Batch]:
    X, y = file.piece(where, dtype)
    yield Batch(X, None if target is None else labels_of(y, marks), {})


def _named(
    file: Named,
    chosen: list[str],
    plain: list[str],
    indicators: dict[str, tuple[str, str]],
    target: str | None,
    keep: list[str],
    marks: frozenset[str],
    dtype: Any,
    group: int,
) -> Iterator[Batch]:
    """The rows of a group of a file whose columns have names."""
    encoded = dict.fromkeys(column for column, _ in indicators.values())
    others = dict.fromkeys([*encoded, *([target] if target is not None else []), *keep])
    for columns in file.batches(plain, list(others), dtype, group):
        n_rows = len(next(iter(columns.values())))
        keys = {column: _keys(columns[column]) for column in encoded}
        rows = np.empty((n_rows, len(chosen)), dtype)
        for at, name in enumerate(chosen):
            if name in indicators:
                column, value = indicators[name]
                rows[:, at] = keys[column] == value
            else:
                rows[:, at] = columns[name].to_numpy(zero_copy_only=False)
        found = None if target is None else labels_of(columns[target], marks)
        yield Batch(rows, found, {name: columns[name] for name in keep})


def read(
    path: Any,
    target: str | None = None,
    features: Sequence[str] | int | None = None,
    *,
    drop: Iterable[str] = (),
    mark: Iterable[str] = (),
    encode: Iterable[str] = (),
    dtype: Any = np.float32,
    progress: Callable[[int], None] | None = None,
) -> Table:
    """A whole file or folder; the parameters are those of `stream`, `progress` is told how many rows have been read."""
    source = stream(path, target, features, drop=drop, mark=mark, encode=encode, size=sys.maxsize, dtype=dtype)
    parts, holes, n_rows = [], Holes(), 0
    for batch in source.parts():
        parts.append(batch)
        holes.look(batch.rows, n_rows + 1)
        n_rows += batch.rows.shape[0]
        if progress is not None:
            progress(n_rows)
    if not n_rows:
        raise TableError(f"{path} has no rows")
    source.refuse(holes)
    whole = _together(parts)
    source.warn_of_lost_digits(whole.rows)
    return Table(whole.rows, None if whole.labels is None else of_one_kind(whole.labels), source.names)


def has_names(path: Any) -> bool:
    """Whether the columns of such a file, or of the files of such a folder, have names."""
    return issubclass(kind_of(files_of(os.fspath(path))[0]), Named)


def _chosen(
    file: Named,
    target: str | None,
    features: Sequence[str] | int | None,
    drop: list[str],
    keep: list[str],
    encode: list[str],
) -> list[str]:
    """The names of the features; whatever is named must be there, and be asked for one thing only."""
    asked = list(features) if isinstance(features, Sequence) else []
    absent = [
        name
        for name in [*([target] if target is not None else []), *asked, *drop, *keep, *encode]
        if name not in file.types and _indicator(file, name) is None
    ]
    if absent:
        raise TableError(f"{file.path} has no column {listed([nearest(name, list(file.types)) for name in absent])}")
    if asked:
        _check_asked(file, target, asked, drop)
    chosen = asked or [name for name in file.types if name and name != target and name not in drop]
    if isinstance(features, int) and len(chosen) != features:
        raise TableError(
            f"{file.path} has {len(chosen)} columns of features, {features} are needed: leave others out, or name them"
        )
    if not chosen:
        raise TableError(f"{file.path} has no columns of features")
    for name in encode:
        if name not in chosen:
            why = "is the target" if name == target else "is none of the features"
            raise TableError(f"{file.path}: column {shortened(repr(name))} cannot be encoded: it {why}. Leave it out")
    return chosen


def _check_asked(file: Named, target: str | None, asked: list[str], drop: list[str]) -> None:
    """Raises a TableError if features that were asked for by name cannot be meant so."""
    twice = [name for name, count in Counter(asked).items() if count > 1]
    if twice:
        raise TableError(f"{file.path}: column {shortened(repr(twice[0]))} is a feature twice: name it once")
    for name in asked:
        column = name if name in file.types else (_indicator(file, name) or (name,))[0]
        if column == target:
            raise TableError(
                f"{file.path}: column {shortened(repr(column))} is the target, which cannot be a feature, too: every "
                "row would give away its label. Leave it out of the features, or give another target"
            )
        if column in drop:
            raise TableError(
                f"{file.path}: column {shortened(repr(column))} is needed as a feature and cannot be dropped: leave it "
                "out of the columns to drop, or of the features"
            )


def _indicator(file: Named, name: str) -> tuple[str, str] | None:
    """The column and the value of a feature such as "city=Bonn"."""
    for at, sign in enumerate(name):
        if sign == "=" and name[:at] in file.types:
            return name[:at], name[at + 1 :]
    return None


def _plan(file: Named, chosen: list[str], others: list[str]) -> tuple[list[str], dict[str, tuple[str, str]]]:
    """The features that are columns of this file, and those that stand for a value of one; all must be there."""
    plain = [name for name in chosen if name in file.types]
    found = {name: _indicator(file, name) for name in chosen if name not in file.types}
    indicators = {name: pair for name, pair in found.items() if pair is not None}
    absent = [name for name in found if name not in indicators] + [name for name in others if name not in file.types]
    if absent:
        raise TableError(f"{file.path} has no column {listed([nearest(name, list(file.types)) for name in absent])}")
    return plain, indicators


def _encoded(files: Sequence[Named], chosen: list[str], encode: list[str]) -> list[str]:
    """The features, those to be encoded as one for each of their values."""
    values: dict[str, set[str]] = {column: set() for column in encode if column in chosen}
    for file in files:
        _plan(file, [], list(values))
        file.check_labels(list(values))
        for group in range(len(file.groups) * bool(values)):
            for columns in file.batches([], list(values), np.float32, group):
                for column, known in values.items():
                    known |= set(_keys(columns[column].unique())) - {""}
                    if len(known) > _MOST_VALUES:
                        raise TableError(
                            f"{file.path}: column {shortened(repr(column))} has more than {_MOST_VALUES:,} different "
                            "values, too many to encode: drop it, or put them into groups"
                        )
    return [
        feature
        for name in chosen
        for feature in ([f"{name}={value}" for value in sorted(values[name])] if name in values else [name])
    ]


def _keys(column: Any) -> Array:
    """One text for each value, as features name it; nothing where it is missing."""
    column = column.dictionary_encode()
    different = labels_of(column.dictionary, frozenset())
    names = ["" if value is None else label_key(value) for value in different]
    return np.array([*names, ""], dtype=object)[column.indices.fill_null(len(names)).to_numpy()]


def _grouped(parts: Iterator[Batch], size: int) -> Iterator[Batch]:
    """Small batches put together until they have `size` rows."""
    waiting: list[Batch] = []
    for part in parts:
        waiting.append(part)
        if sum(one.rows.shape[0] for one in waiting) >= size:
            yield _together(waiting)
            waiting = []
    if waiting:
        yield _together(waiting)


def _together(parts: list[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]
    labels = [part.labels for part in parts if part.labels is not None]
    kept = {name: pa.chunked_array([part.kept[name] for part in parts]) for name in parts[0].kept}
    return Batch(stack([part.rows for part in parts]), np.concatenate(labels) if labels else None, kept)

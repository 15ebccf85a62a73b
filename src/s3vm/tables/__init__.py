"""Tables in files (csv, parquet, svmlight, npz): read whole or a batch at a time, written a batch at a time.

A table is rows of numbers, and perhaps a label for some of them. Whatever a file looks like, `stream` makes batches of
it, each read when it is asked for; csv and parquet files may be of any size. `read` puts the batches together.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

try:
    import pyarrow as pa
except ImportError:
    raise ImportError('files of rows need pyarrow, which is not installed: pip install "s3vm[cli]"') from None
from scipy import sparse

from s3vm._typing import Array, Rows
from s3vm.sources import stack
from s3vm.tables.errors import TableError, listed, nearest
from s3vm.tables.kinds import Named, kind_of
from s3vm.tables.labels import label_key, labels_of, of_one_kind
from s3vm.tables.writing import Writer

__all__ = ["Batch", "Stream", "Table", "TableError", "Writer", "has_names", "label_key", "read", "stream"]


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
class Stream:
    """The batches of a file; each iteration reads it afresh.

    Attributes
    ----------
    path : str
    names : names of the features, or None if the file has none
    n_rows : number of rows, or None if only reading them tells
    """

    path: str
    names: list[str] | None
    n_rows: int | None
    parts: Callable[[], Iterator[Batch]]
    size: int

    def __iter__(self) -> Iterator[Batch]:
        first = 1
        for batch in _grouped(self.parts(), self.size):
            last = first + batch.rows.shape[0] - 1
            self.refuse(_not_finite(batch.rows), f"rows {first:,} to {last:,}")
            yield batch
            first = last + 1
        if first == 1:
            raise TableError(f"{self.path} has no rows")

    def refuse(self, not_finite: Array, where: str) -> None:
        """Raises a TableError if any column has values that are missing or infinite; `not_finite` counts them."""
        at = np.flatnonzero(not_finite)
        if not len(at):
            return
        names = self.names or [str(number + 1) for number in range(len(not_finite))]
        columns = listed([f"{names[column]!r} {not_finite[column]:,}" for column in at])
        raise TableError(
            f"{self.path}: values are missing or infinite in {where}, by column: {columns}. Fill them in, or leave out "
            "those rows or columns"
        )


def stream(
    path: Any,
    target: str | None = None,
    features: Sequence[str] | int | None = None,
    *,
    drop: Iterable[str] = (),
    keep: Iterable[str] = (),
    mark: Iterable[str] = (),
    size: int = 1 << 16,
    dtype: Any = np.float32,
) -> Stream:
    """A file as batches of `size` rows or a few more.

    Parameters
    ----------
    path : str or path
        ``.csv`` or ``.tsv`` (names in the first line; perhaps compressed: ``.csv.gz``), ``.parquet``, ``.svmlight``
        (or ``.libsvm``, ``.svm``), or ``.npz`` with the array `X`, or the parts of a CSR matrix, and `y`.
    target : str or None, default None
        The column of labels; None reads none. It is not asked for where a file can have but one.
    features : sequence of str, int or None, default None
        The columns wanted, in this order; or how many there must be. None takes all but the target and `drop`. Columns
        with an empty name are never features: they are the row numbers of a data frame.
    drop : names of columns that are no features
    keep : names of columns that are handed on as they are
    mark : labels that mean "no label", beside empty and missing ones
    dtype : of the rows

    Raises
    ------
    TableError
        The message says what is wrong, where, and what to do.
    """
    path, drop, keep, marks = os.fspath(path), list(drop), list(keep), frozenset(mark)
    file = kind_of(path)(path)
    if not isinstance(file, Named):
        if drop or keep:
            raise TableError(f"{path}: columns have no names in such a file, so none can be dropped or kept")
        names = list(features) if isinstance(features, Sequence) else None
        n_features = len(features) if isinstance(features, Sequence) else features

        def parts() -> Iterator[Batch]:
            X, y = file.arrays(target, n_features, dtype)
            labels = None if y is None else labels_of(y, marks)
            for start in range(0, X.shape[0], size):
                part = slice(start, start + size)
                yield Batch(X[part], None if labels is None else labels[part], {})

        return Stream(path, names, None, parts, size)

    chosen = _chosen(file, target, features, drop, keep)
    file.check_numbers(chosen)
    others = [*([target] if target is not None else []), *keep]

    def named_parts() -> Iterator[Batch]:
        for columns in file.batches(chosen, others, dtype):
            rows = np.empty((len(columns[chosen[0]]), len(chosen)), dtype)
            for at, name in enumerate(chosen):
                rows[:, at] = columns[name].to_numpy(zero_copy_only=False)
            found = None if target is None else labels_of(columns[target], marks)
            yield Batch(rows, found, {name: columns[name] for name in keep})

    return Stream(path, chosen, file.n_rows, named_parts, size)


def read(
    path: Any,
    target: str | None = None,
    features: Sequence[str] | int | None = None,
    *,
    drop: Iterable[str] = (),
    mark: Iterable[str] = (),
    dtype: Any = np.float32,
    progress: Callable[[int], None] | None = None,
) -> Table:
    """A whole file; the parameters are those of `stream`, and `progress` is told how many rows have been read."""
    source = stream(path, target, features, drop=drop, mark=mark, size=sys.maxsize, dtype=dtype)
    parts, not_finite, n_rows = [], np.zeros(1, dtype=np.intp), 0
    for batch in source.parts():
        parts.append(batch)
        not_finite = not_finite + _not_finite(batch.rows)
        n_rows += batch.rows.shape[0]
        if progress is not None:
            progress(n_rows)
    if not n_rows:
        raise TableError(f"{path} has no rows")
    source.refuse(not_finite, f"{n_rows:,} rows")
    whole = _together(parts)
    return Table(whole.rows, None if whole.labels is None else of_one_kind(whole.labels), source.names)


def has_names(path: Any) -> bool:
    """Whether the columns of such a file have names."""
    return issubclass(kind_of(os.fspath(path)), Named)


def _chosen(
    file: Named, target: str | None, features: Sequence[str] | int | None, drop: list[str], keep: list[str]
) -> list[str]:
    """The names of the features; whatever is named must be there."""
    asked = list(features) if isinstance(features, Sequence) else []
    absent = [
        name for name in [*([target] if target is not None else []), *asked, *drop, *keep] if name not in file.types
    ]
    if absent:
        raise TableError(f"{file.path} has no column {listed([nearest(name, list(file.types)) for name in absent])}")
    if asked:
        return asked
    chosen = [name for name in file.types if name and name != target and name not in drop]
    if isinstance(features, int) and len(chosen) != features:
        raise TableError(
            f"{file.path} has {len(chosen)} columns of features, {features} are needed: leave others out, or name them"
        )
    if not chosen:
        raise TableError(f"{file.path} has no columns of features")
    return chosen


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


def _not_finite(rows: Rows) -> Array:
    """How many values of each column are missing or infinite."""
    if sparse.issparse(rows):
        return np.bincount(rows.indices[~np.isfinite(rows.data)], minlength=rows.shape[1])
    finite = np.isfinite(rows)
    return np.zeros(rows.shape[1], dtype=np.intp) if finite.all() else (~finite).sum(axis=0)

"""Files as chunks of batches: rows of features, labels, and columns that are passed through."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from s3vm._utils.arrays import as_rows, stack
from s3vm._utils.typing import Array, Rows
from s3vm.sources.base import Chunk
from s3vm.sources.readers.base import MatrixFile, TabularFile
from s3vm.sources.readers.columns import Columns, FeaturePlan, category_keys, plan_features
from s3vm.sources.readers.labels import labels_of
from s3vm.sources.readers.svmlight import Piece, SvmlightFile

__all__ = ["Batch", "concatenated", "grouped", "matrix_chunks", "tabular_chunks"]


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


def matrix_chunks(files: Sequence[MatrixFile], columns: Columns, size: int, pieces: bool) -> list[Chunk[Batch]]:
    """The chunks of files without names: a file each, or some lines of an svmlight file if it is read in `pieces`."""
    n_features, chunks = columns.n_features, list[Chunk[Batch]]()
    for file in files:
        if pieces and isinstance(file, SvmlightFile):
            for piece in file.pieces(n_features):
                n_features = piece.n_features
                chunks.append(Chunk(piece.n_rows, partial(_read_piece, file, piece, columns)))
        else:
            chunks.append(Chunk(None, partial(_read_matrix, file, columns, n_features, size)))
    return chunks


def tabular_chunks(files: Sequence[TabularFile], columns: Columns, names: list[str]) -> list[Chunk[Batch]]:
    """The chunks of files whose columns have names: a chunk per group of rows."""
    chunks = list[Chunk[Batch]]()
    for file in files:
        plan = plan_features(file, names, [*columns.targets, *columns.keep])
        file.check_numbers(plan.numeric)
        file.check_labels([*columns.targets, *{column for column, _ in plan.indicators.values()}])
        for group, n_rows in enumerate(file.groups):
            chunks.append(Chunk(n_rows, partial(_read_group, file, plan, columns, group)))
    return chunks


def _read_matrix(file: MatrixFile, columns: Columns, n_features: int | None, size: int) -> Iterator[Batch]:
    """The rows of a file that is read at once, or mapped, in batches of `size`."""
    X, y = file.arrays(columns.target, n_features, columns.dtype)
    labels = None if y is None else labels_of(y, columns.marks)
    for start in range(0, X.shape[0], size):
        part = slice(start, start + size)
        yield Batch(as_rows(X[part], columns.dtype), None if labels is None else labels[part], {})


def _read_piece(file: SvmlightFile, piece: Piece, columns: Columns) -> Iterator[Batch]:
    """The rows of a piece of an svmlight file, in one batch."""
    X, y = file.read_piece(piece, columns.dtype)
    yield Batch(X, None if columns.target is None else labels_of(y, columns.marks), {})


def _read_group(file: TabularFile, plan: FeaturePlan, columns: Columns, group: int) -> Iterator[Batch]:
    """The rows of a group of a file whose columns have names."""
    encoded = dict.fromkeys(column for column, _ in plan.indicators.values())
    others = dict.fromkeys([*encoded, *columns.targets, *columns.keep])
    for batch in file.batches(plan.numeric, list(others), columns.dtype, group):
        n_rows = len(next(iter(batch.values())))
        keys = {column: category_keys(batch[column]) for column in encoded}
        rows = np.empty((n_rows, len(plan.names)), columns.dtype)
        for at, name in enumerate(plan.names):
            if name in plan.indicators:
                column, value = plan.indicators[name]
                rows[:, at] = keys[column] == value
            else:
                rows[:, at] = batch[name].to_numpy(zero_copy_only=False)
        labels = None if columns.target is None else labels_of(batch[columns.target], columns.marks)
        yield Batch(rows, labels, {name: batch[name] for name in columns.keep})


def grouped(batches: Iterator[Batch], size: int) -> Iterator[Batch]:
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
    """The rows of all batches in one."""
    if len(batches) == 1:
        return batches[0]
    labels = [batch.labels for batch in batches if batch.labels is not None]
    names = batches[0].passed_through
    passed_through = {name: pa.chunked_array([batch.passed_through[name] for batch in batches]) for name in names}
    return Batch(stack([batch.rows for batch in batches]), np.concatenate(labels) if labels else None, passed_through)

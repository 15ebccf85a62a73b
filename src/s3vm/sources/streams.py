"""Rows that need not fit into memory: chunks read side by side, shuffled, and made ready in the background.

A stream is cut into *chunks* that can be read alone: row groups of a parquet file, a csv file, an iterator. In every
pass the chunks are put into an order drawn for that pass, and dealt out to a few *lanes*, which are read side by side.
A *window* takes as many rows from each lane as the buffer holds, and shuffles them. Batches are cut from the windows
one after the other, so that a pass yields every row once.

Mixing is therefore limited: rows of a chunk meet those of the chunks that are read at the same time, within the buffer.
Everything is a function of the seed and the position: where the sizes of the chunks are known, a run that resumes in
the middle opens the files there.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from s3vm import philox
from s3vm._utils.arrays import as_rows, stack
from s3vm._utils.input_checks import precision
from s3vm._utils.settings import check, integer
from s3vm._utils.typing import Array, Rows
from s3vm.philox import Purpose
from s3vm.sources.base import ENDLESS, Chunk, ExhaustedError
from s3vm.sources.prefetch import Cursor, Reader

if TYPE_CHECKING:
    from sklearn.preprocessing import StandardScaler

BUFFER_BYTES = 32 << 20
_LANES = 4
_SAMPLE, _LEAST_SAMPLE = 1 << 14, 1 << 11
_SAMPLE_CHUNKS = 64  # that a sample is taken from
_SAMPLE_DEPTH = 1 << 14  # rows at the start of a chunk that a sample is taken from


class StreamSource:
    """Rows in chunks; see above.

    A window takes `buffer_bytes`, and reading about five times as much. Chunks that are `repeatable` can be read again.
    """

    names: Sequence[str] | None = None

    def __init__(
        self,
        chunks: Sequence[Chunk[Rows]],
        n_dims: int,
        dtype: Any = np.float32,
        buffer_bytes: int = BUFFER_BYTES,
        repeatable: bool = True,
    ) -> None:
        check("buffer_bytes", buffer_bytes, integer(1))
        self._chunks = list(chunks)
        self.n_dims, self.dtype, self._repeatable = n_dims, precision(dtype), repeatable
        self._buffer_bytes = buffer_bytes
        self.order = f"shuffled in {buffer_bytes:,} bytes"
        """What the order of the rows depends on besides the seed, for checkpoints."""
        self._reader = Reader()
        self._sampled: tuple[int, int, Rows] | None = None
        self._was_begun = False

    @property
    def n_rows(self) -> int:
        return _total_rows(self._counted_chunks())

    def batches(self, seed: int, stream: Purpose, steps: range, size: int) -> Rows:
        with self._reader.lock:
            if not self._repeatable and self._sampled is None:
                self.sample(seed, 1)  # later it would be too late
            return self._cursor_at((seed, int(stream)), steps.start * size).take(steps.start * size, len(steps) * size)

    def sample(self, seed: int, size: int) -> Rows:
        # Small samples are the beginning of a larger one, so that files are opened once for all of them.
        enough = max(size, min(_SAMPLE, max(_LEAST_SAMPLE, BUFFER_BYTES // (self.dtype.itemsize * self.n_dims))))
        with self._reader.lock:
            if self._sampled is None or self._sampled[:2] != (seed, enough):
                self._sampled = seed, enough, self._draw_sample(seed, enough)
            return self._sampled[2][:size]

    def rows(self) -> Iterator[Rows]:
        """All rows once, in their order."""
        for chunk in self._counted_chunks():
            for rows in chunk.read():
                yield as_rows(rows, self.dtype)

    def scaler(self, sample: int | None = None, seed: int = 0) -> "StandardScaler":
        """A scaler fitted to all rows in one pass, or to a sample of this size."""
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler()
        for rows in self.rows() if sample is None else [self.sample(seed, sample)]:
            scaler.with_mean = not sparse.issparse(rows)  # sparse rows keep their zeros
            scaler.partial_fit(rows)
        return with_names(scaler, self.names)

    def scaled(self, scaler: "StandardScaler") -> "MappedSource":
        """The same rows, transformed by the scaler."""
        return MappedSource(self, RowScaler(scaler, self.dtype))

    def windows(self, seed: int, start: int = 0, one_pass: bool = False) -> Iterator[tuple[int, Rows]]:
        """Shuffled rows and the position of the first, from the window on that has the row at position `start`."""
        if self._was_begun and not self._repeatable:
            raise ExhaustedError(
                "these batches have already been read and cannot be read again: give a list, or a function that makes "
                "a new iterator"
            )
        self._was_begun = True
        window_rows = max(_LANES, self._buffer_bytes // (self.dtype.itemsize * max(1, self.n_dims)))
        is_repeated = self._repeatable and not one_pass
        return _shuffled_windows(self._counted_chunks(), seed, start, window_rows, self.dtype, is_repeated)

    def _counted_chunks(self) -> list[Chunk[Rows]]:
        """The chunks, with their numbers of rows if these can be known."""
        return self._chunks

    def _draw_sample(self, seed: int, size: int) -> Rows:
        """Some rows from each of a few chunks; the first window if chunks cannot be opened in any order."""
        if not self._repeatable:
            return self._first_rows(seed, size)
        chunks = self._counted_chunks()
        if self.n_rows <= size:
            whole = stack(list(self.rows()))
            _check_count(self.n_rows, whole.shape[0])
            return whole[_random_order(seed, Purpose.REFERENCE, 0, self.n_rows)]
        if self.n_rows == ENDLESS:
            return self._first_rows(seed, size)
        chosen = [chunks[k] for k in _random_order(seed, Purpose.REFERENCE, 0, len(chunks))[:_SAMPLE_CHUNKS]]
        per_chunk, parts = -(-size // len(chosen)), []
        for number, chunk in enumerate(chosen):
            rows = stack(_Lane([chunk], 0).take(_SAMPLE_DEPTH) or [np.empty((0, self.n_dims))])
            at = np.sort(_random_order(seed, Purpose.REFERENCE, 1 + number, rows.shape[0])[:per_chunk])
            parts.append(as_rows(rows[at], self.dtype))
        whole = stack(parts)
        if whole.shape[0] < size:  # chunks were too small: the missing rows come from the first windows
            whole = stack([whole, self._first_rows(seed, size - whole.shape[0])])
        return whole[_random_order(seed, Purpose.REFERENCE, 0, whole.shape[0])][:size]

    def _first_rows(self, seed: int, size: int) -> Rows:
        """The first rows of the shuffled stream, of one pass, which are still there when it is read from the start."""
        key = seed, int(Purpose.UNLABELED)
        cursor = Cursor(key, 0, self.windows(seed, one_pass=True)) if self._repeatable else self._cursor_at(key, 0)
        return cursor.take(0, size, at_most=True)

    def _cursor_at(self, key: tuple[int, int], start: int) -> Cursor:
        reader = self._reader
        if reader.cursor is None or not reader.cursor.is_near(key, start):
            reader.cursor = None  # ends its thread before another one begins to read
            reader.cursor = Cursor(key, start, self.windows(key[0], start))
        return reader.cursor


class MappedSource:
    """The rows of another source, with a function applied to each batch. The columns have no names.

    `n_dims` is the number of columns that the function makes, if it is another.
    """

    def __init__(self, source: Any, change: Callable[[Rows], Rows], n_dims: int | None = None) -> None:
        self._source, self._change = source, change
        self.n_dims = int(source.n_dims if n_dims is None else n_dims)
        self.dtype, self.order = getattr(source, "dtype", None), getattr(source, "order", "")
        self.zero_based = getattr(source, "zero_based", None)

    @property
    def n_rows(self) -> int:
        return int(self._source.n_rows)

    def survey(self, progress: Callable[[int], None] | None = None) -> None:
        """Lets the other source read all rows once, if it has to."""
        if hasattr(self._source, "survey"):
            self._source.survey(progress)

    def batches(self, seed: int, stream: Purpose, steps: range, size: int) -> Rows:
        return self._change(self._source.batches(seed, stream, steps, size))

    def sample(self, seed: int, size: int) -> Rows:
        return self._change(self._source.sample(seed, size))

    def labeled(self) -> tuple[Rows, Array]:
        """The labelled rows of the other source, changed in the same way, and their labels."""
        rows, labels = self._source.labeled()
        return self._change(rows), labels


class RowScaler:
    """The transformation of a fitted StandardScaler, in the precision of the rows."""

    def __init__(self, scaler: "StandardScaler", dtype: Any = np.float32) -> None:
        self._factor = None if scaler.scale_ is None else (1 / scaler.scale_).astype(dtype)
        self._mean = scaler.mean_.astype(dtype) if scaler.with_mean else None

    def __call__(self, rows: Rows) -> Rows:
        if sparse.issparse(rows):
            rows = rows.copy()
            if self._factor is not None:
                rows.data *= self._factor[rows.indices]
            return rows
        rows = rows - self._mean if self._mean is not None else rows.copy()
        if self._factor is not None:
            rows *= self._factor
        return rows


def with_names(scaler: "StandardScaler", names: Sequence[str] | None) -> "StandardScaler":
    """The scaler, as if fitted to columns of these names."""
    if names is not None:
        scaler.feature_names_in_ = np.array(names, dtype=object)
    return scaler


class _Lane:
    """The rows of chunks one after the other, from a position in the middle on."""

    def __init__(self, chunks: Sequence[Chunk[Rows]], skip: int) -> None:
        first = 0
        while first < len(chunks) and (n_rows := chunks[first].n_rows) is not None and n_rows <= skip:
            skip, first = skip - n_rows, first + 1
        self._parts = (rows for chunk in chunks[first:] for rows in chunk.read())
        self._rest: Rows = None
        while skip and (rows := next(self._parts, None)) is not None:
            if rows.shape[0] > skip:
                self._rest = rows[skip:]
            skip -= min(skip, rows.shape[0])

    def take(self, count: int) -> list[Rows]:
        """The next rows, as many as asked for or as are left."""
        parts: list[Rows] = []
        while count and (rows := self._rest if self._rest is not None else next(self._parts, None)) is not None:
            self._rest = rows[count:] if rows.shape[0] > count else None
            parts.append(rows[:count])
            count -= parts[-1].shape[0]
        return [rows for rows in parts if rows.shape[0]]


def _shuffled_windows(
    chunks: Sequence[Chunk[Rows]], seed: int, start: int, window_rows: int, dtype: Any, repeatable: bool
) -> Iterator[tuple[int, Rows]]:
    """Shuffled rows and the position of the first, from the window on that has the row at position `start`."""
    n_rows, share = _total_rows(chunks), window_rows // min(_LANES, len(chunks))
    position = epoch = window = 0
    if n_rows < ENDLESS:
        epoch, within = divmod(start, n_rows)
        ends = np.cumsum(_window_sizes(_lanes(chunks, seed, epoch), share))
        window = int(np.searchsorted(ends, within, side="right"))
        position = epoch * n_rows + int(ends[window - 1] if window else 0)
    while True:
        lanes = [_Lane(lane, window * share) for lane in _lanes(chunks, seed, epoch)]
        begin = position
        while pieces := [as_rows(piece, dtype) for lane in lanes for piece in lane.take(share)]:
            size = sum(piece.shape[0] for piece in pieces)
            if position + size > start:
                order = _random_order(seed, Purpose.WINDOW, (epoch << 16) + window, size)
                yield position, _shuffled(pieces, order)
            position, window = position + size, window + 1
        if n_rows < ENDLESS:
            _check_count((epoch + 1) * n_rows, position)
        if not repeatable or position == begin:
            return
        epoch, window = epoch + 1, 0


def _total_rows(chunks: Sequence[Chunk[Rows]]) -> int:
    """The number of rows, or `ENDLESS` if it is unknown."""
    counts = [chunk.n_rows for chunk in chunks]
    return ENDLESS if None in counts else sum(filter(None, counts))


def _check_count(expected: int, n_rows: int) -> None:
    """Raises a ValueError unless as many rows were read as expected."""
    if n_rows != expected:
        raise ValueError(
            f"{expected:,} rows were expected, but there are {n_rows:,}: the files have changed, or n_rows is wrong"
        )


def _random_order(seed: int, stream: Purpose, block: int, n: int) -> Array:
    """A random order of ``0..n-1``: that of 32-bit words, sorted by their halves, for which NumPy has a radix sort."""
    words = philox.words(seed, stream, block & 0xFFFFFFFF, 1, n)[0]
    low = np.argsort(words.astype(np.uint16), kind="stable")
    return low[np.argsort((words >> np.uint64(16)).astype(np.uint16)[low], kind="stable")]


def _lanes(chunks: Sequence[Chunk[Rows]], seed: int, epoch: int) -> list[list[Chunk[Rows]]]:
    """The chunks in the order of this pass, dealt out to lanes."""
    order = [chunks[k] for k in _random_order(seed, Purpose.CHUNK, epoch, len(chunks))]
    return [order[lane::_LANES] for lane in range(min(_LANES, len(order)))]


def _window_sizes(lanes: Sequence[Sequence[Chunk[Rows]]], share: int) -> Array:
    """The number of rows of each window of a pass, if all counts are known."""
    lengths = np.array([sum(chunk.n_rows or 0 for chunk in lane) for lane in lanes])
    starts = share * np.arange(-(-lengths.max() // share))
    return np.clip(lengths - starts[:, None], 0, share).sum(axis=1)


def _shuffled(pieces: list[Rows], order: Array) -> Rows:
    """The rows of all pieces, row i at place ``order[i]``."""
    if sparse.issparse(pieces[0]):
        return stack(pieces)[np.argsort(order)]
    # Each piece is written straight to its places, a row as one item of so many bytes: several times faster.
    result, start = np.empty((len(order), pieces[0].shape[1]), pieces[0].dtype), 0
    row = np.dtype((np.void, result.dtype.itemsize * result.shape[1]))
    places = result.view(row)[:, 0]
    for piece in pieces:
        places[order[start : start + len(piece)]] = piece.view(row)[:, 0]
        start += len(piece)
    return result

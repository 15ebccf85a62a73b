"""Rows that need not fit into memory: chunks read side by side, shuffled, and made ready in the background.

A stream is cut into *chunks* that can be read alone: row groups of a parquet file, a csv file, an iterator. In every
pass the chunks are put into an order drawn for that pass, and dealt out to a few *lanes*, which are read side by side.
A *window* takes as many rows from each lane as the buffer holds, and shuffles them. Batches are cut from the windows
one after the other, so that a pass yields every row once.

Mixing is therefore limited: rows of a chunk meet those of the chunks that are read at the same time, within the buffer.
Everything is a function of the seed and the position: where the sizes of the chunks are known, a run that resumes in
the middle opens the files there.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from s3vm._utils.arrays import as_rows, stack
from s3vm._utils.input_checks import precision
from s3vm._utils.settings import check, integer
from s3vm._utils.typing import Rows
from s3vm.philox import Purpose
from s3vm.sources.base import ENDLESS, Chunk, ExhaustedError
from s3vm.sources.mapped import MappedSource, RowScaler, with_names
from s3vm.sources.prefetch import Cursor, ReaderPerProcess
from s3vm.sources.shuffling import LANES, Lane, check_count, random_order, shuffled_windows, total_rows

if TYPE_CHECKING:
    from sklearn.preprocessing import StandardScaler

__all__ = ["BUFFER_BYTES", "StreamSource"]

BUFFER_BYTES = 32 << 20
_SAMPLE, _LEAST_SAMPLE = 1 << 14, 1 << 11
_SAMPLE_CHUNKS = 64  # that a sample is taken from
_SAMPLE_DEPTH = 1 << 14  # rows at the start of a chunk that a sample is taken from


class StreamSource:
    """Rows in chunks; see above.

    Parameters
    ----------
    chunks : sequence of Chunk
    n_dims : int
    dtype : dtype of the rows of a batch
    buffer_bytes : int, default 32 MiB
        The size of a window; about five times as much memory is needed.
    repeatable : bool, default True
        Whether the chunks can be read more than once.
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
        self._n_dims, self._dtype, self._repeatable = n_dims, precision(dtype), repeatable
        self._buffer_bytes = buffer_bytes
        self.order = f"shuffled in {buffer_bytes:,} bytes"
        """What the order of the rows depends on besides the seed, for checkpoints."""
        self._reader = ReaderPerProcess()
        self._sampled: tuple[int, int, Rows] | None = None
        self._was_begun = False

    @property
    def n_rows(self) -> int:
        return total_rows(self._counted_chunks())

    @property
    def n_dims(self) -> int:
        return self._n_dims

    @property
    def dtype(self) -> Any:
        return self._dtype

    def batches(self, seed: int, stream: Purpose, steps: range, size: int) -> Rows:
        with self._reader.get().lock:
            if not self._repeatable and self._sampled is None:
                self.sample(seed, 1)  # later it would be too late
            return self._cursor_at((seed, int(stream)), steps.start * size).take(steps.start * size, len(steps) * size)

    def sample(self, seed: int, size: int) -> Rows:
        # Small samples are the beginning of a larger one, so that files are opened once for all of them.
        enough = max(size, min(_SAMPLE, max(_LEAST_SAMPLE, BUFFER_BYTES // (self._dtype.itemsize * self._n_dims))))
        with self._reader.get().lock:
            if self._sampled is None or self._sampled[:2] != (seed, enough):
                self._sampled = seed, enough, self._draw_sample(seed, enough)
            return self._sampled[2][:size]

    def rows(self) -> Iterator[Rows]:
        """All rows once, in their order."""
        for chunk in self._counted_chunks():
            for rows in chunk.read():
                yield as_rows(rows, self._dtype)

    def scaler(self, sample: int | None = None, seed: int = 0) -> "StandardScaler":
        """A scaler fitted to all rows in one pass, or to a sample of this size."""
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler()
        for rows in self.rows() if sample is None else [self.sample(seed, sample)]:
            scaler.with_mean = not sparse.issparse(rows)  # sparse rows keep their zeros
            scaler.partial_fit(rows)
        return with_names(scaler, self.names)

    def scaled(self, scaler: "StandardScaler") -> MappedSource:
        """The same rows, transformed by the scaler."""
        return MappedSource(self, RowScaler(scaler, self._dtype))

    def windows(self, seed: int, start: int = 0) -> Iterator[tuple[int, Rows]]:
        """Shuffled rows and the position of the first, from the window on that has the row at position `start`."""
        if self._was_begun and not self._repeatable:
            raise ExhaustedError(
                "these batches have already been read and cannot be read again: give a list, or a function that makes "
                "a new iterator"
            )
        self._was_begun = True
        window_rows = max(LANES, self._buffer_bytes // (self._dtype.itemsize * max(1, self._n_dims)))
        return shuffled_windows(self._counted_chunks(), seed, start, window_rows, self._dtype, self._repeatable)

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
            check_count(self.n_rows, whole.shape[0])
            return whole[random_order(seed, Purpose.REFERENCE, 0, self.n_rows)]
        if self.n_rows == ENDLESS:
            return self._first_rows(seed, size)
        chosen = [chunks[k] for k in random_order(seed, Purpose.REFERENCE, 0, len(chunks))[:_SAMPLE_CHUNKS]]
        per_chunk, parts = -(-size // len(chosen)), []
        for number, chunk in enumerate(chosen):
            rows = stack(Lane([chunk], 0).take(_SAMPLE_DEPTH) or [np.empty((0, self._n_dims))])
            at = np.sort(random_order(seed, Purpose.REFERENCE, 1 + number, rows.shape[0])[:per_chunk])
            parts.append(as_rows(rows[at], self._dtype))
        whole = stack(parts)
        if whole.shape[0] < size:  # chunks were too small: the missing rows come from the first windows
            whole = stack([whole, self._first_rows(seed, size - whole.shape[0])])
        return whole[random_order(seed, Purpose.REFERENCE, 0, whole.shape[0])][:size]

    def _first_rows(self, seed: int, size: int) -> Rows:
        """The first rows of the shuffled stream, which are still there when it is read from the start."""
        return self._cursor_at((seed, int(Purpose.UNLABELLED)), 0).take(0, size, at_most=True)

    def _cursor_at(self, key: tuple[int, int], start: int) -> Cursor:
        """The stream of that key at that position."""
        reader = self._reader.get()
        if reader.cursor is None or not reader.cursor.is_near(key, start):
            reader.cursor = None  # ends its thread before another one begins to read
            reader.cursor = Cursor(key, start, self.windows(key[0], start))
        return reader.cursor

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": ReaderPerProcess()}

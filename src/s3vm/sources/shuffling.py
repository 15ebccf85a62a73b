"""The order of a stream: chunks read side by side in lanes, and windows of them shuffled.

Everything here is a function of the seed and the position. Nothing knows the source, which may be released while a
thread still reads.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from s3vm import philox
from s3vm._utils.arrays import as_rows, stack
from s3vm._utils.typing import Array, Rows
from s3vm.philox import Purpose
from s3vm.sources.base import ENDLESS, Chunk

__all__ = ["LANES", "Lane", "check_count", "random_order", "shuffled_windows", "total_rows"]

LANES = 4


class Lane:
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


def shuffled_windows(
    chunks: Sequence[Chunk[Rows]], seed: int, start: int, window_rows: int, dtype: Any, repeatable: bool
) -> Iterator[tuple[int, Rows]]:
    """Shuffled rows and the position of the first, from the window on that has the row at position `start`."""
    n_rows, share = total_rows(chunks), window_rows // min(LANES, len(chunks))
    position = epoch = window = 0
    if n_rows < ENDLESS:
        epoch, within = divmod(start, n_rows)
        ends = np.cumsum(_window_sizes(_lanes(chunks, seed, epoch), share))
        window = int(np.searchsorted(ends, within, side="right"))
        position = epoch * n_rows + int(ends[window - 1] if window else 0)
    while True:
        lanes = [Lane(lane, window * share) for lane in _lanes(chunks, seed, epoch)]
        begin = position
        while pieces := [as_rows(piece, dtype) for lane in lanes for piece in lane.take(share)]:
            size = sum(piece.shape[0] for piece in pieces)
            if position + size > start:
                order = random_order(seed, Purpose.WINDOW, (epoch << 16) + window, size)
                yield position, _shuffled(pieces, order)
            position, window = position + size, window + 1
        if n_rows < ENDLESS:
            check_count((epoch + 1) * n_rows, position)
        if not repeatable or position == begin:
            return
        epoch, window = epoch + 1, 0


def total_rows(chunks: Sequence[Chunk[Rows]]) -> int:
    """The number of rows, or `ENDLESS` if it is unknown."""
    counts = [chunk.n_rows for chunk in chunks]
    return ENDLESS if None in counts else sum(filter(None, counts))


def check_count(expected: int, n_rows: int) -> None:
    """Raises a ValueError unless as many rows were read as expected."""
    if n_rows != expected:
        raise ValueError(
            f"{expected:,} rows were expected, but there are {n_rows:,}: the files have changed, or n_rows is wrong"
        )


def random_order(seed: int, stream: Purpose, block: int, n: int) -> Array:
    """A random order of ``0..n-1``: that of 32-bit words, sorted by their halves, for which NumPy has a radix sort."""
    words = philox.words(seed, stream, block & 0xFFFFFFFF, 1, n)[0]
    low = np.argsort(words.astype(np.uint16), kind="stable")
    return low[np.argsort((words >> np.uint64(16)).astype(np.uint16)[low], kind="stable")]


def _lanes(chunks: Sequence[Chunk[Rows]], seed: int, epoch: int) -> list[list[Chunk[Rows]]]:
    """The chunks in the order of this pass, dealt out to lanes."""
    order = [chunks[k] for k in random_order(seed, Purpose.CHUNK, epoch, len(chunks))]
    return [order[lane::LANES] for lane in range(min(LANES, len(order)))]


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

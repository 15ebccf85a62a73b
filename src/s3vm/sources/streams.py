"""Rows that need not fit into memory: chunks read side by side, shuffled, and made ready in the background.

A stream is cut into *chunks* that can be read alone: groups of rows of a parquet file, a csv file, an iterator. In
every pass the chunks are put into an order drawn for that pass, and dealt out to a few *lanes*, which are read side by
side. A *window* takes as many rows from each lane as the buffer holds, and shuffles them. Batches are cut from the
windows one after the other, so that a pass gives every row once.

Mixing is therefore limited: rows of a chunk meet those of the chunks that are read at the same time, within the buffer.
Everything is a function of the seed and the position: where the chunks' sizes are known, a run that goes on in the
middle opens the files there.
"""

import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from s3vm import philox
from s3vm._utils.arrays import as_rows, check_numbers, check_size, precision, stack
from s3vm._utils.csr import as_csr
from s3vm._utils.settings import is_integer
from s3vm._utils.typing import Array, Rows
from s3vm.philox import Purpose
from s3vm.sources import ENDLESS, ExhaustedError

__all__ = ["BUFFER_BYTES", "BatchSource", "Chunk", "MappedSource", "StreamSource"]

BUFFER_BYTES = 32 << 20
_LANES = 4
_PLACES = 64  # chunks that a sample is taken from
_SAMPLE, _LEAST_SAMPLE = 1 << 14, 1 << 11
_LOOK = 1 << 14  # rows at the start of a chunk that a sample is taken from
_WAIT = 0.1


class Chunk(NamedTuple):
    """Rows that can be read without others: how many (None: only reading tells), and a reader from their start."""

    n_rows: int | None
    parts: Callable[[], Iterator[Rows]]


class StreamSource:
    """Rows in chunks; see above.

    Parameters
    ----------
    chunks : sequence of Chunk
    n_dims : int
    dtype : dtype of the rows handed out
    buffer_bytes : int, default 32 MiB
        The size of a window; about five times as much memory is needed.
    again : bool, default True
        Whether the chunks can be read more than once.
    """

    names: Sequence[str] | None = None

    def __init__(
        self,
        chunks: Sequence[Chunk],
        n_dims: int,
        dtype: Any = np.float32,
        buffer_bytes: int = BUFFER_BYTES,
        again: bool = True,
    ) -> None:
        if not is_integer(buffer_bytes):
            raise ValueError(f"buffer_bytes={buffer_bytes!r} is not valid: give a number of bytes, such as 32 << 20")
        self._chunks = list(chunks)
        self._n_dims, self._dtype, self._again = n_dims, precision(dtype), again
        self._buffer_bytes = buffer_bytes
        self.order = f"shuffled in {buffer_bytes:,} bytes"
        """What else decides in which order the rows come, for checkpoints."""
        self._reading: _Reading | None = None
        self._sampled: tuple[int, int, Rows] | None = None
        self._begun = False

    @property
    def n_rows(self) -> int:
        return _total(self._counted())

    @property
    def n_dims(self) -> int:
        return self._n_dims

    @property
    def dtype(self) -> Any:
        return self._dtype

    def batches(self, seed: int, stream: Purpose, steps: range, size: int) -> Rows:
        with self._here().lock:
            if not self._again and self._sampled is None:
                self.sample(seed, 1)  # later it would be too late
            return self._at((seed, int(stream)), steps.start * size).take(steps.start * size, len(steps) * size)

    def sample(self, seed: int, size: int) -> Rows:
        # Small samples are the beginning of a larger one, so that files are opened once for all of them.
        enough = max(size, min(_SAMPLE, max(_LEAST_SAMPLE, BUFFER_BYTES // (self._dtype.itemsize * self._n_dims))))
        with self._here().lock:
            if self._sampled is None or self._sampled[:2] != (seed, enough):
                self._sampled = seed, enough, self._draw(seed, enough)
            return self._sampled[2][:size]

    def rows(self) -> Iterator[Rows]:
        """All rows once, in their order."""
        for chunk in self._counted():
            for rows in chunk.parts():
                yield self._own(rows)

    def scaler(self, sample: int | None = None, seed: int = 0) -> StandardScaler:
        """A scaler fitted to all rows in one pass, or to a sample of so many."""
        scaler = StandardScaler()
        for rows in self.rows() if sample is None else [self.sample(seed, sample)]:
            scaler.with_mean = not sparse.issparse(rows)  # sparse rows keep their zeros
            scaler.partial_fit(rows)
        return named(scaler, self.names)

    def scaled(self, scaler: StandardScaler) -> "MappedSource":
        """The same rows as the scaler makes them."""
        return MappedSource(self, scaling(scaler, self._dtype))

    def windows(self, seed: int, start: int = 0) -> Iterator[tuple[int, Rows]]:
        """Shuffled rows and the position of the first, from the window on that has the row at position `start`."""
        if self._begun and not self._again:
            raise ExhaustedError(
                "these batches have been read already and cannot be begun again: give a list, or a function that "
                "makes a new iterator"
            )
        self._begun = True
        return _windows(self._counted(), seed, start, self._window_rows(), self._dtype, self._again)

    def _counted(self) -> list[Chunk]:
        """The chunks, as far as they are known."""
        return self._chunks

    def _window_rows(self) -> int:
        return max(_LANES, self._buffer_bytes // (self._dtype.itemsize * max(1, self._n_dims)))

    def _own(self, rows: Any) -> Rows:
        return as_rows(rows, self._dtype)

    def _draw(self, seed: int, size: int) -> Rows:
        """Some rows from each of a few chunks; the first window where chunks cannot be opened at will."""
        if not self._again:
            return self._first(seed, size)
        chunks = self._counted()
        if self.n_rows <= size:
            whole = stack(list(self.rows()))
            _expect(self.n_rows, whole.shape[0])
            return whole[_order(seed, Purpose.REFERENCE, 0, self.n_rows)]
        if self.n_rows == ENDLESS:
            return self._first(seed, size)
        places = [chunks[k] for k in _order(seed, Purpose.REFERENCE, 0, len(chunks))[:_PLACES]]
        each, found = -(-size // len(places)), []
        for number, chunk in enumerate(places):
            rows = stack(_Lane([chunk], 0).take(_LOOK) or [np.empty((0, self._n_dims))])
            chosen = np.sort(_order(seed, Purpose.REFERENCE, 1 + number, rows.shape[0])[:each])
            found.append(self._own(rows[chosen]))
        whole = stack(found)
        if whole.shape[0] < size:  # chunks were too small: as many as are missing come from the first windows
            whole = stack([whole, self._first(seed, size - whole.shape[0])])
        return whole[_order(seed, Purpose.REFERENCE, 0, whole.shape[0])][:size]

    def _first(self, seed: int, size: int) -> Rows:
        """The first rows of the shuffled stream, which stay for those who begin to read it."""
        return self._at((seed, int(Purpose.UNLABELLED)), 0).take(0, size, at_most=True)

    def _here(self) -> "_Reading":
        """Where this process reads: a fork has neither the thread that reads ahead nor whoever held the lock."""
        here = self._reading
        if here is None or here.process != os.getpid():
            with _BEGINNING:
                here = self._reading
                if here is None or here.process != os.getpid():
                    here = self._reading = _Reading()
        return here

    def _at(self, key: tuple[int, int], start: int) -> "_Cursor":
        """The stream of that key at that place."""
        here = self._here()
        if here.cursor is None or not here.cursor.is_near(key, start):
            here.cursor = None  # ends its thread before another one begins to read
            here.cursor = _Cursor(key, start, self.windows(key[0], start))
        return here.cursor

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reading": None}


class BatchSource(StreamSource):
    """Any iterable of batches, each an array or a CSR matrix: a generator, a list, a function that makes a generator.

    Rows come in the order of the iterable, shuffled within the buffer. A generator can be read once: when it ends, so
    does the training. What can be begun again, a list or a function, is begun again.

    Parameters
    ----------
    batches : iterable of rows, or function that returns one, which is called whenever rows are read from the start
    n_rows : int or None, default None
        How many rows one pass has, if that is known. Otherwise the solver must be told how many iterations to make.
    dtype, buffer_bytes
        As in `StreamSource`.
    """

    def __init__(
        self,
        batches: Iterable[Any] | Callable[[], Iterable[Any]],
        n_rows: int | None = None,
        dtype: Any = np.float32,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        if n_rows is not None and not is_integer(n_rows):
            raise ValueError(f"n_rows={n_rows!r} is not valid: give the number of rows of all batches, or None")
        begin: Any = batches if callable(batches) else lambda: batches
        given = begin()
        if not isinstance(given, Iterable):
            raise ValueError(f"a source of batches needs an iterable of arrays, not a {type(given).__name__}")
        if callable(batches) and iter(given) is given and begin() is given:
            raise ValueError(
                "the function gives the same iterator every time: let it make a new one, or give the iterator"
            )
        once = not callable(batches) and iter(batches) is batches
        first: Any = next(iter(given), None)
        if first is None or getattr(first, "ndim", 0) != 2 or not first.shape[1]:
            what = "there is none" if first is None else f"the first is a {type(first).__name__}"
            if hasattr(first, "shape"):
                what += f" of shape {first.shape}"
            raise ValueError(f"a source of batches needs arrays or CSR matrices of rows: {what}")
        self.names = _names(first)
        like = {"n_columns": first.shape[1], "names": self.names, "thin": sparse.issparse(first)}
        checked = partial(_checked, **like, dtype=precision(dtype))
        if once:
            whole = chain([first], begin())

            def parts() -> Iterator[Rows]:
                return map(checked, whole)
        else:

            def parts() -> Iterator[Rows]:
                return map(checked, begin())

        super().__init__([Chunk(n_rows, parts)], first.shape[1], dtype, buffer_bytes, again=not once)


class MappedSource:
    """The rows of another source, each batch changed by a function; what comes out has no names."""

    def __init__(self, source: Any, change: Callable[[Rows], Rows]) -> None:
        self._source, self._change = source, change

    @property
    def n_rows(self) -> int:
        return int(self._source.n_rows)

    @property
    def n_dims(self) -> int:
        return int(self._source.n_dims)

    @property
    def dtype(self) -> Any:
        return self._source.dtype

    def survey(self, progress: Callable[[int], None] | None = None) -> None:
        """Lets the other source read all rows once, if it has to."""
        if hasattr(self._source, "survey"):
            self._source.survey(progress)

    def batches(self, seed: int, stream: Purpose, steps: range, size: int) -> Rows:
        return self._change(self._source.batches(seed, stream, steps, size))

    def sample(self, seed: int, size: int) -> Rows:
        return self._change(self._source.sample(seed, size))

    def labelled(self) -> tuple[Rows, Array]:
        """The labelled rows of the other source, changed alike, and their labels."""
        rows, labels = self._source.labelled()
        return self._change(rows), labels


class scaling:  # noqa: N801 - used as a function, and pickled
    """What a fitted StandardScaler does to rows, in their own precision."""

    def __init__(self, scaler: StandardScaler, dtype: Any = np.float32) -> None:
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


def named(scaler: StandardScaler, names: Sequence[str] | None) -> StandardScaler:
    """The scaler, which knows the names of the columns."""
    if names is not None:
        scaler.feature_names_in_ = np.array(names, dtype=object)
    return scaler


def _names(rows: Any) -> list[str] | None:
    """The names of the columns of a data frame, if they are text, as scikit-learn has it."""
    names = list(getattr(rows, "columns", ()))
    return names if names and all(isinstance(name, str) for name in names) else None


def _checked(rows: Any, n_columns: int, names: list[str] | None, thin: bool, dtype: Any) -> Rows:
    """A batch that someone else made, which must be like the first."""
    if getattr(rows, "ndim", 0) != 2 or rows.shape[1] != n_columns:
        shape = getattr(rows, "shape", type(rows).__name__)
        raise ValueError(f"a batch has the shape {shape}, where the first has {n_columns} columns")
    if sparse.issparse(rows) != thin:
        raise ValueError("some batches are sparse and some are not: give all of them alike")
    if _names(rows) != names:
        raise ValueError(f"a batch has the columns {_names(rows)}, the first has {names}: give all of them alike")
    check_numbers(rows)
    if thin:
        rows = as_csr(rows)
    entries = rows.data if sparse.issparse(rows) else np.asarray(rows)
    if entries.dtype.kind not in "fiub":
        raise ValueError(f"a batch has entries of type {entries.dtype}, which are no real numbers: encode them as such")
    if not np.isfinite(entries).all():
        raise ValueError("a batch has values that are missing or infinite: leave such rows out, or fill them in")
    check_size(entries, dtype)
    return rows


class _Lane:
    """Chunks one after the other, from a place in the middle on."""

    def __init__(self, chunks: Sequence[Chunk], skip: int) -> None:
        first = 0
        while first < len(chunks) and (n_rows := chunks[first].n_rows) is not None and n_rows <= skip:
            skip, first = skip - n_rows, first + 1
        self._parts = (rows for chunk in chunks[first:] for rows in chunk.parts())
        self._rest: Rows = None
        while skip and (rows := next(self._parts, None)) is not None:
            if rows.shape[0] > skip:
                self._rest = rows[skip:]
            skip -= min(skip, rows.shape[0])

    def take(self, count: int) -> list[Rows]:
        """The next rows, as many as asked for or as are left."""
        taken: list[Rows] = []
        while count and (rows := self._rest if self._rest is not None else next(self._parts, None)) is not None:
            self._rest = rows[count:] if rows.shape[0] > count else None
            taken.append(rows[:count])
            count -= taken[-1].shape[0]
        return [rows for rows in taken if rows.shape[0]]


_BEGINNING = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_BEGINNING.acquire, after_in_parent=_BEGINNING.release, after_in_child=_BEGINNING.release
    )


class _Reading:
    """What one process reads of a stream, one thread at a time."""

    def __init__(self) -> None:
        self.process, self.lock = os.getpid(), threading.RLock()
        self.cursor: _Cursor | None = None


class _Cursor:
    """A place in a stream: the windows around it, and a thread that makes the next one."""

    def __init__(self, key: tuple[int, int], start: int, windows: Iterator[tuple[int, Rows]]) -> None:
        self._key, self._first, self._last = key, start, start
        self._windows = _Ahead(windows)
        self._held: list[tuple[int, Rows]] = []

    def is_near(self, key: tuple[int, int], start: int) -> bool:
        """Whether the row at position `start` is held, or is the next one."""
        return key == self._key and self._first <= start <= self._last

    def take(self, start: int, count: int, at_most: bool = False) -> Rows:
        """Rows from `start` on; those before are forgotten unless they are in the same window."""
        while not self._held or self._last < start + count:
            window = next(self._windows, None)
            if window is None:
                if at_most and self._held:
                    break
                raise ExhaustedError("the stream has no more rows")
            self._held.append(window)
            self._last = window[0] + window[1].shape[0]
        while len(self._held) > 1 and self._held[1][0] <= start:
            self._held.pop(0)
        self._first = self._held[0][0]
        cut = [rows[max(0, start - first) : max(0, start + count - first)] for first, rows in self._held]
        cut = [rows for rows in cut if rows.shape[0]]
        return cut[0] if len(cut) == 1 else stack(cut)


class _Ahead:
    """The items of an iterator, each made in a background thread while the one before it is in use."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._ready: queue.Queue[tuple[str, Any]] = queue.Queue(1)
        stop = threading.Event()
        thread = threading.Thread(target=_work, args=(items, self._ready, stop), name="s3vm reader", daemon=True)
        self.__end = weakref.finalize(self, _end, stop, thread)  # also when the interpreter ends
        self._over: tuple[str, Any] | None = None
        thread.start()

    def __next__(self) -> Any:
        what, item = self._over or self._ready.get()
        if what == "item":
            return item
        self._over = what, item
        if what == "error":
            raise item
        raise StopIteration


def _work(items: Iterator[Any], ready: "queue.Queue[tuple[str, Any]]", stop: threading.Event) -> None:
    def put(what: str, item: Any) -> bool:
        while not stop.is_set():
            try:
                ready.put((what, item), timeout=_WAIT)
            except queue.Full:
                continue
            return True
        return False

    try:
        for item in items:
            if not put("item", item):
                return
        put("end", None)
    except BaseException as problem:  # whatever it is, it belongs to the one who waits for the rows
        put("error", problem)


def _end(stop: threading.Event, thread: threading.Thread) -> None:
    stop.set()
    if thread is not threading.current_thread():
        thread.join(timeout=5)


# Nothing below knows the source, which may be given up while a thread still reads.


def _total(chunks: Sequence[Chunk]) -> int:
    counts = [chunk.n_rows for chunk in chunks]
    return ENDLESS if None in counts else sum(filter(None, counts))


def _windows(
    chunks: Sequence[Chunk], seed: int, start: int, window_rows: int, dtype: Any, again: bool
) -> Iterator[tuple[int, Rows]]:
    n_rows, share = _total(chunks), window_rows // min(_LANES, len(chunks))
    position = epoch = window = 0
    if n_rows < ENDLESS:
        epoch, within = divmod(start, n_rows)
        ends = np.cumsum(_window_sizes(_lanes(chunks, seed, epoch), share))
        window = int(np.searchsorted(ends, within, side="right"))
        position = epoch * n_rows + int(ends[window - 1] if window else 0)
    while True:
        lanes = [_Lane(lane, window * share) for lane in _lanes(chunks, seed, epoch)]
        begun = position
        while pieces := [as_rows(piece, dtype) for lane in lanes for piece in lane.take(share)]:
            size = sum(piece.shape[0] for piece in pieces)
            if position + size > start:
                yield position, _shuffled(pieces, _order(seed, Purpose.WINDOW, (epoch << 16) + window, size))
            position, window = position + size, window + 1
        if n_rows < ENDLESS:
            _expect((epoch + 1) * n_rows, position)
        if not again or position == begun:
            return
        epoch, window = epoch + 1, 0


def _expect(n_rows: int, found: int) -> None:
    if found != n_rows:
        raise ValueError(
            f"{n_rows:,} rows were expected, and there are {found:,}: the files have changed, or n_rows is wrong"
        )


def _order(seed: int, stream: Purpose, block: int, n: int) -> Array:
    """A random order of ``0..n-1``: that of 32-bit words, sorted by their halves, for which NumPy has a radix sort."""
    words = philox.words(seed, stream, block & 0xFFFFFFFF, 1, n)[0]
    low = np.argsort(words.astype(np.uint16), kind="stable")
    return low[np.argsort((words >> np.uint64(16)).astype(np.uint16)[low], kind="stable")]


def _lanes(chunks: Sequence[Chunk], seed: int, epoch: int) -> list[list[Chunk]]:
    """The chunks in the order of that pass, dealt out."""
    order = [chunks[k] for k in _order(seed, Purpose.CHUNK, epoch, len(chunks))]
    return [order[lane::_LANES] for lane in range(min(_LANES, len(order)))]


def _window_sizes(lanes: Sequence[Sequence[Chunk]], share: int) -> Array:
    """How many rows each window of a pass has, if all counts are known."""
    lengths = np.array([sum(chunk.n_rows or 0 for chunk in lane) for lane in lanes])
    starts = share * np.arange(-(-lengths.max() // share))
    return np.clip(lengths - starts[:, None], 0, share).sum(axis=1)


def _shuffled(pieces: list[Rows], order: Array) -> Rows:
    if sparse.issparse(pieces[0]):
        return stack(pieces)[np.argsort(order)]
    # Each piece goes straight to its places, a row as one thing of so many bytes, which is several times faster.
    result, start = np.empty((len(order), pieces[0].shape[1]), pieces[0].dtype), 0
    row = np.dtype((np.void, result.dtype.itemsize * result.shape[1]))
    places = result.view(row)[:, 0]
    for piece in pieces:
        places[order[start : start + len(piece)]] = piece.view(row)[:, 0]
        start += len(piece)
    return result

"""Reading ahead: the next window of a stream is made in a background thread while the current one is in use."""

import os
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from s3vm._utils.arrays import stack
from s3vm._utils.typing import Rows
from s3vm.sources.base import ExhaustedError


class Reader:
    """What a process reads of a stream, one thread at a time."""

    def __init__(self) -> None:
        _readers.add(self)
        self.begin()

    def begin(self) -> None:
        self.lock = threading.RLock()
        self.cursor: Cursor | None = None

    def __reduce__(self) -> Any:
        return Reader, ()  # a copy begins at the start


_readers = weakref.WeakSet[Reader]()


def _in_child() -> None:
    """A child has neither the thread that reads ahead nor the one that held the lock."""
    for reader in _readers:
        reader.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


class Cursor:
    """A place in a stream: the windows around it, and a thread that makes the next one."""

    def __init__(self, key: tuple[int, int], start: int, windows: Iterator[tuple[int, Rows]]) -> None:
        self._key, self._first, self._last = key, start, start
        self._windows = _Prefetched(windows)
        self._held: list[tuple[int, Rows]] = []

    def is_near(self, key: tuple[int, int], start: int) -> bool:
        """Whether the row at position `start` is in memory, or is the next one."""
        return key == self._key and self._first <= start <= self._last

    def take(self, start: int, count: int, at_most: bool = False) -> Rows:
        """Rows from `start` on. Earlier ones are released unless they are in the same window."""
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


class _Prefetched:
    """The items of an iterator, each made in a background thread while the one before is in use."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._wanted: SimpleQueue[Future[Any] | None] = SimpleQueue()
        # One thread for all items: each new thread may get memory of its own from the allocator.
        thread = threading.Thread(target=_work, args=(items, self._wanted), name="s3vm reader", daemon=True)
        weakref.finalize(self, _end, self._wanted, thread)  # also when the interpreter ends
        thread.start()
        self._want()

    def _want(self) -> None:
        self._next: Future[Any] = Future()
        self._wanted.put(self._next)

    def __next__(self) -> Any:
        item = self._next.result()  # or the error, each time
        if item is None:
            raise StopIteration
        self._want()
        return item


def _work(items: Iterator[Any], wanted: "SimpleQueue[Future[Any] | None]") -> None:
    """The background thread. It knows nothing of the source, which may be released while it reads."""
    while (result := wanted.get()) is not None:
        try:
            result.set_result(next(items, None))
        except BaseException as problem:  # whatever it is, it is raised where the rows are waited for
            result.set_exception(problem)


def _end(wanted: "SimpleQueue[Future[Any] | None]", thread: threading.Thread) -> None:
    wanted.put(None)
    if thread is not threading.current_thread():
        thread.join(timeout=5)

"""Limiting the BLAS to one thread while our own threads are at work."""

import os
from collections import Counter
from contextlib import ContextDecorator
from functools import cache
from threading import Lock, get_ident
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _libraries() -> list[Any]:
    """The BLAS libraries of the process, cached since looking for them takes longer than predicting a row."""
    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]


def _set(library: Any, n_threads: int) -> None:
    """Sets the number from any thread; newer versions of threadpoolctl accept it only from the first thread."""
    getattr(library, "_real_set_num_threads", library.set_num_threads)(n_threads)


class _OneThread(ContextDecorator):
    """A limit that any number of threads may use at once.

    Most BLAS have one number of threads for the whole process. If each user set and restored it separately, the first
    one to leave would lift the limit for the others, and the last would restore the limit itself.
    """

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), Counter[int]()
        self._before: list[int] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._in_child
            )

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = [library.get_num_threads() for library in _libraries()]
            self._inside[get_ident()] += 1
            if self._inside[get_ident()] == 1:
                for library in _libraries():
                    _set(library, 1)

    def __exit__(self, *_: Any) -> None:
        with self._lock:
            self._inside.subtract([get_ident()])
            self._put_back()

    def _in_child(self) -> None:
        """Resets the counts: of all threads, a child has only the one that forked."""
        was_limited = bool(self._inside)
        self._inside = +Counter({get_ident(): self._inside[get_ident()]})  # empty if it is not inside
        if was_limited:
            self._put_back()
        self._lock.release()

    def _put_back(self) -> None:
        self._inside = +self._inside  # without threads that have left
        if self._inside[get_ident()]:
            return
        for library, before in zip(_libraries(), self._before, strict=True):
            if not self._inside or getattr(library, "threading_layer", "") == "openmp":  # has a number per thread
                _set(library, before)


one_blas_thread = _OneThread()

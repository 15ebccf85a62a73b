"""One thread of the BLAS while threads of ours are at work."""

import os
from collections import Counter
from contextlib import ContextDecorator
from functools import cache
from threading import Lock, get_ident
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["one_blas_thread"]


@cache
def _libraries() -> ThreadpoolController:
    """Looking for the libraries takes longer than predicting a row."""
    return ThreadpoolController()


class _OneThread(ContextDecorator):
    """A limit that any number of threads may be under.

    The BLAS has one number of threads for the whole process. Were it set and put back by each on its own, the first to
    come out would free those still inside, and the last would put back the limit that it found.
    """

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), Counter[int]()
        self._limit: Any = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._in_child
            )

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._limit = _libraries().limit(limits=1, user_api="blas")
            self._inside[get_ident()] += 1

    def __exit__(self, *_: Any) -> None:
        with self._lock:
            self._inside.subtract([get_ident()])
            self._perhaps_restore()

    def _in_child(self) -> None:
        """Of all threads, a child has only the one that forked."""
        self._inside = Counter({get_ident(): self._inside[get_ident()]})
        self._perhaps_restore()
        self._lock.release()

    def _perhaps_restore(self) -> None:
        self._inside = +self._inside  # without those that are out
        if not self._inside and self._limit is not None:
            self._limit.restore_original_limits()
            self._limit = None


one_blas_thread = _OneThread()

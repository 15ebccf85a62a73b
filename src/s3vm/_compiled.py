"""Compiled functions, and the files that keep them for the next process.

Numba's own files have two faults that we do without. Two processes that compile the same function for other types at
the same moment give both the same number, and whoever reads it later gets the wrong one: here a file is named by what
is in it. And what cannot be kept, or cannot be read again, is an error there: here it is compiled once more.
"""

import hashlib
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from numba import njit
from numba.core.compiler_lock import global_compiler_lock

__all__ = ["compiled"]


def compiled(**options: Any) -> Callable[[Any], Any]:
    """`numba.njit` for functions that Python calls: without the GIL, and kept in a file."""

    def make(function: Any) -> Any:
        try:
            made = njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:  # there is no folder to keep it in
            return njit(nogil=True, **options)(function)
        files = getattr(getattr(made, "_cache", None), "_cache_file", None)
        if files is not None:
            files.save, files.load = partial(_save, files), partial(_load, files)
        return made

    return make


def _save(files: Any, key: Any, data: Any) -> None:
    with suppress(OSError):
        files._save_data(_name(files, key), data)


def _load(files: Any, key: Any) -> Any:
    with suppress(OSError, EOFError, pickle.UnpicklingError):
        return files._load_data(_name(files, key))


def _name(files: Any, key: Any) -> str:
    """Types, processor, source and version decide what is in a file."""
    digest = hashlib.sha256(repr((files._version, files._source_stamp, key)).encode()).hexdigest()
    return f"{files._index_name.removesuffix('.nbi')}.{digest[:24]}.nbc"


if hasattr(os, "register_at_fork"):
    # A child forked while another thread compiles would wait for ever for the lock, which nobody there gives back.
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )

"""Compiled functions that are kept on disk until anything that they are made of changes.

Numba keeps machine code beside the file of a function and compiles again when that file has changed. Ours are made of
functions of other files too, so the mark that Numba compares is taken over all files of the folder, and over the random
numbers. Otherwise an upgrade could go on with the machine code of the version before.
"""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import njit

__all__ = ["compiled"]

_COMMON = Path(__file__).parent / "philox.py"


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` that gives up the GIL and keeps what it compiled."""

    def compile_later(function: Callable[..., Any]) -> Any:
        dispatcher = njit(cache=True, nogil=True, **options)(function)
        kept = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
        if kept is not None:  # it is none where nothing can be written, or nothing is compiled
            kept._source_stamp = _mark(Path(function.__code__.co_filename).parent)
        return dispatcher

    return compile_later


@cache
def _mark(folder: Path) -> str:
    files = [_COMMON, *sorted(folder.glob("*.py"))]
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

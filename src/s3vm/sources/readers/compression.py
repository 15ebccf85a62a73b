"""Compressed files, known by the end of their name."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["is_compressed", "open_decompressed", "suffix_of"]

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_ONLY_CSV = (".zst", ".lz4")  # pyarrow reads these, but only for csv


def is_compressed(path: str) -> bool:
    return Path(path).suffix.lower() in (*_OPENERS, *_ONLY_CSV)


def suffix_of(path: str) -> str:
    """The end of the name that says the format; that of a compression is skipped."""
    return Path(Path(path).stem if is_compressed(path) else path).suffix.lower()


def open_decompressed(path: str) -> Any:
    """The bytes of a file, decompressed if it is compressed."""
    return _OPENERS.get(Path(path).suffix.lower(), open)(path, "rb")

"""Files that may be compressed, as the end of their name says."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def is_compressed(path: str) -> bool:
    return Path(path).suffix.lower() in _OPENERS


def open_decompressed(path: str) -> Any:
    return _OPENERS.get(Path(path).suffix.lower(), open)(path, "rb")

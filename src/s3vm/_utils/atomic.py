"""Files that are replaced as a whole: whatever happens while one is written, it is the old file or the new one."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Any) -> Iterator[Path]:
    """Yields the name of a temporary file for the new content; it replaces `path` unless the block raises an error."""
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        yield temporary
        with open(temporary, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        with suppress(OSError):  # an error of the block matters more
            temporary.unlink(missing_ok=True)


def write(path: Any, *parts: Any) -> None:
    """Replaces `path` by these bytes."""
    try:
        with replacing(path) as temporary, open(temporary, "xb") as file:
            for part in parts:
                file.write(part)
    except OSError as problem:
        reason = f"{problem.strerror or problem}: {path} could not be written. Any existing file is unchanged"
        raise OSError(problem.errno, reason) from problem

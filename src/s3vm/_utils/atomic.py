"""Files that are either the old one or the new one, whatever happens while they are written."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["write"]


def write(path: Any, *parts: Any) -> None:
    """Writes the bytes beside `path` and puts them in its place once they are on the disk."""
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with open(beside, "xb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except OSError as problem:
        reason = f"{problem.strerror or problem}: {path} could not be written. A file that was there is as it was"
        raise OSError(problem.errno, reason) from problem
    finally:
        with suppress(OSError):  # what happened first is to be told
            beside.unlink(missing_ok=True)

"""Files that are replaced as a whole: whatever happens while one is written, it is the old file or the new one."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Any) -> Iterator[Path]:
    """Yields the name of an empty temporary file for the new content; it replaces `path` unless the block raises.

    The new file has the owner and the permissions of the old one, or those of any new file. Until then only we can read
    what may replace a private file. A link stays a link, and a device or a pipe is never replaced.
    """
    target = Path(os.path.realpath(path))
    old = target.stat() if target.exists() else None
    if old is not None and not stat.S_ISREG(old.st_mode):
        raise OSError(errno.EINVAL, "it is not a plain file", str(path))
    temporary = target.with_name(f".{secrets.token_hex(8)}.part")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if old is None else 0o600))
        yield temporary
        with open(temporary, "r+b") as file:
            os.fsync(file.fileno())
        if old is not None:
            _keep_access(temporary, old)
        os.replace(temporary, target)
    finally:
        with suppress(OSError):  # an error of the block matters more
            temporary.unlink(missing_ok=True)


def _keep_access(path: Path, old: os.stat_result) -> None:
    """Lets exactly those read and write the file who could read and write the old one, or fewer."""
    mode = stat.S_IMODE(old.st_mode) & 0o777
    if hasattr(os, "chown"):
        for owner in (old.st_uid, -1):  # only root may give files away
            with suppress(OSError):
                os.chown(path, owner, old.st_gid)
                break
        else:
            mode &= 0o707
    path.chmod(mode)


def write(path: Any, *parts: Any) -> None:
    """Replaces `path` by these bytes."""
    try:
        with replacing(path) as temporary, open(temporary, "wb") as file:
            for part in parts:
                file.write(part)
    except OSError as problem:
        reason = f"{problem.strerror or problem}: {path} could not be written. Any existing file is unchanged"
        raise OSError(problem.errno, reason) from problem

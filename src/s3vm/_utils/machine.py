"""The memory of this machine."""

import os
from pathlib import Path

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> int:
    """The memory of the machine in bytes, or the limit of its container."""
    known = [1 << 62]
    if hasattr(os, "sysconf"):
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in map(Path, _LIMITS):
        text = path.read_text().strip() if path.is_file() else ""
        if text.isdigit():  # not "max"
            known.append(int(text))
    return min(known)


def format_bytes(n_bytes: float) -> str:
    """A number of bytes as text, in MiB or GiB."""
    return f"{n_bytes / 2**30:.3g} GiB" if n_bytes >= 1 << 30 else f"{n_bytes / 2**20:.3g} MiB"

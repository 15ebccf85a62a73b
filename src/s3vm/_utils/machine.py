"""How much memory this machine has."""

import os
from pathlib import Path

__all__ = ["machine_memory", "size"]

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> int:
    """The bytes of memory that this process may hope for: the machine's, or what its container is given."""
    known = [1 << 62]
    if hasattr(os, "sysconf"):
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in map(Path, _LIMITS):
        text = path.read_text().strip() if path.is_file() else ""
        if text.isdigit():  # and not "max"
            known.append(int(text))
    return min(known)


def size(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:.3g} GiB" if n_bytes >= 1 << 30 else f"{n_bytes / 2**20:.3g} MiB"

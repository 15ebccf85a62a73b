"""The memory of this machine, and advice if it runs out."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def with_advice(advice: str) -> Iterator[None]:
    """Makes a MemoryError say what to do, where NumPy's and Numba's say only how much memory was requested."""
    try:
        yield
    except MemoryError as problem:
        if type(problem) is MemoryError and problem.args and "Allocation failed" not in str(problem):
            raise  # it has its own advice
        details = f" ({problem})" if str(problem) else ""
        raise MemoryError(f"there is not enough memory{details}: {advice}") from problem

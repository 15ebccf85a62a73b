"""Whether a run fits into this machine's memory, asked before it begins."""

import os
from pathlib import Path

from s3vm.backends import Backend
from s3vm.problem import Problem
from s3vm.solvers import TSG, Solver

__all__ = ["check_memory", "machine_memory"]

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


def check_memory(solver: Solver, problem: Problem, backend: Backend) -> None:
    """Raises a MemoryError that says how much `solver` needs and what to use instead, if the machine has less."""
    needed, there = solver.memory(problem, backend), machine_memory()
    if needed <= there:
        return
    frugal = TSG()
    advice = "use fewer rows"
    if frugal.memory(problem, backend) < there and not isinstance(solver, TSG):
        advice = f'use solver="tsg", which needs about {_size(frugal.memory(problem, backend))}, or fewer rows'
    raise MemoryError(
        f"{type(solver).__name__} needs about {_size(needed)} for {problem.n_rows:,} rows, "
        f"and there are {_size(there)}: {advice}"
    )


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:.3g} GiB" if n_bytes >= 1 << 30 else f"{n_bytes / 2**20:.3g} MiB"

"""Whether a run fits into the memory, checked before it begins."""

from copy import copy

from s3vm._utils.machine import format_bytes, machine_memory
from s3vm.backends import Backend
from s3vm.problem import Problem
from s3vm.solvers import Solver, solver
from s3vm.sources import ENDLESS


def check_memory(chosen: Solver, problem: Problem, backend: Backend) -> None:
    """Raises a MemoryError that says how much the solver needs and what to use instead, if the machine has less."""
    needed, available = chosen.memory(problem, backend), backend.memory()
    if needed <= available or needed >= ENDLESS:  # a solver that needs all rows of an endless stream says so itself
        return
    frugal, no_cache = solver("tsg"), copy(backend)
    no_cache.cache_bytes = 0
    advice = "use a smaller cache_bytes" if chosen.memory(problem, no_cache) <= available else "use fewer rows"
    if backend.used():
        advice += ', or backend="cpu"'
    if type(chosen) is not type(frugal) and frugal.memory(problem, backend) < available:
        advice = f'use solver="tsg", which needs about {format_bytes(frugal.memory(problem, backend))}, or fewer rows'
    raise MemoryError(
        f"{type(chosen).__name__} needs about {format_bytes(needed)} for {problem.n_rows:,} rows, "
        f"but only {format_bytes(available)} is available: {advice}"
    )


def check_projected(n_rows: int, n_components: int) -> None:
    """Raises a MemoryError if the machine has too little memory for so many projected rows."""
    needed, available = 8 * n_rows * n_components, machine_memory()
    if needed > available:
        raise MemoryError(
            f"{n_rows:,} rows on {n_components} directions need about {format_bytes(needed)}, but only "
            f"{format_bytes(available)} is available: give a smaller n_components, or fewer rows"
        )

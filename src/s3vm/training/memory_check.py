"""Whether a run fits into this machine's memory, asked before it begins; and what to do when it turns out not to."""

from contextlib import ContextDecorator
from copy import copy
from typing import Any

from s3vm._utils.machine import format_bytes
from s3vm.backends import Backend
from s3vm.problem import Problem
from s3vm.solvers import TSG, Solver
from s3vm.sources import ENDLESS

__all__ = ["check_memory", "with_advice"]


def check_memory(solver: Solver, problem: Problem, backend: Backend) -> None:
    """Raises a MemoryError that says how much `solver` needs and what to use instead, if the machine has less."""
    needed, there = solver.memory(problem, backend), backend.memory()
    if needed <= there or needed >= ENDLESS:  # of a stream that does not end, a solver of all rows says so itself
        return
    frugal, keeps_nothing = TSG(), copy(backend)
    keeps_nothing.cache_bytes = 0
    advice = "use a smaller cache_bytes" if solver.memory(problem, keeps_nothing) <= there else "use fewer rows"
    if backend.used():
        advice += ', or backend="cpu"'
    if frugal.memory(problem, backend) < there and not isinstance(solver, TSG):
        advice = f'use solver="tsg", which needs about {format_bytes(frugal.memory(problem, backend))}, or fewer rows'
    raise MemoryError(
        f"{type(solver).__name__} needs about {format_bytes(needed)} for {problem.n_rows:,} rows, "
        f"and there are {format_bytes(there)}: {advice}"
    )


class with_advice(ContextDecorator):  # noqa: N801 - used as a function
    """Where memory runs out: a MemoryError that says what to do, and not only, as NumPy's, how much was asked for."""

    def __init__(self, advice: str) -> None:
        self._advice = advice

    def __enter__(self) -> None:
        """Nothing has happened yet."""

    def __exit__(self, kind: Any, problem: Any, trace: Any) -> None:
        is_ours = kind is MemoryError and problem.args  # and says what to do already
        if isinstance(problem, MemoryError) and not is_ours:
            told = f" ({problem})" if str(problem) else ""
            raise MemoryError(f"there is not enough memory{told}: {self._advice}") from problem

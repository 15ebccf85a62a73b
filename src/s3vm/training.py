"""The one loop that drives any solver: history, progress, and what Ctrl-C leaves behind."""

import sys
import time
import warnings
from collections.abc import Iterator

import numpy as np
from threadpoolctl import threadpool_limits

from s3vm._typing import Array
from s3vm.backends import Backend
from s3vm.memory import check_memory
from s3vm.problem import Problem
from s3vm.solvers import Solver, State

__all__ = ["train"]

History = dict[str, Array]

_SECONDS_BETWEEN_LINES = 0.2


def train(
    solver: Solver, problem: Problem, backend: Backend, state: State | None = None, verbose: int = 0
) -> tuple[State, History]:
    """Runs a solver to its end, or to Ctrl-C, which keeps what has been learnt and warns.

    Returns
    -------
    state : the last state
    history : dict of arrays, one entry an iteration
    """
    check_memory(solver, problem, backend)
    records: list[dict[str, float]] = []
    states: Iterator[State] = solver.run(problem, backend, state)
    progress = _Progress(solver.iterations(problem), verbose > 0)
    try:
        # The products between sweeps are small: threads of the BLAS would only wait for each other.
        with threadpool_limits(limits=1, user_api="blas"):
            for state in states:
                records.append({"iteration": state.iteration, **state.record})
                progress.show(records[-1])
    except KeyboardInterrupt:
        if not records or state is None:
            raise
        warnings.warn(
            f"interrupted after {state.iteration} of {solver.iterations(problem)} iterations; the model so far is kept",
            stacklevel=4,
        )
    finally:
        progress.close()
    if state is None:
        raise ValueError("the solver made no iteration")
    names = records[0] if records else {}
    return state, {name: np.array([record[name] for record in records], dtype=np.float64) for name in names}


class _Progress:
    """A line on standard error that is written over, at most a few times a second."""

    def __init__(self, total: int, active: bool) -> None:
        self._total, self._active = total, active
        self._start = self._last = time.monotonic()

    def show(self, record: dict[str, float]) -> None:
        if not self._active:
            return
        now = time.monotonic()
        done = int(record["iteration"])
        if now - self._last < _SECONDS_BETWEEN_LINES and done < self._total:
            return
        self._last = now
        bar = "#" * (30 * done // self._total)
        losses = "  ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in record.items() if "loss" in name)
        left = (now - self._start) * (self._total - done) / done
        sys.stderr.write(f"\r[{bar:<30}] {done}/{self._total}  {losses}  {left:.0f} s left ")
        sys.stderr.flush()

    def close(self) -> None:
        if self._active:
            sys.stderr.write("\n")

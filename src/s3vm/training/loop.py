"""The one loop that drives any solver: history, progress, checkpoints, when to stop, and what Ctrl-C leaves behind."""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from s3vm._utils.blas import one_blas_thread
from s3vm._utils.progress import Progress, ProgressBar
from s3vm._utils.settings import Setting, above, at_least, check
from s3vm._utils.warn import warn
from s3vm.backends import Backend
from s3vm.problem import Problem
from s3vm.solvers import Solver, State
from s3vm.solvers.base import check_graph
from s3vm.sources import ExhaustedError
from s3vm.training import checkpoints
from s3vm.training.checkpoints import CheckpointWriter
from s3vm.training.early_stopping import EarlyStopper, EarlyStopping
from s3vm.training.history import History, HistoryLog
from s3vm.training.memory_check import check_memory

EVERY = 60.0
"""The default number of seconds between checkpoints."""


class Interrupted(UserWarning):
    """Ctrl-C ended the training, and the model so far is kept."""


class OutOfTime(UserWarning):
    """`max_seconds` ended the training, and the model so far is kept."""


class OutOfRows(UserWarning):
    """The unlabelled rows ended before the training did, and the model so far is kept."""


@dataclass(frozen=True)
class StoppingRules:
    """When a run stops before its end, and where its checkpoints go."""

    max_seconds: float | None = None
    early_stopping: EarlyStopping = None
    checkpoint: Any = None
    every: float = EVERY
    resume: bool = False
    keeps: bool = True
    """Whether Ctrl-C keeps the model so far, or also ends the program that started it, such as a search."""

    def __post_init__(self) -> None:
        check("max_seconds", self.max_seconds, above(0), None)
        check("every", self.every, Setting("the seconds between checkpoints, at least 0", at_least(0).accepts))
        check("early_stopping", self.early_stopping, "reference", "held_out", None)
        if self.every != EVERY and self.checkpoint is None:
            raise ValueError(f'every={self.every!r} needs checkpoint="path": it is the time between checkpoints')
        if self.resume and self.checkpoint is None:
            raise ValueError('resume=True needs the file to resume from: checkpoint="path"')
        if self.checkpoint is not None:
            self._check_path(self.checkpoint)

    def _check_path(self, checkpoint: Any) -> None:
        """Raises a ValueError before the work, not after it, if no checkpoint can be written there."""
        folder = os.path.dirname(os.path.realpath(checkpoint))
        if not os.path.isdir(folder) or os.path.isdir(os.path.realpath(checkpoint)):  # as for ""
            raise ValueError(f"checkpoint={checkpoint!r} cannot be written: give a file in a folder that exists")
        if not os.access(folder, os.W_OK):
            raise ValueError(f"checkpoint={checkpoint!r} cannot be written: {folder} is read-only")
        for replaced in (checkpoint, f"{checkpoint}.old") if os.path.exists(checkpoint) and not self.resume else ():
            if os.path.exists(replaced) and not checkpoints.is_checkpoint(replaced):
                raise ValueError(f"checkpoint={checkpoint!r}: {replaced} is another kind of file: give another name")


def train(
    solver: Solver,
    problem: Problem,
    backend: Backend,
    state: State | None = None,
    verbose: int | Progress = 0,
    rules: StoppingRules | None = None,
    settings: Mapping[str, str] | None = None,
) -> tuple[State, History]:
    """Runs a solver to its end; or to Ctrl-C, a time limit or the end of a stream, which keep the model so far.

    `settings` of the classifier, as text, let a checkpoint say which of them differs.

    Returns
    -------
    state : the last state
    history : dict of arrays, one entry per iteration; from 65,536 iterations on, one for every second, fourth, ...
    """
    check_graph(solver, problem.uses_graph)
    check_memory(solver, problem, backend)
    run = _Run(solver, problem, backend, state, rules or StoppingRules(), settings)
    states = run.states()
    progress = ProgressBar(verbose)
    try:
        # The products between sweeps are small: threads of the BLAS would only wait for each other.
        with one_blas_thread:
            run.follow(states, progress)
    except KeyboardInterrupt:
        if not run.log or not run.rules.keeps:
            raise
        run.warn("interrupted", Interrupted)
    except ExhaustedError:
        if not run.log:
            raise
        run.warn("no more unlabelled rows", OutOfRows)
    finally:
        progress.close(backend.used())
    return run.result()


class _Run:
    """A run in progress: its last state, and what records and stops it."""

    def __init__(
        self,
        solver: Solver,
        problem: Problem,
        backend: Backend,
        state: State | None,
        rules: StoppingRules,
        settings: Mapping[str, str] | None,
    ) -> None:
        self._solver, self._problem, self._backend = solver, problem, backend
        self.state, self.rules = state, rules
        self._total, self._start = solver.iterations(problem), time.monotonic()
        done = 0 if state is None else state.iteration
        self.log = HistoryLog(problem)
        self._stopper = EarlyStopper(rules.early_stopping, solver, problem, backend, done)
        self._writer: CheckpointWriter | None = None
        if rules.checkpoint is not None:
            identity = {**(settings or {}), **checkpoints.run_of(solver, problem, backend)}
            identity["early_stopping"] = str(rules.early_stopping)
            self._writer = CheckpointWriter(rules.checkpoint, identity, rules.every, rules.resume)

    def states(self) -> Iterator[State]:
        """The states to come, of a new run or of one that resumes from its checkpoint."""
        stored = None if self._writer is None else self._writer.stored()
        if stored is None:
            return self._solver.run(self._problem, self._backend, self.state)
        path = self.rules.checkpoint
        with checkpoints.as_checkpoint_error(f"{path} is damaged: it does not match this run"):
            checkpoints.check(stored.state, self._problem, self._total)
            self.log.restore(stored.memory["log"])
            self._stopper.restore(stored.memory["stop"])
        self.state = stored.state
        return iter(()) if self._stopper.stopped else self._resumed(stored.state)

    def _resumed(self, state: State) -> Iterator[State]:
        """The states after a checkpoint: if not even the first one is reached, the checkpoint is usually to blame."""
        path = self.rules.checkpoint
        with checkpoints.as_checkpoint_error(f"{path} is damaged, or the rows cannot be read: cannot resume from it"):
            states = self._solver.run(self._problem, self._backend, state)
            first = next(states, None)
        if first is not None:
            yield first
            yield from states

    def follow(self, states: Iterator[State], progress: Progress) -> None:
        """Goes through the states until they end or a rule says to stop."""
        limit = self.rules.max_seconds
        for state in states:
            self.state = state
            self.log.add(state)
            progress(state.iteration, self._total, self.log.last)
            if self._writer is not None and self._writer.is_due():
                self._write()
            if self._stopper.after(state):
                return
            if limit is not None and time.monotonic() - self._start >= limit:
                if state.iteration < self._total:
                    self.warn("the time is up", OutOfTime)
                return

    def warn(self, reason: str, category: type[Warning]) -> None:
        done = 0 if self.state is None else self.state.iteration
        warn(f"{reason} after {done} of {self._total} iterations; the model so far is kept", category)

    def _write(self) -> None:
        assert self._writer is not None
        assert self.state is not None
        self._writer.write(self.state, {"log": self.log.to_checkpoint(), "stop": self._stopper.to_checkpoint()})

    def result(self) -> tuple[State, History]:
        """The last state and the history, after a last checkpoint."""
        if self.state is None:
            raise ValueError("the solver made no iterations")
        if self._writer is not None:
            self._write()
        return self.state, self.log.history()

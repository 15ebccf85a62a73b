"""The one loop that drives any solver: history, progress, checkpoints, when to stop, and what Ctrl-C leaves behind."""

import os
import sys
import time
import warnings
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from s3vm._utils.blas import one_blas_thread
from s3vm._utils.scores import brier_losses, predicted_codes
from s3vm._utils.settings import is_whole, number
from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.problem import Problem
from s3vm.solvers import Solver, State
from s3vm.sources import ExhaustedError
from s3vm.training import checkpoints
from s3vm.training.checkpoints import Checkpoint
from s3vm.training.memory_check import check_memory

__all__ = [
    "CheckpointNotWritten",
    "History",
    "Interrupted",
    "Line",
    "OutOfRows",
    "OutOfTime",
    "Progress",
    "StoppingRules",
    "joined",
    "thinned",
    "train",
]

History = dict[str, Array]

Progress = Callable[[int, int, Mapping[str, float]], None]
"""Told after every iteration how many are done, how many there are at most, and the line of the history."""

EarlyStopping = Literal["reference", "held_out"] | None

EVERY = 60.0
"""Seconds between checkpoints, unless told otherwise."""

_SECONDS_BETWEEN_LINES = 0.2
_MOST_LINES = 1 << 16  # of the history; beyond, every second one is left out
_TOGETHER = 256  # iterations whose held-out scores are judged at once
_BETWEEN_CHECKS = 50  # iterations
_REFERENCE = 2000  # unlabelled rows that are looked at
_SETTLED = 0.001  # share of them that may still change their class
_PATIENCE = 3  # checks
_FEWEST_CHECKS = {"reference": _PATIENCE, "held_out": _PATIENCE + 1}  # the first has nothing to compare with


class Interrupted(UserWarning):
    """Ctrl-C ended the training, and the model so far is kept."""


class OutOfTime(UserWarning):
    """`max_seconds` ended the training, and the model so far is kept."""


class CheckpointNotWritten(UserWarning):
    """A checkpoint could not be written, and the training goes on without it."""


class OutOfRows(UserWarning):
    """The unlabelled rows came to an end before the training did, and the model so far is kept."""


@dataclass(frozen=True)
class StoppingRules:
    """When a run stops before its end, and what is kept of it on the way."""

    max_seconds: float | None = None
    early_stopping: EarlyStopping = None
    checkpoint: Any = None
    every: float = EVERY
    resume: bool = False
    keeps: bool = True
    """Whether Ctrl-C leaves the model so far, or ends what this run is a part of."""

    def __post_init__(self) -> None:
        if self.max_seconds is not None and not 0 < number(self.max_seconds) < np.inf:
            raise ValueError(f"max_seconds={self.max_seconds!r} is not valid: give a number above 0, or None")
        if not 0 <= number(self.every) < np.inf:
            raise ValueError(f"every={self.every!r} is not valid: give the seconds between checkpoints, at least 0")
        if self.every != EVERY and self.checkpoint is None:
            raise ValueError(f'every={self.every!r} is the time between checkpoints: give checkpoint="path" too')
        if self.early_stopping not in (None, "reference", "held_out"):
            raise ValueError(f'early_stopping={self.early_stopping!r} is not known: give "reference" or "held_out"')
        if self.resume and self.checkpoint is None:
            raise ValueError('resume=True needs the file to go on from: checkpoint="path"')
        if self.checkpoint is not None:
            self._check_place(self.checkpoint)

    def _check_place(self, checkpoint: Any) -> None:
        """Whether a checkpoint can be written there: found out before the work, not after it."""
        folder = os.path.dirname(os.path.realpath(checkpoint))
        if not os.path.isdir(folder) or os.path.isdir(os.path.realpath(checkpoint)):  # which "" is, too
            raise ValueError(f"checkpoint={checkpoint!r} cannot be written: give a file in a folder that exists")
        if not os.access(folder, os.W_OK):
            raise ValueError(f"checkpoint={checkpoint!r} cannot be written: {folder} is read-only")
        if os.path.exists(checkpoint) and not self.resume and not checkpoints.is_checkpoint(checkpoint):
            raise ValueError(f"checkpoint={checkpoint!r} is a file of another kind: give another name")


def train(
    solver: Solver,
    problem: Problem,
    backend: Backend,
    state: State | None = None,
    verbose: int | Progress = 0,
    rules: StoppingRules | None = None,
    settings: Mapping[str, str] | None = None,
) -> tuple[State, History]:
    """Runs a solver to its end; or to Ctrl-C, a time limit or the end of a stream, which keep what has been learnt.

    `settings` of the classifier, in words, let a checkpoint say which of them differs.

    Returns
    -------
    state : the last state
    history : dict of arrays, one entry an iteration; from 65,536 iterations on, one for every second, fourth, ...
    """
    rules = rules or StoppingRules()
    check_memory(solver, problem, backend)
    total, begun = solver.iterations(problem), time.monotonic()
    log = _Log(problem)
    stop = _Stop(rules.early_stopping, solver, problem, backend, done=0 if state is None else state.iteration)
    keeper = found = None
    if rules.checkpoint is not None:
        run = {**(settings or {}), **checkpoints.run_of(solver, problem, backend), "early_stopping": str(stop.kind)}
        keeper = _CheckpointWriter(rules, run)
        if (found := keeper.found()) is not None:
            with checkpoints.as_checkpoint_error(
                f"{rules.checkpoint} is damaged: it is not where such a run can stand"
            ):
                checkpoints.check(found.state, problem, total)
                log.recall(found.memory["log"])
                stop.recall(found.memory["stop"])
            state = found.state
    line = Line(active=not callable(verbose) and verbose > 0, first=state.iteration if state is not None else 0)
    show = verbose if callable(verbose) else line.show
    states: Iterator[State] = iter(())
    if not stop.now and found is not None:
        states = _resumed(solver, problem, backend, found.state, rules.checkpoint)
    elif not stop.now:
        states = solver.run(problem, backend, state)

    def kept(why: str, kind: type[Warning]) -> None:
        done = 0 if state is None else state.iteration
        text = f"{why} after {done} of {total} iterations; the model so far is kept"
        warnings.warn(text, kind, stacklevel=5)

    try:
        # The products between sweeps are small: threads of the BLAS would only wait for each other.
        with one_blas_thread:
            for state in states:
                log.add(state)
                show(state.iteration, total, log.last)
                if keeper is not None:
                    keeper.perhaps(state, log, stop)
                if stop.after(state):
                    break
                if rules.max_seconds is not None and time.monotonic() - begun >= rules.max_seconds:
                    if state.iteration < total:
                        kept("the time is up", OutOfTime)
                    break
    except KeyboardInterrupt:
        if not log or state is None or not rules.keeps:
            raise
        kept("interrupted", Interrupted)
    except ExhaustedError:
        if not log or state is None:
            raise
        kept("no more unlabelled rows", OutOfRows)
    finally:
        line.close(backend.used())
    if state is None:
        raise ValueError("the solver made no iteration")
    if keeper is not None:
        keeper.write(state, log, stop)
    return state, log.history()


def joined(first: History, then: History) -> History:
    """Two histories, one after the other; what one of them does not tell is missing there."""
    nothing = [np.full(len(part["iteration"]), np.nan) for part in (first, then)]
    return {
        name: np.concatenate([first.get(name, nothing[0]), then.get(name, nothing[1])]) for name in {**first, **then}
    }


def thinned(history: History) -> History:
    """A history of which every second line is left out as often as it is too long; the last line stays."""
    while (n_lines := len(history["iteration"])) > _MOST_LINES + 1:
        at = np.union1d(np.arange(1, n_lines, 2), n_lines - 1)
        history = {name: values[at] for name, values in history.items()}
    return history


def _resumed(solver: Solver, problem: Problem, backend: Backend, state: State, checkpoint: Any) -> Iterator[State]:
    """The states of a run that goes on: if not even the first one is reached, it is the checkpoint, as a rule."""
    with checkpoints.as_checkpoint_error(
        f"{checkpoint} is damaged, or the rows cannot be read: the run does not go on from it"
    ):
        states = solver.run(problem, backend, state)
        first = next(states, None)
    if first is not None:
        yield first
        yield from states


class _CheckpointWriter:
    """Writes a checkpoint now and then."""

    def __init__(self, rules: StoppingRules, run: dict[str, str]) -> None:
        self._rules, self._run, self._last = rules, run, time.monotonic()
        if os.path.exists(rules.checkpoint) and not rules.resume:
            os.replace(rules.checkpoint, f"{rules.checkpoint}.old")  # somebody may have forgotten resume=True

    def found(self) -> Checkpoint | None:
        """What an earlier run has left, if it is to be gone on from."""
        if self._rules.resume and os.path.exists(self._rules.checkpoint):
            return checkpoints.read(self._rules.checkpoint, self._run)
        return None

    def perhaps(self, state: State, log: "_Log", stop: "_Stop") -> None:
        if time.monotonic() - self._last >= self._rules.every:
            self.write(state, log, stop)

    def write(self, state: State, log: "_Log", stop: "_Stop") -> None:
        memory = {"log": log.remember(), "stop": stop.remember()}
        try:
            checkpoints.write(self._rules.checkpoint, self._run, Checkpoint(state, memory))
        except OSError as problem:  # a full disk should not cost what has been learnt
            text = f"no checkpoint after iteration {state.iteration}, and the training goes on: {problem}"
            warnings.warn(text, CheckpointNotWritten, stacklevel=6)
        self._last = time.monotonic()


class _Stop:
    """Early stopping: a look at some rows every 50 iterations, once the unlabelled rows have their full weight.

    ``"reference"``: stops when hardly any of a sample of unlabelled rows has changed its class at two looks in a row.
    ``"held_out"``: stops when the Brier score of labelled rows that were left out has not fallen at three.
    """

    def __init__(self, kind: EarlyStopping, solver: Solver, problem: Problem, backend: Backend, done: int) -> None:
        self.kind, self._problem, self._backend = kind, problem, backend
        total = solver.iterations(problem) if kind else 0
        self._first = max(done, solver.full_weight_from(problem)) if kind else 0
        self._codes, self._best, self._count, self.now = np.empty(0, np.intp), np.inf, 0, False
        self._held_out = _HeldOut(problem)
        if kind == "held_out" and not self._held_out:
            raise ValueError(
                'early_stopping="held_out" needs labelled rows that are left out: set probability=True or '
                'unlabeled_weight="auto", and label at least two rows of each class'
            )
        if kind == "reference" and problem.unlabelled is None:
            raise ValueError(
                'early_stopping="reference" needs unlabelled rows: mark some in y, or give early_stopping=None'
            )
        if kind is not None and (total - self._first) / _BETWEEN_CHECKS < _FEWEST_CHECKS[kind]:
            warnings.warn(
                f"early_stopping={kind!r} has no effect: it compares {_FEWEST_CHECKS[kind]} looks, one every "
                f"{_BETWEEN_CHECKS} iterations once the unlabelled rows have their full weight, and this run of "
                f"{type(solver).__name__} has too few iterations for that. Raise max_iter, or give early_stopping=None",
                stacklevel=6,
            )

    def after(self, state: State) -> bool:
        """Whether to stop after this iteration."""
        if self.kind is None or state.iteration < self._first or state.iteration % _BETWEEN_CHECKS:
            return False
        if self.kind == "held_out":
            scores = state.labelled_scores()
            if scores is None:
                scores = state.model().decision(self._problem.labelled, self._backend)
            loss = self._held_out.brier(scores)
            self._count = 0 if loss < self._best else self._count + 1
            self._best = min(loss, self._best)
            self.now = self._count >= _PATIENCE
        else:
            assert self._problem.unlabelled is not None
            wanted = state.model().columns(slice(0, self._problem.n_models))
            sample = self._problem.unlabelled.sample(self._problem.seed, _REFERENCE)
            codes = predicted_codes(wanted.decision(sample, self._backend))
            settled = len(self._codes) == len(codes) and np.mean(codes != self._codes) <= _SETTLED
            self._count = self._count + 1 if settled else 0
            self._codes = codes
            self.now = self._count >= _PATIENCE - 1
        return self.now

    def remember(self) -> dict[str, Any]:
        return {"codes": self._codes, "best": self._best, "count": self._count, "now": self.now}

    def recall(self, memory: dict[str, Any]) -> None:
        codes, best, count, now = (memory[name] for name in ("codes", "best", "count", "now"))
        if codes.ndim != 1 or np.isnan(number(best)) or not is_whole(count, 0) or not isinstance(now, bool):
            raise ValueError("what it remembers of early stopping cannot be")
        self._codes, self._best, self._count, self.now = codes, best, count, now


class _Log:
    """The lines of the history. Memory is bounded: of very many lines, every second one is left out."""

    def __init__(self, problem: Problem) -> None:
        self._held_out, self._scores = _HeldOut(problem), list[Array]()
        self._lines: dict[str, array[float]] = {}
        self._curves: dict[str, array[float]] = {}
        self._stride = 1
        self.last: dict[str, float] = {}
        self._last_scores: Array | None = None

    def __bool__(self) -> bool:
        return bool(self.last)

    def add(self, state: State) -> None:
        self.last = {"iteration": state.iteration, **state.record}
        scores = state.labelled_scores() if self._held_out else None
        self._last_scores = None if scores is None else self._held_out.of(scores)
        if state.iteration % self._stride:
            return
        self._append(self._lines, {name: [value] for name, value in self.last.items()})
        if self._last_scores is not None:
            self._scores.append(self._last_scores)
        if len(self._scores) == _TOGETHER:
            self._judge()
        if len(self._lines["iteration"]) > _MOST_LINES:
            self._thin()

    def history(self) -> History:
        if self.last and (not self._lines or self._lines["iteration"][-1] != self.last["iteration"]):
            self._append(self._lines, {name: [value] for name, value in self.last.items()})
            if self._last_scores is not None:
                self._scores.append(self._last_scores)
        self._judge()
        history = {name: np.array(values) for name, values in (self._lines | self._curves).items()}
        return history | {"iteration": history["iteration"].astype(np.intp)}

    def remember(self) -> dict[str, Any]:
        self._judge()
        parts = {"lines": self._lines, "curves": self._curves}
        arrays = {name: {key: np.array(values) for key, values in part.items()} for name, part in parts.items()}
        return {**arrays, "stride": self._stride, "last": self.last, "scores": self._last_scores}

    def recall(self, memory: dict[str, Any]) -> None:
        for name, part in (("lines", self._lines), ("curves", self._curves)):
            self._append(part, memory[name])
        self._stride, self.last, self._last_scores = memory["stride"], memory["last"], memory["scores"]
        columns = self._lines | self._curves
        if not (
            all(isinstance(name, str) for name in (*columns, *self.last))
            and all(isinstance(value, int | float) for value in self.last.values())
            and len({len(values) for values in columns.values()}) == 1
            and np.isfinite(self._lines["iteration"]).all()
            and "iteration" in self.last
            and is_whole(self._stride)
            and (self._last_scores is None or self._held_out.fits(self._last_scores))
        ):
            raise ValueError("what it remembers of the history cannot be")

    def _append(self, lines: "dict[str, array[float]]", more: Mapping[str, Any]) -> None:
        n_before = len(next(iter(lines.values()))) if lines else 0
        for name, values in more.items():
            lines.setdefault(name, array("d", [np.nan] * n_before)).extend(values)
        n_now = max(map(len, lines.values()), default=0)
        for values in lines.values():  # a line may lack what others have
            values.extend([np.nan] * (n_now - len(values)))

    def _judge(self) -> None:
        if self._scores:
            self._append(self._curves, self._held_out.curves(np.array(self._scores)))
            self._scores.clear()

    def _thin(self) -> None:
        self._judge()
        self._stride *= 2
        kept = [k for k, number in enumerate(self._lines["iteration"]) if number % self._stride == 0]
        for part in (self._lines, self._curves):
            for name, values in part.items():
                part[name] = array("d", [values[k] for k in kept])


class _HeldOut:
    """Learning curves on labelled rows that columns beside the wanted ones are trained without."""

    def __init__(self, problem: Problem) -> None:
        n_outputs, n_groups = problem.n_models, problem.n_columns // problem.n_models
        left_out = (problem.costs == 0).reshape(problem.n_labelled, n_groups, n_outputs)[:, :, 0]
        self._rows = np.flatnonzero(left_out[:, 1:].any(axis=1) & ~left_out[:, 0])
        self._groups = left_out[self._rows, :].argmax(axis=1)
        self._shape = (problem.n_labelled, n_groups, n_outputs)
        targets = problem.targets[self._rows, :n_outputs]
        self._codes = predicted_codes(targets)

    def __bool__(self) -> bool:
        return len(self._rows) > 0

    def of(self, scores: Array) -> Array:
        """The score of each row by the column that was trained without it, of those of all rows in all columns."""
        return scores.reshape(self._shape)[self._rows, self._groups]

    def fits(self, scores: Array) -> bool:
        """Whether these may be what `of` gave."""
        return scores.shape == (len(self._rows), self._shape[2]) and scores.dtype.kind == "f"

    def brier(self, scores: Array) -> float:
        return float(brier_losses(self._codes, self.of(scores)).mean())

    def curves(self, scores: Array) -> dict[str, Array]:
        """The measures of some iterations, given the scores of the rows in each."""
        binary = scores.shape[2] == 1
        predicted = (scores[:, :, 0] > 0).astype(np.intp) if binary else scores.argmax(axis=2)
        wrong = predicted != self._codes
        curves = {"held_out_error": wrong.mean(axis=1)}
        by_class = [wrong[:, self._codes == code].mean(axis=1) for code in np.unique(self._codes)]
        curves["held_out_balanced_error"] = np.mean(by_class, axis=0)
        if binary and len(by_class) == 2:
            positive = self._codes[np.argsort(-scores[:, :, 0], axis=1, kind="stable")]
            precision = positive.cumsum(axis=1) / np.arange(1, len(self._codes) + 1)
            curves["held_out_average_precision"] = (precision * positive).sum(axis=1) / self._codes.sum()
        return curves


class Line:
    """A line on standard error that is written over, at most a few times a second."""

    def __init__(self, active: bool, of: str = "iterations", first: int = 0) -> None:
        self._active, self._of, self._first = active, of, first
        self._start = self._last = time.monotonic()
        self._end, self._width = "nothing was done", 0

    def show(self, done: int, total: int, record: Mapping[str, float]) -> None:
        if not self._active:
            return
        shown = {name: value for name, value in record.items() if name == "objective" or "loss" in name}
        losses = "  ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in shown.items())
        now = time.monotonic()
        self._end = f"done after {done} {self._of} in {now - self._start:.1f} s  {losses}"
        if now - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = now
        bar = "#" * (30 * done // total)
        left = (now - self._start) * (total - done) / max(1, done - self._first)
        self._write(f"[{bar:<30}] {done}/{total}  {losses}  {left:.0f} s left")

    def close(self, note: str = "") -> None:
        if self._active:
            self._write("  ".join([self._end, *[note] * bool(note)]))
            sys.stderr.write("\n")

    def _write(self, text: str) -> None:
        """Over what was there."""
        sys.stderr.write(f"\r{text:<{self._width}}")
        sys.stderr.flush()
        self._width = len(text)

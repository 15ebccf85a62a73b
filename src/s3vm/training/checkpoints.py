"""Checkpoints: the state of a run, in one file that is replaced as a whole and checked when it is read.

The file is a container like a model file (`s3vm._utils.container`), and the state in it is rebuilt from a fixed list of
parts (`s3vm._utils.codec`). It also describes its run: a run with other rows or settings does not resume from it.
"""

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from s3vm import __version__, philox
from s3vm._utils import container
from s3vm._utils.arrays import host
from s3vm._utils.codec import decode, encode
from s3vm._utils.container import ModelFormatError, short
from s3vm._utils.input_checks import RowsError, shortened
from s3vm._utils.registry import STATE_PARTS
from s3vm._utils.settings import is_integer
from s3vm._utils.typing import Array
from s3vm._utils.warn import warn
from s3vm.backends import Backend
from s3vm.kernels import KERNELS
from s3vm.problem import Problem
from s3vm.solvers import SOLVERS, Solver, State
from s3vm.solvers.steps import STEPS

_SAMPLE = 500  # unlabelled rows by which two runs are compared
_PARTS: dict[str, type] = STATE_PARTS | {
    kind.__name__: kind for kinds in (KERNELS, SOLVERS, STEPS) for kind in kinds.values()
}


class CheckpointNotWritten(UserWarning):
    """A checkpoint could not be written, and the training continues without it."""


class Checkpoint(NamedTuple):
    """The state of a run: the solver's, and the records of `s3vm.training.loop`."""

    state: State
    memory: dict[str, Any]


def run_of(solver: Solver, problem: Problem, backend: Backend) -> dict[str, str]:
    """What identifies a run: settings as text, and arrays by a fingerprint of their content."""
    unlabeled = "none"
    if problem.unlabeled is not None:
        source = problem.unlabeled
        content = _digest(source.sample(problem.seed, _SAMPLE))
        unlabeled = f"{source.n_rows:,} with the fingerprint {content} {getattr(source, 'order', '')}".strip()
    graph = {}
    if problem.graph is not None and problem.uses_graph:
        content = f"{_digest(problem.graph.rows)} and {_digest(problem.graph.laplacian)}"
        graph = {"graph of neighbors": f"the fingerprints {content}, with costs of {_digest(problem.graph_costs)}"}
    return {
        "s3vm": __version__,
        "random numbers": philox.NAME,
        "solver": repr(solver),
        "kernel": repr(problem.kernel),
        "loss": repr(problem.unlabeled_loss),
        "labeled_loss": repr(problem.labeled_loss),
        "seed": str(problem.seed),
        "precision": f"{backend.dtype.name} by {type(backend).__name__}, cache_bytes {backend.cache_bytes}",
        "labelled rows": f"{problem.n_labeled:,} with the fingerprint {_digest(problem.labeled)}",
        "labels": f"the fingerprint {_digest(problem.targets)}",
        "costs of the labelled rows (sample_weight)": f"the fingerprint {_digest(problem.costs)}",
        "costs of the unlabelled rows": f"the fingerprint {_digest(problem.unlabeled_cost)}",
        "class fractions": f"the fingerprint {_digest(problem.prior)}",
        "unlabelled rows": unlabeled,
        **graph,
    }


def write(path: Any, run: Mapping[str, str], checkpoint: Checkpoint) -> None:
    """Replaces the checkpoint in that file once the new one is on the disk."""
    tensors: dict[str, Array] = {}
    header = {"checkpoint": dict(run), "content": encode(checkpoint._asdict(), _PARTS, tensors)}
    container.write(path, {**header, "seed": int(run["seed"])}, tensors)


def read(path: Any, run: Mapping[str, str]) -> Checkpoint:
    """The checkpoint in that file; a ValueError says what differs if it belongs to another run."""
    header, tensors = container.read(path)
    if not isinstance(header.get("checkpoint"), dict):
        raise ModelFormatError(f"{path} is a model, not a checkpoint: give another path")
    stored = header["checkpoint"]
    for name, value in run.items():
        if stored.get(name) != value:
            raise ValueError(
                f"{path} is a checkpoint of another run: {name}: was {shortened(stored.get(name), 300)}, is "
                f"{shortened(value, 300)}. Use the rows and settings of that run, or resume=False to start over"
            )
    with as_checkpoint_error(f"{path} is damaged: its content is not a valid checkpoint"):
        return Checkpoint(**decode(header["content"], _PARTS, tensors))


@contextmanager
def as_checkpoint_error(message: str) -> Iterator[None]:
    """Reports errors in this block as errors of the checkpoint, except those that the rows cause."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as problem:
        if isinstance(problem, RowsError):
            raise
        reason = shortened(problem, 300)
        raise ModelFormatError(f"{message} ({reason}). Start without resume=True") from problem


def check(state: Any, problem: Problem, max_iter: int) -> None:
    """Raises an error unless this can be a state of that problem after at most `max_iter` iterations.

    What else a solver keeps in its state is for the solver to check.
    """
    if not isinstance(state, State):
        raise TypeError(f"it has {short(state)} in place of a state")
    if not is_integer(state.iteration) or state.iteration > max_iter:
        raise ValueError(f"it has done {short(state.iteration)} of {max_iter} iterations")
    if state.kernel != problem.kernel or state.seed != problem.seed:
        raise ValueError("its kernel or its seed differs")
    model, scores = state.model(), state.labeled_scores()
    shapes = (model.n_dims, model.coefficients.shape[2], np.shape(model.intercept))
    expected = (problem.n_dims, problem.n_columns, (problem.n_columns,))
    if shapes != expected or (scores is not None and scores.shape != problem.targets.shape):
        raise ValueError("its arrays have the wrong shapes")


def is_checkpoint(path: Any) -> bool:
    """Whether the file is a checkpoint of any run."""
    try:
        return isinstance(container.read(path)[0].get("checkpoint"), dict)
    except (ModelFormatError, OSError):
        return False


def seed_of(path: Any) -> int | None:
    """The seed of the run that the checkpoint belongs to, or None if there is no file."""
    if not os.path.exists(path):
        return None
    seed = container.read(path)[0].get("seed")
    if type(seed) is not int:
        raise ModelFormatError(f"{path} is not a checkpoint, or is damaged: it has no seed")
    return seed


class CheckpointWriter:
    """Writes the checkpoints of a run to one file, `every` so many seconds."""

    def __init__(self, path: Any, run: Mapping[str, str], every: float, resume: bool) -> None:
        self._path, self._run, self._every, self._resume = path, run, every, resume
        self._last = time.monotonic()
        if os.path.exists(path) and not resume:
            os.replace(os.path.realpath(path), os.path.realpath(f"{path}.old"))  # resume=True may have been forgotten

    def stored(self) -> Checkpoint | None:
        """The checkpoint to resume from, if there is one."""
        return read(self._path, self._run) if self._resume and os.path.exists(self._path) else None

    def is_due(self) -> bool:
        return time.monotonic() - self._last >= self._every

    def write(self, state: State, memory: dict[str, Any]) -> None:
        """Writes a checkpoint, or warns that it cannot: a full disk should not cost the run."""
        try:
            write(self._path, self._run, Checkpoint(state, memory))
        except OSError as problem:
            text = f"no checkpoint was written after iteration {state.iteration}; the training continues: {problem}"
            warn(text, CheckpointNotWritten)
        self._last = time.monotonic()


def _digest(rows: Any) -> str:
    """A short fingerprint of the content of rows, dense or CSR."""
    rows = host(rows)
    parts = (rows.data, rows.indices, rows.indptr) if sparse.issparse(rows) else (rows,)
    digest = hashlib.sha256(repr((rows.shape, [part.dtype.str for part in parts])).encode())
    for part in parts:
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:12]

"""Checkpoints: the state of a run in one file, which is complete or absent and is read without trust.

A state is arrays and a few numbers. They are put into the same container as a model (`s3vm._utils.container`), and
built again from a list of our own parts. The file also says what run it is of: a run of other rows or settings does not
go on from it.
"""

import hashlib
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from s3vm import __version__, philox
from s3vm._utils import container
from s3vm._utils.arrays import host
from s3vm._utils.container import ModelFormatError, short
from s3vm._utils.csr import csr
from s3vm._utils.errors import RowsError
from s3vm._utils.registry import STATE_PARTS
from s3vm._utils.settings import is_integer
from s3vm._utils.typing import Array
from s3vm._utils.warn import warn
from s3vm.backends import Backend
from s3vm.kernels import KERNELS
from s3vm.problem import Problem
from s3vm.solvers import SOLVERS, Solver, State
from s3vm.solvers.steps import STEPS

__all__ = [
    "Checkpoint",
    "CheckpointNotWritten",
    "CheckpointWriter",
    "as_checkpoint_error",
    "check",
    "is_checkpoint",
    "read",
    "run_of",
    "seed_of",
    "write",
]

_SAMPLE = 500  # unlabelled rows that stand for all when two runs are compared


class CheckpointNotWritten(UserWarning):
    """A checkpoint could not be written, and the training continues without it."""


class Checkpoint(NamedTuple):
    """Where a run stands: the solver's state, and what else `s3vm.training.loop` remembers."""

    state: State
    memory: dict[str, Any]


def run_of(solver: Solver, problem: Problem, backend: Backend) -> dict[str, str]:
    """What makes a run the one it is, each in words or, of arrays, as the fingerprint of what they hold."""
    unlabelled = "none"
    if problem.unlabelled is not None:
        source = problem.unlabelled
        content = _digest(source.sample(problem.seed, _SAMPLE))
        unlabelled = f"{source.n_rows:,} with the fingerprint {content} {getattr(source, 'order', '')}".strip()
    return {
        "s3vm": __version__,
        "random numbers": philox.NAME,
        "solver": repr(solver),
        "kernel": repr(problem.kernel),
        "loss": repr(problem.unlabelled_loss),
        "labeled_loss": repr(problem.labelled_loss),
        "seed": str(problem.seed),
        "precision": f"{backend.dtype.name} by {type(backend).__name__}, cache_bytes {backend.cache_bytes}",
        "labelled rows": f"{problem.n_labelled:,} with the fingerprint {_digest(problem.labelled)}",
        "labels": f"the fingerprint {_digest(problem.targets)}",
        "costs of the labelled rows (sample_weight)": f"the fingerprint {_digest(problem.costs)}",
        "costs of the unlabelled rows": f"the fingerprint {_digest(problem.unlabelled_cost)}",
        "shares of the classes": f"the fingerprint {_digest(problem.prior)}",
        "unlabelled rows": unlabelled,
    }


def write(path: Any, run: Mapping[str, str], checkpoint: Checkpoint) -> None:
    """Puts the checkpoint in the place of the one before, once it is on the disk."""
    tensors: dict[str, Array] = {}
    header = {"checkpoint": dict(run), "content": _packed(checkpoint._asdict(), tensors)}
    container.write(path, {**header, "seed": int(run["seed"])}, tensors)


def read(path: Any, run: Mapping[str, str]) -> Checkpoint:
    """The checkpoint in that file, which must be of this run; a ValueError says what is different."""
    header, tensors = container.read(path)
    if not isinstance(header.get("checkpoint"), dict):
        raise ModelFormatError(f"{path} is a model, not a checkpoint: give another path")
    stored = header["checkpoint"]
    for name, value in run.items():
        if stored.get(name) != value:
            raise ValueError(
                f"{path} is a checkpoint of another run: {name} there {_short(stored.get(name))}, here "
                f"{_short(value)}. Give what was given then, or resume=False to start afresh"
            )
    with as_checkpoint_error(f"{path} is damaged: its parts do not make a checkpoint"):
        return Checkpoint(**_unpacked(header["content"], tensors))


@contextmanager
def as_checkpoint_error(wrong: str) -> Iterator[None]:
    """What goes wrong in here is the fault of a checkpoint, unless the rows say that it is theirs."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as problem:
        if isinstance(problem, RowsError):
            raise
        why = _short(" ".join(str(problem).split()))
        raise ModelFormatError(f"{wrong} ({why}). Start without resume=True") from problem


def check(state: Any, problem: Problem, most: int) -> None:
    """Raises an error unless this is a state of that problem after at most so many iterations.

    What solvers keep beside is theirs to look at.
    """
    if not isinstance(state, State):
        raise TypeError(f"it has {short(state)} in the place of a state")
    if not is_integer(state.iteration) or state.iteration > most:
        raise ValueError(f"{short(state.iteration)} of {most} iterations are done")
    if state.kernel != problem.kernel or state.seed != problem.seed:
        raise ValueError("its kernel or its seed is another")
    model, scores = state.model(), state.labelled_scores()
    shapes = (model.n_dims, model.coefficients.shape[2], np.shape(model.intercept))
    wanted = (problem.n_dims, problem.n_columns, (problem.n_columns,))
    if shapes != wanted or (scores is not None and scores.shape != problem.targets.shape):
        raise ValueError("its arrays have other shapes")


def is_checkpoint(path: Any) -> bool:
    """Whether the file is a checkpoint, of whatever run."""
    try:
        return isinstance(container.read(path)[0].get("checkpoint"), dict)
    except (ModelFormatError, OSError):
        return False


def seed_of(path: Any) -> int | None:
    """The seed of the run, if there is a checkpoint."""
    if not os.path.exists(path):
        return None
    seed = container.read(path)[0].get("seed")
    if type(seed) is not int:
        raise ModelFormatError(f"{path} is not a checkpoint, or damaged: it has no seed")
    return seed


class CheckpointWriter:
    """Writes the checkpoints of a run to one file, `every` so many seconds."""

    def __init__(self, path: Any, run: Mapping[str, str], every: float, resume: bool) -> None:
        self._path, self._run, self._every, self._resume = path, run, every, resume
        self._last = time.monotonic()
        if os.path.exists(path) and not resume:
            os.replace(path, f"{path}.old")  # resume=True may have been forgotten

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


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 300 else text[:297] + "..."


def _digest(rows: Any) -> str:
    """A few letters for the content of rows, arrays or CSR."""
    rows = host(rows)
    parts = (rows.data, rows.indices, rows.indptr) if sparse.issparse(rows) else (rows,)
    digest = hashlib.sha256(repr((rows.shape, [part.dtype.str for part in parts])).encode())
    for part in parts:
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:12]


# Anything that a state is made of, as JSON and tensors, and back


_PARTS: dict[str, type] = STATE_PARTS | {
    kind.__name__: kind for kinds in (KERNELS, SOLVERS, STEPS) for kind in kinds.values()
}
_NAMES = {kind: name for name, kind in _PARTS.items()}


def _packed(value: Any, tensors: dict[str, Array]) -> Any:
    value = host(value)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, np.ndarray):
        name = f"{len(tensors)}"
        is_mask = value.dtype == bool
        tensors[name] = value.astype(np.uint8) if is_mask else value
        return {"mask" if is_mask else "array": name}
    if isinstance(value, bytes):
        return {"bytes": _packed(np.frombuffer(value, np.uint8), tensors)}
    if sparse.issparse(value):
        pieces = [_packed(piece, tensors) for piece in (value.data, value.indices, value.indptr)]
        return {"csr": pieces, "shape": list(value.shape)}
    if type(value) in _NAMES:
        names = [field.name for field in fields(value)] if is_dataclass(value) else value._fields
        return {
            "part": _NAMES[type(value)],
            "fields": {field: _packed(getattr(value, field), tensors) for field in names},
        }
    if isinstance(value, list | tuple | frozenset | set):
        return {type(value).__name__: [_packed(entry, tensors) for entry in value]}
    if isinstance(value, Mapping):
        return {"dict": [[_packed(key, tensors), _packed(entry, tensors)] for key, entry in value.items()]}
    raise TypeError(
        f"{value!r} cannot be written to a checkpoint, which holds no code: use a solver and a kernel of s3vm's own"
    )


def _unpacked(value: Any, tensors: dict[str, Array]) -> Any:
    if not isinstance(value, dict):
        return value
    first: tuple[str, Any] = ("", None)
    kind, content = next(iter(value.items()), first)
    match kind:
        case "float":
            return float(content)
        case "array":
            return tensors[content].copy()
        case "mask":
            return tensors[content].astype(bool)
        case "bytes":
            return _unpacked(content, tensors).tobytes()
        case "csr":
            data, indices, indptr = (_unpacked(piece, tensors) for piece in content)
            n_rows, n_columns = value["shape"]
            return csr(data, indices, indptr, (n_rows, n_columns))
        case "part":
            return _PARTS[content](**{name: _unpacked(part, tensors) for name, part in value["fields"].items()})
        case "list" | "tuple" | "set" | "frozenset":
            kinds = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
            return kinds[kind](_unpacked(entry, tensors) for entry in content)
        case "dict":
            return {_unpacked(key, tensors): _unpacked(entry, tensors) for key, entry in content}
    raise ModelFormatError(f"it has a part {short(kind)}, which no checkpoint has")

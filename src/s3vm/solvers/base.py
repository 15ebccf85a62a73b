"""What a solver is: settings, and a generator of states."""

from collections.abc import Iterator, Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from s3vm._typing import Array
from s3vm.backends import Backend
from s3vm.kernels import Kernel
from s3vm.models import Model
from s3vm.problem import Problem

__all__ = ["Solver", "State", "record"]


class State(Protocol):
    """Where a solver stands after an iteration.

    A state never changes once it has been yielded, so that the last one is good whenever a run is broken off.
    """

    @property
    def iteration(self) -> int:
        """How many iterations are done."""
        ...

    @property
    def record(self) -> Mapping[str, float]:
        """What is worth a line in the history."""
        ...

    @property
    def kernel(self) -> Kernel: ...

    @property
    def seed(self) -> int: ...

    def model(self) -> Model: ...

    def detached(self) -> "State":
        """The same state without what belongs to the rows it was trained on, so that others may follow."""
        ...


@runtime_checkable
class Solver(Protocol):
    """Settings of an algorithm, and the algorithm as a generator of states."""

    def iterations(self, problem: Problem) -> int:
        """The number of iterations after which `run` ends."""
        ...

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        """Yields the state after every iteration, going on from `state` if one is given."""
        ...

    def longer(self, problem: Problem, done: int) -> "Solver":
        """This solver, with the `done` iterations of an earlier run added to its own."""
        ...


def record(problem: Problem, gamma: Array, r_l: Array, y: Array, costs: Array, r_u: Array | None) -> dict[str, float]:
    """A line of the history: step size, mean losses over labelled and unlabelled rows, share of the latter above 0.

    It speaks of the wanted columns only, and is kept short, since it is written in every iteration.
    """
    main = slice(0, problem.n_models)
    costs = costs[:, main]
    loss = np.vdot(costs, problem.labelled_loss.value(r_l[:, main], y[:, main])) / costs.sum()
    line = {"step": float(gamma[0]), "labelled_loss": float(loss)}
    if r_u is not None:
        r_u = r_u[:, main]
        line["unlabelled_loss"] = float(problem.unlabelled_loss.value(r_u).sum() / r_u.size)
        if problem.n_models == 1:
            line["positive_share"] = np.count_nonzero(r_u > 0) / r_u.size
    return line

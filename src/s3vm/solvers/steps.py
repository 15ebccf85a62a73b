"""Step sizes ``gamma_t`` for stochastic gradients, t counted from 0.

A step of 1 forgets everything learnt before, so no schedule exceeds it.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from s3vm._utils.registry import lookup
from s3vm._utils.settings import above, at_least, check_settings
from s3vm._utils.typing import Array
from s3vm.problem import Problem


@runtime_checkable
class Step(Protocol):
    """A schedule of step sizes."""

    def sizes(self, t: int, n_iterations: int, stiffness: Array) -> Array:
        """``gamma_t`` of each column in a run of `n_iterations`.

        `stiffness` says how steep each column's objective is: it allows many steps of about ``1 / stiffness``.
        """


@dataclass(frozen=True)
class Constant:
    """``gamma = 1 / eta``, the schedule of the paper's experiments."""

    eta: float = 100.0

    def __post_init__(self) -> None:
        check_settings(self, eta=at_least(1))

    def sizes(self, t: int, n_iterations: int, stiffness: Array) -> Array:
        return np.full_like(stiffness, 1.0 / self.eta)


@dataclass(frozen=True)
class Theorem:
    """``gamma = theta / T^(3/4)``, the schedule of Theorems 1 and 2; `theta` is at most ``T^(3/4)``."""

    theta: float = 1.0

    def __post_init__(self) -> None:
        check_settings(self, theta=above(0))

    def sizes(self, t: int, n_iterations: int, stiffness: Array) -> Array:
        return np.full_like(stiffness, min(1.0, self.theta / n_iterations**0.75))


@dataclass(frozen=True)
class Decaying:
    """``gamma_t = 1 / (t0 + t + 1)``.

    Parameters
    ----------
    t0 : float >= 0 or "auto", default "auto"
        ``"auto"`` is a tenth of the total cost of the labelled rows (all of it if their loss is curved): the gradient
        grows with this cost, and the first steps shrink accordingly.
    """

    t0: float | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        check_settings(self, t0=(at_least(0), "auto"))

    def sizes(self, t: int, n_iterations: int, stiffness: Array) -> Array:
        t0 = stiffness if isinstance(self.t0, str) else np.full_like(stiffness, self.t0)
        return 1.0 / (t0 + t + 1)


STEPS: dict[str, type] = {"decaying": Decaying, "constant": Constant, "theorem": Theorem}


def step(spec: "str | Step") -> Step:
    """The schedule of that name with its defaults, or the configured one that was given."""
    return lookup("step", spec, STEPS, Step)


def stiffness(problem: Problem) -> Array:
    """How steep each column's objective is: the cost of its labelled rows, or a tenth of it if the loss is straight."""
    return max(0.1, problem.labeled_loss.curvature) * problem.costs.sum(axis=0)

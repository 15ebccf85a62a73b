"""What each change to the printed algorithm is worth: the same run with it and without it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from s3vm._utils.typing import Array
from s3vm.losses import Hat
from s3vm.solvers import TSG, PrintedTSG, Solver

__all__ = ["VARIANTS", "PrintedHat", "variant"]


@dataclass(frozen=True)
class PrintedHat(Hat):
    """SHG with the derivative printed in Table 2: -1 inside the margin, on both sides of the boundary."""

    def grad(self, r: Array) -> Array:
        return np.where(np.abs(r) < 1, -1.0, 0.0)


def _printed(**settings: Any) -> Callable[[int], Solver]:
    # The printed constant step diverges at a large C; with this one, all variants differ in what they are called by.
    return lambda max_iter: PrintedTSG(**{"step": "decaying", "max_iter": max_iter, **settings})


def _ours(**settings: Any) -> Callable[[int], Solver]:
    return lambda _: TSG(**settings)


_HELD = {"intercept": True, "balance": True}
_ALGORITHM_1 = {"labeled_loss": "hinge", "features": "phase"}
_CORRECTED, _PRINTED = {**_ALGORITHM_1, "loss": "hat"}, {**_ALGORITHM_1, "loss": PrintedHat()}

# Name of a variant: its solver, the weight C*/C, and the losses and features.
VARIANTS: dict[str, tuple[Callable[[int], Solver], float | Literal["paper"], dict[str, Any]]] = {
    "as printed": (_printed(), "paper", _PRINTED),
    "derivatives corrected": (_printed(), "paper", _CORRECTED),
    "as printed, C* = C": (_printed(), 1.0, _PRINTED),
    "corrected, C* = C": (_printed(), 1.0, _CORRECTED),
    "corrected, C* = C, annealing": (_printed(ramp=0.5), 1.0, _CORRECTED),
    "corrected, C* = C, balance": (_printed(**_HELD), 1.0, _CORRECTED),
    "corrected, C* = C, balance, annealing": (_printed(**_HELD, ramp=0.5), 1.0, _CORRECTED),
    "ours": (_ours(), 1.0, {}),
    "ours, C* = C n_l/n_u": (_ours(), "paper", {}),
    "ours, no balance": (_ours(balance=False), 1.0, {}),
    "ours, no annealing": (_ours(ramp=0.0), 1.0, {}),
    "ours, printed derivatives": (_ours(), 1.0, {"loss": PrintedHat()}),
}


def variant(name: str, max_iter: int) -> tuple[Solver, float | Literal["paper"], dict[str, Any]]:
    """The solver, the weight and what else the classifier is told."""
    made, weight, more = VARIANTS[name]
    return made(max_iter), weight, dict(more)

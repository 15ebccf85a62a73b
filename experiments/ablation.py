"""What each change to the printed algorithm is worth: the same run with and without it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from s3vm._utils.typing import Array
from s3vm.losses import Hat
from s3vm.solvers import TSG, PrintedTSG, Solver

__all__ = ["VARIANTS", "PrintedHat", "printed_tsg", "variant"]


@dataclass(frozen=True)
class PrintedHat(Hat):
    """SHG with the derivative printed in Table 2: -1 inside the margin, on both sides of the boundary."""

    def grad(self, r: Array) -> Array:
        return np.where(np.abs(r) < 1, -1.0, 0.0)


def printed_tsg(**settings: Any) -> Solver:
    """The paper's Algorithm 1."""
    return PrintedTSG(**settings)


def _algorithm_1(**settings: Any) -> Callable[[int], Solver]:
    # The printed constant step diverges at a large C; with this one, variants differ only in what their names say.
    return lambda max_iter: printed_tsg(**{"step": "decaying", "max_iter": max_iter, **settings})


def _ours(**settings: Any) -> Callable[[int], Solver]:
    return lambda _: TSG(**settings)


_BALANCE = {"intercept": True, "balance": True}
_PAPER = {"labeled_loss": "hinge", "features": "phase"}
_CORRECTED, _PRINTED = {**_PAPER, "loss": "hat"}, {**_PAPER, "loss": PrintedHat()}

# The solver of each variant, the weight C*/C, and losses and features.
VARIANTS: dict[str, tuple[Callable[[int], Solver], float | Literal["paper"], dict[str, Any]]] = {
    "as printed": (_algorithm_1(), "paper", _PRINTED),
    "derivatives corrected": (_algorithm_1(), "paper", _CORRECTED),
    "as printed, C* = C": (_algorithm_1(), 1.0, _PRINTED),
    "corrected, C* = C": (_algorithm_1(), 1.0, _CORRECTED),
    "corrected, C* = C, annealing": (_algorithm_1(ramp=0.5), 1.0, _CORRECTED),
    "corrected, C* = C, balance": (_algorithm_1(**_BALANCE), 1.0, _CORRECTED),
    "corrected, C* = C, balance, annealing": (_algorithm_1(**_BALANCE, ramp=0.5), 1.0, _CORRECTED),
    "ours": (_ours(), 1.0, {}),
    "ours, C* = C n_l/n_u": (_ours(), "paper", {}),
    "ours, no balance": (_ours(balance=False), 1.0, {}),
    "ours, no annealing": (_ours(ramp=0.0), 1.0, {}),
    "ours, printed derivatives": (_ours(), 1.0, {"loss": PrintedHat()}),
}


def variant(name: str, max_iter: int) -> tuple[Solver, float | Literal["paper"], dict[str, Any]]:
    """The solver, the weight and the other settings of a variant."""
    make, weight, settings = VARIANTS[name]
    return make(max_iter), weight, dict(settings)

"""What each change to the printed algorithm is worth: runs that differ in one change."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from experiments.printed_tsg import PrintedTSG
from s3vm._utils.typing import Array
from s3vm.losses import Hat
from s3vm.solvers import TSG, Solver

__all__ = ["VARIANTS", "PrintedHat", "variant"]


@dataclass(frozen=True)
class PrintedHat(Hat):
    """SHG with the derivative printed in Table 2: -1 inside the margin, on both sides of the boundary."""

    def grad(self, r: Array) -> Array:
        return np.where(np.abs(r) < 1, -1.0, 0.0)


def _algorithm_1(**settings: Any) -> Callable[[int], Solver]:
    # The printed constant step diverges at a large C; with this one, variants differ only in what their names say.
    return lambda max_iter: PrintedTSG(**{"step": "decaying", "max_iter": max_iter, **settings})


def _ours(**settings: Any) -> Callable[[int], Solver]:
    return lambda _: TSG(**settings)


_PAPER = {"labeled_loss": "hinge", "features": "phase"}
_CORRECTED, _PRINTED = {**_PAPER, "loss": "hat"}, {**_PAPER, "loss": PrintedHat()}
_BALANCE: dict[str, Any] = {"intercept": True, "balance": True}
_RAMP = {**_BALANCE, "ramp": 0.5}
_ALL_LABELED = {**_RAMP, "draw_labeled": False}
_LONG = {**_ALL_LABELED, "max_iter": 400, "batch_size": 64}

# The solver of each variant, the weight C*/C, and losses and features. Up to "ours", each line changes the one above;
# below it, each changes "ours".
VARIANTS: dict[str, tuple[Callable[[int], Solver], float | Literal["paper"], dict[str, Any]]] = {
    "svm": (_ours(), 0.0, {}),
    "as printed": (_algorithm_1(), "paper", _PRINTED),
    "+ derivative corrected": (_algorithm_1(), "paper", _CORRECTED),
    "+ weight C* = C": (_algorithm_1(), 1.0, _CORRECTED),
    "+ balance, intercept": (_algorithm_1(**_BALANCE), 1.0, _CORRECTED),
    "+ annealing": (_algorithm_1(**_RAMP), 1.0, _CORRECTED),
    "+ smooth losses": (_algorithm_1(**_RAMP), 1.0, {"features": "phase"}),
    "+ paired features": (_algorithm_1(**_RAMP), 1.0, {}),
    "+ all labelled rows": (_algorithm_1(**_ALL_LABELED), 1.0, {}),
    "+ 400 iterations of 64": (_algorithm_1(**_LONG), 1.0, {}),
    "+ reuse of 32 blocks": (_algorithm_1(**_LONG, max_blocks=32), 1.0, {}),
    "ours, on features": (_ours(span="features"), 1.0, {}),
    "ours": (_ours(), 1.0, {}),
    "printed derivative": (_ours(), 1.0, {"loss": PrintedHat()}),
    "hinge and SHG": (_ours(), 1.0, {"loss": "hat", "labeled_loss": "hinge"}),
    "weight C* = C n_l/n_u": (_ours(), "paper", {}),
    "no balance": (_ours(balance=False), 1.0, {}),
    "no annealing": (_ours(ramp=0.0), 1.0, {}),
    "constant step": (_ours(step="constant"), 1.0, {}),
    "100 iterations": (_ours(max_iter=100), 1.0, {}),
    "200 iterations": (_ours(max_iter=200), 1.0, {}),
    "neighbours": (_ours(), 1.0, {"neighbor_weight": 1.0}),
}


def variant(name: str, max_iter: int) -> tuple[Solver, float | Literal["paper"], dict[str, Any]]:
    """The solver, the weight and the other settings of a variant."""
    make, weight, settings = VARIANTS[name]
    return make(max_iter), weight, dict(settings)

"""The solvers, a file or folder each. They know nothing of what drives or stops them.

To add one, write its file and add a line to `SOLVERS`.
"""

from typing import Literal

from s3vm._utils.registry import lookup
from s3vm.solvers.base import Solver, State
from s3vm.solvers.batch import Batch
from s3vm.solvers.bgs.bgs import BGS
from s3vm.solvers.cccp import CCCP
from s3vm.solvers.frs import FRS
from s3vm.solvers.incremental.incremental import Incremental
from s3vm.solvers.light import Light
from s3vm.solvers.newton.newton import Newton
from s3vm.solvers.steps import Constant, Decaying, Theorem
from s3vm.solvers.tsg.tsg import TSG

__all__ = ["BGS", "CCCP", "FRS", "TSG", "Batch", "Incremental", "Light", "Newton"]
__all__ += ["Constant", "Decaying", "Theorem"]
__all__ += ["SOLVERS", "Solver", "SolverName", "State", "solver"]

SolverName = Literal["auto", "tsg", "frs", "bgs", "batch", "cccp", "light", "newton", "incremental"]

SOLVERS: dict[str, type] = {
    "tsg": TSG,
    "frs": FRS,
    "bgs": BGS,
    "batch": Batch,
    "cccp": CCCP,
    "light": Light,
    "newton": Newton,
    "incremental": Incremental,
}


def is_auto(spec: object) -> bool:
    """Whether the candidates of `s3vm.estimators.auto` are asked for, which are solved by `Batch`."""
    return isinstance(spec, str) and spec == "auto"


def solver(spec: str | Solver, for_arrivals: bool = False) -> Solver:
    """The solver of that name with its defaults, or the configured one that was given.

    ``"auto"`` is `Batch`; for rows that arrive later, which must not be kept, it is `TSG`.
    """
    return lookup("solver", spec, {**SOLVERS, "auto": TSG if for_arrivals else Batch}, Solver)

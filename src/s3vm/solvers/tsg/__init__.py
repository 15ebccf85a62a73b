"""TSGS3VM, triply stochastic gradients: anchored at the supervised solution, and as printed in the paper."""

from s3vm.solvers.tsg.printed import PrintedTSG
from s3vm.solvers.tsg.tsg import TSG

__all__ = ["TSG", "PrintedTSG"]

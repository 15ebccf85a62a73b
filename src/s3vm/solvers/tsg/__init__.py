"""TSGS3VM, triply stochastic gradients."""

from s3vm.solvers.tsg.tsg import TSG

__all__ = ["TSG"]

"""BGS3VM, budgeted stochastic gradients on a neighbour graph."""

from s3vm.solvers.bgs.bgs import BGS

__all__ = ["BGS"]

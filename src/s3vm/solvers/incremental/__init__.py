"""ILS3VM, the exact solution followed while rows come and leave."""

from s3vm.solvers.incremental.incremental import Incremental

__all__ = ["Incremental"]

"""NTS3VM, Newton steps in the primal."""

from s3vm.solvers.newton.newton import Newton

__all__ = ["Newton"]

"""The CPU backend: fused Numba kernels on a pool of threads."""

from s3vm.backends.cpu.backend import Cpu

__all__ = ["Cpu"]

"""Where the hot verbs run. A backend knows neither losses nor solvers.

`Features` are the random features of one kernel under one seed, in blocks of equal size. Each verb sweeps over
blocks that are drawn when they are needed, so memory is the coefficients and one chunk, never a feature matrix.
"""

from typing import Any, Protocol

import numpy as np

from s3vm._numbers import number
from s3vm._typing import Array, Rows
from s3vm.kernels import Kernel

__all__ = ["BACKENDS", "Backend", "Features", "backend"]


class Features(Protocol):
    """Random features ``phi_1(x), phi_2(x), ...`` in blocks of `n_features`, each scaled by ``1/sqrt(n_features)``."""

    n_features: int

    def features(self, block: int, X: Rows) -> Array:
        """The features of one block at the rows of X, shape ``(n, n_features)``."""
        ...

    def decision(self, coefficients: Array, X: Rows, first_block: int = 0) -> Array:
        """``f(x) = sum over blocks and features of coefficient * phi(x)``, shape ``(n, K)``.

        `coefficients` has the shape ``(n_blocks, n_features, K)``; its first block is number `first_block`.
        """
        ...

    def adjoint(self, G: Array, X: Rows, n_blocks: int, first_block: int = 0) -> Array:
        """``sum over rows of phi(x_i) G[i, k]``, the transpose of `decision`: ``(n_blocks, n_features, K)``."""
        ...


class Backend(Protocol):
    """A maker of `Features`, and what a solver may use: precision, threads, and bytes for what it keeps to be fast."""

    dtype: np.dtype[Any]
    n_threads: int
    cache_bytes: int

    def features(self, kernel: Kernel, seed: int, n_features: int, n_dims: int) -> Features: ...


BACKENDS = ("reference", "cpu")


def backend(name: str, dtype: Any = np.float32, n_jobs: int | None = None, cache_bytes: int = 0) -> Backend:
    """The backend of that name; ``"auto"`` is the fastest one that is installed.

    `cache_bytes` is how much memory frequencies may take that are kept for the next sweep; 0 draws them every time.
    """
    if dtype not in ("float32", "float64", np.float32, np.float64):
        raise ValueError(f'dtype={dtype!r} is not supported: give "float32" or "float64"')
    if n_jobs is not None and (not isinstance(n_jobs, int | np.integer) or n_jobs == 0):
        raise ValueError(f"n_jobs={n_jobs!r} is not valid: give a number of threads, -1 for all cores, or None")
    if not number(cache_bytes) >= 0:
        raise ValueError(f"cache_bytes={cache_bytes!r} is not valid: give a number of bytes, at least 0")
    precision = np.dtype(dtype)
    if name in ("auto", "cpu"):
        from s3vm.backends.cpu import Cpu

        return Cpu(precision, n_jobs, cache_bytes)
    if name == "reference":
        from s3vm.backends.reference import Reference

        return Reference(precision)
    names = ", ".join(repr(known) for known in ("auto", *BACKENDS))
    raise ValueError(f"backend={name!r} is not known: give one of {names}")

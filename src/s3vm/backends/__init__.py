"""Where the hot verbs run. A backend knows neither losses nor solvers.

`Features` are the random features of one kernel under one seed, in blocks of equal size. Each verb sweeps over
blocks that are drawn when they are needed, so memory is the coefficients and one chunk, never a feature matrix.

A backend computes where its arrays are, and a verb's result is where its rows are: NumPy's arrays come back for NumPy's
arrays from every backend, and what a GPU was given by `put` stays there.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from s3vm._utils.arrays import precision
from s3vm._utils.optional import optional
from s3vm._utils.settings import is_integer, number
from s3vm._utils.typing import Array, Rows
from s3vm.kernels import Kernel

__all__ = ["BACKENDS", "Backend", "Features", "Sums", "backend"]


_Loss = TypeVar("_Loss")
_Carry = TypeVar("_Carry")


class Sums(Protocol):
    """Sums over random features that are never all there at once."""

    def decision(self, coefficients: Array, X: Rows, first_block: int = 0) -> Array:
        """``f(x) = sum over blocks and features of coefficient * phi(x)``, shape ``(n, K)``.

        `coefficients` has the shape ``(n_blocks, n_features, K)``; its first block is number `first_block`.
        """
        ...

    def adjoint(self, G: Array, X: Rows, n_blocks: int, first_block: int = 0) -> Array:
        """``sum over rows of phi(x_i) G[i, k]``, the transpose of `decision`: ``(n_blocks, n_features, K)``."""
        ...


class Features(Sums, Protocol):
    """Random features ``phi_1(x), phi_2(x), ...`` in blocks of `n_features`, each scaled by ``1/sqrt(n_features)``."""

    n_features: int

    def features(self, block: int, X: Rows, n_blocks: int = 1) -> Array:
        """The features of a block, or of some from it on, at the rows of X: ``(n, n_blocks * n_features)``."""
        ...

    def window(self, first_block: int, n_blocks: int) -> Sums:
        """Some of the blocks, counted from the first of them: arrays only, so that `Backend.scan` can take them."""
        ...

    def ready(self, X: Rows) -> Any:
        """Rows as a window's `decision` likes them best, to be cut and used many times."""
        ...


class Backend(Protocol):
    """A maker of `Features`, and what a solver may use: precision, threads, and bytes for what it keeps to be fast."""

    dtype: np.dtype[Any]
    n_threads: int
    cache_bytes: int

    def memory(self) -> int:
        """The bytes of memory that there are."""
        ...

    def used(self) -> str:
        """How much memory has been used, in words, where that is not this machine's own."""
        ...

    def features(self, kernel: Kernel, seed: int, n_features: int, n_dims: int) -> Features: ...

    def put(self, x: Any) -> Any:
        """An array or rows as this backend computes with them."""
        ...

    def gram(self, kernel: Kernel, X: Any, Z: Any) -> Any:
        """The kernel matrix of rows that were `put`."""
        ...

    def expansion(self, kernel: Kernel, centres: Rows, weights: Array, X: Rows) -> Array:
        """``sum_i weights[i, k] k(centres[i], x)`` for every row x, shape ``(n, K)``."""
        ...

    def scan(self, step: Callable[[int, _Carry, Any], _Carry]) -> Callable[[_Carry, Any, int], Iterator[_Carry]]:
        """A function ``(carry, given, n)`` that yields ``carry = step(i, carry, given)`` for each i below n.

        A device may record the steps and do them again with other arrays of the same shapes, so a step must be a
        function of the arrays in its arguments, and of others that do not change.
        """
        ...

    def loss(self, loss: _Loss) -> _Loss:
        """The loss, for scores that are where this backend computes."""
        ...


BACKENDS = ("reference", "cpu", "gpu")


_CACHE_BYTES = 256 << 20
_GPUS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # NVIDIA's, the same under Windows' Linux, AMD's


def backend(
    name: str, dtype: Any = np.float32, n_jobs: int | None = None, cache_bytes: int | Literal["auto"] = 0
) -> Backend:
    """The backend of that name; ``"auto"`` is the GPU if there is one that torch sees, else the CPU.

    `cache_bytes` is how much memory frequencies may take that are kept for the next sweep; 0 draws them every time,
    ``"auto"`` is 256 MiB, or half of what is free on a GPU.
    """
    kind = precision(dtype)
    if n_jobs is not None and (not is_integer(n_jobs, -np.inf) or n_jobs == 0):
        raise ValueError(f"n_jobs={n_jobs!r} is not valid: give a number of threads, -1 for all cores, or None")
    if cache_bytes != "auto" and not number(cache_bytes) >= 0:
        raise ValueError(f'cache_bytes={cache_bytes!r} is not valid: give a number of bytes, at least 0, or "auto"')
    if name == "gpu" or (name == "auto" and _sees_gpu()):
        optional("torch", "gpu")
        from s3vm.backends.gpu import Gpu

        found = Gpu(kind, None if cache_bytes == "auto" else cache_bytes)
        if found.device.type == "cpu":
            _say_that_there_is_no_gpu()
        return found
    cache_bytes = _CACHE_BYTES if cache_bytes == "auto" else cache_bytes
    if name in ("auto", "cpu"):
        from s3vm.backends.cpu import Cpu

        return Cpu(kind, n_jobs, cache_bytes)
    if name == "reference":
        from s3vm.backends.reference import Reference

        return Reference(kind)
    names = ", ".join(repr(known) for known in ("auto", *BACKENDS))
    raise ValueError(f"backend={name!r} is not known: give one of {names}")


@cache
def _say_that_there_is_no_gpu() -> None:
    """Says it once, though a fit asks for its backend several times."""
    warnings.warn(
        'backend="gpu" finds no GPU that torch sees, and runs torch on the CPU: give backend="auto", which is the GPU '
        "where there is one and our own faster code elsewhere",
        stacklevel=1,
    )


def _sees_gpu() -> bool:
    """Whether torch and Triton are installed and see a GPU; torch is not imported only to learn that there is none."""
    if "torch" not in sys.modules and not any(map(os.path.exists, _GPUS)):
        return False
    if find_spec("torch") is None or find_spec("triton") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())

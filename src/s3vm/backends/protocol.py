"""What a backend is: random features, sums over them, and kernel matrices, wherever they are computed.

`Features` are the random features of one kernel under one seed, in blocks of equal size. Each method sweeps over blocks
that are drawn when they are needed, so memory is the coefficients and one chunk, never a feature matrix.

A backend computes where its arrays are, and a result is where the rows are: every backend returns NumPy arrays for
NumPy arrays, and what was `put` on a GPU stays there.
"""

from typing import Any, Protocol, TypeVar

import numpy as np

from s3vm._utils.typing import Array, Rows
from s3vm.kernels import Kernel

_Loss = TypeVar("_Loss")


class Features(Protocol):
    """Random features ``phi_1(x), phi_2(x), ...`` in blocks of `n_features`, each scaled by ``1/sqrt(n_features)``."""

    n_features: int

    def features(self, block: int, X: Rows, n_blocks: int = 1) -> Array:
        """The features of `n_blocks` blocks, from `block` on, at the rows of X: ``(n, n_blocks * n_features)``."""

    def decision(self, coefficients: Array, X: Rows, first_block: int = 0) -> Array:
        """``f(x) = sum over blocks and features of coefficient * phi(x)``, shape ``(n, K)``.

        `coefficients` has the shape ``(n_blocks, n_features, K)``; its first block is number `first_block`.
        """

    def adjoint(self, G: Array, X: Rows, n_blocks: int, first_block: int = 0) -> Array:
        """``sum over rows of phi(x_i) G[i, k]``, the transpose of `decision`: ``(n_blocks, n_features, K)``."""


class Backend(Protocol):
    """Makes `Features`, and tells solvers what they may use: precision, threads, and bytes for caches."""

    dtype: np.dtype[Any]
    n_threads: int
    cache_bytes: int

    def memory(self) -> int:
        """The bytes of memory that are available."""

    def used(self) -> str:
        """How much memory has been used, as text; empty for the memory of the machine."""

    def features(self, kernel: Kernel, seed: int, n_features: int, n_dims: int) -> Features: ...

    def put(self, x: Any) -> Any:
        """An array or rows in the form this backend computes with."""

    def gram(self, kernel: Kernel, X: Any, Z: Any) -> Any:
        """The kernel matrix of rows that were `put`."""

    def expansion(self, kernel: Kernel, centers: Rows, weights: Array, X: Rows) -> Array:
        """``sum_i weights[i, k] k(centers[i], x)`` for every row x, shape ``(n, K)``."""

    def loss(self, loss: _Loss) -> _Loss:
        """The loss, for scores where this backend computes."""

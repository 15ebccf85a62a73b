"""What is left after training: a function, and nothing of how it was found."""

from dataclasses import dataclass, replace

import numpy as np

from s3vm._typing import Array, Rows
from s3vm.backends import Backend
from s3vm.kernels import Kernel

__all__ = ["Model", "winners"]


@dataclass(frozen=True, eq=False)
class Model:
    """``f_k(x) = sum over blocks t and features j of coefficients[t, j, k] phi_tj(x) + intercept[k]``.

    The features are not here: `kernel` and `seed` say how to draw them.
    """

    kernel: Kernel
    seed: int
    n_dims: int
    coefficients: Array
    intercept: Array

    def decision(self, X: Rows, backend: Backend) -> Array:
        """``f(x)`` for every row and column, shape ``(n, K)``."""
        features = backend.features(self.kernel, self.seed, self.coefficients.shape[1], self.n_dims)
        return features.decision(self.coefficients, X) + self.intercept

    def columns(self, chosen: slice) -> "Model":
        """The model of some columns only."""
        kept = np.ascontiguousarray(self.coefficients[:, :, chosen])
        return replace(self, coefficients=kept, intercept=self.intercept[chosen])


def winners(scores: Array) -> Array:
    """The class code of each row of scores ``(n, K)``: the highest column, or the sign if there is one column."""
    return (scores[:, 0] > 0).astype(np.intp) if scores.shape[1] == 1 else scores.argmax(axis=1)

"""Factorisations of symmetric matrices, on the host and on a device."""

from typing import Any

import numpy as np
from scipy import linalg

from s3vm._utils.arrays import is_tensor, namespace


def eigen(a: Any) -> tuple[Any, Any]:
    """Eigenvalues, smallest first, and eigenvectors of a symmetric matrix."""
    if is_tensor(a):
        values, vectors = namespace(a).linalg.eigh(a)
        return values, vectors
    return linalg.eigh(a, check_finite=False, driver="evd")


def inverse(a: Any) -> Any:
    """The inverse of a positive definite matrix."""
    if is_tensor(a):
        torch = namespace(a)
        return torch.cholesky_inverse(torch.linalg.cholesky(a))
    factor = linalg.cho_factor(a, lower=True, check_finite=False)
    return linalg.cho_solve(factor, np.eye(len(a)), check_finite=False)

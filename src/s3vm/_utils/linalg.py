"""The inverse of a symmetric matrix, on the host and on a device."""

from typing import Any

import numpy as np
from scipy.linalg import cholesky, lapack

from s3vm._utils.arrays import is_tensor, namespace


def inverse(a: Any) -> Any:
    """The inverse of a positive definite matrix."""
    if is_tensor(a):
        torch = namespace(a)
        return torch.cholesky_inverse(torch.linalg.cholesky(a))
    lower, _ = lapack.dpotri(cholesky(a, lower=True, check_finite=False), lower=1)
    lower += np.tril(lower, -1).T
    return lower

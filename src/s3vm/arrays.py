"""Arrays here and on a device: what lets the same lines of a solver compute with NumPy's arrays and torch's tensors.

Methods and operators that both have need nothing; this is the rest.
"""

import sys
from typing import Any

import numpy as np

from s3vm._typing import Array

__all__ = ["cast", "host", "is_tensor", "namespace", "product"]


def is_tensor(x: Any) -> bool:
    """Whether x is one of torch's, without importing torch to know."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def namespace(x: Any) -> Any:
    """The module whose functions take x."""
    return sys.modules["torch"] if is_tensor(x) else np


def host(x: Any) -> Array:
    """x as an array of NumPy, wherever it is."""
    return x.detach().cpu().numpy() if is_tensor(x) else x


def cast(x: Any, dtype: Any) -> Any:
    """x in another precision."""
    return x.to(dtype) if is_tensor(x) else x.astype(dtype)


def product(a: Any, b: Any) -> Any:
    """``a @ b`` of two precisions, in the higher one."""
    if is_tensor(a) and a.dtype != b.dtype:
        wider = sys.modules["torch"].promote_types(a.dtype, b.dtype)
        a, b = a.to(wider), b.to(wider)
    return a @ b

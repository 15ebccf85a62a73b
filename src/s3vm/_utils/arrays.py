"""Arrays here and on a device: what lets the same lines of a solver compute with NumPy's arrays and torch's tensors.

Methods and operators that both have need nothing; this is the rest.
"""

import sys
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from s3vm._utils.typing import Array, Rows
from s3vm._utils.warn import warn

__all__ = [
    "LARGEST",
    "as_rows",
    "cast",
    "check_numbers",
    "check_size",
    "host",
    "is_masked",
    "is_tensor",
    "namespace",
    "precision",
    "product",
    "row_bytes",
    "row_digests",
    "stack",
    "warn_of_lost_digits",
]


LARGEST = {"float32": 1e30, "float64": 1e150}
"""How large an entry of X may be: sums of squares must not overflow."""

_CLOSE = 2.0**-16  # of the size of a column: so much further apart, float32 tells at least 256 values from each other


def precision(dtype: Any) -> np.dtype[Any]:
    """The precision of that name; a ValueError unless it is one that rows may have."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", getattr(dtype, "__name__", ""))
    if name not in LARGEST:
        raise ValueError(f'dtype={dtype!r} is not supported: give "float32" or "float64"')
    return np.dtype(name)


def check_numbers(X: Any) -> None:
    """Raises a ValueError if rows are masked, dates or times, which NumPy takes for plain numbers without a word."""
    parts = X if isinstance(X, list | tuple) else [X]
    if any(is_masked(part) for part in parts):
        raise ValueError("X is a masked array with masked entries: fill them in, X.filled(0), or leave such rows out")
    for kind in _kinds(X, parts):
        if str(kind).lower().startswith(("date", "time", "duration")):
            raise ValueError(
                f"X has dates or times ({kind}), which are no features yet: make numbers of them, such as the days "
                "since a first day"
            )


def is_masked(x: Any) -> bool:
    """Whether x is a masked array of NumPy with masked entries."""
    return isinstance(x, np.ma.MaskedArray) and bool(np.ma.is_masked(x))


def _kinds(X: Any, parts: Any) -> list[Any]:
    """The types of the columns of a frame, or of the rows of a list, or of an array."""
    frame = getattr(X, "dtypes", None)
    if frame is not None:
        return list(frame) if hasattr(frame, "__iter__") else [frame]
    if hasattr(X, "schema"):  # of Arrow
        return list(X.schema.types)
    firsts = [part[0] if isinstance(part, list | tuple) and part else part for part in parts]
    return [getattr(first, "dtype", type(first).__name__) for first in firsts]


def check_size(entries: Any, dtype: Any) -> None:
    """Raises a ValueError if an entry is too large for that precision."""
    largest = max(float(entries.max()), -float(entries.min())) if entries.size else 0.0
    if largest > LARGEST[precision(dtype).name]:
        raise ValueError(f"X has entries up to {largest:.1e}, too large for {dtype}: standardise the features first")


def warn_of_lost_digits(X: Any, dtype: Any) -> None:
    """Warns of columns that differ in digits which that precision does not hold, such as times in seconds."""
    if not isinstance(X, np.ndarray) or X.dtype.itemsize <= np.dtype(dtype).itemsize or not len(X):
        return
    low, high = X.min(axis=0), X.max(axis=0)
    close = np.flatnonzero((high > low) & (high - low < _CLOSE * np.maximum(abs(low), abs(high))))
    lost = [int(column) for column in close if (X[:, column].astype(dtype) != X[:, column]).any()]
    if lost:
        warn(
            f"columns {lost[:5]} of X differ in digits that {np.dtype(dtype).name} does not hold: subtract a constant "
            'from them, as StandardScaler does, or give dtype="float64"'
        )


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


def as_rows(X: Any, dtype: Any) -> Rows:
    """`X` as `Rows`: cast and made contiguous only where it has to be."""
    if sparse.issparse(X):
        return sparse.csr_array(X, dtype=dtype)
    if is_tensor(X):
        return cast(X, getattr(namespace(X), np.dtype(dtype).name)).contiguous()
    return np.ascontiguousarray(X, dtype=dtype)


def row_bytes(rows: Rows) -> float:
    """About how many bytes a row like these takes in float64."""
    return 12 * rows.nnz / max(1, rows.shape[0]) if sparse.issparse(rows) else 8.0 * rows.shape[1]


def stack(parts: list[Rows]) -> Rows:
    """Rows below rows, sparse if any are."""
    if is_tensor(parts[0]):
        return namespace(parts[0]).concatenate(parts)
    if not any(map(sparse.issparse, parts)):
        return np.concatenate(parts)
    return sparse.vstack([part if sparse.issparse(part) else sparse.csr_array(part) for part in parts], format="csr")


def row_digests(X: Any) -> Array:
    """One number for the content of each row, the same for dense and sparse rows."""
    compressed = sparse.csr_array(X, dtype=np.float64, copy=True)
    compressed.sum_duplicates()
    compressed.eliminate_zeros()
    compressed.sort_indices()
    ends = compressed.indptr
    columns, values = compressed.indices.astype(np.int64), compressed.data
    return np.array(
        [
            int.from_bytes(blake2b(columns[a:b].tobytes() + values[a:b].tobytes(), digest_size=8).digest(), "little")
            for a, b in pairwise(ends)
        ],
        dtype=np.uint64,
    )

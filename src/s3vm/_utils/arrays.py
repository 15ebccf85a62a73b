"""Arrays on the host and on a device: functions with which the same code computes with NumPy arrays and torch tensors.

Methods and operators that both have in common are used directly; this is the rest.
"""

import sys
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from s3vm._utils.blas import one_blas_thread
from s3vm._utils.typing import Array, Rows

_PANEL = 64  # rows that are projected at once


def is_tensor(x: Any) -> bool:
    """Whether x is a tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def namespace(x: Any) -> Any:
    """The module whose functions take x."""
    return sys.modules["torch"] if is_tensor(x) else np


def host(x: Any) -> Array:
    """x as a NumPy array, wherever it is."""
    return x.detach().cpu().numpy() if is_tensor(x) else x


def cast(x: Any, dtype: Any) -> Any:
    """x converted to that dtype, of NumPy or of its own library."""
    if not is_tensor(x):
        return x.astype(dtype, copy=False)
    torch = namespace(x)
    return x.to(dtype if isinstance(dtype, torch.dtype) else getattr(torch, np.dtype(dtype).name))


def product(a: Any, b: Any) -> Any:
    """``a @ b``, in the higher of their two precisions."""
    if is_tensor(a) and a.dtype != b.dtype:
        wider = sys.modules["torch"].promote_types(a.dtype, b.dtype)
        a, b = a.to(wider), b.to(wider)
    return a @ b


def project(rows: Rows, projection: Array | None) -> Rows:
    """The rows by a linear map, in their own precision: ``x_j w_j`` for weights (d,), ``x @ P`` for a matrix (d, q).

    Weighted sparse rows stay sparse, all others become dense. A projected row does not depend on the other rows.
    """
    if projection is None:
        return rows
    if rows.shape[1] != len(projection):
        raise ValueError(f"rows of {rows.shape[1]} columns met a projection of {len(projection)}")
    with np.errstate(over="ignore", invalid="ignore"):  # the caller sees scores that are not finite
        if projection.ndim == 1:
            return _weighted(rows, projection)
        if sparse.issparse(rows):
            return np.asarray(rows @ projection.astype(np.float64)).astype(rows.dtype)
        with one_blas_thread:
            return _projected(rows, projection)


def _weighted(rows: Rows, weights: Array) -> Rows:
    if sparse.issparse(rows):
        data = rows.data * weights[rows.indices].astype(rows.dtype)
        return type(rows)((data, rows.indices, rows.indptr), shape=rows.shape)
    if is_tensor(rows):
        return rows * namespace(rows).as_tensor(weights).to(rows)
    return rows * weights.astype(rows.dtype)


def _projected(rows: Rows, directions: Array) -> Rows:
    """``rows @ directions`` of dense rows, in float64 if the device has it.

    Panels are padded with zeros to the same number of rows, since a BLAS may sum in another order for another number.
    """
    n, d = rows.shape
    if is_tensor(rows):
        xp, device = namespace(rows), rows.device
        real = xp.float32 if device.type == "mps" else xp.float64
        factor = xp.as_tensor(directions).to(device, real)
        empty, panel = rows.new_empty((n, factor.shape[1])), xp.zeros((_PANEL, d), dtype=real, device=device)
    else:
        factor = directions.astype(np.float64)
        empty, panel = np.empty((n, factor.shape[1]), rows.dtype), np.zeros((_PANEL, d))
    for start in range(0, n, _PANEL):
        part = rows[start : start + _PANEL]
        panel[: len(part)] = part
        empty[start : start + _PANEL] = (panel @ factor)[: len(part)]
    return empty


def as_rows(X: Any, dtype: Any) -> Rows:
    """`X` as `Rows`, cast and made contiguous only if necessary."""
    if sparse.issparse(X):
        return sparse.csr_array(X, dtype=dtype)
    if is_tensor(X):
        return cast(X, dtype).contiguous()
    return np.ascontiguousarray(X, dtype=dtype)


def row_bytes(rows: Rows) -> float:
    """About how many bytes one of these rows takes in float64."""
    return 12 * rows.nnz / max(1, rows.shape[0]) if sparse.issparse(rows) else 8.0 * rows.shape[1]


def stack(parts: list[Rows]) -> Rows:
    """The parts stacked vertically, sparse if any of them is."""
    if is_tensor(parts[0]):
        return namespace(parts[0]).concatenate(parts)
    if not any(map(sparse.issparse, parts)):
        return np.concatenate(parts)
    return sparse.vstack([part if sparse.issparse(part) else sparse.csr_array(part) for part in parts], format="csr")


def blocks(n: int, size: int, first: int = 0) -> list[slice]:
    """The rows from `first` to n, `size` at a time."""
    return [slice(start, min(start + size, n)) for start in range(first, n, size)]


def are_equal(rows: Rows, others: Rows) -> bool:
    """Whether these are the same rows in the same order, dense or sparse."""
    return rows.shape == others.shape and not (rows != others).sum()


def row_digests(X: Any) -> Array:
    """A hash of each row, the same for dense and sparse rows."""
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


def variance_of(X: Any, row_weight: Array | None = None, chunk: int = 8192) -> float:
    """The variance of all entries of X, row i counted `row_weight[i]` times, in float64 and without a copy of X.

    Two sweeps, the mean first: one sweep of squares would lose the variance of columns far from zero.
    """
    weight = np.ones(X.shape[0]) if row_weight is None else row_weight
    entries = weight.sum() * X.shape[1]
    if is_tensor(X) and X.device.type == "mps":
        X = host(X)  # since the device has no float64
    there = namespace(X).as_tensor(weight, device=X.device) if is_tensor(X) else weight
    chunk *= 32 if is_tensor(X) else 1  # a device takes a while to start
    chunks = [slice(start, start + chunk) for start in range(0, X.shape[0], chunk)]
    mean = sum((there[rows] @ cast(X[rows], np.float64)).sum() for rows in chunks) / entries
    total = 0.0
    for rows in chunks:
        part: Any = cast(X[rows], np.float64)
        if sparse.issparse(part):
            stored = np.diff(part.indptr)
            part.data = (part.data - mean) ** 2
            total += weight[rows] @ (np.asarray(part.sum(axis=1)).ravel() + (X.shape[1] - stored) * mean**2)
        else:
            part = part - mean
            part *= part
            total += (there[rows] @ part).sum()
    return float(total / entries)


def moments_of(X: Rows) -> tuple[int, float, float]:
    """The number of rows, and the mean and the variance of their entries."""
    if not X.shape[0]:
        return 0, 0.0, 0.0
    return int(X.shape[0]), float(X.sum(dtype=np.float64)) / (X.shape[0] * X.shape[1]), variance_of(X)

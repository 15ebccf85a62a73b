"""Functions on landmarks, in coordinates in which the norm is the identity and the graph is diagonal."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from scipy import sparse

from s3vm._utils.arrays import cast, host, is_tensor, namespace
from s3vm._utils.linalg import eigen
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.kernels import Kernel

_BLOCK = 2048  # rows that one thread takes at a time; sums over blocks are added in order, whatever the threads
_RANK = 1e-6  # eigenvalues of the landmarks' kernel matrix below this fraction of the largest are left out


RowMap = Callable[[Callable[[slice], Any], Iterator[slice]], Iterator[Any]]
"""`map` for functions of blocks of rows."""


@contextmanager
def row_map(n_threads: int) -> Iterator[RowMap]:
    """A map that so many threads share; one thread is this one, which Ctrl-C can stop at once."""
    if n_threads == 1:
        yield map
        return
    with ThreadPoolExecutor(n_threads) as pool:
        yield pool.map


def blocks(n: int, first: int = 0) -> Iterator[slice]:
    """Rows from `first` to n, a block at a time."""
    return (slice(start, min(start + _BLOCK, n)) for start in range(first, n, _BLOCK))


@dataclass(frozen=True, eq=False)
class LandmarkSpace:
    """``f(x) = z(x).w + b`` with ``||f||^2 = |w|^2``, z centred over the unlabelled rows.

    With the graph's Laplacian L, ``(1/n) f'Lf = sum_j roughness_j w_j^2 + 2 b tilt.w + b^2 flat``: `tilt` and `flat`
    are what the graph says of constants, which a normalised Laplacian does not take for perfectly smooth.

    Attributes
    ----------
    features : array of shape (n, p), where the backend computes
        z of every row, labelled ones first.
    mean : array of shape (p,)
        What was subtracted.
    root : array of shape (m, p)
        ``z(x) = k(x, landmarks) root - mean``.
    roughness, tilt : arrays of shape (p,)
    flat : float
    """

    features: Any
    mean: Array
    root: Array
    roughness: Array
    tilt: Array
    flat: float

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        rows: Rows,
        n_labeled: int,
        landmarks: Rows,
        laplacian: Any,
        backend: Backend,
        each: RowMap,
    ) -> "LandmarkSpace":
        """The space of a kernel on some landmarks; without a Laplacian, every function is smooth."""
        rows, landmarks, n = backend.put(rows), backend.put(landmarks), int(rows.shape[0])
        exact = cast(landmarks, np.float64)
        values, vectors = eigen(backend.gram(kernel, exact, exact))
        kept = values > _RANK * max(float(values[-1]), 1e-300)
        root = vectors[:, kept] / values[kept] ** 0.5
        features = _empty(n, root.shape[1], backend.dtype, like=root)
        root = cast(root, backend.dtype)

        def fill(part: slice) -> None:
            gram = cast(backend.gram(kernel, rows[part], landmarks), backend.dtype)
            features[part] = gram @ root

        list(each(fill, blocks(n)))
        mean = cast(features[n_labeled if n_labeled < n else 0 :], np.float64).mean(axis=0)
        if not np.isfinite(host(mean)).all():
            raise ValueError("the kernel of the rows is not finite: standardise the features")
        features -= cast(mean, backend.dtype)
        mean, root = host(mean), np.ascontiguousarray(host(root), np.float64)
        p = len(mean)
        if laplacian is None:
            return cls(features, mean, root, np.zeros(p), np.zeros(p), 0.0)
        constant = np.asarray(laplacian.sum(axis=1)).ravel()
        roughness, turn = eigen(_quadratic_form(laplacian, features, each) / n)
        tilt = host(features.T @ cast(backend.put(constant), backend.dtype)).astype(np.float64) / n
        rotation = cast(backend.put(turn), backend.dtype)

        def rotate(part: slice) -> None:
            features[part] = features[part] @ rotation

        list(each(rotate, blocks(n)))
        roughness = np.maximum(roughness, 0.0)
        return cls(features, mean @ turn, root @ turn, roughness, tilt @ turn, float(constant.sum() / n))

    def expansion(self, w: Array, intercept: Array) -> tuple[Array, Array]:
        """The landmarks' weights and the intercepts of functions with coefficients w ``(p, K)``."""
        return self.root @ w, intercept - self.mean @ w


def _empty(n: int, p: int, dtype: Any, like: Any) -> Any:
    if not is_tensor(like):
        return np.empty((n, p), dtype)
    torch = namespace(like)
    return torch.empty((n, p), dtype=getattr(torch, np.dtype(dtype).name), device=like.device)


def _quadratic_form(matrix: sparse.csr_array, features: Any, each: RowMap) -> Array:
    """``features' matrix features`` in float64."""
    if is_tensor(features):
        torch = namespace(features)
        parts = (torch.as_tensor(part, device=features.device) for part in (matrix.indptr, matrix.indices, matrix.data))
        there = cast(torch.sparse_csr_tensor(*parts, size=matrix.shape), features.dtype)
        return host(features.T @ (there @ features)).astype(np.float64)
    matrix = matrix.astype(features.dtype)
    products = each(lambda part: features[part].T @ (matrix[part] @ features), blocks(len(features)))
    return reduce(np.add, products).astype(np.float64)

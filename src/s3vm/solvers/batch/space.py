"""Functions on landmarks, in coordinates in which the norm is the identity."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import lapack

from s3vm._utils.arrays import blocks, cast, host, is_tensor, namespace
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.kernels import Kernel
from s3vm.solvers.gram import check_finite

BLOCK = 2048  # rows that one thread takes at a time; sums over blocks are added in order, whatever the threads
_RANK = 1e-6  # rows whose kernel function is nearer to those of others, relative to the trace, are left out


RowMap = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]
"""`map` for functions of blocks of rows, or of spaces."""


@contextmanager
def row_map(n_threads: int) -> Iterator[RowMap]:
    """A map that so many threads share; one thread is this one, which Ctrl-C can stop at once."""
    if n_threads == 1:
        yield map
        return
    with ThreadPoolExecutor(n_threads) as pool:
        yield pool.map


def sum_over_blocks(of_block: Callable[[slice], Any], rows: Any, first: int, each: RowMap) -> Any:
    """The sum over blocks of rows from `first` on, in their order; a device takes all at once."""
    return reduce(add, each(of_block, blocks(len(rows), len(rows) if is_tensor(rows) else BLOCK, first)))


@dataclass(frozen=True, eq=False)
class LandmarkSpace:
    """``f(x) = z(x).w + b`` with ``||f||^2 = |w|^2``, z centred over the unlabelled rows.

    Attributes
    ----------
    features : array of shape (n, p), where the backend computes
        z of every row, labelled ones first.
    mean : array of shape (p,)
        What was subtracted.
    landmarks : Rows of shape (p, d)
        Those that span the functions: the others hardly differ from their combinations.
    root : array of shape (p, p)
        ``z(x) = k(x, landmarks) root - mean``.
    rough : array of shape (p + 1, p + 1)
        The graph's quadratic form of ``u = (w, b)``: ``(1/n) f'Lf = u' rough u``. Its last row and column are what the
        graph says of constants, which a normalised Laplacian does not take for perfectly smooth.
    """

    features: Any
    mean: Array
    landmarks: Rows
    root: Array
    rough: Array

    @classmethod
    def of(
        cls, kernel: Kernel, rows: Rows, n_labeled: int, landmarks: Rows, laplacian: Any, backend: Backend, each: RowMap
    ) -> "LandmarkSpace":
        """The space of a kernel on some landmarks; without a Laplacian, every function is smooth."""
        exact = cast(backend.put(landmarks), np.float64)
        chosen, root = span(host(backend.gram(kernel, exact, exact)))
        landmarks, n = landmarks[chosen], int(rows.shape[0])
        rows, there = backend.put(rows), backend.put(landmarks)
        factor = cast(backend.put(root), backend.dtype)
        shape = n, len(root)
        features = factor.new_empty(shape) if is_tensor(factor) else np.empty(shape, backend.dtype)

        def fill(part: slice) -> None:
            features[part] = cast(backend.gram(kernel, rows[part], there), backend.dtype) @ factor

        list(each(fill, blocks(n, BLOCK)))
        mean = cast(features[n_labeled if n_labeled < n else 0 :], np.float64).mean(axis=0)
        check_finite(host(mean))
        features -= cast(mean, backend.dtype)
        rough = np.zeros((len(root) + 1, len(root) + 1))
        if laplacian is not None:
            constant = np.asarray(laplacian.sum(axis=1)).ravel()
            rough[:-1, :-1] = _quadratic_form(laplacian, features, each) / n
            rough[-1, :-1] = host(features.T @ cast(backend.put(constant), backend.dtype)).astype(np.float64) / n
            rough[:-1, -1], rough[-1, -1] = rough[-1, :-1], constant.sum() / n
        return cls(features, host(mean), landmarks, root, rough)

    def expansion(self, w: Array, intercept: Array) -> tuple[Array, Array]:
        """The landmarks' weights and the intercepts of functions with coefficients w ``(p, K)``."""
        return self.root @ w, intercept - self.mean @ w


def span(gram: Array) -> tuple[Array, Array]:
    """Rows of a kernel matrix that span nearly all of it, and the inverse root R of theirs: ``R'KR = 1``."""
    check_finite(gram)
    factor, pivots, rank, _ = lapack.dpstrf(gram, tol=_RANK * max(float(gram.trace()), 1e-300), lower=1)
    inverse, _ = lapack.dtrtri(factor[:rank, :rank], lower=1)
    return pivots[:rank].astype(np.intp) - 1, np.ascontiguousarray(np.tril(inverse).T)


def _quadratic_form(matrix: sparse.csr_array, features: Any, each: RowMap) -> Array:
    """``features' matrix features`` in float64."""
    if is_tensor(features):
        torch, entries = namespace(features), matrix.tocoo()
        at, values = np.stack(entries.coords).astype(np.int64), entries.data.astype(host(features[:1]).dtype)
        parts = (torch.as_tensor(part, device=features.device) for part in (at, values))
        with torch.sparse.check_sparse_tensor_invariants(enable=False):
            there = torch.sparse_coo_tensor(*parts, matrix.shape, is_coalesced=True)
        return host(features.T @ torch.sparse.mm(there, features)).astype(np.float64)
    matrix = matrix.astype(features.dtype)
    products = each(lambda part: features[part].T @ (matrix[part] @ features), blocks(len(features), BLOCK))
    return reduce(np.add, products).astype(np.float64)

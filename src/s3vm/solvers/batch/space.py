"""Functions on landmarks, in coordinates in which the norm is the identity and the graph is diagonal."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from scipy.linalg import eigh

from s3vm._utils.typing import Array, Rows
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


def blocks(n: int) -> Iterator[slice]:
    return (slice(start, min(start + _BLOCK, n)) for start in range(0, n, _BLOCK))


@dataclass(frozen=True, eq=False)
class LandmarkSpace:
    """``f(x) = z(x).w + b`` with ``||f||^2 = |w|^2``, z centred over the unlabelled rows.

    With the graph's Laplacian L, ``(1/n) f'Lf = sum_j roughness_j w_j^2 + 2 b tilt.w + b^2 flat``: `tilt` and `flat`
    are what the graph says of constants, which a normalised Laplacian does not take for perfectly smooth.

    Attributes
    ----------
    features : array of shape (n, p)
        z of every row, labelled ones first.
    mean : array of shape (p,)
        What was subtracted.
    root : array of shape (m, p)
        ``z(x) = k(x, landmarks) root - mean``.
    roughness, tilt : arrays of shape (p,)
    flat : float
    """

    features: Array
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
        dtype: Any,
        each: RowMap,
    ) -> "LandmarkSpace":
        """The space of a kernel on some landmarks; without a Laplacian, every function is smooth."""
        exact = landmarks.astype(np.float64)
        values, vectors = eigh(kernel.gram(exact, exact), check_finite=False)
        kept = values > _RANK * max(float(values[-1]), 1e-300)
        root = np.ascontiguousarray(vectors[:, kept] / np.sqrt(values[kept]))
        n = int(rows.shape[0])
        features = np.empty((n, root.shape[1]), dtype)

        def fill(part: slice) -> None:
            gram = kernel.gram(rows[part], landmarks)
            features[part] = (gram @ root.astype(gram.dtype)).astype(dtype)

        list(each(fill, blocks(n)))
        if not np.isfinite(features).all():
            raise ValueError("the kernel of the rows is not finite: standardise the features")
        mean = features[n_labeled if n_labeled < n else 0 :].mean(axis=0, dtype=np.float64)
        features -= mean.astype(dtype)
        p = len(mean)
        if laplacian is None:
            return cls(features, mean, root, np.zeros(p), np.zeros(p), 0.0)
        rough = reduce(np.add, each(lambda part: features[part].T @ (laplacian[part] @ features), blocks(n))) / n
        roughness, turn = eigh(rough.astype(np.float64), check_finite=False)
        constant = np.asarray(laplacian @ np.ones(n))
        tilt = (features.T @ constant.astype(dtype)).astype(np.float64) / n
        rotate = turn.astype(dtype)

        def rotate_block(part: slice) -> None:
            features[part] = features[part] @ rotate

        list(each(rotate_block, blocks(n)))
        return cls(
            features, mean @ turn, root @ turn, np.maximum(roughness, 0.0), tilt @ turn, float(constant.sum() / n)
        )

    def expansion(self, w: Array, intercept: Array) -> tuple[Array, Array]:
        """The landmarks' weights and the intercepts of functions with coefficients w ``(p, K)``."""
        return self.root @ w, intercept - self.mean @ w

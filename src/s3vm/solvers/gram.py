"""The kernel matrix that SMO works on: whole if it fits into a budget of memory, else computed in parts."""

from typing import Any

import numpy as np

from s3vm._utils.arrays import blocks, row_bytes
from s3vm._utils.compiled import compiled
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend
from s3vm.kernels import Kernel

_PANEL = 256  # rows of the kernel matrix that are computed together
_PART = 1024  # variables that are solved for together where the whole matrix is too large


def memory(rows: Rows, n: int, backend: Backend, at_once: int) -> int:
    """About how many bytes the `Gram` of `n` rows like these takes while `at_once` problems are solved with it."""
    rows_and_variables = n * (4 * row_bytes(rows) + 25 * 8 * at_once)
    panels, a_value = 2 * 8 * _PANEL * n, backend.dtype.itemsize
    if _is_whole(n + 1, backend.cache_bytes, backend.dtype):
        return int(rows_and_variables + a_value * n**2 + max(panels, at_once * a_value * (n // 2) ** 2))
    return int(rows_and_variables + at_once * (panels + a_value * _PART**2))


def check_finite(values: Array) -> None:
    """Raises a ValueError unless kernel values are finite."""
    if not np.isfinite(values).all():
        raise ValueError("the kernel of the rows is not finite: standardise the features")


class Gram:
    """The kernel matrix of some rows: kept whole if it fits into `n_bytes`, else computed in parts when needed.

    Any number of problems, in any threads, may share it. With `mean_of` it has one more row at the end, the mean of
    those rows; the coefficient of this row holds the mean of f over them at its ``z``. A matrix of up to 1,024 rows is
    always kept, in `dtype`; values and sums are computed in float64.
    """

    def __init__(
        self, kernel: Kernel, rows: Rows, n_bytes: int, dtype: Any = np.float32, mean_of: slice | None = None
    ) -> None:
        self.dtype = np.dtype(dtype)
        self._kernel, self._rows = kernel, rows.astype(np.float64)
        n_rows = rows.shape[0]
        self._all_rows = np.arange(n_rows)
        self.part_size = _PART
        self.n = n_rows + (mean_of is not None)
        self.whole: Array | None = None
        self.mean: Array | None = None
        if _is_whole(self.n, n_bytes, self.dtype):
            self.whole = np.empty((self.n, self.n), self.dtype)
            self._fill(self.whole[:n_rows, :n_rows], self._all_rows)
            if mean_of is not None:
                mean = self.whole[:n_rows, :n_rows][mean_of].mean(axis=0, dtype=np.float64)
                self.whole[n_rows] = self.whole[:, n_rows] = np.append(mean, mean[mean_of].mean())
            self.diagonal = np.diag(self.whole).astype(np.float64)
            return
        self.diagonal = np.empty(self.n)
        for part in blocks(n_rows, _PANEL):
            self.diagonal[part] = np.diag(self._values(self._rows[part], self._rows[part]))
        if mean_of is not None:
            of_mean = self._all_rows[mean_of]
            mean = self._sum(of_mean, np.full(len(of_mean), 1 / len(of_mean)))
            self.mean = np.append(mean, mean[mean_of].mean())
            self.diagonal[n_rows] = self.mean[n_rows]

    @classmethod
    def of_matrix(cls, whole: Array) -> "Gram":
        """One whose matrix is known."""
        gram = cls.__new__(cls)
        gram.whole, gram.mean, gram.n, gram.part_size, gram.dtype = whole, None, len(whole), _PART, whole.dtype
        gram.diagonal = np.diag(whole).astype(np.float64)
        return gram

    def part(self, at: Array) -> Array:
        """A copy of the kernel matrix of the variables `at`, which ascend."""
        if self.whole is not None:
            return submatrix(self.whole, at)
        result = np.empty((len(at), len(at)), self.dtype)
        n_rows = np.count_nonzero(at < len(self._all_rows))
        self._fill(result[:n_rows, :n_rows], at[:n_rows])
        if self.mean is not None and n_rows < len(at):  # the mean is last, since `at` ascends
            result[-1] = result[:, -1] = self.mean[at]
        return result

    def times(self, at: Array, values: Array) -> Array:
        """``sum_i values_i K[at_i]``, in float64."""
        if self.whole is not None:
            result = np.zeros(self.n)
            add_rows(self.whole, at, values, result, 0.0)
            return result
        if self.mean is None:
            return self._sum(at, values)
        real = at < len(self._all_rows)
        result = np.append(self._sum(at[real], values[real]), self.mean[at[real]] @ values[real])
        return result + self.mean * values[~real].sum()

    def _values(self, rows: Rows, others: Rows) -> Array:
        values = self._kernel.gram(rows, others)
        check_finite(values.astype(self.dtype, copy=False))
        return values

    def _fill(self, out: Array, at: Array) -> None:
        """Writes the kernel matrix of the rows `at` to `out`: one triangle, and its mirror image."""
        rows = self._rows[at]
        for part in blocks(len(at), _PANEL):
            out[part, part.start :] = self._values(rows[part], rows[part.start :])
            out[part.start :, part] = out[part, part.start :].T

    def _sum(self, at: Array, values: Array) -> Array:
        result = np.zeros(len(self._all_rows))
        for part in blocks(len(at), _PANEL):
            result += values[part] @ self._values(self._rows[at[part]], self._rows)
        return result


def _is_whole(n: int, n_bytes: int, dtype: np.dtype[Any]) -> bool:
    return n <= _PART or n**2 * dtype.itemsize <= n_bytes


_compiled = compiled(error_model="numpy")


@_compiled
def submatrix(K, at):
    """A copy of ``K[at][:, at]``."""
    result = np.empty((len(at), len(at)), K.dtype)
    for i in range(len(at)):
        row = K[at[i]]
        for j in range(len(at)):
            result[i, j] = row[at[j]]
    return result


@_compiled
def add_rows(K, at, values, out, ridge):
    """``out += sum_i values_i K[at_i]``, with `ridge` added to the diagonal of K."""
    for i in range(len(at)):
        row, value = K[at[i]], values[i]
        for r in range(len(out)):
            out[r] += value * row[r]
        out[at[i]] += ridge * value

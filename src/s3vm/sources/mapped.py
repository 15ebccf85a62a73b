"""Rows of another source, changed on the way."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from s3vm._utils.typing import Array, Rows
from s3vm.philox import Purpose

if TYPE_CHECKING:
    from sklearn.preprocessing import StandardScaler


class MappedSource:
    """The rows of another source, with a function applied to each batch. The columns have no names."""

    def __init__(self, source: Any, change: Callable[[Rows], Rows]) -> None:
        self._source, self._change = source, change
        self.n_dims, self.dtype = int(source.n_dims), source.dtype

    @property
    def n_rows(self) -> int:
        return int(self._source.n_rows)

    def survey(self, progress: Callable[[int], None] | None = None) -> None:
        """Lets the other source read all rows once, if it has to."""
        if hasattr(self._source, "survey"):
            self._source.survey(progress)

    def batches(self, seed: int, stream: Purpose, steps: range, size: int) -> Rows:
        return self._change(self._source.batches(seed, stream, steps, size))

    def sample(self, seed: int, size: int) -> Rows:
        return self._change(self._source.sample(seed, size))

    def labelled(self) -> tuple[Rows, Array]:
        """The labelled rows of the other source, changed in the same way, and their labels."""
        rows, labels = self._source.labelled()
        return self._change(rows), labels


class RowScaler:
    """The function that a fitted StandardScaler is, in the precision of the rows."""

    def __init__(self, scaler: "StandardScaler", dtype: Any = np.float32) -> None:
        self._factor = None if scaler.scale_ is None else (1 / scaler.scale_).astype(dtype)
        self._mean = scaler.mean_.astype(dtype) if scaler.with_mean else None

    def __call__(self, rows: Rows) -> Rows:
        if sparse.issparse(rows):
            rows = rows.copy()
            if self._factor is not None:
                rows.data *= self._factor[rows.indices]
            return rows
        rows = rows - self._mean if self._mean is not None else rows.copy()
        if self._factor is not None:
            rows *= self._factor
        return rows


def with_names(scaler: "StandardScaler", names: Sequence[str] | None) -> "StandardScaler":
    """The scaler, as if fitted to columns of these names."""
    if names is not None:
        scaler.feature_names_in_ = np.array(names, dtype=object)
    return scaler

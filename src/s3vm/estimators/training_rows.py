"""The rows given to an estimator, in the order in which they came."""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from s3vm._utils.arrays import host, stack
from s3vm._utils.typing import Array

__all__ = ["FittedRows", "TrainingRows"]

_COMPARED = 100  # rows by which a later change of the training rows is noticed


class TrainingRows(NamedTuple):
    """Rows, their labels or marks, and their weights."""

    X: Any
    y: Array
    weight: Array

    def and_then(self, later: "TrainingRows") -> "TrainingRows":
        """These rows, then those that came later."""
        X = later.X
        if sparse.issparse(X) != sparse.issparse(self.X):
            X = X.toarray() if sparse.issparse(X) else sparse.csr_array(X)
        # As objects: NumPy would make text of numbers, or numbers of the kind that holds a mark.
        y = np.concatenate([self.y.astype(object), later.y.astype(object)])
        return TrainingRows(stack([self.X, X]), y, np.concatenate([self.weight, later.weight]))

    def at(self, positions: Array) -> "TrainingRows":
        """The rows at those positions."""
        return TrainingRows(self.X[positions], self.y[positions], self.weight[positions])

    def without(self, rows: Any) -> "TrainingRows":
        """All rows but those of the given numbers."""
        rows = np.asarray(rows)
        if rows.dtype.kind not in "iu" or (rows.size and not 0 <= rows.min() <= rows.max() < len(self.y)):
            raise ValueError(f"rows to forget are numbers from 0 to {len(self.y) - 1}, in the order in which rows came")
        return self.at(np.delete(np.arange(len(self.y)), rows))


class FittedRows(NamedTuple):
    """The rows of a fit that stay with the caller, and what shows whether they have been changed since."""

    rows: TrainingRows
    labeled_at: Array  # the numbers of the labelled rows that were learnt from
    codes: Array  # their classes
    copied: Any

    @classmethod
    def of(cls, rows: TrainingRows, labeled_at: Array, codes: Array) -> "FittedRows":
        return cls(rows, labeled_at, codes, _spread(rows.X))

    def unchanged(self) -> TrainingRows:
        """The rows; a ValueError if they are not what they were."""
        if (_spread(self.rows.X) != self.copied).sum() > 0:
            raise ValueError(
                "the rows given to fit have been changed since: call fit again with all rows, or use predict"
            )
        return self.rows


def _spread(X: Any) -> Any:
    """A copy of some rows from all over X."""
    return host(X[np.linspace(0, X.shape[0] - 1, min(X.shape[0], _COMPARED)).astype(int)]).copy()

"""The rows that an estimator has been given, in the order in which they came."""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from s3vm._utils.arrays import stack
from s3vm._utils.typing import Array

__all__ = ["TrainingRows"]


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

    def without(self, rows: Any) -> "TrainingRows":
        """These rows but those of the given numbers."""
        rows = np.asarray(rows)
        if rows.dtype.kind not in "iu" or (rows.size and not 0 <= rows.min() <= rows.max() < len(self.y)):
            raise ValueError(f"rows to forget are numbers from 0 to {len(self.y) - 1}, in the order in which rows came")
        kept = np.delete(np.arange(len(self.y)), rows)
        return TrainingRows(self.X[kept], self.y[kept], self.weight[kept])

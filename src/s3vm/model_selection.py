"""Cross-validation when only some rows are labelled."""

from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.model_selection import BaseCrossValidator, StratifiedKFold

from s3vm._typing import Array
from s3vm.labels import split_labels

__all__ = ["LabeledKFold", "folds_of_rows"]


class LabeledKFold(BaseCrossValidator):
    """Stratified folds of the labelled rows; the unlabelled rows are in every training part and in no test part.

    For `sklearn.model_selection.GridSearchCV` and its kin, whose own splitters would take the mark of an unlabelled row
    for a class and test on it.

    Parameters
    ----------
    n_splits : int, default 5
    unlabeled : the mark of an unlabelled row, as in `S3VMClassifier`, default -1
    shuffle, random_state : as in `sklearn.model_selection.StratifiedKFold`
    """

    def __init__(
        self, n_splits: int = 5, *, unlabeled: Any = -1, shuffle: bool = False, random_state: Any = None
    ) -> None:
        self.n_splits = n_splits
        self.unlabeled = unlabeled
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return self.n_splits

    def split(self, X: Any, y: Any, groups: Any = None) -> Iterator[tuple[Array, Array]]:
        """Yields the row numbers of each training part and of its test part."""
        labelled, labels = split_labels(y, self.unlabeled)
        known, unknown = np.flatnonzero(labelled), np.flatnonzero(~labelled)
        folds = StratifiedKFold(self.n_splits, shuffle=self.shuffle, random_state=self.random_state)
        for train, test in folds.split(known, labels):
            yield np.concatenate([known[train], unknown]), known[test]


def folds_of_rows(X: Any, codes: Array, most: int) -> Array:
    """The fold of each row, stratified by class: at most `most` folds, and each with every class in its training part.

    A row's place is found from its content and not from where it stands, so that the folds do not depend on the order
    of the rows, and equal rows share a fold: a row is never tested on its own copy. A class of one distinct row cannot
    be held out; then all rows are in fold 0.
    """
    digests = _digests(X)
    members = [np.flatnonzero(codes == code) for code in np.unique(codes)]
    distinct = [np.unique(digests[rows], return_inverse=True) for rows in members]
    n_folds = min(most, *(len(values) for values, _ in distinct))
    folds = np.zeros(len(codes), dtype=np.intp)
    dealt = 0
    for rows, (values, which) in zip(members, distinct, strict=True):
        folds[rows] = (which + dealt) % n_folds
        dealt += len(values)
    return folds


def _digests(X: Any) -> Array:
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

"""Cross-validation when only some rows are labelled."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator, StratifiedKFold
from sklearn.utils import check_consistent_length

from s3vm._utils.typing import Array
from s3vm.estimators.labels import split_labels

__all__ = ["LabeledKFold"]


class LabeledKFold(BaseCrossValidator):
    """Stratified folds of the labelled rows; the unlabelled rows are in every training part and in no test part.

    For `sklearn.model_selection.GridSearchCV` and the like, whose own splitters would take the mark of an unlabelled
    row for a class and test on it.

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
        is_labeled, labels = split_labels(y, self.unlabeled)
        check_consistent_length(X, is_labeled)
        labeled, unlabeled = np.flatnonzero(is_labeled), np.flatnonzero(~is_labeled)
        folds = StratifiedKFold(self.n_splits, shuffle=self.shuffle, random_state=self.random_state)
        for train, test in folds.split(labeled, labels):
            yield np.concatenate([labeled[train], unlabeled]), labeled[test]

"""Labelled rows that are equal, the folds that rows are in, and cross-validation when only some rows are labelled."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator, StratifiedKFold
from sklearn.utils import check_consistent_length

from s3vm import philox
from s3vm._utils.arrays import row_digests
from s3vm._utils.typing import Array
from s3vm._utils.warn import warn
from s3vm.estimators.labels import split_labels
from s3vm.estimators.safety import FEW_LABELS
from s3vm.philox import Purpose

N_FOLDS = 5
_A_FEW = 10  # rows of every class that are drawn first


def distinct_rows(X: Any, codes: Array, weight: Array) -> tuple[Array, Array, Array]:
    """The numbers of the distinct labelled rows, ordered by content, which of them each row equals, and their weight.

    What is learnt from them then depends neither on the order of the rows nor on whether a row is given twice or
    with twice the weight.
    """
    numbers = row_digests(X)
    order = np.lexsort((numbers, codes))
    numbers = numbers[order]
    new = np.r_[True, (numbers[1:] != numbers[:-1]) | (codes[order][1:] != codes[order][:-1])]
    which = np.empty(len(order), dtype=np.intp)
    which[order] = np.cumsum(new) - 1
    return order[new], which, np.add.reduceat(weight[order], np.flatnonzero(new))


def stratified_folds(codes: Array, n_folds: int, seed: int, draw: int = 0, groups: Array | None = None) -> Array:
    """The fold of each row, drawn at random, the classes spread evenly; another `draw` gives other folds.

    Rows of one group share a fold. Every class stays in every training part: rows without which one would be empty are
    in none, fold -1.
    """
    _, unit = np.unique(np.arange(len(codes)) if groups is None else groups, return_inverse=True)
    counts = np.zeros((unit.max() + 1, codes.max() + 1))
    np.add.at(counts, (unit, codes), 1)
    shuffle = philox.words(seed, Purpose.FOLD, draw, len(counts), 1)[:, 0]
    of_unit = np.empty(len(counts), dtype=np.intp)
    of_unit[np.lexsort((shuffle, counts.argmax(axis=1)))] = np.arange(len(counts)) % n_folds
    return _with_all_classes(of_unit[unit], codes, unit)


def _with_all_classes(folds: Array, codes: Array, units: Array) -> Array:
    """The folds without rows, and the other rows of their units, that hold all there are of a class."""
    for fold in range(folds.max() + 1):
        held_out = folds == fold
        missing = np.setdiff1d(codes[held_out], codes[~held_out])
        needed = held_out & np.isin(codes, missing)
        folds = np.where(held_out & np.isin(units, units[needed]), -1, folds)
    return folds


def some_rows(codes: Array, folds: Array, seed: int, most: int, most_classes: int) -> Array:
    """The numbers of some rows, drawn at random: at most so many, of at most so many classes.

    Of every class there are a few, if it has as many; classes of which no row can be held out are left out.
    """
    shuffle = philox.words(seed, Purpose.FOLD, 2, len(codes), 1)[:, 0]
    order = np.argsort(shuffle, kind="stable")
    order = order[np.isin(codes[order], codes[folds >= 0])]
    classes, first = np.unique(codes[order], return_index=True)
    order = order[np.isin(codes[order], classes[np.argsort(first)[:most_classes]])]
    rank = np.maximum(_ranks(codes[order]), _A_FEW)
    return np.sort(order[np.argsort(rank, kind="stable")][:most])


def _ranks(codes: Array) -> Array:
    """The number of each row among those of its class."""
    ranks = np.empty(len(codes), dtype=np.intp)
    for code in np.unique(codes):
        ranks[codes == code] = np.arange(np.count_nonzero(codes == code))
    return ranks


def folds_by_content(X: Any, n_folds: int) -> Array:
    """The fold of each row, given by its content, so that a row stays in its fold when others come and go."""
    return (row_digests(X) % np.uint64(n_folds)).astype(np.intp)


def held_out_groups(
    codes: Array, n_folds: int, seed: int, fixed_folds: Array | None = None, groups: Array | None = None
) -> Array:
    """Which labelled rows each set of columns is trained without: none, then each fold. Shape (n, 1 + folds).

    With few labels of two classes, each row, or group of rows, is a fold of its own.
    """
    no_rows = np.zeros((len(codes), 1), dtype=bool)
    if fixed_folds is not None:
        held_out = fixed_folds[:, None] == np.arange(N_FOLDS)
        return np.hstack([no_rows, held_out & ~held_out.all(axis=0)])  # equal rows may all be in one fold
    if len(codes) < FEW_LABELS and codes.max() == 1:
        units = np.arange(len(codes)) if groups is None else np.unique(groups, return_inverse=True)[1]
        folds = _with_all_classes(units, codes, units)
    else:
        folds = stratified_folds(codes, n_folds or N_FOLDS, seed, groups=groups)
        if folds.max() < 0:
            warn(
                "every class has a single labelled row or group, which cannot be held out: probabilities are "
                "calibrated on training rows and will be overconfident, and the weight of unlabelled rows "
                "cannot be chosen. Label more rows"
            )
    return np.hstack([no_rows, folds[:, None] == np.unique(folds[folds >= 0])])


def newest_labels(labels: Array, most: int) -> Array:
    """The positions of at most `most` rows: the last of each class in equal numbers, then the last of all."""
    _, codes = np.unique(labels, return_inverse=True)
    age = _ranks(codes[::-1])[::-1]  # 0 for the last row of its class
    share = most // (codes.max() + 1)
    order = np.lexsort((-np.arange(len(codes)), age >= share))
    return np.sort(order[:most])


class LabeledKFold(BaseCrossValidator):
    """Stratified folds of the labelled rows; the unlabelled rows are in every training part and in no test part.

    For `sklearn.model_selection.GridSearchCV` and the like, whose own splitters would take the mark of an unlabelled
    row for a class and test on it.

    Parameters
    ----------
    n_splits : int, default 5
    unlabeled : the mark of an unlabelled row, as in `S3VMClassifier`, default -1
    shuffle : bool, default False
    random_state : as in `sklearn.model_selection.StratifiedKFold`; without effect unless rows are shuffled
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
        if not len(unlabeled):
            warn(
                f"LabeledKFold(unlabeled={self.unlabeled!r}) found no row with that mark among the labels "
                f"{np.unique(labels)[:5].tolist()}: give it the mark of the classifier. StackingClassifier and the "
                'like recode labels, marks too: see the page "With other tools"'
            )
        random_state = self.random_state if self.shuffle else None  # meta-estimators set one
        folds = StratifiedKFold(self.n_splits, shuffle=self.shuffle, random_state=random_state)
        for train, test in folds.split(labeled, labels):
            yield np.concatenate([labeled[train], unlabeled]), labeled[test]

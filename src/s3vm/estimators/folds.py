"""Labelled rows that are the same, and the folds that rows are in."""

from typing import Any

import numpy as np

from s3vm import philox
from s3vm._utils.arrays import row_digests
from s3vm._utils.typing import Array
from s3vm.philox import Purpose

__all__ = ["distinct_rows", "lasting_folds", "newest", "stratified_folds"]


def distinct_rows(X: Any, codes: Array, weight: Array) -> tuple[Any, Array, Array]:
    """Labelled rows in an order that depends on what they are, copies with the same label merged into one.

    Whatever is learnt from them then depends neither on the order of the rows nor on whether a row is given twice or
    with twice the weight.
    """
    numbers = row_digests(X)
    order = np.lexsort((numbers, codes))
    numbers = numbers[order]
    new = np.r_[True, (numbers[1:] != numbers[:-1]) | (codes[order][1:] != codes[order][:-1])]
    first = order[new]
    return X[first], codes[first], np.add.reduceat(weight[order], np.flatnonzero(new))


def stratified_folds(codes: Array, most: int, seed: int, draw: int = 0) -> Array:
    """The fold of each row, drawn at random: at most `most` folds, each with every class in its training part.

    A class of one row cannot be held out; then all rows are in fold 0. Another `draw` gives other folds.
    """
    n_folds = min(most, int(np.bincount(codes).min()))
    shuffle = philox.words(seed, Purpose.FOLD, draw, len(codes), 1)[:, 0]
    folds = np.empty(len(codes), dtype=np.intp)
    folds[np.lexsort((shuffle, codes))] = np.arange(len(codes)) % n_folds
    return folds


def lasting_folds(X: Any, n_folds: int) -> Array:
    """The fold of each row by what it is, so that a row stays in its fold when others come and go."""
    return (row_digests(X) % np.uint64(n_folds)).astype(np.intp)


def newest(labels: Array, most: int) -> Array:
    """The places of at most `most` rows: the last of each class in equal numbers, then the last of all."""
    _, codes = np.unique(labels, return_inverse=True)
    age = np.empty(len(codes), dtype=np.intp)  # 0 for the last row of its class
    for code in range(codes.max() + 1):
        at = np.flatnonzero(codes == code)
        age[at] = np.arange(len(at))[::-1]
    share = most // (codes.max() + 1)
    order = np.lexsort((-np.arange(len(codes)), age >= share))
    return np.sort(order[:most])

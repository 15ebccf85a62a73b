"""Labelled rows that are the same, and the folds that rows are in."""

from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from s3vm import philox
from s3vm._typing import Array
from s3vm.philox import Stream

__all__ = ["digests", "distinct_rows", "lasting_folds", "newest", "stratified_folds"]


def distinct_rows(X: Any, codes: Array, weight: Array) -> tuple[Any, Array, Array]:
    """Labelled rows in an order that depends on what they are, copies with the same label merged into one.

    Whatever is learnt from them then depends neither on the order of the rows nor on whether a row is given twice or
    with twice the weight.
    """
    numbers = digests(X)
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
    shuffle = philox.words(seed, Stream.FOLD, draw, len(codes), 1)[:, 0]
    folds = np.empty(len(codes), dtype=np.intp)
    folds[np.lexsort((shuffle, codes))] = np.arange(len(codes)) % n_folds
    return folds


def lasting_folds(X: Any, n_folds: int) -> Array:
    """The fold of each row by what it is, so that a row stays in its fold when others come and go."""
    return (digests(X) % np.uint64(n_folds)).astype(np.intp)


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


def digests(X: Any) -> Array:
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

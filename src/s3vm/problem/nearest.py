"""The nearest other rows of every row, found exactly by products of blocks of rows."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from s3vm._utils.arrays import as_rows, blocks, host, is_tensor
from s3vm._utils.blas import one_blas_thread
from s3vm._utils.typing import Array, Rows

_BLOCK = 1024  # rows whose distances to as many others are in memory at once, for every thread
_FIRST = 256  # rows of a block by which its first candidates are found
_LARGE = 1e6  # entries whose squares would be too large
_SPARE = 5  # more candidates than neighbors, since products are rounded


def nearest_neighbors(
    rows: Rows, k: int, n_threads: int = 1, put: Callable[[Any], Any] = lambda x: x
) -> tuple[Array, Array]:
    """Distances to the k nearest other rows, and their numbers, nearest first: each of shape (n, k).

    Candidates are found by products, which are rounded; their distances are then computed from the differences. Equal
    distances are in the order of the rows. The result does not depend on the threads. `put` moves rows to a device,
    which then finds the candidates.
    """
    rows, scale = _centered(rows)
    n = int(rows.shape[0])
    distances, neighbors = np.empty((n, k)), np.empty((n, k), np.intp)
    there = rows if sparse.issparse(rows) else put(rows)
    with one_blas_thread, ThreadPoolExecutor(n_threads) as pool:
        each = map if n_threads == 1 else pool.map
        m = min(n - 1, k + _SPARE)
        candidates = _on_device(there, m) if is_tensor(there) else _on_host(rows, m, each)

        def fill(part: slice) -> None:
            own = np.arange(part.start, part.stop)
            nearest = np.sort(candidates[part], axis=1)
            exact = _distances(rows, own, nearest)
            order = np.argsort(exact, axis=1, kind="stable")[:, :k]
            distances[part] = np.take_along_axis(exact, order, axis=1)
            neighbors[part] = np.take_along_axis(nearest, order, axis=1)

        if k:
            list(each(fill, blocks(n, _BLOCK)))
    return scale * distances, neighbors


def _centered(rows: Rows) -> tuple[Rows, float]:
    """The rows in float32, moved to their mean and divided by a scale, since large numbers would be rounded."""
    if sparse.issparse(rows):
        scale = float(abs(rows.data).max(initial=0)) or 1.0
        return as_rows(rows / scale if scale > _LARGE else rows, np.float32), scale if scale > _LARGE else 1.0
    centered, mean = np.empty(rows.shape, np.float32), rows.mean(axis=0, dtype=np.float64)
    largest = max(float(abs(rows[part] - mean).max(initial=0)) for part in blocks(len(rows), _BLOCK))
    scale = largest if largest > _LARGE else 1.0
    for part in blocks(len(rows), _BLOCK):
        centered[part] = (rows[part] - mean) / scale
    return centered, scale


class _Nearer(NamedTuple):
    """Pairs of rows that are nearer than all known candidates, in order: row of the block, row of all, distance."""

    row: Array
    other: Array
    squared: Array

    @classmethod
    def of(cls, near: Array, squared: Array, start: int) -> "_Nearer":
        """The pairs where `near` is true; the columns are the rows from `start` on."""
        at = np.flatnonzero(near)
        row, column = np.divmod(at, near.shape[1])
        return cls(row, start + column, squared.ravel()[at])


def _on_host(rows: Rows, m: int, each: Callable[..., Iterator[Any]]) -> Array:
    """Numbers of m candidates per row, ``(n, m)``.

    Every product of two blocks serves the rows of both. Blocks meet in rounds, block i with block i + round; after a
    round, the candidates known so far say which of the next distances need no second look.
    """
    n, parts = int(rows.shape[0]), blocks(rows.shape[0], _BLOCK)
    norms = np.asarray(rows.multiply(rows).sum(axis=1)).ravel() if sparse.issparse(rows) else (rows**2).sum(axis=1)
    squared, numbers = np.full((n, m), np.inf, np.float32), np.zeros((n, m), np.intp)

    def meet(pair: tuple[int, int]) -> list[tuple[int, _Nearer]]:
        one, other = (parts[at] for at in pair)
        product = rows[one] @ rows[other].T
        distances = product.toarray() if sparse.issparse(product) else product
        distances *= -2
        distances += norms[one, None]
        distances += norms[other]
        if one == other:
            np.fill_diagonal(distances, np.inf)
            first = min(len(distances), max(_FIRST, m + 1))  # some others say how near a neighbor has to be at least
            limit = np.partition(distances[:, :first], min(m, first - 1) - 1, axis=1)[:, min(m, first - 1) - 1]
            return [(pair[0], _Nearer.of(distances <= limit[:, None], distances, other.start))]
        of_one = _Nearer.of(distances < squared[one, -1:], distances, other.start)
        of_other = _Nearer.of(distances < squared[other, -1], distances, 0)
        order = np.argsort(of_other.other, kind="stable")
        turned = _Nearer(of_other.other[order], one.start + of_other.row[order], of_other.squared[order])
        return [(pair[0], of_one), (pair[1], turned)]

    def merge(task: tuple[int, list[_Nearer]]) -> None:
        own = parts[task[0]]
        for found in task[1]:
            counts = np.bincount(found.row, minlength=own.stop - own.start)
            place = np.arange(len(found.row)) - np.repeat(np.cumsum(counts) - counts, counts)
            all_squared = np.full((len(counts), m + counts.max()), np.inf, np.float32)
            all_numbers = np.zeros(all_squared.shape, np.intp)
            all_squared[:, :m], all_numbers[:, :m] = squared[own], numbers[own]
            all_squared[found.row, m + place], all_numbers[found.row, m + place] = found.squared, found.other
            best = np.argpartition(all_squared, m - 1, axis=1)[:, :m]
            best = np.take_along_axis(best, np.argsort(np.take_along_axis(all_squared, best, 1), axis=1), 1)
            squared[own] = np.take_along_axis(all_squared, best, 1)
            numbers[own] = np.take_along_axis(all_numbers, best, 1)

    for distance in range(len(parts) // 2 + 1 if m else 0):
        last = len(parts) // 2 if 2 * distance == len(parts) and distance else len(parts)
        pairs = [(at, (at + distance) % len(parts)) for at in range(last)]
        found: dict[int, list[_Nearer]] = {}
        for block, pairs_found in (each_found for both in each(meet, pairs) for each_found in both):
            found.setdefault(block, []).append(pairs_found)
        list(each(merge, found.items()))
    return numbers


def _on_device(rows: Any, m: int) -> Array:
    """The same on a device, a block against all rows."""
    norms, found = (rows * rows).sum(dim=1), []
    for part in blocks(len(rows) if m else 0, _BLOCK):
        squared = norms - 2 * (rows[part] @ rows.T)
        own = range(part.stop - part.start)
        squared[own, range(part.start, part.stop)] = float("inf")
        found.append(host(squared.topk(m, dim=1, largest=False).indices))
    return np.concatenate(found) if found else np.empty((len(rows), 0), np.intp)


def _distances(rows: Rows, own: Array, others: Array) -> Array:
    """The distance of each row to some others: shape of `others`."""
    if sparse.issparse(rows):
        differences = rows[np.repeat(own, others.shape[1])] - rows[others.ravel()]
        return np.sqrt(np.asarray(differences.multiply(differences).sum(axis=1), np.float64)).reshape(others.shape)
    differences = (rows[own][:, None] - rows[others]).astype(np.float64)
    return np.sqrt(np.einsum("ijk,ijk->ij", differences, differences))

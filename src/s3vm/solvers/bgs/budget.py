"""Keeping the support sets of kernel expansions within budgets."""

import numpy as np

from s3vm._utils.compiled import compiled
from s3vm._utils.typing import Array, Rows
from s3vm.kernels import Kernel

__all__ = ["NEAREST", "beyond", "projection"]

NEAREST = 5  # rows that a removed one is projected onto
_GROUP = 16  # rows projected in one go
_NUGGET = 1e-8


def beyond(weights: Array, n_first: int, budgets: tuple[int, int]) -> Array:
    """Which weights ``(n, K)`` to remove: the smallest beyond the budgets of the first and of the other rows."""
    over = np.zeros(weights.shape, dtype=bool)
    for part, budget in zip((slice(n_first), slice(n_first, None)), budgets, strict=True):
        order = np.argsort(-np.abs(weights[part]), axis=0, kind="stable")
        np.put_along_axis(over[part], order[budget:], True, axis=0)
    return over & (weights != 0)


def projection(kernel: Kernel, rows: Rows, diagonal: Array, weights: Array, over: Array) -> Array:
    """What to add to the weights of the rows that stay, to compensate for the removed ones.

    Each removed row is projected onto the few rows of its column that individually explain most of it, in terms of
    ``k(x, z)^2 / k(z, z)``. `diagonal` is ``k(x, x)`` of every row.
    """
    rows, added = rows.astype(np.float64), np.zeros(weights.shape)
    removed = np.flatnonzero(over.any(axis=1))
    gram = kernel.gram(rows[removed], rows)
    explained = gram**2 / np.where(diagonal > 0, diagonal, np.inf)
    for k in range(weights.shape[1]):
        stays = ~over[:, k] & (weights[:, k] != 0)
        which, n_nearest = np.flatnonzero(over[removed, k]), min(NEAREST, int(stays.sum()))
        if not len(which) or not n_nearest:
            continue
        nearest = _largest(explained, which, stays, n_nearest)
        for start in range(0, len(which), _GROUP):
            some, near = which[start : start + _GROUP], nearest[start : start + _GROUP]
            own = np.arange(len(some))
            among = kernel.gram(rows[near.ravel()], rows[near.ravel()])
            blocks = among.reshape(len(some), n_nearest, len(some), n_nearest)[own, :, own]
            blocks += _NUGGET * diagonal[near][:, :, None] * np.eye(n_nearest)
            shares = np.linalg.solve(blocks, gram[some[:, None], near][:, :, None])[:, :, 0]
            np.add.at(added[:, k], near, shares * weights[removed[some], k][:, None])
    return added


@compiled()
def _largest(values, which, allowed, n):
    """The positions of the `n` largest entries of each row of `values` in `which`, among the allowed columns."""
    result = np.zeros((len(which), n), np.int64)
    best = np.empty(n)
    for i in range(len(which)):
        best[:] = -np.inf
        for j in range(values.shape[1]):
            value = values[which[i], j]
            if not allowed[j] or value <= best[n - 1]:
                continue
            place = n - 1
            while place > 0 and value > best[place - 1]:
                best[place], result[i, place] = best[place - 1], result[i, place - 1]
                place -= 1
            best[place], result[i, place] = value, j
    return result

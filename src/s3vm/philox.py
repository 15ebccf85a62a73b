"""Stateless random numbers: Philox4x32-10 with one stream per purpose.

Every number is a function of its address ``(seed, stream, block, row, column)``, so it can be drawn alone, in any order
and on any device, and nothing has to be stored. The random features of an iteration can therefore be thrown away and
drawn again from the number of the iteration.

The generator is that of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). The 64-bit seed is its
key. Its 128-bit counter is ``(column // 4, row, block, stream)``, and each counter gives four 32-bit words, one for
each of four neighbouring columns.

`philox4x32` and the transforms below use arithmetic only, so the same source runs on NumPy scalars, on NumPy arrays,
and compiled by Numba.
"""

from enum import IntEnum
from typing import Any

import numpy as np

from s3vm._utils.typing import Array

NAME = "philox4x32-10, 1"
"""Changes when the same address gives another number: model files written under another name cannot be read."""


class Purpose(IntEnum):
    """What random numbers are drawn for: each purpose has a stream of its own."""

    FREQUENCY = 0
    PHASE = 1
    SCALE = 2
    LABELED = 3
    UNLABELED = 4
    REFERENCE = 5
    FOLD = 6
    CHUNK = 7
    WINDOW = 8
    PROJECTION = 9
    EDGE = 10


_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox4x32(c0, c1, c2, c3, k0, k1):
    """Ten rounds of Philox4x32: four words below 2**32, from the four words of the counter and the halves of the key.

    All are uint64 scalars or arrays, so that a product of two fits.
    """
    for _ in range(10):
        product_0 = _MULTIPLIER_0 * c0
        product_1 = _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (
            (product_1 >> _HALF) ^ c1 ^ k0,
            product_1 & _LOW,
            (product_0 >> _HALF) ^ c3 ^ k1,
            product_0 & _LOW,
        )
        k0 = (k0 + _WEYL_0) & _LOW
        k1 = (k1 + _WEYL_1) & _LOW
    return c0, c1, c2, c3


def words(seed: int, stream: Purpose, block: int, n_rows: int, n_columns: int) -> Array:
    """The 32-bit words of rows ``0..n_rows-1`` and columns ``0..n_columns-1`` of a block."""
    group = np.arange((n_columns + 3) // 4, dtype=np.uint64)
    row = np.arange(n_rows, dtype=np.uint64)[:, None]
    lanes = _philox(seed, stream, np.uint64(block), row, group)
    return np.stack(lanes, axis=-1).reshape(n_rows, -1)[:, :n_columns]


def _philox(seed: int, stream: Purpose, block: Any, row: Any, group: Any) -> tuple[Array, ...]:
    """The four words of each address; blocks, rows and groups of columns are broadcast."""
    low, high = np.uint64(seed & 0xFFFFFFFF), np.uint64((seed >> 32) & 0xFFFFFFFF)
    c0, c1, c2, c3 = np.broadcast_arrays(group, row, block, np.uint64(stream))
    return philox4x32(c0, c1, c2, c3, low, high)


def _box_muller(u, v):
    """Two independent standard normals from two independent uniforms."""
    radius = np.sqrt(-2.0 * np.log(u))
    angle = 2.0 * np.pi * v
    return radius * np.cos(angle), radius * np.sin(angle)


def uniforms(seed: int, stream: Purpose, block: int, n_rows: int, n_columns: int) -> Array:
    """Uniform numbers strictly between 0 and 1: each word is the middle of its cell of width 2**-32."""
    return (words(seed, stream, block, n_rows, n_columns) + 0.5) * 2.0**-32


def normals(seed: int, stream: Purpose, block: int, n_rows: int, n_columns: int) -> Array:
    """Standard normal numbers; columns ``2j`` and ``2j + 1`` come from one Box-Muller pair of words."""
    u = uniforms(seed, stream, block, n_rows, n_columns + n_columns % 2)
    pair = _box_muller(u[:, 0::2], u[:, 1::2])
    return np.stack(pair, axis=-1).reshape(n_rows, -1)[:, :n_columns]


def cauchy(seed: int, stream: Purpose, block: int, n_rows: int, n_columns: int) -> Array:
    """Standard Cauchy numbers."""
    return cauchy_of(uniforms(seed, stream, block, n_rows, n_columns))


def students(seed: int, stream: Purpose, block: int, n_rows: int, n_columns: int, degrees: int) -> Array:
    """Rows of the multivariate Student-t distribution, each with a scale of its own from `Purpose.SCALE`."""
    scale = normals(seed, Purpose.SCALE, block, n_rows, degrees)
    return students_of(normals(seed, stream, block, n_rows, n_columns), scale)


def cauchy_of(uniform: Array) -> Array:
    """Cauchy numbers from uniform numbers, by the inverse of the distribution function."""
    uniform -= 0.5
    uniform *= np.pi
    return np.tan(uniform, out=uniform)


def students_of(normal: Array, scale: Array) -> Array:
    """Student-t rows from normal rows, each divided by the root mean square of its row of `scale`."""
    normal /= np.sqrt(np.mean(scale**2, axis=1, keepdims=True))
    return normal


def signs(seed: int, stream: Purpose, block: int, n_rows: int, n_columns: int) -> Array:
    """Numbers -1 or +1 with equal probability, by the top bit of each word."""
    return 1.0 - 2.0 * (words(seed, stream, block, n_rows, n_columns) >> np.uint64(31))


def indices(seed: int, stream: Purpose, blocks: range, size: int, n: int) -> Array:
    """For each block, `size` numbers drawn with replacement from ``0..n-1``, ``n`` below 2**32.

    Each is ``floor(n * u)`` with a 64-bit ``u`` from columns 0 and 1 of its row, in integers, which is exact on every
    device.
    """
    if not 0 < n < 2**32:
        raise ValueError(f"indices can be drawn from 1 to 2**32 - 1 rows, not from {n}")
    block, row = np.array(blocks, dtype=np.uint64)[:, None], np.arange(size, dtype=np.uint64)
    high, low, _, _ = _philox(seed, stream, block, row, np.uint64(0))
    return ((high * np.uint64(n) + ((low * np.uint64(n)) >> _HALF)) >> _HALF).astype(np.intp)


def distinct(seed: int, stream: Purpose, block: int, size: int, n: int) -> Array:
    """`size` different numbers of ``0..n-1``, drawn at random, in order; all of them if there are no more."""
    if n <= size:
        return np.arange(n)
    if n <= 4 * size:
        return np.sort(np.argsort(words(seed, stream, block, n, 1)[:, 0], kind="stable")[:size])
    n_draws, drawn = 2 * size, np.empty(0, np.intp)
    while len(drawn) < size:
        draws = indices(seed, stream, range(block, block + 1), n_draws, n)[0]
        drawn = draws[np.sort(np.unique(draws, return_index=True)[1])]
        n_draws *= 2
    return np.sort(drawn[:size])

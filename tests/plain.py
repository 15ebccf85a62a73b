"""Runs with the JIT off (NUMBA_DISABLE_JIT=1), which `make coverage` needs to see inside the compiled functions.

Numba leaves those functions as they are then, but has nothing in the place of its intrinsics, which emit instructions
of LLVM. Here they are NumPy's: a vector of lanes is an array.
"""

import numpy as np
from numba import from_dtype

from s3vm.backends.cpu import dense, sparse, tiles
from s3vm.backends.cpu.lanes import COSINE, SINE
from s3vm.solvers import smo

_COUNT = 64  # more than any processor has, as Python spends its time on each vector, not on each lane


def _cut(array, offset):
    return array.reshape(-1)[offset : offset + _COUNT]


def _store(array, offset, value):
    _cut(array, offset)[:] = value


def _add_wide(array, offset, value):
    _cut(array, offset)[:] += value


PLAIN = {
    "load": lambda array, offset: _cut(array, offset).copy(),
    "store": _store,
    "add_wide": _add_wide,
    "spread": lambda array, offset: array.reshape(-1)[offset],
    "constant": lambda like, value: np.full(_COUNT, value, like.dtype),
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "fma": lambda a, b, c: a * b + c,
    "magnitude": np.abs,
    "with_sign": np.copysign,
    "nearest": np.rint,
    "sine_over_turn": lambda u: 2 * np.pi * np.sinc(2 * np.sqrt(u)) / SINE[from_dtype(u.dtype)][-1],
    "cosine_of_turn": lambda u: np.cos(2 * np.pi * np.sqrt(u)) / COSINE[from_dtype(u.dtype)][-1],
    "lane_count": lambda like: _COUNT,
    "total": np.sum,
}


def install() -> None:
    """Puts NumPy's in the place of the intrinsics, wherever they are used."""
    for module in (tiles, dense, sparse):
        for name in PLAIN.keys() & vars(module).keys():
            setattr(module, name, PLAIN[name])
    smo._larger, smo._smaller = max, min

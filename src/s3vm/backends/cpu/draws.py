"""The random numbers of `s3vm.philox`, in loops that the compiler vectorises.

The integers are the same; reals are computed by polynomials, and agree to the rounding of float64. This module has the
functions of `s3vm.philox` that kernels draw frequencies with.
"""

from math import factorial, pi

import numpy as np
from numba import njit

from s3vm import philox
from s3vm._utils.compiled import compiled
from s3vm._utils.typing import Array
from s3vm.philox import Purpose, signs

__all__ = ["cauchy", "normals", "signs", "students", "uniforms"]

_CHUNK = 256  # counters at a time: every stage's arrays stay in the L1 cache

_entry = compiled(error_model="numpy", fastmath={"contract"})
_shared = njit(error_model="numpy")
_inlined = njit(forceinline=True, error_model="numpy", fastmath={"contract"})

_philox4x32 = _inlined(philox.philox4x32)

# log(m) = s * LOG(s**2), s = (m - 1) / (m + 1), for m within sqrt(2) of 1; sin(2 pi t) = t * SINE(t**2) and
# cos(2 pi t) = COSINE(t**2) for |t| <= 1/4. Series cut below 1e-17.
_LOG = tuple(2.0 / (2 * k + 1) for k in range(11))
_SINE = tuple((-1) ** k * (2 * pi) ** (2 * k + 1) / factorial(2 * k + 1) for k in range(12))
_COSINE = tuple((-1) ** k * (2 * pi) ** (2 * k) / factorial(2 * k) for k in range(12))


def uniforms(seed: int, stream: Purpose, block: int, n_rows: int, n_columns: int) -> Array:
    return _filled(seed, stream, block, n_rows, n_columns, False)


def normals(seed: int, stream: Purpose, block: int, n_rows: int, n_columns: int) -> Array:
    return _filled(seed, stream, block, n_rows, n_columns, True)


def cauchy(seed: int, stream: Purpose, block: int, n_rows: int, n_columns: int) -> Array:
    return philox.cauchy_of(uniforms(seed, stream, block, n_rows, n_columns))


def students(seed: int, stream: Purpose, block: int, n_rows: int, n_columns: int, degrees: int) -> Array:
    scale = normals(seed, Purpose.SCALE, block, n_rows, degrees)
    return philox.students_of(normals(seed, stream, block, n_rows, n_columns), scale)


def _filled(seed: int, stream: Purpose, block: int, n_rows: int, n_columns: int, are_normal: bool) -> Array:
    result = np.empty((n_rows, n_columns))
    _fill(result, block, int(stream), np.uint64(seed), are_normal)
    return result


@_inlined
def _horner(coefficients, u):
    p = coefficients[-1]
    for k in range(len(coefficients) - 2, -1, -1):
        p = p * u + coefficients[k]
    return p


@_shared
def _words(words, counters, first, count, width, block, stream, seed):
    """The words of `count` counters from number `first` on, counted along a row, then rows."""
    # Divided once and then counted up: a division for each counter costs more than its ten rounds.
    group, row = first % width, first // width
    for t in range(count):
        counters[0, t], counters[1, t] = group, row
        group += 1
        if group == width:
            group = 0
            row += 1
    low, high = seed & np.uint64(0xFFFFFFFF), seed >> np.uint64(32)
    for t in range(count):
        words[0, t], words[1, t], words[2, t], words[3, t] = _philox4x32(
            counters[0, t], counters[1, t], np.uint64(block), np.uint64(stream), low, high
        )


@_shared
def _deliver(out, values, first, count, width):
    """Four columns of values for each counter to their places in out; the last counter of a row may be cut short."""
    d = out.shape[1]
    row, column = first // width, first % width * 4
    for t in range(count):
        for k in range(min(4, d - column)):
            out[row, column + k] = values[k, t]
        column += 4
        if column >= d:
            column = 0
            row += 1


@_inlined
def _box_muller(words, values, mantissa, exponent, count):
    """Normal numbers from words, two by two; `mantissa` and `exponent` are scratch."""
    bits = mantissa.view(np.int64)
    half = np.int64(0x3FE6A09E667F3BCD)  # the bits of sqrt(1/2): below them a number belongs to the next power of two
    for k in range(0, 4, 2):
        for t in range(count):
            mantissa[t] = (words[k, t] + 0.5) * 2.0**-32
        for t in range(count):
            power = (bits[t] - half) >> 52
            exponent[t] = power
            bits[t] -= power << 52
        for t in range(count):
            s = (mantissa[t] - 1.0) / (mantissa[t] + 1.0)
            radius = np.sqrt(-2.0 * (exponent[t] * 0.6931471805599453 + s * _horner(_LOG, s * s)))
            turn = (words[k + 1, t] + 0.5) * 2.0**-32 - 0.5  # half a turn back: both signs flip
            fold = 0.25 - abs(turn)
            u = fold * fold
            values[k, t] = -radius * fold * _horner(_SINE, u)
            sine = radius * _horner(_COSINE, u)
            values[k + 1, t] = sine if turn < 0.0 else -sine


@_entry
def _fill(out, block, stream, seed, are_normal):
    width = (out.shape[1] + 3) // 4
    counters = np.empty((2, _CHUNK), np.uint64)
    words = np.empty((4, _CHUNK), np.uint64)
    values = np.empty((4, _CHUNK))
    mantissa, exponent = np.empty(_CHUNK), np.empty(_CHUNK)
    total = out.shape[0] * width
    for first in range(0, total, _CHUNK):
        count = min(_CHUNK, total - first)
        _words(words, counters, first, count, width, block, stream, seed)
        if are_normal:
            _box_muller(words, values, mantissa, exponent, count)
        else:
            for k in range(4):
                for t in range(count):
                    values[k, t] = (words[k, t] + 0.5) * 2.0**-32
        _deliver(out, values, first, count, width)

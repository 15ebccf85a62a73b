"""The register tile that every CPU kernel is made of.

Frequencies `W` (rows, d) and offsets `b` (rows,) are in turns. A *row* is one row of W; a *unit* is what one evaluation
yields:

========  ===============  ======================  =========================================================
law       rows of a unit   features of a unit      feature
========  ===============  ======================  =========================================================
PHASE     1                1                       cos(2 pi (w.x + b))
PAIRS     1                2                       cos(2 pi (w.x + b)) and sin(2 pi (w.x + b)); b is zero
PRODUCT   degree           1                       product over the rows of (w.x + b)
========  ===============  ======================  =========================================================

Features lie in blocks; under PAIRS a block holds its cosines first, then its sines. The kernels leave out a factor of
each kind (`scales`), which goes into the coefficients once instead of into every feature.

A tile is six rows by one vector of lanes. It serves two orientations: *points in lanes* for the decision, where the sum
runs over features, and *features in lanes* for the adjoint, the feature matrix and sparse rows, where it runs over
points. No lane ever meets another, short tiles are padded, and float32 sums are flushed to float64 after a fixed number
of terms: results do not depend on how the work is cut between threads or calls.

Nothing here checks bounds: `s3vm.backends.cpu` hands over arrays of one dtype, C-contiguous, of shapes that fit.
"""

import numpy as np
from numba import from_dtype, njit

from s3vm._utils.compiled import compiled
from s3vm.backends.cpu.lanes import (
    COSINE,
    SINE,
    add_wide,
    constant,
    cosine_of_turn,
    fma,
    lane_count,
    load,
    magnitude,
    multiply,
    nearest,
    sine_over_turn,
    spread,
    store,
    subtract,
    with_sign,
)

PHASE, PAIRS, PRODUCT = 0, 1, 2
SIX = 6  # rows of a register tile: six vectors of two registers are twelve sums, enough to hide an FMA's latency
TILE = 48  # rows whose sum stays in float32, a multiple of SIX; their features fill a third of a 32 KB L1 cache

entry = compiled(error_model="numpy")
inlined = njit(forceinline=True, error_model="numpy")  # a call would pass the vectors through memory
shared = njit(error_model="numpy")  # no vectors inside: compiled once, shared by the kernels


@inlined
def _project(rows, o, panel, at, d, z):
    """z + sum over c of rows[o_k + c] * panel[at + c * lanes], for six k: the inner loop of everything.

    Straight code from here to the cosine, on purpose: a branch where vectors meet again sends them through memory.
    """
    lanes = lane_count(panel)
    z0, z1, z2, z3, z4, z5 = z
    for c in range(d):
        x = load(panel, at + c * lanes)
        z0 = fma(spread(rows, o[0] + c), x, z0)
        z1 = fma(spread(rows, o[1] + c), x, z1)
        z2 = fma(spread(rows, o[2] + c), x, z2)
        z3 = fma(spread(rows, o[3] + c), x, z3)
        z4 = fma(spread(rows, o[4] + c), x, z4)
        z5 = fma(spread(rows, o[5] + c), x, z5)
    return z0, z1, z2, z3, z4, z5


@inlined
def _six(first, step, last):
    """Six row numbers; those past the end repeat the last row, and their results are dropped or meet zeros."""
    return (
        min(first, last),
        min(first + step, last),
        min(first + 2 * step, last),
        min(first + 3 * step, last),
        min(first + 4 * step, last),
        min(first + 5 * step, last),
    )


@inlined
def _times(r, d):
    return r[0] * d, r[1] * d, r[2] * d, r[3] * d, r[4] * d, r[5] * d


@inlined
def _multiply_six(y, z):
    y0, y1, y2, y3, y4, y5 = y
    z0, z1, z2, z3, z4, z5 = z
    return multiply(y0, z0), multiply(y1, z1), multiply(y2, z2), multiply(y3, z3), multiply(y4, z4), multiply(y5, z5)


@inlined
def points_tile(W, b, unit, units, degree, panel, at, d):
    """Phases (or products) of six units at the points in the lanes."""
    last = units * degree - 1
    r = _six(unit * degree, degree, last)
    z = _project(W, _times(r, d), panel, at, d, _offsets(b, r))
    for q in range(1, degree):
        r = _six(unit * degree + q, degree, last)
        z = _multiply_six(z, _project(W, _times(r, d), panel, at, d, _offsets(b, r)))
    return z


@inlined
def _offsets(b, r):
    return spread(b, r[0]), spread(b, r[1]), spread(b, r[2]), spread(b, r[3]), spread(b, r[4]), spread(b, r[5])


@inlined
def features_tile(X, point, last, degree, panel, d):
    """Phases (or products) of the units in the lanes at six points; the panel holds d coordinates, then the offset."""
    lanes = lane_count(panel)
    o = _times(_six(point, 1, last), d)
    s = load(panel, d * lanes)
    z = _project(X, o, panel, 0, d, (s, s, s, s, s, s))
    for q in range(1, degree):
        at = q * (d + 1) * lanes
        s = load(panel, at + d * lanes)
        z = _multiply_six(z, _project(X, o, panel, at, d, (s, s, s, s, s, s)))
    return z


def scales(law, dtype):
    """By what the features of each kind have to be multiplied after all sums: the polynomials are monic."""
    kind = from_dtype(dtype)
    return {PHASE: [SINE[kind][-1]], PAIRS: [SINE[kind][-1], abs(COSINE[kind][-1])], PRODUCT: [1.0]}[law]


@inlined
def cosine(z):
    """cos(2 pi z), up to its scale. Rounding is exact for any finite z, so a huge phase stays in [-1, 1]."""
    t = subtract(constant(z, 0.25), magnitude(subtract(z, nearest(z))))
    return multiply(t, sine_over_turn(multiply(t, t)))


@inlined
def cosine_sine(z):
    """cos(2 pi z) and sin(2 pi z), up to their scales.

    Folding to t = 1/4 - |r| makes one odd and one even polynomial of the same t**2.
    """
    r = subtract(z, nearest(z))
    t = subtract(constant(z, 0.25), magnitude(r))
    u = multiply(t, t)
    return multiply(t, sine_over_turn(u)), with_sign(cosine_of_turn(u), r)


@inlined
def store_feature(phi, at, sines, law, z):
    if law == PAIRS:
        c, s = cosine_sine(z)
        store(phi, at, c)
        store(phi, at + sines, s)
    elif law == PHASE:
        store(phi, at, cosine(z))
    else:
        store(phi, at, z)


@inlined
def store_features(phi, at, step, sines, law, z):
    """Activate six vectors and store them `step` apart from `at`; the sines of PAIRS lie `sines` further on."""
    store_feature(phi, at, sines, law, z[0])
    store_feature(phi, at + step, sines, law, z[1])
    store_feature(phi, at + 2 * step, sines, law, z[2])
    store_feature(phi, at + 3 * step, sines, law, z[3])
    store_feature(phi, at + 4 * step, sines, law, z[4])
    store_feature(phi, at + 5 * step, sines, law, z[5])


@inlined
def reduce(phi, terms, step, at, weights, weights_at, K, sums, sums_at):
    """sums[k] += sum over j of weights[j, k] * phi[j]: four columns share a load of phi, then one at a time."""
    lanes = lane_count(phi)
    fours = K // 4 * 4
    for k in range(0, fours, 4):
        f0 = f1 = f2 = f3 = constant(phi, 0.0)
        for j in range(terms):
            v = load(phi, at + j * step)
            w = weights_at + j * K + k
            f0 = fma(spread(weights, w), v, f0)
            f1 = fma(spread(weights, w + 1), v, f1)
            f2 = fma(spread(weights, w + 2), v, f2)
            f3 = fma(spread(weights, w + 3), v, f3)
        to = sums_at + k * lanes
        add_wide(sums, to, f0)
        add_wide(sums, to + lanes, f1)
        add_wide(sums, to + 2 * lanes, f2)
        add_wide(sums, to + 3 * lanes, f3)
    for k in range(fours, K):
        f = constant(phi, 0.0)
        for j in range(terms):
            f = fma(spread(weights, weights_at + j * K + k), load(phi, at + j * step), f)
        add_wide(sums, sums_at + k * lanes, f)


@shared
def scratch(like, size):
    """Zeros that start on a cache line: a vector load across two lines costs twice."""
    raw = np.zeros(size + 64 // like.itemsize, like.dtype)
    skip = (-raw.ctypes.data % 64) // like.itemsize
    return raw[skip : skip + size]


@shared
def pack_units(W, b, unit, count, degree, panel, width):
    """Frequencies of `count` units as (factor, coordinate, unit), offsets after the coordinates, zeros past the end."""
    d = W.shape[1]
    for lane in range(width):
        for q in range(degree):
            row = (unit + lane) * degree + q
            at = q * (d + 1) * width + lane
            for c in range(d):
                panel[at + c * width] = W[row, c] if lane < count else 0.0
            panel[at + d * width] = b[row] if lane < count else 0.0


@shared
def units_sums(out, unit, count, kinds, block, sums, width, back):
    """Rows of out that belong to `count` units into lanes of sums (kind, column, unit), or back."""
    K = out.shape[1]
    units = block // kinds
    for lane in range(count):
        row = (unit + lane) // units * block + (unit + lane) % units
        for kind in range(kinds):
            for k in range(K):
                at = (kind * K + k) * width + lane
                if back:
                    out[row + kind * units, k] = sums[at]
                else:
                    sums[at] = out[row + kind * units, k]

"""The verbs for dense rows: decision (points in lanes), adjoint and features (features in lanes)."""

from s3vm.backends.cpu.lanes import add_wide, constant, fma, lane_count, spread
from s3vm.backends.cpu.tiles import (
    PAIRS,
    PHASE,
    SIX,
    TILE,
    cosine,
    cosine_sine,
    entry,
    features_tile,
    inlined,
    pack_units,
    points_tile,
    reduce,
    scratch,
    shared,
    store_features,
    units_sums,
)

PANEL = 8  # vectors of points that share a tile of frequencies while it is in the L2 cache
PANEL_ENTRIES = 1 << 24  # of such points: of very many columns, fewer vectors share a tile
SWEEP = 3072  # points that share packed frequencies in the adjoint, a multiple of TILE


@entry
def decision(X, W, b, A, out, law, degree, block, start, stop):
    """out[start:stop] += Phi(X[start:stop]) A, for X (n, d) and A (features, K); out is float64 (n, K).

    Sums restart at each block of features, so cutting the blocks between calls changes no bit either.
    """
    d = X.shape[1]
    K = A.shape[1]
    lanes = lane_count(X)
    kinds = 2 if law == PAIRS else 1
    units = block // kinds  # of one block
    vectors = max(1, min(PANEL, PANEL_ENTRIES // (d * lanes)))
    panel = scratch(X, vectors * d * lanes)
    weights = scratch(X, kinds * TILE * K)
    phi = scratch(X, kinds * TILE * lanes)
    sums = scratch(out, vectors * K * lanes)
    for first in range(start, stop, vectors * lanes):
        points = min(vectors * lanes, stop - first)
        groups = (points + lanes - 1) // lanes
        _pack_points(X, first, points, panel)
        _points_sums(out, first, points, sums, lanes, False)
        for number in range(A.shape[0] // block):
            rows = slice(number * units * degree, (number + 1) * units * degree)
            Wn, bn = W[rows], b[rows]
            for unit in range(0, units, TILE):
                count = min(TILE, units - unit)
                _pack_weights(A, number * block + unit, units, kinds, count, weights)
                for g in range(groups):
                    at = g * d * lanes
                    if K == 1:
                        f = _sum_of_tile(Wn, bn, unit, count, units, law, degree, panel, at, d, weights)
                        add_wide(sums, g * lanes, f)
                    else:
                        for j in range(0, count, SIX):
                            z = points_tile(Wn, bn, unit + j, units, degree, panel, at, d)
                            store_features(phi, j * lanes, lanes, TILE * lanes, law, z)
                        for kind in range(kinds):
                            tile = kind * TILE
                            reduce(phi, count, lanes, tile * lanes, weights, tile * K, K, sums, g * K * lanes)
        _points_sums(out, first, points, sums, lanes, True)


@inlined
def _sum_of_tile(W, b, unit, count, units, law, degree, panel, at, d, weights):
    """The sum over a tile's features at one vector of points, for one column: features stay in registers."""
    f = constant(panel, 0.0)
    for j in range(0, count, SIX):
        z = points_tile(W, b, unit + j, units, degree, panel, at, d)
        # Six written out, not a loop: an index that varies would send the tile through memory.
        if law == PAIRS:
            f = _plus_pair(f, weights, j, z[0])
            f = _plus_pair(f, weights, j + 1, z[1])
            f = _plus_pair(f, weights, j + 2, z[2])
            f = _plus_pair(f, weights, j + 3, z[3])
            f = _plus_pair(f, weights, j + 4, z[4])
            f = _plus_pair(f, weights, j + 5, z[5])
        else:
            if law == PHASE:
                z = _six_cosines(z)
            f = _plus_six(f, weights, j, z)
    return f


@inlined
def _plus_six(f, weights, at, z):
    f = fma(spread(weights, at), z[0], f)
    f = fma(spread(weights, at + 1), z[1], f)
    f = fma(spread(weights, at + 2), z[2], f)
    f = fma(spread(weights, at + 3), z[3], f)
    f = fma(spread(weights, at + 4), z[4], f)
    return fma(spread(weights, at + 5), z[5], f)


@inlined
def _plus_pair(f, weights, j, z):
    c, s = cosine_sine(z)
    return fma(spread(weights, TILE + j), s, fma(spread(weights, j), c, f))


@inlined
def _six_cosines(z):
    return cosine(z[0]), cosine(z[1]), cosine(z[2]), cosine(z[3]), cosine(z[4]), cosine(z[5])


@shared
def _pack_points(X, first, points, panel):
    """Points first, first + 1, ... as vectors of lanes, one for each coordinate; zeros after the last point."""
    d = X.shape[1]
    lanes = lane_count(X)
    for i in range((points + lanes - 1) // lanes * lanes):
        at = i // lanes * d * lanes + i % lanes
        for c in range(d):
            panel[at + c * lanes] = X[first + i, c] if i < points else 0.0


@shared
def _points_sums(out, first, points, sums, lanes, back):
    """Rows of out into lanes of sums, or back."""
    K = out.shape[1]
    for i in range(points):
        at = i // lanes * K * lanes + i % lanes
        for k in range(K):
            if back:
                out[first + i, k] = sums[at + k * lanes]
            else:
                sums[at + k * lanes] = out[first + i, k]


@shared
def _pack_weights(A, first, sines, kinds, count, weights):
    """Coefficients of a tile as (kind, unit, column), zeros where the tile is short."""
    K = A.shape[1]
    weights[:] = 0.0
    for kind in range(kinds):
        for j in range(count):
            for k in range(K):
                weights[(kind * TILE + j) * K + k] = A[first + kind * sines + j, k]


@entry
def adjoint(X, W, b, G, out, law, degree, block, start, stop):
    """out += Phi(X)^T G for the units start:stop, for X (n, d) and G (n, K); out is float64 (features, K).

    Threads share the units, best in multiples of the lanes: each feature's sum over points has one order.
    """
    n, d = X.shape
    K = G.shape[1]
    lanes = lane_count(X)
    kinds = 2 if law == PAIRS else 1
    panel = scratch(X, degree * (d + 1) * lanes)
    weights = scratch(X, (min(n, SWEEP) + SIX) * K)
    phi = scratch(X, TILE * kinds * lanes)
    sums = scratch(out, kinds * K * lanes)
    for first in range(0, n, SWEEP):
        points = min(SWEEP, n - first)
        for i in range(points + SIX):  # the zeros at the end meet the repeated rows of a short tile
            for k in range(K):
                weights[i * K + k] = G[first + i, k] if i < points else 0.0
        for unit in range(start, stop, lanes):
            count = min(lanes, stop - unit)
            pack_units(W, b, unit, count, degree, panel, lanes)
            units_sums(out, unit, count, kinds, block, sums, lanes, False)
            for tile in range(0, points, TILE):
                rows = min(TILE, points - tile)
                if K == 1:
                    _add_tile(X, first + tile, rows, n, law, degree, panel, d, weights, tile, sums)
                else:
                    for j in range(0, rows, SIX):
                        z = features_tile(X, first + tile + j, n - 1, degree, panel, d)
                        store_features(phi, j * kinds * lanes, kinds * lanes, lanes, law, z)
                    for kind in range(kinds):
                        at = kind * lanes
                        reduce(phi, rows, kinds * lanes, at, weights, tile * K, K, sums, at * K)
            units_sums(out, unit, count, kinds, block, sums, lanes, True)


@inlined
def _add_tile(X, first, rows, n, law, degree, panel, d, weights, at, sums):
    """The sum over a tile's points of one column, features in registers."""
    lanes = lane_count(X)
    c = s = constant(X, 0.0)
    for j in range(0, rows, SIX):
        z = features_tile(X, first + j, n - 1, degree, panel, d)
        w = at + j
        if law == PAIRS:
            c, s = _plus_weighted_pair(c, s, weights, w, z[0])
            c, s = _plus_weighted_pair(c, s, weights, w + 1, z[1])
            c, s = _plus_weighted_pair(c, s, weights, w + 2, z[2])
            c, s = _plus_weighted_pair(c, s, weights, w + 3, z[3])
            c, s = _plus_weighted_pair(c, s, weights, w + 4, z[4])
            c, s = _plus_weighted_pair(c, s, weights, w + 5, z[5])
        else:
            if law == PHASE:
                z = _six_cosines(z)
            c = _plus_six(c, weights, w, z)
    add_wide(sums, 0, c)
    if law == PAIRS:
        add_wide(sums, lanes, s)


@inlined
def _plus_weighted_pair(c, s, weights, at, z):
    cosine, sine = cosine_sine(z)
    weight = spread(weights, at)
    return fma(weight, cosine, c), fma(weight, sine, s)


@entry
def features(X, W, b, out, law, degree):
    """out = Phi(X) for one block: out (n, block) of the type of X."""
    n, d = X.shape
    lanes = lane_count(X)
    kinds = 2 if law == PAIRS else 1
    units = W.shape[0] // degree
    block = kinds * units
    panel = scratch(X, degree * (d + 1) * lanes)
    phi = scratch(X, SIX * kinds * lanes)
    for first in range(0, n, SWEEP):
        for unit in range(0, units, lanes):
            count = min(lanes, units - unit)
            pack_units(W, b, unit, count, degree, panel, lanes)
            for point in range(first, min(first + SWEEP, n), SIX):
                z = features_tile(X, point, n - 1, degree, panel, d)
                if count == lanes and point + SIX <= n:
                    store_features(out, point * block + unit, block, units, law, z)
                else:  # whole vectors would write beyond the row or the last point
                    store_features(phi, 0, kinds * lanes, lanes, law, z)
                    for j in range(min(SIX, n - point)):
                        for kind in range(kinds):
                            for lane in range(count):
                                out[point + j, kind * units + unit + lane] = phi[(j * kinds + kind) * lanes + lane]

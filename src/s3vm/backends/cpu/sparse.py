"""The verbs for CSR rows: features in lanes, so that each stored number meets whole vectors of frequencies.

A CSR matrix comes as its three arrays (data, indices, indptr); no column is densified, no product is stored.
"""

from s3vm.backends.cpu.lanes import add, constant, fma, lane_count, load, multiply, spread, total
from s3vm.backends.cpu.tiles import PAIRS, TILE, entry, inlined, pack_units, reduce, scratch, store_feature, units_sums

WIDE = 2  # vectors of features that share the indices of a row


@inlined
def _phases(data, indices, begin, end, panel, at, d):
    """Phases of two vectors of units at one row, even and odd entries apart: four sums hide the latency of an FMA."""
    lanes = lane_count(data)
    width = WIDE * lanes
    y0 = y1 = z0 = z1 = constant(data, 0.0)
    e = begin
    while e + 1 < end:
        x, c = spread(data, e), at + indices[e] * width
        y0 = fma(x, load(panel, c), y0)
        y1 = fma(x, load(panel, c + lanes), y1)
        x, c = spread(data, e + 1), at + indices[e + 1] * width
        z0 = fma(x, load(panel, c), z0)
        z1 = fma(x, load(panel, c + lanes), z1)
        e += 2
    if e < end:
        x, c = spread(data, e), at + indices[e] * width
        y0 = fma(x, load(panel, c), y0)
        y1 = fma(x, load(panel, c + lanes), y1)
    offset = at + d * width
    return add(add(y0, z0), load(panel, offset)), add(add(y1, z1), load(panel, offset + lanes))


@inlined
def _fill(phi, data, indices, indptr, first, rows, panel, d, law, degree):
    """Features of `rows` rows as (row, vector, kind, lane)."""
    lanes = lane_count(data)
    kinds = 2 if law == PAIRS else 1
    for j in range(rows):
        begin, end = indptr[first + j], indptr[first + j + 1]
        z0, z1 = _phases(data, indices, begin, end, panel, 0, d)
        for q in range(1, degree):
            y0, y1 = _phases(data, indices, begin, end, panel, q * (d + 1) * WIDE * lanes, d)
            z0, z1 = multiply(z0, y0), multiply(z1, y1)
        at = j * WIDE * kinds * lanes
        store_feature(phi, at, lanes, law, z0)
        store_feature(phi, at + kinds * lanes, lanes, law, z1)


@entry
def decision(data, indices, indptr, W, b, A, out, law, degree, block, start, stop):
    """out[start:stop] += Phi(X[start:stop]) A for CSR rows X, A (features, K), out float64 (n, K).

    Vectors of units run across blocks: to have the same bits every time, make the same cut every time.
    """
    d = W.shape[1]
    K = A.shape[1]
    lanes = lane_count(data)
    width = WIDE * lanes
    kinds = 2 if law == PAIRS else 1
    units = block // kinds
    n_units = W.shape[0] // degree
    panel = scratch(data, degree * (d + 1) * width)
    phi = scratch(data, TILE * kinds * width)
    weights = scratch(data, K * kinds * width)
    for unit in range(0, n_units, width):
        count = min(width, n_units - unit)
        pack_units(W, b, unit, count, degree, panel, width)
        weights[:] = 0.0
        for lane in range(count):
            row = (unit + lane) // units * block + (unit + lane) % units
            for kind in range(kinds):
                at = lane // lanes * kinds * lanes + kind * lanes + lane % lanes  # as in phi
                for k in range(K):
                    weights[k * kinds * width + at] = A[row + kind * units, k]
        for tile in range(start, stop, TILE):
            rows = min(TILE, stop - tile)
            _fill(phi, data, indices, indptr, tile, rows, panel, d, law, degree)
            for j in range(rows):
                for k in range(K):
                    f = constant(data, 0.0)
                    for v in range(0, kinds * width, lanes):
                        f = fma(load(phi, j * kinds * width + v), load(weights, k * kinds * width + v), f)
                    out[tile + j, k] += total(f)


@entry
def adjoint(data, indices, indptr, W, b, G, out, law, degree, block, start, stop):
    """out += Phi(X)^T G for the units start:stop and CSR rows X, G (n, K), out float64 (features, K)."""
    d = W.shape[1]
    n, K = G.shape
    lanes = lane_count(data)
    width = WIDE * lanes
    kinds = 2 if law == PAIRS else 1
    panel = scratch(data, degree * (d + 1) * width)
    phi = scratch(data, TILE * kinds * width)
    weights = G.reshape(-1)
    sums = scratch(out, kinds * K * width)
    half = kinds * K * lanes
    for unit in range(start, stop, width):
        pack_units(W, b, unit, min(width, stop - unit), degree, panel, width)
        for v in range(WIDE):
            count = min(lanes, stop - unit - v * lanes)
            units_sums(out, unit + v * lanes, count, kinds, block, sums[v * half :], lanes, False)
        for tile in range(0, n, TILE):
            rows = min(TILE, n - tile)
            _fill(phi, data, indices, indptr, tile, rows, panel, d, law, degree)
            for v in range(WIDE * kinds):
                reduce(phi, rows, kinds * width, v * lanes, weights, tile * K, K, sums, v * K * lanes)
        for v in range(WIDE):
            count = min(lanes, stop - unit - v * lanes)
            units_sums(out, unit + v * lanes, count, kinds, block, sums[v * half :], lanes, True)


@entry
def features(data, indices, indptr, W, b, out, law, degree):
    """out = Phi(X) for one block and CSR rows X: out (n, block) of the type of the data."""
    d = W.shape[1]
    n = out.shape[0]
    lanes = lane_count(data)
    width = WIDE * lanes
    kinds = 2 if law == PAIRS else 1
    units = W.shape[0] // degree
    panel = scratch(data, degree * (d + 1) * width)
    phi = scratch(data, TILE * kinds * width)
    for unit in range(0, units, width):
        count = min(width, units - unit)
        pack_units(W, b, unit, count, degree, panel, width)
        for tile in range(0, n, TILE):
            rows = min(TILE, n - tile)
            _fill(phi, data, indices, indptr, tile, rows, panel, d, law, degree)
            for j in range(rows):
                for lane in range(count):
                    for kind in range(kinds):
                        at = j * kinds * width + lane // lanes * kinds * lanes + kind * lanes + lane % lanes
                        out[tile + j, kind * units + unit + lane] = phi[at]

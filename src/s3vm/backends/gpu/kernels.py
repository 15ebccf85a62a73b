"""The Triton kernels for products with features, which never reach memory.

Frequencies are in turns, so a phase is reduced to half a turn by one rounding, where the hardware's sine and cosine are
good to 1e-7. A row of float32 numbers, scaled by a power of two, is the sum of two rows of float16, `split` once and
for all, to 23 bits where float32 has 24; frequencies are short enough to be one row (`Kernel.frequencies`). Two
products of such rows run at many times the rate of one of float32. Sums are cut between programs by a rule that depends
on shapes only, and their parts are added in order: no atomics, so results are the same to the last bit from run to run.
"""

import os
from typing import NamedTuple

import torch
import triton
import triton.language as tl

SLACK = 256  # rows of zeros below every operand, so that whole tiles can be read
_LARGEST_WEIGHT = 8192.0  # far from both ends of what float16 can hold
_MOST_COLUMNS = 64  # at once: with more, a tile of sums does not fit into the shared memory of smaller devices
_KNOBS = getattr(triton, "knobs", None)  # of newer versions
_INTERPRETED = bool(_KNOBS.runtime.interpret if _KNOBS else os.environ.get("TRITON_INTERPRET", "0") == "1")
_FAST = not _INTERPRETED and torch.version.hip is None  # NVIDIA's own instructions for sines and cosines


class Halves(NamedTuple):
    """A matrix as ``(high + low) * scale[:, None]``, padded with zeros to whole tiles; `n` of its rows count.

    `low` is None if `high` is enough.
    """

    high: torch.Tensor
    scale: torch.Tensor
    low: torch.Tensor | None
    n: int

    def __getitem__(self, rows: slice) -> "Halves":  # type: ignore[override]
        start, stop, _ = rows.indices(self.n)
        low = None if self.low is None else self.low[start:]
        return Halves(self.high[start:], self.scale[start:], low, stop - start)

    def whole(self, d: int) -> torch.Tensor:
        """The first d columns of the matrix that was split."""
        both = self.high.float() if self.low is None else self.high.float() + self.low.float()
        return both[: self.n, :d] * self.scale[: self.n, None]


@triton.jit(do_not_specialize=["n", "d", "n_rows", "width"])
def _split(A, high, low, scale, n, d, n_rows, width, N: tl.constexpr, D: tl.constexpr, LOW: tl.constexpr):
    """Rows of A over a power of two as the nearest float16, and the rest, padded with zeros."""
    i = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    largest = tl.zeros([N], tl.float32)
    for start in range(0, width, D):
        k = start + tl.arange(0, D)
        x = tl.load(A + i[:, None] * d + k[None, :], (i[:, None] < n) & (k[None, :] < d), 0.0)
        largest = tl.maximum(largest, tl.max(tl.abs(x), axis=1))
    # The largest number of a row becomes one between 2^13 and 2^14, far from both ends of what float16 can hold.
    shift = 140 - tl.maximum(largest.to(tl.int32, bitcast=True) >> 23, 14)
    up = ((127 + shift) << 23).to(tl.float32, bitcast=True)
    tl.store(scale + i, ((127 - shift) << 23).to(tl.float32, bitcast=True), i < n_rows)
    for start in range(0, width, D):
        k = start + tl.arange(0, D)
        x = tl.load(A + i[:, None] * d + k[None, :], (i[:, None] < n) & (k[None, :] < d), 0.0) * up[:, None]
        rounded = x.to(tl.float16)
        to = i[:, None] * width + k[None, :]
        inside = (i[:, None] < n_rows) & (k[None, :] < width)
        tl.store(high + to, rounded, inside)
        if LOW:
            tl.store(low + to, (x - rounded.to(tl.float32)).to(tl.float16), inside)


@triton.jit
def _reduced(p, FAST: tl.constexpr):
    """Turns minus the nearest integer, in radians."""
    if FAST:
        # Rounding by adding and taking away 1.5 * 2^23 is twice as fast as the instruction that rounds.
        asm: tl.constexpr = (
            "{.reg .f32 t; add.rn.f32 t, $1, 0f4B400000; sub.rn.f32 t, t, 0f4B400000; sub.rn.f32 $0, $1, t;}"
        )
        p = tl.inline_asm_elementwise(asm, "=f,f", [p], tl.float32, True, 1)
    else:
        p = p - tl.floor(p + 0.5)
    return p * 6.283185307179586


@triton.jit
def _cos(angle, FAST: tl.constexpr):
    if FAST:
        return tl.inline_asm_elementwise("cos.approx.f32 $0, $1;", "=f,f", [angle], tl.float32, True, 1)
    else:
        return tl.cos(angle)


@triton.jit
def _sin(angle, FAST: tl.constexpr):
    if FAST:
        return tl.inline_asm_elementwise("sin.approx.f32 $0, $1;", "=f,f", [angle], tl.float32, True, 1)
    else:
        return tl.sin(angle)


@triton.jit
def _times(xh, xl, w, p, TRANSPOSED: tl.constexpr):
    """``p + x w'``, or ``p + w x'``; the small product first."""
    if TRANSPOSED:
        return tl.dot(w, tl.trans(xh), tl.dot(w, tl.trans(xl), p))
    else:
        return tl.dot(xh, tl.trans(w), tl.dot(xl, tl.trans(w), p))


@triton.jit
def _tile_at(row, ROWS: tl.constexpr, D: tl.constexpr, PARTS: tl.constexpr):
    """Where the first D columns of rows from `row` on are."""
    width = tl.full([], D * PARTS, tl.int64)  # beyond 2^31 entries
    return width * row + tl.arange(0, ROWS)[:, None] * (D * PARTS) + tl.arange(0, D)[None, :]


@triton.jit
def _wide(Xh, Xl, W, at_x, at_w, p, TRANSPOSED: tl.constexpr, D: tl.constexpr, PARTS: tl.constexpr):
    """`_times` over all columns."""
    for part in range(PARTS):
        xh, xl = tl.load(Xh + at_x + part * D), tl.load(Xl + at_x + part * D)
        p = _times(xh, xl, tl.load(W + at_w + part * D), p, TRANSPOSED)
    return p


@triton.jit
def _weighted(features, high, low, total):
    """``total + features weights``, where both factors are sums of two float16, but for the product of the low ones."""
    rounded, weights = features.to(tl.float16), tl.load(high)
    total = tl.dot(rounded, tl.load(low), total)
    total = tl.dot((features - rounded.to(tl.float32)).to(tl.float16), weights, total)
    return tl.dot(rounded, weights, total)


@triton.jit(do_not_specialize=["n", "n_rows", "each"])
def _decision(
    Xh, Xl, Xs, W, Ws, b, C, C_low, S, S_low, out, n, n_rows, each,
    PAIRS: tl.constexpr, K: tl.constexpr, N: tl.constexpr, M: tl.constexpr, D: tl.constexpr, PARTS: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """Part of f at N points: over `each` of the frequency rows. C and S are the coefficients of cosines and sines.

    Of several columns, they are split, and followed by rows of zeros.
    """
    first = tl.program_id(0) * N
    i = first + tl.arange(0, N)
    start = tl.program_id(1) * each
    end = tl.minimum(start + each, n_rows)
    at_x = _tile_at(first, N, D, PARTS)
    xh, xl = tl.load(Xh + at_x), tl.load(Xl + at_x)
    scale = tl.load(Xs + i)[:, None]
    if K == 1 and PARTS == 1:
        total = tl.zeros([N, M], tl.float32)
    elif K == 1:  # whose tiles are large: there is no room for another
        total = tl.zeros([N], tl.float32)
    else:
        total = tl.zeros([N, K], tl.float32)
    for m in range(start, end, M):
        r = m + tl.arange(0, M)
        at_w = _tile_at(m, M, D, PARTS)
        p = tl.zeros([N, M], tl.float32)
        if PARTS == 1:
            p = _times(xh, xl, tl.load(W + at_w), p, False)
        else:
            p = _wide(Xh, Xl, W, at_x, at_w, p, False, D, PARTS)
        p = p * scale * tl.load(Ws + r)[None, :]
        if not PAIRS:
            p += tl.load(b + r, r < end, 0.0)[None, :]
        p = _reduced(p, FAST)
        if K == 1:
            terms = _cos(p, FAST) * tl.load(C + r, r < end, 0.0)[None, :]
            if PAIRS:
                terms += _sin(p, FAST) * tl.load(S + r, r < end, 0.0)[None, :]
            if PARTS == 1:
                total += terms
            else:
                total += tl.sum(terms, axis=1)
        else:
            to = r[:, None].to(tl.int64) * K + tl.arange(0, K)[None, :]
            total = _weighted(_cos(p, FAST), C + to, C_low + to, total)
            if PAIRS:
                total = _weighted(_sin(p, FAST), S + to, S_low + to, total)
    to = out + (tl.program_id(1).to(tl.int64) * n + i) * K
    if K == 1 and PARTS == 1:
        tl.store(to, tl.sum(total, axis=1), i < n)
    elif K == 1:
        tl.store(to, total, i < n)
    else:
        tl.store(to[:, None] + tl.arange(0, K)[None, :], total, (i < n)[:, None])


@triton.jit(do_not_specialize=["n", "n_rows", "each"])
def _adjoint(
    Xh, Xl, Xs, W, Ws, b, G, G_low, out, n, n_rows, each,
    PAIRS: tl.constexpr, K: tl.constexpr, N: tl.constexpr, M: tl.constexpr, D: tl.constexpr, PARTS: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """Part of the sums over points of feature times G, for M frequency rows: over `each` of the points."""
    first = tl.program_id(0) * M
    r = first + tl.arange(0, M)
    start = tl.program_id(1) * each
    end = tl.minimum(start + each, n)
    at_w = _tile_at(first, M, D, PARTS)
    w = tl.load(W + at_w)
    scale = tl.load(Ws + r)[:, None]
    if K == 1:
        cosines, sines = tl.zeros([M], tl.float32), tl.zeros([M], tl.float32)
    else:
        cosines, sines = tl.zeros([M, K], tl.float32), tl.zeros([M, K], tl.float32)
    if not PAIRS:
        offset = tl.load(b + r, r < n_rows, 0.0)
    for point in range(start, end, N):
        i = point + tl.arange(0, N)
        at_x = _tile_at(point, N, D, PARTS)
        p = tl.zeros([M, N], tl.float32)
        if PARTS == 1:
            p = _times(tl.load(Xh + at_x), tl.load(Xl + at_x), w, p, True)
        else:
            p = _wide(Xh, Xl, W, at_x, at_w, p, True, D, PARTS)
        p = p * scale * tl.load(Xs + i)[None, :]
        if not PAIRS:
            p += offset[:, None]
        p = _reduced(p, FAST)
        if K == 1:
            g = tl.load(G + i, i < end, 0.0)[None, :]
            cosines += tl.sum(_cos(p, FAST) * g, axis=1)
            if PAIRS:
                sines += tl.sum(_sin(p, FAST) * g, axis=1)
        else:
            at = i[:, None].to(tl.int64) * K + tl.arange(0, K)[None, :]
            cosines = _weighted(_cos(p, FAST), G + at, G_low + at, cosines)
            if PAIRS:
                sines = _weighted(_sin(p, FAST), G + at, G_low + at, sines)
    step = tl.full([], K, tl.int64) * n_rows  # from the cosines to the sines
    to = out + tl.program_id(1) * (1 + PAIRS) * step + r.to(tl.int64) * K
    if K == 1:
        tl.store(to, cosines, r < n_rows)
        if PAIRS:
            tl.store(to + step, sines, r < n_rows)
    else:
        inside = (r < n_rows)[:, None]
        tl.store(to[:, None] + tl.arange(0, K)[None, :], cosines, inside)
        if PAIRS:
            tl.store(to[:, None] + step + tl.arange(0, K)[None, :], sines, inside)


def tile_width(d: int) -> int:
    """How many columns a tile has."""
    return 16 if d <= 16 else 32


def short_bytes(d: int) -> int:
    """What a row of d short numbers takes when it is split."""
    return 2 * tile_width(d) * -(-d // tile_width(d)) + 4


def split(A: torch.Tensor, short: bool = False) -> Halves:
    """The halves of a matrix, one where its numbers are `short`, with `SLACK` rows of zeros below."""
    n, d = A.shape
    width = tile_width(d) * -(-d // tile_width(d))
    n_rows = n + SLACK
    high = torch.empty((n_rows, width), dtype=torch.float16, device=A.device)
    low = None if short else torch.empty_like(high)
    scale = torch.empty(n_rows, dtype=torch.float32, device=A.device)
    D = min(1024, triton.next_power_of_2(width))
    N = 2048 // D
    _split[(-(-n_rows // N),)](A.contiguous(), high, low, scale, n, d, n_rows, width, N=N, D=D, LOW=not short)
    return Halves(high, scale, low, n)


def _cut(n: int, tile: int, n_programs: int, most: int) -> tuple[int, int]:
    """Into how many parts a sum of n terms is cut, and how long each is; by shapes only."""
    n_tiles = -(-n // tile)
    each = tile * -(-n_tiles // max(1, min(n_tiles, most // max(1, n_programs))))
    return -(-n // each), each


def _tile(parts: int, K: int, transposed: bool) -> tuple[dict[str, int], int]:
    """What was fastest on an H200: points, frequency rows, warps and stages; and among how many programs a sum is cut,
    enough for the largest devices, and the same on all of them."""
    most = 2112
    if K > 1 and parts > 1:
        N, M, warps, stages = 64, 64, 4, 2
    elif K > 1:
        N, M, warps, stages = (64, 128, 4, 2) if transposed else (128, 32, 4, 3)
    elif parts > 1:
        N, M, warps, stages = (256, 128, 8, 3) if transposed else (128, 256, 8, 3)
        most = 264
    elif transposed:
        N, M, warps, stages = 128, 64, 4, 2
    else:
        N, M, warps, stages = 128, 32, 4, 3
    return {"N": N, "M": M, "num_warps": warps, "num_stages": stages}, most


def decision(X: Halves, W: Halves, b: torch.Tensor, C: torch.Tensor, S: torch.Tensor | None) -> torch.Tensor:
    """``cos(2 pi (X W' + b)) C + sin(2 pi X W') S``, shape ``(n, K)``, in float64."""
    n_columns = C.shape[1]
    if n_columns > _MOST_COLUMNS:
        parts = [slice(first, first + _MOST_COLUMNS) for first in range(0, n_columns, _MOST_COLUMNS)]
        sums = [decision(X, W, b, C[:, part], None if S is None else S[:, part]) for part in parts]
        return torch.cat(sums, dim=1)
    return _launch(_decision, X, W, b, [C, C if S is None else S], S is not None)


def adjoint(X: Halves, W: Halves, b: torch.Tensor, G: torch.Tensor, pairs: bool) -> torch.Tensor:
    """``cos(2 pi (W X' + b)) G`` and, for pairs, ``sin(2 pi W X') G``: ``(1 or 2, len(W), K)``, in float64."""
    if G.shape[1] > _MOST_COLUMNS:
        return torch.cat([adjoint(X, W, b, part, pairs) for part in G.split(_MOST_COLUMNS, 1)], dim=2)
    return _launch(_adjoint, X, W, b, [G], pairs, 1 + pairs)


def _launch(
    kernel, X: Halves, W: Halves, b: torch.Tensor, factors: list[torch.Tensor], pairs: bool, n_kinds: int = 0
) -> torch.Tensor:
    """The sums of a kernel over frequency rows at every point, or of so many kinds over points for every row."""
    n_columns = factors[0].shape[1]
    K = 1 if n_columns == 1 else max(16, triton.next_power_of_2(n_columns))
    weights, scale = _weights(K, *factors)
    D = min(32, X.high.shape[1])
    parts = X.high.shape[1] // D
    tile, most = _tile(parts, K, transposed=n_kinds > 0)
    (n, size), (n_terms, n_at_once) = (X.n, tile["N"]), (W.n, tile["M"])
    if n_kinds:
        (n, size), (n_terms, n_at_once) = (n_terms, n_at_once), (n, size)
    n_programs = -(-n // size)
    n_splits, each = _cut(n_terms, n_at_once, n_programs, most)
    shape = (n_splits, n_kinds, n, K) if n_kinds else (n_splits, n, K)
    out = torch.empty(shape, dtype=torch.float32, device=b.device)
    kernel[(n_programs, n_splits)](
        X.high, X.low, X.scale, W.high, W.scale, b, *weights, out, X.n, W.n, each,
        PAIRS=pairs, K=K, D=D, PARTS=parts, FAST=_FAST, **tile,
    )  # fmt: skip
    return (out.sum(dim=0, dtype=torch.float64) * scale)[..., :n_columns]


def _weights(K: int, *parts: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The high and the low part of each matrix, over one scale per column; a single column stays as it is.

    There are columns of zeros up to K, and rows of zeros below. Two products of float16 and those of the remainders
    take half the time of products of tf32 that are as exact.
    """
    if K == 1:
        return [part.contiguous() for part in parts for _ in range(2)], torch.ones(1, device=parts[0].device)
    wide = [torch.nn.functional.pad(part, (0, K - part.shape[1], 0, SLACK)) for part in parts]
    largest = torch.stack([part.abs().amax(dim=0) for part in wide]).amax(dim=0)
    scale = largest.clamp_min(1e-30) / _LARGEST_WEIGHT
    split_parts = []
    for part in wide:
        high = (part / scale).half()
        split_parts += [high, (part / scale - high).half()]
    return split_parts, scale

"""The Triton kernels for random numbers."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from s3vm.philox import Purpose


@triton.jit(do_not_specialize=["n", "n_groups", "n_rows", "first_block", "stream", "seed"])
def _draw(out, n, n_groups, n_rows, first_block, stream, seed, NORMAL: tl.constexpr, BLOCK: tl.constexpr):
    """Philox words of counters ``(group, row, block, stream)``, four for each, all groups of a row in turn.

    With `NORMAL`, two by two as normal numbers.
    """
    t = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    w0, w1, w2, w3 = _philox(t, n_groups, n_rows, first_block, stream, seed, BLOCK)
    w0, w1, w2, w3 = w0.to(tl.int64), w1.to(tl.int64), w2.to(tl.int64), w3.to(tl.int64)
    inside = t < n
    if NORMAL:
        a, b = _box_muller(w0 & 0xFFFFFFFF, w1 & 0xFFFFFFFF)
        c, d = _box_muller(w2 & 0xFFFFFFFF, w3 & 0xFFFFFFFF)
    else:
        a, b, c, d = w0 & 0xFFFFFFFF, w1 & 0xFFFFFFFF, w2 & 0xFFFFFFFF, w3 & 0xFFFFFFFF
    tl.store(out + 4 * t + 0, a, inside)
    tl.store(out + 4 * t + 1, b, inside)
    tl.store(out + 4 * t + 2, c, inside)
    tl.store(out + 4 * t + 3, d, inside)


@triton.jit
def _philox(t, n_groups, n_rows, first_block, stream, seed, BLOCK: tl.constexpr):
    group = (t % n_groups).to(tl.uint32)
    row = ((t // n_groups) % n_rows).to(tl.uint32)
    block = (t // n_groups // n_rows + first_block).to(tl.uint32)
    c3 = tl.zeros([BLOCK], tl.uint32) + stream.to(tl.uint32)
    return tl.philox(seed, group, row, block, c3)


@triton.jit
def _box_muller(u, v):
    radius = tl.sqrt(-2.0 * tl.log((u.to(tl.float64) + 0.5) * 2.3283064365386963e-10))
    angle = 6.283185307179586 * (v.to(tl.float64) + 0.5) * 2.3283064365386963e-10
    return radius * tl.cos(angle), radius * tl.sin(angle)


@dataclass(frozen=True)
class DeviceNumbers:
    """The functions of `s3vm.philox` that kernels draw frequencies with, on a device; the rows of blocks are stacked.

    Integers are the same as those of `s3vm.philox`, reals agree to the rounding of float64.
    """

    device: torch.device

    def uniforms(self, seed: int, stream: Purpose, blocks: range, n_rows: int, n_columns: int) -> torch.Tensor:
        return (self._drawn(False, seed, stream, blocks, n_rows, n_columns).double() + 0.5) * 2.0**-32

    def normals(self, seed: int, stream: Purpose, blocks: range, n_rows: int, n_columns: int) -> torch.Tensor:
        return self._drawn(True, seed, stream, blocks, n_rows, n_columns)

    def cauchy(self, seed: int, stream: Purpose, blocks: range, n_rows: int, n_columns: int) -> torch.Tensor:
        return torch.tan(torch.pi * (self.uniforms(seed, stream, blocks, n_rows, n_columns) - 0.5))

    def students(
        self, seed: int, stream: Purpose, blocks: range, n_rows: int, n_columns: int, degrees: int
    ) -> torch.Tensor:
        scale = self.normals(seed, Purpose.SCALE, blocks, n_rows, degrees)
        return self.normals(seed, stream, blocks, n_rows, n_columns) / torch.sqrt((scale**2).mean(dim=1, keepdim=True))

    def signs(self, seed: int, stream: Purpose, blocks: range, n_rows: int, n_columns: int) -> torch.Tensor:
        return 1.0 - 2.0 * (self._drawn(False, seed, stream, blocks, n_rows, n_columns) >> 31).double()

    def _drawn(self, are_normal, seed, stream, blocks, n_rows, n_columns):
        n_groups = -(-n_columns // 4)
        n = len(blocks) * n_rows * n_groups
        dtype = torch.float64 if are_normal else torch.int64
        out = torch.empty((len(blocks) * n_rows, 4 * n_groups), dtype=dtype, device=self.device)
        signed = seed - (1 << 64) if seed >= 1 << 63 else seed
        _draw[(-(-n // 512),)](
            out, n, n_groups, n_rows, blocks.start, int(stream), signed, NORMAL=are_normal, BLOCK=512
        )
        return out[:, :n_columns]

"""The random numbers of `s3vm.philox` on a device, for several blocks at once.

It has the functions of `s3vm.philox` that kernels draw frequencies with; a block may be a range of blocks, whose rows
are stacked. Integers are the same, reals agree to the rounding of float64.
"""

from dataclasses import dataclass

import torch

from s3vm.philox import Purpose

__all__ = ["Random"]


@dataclass(frozen=True)
class Random:
    """Drawn by Triton on the device, or by torch, on the CPU if the device has no float64."""

    device: torch.device
    has_triton: bool

    def uniforms(self, seed: int, stream: Purpose, blocks: range, n_rows: int, n_columns: int) -> torch.Tensor:
        return (self._words(seed, stream, blocks, n_rows, n_columns).double() + 0.5) * 2.0**-32

    def normals(self, seed: int, stream: Purpose, blocks: range, n_rows: int, n_columns: int) -> torch.Tensor:
        if self.has_triton:
            from s3vm.backends.gpu import random_kernels

            return random_kernels.normals(seed, int(stream), blocks, n_rows, n_columns, self.device)
        u = self.uniforms(seed, stream, blocks, n_rows, n_columns + n_columns % 2)
        radius, angle = torch.sqrt(-2.0 * torch.log(u[:, 0::2])), 2.0 * torch.pi * u[:, 1::2]
        pair = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], dim=-1)
        return pair.reshape(len(u), -1)[:, :n_columns]

    def cauchy(self, seed: int, stream: Purpose, blocks: range, n_rows: int, n_columns: int) -> torch.Tensor:
        return torch.tan(torch.pi * (self.uniforms(seed, stream, blocks, n_rows, n_columns) - 0.5))

    def students(
        self, seed: int, stream: Purpose, blocks: range, n_rows: int, n_columns: int, degrees: int
    ) -> torch.Tensor:
        scale = self.normals(seed, Purpose.SCALE, blocks, n_rows, degrees)
        return self.normals(seed, stream, blocks, n_rows, n_columns) / torch.sqrt((scale**2).mean(dim=1, keepdim=True))

    def signs(self, seed: int, stream: Purpose, blocks: range, n_rows: int, n_columns: int) -> torch.Tensor:
        return 1.0 - 2.0 * (self._words(seed, stream, blocks, n_rows, n_columns) >> 31).double()

    def _words(self, seed: int, stream: Purpose, blocks: range, n_rows: int, n_columns: int) -> torch.Tensor:
        if self.has_triton:
            from s3vm.backends.gpu import random_kernels

            return random_kernels.words(seed, int(stream), blocks, n_rows, n_columns, self.device)
        device = torch.device("cpu") if self.device.type == "mps" else self.device
        return _words(seed, int(stream), blocks, n_rows, n_columns, device)


def _words(seed: int, stream: int, blocks: range, n_rows: int, n_columns: int, device: torch.device) -> torch.Tensor:
    """Philox4x32-10 in 64-bit arithmetic, whose products wrap: a product's high half is put together from parts."""
    low = 0xFFFFFFFF
    group = torch.arange(-(-n_columns // 4), device=device)
    row = torch.arange(n_rows, device=device)[:, None]
    block = torch.tensor(list(blocks), device=device)[:, None, None]
    c = [part.expand(len(blocks), n_rows, len(group)) for part in (group, row, block)]
    c0, c1, c2, c3 = (*c, torch.full_like(c[0], stream))
    k0, k1 = seed & low, (seed >> 32) & low
    for _ in range(10):
        high_0, low_0 = _product(0xD2511F53, c0)
        high_1, low_1 = _product(0xCD9E8D57, c2)
        c0, c1, c2, c3 = high_1 ^ c1 ^ k0, low_1, high_0 ^ c3 ^ k1, low_0
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return torch.stack([c0, c1, c2, c3], dim=-1).reshape(len(blocks) * n_rows, -1)[:, :n_columns]


def _product(a: int, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The high and the low half of a product of two 32-bit numbers, by halves of 16 bits of one of them."""
    upper, lower = a >> 16, a & 0xFFFF
    first, second = upper * b, lower * b  # below 2**48
    total = ((first & 0xFFFF) << 16) + second
    return ((first >> 16) + (total >> 32)) & 0xFFFFFFFF, total & 0xFFFFFFFF

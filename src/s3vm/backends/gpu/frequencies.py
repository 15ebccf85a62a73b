"""The frequencies of random features on a device, and the random numbers that they are drawn from."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from s3vm.kernels import Kernel
from s3vm.philox import Purpose

if TYPE_CHECKING:
    from s3vm.backends.gpu.backend import Gpu

GROUP_BYTES = 256 << 20  # of frequencies that are drawn together when they are not cached
_AHEAD = 32  # blocks that are drawn together, needed or not, when they are cached
_SEGMENT_BYTES = 256 << 20  # of the first piece of memory for frequencies that are cached


class Frequencies:
    """The frequency rows and offsets of blocks, drawn when needed; the first blocks are cached while they fit."""

    def __init__(
        self, kernel: Kernel, seed: int, n_features: int, n_dims: int, backend: "Gpu", dtype: torch.dtype, fused: bool
    ) -> None:
        self._kernel, self._seed, self._n_features, self._n_dims = kernel, seed, n_features, n_dims
        self._rows, self._dtype, self._fused, self._device = kernel.rows(n_features), dtype, fused, backend.device
        self._random = Random(backend.device, backend.has_triton)
        row_bytes = dtype.itemsize * (n_dims + 1)
        if fused:
            from s3vm.backends.gpu.kernels import short_bytes

            row_bytes = short_bytes(n_dims) + dtype.itemsize
        block_bytes = self._rows * row_bytes
        self._together = max(1, GROUP_BYTES // (8 * self._rows * (n_dims + 1)))
        self._ahead = min(_AHEAD, self._together)
        self._least_room = max(self._ahead, _SEGMENT_BYTES // block_bytes)
        self._max_cached = backend.cache_bytes // block_bytes
        self._segments: list[tuple[range, tuple[torch.Tensor, ...]]] = []  # the blocks of each, and its arrays
        self._n_cached = 0

    def groups(self, first: int, count: int) -> Iterator[tuple[slice, Any, torch.Tensor]]:
        """Blocks ``first..first+count-1``, some at a time: their numbers, counted from `first`, and their arrays."""
        start, stop = first, first + count
        while start < stop:
            if start == self._n_cached < self._max_cached:
                self._cache(stop)
            if start < self._n_cached:
                blocks, cached = next(segment for segment in self._segments if start in segment[0])
                end = min(stop, self._n_cached, blocks.stop)
                arrays = tuple(part[(start - blocks.start) * self._rows :] for part in cached)
            else:
                end = min(stop, start + self._together)
                arrays = self._drawn(range(start, end))
            yield slice(start - first, end - first), *self._view(arrays, (end - start) * self._rows)
            start = end

    def _view(self, arrays: tuple[torch.Tensor, ...], n_rows: int) -> tuple[Any, torch.Tensor]:
        *parts, b = arrays
        if not self._fused:
            return parts[0][:n_rows], b[:n_rows]
        from s3vm.backends.gpu.kernels import SLACK, Halves

        high, scale = (part[: n_rows + SLACK] for part in parts)
        return Halves(high, scale, None, n_rows), b[:n_rows]

    def _cache(self, stop: int) -> None:
        """Caches more of the blocks before `stop`.

        Memory is allocated in segments, each for all blocks that are asked for, or as large as all segments before it.
        What is cached is never copied, so that memory stays below `cache_bytes`.
        """
        first, room = self._n_cached, self._segments[-1][0].stop if self._segments else 0
        is_full = first == room
        if is_full:
            room = min(max(stop, 2 * first, self._least_room), self._max_cached)
        blocks = range(first, min(room, max(min(stop, first + self._together), first + self._ahead)))
        fresh, n_rows = self._drawn(blocks), len(blocks) * self._rows
        if is_full:
            length = (room - first) * self._rows + len(fresh[0]) - n_rows
            empty = tuple(part.new_zeros((length, *part.shape[1:])) for part in fresh)
            self._segments.append((range(first, room), empty))
        all_blocks, cached = self._segments[-1]
        at = (first - all_blocks.start) * self._rows
        for there, part in zip(cached, fresh, strict=True):
            there[at : at + n_rows] = part[:n_rows]
        self._n_cached = blocks.stop

    def _drawn(self, blocks: range) -> tuple[torch.Tensor, ...]:
        law: Any = self._kernel
        W, b = law.frequencies(self._seed, blocks, self._n_features, self._n_dims, self._random)
        n_rows = len(blocks) * self._rows
        if not isinstance(b, torch.Tensor):  # there are no offsets
            b = torch.zeros(n_rows)
        W, b = W.to(self._device, self._dtype).contiguous(), b.to(self._device, self._dtype)
        if not self._fused:
            return W, b
        from s3vm.backends.gpu.kernels import split

        short = split(W, short=True)
        return short.high, short.scale, torch.nn.functional.pad(b, (0, len(short.high) - n_rows))


@dataclass(frozen=True)
class Random:
    """The functions of `s3vm.philox` that kernels draw frequencies with; the rows of a range of blocks are stacked.

    Triton draws on the device, else torch, on the CPU if the device has no float64. Integers are the same as those of
    `s3vm.philox`, reals agree to the rounding of float64.
    """

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

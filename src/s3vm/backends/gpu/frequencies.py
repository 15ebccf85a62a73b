"""The frequencies of random features on a device: drawn there by Triton, else on the CPU."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from s3vm.backends.cpu import draws
from s3vm.kernels import Kernel

if TYPE_CHECKING:
    from s3vm.backends.gpu.backend import Gpu

GROUP_BYTES = 256 << 20  # of frequencies that are drawn together when they are not cached
_AHEAD = 32  # blocks that are drawn together, needed or not, when they are cached
_SEGMENT_BYTES = 256 << 20  # of the first piece of memory for frequencies that are cached


class Frequencies:
    """The frequency rows and offsets of blocks, drawn when needed; the first blocks are cached while they fit."""

    def __init__(
        self, kernel: Kernel, seed: int, n_features: int, n_dims: int, backend: "Gpu", dtype: torch.dtype, kernels: Any
    ) -> None:
        self._kernel, self._seed, self._n_features, self._n_dims = kernel, seed, n_features, n_dims
        self._rows, self._dtype, self._kernels, self._device = kernel.rows(n_features), dtype, kernels, backend.device
        self._has_triton = backend.has_triton
        row_bytes = kernels.short_bytes(n_dims) if kernels else dtype.itemsize * n_dims
        block_bytes = self._rows * (row_bytes + dtype.itemsize)
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
        if not self._kernels:
            return parts[0][:n_rows], b[:n_rows]
        high, scale = (part[: n_rows + self._kernels.SLACK] for part in parts)
        return self._kernels.Halves(high, scale, None, n_rows), b[:n_rows]

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
        fixed, n_rows = (self._n_features, self._n_dims), len(blocks) * self._rows
        if self._has_triton:
            from s3vm.backends.gpu.random_kernels import DeviceNumbers

            W, b = law.frequencies(self._seed, blocks, *fixed, DeviceNumbers(self._device))
            if not isinstance(b, torch.Tensor):  # there are no offsets
                b = torch.zeros(n_rows)
        else:
            parts = [law.frequencies(self._seed, block, *fixed, draws) for block in blocks]
            W, b = (torch.as_tensor(np.concatenate(part)) for part in zip(*parts, strict=True))
        W, b = W.to(self._device, self._dtype).contiguous(), b.to(self._device, self._dtype)
        if not self._kernels:
            return W, b
        short = self._kernels.split(W, short=True)
        return short.high, short.scale, torch.nn.functional.pad(b, (0, len(short.high) - n_rows))

"""The GPU backend: fused Triton kernels where there is a GPU, plain torch in chunks elsewhere.

What a sweep needs on the device is bounded: frequencies are cached up to `cache_bytes` and drawn again beyond, in
groups, from the same counters as on the CPU. Results for NumPy arrays are NumPy arrays; tensors stay on the device.
"""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from scipy import sparse

from s3vm._utils.arrays import host
from s3vm._utils.machine import format_bytes, machine_memory
from s3vm._utils.typing import Array, Rows
from s3vm.backends.gpu.frequencies import GROUP_BYTES, Frequencies
from s3vm.kernels import KERNELS, Kernel
from s3vm.losses import LABELED_LOSSES, UNLABELED_LOSSES

_POINT_BYTES = 256 << 20  # of rows that are on the device at a time
_CHUNK_BYTES = 256 << 20  # of features, or kernel values, that plain torch makes at a time
_WORKSPACE = 3 << 29  # for these two and GROUP_BYTES, with copies: 1.4 GB were measured
_WORTH_PINNING = 4 << 20  # bytes; to pin memory takes milliseconds


class Gpu:
    """Triton on the GPU that torch sees, or plain torch on `device`.

    Parameters
    ----------
    dtype : float32 or float64
        Triton's kernels are for float32; float64 is plain torch.
    cache_bytes : int or None, default None
        Device memory for frequencies that are cached between sweeps; None is half of the free memory of a GPU.
    device : str or None, default None
        ``"cuda"`` if there is one, else Apple's ``"mps"``, else ``"cpu"``.
    """

    n_threads = 1
    interprets = False  # whether Triton's kernels are interpreted on the CPU, to test them

    def __init__(self, dtype: np.dtype[Any], cache_bytes: int | None = None, device: str | None = None) -> None:
        self.dtype = dtype
        self.device = torch.device(device or _best_device())
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        if cache_bytes is None:
            cache_bytes = self.memory() // 2 if self.device.type == "cuda" else GROUP_BYTES
        self.cache_bytes = cache_bytes
        if self.device.type == "mps" and dtype == np.float64:
            raise ValueError('this device has no float64: give dtype="float32"')

    def features(self, kernel: Kernel, seed: int, n_features: int, n_dims: int) -> "_GpuFeatures":
        return _GpuFeatures(kernel, seed, n_features, n_dims, self)

    def memory(self) -> int:
        if self.device.type != "cuda":
            return machine_memory()
        free, _ = torch.cuda.mem_get_info(self.device)
        reserved = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return max(0, int(free + reserved) - _WORKSPACE)

    def used(self) -> str:
        if self.device.type != "cuda":
            return ""
        return f"at most {format_bytes(torch.cuda.max_memory_allocated(self.device))} on the GPU"

    def put(self, x: Any) -> torch.Tensor:
        """x on the device, in its own precision, or the highest that the device has; sparse rows become dense."""
        if isinstance(x, torch.Tensor):
            return x.to(self.device)
        x = torch.as_tensor(np.ascontiguousarray(x.toarray() if sparse.issparse(x) else x))
        if self.device.type == "mps" and x.dtype == torch.float64:
            x = x.float()
        if self.device.type == "cuda" and x.nbytes >= _WORTH_PINNING:
            x = x.pin_memory()  # which the device reads in the background
        return x.to(self.device, non_blocking=True)

    def gram(self, kernel: Kernel, X: torch.Tensor, Z: torch.Tensor) -> torch.Tensor:
        if type(kernel) in KERNELS.values():
            return kernel.gram(X, Z)
        return self.put(kernel.gram(host(X), host(Z)))  # of a user, written for NumPy only

    def loss(self, loss: Any) -> Any:
        ours = (*LABELED_LOSSES.values(), *UNLABELED_LOSSES.values())
        return loss if type(loss) in ours else _ThroughHost(loss, self)

    def expansion(self, kernel: Kernel, centers: Rows, weights: Array, X: Rows) -> Array:
        there, factors = self.put(centers).to(self._real), self.put(weights).to(self._real)
        scores = np.empty((X.shape[0], weights.shape[1]))
        at_once = max(1, _CHUNK_BYTES // (8 * (centers.shape[0] + X.shape[1])))
        parts = [slice(start, min(start + at_once, len(scores))) for start in range(0, len(scores), at_once)]
        ahead = [self.put(X[part]) for part in parts[:1]]
        for part, following in zip_longest(parts, parts[1:]):
            results = self.gram(kernel, ahead.pop().to(self._real), there) @ factors
            if following is not None:
                ahead.append(self.put(X[following]))  # while the device computes
            scores[part] = host(results)
        return scores

    @property
    def has_triton(self) -> bool:
        """Whether Triton's kernels run on this device."""
        return (self.device.type == "cuda" or self.interprets) and find_spec("triton") is not None

    @property
    def _real(self) -> torch.dtype:
        return torch.float32 if self.device.type == "mps" else torch.float64


class _ThroughHost:
    """A loss of a user, written for NumPy only."""

    def __init__(self, loss: Any, backend: Gpu) -> None:
        self._loss, self._backend = loss, backend

    def value(self, *scores: torch.Tensor) -> torch.Tensor:
        return self._backend.put(np.asarray(self._loss.value(*map(host, scores))))

    def grad(self, *scores: torch.Tensor) -> torch.Tensor:
        return self._backend.put(np.asarray(self._loss.grad(*map(host, scores))))


class _GpuFeatures:
    def __init__(self, kernel: Kernel, seed: int, n_features: int, n_dims: int, backend: Gpu) -> None:
        self.n_features = kernel.whole(n_features)
        self._law, self._rows, self._n_dims = kernel.activation, kernel.rows(self.n_features), n_dims
        self._degree = kernel.rows_per_feature
        self._amplitude = kernel.amplitude / np.sqrt(self.n_features)
        self._backend = backend
        self._dtype = torch.float32 if backend.dtype == np.float32 else torch.float64
        fused = backend.has_triton and self._dtype == torch.float32 and self._law != "product"
        self._kernels = import_module("s3vm.backends.gpu.kernels") if fused else None
        self._frequencies = Frequencies(kernel, seed, self.n_features, n_dims, backend, self._dtype, self._kernels)

    def features(self, block: int, X: Any, n_blocks: int = 1) -> Any:
        width = self.n_features
        result = torch.empty((X.shape[0], n_blocks * width), dtype=self._dtype, device=self._backend.device)
        for part, x in self._points(X):
            for blocks, W, b in self._frequencies.groups(block, n_blocks):
                for chunk in self._chunks(len(x), blocks.stop - blocks.start):
                    to = slice(part.start + chunk.start, part.start + min(chunk.stop, len(x)))
                    result[to, blocks.start * width : blocks.stop * width] = self._features(x[chunk], W, b)
        return _as(result * self._amplitude, X)

    def decision(self, coefficients: Any, X: Any, first_block: int = 0) -> Any:
        n_blocks, n_features, n_columns = coefficients.shape
        if n_features != self.n_features:
            raise ValueError(f"blocks of {n_features} coefficients met blocks of {self.n_features} features")
        alpha = self._backend.put(coefficients).to(self._dtype) * self._amplitude
        scores = self._zeros(X.shape[0], n_columns)
        for part, x in self._points(X):
            rows = self._halves(x)
            for blocks, W, b in self._frequencies.groups(first_block, n_blocks):
                scores[part] += self._decision(alpha[blocks], x, rows, W, b)
        return _as(scores, X)

    def adjoint(self, G: Any, X: Any, n_blocks: int, first_block: int = 0) -> Any:
        if len(G) != X.shape[0]:
            raise ValueError(f"{len(G)} rows of G met {X.shape[0]} rows of X")
        n_columns = G.shape[1]
        result = self._zeros(n_blocks, self.n_features, n_columns)
        slopes = self._backend.put(G).to(self._dtype) * self._amplitude
        for part, x in self._points(X):
            rows, g = self._halves(x), slopes[part]
            for blocks, W, b in self._frequencies.groups(first_block, n_blocks):
                result[blocks] += self._adjoint(g, x, rows, W, b).reshape(-1, self.n_features, n_columns)
        return _as(result, X)

    def _zeros(self, *shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=self._backend._real, device=self._backend.device)

    def _points(self, X: Any) -> Iterator[tuple[slice, torch.Tensor]]:
        """The rows of X on the device, some at a time."""
        if X.shape[1] != self._n_dims:
            raise ValueError(f"rows of {X.shape[1]} columns met frequencies of {self._n_dims}")
        at_once = max(1, _POINT_BYTES // (8 * self._n_dims))
        for start in range(0, X.shape[0], at_once):
            part = slice(start, min(start + at_once, X.shape[0]))
            yield part, self._backend.put(X[part]).to(self._dtype)

    def _halves(self, x: torch.Tensor) -> Any:
        return self._kernels.split(x) if self._kernels else None

    def _decision(self, A: torch.Tensor, x: torch.Tensor, rows: Any, W: Any, b: torch.Tensor) -> torch.Tensor:
        n_blocks, _, n_columns = A.shape
        if self._kernels:
            cosines, sines = A.reshape(-1, n_columns), None
            if self._law == "pairs":
                cosines, sines = A.reshape(n_blocks, 2, -1, n_columns).unbind(dim=1)
                cosines, sines = cosines.reshape(-1, n_columns), sines.reshape(-1, n_columns)
            return self._kernels.decision(rows, W, b, cosines, sines)
        total = self._zeros(len(x), n_columns)
        for i, one in self._one_by_one(W, b):
            for part in self._chunks(len(x)):
                total[part] += self._features(x[part], *one) @ A[i]
        return total

    def _adjoint(self, g: torch.Tensor, x: torch.Tensor, rows: Any, W: Any, b: torch.Tensor) -> torch.Tensor:
        """Features of some blocks times g, ``(n_blocks * n_features, K)``."""
        if self._kernels:
            sums = self._kernels.adjoint(rows, W, b, g, self._law == "pairs")
            return sums.reshape(len(sums), -1, self._rows, g.shape[1]).swapaxes(0, 1).reshape(-1, g.shape[1])
        parts = []
        for _, one in self._one_by_one(W, b):
            total = self._zeros(self.n_features, g.shape[1])
            for part in self._chunks(len(x)):
                total += self._features(x[part], *one).T @ g[part]
            parts.append(total)
        return torch.cat(parts)

    def _one_by_one(self, W: torch.Tensor, b: torch.Tensor) -> Iterator[tuple[int, tuple[torch.Tensor, torch.Tensor]]]:
        return enumerate(zip(W.split(self._rows), b.split(self._rows), strict=True))

    def _chunks(self, n: int, n_blocks: int = 1) -> list[slice]:
        size = max(1, _CHUNK_BYTES // (8 * self.n_features * self._degree * n_blocks))
        return [slice(start, start + size) for start in range(0, n, size)]

    def _features(self, x: torch.Tensor, W: Any, b: torch.Tensor) -> torch.Tensor:
        """The features of some blocks, as they are written in `s3vm.kernels`, without their amplitude."""
        if self._kernels:
            W = W.whole(self._n_dims)
        z = x @ W.T + b
        if self._law == "product":
            return z.reshape(len(z), -1, self._degree).prod(dim=2)
        angle = 2 * torch.pi * (z - torch.round(z))
        if self._law == "phase":
            return torch.cos(angle)
        angle = angle.reshape(len(z), -1, self._rows)
        return torch.stack([torch.cos(angle), torch.sin(angle)], dim=2).reshape(len(z), -1)


def _as(result: torch.Tensor, X: Any) -> Any:
    """The result where the rows are."""
    return result if isinstance(X, torch.Tensor) else host(result)


def _best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"

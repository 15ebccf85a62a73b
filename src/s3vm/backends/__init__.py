"""Where features, kernels and their sums are computed. A backend knows neither losses nor solvers."""

import os
import sys
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np

from s3vm._utils.input_checks import precision
from s3vm._utils.optional import optional
from s3vm._utils.settings import at_least, check, threads
from s3vm._utils.warn import warn
from s3vm.backends.protocol import Backend, Features

__all__ = ["BACKENDS", "Backend", "Features", "backend"]

BACKENDS = ("reference", "cpu", "gpu")
_CACHE_BYTES = 256 << 20
_GPUS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # of NVIDIA, of NVIDIA under WSL, of AMD


def backend(
    name: str, dtype: Any = np.float32, n_jobs: int | None = None, cache_bytes: int | Literal["auto"] = 0
) -> Backend:
    """The backend of that name; ``"auto"`` is the GPU if there is one that torch sees, else the CPU.

    `cache_bytes` is the memory for frequencies that are kept for the next sweep; 0 draws them every time, ``"auto"`` is
    256 MiB, or half of the free memory of a GPU.
    """
    kind = precision(dtype)
    check("backend", name, "auto", *BACKENDS)
    check("n_jobs", n_jobs, threads, None)
    check("cache_bytes", cache_bytes, at_least(0), "auto")
    if name == "gpu" or (name == "auto" and _sees_gpu()):
        optional("torch", "gpu")
        from s3vm.backends.gpu import Gpu

        gpu = Gpu(kind, None if cache_bytes == "auto" else cache_bytes)
        if gpu.device.type == "cpu":
            _warn_of_no_gpu()
        return gpu
    cache_bytes = _CACHE_BYTES if cache_bytes == "auto" else cache_bytes
    if name in ("auto", "cpu"):
        from s3vm.backends.cpu import Cpu

        return Cpu(kind, n_jobs, cache_bytes)
    from s3vm.backends.reference import Reference

    return Reference(kind)


@cache
def _warn_of_no_gpu() -> None:
    """Warns once, though a fit asks for its backend several times."""
    warn(
        'backend="gpu" finds no GPU that torch sees, and runs torch on the CPU: give backend="auto", which uses a GPU '
        "if there is one, and faster code than torch on the CPU"
    )


def _sees_gpu() -> bool:
    """Whether torch and Triton are installed and see a GPU; torch is not imported if there is certainly none."""
    if "torch" not in sys.modules and not any(map(os.path.exists, _GPUS)):
        return False
    if find_spec("torch") is None or find_spec("triton") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())

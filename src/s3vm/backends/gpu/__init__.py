"""The GPU backend: fused Triton kernels where there is a GPU, plain torch in chunks elsewhere."""

from s3vm.backends.gpu.backend import Gpu

__all__ = ["Gpu"]

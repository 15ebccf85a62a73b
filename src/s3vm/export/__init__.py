"""A model on its way to where it serves: smaller, or in another format."""

from s3vm.export.compression import Compression, compress
from s3vm.export.onnx import to_onnx

__all__ = ["Compression", "compress", "to_onnx"]

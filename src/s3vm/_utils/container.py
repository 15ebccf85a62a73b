"""A header and tensors in one file, in which damage is always detected, and which can be read without trust.

It is a safetensors file. Its metadata have a JSON header under the key ``"s3vm"``. Its last tensor is the SHA-256 of
all bytes before it, so that damage is detected. A checksum does not keep anyone from writing a hostile file, so all
content is checked when it is taken out, and nothing is allocated that is not in the file.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors
from safetensors.numpy import save as to_safetensors

from s3vm._utils import atomic
from s3vm._utils.input_checks import shortened
from s3vm._utils.typing import Array

FORMAT = 1
_DIGEST = "sha256"  # the last name among the tensors of bytes, which safetensors stores after all others
_DIGEST_BYTES = 32
_DTYPES = {"F32": np.float32, "F64": np.float64, "I32": np.int32, "I64": np.int64, "U8": np.uint8}
_MOST_HEADER = 2 << 20  # JSON takes many times its length in memory; whatever may be long is a tensor
_MOST_PARTS = 100_000  # lists and objects in it, the smallest of which take the most


class ModelFormatError(ValueError):
    """The file is not a model file, or is damaged, or cannot be read by this version."""


def write(path: Any, header: dict[str, Any], tensors: dict[str, Array]) -> None:
    """Writes the file, or leaves an existing one unchanged if that fails."""
    text = json.dumps({"format": FORMAT, **header}, allow_nan=False)
    arrays = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    raw = memoryview(to_safetensors({**arrays, _DIGEST: np.zeros(_DIGEST_BYTES, np.uint8)}, {"s3vm": text}))
    if int.from_bytes(raw[:8], "little") > _MOST_HEADER:
        raise ValueError("the class names or the settings are too long for a model file: use pickle")
    content = raw[:-_DIGEST_BYTES]
    atomic.write(path, content, hashlib.sha256(content).digest())


def read(path: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """The header and the tensors, once format and checksum have been checked."""
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise ModelFormatError("not a file")
        with open(path, "rb") as file:
            return _read(file)
    except ModelFormatError as problem:
        raise ModelFormatError(f"{path}: {problem}") from None
    except MemoryError:
        size = f"{path} has {Path(path).stat().st_size / 2**20:,.0f} MiB"
        raise MemoryError(f"{size}, and there is not enough memory to read it, which takes twice as much") from None


def _read(file: BinaryIO) -> tuple[dict[str, Any], dict[str, Array]]:
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if length > _MOST_HEADER:
        raise ModelFormatError("not a model file or checkpoint of s3vm")
    start += file.read(length)
    try:
        text = _parsed(start[8:].decode())["__metadata__"]["s3vm"]
        header = _parsed(text, parse_int=_integer, parse_float=_finite, parse_constant=_finite)
        version = header["format"]
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise ModelFormatError("not a model file or checkpoint, or damaged: it has no readable header") from None
    if version != FORMAT:
        raise ModelFormatError(f"its format is {short(version)}, and this s3vm reads {FORMAT}: install a newer s3vm")
    raw = start + file.read()
    if hashlib.sha256(memoryview(raw)[:-_DIGEST_BYTES]).digest() != raw[-_DIGEST_BYTES:]:
        raise ModelFormatError("damaged: the checksum does not match the content")
    try:
        parts = safetensors.deserialize(raw)
    except safetensors.SafetensorError as problem:
        raise ModelFormatError(f"not a safetensors file ({short(str(problem))})") from None
    tensors = {}
    for name, part in parts:
        if part["dtype"] not in _DTYPES:
            raise ModelFormatError(f"tensor {short(name)} has the unexpected type {part['dtype']}")
        try:
            tensors[name] = np.frombuffer(part["data"], _DTYPES[part["dtype"]]).reshape(part["shape"])
        except ValueError:  # an empty tensor in a shape that NumPy cannot have
            raise ModelFormatError(f"tensor {short(name)} has the invalid shape {short(part['shape'])}") from None
    if tensors.pop(_DIGEST, np.empty(0)).nbytes != _DIGEST_BYTES:
        raise ModelFormatError("not a model file or checkpoint: it has no checksum")
    return header, tensors


def _parsed(text: str, **options: Any) -> Any:
    if text.count("[") + text.count("{") > _MOST_PARTS:
        raise ValueError("too many parts")
    return json.loads(text, **options)


def _integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError("an integer of too many digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not np.isfinite(value):
        raise ValueError("a number that is not finite")
    return value


class Contents:
    """A header and tensors from a stranger, checked as they are taken out."""

    def __init__(self, header: dict[str, Any], tensors: dict[str, Array]) -> None:
        self._header, self._tensors = header, dict(tensors)

    def entry(self, name: str, *kinds: type) -> Any:
        """A value in the header, which must be of one of these types."""
        value = self._header[name]
        if type(value) not in kinds:
            raise ModelFormatError(f"{name} is {short(value)} in the header, which has the wrong type")
        return value

    def optional(self, name: str, *shape: int | None, **options: Any) -> Array | None:
        """The tensor of that name, if there is one."""
        return self.tensor(name, *shape, **options) if name in self._tensors else None

    def tensor(
        self, name: str, *shape: int | None, dtypes: tuple[str, ...] = ("float64",), finite: bool = True
    ) -> Array:
        """The tensor of that name, which must have this shape (None: any length) and one of these dtypes."""
        if name not in self._tensors:
            raise ModelFormatError(f"tensor {name!r} is missing")
        tensor = self._tensors.pop(name)
        fits = tensor.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, tensor.shape, strict=True))
        if tensor.dtype.name not in dtypes or not fits:
            raise ModelFormatError(f"tensor {name!r} is {tensor.dtype.name} of shape {tensor.shape}: that does not fit")
        if finite and tensor.dtype.kind == "f" and not np.isfinite(tensor).all():
            raise ModelFormatError(f"tensor {name!r} has entries that are not finite")
        return tensor

    def finish(self) -> None:
        """Raises an error if any tensor has not been taken out."""
        if self._tensors:
            raise ModelFormatError(f"it has unexpected tensors: {short(sorted(self._tensors))}")


def short(value: Any) -> str:
    """A value from a stranger's file, short enough for a message."""
    return shortened(repr(value), 80)

"""A header and tensors in one file, which shows any damage and can be read without trust.

It is a safetensors file. Its metadata hold a JSON header under the key ``"s3vm"``. Its last tensor is the SHA-256 of
every byte before it, so that damage is always found. A checksum keeps nobody from writing a hostile file, so whatever
is taken out is checked on the way, and nothing is allocated that is not in the file.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors
from safetensors.numpy import save as packed

from s3vm._utils import atomic as _atomic
from s3vm._utils.typing import Array

__all__ = ["FORMAT", "Contents", "ModelFormatError", "read", "short", "write"]

FORMAT = 1
_DIGEST = "sha256"  # the last by name of the tensors of bytes, which safetensors puts behind all others
_DIGEST_BYTES = 32
_DTYPES = {"F32": np.float32, "F64": np.float64, "I32": np.int32, "I64": np.int64, "U8": np.uint8}
_MOST_HEADER = 2 << 20  # JSON grows some thirtyfold when it is read; whatever may be long is a tensor


class ModelFormatError(ValueError):
    """A file that is not a model file, or a damaged one, or one that this version cannot read."""


def write(path: Any, header: dict[str, Any], tensors: dict[str, Array]) -> None:
    """Writes the file, which is complete or not there at all."""
    text = json.dumps({"format": FORMAT, **header}, allow_nan=False)
    whole = {name: np.ascontiguousarray(part) for name, part in tensors.items()}
    raw = memoryview(packed({**whole, _DIGEST: np.zeros(_DIGEST_BYTES, np.uint8)}, {"s3vm": text}))
    if int.from_bytes(raw[:8], "little") > _MOST_HEADER:
        raise ValueError("the names of the classes, or the settings, are too long for a model file: use pickle")
    content = raw[:-_DIGEST_BYTES]
    _atomic.write(path, content, hashlib.sha256(content).digest())


def read(path: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """The header and the tensors of a file whose format and checksum are right."""
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise ModelFormatError("not a file")
        with open(path, "rb") as file:
            return _unpacked(file)
    except ModelFormatError as problem:
        raise ModelFormatError(f"{path}: {problem}") from None
    except MemoryError:
        need = f"{path} has {Path(path).stat().st_size / 2**20:,.0f} MiB, and reading it takes twice as much"
        raise MemoryError(f"{need}: there is not enough memory") from None


def _unpacked(file: BinaryIO) -> tuple[dict[str, Any], dict[str, Array]]:
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if length > _MOST_HEADER:
        raise ModelFormatError("not a model file or checkpoint: it does not begin as one")
    start += file.read(length)
    try:
        text = json.loads(start[8:])["__metadata__"]["s3vm"]
        header = json.loads(text, parse_int=_whole, parse_float=_real, parse_constant=_real)
        version = header["format"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise ModelFormatError(
            "not a model file or checkpoint, or damaged: it has no header that can be read"
        ) from None
    if version != FORMAT:
        raise ModelFormatError(f"its format is {short(version)}, and this s3vm reads {FORMAT}: install a newer s3vm")
    raw = start + file.read()
    if hashlib.sha256(memoryview(raw)[:-_DIGEST_BYTES]).digest() != raw[-_DIGEST_BYTES:]:
        raise ModelFormatError("damaged: the checksum is not that of the content")
    try:
        parts = safetensors.deserialize(raw)
    except safetensors.SafetensorError as problem:
        raise ModelFormatError(f"not a safetensors file ({short(str(problem))})") from None
    tensors = {}
    for name, part in parts:
        if part["dtype"] not in _DTYPES:
            raise ModelFormatError(f"tensor {short(name)} has the type {part['dtype']}, which no model has")
        try:
            tensors[name] = np.frombuffer(part["data"], _DTYPES[part["dtype"]]).reshape(part["shape"])
        except ValueError:  # nothing, in a shape that NumPy cannot have
            raise ModelFormatError(
                f"tensor {short(name)} has the shape {short(part['shape'])}, which cannot be"
            ) from None
    if tensors.pop(_DIGEST, np.empty(0)).nbytes != _DIGEST_BYTES:
        raise ModelFormatError("not a model file or checkpoint: it has no checksum")
    return header, tensors


def _whole(text: str) -> int:
    if len(text) > 20:
        raise ValueError("a whole number that is too long")
    return int(text)


def _real(text: str) -> float:
    value = float(text)
    if not np.isfinite(value):
        raise ValueError("a number that is not finite")
    return value


class Contents:
    """A header and tensors that someone else wrote, each checked as it is taken out."""

    def __init__(self, header: dict[str, Any], tensors: dict[str, Array]) -> None:
        self._header, self._tensors = header, dict(tensors)

    def entry(self, name: str, *kinds: type) -> Any:
        """What the header says, which must be of one of these kinds."""
        value = self._header[name]
        if type(value) not in kinds:
            raise ModelFormatError(f"{name} is {short(value)} in the header, which no model has")
        return value

    def has(self, name: str) -> bool:
        return name in self._tensors

    def tensor(
        self, name: str, *shape: int | None, dtypes: tuple[str, ...] = ("float64",), finite: bool = True
    ) -> Array:
        """The tensor of that name, whose shape is as given where it is given."""
        if name not in self._tensors:
            raise ModelFormatError(f"tensor {name!r} is missing")
        found = self._tensors.pop(name)
        wanted = tuple(got if want is None else want for want, got in zip(shape, found.shape, strict=False))
        if found.dtype.name not in dtypes or found.ndim != len(shape) or found.shape != wanted:
            raise ModelFormatError(f"tensor {name!r} is {found.dtype.name} of shape {found.shape}, which does not fit")
        if finite and found.dtype.kind == "f" and not np.isfinite(found).all():
            raise ModelFormatError(f"tensor {name!r} has entries that are not finite")
        return found

    def finish(self) -> None:
        """Says so if there is more than has been taken out."""
        if self._tensors:
            raise ModelFormatError(f"it has tensors that no model has: {short(sorted(self._tensors))}")


def short(value: Any) -> str:
    """A value that someone else wrote, for a message."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."

"""Values as JSON, and back: how model files and checkpoints are written, and read without trust.

Numbers, text, true, false and null stand for themselves, a list for a tuple. Everything else is an object with one key
that names its kind: ``{"dict": [[key, value], ...]}``, ``{"list": [...]}``, or a part of s3vm with its fields,
``{"RBF": {"gamma": 0.5, ...}}``. No code is loaded: decoding builds only the parts that the caller allows.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from s3vm._utils.arrays import host
from s3vm._utils.container import ModelFormatError, short
from s3vm._utils.input_checks import csr
from s3vm._utils.typing import Array


def encode(value: Any, parts: Mapping[str, type], tensors: dict[str, Array] | None = None) -> Any:
    """A value as JSON; objects must be of exactly the classes in `parts`, since a subclass would come back as its base.

    Arrays are added to `tensors`; without `tensors` they become tuples of numbers, and bytes, sets and numbers that are
    not finite are refused.
    """
    value = host(value)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    inner = partial(encode, parts=parts, tensors=tensors)
    for name, kind in parts.items():
        if type(value) is kind:
            return {name: {field: inner(getattr(value, field)) for field in _field_names(value)}}
    if type(value) is tuple:
        return [inner(entry) for entry in value]
    if type(value) is list:
        return {"list": [inner(entry) for entry in value]}
    if isinstance(value, Mapping):
        return {"dict": [[inner(key), inner(entry)] for key, entry in value.items()]}
    if tensors is None:
        if hasattr(value, "__array__"):
            return np.asarray(value).tolist()
    elif isinstance(value, float):
        return {"float": repr(value)}
    elif type(value) in (set, frozenset):
        return {type(value).__name__: [inner(entry) for entry in value]}
    elif isinstance(value, bytes):
        return {"bytes": inner(np.frombuffer(value, np.uint8))}
    elif sparse.issparse(value):
        return {"csr": [inner(part) for part in (value.data, value.indices, value.indptr, value.shape)]}
    elif isinstance(value, np.ndarray):
        name = f"{len(tensors)}"
        is_mask = value.dtype == bool
        tensors[name] = value.astype(np.uint8) if is_mask else value
        return {"mask" if is_mask else "array": name}
    raise TypeError(f"{value!r} cannot be written to a file, which holds no code: use parts of s3vm only, or pickle")


def decode(
    value: Any,
    parts: Mapping[str, type],
    tensors: Mapping[str, Array] | None = None,
    migrate: Callable[[str, dict[str, Any]], tuple[str, dict[str, Any]]] | None = None,
) -> Any:
    """The value that `encode` was given, built from `parts` only.

    `migrate` turns the name and fields of a part, as an older version wrote them, into those of this version.
    """
    inner = partial(decode, parts=parts, tensors=tensors, migrate=migrate)
    if isinstance(value, list):
        return tuple(inner(entry) for entry in value)
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "list":
        return [inner(entry) for entry in content]
    if kind == "dict":
        return {inner(key): inner(entry) for key, entry in content}
    if tensors is not None:
        match kind:
            case "float":
                return float(content)
            case "set" | "frozenset":
                return (set if kind == "set" else frozenset)(inner(entry) for entry in content)
            case "bytes":
                return inner(content).tobytes()
            case "csr":
                data, indices, indptr, (n_rows, n_columns) = (inner(part) for part in content)
                return csr(data, indices, indptr, (n_rows, n_columns))
            case "mask":
                return tensors[content].astype(bool)
            case "array":
                return tensors[content].copy()
    if isinstance(content, dict):
        content = {field: inner(entry) for field, entry in content.items()}
        if migrate is not None:
            kind, content = migrate(kind, content)
    if kind not in parts:
        raise ModelFormatError(f"its part {short(kind)} is unknown to this version of s3vm")
    return parts[kind](**content)


def _field_names(part: Any) -> list[str]:
    return [field.name for field in fields(part)] if is_dataclass(part) else list(part._fields)

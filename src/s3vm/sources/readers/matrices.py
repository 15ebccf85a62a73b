"""Files that hold a matrix, whose columns have no names: ``.npz``, ``.npy``, and those of SVMlight and LIBSVM."""

import bz2
import gzip
import lzma
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_svmlight_file

from s3vm._utils.arrays import as_rows
from s3vm._utils.input_checks import csr, shortened
from s3vm._utils.typing import Array, Rows
from s3vm.sources.readers.errors import TableError, nearest

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_ONLY_CSV = (".zst", ".lz4")  # pyarrow reads these, but only for csv

_PIECE_BYTES = 16 << 20  # that are read together in a stream
_BLOCK = 1 << 20  # bytes that are searched together for an invalid line
_MAX_FEATURES = (1 << 31) - 1
_SHOWN = 60  # characters of an invalid line


class MatrixFile(ABC):
    """A file that holds a matrix, and perhaps a label for each row. It is read at once unless it is a memory map."""

    def __init__(self, path: str) -> None:
        self.path = path

    @abstractmethod
    def arrays(self, target: str | None, n_features: int | None, dtype: Any) -> tuple[Rows, Array | None]:
        """The rows, which must have `n_features` columns unless it is None, and the labels if there is a `target`."""

    def checked(self, X: Any, n_features: int | None) -> Any:
        """The matrix, if it holds numbers and has `n_features` columns."""
        if X.ndim != 2 or X.dtype.kind not in "fiub":
            raise TableError(f"{self.path}: X must be a matrix of numbers, not {X.dtype} of shape {X.shape}")
        if not X.shape[1]:
            raise TableError(f"{self.path}: X has no columns")
        if n_features is not None and X.shape[1] != n_features:
            raise TableError(f"{self.path} has {X.shape[1]} columns, expected {n_features}")
        return X


class NpzFile(MatrixFile):
    """The array `X`, or `data`, `indices`, `indptr` and `shape` of a CSR matrix, and the labels, `y`."""

    def arrays(self, target: str | None, n_features: int | None, dtype: Any) -> tuple[Rows, Array | None]:
        y = None
        try:
            with _open_decompressed(self.path) as file, np.load(file, allow_pickle=False) as stored:
                if "data" in stored:
                    parts = (stored["data"], stored["indices"], stored["indptr"])
                    X = csr(*parts, _matrix_shape(stored["shape"]))
                else:
                    X = stored[self._checked_name("X", stored.files)]
                if target is not None:
                    y = _native_labels(stored[self._checked_name(target, stored.files)])
        except TableError:
            raise
        except Exception as problem:
            raise TableError(f"{self.path} cannot be read as npz: {_reason(problem)}") from None
        self.checked(X, n_features)
        if y is not None and y.shape != (X.shape[0],):
            raise TableError(f"{self.path}: {target} has shape {y.shape}, but X has {X.shape[0]} rows")
        return as_rows(X, dtype), y

    def _checked_name(self, name: str, names: list[str]) -> str:
        if name not in names:
            raise TableError(f"{self.path} has no array {nearest([name], names)}")
        return name


class NpyFile(MatrixFile):
    """One array of rows without labels; it stays on the disk."""

    def arrays(self, target: str | None, n_features: int | None, dtype: Any) -> tuple[Rows, Array | None]:
        if target is not None:
            raise TableError(
                f"{self.path} has no labels, since an .npy file holds one array: use it as unlabelled rows"
            )
        try:
            X = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except Exception as problem:
            raise TableError(f"{self.path} cannot be read as npy: {_reason(problem)}") from None
        return self.checked(X, n_features), None


class Piece(NamedTuple):
    """A part of a file: the lines that begin within some bytes of it, and how they are to be read."""

    offset: int
    length: int
    n_rows: int
    zero_based: bool
    n_features: int


class SvmlightFile(MatrixFile):
    """A label per line, then ``column:value`` for every entry that is not 0."""

    def arrays(self, target: str | None, n_features: int | None, dtype: Any) -> tuple[Rows, Array | None]:
        X, y = self._load(n_features=n_features, dtype=dtype)
        return X, None if target is None else y

    def pieces(self, n_features: int | None) -> list[Piece]:
        """The parts of the file, in order. All are read once to count rows and columns."""
        n_bytes, length = os.path.getsize(self.path), _PIECE_BYTES
        starts: Sequence[int] = range(0, n_bytes, length)
        if is_compressed(self.path):
            starts, length = [0], -1  # the size is unknown, and only the start can be found
        counts, low, high = [], 1, 0
        for start in starts:
            X, _ = self._load(offset=start, length=length, n_features=_MAX_FEATURES, zero_based=True)
            counts.append(X.shape[0])
            if X.nnz:
                low, high = min(low, int(X.indices.min())), max(high, int(X.indices.max()))
        # As for a whole file: columns are counted from 1 unless there is a column 0.
        n_columns = high + (low == 0)
        if n_features is not None and n_columns > n_features:
            raise TableError(f"{self.path} has {n_columns} columns, expected {n_features}")
        return [
            Piece(start, length, count, low == 0, n_features or n_columns)
            for start, count in zip(starts, counts, strict=True)
        ]

    def read_piece(self, piece: Piece, dtype: Any) -> tuple[Rows, Array]:
        """The rows and labels of a part."""
        where = {name: value for name, value in piece._asdict().items() if name != "n_rows"}
        return self._load(**where, dtype=dtype)

    def _load(self, dtype: Any = np.float32, **where: Any) -> tuple[Rows, Array]:
        try:
            with _open_decompressed(self.path) as file:
                X, y = load_svmlight_file(file, dtype=dtype, **where)
        except Exception as problem:
            raise self._explained(problem) from None
        return as_rows(X, dtype), y

    def _explained(self, problem: Exception) -> TableError:
        """The problem and its line, which scikit-learn does not report: the file is read once more to find it."""
        n_before, reason = 0, shortened(problem)
        try:
            with _open_decompressed(self.path) as file:
                while lines := file.readlines(_BLOCK):
                    if (invalid := _first_invalid(lines)) is not None:
                        at, reason = invalid
                        line = shortened(lines[at].decode("utf-8", "backslashreplace").strip(), _SHOWN)
                        return TableError(
                            f"{self.path}, line {n_before + at + 1:,} cannot be read as svmlight: {reason}, in "
                            f"{line!r}. A line is a label and column:value for each entry, columns ascending"
                        )
                    n_before += len(lines)
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as damage:
            reason = f"{shortened(damage)} after line {n_before:,}"
        return TableError(f"{self.path} cannot be read as svmlight: {reason}")


def is_compressed(path: str) -> bool:
    return Path(path).suffix.lower() in (*_OPENERS, *_ONLY_CSV)


def _open_decompressed(path: str) -> Any:
    return _OPENERS.get(Path(path).suffix.lower(), open)(path, "rb")


def _reason(problem: Exception) -> str:
    """NumPy's message, without its advice to load the file in an unsafe way."""
    return "it holds more than plain NumPy arrays" if "pickle" in str(problem) else shortened(problem)


def _native_labels(y: Any) -> Array:
    """Labels in the byte order of this machine, and not of a type that only NumPy knows."""
    if not isinstance(y, np.ndarray) or y.dtype.kind not in "biufUS":
        raise ValueError("labels must be numbers or text")
    if y.dtype.kind == "S":
        return np.char.decode(y, "utf-8", "replace")
    return y.astype(np.float64) if y.dtype.kind == "f" else y.astype(y.dtype.newbyteorder("="))


def _matrix_shape(shape: Any) -> tuple[int, int]:
    """The shape of a matrix, checked since the file may be forged."""
    if not isinstance(shape, np.ndarray) or shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise ValueError("the shape of its matrix is not two integers")
    return int(shape[0]), int(shape[1])


def _first_invalid(lines: list[bytes]) -> tuple[int, str] | None:
    """The position of the first of these lines that cannot be read, and the reason, by bisection."""

    def problem_of(some: list[bytes]) -> str | None:
        try:
            load_svmlight_file(BytesIO(b"".join(some)), n_features=_MAX_FEATURES, zero_based=True)
        except Exception as problem:
            return shortened(problem)
        return None

    first, last, reason = 0, len(lines), problem_of(lines)
    while reason is not None and last - first > 1:
        middle = (first + last) // 2
        if (of_half := problem_of(lines[first:middle])) is not None:
            last, reason = middle, of_half
        else:
            first, reason = middle, problem_of(lines[middle:last])
    return None if reason is None else (first, reason)

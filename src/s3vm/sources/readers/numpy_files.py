"""Files of NumPy arrays: ``.npz`` and ``.npy``."""

from typing import Any

import numpy as np

from s3vm._utils.arrays import as_rows
from s3vm._utils.input_checks import csr
from s3vm._utils.typing import Array, Rows
from s3vm.sources.readers.base import MatrixFile, open_decompressed
from s3vm.sources.readers.errors import TableError, nearest, shortened

__all__ = ["NpyFile", "NpzFile"]


class NpzFile(MatrixFile):
    """The array `X`, or `data`, `indices`, `indptr` and `shape` of a CSR matrix, and the labels, `y`."""

    def arrays(self, target: str | None, n_features: int | None, dtype: Any) -> tuple[Rows, Array | None]:
        y = None
        try:
            with open_decompressed(self.path) as file, np.load(file, allow_pickle=False) as stored:
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
            raise TableError(f"{self.path} has no array {nearest(name, names)}")
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
    """The shape of a matrix, which anyone may have written into the file."""
    if not isinstance(shape, np.ndarray) or shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise ValueError("the shape of its matrix is not two integers")
    return int(shape[0]), int(shape[1])

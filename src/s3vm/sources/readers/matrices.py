"""Files that hold a matrix, whose columns have no names: ``.npz``, ``.npy``, and those of SVMlight and LIBSVM."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from s3vm._utils.arrays import as_rows
from s3vm._utils.input_checks import csr, shortened
from s3vm._utils.typing import Array, Rows
from s3vm.sources.readers.compression import is_compressed, open_decompressed
from s3vm.sources.readers.errors import TableError, nearest

_PIECE_BYTES = 16 << 20  # that are read together in a stream
_BLOCK = 1 << 16  # bytes that are searched together for an invalid line
_MAX_FEATURES = (1 << 31) - 1
_MAX_EMPTY = 1 << 20  # columns of a file that may have fewer entries than columns
_SHOWN = 60  # characters of an invalid line


class Piece(NamedTuple):
    """A part of a file: the lines that begin within some bytes of it, or all of it; `n_rows` is None if unknown."""

    offset: int = 0
    length: int = -1
    n_rows: int | None = None


WHOLE = Piece()


class MatrixFile(ABC):
    """A file that holds a matrix, and perhaps a label for each row. It is read at once unless it is a memory map."""

    def __init__(self, path: str) -> None:
        self.path = path

    @property
    def pieces(self) -> Sequence[Piece]:
        """The parts of the file, in order."""
        return [WHOLE]

    @abstractmethod
    def arrays(
        self, target: str | None, n_features: int | None, dtype: Any, piece: Piece = WHOLE
    ) -> tuple[Rows, Array | None]:
        """The rows, which must have `n_features` columns unless it is None, and the labels if there is a `target`."""

    def checked(self, X: Any, n_features: int | None) -> Any:
        """The matrix, if it holds numbers and has `n_features` columns."""
        if X.ndim != 2 or X.dtype.kind not in "fiub":
            raise TableError(f"{self.path}: X must be a matrix of numbers, not {X.dtype} of shape {X.shape}")
        if not X.shape[1]:
            raise TableError(f"{self.path}: X has no columns")
        if n_features is not None and X.shape[1] != n_features:
            raise TableError(f"{self.path} has {X.shape[1]} columns, expected {n_features}")
        if n_features is None and sparse.issparse(X):
            _check_width(self.path, X.shape[1], X.nnz)
        return X

    @property
    def n_columns(self) -> int:
        """The number of columns of the matrix."""
        return int(self.arrays(None, None, np.float32)[0].shape[1])


class NpzFile(MatrixFile):
    """The array `X`, or `data`, `indices`, `indptr` and `shape` of a CSR matrix, and the labels, `y`."""

    def arrays(
        self, target: str | None, n_features: int | None, dtype: Any, piece: Piece = WHOLE
    ) -> tuple[Rows, Array | None]:
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
            raise TableError(f"{self.path} has no array {nearest([name], names)}")
        return name


class NpyFile(MatrixFile):
    """One array of rows without labels; it stays on the disk."""

    def arrays(
        self, target: str | None, n_features: int | None, dtype: Any, piece: Piece = WHOLE
    ) -> tuple[Rows, Array | None]:
        if target is not None:
            raise TableError(f"{self.path} has no labels, as an .npy file holds one array: use it as unlabelled rows")
        try:
            X = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except Exception as problem:
            raise TableError(f"{self.path} cannot be read as npy: {_reason(problem)}") from None
        return self.checked(X, n_features), None


class SvmlightFile(MatrixFile):
    """A label per line, then ``column:value`` for every entry that is not 0."""

    zero_based = False  # whether columns are counted from 0; settled for all files of a data set by `settle_columns`
    _what: dict[str, Any] | None = None

    def arrays(
        self, target: str | None, n_features: int | None, dtype: Any, piece: Piece = WHOLE
    ) -> tuple[Rows, Array | None]:
        X, y = self._load(piece, dtype)
        shape = X.shape[0], self.n_columns if n_features is None else n_features
        try:
            return csr(X.data.copy(), X.indices - (not self.zero_based), X.indptr, shape), None if target is None else y
        except ValueError as problem:  # the file has changed
            raise self._explained(problem) from None

    @cached_property
    def pieces(self) -> list[Piece]:
        """The parts of the file. All are read once to count rows and columns."""
        n_bytes, length = os.path.getsize(self.path), _PIECE_BYTES
        starts: Sequence[int] = range(0, n_bytes, length)
        if is_compressed(self.path):
            starts, length = [0], -1  # the size is unknown, and only the start can be found
        pieces, self._lowest, self._highest, self._n_entries = [], 1, 0, 0
        for start in starts:
            X, _ = self._load(Piece(start, length))
            pieces.append(Piece(start, length, X.shape[0]))
            self._lowest = int(X.indices.min(initial=self._lowest))
            self._highest = int(X.indices.max(initial=self._highest))
            self._n_entries += X.nnz
        return pieces

    @property
    def has_column_0(self) -> bool:
        return bool(self.pieces) and self._lowest == 0

    @property
    def highest(self) -> int:
        """The largest column number in the file."""
        return self._highest if self.pieces else 0

    @property
    def n_columns(self) -> int:
        n_columns = self.highest + self.zero_based
        _check_width(self.path, n_columns, self._n_entries)
        return n_columns

    def _load(self, piece: Piece, dtype: Any = np.float32) -> tuple[Rows, Array]:
        """The rows of a piece, and their labels. The last one is kept, so that a file of one piece is read once."""
        what = {"offset": piece.offset, "length": piece.length, "dtype": dtype}
        if what != self._what:
            try:
                with open_decompressed(self.path) as file:
                    X, y = load_svmlight_file(file, n_features=_MAX_FEATURES, zero_based=True, **what)
            except Exception as problem:
                raise self._explained(problem) from None
            self._what, self._last = what, (as_rows(X, dtype), y)
        return self._last

    def _explained(self, problem: Exception) -> TableError:
        """The problem and its line, which scikit-learn does not report: the file is read once more to find it."""
        n_before, reason = 0, shortened(problem)
        try:
            with open_decompressed(self.path) as file:
                while lines := file.readlines(_BLOCK):
                    for number, line in enumerate(lines if _problem_of(lines) else [], n_before + 1):
                        if (of_line := _problem_of([line])) is not None:
                            text = shortened(line.decode("utf-8", "backslashreplace").strip(), _SHOWN)
                            return TableError(
                                f"{self.path}, line {number:,} cannot be read as svmlight: {of_line}, in {text!r}. "
                                "A line is a label and column:value for each entry, columns ascending"
                            )
                    n_before += len(lines)
        except Exception as damage:
            reason = f"{shortened(damage)} after line {n_before:,}"
        return TableError(f"{self.path} cannot be read as svmlight: {reason}")


def settle_columns(files: Sequence[MatrixFile], zero_based: bool | None, n_features: int | None) -> int | None:
    """Settles how columns are counted in the svmlight files of one data set, and returns how many columns there are.

    Columns are counted from 0 if any file has a column 0, else from 1, as usual; a TableError if a known number of
    columns leaves that in doubt. None if other files say themselves how many columns they have.
    """
    svmlight = [file for file in files if isinstance(file, SvmlightFile)]
    others = [file for file in files if not isinstance(file, SvmlightFile)]
    if n_features is None and others and len(files) > 1:
        n_features = others[0].n_columns
    if svmlight and zero_based is None:
        zero_based = any(file.has_column_0 for file in svmlight)
        highest = max(file.highest for file in svmlight)
        if n_features is not None and not zero_based and highest < n_features:
            raise TableError(
                f"{svmlight[0].path} has columns up to {highest:,} of {n_features:,}, and none is 0: are they counted "
                "from 0 or from 1? Give zero_based=True or False (--zero-based or --one-based)"
            )
    for file in svmlight:
        file.zero_based = bool(zero_based)
        if file.has_column_0 and not zero_based:
            raise TableError(
                f"{file.path} has a column 0, but columns are counted from 1 here or where the model was trained: "
                "give zero_based=True (--zero-based), when the model is trained, too"
            )
        n_columns = file.highest + file.zero_based
        if n_features is not None and n_columns > n_features:
            raise TableError(f"{file.path} has {n_columns} columns, expected {n_features}")
    if n_features is None and svmlight:
        return max(1, *(file.n_columns for file in svmlight))
    return n_features


def _check_width(path: str, n_columns: int, n_entries: int) -> None:
    """Raises a TableError if almost all columns are empty: a single wrong entry could take any amount of memory."""
    if n_columns > max(_MAX_EMPTY, n_entries):
        raise TableError(
            f"{path} has {n_columns:,} columns, but only {n_entries:,} entries: if that is right, give "
            f"features={n_columns} (--features {n_columns})"
        )


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


def _problem_of(lines: list[bytes]) -> str | None:
    """Why these lines cannot be read; None if they can."""
    try:
        load_svmlight_file(BytesIO(b"".join(lines)), n_features=_MAX_FEATURES, zero_based=True)
    except Exception as problem:
        return shortened(problem)
    return None

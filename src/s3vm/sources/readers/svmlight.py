"""Files in the format of SVMlight and LIBSVM."""

import lzma
import os
import zlib
from collections.abc import Sequence
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_svmlight_file

from s3vm._utils.arrays import as_rows
from s3vm._utils.typing import Array, Rows
from s3vm.sources.readers.base import MatrixFile, is_compressed, open_decompressed
from s3vm.sources.readers.errors import TableError, shortened

__all__ = ["Piece", "SvmlightFile"]

_PIECE_BYTES = 16 << 20  # that are read together in a stream
_BLOCK = 1 << 20  # bytes that are searched together for an invalid line
_MAX_FEATURES = (1 << 31) - 1
_SHOWN = 60  # characters of an invalid line


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
            with open_decompressed(self.path) as file:
                X, y = load_svmlight_file(file, dtype=dtype, **where)
        except Exception as problem:
            raise self._explained(problem) from None
        return as_rows(X, dtype), y

    def _explained(self, problem: Exception) -> TableError:
        """The problem and its line, which scikit-learn does not tell: the file is read once more to find it."""
        n_before, reason = 0, shortened(problem)
        try:
            with open_decompressed(self.path) as file:
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

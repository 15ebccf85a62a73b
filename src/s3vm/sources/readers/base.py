"""What a file format provides: columns that have names and types, or a matrix.

The libraries that parse files raise whatever they like for a file that is damaged or forged: errors of compression, of
arithmetic, of Python's own parser. Each format turns all of them into a TableError.
"""

import bz2
import gzip
import lzma
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from s3vm._utils.typing import Array, Rows
from s3vm.sources.readers.errors import TableError, listed, shortened

__all__ = [
    "MatrixFile",
    "TabularFile",
    "cast_numbers",
    "check_unique",
    "is_compressed",
    "is_utf8",
    "open_decompressed",
    "quoted_value",
]

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_ONLY_CSV = (".zst", ".lz4")  # pyarrow reads these, but only for csv


class TabularFile(ABC):
    """A file of any size whose columns have names and types."""

    path: str
    types: dict[str, pa.DataType]  # as far as the start of the file tells
    groups: Sequence[int | None]  # rows in each part that can be read alone; None if only reading them tells

    @abstractmethod
    def __init__(self, path: str) -> None: ...

    @abstractmethod
    def example(self, name: str) -> str:
        """A value of that column, in quotes, and where it is."""

    @abstractmethod
    def batches(
        self, numbers: Sequence[str], others: Sequence[str], dtype: Any, group: int
    ) -> Iterator[dict[str, pa.Array]]:
        """These columns of a group, some rows at a time: the numbers cast to that dtype, the others as they are."""

    def check_numbers(self, names: Sequence[str]) -> None:
        """Raises a TableError if any of these columns does not hold numbers."""
        wrong = [name for name in names if not _is_number(self.types[name])]
        if wrong:
            examples = [f"{name!r} ({self.example(name)})" for name in wrong]
            raise TableError(
                f"{self.path}: text or dates, not numbers, in column {listed(examples)}: encode them as numbers, or "
                f"drop {shortened(','.join(wrong))}"
            )

    def check_labels(self, names: Sequence[str]) -> None:
        """Raises a TableError if any of these columns holds neither text nor numbers, such as lists or times."""
        for name in names:
            if not _is_label(self.types[name]):
                raise TableError(
                    f"{self.path}: column {shortened(repr(name))} holds {shortened(self.types[name])}, where text or "
                    "numbers are needed: give another column, or write it as text"
                )


class MatrixFile(ABC):
    """A file that holds a matrix, and perhaps a label for each row. It is read at once unless it is a memory map."""

    path: str

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


def is_compressed(path: str) -> bool:
    """Whether the name ends like that of a compressed file."""
    return Path(path).suffix.lower() in (*_OPENERS, *_ONLY_CSV)


def open_decompressed(path: str) -> Any:
    """The bytes of a file, decompressed if it is compressed."""
    return _OPENERS.get(Path(path).suffix.lower(), open)(path, "rb")


def check_unique(path: str, names: Sequence[str]) -> None:
    """Raises a TableError if two columns have the same name."""
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise TableError(f"{path} has several columns named {listed(list(map(repr, repeated)))}: rename them")


def quoted_value(values: Iterable[Any]) -> str:
    """The first value that is not missing, in quotes."""
    return repr(str(next((value for value in values if value is not None), ""))[:30])


def cast_numbers(batch: pa.RecordBatch, numbers: Sequence[str], number: pa.DataType) -> dict[str, pa.Array]:
    """The columns of a batch by name, `numbers` cast to the type `number`."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return columns | {name: columns[name].cast(number, safe=False) for name in numbers}


def is_utf8(raw: bytes) -> bool:
    """Whether these bytes are UTF-8."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_number(kind: pa.DataType) -> bool:
    """Whether a column of that type can be read as numbers; one that is empty at the start may be."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return any(test(kind) for test in tests)


def _is_label(kind: pa.DataType) -> bool:
    """Whether a column of that type can be read as labels: text, numbers, or days."""
    if pa.types.is_dictionary(kind):
        return _is_label(kind.value_type)
    return _is_number(kind) or pa.types.is_date(kind) or kind in (pa.string(), pa.large_string())

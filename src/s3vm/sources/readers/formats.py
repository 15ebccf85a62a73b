"""The kinds of files, one class each. They know columns and types, and nothing of features and labels.

The readers that they call belong to others, and raise what they like at a file that is damaged or forged: errors of
compression, of arithmetic, of Python's own parser. Whatever it is becomes a TableError.
"""

import bz2
import codecs
import gzip
import os
import re
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from sklearn.datasets import load_svmlight_file

from s3vm._utils.arrays import as_rows
from s3vm._utils.csr import csr
from s3vm._utils.typing import Array, Rows
from s3vm.sources.readers.errors import TableError, listed, nearest, shortened

__all__ = ["Named", "Npy", "Npz", "Svmlight", "Unnamed", "files_of", "is_text", "kind_of"]

_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_SEPARATORS = (",", ";", "\t")
_BLOCK = 1 << 20  # bytes of a csv file that are parsed together
_LINES = 100  # or as many lines, if they are long
_ROWS = 1 << 14  # rows of a parquet file that are read together
_PAGE = 1 << 16  # bytes
_WHOLE = 64 << 20  # bytes of a group of rows of a parquet file up to which it is decoded at once, which is faster
_PIECE = 16 << 20  # bytes of an svmlight file that are read together in a stream
_MOST_FEATURES = (1 << 31) - 1
_MOST_LINE = 1 << 20  # bytes of names in the first line of a csv file
_SHOWN = 60  # characters of a line that cannot be read


class Named(ABC):
    """A file whose columns have names and types, of any size."""

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
        """Some rows of these columns of a group at a time: the numbers in that precision, the others as they are."""

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


class Unnamed(ABC):
    """A file that holds a matrix, and perhaps a label for each row; what is not a memory map is read at once."""

    path: str

    def __init__(self, path: str) -> None:
        self.path = path

    @abstractmethod
    def arrays(self, target: str | None, n_features: int | None, dtype: Any) -> tuple[Rows, Array | None]:
        """The rows, and the labels if there is a `target`; `n_features` is how many columns there must be."""

    def checked(self, X: Any, n_features: int | None) -> Any:
        """The matrix, if it is one of numbers with so many columns."""
        if X.ndim != 2 or X.dtype.kind not in "fiub":
            raise TableError(f"{self.path}: X must be a matrix of numbers, not {X.dtype} of shape {X.shape}")
        if not X.shape[1]:
            raise TableError(f"{self.path}: X has no columns")
        if n_features is not None and X.shape[1] != n_features:
            raise TableError(f"{self.path} has {X.shape[1]} columns, {n_features} are needed")
        return X


class Csv(Named):
    """Text with names in the first line, and the separator that this line has most of: comma, semicolon or tab."""

    groups = (None,)  # a line in the middle cannot be found without reading those before it

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with pa.input_stream(path, compression="detect") as file:
                start = file.read(_MOST_LINE)
        except (ValueError, OSError) as problem:
            raise TableError(f"{path} cannot be read as csv: {problem}") from None
        if not start.strip():
            raise TableError(f"{path} is empty")
        line = start.split(b"\n", 1)[0]
        if b"\0" in line or line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise TableError(f"{path} is not UTF-8, but UTF-16, as it seems: save the file as UTF-8")
        if len(line) == _MOST_LINE:
            raise TableError(f"{path}, line 1 is longer than {_MOST_LINE:,} bytes, too long for names of columns")
        if not is_text(line):
            raise TableError(f"{path}, line 1, the names of the columns, is not UTF-8: save the file as UTF-8")
        self._separator = max(_SEPARATORS, key=lambda mark: line.count(mark.encode()))
        self._block = max(_BLOCK, _LINES * len(line))
        self.types = {}
        guess = pa_csv.ConvertOptions()
        try:
            reader = self._open(guess)
            names = reader.schema.names
            self._start = next(iter(reader), None)
        except Exception as problem:
            raise self._reason(problem, guess) from None
        _different(path, names)
        if all(re.fullmatch(r"[-+.\deE]+", name) for name in names):
            raise TableError(f"{path} begins with numbers: its first line must hold the names of the columns")
        self.types = dict(zip(names, reader.schema.types, strict=True))
        binary = [name for name, kind in self.types.items() if pa.types.is_binary(kind)]
        if binary:
            raise TableError(f"{path}: column {shortened(repr(binary[0]))} is not UTF-8: save the file as UTF-8")

    def example(self, name: str) -> str:
        values = [] if self._start is None else self._start[name].to_pylist()
        for number, value in enumerate(values):
            if isinstance(value, str) and value.strip() and not _reads_as_number(value):
                return f"{value[:30]!r} in line {number + 2}"  # at least: a row may have several
        return repr(str(next((value for value in values if value is not None), ""))[:30])

    def batches(
        self, numbers: Sequence[str], others: Sequence[str], dtype: Any, group: int
    ) -> Iterator[dict[str, pa.Array]]:
        number = pa.from_numpy_dtype(dtype)
        types = {name: pa.bool_() if pa.types.is_boolean(self.types[name]) else number for name in numbers}
        options = pa_csv.ConvertOptions(
            column_types=types | dict.fromkeys(others, pa.string()), include_columns=[*numbers, *others]
        )
        try:
            for batch in self._open(options):
                yield _cast(batch, numbers, number)
        except Exception as problem:
            raise self._reason(problem, options) from None

    def _open(self, options: pa_csv.ConvertOptions, use_threads: bool = True) -> pa_csv.CSVStreamingReader:
        return pa_csv.open_csv(
            self.path,
            pa_csv.ReadOptions(block_size=self._block, use_threads=use_threads),
            pa_csv.ParseOptions(delimiter=self._separator, newlines_in_values=True),
            options,
        )

    def _reason(self, problem: Exception, options: pa_csv.ConvertOptions) -> TableError:
        """The problem in words. Several threads do not know the line: it is found by a second look."""
        try:
            for _ in self._open(options, use_threads=False):
                pass
        except Exception as again:
            problem = again
        text = shortened(str(problem), 300)
        line = re.search(r"Row #(\d+)", text)
        where = f"{self.path}, line {int(line[1]):,}" if line else self.path
        if ragged := re.search(r"Expected (\d+) columns, got (\d+)", text):
            return TableError(f"{where}: {ragged[2]} values, where the first line has {ragged[1]} names")
        if wrong := re.search(r"In CSV column #(\d+).*invalid value (.*)", text, re.DOTALL):
            names = [shortened(repr(name)) for name in self.types]
            name = names[int(wrong[1])] if names else wrong[1]
            return TableError(f"{where}: {wrong[2]} in column {name} is not a number")
        if "invalid UTF8" in text:
            return TableError(f"{where} is not UTF-8: save the file as UTF-8")
        return TableError(f"{where} cannot be read as csv: {text}")


class Parquet(Named):
    """Apache Parquet."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with self._file() as file:
                names, types = file.schema_arrow.names, file.schema_arrow.types
                self.groups = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
        except Exception as problem:
            raise self._broken(problem) from None
        _different(path, names)
        self.types = dict(zip(names, types, strict=True))

    def example(self, name: str) -> str:
        with self._open() as file:
            try:
                values = next(file.iter_batches(_ROWS, columns=[name]))[name].to_pylist()
            except Exception:
                values = []
        return repr(str(next((value for value in values if value is not None), ""))[:30])

    def batches(
        self, numbers: Sequence[str], others: Sequence[str], dtype: Any, group: int
    ) -> Iterator[dict[str, pa.Array]]:
        columns = [*numbers, *others]
        with self._open() as file:
            try:
                if (self.groups[group] or 0) * 8 * len(columns) <= _WHOLE:
                    batches = iter(file.read_row_group(group, columns).to_batches(_ROWS))
                else:
                    batches = file.iter_batches(_ROWS, row_groups=[group], columns=columns)
                for batch in batches:
                    batch.validate(full=True)  # text that is none, places that are not there
                    yield _cast(batch, numbers, pa.from_numpy_dtype(dtype))
            except Exception as problem:
                rows = sum(n_rows or 0 for n_rows in self.groups[:group])
                raise TableError(
                    f"{self.path}: row group {group + 1:,} of {len(self.groups):,}, from row {rows + 1:,} on, is "
                    f"damaged ({shortened(problem)}): write the file again, or leave it out"
                ) from None

    def _open(self) -> pq.ParquetFile:
        try:
            return self._file()
        except Exception as problem:
            raise self._broken(problem) from None

    def _file(self) -> pq.ParquetFile:
        # Pages are read as they are needed: a group of rows may be as large as the file.
        return pq.ParquetFile(self.path, pre_buffer=False, buffer_size=_PAGE)

    def _broken(self, problem: Exception) -> TableError:
        return TableError(f"{self.path} is not a parquet file, or damaged: {shortened(problem)}")


class Svmlight(Unnamed):
    """The format of SVMlight and LIBSVM: a label, then ``column:value`` for every entry that is not 0."""

    def arrays(self, target: str | None, n_features: int | None, dtype: Any) -> tuple[Rows, Array | None]:
        X, y = self._load(n_features=n_features, dtype=dtype)
        return X, None if target is None else y

    def pieces(self, n_features: int | None) -> list[dict[str, Any]]:
        """What `piece` takes for each part of the file, in order, and its rows; reading them once tells the columns."""
        n_bytes, length = os.path.getsize(self.path), _PIECE
        starts: Sequence[int] = range(0, n_bytes, length)
        if _is_compressed(self.path):
            starts, length = [0], -1  # nobody knows how long it is, and only its start can be found
        found, low, high = [], 1, 0
        for start in starts:
            X, _ = self._load(offset=start, length=length, n_features=_MOST_FEATURES, zero_based=True)
            found.append({"offset": start, "length": length, "rows": X.shape[0]})
            if X.nnz:
                low, high = min(low, int(X.indices.min())), max(high, int(X.indices.max()))
        # As for a whole file: columns are counted from 1 unless there is a column 0.
        n_there = high + (low == 0)
        if n_features is not None and n_there > n_features:
            raise TableError(f"{self.path} has {n_there} columns, {n_features} are needed")
        return [piece | {"zero_based": low == 0, "n_features": n_features or n_there} for piece in found]

    def piece(self, where: dict[str, Any], dtype: Any) -> tuple[Rows, Array]:
        """The rows and labels of a part."""
        return self._load(**{name: value for name, value in where.items() if name != "rows"}, dtype=dtype)

    def _load(self, dtype: Any = np.float32, **where: Any) -> tuple[Rows, Array]:
        try:
            X, y = load_svmlight_file(self.path, dtype=dtype, **where)
        except Exception as problem:
            raise self._reason(problem) from None
        return as_rows(X, dtype), y

    def _reason(self, problem: Exception) -> TableError:
        """The problem in words. The reader does not know the line: it is found by a second look."""
        n_before, words = 0, shortened(problem)
        try:
            with _decompressed(self.path) as file:
                while lines := file.readlines(_BLOCK):
                    if (found := _first_bad(lines)) is not None:
                        at, reason = found
                        shown = shortened(lines[at].decode("utf-8", "backslashreplace").strip(), _SHOWN)
                        return TableError(
                            f"{self.path}, line {n_before + at + 1:,} cannot be read as svmlight: {reason}, in "
                            f"{shown!r}. A line is a label and column:value for each entry, columns ascending"
                        )
                    n_before += len(lines)
        except (EOFError, OSError, zlib.error) as damage:
            words = f"{shortened(damage)} after line {n_before:,}"
        return TableError(f"{self.path} cannot be read as svmlight: {words}")


class Npz(Unnamed):
    """NumPy arrays: `X`, or `data`, `indices`, `indptr` and `shape` of a CSR matrix, and the labels, `y`."""

    def arrays(self, target: str | None, n_features: int | None, dtype: Any) -> tuple[Rows, Array | None]:
        y = None
        try:
            with np.load(self.path, allow_pickle=False) as stored:
                if "data" in stored:
                    parts = (stored["data"], stored["indices"], stored["indptr"])
                    X = csr(*parts, _two_numbers(stored["shape"]))
                else:
                    X = stored[self._there("X", stored.files)]
                if target is not None:
                    y = _plain_labels(stored[self._there(target, stored.files)])
        except TableError:
            raise
        except Exception as problem:
            raise TableError(f"{self.path} cannot be read as npz: {_numpy_said(problem)}") from None
        self.checked(X, n_features)
        if y is not None and y.shape != (X.shape[0],):
            raise TableError(f"{self.path}: {target} has the shape {y.shape}, where X has {X.shape[0]} rows")
        return as_rows(X, dtype), y

    def _there(self, name: str, names: list[str]) -> str:
        if name not in names:
            raise TableError(f"{self.path} has no array {nearest(name, names)}")
        return name


class Npy(Unnamed):
    """One NumPy array, a row of it for each row; it stays on the disk, and has no labels."""

    def arrays(self, target: str | None, n_features: int | None, dtype: Any) -> tuple[Rows, Array | None]:
        if target is not None:
            raise TableError(
                f"{self.path} has no labels: an .npy file holds one array. Give its rows as unlabelled ones"
            )
        try:
            X = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except Exception as problem:
            raise TableError(f"{self.path} cannot be read as npy: {_numpy_said(problem)}") from None
        return self.checked(X, n_features), None


def _numpy_said(problem: Exception) -> str:
    """What NumPy said, but for its advice to load the file in an unsafe way."""
    return "it is no file of plain NumPy arrays" if "pickle" in str(problem) else shortened(problem)


_KINDS: dict[str, type[Named] | type[Unnamed]] = {
    ".csv": Csv,
    ".tsv": Csv,
    ".parquet": Parquet,
    ".pq": Parquet,
    ".svmlight": Svmlight,
    ".libsvm": Svmlight,
    ".svm": Svmlight,
    ".npz": Npz,
    ".npy": Npy,
}


def files_of(path: str) -> list[str]:
    """The file itself; or all files of a known kind in a folder and below, in the order of their names.

    Names that begin with a dot or an underscore are left out: other programs keep notes of their own there.
    """
    if not path:
        raise TableError("the name of the file is empty: give the name of a file or folder")
    if not Path(path).is_dir():
        return [path]
    inside = [file.relative_to(path) for file in Path(path).rglob("*") if file.is_file()]
    shown = [file for file in inside if not any(part.startswith((".", "_")) for part in file.parts)]
    found = [str(Path(path, file)) for file in sorted(shown) if _suffix(str(file)) in _KINDS]
    if not found:
        raise TableError(f"{path} is a folder without a file of a known kind ({', '.join(_KINDS)})")
    return found


def _is_compressed(path: str) -> bool:
    return len(Path(path).suffixes) > 1 and Path(path).suffix.lower() in _COMPRESSED


def _suffix(path: str) -> str:
    """The end of the name that says the kind, which stands before that of a compression."""
    return Path(Path(path).stem if _is_compressed(path) else path).suffix.lower()


def kind_of(path: str) -> type[Named] | type[Unnamed]:
    """How to read a file, by the end of its name."""
    if not os.path.exists(path):
        raise TableError(f"{path}: there is no such file or folder")
    if _suffix(path) not in _KINDS:
        raise TableError(f"{path} is of no known kind: its name must end in {', '.join(_KINDS)} (or .csv.gz)")
    if not Path(path).is_file():
        raise TableError(f"{path} is neither a file nor a folder: copy what it gives into a file")
    kind = _KINDS[_suffix(path)]
    if issubclass(kind, Named) and not is_text(os.fsencode(path)):  # Arrow takes no other names
        raise TableError(f"{path!r}: the name of the file is not UTF-8: rename it")
    return kind


def is_text(raw: bytes) -> bool:
    """Whether these bytes are UTF-8."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
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


def _plain_labels(y: Any) -> Array:
    """Labels as this machine has them, and not of a type that only NumPy knows."""
    if not isinstance(y, np.ndarray) or y.dtype.kind not in "biufUS":
        raise ValueError("labels must be numbers or text")
    if y.dtype.kind == "S":
        return np.char.decode(y, "utf-8", "replace")
    return y.astype(np.float64) if y.dtype.kind == "f" else y.astype(y.dtype.newbyteorder("="))


def _two_numbers(shape: Any) -> tuple[int, int]:
    """The shape of a matrix, which somebody has written into a file."""
    if not isinstance(shape, np.ndarray) or shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise ValueError("the shape of its matrix is not two whole numbers")
    return int(shape[0]), int(shape[1])


def _different(path: str, names: Sequence[str]) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise TableError(f"{path} has several columns named {listed(list(map(repr, twice)))}: rename them")


def _decompressed(path: str) -> Any:
    """A file as scikit-learn's reader of svmlight opens it."""
    if path.endswith(".gz"):
        return gzip.open(path, "rb")
    return bz2.open(path, "rb") if path.endswith(".bz2") else open(path, "rb")


def _first_bad(lines: list[bytes]) -> tuple[int, str] | None:
    """The place of the first of these lines that cannot be read as svmlight, and the reason; halves are tried."""

    def problem(some: list[bytes]) -> str | None:
        try:
            load_svmlight_file(BytesIO(b"".join(some)), n_features=_MOST_FEATURES, zero_based=True)
        except Exception as raised:
            return shortened(raised)
        return None

    first, last, reason = 0, len(lines), problem(lines)
    while reason is not None and last - first > 1:
        middle = (first + last) // 2
        if (of_half := problem(lines[first:middle])) is not None:
            last, reason = middle, of_half
        else:
            first, reason = middle, problem(lines[middle:last])
    return None if reason is None else (first, reason)


def _cast(batch: pa.RecordBatch, numbers: Sequence[str], number: pa.DataType) -> dict[str, pa.Array]:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return columns | {name: columns[name].cast(number, safe=False) for name in numbers}

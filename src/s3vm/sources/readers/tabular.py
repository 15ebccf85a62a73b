"""Files whose columns have names and types: csv, Parquet and JSON lines.

The libraries that parse files raise whatever they like for a file that is damaged or forged: errors of compression, of
arithmetic, of Python's own parser. Each format turns all of them into a TableError.
"""

import codecs
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from s3vm._utils.input_checks import shortened
from s3vm.sources.readers.compression import is_compressed, open_decompressed
from s3vm.sources.readers.errors import MAX_LISTED, TableError, listed

_SEPARATORS, _QUOTED = (",", ";", "\t"), re.compile(rb'"[^"]*"')
_PACKED = (b"\x1f\x8b", b"BZh91AY", b"\xfd7zXZ", b"PK\x03\x04")  # first bytes of gzip, bz2, xz and zip
_BLOCK_BYTES = 1 << 20  # that are parsed together
_BLOCK_LINES = 100  # or as many lines, if they are long
_MAX_HEADER = 1 << 20  # bytes of the first line
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")

_PARQUET_ROWS = 1 << 14  # rows that are read together
_PAGE_BYTES = 1 << 16
_WHOLE_BYTES = 64 << 20  # a smaller row group is decoded at once, which is faster

_MOST_JSON = (1 << 31) - 1  # bytes that Arrow parses together

_Arrays = dict[str, pa.Array]  # by the names of columns


class TabularFile(ABC):
    """A file of any size whose columns have names and types."""

    path: str
    types: dict[str, pa.DataType]  # as far as the start of the file tells
    groups: Sequence[int | None]  # rows in each part that can be read alone; None if only reading them tells
    unit, first = "row", 1  # what errors count, and the number of the first

    def __init__(self, path: str) -> None:
        self.path = path
        schema = self.schema()
        repeated = sorted(name for name, count in Counter(schema.names).items() if count > 1)
        if repeated:
            raise TableError(f"{path} has several columns named {listed(list(map(repr, repeated)))}: rename them")
        self.types = dict(zip(schema.names, schema.types, strict=True))

    @abstractmethod
    def schema(self) -> pa.Schema:
        """The names and types of the columns. Sets `groups`."""

    @abstractmethod
    def batches(self, numbers: Sequence[str], others: Sequence[str], dtype: Any, group: int) -> Iterator[_Arrays]:
        """These columns of a group, some rows at a time: the numbers cast to that dtype, the others as they are."""

    def check_numbers(self, names: Sequence[str]) -> None:
        """Raises a TableError if any of these columns does not hold numbers."""
        wrong = [name for name in names if not _is_number(self.types[name])]
        if wrong:
            examples = [f"{name!r} ({self._example(name)})" for name in wrong[:MAX_LISTED]]
            raise TableError(
                f"{self.path}: text or dates, not numbers, in column {listed(examples + wrong[MAX_LISTED:])}: give an "
                f"encoder (FileSource(..., encoder=TableEncoder())), or drop {shortened(','.join(wrong))}"
            )

    def _example(self, name: str) -> str:
        """A value of that column that is not a number, and where it is."""
        with suppress(TableError, StopIteration):
            for number, value in enumerate(next(self.batches([], [name], None, 0))[name].to_pylist()):
                text = "" if value is None else str(value)
                if text.strip() and not _NUMBER.fullmatch(text.strip()):
                    return f"{text[:30]!r} in {self.unit} {number + self.first}"
        return "''"

    def check_labels(self, names: Sequence[str]) -> None:
        """Raises a TableError if any of these columns holds neither text nor numbers, such as lists or times."""
        for name in names:
            if not _is_label(self.types[name]):
                raise TableError(
                    f"{self.path}: column {shortened(repr(name))} holds {shortened(self.types[name])}, where text or "
                    "numbers are needed: give another column, or write it as text"
                )


class CsvFile(TabularFile):
    """Text with column names in the first line, separated by whichever it has most of: commas, semicolons or tabs."""

    unit, first = "line", 2
    groups = (None,)  # a line in the middle cannot be found without reading those before it

    def schema(self) -> pa.Schema:
        line = self._first_line()
        self._separator = max(_SEPARATORS, key=lambda separator: _QUOTED.sub(b"", line).count(separator.encode()))
        self._block = max(_BLOCK_BYTES, _BLOCK_LINES * len(line))
        self.types = {}  # for errors until they are known
        guess = pa_csv.ConvertOptions()
        try:
            schema = self._open(guess).schema
        except Exception as problem:
            raise self._explained(problem, guess) from None
        if all(map(_NUMBER.fullmatch, schema.names)):
            raise TableError(f"{self.path} begins with numbers: its first line must hold the column names")
        binary = [field.name for field in schema if pa.types.is_binary(field.type)]
        if binary:
            raise TableError(f"{self.path}: column {shortened(repr(binary[0]))} is not UTF-8: save the file as UTF-8")
        return schema

    def _first_line(self) -> bytes:
        """The first line, if it can hold the names of columns."""
        try:
            with open_decompressed(self.path) as file:
                start = file.read(_MAX_HEADER)
        except Exception as problem:
            raise TableError(f"{self.path} cannot be read as csv: {problem}") from None
        if not start.strip():
            raise TableError(f"{self.path} is empty")
        if start.startswith(_PACKED):
            raise TableError(f"{self.path} is compressed, or a workbook: end its name in .gz, .bz2 or .xz, or save csv")
        line: bytes = start.split(b"\n", 1)[0]
        if b"\0" in line or line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise TableError(f"{self.path} is not UTF-8 but probably UTF-16: save the file as UTF-8")
        if len(line) == _MAX_HEADER:
            raise TableError(f"{self.path}, line 1 is longer than {_MAX_HEADER:,} bytes, too long for column names")
        if not is_utf8(line):
            raise TableError(f"{self.path}, line 1 (the column names) is not UTF-8: save the file as UTF-8")
        return line

    def batches(self, numbers: Sequence[str], others: Sequence[str], dtype: Any, group: int) -> Iterator[_Arrays]:
        number = pa.from_numpy_dtype(dtype)
        types = {name: pa.bool_() if pa.types.is_boolean(self.types[name]) else number for name in numbers}
        options = pa_csv.ConvertOptions(
            column_types=types | dict.fromkeys(others, pa.string()),
            include_columns=[*numbers, *others],
            # Without numbers: an empty cell is missing, so that a column of numbers can be parsed at once.
            **({} if numbers else {"null_values": [""], "strings_can_be_null": True}),
        )
        try:
            for batch in self._open(options):
                yield _cast_numbers(batch, numbers, number)
        except Exception as problem:
            raise self._explained(problem, options) from None

    def _open(self, options: pa_csv.ConvertOptions, use_threads: bool = True) -> pa_csv.CSVStreamingReader:
        return pa_csv.open_csv(
            open_decompressed(self.path) if is_compressed(self.path) else self.path,
            pa_csv.ReadOptions(block_size=self._block, use_threads=use_threads),
            pa_csv.ParseOptions(delimiter=self._separator, newlines_in_values=True),
            options,
        )

    def _explained(self, problem: Exception, options: pa_csv.ConvertOptions) -> TableError:
        """The problem and its line, which only a single-threaded read reports: the file is read again to find it."""
        try:
            for _ in self._open(options, use_threads=False):
                pass
        except Exception as again:
            problem = again
        text = shortened(str(problem), 300)
        line = re.search(r"Row #(\d+)", text)
        where = f"{self.path}, line {int(line[1]):,}" if line else self.path
        if ragged := re.search(r"Expected (\d+) columns, got (\d+)", text):
            return TableError(f"{where}: {ragged[2]} values, but the first line has {ragged[1]} columns")
        if wrong := re.search(r"In CSV column #(\d+).*invalid value (.*)", text, re.DOTALL):
            names = [shortened(repr(name)) for name in self.types]
            name = names[int(wrong[1])] if names else wrong[1]
            return TableError(f"{where}: {wrong[2]} in column {name} is not a number")
        if "invalid UTF8" in text:
            return TableError(f"{where} is not UTF-8: save the file as UTF-8")
        return TableError(f"{where} cannot be read as csv: {text}")


class ParquetFile(TabularFile):
    """A parquet file, read by row groups."""

    def schema(self) -> pa.Schema:
        with self._open() as file:
            try:
                self.groups = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
                return file.schema_arrow
            except Exception as problem:
                raise self._broken(problem) from None

    def batches(self, numbers: Sequence[str], others: Sequence[str], dtype: Any, group: int) -> Iterator[_Arrays]:
        columns = [*numbers, *others]
        with self._open() as file:
            try:
                if (self.groups[group] or 0) * 8 * len(columns) <= _WHOLE_BYTES:
                    batches = iter(file.read_row_group(group, columns).to_batches(_PARQUET_ROWS))
                else:
                    batches = file.iter_batches(_PARQUET_ROWS, row_groups=[group], columns=columns)
                for batch in batches:
                    batch.validate(full=True)  # text that is not UTF-8, offsets outside the data
                    yield _cast_numbers(batch, numbers, pa.from_numpy_dtype(dtype))
            except Exception as problem:
                rows = sum(n_rows or 0 for n_rows in self.groups[:group])
                raise TableError(
                    f"{self.path}: row group {group + 1:,} of {len(self.groups):,}, from row {rows + 1:,} on, is "
                    f"damaged ({shortened(problem)}): write the file again, or leave it out"
                ) from None

    def _open(self) -> pq.ParquetFile:
        try:  # pages are read as they are needed: a row group may be as large as the file
            return pq.ParquetFile(self.path, pre_buffer=False, buffer_size=_PAGE_BYTES)
        except Exception as problem:
            raise self._broken(problem) from None

    def _broken(self, problem: Exception) -> TableError:
        return TableError(f"{self.path} is not a parquet file, or is damaged: {shortened(problem)}")


class JsonFile(TabularFile):
    """JSON lines: an object per line, read whole."""

    def schema(self) -> pa.Schema:
        try:
            with open_decompressed(self.path) as file:
                content = file.read()
            options = pa_json.ReadOptions(block_size=min(max(len(content), 1), _MOST_JSON))
            self._table = pa_json.read_json(pa.BufferReader(content), options)
            self._table.validate(full=True)
        except Exception as problem:
            raise TableError(f"{self.path} cannot be read as JSON, one object per line: {shortened(problem)}") from None
        self.groups = [self._table.num_rows]
        return self._table.schema

    def batches(self, numbers: Sequence[str], others: Sequence[str], dtype: Any, group: int) -> Iterator[_Arrays]:
        for batch in self._table.select([*numbers, *others]).to_batches(_PARQUET_ROWS):
            yield _cast_numbers(batch, numbers, pa.from_numpy_dtype(dtype))


def _cast_numbers(batch: pa.RecordBatch, numbers: Sequence[str], number: pa.DataType) -> _Arrays:
    """The columns of a batch by name, `numbers` cast to the type `number`."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return columns | {name: columns[name].cast(number, safe=False) for name in numbers}


def is_utf8(raw: bytes) -> bool:
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

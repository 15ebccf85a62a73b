"""Text files of separated values."""

import codecs
import lzma
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from s3vm.sources.readers.base import TabularFile, cast_numbers, check_unique, is_utf8, quoted_value
from s3vm.sources.readers.errors import TableError, shortened

__all__ = ["CsvFile"]

_SEPARATORS = (",", ";", "\t")
_BLOCK_BYTES = 1 << 20  # that are parsed together
_BLOCK_LINES = 100  # or as many lines, if they are long
_MAX_HEADER = 1 << 20  # bytes of the first line
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


class CsvFile(TabularFile):
    """Text with column names in the first line, separated by whichever it has most of: commas, semicolons or tabs.

    Without a `header`, columns are named f0, f1, ...; with ``header=None``, the first line is one unless there is a
    number in it.
    """

    groups = (None,)  # a line in the middle cannot be found without reading those before it

    def __init__(self, path: str, header: bool | None = True) -> None:
        self.path = path
        line = self._first_line()
        self._separator = max(_SEPARATORS, key=lambda separator: line.count(separator.encode()))
        self._block = max(_BLOCK_BYTES, _BLOCK_LINES * len(line))
        fields = [field.strip() for field in line.decode().split(self._separator)]
        self._has_header = not any(map(_NUMBER.fullmatch, fields)) if header is None else header
        self.types = {}
        guess = pa_csv.ConvertOptions()
        try:
            reader = self._open(guess)
            names = reader.schema.names
            self._start = next(iter(reader), None)
        except Exception as problem:
            raise self._explained(problem, guess) from None
        check_unique(path, names)
        if all(map(_NUMBER.fullmatch, names)):
            raise TableError(f"{path} begins with numbers: its first line must hold the column names")
        self.types = dict(zip(names, reader.schema.types, strict=True))
        binary = [name for name, kind in self.types.items() if pa.types.is_binary(kind)]
        if binary:
            raise TableError(f"{path}: column {shortened(repr(binary[0]))} is not UTF-8: save the file as UTF-8")

    def _first_line(self) -> bytes:
        """The first line, if it can hold the names of columns."""
        try:
            with pa.input_stream(self._source(), compression=None if self._is_xz else "detect") as file:
                start = file.read(_MAX_HEADER)
        except (ValueError, OSError, EOFError, lzma.LZMAError) as problem:
            raise TableError(f"{self.path} cannot be read as csv: {problem}") from None
        if not start.strip():
            raise TableError(f"{self.path} is empty")
        line: bytes = start.split(b"\n", 1)[0]
        if b"\0" in line or line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise TableError(f"{self.path} is not UTF-8 but probably UTF-16: save the file as UTF-8")
        if len(line) == _MAX_HEADER:
            raise TableError(f"{self.path}, line 1 is longer than {_MAX_HEADER:,} bytes, too long for column names")
        if not is_utf8(line):
            raise TableError(f"{self.path}, line 1 (the column names) is not UTF-8: save the file as UTF-8")
        return line

    def example(self, name: str) -> str:
        values = [] if self._start is None else self._start[name].to_pylist()
        for number, value in enumerate(values):
            if isinstance(value, str) and value.strip() and not _reads_as_number(value):
                return f"{value[:30]!r} in line {number + 1 + self._has_header}"  # at least: a row may have several
        return quoted_value(values)

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
                yield cast_numbers(batch, numbers, number)
        except Exception as problem:
            raise self._explained(problem, options) from None

    @property
    def _is_xz(self) -> bool:
        return Path(self.path).suffix.lower() == ".xz"

    def _source(self) -> Any:
        """What pyarrow reads: the path, whose compression it knows, unless that is xz."""
        return lzma.open(self.path) if self._is_xz else self.path

    def _open(self, options: pa_csv.ConvertOptions, use_threads: bool = True) -> pa_csv.CSVStreamingReader:
        return pa_csv.open_csv(
            self._source(),
            pa_csv.ReadOptions(
                block_size=self._block, use_threads=use_threads, autogenerate_column_names=not self._has_header
            ),
            pa_csv.ParseOptions(delimiter=self._separator, newlines_in_values=True),
            options,
        )

    def _explained(self, problem: Exception, options: pa_csv.ConvertOptions) -> TableError:
        """The problem and its line, which only a single thread knows: the file is read once more to find it."""
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


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

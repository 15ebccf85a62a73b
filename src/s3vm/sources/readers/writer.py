"""Tables written a batch at a time."""

import csv
import io
import json
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from s3vm._utils.atomic import replacing
from s3vm.sources.readers.errors import TableError
from s3vm.sources.readers.tabular import is_utf8


class Writer:
    """Writes columns to a csv, parquet or JSON lines file, some rows at a time.

    The file appears once it is complete: if something fails, an existing file stays as it is.

    Parameters
    ----------
    path : str or path
        ``.csv`` (or ``.csv.gz``), ``.parquet``, ``.jsonl``, or ``-``, which is standard output.
    file_format : "csv" or "jsonl", default "csv"
        What goes to standard output.

    Examples
    --------
    >>> with Writer("-") as out:
    ...     out.write({"prediction": ["spam", "ham"], "score": [1.5, -0.25]})
    prediction,score
    spam,1.5
    ham,-0.25
    """

    def __init__(self, path: Any, file_format: str = "csv") -> None:
        self._path = os.fspath(path)
        name = f"-.{file_format}" if self._path == "-" else self._path.lower()
        self._is_csv, self._is_json = name.endswith((".csv", ".csv.gz")), name.endswith((".jsonl", ".ndjson"))
        if not (self._is_csv or self._is_json or name.endswith((".parquet", ".pq"))):
            raise TableError(f"{path} cannot be written: its name must end in .csv, .csv.gz, .jsonl or .parquet")
        if not is_utf8(os.fsencode(self._path)):  # Arrow takes no other names
            raise TableError(f"{self._path!r} cannot be written: the file name is not UTF-8")
        if self._path != "-" and not Path(self._path).resolve().parent.is_dir():
            raise TableError(f"{path} cannot be written: there is no such folder")
        self._sink: Any = None
        self._parquet: pq.ParquetWriter | None = None
        self._has_header = False

    def __enter__(self) -> Self:
        self._open_files = ExitStack()
        if self._path == "-":
            return self
        compression = "gzip" if self._path.lower().endswith(".gz") else None
        try:
            with ExitStack() as stack:
                temporary = stack.enter_context(replacing(self._path))
                self._sink = stack.enter_context(pa.output_stream(str(temporary), compression=compression))
                self._open_files = stack.pop_all()
        except OSError as problem:
            raise TableError(f"{self._path} cannot be written: {problem}") from None
        return self

    def __exit__(self, *exception: Any) -> None:
        try:
            self._open_files.__exit__(*exception)
        except OSError as problem:
            if exception[0] is None:  # an error of the block matters more
                raise self._failed(problem) from None

    def _failed(self, problem: Exception) -> TableError:
        what = f"{self._path} could not be written; any existing file is unchanged"
        return TableError(f"{'standard output could not be written' if self._path == '-' else what}: {problem}")

    def write(self, columns: Mapping[str, Any]) -> None:
        """Appends rows: an array per column, with the same names and types in every call."""
        try:
            self._append(columns)
        except BrokenPipeError:
            raise
        except (OSError, NotImplementedError) as problem:
            raise self._failed(problem) from None

    def _append(self, columns: Mapping[str, Any]) -> None:
        table = pa.table(dict(columns))
        if self._is_json:
            lines = [json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in table.to_pylist()]
            self._put("".join(lines).encode())
            return
        if not self._is_csv:
            if self._parquet is None:
                self._parquet = self._open_files.enter_context(pq.ParquetWriter(self._sink, table.schema))
            self._parquet.write_table(table)
            return
        if not self._has_header:
            line = io.StringIO()
            csv.writer(line, lineterminator="\n").writerow(table.column_names)
            self._put(line.getvalue().encode())
            self._has_header = True
        try:
            text = _rendered(table, "none")
        except pa.ArrowInvalid:  # some text needs quotes
            text = _rendered(table, "needed")
        self._put(text)

    def _put(self, content: Any) -> None:
        if self._sink is not None:
            self._sink.write(content)
        elif sys.stdout is None:
            raise TableError("standard output is closed: give a file to write to")
        elif (binary := getattr(sys.stdout, "buffer", None)) is not None:  # whatever a terminal can show
            sys.stdout.flush()
            binary.write(content)
        else:
            sys.stdout.write(bytes(content).decode())


def _rendered(table: pa.Table, quotes: str) -> pa.Buffer:
    into = pa.BufferOutputStream()
    pa_csv.write_csv(table, into, pa_csv.WriteOptions(include_header=False, quoting_style=quotes))
    return into.getvalue()

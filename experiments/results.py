"""The rows of an experiment: a journal that loses nothing, and the parquet file that is made of it."""

import json
import os
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from s3vm._utils import atomic as _atomic
from s3vm._utils.optional import optional

__all__ = ["COLUMNS", "Results", "read"]

Row = dict[str, Any]

# What a row has, and of which kind; what does not apply is null.
COLUMNS: dict[str, str] = {
    "config": "string",  # the configuration's hash
    "key": "string",  # what the run depends on, hashed
    "part": "string",  # tuning, times, errors, curves, ablation or theory
    "set": "string",
    "synthetic": "bool_",
    "solver": "string",
    "trial": "int64",
    "protocol": "string",  # honest or oracle: who chose C, gamma and step
    "n": "int64",  # rows trained on, labelled ones among them
    "dims": "int64",
    "n_test": "int64",
    "positive": "float64",  # share of positive rows in the set
    "C": "float64",
    "gamma": "float64",
    "step": "float64",
    "max_iter": "int64",
    "iterations": "int64",  # that were made
    "seconds": "float64",  # of the processor, fit only
    "wall": "float64",
    "megabytes": "float64",  # peak above what the process had before the fit
    "error": "float64",
    "balanced_error": "float64",
    "auc": "float64",
    "predicted_positive": "float64",
    "status": "string",  # ok, timeout, memory, crash or skipped
    "message": "string",
    "limit_seconds": "float64",
    "limit_megabytes": "float64",
    "values": "string",  # JSON, what only this part has
    "source": "string",  # the files of the set
    "machine": "string",  # JSON
    "versions": "string",  # JSON
}


class Results:
    """The rows so far, each on the disk before the next is taken.

    Rows are appended to a journal beside the parquet file; `close` makes one file of both. A journal that a kill has
    left behind is read again, but for a last line that was cut off. The parquet file has the configuration in it.
    """

    def __init__(self, path: Any, config: str = "") -> None:
        self.path = Path(path)
        self._journal = self.path.with_name(f"{self.path.name}.journal")
        self._config = config
        self._rows: dict[str, Row] = {}
        if self.path.exists():
            rows, before = read(self.path)
            self._config = config or before
            self._keep(rows)
        if self._journal.exists():
            self._keep(_lines(self._journal))
        self._file: Any = None

    def rows(self) -> list[Row]:
        return list(self._rows.values())

    def get(self, key: str) -> Row | None:
        return self._rows.get(key)

    def append(self, row: Mapping[str, Any]) -> None:
        full = {name: row.get(name) for name in COLUMNS}
        if self._file is None:
            torn = self._journal.exists() and not self._journal.read_bytes().endswith(b"\n")
            self._file = open(self._journal, "a", encoding="utf-8")  # noqa: SIM115
            self._file.write("\n" * torn)
        self._file.write(json.dumps(full, allow_nan=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._keep([full])

    def close(self) -> None:
        """Writes the parquet file and does away with the journal."""
        if self._file is not None:
            self._file.close()
            self._file = None
        _write(self.path, self.rows(), self._config)
        self._journal.unlink(missing_ok=True)

    def _keep(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._rows[row["key"]] = row


def read(path: Any) -> tuple[list[Row], str]:
    """The rows of a parquet file, and the configuration they were made with (TOML)."""
    parquet = optional("pyarrow.parquet", "cli")
    content = BytesIO(Path(path).read_bytes())
    try:
        table = parquet.read_table(content)
    except Exception as problem:
        raise ValueError(f"{path} is not a file of results: {problem}") from None
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise ValueError(f"{path} is not a file of results: it has no column {missing[0]!r}")
    stored = (table.schema.metadata or {}).get(b"s3vm.config", b"")
    return table.select(list(COLUMNS)).to_pylist(), stored.decode()


def _write(path: Path, rows: list[Row], config: str) -> None:
    pa, parquet = optional("pyarrow", "cli"), optional("pyarrow.parquet", "cli")
    schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in COLUMNS.items()], {"s3vm.config": config})
    buffer = BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows, schema), buffer, compression="zstd")
    _atomic.write(path, buffer.getbuffer())


def _lines(path: Path) -> list[Row]:
    rows = []
    for line in path.read_text("utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:  # the kill came while it was written
            continue
    return rows

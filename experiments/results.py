"""The rows of an experiment: a journal that loses nothing, and the parquet file made of it."""

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

# The columns of a row and their types; what does not apply is null.
COLUMNS: dict[str, str] = {
    "config": "string",  # the configuration's hash
    "key": "string",  # a hash of what the run depends on
    "part": "string",  # tuning, times, errors, curves, ablation or theory
    "set": "string",
    "synthetic": "bool_",
    "solver": "string",
    "trial": "int64",
    "protocol": "string",  # honest or oracle: who chose C, gamma and step
    "n": "int64",  # rows trained on, labelled and unlabelled
    "dims": "int64",
    "n_test": "int64",
    "positive": "float64",  # fraction of positive rows in the set
    "C": "float64",
    "gamma": "float64",
    "step": "float64",
    "max_iter": "int64",
    "iterations": "int64",  # made
    "seconds": "float64",  # processor time, fit only
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
    "values": "string",  # JSON, for this part only
    "source": "string",  # the files of the set
    "machine": "string",  # JSON
    "versions": "string",  # JSON
}


class Results:
    """The rows so far, each on the disk before the next is taken.

    Rows are appended to a journal next to the parquet file; `close` merges both. A journal left behind by a killed
    process is read again, except for a last line that was cut off. The parquet file contains the configuration.
    """

    def __init__(self, path: Any, config: str = "") -> None:
        self.path = Path(path)
        self._journal = self.path.with_name(f"{self.path.name}.journal")
        self._config = config
        self._rows: dict[str, Row] = {}
        if self.path.exists():
            rows, stored_config = read(self.path)
            self._config = config or stored_config
            self._add(rows)
        if self._journal.exists():
            self._add(_journal_rows(self._journal))
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
        self._add([full])

    def close(self) -> None:
        """Writes the parquet file and removes the journal."""
        if self._file is not None:
            self._file.close()
            self._file = None
        _write(self.path, self.rows(), self._config)
        self._journal.unlink(missing_ok=True)

    def _add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._rows[row["key"]] = row


def read(path: Any) -> tuple[list[Row], str]:
    """The rows of a parquet file, and the configuration they were made with (TOML)."""
    parquet = optional("pyarrow.parquet", "experiments")
    content = BytesIO(Path(path).read_bytes())
    try:
        table = parquet.read_table(content)
    except Exception as problem:
        raise ValueError(f"{path} is not a file of results: {problem}") from None
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise ValueError(f"{path} is not a file of results: there is no column {missing[0]!r}")
    stored = (table.schema.metadata or {}).get(b"s3vm.config", b"")
    return table.select(list(COLUMNS)).to_pylist(), stored.decode()


def _write(path: Path, rows: list[Row], config: str) -> None:
    pa, parquet = optional("pyarrow", "experiments"), optional("pyarrow.parquet", "experiments")
    schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in COLUMNS.items()], {"s3vm.config": config})
    buffer = BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows, schema), buffer, compression="zstd")
    _atomic.write(path, buffer.getbuffer())


def _journal_rows(path: Path) -> list[Row]:
    rows = []
    for line in path.read_text("utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:  # cut off by a kill
            continue
    return rows

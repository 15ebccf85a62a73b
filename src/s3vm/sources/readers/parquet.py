"""Apache Parquet files."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from s3vm.sources.readers.base import TabularFile, cast_numbers, check_unique, quoted_value
from s3vm.sources.readers.errors import TableError, shortened

__all__ = ["ParquetFile"]

_ROWS = 1 << 14  # rows that are read together
_PAGE_BYTES = 1 << 16
_WHOLE_BYTES = 64 << 20  # a smaller row group is decoded at once, which is faster


class ParquetFile(TabularFile):
    """A parquet file, read by row groups."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with self._file() as file:
                names, types = file.schema_arrow.names, file.schema_arrow.types
                self.groups = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
        except Exception as problem:
            raise self._broken(problem) from None
        check_unique(path, names)
        self.types = dict(zip(names, types, strict=True))

    def example(self, name: str) -> str:
        with self._open() as file:
            try:
                values = next(file.iter_batches(_ROWS, columns=[name]))[name].to_pylist()
            except Exception:
                values = []
        return quoted_value(values)

    def batches(
        self, numbers: Sequence[str], others: Sequence[str], dtype: Any, group: int
    ) -> Iterator[dict[str, pa.Array]]:
        columns = [*numbers, *others]
        with self._open() as file:
            try:
                if (self.groups[group] or 0) * 8 * len(columns) <= _WHOLE_BYTES:
                    batches = iter(file.read_row_group(group, columns).to_batches(_ROWS))
                else:
                    batches = file.iter_batches(_ROWS, row_groups=[group], columns=columns)
                for batch in batches:
                    batch.validate(full=True)  # text that is not UTF-8, offsets outside the data
                    yield cast_numbers(batch, numbers, pa.from_numpy_dtype(dtype))
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
        # Pages are read as they are needed: a row group may be as large as the file.
        return pq.ParquetFile(self.path, pre_buffer=False, buffer_size=_PAGE_BYTES)

    def _broken(self, problem: Exception) -> TableError:
        return TableError(f"{self.path} is not a parquet file, or is damaged: {shortened(problem)}")

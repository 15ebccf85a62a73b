"""Rows of files: of any size, some of them with a label."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.preprocessing import StandardScaler

from s3vm import philox
from s3vm._utils.arrays import as_rows, stack
from s3vm._utils.input_checks import precision
from s3vm._utils.optional import optional
from s3vm._utils.settings import invalid, is_integer
from s3vm._utils.typing import Array, Rows
from s3vm.philox import Purpose
from s3vm.sources.arrays import ArraySource
from s3vm.sources.base import Chunk
from s3vm.sources.encoding import Misfits
from s3vm.sources.reservoir import Reservoir
from s3vm.sources.streams import BUFFER_BYTES, StreamSource, with_names

if TYPE_CHECKING:
    from s3vm.sources import readers

_SAMPLE = 1 << 14  # rows of the sample that a survey keeps


class _Survey(NamedTuple):
    """The result of reading all rows once: the number of unlabelled rows per chunk, the labelled rows, and a sample."""

    counts: list[int]
    labeled: Rows
    labels: Array
    sample: Rows
    scaler: StandardScaler | None


class FileSource(StreamSource):
    """The rows of csv, parquet or svmlight files, and of folders of them, that need not fit into memory.

    They are shuffled: row groups of parquet files, or whole csv files, come in an order that is drawn for each pass,
    four of them read side by side, and rows are mixed within a buffer. Batches have unlabelled rows only; labelled rows
    are kept in memory.

    Files that do not say how many rows they have (csv), or which of them have labels, are read once before the
    training: a *survey*, which counts rows, finds the labelled ones and keeps a random sample.

    Parameters
    ----------
    path : str, path or list of them
        Files, or folders with files in them and below.
    target : str or None, default None
        The column of labels; rows without a label are unlabelled. Svmlight files have a label in every row, and any
        name will do. None: no row has a label.
    features, drop : names of columns to use, or not to use
        By default all but the target. Of svmlight files, `features` may be the number of columns.
    mark : labels that mean "no label", besides empty cells, missing values, nan and null
        For example ``["-1"]``; by default NA, N/A, n/a, None, none and ?.
    encoder : TableEncoder or None, default None
        What makes features of columns that are not all numbers; one that is not fitted is fitted to some of the rows.
    zero_based : bool or None, default None
        Whether columns of svmlight files are counted from 0; None: if any of the files has a column 0.
    dtype, buffer_bytes
        As in `StreamSource`.
    """

    def __init__(
        self,
        path: Any,
        target: str | None = None,
        *,
        features: str | Sequence[str] | int | None = None,
        drop: str | Iterable[str] = (),
        mark: str | float | Iterable[Any] = (),
        encoder: Any = None,
        zero_based: bool | None = None,
        dtype: Any = np.float32,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        options = {
            "features": features if features is None or is_integer(features) else _list(features),
            "drop": _list(drop),
            "mark": [_readers().label_key(label) for label in _list(mark)],
            "zero_based": zero_based,
        }
        self.misfits = Misfits()  # of all rows read so far
        self._settings: dict[str, Any] = {"path": path, "target": target, "dtype": precision(dtype), **options}
        for name in ("target", "features", "drop"):
            if not (name == "features" and is_integer(self._settings[name])) and not all(
                isinstance(column, str) for column in _list(self._settings[name])
            ):
                raise invalid(name, self._settings[name], 'a column name, such as "label"')
        self._encoder = encoder
        if encoder is not None and not hasattr(encoder, "factors_"):
            settings = {name: value for name, value in self._settings.items() if name not in ("dtype", "zero_based")}
            encoder.fit(*_readers().read_columns(**settings, most=_SAMPLE))
        self._open()
        names = self._table.names if encoder is None else None
        if encoder is not None:
            n_dims = len(encoder.factors_)
        elif names is not None:
            n_dims = len(names)
        elif (first := next(self._table.unchecked(), None)) is not None:
            n_dims = first.rows.shape[1]
        else:
            raise _readers().TableError(f"{self._table.path} has no rows")
        super().__init__([], n_dims, dtype, buffer_bytes)
        self.names = names
        self._survey: _Survey | None = None

    def _open(self) -> None:
        chosen: dict[str, Any] = {}
        if self._encoder is not None:
            encode = partial(self._encoder.encode, misfits=self.misfits)
            chosen = {"features": self._encoder.columns or None, "drop": (), "encode": encode}
        self._table: readers.TableStream = _readers().stream(**self._settings | chosen)
        self.zero_based = self._settings["zero_based"] = self._table.zero_based

    def labeled(self) -> tuple[Rows, Array]:
        """The rows that have a label, and the labels."""
        if self._settings["target"] is None:
            raise ValueError('no column of labels was named: give FileSource(..., target="label")')
        survey = self.survey()
        if not len(survey.labels):
            raise ValueError(f"{self._table.path}: no row has a label in column {self._settings['target']!r}")
        return survey.labeled, survey.labels

    def scaler(self, sample: int | None = None, seed: int = 0) -> StandardScaler:
        """A scaler fitted to all rows in one pass, labelled or not, or to a sample of this many unlabelled ones."""
        if sample is not None:
            return super().scaler(sample, seed)
        scaler = self.survey(scale=True).scaler
        assert scaler is not None
        return with_names(scaler, self.names)

    def survey(self, progress: Callable[[int], None] | None = None, scale: bool = False) -> _Survey:
        """Reads all rows once, unless that has been done; `progress` is called with the number of rows read."""
        if self._survey is not None and (self._survey.scaler is not None or not scale):
            return self._survey
        sample, labeled, labels, scaler = Reservoir(_SAMPLE), [], [], StandardScaler() if scale else None
        counts, n_read = [], 0
        for chunk in self._table.chunks:
            counts.append(0)
            for batch in chunk.read():
                self._table.check(batch.rows, n_read + 1)
                if scaler is not None and batch.rows.shape[0]:
                    scaler.with_mean = not hasattr(batch.rows, "indptr")
                    scaler.partial_fit(batch.rows)
                known, rows = _split(batch)
                if known.any():
                    assert batch.labels is not None
                    labeled.append(batch.rows[known])
                    labels.append(batch.labels[known])
                sample.add(rows, n_read)
                counts[-1] += rows.shape[0]
                n_read += batch.rows.shape[0]
                if progress is not None:
                    progress(n_read)
        if not n_read:
            raise _readers().TableError(f"{self._table.path} has no rows")
        nothing = np.empty((0, self.n_dims), self.dtype)
        if sum(counts):
            self._table.warn_of_lost_digits(sample.rows())
        self._survey = _Survey(
            counts,
            stack(labeled) if labeled else nothing,
            np.array(_readers().labels.of_one_kind(np.concatenate(labels)).tolist()) if labels else np.empty(0, object),
            sample.rows() if sum(counts) else nothing,
            scaler,
        )
        return self._survey

    @property
    def needs_survey(self) -> bool:
        """Whether all rows are read once before the first batch."""
        return self._settings["target"] is not None or self._table.n_rows is None

    @property
    def has_all_labels(self) -> bool:
        """Whether every row has a label."""
        return self._settings["target"] is not None and sum(self.survey().counts) == 0

    def _counted_chunks(self) -> list[Chunk[Rows]]:
        if not self._chunks:
            counts: list[Any] = [chunk.n_rows for chunk in self._table.chunks]
            if self.needs_survey:
                counts = self.survey().counts
            parts = [partial(_unlabeled, self._table, k, self._survey is None) for k in range(len(counts))]
            self._chunks = [Chunk(count, part) for count, part in zip(counts, parts, strict=True) if count]
            if not self._chunks and self._survey is None:
                raise _readers().TableError(f"{self._table.path} has no rows")
            if not self._chunks:
                raise ValueError(f"{self._table.path}: every row has a label, so there are no unlabelled rows to read")
        return self._chunks

    def _draw_sample(self, seed: int, size: int) -> Rows:
        if self.needs_survey and size <= _SAMPLE:
            sample = self.survey().sample
            order = np.argsort(philox.words(seed, Purpose.REFERENCE, 0, sample.shape[0], 1)[:, 0])
            return as_rows(sample[order[:size]], self.dtype)
        return super()._draw_sample(seed, size)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None, "_chunks": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()


def _list(items: Any) -> list[Any]:
    """The items as a list; a string is one item."""
    if items is None:
        return []
    return list(items) if isinstance(items, Iterable) and not isinstance(items, str) else [items]


def _readers() -> Any:
    """`s3vm.sources.readers`, which needs an optional library."""
    optional("pyarrow", "data")
    return optional("s3vm.sources.readers", "data")


def _unlabeled(table: "readers.TableStream", chunk: int, check: bool) -> Iterator[Rows]:
    """The rows of a chunk that have no label, checked unless a survey has done so."""
    first = 1
    for batch in table.chunks[chunk].read():
        if check:
            table.check(batch.rows, first, f" of part {chunk + 1:,}")
        first += batch.rows.shape[0]
        yield _split(batch)[1]


def _split(batch: "readers.Batch") -> tuple[Array, Rows]:
    """Which rows have a label, and the rows that have none."""
    if batch.labels is None:
        return np.zeros(batch.rows.shape[0], dtype=bool), batch.rows
    known = np.array([label is not None for label in batch.labels], dtype=bool)
    return known, batch.rows[~known] if known.any() else batch.rows


def source_of(path: Any, dtype: Any = np.float32, n_features: int | None = None) -> Any:
    """Files as a source of unlabelled rows; a NumPy file is an array that stays on the disk.

    Those of svmlight have `n_features` columns, if it is given.
    """
    if isinstance(path, str | os.PathLike):
        formats = _readers().table
        names = formats.files_of(os.fspath(path))
        file = formats.format_of(names[0])
        if len(names) == 1 and issubclass(file, formats.NpyFile | formats.NpzFile):
            for _ in _readers().stream(names[0], dtype=dtype):
                pass  # checks all rows once, like those of an array
            return ArraySource(file(names[0]).arrays(None, None, dtype)[0], None, dtype)
        if issubclass(file, formats.SvmlightFile):
            return FileSource(path, features=n_features, dtype=dtype)
    return FileSource(path, dtype=dtype)

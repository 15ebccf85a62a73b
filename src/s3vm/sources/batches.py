"""Rows of any iterable of batches."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from scipy import sparse

from s3vm._utils.arrays import host, is_tensor
from s3vm._utils.input_checks import as_csr, check_numbers, check_size, dense_tensor, precision
from s3vm._utils.settings import check, integer
from s3vm._utils.typing import Rows
from s3vm.sources.base import Chunk
from s3vm.sources.streams import BUFFER_BYTES, StreamSource


class BatchSource(StreamSource):
    """Any iterable of batches, each an array, a CSR matrix or a tensor: a generator, a list, a torch ``DataLoader``.

    Of batches that are lists of rows and labels, the rows are taken. A function that makes a generator will do, too.
    Rows come in the order of the iterable, shuffled within the buffer. A generator can be read once: when it ends, so
    does the training. A list or a function can be read again and again.

    Parameters
    ----------
    batches : iterable of rows, or function that returns one, which is called whenever rows are read from the start
    n_rows : int or None, default None
        The number of rows in one pass, if it is known. Otherwise the solver needs a number of iterations.
    dtype, buffer_bytes
        As in `StreamSource`.
    """

    def __init__(
        self,
        batches: Iterable[Any] | Callable[[], Iterable[Any]],
        n_rows: int | None = None,
        dtype: Any = np.float32,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        check("n_rows", n_rows, integer(1), None)
        begin: Any = batches if callable(batches) else lambda: batches
        given = begin()
        if not isinstance(given, Iterable):
            raise ValueError(f"a source of batches needs an iterable of arrays, not a {type(given).__name__}")
        if callable(batches) and iter(given) is given and begin() is given:
            raise ValueError(
                "the function returns the same iterator every time: return a new one, or give the iterator itself"
            )
        once = not callable(batches) and iter(batches) is batches
        first = _rows_of(next(iter(given), None))
        if getattr(first, "ndim", 0) != 2 or not first.shape[1]:
            shape = f" of shape {first.shape}" if hasattr(first, "shape") else ""
            found = "it is empty" if first is None else f"the first is a {type(first).__name__}{shape}"
            raise ValueError(f"a source of batches needs arrays or CSR matrices of rows: {found}")
        self.names = _names(first)
        like = {"n_columns": first.shape[1], "names": self.names, "is_sparse": sparse.issparse(first)}
        checked = partial(_checked, **like, dtype=precision(dtype))
        rest = chain([first], begin()) if once else None

        def read() -> Iterator[Rows]:
            return map(checked, map(_rows_of, begin() if rest is None else rest))

        super().__init__([Chunk(n_rows, read)], first.shape[1], dtype, buffer_bytes, repeatable=not once)


def _rows_of(batch: Any) -> Any:
    """The rows of a batch: of those of a torch ``DataLoader``, the first part, if there are labels, too."""
    if isinstance(batch, list | tuple) and batch and getattr(batch[0], "ndim", 0) == 2:
        batch = batch[0]
    return host(dense_tensor(batch)) if is_tensor(batch) else batch


def _names(rows: Any) -> list[str] | None:
    """The names of the columns of a data frame, if they are text, as in scikit-learn."""
    names = list(getattr(rows, "columns", ()))
    return names if names and all(isinstance(name, str) for name in names) else None


def _checked(rows: Any, n_columns: int, names: list[str] | None, is_sparse: bool, dtype: Any) -> Rows:
    """A batch, which must be like the first."""
    if getattr(rows, "ndim", 0) != 2 or rows.shape[1] != n_columns:
        shape = getattr(rows, "shape", type(rows).__name__)
        raise ValueError(f"a batch has shape {shape}, but the first has {n_columns} columns")
    if sparse.issparse(rows) != is_sparse:
        raise ValueError("some batches are sparse and others are dense: make all of them the same")
    if _names(rows) != names:
        raise ValueError(f"a batch has the columns {_names(rows)}, but the first has {names}: make them the same")
    check_numbers(rows)
    if is_sparse:
        rows = as_csr(rows)
    entries = rows.data if sparse.issparse(rows) else np.asarray(rows)
    if entries.dtype.kind not in "fiub":
        raise ValueError(f"a batch has entries of type {entries.dtype}, which are not real numbers: encode them")
    if not np.isfinite(entries).all():
        raise ValueError("a batch has values that are missing or infinite: leave such rows out, or fill them in")
    check_size(entries, dtype)
    return rows

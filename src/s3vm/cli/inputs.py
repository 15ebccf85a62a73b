"""From files to rows and labels."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from s3vm._utils.arrays import stack
from s3vm._utils.machine import machine_memory
from s3vm._utils.typing import Array, Rows
from s3vm.cli.console import Screen
from s3vm.sources import readers as tables
from s3vm.sources.files import FileSource
from s3vm.sources.readers.errors import listed, shortened
from s3vm.sources.readers.formats import files_of

__all__ = ["Data", "Files", "codes_of", "gather", "held_rows", "opened", "skewed", "target_of", "writable"]

_SKEWED = 0.1
_SHARE = 0.25  # of the memory that rows in files may take; in memory they may be several times as large


@dataclass(frozen=True)
class Files:
    """What is to be read.

    Parameters
    ----------
    data : a table in which some rows have labels
    target : the column of labels
    unlabeled : tables without labels
    features, drop : columns to use, or not to use; nothing is all but the target
    mark : labels that mean "no label"; nothing is the usual ones
    encode : columns that are no numbers, of which each value becomes a feature
    stream : whether to read the unlabelled rows again and again instead of keeping them; None: if they are many
    """

    data: str
    target: str | None
    unlabeled: Sequence[str] = ()
    features: Sequence[str] = ()
    drop: Sequence[str] = ()
    mark: Sequence[str] = ()
    encode: Sequence[str] = ()
    stream: bool | None = None


@dataclass(frozen=True, eq=False)
class Data:
    """Rows, the label of each (None: unlabelled), and the names of the features if there are any.

    If the unlabelled rows are too many to be kept, they are a `source`, and all `rows` are labelled.
    """

    rows: Rows
    labels: Array
    names: list[str] | None
    counts: dict[Any, int]
    source: FileSource | None = None

    @property
    def n_rows(self) -> int:
        return int(self.rows.shape[0]) + (0 if self.source is None else self.source.n_rows)

    @property
    def n_labelled(self) -> int:
        return sum(self.counts.values())

    def described(self, path: str) -> dict[str, Any]:
        """The facts that every summary begins with."""
        return {
            "file": path,
            "rows": self.n_rows,
            "features": int(self.rows.shape[1]),
            "labelled": self.n_labelled,
            "unlabelled": self.n_rows - self.n_labelled,
            "classes": self.counts,
        }


def target_of(path: str, target: str | None) -> str:
    """The column of labels, which must be named where there are several."""
    if target is None and tables.has_names(path):
        raise tables.TableError(f"{path}: say which column has the labels: --target NAME")
    return target or "y"


def opened(screen: Screen, files: Files) -> Data:
    """The rows in memory; or, where they are more than a quarter of it or it is asked for, as a stream."""
    large = [path for path in (files.data, *files.unlabeled) if files.stream or _is_large(path)]
    if not large or files.stream is False:
        return gather(screen, files)
    target = target_of(files.data, files.target)
    how: dict[str, Any] = {"features": files.features or None, "drop": files.drop, "encode": files.encode}
    if not files.unlabeled:
        source = FileSource(files.data, target, mark=files.mark, **how)
        with screen.progress(f"reading {Path(files.data).name}") as told:
            source.survey(told, scale=True)
        rows, labels = source.labelled()
    elif files.data in large and not files.stream:
        raise ValueError(
            f"{files.data} is too large to be kept: put its labelled rows into a file of their own, or leave out "
            "--unlabeled and put all files into a folder"
        )
    else:
        alone = gather(screen, replace(files, unlabeled=(), stream=False))
        known = np.array([label is not None for label in alone.labels], dtype=bool)
        if not known.all():
            screen.warn(f"{np.count_nonzero(~known):,} unlabelled rows of {files.data} are left out beside --unlabeled")
        rows, labels = alone.rows[known], alone.labels[known]
        source = FileSource(list(files.unlabeled), features=alone.names)
        if source.needs_survey:
            with screen.progress(f"reading {Path(files.unlabeled[0]).name}") as told:
                source.survey(told, scale=True)
    counts = Counter(labels.tolist())
    _check_labels(screen, files, target, counts, n_unlabelled=source.n_rows)
    names = None if source.names is None else list(source.names)
    return Data(rows, labels, names, dict(sorted(counts.items())), source)


def _is_large(path: str) -> bool:
    """Whether the rows of a file or folder may take more than a quarter of the memory."""
    n_bytes = sum(os.path.getsize(name) for name in files_of(path) if os.path.isfile(name))
    return n_bytes > _SHARE * machine_memory()


def gather(screen: Screen, files: Files) -> Data:
    """All rows, those of further files without labels; the labels must make sense as classes."""
    target = target_of(files.data, files.target)
    with screen.progress(f"reading {Path(files.data).name}") as told:
        how: dict[str, Any] = {"drop": files.drop, "mark": files.mark, "encode": files.encode}
        table = tables.read(files.data, target, files.features or None, **how, progress=told)
    assert table.labels is not None
    parts, n_more = [table.rows], 0
    for path in files.unlabeled:
        with screen.progress(f"reading {Path(path).name}") as told:
            more = tables.read(path, features=table.names or table.rows.shape[1], progress=told)
        parts.append(_like(table.rows, more.rows))
        n_more += more.rows.shape[0]
    counts = Counter(label for label in table.labels if label is not None)
    labels = np.concatenate([table.labels, np.full(n_more, None)])
    _check_labels(screen, files, target, counts, n_unlabelled=len(labels) - counts.total())
    rows = stack(parts) if n_more else table.rows
    return Data(rows, labels, table.names, dict(sorted(counts.items())))


def held_rows(screen: Screen, files: Files, data: Data, test: str | None) -> tuple[Rows, Array] | None:
    """The rows to test on, and the code of the class of each."""
    if test is None:
        return None
    with screen.progress(f"reading {Path(test).name}") as told:
        table = tables.read(
            test, target_of(test, files.target), data.names or data.rows.shape[1], mark=files.mark, progress=told
        )
    assert table.labels is not None
    codes = codes_of(table.labels, np.array(list(data.counts)), test)
    if not np.any(codes >= 0):
        raise tables.TableError(f"{test} has no labels to test on")
    return table.rows[codes >= 0], codes[codes >= 0]


def writable(*outputs: str | None, inputs: Iterable[str | None] = ()) -> None:
    """Complains before the work, not after it, if there is no place for a result, or if it would replace another file.

    Parameters
    ----------
    outputs : files that will be written; None: none
    inputs : files and folders that are read; None: none
    """
    paths = [path for path in outputs if path is not None]
    read = [name for path in inputs if path for name in files_of(path)]
    for at, path in enumerate(paths):
        if not path:
            raise ValueError("the name of a file to be written is empty: give one")
        folder = Path(path).resolve().parent
        if not folder.is_dir():
            raise ValueError(f"{path} cannot be written: there is no such folder")
        if Path(path).is_dir() or not os.access(folder, os.W_OK):
            raise ValueError(
                f"{path} cannot be written: {'it is a folder' if Path(path).is_dir() else 'no permission'}"
            )
        if any(_is_same(path, name) for name in read):
            raise ValueError(f"{path} cannot be written: it is one of the files that are read. Give another name")
        if any(_is_same(path, other) for other in paths[:at]):
            raise ValueError(f"{path} cannot be written twice: give each file that is written a name of its own")


def _is_same(path: str, other: str) -> bool:
    """Whether two names are those of one file, which need not be there yet."""
    if os.path.exists(path) and os.path.exists(other):
        return os.path.samefile(path, other)
    return os.path.realpath(path) == os.path.realpath(other)


def codes_of(labels: Array, classes: Array, path: str) -> Array:
    """The code of each label in `classes`, -1 where there is none; a label is known by what it reads as."""
    known = {tables.label_key(name): code for code, name in enumerate(classes.tolist())}
    codes = {label: known.get(tables.label_key(label), -2) for label in set(labels.tolist()) - {None}} | {None: -1}
    strange = sorted(str(label) for label, code in codes.items() if code == -2)
    if strange:
        raise tables.TableError(
            f"{path} has labels that the model was not taught: {listed(strange)}; it knows {listed(list(known))}"
        )
    return np.array([codes[label] for label in labels.tolist()], dtype=np.intp)


def skewed(counts: Mapping[Any, int]) -> dict[Any, float]:
    """The classes that have so small a share that the error says little, and the share of each."""
    total = sum(counts.values())
    if len(counts) >= 1 / _SKEWED:
        return {}
    return {label: count / total for label, count in counts.items() if count < _SKEWED * total}


def _like(rows: Rows, more: Rows) -> Rows:
    """Rows as sparse or as dense as others, so that they can stand below them."""
    if sparse.issparse(rows):
        return sparse.csr_array(more)
    return more.toarray() if sparse.issparse(more) else more


def _check_labels(screen: Screen, files: Files, target: str, counts: Counter[Any], n_unlabelled: int) -> None:
    where = f"{files.data}: column {target!r}"
    if not counts:
        raise tables.TableError(f"{where} has no labels: label some rows of each class")
    if len(counts) == 1:
        one = shortened(repr(next(iter(counts))))
        usual = "" if files.mark else "; if NA, None or ? is a class, say --mark nan"
        raise tables.TableError(f"{where} has only the label {one}: label rows of another class, too{usual}")
    fractions = [label for label in counts if isinstance(label, float)]
    if fractions:
        raise tables.TableError(f"{where} has labels such as {fractions[0]}: give classes, not measurements")
    if counts.total() > 2 and len(counts) == counts.total():
        raise tables.TableError(f"{where} has a different label in each row: is it the target?")
    if -1 in counts and n_unlabelled == 0 and len(counts) > 2 and counts[-1] > counts.total() / 2:
        raise tables.TableError(
            f"{where} has the label -1 in {counts[-1]:,} of {counts.total():,} rows: if it means that there is no "
            "label, say --mark -1; if it is a class, give it another name"
        )
    if -1 in counts and n_unlabelled == 0:
        screen.warn("the label -1 counts as a class; if it marks unlabelled rows, say --mark -1")
    if small := skewed(counts):
        shares = ", ".join(f"{label} {share:.1%}" for label, share in small.items())
        screen.warn(f"skewed classes ({shares} of the labelled rows): look at the balanced error, not at the error")

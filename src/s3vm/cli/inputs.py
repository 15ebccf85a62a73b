"""Files as rows and labels."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from s3vm._utils.arrays import stack
from s3vm._utils.input_checks import shortened
from s3vm._utils.machine import machine_memory
from s3vm._utils.typing import Array, Rows
from s3vm.cli.console import Screen
from s3vm.cli.options import InputFiles
from s3vm.sources import readers
from s3vm.sources.files import FileSource
from s3vm.sources.readers.errors import listed

_RARE = 0.1  # a class with a smaller fraction of the labels is rare
_MEMORY_FRACTION = 0.25  # larger files are streamed: in memory, rows may take several times the space


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows, their labels (None: unlabelled), and the names of the features if they have any.

    Unlabelled rows that do not fit into memory are streamed from a `source`; all `rows` are then labelled.
    """

    rows: Rows
    labels: Array
    names: list[str] | None
    counts: dict[Any, int]
    source: FileSource | None = None
    zero_based: bool | None = None  # the columns of svmlight files

    @property
    def n_rows(self) -> int:
        return int(self.rows.shape[0]) + (0 if self.source is None else self.source.n_rows)

    @property
    def n_labeled(self) -> int:
        return sum(self.counts.values())

    def describe(self, path: str) -> dict[str, Any]:
        """The facts at the head of every summary."""
        return {
            "file": path,
            "rows": self.n_rows,
            "features": int(self.rows.shape[1]),
            "labeled": self.n_labeled,
            "unlabeled": self.n_rows - self.n_labeled,
            "classes": self.counts,
        }


def target_column(path: str, target: str | None) -> str:
    """The label column, which must be given for files with column names."""
    if target is None and readers.has_names(path):
        raise readers.TableError(f"{path}: which column has the labels? Give --target COLUMN")
    return target or "y"


def open_data(screen: Screen, files: InputFiles) -> Dataset:
    """The rows in memory, or as a stream if the files are larger than a quarter of it or `stream` is set."""
    large = [path for path in (files.data, *files.unlabeled) if files.stream or _is_large(path)]
    if not large or files.stream is False:
        return read_data(screen, files)
    target = target_column(files.data, files.target)
    if not files.unlabeled:
        columns: dict[str, Any] = {"drop": files.drop, "encode": files.encode, "zero_based": files.zero_based}
        source = FileSource(files.data, target, features=_features(files), mark=files.mark, **columns)
        _survey(screen, source, files.data)
        rows, labels = source.labeled()
    elif files.data in large and not files.stream:
        raise ValueError(
            f"{files.data} does not fit into memory: put its labelled rows into a separate file, or put all files "
            "into one folder and leave out --unlabeled"
        )
    else:
        zero_based, width = readers.svmlight_columns([files.data, *files.unlabeled], files.zero_based)
        features = files.features or (() if width is None else (str(width),))
        alone = replace(files, unlabeled=[], stream=False, features=features, zero_based=zero_based)
        data = read_data(screen, alone)
        known = np.array([label is not None for label in data.labels], dtype=bool)
        if not known.all():
            screen.warn(f"ignoring {np.count_nonzero(~known):,} unlabelled rows of {files.data}: --unlabeled is given")
        rows, labels = data.rows[known], data.labels[known]
        columns = {"features": data.names or data.rows.shape[1], "zero_based": data.zero_based}
        source = FileSource(list(files.unlabeled), **columns)
        if source.needs_survey:
            _survey(screen, source, files.unlabeled[0])
    counts = Counter(labels.tolist())
    _check_labels(screen, files, target, counts, n_unlabeled=source.n_rows)
    names = None if source.names is None else list(source.names)
    return Dataset(rows, labels, names, dict(sorted(counts.items())), source, source.zero_based)


def _features(files: InputFiles) -> Sequence[str] | int | None:
    """The names of the features to use, or their number, which columns without names may need."""
    if len(files.features) == 1 and files.features[0].isdecimal() and not readers.has_names(files.data):
        return int(files.features[0])
    return files.features or None


def _is_large(path: str) -> bool:
    n_bytes = sum(os.path.getsize(name) for name in readers.files_of(path) if os.path.isfile(name))
    return n_bytes > _MEMORY_FRACTION * machine_memory()


def _survey(screen: Screen, source: FileSource, path: str) -> None:
    with screen.progress(f"reading {Path(path).name}") as report_progress:
        source.survey(report_progress, scale=True)


def read_data(screen: Screen, files: InputFiles) -> Dataset:
    """All rows of all files in memory, with labels that make sense as classes."""
    target = target_column(files.data, files.target)
    zero_based, n_features = readers.svmlight_columns([files.data, *files.unlabeled], files.zero_based)
    columns: dict[str, Any] = {"drop": files.drop, "mark": files.mark, "encode": files.encode, "zero_based": zero_based}
    table = read_table(screen, files.data, target, _features(files) or n_features, **columns)
    assert table.labels is not None
    parts, n_more = [table.rows], 0
    for path in files.unlabeled:
        more = read_table(screen, path, features=table.names or table.rows.shape[1], zero_based=table.zero_based)
        must_be_dense = sparse.issparse(more.rows) and not sparse.issparse(table.rows)
        parts.append(more.rows.toarray() if must_be_dense else more.rows)
        n_more += more.rows.shape[0]
    counts = Counter(label for label in table.labels if label is not None)
    labels = np.concatenate([table.labels, np.full(n_more, None)])
    _check_labels(screen, files, target, counts, n_unlabeled=len(labels) - counts.total())
    rows = stack(parts) if n_more else table.rows
    return Dataset(rows, labels, table.names, dict(sorted(counts.items())), zero_based=table.zero_based)


def read_table(screen: Screen, path: str, *args: Any, **options: Any) -> readers.Table:
    with screen.progress(f"reading {Path(path).name}") as report_progress:
        return readers.read(path, *args, **options, progress=report_progress)


def read_test_rows(screen: Screen, files: InputFiles, data: Dataset, test: str | None) -> tuple[Rows, Array] | None:
    """The labelled rows of the test file, and the code of the class of each."""
    if test is None:
        return None
    target = target_column(test, files.target)
    columns: dict[str, Any] = {"mark": files.mark, "zero_based": data.zero_based}
    table = read_table(screen, test, target, data.names or data.rows.shape[1], **columns)
    assert table.labels is not None
    codes = class_codes(table.labels, np.array(list(data.counts)), test)
    if not np.any(codes >= 0):
        raise readers.TableError(f"{test} has no labels to test on")
    return table.rows[codes >= 0], codes[codes >= 0]


def check_writable(*outputs: str | None, inputs: Iterable[str | None] = ()) -> None:
    """Raises a ValueError, before the work, if an output cannot be written or would replace an input; skips None."""
    paths = [path for path in outputs if path is not None]
    read = [name for path in inputs if path for name in readers.files_of(path)]
    for at, path in enumerate(paths):
        if not path:
            raise ValueError("the name of an output file is empty")
        folder = Path(path).resolve().parent
        if not folder.is_dir():
            raise ValueError(f"{path} cannot be written: its folder does not exist")
        if Path(path).is_dir() or not os.access(folder, os.W_OK):
            reason = "it is a folder" if Path(path).is_dir() else "no permission"
            raise ValueError(f"{path} cannot be written: {reason}")
        if any(_is_same(path, name) for name in read):
            raise ValueError(f"{path} cannot be written: it is an input. Give another name")
        if any(_is_same(path, other) for other in paths[:at]):
            raise ValueError(f"{path} cannot be written twice: give each output file its own name")


def _is_same(path: str, other: str) -> bool:
    """Whether two paths name the same file, which may not exist yet."""
    if os.path.exists(path) and os.path.exists(other):
        return os.path.samefile(path, other)
    return os.path.realpath(path) == os.path.realpath(other)


def class_codes(labels: Array, classes: Array, path: str) -> Array:
    """The index of each label in `classes`, -1 for None; labels match by value, such as 1 and "1.0"."""
    known = {readers.label_key(name): code for code, name in enumerate(classes.tolist())}
    codes = {label: known.get(readers.label_key(label), -2) for label in set(labels.tolist()) - {None}} | {None: -1}
    unknown = sorted(str(label) for label, code in codes.items() if code == -2)
    if unknown:
        raise readers.TableError(
            f"{path} has labels that the model does not know: {listed(unknown)}; it knows {listed(list(known))}"
        )
    return np.array([codes[label] for label in labels.tolist()], dtype=np.intp)


def rare_classes(counts: Mapping[Any, int]) -> dict[Any, float]:
    """The fraction of the labels of each class so rare that the error says little about it."""
    total = sum(counts.values())
    if len(counts) >= 1 / _RARE:
        return {}
    return {label: count / total for label, count in counts.items() if count < _RARE * total}


def _check_labels(screen: Screen, files: InputFiles, target: str, counts: Counter[Any], n_unlabeled: int) -> None:
    """Raises a TableError if the labels cannot be classes; warns if they need attention."""
    where = f"{files.data}: column {target!r}"
    if not counts:
        raise readers.TableError(f"{where} has no labels: label some rows of each class")
    if len(counts) == 1:
        label = shortened(repr(next(iter(counts))))
        hint = "" if files.mark else "; if NA, None or ? is a class, give --mark nan"
        raise readers.TableError(f"{where} has only the label {label}: label rows of another class, too{hint}")
    fractions = [label for label in counts if isinstance(label, float)]
    if fractions:
        raise readers.TableError(f"{where} has labels such as {fractions[0]}: give classes, not measurements")
    if counts.total() > 2 and len(counts) == counts.total():
        raise readers.TableError(f"{where} has a different label in each row: is it the target?")
    if -1 in counts and n_unlabeled == 0 and len(counts) > 2 and counts[-1] > counts.total() / 2:
        raise readers.TableError(
            f"{where} has the label -1 in {counts[-1]:,} of {counts.total():,} rows: if it means unlabelled, give "
            "--mark -1; if it is a class, rename it"
        )
    if -1 in counts and n_unlabeled == 0:
        screen.warn("the label -1 counts as a class; if it means unlabelled, give --mark -1")
    if rare := rare_classes(counts):
        fractions_text = ", ".join(f"{label} {fraction:.1%}" for label, fraction in rare.items())
        screen.warn(
            f"imbalanced classes ({fractions_text} of the labelled rows): judge by the balanced error, not the error"
        )

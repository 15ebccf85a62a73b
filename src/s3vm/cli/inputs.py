"""Files as rows and labels."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from s3vm._utils import container
from s3vm._utils.arrays import stack
from s3vm._utils.input_checks import shortened
from s3vm._utils.machine import machine_memory
from s3vm._utils.typing import Array, Rows
from s3vm.cli.console import Screen
from s3vm.cli.options import InputFiles, UsageError
from s3vm.estimators.encoder import TableEncoder
from s3vm.sources import readers
from s3vm.sources.encoding import Misfits
from s3vm.sources.files import FileSource
from s3vm.sources.readers.errors import listed
from s3vm.sources.streams import MappedSource

_RARE = 0.1  # a class with a smaller fraction of the labels is rare
_PLANNED = 20_000  # rows of a stream that the features are planned by
_MEMORY_FRACTION = 0.25  # larger files are streamed: in memory, rows may take several times the space


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows as the classifier takes them, their labels (None: unlabelled), and the encoder that made them.

    Unlabelled rows that do not fit into memory are streamed from a `source`; all `rows` are then labelled.
    """

    rows: Rows
    labels: Array
    counts: dict[Any, int]
    encoder: TableEncoder
    source: Any = None
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
        raise UsageError(f"{path}: which column has the labels? Give --target COLUMN")
    return target or "y"


def open_data(screen: Screen, files: InputFiles) -> Dataset:
    """The rows in memory, or as a stream if the files are larger than a quarter of it or `stream` is set."""
    large = [path for path in (files.data, *files.unlabeled) if files.stream or _is_large(path)]
    if not large or files.stream is False:
        return read_data(screen, files)
    if files.unlabeled and files.data in large and not files.stream:
        raise ValueError(
            f"{files.data} does not fit into memory: put its labelled rows into a separate file, or put all files "
            "into one folder and leave out --unlabeled"
        )
    return _Reader(screen, files).stream()


def read_data(screen: Screen, files: InputFiles) -> Dataset:
    """All rows of all files in memory, with labels that make sense as classes."""
    return _Reader(screen, files).everything()


def _is_large(path: str) -> bool:
    n_bytes = sum(os.path.getsize(name) for name in readers.files_of(path) if os.path.isfile(name))
    return n_bytes > _MEMORY_FRACTION * machine_memory()


class _Part(NamedTuple):
    """The columns of a file by name, or its matrix, and the labels."""

    X: Any
    labels: Array


class _Reader:
    """Reads the files of a command, all of which become the same features."""

    def __init__(self, screen: Screen, files: InputFiles) -> None:
        self._screen, self._files, self._encoder = screen, files, files.encoder()
        self._target, self._misfits = target_column(files.data, files.target), Misfits()
        self._is_table, self._zero_based = readers.has_names(files.data), files.zero_based
        self._features: Sequence[str] | int | None = files.features or None
        if len(files.features) == 1 and files.features[0].isdecimal() and not self._is_table:
            self._features = int(files.features[0])  # columns without names may need their number

    def everything(self) -> Dataset:
        self._settle_columns()
        parts = [self.part(self._files.data, self._target)]
        parts += [self.part(path, None, _columns_of(parts[0].X)) for path in self._files.unlabeled]
        labels = np.concatenate([part.labels for part in parts])
        counts = Counter(label for label in labels if label is not None)
        _check_labels(self._screen, self._files, self._target, counts, n_unlabeled=len(labels) - counts.total())
        self._plan(parts)
        rows = stack([self._encoder.encode(part.X, self._misfits) for part in parts])
        return self._dataset(rows, labels, counts)

    def stream(self) -> Dataset:
        """The labelled rows in memory, and a source of the others."""
        few, paths, chosen = None, [self._files.data], self._features
        target: str | None = self._target
        if self._files.unlabeled:
            self._settle_columns()
            few = self._known(self.part(self._files.data, self._target))
            paths, target, chosen = self._files.unlabeled, None, _columns_of(few.X)
        if self._is_table:
            samples = [self.part(path, target, chosen, _PLANNED) for path in paths]
            self._plan(samples if few is None else [few, *samples])
        more: dict[str, Any] = {"encoder": self._encoder} if self._is_table else {"features": chosen}
        source: Any = FileSource(paths, target, mark=self._files.mark, zero_based=self._zero_based, **more)
        if source.needs_survey:
            with self._screen.progress(f"reading {Path(paths[0]).name}") as report_progress:
                source.survey(report_progress)
        self._zero_based = source.zero_based
        part = _Part(*source.labeled()) if few is None else few
        counts = Counter(part.labels.tolist())
        _check_labels(self._screen, self._files, self._target, counts, n_unlabeled=source.n_rows)
        if not self._is_table:
            sample = source.sample(0, _PLANNED)
            self._plan([part, _Part(sample, np.full(sample.shape[0], None))])
            source = MappedSource(source, partial(self._encoder.encode, misfits=self._misfits))
        else:
            self._misfits = source.misfits
        if few is not None or not self._is_table:
            part = part._replace(X=self._encoder.encode(part.X, self._misfits))
        return self._dataset(part.X, part.labels, counts, source)

    def part(self, path: str, target: str | None, features: Any = None, most: int | None = None) -> _Part:
        """A file in memory, or a sample of it; without a `target`, as unlabelled rows."""
        files, features = self._files, self._features if features is None else features
        options: dict[str, Any] = {"drop": files.drop if features is self._features else (), "mark": files.mark}
        with self._screen.progress(f"reading {Path(path).name}") as report_progress:
            if self._is_table and readers.has_names(path):
                X, labels = readers.read_columns(path, target, features, **options, most=most, progress=report_progress)
                n_rows = len(next(iter(X.values())))
            else:
                table = readers.read(
                    path, target, features, **options, zero_based=self._zero_based, progress=report_progress
                )
                X, labels, n_rows, self._zero_based = table.rows, table.labels, table.rows.shape[0], table.zero_based
        return _Part(X, np.full(n_rows, None) if labels is None else labels)

    def _settle_columns(self) -> None:
        """How columns of svmlight files are counted, and how many there are."""
        paths = [self._files.data, *self._files.unlabeled]
        self._zero_based, n_features = readers.svmlight_columns(paths, self._zero_based)
        self._features = self._features or n_features

    def _known(self, part: _Part) -> _Part:
        known = np.array([label is not None for label in part.labels], dtype=bool)
        if not known.all():
            n_ignored = np.count_nonzero(~known)
            self._screen.warn(f"ignoring {n_ignored:,} unlabelled rows of {self._files.data}: --unlabeled is given")
        X, at = part.X, np.flatnonzero(known)
        return _Part({name: X[name].take(at) for name in X} if isinstance(X, dict) else X[at], part.labels[known])

    def _plan(self, parts: list[_Part]) -> None:
        """Plans the features by all parts together."""
        with self._screen.progress("planning the features"):
            if self._is_table:
                X: Any = {name: readers.chained([part.X[name] for part in parts]) for name in parts[0].X}
            else:
                X = stack([part.X for part in parts])
            self._encoder.fit(X, np.concatenate([part.labels for part in parts]))
        self._encoder.target_ = self._target

    def _dataset(self, rows: Rows, labels: Array, counts: Counter[Any], source: Any = None) -> Dataset:
        self._screen.warn_of(self._misfits)
        return Dataset(rows, labels, dict(sorted(counts.items())), self._encoder, source, self._zero_based)


def _columns_of(X: Any) -> Any:
    return list(X) if isinstance(X, dict) else X.shape[1]


def read_test_rows(screen: Screen, files: InputFiles, data: Dataset, test: str | None) -> tuple[Rows, Array] | None:
    """The labelled rows of the test file, and the code of the class of each."""
    if test is None:
        return None
    encoder, misfits = data.encoder, Misfits()
    columns = encoder.columns or encoder.n_features_in_
    reader = _Reader(screen, replace(files, zero_based=data.zero_based, drop=[]))
    part = reader.part(test, target_column(test, files.target), columns)
    codes = class_codes(part.labels, list(data.counts), test)
    if not np.any(codes >= 0):
        raise readers.TableError(f"{test} has no labels to test on")
    rows = encoder.encode(part.X, misfits)
    screen.warn_of(misfits, f"{test}, ")
    return rows[codes >= 0], codes[codes >= 0]


def default_output(data: str, resumes: bool = False) -> str:
    """The name of the model of that file or folder: its own without its format.

    Only models of files in the current folder, or of the run that it `resumes`, are replaced unasked.
    """
    path = Path(data).resolve()
    output = f"{readers.stem_of(path.name) if not path.is_dir() else path.name}.s3vm"
    if os.path.lexists(output):
        if path.parent != Path.cwd() and not resumes:
            raise ValueError(f"{output} exists, perhaps of another {path.name}: give the name of the model, -o FILE")
        try:
            container.read(output)
        except (OSError, container.ModelFormatError):
            raise ValueError(f"{output} exists, and is not a model: give the name of the model, -o FILE") from None
    return output


def check_writable(*outputs: str | None, inputs: Iterable[str | None] = ()) -> None:
    """Raises a ValueError, before the work, if an output cannot be written or would replace an input.

    Skips None, and ``-``, which is standard output.
    """
    paths = [path for path in outputs if path not in (None, "-")]
    read = [name for path in inputs if path for name in readers.files_of(path)]
    for at, path in enumerate(paths):
        if not path:
            raise ValueError("the name of an output file is empty")
        folder = Path(path).resolve().parent
        reasons = {
            ": its folder does not exist": not folder.is_dir(),
            ": it is a folder": Path(path).is_dir(),
            ": no permission": not os.access(folder, os.W_OK),
            ": it is an input. Give another name": any(_is_same(path, name) for name in read),
            " twice: give each output file its own name": any(_is_same(path, other) for other in paths[:at]),
        }
        for reason, is_true in reasons.items():
            if is_true:
                raise ValueError(f"{path} cannot be written{reason}")


def _is_same(path: str, other: str) -> bool:
    """Whether two paths name the same file, which may not exist yet."""
    if os.path.exists(path) and os.path.exists(other):
        return os.path.samefile(path, other)
    return os.path.realpath(path) == os.path.realpath(other)


def class_codes(labels: Array, classes: Sequence[Any], path: str = "") -> Array:
    """The index of each label in `classes`, -1 for None; labels match by value, such as 1 and "1.0"."""
    known = {readers.label_key(name): code for code, name in enumerate(classes)}
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
    if -1 in counts and n_unlabeled == 0:
        cure = "if it means unlabelled, give --mark -1"
        if len(counts) > 2 and counts[-1] > counts.total() / 2:
            n_rows = f"{counts[-1]:,} of {counts.total():,} rows"
            raise readers.TableError(f"{where} has the label -1 in {n_rows}: {cure}; if it is a class, rename it")
        screen.warn(f"the label -1 counts as a class; {cure}")
    if rare := rare_classes(counts):
        fractions_text = ", ".join(f"{label} {fraction:.1%}" for label, fraction in rare.items())
        screen.warn(
            f"imbalanced classes ({fractions_text} of the labelled rows): judge by the balanced error, not the error"
        )

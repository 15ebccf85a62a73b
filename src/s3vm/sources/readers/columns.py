"""Which columns of a table become features, which of them its labels."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from s3vm._utils.input_checks import shortened
from s3vm._utils.typing import Array
from s3vm.sources.readers.errors import TableError, nearest
from s3vm.sources.readers.labels import label_key, labels_of
from s3vm.sources.readers.tabular import TabularFile

_MAX_CATEGORIES = 1000  # of a column that is encoded


@dataclass(frozen=True)
class Columns:
    """The columns that a caller asks for; see `s3vm.sources.readers.stream`."""

    target: str | None
    features: Sequence[str] | int | None
    drop: list[str]
    keep: list[str]
    encode: list[str]
    marks: frozenset[str]
    dtype: Any
    zero_based: bool | None = None

    @property
    def feature_names(self) -> list[str] | None:
        return list(self.features) if isinstance(self.features, Sequence) else None

    @property
    def n_features(self) -> int | None:
        return len(self.features) if isinstance(self.features, Sequence) else self.features

    @property
    def targets(self) -> list[str]:
        """The target, if there is one."""
        return [] if self.target is None else [self.target]


@dataclass(frozen=True)
class FeaturePlan:
    """How the features of a file are made: `numeric` are columns of it, `indicators` stand for a column and a value."""

    names: list[str]
    numeric: list[str]
    indicators: dict[str, tuple[str, str]]


def feature_names(files: Sequence[TabularFile], columns: Columns) -> list[str]:
    """The names of the features of all files, with a feature per value for each column that is encoded."""
    chosen = _chosen(files[0], columns)
    categories = _categories(files, [column for column in columns.encode if column in chosen])
    return [
        feature
        for name in chosen
        for feature in ([f"{name}={value}" for value in sorted(categories[name])] if name in categories else [name])
    ]


def plan_features(file: TabularFile, names: list[str], others: list[str]) -> FeaturePlan:
    """How this file has these features; a TableError unless it has all of them, and the `others`."""
    numeric = [name for name in names if name in file.types]
    pairs = {name: _indicator(file, name) for name in names if name not in file.types}
    indicators = {name: pair for name, pair in pairs.items() if pair is not None}
    absent = [name for name in pairs if name not in indicators] + [name for name in others if name not in file.types]
    _refuse_absent(file, absent)
    return FeaturePlan(names, numeric, indicators)


def category_keys(column: Any) -> Array:
    """One text for each value, as features name it; empty where it is missing."""
    column = column.dictionary_encode()
    different = labels_of(column.dictionary, frozenset())
    names = ["" if value is None else label_key(value) for value in different]
    return np.array([*names, ""], dtype=object)[column.indices.fill_null(len(names)).to_numpy()]


def _chosen(file: TabularFile, columns: Columns) -> list[str]:
    """The columns that become features; those that are named must exist, and be named for one purpose only."""
    asked, target = columns.feature_names or [], columns.target
    named = [*columns.targets, *asked, *columns.drop, *columns.keep, *columns.encode]
    _refuse_absent(file, [name for name in named if name not in file.types and _indicator(file, name) is None])
    _check_asked(file, asked, columns)
    chosen = asked or [name for name in file.types if name and name != target and name not in columns.drop]
    if isinstance(columns.features, int) and len(chosen) != columns.features:
        raise TableError(
            f"{file.path} has {len(chosen)} columns of features, expected {columns.features}: drop the others, or name "
            "the features"
        )
    if not chosen:
        raise TableError(f"{file.path} has no columns of features")
    for name in columns.encode:
        if name not in chosen:
            reason = "it is the target" if name == target else "it is not one of the features"
            raise TableError(f"{file.path}: column {shortened(repr(name))} cannot be encoded: {reason}")
    return chosen


def _refuse_absent(file: TabularFile, names: list[str]) -> None:
    if names:
        raise TableError(f"{file.path} has no column {nearest(names, list(file.types))}")


def _check_asked(file: TabularFile, asked: list[str], columns: Columns) -> None:
    """Raises a TableError if features that were asked for by name contradict each other or other settings."""
    repeated = [name for name, count in Counter(asked).items() if count > 1]
    if repeated:
        raise TableError(f"{file.path}: column {shortened(repr(repeated[0]))} is a feature twice: give it once")
    for name in asked:
        column = name if name in file.types else (_indicator(file, name) or (name,))[0]
        if column == columns.target:
            raise TableError(
                f"{file.path}: column {shortened(repr(column))} is the target and cannot be a feature too, or every "
                "row would give away its label: remove it from the features, or give another target"
            )
        if column in columns.drop:
            raise TableError(
                f"{file.path}: column {shortened(repr(column))} is a feature and cannot be dropped too: remove it from "
                "the columns to drop, or from the features"
            )


def _indicator(file: TabularFile, name: str) -> tuple[str, str] | None:
    """The column and the value of a feature such as "city=Bonn"."""
    for at, sign in enumerate(name):
        if sign == "=" and name[:at] in file.types:
            return name[:at], name[at + 1 :]
    return None


def _categories(files: Sequence[TabularFile], encode: list[str]) -> dict[str, set[str]]:
    values: dict[str, set[str]] = {column: set() for column in encode}
    for file in files:
        plan_features(file, [], encode)
        file.check_labels(encode)
        for group in range(len(file.groups) if encode else 0):
            for batch in file.batches([], encode, np.float32, group):
                for column, categories in values.items():
                    categories |= set(category_keys(batch[column].unique())) - {""}
                    if len(categories) > _MAX_CATEGORIES:
                        raise TableError(
                            f"{file.path}: column {shortened(repr(column))} has more than {_MAX_CATEGORIES:,} "
                            "different values, too many to encode: drop it, or group its values"
                        )
    return values

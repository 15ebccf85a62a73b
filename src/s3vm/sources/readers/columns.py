"""Which columns of a table are features, which of them its labels."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from s3vm._utils.input_checks import shortened
from s3vm._utils.typing import Rows
from s3vm.sources.readers.errors import TableError, nearest
from s3vm.sources.readers.tabular import TabularFile


@dataclass(frozen=True)
class Columns:
    """The columns that a caller asks for; see `s3vm.sources.readers.stream`."""

    target: str | None
    features: Sequence[str] | int | None
    drop: list[str]
    keep: list[str]
    encode: Callable[[Mapping[str, Any] | Rows], Rows] | None
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


def check_columns(file: TabularFile, names: Sequence[str]) -> None:
    """Raises a TableError unless the file has all of these columns."""
    absent = [name for name in names if name not in file.types]
    if absent:
        raise TableError(f"{file.path} has no column{'s' * (len(absent) > 1)} {nearest(absent, list(file.types))}")


def feature_names(file: TabularFile, columns: Columns) -> list[str]:
    """The columns that are features; those that are named must exist, and be named for one purpose only."""
    asked, target = columns.feature_names or [], columns.target
    check_columns(file, [*columns.targets, *asked, *columns.drop, *columns.keep])
    for name, count in Counter(asked).items():
        if count > 1:
            problem = "is a feature twice: give it once"
        elif name == target:
            problem = (
                "is the target and cannot be a feature too, or every row would give away its label: remove it from "
                "the features, or give another target"
            )
        elif name in columns.drop:
            problem = "is a feature and cannot be dropped too: remove it from the columns to drop, or from the features"
        else:
            continue
        raise TableError(f"{file.path}: column {shortened(repr(name))} {problem}")
    chosen = asked or [name for name in file.types if name and name != target and name not in columns.drop]
    if isinstance(columns.features, int) and len(chosen) != columns.features:
        raise TableError(
            f"{file.path} has {len(chosen)} columns of features, expected {columns.features}: drop the others, or name "
            "the features"
        )
    if not chosen:
        raise TableError(f"{file.path} has no columns of features")
    return chosen

"""The rows of a fit, and its first step: which are labelled, with which classes, and which kernel width fits them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from s3vm._utils.arrays import host, is_tensor, project, row_digests, stack
from s3vm._utils.settings import invalid, is_integer, number
from s3vm._utils.typing import Array, Rows
from s3vm._utils.warn import warn
from s3vm.estimators.folds import distinct_rows
from s3vm.estimators.labels import split_labels
from s3vm.estimators.settings import ignores_unlabeled
from s3vm.kernels import Kernel, kernel
from s3vm.philox import Purpose
from s3vm.problem.projection import principal_directions
from s3vm.sources import ArraySource, Source
from s3vm.sources.dask import ClusterSource
from s3vm.sources.projected import on_directions
from s3vm.sources.reservoir import ReservoirSource
from s3vm.training.memory_check import check_projected

_COMPARED = 100  # rows by which a later change of the training rows is noticed
SAMPLE = 10_000  # unlabelled rows from which the median distance is estimated


class TrainingRows(NamedTuple):
    """Rows, their labels or marks, their weights, and the groups that share a fold."""

    X: Any
    y: Array
    weight: Array
    groups: Array | None = None

    def and_then(self, later: "TrainingRows") -> "TrainingRows":
        """These rows, then those that came later."""
        if self.groups is not None:
            raise ValueError("partial_fit cannot continue a fit with groups: call fit with all rows")
        X = later.X
        if sparse.issparse(X) != sparse.issparse(self.X):
            X = X.toarray() if sparse.issparse(X) else sparse.csr_array(X)
        # As objects: NumPy would make text of numbers, or numbers of the kind that holds a mark.
        y = np.concatenate([self.y.astype(object), later.y.astype(object)])
        return TrainingRows(stack([self.X, X]), y, np.concatenate([self.weight, later.weight]))

    def at(self, positions: Array) -> "TrainingRows":
        """The rows at those positions."""
        groups = None if self.groups is None else self.groups[positions]
        return TrainingRows(self.X[positions], self.y[positions], self.weight[positions], groups)

    def without(self, rows: Any) -> "TrainingRows":
        """All rows but those of the given numbers."""
        rows = np.asarray(rows)
        if rows.size and (rows.dtype.kind not in "iu" or not 0 <= rows.min() <= rows.max() < len(self.y)):
            raise invalid("rows", rows, f"row numbers from 0 to {len(self.y) - 1}, in the order of arrival")
        return self.at(np.delete(np.arange(len(self.y)), rows.astype(np.intp)))


class FittedRows(NamedTuple):
    """The rows of a fit that stay with the caller, and what shows whether they have been changed since."""

    rows: TrainingRows
    copied: Any

    @classmethod
    def of(cls, rows: TrainingRows) -> "FittedRows":
        return cls(rows, _spread(rows.X))

    def unchanged(self) -> TrainingRows:
        """The rows; a ValueError if they are not what they were."""
        if (_spread(self.rows.X) != self.copied).sum() > 0:
            raise ValueError("rows given to fit have been changed since: call fit again with all rows, or use predict")
        return self.rows


def _spread(X: Any) -> Any:
    """A copy of some rows from all over X."""
    return host(X[np.linspace(0, X.shape[0] - 1, min(X.shape[0], _COMPARED)).astype(int)]).copy()


class PreparedRows(NamedTuple):
    """The rows of a fit as training needs them."""

    given: TrainingRows  # with labels and marks
    is_labeled: Array  # which of them have a label
    labeled_at: Array  # the numbers of the labelled rows with a weight above 0
    labels: Array  # their codes
    classes: Array  # the labels in order
    distinct: Array  # which distinct row each of them equals
    X: Rows  # the distinct labelled rows
    codes: Array
    weight: Array
    factor: Array  # on C
    groups: Array | None  # of the labelled rows; a group shares a fold
    source: Source | None  # the unlabelled rows
    is_streamed: bool  # whether they were given as a source

    @property
    def n_unlabeled(self) -> int:
        return self.source.n_rows if self.source is not None else 0

    @property
    def arrivals(self) -> ReservoirSource | None:
        """The unlabelled rows of `partial_fit`."""
        return self.source if isinstance(self.source, ReservoirSource) else None


def project_rows(
    settings: Any, rows: TrainingRows, source: Source | None, seed: int, directions: Array | None
) -> tuple[tuple[TrainingRows, Source | None], Array | None]:
    """The rows on directions, if these are wanted: those of an earlier fit, or the leading ones of all rows.

    They are of the labelled rows if the others are ignored.
    """
    if directions is None and is_integer(settings.n_components):
        X = rows.X
        if ignores_unlabeled(settings):
            X = X[np.flatnonzero(split_labels(rows.y, settings.unlabeled)[0])]
        elif source is not None:
            X = stack([host(X), host(source.sample(seed, SAMPLE))])
        directions = principal_directions(X, int(settings.n_components), seed)
    if directions is None:
        return (rows, source), None
    in_memory = source.n_rows if isinstance(source, ArraySource) else 0
    check_projected(int(rows.X.shape[0]) + in_memory, directions.shape[1])
    projected = rows._replace(X=project(rows.X, directions))
    return (projected, None if source is None else on_directions(source, directions)), directions


def prepare(settings: Any, rows: TrainingRows, source: Source | None) -> PreparedRows:
    """Splits rows into labelled and unlabelled ones; with a `source`, all of `rows` are labelled."""
    X, y, weight, groups = rows
    is_labeled, y_labeled = split_labels(y, settings.unlabeled)
    counts = weight[is_labeled] > 0
    at, unlabeled_at = np.flatnonzero(is_labeled)[counts], np.flatnonzero(~is_labeled)
    classes, labels = np.unique(y_labeled[counts], return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"S3VMClassifier needs labelled rows of at least two classes, got {len(classes)} class "
            f"{classes.tolist()}; label some rows of another class, and give them weights above 0"
        )
    is_streamed = source is not None
    if source is None and len(unlabeled_at):
        source = ArraySource(X, unlabeled_at, settings.dtype)
    if source is None:
        mark = "a missing value" if settings.unlabeled is None else repr(settings.unlabeled)
        warn(
            f"no unlabelled rows: this is a plain SVM. Mark unlabelled rows in y with {mark}; inside an estimator that "
            'recodes labels, give them as X_unlabeled (see the page "With other tools")'
        )
    factors = _class_factors(settings.class_weight, classes, labels)
    labeled = host(ArraySource(X, at, settings.dtype).take(slice(None)))
    first, distinct, weight_l = distinct_rows(labeled, labels, weight[at])
    codes, groups = labels[first], None if groups is None else _joined(groups[at], labeled)[first]
    learnt = labeled[first], codes, weight_l, factors[codes], groups
    return PreparedRows(rows, is_labeled, at, labels, classes, distinct, *learnt, source, is_streamed)


def _joined(groups: Array, rows: Rows) -> Array:
    """A number for each group, whatever it is called; groups that have equal rows are one."""
    numbers: dict[Any, int] = {}
    of_group = np.array([numbers.setdefault(group, len(numbers)) for group in groups.tolist()])
    digests = np.unique(row_digests(rows), return_inverse=True)[1] + len(numbers)
    size = int(digests.max()) + 1
    links = sparse.coo_array((np.ones(len(digests)), (of_group, digests)), shape=(size, size))
    return np.asarray(sparse.csgraph.connected_components(links, directed=False)[1][of_group])


def warn_of_single_rows(data: PreparedRows) -> None:
    """Names the classes with a single labelled row, unless all classes are so, which is said elsewhere."""
    single = data.classes[np.bincount(data.codes) == 1].tolist()
    if 0 < len(single) < len(data.classes):
        warn(
            f"class {', '.join(map(repr, single[:5]))} has a single labelled row, which cannot be held out: errors and "
            "choices are those of the other classes. Label another row of it"
        )


def _class_factors(class_weight: Any, classes: Array, codes: Array) -> Array:
    """The factor on C of each class."""
    known, factors = classes.tolist(), np.ones(len(classes))
    if isinstance(class_weight, Mapping):
        is_whole = len(set(known) - set(class_weight)) == 0  # then others may be named, too
        factors = np.array([number(class_weight.get(label, 1.0)) for label in known])
        factors[:] = factors if is_whole or set(class_weight) <= set(known) else np.nan
    elif class_weight is not None:
        is_balanced = isinstance(class_weight, str) and class_weight == "balanced"
        factors = len(codes) / (len(classes) * np.bincount(codes)) if is_balanced else np.full(len(classes), np.nan)
    if not np.all((factors > 0) & (factors < np.inf)):
        expected = f'a dict with a finite number above 0 for each class of {classes.tolist()}, "balanced" or None'
        raise invalid("class_weight", class_weight, expected)
    return factors


def resolve_kernel(settings: Any, data: PreparedRows, seed: int) -> Kernel:
    """The kernel with a width that fits the rows, or the labelled ones if the others are ignored."""
    chosen, source, X, weight = kernel(settings.kernel, settings.gamma), data.source, data.given.X, data.given.weight
    if ignores_unlabeled(settings):
        at = data.labeled_at
        return chosen.resolve(data.X if chosen.gamma == "median" else X[at], weight[at], seed)
    unlabeled_at = np.flatnonzero(~data.is_labeled)
    if isinstance(source, ClusterSource):  # as the same rows in memory, but for rounding
        if chosen.gamma == "scale":
            return chosen.for_variance(source.n_dims, source.variance)
    elif len(unlabeled_at):
        source = ArraySource(X, unlabeled_at, settings.dtype if is_tensor(X) else X.dtype)
    elif source is not None and isinstance(chosen.gamma, str):
        return chosen.resolve(source.sample(seed, SAMPLE), seed=seed)
    if chosen.gamma != "median":
        return chosen.resolve(X, np.where(data.is_labeled, weight, 1.0), seed)
    if source is None:
        return chosen.resolve(data.X, seed=seed)
    if source.n_rows <= SAMPLE:
        return chosen.resolve(host(source.sample(seed, SAMPLE)), seed=seed)
    return chosen.resolve(host(source.batches(seed, Purpose.REFERENCE, range(2, 3), SAMPLE)), seed=seed)

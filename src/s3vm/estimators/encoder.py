"""`TableEncoder`: the columns of a table as features on scales that suit a kernel."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from s3vm._utils.arrays import as_rows
from s3vm._utils.input_checks import validated
from s3vm._utils.settings import check, invalid
from s3vm._utils.typing import Array, Rows
from s3vm._utils.warn import warn
from s3vm.estimators.folds import stratified_folds
from s3vm.estimators.labels import as_column, checked_labels, is_labeled
from s3vm.estimators.representations import Grid, best_cell
from s3vm.kernels import RBF
from s3vm.sources.encoding import ColumnPlan, Misfits, encoded, plan_column
from s3vm.sources.values import Column

SCALES = ("each", "common", "none")
_SAMPLE = 20_000  # rows that the plan is made from
_FEWEST, _MOST = 20, 300  # labelled rows by which the scale is chosen
_CS, _FACTORS, _FOLDS = [10.0], [0.5, 2.0], 5
REACH = 4.0  # spreads beyond which measurements are squashed
_NORMAL = 1.349  # interquartile range of a normal distribution of variance 1
_UNIFORM = 1.5  # ratio of the columns' ranges up to which they look like one unit
_FEWEST_ALIKE = 8  # columns


class TableEncoder(TransformerMixin, BaseEstimator):
    """The columns of a table as features on scales that suit a kernel: numbers, text, dates, with missing values.

    Numbers are centred and scaled, categories and booleans become features of 0 and 1, dates a number and their places
    in the year, the week and the day, and free text tf-idf. A missing value counts as the median, with a feature that
    says so. Columns that are empty, constant, ids or text that hardly repeats are left out; `plan_` says what became of
    each. All of this is decided on a sample of 20,000 rows.

    Parameters
    ----------
    drop, number, category, text : sequences of column names
        Columns to leave out, or to treat as such, whatever they look like.
    scale : "each", "common", "none" or "auto", default "auto"
        Whether numbers are divided by their own robust spread, with outliers squashed, or by one that all of them
        share, as suits pixels, counts or spectra. ``"auto"`` takes what has the lower Brier score on labelled rows held
        out.
    unlabeled : label or None, default -1
        The mark of an unlabelled row in `y`, besides missing values.

    Attributes
    ----------
    plan_ : tuple of ColumnPlan
        What each column became; empty after fitting to an array, whose columns are all numbers.
    scale_ : str
        The scale that was chosen.
    briers_ : dict of str to float
        The Brier score of each scale on labelled rows held out; empty if there were fewer than 20.
    target_ : str or None
        The name of `y`, if it has one.
    feature_names_in_ : array
        The names of the columns, if they have any.

    Examples
    --------
    >>> from s3vm import TableEncoder
    >>> table = {"town": ["Ulm", "Bonn", "Ulm", "Bonn"], "size": [1.5, 2.0, None, 4.0], "sold": ["yes", "no", "no", ""]}
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.get_feature_names_out().tolist()
    ['town=Ulm', 'town=Bonn', 'size', 'size: missing', 'sold', 'sold: missing']
    """

    plan_: tuple[ColumnPlan, ...]
    center_: Array
    factors_: Array
    scale_: str
    briers_: dict[str, float]
    target_: str | None = None
    measured_: Array

    def __init__(
        self,
        *,
        drop: Sequence[str] = (),
        number: Sequence[str] = (),
        category: Sequence[str] = (),
        text: Sequence[str] = (),
        scale: Literal["each", "common", "none", "auto"] = "auto",
        unlabeled: Any = -1,
    ) -> None:
        self.drop = drop
        self.number = number
        self.category = category
        self.text = text
        self.scale = scale
        self.unlabeled = unlabeled

    def fit(self, X: Any, y: Any = None) -> "TableEncoder":
        """Plan the features of a table, or the scale of an array, and choose the scale by the labels, if there are any.

        Parameters
        ----------
        X : data frame, Arrow table or dict of columns; or array or CSR matrix of numbers
        y : labels, some of them missing or equal to `unlabeled`, or None
        """
        check("scale", self.scale, "auto", *SCALES)
        self.__dict__.pop("feature_names_in_", None)
        table = _columns_of(X)
        if table is None:
            X = validated(self, X)
            n_rows = X.shape[0]
        else:
            table = {name: Column.of(values, name) for name, values in table.items()}
            lengths = {len(column.is_known) for column in table.values()}
            if len(lengths) > 1:
                raise ValueError(f"the columns of a table must have equally many rows, not {sorted(lengths)}")
            n_rows = max(lengths, default=0)
        at = np.arange(n_rows)
        if n_rows > _SAMPLE:
            at = np.sort(np.random.RandomState(0).choice(n_rows, _SAMPLE, replace=False))
        self.plan_ = () if table is None else self._plan({name: column.at(at) for name, column in table.items()})

        def rows_at(positions: Array) -> Rows:
            if table is None:
                return X[positions]
            return encoded(self.plan_, {name: column.at(positions) for name, column in table.items()}, Misfits())

        rows = rows_at(at)
        stays = table is not None or sparse.issparse(X) or self.scale == "none"
        self.center_ = np.zeros(rows.shape[1]) if stays else np.median(rows.astype(np.float64), axis=0)
        self.target_ = None if getattr(y, "name", None) is None else str(y.name)
        self.described()
        self._choose_scale(self._centered(rows), y, lambda chosen: self._centered(rows_at(chosen)))
        return self

    def transform(self, X: Any) -> Rows:
        """The features of the rows, of which some may have values that `fit` did not see: a warning says how many."""
        check_is_fitted(self, "factors_")
        columns, misfits = _columns_of(X), Misfits()
        if columns is None:
            columns = validated(self, X, reset=False)
        rows = self.encode(columns, misfits)
        for sentence in misfits.sentences():
            warn(sentence)
        return rows

    def encode(self, batch: Any, misfits: Misfits) -> Rows:
        """The features of a dict of columns, or of a matrix, which is not checked; counts values that do not fit."""
        if not self.plan_:
            return self._scaled(self._centered(batch))
        if not isinstance(batch, Mapping):  # a matrix of these columns
            names = self.columns if batch.shape[1] < len(self.plan_) else [plan.name for plan in self.plan_]
            batch = dict(zip(names, batch.toarray().T if sparse.issparse(batch) else batch.T, strict=True))
        absent = [name for name in self.columns if name not in batch]
        if absent:
            raise ValueError(f"the table has no column {absent[0]!r}, which the model was trained with")
        return self._scaled(encoded(self.plan_, batch, misfits))

    @property
    def columns(self) -> list[str]:
        """The names of the columns that features are made of."""
        return [plan.name for plan in self.plan_ if plan.kind != "left out"]

    @property
    def outcomes(self) -> dict[str, str]:
        """What each column became, in words."""
        return {plan.name: plan.outcome for plan in self.plan_}

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        check_is_fitted(self, "factors_")
        names = [name for plan in self.plan_ for name in plan.feature_names]
        return np.array(names or [f"x{k}" for k in range(len(self.factors_))], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse, tags.transformer_tags.preserves_dtype = True, ["float32"]
        return tags

    def _plan(self, columns: dict[str, Column]) -> tuple[ColumnPlan, ...]:
        wanted: dict[str, str] = {}
        for kind, setting in {"left out": "drop", "number": "number", "category": "category", "text": "text"}.items():
            for name in getattr(self, setting):
                if name not in columns or name in wanted:
                    problem = "names of columns, each for one purpose" if name in wanted else f"some of {list(columns)}"
                    raise invalid(setting, name, problem)
                wanted[name] = kind
        plan = tuple(plan_column(name, column, wanted.get(name)) for name, column in columns.items())
        if not any(one.feature_names for one in plan):
            reasons = "; ".join(f"{one.name!r} is left out ({one.note})" for one in plan[:5])
            raise ValueError(f"no column can be a feature: {reasons}. Name columns to use (category, number, text)")
        return plan

    def described(self) -> "TableEncoder":
        """Sets what follows from the plan and the center."""
        self.n_features_in_ = len(self.plan_ or self.center_)
        if self.plan_:
            self.feature_names_in_ = np.array([plan.name for plan in self.plan_], dtype=object)
        self.measured_ = np.concatenate([plan.is_measured for plan in self.plan_] or [np.ones(len(self.center_), bool)])
        return self

    def _choose_scale(self, rows: Rows, y: Any, rows_at: Callable[[Array], Rows]) -> None:
        candidates, self.briers_ = _factors(rows, self.measured_), {}
        self.scale_ = ("common" if _alike(rows, self.measured_) else "each") if self.scale == "auto" else self.scale
        if self.scale == "auto" and y is not None and np.count_nonzero(self.measured_) > 1:
            at, codes, folds = self._judges(y)
            labeled = rows_at(at)
            for self.scale_, self.factors_ in candidates.items() if len(at) else ():
                X = self._scaled(labeled)
                grid = Grid(X, codes, np.ones(len(codes)), folds, _CS, _FACTORS)
                cell = best_cell(RBF("median").resolve(X, seed=0), grid)
                self.briers_[self.scale_] = float(cell.losses.mean())
            self.scale_ = min(self.briers_, key=lambda name: self.briers_[name], default=self.scale_)
        self.factors_ = candidates.get(self.scale_, np.ones(rows.shape[1]))

    def _judges(self, y: Any) -> tuple[Array, Array, Array]:
        """Labelled rows by which scales are compared: their numbers, classes and folds; none if there are too few."""
        y = as_column(y)
        at = np.flatnonzero(is_labeled(y, None))
        if self.unlabeled is not None:
            at = at[is_labeled(y[at], self.unlabeled)]
        at = at[np.sort(np.random.RandomState(0).permutation(len(at))[:_MOST])]
        if len(at) >= _FEWEST:
            codes = np.unique(checked_labels(y[at], None, False), return_inverse=True)[1]
            folds = stratified_folds(codes, _FOLDS, 0)
            if codes.max() > 0 and folds.max() > 0:
                return at, codes, folds
        return (np.empty(0, np.intp),) * 3

    def _centered(self, rows: Rows) -> Rows:
        return rows if sparse.issparse(rows) or not self.center_.any() else (rows - self.center_).astype(np.float32)

    def _scaled(self, rows: Rows) -> Rows:
        """Centred rows on the scale that was chosen; a measurement x becomes x / sqrt(1 + (x / 4)^2) if on its own."""
        if sparse.issparse(rows):
            scaled = as_rows(rows, np.float32).copy()
            scaled.data = (scaled.data * self.factors_[scaled.indices]).astype(np.float32)
            return scaled
        scaled = (rows * self.factors_.astype(np.float32)).astype(np.float32, copy=False)
        if self.scale_ == "each":
            squashed = scaled[:, self.measured_]
            scaled[:, self.measured_] = squashed / np.sqrt(1 + (squashed / REACH) ** 2)
        return scaled


def _columns_of(X: Any) -> dict[str, Any] | None:
    """The columns of a table by name; None of an array."""
    if isinstance(X, Mapping) and not sparse.issparse(X):  # a DOK matrix is a dict, too
        return {str(name): values for name, values in X.items()}
    names = getattr(X, "column_names", getattr(X, "columns", None))
    if names is None:
        return None
    if len(set(names)) < len(names):
        raise ValueError("X needs unique column names, but some occur twice: rename those columns")
    return {str(name): X[name] for name in names}


def _factors(rows: Rows, measured: Array) -> dict[str, Array]:
    """The factors of each scale on the features; only measurements have any but 1."""
    if sparse.issparse(rows):
        spread = robust = np.sqrt(np.asarray(rows.multiply(rows).mean(axis=0)).ravel())
    else:
        low, high = np.percentile(rows, [25, 75], axis=0)
        spread = rows.std(axis=0, dtype=np.float64)
        robust = np.where(high > low, (high - low) / _NORMAL, spread)
    spread, robust = spread.astype(np.float64), robust.astype(np.float64)
    of_all = np.sqrt(np.mean(spread[measured] ** 2)) if measured.any() else 1.0
    scales = {"each": np.where(robust > 0, robust, 1.0), "common": of_all or 1.0}
    return {name: np.where(measured, 1 / scale, 1.0) for name, scale in scales.items()}


def _alike(rows: Rows, measured: Array) -> bool:
    """Whether many measurements have nearly the same range, as if they had one unit."""
    if sparse.issparse(rows) or np.count_nonzero(measured) < _FEWEST_ALIKE:
        return False
    widths = np.ptp(rows[:, measured], axis=0)
    return bool(np.quantile(widths, 0.9) <= _UNIFORM * max(np.median(widths), 1e-300))

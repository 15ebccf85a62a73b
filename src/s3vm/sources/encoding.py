"""Columns of a table as features: what each is to become, planned on some rows, and the features of any rows."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize

from s3vm._utils.input_checks import shortened
from s3vm._utils.typing import Array, Rows
from s3vm.sources.values import BOOLEANS, Column

KINDS = ("number", "boolean", "category", "date", "text", "left out")
UNSEEN = "a value never seen in training"
UNFIT = "a value that does not fit and counts as missing"
MISSING = "no value, which training never saw"

_FITTING = 0.95  # share of the values that must be numbers, or dates, for a column of them
_MOST_SEEN, _MOST_OWN, _FEW = 1000, 64, 20  # values of a category that are known, and that have a feature each
_WORDS, _JUDGED = 3, 500  # per value, on the mean, from which text is free; values that show whether they are dates
_MOST_TERMS = 2000
_PERIODS = {"year": (365.2425, 60), "week": (7, 6), "day": (1, 0)}  # days, and the span from which they can matter
_TERM = re.compile(r"\b\w\w+\b")
_ID = re.compile(r"(.*[\W_])?(id|index|rownames|unnamed: 0)", re.IGNORECASE)


class Misfits:
    """How many rows of each column had a value that its plan has no place for, and an example."""

    def __init__(self) -> None:
        self.n_rows = 0
        self.counts: Counter[tuple[str, str]] = Counter()
        self._examples: dict[tuple[str, str], str] = {}

    def add(self, name: str, what: str, rows: Array, column: Column) -> None:
        if n_rows := int(np.count_nonzero(rows)):
            self.counts[name, what] += n_rows
            text = column.as_text()
            at = text.codes[np.argmax(rows)]
            self._examples.setdefault((name, what), text.texts[at] if at >= 0 else "")

    def sentences(self) -> list[str]:
        """A warning per column and kind of misfit."""
        return [
            f"column {shortened(repr(name), 60)}: {count / self.n_rows:.2%} of the rows have {what}"
            + (f", such as {shortened(repr(self._examples[name, what]), 60)}" if self._examples[name, what] else "")
            for (name, what), count in self.counts.items()
        ]


@dataclass(frozen=True)
class ColumnPlan:
    """What a column becomes."""

    name: str
    kind: str  # one of `KINDS`
    center: float = 0.0  # subtracted from numbers and dates; what a missing value counts as
    values: tuple[str, ...] = ()  # of a category, the most common first; terms of a text; cycles of a date
    n_own: int = 0  # values of a category with a feature each; the others share one
    weights: tuple[float, ...] = ()  # of the terms of a text: the logarithm of their inverse document frequency
    flag: bool = False  # whether a feature says that the value is missing
    note: str = ""  # why a column is left out
    day_first: bool = False  # whether a date such as 3/4/2026 is in April

    def __post_init__(self) -> None:
        """Checks what may come from an untrusted file."""
        texts = isinstance(self.values, tuple) and all(isinstance(part, str) for part in (*self.values, self.name))
        numbers = isinstance(self.weights, tuple) and all(type(part) is float for part in (*self.weights, self.center))
        flags = type(self.flag) is type(self.day_first) is bool
        if not (texts and numbers and flags and isinstance(self.note, str) and self.kind in KINDS):
            raise ValueError("a ColumnPlan needs a name, a kind, texts and numbers")
        valid = {"category": 0 <= self.n_own <= len(self.values), "text": len(self.weights) == len(self.values)}
        cycles = self.kind != "date" or set(self.values) <= set(_PERIODS)
        if type(self.n_own) is not int or not valid.get(self.kind, True) or not cycles:
            raise ValueError(f"the plan of column {shortened(repr(self.name))} is inconsistent")
        if not np.isfinite([self.center, *self.weights]).all() or len(set(self.values)) < len(self.values):
            raise ValueError(f"the plan of column {shortened(repr(self.name))} has invalid numbers or repeats a value")

    @property
    def feature_names(self) -> list[str]:
        match self.kind:
            case "left out":
                return []
            case "category":
                own = [f"{self.name}={value}" for value in self.values[: self.n_own]]
                names = [*own, f"{self.name}: other"] if self.n_own < len(self.values) else own
            case "date":
                waves = (f"{self.name}: {wave} of {part}" for part in self.values for wave in ("sin", "cos"))
                names = [self.name, *waves]
            case "text":
                names = [f"{self.name}: {term}" for term in self.values]
            case _:
                names = [self.name]
        return [*names, f"{self.name}: missing"] if self.flag else names

    @property
    def is_measured(self) -> Array:
        """Which features are measurements, whose scale is to be chosen; all others have the scale of 0 and 1."""
        return np.arange(len(self.feature_names)) < (self.kind in ("number", "date"))

    @property
    def outcome(self) -> str:
        """What the column became, in a few words."""
        n_values = f"{len(self.values):,} values"
        texts = {
            "category": n_values + (f", {self.n_own} of them on their own" if self.n_own < len(self.values) else ""),
            "date": " and ".join(["a date", *(f"its place in the {part}" for part in self.values)]),
            "text": f"text of {len(self.values):,} terms",
            "left out": f"left out: {self.note}",
        }
        return texts.get(self.kind, f"a {self.kind}") + ", or missing" * self.flag

    def features(self, column: Column, misfits: Misfits) -> Rows:
        """The features of some rows, numbers centred."""
        known = column.is_known
        if self.kind == "text":
            return self._terms(column.as_text())
        if self.kind == "category":
            block, is_missing = self._indicators(column.as_text(), misfits), ~known
        else:
            values = column.measured(self.kind, self.day_first)
            is_missing = np.isnan(values)
            misfits.add(self.name, UNFIT, is_missing & known, column)
            block = self._numbers(np.where(is_missing, self.center, values))
        misfits.add(self.name, MISSING, ~known & (not self.flag), column)
        return np.column_stack([block, is_missing]).astype(np.float32) if self.flag else block

    def _numbers(self, values: Array) -> Array:
        parts = [values - self.center if self.kind != "boolean" else values]
        for part in self.values:
            turn = 2 * np.pi * (values + 4 * (part == "week")) / _PERIODS[part][0]  # 1970 began on a Thursday
            parts += [np.sin(turn), np.cos(turn)]
        return np.column_stack(parts).astype(np.float32)

    def _indicators(self, column: Column, misfits: Misfits) -> Array:
        shares = self.n_own < len(self.values)
        known = {value: min(at, self.n_own) for at, value in enumerate(self.values)}
        nowhere, n_features = self.n_own + shares, self.n_own + shares
        at = np.array([*(known.get(text, -2) for text in column.texts), nowhere])[column.codes]
        misfits.add(self.name, UNSEEN, at == -2, column)
        places = np.where(at == -2, self.n_own if shares else nowhere, at)
        return (places[:, None] == np.arange(n_features)).astype(np.float32)

    def _terms(self, column: Column) -> Rows:
        """Tf-idf, rows of length 1, in which the logarithm of a term's count counts."""
        vectorizer = CountVectorizer(vocabulary=list(self.values), token_pattern=_TERM.pattern, dtype=np.float64)
        counts = sparse.csr_array(vectorizer.transform([*column.texts, ""]))
        counts.data = (1 + np.log(counts.data)) * np.array(self.weights)[counts.indices]
        return normalize(counts).astype(np.float32)[column.codes]


def plan_column(name: str, column: Column, wanted: str | None = None) -> ColumnPlan:
    """What a column with these values should become; `wanted` is a kind that somebody asked for."""
    known = column.is_known
    if wanted == "left out" or column.unusable or not known.any():
        holds = f"holds {shortened(column.unusable, 30)}" if column.unusable else "empty"
        return ColumnPlan(name, "left out", note="dropped" if wanted == "left out" else holds)
    flag = not known.all()
    kind, note = (wanted, "") if wanted else _kind(name, column, known)
    if kind in ("number", "boolean", "date"):
        day_first = kind == "date" and bool(np.isnan(column.as_days(True)).sum() < np.isnan(column.as_days()).sum())
        numbers = column.measured(kind, day_first)
        middle = float(np.nanmedian(numbers)) if not np.isnan(numbers).all() else 0.0
        center = float(middle >= 0.5) if kind == "boolean" else middle
        cycles, flag = _cycles(numbers) if kind == "date" else (), flag or bool(np.isnan(numbers).any())
        return ColumnPlan(name, kind, center, cycles, flag=flag, day_first=day_first)
    counts = column.as_text().counts()
    if kind == "category":
        common = [value for value, _ in counts.most_common(_MOST_SEEN)]
        n_own = min(_MOST_OWN, sum(count > 1 for count in counts.values()), len(common))
        return ColumnPlan(name, kind, values=tuple(common), n_own=n_own if n_own else len(common), flag=flag)
    if kind == "text":
        in_texts = Counter(
            term for text, count in counts.items() for term in set(_TERM.findall(text.lower())) for _ in range(count)
        )
        terms = [term for term, count in in_texts.most_common(_MOST_TERMS) if 1 < count < counts.total()]
        weights = tuple(float(np.log((1 + counts.total()) / (1 + in_texts[term])) + 1) for term in terms)
        if terms:
            return ColumnPlan(name, kind, values=tuple(terms), weights=weights)
        kind, note = "left out", "no word occurs twice"
    return ColumnPlan(name, kind, note=note)


def _kind(name: str, column: Column, known: Array) -> tuple[str, str]:
    """What a column looks like, and why it should be left out."""
    n_known, is_complete = int(known.sum()), bool(known.all())
    if column.numbers is not None:
        return _kind_of_numbers(name, column.numbers[known], column.is_date, is_complete)
    counts = column.counts()
    if all(text.lower() in BOOLEANS for text in counts) and len({BOOLEANS[text.lower()] for text in counts}) == 2:
        return "boolean", ""
    numbers = column.as_numbers()
    if np.mean(~np.isnan(numbers[known])) >= _FITTING:
        return _kind_of_numbers(name, numbers[~np.isnan(numbers)], False, is_complete)
    if len(counts) == 1 and is_complete:
        return "left out", "the same value in every row"
    some = column.at(np.flatnonzero(known)[:: -(-n_known // _JUDGED)])
    if np.mean(~np.isnan([some.as_days(False), some.as_days(True)]), axis=1).max() >= _FITTING:
        return "date", ""
    n_words = sum(count * len(text.split()) for text, count in counts.items()) / n_known
    if n_words >= _WORDS and len(counts) > max(_FEW, n_known / 10):
        return "text", ""
    if len(counts) > max(2, n_known / 2):
        commas = "," in (letters := {*"".join(counts)}) and letters <= {*"+-,.0123456789"}
        return "left out", "numbers with commas: write 1234.5" if commas else "a different value in nearly every row"
    return "category", ""


def _kind_of_numbers(name: str, numbers: Array, is_date: bool, is_complete: bool) -> tuple[str, str]:
    different = np.unique(numbers)
    if len(different) == 1:
        return ("left out", "the same value in every row") if is_complete else ("category", "")
    if is_date:
        return "date", ""
    if set(different.tolist()) <= {0.0, 1.0}:
        return "boolean", ""
    are_whole = bool(np.all(different == np.round(different)))
    spread = different[-1] - different[0]
    if len(different) == len(numbers) >= _FEW and are_whole and (spread < 1.1 * len(numbers) or _ID.fullmatch(name)):
        return "left out", "a different whole number in every row, like an id"
    return "number", ""


def _cycles(days: Array) -> tuple[str, ...]:
    """The cycles that dates go through: monthly ones through the years, but no weeks."""
    known = np.unique(days[~np.isnan(days)])
    step, span = (float(np.diff(known).min()), float(np.ptp(known))) if len(known) > 1 else (0.0, 0.0)
    return tuple(part for part, (period, shortest) in _PERIODS.items() if span > shortest and step < period / 2)


def encoded(plans: Sequence[ColumnPlan], columns: Mapping[str, Any], misfits: Misfits) -> Rows:
    """The features of rows whose columns have those names, numbers centred; sparse if there is text."""
    blocks: list[Any] = []
    n_rows = 0
    for plan in plans:
        if plan.kind != "left out":
            values = columns[plan.name]
            column = values if isinstance(values, Column) else Column.of(values, plan.name)
            n_rows = len(column.is_known)
            blocks.append(plan.features(column, misfits))
    misfits.n_rows += n_rows
    if any(map(sparse.issparse, blocks)):
        return sparse.csr_array(sparse.hstack([sparse.csr_array(block) for block in blocks]))
    return np.hstack(blocks) if blocks else np.empty((n_rows, 0), np.float32)

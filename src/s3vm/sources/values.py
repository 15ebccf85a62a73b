"""Values of a column, whatever library they come from: numbers, or text of which each different value is kept once."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from numbers import Real
from typing import Any

import numpy as np

from s3vm._utils.input_checks import LARGEST, shortened
from s3vm._utils.typing import Array

USUAL_MARKS = frozenset({"NA", "N/A", "n/a", "None", "none", "?"})  # these mean "missing"
EMPTY = frozenset({"", "nan", "NaN", "null", "NULL"})  # so do these, whatever else is said
BOOLEANS = dict.fromkeys(("yes", "y", "true", "t", "on"), 1.0) | dict.fromkeys(("no", "n", "false", "f", "off"), 0.0)
MISSING_TEXT = USUAL_MARKS | EMPTY | {"NaT", "<NA>"}
_NEAR = 1e4  # spreads
_DATES = ("%Y/%m/%d", "%m/%d/%Y", "%d.%m.%Y", "%m/%d/%y", "%d/%b/%Y", "%b %d %Y", "%d %b %Y", "%B %d, %Y")
_DATE_FORMATS = [day + time for day in _DATES for time in ("", " %H:%M", " %H:%M:%S")]


@dataclass(frozen=True, eq=False)
class Column:
    """Values of a column: `numbers` (NaN: missing), or `texts` and which of them each row has (-1: missing).

    `is_date`: the numbers are days since 1970. A column of neither kind has a type that is `unusable`.
    """

    numbers: Array | None = None
    texts: list[str] = field(default_factory=list)
    codes: Array = field(default_factory=lambda: np.empty(0, np.intp))
    is_date: bool = False
    unusable: str = ""

    @classmethod
    def of(cls, values: Any, name: str = "") -> "Column":
        """A column of Arrow, pandas, Polars or NumPy; `name` is for the error."""
        if hasattr(values, "dictionary_encode"):
            return _of_arrow(values)
        try:
            array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
        except ValueError:  # lists of different lengths
            array = np.empty((0, 0))
        if array.ndim != 1:
            raise ValueError(f"column {shortened(repr(name), 60)} must have one value per row, not a list: drop it")
        if array.dtype.kind == "M":
            return cls(_days(array), is_date=True)
        if array.dtype.kind in "biuf":
            return cls(array.astype(np.float64))
        return _of_objects(array.tolist())

    def at(self, rows: Any) -> "Column":
        if self.numbers is not None:
            return Column(self.numbers[rows], is_date=self.is_date)
        used, codes = np.unique(self.codes[rows], return_inverse=True)  # -1 comes first
        return Column(None, [self.texts[at] for at in used if at >= 0], codes - (-1 in used), False, self.unusable)

    @property
    def is_known(self) -> Array:
        return self.codes >= 0 if self.numbers is None else ~np.isnan(self.numbers)

    def as_numbers(self) -> Array:
        """The numbers, NaN where a value is none or too large."""
        numbers = self._each(_number) if self.numbers is None else self.numbers
        return np.where(np.abs(numbers) <= LARGEST["float32"], numbers, np.nan)

    def as_days(self, day_first: bool = False) -> Array:
        return self._each(lambda text: _day(text, day_first)) if self.numbers is None else self.numbers

    def as_booleans(self) -> Array:
        if self.numbers is not None:
            return self.as_numbers()
        return self._each(lambda text: BOOLEANS.get(text.lower(), _number(text)))

    def measured(self, kind: str, day_first: bool) -> Array:
        return self.as_days(day_first) if kind == "date" else getattr(self, f"as_{kind}s")()

    def as_text(self) -> "Column":
        if self.numbers is None:
            return self
        values, codes = np.unique(self.numbers, return_inverse=True)  # NaN comes last, once
        n_known = int(np.count_nonzero(~np.isnan(values)))
        texts = [str(int(value)) if float(value).is_integer() else repr(float(value)) for value in values[:n_known]]
        return Column(None, texts, np.where(codes < n_known, codes, -1))

    def counts(self) -> Counter[str]:
        """How often there is each text."""
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.texts)).tolist()
        return Counter({text: count for text, count in zip(self.texts, counts, strict=True) if count})

    def _each(self, function: Callable[[str], float]) -> Array:
        return np.array([*map(function, self.texts), np.nan], dtype=np.float64)[self.codes]


def _of_arrow(values: Any) -> Column:
    values = values.combine_chunks() if hasattr(values, "combine_chunks") else values
    kind = str(values.type)
    if kind.startswith("dictionary"):
        return _of_arrow(values.cast(values.type.value_type))
    if kind.startswith(("timestamp", "date")):
        return Column(_days(values.cast("timestamp[us]").to_numpy(zero_copy_only=False)), is_date=True)
    if kind in ("string", "large_string", "string_view"):
        try:
            return Column(_as_single(values.cast("float64").to_numpy(zero_copy_only=False)))  # fast, if all are numbers
        except ValueError:
            pairs = values.dictionary_encode()
            return _of_text(pairs.dictionary.to_pylist(), pairs.indices.fill_null(-1).to_numpy())
    if not kind.startswith(("int", "uint", "float", "double", "halffloat", "bool", "decimal", "null")):
        return Column(unusable=kind, codes=np.full(len(values), -1))
    values = values.cast("int8") if kind == "bool" else values
    return Column(values.cast("float64").to_numpy(zero_copy_only=False).astype(np.float64))


def _as_single(numbers: Array) -> Array:
    """Numbers of a text file as a file of float32 has them, unless that blurs them."""
    known = numbers[np.isfinite(numbers)]
    near = len(known) and abs(known).max() <= _NEAR * known.std()
    return numbers.astype(np.float32).astype(np.float64) if near else numbers


def _of_objects(values: list[Any]) -> Column:
    """Python objects of any kind."""
    seen: dict[Any, int] = {}
    try:
        codes = np.array([seen.setdefault(value, len(seen)) for value in values], dtype=np.intp)
    except TypeError:
        return Column(unusable=type(values[0]).__name__, codes=np.full(len(values), -1))
    different = [None if value is None or type(value).__name__ in ("NAType", "NaTType") else value for value in seen]
    known = [value for value in different if value is not None]
    if known and all(isinstance(value, date | np.datetime64) for value in known):
        return Column(_days(np.array(different, dtype="datetime64[us]"))[codes], is_date=True)
    if all(isinstance(value, Real | np.bool_) for value in known):
        return Column(np.array([np.nan if value is None else float(value) for value in different])[codes])
    return _of_text([None if value is None or value != value else str(value) for value in different], codes)


def _of_text(texts: list[str | None], codes: Array) -> Column:
    """Texts without space around them, each once."""
    numbers: dict[str, int] = {}
    stripped = ["" if text is None else text.strip() for text in texts]
    table = [-1 if text in MISSING_TEXT else numbers.setdefault(text, len(numbers)) for text in stripped]
    return Column(None, list(numbers), np.array([*table, -1])[codes])


def _days(dates: Array) -> Array:
    """Days since 1970 with their fraction, NaN for NaT."""
    micros = dates.astype("datetime64[us]")
    return np.where(np.isnat(micros), np.nan, micros.astype(np.int64) / 86_400e6)


def _number(text: str) -> float:
    with suppress(ValueError):
        return float(text)
    return np.nan


def _day(text: str, day_first: bool) -> float:
    """Days since 1970 of a date in one of the usual formats; NaN for other text. `day_first`: 3/4/2026 is in April."""
    if 6 <= len(text) <= 40 and text[0].isalnum() and any(map(str.isdigit, text)):
        slashed = text.replace("-", "/")
        for form in ("", *(form for form in _DATE_FORMATS if ("/" in form) == ("/" in slashed))):
            with suppress(ValueError):
                form = form.replace("%m/%d/", "%d/%m/") if day_first else form
                moment = datetime.strptime(slashed, form) if form else datetime.fromisoformat(text)
                return (moment.replace(tzinfo=None) - datetime(1970, 1, 1)) / timedelta(days=1)
    return np.nan

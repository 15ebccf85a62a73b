"""Labels as files have them."""

import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from s3vm._utils.typing import Array
from s3vm.sources.values import EMPTY

_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d+)?")


def labels_of(values: Any, marks: frozenset[str]) -> Array:
    """A column as an array of objects, None where it is empty, missing, or one of `marks`."""
    column = (values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)).dictionary_encode()
    different = [_label(value, marks) for value in column.dictionary.to_pylist()]
    at = column.indices.fill_null(len(different)).to_numpy()
    return np.array([*different, None], dtype=object)[at]


def _label(value: Any, marks: frozenset[str]) -> Any:
    if isinstance(value, str):
        value = value.strip()
    absent = value is None or value != value or value in EMPTY or label_key(value) in marks or value in marks
    return None if absent else value


def of_one_kind(labels: Array) -> Array:
    """Labels as numbers if all of them are, integers where possible; else as text."""
    different = {value for value in labels if value is not None}
    numbers = {value: _number(value) for value in different}
    if any(number is None for number in numbers.values()):
        numbers = {value: str(value) for value in different}
    elif any(isinstance(number, float) for number in numbers.values()):
        numbers = {value: float(number) for value, number in numbers.items()}
    result = np.empty(len(labels), dtype=object)
    result[:] = [numbers.get(value) for value in labels]
    return result


def label_key(value: Any) -> str:
    """One text for all spellings of a label: "1" for 1, 1.0, "1" and "+1"."""
    number = _number(value)
    return str(value if number is None else number)


def _number(value: Any) -> Any:
    """The label as a number, an integer if possible; None for a name, such as "007"."""
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            return None
        value = float(value) if "." in value else int(value)
    if isinstance(value, float | np.floating | Decimal):
        value = float(value)
        return int(value) if value.is_integer() else value
    return value if isinstance(value, int | np.integer | np.bool_) else None

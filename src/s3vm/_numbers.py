"""Settings of the wrong type, so that a range check names them instead of Python's comparison failing."""

from dataclasses import fields
from typing import Any

import numpy as np

__all__ = ["check_switches", "number"]


def number(value: Any) -> float:
    """The value if it is a number, else NaN, which is in no range."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return float(value) if is_number else np.nan


def check_switches(settings: Any) -> None:
    """Raises a ValueError unless every field of a dataclass that is annotated as bool is True or False."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.type in (bool, "bool") and not isinstance(value, bool | np.bool_):
            raise ValueError(f"{type(settings).__name__} needs {field.name} True or False; got {field.name}={value!r}")

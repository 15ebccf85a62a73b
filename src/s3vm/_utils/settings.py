"""Whether a setting is the number it has to be: the one place that asks, so that an error always names the setting."""

from dataclasses import fields
from typing import Any

import numpy as np

__all__ = ["check_switches", "check_whole", "is_whole", "number", "positive"]


def number(value: Any) -> float:
    """The value if it is a number, else NaN, which is in no range."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        return np.nan
    try:
        return float(value)
    except OverflowError:  # a whole number that no float can hold
        return np.inf if value > 0 else -np.inf


def is_whole(value: Any, least: float = 1) -> bool:
    """Whether this is a whole number of at least `least`."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def positive(name: str, value: Any, zero: bool = False) -> float:
    """The value of that setting as a float; a ValueError unless it is finite and above 0, or 0 if that will do."""
    if not (0 < number(value) < np.inf or (zero and number(value) == 0)):
        raise ValueError(f"{name}={value!r} is not valid: give a finite number {'of at least' if zero else 'above'} 0")
    return number(value)


def check_whole(settings: Any, *names: str, least: int = 1) -> None:
    """Raises a ValueError unless these settings are whole numbers of at least `least`."""
    for name in names:
        if not is_whole(value := getattr(settings, name), least):
            kind = type(settings).__name__
            raise ValueError(f"{kind} needs a whole number {name} of at least {least}; got {name}={value!r}")


def check_switches(settings: Any) -> None:
    """Raises a ValueError unless every field of a dataclass that is annotated as bool is True or False."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.type in (bool, "bool") and not isinstance(value, bool | np.bool_):
            raise ValueError(f"{type(settings).__name__} needs {field.name} True or False; got {field.name}={value!r}")

"""What a setting may be: the one place that checks, so that every error names the setting and says what to give."""

from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "Setting",
    "above",
    "at_least",
    "check",
    "check_settings",
    "check_switches",
    "check_whole",
    "integer",
    "is_integer",
    "is_whole",
    "number",
    "positive",
    "real",
    "switch",
]


class Setting(NamedTuple):
    """A kind of value: what it is called in an error, and whether a value is of this kind."""

    words: str
    accepts: Any


def number(value: Any) -> float:
    """The value if it is a number, else NaN, which is in no range."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        return np.nan
    try:
        return float(value)
    except OverflowError:  # an integer too large for a float
        return np.inf if value > 0 else -np.inf


def is_integer(value: Any, least: float = 1) -> bool:
    """Whether this is an integer of at least `least`."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def integer(least: float = 1) -> Setting:
    return Setting(f"an integer of at least {least}", lambda value: is_integer(value, least))


def above(low: float, most: float = np.inf) -> Setting:
    """A finite number above `low`, and at most `most`."""
    words = f"a finite number above {low:g}" if most == np.inf else f"a number above {low:g} and at most {most:g}"
    return Setting(words, lambda value: low < number(value) <= most and number(value) < np.inf)


def at_least(low: float) -> Setting:
    return Setting(f"a finite number of at least {low:g}", lambda value: low <= number(value) < np.inf)


def real(low: float, high: float) -> Setting:
    return Setting(f"a number from {low:g} to {high:g}", lambda value: low <= number(value) <= high)


switch = Setting("True or False", lambda value: isinstance(value, bool | np.bool_))


def check(name: str, value: Any, *allowed: Any) -> None:
    """Raises a ValueError unless the value is one of `allowed`: kinds of values, texts or None."""
    for kind in allowed:
        if kind.accepts(value) if isinstance(kind, Setting) else isinstance(value, type(kind)) and value == kind:
            return
    words = [
        kind.words if isinstance(kind, Setting) else f'"{kind}"' if isinstance(kind, str) else str(kind)
        for kind in allowed
    ]
    listed = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
    raise ValueError(f"{name}={value!r} is not valid: give {listed}")


def check_settings(owner: Any, **allowed: Any) -> None:
    """Checks attributes of `owner`, each against one kind of value or a tuple of kinds; see `check`."""
    for name, kinds in allowed.items():
        check(f"{type(owner).__name__}: {name}", getattr(owner, name), *(kinds if _is_several(kinds) else (kinds,)))


def _is_several(kinds: Any) -> bool:
    return isinstance(kinds, tuple) and not isinstance(kinds, Setting)


# The old names, until every room uses the above.
is_whole = is_integer


def positive(name: str, value: Any, zero: bool = False) -> float:
    check(name, value, at_least(0) if zero else above(0))
    return number(value)


def check_whole(settings: Any, *names: str, least: int = 1) -> None:
    check_settings(settings, **dict.fromkeys(names, integer(least)))


def check_switches(settings: Any) -> None:
    names = [field.name for field in fields(settings) if field.type in (bool, "bool")]
    check_settings(settings, **dict.fromkeys(names, switch))

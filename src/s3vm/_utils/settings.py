"""What a setting may be: the one place that checks, so that every error names the setting and says what to give."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Setting:
    """A kind of value: what an error calls it, and whether a value is of this kind."""

    words: str
    accepts: Callable[[Any], bool]


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


def integer(least: float = 1, most: float = np.inf) -> Setting:
    words = f"an integer of at least {least}" if most == np.inf else f"an integer from {least} to {most}"
    return Setting(words, lambda value: is_integer(value, least) and bool(value <= most))


def above(low: float, most: float = np.inf) -> Setting:
    """A finite number above `low`, and at most `most`."""
    words = f"a finite number above {low:g}" if most == np.inf else f"a number above {low:g} and at most {most:g}"
    return Setting(words, lambda value: low < number(value) <= most and number(value) < np.inf)


def at_least(low: float) -> Setting:
    return Setting(f"a finite number of at least {low:g}", lambda value: low <= number(value) < np.inf)


def real(low: float, high: float) -> Setting:
    """A number from `low` to `high`, both included."""
    return Setting(f"a number from {low:g} to {high:g}", lambda value: low <= number(value) <= high)


def between(low: float, high: float) -> Setting:
    """A number between `low` and `high`, neither of which is allowed."""
    return Setting(f"a number above {low:g} and below {high:g}", lambda value: low < number(value) < high)


switch = Setting("True or False", lambda value: isinstance(value, bool | np.bool_))
threads = Setting("a number of threads, -1 for all cores", lambda value: is_integer(value, -np.inf) and value != 0)


def check(name: str, value: Any, *allowed: Any) -> None:
    """Raises a ValueError unless the value is one of `allowed`: kinds of values, texts, numbers or None."""
    if any(_is_allowed(value, kind) for kind in allowed):
        return
    words = [
        kind.words if isinstance(kind, Setting) else f'"{kind}"' if isinstance(kind, str) else str(kind)
        for kind in allowed
    ]
    listed = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
    raise invalid(name, value, listed)


def invalid(name: str, value: Any, words: str) -> ValueError:
    """The error for a value of a setting that should be what `words` say."""
    return ValueError(f"{name}={value!r} is not valid: give {words}")


def _is_allowed(value: Any, kind: Any) -> bool:
    if isinstance(kind, Setting):
        return kind.accepts(value)
    if isinstance(kind, int | float):
        return number(value) == kind
    return isinstance(value, type(kind)) and bool(value == kind)


def check_settings(owner: Any, **allowed: Any) -> None:
    """Checks attributes of `owner`, each against one kind of value or a tuple of kinds; see `check`."""
    for name, kinds in allowed.items():
        several = kinds if isinstance(kinds, tuple) else (kinds,)
        check(f"{type(owner).__name__}: {name}", getattr(owner, name), *several)

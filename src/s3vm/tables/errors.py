"""What is said when a file is not the table that was hoped for."""

from collections.abc import Sequence
from difflib import get_close_matches

__all__ = ["TableError", "listed", "nearest"]

_MOST = 5


class TableError(ValueError):
    """A file that is not the table it should be. The message says what is wrong, where, and what to do."""


def listed(things: Sequence[str]) -> str:
    """The first few of them."""
    more = len(things) - _MOST
    return ", ".join(things[:_MOST]) + (f" and {more:,} more" if more > 0 else "")


def nearest(name: str, columns: Sequence[str]) -> str:
    """The name that was not found, with those that it may have been meant to be."""
    near = get_close_matches(name, columns, 3, 0.6) or get_close_matches(name.lower(), columns, 3, 0.4)
    if near:
        return f"{name!r} (did you mean {' or '.join(map(repr, near))}?)"
    return f"{name!r} (there are {listed(list(map(repr, columns)))})"

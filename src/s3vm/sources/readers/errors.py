"""What is said when a file is not the table that was hoped for."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from s3vm._utils.errors import RowsError

__all__ = ["TableError", "listed", "nearest", "shortened"]

_MOST = 5


class TableError(RowsError):
    """A file that is not the table it should be. The message says what is wrong, where, and what to do."""


def shortened(problem: Any, most: int = 200) -> str:
    """What someone else's code or file says, in one line that is not too long."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    return text if len(text) <= most else text[: most - 3] + "..."


def listed(things: Sequence[str]) -> str:
    """The first few of them."""
    more = len(things) - _MOST
    return ", ".join(shortened(thing, 100) for thing in things[:_MOST]) + (f" and {more:,} more" if more > 0 else "")


def nearest(name: str, columns: Sequence[str]) -> str:
    """The name that was not found, with those that it may have been meant to be."""
    name, columns = shortened(name, 80) if name.strip() else name, [column[:80] for column in columns[:1000]]
    near = get_close_matches(name, columns, 3, 0.6) or get_close_matches(name.lower(), columns, 3, 0.4)
    if near:
        return f"{name!r} (did you mean {' or '.join(map(repr, near))}?)"
    return f"{name!r} (there are {listed(list(map(repr, columns)))})"

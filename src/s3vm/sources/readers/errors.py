"""Errors of files, and the parts of their messages."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from s3vm._utils.input_checks import RowsError

_MAX_LISTED = 5


class TableError(RowsError):
    """A file that is not the table it should be. The message says what is wrong, where, and what to do."""


def shortened(problem: Any, length: int = 200) -> str:
    """A message of another library, or text of a file, in one line that is not too long."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    return text if len(text) <= length else text[: length - 3] + "..."


def listed(items: Sequence[str]) -> str:
    """The first few of these items."""
    more = len(items) - _MAX_LISTED
    return ", ".join(shortened(item, 100) for item in items[:_MAX_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def nearest(name: str, columns: Sequence[str]) -> str:
    """The name that does not exist, with similar names that do."""
    name, columns = shortened(name, 80) if name.strip() else name, [column[:80] for column in columns[:1000]]
    near = get_close_matches(name, columns, 3, 0.6) or get_close_matches(name.lower(), columns, 3, 0.4)
    if near:
        return f"{name!r} (did you mean {' or '.join(map(repr, near))}?)"
    return f"{name!r} (there are {listed(list(map(repr, columns)))})"

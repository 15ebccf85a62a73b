"""Errors of files, and the parts of their messages."""

from collections.abc import Sequence
from difflib import get_close_matches

from s3vm._utils.input_checks import RowsError, shortened

MAX_LISTED = 5


class TableError(RowsError):
    """A file that is not a valid table. The message says what is wrong, where, and what to do."""


def listed(items: Sequence[str]) -> str:
    """The first few of these items."""
    more = len(items) - MAX_LISTED
    return ", ".join(shortened(item, 100) for item in items[:MAX_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def nearest(names: Sequence[str], known: Sequence[str]) -> str:
    """The names that do not exist, with similar names that do, or all of them once."""
    known = [name[:80] for name in known[:1000]]
    hints, lacks_hint = [], False
    for name in names:
        name = shortened(name, 80) if name.strip() else name
        near = get_close_matches(name, known, 3, 0.6) or get_close_matches(name.lower(), known, 3, 0.55)
        hints.append(f"{name!r} (did you mean {' or '.join(map(repr, near))}?)" if near else repr(name))
        lacks_hint |= not near
    return listed(hints) + (f" (there are {listed(list(map(repr, known)))})" if lacks_hint else "")

"""Warnings that point at the caller's line."""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from threading import local

PendingWarning = tuple[str, type[Warning]]

_SKIPPED = ("s3vm", "sklearn", "joblib", "contextlib")  # this package, pipelines and searches around it, decorators
_thread = local()


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """`warnings.warn` with the stack level of the first frame outside this package and scikit-learn.

    Counting levels by hand breaks whenever a decorator or a helper function is added on the way.
    """
    pending = getattr(_thread, "pending", None)
    if pending is not None:
        pending.append((message, category))
        return
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _SKIPPED:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


@contextlib.contextmanager
def deferred_warnings() -> Iterator[list[PendingWarning]]:
    """Collects the warnings of this thread instead of issuing them, since no caller's line is on its stack."""
    before, _thread.pending = getattr(_thread, "pending", None), []
    try:
        yield _thread.pending
    finally:
        _thread.pending = before

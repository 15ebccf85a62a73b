"""Warnings that point at the caller's line."""

import contextlib
import sys
import warnings
from concurrent import futures
from pathlib import Path

__all__ = ["warn"]

_SKIPPED = (
    str(Path(__file__).parent.parent),  # this package
    str(contextlib.__file__),  # its decorators
    str(Path(str(futures.__file__)).parent),
    str(Path(str(contextlib.__file__)).with_name("threading.py")),
)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """`warnings.warn` with the stack level of the first frame outside this package.

    Counting levels by hand breaks whenever a decorator or a helper function is added on the way.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_SKIPPED):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)

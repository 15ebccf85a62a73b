"""Optional libraries."""

from importlib import import_module
from typing import Any


def optional(name: str, extra: str) -> Any:
    """The module of that name; if it is not installed, an ImportError that says what to install."""
    try:
        return import_module(name)
    except ImportError as error:
        library = name.partition(".")[0]
        raise ImportError(f'this needs {library}, which is not installed: pip install "s3vm[{extra}]"') from error

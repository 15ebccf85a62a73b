"""Loops compiled by Numba, which keeps what it has compiled for the next process wherever there is room for it."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from numba import njit

__all__ = ["compiled"]


def compiled(**how: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` that does without a cache where no folder can be written, and where the disk is full."""

    def made(function: Callable[..., Any]) -> Any:
        try:
            found = njit(cache=True, **how)(function)
        except RuntimeError:  # neither beside this package nor at the user's home
            return njit(**how)(function)
        cache: Any = getattr(found, "_cache", None)
        if hasattr(cache, "save_overload"):
            save = cache.save_overload

            def saved(*what: Any) -> None:
                with suppress(OSError):
                    save(*what)

            cache.save_overload = saved
        return found

    return made

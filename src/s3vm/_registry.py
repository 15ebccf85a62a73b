"""How a parameter may be given by name or as a configured object."""

from collections.abc import Mapping
from typing import Any

__all__ = ["lookup"]


def lookup(parameter: str, spec: object, registry: Mapping[str, type], needs: type) -> Any:
    """The part registered under the name `spec`, with its defaults, or `spec` itself if it does what `needs` asks.

    `needs` is a runtime-checkable protocol, so that a part written by a user is as good as one of ours.
    """
    if isinstance(spec, str) and spec in registry:
        return registry[spec]()
    if isinstance(spec, needs) and not isinstance(spec, type):
        return spec
    names = ", ".join(repr(name) for name in registry)
    example = next(iter(registry.values())).__name__
    raise ValueError(f"{parameter}={spec!r} is not known: give one of {names}, or a configured object like {example}()")

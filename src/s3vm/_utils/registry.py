"""Classes known by name: those that a parameter may name, and those that a checkpoint may contain."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from s3vm._utils.settings import Setting, check

_Part = TypeVar("_Part", bound=type)

STATE_PARTS: dict[str, type] = {}
"""The dataclasses and named tuples that a solver's state is made of, by name."""


def state_part(name: str) -> Callable[[_Part], _Part]:
    """Registers a class that states contain, so that checkpoints can be written and read without trusting the file."""

    def register(kind: _Part) -> _Part:
        if name in STATE_PARTS:
            raise ValueError(f"a state part {name!r} is already registered")
        STATE_PARTS[name] = kind
        return kind

    return register


def lookup(parameter: str, spec: object, registry: Mapping[str, type], needs: type) -> Any:
    """An instance of the class registered as `spec`, with its defaults, or `spec` itself if it satisfies `needs`.

    `needs` is a runtime-checkable protocol or a base class, so that users can write their own.
    """
    example = f"a configured object like {next(iter(registry.values())).__name__}()"
    own = Setting(example, lambda value: isinstance(value, needs) and not isinstance(value, type))
    check(parameter, spec, *registry, own)
    return registry[spec]() if isinstance(spec, str) else spec

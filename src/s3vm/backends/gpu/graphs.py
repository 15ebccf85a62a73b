"""Many small steps as one: recorded in a CUDA graph, and repeated with other arrays of the same shapes.

A step of a solver is dozens of operations on small tensors, each of which takes the host longer to launch than the
device to run. A graph launches all of them at once.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from s3vm.backends.numpy_base import scan_steps


class _Recorded(NamedTuple):
    graph: Any
    given: list[torch.Tensor]
    made: torch.Tensor
    pattern: Any


class Scan:
    """``carry = step(i, carry, given)`` for each i below n, as in `Backend.scan`.

    New shapes run step by step, which also compiles their kernels; the second time they are recorded.
    """

    def __init__(self, step: Callable[[int, Any, Any], Any]) -> None:
        self._step = step
        self._known: dict[Any, _Recorded | None] = {}

    def __call__(self, carry: Any, given: Any, n: int) -> Iterator[Any]:
        tensors: list[torch.Tensor] = []
        pattern = _without_tensors((carry, given), tensors)
        shapes = (n, *(tuple(tensor.shape) for tensor in tensors))
        if shapes not in self._known:
            self._known[shapes] = None
            return iter(list(scan_steps(self._step, carry, given, n)))
        recorded = self._known[shapes]
        if recorded is None:
            recorded = self._known[shapes] = self._record(tensors, pattern, n)
        else:
            torch._foreach_copy_(recorded.given, tensors)
        recorded.graph.replay()
        return self._results(recorded)

    def _record(self, tensors: list[torch.Tensor], pattern: Any, n: int) -> _Recorded:
        given = [tensor.clone() for tensor in tensors]
        graph = torch.cuda.CUDAGraph()
        made: list[torch.Tensor] = []
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            carry, rest = _with_tensors(pattern, iter(given))
            carries = list(scan_steps(self._step, carry, rest, n))
            shape_of = _without_tensors(carries, made)
            flat = torch.cat([tensor.reshape(-1) for tensor in made])
        return _Recorded(graph, given, flat, (shape_of, [tensor.shape for tensor in made]))

    def _results(self, recorded: _Recorded) -> Iterator[Any]:
        """Copies of the carries, since the next replay overwrites those of the graph."""
        pattern, shapes = recorded.pattern
        parts = recorded.made.clone().split([shape.numel() for shape in shapes])
        tensors = iter([part.view(shape) for part, shape in zip(parts, shapes, strict=True)])
        return iter(_with_tensors(pattern, tensors))


def _without_tensors(x: Any, tensors: list[torch.Tensor]) -> Any:
    """x with its tensors, which are appended to `tensors`, replaced by a mark."""

    def replaced(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        tensors.append(leaf)
        return torch.Tensor

    return _mapped(replaced, x)


def _with_tensors(x: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """The reverse of `_without_tensors`."""
    return _mapped(lambda leaf: next(tensors) if leaf is torch.Tensor else leaf, x)


def _mapped(change: Callable[[Any], Any], x: Any) -> Any:
    """x with `change` applied to what is in its tuples, lists and dicts."""
    if isinstance(x, dict):
        return {name: _mapped(change, value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        parts = [_mapped(change, value) for value in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return change(x)

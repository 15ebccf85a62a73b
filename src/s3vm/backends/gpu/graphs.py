"""Many small steps as one: recorded in a CUDA graph, and done again with other arrays of the same shapes.

A step of a solver is dozens of operations on small tensors, each of which takes the host longer to ask for than the
device to do. A graph asks for all of them at once.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from s3vm.backends.host import scanned

__all__ = ["Scan"]


class _Recorded(NamedTuple):
    graph: Any
    given: list[torch.Tensor]
    made: torch.Tensor
    pattern: Any


class Scan:
    """``carry = step(i, carry, given)`` for each i below n, as in `Backend.scan`.

    Shapes that come for the first time are done step by step, which also compiles what has to be; the second time they
    are recorded.
    """

    def __init__(self, step: Callable[[int, Any, Any], Any]) -> None:
        self._step = step
        self._known: dict[Any, _Recorded | None] = {}

    def __call__(self, carry: Any, given: Any, n: int) -> Iterator[Any]:
        tensors: list[torch.Tensor] = []
        pattern = _taken_apart((carry, given), tensors)
        shapes = (n, *(tuple(tensor.shape) for tensor in tensors))
        if shapes not in self._known:
            self._known[shapes] = None
            return iter(list(scanned(self._step, carry, given, n)))
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
            carry, rest = _put_together(pattern, iter(given))
            carries = list(scanned(self._step, carry, rest, n))
            shape_of = _taken_apart(carries, made)
            flat = torch.cat([tensor.reshape(-1) for tensor in made])
        return _Recorded(graph, given, flat, (shape_of, [tensor.shape for tensor in made]))

    def _results(self, recorded: _Recorded) -> Iterator[Any]:
        """The carries in memory of their own: the next replay writes over the graph's."""
        pattern, shapes = recorded.pattern
        parts = recorded.made.clone().split([shape.numel() for shape in shapes])
        tensors = iter([part.view(shape) for part, shape in zip(parts, shapes, strict=True)])
        return iter(_put_together(pattern, tensors))


def _taken_apart(x: Any, tensors: list[torch.Tensor]) -> Any:
    """x with its tensors, which are appended to `tensors`, replaced by a mark; tuples, lists and dicts are entered."""
    if isinstance(x, torch.Tensor):
        tensors.append(x)
        return torch.Tensor
    if isinstance(x, dict):
        return {name: _taken_apart(value, tensors) for name, value in x.items()}
    if isinstance(x, list | tuple):
        parts = [_taken_apart(value, tensors) for value in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return x


def _put_together(x: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """The reverse."""
    if x is torch.Tensor:
        return next(tensors)
    if isinstance(x, dict):
        return {name: _put_together(value, tensors) for name, value in x.items()}
    if isinstance(x, list | tuple):
        parts = [_put_together(value, tensors) for value in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return x

"""Many small steps as one: recorded in a CUDA graph, and repeated with other arrays of the same shapes.

A step of Algorithm 1 is dozens of operations on small tensors, each of which takes the host longer to launch than the
device to run. A graph launches all of them at once.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from experiments.printed_tsg import scan_steps
from s3vm.backends.gpu.backend import _GpuFeatures


class Window(NamedTuple):
    """Some blocks of features, as tensors that `Scan` can replace."""

    features: _GpuFeatures
    W: Any
    b: torch.Tensor

    def decision(self, coefficients: torch.Tensor, X: Any, first_block: int = 0) -> torch.Tensor:
        of, (W, b) = self.features, self._blocks(first_block, len(coefficients))
        return of._decision(coefficients.to(of._dtype) * of._amplitude, X, X if of._kernels else None, W, b)

    def adjoint(self, G: torch.Tensor, X: torch.Tensor, n_blocks: int, first_block: int = 0) -> torch.Tensor:
        of, (W, b), x = self.features, self._blocks(first_block, n_blocks), X.to(self.features._dtype)
        sums = of._adjoint(G.to(of._dtype) * of._amplitude, x, of._halves(x), W, b)
        return sums.reshape(n_blocks, of.n_features, -1)

    def _blocks(self, first: int, count: int) -> tuple[Any, torch.Tensor]:
        rows = slice(first * self.features._rows, (first + count) * self.features._rows)
        return self.W[rows], self.b[rows]


def window(features: _GpuFeatures, first: int, count: int) -> Window:
    """Blocks ``first..first+count-1``, as one array each of frequencies and offsets."""
    frequencies = features._frequencies
    groups = list(frequencies.groups(first, count))
    if len(groups) > 1:  # they are not contiguous
        arrays = frequencies._drawn(range(first, first + count))
        return Window(features, *frequencies._view(arrays, count * features._rows))
    return Window(features, *groups[0][1:])


def ready(features: _GpuFeatures, X: torch.Tensor) -> Any:
    """Rows in the form that is fastest for `Window.decision`, to be cut and used many times."""
    return features._halves(X.to(features._dtype)) if features._kernels else X


class _Recorded(NamedTuple):
    graph: Any
    given: list[torch.Tensor]
    made: torch.Tensor
    pattern: Any


class Scan:
    """``carry = step(i, carry, given)`` for each i below n, as `scan_steps` does it.

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

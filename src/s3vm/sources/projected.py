"""Rows of any source on directions."""

from functools import partial

from s3vm._utils.arrays import project, stack
from s3vm._utils.typing import Array
from s3vm.sources.arrays import ArraySource
from s3vm.sources.base import Source
from s3vm.sources.dask import ClusterSource
from s3vm.sources.reservoir import ReservoirSource
from s3vm.sources.streams import MappedSource

_CHUNK = 1 << 16  # rows that are read at a time


def on_directions(source: Source, directions: Array) -> Source:
    """The rows ``x @ directions``: computed at once if they are in memory or on a cluster, else when they are read."""
    if isinstance(source, ArraySource):
        starts = range(0, max(1, source.n_rows), _CHUNK)
        parts = [project(source.take(slice(start, start + _CHUNK)), directions) for start in starts]
        return ArraySource(stack(parts), None, source.dtype)
    if isinstance(source, ClusterSource | ReservoirSource):
        source.project(directions)
        return source
    return MappedSource(source, partial(project, projection=directions), directions.shape[1])

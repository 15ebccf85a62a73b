"""Where rows come from: arrays, streams, files, a Dask cluster. A source yields batches and knows nothing of models."""

from s3vm.sources.arrays import ArraySource
from s3vm.sources.base import ENDLESS, Chunk, ExhaustedError, RemoteSource, Source, is_source

__all__ = ["ENDLESS", "ArraySource", "Chunk", "ExhaustedError", "RemoteSource", "Source", "is_source"]

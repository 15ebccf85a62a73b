"""`n_components`: the rows of a fit on their leading principal directions, before anything else looks at them."""

from typing import Any

import numpy as np

from s3vm._utils.arrays import host, project, stack
from s3vm._utils.settings import is_integer
from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.estimators.labels import split_labels
from s3vm.estimators.preparation import SAMPLE, TrainingRows
from s3vm.estimators.settings import ignores_unlabeled
from s3vm.problem.projection import principal_directions
from s3vm.sources import ArraySource, Source
from s3vm.sources.projected import on_directions
from s3vm.training.memory_check import check_projected


def directions_of(settings: Any, rows: TrainingRows, source: Source | None, seed: int) -> Array | None:
    """The leading directions of all rows, or of the labelled ones if the others are ignored; None if not wanted."""
    if not is_integer(settings.n_components):
        return None
    X = rows.X
    if ignores_unlabeled(settings):
        X = X[np.flatnonzero(split_labels(rows.y, settings.unlabeled)[0])]
    elif source is not None:
        X = stack([host(X), host(source.sample(seed, SAMPLE))])
    return principal_directions(X, int(settings.n_components), seed)


def rows_on_directions(
    rows: TrainingRows, source: Source | None, directions: Array | None, backend: Backend
) -> tuple[TrainingRows, Source | None]:
    """The same rows, projected."""
    if directions is None:
        return rows, source
    in_memory = source.n_rows if isinstance(source, ArraySource) else 0
    check_projected(int(rows.X.shape[0]) + in_memory, directions.shape[1])
    projected = rows._replace(X=project(rows.X, directions))
    return projected, None if source is None else on_directions(source, directions)

"""Dask collections: training on the workers that hold their partitions, and lazy predictions."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from s3vm._utils.arrays import as_rows, moments_of, stack
from s3vm._utils.optional import optional
from s3vm._utils.settings import above, check
from s3vm.backends import Backend
from s3vm.estimators.labels import as_column, checked_labels, is_labeled
from s3vm.estimators.preparation import TrainingRows
from s3vm.estimators.validation import checked_rows, is_dask
from s3vm.solvers import Solver, is_auto, solver
from s3vm.sources import is_source
from s3vm.sources.dask import ClusterSource, Engine, Part, direct, finished, variance_from

_PATIENCE = 30.0


def cluster_solver(spec: str | Solver) -> Solver:
    """The solver of that name, with defaults for a cluster, or the configured one; it must work where the rows are."""
    chosen = solver(spec)
    if is_auto(spec):
        return chosen  # its candidates look at a sample, here
    with_defaults = chosen.for_cluster()
    if with_defaults is None:
        raise ValueError(f'solver={spec!r} needs all rows in one place: for dask collections, use "tsg" or TSG(...)')
    return with_defaults if isinstance(spec, str) else chosen


@contextmanager
def cluster_rows(
    estimator: Any, X: Any, y: Any, X_unlabeled: Any, backend: Backend
) -> Iterator[tuple[TrainingRows, ClusterSource | None]]:
    """The labelled rows, brought here, and the unlabelled ones, left where they are until this ends."""
    client, patience = _current_client()
    blocks = _blocks(X, y)
    if X_unlabeled is not None:
        blocks += [(block, None) for block in _partitions(X_unlabeled)]
    mark, dtype = estimator.unlabeled, estimator.dtype
    with client.as_current(), direct(client):
        prepared = optional("dask", "dask").delayed(_prepared, pure=False)
        parts = client.compute([prepared(i, *block, mark, dtype) for i, block in enumerate(blocks)])
        summaries = finished(
            client, client.map(lambda part: (part.unlabeled.shape[0], *part[1:]), parts, pure=False), patience
        )
        counts, labeled, labels, moments = zip(*summaries, strict=True)
        widths = sorted({part.shape[1] for part in labeled})
        if len(widths) > 1:
            raise ValueError(f"all partitions need the same number of columns, but they have {widths}")
        # As objects: blocks may have labels of several kinds, which NumPy would convert to one.
        all_labels = np.array([label for part in labels for label in part.tolist()], dtype=object)
        known = checked_labels(all_labels, mark, some_unlabeled=sum(counts) > 0)
        rows = checked_rows(estimator, stack([part for part in labeled if part.shape[0]]), reset=True, backend=backend)
        if hasattr(X, "columns"):
            _check_feature_names(estimator, getattr(X, "_meta", X), reset=True)
        given, source = TrainingRows(rows, known, np.ones(len(known))), None
        if sum(counts):
            engine = Engine(estimator.backend, dtype, estimator.n_jobs, estimator.cache_bytes)
            source = ClusterSource(client, parts, counts, rows.shape[1], variance_from(moments), engine, patience)
        try:
            yield given, source
        finally:
            if source is not None:
                source.close()


def _current_client() -> tuple[Any, float]:
    """The current client, and the seconds after which a silent worker counts as lost."""
    try:
        client = optional("distributed", "dask").get_client()
    except ValueError:
        raise ValueError(
            "there is no Dask client: create one first, for example client = dask.distributed.Client(), which "
            "starts workers on this machine"
        ) from None
    if client.asynchronous:
        raise ValueError("fit cannot wait for an asynchronous Dask client: give Client(..., asynchronous=False)")
    patience = optional("dask", "dask").config.get("s3vm.patience", _PATIENCE)
    check("patience", patience, above(0))
    return client, patience


def check_remote_fit(estimator: Any, X: Any, given: dict[str, Any]) -> None:
    """Raises a ValueError for what dask collections do not support."""
    if is_source(X):
        raise ValueError("a source stands for X, y and X_unlabeled: give it alone")
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} is not supported for dask collections: leave it at None")
    if estimator.warm_start:
        raise ValueError("warm_start=True is not supported for dask collections: give all rows to fit")


def lazily(estimator: Any, method: str, X: Any) -> Any:
    """A dask array of what that method predicts for each block of X."""
    check_is_fitted(estimator, "model_")
    n_scores = len(estimator.model_.intercept)
    dtype, n_columns = {
        "predict": (estimator.classes_.dtype, None),
        "predict_proba": (np.float64, len(estimator.classes_)),
        "decision_function": (np.float64, None if n_scores == 1 else n_scores),
    }[method]
    if hasattr(X, "to_dask_array"):
        _check_feature_names(estimator, X._meta, reset=False)
        X = X.to_dask_array()
    if X.ndim != 2 or X.shape[1] != estimator.n_features_in_:
        raise ValueError(f"X has the shape {X.shape}, but the model takes {estimator.n_features_in_} columns")
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    n_outputs = () if n_columns is None else (n_columns,)
    chunks: dict[str, Any] = {"drop_axis": 1} if n_columns is None else {"chunks": (X.chunks[0], n_outputs)}
    return X.map_blocks(
        lambda block, model, empty: getattr(model, method)(block) if block.shape[0] else empty,
        model=optional("dask", "dask").delayed(_for_workers(estimator), pure=False),
        meta=np.empty((0, *n_outputs), dtype),
        empty=np.empty((0, *n_outputs), dtype),
        dtype=dtype,
        **chunks,
    )


def _for_workers(estimator: Any) -> Any:
    """The fitted model without what belongs to the training."""
    model = copy(estimator)
    model.verbose, model._resume_point = 0, None
    model.__dict__.pop("feature_names_in_", None)  # blocks have no names
    return model


def _partitions(X: Any) -> list[Any]:
    """The rows of X in pieces: delayed blocks of a dask collection, or all of an array."""
    if not is_dask(X):
        return [X if hasattr(X, "shape") else np.asarray(X)]
    if getattr(X, "numblocks", (0, 1))[1:] not in ((), (1,)):
        X = X.rechunk({1: -1})
    return list(np.ravel(X.to_delayed(optimize_graph=False)))  # X and y share tasks, which must stay the same


def _blocks(X: Any, y: Any) -> list[tuple[Any, Any]]:
    """The rows of X in pieces, each with its labels."""
    if not is_dask(X):
        return [(block, y) for block in _partitions(X)]
    if not is_dask(y):
        y = as_column(y)
        lengths = _lengths(X)
        if len(y) != sum(lengths):
            raise ValueError(f"X has {sum(lengths)} rows, but y has {len(y)} labels")
        labels: list[Any] = np.split(y, np.cumsum(lengths)[:-1])
    else:
        known = hasattr(X, "chunks") and hasattr(y, "chunks") and not np.isnan(X.shape[0]) and not np.isnan(y.shape[0])
        if known and X.shape[0] == y.shape[0]:
            y = y.rechunk((X.chunks[0],))
        labels = _partitions(y)
    rows = _partitions(X)
    if len(rows) != len(labels):
        raise ValueError(f"X has {len(rows)} partitions, but y has {len(labels)}: give them the same")
    return list(zip(rows, labels, strict=True))


def _lengths(X: Any) -> list[int]:
    """How many rows each partition has."""
    if hasattr(X, "chunks") and not np.isnan(X.shape[0]):
        return list(X.chunks[0])
    length = optional("dask", "dask").delayed(len)
    return list(optional("dask", "dask").compute(*[length(block) for block in _partitions(X)]))


def _prepared(number: int, X: Any, y: Any, mark: Any, dtype: str) -> Part:
    """A partition as training needs it, checked; this runs on the worker that has it."""
    from s3vm.estimators.classifier import S3VMClassifier

    try:
        if X.shape[0] == 0:
            no_rows = as_rows(X, dtype)
            return Part(no_rows, no_rows, np.empty(0), moments_of(no_rows))
        X = checked_rows(S3VMClassifier(dtype=dtype), X, reset=True)
        y = None if y is None else as_column(y)
        check_consistent_length(X, y)
        labeled = np.zeros(X.shape[0], dtype=bool) if y is None else is_labeled(y, mark)
    except ValueError as error:
        raise ValueError(f"partition {number}: {error}") from error
    labels = np.empty(0) if y is None else y[labeled]
    # Where all rows are unlabelled and of the right kind, they are not copied.
    unlabeled = as_rows(X if not labeled.any() else X[~labeled], dtype)
    return Part(unlabeled, as_rows(X[labeled], dtype), labels, moments_of(X))

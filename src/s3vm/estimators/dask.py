"""Training on a Dask cluster: the scikit-learn face of `s3vm.sources.dask`."""

from typing import Any, Literal

import numpy as np
from sklearn.utils import check_consistent_length
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from s3vm._utils.arrays import as_rows, stack
from s3vm._utils.optional import optional
from s3vm._utils.progress import Progress
from s3vm._utils.typing import Array
from s3vm.estimators.classifier import SAMPLE, S3VMClassifier, has_probability
from s3vm.estimators.labels import as_column, checked_labels, is_labelled
from s3vm.estimators.training_rows import TrainingRows
from s3vm.kernels import Gamma, Kernel, kernel, variance_of
from s3vm.losses import LabelledLoss, UnlabelledLoss
from s3vm.philox import Purpose
from s3vm.solvers import TSG, Solver, solver
from s3vm.sources import Source
from s3vm.sources.dask import ClusterSource, Engine, Part, WorkerLostError, direct, finished

__all__ = ["LARGE_BATCHES", "DaskS3VMClassifier", "WorkerLostError"]

LARGE_BATCHES = TSG(batch_size=4096)


class DaskS3VMClassifier(S3VMClassifier):
    """`S3VMClassifier` on a Dask cluster, for rows that lie on many machines.

    Every worker holds its partitions. Each iteration sends the coefficients to the workers, and the sum of the
    gradients over the rows of the batch comes back. Which rows these are depends on the seed and on the numbers of the
    rows only, so the model is the same for any number of workers, but for rounding. Rows do not travel, but for the
    labelled ones and a few unlabelled ones that become part of the model (`TSG.n_reference`; all of them if there are
    at most `TSG.max_rows`).

    If a worker is lost, the others go on as soon as Dask has made its partitions again. If Dask cannot, or if a worker
    is silent for `patience` seconds, `fit` ends with a `WorkerLostError`.

    Parameters
    ----------
    solver : TSG, default ``TSG(batch_size=4096)``
        Batches are larger than in `S3VMClassifier`, so that workers have something to do between two messages. With
        the same solver, both classes learn the same model.
    client : distributed.Client or None, default None
        None is the current one.
    patience : float, default 30.0
        Seconds after which a worker that has not been heard of counts as lost.
    n_jobs : int or None, default None
        Threads of a worker; None is as many as it has been given.
    backend : "auto", "cpu", "gpu" or "reference", default "auto"
        Of the workers; ``"auto"`` is the fastest one that a worker has.
    kernel, gamma, C, unlabeled_weight, loss, labeled_loss, class_prior, class_weight, unlabeled, probability, dtype,
    cache_bytes, random_state, verbose
        As in `S3VMClassifier`.

    Examples
    --------
    >>> from dask.distributed import Client  # doctest: +SKIP
    >>> clf = DaskS3VMClassifier(client=Client("tcp://scheduler:8786")).fit(X, y)  # doctest: +SKIP
    >>> clf.predict(X).to_zarr("labels.zarr")  # doctest: +SKIP
    """

    def __init__(
        self,
        solver: str | Solver = LARGE_BATCHES,
        *,
        client: Any = None,
        patience: float = 30.0,
        kernel: str | Kernel = "rbf",
        gamma: Gamma = "scale",
        C: float = 10.0,
        unlabeled_weight: float | Literal["auto", "paper"] = "auto",
        loss: str | UnlabelledLoss = "auto",
        labeled_loss: str | LabelledLoss = "auto",
        class_prior: Any = None,
        class_weight: Any = None,
        unlabeled: Any = -1,
        probability: bool = True,
        backend: str = "auto",
        dtype: str = "float32",
        cache_bytes: int | Literal["auto"] = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int | Progress = 0,
    ) -> None:
        super().__init__(
            solver,
            kernel=kernel,
            gamma=gamma,
            C=C,
            unlabeled_weight=unlabeled_weight,
            loss=loss,
            labeled_loss=labeled_loss,
            class_prior=class_prior,
            class_weight=class_weight,
            unlabeled=unlabeled,
            probability=probability,
            backend=backend,
            dtype=dtype,
            cache_bytes=cache_bytes,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
        )
        self.client = client
        self.patience = patience

    @property
    def partial_fit(self) -> Any:
        """Not on a cluster."""
        raise AttributeError("rows cannot come and leave on a cluster: give all of them to fit")

    forget = partial_fit

    def fit(self, X: Any, y: Any, *, unlabeled: Any = None) -> "DaskS3VMClassifier":  # type: ignore[override]
        """Learn from the rows of X, those marked `unlabeled` in y being unlabelled, and of `unlabeled`.

        Parameters
        ----------
        X : dask array or data frame of shape (n_rows, n_features); or an array, CSR matrix or data frame in memory
            Blocks of a dask array may be CSR matrices. Neither divisions nor the sizes of partitions have to be known.
        y : dask array or series with the partitions of X, or an array of shape (n_rows,)
        unlabeled : dask array or data frame, or None, default None
            More rows, all of them unlabelled.
        """
        self._check_settings()
        self._check_solver()
        client = self._client()
        blocks = _blocks(X, y)
        if unlabeled is not None:
            blocks += [(block, None) for block in _partitions(unlabeled)]
        with client.as_current(), direct(client):
            seen, source = self._load(client, blocks)
            try:
                if hasattr(X, "columns"):
                    _check_feature_names(self, getattr(X, "_meta", X), reset=True)
                self._learn(seen, None, source=source)
            finally:
                if source is not None:
                    source.close()
        return self

    def _load(self, client: Any, blocks: list[tuple[Any, Any]]) -> tuple[TrainingRows, ClusterSource | None]:
        """The labelled rows, brought here, and the unlabelled ones, left where they are."""
        prepared = optional("dask", "dask").delayed(_prepared, pure=False)
        tasks = [prepared(i, *block, self.unlabeled, self.dtype) for i, block in enumerate(blocks)]
        parts = client.compute(tasks)
        summaries = finished(client, client.map(_summary, parts, pure=False), self.patience)
        counts, rows, labels, moments = zip(*summaries, strict=True)
        if len({part.shape[1] for part in rows}) > 1:
            raise ValueError(f"partitions have {sorted({part.shape[1] for part in rows})} columns: give them the same")
        # As objects: blocks of labels may be of several kinds, of which NumPy would make one.
        every = [label for part in labels for label in part.tolist()]
        y = checked_labels(np.array(every, dtype=object), self.unlabeled, some_unlabelled=sum(counts) > 0)
        X = self._checked(stack([part for part in rows if part.shape[0]]), reset=True)
        n_rows, means, variances = np.array(moments).T
        mean = n_rows @ means / n_rows.sum()
        overall = float(n_rows @ (variances + (means - mean) ** 2) / n_rows.sum())
        source = None
        if sum(counts):
            engine = Engine(self.backend, self.dtype, self.n_jobs, self.cache_bytes)
            source = ClusterSource(client, parts, counts, X.shape[1], overall, engine, self.patience)
        return TrainingRows(X, y, np.ones(len(y))), source

    def _kernel(
        self, X: Any, row_weight: Array, rows: Any, unlabelled: Array, seed: int, source: Source | None
    ) -> Kernel:
        if not isinstance(source, ClusterSource):
            return super()._kernel(X, row_weight, rows, unlabelled, seed, source)
        chosen = kernel(self.kernel, self.gamma)
        if chosen.gamma == "scale":
            return chosen.for_variance(source.n_dims, source.variance)
        if chosen.gamma != "median":
            return chosen
        if source.n_rows > SAMPLE:
            return chosen.resolve(source.batches(seed, Purpose.REFERENCE, range(2, 3), SAMPLE), seed=seed)
        return chosen.resolve(source.sample(seed, SAMPLE), seed=seed)

    def decision_function(self, X: Any) -> Any:
        """As in `S3VMClassifier`; of a dask array or data frame, a lazy dask array."""
        check_is_fitted(self)
        n_columns = len(self.model_.intercept)
        return self._lazily("decision_function", X, np.float64, None if n_columns == 1 else n_columns)

    def predict(self, X: Any) -> Any:
        """As in `S3VMClassifier`; of a dask array or data frame, a lazy dask array."""
        check_is_fitted(self)
        return self._lazily("predict", X, self.classes_.dtype, None)

    @available_if(lambda self: has_probability(self))
    def predict_proba(self, X: Any) -> Any:
        """As in `S3VMClassifier`; of a dask array or data frame, a lazy dask array."""
        check_is_fitted(self)
        return self._lazily("predict_proba", X, np.float64, len(self.classes_))

    def _lazily(self, method: str, X: Any, dtype: Any, n_columns: int | None) -> Any:
        if not _is_dask(X):
            return getattr(super(), method)(X)
        if hasattr(X, "to_dask_array"):
            _check_feature_names(self, X._meta, reset=False)
            X = X.to_dask_array()
        if X.ndim != 2 or X.shape[1] != self.n_features_in_:
            raise ValueError(f"X has the shape {X.shape}, and the model takes {self.n_features_in_} columns")
        X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
        local = self.to_local()
        local.__dict__.pop("feature_names_in_", None)  # the blocks have none
        n_outputs = () if n_columns is None else (n_columns,)
        chunks: dict[str, Any] = {"drop_axis": 1} if n_columns is None else {"chunks": (X.chunks[0], n_outputs)}
        return X.map_blocks(
            _applied,
            model=optional("dask", "dask").delayed(local, pure=False),
            method=method,
            meta=np.empty((0, *n_outputs), dtype),
            none=np.empty((0, *n_outputs), dtype),
            dtype=dtype,
            **chunks,
        )

    @property
    def transduction_(self) -> Array:
        raise AttributeError("rows stayed on the cluster: their labels are predict(X)")

    def to_local(self) -> S3VMClassifier:
        """The fitted model as an `S3VMClassifier`, which needs no cluster."""
        check_is_fitted(self)
        settings = {name: value for name, value in self.get_params(deep=False).items() if name not in _OWN}
        local = S3VMClassifier(**settings)
        fitted = {name: value for name, value in vars(self).items() if name not in {*settings, *_OWN, "_training"}}
        local.__dict__.update(fitted)
        return local

    def save(self, path: Any) -> None:
        """Writes the fitted model to one file, from which `s3vm.load` brings back an `S3VMClassifier`."""
        self.to_local().save(path)

    def _client(self) -> Any:
        client = self.client
        if client is None:
            try:
                client = optional("distributed", "dask").get_client()
            except ValueError:
                raise ValueError(
                    "there is no Dask client: make one, for example client = dask.distributed.Client(), which starts "
                    "workers on this machine, or give client="
                ) from None
        if client.asynchronous:
            raise ValueError("an asynchronous Dask client cannot be waited for: give Client(..., asynchronous=False)")
        return client

    def _check_solver(self) -> None:
        chosen = solver(self.solver)
        if not chosen.takes_remote_rows:
            raise ValueError(
                f"solver={self.solver!r} needs the rows in one place: give TSG(...) on a cluster, or train on one "
                "machine with S3VMClassifier"
            )

    def __sklearn_clone__(self) -> "DaskS3VMClassifier":
        # A client is shared, not copied.
        return type(self)(**self.get_params(deep=False))

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"client": None}


_OWN = ("client", "patience")


def _is_dask(X: Any) -> bool:
    return hasattr(X, "dask") and hasattr(X, "to_delayed")


def _partitions(X: Any) -> list[Any]:
    """The rows of X in pieces: delayed blocks of a dask collection, or all of an array."""
    if not _is_dask(X):
        return [X if hasattr(X, "shape") else np.asarray(X)]
    if getattr(X, "numblocks", (0, 1))[1:] not in ((), (1,)):
        X = X.rechunk({1: -1})
    return list(np.ravel(X.to_delayed(optimize_graph=False)))  # X and y share tasks, which must stay the same


def _blocks(X: Any, y: Any) -> list[tuple[Any, Any]]:
    """The rows of X in pieces, each with its labels."""
    if not _is_dask(X):
        return [(block, y) for block in _partitions(X)]
    if not _is_dask(y):
        y = as_column(y)
        lengths = _lengths(X)
        if len(y) != sum(lengths):
            raise ValueError(f"X has {sum(lengths)} rows, and y has {len(y)} labels")
        labels: list[Any] = np.split(y, np.cumsum(lengths)[:-1])
    else:
        known = hasattr(X, "chunks") and hasattr(y, "chunks") and not np.isnan(X.shape[0]) and not np.isnan(y.shape[0])
        if known and X.shape[0] == y.shape[0]:
            y = y.rechunk((X.chunks[0],))
        labels = _partitions(y)
    rows = _partitions(X)
    if len(rows) != len(labels):
        raise ValueError(f"X has {len(rows)} partitions, and y has {len(labels)}: give them the same")
    return list(zip(rows, labels, strict=True))


def _lengths(X: Any) -> list[int]:
    """How many rows each partition has."""
    if hasattr(X, "chunks") and not np.isnan(X.shape[0]):
        return list(X.chunks[0])
    each = optional("dask", "dask").delayed(len)
    return list(optional("dask", "dask").compute(*[each(block) for block in _partitions(X)]))


def _prepared(number: int, X: Any, y: Any, unlabeled: Any, dtype: str) -> Part:
    """A partition as training needs it, checked; this runs on the worker that has it."""
    try:
        if X.shape[0] == 0:
            nothing = as_rows(X, dtype)
            return Part(nothing, nothing, np.empty(0), (0, 0.0, 0.0))
        X = S3VMClassifier(dtype=dtype)._checked(X, reset=True)
        y = None if y is None else as_column(y)
        check_consistent_length(X, y)
        labelled = np.zeros(X.shape[0], dtype=bool) if y is None else is_labelled(y, unlabeled)
    except ValueError as error:
        raise ValueError(f"partition {number}: {error}") from error
    labels = np.empty(0) if y is None else y[labelled]
    moments = (X.shape[0], float(X.sum(dtype=np.float64)) / (X.shape[0] * X.shape[1]), variance_of(X))
    # Where all rows are unlabelled and of the right kind, they are not copied.
    unlabelled = as_rows(X if not labelled.any() else X[~labelled], dtype)
    return Part(unlabelled, as_rows(X[labelled], dtype), labels, moments)


def _summary(part: Part) -> tuple[int, Any, Array, tuple[int, float, float]]:
    """What the client has to know of a partition."""
    return part.unlabelled.shape[0], part.labelled, part.labels, part.moments


def _applied(block: Any, model: S3VMClassifier, method: str, none: Array) -> Array:
    """A method of the model on a block of rows; what there is of `none` if there are no rows."""
    return getattr(model, method)(block) if block.shape[0] else none

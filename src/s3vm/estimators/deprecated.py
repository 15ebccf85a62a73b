"""Names of version 0.1 that will be removed in 0.3."""

from contextlib import nullcontext
from typing import Any

from s3vm._utils.optional import optional
from s3vm._utils.warn import warn
from s3vm.estimators.classifier import S3VMClassifier
from s3vm.estimators.settings import inherits_settings
from s3vm.solvers import Solver, SolverName


class DaskS3VMClassifier(S3VMClassifier):
    """Deprecated: `S3VMClassifier` takes dask collections. This one takes a client and a patience, too."""

    @inherits_settings(S3VMClassifier)
    def __init__(
        self, solver: SolverName | Solver = "auto", *, client: Any = None, patience: float = 30.0, **settings: Any
    ) -> None:
        warn(
            "DaskS3VMClassifier will be removed in 0.3: use S3VMClassifier, which uses the current client. Replace "
            'client= by "with client.as_current():" and patience= by dask.config.set({"s3vm.patience": seconds})',
            FutureWarning,
        )
        super().__init__(solver, **settings)
        self.client, self.patience = client, patience

    def fit(self, X: Any, y: Any, *, X_unlabeled: Any = None, unlabeled: Any = None) -> "DaskS3VMClassifier":  # type: ignore[override]
        client = nullcontext() if self.client is None else self.client.as_current()
        with client, optional("dask", "dask").config.set({"s3vm.patience": self.patience}):
            return super().fit(X, y, X_unlabeled=X_unlabeled, unlabeled=unlabeled)

    def to_local(self) -> S3VMClassifier:
        """The fitted model as an `S3VMClassifier`."""
        local = S3VMClassifier()
        local.__dict__.update({name: value for name, value in vars(self).items() if name not in ("client", "patience")})
        return local

    def save(self, path: Any) -> None:
        self.to_local().save(path)

    def __sklearn_clone__(self) -> "DaskS3VMClassifier":
        return type(self)(**self.get_params(deep=False))  # the client is shared, not copied

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"client": None}

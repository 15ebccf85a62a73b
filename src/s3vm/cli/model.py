"""Models from files."""

from dataclasses import dataclass
from pathlib import Path

import s3vm
from s3vm import S3VMClassifier
from s3vm._utils.typing import Array, Rows
from s3vm.persistence.pipeline import FittedParts, split_pipeline

__all__ = ["LoadedModel", "load_model"]


@dataclass(frozen=True)
class LoadedModel:
    """A model from a file, and the names of its features if it has any.

    Rows come as arrays of the columns in `feature_names`, so that the estimator itself need not check names.
    """

    parts: FittedParts
    feature_names: list[str] | None

    @property
    def classifier(self) -> S3VMClassifier:
        return self.parts.classifier

    @property
    def features(self) -> list[str] | int:
        """The columns to read: their names, or how many there are."""
        return self.feature_names or self.classifier.n_features_in_

    @property
    def has_probabilities(self) -> bool:
        return hasattr(self.classifier, "_calibrator")

    def scores(self, rows: Rows) -> Array:
        """Shape ``(n, K)``; dense rows are scaled in place."""
        return self.classifier.decision_function(self.parts.scale(rows, copy=False)).reshape(rows.shape[0], -1)

    def probabilities(self, scores: Array) -> Array:
        return self.classifier._calibrator.predict_proba(scores)


def load_model(path: str, jobs: int | None = None) -> LoadedModel:
    if not Path(path).is_file():
        raise ValueError(f"{path}: there is no such file")
    parts = split_pipeline(s3vm.load(path))
    if jobs is not None:
        parts.classifier.set_params(n_jobs=jobs)
    return LoadedModel(parts.with_feature_names(None), parts.feature_names)

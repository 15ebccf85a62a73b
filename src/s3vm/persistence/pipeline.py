"""A classifier with or without a scaler in front: what can be saved, exported and compressed."""

from copy import copy
from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from s3vm._utils.typing import Rows
from s3vm.estimators.classifier import S3VMClassifier
from s3vm.estimators.tuning import S3VMClassifierCV

CLASSIFIERS: dict[str, type] = {kind.__name__: kind for kind in (S3VMClassifier, S3VMClassifierCV)}


class FittedParts(NamedTuple):
    """A fitted classifier, the scaler in front of it if there is one, and the names of both steps in the pipeline."""

    classifier: S3VMClassifier
    scaler: StandardScaler | None = None
    step_names: tuple[str, ...] = ("scaler", "classifier")

    @property
    def feature_names(self) -> list[str] | None:
        """The column names that the first step was fitted with."""
        names = getattr(self.scaler or self.classifier, "feature_names_in_", None)
        return None if names is None else names.tolist()

    def with_feature_names(self, names: list[str] | None) -> "FittedParts":
        """A copy that expects columns of these names, or with None, arrays."""
        parts = self._replace(classifier=copy(self.classifier), scaler=copy(self.scaler))
        first: Any = parts.scaler or parts.classifier
        for part in {first, parts.classifier}:
            part.__dict__.pop("feature_names_in_", None)
        if names is not None:
            first.feature_names_in_ = np.array(names, dtype=object)
        return parts

    def scale(self, rows: Any, copy: bool | None = None) -> Rows:
        """The rows as the classifier takes them."""
        return rows if self.scaler is None else self.scaler.transform(rows, copy=copy)

    def to_pipeline(self) -> Any:
        """The classifier, or the pipeline of the scaler and the classifier."""
        if self.scaler is None:
            return self.classifier
        return Pipeline(list(zip(self.step_names, (self.scaler, self.classifier), strict=True)))


def split_pipeline(estimator: Any) -> FittedParts:
    """The parts of a classifier, of a ``Pipeline`` of ``StandardScaler`` and classifier, or of a search over them."""
    estimator = getattr(estimator, "best_estimator_", estimator)  # of a search
    classifier, scaler, step_names = estimator, None, ()
    if isinstance(estimator, Pipeline) and len(estimator.steps) == 2:
        step_names, (scaler, classifier) = zip(*estimator.steps, strict=True)
    if type(classifier) not in CLASSIFIERS.values() or (step_names and type(scaler) is not StandardScaler):
        steps = estimator.named_steps.values() if isinstance(estimator, Pipeline) else [estimator]
        raise TypeError(
            f"cannot save, export or compress {' and '.join(type(step).__name__ for step in steps)}: give an "
            f"{' or '.join(CLASSIFIERS)}, a Pipeline of StandardScaler and one of them, or a fitted search over these. "
            "pickle and skops take any estimator, and s3vm.register_onnx() lets skl2onnx convert any pipeline"
        )
    for part in (scaler, classifier):
        if part is not None:
            check_is_fitted(part)
    return FittedParts(classifier, scaler, step_names)

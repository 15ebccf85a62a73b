"""A classifier with or without a transformer in front: what can be saved, exported and compressed."""

from copy import copy
from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from s3vm._utils.typing import Rows
from s3vm.estimators.classifier import S3VMClassifier
from s3vm.estimators.encoder import TableEncoder
from s3vm.estimators.tuning import S3VMClassifierCV

CLASSIFIERS: dict[str, type] = {kind.__name__: kind for kind in (S3VMClassifier, S3VMClassifierCV)}


class FittedParts(NamedTuple):
    """A fitted classifier, the transformer in front of it if there is one, and the names of both steps."""

    classifier: S3VMClassifier
    transformer: StandardScaler | TableEncoder | None = None
    step_names: tuple[str, ...] = ("transformer", "classifier")

    @property
    def encoder(self) -> TableEncoder | None:
        return self.transformer if isinstance(self.transformer, TableEncoder) else None

    @property
    def scaler(self) -> StandardScaler | None:
        return None if self.encoder is not None else self.transformer

    @property
    def feature_names(self) -> list[str] | None:
        """The names of the columns that are used, if the first step was fitted with names."""
        if self.encoder is not None and self.encoder.plan_:
            return self.encoder.columns
        names = getattr(self.transformer or self.classifier, "feature_names_in_", None)
        return None if names is None else names.tolist()

    def with_feature_names(self, names: list[str] | None) -> "FittedParts":
        """A copy whose scaler or classifier expects columns of these names, or with None, arrays."""
        parts = self._replace(classifier=copy(self.classifier), transformer=copy(self.transformer))
        first: Any = parts.transformer or parts.classifier
        for part in {parts.scaler or parts.classifier, parts.classifier}:
            part.__dict__.pop("feature_names_in_", None)
        if names is not None and parts.encoder is None:
            first.feature_names_in_ = np.array(names, dtype=object)
        return parts

    def transform(self, rows: Any, **options: Any) -> Rows:
        """The rows as the classifier takes them."""
        return rows if self.transformer is None else self.transformer.transform(rows, **options)

    def to_pipeline(self) -> Any:
        """The classifier, or the pipeline of the transformer and the classifier."""
        if self.transformer is None:
            return self.classifier
        return Pipeline(list(zip(self.step_names, (self.transformer, self.classifier), strict=True)))


def split_pipeline(estimator: Any) -> FittedParts:
    """The parts of a classifier, of a ``Pipeline`` of a transformer and a classifier, or of a search over them."""
    if hasattr(estimator, "refit"):  # a search
        check_is_fitted(estimator)
        if not hasattr(estimator, "best_estimator_"):
            kind = type(estimator).__name__
            raise ValueError(f"this {kind} was fitted with refit=False and holds no classifier: give refit=True")
        estimator = estimator.best_estimator_
    classifier, transformer, step_names = estimator, None, ()
    if isinstance(estimator, Pipeline) and len(estimator.steps) == 2:
        step_names, (transformer, classifier) = zip(*estimator.steps, strict=True)
    is_known = not step_names or type(transformer) in (StandardScaler, TableEncoder)
    if type(classifier) not in CLASSIFIERS.values() or not is_known:
        steps = estimator.named_steps.values() if isinstance(estimator, Pipeline) else [estimator]
        raise TypeError(
            f"cannot save, export or compress {' and '.join(type(step).__name__ for step in steps)}: give an "
            f"{' or '.join(CLASSIFIERS)}, a Pipeline of TableEncoder or StandardScaler and one of them, or a fitted "
            "search over these. pickle and skops take any estimator, and s3vm.register_onnx() lets skl2onnx convert "
            "any pipeline"
        )
    for part in (transformer, classifier):
        if part is not None:
            check_is_fitted(part)
    return FittedParts(classifier, transformer, step_names)

"""A classifier with or without a scaler in front: what can be saved, exported and compressed."""

from typing import Any, NamedTuple

from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from s3vm.estimators.classifier import S3VMClassifier
from s3vm.estimators.tuning import S3VMClassifierCV

__all__ = ["CLASSIFIERS", "Parts", "split_pipeline"]

CLASSIFIERS: dict[str, type] = {kind.__name__: kind for kind in (S3VMClassifier, S3VMClassifierCV)}


class Parts(NamedTuple):
    """A fitted classifier, and the scaler and the names of the steps if it came in a pipeline."""

    classifier: S3VMClassifier
    scaler: StandardScaler | None = None
    names: tuple[str, ...] = ()

    def to_pipeline(self) -> Any:
        """The classifier, or the pipeline of the scaler and the classifier."""
        if self.scaler is None:
            return self.classifier
        return Pipeline(list(zip(self.names, (self.scaler, self.classifier), strict=True)))


def split_pipeline(estimator: Any) -> Parts:
    """The parts of a fitted classifier or of a fitted ``Pipeline`` of ``StandardScaler`` and classifier."""
    scaler, names = None, ()
    classifier = estimator
    if isinstance(estimator, Pipeline) and len(estimator.steps) == 2:
        names, (scaler, classifier) = zip(*estimator.steps, strict=True)
    if type(classifier) not in CLASSIFIERS.values() or (names and type(scaler) is not StandardScaler):
        raise TypeError(
            f"this needs an {' or '.join(CLASSIFIERS)}, or a Pipeline of StandardScaler and one of them; "
            f"got {estimator!r}. pickle and skops take any estimator"
        )
    for part in (scaler, classifier):
        if part is not None:
            check_is_fitted(part)
    return Parts(classifier, scaler, names)

"""What a fit says of its rows: held-out predictions of the labelled ones, and labels of the others."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from s3vm import backends
from s3vm._utils.scores import predicted_codes
from s3vm._utils.typing import Array
from s3vm.estimators.prediction import Temperature, scores_of
from s3vm.estimators.preparation import FittedRows, PreparedRows
from s3vm.estimators.resuming import all_rows
from s3vm.model import Model


class HeldOut(NamedTuple):
    """What a fit knows of its labelled rows; rows of NaN scores could not be held out."""

    n_rows: int  # given to fit, labelled or not
    labeled_at: Array
    codes: Array
    scores: Array  # (n_labeled, K)
    temperature: Temperature | None

    @classmethod
    def of(cls, data: PreparedRows, scores: Array, temperature: Temperature | None) -> "HeldOut":
        """From the scores of the distinct labelled rows."""
        return cls(len(data.given.y), data.labeled_at, data.labels, scores[data.distinct], temperature)

    def spread(self, values: Array) -> Array:
        """Values of the labelled rows as those of all rows, NaN elsewhere."""
        values_of_all = np.full((self.n_rows, *values.shape[1:]), np.nan)
        values_of_all[self.labeled_at] = values
        return values_of_all


class RowAttributes:
    """The attributes of a fitted classifier that have an entry per row given to `fit`."""

    backend: Any
    dtype: str
    n_jobs: int | None
    classes_: Array
    model_: Model
    _held_out: HeldOut
    _fitted_rows: FittedRows | None = None
    _transduction: Array | None = None

    @property
    def transduction_(self) -> Array:
        """A label for each row given to `fit`: its own, or the predicted one, computed when first asked for."""
        if self._transduction is None:
            check_is_fitted(self, "model_")
            X, (n_rows, labeled_at, labels, *_) = all_rows(self, AttributeError).X, self._held_out
            backend = backends.backend(self.backend, self.dtype, self.n_jobs)
            others = np.setdiff1d(np.arange(n_rows), labeled_at, assume_unique=True)
            codes = np.empty(n_rows, dtype=np.intp)
            codes[labeled_at] = labels
            codes[others] = scores_of(self.model_, X, others, self.dtype, backend, predicted_codes)
            self._transduction = self.classes_[codes]
        return self._transduction

    @property
    def held_out_scores_(self) -> Array:
        """`decision_function` of each row given to `fit` by models trained without it; NaN for unlabelled rows."""
        scores = self._held_out.spread(self._held_out.scores)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    @property
    def held_out_proba_(self) -> Array:
        """`predict_proba` of each row given to `fit` by models trained without it; NaN for unlabelled rows."""
        if self._held_out.temperature is None:
            raise AttributeError("held_out_proba_ needs probability=True when the model is fitted")
        return self._held_out.spread(self._held_out.temperature.predict_proba(self._held_out.scores))

    @property
    def doubtful_(self) -> dict[str, Array]:
        """Labelled rows whose held-out prediction contradicts their label, the worst first, as columns of a table.

        ``"row"`` is the number of the row in `fit`, and ``"doubt"`` the probability that the label is wrong.
        """
        _, rows, codes, scores, temperature = self._held_out
        known = np.isfinite(scores).all(axis=1)
        rows, codes = rows[known], codes[known]
        probabilities = (temperature or Temperature(1.0)).predict_proba(scores[known])
        predicted = probabilities.argmax(axis=1)
        doubt = 1 - probabilities[np.arange(len(codes)), codes]
        order = np.argsort(-doubt, kind="stable")
        order = order[predicted[order] != codes[order]]
        columns: dict[str, Any] = {"row": rows, "label": self.classes_[codes], "predicted": self.classes_[predicted]}
        return {name: column[order] for name, column in (columns | {"doubt": doubt}).items()}

"""What a fit says of its rows: held-out predictions of the labelled ones, and labels of the others."""

from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from s3vm._utils.typing import Array
from s3vm.estimators.prediction import Temperature, transduced_codes
from s3vm.estimators.preparation import FittedRows, PreparedRows
from s3vm.estimators.suggestions import suggest
from s3vm.estimators.thresholds import set_threshold


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
    """The attributes of a fitted classifier that have an entry per row given to `fit`, and what they are used for."""

    classes_: Array
    threshold_: float
    _held_out: HeldOut
    _fitted_rows: FittedRows | None = None
    _transduction: Array | None = None

    @property
    def transduction_(self) -> Array:
        """A label for each row given to `fit`: its own, or the predicted one, computed when first asked for."""
        if self._transduction is None:
            self._transduction = self.classes_[transduced_codes(self)]
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

    def suggest(self, X: Any, n: int = 20, y: Any = None, *, random_state: int = 0) -> Array:
        """The numbers of the `n` rows of X to label next, the most informative first.

        They are in doubt, differ from each other and from the rows that have a label, and are near many others. Every
        fifth is drawn at random, so that the shares of the classes can be estimated from these.

        Parameters
        ----------
        X : array, CSR matrix or data frame of shape (n_rows, n_features)
            Rows with or without labels; of more than 2,000 without, a random sample is searched.
        n : int, default 20
        y : array of shape (n_rows,) or None, default None
            The labels of X, with marks, so that no labelled row is suggested; None: those given to `fit`.
        random_state : int, default 0
        """
        return suggest(self, X, n, y, random_state)

    def set_threshold(self, aim: float | str, *, positive: Any = None) -> Self:
        """Move the boundary between two classes, for example because one of them is rare.

        `decision_function` is lowered by the threshold, so that `predict` follows; `predict_proba` stays as it is. The
        next fit starts at 0 again.

        Parameters
        ----------
        aim : float, "f1", or text such as "precision=0.9" or "recall=0.9"
            A threshold on the scores, or what it should reach on the labelled rows held out: the largest F1, the
            largest recall at that precision or more, or the largest precision at that recall or more.
        positive : label or None, default None
            The class that the aim is about; None: ``classes_[1]``.
        """
        check_is_fitted(self, "model_")
        set_threshold(self, aim, positive)
        return self

"""Decision thresholds for two classes, chosen for an aim on labelled rows held out."""

import re
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.metrics import precision_recall_curve
from sklearn.utils.validation import check_is_fitted

from s3vm._utils.settings import invalid
from s3vm._utils.typing import Array
from s3vm.estimators.prediction import Temperature
from s3vm.estimators.row_attributes import RowAttributes

_AIM = re.compile(r"(precision|recall)=(0?\.\d+|1(?:\.0*)?)")


class ThresholdMixin(RowAttributes):
    """A fitted classifier whose boundary between two classes can be moved."""

    threshold_: float
    _calibrator: Temperature

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
        classes = self.classes_.tolist()
        if len(classes) != 2:
            raise ValueError(f"a threshold is for two classes, but there are {len(classes)}")
        if positive is not None and positive not in classes:
            raise invalid("positive", positive, f"one of {classes}")
        sign = -1.0 if positive is not None and positive == classes[0] else 1.0
        before = self.threshold_
        if isinstance(aim, int | float) and np.isfinite(aim):
            threshold = sign * float(aim)
        else:
            if not hasattr(self, "_held_out"):
                raise ValueError("a model file has no held-out scores to choose a threshold by: choose it after fit")
            known = np.isfinite(self._held_out.scores[:, 0])
            codes, scores = self._held_out.codes[known], self._held_out.scores[known, 0] + before
            if len(np.unique(codes)) < 2:
                raise ValueError("no labelled rows of both classes were held out: label more, and set probability=True")
            threshold = sign * best_threshold(codes == (sign > 0), sign * scores, aim)
        shift = threshold - before
        self.model_ = replace(self.model_, intercept=self.model_.intercept - shift)
        if hasattr(self, "_calibrator"):  # the probabilities stay what they are
            self._calibrator = replace(self._calibrator, offset=threshold)
        if hasattr(self, "_held_out"):
            temperature = self._held_out.temperature and self._calibrator
            self._held_out = self._held_out._replace(scores=self._held_out.scores - shift, temperature=temperature)
        self.threshold_, self._transduction = threshold, None
        return self


def best_threshold(is_positive: Array, scores: Array, aim: float | str) -> float:
    """The threshold on scores that reaches the aim best: halfway between the last row above it and the next.

    ``"f1"`` is the largest F1, ``"precision=0.9"`` the largest recall at that precision or more, and ``"recall=0.9"``
    the largest precision at that recall or more.
    """
    match = _AIM.fullmatch(str(aim))
    if aim != "f1" and match is None:
        raise invalid("aim", aim, 'a number, "f1", or for example "precision=0.9" or "recall=0.9"')
    precision, recall, values = precision_recall_curve(is_positive, scores)
    precision, recall = precision[:-1], recall[:-1]  # one entry per value: rows with that score or more
    if match is None:
        quality = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    else:
        bound, other = (precision, recall) if match[1] == "precision" else (recall, precision)
        quality = np.where(bound >= float(match[2]), other, -1.0)
        if quality.max() < 0:
            raise ValueError(f"no threshold reaches {aim}: the best is {bound.max():.3g}")
    at = int(quality.argmax())
    below = values[at - 1] if at else values[0] - 1.0
    return float((values[at] + below) / 2)

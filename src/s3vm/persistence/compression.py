"""The learnt function again, made of fewer pieces.

A model may hold tens of thousands of random features, or thousands of rows as centres, where a few hundred do: its
values at unlabelled rows say what the function is, and least squares find the smaller one that has these values.
"""

import copy
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy import linalg, sparse
from sklearn.cluster import MiniBatchKMeans
from threadpoolctl import threadpool_limits

from s3vm import backends
from s3vm._utils.blas import one_blas_thread
from s3vm._utils.scores import predicted_codes
from s3vm._utils.settings import is_whole, number
from s3vm._utils.typing import Array, Rows
from s3vm.estimators.classifier import S3VMClassifier
from s3vm.estimators.validation import checked_rows
from s3vm.model import Model
from s3vm.persistence.pipeline import Parts, split_pipeline
from s3vm.sources import ArraySource

__all__ = ["Compression", "compress"]

_FEWEST = 16
_MOST = 2048
_CENTRE = 16  # a kernel function at a centre takes about as long as this many random features
_MOST_FITTED = 20_000
_MOST_HELD_OUT = 10_000
_CHUNK = 4096
_RIDGE = 1e-8  # beside pieces of mean square 1: what float32 features can bear
_TIMED = 2000
_MOST_SCORE = 1e100  # whose square, summed over all rows, is still a number


@dataclass(frozen=True)
class Compression:
    """What a compression came to. `print` it for a plain sentence.

    Attributes
    ----------
    kind : "features", "landmarks" or "none"
    size, size_before : int
        Random features and centres, together, of the new model and of the old one.
    agreement : float
        Share of held-out rows that both models put into the same class.
    least_agreement : float
        The same among the rows of one class of the old model, where it is least.
    rms : float
        Root mean square of the difference of their scores there, in standard deviations of the score.
    speed_up : float
        How many times as fast the new model predicts, measured on held-out rows.
    """

    kind: str
    size: int
    size_before: int
    agreement: float = 1.0
    least_agreement: float = 1.0
    rms: float = 0.0
    speed_up: float = 1.0

    def __post_init__(self) -> None:
        """It may come from a file that anyone has written."""
        numbers = (self.size, self.size_before, self.agreement, self.least_agreement, self.rms, self.speed_up)
        if (
            self.kind not in ("features", "landmarks", "none")
            or not np.isfinite([number(one) for one in numbers]).all()
        ):
            raise ValueError("a compression is into features or landmarks, and told in numbers")

    def __str__(self) -> str:
        if self.kind == "none":
            return f"a model of {self.size:,} pieces, which is too small to be made smaller"
        return (
            f"{self.size_before:,} pieces became {self.size:,} {self.kind}: {self.agreement:.2%} of held-out rows keep "
            f"their class ({self.least_agreement:.1%} in the class where it is least), scores differ by "
            f"{self.rms:.1%} of their spread, predictions are {self.speed_up:.3g} times as fast"
        )

    def within(self, tolerance: float) -> bool:
        """Whether no more than that share of all rows changed their class, and ten times that share in any class."""
        return self.agreement >= 1 - tolerance and self.least_agreement >= 1 - 10 * tolerance


def compress(
    estimator: Any,
    X: Any,
    *,
    tolerance: float = 0.01,
    into: Literal["auto", "features", "landmarks"] = "auto",
    size: int | None = None,
) -> Any:
    """A smaller classifier that predicts nearly the same.

    Parameters
    ----------
    estimator : a fitted S3VMClassifier, or a Pipeline of StandardScaler and one
    X : array, CSR matrix or data frame
        Rows like those to be predicted, without labels; better not those that the model was trained on, which it has
        driven away from its boundary. The more the better, up to 30,000, of which a third is held out to measure how
        well both agree.
    tolerance : float in (0, 1), default 0.01
        Share of held-out rows that may change their class; in a single class, which may be rare, ten times that share.
        The size grows until no more do.
    into : "auto", "features" or "landmarks", default "auto"
        What the new model is made of: random features, which are the fastest, take a number each in a model file and
        hold nothing of the rows; or kernel functions at means of rows (at rows themselves, if X is sparse), of which
        fewer are needed. ``"auto"`` takes landmarks only where features do not reach the tolerance.
    size : int or None, default None
        This many, instead of as many as `tolerance` asks for.

    Returns
    -------
    a new estimator of the same kind
        Its `compression_` (that of its classifier, in a pipeline) says what it came to. If no model that is at least
        twice as fast keeps within the tolerance, a warning says so, and it is the nearest that was found.
    """
    if not 0 < number(tolerance) < 1:
        raise ValueError(f"tolerance={tolerance!r} is not valid: give a number between 0 and 1")
    if into not in ("auto", "features", "landmarks"):
        raise ValueError(f'into={into!r} is not known: give "auto", "features" or "landmarks"')
    parts = split_pipeline(estimator)
    rows = X if parts.scaler is None else parts.scaler.transform(X)
    # Sums in the same order on any number of cores.
    with one_blas_thread, threadpool_limits(limits=1, user_api="openmp"):
        smaller = _Compressor(parts.classifier, rows).run(tolerance, into, size)
    return Parts(smaller, parts.scaler, parts.names).to_pipeline()


class _Compressor:
    """One classifier, the rows that say what its function is, and those that say how well another one agrees."""

    def __init__(self, clf: S3VMClassifier, X: Any) -> None:
        self._clf, self._model = clf, clf.model_
        self._engine = backends.backend(clf.backend, clf.dtype)
        X = checked_rows(clf, X, reset=False, backend=self._engine)
        if X.shape[0] < 4 * _FEWEST:
            raise ValueError(f"{X.shape[0]} rows do not say what a function is: give at least {4 * _FEWEST}")
        order = np.random.RandomState(self._model.seed % 2**32).permutation(X.shape[0])
        n_held_out = min(X.shape[0] // 3, _MOST_HELD_OUT)
        self._held_out = ArraySource(X, order[:n_held_out], clf.dtype).take(slice(None))
        self._rows = ArraySource(X, order[n_held_out : n_held_out + _MOST_FITTED], clf.dtype).take(slice(None))
        self._scores = self._decision(self._model, self._rows)
        self._truth = self._decision(self._model, self._held_out)
        largest = max(float(np.abs(scores).max()) for scores in (self._scores, self._truth))
        if not largest < _MOST_SCORE:
            raise ValueError(
                f"the scores of this model are up to {largest:.3g}, too large for least squares: scale the rows as the "
                "training rows were scaled, or keep the model as it is"
            )
        # What counts is the class, so rows count more the nearer they are to a boundary.
        margin = _margins(self._scores)
        self._weight = 1.0 / (0.1 + margin / max(float(np.median(margin)), 1e-12))

    def run(self, tolerance: float, into: str, size: int | None) -> S3VMClassifier:
        if size is not None and not (is_whole(size) and size <= self._rows.shape[0]):
            raise ValueError(
                f"size={size!r} is not valid: give a whole number from 1 to {self._rows.shape[0]}, or more rows"
            )
        model, report = self._found(tolerance, ("features", "landmarks") if into == "auto" else (into,), size)
        report = replace(report, speed_up=self._seconds(self._model) / self._seconds(model))
        if not report.within(tolerance):
            warnings.warn(
                f"the tolerance of {tolerance:.2%} is not reached: {report}. Give more rows or a higher tolerance, or "
                "keep the model as it is",
                stacklevel=4,
            )
        smaller = copy.copy(self._clf)
        smaller.model_, smaller.compression_ = model, report
        smaller._resume_point = smaller._transduction = None
        return smaller

    def _found(self, tolerance: float, kinds: tuple[str, ...], size: int | None) -> tuple[Model, Compression]:
        """The first model that keeps within the tolerance, or else the one that agrees most."""
        before = sum(_pieces(self._model))
        best = None
        for kind in kinds:
            for pieces in self._sizes(kind) if size is None else [size]:
                found = self._smaller(kind, pieces)
                if found[1].within(tolerance):
                    return found
                if best is None or found[1].agreement > best[1].agreement:
                    best = found
        return best or (self._model, Compression("none", before, before))

    def _sizes(self, kind: str) -> Iterator[int]:
        """Sizes to try, as long as they make predictions about twice as fast and are fewer than the rows by far."""
        n_features, n_centres = _pieces(self._model)
        faster = (n_features + _CENTRE * n_centres) // (2 if kind == "features" else 2 * _CENTRE)
        most, pieces = min(faster, self._rows.shape[0] // 2, _MOST), _FEWEST
        while pieces <= most:
            yield pieces
            pieces = pieces * 3 // 2 if pieces.bit_count() == 1 else pieces * 4 // 3

    def _smaller(self, kind: str, size: int) -> tuple[Model, Compression]:
        """The function of that many pieces that is nearest to the model's, and how near it is."""
        nothing = np.empty((0, 1, self._truth.shape[1]), self._engine.dtype)
        if kind == "features":
            size = self._model.kernel.whole(size)
            drawn = self._engine.features(self._model.kernel, self._model.seed, size, self._model.n_dims)
            solution, intercept = self._least_squares(lambda rows: drawn.features(0, rows))
            coefficients = solution[None].astype(self._engine.dtype)
            model = replace(self._model, coefficients=coefficients, intercept=intercept, centres=None, weights=None)
        else:
            centres = self._landmarks(size)
            at = centres.astype(np.float64)
            solution, intercept = self._least_squares(lambda rows: self._model.kernel.gram(rows.astype(np.float64), at))
            model = replace(self._model, coefficients=nothing, intercept=intercept, centres=centres, weights=solution)
        scores = self._decision(model, self._held_out)
        new, old = predicted_codes(scores), predicted_codes(self._truth)
        spread = max(float(self._truth.std()), 1e-12)
        return model, Compression(
            kind,
            size,
            sum(_pieces(self._model)),
            agreement=float(np.mean(new == old)),
            least_agreement=min(float(np.mean(new[old == code] == code)) for code in np.unique(old)),
            rms=float(np.sqrt(np.mean((scores - self._truth) ** 2))) / spread,
        )

    def _least_squares(self, pieces: Callable[[Rows], Array]) -> tuple[Array, Array]:
        """Coefficients and intercept of the sum of pieces that is nearest to the model, a chunk of rows at a time."""
        gram, moment = np.zeros((1, 1)), np.zeros((1, 1))
        for start in range(0, self._rows.shape[0], _CHUNK):
            part = slice(start, start + _CHUNK)
            A = pieces(self._rows[part]).astype(np.float64)
            A = np.column_stack([A, np.ones(len(A))])
            weighted = self._weight[part, None] * A
            gram, moment = gram + A.T @ weighted, moment + weighted.T @ self._scores[part]
        scale = 1 / np.sqrt(np.maximum(gram.diagonal(), np.finfo(np.float64).tiny))[:, None]
        gram = scale * gram * scale.T + _RIDGE * np.eye(len(gram))
        solution = scale * linalg.solve(gram, scale * moment, assume_a="pos")
        return solution[:-1], solution[-1]

    def _landmarks(self, size: int) -> Rows:
        if sparse.issparse(self._rows):
            return self._rows[:size]
        clusters = MiniBatchKMeans(size, n_init=3, batch_size=2048, max_iter=20, random_state=0).fit(self._rows)
        return np.ascontiguousarray(clusters.cluster_centers_, dtype=self._engine.dtype)

    def _decision(self, model: Model, rows: Rows) -> Array:
        chunks = [slice(start, start + _CHUNK) for start in range(0, rows.shape[0], _CHUNK)]
        return np.concatenate([model.decision(rows[part], self._engine) for part in chunks])

    def _seconds(self, model: Model) -> float:
        rows = self._held_out[:_TIMED]
        taken = []
        for _ in range(3):
            start = time.perf_counter()
            model.decision(rows, self._engine)
            taken.append(time.perf_counter() - start)
        return min(taken)


def _pieces(model: Model) -> tuple[int, int]:
    """How many random features and how many centres."""
    n_blocks, block_size, _ = model.coefficients.shape
    return n_blocks * block_size, 0 if model.weights is None else len(model.weights)


def _margins(scores: Array) -> Array:
    """How far each row is from the boundary, in scores: from 0, or the best class from the next."""
    if scores.shape[1] == 1:
        return np.abs(scores[:, 0])
    best = np.partition(scores, -2, axis=1)
    return best[:, -1] - best[:, -2]

"""`s3vm.compress`: the learnt function, refitted with fewer terms.

A model may have tens of thousands of random features, or thousands of rows as centres, where a few hundred would do.
Its scores of unlabelled rows describe the function, and weighted least squares fit a smaller one to them.
"""

import copy
import timeit
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy import linalg, sparse
from sklearn.cluster import MiniBatchKMeans
from sklearn.utils import gen_batches
from threadpoolctl import threadpool_limits

from s3vm import backends
from s3vm._utils.arrays import project
from s3vm._utils.blas import one_blas_thread
from s3vm._utils.scores import predicted_codes
from s3vm._utils.settings import between, check, integer, number
from s3vm._utils.typing import Array, Rows
from s3vm._utils.warn import warn
from s3vm.estimators.classifier import S3VMClassifier
from s3vm.estimators.validation import checked_rows
from s3vm.model import Model
from s3vm.persistence.pipeline import split_pipeline
from s3vm.sources import ArraySource

_FEWEST = 16
_MOST = 2048
_CENTER = 16  # a kernel function at a centre takes about as long as this many random features
_MOST_FITTED = 20_000
_MOST_HELD_OUT = 10_000
_CHUNK = 4096
_RIDGE = 1e-8  # of terms of mean square 1, as small as float32 features allow
_TIMED = 2000
_MOST_SCORE = 1e100  # its square, summed over all rows, does not overflow


@dataclass(frozen=True)
class Compression:
    """The outcome of a compression. `print` it for a plain sentence.

    Attributes
    ----------
    kind : "features", "landmarks" or "none"
    size, size_before : int
        Number of terms, random features and centres together, of the new and of the old model.
    agreement : float
        Fraction of held-out rows for which both models predict the same class.
    least_agreement : float
        The same among the rows of one predicted class of the old model, for the class where it is lowest.
    rms : float
        Root mean square difference of their scores on held-out rows, in standard deviations of the score.
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
        """Checks the fields, which may come from an untrusted file."""
        values = (self.size, self.size_before, self.agreement, self.least_agreement, self.rms, self.speed_up)
        finite = np.isfinite([number(value) for value in values]).all()
        if self.kind not in ("features", "landmarks", "none") or not finite:
            raise ValueError("a Compression needs a kind, features or landmarks, and finite numbers")

    def __str__(self) -> str:
        if self.kind == "none":
            return f"a model of {self.size:,} terms, which is too small to compress"
        return (
            f"{self.size_before:,} terms became {self.size:,} {self.kind}: {self.agreement:.2%} of held-out rows keep "
            f"their class ({self.least_agreement:.1%} in the worst class), scores differ by {self.rms:.1%} of their "
            f"spread, predictions are {self.speed_up:.3g} times as fast"
        )

    def within(self, tolerance: float) -> bool:
        """Whether at most this fraction of all rows changed their class, and at most ten times as many in any class."""
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
    estimator : a fitted S3VMClassifier, or a Pipeline of TableEncoder or StandardScaler and one
    X : array, CSR matrix or data frame
        Rows like those to be predicted, without labels; preferably not the training rows, which training has driven
        away from the boundary. The more the better, up to 30,000; a third is held out to measure how well both agree.
    tolerance : float in (0, 1), default 0.01
        Fraction of held-out rows that may change their class; in a single class, which may be rare, ten times as many.
        The size grows until the new model stays within it.
    into : "auto", "features" or "landmarks", default "auto"
        The terms of the new model: random features, which are fastest, take one number each in a model file and
        contain nothing of the rows; or kernel functions at means of rows (at the rows themselves, if X is sparse),
        which are fewer. ``"auto"`` takes landmarks only where features do not reach the tolerance.
    size : int or None, default None
        The number of terms, instead of as many as `tolerance` requires.

    Returns
    -------
    a new estimator of the same kind
        `compression_` of its classifier is the outcome, a `Compression`. If no model that is at least twice as fast
        keeps within the tolerance, a warning says so, and the result is the one that agrees best.
    """
    check("tolerance", tolerance, between(0, 1))
    check("into", into, "auto", "features", "landmarks")
    parts = split_pipeline(estimator)
    rows = parts.transform(X)
    # One thread, so that sums have the same order on any number of cores.
    with one_blas_thread, threadpool_limits(limits=1, user_api="openmp"):
        smaller = _Compressor(parts.classifier, rows).run(tolerance, into, size)
    return parts._replace(classifier=smaller).to_pipeline()


class _Compressor:
    """A classifier, rows to fit a smaller model to its scores, and held-out rows to compare both."""

    def __init__(self, clf: S3VMClassifier, X: Any) -> None:
        self._clf, self._model = clf, replace(clf.model_, projection=None)  # of rows that are projected already
        self._engine = backends.backend(clf.backend, clf.dtype)
        X = checked_rows(clf, X, reset=False, backend=self._engine)
        if X.shape[0] < 4 * _FEWEST:
            raise ValueError(f"{X.shape[0]} rows are too few to compress a model: give at least {4 * _FEWEST}")
        order = np.random.RandomState(self._model.seed % 2**32).permutation(X.shape[0])
        n_held_out = min(X.shape[0] // 3, _MOST_HELD_OUT)
        held_out = ArraySource(X, order[:n_held_out], clf.dtype).take(slice(None))
        rows = ArraySource(X, order[n_held_out : n_held_out + _MOST_FITTED], clf.dtype).take(slice(None))
        self._timed = held_out[:_TIMED]
        self._held_out, self._rows = (project(part, clf.model_.projection) for part in (held_out, rows))
        self._scores = self._decision(self._model, self._rows)
        self._held_out_scores = self._decision(self._model, self._held_out)
        largest = max(float(np.abs(scores).max()) for scores in (self._scores, self._held_out_scores))
        if not largest < _MOST_SCORE:
            raise ValueError(
                f"the scores of this model are up to {largest:.3g}, too large for least squares: scale the rows as the "
                "training rows were scaled, or keep the model as it is"
            )
        # The class matters, not the score, so rows weigh more the nearer they are to a boundary.
        margin = _margins(self._scores)
        self._weight = 1.0 / (0.1 + margin / max(float(np.median(margin)), 1e-12))

    def run(self, tolerance: float, into: str, size: int | None) -> S3VMClassifier:
        check("size", size, integer(1, self._rows.shape[0]), None)
        model, report = self._search(tolerance, ("features", "landmarks") if into == "auto" else (into,), size)
        model = replace(model, projection=self._clf.model_.projection)
        report = replace(report, speed_up=self._seconds(self._clf.model_) / self._seconds(model))
        if not report.within(tolerance):
            warn(
                f"the tolerance of {tolerance:.2%} is not reached: {report}. Give more rows or a higher tolerance, or "
                "keep the model as it is"
            )
        smaller = copy.copy(self._clf)
        smaller.model_, smaller.compression_ = model, report
        smaller._resume_point = smaller._transduction = None
        return smaller

    def _search(self, tolerance: float, kinds: tuple[str, ...], size: int | None) -> tuple[Model, Compression]:
        """The first model that stays within the tolerance, or else the one that agrees best."""
        before = sum(_counts(self._model))
        best = None
        for kind in kinds:
            for n_terms in self._sizes(kind) if size is None else [size]:
                model, report = self._smaller(kind, n_terms)
                if report.within(tolerance):
                    return model, report
                if best is None or report.agreement > best[1].agreement:
                    best = model, report
        return best or (self._model, Compression("none", before, before))

    def _sizes(self, kind: str) -> Iterator[int]:
        """Sizes to try: those that make predictions about twice as fast, up to half the number of rows."""
        n_features, n_centers = _counts(self._model)
        faster = (n_features + _CENTER * n_centers) // (2 if kind == "features" else 2 * _CENTER)
        most, size = min(faster, self._rows.shape[0] // 2, _MOST), _FEWEST
        while size <= most:
            yield size
            size = size * 3 // 2 if size.bit_count() == 1 else size * 4 // 3

    def _smaller(self, kind: str, size: int) -> tuple[Model, Compression]:
        """The closest function with that many terms, and how close it is."""
        nothing = np.empty((0, 1, self._held_out_scores.shape[1]), self._engine.dtype)
        if kind == "features":
            size = self._model.kernel.whole(size)
            features = self._engine.features(self._model.kernel, self._model.seed, size, self._model.n_dims)
            solution, intercept = self._least_squares(lambda rows: features.features(0, rows))
            coefficients = solution[None].astype(self._engine.dtype)
            model = replace(self._model, coefficients=coefficients, intercept=intercept, centers=None, weights=None)
        else:
            centers = self._landmarks(size)
            exact, kernel = centers.astype(np.float64), self._model.kernel
            solution, intercept = self._least_squares(lambda rows: kernel.gram(rows.astype(np.float64), exact))
            model = replace(self._model, coefficients=nothing, intercept=intercept, centers=centers, weights=solution)
        scores = self._decision(model, self._held_out)
        new, old = predicted_codes(scores), predicted_codes(self._held_out_scores)
        spread = max(float(self._held_out_scores.std()), 1e-12)
        return model, Compression(
            kind,
            size,
            sum(_counts(self._model)),
            agreement=float(np.mean(new == old)),
            least_agreement=min(float(np.mean(new[old == code] == code)) for code in np.unique(old)),
            rms=float(np.sqrt(np.mean((scores - self._held_out_scores) ** 2))) / spread,
        )

    def _least_squares(self, terms: Callable[[Rows], Array]) -> tuple[Array, Array]:
        """Coefficients and intercept of the sum of terms that is closest to the model, a chunk of rows at a time."""
        gram, moment = np.zeros((1, 1)), np.zeros((1, 1))
        for part in gen_batches(self._rows.shape[0], _CHUNK):
            A = terms(self._rows[part]).astype(np.float64)
            A = np.column_stack([A, np.ones(len(A))])
            weighted = self._weight[part, None] * A
            gram, moment = gram + A.T @ weighted, moment + weighted.T @ self._scores[part]
        scale = 1 / np.sqrt(np.maximum(gram.diagonal(), np.finfo(np.float64).tiny))[:, None]
        gram = scale * gram * scale.T + _RIDGE * np.eye(len(gram))
        solution = scale * linalg.solve(gram, scale * moment, assume_a="pos")
        return np.ascontiguousarray(solution[:-1]), solution[-1]  # in the order in which a file has it

    def _landmarks(self, size: int) -> Rows:
        if sparse.issparse(self._rows):
            return self._rows[:size]
        clusters = MiniBatchKMeans(size, n_init=3, batch_size=2048, max_iter=20, random_state=0).fit(self._rows)
        return np.ascontiguousarray(clusters.cluster_centers_, dtype=self._engine.dtype)

    def _decision(self, model: Model, rows: Rows) -> Array:
        parts = gen_batches(rows.shape[0], _CHUNK)
        return np.concatenate([model.decision(rows[part], self._engine) for part in parts])

    def _seconds(self, model: Model) -> float:
        return min(timeit.repeat(lambda: model.decision(self._timed, self._engine), number=1, repeat=3))


def _counts(model: Model) -> tuple[int, int]:
    """The number of random features and the number of centres."""
    n_blocks, block_size, _ = model.coefficients.shape
    return n_blocks * block_size, 0 if model.weights is None else len(model.weights)


def _margins(scores: Array) -> Array:
    """The distance of each row from the boundary, in scores: from 0, or of the best class from the next."""
    if scores.shape[1] == 1:
        return np.abs(scores[:, 0])
    best = np.partition(scores, -2, axis=1)
    return best[:, -1] - best[:, -2]

"""Cross-validation and search when only some rows are labelled."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.metrics import check_scoring
from sklearn.model_selection import BaseCrossValidator, ParameterGrid, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, check_array, check_consistent_length, check_random_state, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from s3vm._utils.progress import Progress, ProgressBar
from s3vm._utils.scores import brier_losses
from s3vm._utils.settings import is_whole, number
from s3vm._utils.typing import Array
from s3vm.estimators.labels import as_column, split_labels
from s3vm.kernels import kernel
from s3vm.solvers import solver
from s3vm.training.loop import Interrupted

__all__ = [
    "USUAL_C",
    "USUAL_FACTOR",
    "HalvingSearchCV",
    "LabeledKFold",
]

USUAL_C, USUAL_FACTOR = 10.0, 2.0  # what does well on most sets when nothing is known; the width in terms of the median
_CS, _FACTORS, _WEIGHTS = (1.0, 10.0, 100.0, 1000.0), (0.5, 1.0, 2.0, 4.0, 8.0), (0.0, 0.3, 1.0)
_NOISE = 0.5
_FIRST_SHARE, _FEWEST_STEPS = 1 / 8, 400  # of the iterations; the stochastic solvers' own least

Params = dict[str, Any]
Splits = list[tuple[Array, Array]]
Scorer = Callable[[Any, Any, Array], float]


class LabeledKFold(BaseCrossValidator):
    """Stratified folds of the labelled rows; the unlabelled rows are in every training part and in no test part.

    For `sklearn.model_selection.GridSearchCV` and its kin, whose own splitters would take the mark of an unlabelled row
    for a class and test on it.

    Parameters
    ----------
    n_splits : int, default 5
    unlabeled : the mark of an unlabelled row, as in `S3VMClassifier`, default -1
    shuffle, random_state : as in `sklearn.model_selection.StratifiedKFold`
    """

    def __init__(
        self, n_splits: int = 5, *, unlabeled: Any = -1, shuffle: bool = False, random_state: Any = None
    ) -> None:
        self.n_splits = n_splits
        self.unlabeled = unlabeled
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return self.n_splits

    def split(self, X: Any, y: Any, groups: Any = None) -> Iterator[tuple[Array, Array]]:
        """Yields the row numbers of each training part and of its test part."""
        labelled, labels = split_labels(y, self.unlabeled)
        check_consistent_length(X, labelled)
        known, unknown = np.flatnonzero(labelled), np.flatnonzero(~labelled)
        folds = StratifiedKFold(self.n_splits, shuffle=self.shuffle, random_state=self.random_state)
        for train, test in folds.split(known, labels):
            yield np.concatenate([known[train], unknown]), known[test]


class HalvingSearchCV(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Successive halving over settings of an `S3VMClassifier`: many on few unlabelled rows, few on all of them.

    The search goes in rounds. The first trains every candidate with `min_unlabeled` unlabelled rows, each next one the
    best `1 / factor` of the candidates with more of them, in equal ratios, and the last one with all. Stochastic
    solvers begin with about an eighth of their iterations. Labelled rows are never left away but for the fold that a
    candidate is tested on.

    A few hundred labelled rows cannot tell good candidates from each other. So every candidate of the last round counts
    as good that is at most half a standard error (over the folds, fold by fold) behind the best; of these, the one
    nearest to C = 10 and to twice the median width, in steps of the logarithm, is taken, and the earliest of the grid
    if several are.

    Parameters
    ----------
    estimator : S3VMClassifier, or a Pipeline that ends in one
    param_grid : dict, list of dict or None, default None
        As in `sklearn.model_selection.GridSearchCV`. None is a grid made for the rows: C of 1, 10, 100 and 1000; for a
        kernel given by its name, widths from half to eight times the median one; and weights of the unlabelled rows
        of 0, 0.3 and 1, the first of which is the supervised SVM.
    factor : float > 1, default 3
    min_unlabeled : int, default 300
        Unlabelled rows in the first round.
    cv : int, splitter or iterable of splits, default 5
        A number is that of the folds of a shuffled `LabeledKFold`, or as many as the rarest class has labelled rows if
        they are fewer. Whatever the splits, candidates are tested on labelled rows only.
    scoring : str, callable or None, default None
        As in scikit-learn. None is the Brier score, which sees more in a few rows than the accuracy does, of
        probabilities ``1 / (1 + exp(-2 f / mean |f|))``, negative so that more is better; `score` is the accuracy then.
    refit : bool, default True
        Whether to train the best candidate on all rows at the end.
    n_jobs : int or None, default None
        Candidates that are trained at the same time, in processes of their own.
    random_state : int, RandomState or None, default None
        Of the folds and of the rows in each round. The estimator has its own.
    verbose : int or callable, default 0
        Above 0: a progress bar. A callable is called after every candidate with the number of candidates done, that of
        all rounds, and a dict with the round, its unlabelled rows and its lowest loss so far.

    Attributes
    ----------
    best_params_, best_score_, best_index_, best_estimator_, refit_time_, classes_, n_features_in_
        As in `sklearn.model_selection.GridSearchCV`; the scores are those of the last round.
    cv_results_ : dict of arrays
        As there, an entry a candidate and round, with the columns ``"iter"`` and ``"n_unlabeled"`` added.
    n_candidates_, n_unlabeled_ : list of int
        Candidates and unlabelled rows of each round.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_moons
    >>> from s3vm import HalvingSearchCV, S3VMClassifier
    >>> X, y = make_moons(500, noise=0.1, random_state=0)
    >>> some = y.copy()
    >>> some[50:] = -1
    >>> search = HalvingSearchCV(S3VMClassifier(random_state=0), {"C": [0.001, 0.01, 1, 10]}, random_state=0)
    >>> search = search.fit(X, some)
    >>> search.n_candidates_, search.n_unlabeled_
    ([4, 2], [300, 450])
    >>> search.best_params_
    {'C': 10}
    """

    best_estimator_: Any
    best_params_: Params
    best_score_: float

    def __init__(
        self,
        estimator: Any,
        param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]] | None = None,
        *,
        factor: float = 3,
        min_unlabeled: int = 300,
        cv: Any = 5,
        scoring: Any = None,
        refit: bool = True,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int | Progress = 0,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.factor = factor
        self.min_unlabeled = min_unlabeled
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> "HalvingSearchCV":
        """Find the best settings, and train them on all rows."""
        self._check_settings()
        prefix, last = _last_step(self.estimator)
        (X,), y = indexable(X), as_column(y)
        check_consistent_length(X, y)
        labelled, labels = split_labels(y, last.unlabeled)
        random = check_random_state(self.random_state)
        # What is unlabelled in a round is the beginning of one order, so that each round has the rows of the last.
        place = np.full(len(y), -1)
        place[~labelled] = random.permutation(len(y) - len(labels))
        splits = self._splits(X, y, labelled, labels, last.unlabeled, random)
        width = _median_width(self.estimator, last, X, y)
        candidates = list(ParameterGrid(self._grid(prefix, last, width)))
        estimator = clone(self.estimator)
        if self.scoring is None:
            estimator.set_params(**{f"{prefix}probability": False})  # which spares the folds that only it needs
        self.n_unlabeled_, self.n_candidates_ = self._rounds(len(candidates), len(y) - len(labels))
        shares = np.geomspace(1.0, _FIRST_SHARE, len(self.n_candidates_))[::-1]
        kept, trials = np.arange(len(candidates)), []
        show = ProgressBar(self.verbose, unit="candidates")
        try:
            for number, (n_rows, n_kept) in enumerate(zip(self.n_unlabeled_, self.n_candidates_, strict=True)):
                kept = kept[:n_kept]
                seen = [(train[place[train] < n_rows], test) for train, test in splits]
                share = shares[number]
                budgeted = [_budgeted(candidates[k], prefix, last, share, n_rows) for k in kept]
                tasks = (delayed(_trial)(estimator, params, X, y, seen, self._scorer()) for params in budgeted)
                trial: list[Array] = []
                for done in Parallel(n_jobs=self.n_jobs, return_as="generator")(tasks):
                    trial.append(done)
                    lowest = -max(one[0].mean() for one in trial)
                    news = {"round": number + 1, "n_unlabeled": n_rows, "lowest_loss": lowest}
                    show(len(trial) + sum(self.n_candidates_[:number]), sum(self.n_candidates_), news)
                trials.append((kept, n_rows, np.array(trial)))
                away = np.array([_away(candidates[k], prefix, width) for k in kept])
                scores = np.nan_to_num(trials[-1][2][:, 0].mean(axis=1), nan=-np.inf)
                chosen = _usual_of_good(trials[-1][2][:, 0], away)
                kept = kept[np.lexsort((away, -scores))]
        finally:
            show.close()
        self._keep(candidates, trials, chosen)
        if self.refit:
            start = time.perf_counter()
            self.best_estimator_ = _with(self.estimator, self.best_params_).fit(X, y)
            self.refit_time_ = time.perf_counter() - start
        return self

    def _check_settings(self) -> None:
        if not 1 < number(self.factor) < np.inf:
            raise ValueError(f"factor={self.factor!r} is not valid: give a number above 1")
        if not is_whole(self.min_unlabeled):
            raise ValueError(f"min_unlabeled={self.min_unlabeled!r} is not valid: give a whole number of at least 1")

    def _splits(self, X: Any, y: Array, labelled: Array, labels: Array, mark: Any, random: Any) -> Splits:
        cv = self.cv
        if isinstance(cv, int | np.integer):
            rarest = int(np.unique(labels, return_counts=True)[1].min())
            if cv < 2 or rarest < 2:
                raise ValueError(
                    f"cv={cv} folds cannot be made, where the rarest class has {rarest} labelled rows: give at least 2 "
                    "folds, and label at least 2 rows of every class"
                )
            cv = LabeledKFold(int(min(cv, rarest)), unlabeled=mark, shuffle=True, random_state=random.randint(2**31))
        splits = [(train, test[labelled[test]]) for train, test in (cv.split(X, y) if hasattr(cv, "split") else cv)]
        if not splits or any(len(test) == 0 for _, test in splits):
            raise ValueError(f"cv={self.cv!r} leaves no labelled row to test on: give a number, or LabeledKFold()")
        return splits

    def _grid(self, prefix: str, last: Any, width: float) -> Any:
        if self.param_grid is not None:
            return self.param_grid
        grid: dict[str, Sequence[Any]] = {"C": _CS, "unlabeled_weight": _WEIGHTS}
        if isinstance(last.kernel, str):
            grid["gamma"] = [float(f"{factor * width:.4g}") for factor in _FACTORS]
        return {prefix + name: list(values) for name, values in grid.items()}

    def _rounds(self, n_candidates: int, n_unlabelled: int) -> tuple[list[int], list[int]]:
        """Unlabelled rows and candidates of each round."""
        if n_unlabelled <= self.min_unlabeled:
            return [n_unlabelled], [n_candidates]
        counts = [n_candidates]
        while counts[-1] > self.factor:
            counts.append(int(np.ceil(counts[-1] / self.factor)))
        rows = np.geomspace(n_unlabelled, self.min_unlabeled, len(counts))[::-1]
        return [round(n) for n in rows], counts

    def _scorer(self) -> Scorer:
        scorer: Scorer = _negative_brier if self.scoring is None else check_scoring(self.estimator, self.scoring)
        return scorer

    def _keep(self, candidates: list[Params], trials: list[tuple[Array, int, Array]], chosen: int) -> None:
        """Writes down what was found, as scikit-learn's searches do."""
        each = np.concatenate([kept for kept, _, _ in trials])
        scores, fit_times, score_times = np.concatenate([trial for _, _, trial in trials]).transpose(1, 0, 2)
        number = np.repeat(np.arange(len(trials)), self.n_candidates_)
        mean = scores.mean(axis=1)
        results: dict[str, Any] = {
            "iter": number,
            "n_unlabeled": np.repeat(self.n_unlabeled_, self.n_candidates_),
            "params": [candidates[k] for k in each],
        }
        for name in sorted({name for params in candidates for name in params}):
            values = np.ma.masked_all(len(each), dtype=object)
            for at, params in enumerate(results["params"]):
                if name in params:
                    values[at] = params[name]
            results[f"param_{name}"] = values
        results |= {f"split{fold}_test_score": column for fold, column in enumerate(scores.T)}
        results |= {"mean_test_score": mean, "std_test_score": scores.std(axis=1)}
        for name, times in (("fit", fit_times), ("score", score_times)):
            results |= {f"mean_{name}_time": times.mean(axis=1), f"std_{name}_time": times.std(axis=1)}
        # Whoever came further is ahead of whoever did not.
        order = np.lexsort((-mean, -number))
        results["rank_test_score"] = np.empty(len(each), dtype=np.int32)
        results["rank_test_score"][order] = np.arange(1, len(each) + 1)
        self.cv_results_ = results
        self.best_index_ = int(len(each) - self.n_candidates_[-1] + chosen)
        self.best_params_, self.best_score_ = results["params"][self.best_index_], float(mean[self.best_index_])

    @available_if(lambda self: self._has("predict"))
    def predict(self, X: Any) -> Array:
        """The class of each row."""
        return self._best().predict(X)

    @available_if(lambda self: self._has("predict_proba"))
    def predict_proba(self, X: Any) -> Array:
        """The probability of each class for each row."""
        return self._best().predict_proba(X)

    @available_if(lambda self: self._has("decision_function"))
    def decision_function(self, X: Any) -> Array:
        """The scores ``f(x)``."""
        return self._best().decision_function(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy of the best estimator on labelled rows, or what `scoring` says."""
        if self.scoring is None:
            return float(self._best().score(X, y, sample_weight=sample_weight))
        weight = {} if sample_weight is None else {"sample_weight": sample_weight}
        return float(check_scoring(self.estimator, self.scoring)(self._best(), X, y, **weight))

    @property
    def classes_(self) -> Array:
        return self._best().classes_

    @property
    def n_features_in_(self) -> int:
        return int(self._best().n_features_in_)

    def _best(self) -> Any:
        check_is_fitted(self, "best_params_")
        if not self.refit:
            raise AttributeError("the search was made with refit=False: train with best_params_, or set refit=True")
        return self.best_estimator_

    def _has(self, method: str) -> bool:
        getattr(getattr(self, "best_estimator_", self.estimator), method)
        return True

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "best_params_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags


def _last_step(estimator: Any) -> tuple[str, Any]:
    """The classifier, and what comes before the names of its parameters."""
    prefix, last = "", estimator
    while isinstance(last, Pipeline):
        name, last = last.steps[-1]
        prefix += f"{name}__"
    settings = last.get_params() if isinstance(last, BaseEstimator) else ()
    if not {"C", "gamma", "kernel", "probability", "unlabeled", "unlabeled_weight"} <= set(settings):
        raise TypeError(f"estimator={estimator!r} is not valid: give an S3VMClassifier, or a Pipeline that ends in one")
    return prefix, last


def _median_width(estimator: Any, last: Any, X: Any, y: Array) -> float:
    """The median width of the kernel for the rows as they come to it, or of the RBF if it brings its own."""
    while isinstance(estimator, Pipeline):
        for _, step in estimator.steps[:-1]:
            X = X if step in (None, "passthrough") else clone(step).fit_transform(X, y)
        estimator = estimator.steps[-1][1]
    X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
    return float(kernel(last.kernel if isinstance(last.kernel, str) else "rbf", "median").resolve(X).width)


def _with(estimator: Any, params: Params) -> Any:
    return clone(estimator).set_params(**clone(params, safe=False))


def _budgeted(params: Params, prefix: str, last: Any, share: float, n_rows: int) -> Params:
    """The candidate with a share of its iterations."""
    if share == 1:
        return params
    spec = params.get(f"{prefix}solver", last.solver)
    return {**params, f"{prefix}solver": _shorter(spec, share, n_rows)}


def _shorter(spec: Any, share: float, n_rows: int) -> Any:
    """A stochastic solver with a share of its iterations; one that runs until it is done is left as it is."""
    found: Any = solver(spec)
    if getattr(found, "passes", 0) is not None:  # what makes passes has less to do with fewer rows anyway
        return found
    if found.max_iter != "auto":
        return replace(found, max_iter=int(np.ceil(share * found.max_iter)))
    return replace(found, passes=share * max(1.0, _FEWEST_STEPS * found.batch_size / max(n_rows, 1)))


def _trial(estimator: Any, params: Params, X: Any, y: Array, splits: Splits, scorer: Scorer) -> Array:
    """The score of a candidate in each fold, the seconds of training, and those of testing: shape (3, folds)."""
    results = np.empty((3, len(splits)))
    for fold, (train, test) in enumerate(splits):
        start = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a bad candidate is out soon enough; that of the end may speak
                warnings.simplefilter("error", Interrupted)  # Ctrl-C ends the search, not one candidate
                fitted = _with(estimator, params).fit(_safe_indexing(X, train), y[train])
                trained = time.perf_counter()
                score = scorer(fitted, _safe_indexing(X, test), _safe_indexing(y, test))
        except Interrupted:
            raise KeyboardInterrupt from None
        except Exception as error:
            error.add_note(f"This was the candidate {params}")
            raise
        results[:, fold] = score, trained - start, time.perf_counter() - trained
    return results


def _negative_brier(fitted: Any, X: Any, y: Array) -> float:
    """Minus the mean Brier loss; a row of a class that was not trained on has the most there is."""
    known = np.isin(y, fitted.classes_)
    if not known.any():
        return -1.0
    scores = np.asarray(fitted.decision_function(X))[known]
    losses = brier_losses(np.searchsorted(fitted.classes_, y[known]), scores.reshape(len(scores), -1))
    return -float(np.where(known, np.mean(losses), 1.0).mean())


def _away(params: Params, prefix: str, width: float) -> float:
    """How far C and gamma are from the usual values, in steps of the logarithm."""
    usual = {"C": USUAL_C, "gamma": USUAL_FACTOR * width}
    values = {name: params.get(prefix + name) for name in usual}
    return sum(abs(float(np.log(number(value) / usual[name]))) for name, value in values.items() if number(value) > 0)


def _usual_of_good(scores: Array, away: Array) -> int:
    """The most usual of the candidates that are at most half a standard error behind the best, fold by fold."""
    mean = np.nan_to_num(scores.mean(axis=1), nan=-np.inf)
    behind = scores[mean.argmax()] - scores
    noise = behind.std(axis=1, ddof=1) / np.sqrt(scores.shape[1]) if scores.shape[1] > 1 else np.zeros(len(scores))
    return int(np.where(behind.mean(axis=1) <= _NOISE * noise, away, np.inf).argmin())

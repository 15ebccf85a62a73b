"""The scikit-learn face: it validates, builds the Problem, drives the Solver and keeps the Model."""

import warnings
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from s3vm import backends, philox
from s3vm._utils.arrays import host, is_tensor
from s3vm._utils.blas import one_blas_thread
from s3vm._utils.progress import Progress
from s3vm._utils.scores import predicted_codes
from s3vm._utils.settings import is_whole, number, positive
from s3vm._utils.typing import Array
from s3vm.estimators.calibration import calibrator
from s3vm.estimators.columns import class_factors, make_columns, scores_held_out
from s3vm.estimators.folds import distinct_rows, lasting_folds, newest, stratified_folds
from s3vm.estimators.labels import split_labels
from s3vm.estimators.safety import FEW_LABELS, Safety, choose
from s3vm.estimators.training_rows import TrainingRows
from s3vm.estimators.validation import InputValidation
from s3vm.kernels import Gamma, Kernel, kernel
from s3vm.losses import LabelledLoss, UnlabelledLoss, labelled_loss, unlabelled_loss
from s3vm.model import Model
from s3vm.philox import Purpose
from s3vm.problem import Problem
from s3vm.solvers import Solver, State, solver
from s3vm.solvers.supervised import check_labelled, labelled_gram, supervised
from s3vm.sources import ENDLESS, ArraySource, Source
from s3vm.sources.reservoir import ReservoirSource
from s3vm.training import checkpoints
from s3vm.training.early_stopping import EarlyStopping
from s3vm.training.history import join_histories, thin_history
from s3vm.training.loop import EVERY, StoppingRules, train
from s3vm.training.memory_check import with_advice

__all__ = ["SAMPLE", "S3VMClassifier", "has_probability"]

_AUTO_WEIGHTS = (1.0, 0.3)
_FEW_LABELS_WEIGHTS = (0.1,)
_FOLDS = 5
_CHUNK = 1 << 16
_KEPT = 100
SAMPLE = 10_000  # unlabelled rows that the median distance is taken of


class _Start(NamedTuple):
    """What a fit leaves for its continuation; the rows too, if others are to follow them.

    `seen` are all rows; or, if there are `arrivals`, the labelled ones that are remembered.
    """

    state: State
    lasting: tuple[Any, ...]
    n_folds: int
    C: float
    seen: TrainingRows | None
    arrivals: ReservoirSource | None = None


class _Training(NamedTuple):
    """What `transduction_` needs: the rows, which of them are labelled and how, and a copy that shows changes."""

    seen: TrainingRows
    at: Array
    codes: Array
    kept: Any


class S3VMClassifier(InputValidation, ClassifierMixin, BaseEstimator):
    """Kernel support vector machine that learns from labelled and unlabelled rows.

    It minimises Eq. 1 of "Scalable Semi-Supervised SVM via Triply Stochastic Gradients" (TSGS3VM), one class against
    the rest when there are more than two:

        ``R(f) = ||f||^2 / 2 + C sum over labelled rows of l(f(x), y) + C* E over unlabelled rows of u(f(x))``.

    Standardise the features first, as for any kernel machine.

    Parameters
    ----------
    solver : "tsg", "frs", "bgs", "cccp", "light", "newton", "incremental" or a configured solver, default "tsg"
        For example ``TSG(max_iter=256, n_features=512)``. The others are the classical algorithms, for up to some
        thousands of rows but for ``"frs"`` and ``"bgs"``; ``"incremental"`` has `partial_fit` and `forget`.
    kernel : "rbf", "laplacian", "matern", "poly" or a configured kernel, default "rbf"
        A configured kernel, for example ``Matern(gamma=0.1, nu=2.5)``, brings its own width.
    gamma : float, "scale" or "median", default "scale"
        The kernel's width, as in `sklearn.svm.SVC`.
    C : float > 0, default 10.0
        The cost of one labelled row, as in `sklearn.svm.SVC`. The paper's C is the number of labelled rows times this.
        The default suits standardised features and a few hundred labels; `S3VMClassifierCV` chooses it.
    unlabeled_weight : float >= 0, "auto" or "paper", default "auto"
        The cost of all unlabelled rows together, ``C*``, as a share of that of all labelled rows; 0 ignores the
        unlabelled rows. ``"auto"`` tries 0.3 and 1 beside 0 (and 0.1 with few labels), and takes one only if it lowers
        the Brier score of labelled rows that were left out of training; `safety_` says which, and why. ``"paper"`` is
        the paper's ``n_l / n_u``, which vanishes as the unlabelled rows grow.
    loss : "auto", "exp", "hat", "squared_hat", "ramp" or a configured loss, default "auto"
        The loss u of an unlabelled row. ``"auto"`` is the solver's own, ``"exp"`` for TSG.
    labeled_loss : "auto", "smooth_hinge", "hinge", "squared_hinge" or a configured loss, default "auto"
        The loss l of a labelled row. ``"auto"`` is the solver's own, ``"smooth_hinge"`` for TSG. The supervised
        start, and what is left when no unlabelled row is used, is the SVM with the hinge.
    class_prior : array of shape (n_classes,) or None, default None
        Shares of the classes among the unlabelled rows, in the order of `classes_`. None takes those of the labelled
        rows. It matters if the solver balances the classes, as TSG does unless told otherwise.
    class_weight : dict, "balanced" or None, default None
        Factors on C a class, as in `sklearn.svm.SVC`.
    unlabeled : label or None, default -1
        The mark of an unlabelled row in `y`; None if missing values (None, NaN) mark them.
    probability : bool, default True
        Whether `predict_proba` is wanted. It is calibrated on folds of the labelled rows, which are trained beside the
        model in the same run.
    warm_start : bool, default False
        Whether another call of `fit` goes on from where the last one stopped.
    backend : "auto", "cpu", "gpu" or "reference", default "auto"
        Where the work is done. ``"auto"`` is the GPU if torch and Triton are installed and see one, else the CPU.
    dtype : "float32" or "float64", default "float32"
        Precision of the features; sums are made in float64.
    cache_bytes : int or "auto", default "auto"
        Memory for random frequencies or kernel values that are kept during `fit`; others are made again when needed.
        It changes the speed only, but for last digits. ``"auto"`` is 256 MiB, or half of what is free on a GPU.
    n_jobs : int or None, default None
        Number of threads; -1 is all cores. The result does not depend on it.
    random_state : int, RandomState or None, default None
    verbose : int or callable, default 0
        Above 0: a progress bar. A callable is called after every iteration with the number of iterations done, the
        most there can be, and the line of `history_` as a dict.
    max_seconds : float or None, default None
        When to stop training, with a warning, and keep the model so far.
    early_stopping : "reference", "held_out" or None, default None
        When to stop training before the last iteration, once the unlabelled rows have their full weight:
        ``"reference"`` when hardly any row of a sample of unlabelled rows changes its class any more, ``"held_out"``
        when the Brier score of labelled rows that were left out does not fall any more.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    n_iter_ : int
    history_ : dict of arrays of length `n_iter_`
        One entry an iteration (beyond 65,536, one for every second, fourth, ...): objective, losses, share of
        unlabelled rows predicted positive, what else the solver has to say; and error, balanced error and average
        precision on held-out rows, where folds were trained beside.
    safety_ : Safety or None
        With ``unlabeled_weight="auto"``: the chosen weight, the scores of each on held-out rows, and a plain sentence.
    transduction_ : array of shape (n_rows,)
        A label for each training row: its own, or the predicted one (also if its weight is 0). Computed when first
        asked for.
    model_ : Model
        The learnt function. It holds training rows, labelled and perhaps unlabelled ones, as centres of a kernel
        expansion.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_moons
    >>> from s3vm import S3VMClassifier
    >>> X, y = make_moons(500, noise=0.1, random_state=0)
    >>> some = y.copy()
    >>> some[10:] = -1
    >>> clf = S3VMClassifier(C=10, random_state=0).fit(X, some)
    >>> clf.predict(X[:3])
    array([0, 1, 1])
    """

    classes_: Array
    history_: dict[str, Array]
    model_: Model
    safety_: Safety | None
    _start: _Start | None
    _training: _Training | None
    _waiting: TrainingRows | None
    _transduction: Array | None

    def __init__(
        self,
        solver: str | Solver = "tsg",
        *,
        kernel: str | Kernel = "rbf",
        gamma: Gamma = "scale",
        C: float = 10.0,
        unlabeled_weight: float | Literal["auto", "paper"] = "auto",
        loss: str | UnlabelledLoss = "auto",
        labeled_loss: str | LabelledLoss = "auto",
        class_prior: Any = None,
        class_weight: Any = None,
        unlabeled: Any = -1,
        probability: bool = True,
        warm_start: bool = False,
        backend: str = "auto",
        dtype: str = "float32",
        cache_bytes: int | Literal["auto"] = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int | Progress = 0,
        max_seconds: float | None = None,
        early_stopping: EarlyStopping = None,
    ) -> None:
        self.solver = solver
        self.kernel = kernel
        self.gamma = gamma
        self.C = C
        self.unlabeled_weight = unlabeled_weight
        self.loss = loss
        self.labeled_loss = labeled_loss
        self.class_prior = class_prior
        self.class_weight = class_weight
        self.unlabeled = unlabeled
        self.probability = probability
        self.warm_start = warm_start
        self.backend = backend
        self.dtype = dtype
        self.cache_bytes = cache_bytes
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.max_seconds = max_seconds
        self.early_stopping = early_stopping

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        unlabeled: Any = None,
        checkpoint: Any = None,
        every: float = EVERY,
        resume: bool = False,
    ) -> "S3VMClassifier":
        """Learn from the rows of X, those marked `unlabeled` in y being unlabelled; or from a source of rows.

        Parameters
        ----------
        X : array, CSR matrix or data frame of shape (n_rows, n_features); or a source
            A source that knows labels, such as ``FileSource("folder", target="label")``, stands for X and y.
        y : array of shape (n_rows,)
        sample_weight : array of shape (n_rows,) or None, default None
            Factors on C a row; those of unlabelled rows are not used.
        unlabeled : source, path, array or iterable of batches, or None, default None
            The unlabelled rows, which need not fit into memory; all rows of X are then labelled. See
            `s3vm.sources`.
        checkpoint : path or None, default None
            A file that is written on the way, from which a run that was broken off can go on.
        every : float, default 60
            Seconds between checkpoints.
        resume : bool, default False
            Whether to go on from the checkpoint, if there is one. The model is then the same, to the last bit, as if
            the run had never been broken off. A checkpoint of other rows or settings is refused.
        """
        self._check_settings()
        rules = StoppingRules(self.max_seconds, self.early_stopping, checkpoint, every, resume)
        if checkpoint is not None and solver(self.solver).keeps_all_rows:
            raise ValueError("this solver keeps all rows and their kernel matrix, too much for a checkpoint")
        if self.warm_start and checkpoint is not None:
            raise ValueError("warm_start=True goes on from the model in memory: leave checkpoint=None")
        before = self._before() if self.warm_start else None
        seen, source = self._given(X, y, sample_weight, unlabeled, reset=before is None)
        return self._learn(seen, before, source=source, rules=rules)

    @available_if(lambda self: _goes_on(self))
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, max_labeled: int | None = None
    ) -> "S3VMClassifier":
        """Learn from more rows, labelled or not, beside all that were given before.

        The first call is a `fit`, which settles the classes, the kernel's width and C. ``solver="incremental"`` then
        keeps all rows and follows the exact solution.

        ``"tsg"`` and ``"frs"`` go through new unlabelled rows once and forget them, but for a random sample of 10,000:
        memory does not grow, however many come. Labelled rows are remembered, and act on every step. After `fit`, its
        rows are gone through again first.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`. Later calls may have unlabelled rows only, or labelled ones.
        classes : array or None, default None
            All labels that will come, each of which the first call must have. None takes those of the first call.
        max_labeled : int or None, default None
            With ``"tsg"`` and ``"frs"``: how many labelled rows are remembered, the newest, an equal number of each
            class if there are enough. None remembers all.
        """
        self._check_settings()
        before, first = self._before(), not hasattr(self, "model_")
        seen = self._rows(X, y, sample_weight, reset=first)
        if solver(self.solver).keeps_all_rows:
            if max_labeled is not None:
                raise ValueError(
                    f"max_labeled={max_labeled!r} is for tsg and frs: this solver keeps all rows, and forget(rows) "
                    "leaves some out"
                )
            return self._learn(seen if first else self._seen().and_then(seen), before, classes)
        remembered = getattr(self, "_waiting", None) if before is None or before.arrivals is None else before.seen
        if not first and remembered is None:
            remembered, before = self._seen(), None  # a fit: its rows are gone through again
        if max_labeled is not None and not is_whole(max_labeled, 2):
            raise ValueError(f"max_labeled={max_labeled!r} is not valid: give a whole number of at least 2, or None")
        arrivals = ReservoirSource(SAMPLE, self.dtype)
        if before is not None and before.arrivals is not None:
            arrivals = deepcopy(before.arrivals)  # an error must not leave a trace
        if remembered is not None:
            seen = remembered.and_then(seen)
        labelled, labels = split_labels(seen.y, self.unlabeled)
        arrivals.add(seen.X[np.flatnonzero(~labelled)])
        at = np.flatnonzero(labelled)
        if max_labeled is not None:
            at = at[newest(labels, max_labeled)]
        seen = TrainingRows(seen.X[at], seen.y[at], seen.weight[at])
        if arrivals.n_rows:
            return self._learn(seen, before, classes, arrivals)
        self._learn(seen, None, classes)
        self._training, self._waiting = None, seen  # a plain SVM until unlabelled rows come
        return self

    @available_if(lambda self: _takes_rows(self))
    def forget(self, rows: Any) -> "S3VMClassifier":
        """Learn without some of the rows, given by their numbers in the order in which all came; see `partial_fit`."""
        check_is_fitted(self, "model_")
        return self._learn(self._seen().without(rows), self._before())

    @with_advice('give fewer rows, or solver="tsg" with unlabeled=source, whose memory does not grow with the rows')
    @one_blas_thread
    def _learn(
        self,
        seen: TrainingRows,
        before: _Start | None,
        expected: Any = None,
        source: Source | None = None,
        rules: StoppingRules | None = None,
    ) -> "S3VMClassifier":
        """Trains on all rows `seen`, going on from what was `before`. With a `source`, all of `seen` are labelled."""
        chosen = solver(self.solver)
        engine = backends.backend(self.backend, self.dtype, self.n_jobs, self.cache_bytes)
        rules = rules or StoppingRules(self.max_seconds, self.early_stopping)
        X, y, weight = seen
        streamed = source is not None
        arrivals = source if isinstance(source, ReservoirSource) else None
        if arrivals is not None:
            chosen = chosen.for_streaming()
        if streamed and chosen.keeps_all_rows:
            raise ValueError(f"{type(chosen).__name__} keeps all rows: give them in X, marked in y, not as a source")
        labelled, labels = split_labels(y, self.unlabeled)
        counts = weight[labelled] > 0
        at, unlabelled = np.flatnonzero(labelled)[counts], np.flatnonzero(~labelled)
        classes, all_codes = np.unique(labels[counts], return_inverse=True)
        codes = all_codes
        if len(classes) < 2:
            raise ValueError(
                f"S3VMClassifier needs labelled rows of at least two classes, got {len(classes)} class "
                f"{classes.tolist()}; label some rows of another class, and give them weights above 0"
            )
        if expected is not None and not np.array_equal(classes, np.unique(expected)):
            raise ValueError(f"labelled rows of each class are needed: of {expected}, there are {classes.tolist()}")
        if before is not None and not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"training goes on with the same classes only, {self.classes_.tolist()}, and these are "
                f"{classes.tolist()}; set warm_start=False, or call fit with all rows, to start afresh"
            )
        if source is None and len(unlabelled):
            source = ArraySource(X, unlabelled, self.dtype)
        if source is None:
            warnings.warn(
                "no unlabelled rows: this is a plain SVM. Mark unlabelled rows in y with "
                + ("a missing value" if self.unlabeled is None else repr(self.unlabeled)),
                stacklevel=3,
            )
        factor = class_factors(self.class_weight, classes, codes)
        rows, codes, weight_l = distinct_rows(host(ArraySource(X, at, self.dtype).take(slice(None))), codes, weight[at])
        if before is None:
            stored = checkpoints.seed_of(rules.checkpoint) if rules.resume and self.random_state is None else None
            seed = _seed(self.random_state) if stored is None else stored
            resolved = self._kernel(X, np.where(labelled, weight, 1.0), rows, unlabelled, seed, source)
            few = TrainingRows(rows, classes[codes], weight_l)
            C, fitted_kernel, alone = self._cost_and_kernel(resolved, few, weight_l * factor[codes], source, seed)
        else:
            seed, C, fitted_kernel = before.state.seed, before.C, before.state.kernel
            alone = fitted_kernel
        of_labelled, of_unlabelled = chosen.losses
        weights = self._weights(len(codes), source.n_rows if source is not None else 0, lasting=arrivals is not None)
        if self.unlabeled_weight == "auto" and source is not None:
            check_labelled(len(codes))  # the supervised solution is one of the choices
        n_folds = before.n_folds if before and not chosen.keeps_all_rows else _FOLDS
        lasting = None if arrivals is None else lasting_folds(rows, _FOLDS)  # rows will come: each has its place
        left_out = self._left_out(codes, n_folds, seed, lasting)
        priors = self._priors(classes, codes, weight_l, left_out)
        problem = Problem(
            labelled=rows,
            unlabelled=source,
            kernel=fitted_kernel,
            labelled_loss=of_labelled() if self.labeled_loss == "auto" else labelled_loss(self.labeled_loss),
            unlabelled_loss=of_unlabelled() if self.loss == "auto" else unlabelled_loss(self.loss),
            seed=seed,
            prior_is_known=self.class_prior is not None,
            **make_columns(weights, left_out, codes, C * weight_l * factor[codes], priors),
        )
        start = None if before is None else before.state
        if start is not None and arrivals is not None:
            chosen = chosen.for_new_rows(start.iteration, arrivals.n_new)
            start = chosen.follow(problem, engine, start)
        elif start is not None:
            chosen = chosen.extended(problem, start.iteration)
        told = ("unlabeled_weight", "class_prior", "class_weight", "probability")
        words = {"C": repr(C), **{name: repr(getattr(self, name)) for name in told}}
        state, history = train(chosen, problem, engine, start, self.verbose, rules, words)
        model = state.model()
        if not model.is_finite:
            raise ValueError("the coefficients overflowed: standardise the features, or lower C, gamma or the degree")
        chosen_model, held_out, safety = self._choice(
            model, problem, alone, weights, left_out, codes=codes, engine=engine
        )
        if before is not None:
            history = thin_history(join_histories(self.history_, history))
        learnt = {"classes_": classes, "history_": history, "n_iter_": state.iteration, "C_": C}
        learnt |= {"kernel_": chosen_model.kernel, "safety_": safety, "model_": chosen_model}
        if self.probability:
            known = np.isfinite(held_out).all(axis=1)
            fair = held_out if known.any() else chosen_model.decision(rows, engine)
            known = known if known.any() else np.ones_like(known)
            learnt["_calibrator"] = calibrator(fair[known], codes[known], weight_l[known])
        self.__dict__.update(learnt)  # all at once: another thread may be predicting
        self._start = None
        if self.warm_start or chosen.keeps_all_rows:
            rest = self._lasting(), left_out.shape[1] - 1, C, seen if chosen.keeps_all_rows else None
            self._start = _Start(state.detached(), *rest)
        if arrivals is not None:
            arrivals.release()
            self._start = _Start(state.detached(), self._lasting(), left_out.shape[1] - 1, C, seen, arrivals)
        self._training = self._waiting = None
        if not streamed:
            self._training = _Training(seen, np.flatnonzero(labelled)[counts], all_codes, _some(X))
        self._transduction = None
        self._warn_of_collapse(source, codes, weight_l)
        return self

    def _choice(
        self,
        model: Model,
        problem: Problem,
        alone: Kernel,
        weights: list[float],
        left_out: Array,
        *,
        codes: Array,
        engine: Any,
    ) -> tuple[Model, Array, Safety | None]:
        """The model of the weight that is taken, its scores of labelled rows that were left out, and the reasons.

        `alone` is the kernel of the supervised solution that it is compared with.
        """
        n_outputs, n_groups = problem.n_models, left_out.shape[1]
        scores = model.decision(problem.labelled, engine).reshape(len(codes), len(weights), n_groups, n_outputs)
        held_out = {weight: scores_held_out(scores[:, w], left_out) for w, weight in enumerate(weights)}
        if self.unlabeled_weight != "auto" or problem.unlabelled is None:
            return model.columns(slice(0, n_outputs)), held_out[weights[0]], None
        gram = labelled_gram(alone, problem.labelled)
        first = slice(0, n_groups * n_outputs)
        dual, intercept = supervised(gram, problem.targets[:, first], problem.costs[:, first])
        base = scores_held_out((gram @ dual + intercept).reshape(len(codes), n_groups, n_outputs), left_out)
        safety = choose(codes, base, held_out)
        if safety.weight == 0:
            nothing = np.empty((0, 1, dual.shape[1]), engine.dtype)
            svm = replace(
                model, kernel=alone, coefficients=nothing, intercept=intercept, centres=problem.labelled, weights=dual
            )
            return svm.columns(slice(0, n_outputs)), base, safety
        start = weights.index(safety.weight) * n_groups * n_outputs
        return model.columns(slice(start, start + n_outputs)), held_out[safety.weight], safety

    def _kernel(
        self, X: Any, row_weight: Array, rows: Any, unlabelled: Array, seed: int, source: Source | None
    ) -> Kernel:
        """The kernel with a width that fits the rows."""
        chosen = kernel(self.kernel, self.gamma)
        if source is not None and not len(unlabelled) and isinstance(chosen.gamma, str):
            return chosen.resolve(source.sample(seed, SAMPLE), seed=seed)
        if chosen.gamma != "median":
            return chosen.resolve(X, row_weight, seed)
        if len(unlabelled) > SAMPLE:
            unlabelled = unlabelled[philox.indices(seed, Purpose.REFERENCE, range(2, 3), SAMPLE, len(unlabelled))[0]]
        if len(unlabelled):
            rows = ArraySource(X, unlabelled, self.dtype if is_tensor(X) else X.dtype).take(slice(None))
        return chosen.resolve(host(rows), seed=seed)

    def _cost_and_kernel(
        self, resolved: Kernel, labelled: TrainingRows, cost: Array, source: Source | None, seed: int
    ) -> tuple[float, Kernel, Kernel]:
        """The cost of a labelled row of weight 1, the kernel, and that of an SVM of the labelled rows alone."""
        return positive("C", self.C), resolved, resolved

    def _weights(self, n_labelled: int, n_unlabelled: int, lasting: bool = False) -> list[float]:
        """The weights of the unlabelled rows that are tried; the history speaks of the first.

        If they are to last, they do not depend on how many labelled rows there are by now.
        """
        if n_unlabelled == 0:
            return [0.0]
        if self.unlabeled_weight == "auto":
            few = lasting or n_labelled < FEW_LABELS
            return [*_AUTO_WEIGHTS, *_FEW_LABELS_WEIGHTS] if few else list(_AUTO_WEIGHTS)
        if self.unlabeled_weight == "paper":
            if n_unlabelled == ENDLESS:
                raise ValueError('how many unlabelled rows there are is not known: unlabeled_weight="paper" needs it')
            return [n_labelled / n_unlabelled]
        if not 0 <= number(self.unlabeled_weight) < np.inf:
            raise ValueError(
                f"unlabeled_weight={self.unlabeled_weight!r} is not valid: give a finite number of at least 0, "
                '"auto" or "paper"'
            )
        return [float(self.unlabeled_weight)]

    def _left_out(self, codes: Array, most: int, seed: int, folds: Array | None = None) -> Array:
        """Which labelled rows each group of columns is trained without: none, then each fold. Shape (n, 1 + folds)."""
        nothing = np.zeros((len(codes), 1), dtype=bool)
        if not self.probability and self.unlabeled_weight != "auto":
            return nothing
        if folds is not None:
            left_out = folds[:, None] == np.arange(_FOLDS)
            return np.hstack([nothing, left_out & ~left_out.all(axis=0)])  # of equal rows, all may be in one fold
        if len(codes) < FEW_LABELS and codes.max() == 1:
            # Every row on its own, but for the only one of its class, without which there is nothing to train.
            return np.hstack([nothing, np.eye(len(codes), dtype=bool)[:, np.bincount(codes)[codes] > 1]])
        folds = stratified_folds(codes, most or _FOLDS, seed)
        if folds.max() == 0:
            warnings.warn(
                "a class has a single labelled row, which cannot be left out: probabilities are calibrated on rows "
                "that were trained on and will be too sure, and the weight of unlabelled rows cannot be chosen. "
                "Label another row of that class",
                stacklevel=4,
            )
            return nothing
        return np.hstack([nothing, folds[:, None] == np.arange(folds.max() + 1)])

    def _warn_of_collapse(self, source: Source | None, codes: Array, weight: Array) -> None:
        """Says so if a class that a fair share of the labelled rows has is hardly predicted at all."""
        if source is None or source.n_rows < 50:
            return
        sample = source.sample(self.model_.seed, _KEPT * 5)
        engine = backends.backend(self.backend, self.dtype, self.n_jobs)
        predicted = np.bincount(predicted_codes(self.model_.decision(sample, engine)), minlength=len(self.classes_))
        expected = self._priors(self.classes_, codes, weight, np.zeros((len(codes), 1), dtype=bool))[0]
        for code in np.flatnonzero((expected > 0.1) & (predicted / predicted.sum() < 0.1 * expected)):
            warnings.warn(
                f"collapse: {predicted[code]} of {predicted.sum()} unlabelled rows are predicted as "
                f"{self.classes_.tolist()[code]!r}, where {expected[code]:.0%} were expected. Lower unlabeled_weight, "
                "give class_prior, or let the solver balance the classes",
                stacklevel=4,
            )

    def _check_settings(self) -> None:
        """Raises a ValueError that names a setting of the wrong kind, where nobody else would."""
        for name, value in self.get_params(deep=False).items():
            if isinstance(value, np.ndarray) and value.ndim and name not in ("class_prior", "Cs", "factors"):
                raise ValueError(f"{name}={value!r} is not valid: give one value, not an array")
            if name in ("probability", "warm_start") and not isinstance(value, bool | np.bool_):
                raise ValueError(f"{name}={value!r} is not valid: give True or False")
        if not isinstance(self.verbose, bool) and not callable(self.verbose) and np.isnan(number(self.verbose)):
            raise ValueError(f"verbose={self.verbose!r} is not valid: give 0, 1 or a function")
        if np.ndim(self.unlabeled):
            raise ValueError(f"unlabeled={self.unlabeled!r} is not a mark: give one label, or None for missing labels")

    def _before(self) -> "_Start | None":
        """What an earlier fit left to go on from."""
        start = getattr(self, "_start", None)
        if start is not None and start.lasting != self._lasting():
            raise ValueError(
                "training goes on with the same solver, kernel, gamma, C, dtype, probability and random_state; "
                "set warm_start=False, or call fit with all rows, to start afresh"
            )
        return start

    def _seen(self, missing: type[Exception] = ValueError) -> TrainingRows:
        """All rows that were given before, which must be as they were; `missing` is raised if they were not kept."""
        before, training = self._start, getattr(self, "_training", None)
        if training is None and before is not None and before.seen is not None and before.arrivals is None:
            return before.seen
        if training is None:
            raise missing(
                "transduction_, partial_fit and forget need the training rows, which a model that was loaded, copied "
                "or trained on a stream has not kept: predict gives labels; to go on learning, begin with partial_fit, "
                "or call fit with all rows"
            )
        seen, *_, kept = training
        if (_some(seen.X) != kept).sum() > 0:
            raise ValueError("the rows given to fit have been changed since: give all rows to fit, or to predict")
        return seen

    def _lasting(self) -> tuple[Any, ...]:
        """The settings that cannot change between a fit and its continuation."""
        kind = type(solver(self.solver))
        return kind, kernel(self.kernel, self.gamma), self.C, self.dtype, self.probability, self.random_state

    def _priors(self, classes: Array, codes: Array, weight: Array, left_out: Array) -> Array:
        """The class shares expected of the unlabelled rows, for each thing left out: shape (groups, n_classes)."""
        n_classes = len(classes)
        if self.class_prior is None:
            counts = (weight[:, None] * ~left_out).T @ (codes[:, None] == np.arange(n_classes))
            return counts / counts.sum(axis=1, keepdims=True)
        try:
            prior = np.asarray(self.class_prior, dtype=np.float64)
        except (TypeError, ValueError):
            prior = np.empty(0)
        if prior.shape != (n_classes,) or not np.all(prior > 0) or not np.isclose(prior.sum(), 1.0):
            raise ValueError(
                f"class_prior={self.class_prior!r} is not a share for each of the {n_classes} classes: "
                "give positive numbers that add up to 1, in the order of classes_"
            )
        return np.tile(prior, (left_out.shape[1], 1))

    def decision_function(self, X: Any) -> Array:
        """The scores ``f(x)``: of ``classes_[1]`` if there are two classes, else a column a class."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """The class with the highest score for each row."""
        scores = self._scores(X)
        return self.classes_[predicted_codes(scores)]

    @available_if(lambda self: has_probability(self))
    def predict_proba(self, X: Any) -> Array:
        """The probability of each class for each row.

        A softmax of the scores whose temperature is fitted by scikit-learn's calibration to the scores of labelled rows
        that were left out of training. It is as good as the labelled rows are many, and always agrees with `predict`.
        """
        now = copy(self)  # the scores and what makes probabilities of them belong together
        scores = now._scores(X)
        return now._calibrator.predict_proba(scores)

    @property
    def transduction_(self) -> Array:
        """A label for each training row: its own, or the predicted one.

        Predicting all rows may take longer than training, so it is done when first asked for, from the rows that were
        given to `fit`.
        """
        check_is_fitted(self, "model_")
        if self._transduction is None:
            X = self._seen(AttributeError).X
            assert self._training is not None
            at, codes = self._training.at, self._training.codes
            result = np.empty(X.shape[0], dtype=np.intp)
            result[at] = codes
            rest = np.setdiff1d(np.arange(X.shape[0]), at, assume_unique=True)
            result[rest] = predicted_codes(self._evaluate(ArraySource(X, rest, self.dtype)))
            self._transduction = self.classes_[result]
        return self._transduction

    def save(self, path: Any) -> None:
        """Writes the fitted model to one file, by custom ``.s3vm``; see `s3vm.save`."""
        from s3vm.persistence.model_file import save

        save(self, path)

    @classmethod
    def load(cls, path: Any) -> "S3VMClassifier":
        """The model in that file, which predicts as it did to the last bit; see `s3vm.load`."""
        from s3vm.persistence.model_file import load

        found = load(path)
        if not isinstance(found, cls):
            raise TypeError(f"{path} holds a {type(found).__name__}: s3vm.load reads any model file")
        return found

    @with_advice("predict fewer rows at a time")
    def _scores(self, X: Any) -> Array:
        check_is_fitted(self, "model_")
        return self._evaluate(ArraySource(self._checked(X, reset=False), None, self.dtype))

    def _evaluate(self, source: ArraySource) -> Array:
        """The model's scores, a chunk of rows at a time, so that no cast copy of all rows is made."""
        engine = backends.backend(self.backend, self.dtype, self.n_jobs)
        model = self.model_  # one for all rows, even if another thread is in partial_fit
        scores = np.empty((source.n_rows, len(model.intercept)))
        for start in range(0, source.n_rows, _CHUNK):
            part = slice(start, start + _CHUNK)
            scores[part] = model.decision(source.take(part), engine)
        if not np.isfinite(scores).all():
            raise ValueError(
                "some rows of X are too large for this kernel: scale them as the training rows were scaled"
            )
        return scores

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())  # at once: another thread may be in partial_fit
        state.pop("_training", None)
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _goes_on(estimator: S3VMClassifier) -> bool:
    if not (solver(estimator.solver).keeps_all_rows or solver(estimator.solver).follows_stream):
        raise AttributeError('partial_fit needs a solver that goes on with other rows: "tsg", "frs" or "incremental"')
    return True


def _takes_rows(estimator: S3VMClassifier) -> bool:
    if not solver(estimator.solver).keeps_all_rows:
        raise AttributeError('rows can come and leave only with a solver that keeps up: solver="incremental"')
    return True


def has_probability(estimator: S3VMClassifier) -> bool:
    if not estimator.probability or (hasattr(estimator, "model_") and not hasattr(estimator, "_calibrator")):
        raise AttributeError("predict_proba needs probability=True when the model is fitted")
    return True


def _some(X: Any) -> Any:
    """A copy of some rows from all over X, by which a change is noticed."""
    return host(X[np.linspace(0, X.shape[0] - 1, min(X.shape[0], _KEPT)).astype(int)]).copy()


def _seed(random_state: Any) -> int:
    """The 64-bit seed: a whole number is itself, so that a paper's run can name it."""
    if isinstance(random_state, int | np.integer) and 0 <= random_state < 1 << 64:
        return int(random_state)
    try:
        return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    except ValueError:
        raise ValueError(
            f"random_state={random_state!r} is not valid: give a whole number from 0 to 2**64 - 1, a RandomState or "
            "None"
        ) from None

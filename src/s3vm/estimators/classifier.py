"""The scikit-learn interface."""

from collections.abc import Callable
from copy import copy
from typing import Any, Literal, Self

from sklearn.utils.validation import check_is_fitted

from s3vm import backends
from s3vm._utils.blas import one_blas_thread
from s3vm._utils.machine import with_advice
from s3vm._utils.progress import Progress
from s3vm._utils.scores import predicted_codes
from s3vm._utils.typing import Array
from s3vm.backends import Backend
from s3vm.estimators.choice import warn_of_collapse
from s3vm.estimators.dask import check_remote_fit, cluster_rows, cluster_solver, lazily
from s3vm.estimators.learning import attributes, learn
from s3vm.estimators.planning import Tuning
from s3vm.estimators.prediction import Temperature, scores_of
from s3vm.estimators.preparation import PreparedRows, TrainingRows
from s3vm.estimators.representations import usual_representations
from s3vm.estimators.resuming import ResumePoint, all_rows, arrive, check_max_labeled, has_new_class, resume_point
from s3vm.estimators.safety import Safety
from s3vm.estimators.scales import warn_of_other_scale
from s3vm.estimators.scoring import LabeledScoreMixin
from s3vm.estimators.settings import (
    NestedParameters,
    available_if,
    can_continue,
    can_forget,
    check_checkpointing,
    check_estimator,
    has_probability,
    training_backend,
)
from s3vm.estimators.suggestions import SuggestionMixin
from s3vm.estimators.thresholds import ThresholdMixin
from s3vm.estimators.validation import checked_rows, given_rows, is_dask, renamed, training_rows
from s3vm.kernels import Gamma, Kernel, KernelName
from s3vm.losses import LabeledLoss, LabeledLossName, UnlabeledLoss, UnlabeledLossName
from s3vm.model import Model
from s3vm.solvers import Solver, SolverName, solver
from s3vm.training.early_stopping import EarlyStopping
from s3vm.training.loop import EVERY, StoppingRules


class S3VMClassifier(ThresholdMixin, SuggestionMixin, LabeledScoreMixin, NestedParameters):
    """Kernel support vector machine that learns from labelled and unlabelled rows.

    It minimises Eq. 1 of "Scalable Semi-Supervised SVM via Triply Stochastic Gradients" (TSGS3VM), one class against
    the rest if there are more than two:

        ``R(f) = ||f||^2 / 2 + C sum over labeled rows of l(f(x), y) + C* E over unlabeled rows of u(f(x))``.

    Standardise the features first, as for any kernel machine.

    Parameters
    ----------
    solver : "auto", a name in `s3vm.solvers.SOLVERS` or a configured solver, default "auto"
        ``"auto"`` compares candidates of gaps and neighbors, and averages those that labelled rows held out confirm.
        ``"tsg"`` is the paper's TSGS3VM, on all rows, and ``"incremental"`` has `forget`; a configured solver is, for
        example, ``TSG(max_iter=256, n_features=512)``.
    kernel : "rbf", "laplacian", "matern", "poly" or a configured kernel, default "rbf"
        A configured kernel, for example ``Matern(gamma=0.1, nu=2.5)``, has its own width.
    gamma : float, "scale" or "median", default "scale"
        The kernel's width, as in `sklearn.svm.SVC`.
    C : float > 0, default 10.0
        The cost of one labelled row, as in `sklearn.svm.SVC`. The paper's C is the number of labelled rows times this.
    unlabeled_weight : float >= 0, "auto" or "paper", default "auto"
        The cost of all unlabelled rows together, ``C*``, relative to that of all labelled rows; 0 ignores them.
        ``"auto"`` tries several, and any candidate, also one of a given weight, has to lower the Brier score of
        labelled rows held out; `safety_` says why. ``"paper"`` is the paper's ``n_l / n_u``, for a single solver.
    neighbor_weight : float >= 0 or "auto", default "auto"
        The cost of differences between neighboring rows, relative to that of all labelled rows, for solvers that take a
        graph: ``"tsg"``, ``"newton"``, ``"cccp"``, ``"batch"``, ``"bgs"``. Only ``solver="auto"`` chooses it; else 0.
    n_neighbors : int, default 10
        Neighbors of each row in the graph.
    max_rows : int, default 10_000
        Unlabelled rows that the graph joins, and that ``solver="auto"`` learns from: of more, a random sample. Images
        of many classes gain from more of them, in time and memory that grow with their number.
    n_components : int, "auto" or None, default None
        Rows are first projected on that many leading principal directions. ``"auto"`` leaves it to ``solver="auto"``,
        and is None for the others.
    loss : "auto", "exp", "hat", "squared_hat", "ramp" or a configured loss, default "auto"
        The loss u of an unlabelled row. ``"auto"`` is the solver's own, ``"exp"`` for TSG.
    labeled_loss : "auto", "smooth_hinge", "hinge", "squared_hinge" or a configured loss, default "auto"
        The loss l of a labelled row. ``"auto"`` is the solver's own, ``"smooth_hinge"`` for TSG.
    class_prior : array of shape (n_classes,) or None, default None
        Shares of the classes among the unlabelled rows, in the order of `classes_`; None: those of the labelled rows.
    class_weight : dict, "balanced" or None, default None
        Factors on C per class, as in `sklearn.svm.SVC`.
    unlabeled : label or None, default -1
        The mark of an unlabelled row in `y`; None if missing values (None, NaN) mark them.
    probability : bool, default True
        Whether `predict_proba` is wanted. It is calibrated on folds of the labelled rows, trained in the same run.
    warm_start : bool, default False
        Whether another call of `fit` continues where the last one stopped.
    backend : "auto", "cpu", "gpu" or "reference", default "auto"
        ``"auto"`` is a GPU that torch and Triton find, except for small fits with ``solver="auto"``; else the CPU.
    dtype : "float32" or "float64", default "float32"
        Precision of the features; sums are made in float64.
    cache_bytes : int or "auto", default "auto"
        Memory for what is kept during `fit`; ``"auto"`` is 256 MiB, or half of what is free on a GPU.
    n_jobs : int or None, default None
        Threads, of a worker for dask collections (None: all); -1 is all cores. The result does not depend on it.
    random_state : int, RandomState or None, default None
    verbose : int or callable, default 0
        Above 0: a progress bar. A callable is given the iterations done, their maximum, and the line of `history_`.
    max_seconds : float or None, default None
        When to stop training, with a warning, and keep the model so far.
    early_stopping : "reference", "held_out" or None, default None
        When a single solver stops before its last iteration: ``"reference"`` when hardly any of a sample of unlabelled
        rows still changes its class, ``"held_out"`` when the Brier score no longer falls.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    n_iter_ : int
    history_ : dict of arrays of length `n_iter_`
        One entry per iteration (beyond 65,536, one for every second, fourth, ...): objective, losses, and, if folds
        were trained, measures of held-out rows. With ``solver="auto"``, the objective of the supervised solution.
    safety_ : Safety or None
        What was chosen with ``unlabeled_weight="auto"``, the scores on held-out rows, and a plain sentence.
    held_out_scores_, held_out_proba_ : array of shape (n_rows,) or (n_rows, n_classes)
        Predictions of labelled rows by models trained without them, NaN for unlabelled rows; not in model files.
    doubtful_ : dict of arrays
        Labelled rows whose held-out prediction contradicts their label, the worst first.
    threshold_ : float, by which `set_threshold` has lowered the scores; 0 after a fit
    transduction_ : array of shape (n_rows,)
        A label for each row of X: its own, or the predicted one. Not after `X_unlabeled` or dask collections.
    model_ : Model
        The learnt function. Its centres are training rows, labelled and perhaps unlabelled ones.
    column_weights_ : array of shape (n_features,) or None
        Factors of the columns, which ``solver="auto"`` may learn, else 1; None if rows are projected on directions.
    zero_based_ : bool or None
        Whether columns of SVMlight files were counted from 0; None if the rows came from elsewhere.
    n_features_in_, feature_names_in_ : as in scikit-learn

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
    C_: float
    column_weights_: Array | None
    feature_names_in_: Array
    history_: dict[str, Array]
    kernel_: Kernel
    model_: Model
    n_features_in_: int
    n_iter_: int
    safety_: Safety | None
    zero_based_: bool | None = None
    _calibrator: Temperature
    _resume_point: ResumePoint | None = None
    _labeled_rows: TrainingRows | None = None  # of partial_fit, until unlabelled rows come

    def __init__(
        self,
        solver: SolverName | Solver = "auto",
        *,
        kernel: KernelName | Kernel = "rbf",
        gamma: Gamma = "scale",
        C: float = 10.0,
        unlabeled_weight: float | Literal["auto", "paper"] = "auto",
        neighbor_weight: float | Literal["auto"] = "auto",
        n_neighbors: int = 10,
        max_rows: int = 10_000,
        n_components: int | Literal["auto"] | None = None,
        loss: UnlabeledLossName | UnlabeledLoss = "auto",
        labeled_loss: LabeledLossName | LabeledLoss = "auto",
        class_prior: Any = None,
        class_weight: Any = None,
        unlabeled: Any = -1,
        probability: bool = True,
        warm_start: bool = False,
        backend: Literal["auto", "cpu", "gpu", "reference"] = "auto",
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
        self.neighbor_weight = neighbor_weight
        self.n_neighbors = n_neighbors
        self.max_rows = max_rows
        self.n_components = n_components
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
        X_unlabeled: Any = None,
        groups: Any = None,
        checkpoint: Any = None,
        every: float = EVERY,
        resume: bool = False,
        unlabeled: Any = None,
    ) -> Self:
        """Learn from the rows of X, labelled by y except where it is the mark `unlabeled`; or from a source.

        Parameters
        ----------
        X : array, CSR matrix, data frame or dask collection of shape (n_rows, n_features); or source
            A source that has labels, such as ``FileSource("folder", target="label")``, stands for X and y. A worker of
            Dask that is silent for 30 seconds, or ``dask.config.set({"s3vm.patience": seconds})``, counts as lost.
        y : array of shape (n_rows,), or dask array or series with the partitions of X
        sample_weight : array of shape (n_rows,) or None, default None
            Factors on C per row; those of unlabelled rows are ignored.
        X_unlabeled : source, path, array, dask collection or iterable of batches, or None, default None
            The unlabelled rows, which need not fit into memory; all rows of X are then labelled, unless these are a
            dask collection. See `s3vm.sources`.
        groups : array of shape (n_rows,) or None, default None
            Rows of one group, such as pictures of one person, share a fold wherever labelled rows are held out; those
            of unlabelled rows are ignored. Not for dask collections.
        checkpoint : path or None, default None
            A file to which the state of the run is written from time to time, so that it can be resumed.
        every : float, default 60
            Seconds between checkpoints.
        resume : bool, default False
            Whether to resume from the checkpoint, if it exists. The model is then the same, to the last bit, as if
            the run had never been interrupted. A checkpoint of other rows or settings is refused.
        unlabeled : deprecated
            The name of `X_unlabeled` in version 0.1.
        """
        X_unlabeled = renamed(X_unlabeled, unlabeled)
        self._check_settings()
        rules = StoppingRules(self.max_seconds, self.early_stopping, checkpoint, every, resume)
        if is_dask(X) or is_dask(X_unlabeled):
            check_remote_fit(self, X, {"sample_weight": sample_weight, "groups": groups, "checkpoint": checkpoint})
            chosen, backend = cluster_solver(self.solver), training_backend(self)
            with cluster_rows(self, X, y, X_unlabeled, backend) as (labeled, on_cluster):
                self._learn(labeled, backend, source=on_cluster, rules=rules, with_solver=chosen)
            self._fitted_rows = None  # labelled rows only
            return self
        if checkpoint is not None:
            check_checkpointing(self)
        previous = resume_point(self) if self.warm_start else None
        backend = training_backend(self, X if X_unlabeled is None else None)
        given = self, X, y, sample_weight, groups, X_unlabeled
        rows, source = given_rows(*given, reset=previous is None, backend=backend)
        return self._learn(rows, backend, previous=previous, source=source, rules=rules)

    @available_if(can_continue)
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, max_labeled: int | None = None
    ) -> Self:
        """Learn from more rows, labelled or not, in addition to all that were given before.

        The first call is a `fit`, which determines the classes, the kernel's width and C. ``solver="incremental"``
        then keeps all rows and follows the exact solution.

        ``"tsg"`` and ``"frs"`` pass over new unlabelled rows once and forget them, except for a random sample of
        10,000: memory does not grow, however many come. Labelled rows are remembered, and act on every step. After
        `fit`, its rows are visited again first.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`, in memory. Later calls may have only unlabelled rows, or only labelled ones.
        classes : array or None, default None
            All labels that may come; a new one starts training again, from the rows remembered. None: no other labels.
        max_labeled : int or None, default None
            With ``"tsg"`` and ``"frs"``: how many labelled rows are remembered, the newest of each class; None: all.
        """
        self._check_settings()
        check_max_labeled(max_labeled, solver(self.solver, for_arrivals=True))
        previous, is_first, backend = resume_point(self), not hasattr(self, "model_"), training_backend(self)
        rows = training_rows(self, X, y, sample_weight, reset=is_first, backend=backend)
        kept = None if has_new_class(self, previous, rows, classes) else previous
        if solver(self.solver).keeps_all_rows:
            rows = rows if is_first else all_rows(self).and_then(rows)
            return self._learn(rows, backend, previous=kept, expected_classes=classes)
        remembered = self._labeled_rows if previous is None or previous.arrivals is None else previous.rows
        if not is_first and remembered is None:
            remembered, previous, kept = all_rows(self), None, None  # after a fit, whose rows are visited again
        labeled, arrivals = arrive(self, rows, remembered, previous, max_labeled)
        if arrivals.n_rows:
            return self._learn(labeled, backend, previous=kept, expected_classes=classes, source=arrivals)
        self._learn(labeled, backend, expected_classes=classes)  # a plain SVM until unlabelled rows come
        self._fitted_rows, self._labeled_rows = None, labeled
        return self

    @available_if(can_forget)
    def forget(self, rows: Any) -> Self:
        """Learn without some of the rows, given by their numbers in the order in which all came; see `partial_fit`."""
        check_is_fitted(self, "model_")
        return self._learn(all_rows(self).without(rows), training_backend(self), previous=resume_point(self))

    def decision_function(self, X: Any) -> Array:
        """The scores ``f(x)``: of ``classes_[1]`` of two classes, else a column per class; lazy for dask rows."""
        if is_dask(X):
            return lazily(self, "decision_function", X)
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """The class with the highest score for each row."""
        if is_dask(X):
            return lazily(self, "predict", X)
        model = copy(self)  # so that the classes and the codes belong together
        codes = model._scores(X, predicted_codes)  # first, since it checks that the model is fitted
        return model.classes_[codes]

    @available_if(has_probability)
    def predict_proba(self, X: Any) -> Array:
        """A softmax of the scores, its temperature fitted to rows held out; see `threshold_` about `predict`."""
        if is_dask(X):
            return lazily(self, "predict_proba", X)
        model = copy(self)  # so that the scores and their calibration belong together
        scores = model._scores(X)
        return model._calibrator.predict_proba(scores)

    def save(self, path: Any) -> None:
        """Writes the fitted model to a file, usually named ``*.s3vm``; see `s3vm.save`."""
        from s3vm.persistence.model_file import save

        save(self, path)

    @classmethod
    def load(cls, path: Any) -> Self:
        """The model in that file, which predicts as it did to the last bit; see `s3vm.load`."""
        from s3vm.persistence.model_file import load

        model = load(path)
        if not isinstance(model, cls):
            raise TypeError(f"{path} holds a {type(model).__name__}: s3vm.load reads any model file")
        return model

    def _check_settings(self) -> None:
        check_estimator(self)

    @with_advice('give fewer rows, or solver="tsg" with X_unlabeled=source, whose memory does not grow with the rows')
    @one_blas_thread
    def _learn(self, rows: TrainingRows, backend: Backend, previous: ResumePoint | None = None, **given: Any) -> Self:
        """Trains, and publishes what was learnt; what is `given` is described at `learn`."""
        learned = learn(self, rows, backend, previous=previous, **given)
        self.__dict__.update(attributes(self, learned, backend, previous))
        data, model = learned.data, learned.choice.model
        if not warn_of_other_scale(getattr(self, "feature_names_in_", None), data, model.seed):
            warn_of_collapse(model, data, self.class_prior, backend)
        return self

    def _tune(self, resolved: Kernel, data: PreparedRows, seed: int, backend: Backend) -> Tuning:
        """The cost and the kernel, given the kernel with a width that fits the rows."""
        return usual_representations(resolved, float(self.C), self, data, seed)

    @with_advice("predict fewer rows at a time")
    def _scores(self, X: Any, result: Callable[[Array], Array] = lambda scores: scores) -> Array:
        check_is_fitted(self, "model_")
        backend = backends.backend(self.backend, self.dtype, self.n_jobs)
        return scores_of(self.model_, checked_rows(self, X, backend=backend), None, self.dtype, backend, result)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())  # a copy at once: another thread may be in partial_fit
        return {name: value for name, value in state.items() if name != "_fitted_rows"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

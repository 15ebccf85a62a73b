"""The settings of an estimator: its parameters, checked at the beginning of a fit, and what they mean."""

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from inspect import signature
from typing import Any, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state, metaestimators

from s3vm import backends
from s3vm._utils.settings import Setting, above, at_least, check, integer, invalid, number, switch
from s3vm._utils.warn import warn
from s3vm.backends import Backend
from s3vm.kernels import kernel
from s3vm.losses import LabeledLoss, UnlabeledLoss, labeled_loss, unlabeled_loss
from s3vm.solvers import Solver, is_auto, solver
from s3vm.solvers.base import check_graph

_Method = TypeVar("_Method", bound=Callable[..., Any])
_WORTH_A_GPU = 5_000  # rows of a fit with solver="auto": see docs/performance.md
_MAY_BE_ARRAYS = ("class_prior", "Cs", "factors")

_verbosity = Setting(
    "0, 1 or a function",
    lambda value: isinstance(value, bool | np.bool_) or callable(value) or not np.isnan(number(value)),
)

_mark = Setting("the mark of an unlabelled row: one label, or None for missing ones", lambda value: not np.ndim(value))

numbers_above_0 = Setting(
    "a sequence of finite numbers above 0",
    lambda values: (
        isinstance(values, Sequence | np.ndarray)
        and len(values) > 0
        and all(0 < number(value) < np.inf for value in values)
    ),
)


class NestedParameters(BaseEstimator):
    """A `BaseEstimator` some of whose parameters are frozen dataclasses, whose fields are parameters, too."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; with `deep`, those of a configured solver, kernel or loss, too."""
        params: dict[str, Any] = super().get_params(deep=False)
        if deep:
            parts = [(name, part) for name, part in params.items() if _is_configured(part)]
            params |= {
                f"{name}__{field.name}": getattr(part, field.name) for name, part in parts for field in fields(part)
            }
        return params

    def set_params(self, **params: Any) -> Self:
        """Sets parameters by name: ``C=1``, and with ``solver=TSG()`` also ``solver__max_iter=100``."""
        super().set_params(**{name: value for name, value in params.items() if "__" not in name})
        nested: dict[str, dict[str, Any]] = {}
        for name, value in params.items():
            part, _, setting = name.partition("__")
            if setting:
                nested.setdefault(part, {})[setting] = value
        for part, settings in nested.items():
            configured = super().get_params(deep=False).get(part)
            known = {field.name for field in fields(configured)} if _is_configured(configured) else set()
            for setting in settings.keys() - known:
                example = f"settings of a configured {part}, not {configured!r}: {sorted(known)}"
                raise invalid(f"{part}__{setting}", settings[setting], example)
            setattr(self, part, replace(configured, **settings))
        return self


def _is_configured(part: Any) -> bool:
    return is_dataclass(part) and not isinstance(part, type)


def inherits_settings(parent: type, without: tuple[str, ...] = ()) -> Callable[[_Method], _Method]:
    """Decorates an `__init__` whose ``**settings`` go to the parent's, so that its signature names each of them.

    scikit-learn reads the parameters from there, and so do `help` and the API pages.
    """

    def decorate(init: _Method) -> _Method:
        parameters = {**signature(parent.__init__).parameters, **signature(init).parameters}  # type: ignore[misc]
        for name in ("settings", *without):
            del parameters[name]
        complete = signature(init).replace(parameters=list(parameters.values()))

        @wraps(init)
        def checked(*args: Any, **settings: Any) -> None:
            complete.bind(*args, **settings)  # a TypeError for what is left out
            init(*args, **settings)

        checked.__signature__ = complete  # type: ignore[attr-defined]
        return checked  # type: ignore[return-value]

    return decorate


def check_estimator(estimator: Any) -> None:
    """Raises a ValueError that names an invalid setting.

    Solver, kernel, losses and backend check their own; class weights and priors are checked once the classes are known.
    """
    for name, value in estimator.get_params(deep=False).items():
        if isinstance(value, np.ndarray) and value.ndim and name not in _MAY_BE_ARRAYS:
            raise invalid(name, value, "one value, not an array")
    check("C", estimator.C, above(0))
    check("unlabeled_weight", estimator.unlabeled_weight, at_least(0), "auto", "paper")
    check("neighbor_weight", estimator.neighbor_weight, at_least(0), "auto")
    check("n_neighbors", estimator.n_neighbors, integer())
    check("max_rows", estimator.max_rows, integer())
    check("n_components", estimator.n_components, integer(), "auto", None)
    check("unlabeled", estimator.unlabeled, _mark)
    check("probability", estimator.probability, switch)
    check("warm_start", estimator.warm_start, switch)
    check("verbose", estimator.verbose, _verbosity)
    kernel(estimator.kernel, estimator.gamma)
    losses_of(estimator, solver(estimator.solver))
    if is_auto(estimator.solver):
        _check_auto(estimator)
    check_graph(solver(estimator.solver), number(estimator.neighbor_weight) > 0)


def _check_auto(estimator: Any) -> None:
    """Raises a ValueError for what the candidates of ``solver="auto"`` cannot do."""
    if estimator.unlabeled_weight == "paper":
        raise ValueError('unlabeled_weight="paper" is for one solver: give solver="auto" a number or "auto"')
    if estimator.warm_start:
        raise ValueError('solver="auto" averages several runs, which cannot be continued: set warm_start=False')
    if estimator.early_stopping is not None:
        warn('early_stopping has no effect with solver="auto", whose runs are short: it is for a single solver')
    for name in ("loss", "labeled_loss"):
        if getattr(estimator, name) != "auto":
            raise ValueError(f'solver="auto" has losses of its own: give {name}="auto", or solver="tsg" for others')


def check_checkpointing(estimator: Any) -> None:
    """Raises a ValueError unless a run with these settings can write checkpoints."""
    if solver(estimator.solver).keeps_all_rows:
        raise ValueError("this solver keeps all rows and their kernel matrix, too much for a checkpoint")
    if is_auto(estimator.solver):
        raise ValueError('solver="auto" averages several short runs: give checkpoint to a single solver, such as "tsg"')
    if estimator.warm_start:
        raise ValueError("warm_start=True continues from the model in memory: leave checkpoint=None")


def losses_of(settings: Any, solver: Solver) -> tuple[LabeledLoss, UnlabeledLoss]:
    """The losses of labelled and unlabelled rows; "auto" is the solver's own."""
    labeled, unlabeled = solver.losses
    return labeled_loss(settings.labeled_loss, labeled), unlabeled_loss(settings.loss, unlabeled)


def ignores_unlabeled(settings: Any) -> bool:
    """Whether the model is to be the SVM of the labelled rows: no gaps, and no explicit weight of neighbors."""
    return bool(settings.unlabeled_weight == 0 and not number(settings.neighbor_weight) > 0)


def training_backend(settings: Any, X: Any = None) -> Backend:
    """The backend of a fit, which keeps what it can; a few rows X are learnt faster without a GPU."""
    n_rows = next(iter(getattr(X, "shape", ())), np.inf)
    is_small = settings.backend == "auto" and is_auto(settings.solver) and n_rows < _WORTH_A_GPU
    name = "cpu" if is_small else settings.backend
    return backends.backend(name, settings.dtype, settings.n_jobs, settings.cache_bytes)


def fixed_settings(settings: Any) -> tuple[Any, ...]:
    """The settings that must not change between a fit and its continuation."""
    named = ("C", "n_components", "dtype", "probability", "random_state")
    chosen = type(solver(settings.solver)), kernel(settings.kernel, settings.gamma)
    return *chosen, *(getattr(settings, name) for name in named)


def seed_of(random_state: Any) -> int:
    """The 64-bit seed: an integer is its own seed, so that the run of a paper can be named."""
    if isinstance(random_state, int | np.integer) and 0 <= random_state < 1 << 64:
        return int(random_state)
    try:
        return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    except ValueError:
        expected = "an integer from 0 to 2**64 - 1, a RandomState or None"
        raise invalid("random_state", random_state, expected) from None


def available_if(check: Callable[[Any], bool]) -> Callable[[_Method], _Method]:
    """scikit-learn's decorator for a method that only some settings have, with the method's own type."""
    decorate: Callable[[_Method], _Method] = metaestimators.available_if(check)
    return decorate


def can_continue(estimator: Any) -> bool:
    chosen = solver(estimator.solver, for_arrivals=True)
    if not (chosen.keeps_all_rows or chosen.follows_stream):
        raise AttributeError('partial_fit needs a solver that continues with other rows: "tsg", "frs" or "incremental"')
    return True


def can_forget(estimator: Any) -> bool:
    if not solver(estimator.solver).keeps_all_rows:
        raise AttributeError('forget needs a solver that keeps all rows: solver="incremental"')
    return True


def has_probability(estimator: Any) -> bool:
    if not estimator.probability or (hasattr(estimator, "model_") and not hasattr(estimator, "_calibrator")):
        raise AttributeError("predict_proba needs probability=True when the model is fitted")
    return True

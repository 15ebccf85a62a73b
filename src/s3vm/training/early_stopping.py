"""Early stopping: when the model has stopped changing, or improving."""

from typing import Any, Literal

import numpy as np

from s3vm._utils.scores import predicted_codes
from s3vm._utils.settings import is_integer, number
from s3vm._utils.typing import Array
from s3vm._utils.warn import warn
from s3vm.backends import Backend
from s3vm.problem import Problem
from s3vm.solvers import Solver, State
from s3vm.training.history import HeldOutRows

EarlyStopping = Literal["reference", "held_out"] | None

_CHECK_EVERY = 50  # iterations
_SAMPLE = 2000  # unlabelled rows that are checked
_MAX_CHANGE = 0.001  # fraction of them that may still change their class
_PATIENCE = 3  # checks
_MIN_CHECKS = {"reference": _PATIENCE, "held_out": _PATIENCE + 1}  # the first has nothing to compare with


class EarlyStopper:
    """Checks every 50 iterations, once the unlabelled rows have their full weight, whether to stop.

    ``"reference"``: stops when hardly any of a sample of unlabelled rows has changed its class in two checks in a row.
    ``"held_out"``: stops when the Brier score of labelled rows that were held out has not fallen in three.
    """

    def __init__(self, kind: EarlyStopping, solver: Solver, problem: Problem, backend: Backend, done: int) -> None:
        self.kind, self._problem, self._backend = kind, problem, backend
        self._first = max(done, solver.full_weight_from(problem)) if kind else 0
        self._codes: Array = np.empty(0, np.intp)
        self._best, self._count, self.stopped = np.inf, 0, False
        self._held_out = HeldOutRows(problem)
        if kind == "held_out" and not self._held_out:
            raise ValueError(
                'early_stopping="held_out" needs labelled rows that are held out: set probability=True or '
                'unlabeled_weight="auto", and label at least two rows of each class'
            )
        if kind == "reference" and problem.unlabeled is None:
            raise ValueError('early_stopping="reference" needs unlabelled rows: mark some, or give early_stopping=None')
        if kind is not None and (solver.iterations(problem) - self._first) / _CHECK_EVERY < _MIN_CHECKS[kind]:
            warn(
                f"early_stopping={kind!r} has no effect: it compares {_MIN_CHECKS[kind]} checks, one every "
                f"{_CHECK_EVERY} iterations once the unlabelled rows have their full weight, and this run of "
                f"{type(solver).__name__} has too few iterations for that. Raise max_iter, or give early_stopping=None"
            )

    def after(self, state: State) -> bool:
        """Whether to stop after this iteration."""
        if self.kind is None or state.iteration < self._first or state.iteration % _CHECK_EVERY:
            return False
        self.stopped = self._stops_improving(state) if self.kind == "held_out" else self._stops_changing(state)
        return self.stopped

    def _stops_improving(self, state: State) -> bool:
        scores = state.labeled_scores()
        if scores is None:
            scores = state.model().decision(self._problem.labeled, self._backend)
        loss = self._held_out.brier(scores)
        self._count = 0 if loss < self._best else self._count + 1
        self._best = min(loss, self._best)
        return self._count >= _PATIENCE

    def _stops_changing(self, state: State) -> bool:
        assert self._problem.unlabeled is not None
        model = state.model().columns(slice(0, self._problem.n_models))
        sample = self._problem.unlabeled.sample(self._problem.seed, _SAMPLE)
        codes = predicted_codes(model.decision(sample, self._backend))
        settled = len(self._codes) == len(codes) and np.mean(codes != self._codes) <= _MAX_CHANGE
        self._count = self._count + 1 if settled else 0
        self._codes = codes
        return self._count >= _PATIENCE - 1

    def to_checkpoint(self) -> dict[str, Any]:
        """What `restore` needs."""
        return {"codes": self._codes, "best": self._best, "count": self._count, "now": self.stopped}

    def restore(self, stored: dict[str, Any]) -> None:
        """Continues from a checkpoint; a ValueError if it is invalid."""
        codes, best, count, stopped = (stored[name] for name in ("codes", "best", "count", "now"))
        if codes.ndim != 1 or np.isnan(number(best)) or not is_integer(count, 0) or not isinstance(stopped, bool):
            raise ValueError("the checkpoint's record of early stopping is invalid")
        self._codes, self._best, self._count, self.stopped = codes, best, count, stopped

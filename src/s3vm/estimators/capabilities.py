"""Which methods an estimator has, depending on its settings."""

from typing import Any

from s3vm.solvers import solver

__all__ = ["can_continue", "can_forget", "has_probability"]


def can_continue(estimator: Any) -> bool:
    if not (solver(estimator.solver).keeps_all_rows or solver(estimator.solver).follows_stream):
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

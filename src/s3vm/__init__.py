"""Kernel semi-supervised support vector machines at any scale."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from s3vm.distributed import DaskS3VMClassifier, WorkerLostError
    from s3vm.estimators import S3VMClassifier
    from s3vm.files import ModelFormatError, load, save
    from s3vm.kernels import RBF, Laplacian, Matern, Polynomial
    from s3vm.losses import Exponential, Hat, Hinge, Ramp, SmoothHinge, SquaredHat, SquaredHinge
    from s3vm.model_selection import HalvingSearchCV, LabeledKFold
    from s3vm.solvers import BGS, CCCP, FRS, TSG, Constant, Decaying, Incremental, Light, Newton, Theorem
    from s3vm.sources import ArraySource
    from s3vm.sources.files import FileSource
    from s3vm.sources.streams import BatchSource
    from s3vm.training import Interrupted, NotKept, OutOfRows, OutOfTime
    from s3vm.tuning import S3VMClassifierCV

__version__ = "0.1.0"

__all__ = [
    "BGS",
    "CCCP",
    "FRS",
    "RBF",
    "TSG",
    "ArraySource",
    "BatchSource",
    "Constant",
    "DaskS3VMClassifier",
    "Decaying",
    "Exponential",
    "FileSource",
    "HalvingSearchCV",
    "Hat",
    "Hinge",
    "Incremental",
    "Interrupted",
    "LabeledKFold",
    "Laplacian",
    "Light",
    "Matern",
    "ModelFormatError",
    "Newton",
    "NotKept",
    "OutOfRows",
    "OutOfTime",
    "Polynomial",
    "Ramp",
    "S3VMClassifier",
    "S3VMClassifierCV",
    "SmoothHinge",
    "SquaredHat",
    "SquaredHinge",
    "Theorem",
    "WorkerLostError",
    "load",
    "save",
]

# A name is imported when it is first used: scikit-learn takes a second to load, and not every use needs it.
_HOMES = {
    "distributed": ["DaskS3VMClassifier", "WorkerLostError"],
    "estimators": ["S3VMClassifier"],
    "files": ["ModelFormatError", "load", "save"],
    "kernels": ["RBF", "Laplacian", "Matern", "Polynomial"],
    "losses": ["Exponential", "Hat", "Hinge", "Ramp", "SmoothHinge", "SquaredHat", "SquaredHinge"],
    "model_selection": ["HalvingSearchCV", "LabeledKFold"],
    "solvers": ["BGS", "CCCP", "FRS", "TSG", "Constant", "Decaying", "Incremental", "Light", "Newton", "Theorem"],
    "sources": ["ArraySource"],
    "sources.files": ["FileSource"],
    "sources.streams": ["BatchSource"],
    "training": ["Interrupted", "NotKept", "OutOfRows", "OutOfTime"],
    "tuning": ["S3VMClassifierCV"],
}
_ROOMS = ("export", "plot", "report", "tables")


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"s3vm.{name}")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"s3vm.{home}"), name)
    raise AttributeError(f"module 's3vm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_ROOMS, "__version__"]

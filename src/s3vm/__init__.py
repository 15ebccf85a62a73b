"""Kernel semi-supervised support vector machines at any scale."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from s3vm._utils.container import ModelFormatError
    from s3vm.estimators.classifier import S3VMClassifier
    from s3vm.estimators.deprecated import DaskS3VMClassifier
    from s3vm.estimators.encoder import TableEncoder
    from s3vm.estimators.folds import LabeledKFold
    from s3vm.estimators.scoring import scorer
    from s3vm.estimators.tuning import S3VMClassifierCV
    from s3vm.inspect.fit_report import write_report
    from s3vm.kernels import RBF, Laplacian, Matern, Polynomial
    from s3vm.losses import Exponential, Hat, Hinge, Ramp, SmoothHinge, SquaredHat, SquaredHinge
    from s3vm.persistence.compression import compress
    from s3vm.persistence.model_file import SKOPS_TRUSTED, load, save
    from s3vm.persistence.onnx import register_onnx, to_onnx
    from s3vm.solvers import BGS, CCCP, FRS, TSG, Batch, Incremental, Light, Newton
    from s3vm.solvers.steps import Constant, Decaying, Theorem
    from s3vm.sources.arrays import ArraySource
    from s3vm.sources.batches import BatchSource
    from s3vm.sources.dask import WorkerLostError
    from s3vm.sources.files import FileSource
    from s3vm.training.checkpoints import CheckpointNotWritten
    from s3vm.training.loop import Interrupted, OutOfRows, OutOfTime

__version__ = "0.2.0"

__all__ = ["DaskS3VMClassifier", "LabeledKFold", "S3VMClassifier", "S3VMClassifierCV", "TableEncoder", "scorer"]
__all__ += ["RBF", "Laplacian", "Matern", "Polynomial"]
__all__ += ["Exponential", "Hat", "Hinge", "Ramp", "SmoothHinge", "SquaredHat", "SquaredHinge"]
__all__ += ["BGS", "CCCP", "FRS", "TSG", "Batch", "Incremental", "Light", "Newton"]
__all__ += ["Constant", "Decaying", "Theorem"]
__all__ += ["ArraySource", "BatchSource", "FileSource", "WorkerLostError"]
__all__ += ["CheckpointNotWritten", "Interrupted", "OutOfRows", "OutOfTime"]
__all__ += ["SKOPS_TRUSTED", "ModelFormatError", "compress", "load", "register_onnx", "save", "to_onnx", "write_report"]

# A name is imported when it is first used: scikit-learn takes a second to load, and not every use needs it.
_HOMES = {
    "_utils.container": ["ModelFormatError"],
    "estimators.classifier": ["S3VMClassifier"],
    "estimators.deprecated": ["DaskS3VMClassifier"],
    "estimators.encoder": ["TableEncoder"],
    "estimators.folds": ["LabeledKFold"],
    "estimators.scoring": ["scorer"],
    "estimators.tuning": ["S3VMClassifierCV"],
    "inspect.fit_report": ["write_report"],
    "kernels": ["RBF", "Laplacian", "Matern", "Polynomial"],
    "losses": ["Exponential", "Hat", "Hinge", "Ramp", "SmoothHinge", "SquaredHat", "SquaredHinge"],
    "persistence.compression": ["compress"],
    "persistence.model_file": ["SKOPS_TRUSTED", "load", "save"],
    "persistence.onnx": ["register_onnx", "to_onnx"],
    "solvers": ["BGS", "CCCP", "FRS", "TSG", "Batch", "Incremental", "Light", "Newton"],
    "solvers.steps": ["Constant", "Decaying", "Theorem"],
    "sources.arrays": ["ArraySource"],
    "sources.batches": ["BatchSource"],
    "sources.dask": ["WorkerLostError"],
    "sources.files": ["FileSource"],
    "training.checkpoints": ["CheckpointNotWritten"],
    "training.loop": ["Interrupted", "OutOfRows", "OutOfTime"],
}


def __getattr__(name: str) -> Any:
    if name == "plot":
        return import_module("s3vm.inspect.plot")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"s3vm.{home}"), name)
    raise AttributeError(f"module 's3vm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "plot", "__version__"]

"""Kernel semi-supervised support vector machines at any scale."""

from s3vm.estimators import S3VMClassifier
from s3vm.kernels import RBF, Laplacian, Matern, Polynomial
from s3vm.losses import Exponential, Hat, Hinge, Ramp, SquaredHat, SquaredHinge
from s3vm.model_selection import LabeledKFold
from s3vm.solvers import TSG, Constant, Decaying, Theorem

__version__ = "0.1.0"

__all__ = [
    "RBF",
    "TSG",
    "Constant",
    "Decaying",
    "Exponential",
    "Hat",
    "Hinge",
    "LabeledKFold",
    "Laplacian",
    "Matern",
    "Polynomial",
    "Ramp",
    "S3VMClassifier",
    "SquaredHat",
    "SquaredHinge",
    "Theorem",
]

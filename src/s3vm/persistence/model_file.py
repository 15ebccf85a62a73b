"""Model files: one file per model, safe to load from strangers, and loaded as the same model.

The header (see `s3vm._utils.container`) describes the model; the tensors hold the arrays. No code is loaded: whatever
the header names is built from a fixed list of parts (`s3vm._utils.codec`), each of which checks its settings.

Random features are not in the file; they are drawn again from the seed. Instead the file has *probes*: a few of their
frequencies and a few values of the kernel, which must come out the same when the file is loaded.
"""

import json
import platform
import re
from copy import copy
from dataclasses import fields, replace
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from s3vm import __version__, philox
from s3vm._utils import codec, container
from s3vm._utils.container import Contents, ModelFormatError, short
from s3vm._utils.input_checks import csr, precision
from s3vm._utils.registry import STATE_PARTS
from s3vm._utils.typing import Array
from s3vm.backends.cpu.backend import prediction_bytes
from s3vm.estimators.classifier import S3VMClassifier
from s3vm.estimators.encoder import TableEncoder
from s3vm.estimators.folds import LabeledKFold
from s3vm.estimators.prediction import Temperature
from s3vm.estimators.preparation import TrainingRows
from s3vm.estimators.resuming import ResumePoint
from s3vm.estimators.row_attributes import HeldOut
from s3vm.estimators.safety import Safety
from s3vm.estimators.scoring import LabeledScorer
from s3vm.kernels import KERNELS, Kernel
from s3vm.losses import LABELED_LOSSES, UNLABELED_LOSSES
from s3vm.model import Model
from s3vm.persistence.compression import Compression
from s3vm.persistence.encoder_file import encoder_from_file, encoder_to_file
from s3vm.persistence.pipeline import CLASSIFIERS, FittedParts, split_pipeline
from s3vm.philox import Purpose
from s3vm.solvers import SOLVERS, TSG
from s3vm.solvers.incremental.active_set_path import Point
from s3vm.solvers.incremental.incremental import _ResumeState
from s3vm.solvers.incremental.kernel_cache import Carryover
from s3vm.solvers.steps import STEPS
from s3vm.sources.encoding import ColumnPlan
from s3vm.sources.reservoir import Reservoir, ReservoirSource

_FLOATS = ("float32", "float64")
_CLASSES = {"b": (bool,), "i": (int,), "u": (int,), "f": (int, float), "U": (str,)}
_MOST_CLASSES, _MOST_NAME = 16 << 20, 1000  # bytes of their names, and characters of one
_EXECUTION = ("n_jobs", "backend", "cache_bytes")  # settings of the machine that predicts, which no file has
_MOST_DIMS = 1 << 31
_MOST_DEGREE = 1000
_MOST_BETA = 1e6  # scikit-learn searches for a temperature up to exp(10)
_MOST_PREDICTION = 4 << 30  # bytes that random features need for any number of rows
_PARTS: dict[str, type] = {
    kind.__name__: kind
    for kinds in (KERNELS, LABELED_LOSSES, UNLABELED_LOSSES, SOLVERS, STEPS)
    for kind in kinds.values()
} | {"Safety": Safety, "Compression": Compression}

SKOPS_TRUSTED = sorted(
    f"{kind.__module__}.{kind.__qualname__}"
    for kind in {*CLASSIFIERS.values(), *_PARTS.values(), *STATE_PARTS.values()}
    | {HeldOut, Model, ResumePoint, Temperature, TrainingRows, Reservoir, ReservoirSource, Carryover, Point}
    | {_ResumeState, TableEncoder, ColumnPlan, LabeledKFold, LabeledScorer}
)
"""The types of fitted classifiers, encoders and searches, for ``skops.io.load(file, trusted=SKOPS_TRUSTED)``."""


def save(estimator: Any, path: Any) -> None:
    """Writes a fitted classifier to one file, which `s3vm.load` reads.

    Parameters
    ----------
    estimator : S3VMClassifier, S3VMClassifierCV, a Pipeline of TableEncoder or StandardScaler and one of them, or a
        search over these
    path : str or path
        By convention it ends in ``.s3vm``. An existing file is replaced once the new one is complete and on the disk.
    """
    header, tensors = _to_header(split_pipeline(estimator))
    _from_header(json.loads(json.dumps(header)), tensors)  # a model that cannot be loaded is not saved
    container.write(path, header, tensors)


def load(path: Any) -> S3VMClassifier | Pipeline:
    """The classifier or pipeline that `s3vm.save` wrote; its predictions are the same to the last bit.

    It is safe to load a file from a stranger: nothing in it is run. A file holds neither the training rows, which
    `transduction_` needs, nor the state of the solver, which ``warm_start`` needs, nor `n_jobs`, `backend` and
    `cache_bytes`, which are those of a new classifier.

    Raises
    ------
    ModelFormatError
        If the file is not a model file, is damaged, or needs a newer s3vm; the message says which.
    """
    header, tensors = container.read(path)
    if "checkpoint" in header:
        raise ModelFormatError(f"{path} is a checkpoint, not a model: give it to fit(checkpoint=..., resume=True)")
    try:
        return _from_header(header, tensors).to_pipeline()
    except ModelFormatError as problem:
        raise ModelFormatError(f"{path}: {problem}") from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as problem:
        raise ModelFormatError(f"{path}: its content is not a valid model ({short(str(problem))})") from problem


def _migrate(name: str, settings: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The current name and settings of a part written by an older version.

    The TSG of 0.1 had switches that made it Algorithm 1 as printed: they are dropped, since they do not change what a
    trained model predicts. Names had British spelling.
    """
    settings = {_american(setting): value for setting, value in settings.items()}
    if name == "TSG" and {"anchor", "exact_labeled", "reuse"} <= settings.keys():
        known = {field.name for field in fields(TSG)}
        settings = {setting: value for setting, value in settings.items() if setting in known}
    return name, settings


def _american(name: str) -> str:
    return name.replace("labelled", "labeled")


_encode = partial(codec.encode, parts=_PARTS)
_decode = partial(codec.decode, parts=_PARTS, migrate=_migrate)


def _decode_as(kind: type, value: Any) -> Any:
    part = _decode(value)
    if not isinstance(part, kind):
        raise ModelFormatError(f"it has {short(part)} in place of a {kind.__name__}")
    return part


def _to_header(parts: FittedParts) -> tuple[dict[str, Any], dict[str, Array]]:
    clf, scaler = copy(parts.classifier), parts.scaler  # a copy, since another thread may be in partial_fit
    model = clf.model_
    settings = {name: value for name, value in clf.get_params(deep=False).items() if name not in _EXECUTION}
    if isinstance(settings["random_state"], np.random.RandomState):
        settings["random_state"] = None  # the file has the seed that was drawn from it
    if callable(settings["verbose"]):
        settings["verbose"] = 0  # a progress callback is not part of the model
    settings["dtype"] = precision(settings["dtype"]).name
    history = clf.history_
    tensors = {
        "coefficients": model.coefficients,
        "intercept": model.intercept,
        "history": np.array(list(history.values()), np.float64) if history else np.empty((0, 0)),
        "probes": _probes(model.kernel, model.seed, len(model.coefficients), model.n_dims),
        **_name_tensors("feature_names", clf),
    }
    if model.projection is not None:
        tensors["column_weights" if model.projection.ndim == 1 else "directions"] = model.projection
    if model.weights is not None:
        tensors["weights"] = model.weights
        if sparse.issparse(model.centers):
            tensors |= {f"centres.{part}": getattr(model.centers, part) for part in ("data", "indices", "indptr")}
        else:
            tensors["centres"] = model.centers
    if getattr(clf, "cv_errors_", None) is not None:
        tensors |= {"cv_errors": clf.cv_errors_, "cv_gammas": clf.cv_gammas_}
    if getattr(clf, "cv_briers_", None) is not None:
        tensors["cv_briers"] = np.array(list(clf.cv_briers_.items()))
    if scaler is not None:
        tensors |= _name_tensors("scaler.feature_names", scaler)
        statistics = {name: getattr(scaler, f"{name}_") for name in ("mean", "var", "scale")}
        tensors |= {f"scaler.{name}": values for name, values in statistics.items() if values is not None}
    encoder, more = (None, {}) if parts.encoder is None else encoder_to_file(parts.encoder)
    header = {
        "estimator": type(clf).__name__,
        "settings": {name: _encode(value) for name, value in settings.items()},
        "kernel": _encode(model.kernel),
        "seed": model.seed,
        "random": philox.NAME,
        "n_features_in": model.n_features_in,
        "zero_based": clf.zero_based_,
        "classes": {"dtype": clf.classes_.dtype.newbyteorder("<").str, "values": _encode(clf.classes_)},
        "C": clf.C_,
        "n_iter": clf.n_iter_,
        "history": list(history),
        "safety": _encode(clf.safety_),
        "temperature": clf._calibrator.beta if hasattr(clf, "_calibrator") else None,
        "threshold": clf.threshold_,
        "compression": _encode(getattr(clf, "compression_", None)),
        "steps": list(parts.step_names) if parts.transformer is not None else [],
        "scaler": None if scaler is None else {**scaler.get_params(), "n_seen": _encode(scaler.n_samples_seen_)},
        "encoder": encoder,
        "versions": {"s3vm": __version__, "python": platform.python_version()}
        | {name: metadata.version(name) for name in ("numpy", "scipy", "scikit-learn", "numba", "safetensors")},
    }
    return header, tensors | more


def _from_header(header: dict[str, Any], tensors: dict[str, Array]) -> FittedParts:
    contents = Contents(header, tensors)
    name = contents.entry("estimator", str)
    if name not in CLASSIFIERS:
        raise ModelFormatError(f"it holds a {short(name)}, which s3vm {__version__} does not know")
    settings = contents.entry("settings", dict)
    clf = CLASSIFIERS[name](**{key: _decode(value) for key, value in settings.items() if key not in _EXECUTION})
    if clf.dtype not in _FLOATS:
        raise ModelFormatError(f"its precision is {short(clf.dtype)}, not one of {', '.join(_FLOATS)}")
    clf.classes_ = _classes(contents.entry("classes", dict))
    clf.model_ = _model(contents, 1 if len(clf.classes_) == 2 else len(clf.classes_))
    clf.kernel_, clf.n_features_in_ = clf.model_.kernel, clf.model_.n_features_in
    clf.column_weights_, clf.zero_based_ = clf.model_.column_weights, header.get("zero_based")
    if clf.zero_based_ not in (None, True, False):
        raise ModelFormatError(f"it counts columns from {short(clf.zero_based_)}: true, false or null is valid")
    vars(clf).update(_feature_names(contents, "feature_names", clf.n_features_in_))
    clf.C_, clf.n_iter_ = contents.entry("C", float, int), contents.entry("n_iter", int)
    clf.safety_ = None if header["safety"] is None else _decode_as(Safety, header["safety"])
    names = [_american(name) for name in map(str, contents.entry("history", list))]
    clf.history_ = dict(zip(names, contents.tensor("history", len(names), None, finite=False), strict=True))
    beta = contents.entry("temperature", float, type(None))
    clf.threshold_ = contents.entry("threshold", float) if "threshold" in header else 0.0
    if not np.isfinite(clf.threshold_):
        raise ModelFormatError(f"its threshold is {clf.threshold_}")
    if beta is not None:
        clf._calibrator = Temperature(beta, clf.threshold_)
        if not 0 < beta < _MOST_BETA:
            raise ModelFormatError(f"its temperature is {beta}, which calibration cannot give")
    if header["compression"] is not None:
        clf.compression_ = _decode_as(Compression, header["compression"])
    if name == "S3VMClassifierCV":
        clf.cv_errors_ = contents.optional("cv_errors", None, None)
        clf.cv_gammas_ = contents.optional("cv_gammas", None)
        briers = contents.optional("cv_briers", None, 2)
        clf.cv_briers_ = None if briers is None else dict(briers.tolist())
    transformer: Any = None
    if header.get("encoder") is not None:  # files of 0.1 have none
        transformer = encoder_from_file(contents, clf.n_features_in_)
    elif header["scaler"] is not None:
        transformer = _scaler(contents, clf.n_features_in_)
    steps = tuple(contents.entry("steps", list))
    if len(set(steps)) != (0 if transformer is None else 2) or not all(isinstance(step, str) for step in steps):
        raise ModelFormatError(f"its steps are {short(steps)}, which s3vm does not write")
    contents.finish()
    return FittedParts(clf, transformer, steps)


def _model(contents: Contents, n_columns: int) -> Model:
    """The learnt function, after checking that its random features are those of the saved model."""
    kernel = _decode_as(Kernel, contents.entry("kernel", dict))
    seed, n_features_in = contents.entry("seed", int), contents.entry("n_features_in", int)
    if isinstance(kernel.gamma, str) or not 0 <= seed < 1 << 64 or not 0 < n_features_in < _MOST_DIMS:
        raise ModelFormatError("its kernel width, its seed or its number of features is invalid")
    projection = _projection(contents, n_features_in)
    n_dims = n_features_in if projection is None else projection.shape[-1]
    coefficients = contents.tensor("coefficients", None, None, n_columns, dtypes=_FLOATS)
    n_blocks, block_size, _ = coefficients.shape
    needed = prediction_bytes(kernel, block_size, n_dims) if n_blocks else 0
    if kernel.rows_per_feature > _MOST_DEGREE or needed > _MOST_PREDICTION:
        raise ModelFormatError(f"its random features need {needed / 2**30:.3g} GiB to predict, which is too much")
    if block_size == 0 or (n_blocks and block_size != kernel.whole(block_size)):
        raise ModelFormatError(f"it has blocks of {block_size} random features, which its kernel cannot have")
    probes = _probes(kernel, seed, n_blocks, n_dims)
    stored = contents.tensor("probes", len(probes), finite=False)
    if contents.entry("random", str) != philox.NAME or not np.allclose(probes, stored, rtol=1e-6, atol=1e-9):
        raise ModelFormatError(
            f"s3vm {__version__} does not reproduce the random features or the kernel of the version that wrote it"
        )
    intercept = contents.tensor("intercept", n_columns, dtypes=_FLOATS)
    return Model(kernel, seed, n_dims, coefficients, intercept, *_expansion(contents, n_dims, n_columns), projection)


def _projection(contents: Contents, n_features_in: int) -> Array | None:
    """The factors of the columns or the directions in front of the kernel, if there are any."""
    weights = contents.optional("column_weights", n_features_in, dtypes=_FLOATS)
    if weights is not None:
        return weights
    directions = contents.optional("directions", n_features_in, None, dtypes=_FLOATS)
    if directions is not None and not 0 < directions.shape[1] <= n_features_in:
        raise ModelFormatError(f"it has {directions.shape[1]} directions of {n_features_in} columns")
    return directions


def _expansion(contents: Contents, n_dims: int, n_columns: int) -> tuple[Any, Array | None]:
    weights = contents.optional("weights", None, n_columns, dtypes=_FLOATS)
    if weights is None:
        return None, None
    data = contents.optional("centres.data", None, dtypes=_FLOATS)
    if data is None:
        return contents.tensor("centres", len(weights), n_dims, dtypes=_FLOATS), weights
    indices = contents.tensor("centres.indices", len(data), dtypes=("int32", "int64"))
    indptr = contents.tensor("centres.indptr", len(weights) + 1, dtypes=("int32", "int64"))
    return csr(data, indices, indptr, (len(weights), n_dims)), weights


def _scaler(contents: Contents, n_dims: int) -> StandardScaler:
    settings = dict(contents.entry("scaler", dict))
    n_seen = _decode(settings.pop("n_seen"))
    scaler = StandardScaler(**settings)
    scaler.n_samples_seen_ = np.array(n_seen) if isinstance(n_seen, tuple) else n_seen
    for name in ("mean", "var", "scale"):
        setattr(scaler, f"{name}_", contents.optional(f"scaler.{name}", n_dims))
    if (scaler.with_mean and scaler.mean_ is None) or (scaler.with_std and scaler.scale_ is None):
        raise ModelFormatError("its scaler has no mean or no scale")
    if scaler.scale_ is not None and not np.all(scaler.scale_ > 0):
        raise ModelFormatError("its scaler has a scale that is not positive")
    scaler.n_features_in_ = n_dims
    vars(scaler).update(_feature_names(contents, "scaler.feature_names", n_dims))
    return scaler


def _classes(header: dict[str, Any]) -> Array:
    name, values = header["dtype"], header["values"]
    if not re.fullmatch(r"[<|](b1|[iu][1248]|f[248]|U\d{1,8})", name) or not isinstance(values, list):
        raise ModelFormatError(f"its classes are {short(header)}, which is invalid")
    dtype = np.dtype(name)
    longest = max((len(value) for value in values if isinstance(value, str)), default=0)
    if dtype.kind == "U" and dtype.itemsize > 4 * _MOST_NAME:  # every prediction would take as much
        dtype = np.dtype(f"U{longest or 1}")
    if longest > min(_MOST_NAME, dtype.itemsize // 4) or dtype.itemsize * len(values) > _MOST_CLASSES:
        raise ModelFormatError(f"the names of its classes are too long: at most {_MOST_NAME} characters are allowed")
    with np.errstate(over="ignore"):  # checked below
        classes = np.array(values, dtype)
    if dtype.kind == "f" and not np.isfinite(classes).all():
        raise ModelFormatError(f"its classes are {short(values)}, but must be finite numbers of type {name}")
    same_kind = all(type(value) in _CLASSES[dtype.kind] for value in values)
    if not same_kind or not len(np.unique(classes)) == len(values) > 1:
        raise ModelFormatError("its classes must be at least two different labels of one kind")
    return classes.astype(dtype.newbyteorder("="))


def _probes(kernel: Kernel, seed: int, n_blocks: int, n_dims: int) -> Array:
    """A few frequencies of the first and the last block, and the values of the kernel at a few fixed rows."""
    unit, n_dims = replace(kernel, gamma=1.0), min(n_dims, 8)
    blocks = [unit.frequencies(seed, block, kernel.whole(4), n_dims) for block in (0, max(n_blocks - 1, 0))]
    rows = philox.uniforms(seed, Purpose.REFERENCE, 0, 4, n_dims)
    values = [*(part for block in blocks for part in block), unit.gram(rows[:2], rows[2:])]
    return np.concatenate([value.ravel() for value in values])


def _name_tensors(name: str, owner: Any) -> dict[str, Array]:
    """The concatenated bytes of the column names, and where each ends."""
    if not hasattr(owner, "feature_names_in_"):
        return {}
    text = [str(column).encode("utf-8", "surrogatepass") for column in owner.feature_names_in_]
    return {name: np.frombuffer(b"".join(text), np.uint8), f"{name}.ends": np.cumsum([len(part) for part in text])}


def _feature_names(contents: Contents, name: str, count: int) -> dict[str, Array]:
    """The attribute ``feature_names_in_`` that `_name_tensors` wrote, if there is one."""
    stored = contents.optional(name, None, dtypes=("uint8",))
    if stored is None:
        return {}
    text = stored.tobytes()
    ends = contents.tensor(f"{name}.ends", count, dtypes=("int64",))
    starts = np.concatenate([[0], ends[:-1]])
    if np.any(starts > ends) or ends[-1] != len(text):
        raise ModelFormatError(f"tensor {name!r} does not hold {count} names")
    names = [text[start:end].decode("utf-8", "surrogatepass") for start, end in zip(starts, ends, strict=True)]
    return {"feature_names_in_": np.array(names, dtype=object)}

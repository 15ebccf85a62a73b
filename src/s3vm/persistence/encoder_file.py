"""A `TableEncoder` in a model file: its settings in the header, its plan and its scale as tensors."""

import json
from typing import Any

import numpy as np

from s3vm._utils import codec
from s3vm._utils.container import Contents, ModelFormatError
from s3vm._utils.settings import number
from s3vm._utils.typing import Array
from s3vm.estimators.encoder import SCALES, TableEncoder
from s3vm.sources.encoding import ColumnPlan

_PLANS: dict[str, type] = {"ColumnPlan": ColumnPlan}


def encoder_to_file(encoder: TableEncoder) -> tuple[dict[str, Any], dict[str, Array]]:
    """The entry of the header, and the tensors."""
    settings = {name: codec.encode(value, {}) for name, value in encoder.get_params().items()}
    header = {"settings": settings, "scale": encoder.scale_, "target": encoder.target_}
    plan = json.dumps([codec.encode(column, _PLANS) for column in encoder.plan_]).encode("utf-8", "surrogatepass")
    return header | {"briers": encoder.briers_}, {
        "encoder.plan": np.frombuffer(plan, np.uint8),
        "encoder.factors": encoder.factors_,
        "encoder.center": encoder.center_,
    }


def encoder_from_file(contents: Contents, n_features: int) -> TableEncoder:
    """The encoder, from a file that is not trusted."""
    header = contents.entry("encoder", dict)
    encoder = TableEncoder(**{name: codec.decode(value, {}) for name, value in header["settings"].items()})
    encoder.scale_, encoder.briers_, encoder.target_ = header["scale"], dict(header["briers"]), header["target"]
    text = contents.tensor("encoder.plan", None, dtypes=("uint8",)).tobytes().decode("utf-8", "surrogatepass")
    encoder.plan_ = tuple(codec.decode(column, _PLANS) for column in json.loads(text))
    encoder.factors_ = contents.tensor("encoder.factors", n_features)
    encoder.center_ = contents.tensor("encoder.center", n_features)
    valid = encoder.scale_ in SCALES and isinstance(encoder.target_, str | None) and set(encoder.briers_) <= set(SCALES)
    if not valid or not np.isfinite([number(brier) for brier in encoder.briers_.values()]).all():
        raise ModelFormatError("its encoder has an invalid scale or target")
    if not all(isinstance(column, ColumnPlan) for column in encoder.plan_):
        raise ModelFormatError("its plan of the columns is invalid")
    if encoder.plan_ and len(encoder.get_feature_names_out()) != n_features:
        raise ModelFormatError(f"its columns do not make {n_features} features")
    return encoder.described()

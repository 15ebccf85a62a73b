"""A `TableEncoder` as the start of an ONNX graph: an input per column, by its name."""

from typing import Any

import numpy as np

from s3vm.estimators.encoder import REACH, TableEncoder
from s3vm.sources.encoding import ColumnPlan
from s3vm.sources.values import MISSING_TEXT


def encoded_inputs(graph: Any, encoder: TableEncoder) -> str:
    """The node of the encoded rows, in float32 as `TableEncoder.transform` computes them.

    Numbers and booleans are float32 inputs of shape (rows, 1), NaN if missing; categories are text, empty if missing.
    """
    if encoder.plan_:
        refused = [plan.name for plan in encoder.plan_ if plan.kind in ("date", "text")]
        if refused:
            raise ValueError(
                f"ONNX cannot encode dates and free text, and column {refused[0]!r} is one: train without such columns "
                f"(TableEncoder(drop={refused}), --drop)"
            )
        x = graph.add("Concat", *[part for plan in encoder.plan_ for part in _features(graph, plan)], axis=1)
    else:
        x = graph.double(graph.input("X", np.float32, encoder.n_features_in_))
        x = graph.single(graph.add("Sub", x, encoder.center_))
    x = graph.add("Mul", x, graph.stored(encoder.factors_.astype(np.float32)))
    if encoder.scale_ != "each":
        return x
    part = graph.add("Mul", x, graph.stored(np.float32(1 / REACH)))
    root = graph.add("Sqrt", graph.add("Add", graph.add("Mul", part, part), graph.stored(np.float32(1))))
    return graph.add("Where", graph.stored(encoder.measured_), graph.add("Div", x, root), x)


def _features(graph: Any, plan: ColumnPlan) -> list[str]:
    """The nodes of the features of a column."""
    if plan.kind == "left out":
        return []
    if plan.kind == "category":
        shares = plan.n_own < len(plan.values)
        codes = {value: min(at, plan.n_own) for at, value in enumerate(plan.values)} | dict.fromkeys(MISSING_TEXT, -1)
        at = graph.add(
            "LabelEncoder",
            graph.input(plan.name, str, 1),
            domain="ai.onnx.ml",
            keys_strings=list(codes),
            values_int64s=list(codes.values()),
            default_int64=plan.n_own if shares else -2,
        )
        places = [*range(plan.n_own + shares), *([-1] if plan.flag else [])]
        return [graph.single(graph.add("Equal", at, np.array([places], dtype=np.int64)))]
    x = graph.double(graph.input(plan.name, np.float32, 1))
    is_missing = graph.add("IsNaN", x)
    x = graph.add("Where", is_missing, np.float64(plan.center), x)
    x = graph.add("Sub", x, np.float64(plan.center)) if plan.kind == "number" else x
    return [graph.single(x), *([graph.single(is_missing)] if plan.flag else [])]

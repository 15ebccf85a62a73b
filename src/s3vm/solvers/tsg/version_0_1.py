"""The solver in a model file of version 0.1, where one class with switches was both algorithms."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from s3vm.solvers.tsg.printed import PrintedTSG
from s3vm.solvers.tsg.tsg import TSG

__all__ = ["is_of_0_1", "solver_of_0_1"]


def is_of_0_1(name: str, settings: Mapping[str, Any]) -> bool:
    """Whether these are settings that only version 0.1 wrote."""
    return name == "TSG" and "anchor" in settings


def solver_of_0_1(settings: Mapping[str, Any]) -> TSG | PrintedTSG:
    """The solver with these settings; what had only some of the switches on becomes `TSG`."""
    kind: type[TSG | PrintedTSG] = TSG
    if not (settings["anchor"] or settings["exact_labelled"] or settings["reuse"]):
        kind = PrintedTSG
    known = {field.name: settings[field.name] for field in fields(kind) if field.name in settings}
    if kind is PrintedTSG and known["max_iter"] == "auto":
        known["max_iter"] = 128
    return kind(**known)

"""`s3vm info`."""

from pathlib import Path

import s3vm
from s3vm._utils import container
from s3vm.cli.console import Screen, printable
from s3vm.cli.measures import held_out_error, model_facts, verdict
from s3vm.cli.model import load_model
from s3vm.cli.summary import model_summary

__all__ = ["run_info"]


def run_info(screen: Screen, model: str) -> None:
    loaded = load_model(model)
    clf = loaded.classifier
    header, _ = container.read(model)
    result = {
        "command": "info",
        "s3vm": s3vm.__version__,
        "file": model,
        "bytes": Path(model).stat().st_size,
        "model": model_facts(clf),
        "names": loaded.feature_names,
        "scaled": loaded.parts.scaler is not None,
        "seed": clf.model_.seed,
        "settings": header["settings"],
        "held_out": held_out_error(clf),
        "unlabelled": verdict(clf),
        "compression": str(clf.compression_) if hasattr(clf, "compression_") else None,
        "versions": header.get("versions"),
    }
    screen.finish(result, *model_summary(printable(result)))

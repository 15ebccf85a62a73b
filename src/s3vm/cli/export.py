"""`s3vm export`."""

from pathlib import Path
from typing import Any

from rich.markup import escape

import s3vm
from s3vm.cli.console import Screen, file_size, grid, printable
from s3vm.cli.inputs import check_writable
from s3vm.cli.model import load_model
from s3vm.persistence.pipeline import split_pipeline
from s3vm.sources import readers

__all__ = ["run_export"]


def run_export(screen: Screen, model: str, output: str, compress: str | None, tolerance: float) -> None:
    if not output.endswith((".onnx", ".s3vm")) or (output.endswith(".s3vm") and compress is None):
        raise ValueError(f"{output}: give a file that ends in .onnx, or in .s3vm with --compress")
    loaded = load_model(model)
    check_writable(output, inputs=[model, compress])
    estimator = s3vm.load(model)
    result: dict[str, Any] = {"command": "export", "s3vm": s3vm.__version__, "model": model}
    if compress is not None:
        with screen.progress(f"reading {Path(compress).name}") as report_progress:
            rows = readers.read(compress, features=loaded.features, progress=report_progress).rows
        with screen.progress("searching for a smaller model"), screen.collected_warnings():
            estimator = s3vm.compress(loaded.parts.to_pipeline(), rows, tolerance=tolerance)
        result["compression"] = str(split_pipeline(estimator).classifier.compression_)
    s3vm.to_onnx(estimator, output) if output.endswith(".onnx") else s3vm.save(estimator, output)
    result |= {"output": output, "bytes": Path(output).stat().st_size}
    facts = {
        "Written": f"{escape(printable(output))}  [dim]{file_size(result['bytes'])}[/dim]",
        "Smaller": result.get("compression"),
    }
    screen.finish(result, grid(facts))

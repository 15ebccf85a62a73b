"""What the commands do: run an experiment, report its results, list the sets."""

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from sklearn import datasets as toys

from experiments import datasets, runner
from experiments.config import read
from experiments.runner import Progress
from s3vm._utils.optional import optional
from s3vm._utils.typing import Array
from s3vm.cli.console import Screen, grid, seconds
from s3vm.cli.inputs import check_writable
from s3vm.cli.summary import table_of
from s3vm.inspect.tables import percent

__all__ = ["bench", "list_datasets", "page", "report"]

_TOYS = ("iris", "wine", "breast_cancer", "digits")


def bench(screen: Screen, config: str, output: str | None, processes: int | None, live: bool) -> None:
    """Runs an experiment, or resumes it where it was interrupted."""
    title = read(config).title
    target = f"{Path(config).stem}.parquet" if output is None else output
    check_writable(target, inputs=[config])
    progress, start = Progress(), time.perf_counter()
    try:
        if live and sys.stderr.isatty():
            with Live(get_renderable=lambda: _table(progress), console=Console(stderr=True), refresh_per_second=4):
                results = runner.run(config, target, progress, processes)
        else:
            results = runner.run(config, target, progress, processes)
    except KeyboardInterrupt:
        done = f"{progress.done:,} of {progress.total:,} runs are saved in {target}"
        raise KeyboardInterrupt(f"interrupted: {done}; the same command resumes") from None
    for problem in progress.missing.values():
        screen.warn(f"left out: {problem}")
    statuses = Counter(row["status"] for row in results.rows())
    result = {
        "config": config,
        "output": target,
        "runs": progress.total,
        "statuses": statuses,
        "seconds": (duration := time.perf_counter() - start),
    }
    counts = ", ".join(f"{count:,} {status}" for status, count in statuses.items())
    facts = {
        "Experiment": escape(title),
        "Runs": f"{progress.total:,}  [dim]{counts}[/dim]",
        "Took": seconds(duration),
        "Written": escape(target),
        "To see it": f"python -m experiments report {escape(target)}",
    }
    screen.finish("bench", result, lambda _: [grid(facts)])


def report(screen: Screen, results: str, output: str | None) -> None:
    """Makes a report of a file of results."""
    if not Path(results).is_file():
        raise FileNotFoundError(f"{results or repr('')}: no such file; python -m experiments bench makes one")
    target = str(Path(results).with_suffix(".html")) if output is None else output
    check_writable(target, inputs=[results])
    optional("matplotlib", "experiments")
    from experiments.report.experiment import of_experiment

    with screen.progress("drawing"):
        of_experiment(results, target)
    result = {"results": results, "output": target}
    screen.finish("report", result, lambda _: [grid({"Written": escape(target)})])


def page(screen: Screen, results: str, root: str) -> None:
    """Writes the page of the evaluation from its rows."""
    if not Path(results).is_file():
        raise FileNotFoundError(f"{results or repr('')}: no such file; python -m experiments bench makes one")
    optional("matplotlib", "experiments")
    from experiments.report import evaluation

    with screen.progress("drawing"):
        written = evaluation.write(results, root)
    names = list(map(str, written))
    screen.finish("page", {"written": names}, lambda _: [grid({"Written": "\n".join(names)})])


def list_datasets(screen: Screen) -> None:
    """Lists scikit-learn's sets, those to download, and those in the folder that S3VM_DATA names."""
    folder = datasets.folder()
    if folder and not folder.is_dir():
        screen.warn(f"S3VM_DATA names {folder}, which is not a folder")
    entries = [*_toy_entries(), *_download_entries(), *_file_entries(screen, folder)]
    columns: dict[str, list[str]] = {name: [] for name in ("name", "rows", "features", "classes", "where")}
    for entry in entries:
        fractions = [f"{label} {fraction:.0%}" for label, fraction in list(entry["classes"].items())[:3]]
        n_others = len(entry["classes"]) - len(fractions)
        classes = ", ".join(fractions) + (f" and {n_others} more" if n_others > 0 else "")
        cells = entry["name"], f"{entry['rows']:,}", f"{entry['features']:,}", classes, Path(entry["where"]).name
        for column, cell in zip(columns.values(), cells, strict=True):
            column.append(cell)
    hint = "" if folder else "  More: set S3VM_DATA to a folder of .npz files (arrays X and y)."
    screen.finish(
        "datasets",
        {"datasets": entries},
        lambda _: [table_of(columns), Text(hint, style="dim", end="\n" * bool(hint))],
    )


def _toy_entries() -> list[dict[str, Any]]:
    entries = []
    for name in _TOYS:
        X, y = getattr(toys, f"load_{name}")(return_X_y=True)
        entries.append({"name": name, "where": "scikit-learn"} | _size_and_classes(X.shape, y))
    return entries


def _download_entries() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "where": "download",
            "rows": known.n_rows,
            "features": known.n_dims,
            "classes": {"0": 1 - known.positive, "1": known.positive},
        }
        for name, known in datasets.KNOWN.items()
        if not datasets.local_files(name)
    ]


def _file_entries(screen: Screen, folder: Path | None) -> list[dict[str, Any]]:
    entries = []
    paths = sorted(folder.glob("*.npz")) if folder else []
    with screen.progress("looking", "files") as show:
        for number, path in enumerate(paths):
            show(number, len(paths), path.name)
            with np.load(path, allow_pickle=False) as stored:
                if "y" in stored and ("X" in stored or "shape" in stored):
                    shape = tuple(stored["shape"]) if "shape" in stored else stored["X"].shape
                    entry = {"name": path.stem, "where": str(path)} | _size_and_classes(shape, stored["y"])
                    entries.append(entry)
    return entries


def _size_and_classes(shape: tuple[int, ...], y: Array) -> dict[str, Any]:
    labels, counts = np.unique(y, return_counts=True)
    fractions = dict(zip(map(str, labels.tolist()), (counts / counts.sum()).tolist(), strict=True))
    return {"rows": int(shape[0]), "features": int(shape[1]), "classes": fractions}


def _table(progress: Progress) -> RenderableType:
    """How far every part is, and what is running."""
    counts = progress.parts.values()
    columns = {
        "part": list(progress.parts),
        "done": [f"{count.done:,}" for count in counts],
        "of": [f"{count.total:,}" for count in counts],
        "failed": [f"{count.failed:,}" if count.failed else "" for count in counts],
    }
    now = time.monotonic()
    running = Table.grid(padding=(0, 2))
    for task, start in list(progress.running.values()):
        rows = task.get("rows")
        size = "all rows" if rows == -1 else f"{rows:,} rows" if rows else ""
        cells = [task["part"], task["set"], task["solver"], size, f"trial {task['trial']}", seconds(now - start)]
        running.add_row("  ▸", *map(escape, cells))
    line = Table.grid(padding=(0, 1))
    line.add_row(
        " ",
        f"{progress.done:,} of {progress.total:,} runs",
        Text(f"{seconds(now - progress.started)} so far", style="dim"),
    )
    return Group(table_of(columns), running, Text(_last_run(progress), style="dim"), line)


def _last_run(progress: Progress) -> str:
    row: dict[str, Any] | None = progress.last
    if row is None:
        return ""
    outcome = percent(row["error"]) if row.get("error") is not None else row["status"]
    duration = f" in {seconds(row['seconds'])}" if row.get("seconds") is not None else ""
    return f"  last: {row['part']} {row['set']} {row['solver']}: {outcome}{duration}"

"""What the commands do: run an experiment, report its results, list the sets."""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from sklearn import datasets as toys

import s3vm
from experiments import datasets, runner
from experiments.config import read
from experiments.datasets import KNOWN
from experiments.runner import Standing
from s3vm._utils.optional import optional
from s3vm._utils.typing import Array
from s3vm.cli.console import Screen, grid, percent, seconds
from s3vm.cli.inputs import check_writable
from s3vm.cli.summary import plain_table

__all__ = ["bench", "list_datasets", "report"]

_TOYS = ("iris", "wine", "breast_cancer", "digits")


def bench(screen: Screen, config: str, output: str | None, processes: int | None, shown: bool) -> None:
    """Runs what a configuration asks for; an interrupted one goes on where it stopped."""
    described = read(config)
    target = f"{Path(config).stem}.parquet" if output is None else output
    check_writable(target, inputs=[config])
    standing, start = Standing(), time.perf_counter()
    try:
        if shown and sys.stderr.isatty():
            with Live(get_renderable=lambda: _table(standing), console=Console(stderr=True), refresh_per_second=4):
                found = runner.run(config, target, standing, processes)
        else:
            found = runner.run(config, target, standing, processes)
    except KeyboardInterrupt:
        done = f"{standing.done:,} of {standing.total:,} runs are kept in {target}"
        raise KeyboardInterrupt(f"interrupted: {done}; the same command goes on from there") from None
    for problem in standing.missing.values():
        screen.warn(f"left out: {problem}")
    statuses: dict[str, int] = {}
    for row in found.rows():
        statuses[row["status"]] = statuses.get(row["status"], 0) + 1
    result = {
        "command": "bench",
        "s3vm": s3vm.__version__,
        "config": config,
        "output": target,
        "runs": standing.total,
        "statuses": statuses,
        "seconds": (taken := time.perf_counter() - start),
    }
    facts = {
        "Experiment": escape(described.title),
        "Runs": f"{standing.total:,}  [dim]{', '.join(f'{count:,} {name}' for name, count in statuses.items())}[/dim]",
        "Took": seconds(taken),
        "Written": escape(target),
        "To see it": f"s3vm report {escape(target)}",
    }
    screen.finish(result, grid(facts))


def report(screen: Screen, results: str, output: str | None) -> None:
    """Makes the report of a file of results."""
    if not Path(results).is_file():
        raise FileNotFoundError(f"{results or repr('')}: there is no such file; s3vm bench makes one")
    target = str(Path(results).with_suffix(".html")) if output is None else output
    check_writable(target, inputs=[results])
    optional("matplotlib", "report")
    from experiments.report.experiment import of_experiment

    with screen.progress("drawing"):
        of_experiment(results, target)
    result = {"command": "report", "s3vm": s3vm.__version__, "results": results, "output": target}
    screen.finish(result, grid({"Written": escape(target)}))


def _table(standing: Standing) -> RenderableType:
    """How far every part is, and what runs now."""
    table = plain_table("part", "done", "of", "failed")
    for name, count in standing.parts.items():
        failed = f"[yellow]{count.failed:,}[/]" if count.failed else ""
        table.add_row(name, f"{count.done:,}", f"{count.total:,}", failed)
    now = time.monotonic()
    running = Table.grid(padding=(0, 2))
    for task, since in list(standing.running.values()):
        rows = task.get("rows")
        size = "all rows" if rows == -1 else f"{rows:,} rows" if rows else ""
        words = [task["part"], task["set"], task["solver"], size, f"trial {task['trial']}", seconds(now - since)]
        running.add_row("  ▸", *map(escape, words))
    total = max(1, standing.total)
    line = Table.grid(padding=(0, 1))
    line.add_row(
        " ",
        ProgressBar(total=total, completed=standing.done, width=40),
        f"{standing.done:,} of {standing.total:,} runs",
        Text(f"{seconds(now - standing.begun)} so far", style="dim"),
    )
    return Group(table, running, Text(_last(standing), style="dim"), line)


def _last(standing: Standing) -> str:
    row: dict[str, Any] | None = standing.last
    if row is None:
        return ""
    came = percent(row["error"]) if row.get("error") is not None else row["status"]
    duration = f" in {seconds(row['seconds'])}" if row.get("seconds") is not None else ""
    return f"  last: {row['part']} {row['set']} {row['solver']}: {came}{duration}"


def list_datasets(screen: Screen) -> None:
    """What there is to try things on."""
    found = []
    for name in _TOYS:
        X, y = getattr(toys, f"load_{name}")(return_X_y=True)
        found.append({"name": name, "where": "scikit-learn"} | _described(X.shape, y))
    for name, known in KNOWN.items():
        if not datasets.found(name):
            classes = {"0": 1 - known.positive, "1": known.positive}
            size = {"rows": known.n_rows, "features": known.n_dims}
            found.append({"name": name, "where": "download", **size, "classes": classes})
    folder = datasets.folder()
    paths = sorted(folder.glob("*.npz")) if folder else []
    with screen.progress("looking", "files") as told:
        for at, path in enumerate(paths):
            told(at, len(paths), path.name)
            with np.load(path, allow_pickle=False) as stored:
                if "y" in stored and ("X" in stored or "shape" in stored):
                    shape = tuple(stored["shape"]) if "shape" in stored else stored["X"].shape
                    found.append({"name": path.stem, "where": str(path)} | _described(shape, stored["y"]))
    if folder and not folder.is_dir():
        screen.warn(f"S3VM_DATA names {folder}, which is not a folder")
    table = plain_table("name", "rows", "features")
    table.add_column("classes")
    table.add_column("where")
    for one in found:
        shares = [f"{label} {share:.0%}" for label, share in list(one["classes"].items())[:3]]
        others = len(one["classes"]) - len(shares)
        listed = ", ".join(shares) + (f" and {others} more" if others > 0 else "")
        where = escape(Path(one["where"]).name)
        table.add_row(escape(one["name"]), f"{one['rows']:,}", f"{one['features']:,}", listed, where)
    more = "" if folder else "  More: set S3VM_DATA to a folder of .npz files (arrays X and y)."
    screen.finish(
        {"command": "datasets", "s3vm": s3vm.__version__, "datasets": found},
        table,
        Text(more, style="dim", end="\n" * bool(more)),
    )


def _described(shape: tuple[int, ...], y: Array) -> dict[str, Any]:
    labels, counts = np.unique(y, return_counts=True)
    shares = dict(zip(map(str, labels.tolist()), (counts / counts.sum()).tolist(), strict=True))
    return {"rows": int(shape[0]), "features": int(shape[1]), "classes": shares}

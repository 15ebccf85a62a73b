"""`s3vm suggest`: which rows of a file to label next."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape

from s3vm._utils.arrays import stack
from s3vm._utils.typing import Array, Rows
from s3vm.cli.commands import Suggest
from s3vm.cli.console import grid
from s3vm.cli.inputs import check_writable
from s3vm.cli.model import LoadedModel, load_model
from s3vm.inspect.labelling import LabelledTable
from s3vm.sources import readers


def run_suggest(options: Suggest) -> None:
    screen, data, output = options.screen(), options.data, options.output
    target, mark = options.target, options.mark
    loaded = load_model(options.model, options.jobs)
    check_writable(None if output == "-" else output, inputs=[options.model, data])
    clf = loaded.classifier
    with screen.progress(f"reading {Path(data).name}"):
        rows, labels = _read(loaded, data, target, mark)
    n_labeled = int(np.sum(labels != None))  # noqa: E711
    marks = np.where(labels == None, clf.unlabeled, clf.classes_[0])  # noqa: E711
    with screen.progress("choosing"):
        chosen = clf.suggest(rows, options.n, marks, random_state=options.seed)
    columns: dict[str, Any] = {"row": chosen + 1, "prediction": clf.predict(rows[chosen])}
    if Path(data).suffix.lower() in (".csv", ".tsv"):  # with everything in the rows, to be labelled in any program
        table = LabelledTable(Path(data), Path(data), target or loaded.target or "label", mark)
        cells = zip(*(table.rows[at] for at in chosen), strict=True)
        columns |= {name: list(texts) for name, texts in zip(table.names, cells, strict=True) if name not in columns}
    with readers.Writer(output, options.file_format or "csv") as writer:
        writer.write(columns)
    screen.warn_of(loaded.misfits)
    result = {"model": options.model, "data": data, "output": output, "rows": chosen + 1, "labeled": n_labeled}
    if output != "-":
        facts = {"Suggested": f"{options.n:,} of {len(labels) - n_labeled:,} rows without a label"}
        screen.finish("suggest", result, lambda shown: [grid(facts | {"Written": escape(shown["output"])})])


def _read(loaded: LoadedModel, data: str, target: str | None, mark: Sequence[str]) -> tuple[Rows, Array]:
    """The rows as the classifier takes them, and their labels: all None if the file has no such column."""
    try:
        batches = list(loaded.stream(data, target or loaded.target, mark=mark))
    except readers.TableError:
        if target is not None or loaded.target is None:
            raise
        batches = list(loaded.stream(data, mark=mark))
    rows = stack([loaded.as_trained(batch.rows) for batch in batches])
    labels = [np.full(batch.rows.shape[0], None) if batch.labels is None else batch.labels for batch in batches]
    return rows, np.concatenate(labels)

"""`s3vm label`: a page in the browser on which a person labels rows, while the model learns."""

import sys
import webbrowser
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.text import Text

from s3vm.cli.commands import Label
from s3vm.cli.console import Screen
from s3vm.cli.fit import train
from s3vm.cli.inputs import check_writable, read_data
from s3vm.inspect.diagnostics import held_out_error
from s3vm.inspect.labelling import LabelledTable, LabelServer, Session
from s3vm.sources.values import USUAL_MARKS

_AT_ONCE = 10  # rows that a fit suggests


def run_label(options: Label) -> None:
    data = Path(options.data)
    path = data.with_name(f"{data.stem}-labelled.csv") if options.output is None else Path(options.output)
    check_writable(str(path), inputs=[options.data])
    marks = options.mark or USUAL_MARKS.difference(options.classes)
    table = LabelledTable(data, path, options.target or "label", marks)
    session = Session(table, options.classes, lambda: refit(table, options), options.seed)
    with LabelServer(session, options.port) as server:
        print(f"Label rows at {server.address}\nEvery label is saved in {path}. End with Ctrl-C.", file=sys.stderr)
        if options.browser:
            webbrowser.open(server.address)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    n = len(table.labeled())
    text = Text(f"{n:,} of {len(table.rows):,} rows have a label in {path}")
    result = {"output": str(path), "target": table.target, "labeled": n, "history": session.history}
    options.screen().finish("label", result, lambda _: [text])


def refit(table: LabelledTable, options: Label) -> tuple[dict[str, Any] | None, list[int]]:
    """Fits as `s3vm fit` does: the held-out error, if it is known, and the rows to label next."""
    labeled = table.labeled()
    if len({table.label(row) for row in labeled}) < 2:
        return None, []
    path = table.output if table.output.exists() else Path(options.data)
    data = read_data(Screen(quiet=True), replace(options, data=str(path), target=table.target))
    clf = train(Screen(quiet=True), data, options).classifier
    n_next, error = min(_AT_ONCE, len(data.labels) - data.n_labeled), held_out_error(clf)
    rows = clf.suggest(data.rows, n_next, data.labels).tolist() if n_next else []
    return error and {"labels": data.n_labeled} | error, rows

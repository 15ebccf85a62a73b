"""A local page on which a person labels rows: every label is saved, and the model says which row comes next."""

import csv
import io
import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from threading import Condition, Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np

from s3vm._utils import atomic
from s3vm.sources.readers.labels import labels_of

_IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}
_DELIMITERS = ",;\t"
_MOST_CELL = 1 << 30  # characters; the default of 131,072 is less than some texts have
_MOST_BODY = 10_000  # bytes of a request
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; img-src 'self'; connect-src 'self'"
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# What a fit says: the held-out error with its interval, if it is known, and the numbers of the rows to label next.
Refit = Callable[[], tuple[dict[str, Any] | None, list[int]]]


class LabelledTable:
    """The text of a csv file, whose label column is filled row by row; every change replaces the output.

    Where the output is there already, work goes on from it.
    """

    def __init__(self, data: Path, output: Path, target: str, marks: Iterable[str] = ()) -> None:
        self.folder, self.output, self.target, self._marks = data.parent, output, target, frozenset(marks)
        csv.field_size_limit(_MOST_CELL)
        with open(output if output.exists() else data, newline="", encoding="utf-8-sig") as file:
            head = file.readline()
            self._delimiter = max(_DELIMITERS, key=head.count)
            file.seek(0)
            reader = csv.DictReader(file, delimiter=self._delimiter)
            self.rows = list(reader)
        self.names = list(dict.fromkeys([*(reader.fieldnames or ()), target]))
        if len(set(reader.fieldnames or ())) < len(reader.fieldnames or ()):
            raise ValueError(f"{data} has several columns of the same name: rename them")
        uneven = [number for number, row in enumerate(self.rows, 1) if None in row or None in row.values()]
        if uneven:
            raise ValueError(f"{data}: row {uneven[0]} and the first have different numbers of cells")
        labels = labels_of([row.get(target, "") for row in self.rows], self._marks)
        for row, label in zip(self.rows, labels, strict=True):
            row[target] = label or ""

    def label(self, row: int) -> str | None:
        """The label of a row; None without."""
        return self.rows[row][self.target] or None

    def cells(self, row: int) -> dict[str, str]:
        """What a row says, without its label."""
        return {name: cell for name, cell in self.rows[row].items() if name != self.target}

    def picture(self, cell: str) -> Path | None:
        """The picture that a cell names."""
        path = self.folder / cell
        return path if path.suffix.lower() in _IMAGES and path.is_file() else None

    def labeled(self) -> list[int]:
        return [row for row in range(len(self.rows)) if self.label(row) is not None]

    def set_label(self, row: int, label: str) -> None:
        """Changes a label, and the file; if that cannot be written, neither."""
        if label and labels_of([label], self._marks)[0] is None:
            raise ValueError(f"{label!r} means unlabelled")
        before, self.rows[row][self.target] = self.rows[row][self.target], label
        try:
            text = io.StringIO()
            writer = csv.DictWriter(text, self.names, delimiter=self._delimiter, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
            atomic.write(self.output, text.getvalue().encode())
        except OSError:
            self.rows[row][self.target] = before
            raise


class Session:
    """What has been labelled so far, and what comes next. A thread refits whenever there are new labels."""

    def __init__(self, table: LabelledTable, classes: Sequence[str], refit: Refit, seed: int = 0) -> None:
        self.table, self._refit, self._changed = table, refit, Condition()
        self.classes = list(dict.fromkeys([*classes, *sorted(str(table.label(row)) for row in table.labeled())]))
        self._queue = np.random.default_rng(seed).permutation(len(table.rows)).tolist()
        self._skips = Counter[int]()  # how often each row was skipped
        self._done: list[int] = []  # rows labelled here, for undo
        self.history: list[dict[str, Any]] = []  # held-out errors
        self.problem, self._n_changes, self._n_fitted = "", int(bool(table.labeled())), 0
        Thread(target=self._keep_fitting, daemon=True).start()

    def state(self) -> dict[str, Any]:
        """What the page shows: the next row, of those that were skipped least often."""
        with self._changed:
            open_rows = (row for row in self._queue if self.table.label(row) is None)
            row = min(open_rows, key=self._skips.__getitem__, default=None)
            cells = {} if row is None else self.table.cells(row)
            return {
                "row": row,
                "cells": [[name, cell, self.table.picture(cell) is not None] for name, cell in cells.items()],
                "classes": dict.fromkeys(self.classes, 0) | Counter(map(self.table.label, self.table.labeled())),
                "rows": len(self.table.rows),
                "history": self.history,
                "fitting": self._n_fitted < self._n_changes,
                "problem": self.problem,
                "output": self.table.output.name,
            }

    def label(self, row: int, label: str) -> None:
        """Labels a row; a new label is a new class."""
        if not 0 <= row < len(self.table.rows) or not label.strip() or len(label) > 200 or not label.isprintable():
            raise ValueError("give the number of a row, and a label")
        with self._changed:
            self._set_label(row, label)
            if label not in self.classes:
                self.classes.append(label)
            self._done.append(row)

    def undo(self) -> None:
        """Takes the last label back, and shows its row again."""
        with self._changed:
            if self._done:
                self._set_label(self._done[-1], "")
                self._queue.insert(0, self._done.pop())
                del self._skips[self._queue[0]]

    def skip(self, row: int) -> None:
        with self._changed:
            self._skips[row] += 1

    def _set_label(self, row: int, label: str) -> None:
        self.table.set_label(row, label)
        self._n_changes += 1
        self._changed.notify_all()

    def _keep_fitting(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._n_fitted < self._n_changes)
                fitting = self._n_changes
            try:
                (error, rows), problem = self._refit(), ""
            except Exception as failure:  # shown on the page; labels are saved in any case
                error, rows, problem = None, [], str(failure) or type(failure).__name__
            with self._changed:
                self._n_fitted, self.problem = fitting, problem
                self._queue = list(dict.fromkeys([*map(int, rows), *self._queue]))
                if error is not None:
                    self.history.append(error)


class LabelServer(ThreadingHTTPServer):
    """Serves a session on 127.0.0.1 to whoever knows the address with its token."""

    daemon_threads = True

    def __init__(self, session: Session, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.session, self.token = session, secrets.token_urlsafe(24)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/?token={self.token}"


class _Handler(BaseHTTPRequestHandler):
    server: LabelServer

    def do_GET(self) -> None:
        path, query = self._allowed()
        if path == "/":
            self._send("text/html; charset=utf-8", _file("label.html"))
        elif path == "/label.js":
            self._send("text/javascript; charset=utf-8", _file("label.js"))
        elif path == "/state":
            self._send_state()
        elif path == "/image" and (picture := self._picture(query)) is not None:
            self._send(_IMAGES[picture.suffix.lower()], picture.read_bytes())
        elif path:
            self.send_error(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        path, _ = self._allowed()
        session, length = self.server.session, self.headers.get("Content-Length", "")
        if not path:
            return
        try:
            if not length.isdecimal() or int(length) > _MOST_BODY:
                raise ValueError("the request is too long")
            given = json.loads(self.rfile.read(int(length)) or "{}")
            if path == "/label":
                session.label(int(given["row"]), str(given["label"]))
            elif path == "/skip":
                session.skip(int(given["row"]))
            elif path == "/undo":
                session.undo()
            self._send_state()
        except (KeyError, TypeError, ValueError) as problem:
            self._send("text/plain; charset=utf-8", str(problem).encode(), HTTPStatus.BAD_REQUEST)
        except OSError as problem:
            self._send("text/plain; charset=utf-8", str(problem).encode(), HTTPStatus.INTERNAL_SERVER_ERROR)

    def _allowed(self) -> tuple[str, dict[str, str]]:
        """The path and the query; empty, after an error, without the token or for a page whose host only leads here."""
        port, parts = self.server.server_port, urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        has_token = secrets.compare_digest(query.pop("token", "").encode(), self.server.token.encode())
        is_ours = self.headers.get("Host") in (f"127.0.0.1:{port}", f"localhost:{port}")
        if is_ours and (has_token or parts.path == "/label.js"):  # which holds no data
            return parts.path, query
        self.send_error(HTTPStatus.FORBIDDEN)
        return "", {}

    def _picture(self, query: dict[str, str]) -> Path | None:
        """The picture in a cell: any other file is nobody's business."""
        table, row = self.server.session.table, query.get("row", "")
        is_row = row.isdecimal() and int(row) < len(table.rows)
        return table.picture(table.cells(int(row)).get(query.get("name", ""), "")) if is_row else None

    def _send_state(self) -> None:
        self._send("application/json", json.dumps(self.server.session.state()).encode())

    def _send(self, kind: str, content: bytes, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        for name, value in (_HEADERS | {"Content-Type": kind, "Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal: the token is in the path."""


def _file(name: str) -> bytes:
    return resources.files("s3vm.inspect").joinpath(name).read_bytes()

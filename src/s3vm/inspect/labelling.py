"""A local page on which a person labels rows: every label is saved, and the model says which row comes next."""

import csv
import io
import json
import secrets
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from threading import Condition, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from s3vm._utils import atomic
from s3vm.sources.readers.labels import labels_of

_IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}
_DELIMITERS = ",;\t"
_MOST_CELL = 1 << 30  # characters; the default of 131,072 is less than some texts have
_MOST_BODY = 10_000  # bytes of a request
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; img-src 'self'; connect-src 'self'"
# What a fit says: the held-out error with its interval, if it is known, and the numbers of the rows to label next.
Refit = Callable[[], tuple[dict[str, Any] | None, list[int]]]


class LabelledTable:
    """The text of a csv file, whose label column is filled row by row; every change replaces the output.

    Where the output is there already, work goes on from it.
    """

    def __init__(self, data: Path, output: Path, target: str, marks: Iterable[str] = ()) -> None:
        self.folder, self.output = data.parent, output
        csv.field_size_limit(_MOST_CELL)
        with open(output if output.exists() else data, newline="", encoding="utf-8-sig") as file:
            head = file.readline()
            self._delimiter = max(_DELIMITERS, key=head.count)
            file.seek(0)
            self.names, *self.rows = [row for row in csv.reader(file, delimiter=self._delimiter) if row]
        if target not in self.names:
            self.names, self.rows = [*self.names, target], [[*row, ""] for row in self.rows]
        uneven = [number for number, row in enumerate(self.rows, 1) if len(row) != len(self.names)]
        if uneven:
            raise ValueError(f"{data}: row {uneven[0]} and the first have different numbers of cells")
        self.at, self._marks = self.names.index(target), frozenset(marks)
        for row, label in zip(self.rows, labels_of([row[self.at] for row in self.rows], self._marks), strict=True):
            row[self.at] = label or ""

    def label(self, row: int) -> str | None:
        """The label of a row; None without."""
        return self.rows[row][self.at] or None

    def labeled(self) -> list[int]:
        return [row for row in range(len(self.rows)) if self.label(row) is not None]

    def set_label(self, row: int, label: str) -> None:
        """Changes a label, and the file; if that cannot be written, neither."""
        if label and labels_of([label], self._marks)[0] is None:
            raise ValueError(f"{label!r} means unlabelled")
        before, self.rows[row][self.at] = self.rows[row][self.at], label
        try:
            text = io.StringIO()
            writer = csv.writer(text, delimiter=self._delimiter, lineterminator="\n")
            writer.writerows([self.names, *self.rows])
            atomic.write(self.output, text.getvalue().encode())
        except OSError:
            self.rows[row][self.at] = before
            raise


class Session:
    """What has been labelled so far, and what comes next. A thread refits whenever there are new labels."""

    def __init__(self, table: LabelledTable, classes: Sequence[str], refit: Refit, seed: int = 0) -> None:
        self.table, self._refit, self._changed = table, refit, Condition()
        known = {table.label(row) for row in table.labeled()} - set(classes)
        self.classes = [*classes, *sorted(str(label) for label in known)]
        self._queue = np.random.default_rng(seed).permutation(len(table.rows)).tolist()
        self._later: list[int] = []  # rows that were skipped
        self._done: list[int] = []  # rows labelled here, for undo
        self.history: list[dict[str, Any]] = []  # held-out errors
        self.problem, self._n_changes, self._n_fitted, self._is_open = "", int(bool(table.labeled())), 0, True
        self._thread = Thread(target=self._keep_fitting, daemon=True)
        self._thread.start()

    def state(self) -> dict[str, Any]:
        """What the page shows."""
        with self._changed:
            row = self._current()
            cells = None
            if row is not None:
                pairs = enumerate(zip(self.table.names, self.table.rows[row], strict=True))
                cells = [
                    [name, cell, self._image(row, at) is not None] for at, (name, cell) in pairs if at != self.table.at
                ]
            counts = dict.fromkeys(self.classes, 0)
            for labeled in self.table.labeled():
                counts[str(self.table.label(labeled))] += 1
            return {
                "row": row,
                "cells": cells,
                "classes": counts,
                "rows": len(self.table.rows),
                "history": self.history,
                "fitting": self._n_fitted < self._n_changes,
                "problem": self.problem,
                "target": self.table.at,
                "output": self.table.output.name,
            }

    def label(self, row: int, label: str) -> None:
        """Labels a row; a new label is a new class."""
        if not 0 <= row < len(self.table.rows) or not label.strip() or len(label) > 200 or not label.isprintable():
            raise ValueError("give the number of a row, and a label")
        with self._changed:
            self.table.set_label(row, label)
            if label not in self.classes:
                self.classes.append(label)
            self._done.append(row)
            self._note_change()

    def undo(self) -> None:
        """Takes the last label back, and shows its row again."""
        with self._changed:
            if self._done:
                row = self._done[-1]
                self.table.set_label(row, "")
                self._queue.insert(0, self._done.pop())
                self._later = [other for other in self._later if other != row]
                self._note_change()

    def skip(self, row: int) -> None:
        with self._changed:
            self._later.append(row)

    def image(self, row: int, column: int) -> Path | None:
        """The picture that a cell names."""
        with self._changed:
            is_there = 0 <= row < len(self.table.rows) and 0 <= column < len(self.table.names)
            return self._image(row, column) if is_there else None

    def close(self) -> None:
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    def _current(self) -> int | None:
        open_rows = (row for row in self._queue if self.table.label(row) is None and row not in self._later)
        skipped = (row for row in self._later if self.table.label(row) is None)
        return next(open_rows, next(skipped, None))

    def _image(self, row: int, column: int) -> Path | None:
        name = self.table.rows[row][column]
        if Path(name).suffix.lower() not in _IMAGES:
            return None
        path = self.table.folder / name
        return path if path.is_file() else None

    def _note_change(self) -> None:
        self._n_changes += 1
        self._changed.notify_all()

    def _keep_fitting(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._is_open or self._n_fitted < self._n_changes)
                if not self._is_open:
                    return
                fitting = self._n_changes
            try:
                error, rows = self._refit()
                problem = ""
            except Exception as failure:  # shown on the page; labels are saved in any case
                error, rows, problem = None, [], str(failure) or type(failure).__name__
            with self._changed:
                self._n_fitted, self.problem = fitting, problem
                chosen = [int(row) for row in rows]
                self._queue = [*chosen, *(row for row in self._queue if row not in set(chosen))]
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
        path, query = self._checked()
        if path == "/" and query is not None:
            self._send("text/html; charset=utf-8", _file("label.html"))
        elif path == "/label.js":  # holds no data
            self._send("text/javascript; charset=utf-8", _file("label.js"))
        elif path == "/state" and query is not None:
            self._send_state()
        elif path == "/image" and query is not None:
            picture = self.server.session.image(*(int(query.get(name, ["-1"])[0]) for name in ("row", "column")))
            if picture is None:
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                self._send(_IMAGES[picture.suffix.lower()], picture.read_bytes())
        elif path is not None:
            self.send_error(HTTPStatus.FORBIDDEN if query is None else HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        path, query = self._checked()
        if path is None:
            return
        if query is None:
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        session, length = self.server.session, self.headers.get("Content-Length", "")
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

    def _checked(self) -> tuple[str | None, dict[str, list[str]] | None]:
        """The path and, if the token is right, the query; neither for a page whose host only leads here."""
        port = self.server.server_port
        if self.headers.get("Host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            self.send_error(HTTPStatus.FORBIDDEN)
            return None, None
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        token = query.get("token", [""])[0].encode()
        return parts.path, query if secrets.compare_digest(token, self.server.token.encode()) else None

    def _send_state(self) -> None:
        self._send("application/json", json.dumps(self.server.session.state()).encode())

    def _send(self, kind: str, content: bytes, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(content)), "Cache-Control": "no-store"}
        headers |= {
            "Content-Security-Policy": _POLICY,
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal: the token is in the path."""


def _file(name: str) -> bytes:
    return resources.files("s3vm.inspect").joinpath(name).read_bytes()

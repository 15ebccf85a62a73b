"""The page on which rows are labelled: nothing is lost, and nobody else may ask."""

import csv
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import time
from threading import Event, Thread

import numpy as np
import pytest

from effort import LONG
from s3vm.cli.commands import Label
from s3vm.cli.label import refit
from s3vm.inspect.labelling import LabelledTable, LabelServer, Session


@pytest.fixture
def data(tmp_path):
    """Sixty rows in two clusters, one cell with a comma, and no label column."""
    rng = np.random.default_rng(0)
    with open(tmp_path / "rows.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["across", "up", "note"])
        for at in range(60):
            writer.writerow([*np.round(rng.normal(size=2) + 4 * (at % 2), 3), "yes, no" if at == 7 else "no"])
    return tmp_path / "rows.csv"


class Client:
    """Asks a server as the page does."""

    def __init__(self, server):
        self.server = server

    def ask(self, path, given=None, token=None, host=None):
        token = self.server.token if token is None else token
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=10)
        headers = {} if host is None else {"Host": host}
        body = None if given is None else json.dumps(given)
        connection.request("GET" if given is None else "POST", f"{path}?token={token}", body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return (
            (answer.status, json.loads(content)) if answer.status == 200 and path != "/" else (answer.status, content)
        )

    def state(self):
        return self.ask("/state")[1]


@pytest.fixture
def opened(data):
    """Opens the page of a table, with a fit that suggests row 7, and closes all pages in the end."""
    servers = []

    def opened(suggested=(7,), fail=None, path=None):
        fitted = Event()
        table = LabelledTable(data, path or data.with_name("out.csv"), "label")

        def fit():
            fitted.set()
            if fail:
                raise ValueError(fail)
            return {"labels": len(table.labeled()), "error": 0.25, "low": 0.1, "high": 0.5}, suggested

        server = LabelServer(Session(table, ["a", "b"], fit))
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        client = Client(server)
        client.fitted, client.table = fitted, table
        return client

    yield opened
    for server in servers:
        server.shutdown()
        server.server_close()


def cells_of(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def labels_in(path):
    return {at: row[-1] for at, row in enumerate(cells_of(path)[1:]) if row[-1]}


def wait_for(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def test_labels_are_saved_one_by_one_and_come_back(opened, data):
    client, given = opened(), {}
    for at in range(6):
        row = client.state()["row"]
        status, state = client.ask("/label", {"row": row, "label": "ab"[at % 2]})
        given[row] = "ab"[at % 2]
        assert status == 200
        assert labels_in(data.with_name("out.csv")) == given, "on the disk before the answer"
        assert state["row"] not in given
    assert client.state()["classes"] == {"a": 3, "b": 3}
    again = opened()
    assert again.state()["classes"] == {"a": 3, "b": 3}
    assert again.state()["row"] not in given
    assert [row[:3] for row in cells_of(data.with_name("out.csv"))] == cells_of(data)


def test_undo_and_skip(opened, data):
    client = opened()
    first = client.state()["row"]
    second = client.ask("/label", {"row": first, "label": "a"})[1]["row"]
    client.ask("/label", {"row": second, "label": "new class"})
    state = client.ask("/undo", {})[1]
    assert state["row"] == second
    assert labels_in(data.with_name("out.csv")) == {first: "a"}
    assert state["classes"] == {"a": 1, "b": 0, "new class": 0}
    assert client.ask("/undo", {})[1]["row"] == first
    assert labels_in(data.with_name("out.csv")) == {}
    assert client.ask("/undo", {})[0] == 200, "nothing is left to undo"
    assert client.ask("/skip", {"row": first})[1]["row"] != first
    for row in range(60):
        if row != first:
            client.ask("/label", {"row": row, "label": "b"})
    assert client.state()["row"] == first, "a skipped row comes last"
    assert client.ask("/label", {"row": first, "label": "b"})[1]["row"] is None


def test_a_fit_chooses_the_row_that_comes_next_and_shows_its_error(opened):
    client = opened()
    row = next(row for row in (client.state()["row"], 3) if row != 7)
    client.ask("/label", {"row": row, "label": "a"})
    wait_for(lambda: client.state()["history"] and not client.state()["fitting"])
    state = client.state()
    assert state["row"] == 7
    assert [cell for _, cell, _ in state["cells"]][2] == "yes, no"
    assert state["history"][-1] == {"labels": 1, "error": 0.25, "low": 0.1, "high": 0.5}


def test_a_fit_that_fails_is_said_and_stops_nobody(opened):
    client = opened(fail="the columns do not fit")
    client.ask("/label", {"row": 0, "label": "a"})
    wait_for(lambda: client.state()["problem"])
    assert client.state()["problem"] == "the columns do not fit"
    assert client.ask("/label", {"row": 1, "label": "b"})[0] == 200


def test_only_the_page_may_ask(opened, data):
    client = opened()
    row = client.state()["row"]
    for path, given in (
        ("/", None),
        ("/state", None),
        ("/image", None),
        ("/label", {"row": row, "label": "a"}),
        ("/undo", {}),
    ):
        assert client.ask(path, given, token="wrong")[0] == 403
        assert client.ask(path, given, token="")[0] == 403
        assert client.ask(path, given, host="evil.example")[0] == 403, "a name that leads here is not enough"
    assert not data.with_name("out.csv").exists()
    assert client.server.server_address[0] == "127.0.0.1"
    assert b"label.js" in client.ask("/")[1]
    assert client.ask("/elsewhere")[0] == 404


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"row": 60, "label": "a"},
        {"row": -1, "label": "a"},
        {"row": 0, "label": " "},
        {"row": 0, "label": "a\n"},
        {"row": 0, "label": "nan"},
        [],
    ],
)
def test_requests_that_make_no_sense(opened, data, given):
    client = opened()
    assert client.ask("/label", given)[0] == 400
    assert not data.with_name("out.csv").exists()


def test_a_label_that_cannot_be_saved_is_not_taken(opened, data, monkeypatch):
    client = opened()

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("s3vm._utils.atomic.write", full)
    assert client.ask("/label", {"row": 0, "label": "a"})[0] == 500
    assert client.state()["classes"] == {"a": 0, "b": 0}


def test_pictures_of_cells_and_no_others(opened, data):
    (data.parent / "cat.png").write_bytes(b"\x89PNG")
    (data.parent / "secret.txt").write_text("no")
    text = data.read_text().replace("yes, no", "cat.png").splitlines()
    data.write_text("\n".join(text[:9] + [line.replace(",no", ",secret.txt") for line in text[9:]]) + "\n")
    client = opened()
    connection = http.client.HTTPConnection("127.0.0.1", client.server.server_port)
    for row, status in ((7, 200), (8, 404), (99, 404)):
        connection.request("GET", f"/image?token={client.server.token}&row={row}&name=note")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status


def test_the_next_rows_come_from_a_real_fit(data):
    table = LabelledTable(data, data.with_name("out.csv"), "label")
    text = data.read_text().replace('"yes, no"', "1").replace(",no", ",0")
    data.write_text(text)
    table = LabelledTable(data, data.with_name("out.csv"), "label")
    options = Label(data=str(data), target="label")
    assert refit(table, options) == (None, [])
    for row in range(12):
        table.set_label(row, "ab"[row % 2])
    error, rows = refit(table, options)
    assert error["labels"] == 12
    assert error["error"] < 0.3
    assert len(set(rows)) == 10
    assert min(rows) >= 12


def test_uneven_rows_are_refused(data):
    data.write_text(data.read_text() + "1,2\n")
    with pytest.raises(ValueError, match="row 61 and the first have different numbers of cells"):
        LabelledTable(data, data.with_name("out.csv"), "label")


def test_two_columns_of_one_name_are_refused(data):
    data.write_text(data.read_text().replace("across,up", "up,up"))
    with pytest.raises(ValueError, match="several columns of the same name"):
        LabelledTable(data, data.with_name("out.csv"), "label")


# In a browser


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """Chromium without a window, driven through its debugging pipe."""

    def __init__(self, folder):
        flags = f"--headless --no-sandbox --disable-gpu --remote-debugging-pipe --user-data-dir={folder / 'profile'}"
        command = f"exec {CHROMIUM} {flags} 3<&0 4>&1 >/dev/null 2>&1"
        self.process = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._number, self._session, self._rest = 0, {}, b""

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters} | self._session
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        self.process.stdin.flush()
        while True:
            while b"\0" not in self._rest:
                self._rest += os.read(self.process.stdout.fileno(), 1 << 16)
            text, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(text)
            if answer.get("id") == self._number:
                return answer["result"]

    def open(self, address):
        target = self.call("Target.createTarget", url=address)["targetId"]
        self._session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}

    def evaluate(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=key if kind == "keyDown" else "")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.mark.skipif(CHROMIUM is None or not LONG, reason="make test-long labels rows in Chromium, if there is one")
def test_fifty_labels_in_a_browser_a_kill_and_a_restart(data, tmp_path):
    data.write_text(data.read_text().replace('"yes, no"', "1").replace(",no", ",0"))
    command = [sys.executable, "-m", "s3vm", "label", data, "-t", "kind", "--classes", "left,right", "--no-browser"]

    def started():
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        return process, re.search(r"http://\S+", process.stderr.readline())[0]

    browser, saved = Browser(tmp_path), data.with_name("rows-labelled.csv")
    try:
        for end in (25, 50):
            process, address = started()
            browser._session = {}
            browser.open(address)
            wait_for(lambda: browser.evaluate("document.querySelectorAll('#classes button').length") == 3)
            for n in range(end - 25, end):
                wait_for(
                    lambda n=n: (
                        browser.evaluate("document.getElementById('count').textContent") == f"{n} of 60 rows labelled"
                    )
                )
                across = float(browser.evaluate("document.querySelector('dd').textContent"))
                browser.press("1" if across < 2 else "2")
            wait_for(lambda end=end: len(labels_in(saved)) == end)
            shown = "document.getElementById('error').textContent"
            end_of_wait = time.monotonic() + 60
            while "held-out error (" not in (browser.evaluate(shown) or ""):
                assert time.monotonic() < end_of_wait
                time.sleep(0.2)
            process.kill()
            process.wait()
            process.stderr.close()
    finally:
        browser.close()
        process.kill()
    rows = cells_of(saved)[1:]
    assert len(labels_in(saved)) == 50
    assert all((float(across) < 2) == (kind == "left") for across, _, _, kind in rows if kind)

"""Gives tasks to worker processes, several at a time, and keeps a row of each result."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.config import Config, read
from experiments.plan import Plan, Task, key_of
from experiments.results import Results
from s3vm.inspect.page import machine_facts

__all__ = ["Count", "Progress", "run"]

_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_FACTS = ("processor", "cores", "memory", "system")
_OVER_LIMITS = ("timeout", "memory")
_POLL = 0.05


@dataclass
class Count:
    """How many runs a part has, how many are done, and how many failed."""

    total: int = 0
    done: int = 0
    failed: int = 0


@dataclass
class Progress:
    """How far an experiment is, to be read from another thread while it runs."""

    parts: dict[str, Count] = field(default_factory=dict)
    running: dict[int, tuple[Task, float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    last: dict[str, Any] | None = None
    started: float = field(default_factory=time.monotonic)

    @property
    def done(self) -> int:
        return sum(count.done for count in self.parts.values())

    @property
    def total(self) -> int:
        return sum(count.total for count in self.parts.values())


def run(path: Any, output: Any, progress: Progress | None = None, processes: int | None = None) -> Results:
    """Makes every run of a configuration that `output` does not have yet; Ctrl-C keeps what is done.

    Parameters
    ----------
    path : str or path
        The configuration, a TOML file.
    output : str or path
        The parquet file. What is in it is not run again, unless it failed and its limits have been raised.
    progress : Progress or None
        Is updated as runs start and end.
    processes : int or None
        Runs at a time; None is as many as the configuration says.
    """
    if not hasattr(os, "fork"):
        raise OSError("experiments need processes with limits, which this system does not have: use Linux")
    config = read(path)
    results = Results(output, Path(path).read_text("utf-8"))
    progress = progress or Progress()
    workers = [_Worker() for _ in range(processes or config.processes)]
    try:
        for tasks in Plan(config).stages(results):
            _Stage(config, results, progress, tasks).run(workers)
    finally:
        for worker in workers:
            worker.close()
        results.close()
    return results


class _Stage:
    """Tasks that do not depend on each other."""

    def __init__(self, config: Config, results: Results, progress: Progress, tasks: Iterable[Task]) -> None:
        self._config, self._results, self._progress = config, results, progress
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._problems: list[BaseException] = []
        self._queue: deque[Task] = deque()
        self._common = _common_columns(config)
        for task in tasks:
            count = progress.parts.setdefault(task["part"], Count())
            count.total += 1
            row = results.get(key_of(task))
            if row is not None and _is_final(row, config):
                count.done += 1
                count.failed += row["status"] != "ok"
            else:
                self._queue.append(task)

    def run(self, workers: "list[_Worker]") -> None:
        threads = [threading.Thread(target=self._serve, args=slot, daemon=True) for slot in enumerate(workers)]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                time.sleep(_POLL)
        except BaseException:
            self._stopped.set()
            for thread in threads:
                thread.join()
            raise
        if self._problems:
            raise self._problems[0]

    def _serve(self, slot: int, worker: "_Worker") -> None:
        try:
            while (task := self._next(slot)) is not None:
                limits = {"seconds": self._config.limit(task["part"]), "megabytes": self._config.megabytes}
                answer = worker.ask({"task": task, **limits}, self._stopped)
                if self._stopped.is_set():
                    return
                self._finish(slot, task, answer or {"status": "crash", "message": worker.close()})
        except BaseException as problem:
            self._problems.append(problem)
            self._stopped.set()

    def _next(self, slot: int) -> Task | None:
        with self._lock:
            while self._queue and not self._stopped.is_set():
                task = self._queue.popleft()
                skipped = self._skipped(task)
                if skipped is None:
                    self._progress.running[slot] = task, time.monotonic()
                    return task
                self._record(task, skipped)
            return None

    def _finish(self, slot: int, task: Task, answer: dict[str, Any]) -> None:
        with self._lock:
            self._progress.running.pop(slot, None)
            self._record(task, answer)

    def _record(self, task: Task, answer: dict[str, Any]) -> None:
        count = self._progress.parts[task["part"]]
        count.done += 1
        count.failed += answer["status"] != "ok"
        if answer["status"] == "no data":  # no row: the set may be there the next time
            self._progress.missing[task["set"]] = answer["message"]
            return
        identity = {"key": key_of(task), "limit_seconds": self._config.limit(task["part"])}
        row = self._common | task | identity | answer
        self._results.append(row)
        self._progress.last = row

    def _skipped(self, task: Task) -> dict[str, Any] | None:
        """The answer of a task that need not be tried: its set is missing, or as many rows or fewer were too many."""
        if task["set"] in self._progress.missing:
            return {"status": "no data", "message": self._progress.missing[task["set"]]}
        same = ("part", "set", "solver", "protocol", "synthetic")
        for row in self._results.rows():
            if row["status"] not in _OVER_LIMITS or any(row[name] != task[name] for name in same):
                continue
            if not _is_final(row, self._config):  # its limits have been raised
                continue
            if row["n"] is None or _is_at_most(row["n"], task["rows"]):
                size = f" with {row['n']:,} rows" if row["n"] else ""
                return {"status": "skipped", "message": f"{row['status']}{size} before"}
        return None


class _Worker:
    """A Python process with one thread, started when it is first needed, and again after it has died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._stderr: Any = None

    def ask(self, request: dict[str, Any], stopped: threading.Event) -> dict[str, Any] | None:
        """The answer; None if the worker has died, or everything is to stop."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return None
        lines: list[str] = []
        readline = process.stdout.readline
        reader = threading.Thread(target=lambda: lines.append(readline()), daemon=True)
        reader.start()
        while reader.is_alive() and not stopped.is_set():
            reader.join(_POLL)
        return json.loads(lines[0]) if lines and lines[0] else None

    def close(self) -> str:
        """Ends it with its child, and returns the last line of its standard error."""
        if self._process is None:
            return ""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(BrokenPipeError):
            self._process.communicate()
        self._process = None
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        self._stderr.close()
        return lines[-1] if lines else "the worker died"

    def _start(self) -> "subprocess.Popen[str]":
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        checkout = str(Path(__file__).parent.parent)  # where the worker finds this package, whatever the folder
        search_path = os.pathsep.join(filter(None, [checkout, os.environ.get("PYTHONPATH")]))
        return subprocess.Popen(
            [sys.executable, "-m", "experiments.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env=os.environ | dict.fromkeys(_ONE_THREAD, "1") | {"PYTHONPATH": search_path},
            start_new_session=True,  # Ctrl-C is for the runner
        )


def _is_final(row: dict[str, Any], config: Config) -> bool:
    """Whether a run need not be made again: it succeeded, or exceeded limits that are no higher now."""
    if row["status"] in _OVER_LIMITS:
        return bool(config.limit(row["part"]) <= row["limit_seconds"] and config.megabytes <= row["limit_megabytes"])
    return bool(row["status"] == "ok")


def _is_at_most(n: int, rows: int | None) -> bool:
    """Whether n rows are at most as many as a task asks for, where None and -1 are all rows."""
    return rows is None or rows < 0 or n <= rows


def _common_columns(config: Config) -> dict[str, Any]:
    versions = machine_facts() | _commit()
    here = {name: versions.pop(name) for name in _FACTS}
    columns = {"config": config.digest, "machine": json.dumps(here), "versions": json.dumps(versions)}
    return columns | {"limit_megabytes": config.megabytes}


def _commit() -> dict[str, str]:
    """The commit of the checkout that the code is from, if it is one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return {"commit": subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()}
    except (OSError, subprocess.CalledProcessError):
        return {}

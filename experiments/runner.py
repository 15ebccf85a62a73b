"""The runner: it gives tasks to workers, some at a time, and keeps a row of each before it gives the next."""

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

from experiments.config import Config, key_of, read
from experiments.results import Results
from s3vm.inspect.page import machine_facts

__all__ = ["Standing", "run"]

Task = dict[str, Any]

_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_FACTS = ("processor", "cores", "memory", "system")
_TOO_MUCH = ("timeout", "memory")
_POLL = 0.05


@dataclass
class Count:
    """Of the runs of one part: how many there are, are done, and went wrong."""

    total: int = 0
    done: int = 0
    failed: int = 0


@dataclass
class Standing:
    """How far it has come: to look at while it runs, from another thread."""

    parts: dict[str, Count] = field(default_factory=dict)
    running: dict[int, tuple[Task, float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    last: dict[str, Any] | None = None
    begun: float = field(default_factory=time.monotonic)

    @property
    def done(self) -> int:
        return sum(count.done for count in self.parts.values())

    @property
    def total(self) -> int:
        return sum(count.total for count in self.parts.values())


def run(path: Any, output: Any, standing: Standing | None = None, processes: int | None = None) -> Results:
    """Makes every run that the configuration asks for and that `output` has not; Ctrl-C keeps what is done.

    Parameters
    ----------
    path : str or path
        The configuration, a TOML file.
    output : str or path
        The parquet file. What is in it is not run again, unless it failed and its limits have been raised.
    standing : Standing or None
        Is told what happens.
    processes : int or None
        Runs at a time, if not as many as the configuration says.
    """
    if not hasattr(os, "fork"):
        raise OSError("experiments need processes with limits, which this system has not: use Linux")
    config = read(path)
    results = Results(output, Path(path).read_text("utf-8"))
    standing = standing or Standing()
    workers = [_Worker() for _ in range(processes or config.processes)]
    try:
        for tasks in config.stages(results):
            _Stage(config, results, standing, tasks).run(workers)
    finally:
        for worker in workers:
            worker.close()
        results.close()
    return results


_PYTHON_PATH = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])])


class _Stage:
    """Tasks that do not wait for each other."""

    def __init__(self, config: Config, results: Results, standing: Standing, tasks: Iterable[Task]) -> None:
        self._config, self._results, self._standing = config, results, standing
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._problems: list[BaseException] = []
        self._queue: deque[Task] = deque()
        self._common = _common(config)
        for task in tasks:
            count = standing.parts.setdefault(task["part"], Count())
            count.total += 1
            row = results.get(key_of(task))
            if row is not None and _is_final(row, config):
                count.done += 1
                count.failed += row["status"] != "ok"
            else:
                self._queue.append(task)

    def run(self, workers: "list[_Worker]") -> None:
        threads = [threading.Thread(target=self._serve, args=one, daemon=True) for one in enumerate(workers)]
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
                self._keep(slot, task, answer or {"status": "crash", "message": worker.close()})
        except BaseException as problem:
            self._problems.append(problem)
            self._stopped.set()

    def _next(self, slot: int) -> Task | None:
        with self._lock:
            while self._queue and not self._stopped.is_set():
                task = self._queue.popleft()
                held_back = self._held_back(task)
                if held_back is None:
                    self._standing.running[slot] = task, time.monotonic()
                    return task
                self._record(task, held_back)
            return None

    def _keep(self, slot: int, task: Task, answer: dict[str, Any]) -> None:
        with self._lock:
            self._standing.running.pop(slot, None)
            self._record(task, answer)

    def _record(self, task: Task, answer: dict[str, Any]) -> None:
        count = self._standing.parts[task["part"]]
        count.done += 1
        count.failed += answer["status"] != "ok"
        if answer["status"] == "no data":  # no row: it may be there the next time
            self._standing.missing[task["set"]] = answer["message"]
            return
        known = {"key": key_of(task), "limit_seconds": self._config.limit(task["part"])}
        row = self._common | task | known | answer
        self._results.append(row)
        self._standing.last = row

    def _held_back(self, task: Task) -> dict[str, Any] | None:
        """Why a task need not be tried: its set is missing, or as many rows or fewer were too much before."""
        if task["set"] in self._standing.missing:
            return {"status": "no data", "message": self._standing.missing[task["set"]]}
        same = ("part", "set", "solver", "protocol", "synthetic")
        for row in self._results.rows():
            if row["status"] not in _TOO_MUCH or any(row[name] != task[name] for name in same):
                continue
            if row["n"] is None or _smaller(row["n"], task["rows"]):
                size = f" with {row['n']:,} rows" if row["n"] else ""
                return {"status": "skipped", "message": f"{row['status']}{size} before"}
        return None


class _Worker:
    """A Python of its own, with one thread, that is started when it is first asked, and again if it has died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._said: Any = None

    def ask(self, asked: dict[str, Any], stopped: threading.Event) -> dict[str, Any] | None:
        """The answer; None if the worker has died, or everything is to stop."""
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return None
        got: list[str] = []
        listen = process.stdout.readline
        reader = threading.Thread(target=lambda: got.append(listen()), daemon=True)
        reader.start()
        while reader.is_alive() and not stopped.is_set():
            reader.join(_POLL)
        return json.loads(got[0]) if got and got[0] else None

    def close(self) -> str:
        """Ends it, with its child, and says what it said last."""
        if self._process is None:
            return ""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(BrokenPipeError):
            self._process.communicate()
        self._process = None
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        self._said.close()
        return lines[-1] if lines else "the worker died"

    def _started(self) -> "subprocess.Popen[str]":
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        return subprocess.Popen(
            [sys.executable, "-m", "experiments.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env=os.environ | dict.fromkeys(_ONE_THREAD, "1") | {"PYTHONPATH": _PYTHON_PATH},
            start_new_session=True,  # Ctrl-C is for us
        )


def _is_final(row: dict[str, Any], config: Config) -> bool:
    """Whether a run need not be made again: it went well, or too much was asked of limits that are no higher now."""
    if row["status"] in _TOO_MUCH:
        return bool(config.limit(row["part"]) <= row["limit_seconds"] and config.megabytes <= row["limit_megabytes"])
    return bool(row["status"] == "ok")


def _smaller(n: int, rows: int | None) -> bool:
    """Whether n rows are no more than a task asks for, None or -1 being all."""
    return rows is None or rows < 0 or n <= rows


def _common(config: Config) -> dict[str, Any]:
    facts = machine_facts()
    here = {name: facts.pop(name) for name in _FACTS}
    made = {"config": config.digest, "machine": json.dumps(here), "versions": json.dumps(facts)}
    return made | {"limit_megabytes": config.megabytes}

"""A process that makes one run after another, each in a child of its own that is held to its limits.

    python -m experiments.worker

It reads tasks from standard input, one per line, and answers each with a line; both are JSON. Rows are read and code is
compiled here, before the child is forked: the child starts at once, and measures nothing but the fit. Fits are timed by
the processor's clock, so that other programs do not matter; their memory is what they take above what was there before.
"""

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from experiments import theory, work
from experiments.datasets import Dataset
from experiments.work import Report

__all__ = ["main"]

Run = Callable[[Report], dict[str, Any]]

_WALL_FACTOR = 4.0  # wall-clock seconds that a run may take per second of its limit
_OVERHEAD = 120.0  # and for what is not the fit
_POLL = 0.2


class Worker:
    """The set read last, and what has been compiled."""

    def __init__(self) -> None:
        self._loaded: tuple[Any, Dataset] | None = None
        self._warm: set[str] = set()
        self._parent = os.getppid()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The status of a task and, if it is "ok", the measurements."""
        task, seconds, megabytes = request["task"], request["seconds"], request["megabytes"]
        if task["part"] == "theory":
            return self._in_child(lambda _: _theory(task), 100 * seconds)
        try:
            data = self._data(task)
        except (ImportError, OSError, ValueError) as problem:
            return {"status": "no data", "message": str(problem)}
        if work.on_gpu(task):
            return self._in_child(lambda report: work.fit_on_gpu(task, data, report), seconds)
        self._warm_up(task, data)
        if task["part"] == "tuning":
            return self._in_child(lambda report: work.tune(task, data, report), 20 * seconds)
        return self._in_child(lambda report: work.fit(task, data, report, _limited(seconds, megabytes)), seconds)

    def _data(self, task: dict[str, Any]) -> Dataset:
        key = (task["set"], task["synthetic"], task["rows"] if task["synthetic"] else None, task["part"] == "times")
        if self._loaded is None or self._loaded[0] != key:
            self._loaded = None  # two sets at a time may be too much
            self._loaded = key, work.dataset(task)
        return self._loaded[1]

    def _warm_up(self, task: dict[str, Any], data: Dataset) -> None:
        """Compiles what the task needs; what fails here fails in the child, too, and is reported there."""
        name = f"{task['part'] == 'ablation'} {task['solver']} {data.n_dims}"
        if name in self._warm or (task["part"] == "tuning" and task["protocol"] == "honest"):
            return
        self._warm.add(name)
        try:
            work.warm(task, data)
        except Exception:
            return

    def _in_child(self, run: Run, seconds: float) -> dict[str, Any]:
        """What `run` reports and returns, in a process that may die on the way."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover (coverage starts with the child's next call)
            os.close(reading)
            _be_the_child(run, writing)
        os.close(writing)
        wall_seconds = _WALL_FACTOR * seconds + _OVERHEAD
        received, is_late, status = self._listen(child, reading, time.monotonic() + wall_seconds)
        answer: dict[str, Any] = {}
        for line in received.splitlines():
            answer |= json.loads(line)
        if is_late:
            return answer | {"status": "timeout", "message": f"stopped after {wall_seconds:.0f} s of wall-clock time"}
        if os.WIFSIGNALED(status):
            return answer | _killed(os.WTERMSIG(status), seconds)
        return {"status": "crash", "message": "the process ended without an answer"} | answer

    def _listen(self, child: int, reading: int, deadline: float) -> tuple[bytes, bool, int]:
        """What the child writes until it ends or is killed, whether it was late, and its exit status."""
        received, is_late = b"", False
        try:
            while True:
                if select.select([reading], [], [], _POLL)[0]:
                    part = os.read(reading, 1 << 16)
                    if not part:
                        break
                    received += part
                is_late = time.monotonic() > deadline
                if is_late or os.getppid() != self._parent:
                    os.kill(child, signal.SIGKILL)
                    break
        finally:
            os.close(reading)
            _, status = os.waitpid(child, 0)
        if os.getppid() != self._parent:
            sys.exit(1)  # nobody is left to listen
        return received, is_late, status


def _be_the_child(run: Run, writing: int) -> None:
    """Runs, reports, and ends without the parent's clean-up."""

    def report(facts: dict[str, Any]) -> None:
        os.write(writing, json.dumps(_finite(facts)).encode() + b"\n")

    try:
        warnings.simplefilter("ignore")
        try:
            report(run(report) | {"status": "ok", "message": None})
        except MemoryError as problem:
            report({"status": "memory", "message": str(problem) or "out of memory"})
        except work.NotPossibleError as problem:
            report({"status": "skipped", "message": str(problem)})
        except Exception as problem:
            report({"status": "crash", "message": f"{type(problem).__name__}: {problem}"})
    finally:
        os._exit(0)


def _killed(number: int, seconds: float) -> dict[str, Any]:
    if number == signal.SIGPROF:
        return {"status": "timeout", "message": f"stopped after {seconds:g} s of processor time"}
    if number == signal.SIGKILL:  # not ours: the system does this when memory is short
        return {"status": "memory", "message": "killed by the system"}
    return {"status": "crash", "message": f"killed by {signal.Signals(number).name}"}


@contextmanager
def _limited(seconds: float, megabytes: float) -> Iterator[dict[str, float]]:
    """Limits the block; afterwards, the dict has its processor seconds and its peak of memory."""
    _give_back_freed_memory()
    resident, address_space = _memory("VmRSS"), _memory("VmSize")
    limit = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (address_space + int(megabytes * 1e6), limit[1]))
    _reset_peak()
    cost: dict[str, float] = {}
    start = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield cost
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        cost["seconds"] = time.process_time() - start
        resource.setrlimit(resource.RLIMIT_AS, limit)
        cost["megabytes"] = max(0, _memory("VmHWM") - resident) / 1e6


def _memory(name: str) -> int:
    """Bytes, from Linux's account of this process."""
    with open("/proc/self/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _give_back_freed_memory() -> None:
    """Without this, a fit that uses what earlier ones freed would seem to need no memory."""
    with suppress(AttributeError, OSError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def _reset_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _theory(task: dict[str, Any]) -> dict[str, Any]:
    start = time.process_time()
    values = theory.measure(task["max_iter"], task["seeds"], theory.Setting(**task.get("setting", {})))
    return {"values": json.dumps(values), "seconds": time.process_time() - start}


def _finite(answer: dict[str, Any]) -> dict[str, Any]:
    """Values that JSON can hold: no NumPy numbers, and None for those that are not finite."""
    plain = {name: value.item() if hasattr(value, "item") else value for name, value in answer.items()}
    return {
        name: None if isinstance(value, float) and not abs(value) < float("inf") else value
        for name, value in plain.items()
    }


def main() -> None:
    """Answers requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not come between the answers
    worker = Worker()
    for line in sys.stdin:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = worker.answer(json.loads(line))
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()

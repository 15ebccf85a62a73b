"""A process that makes one run after another, each in a child of its own that is held to its limits.

    python -m experiments.worker

It reads a task a line from standard input and answers each with a line, both JSON. Rows are read and code is compiled
here, before the child is born: a child begins at once, and what it measures is the fit alone. The clock of the fit is
the processor's, so that other programs do not matter, and its memory is what it takes above what was there before.
"""

import json
import os
import resource
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from experiments import theory, work
from experiments.datasets import Dataset
from experiments.work import Tell

__all__ = ["main"]

Run = Callable[[Tell], dict[str, Any]]

_PATIENCE = 4.0  # times the limit of seconds, by the clock on the wall, for a fit and all around it
_AROUND = 120.0  # seconds for all around it
_POLL = 0.2


class Worker:
    """The rows at hand, and what has been compiled."""

    def __init__(self) -> None:
        self._at_hand: tuple[Any, Dataset] | None = None
        self._warm: set[str] = set()
        self._parent = os.getppid()

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What came of a task: a status, and what was measured if it is "ok"."""
        task, seconds, megabytes = asked["task"], asked["seconds"], asked["megabytes"]
        if task["part"] == "theory":
            return self._in_a_child(lambda _: _theory(task), 100 * seconds)
        try:
            data = self._data(task)
        except (ImportError, OSError, ValueError) as problem:
            return {"status": "no data", "message": str(problem)}
        self._warm_up(task, data)
        if task["part"] == "tuning":
            return self._in_a_child(lambda tell: work.tune(task, data, tell), 20 * seconds)
        return self._in_a_child(lambda tell: work.fit(task, data, tell, _limited(seconds, megabytes)), seconds)

    def _data(self, task: dict[str, Any]) -> Dataset:
        wanted = (task["set"], task["synthetic"], task["rows"] if task["synthetic"] else None, task["part"] == "times")
        if self._at_hand is None or self._at_hand[0] != wanted:
            self._at_hand = None  # two sets at a time may be too much
            self._at_hand = wanted, work.dataset(task)
        return self._at_hand[1]

    def _warm_up(self, task: dict[str, Any], data: Dataset) -> None:
        """Compiles what the task needs; what goes wrong here will go wrong in the child too, and be told there."""
        name = f"{task['part'] == 'ablation'} {task['solver']} {data.n_dims}"
        if name in self._warm or (task["part"] == "tuning" and task["protocol"] == "honest"):
            return
        self._warm.add(name)
        try:
            work.warm(task, data)
        except Exception:
            return

    def _in_a_child(self, run: Run, seconds: float) -> dict[str, Any]:
        """What `run` returns, and what it tells before, in a process that may die on the way."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover (who watches lines watches a child from its next call on)
            os.close(reading)
            _be_the_child(run, writing)
        os.close(writing)
        patience = _PATIENCE * seconds + _AROUND
        deadline, told, late = time.monotonic() + patience, b"", False
        try:
            while True:
                if select.select([reading], [], [], _POLL)[0]:
                    part = os.read(reading, 1 << 16)
                    if not part:
                        break
                    told += part
                late = time.monotonic() > deadline
                if late or os.getppid() != self._parent:
                    os.kill(child, signal.SIGKILL)
                    break
        finally:
            os.close(reading)
            _, status = os.waitpid(child, 0)
        if os.getppid() != self._parent:
            sys.exit(1)  # nobody is left to listen
        answer: dict[str, Any] = {}
        for line in told.splitlines():
            answer |= json.loads(line)
        if late:
            return answer | {"status": "timeout", "message": f"stopped after {patience:.0f} s by the clock on the wall"}
        if os.WIFSIGNALED(status):
            return answer | _killed(os.WTERMSIG(status), seconds)
        return {"status": "crash", "message": "the process ended without a word"} | answer


def _be_the_child(run: Run, writing: int) -> None:
    """Runs, tells, and ends without what the parent would do at its end."""

    def tell(facts: dict[str, Any]) -> None:
        os.write(writing, json.dumps(_finite(facts)).encode() + b"\n")

    try:
        warnings.simplefilter("ignore")
        try:
            tell(run(tell) | {"status": "ok", "message": None})
        except MemoryError as problem:
            tell({"status": "memory", "message": str(problem) or "out of memory"})
        except work.TooFewRowsError as problem:
            tell({"status": "skipped", "message": str(problem)})
        except Exception as problem:
            tell({"status": "crash", "message": f"{type(problem).__name__}: {problem}"})
    finally:
        os._exit(0)


def _killed(number: int, seconds: float) -> dict[str, Any]:
    if number == signal.SIGPROF:
        return {"status": "timeout", "message": f"stopped after {seconds:g} s of the processor"}
    if number == signal.SIGKILL:  # not by us: the system does this when memory is short
        return {"status": "memory", "message": "killed by the system"}
    return {"status": "crash", "message": f"killed by {signal.Signals(number).name}"}


@contextmanager
def _limited(seconds: float, megabytes: float) -> Iterator[dict[str, float]]:
    """Holds what is inside to its limits; the dict has the processor's seconds and the peak of memory afterwards."""
    before, taken = _memory("VmRSS"), _memory("VmSize")
    most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + int(megabytes * 1e6), most[1]))
    _forget_peak()
    cost: dict[str, float] = {}
    start = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield cost
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        cost["seconds"] = time.process_time() - start
        resource.setrlimit(resource.RLIMIT_AS, most)
        cost["megabytes"] = max(0, _memory("VmHWM") - before) / 1e6


def _memory(name: str) -> int:
    """Bytes, from Linux's account of this process."""
    with open("/proc/self/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _forget_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _theory(task: dict[str, Any]) -> dict[str, Any]:
    start = time.process_time()
    values = theory.measure(task["max_iter"], task["seeds"])
    return {"values": json.dumps(values), "seconds": time.process_time() - start}


def _finite(answer: dict[str, Any]) -> dict[str, Any]:
    """JSON knows neither NumPy's numbers nor infinite ones."""
    plain = {name: value.item() if hasattr(value, "item") else value for name, value in answer.items()}
    return {
        name: None if isinstance(value, float) and not abs(value) < float("inf") else value
        for name, value in plain.items()
    }


def main() -> None:
    """Answers tasks until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not come between the answers
    worker = Worker()
    for line in sys.stdin:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = worker.answer(json.loads(line))
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()

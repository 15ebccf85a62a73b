"""A fuzzer: files and arguments that are nearly right, made from a seed, and a process of its own to try them in.

``python tests/fuzzing.py models 0 1000`` tries the first thousand cases of a target of `fuzz_targets`. A case is known
by its number: what it does depends on nothing else, so that ``... models 417 1`` does again what went wrong there.

In a process of its own, a crash of compiled code or a hang ends that process only, and the number of the case is known.
Address space is limited, so that what asks for far too much memory fails at once instead of taking the machine.
"""

import contextlib
import faulthandler
import json
import os
import resource
import string
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from random import Random

SECONDS = 20  # a case may take; a busy machine is slow
MEGABYTES = 100  # that a case may take above what the process had before
ARROW_MEGABYTES = 2200  # a forged page may say of itself that it has up to 2 GiB, and Arrow makes room for it
PREDICTION_MEGABYTES = 4096  # that a stranger's model may take to predict
_TOGETHER = 5_000  # cases that one process tries
_ADDRESSES = 3 << 30  # bytes of address space above that
INTERESTING = (0, 1, -1, 2, 3, 7, 127, 128, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**62)
INTERESTING += (2**63 - 1, -(2**63), 2**64 - 1, 10**19)
REALS = (0.0, -0.0, 0.5, 1.5, -1.5, 1e-320, 1e-30, 1e30, 1e300, 1.7e308)
WORDS = (
    "",
    " ",
    "a",
    "x" * 300,
    "naïve ☃",
    "\ud800",
    "\0",
    "\x1b[31m",
    "'",
    '"',
    "[/red]",
    "[bold]",
    "{}",
    "%s",
    "None",
    "nan",
)


class Chance(Random):
    """Random choices of what breaks programs."""

    def often(self, share=0.5):
        return self.random() < share

    def number(self):
        match self.randrange(4):
            case 0:
                return self.choice(INTERESTING)
            case 1:
                return self.randrange(-10, 100)
            case 2:
                return self.choice(REALS)
            case _:
                return self.uniform(-3, 3)

    def text(self):
        if self.often(0.7):
            return self.choice(WORDS)
        return "".join(self.choice(string.printable[:94]) for _ in range(self.randrange(12)))

    def json(self, words=(), depth=2):
        """Any JSON, some of it made of `words` that mean something to the reader."""
        kind = self.randrange(9 if depth else 6)
        if kind < 2:
            return self.number()
        if kind < 4:
            return self.choice(words) if words and self.often() else self.text()
        if kind < 6:
            return self.choice((None, True, False))
        if kind < 7:
            return [self.json(words, depth - 1) for _ in range(self.randrange(4))]
        names = [self.choice(words) if words and self.often(0.7) else self.text() for _ in range(self.randrange(3))]
        return {name: self.json(words, depth - 1) for name in names}

    def damaged(self, raw, times=None):
        """Bytes changed, cut, doubled or put in at some places."""
        raw = bytearray(raw)
        for _ in range(times or self.choice((1, 1, 1, 2, 3, 8))):
            at = self.randrange(len(raw) + 1)
            length = self.choice((1, 1, 2, 4, 8, self.randrange(64)))
            match self.randrange(8):
                case 0 | 1 if at < len(raw):
                    raw[at] ^= 1 << self.randrange(8)
                case 2:
                    raw[at : at + length] = self.randbytes(length)
                case 3:
                    del raw[at : at + length]
                case 4:
                    raw[at:at] = raw[self.randrange(len(raw) + 1) :][:length]
                case 5:
                    value = self.choice(INTERESTING) & (2**64 - 1)
                    size = self.choice((1, 2, 4, 8))
                    raw[at : at + size] = value.to_bytes(16, self.choice(("little", "big")))[:size]
                case 6 if self.often(0.3):
                    del raw[at:]
                case 7:
                    raw[at:at] = bytes([self.choice(b"\0\xff\n\r\t ,;:\"'-.0123456789eE[]{}")]) * self.choice(
                        (1, 1, 5, 999)
                    )
        return bytes(raw)

    def retold(self, text, words=()):
        """Text whose lines and words are changed, swapped, doubled or left out."""
        lines = text.split("\n")
        for _ in range(self.choice((1, 1, 2, 4))):
            at = self.randrange(len(lines))
            match self.randrange(6):
                case 0:
                    lines[at : at + 1] = []
                case 1:
                    lines.insert(at, self.choice(lines) if lines else "")
                case 2:
                    lines[at : at + 1] = [self.text() if self.often() else self.choice(words or WORDS)]
                case _:
                    pieces = lines[at].replace(":", " : ").replace(",", " , ").replace("=", " = ").split(" ")
                    where = self.randrange(len(pieces))
                    new = (
                        self.choice(words)
                        if words and self.often(0.4)
                        else self.choice((self.text(), str(self.number())))
                    )
                    pieces[where : where + self.randrange(2)] = [new]
                    lines[at] = "".join(
                        piece + ("" if piece in ":,=" else " " * (" " in lines[at])) for piece in pieces
                    )
            lines = lines or [""]
        return "\n".join(lines)


def run(target, first, count):
    """Tries cases in this process: how often each outcome came, and what must not happen, once for each kind."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    import fuzz_targets

    note = os.environ.get("FUZZ_NOTE")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        tried = fuzz_targets.TARGETS[target](Path(folder))
        for number in range(20):
            with contextlib.suppress(Exception):
                tried(Chance(f"warm {number}"))
        space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        most = PREDICTION_MEGABYTES if target == "hostile numbers" else MEGABYTES
        addresses = space + _ADDRESSES + (most << 20)
        resource.setrlimit(resource.RLIMIT_AS, (addresses, addresses))
        outcomes, found, slowest, largest, start = {}, {}, (0.0, 0), (0.0, 0), _megabytes()
        with open(note or os.devnull, "wb", buffering=0) as place:
            for number in range(first, first + count):
                if note:
                    os.pwrite(place.fileno(), b"%12d" % number, 0)
                faulthandler.dump_traceback_later(SECONDS, exit=True)
                begun, before = time.monotonic(), _megabytes()
                try:
                    outcome = tried(Chance(f"{target} {number}"))
                except Exception as problem:
                    root = problem
                    while root.__cause__ is not None:
                        root = root.__cause__
                    frames = traceback.extract_tb(root.__traceback__)
                    key = f"{type(root).__name__} in {frames[-1].filename}:{frames[-1].lineno}"
                    found.setdefault(key, f"case {number}: {traceback.format_exc()}")
                    outcome = "FOUND"
                slowest = max(slowest, (round(time.monotonic() - begun, 3), number))
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
                grown = _peak() - before
                largest = max(largest, (round(grown, 1), number))
                if grown > (ARROW_MEGABYTES if "parquet" in outcome else most):
                    found[f"memory in case {number}"] = f"case {number}: {grown:.0f} MB above what there was before"
        faulthandler.cancel_dump_traceback_later()
        os.chdir("/")
        more = {"outcomes": dict(sorted(outcomes.items())), "found": found}
        return more | {"slowest": slowest, "largest": largest, "left_behind": round(_megabytes() - start, 1)}


def _megabytes():
    """The memory that this process has now, from where its peak is counted."""
    Path("/proc/self/clear_refs").write_text("5")
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def _peak():
    """Not `ru_maxrss`, which a process takes over from the one that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def memory_of(action):
    """How many MB an action takes at its peak above what there was before, and what it returns."""
    before = _megabytes()
    result = action()
    return _peak() - before, result


def run_apart(target, first, count):
    """Tries cases in processes of their own, and returns how often each outcome came."""
    outcomes = {}
    for start in range(first, first + count, _TOGETHER):
        done = _in_a_process(target, start, min(_TOGETHER, first + count - start))
        assert target == "command line" or done["left_behind"] < MEGABYTES, done
        for name, number in done["outcomes"].items():
            outcomes[name] = outcomes.get(name, 0) + number
    return outcomes


def _in_a_process(target, first, count):
    """What came out; or an AssertionError that says at which case the process ended and why."""
    with tempfile.NamedTemporaryFile() as note:
        command = [sys.executable, __file__, target, str(first), str(count)]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,  # a command that reads rows from there would wait
            capture_output=True,
            text=True,
            env={**os.environ, "FUZZ_NOTE": note.name},
            check=False,
        )
        last = note.read().decode().strip()
    if done.returncode:
        raise AssertionError(
            f"{target}, case {last} (python tests/fuzzing.py {target} {last} 1): exit code {done.returncode}\n"
            + done.stderr[-4000:]
        )
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent.parent))  # the experiments are not installed
    result = run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    print(json.dumps(result | {"found": list(result["found"])}))
    for text in result["found"].values():
        print(text, file=sys.stderr)
    sys.exit(1 if result["found"] else 0)

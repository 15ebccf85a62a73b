"""Compiled functions, and the files that cache them for the next process.

Numba's own cache has three faults that are avoided here. It compiles a function again only if its own file has changed,
but ours call functions of other files: after an upgrade, old machine code could be used. Two processes that compile the
same function for different types at the same moment give both results the same number, so that one of them is later
read in place of the other. And a failure to write or read a file is an error. Here a file name covers everything that
determines the content, and if a file is missing or unreadable, the function is compiled.
"""

import hashlib
import os
import pickle
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import event
from numba.core.compiler_lock import global_compiler_lock

from s3vm._utils.progress import compile_clock


def compiled(**options: Any) -> Callable[[Any], Any]:
    """`numba.njit` for functions that Python calls: without the GIL, and cached in a file."""

    def make(function: Any) -> Any:
        try:
            made = njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:  # no folder can hold the cache
            return njit(nogil=True, **options)(function)
        files = getattr(getattr(made, "_cache", None), "_cache_file", None)
        if files is not None:  # None if the JIT is off
            module = function.__globals__["__name__"]
            files.save, files.load = partial(_save, files, module), partial(_load, files, module)
        return made

    return make


@cache
def _sources(module: str) -> str:
    """The digest of all source files that a function of this module may use.

    These are the module's own file and those of all modules that it imports from its package, directly or not. Imports
    inside functions do not count: what they load, compiled code cannot name, and may or may not have been loaded yet.
    """
    package = module.partition(".")[0]
    imports = re.compile(rf"^(?:from|import)\s+({package}\.[\w.]+|{package})(?:\s+import\s+(\([^)]*\)|.*))?", re.M)
    waiting, contents = [module], dict[str, str]()
    while waiting:
        name = waiting.pop()
        path = getattr(sys.modules.get(name), "__file__", None)
        if name in contents or name == package or path is None:
            continue
        contents[name] = Path(path).read_text("utf-8")
        for source, names in imports.findall(contents[name]):
            waiting += [source, *(f"{source}.{part}" for part in re.findall(r"\w+", names))]
    return _digest("".join(contents[name] for name in sorted(contents)).encode())


def _save(files: Any, module: str, key: Any, data: Any) -> None:
    content = pickle.dumps(data, protocol=-1)
    with suppress(OSError):
        files._save_data(_name(files, module, key), (_digest(content), content))


def _load(files: Any, module: str, key: Any) -> Any:
    with suppress(Exception):  # whatever is wrong with the file, the function can be compiled
        digest, content = files._load_data(_name(files, module, key))
        if digest == _digest(content):  # never run damaged code
            return pickle.loads(content)
    return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _name(files: Any, module: str, key: Any) -> str:
    """The file name, which covers the types, the processor, the sources and the version."""
    content_key = repr((files._version, _sources(module), key)).encode()
    return f"{files._index_name.removesuffix('.nbi')}.{_digest(content_key)[:24]}.nbc"


class _Listener(event.Listener):
    """Runs the clock while numba compiles, which it does under a lock."""

    on_start, on_end = compile_clock.start, compile_clock.stop


event.register("numba:compile", _Listener())

if hasattr(os, "register_at_fork"):
    # A child forked while another thread compiles would wait forever for a lock that nobody releases.
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )

"""Compiled functions, and the files that keep them for the next process.

Numba's own files have three faults that we do without. It compiles again when the file of a function has changed, but
ours are made of functions of other files too: an upgrade could go on with the machine code of the version before. Two
processes that compile the same function for other types at the same moment give both the same number, and whoever reads
it later gets the wrong one. And what cannot be kept, or cannot be read again, is an error. Here a file is named by all
that decides what is in it, and where there is none, the function is compiled.
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
from numba.core.compiler_lock import global_compiler_lock

__all__ = ["compiled"]


def compiled(**options: Any) -> Callable[[Any], Any]:
    """`numba.njit` for functions that Python calls: without the GIL, and kept in a file."""

    def make(function: Any) -> Any:
        try:
            made = njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:  # there is no folder to keep it in
            return njit(nogil=True, **options)(function)
        files = getattr(getattr(made, "_cache", None), "_cache_file", None)
        if files is not None:  # it is none where nothing is compiled
            module = function.__globals__["__name__"]
            files.save, files.load = partial(_save, files, module), partial(_load, files, module)
        return made

    return make


@cache
def _sources(module: str) -> str:
    """The digest of all source files that a function of this module can be made of.

    These are the module's own file and those of the modules that it imports from its package, directly or not.
    """
    package = module.partition(".")[0]
    imports = re.compile(rf"^\s*(?:from|import)\s+({package}\.[\w.]+|{package})(?:\s+import\s+(\([^)]*\)|.*))?", re.M)
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
    with suppress(Exception):  # whatever is wrong with the file, there is another way
        digest, content = files._load_data(_name(files, module, key))
        if digest == _digest(content):  # else it would be run as it is
            return pickle.loads(content)
    return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _name(files: Any, module: str, key: Any) -> str:
    """Types, processor, sources and version decide what is in a file."""
    decisive = repr((files._version, _sources(module), key)).encode()
    return f"{files._index_name.removesuffix('.nbi')}.{_digest(decisive)[:24]}.nbc"


if hasattr(os, "register_at_fork"):
    # A child forked while another thread compiles would wait for ever for the lock, which nobody there gives back.
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )

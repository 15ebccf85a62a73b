"""Machine code that is kept on disk."""

import subprocess
import sys

import numpy as np

from effort import cases

CODE = """
import sys
sys.path.insert(0, sys.argv[1])
from kept import outer
if "lazy" in sys.argv:
    outer.load()
print(outer.outer(1.0), sum(outer.outer.stats.cache_hits.values()))
"""


def test_what_a_kept_function_is_made_of_is_watched(tmp_path):
    """A change in another file of the folder compiles again; without one, nothing is compiled."""
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "outer.py").write_text(
        "from s3vm._utils.compiled import compiled\nfrom kept.inner import inner\n\n"
        "@compiled()\ndef outer(x):\n    return inner(x)\n\n\ndef load():\n    from kept import lazy\n"
    )
    (folder / "lazy.py").write_text("LOADED = True\n")

    def run(factor, *more):
        (folder / "inner.py").write_text(f"from numba import njit\n\n@njit\ndef inner(x):\n    return {factor} * x\n")
        done = subprocess.run(
            [sys.executable, "-B", "-c", CODE, tmp_path, *more], capture_output=True, text=True, timeout=300, check=True
        )
        return done.stdout.split()

    assert run(2.0) == ["2.0", "0"]
    assert run(2.0, "lazy") == ["2.0", "1"], "whatever else is loaded"
    (file,) = (folder / "__pycache__").glob("*.nbc")
    whole = bytearray(file.read_bytes())
    for at in np.linspace(100, len(whole) - 100, cases(2, 7), dtype=int):  # what is damaged is never run
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert run(2.0) == ["2.0", "0"]
    assert run(3.0) == ["3.0", "0"]

"""The command line: `s3vm`, or `python -m s3vm`."""

import sys
from importlib.util import find_spec

from s3vm import __version__

__all__ = ["main"]

_NEEDED = ("typer", "rich", "pyarrow")


def main() -> None:
    """Runs the command that the arguments of this process name, and exits with its code."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing and sys.argv[1:] == ["--version"]:
        print(f"s3vm {__version__}")
        return
    if missing:
        sys.exit(f's3vm: the command line needs {", ".join(missing)}: pip install "s3vm[cli]"')
    from s3vm.cli.app import app

    app(prog_name="s3vm")

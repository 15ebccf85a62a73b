"""The command line: `s3vm`, or `python -m s3vm`."""

import sys
from importlib.util import find_spec

from s3vm import __version__

_REQUIRED = ("typer", "rich", "pyarrow")


def main() -> None:
    """Runs the command given by the arguments of this process."""
    missing = [name for name in _REQUIRED if find_spec(name) is None]
    if missing and sys.argv[1:] == ["--version"]:
        print(f"s3vm {__version__}")
        return
    if missing:
        sys.exit(f's3vm: the command line needs {", ".join(missing)}: pip install "s3vm[cli]"')
    from s3vm.cli.app import app

    app(prog_name="s3vm")

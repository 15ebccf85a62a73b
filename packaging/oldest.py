"""The lower bounds of pyproject.toml as pins for pip: `pip install --constraint FILE`.

    python packaging/oldest.py > oldest.txt

`make test-long` runs the tests with them. A bound is written once, in pyproject.toml; what has no bound
there is as new as the rest allows.
"""

import re
import tomllib
from pathlib import Path

# Extras for other hardware and for the documentation, and tools that check the code.
ELSEWHERE = {"docs", "gpu"}
TOOLS = {"import-linter", "mypy", "ruff"}

_BOUND = re.compile(r"(?P<name>[\w.-]+)(\[[\w,.-]+\])?\s*>=\s*(?P<version>[\w.]+)\s*(;.*)?")


def pins() -> list[str]:
    """``name==version`` for every requirement that has a lower bound."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = [
        *project["dependencies"],
        *(line for name in sorted(extras.keys() - ELSEWHERE) for line in extras[name]),
    ]
    oldest = {bound["name"]: bound["version"] for line in requirements if (bound := _BOUND.fullmatch(line))}
    return [f"{name}=={version}" for name, version in sorted(oldest.items()) if name not in TOOLS]


if __name__ == "__main__":
    print("\n".join(pins()))

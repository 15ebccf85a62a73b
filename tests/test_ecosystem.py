"""The scripts in `ecosystem/`, each a recipe of the page "With other tools", run as they are."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from pages import ROOT

SCRIPTS = sorted((Path(__file__).parent / "ecosystem").glob("*.py"))
PAGE = (ROOT / "docs" / "tools.md").read_text()
IN_EVERY_TEST = {"scikit_learn"}  # the others need tools that are not in .venv
CHECKED_BY_MYPY = {"typed_user"}


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(path, id=path.stem, marks=() if path.stem in IN_EVERY_TEST else pytest.mark.tools)
        for path in SCRIPTS
        if path.stem not in CHECKED_BY_MYPY
    ],
)
def test_script(script):
    """Warnings that name the script's own lines, as ours do, are errors."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-W", "error:::__main__", script],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_every_script_is_on_the_page():
    named = re.findall(r"\]\(\.\./tests/ecosystem/(\w+)\.py\)", PAGE)
    assert {*named, *CHECKED_BY_MYPY} == {path.stem for path in SCRIPTS}


@pytest.mark.tools
def test_versions_on_the_page():
    """They are those with which the scripts have just run."""
    needed = dict(line.split("==") for line in _requirements())
    table = "".join(line for line in PAGE.splitlines() if line.startswith("|"))
    for name, version in needed.items():
        assert metadata.version(name).partition("+")[0] == version
        assert version in table or name in ("nbclient",), name


def _requirements():
    text = (Path(__file__).parent / "ecosystem" / "requirements.txt").read_text()
    return [line for line in text.splitlines() if not line.startswith("#")]

"""The code and the commands of a page, run as they stand there."""

import re
from pathlib import Path

from typer.testing import CliRunner

from s3vm.cli.app import app

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page):
    """Pairs of language and text of all code blocks of a page; what is printed has no language.

    Directives of Sphinx, whose names are in braces, are left out.
    """
    return [match.groups() for match in page_blocks((ROOT / page).read_text())]


def page_blocks(text):
    """Matches of the code blocks of a text, but for directives of Sphinx."""
    return [match for match in _BLOCK.finditer(text) if not match[1].startswith("{")]


def commands(block):
    """Pairs of command and printed text, of a block of lines that begin with a dollar and what they print."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
    assert parts[0] == "", f"no command at the top of {block!r}"
    return list(zip(parts[1::2], parts[2::2]))


def printed(command):
    """What ``s3vm ...``, perhaps ``| head -n``, prints on a terminal of 100 columns."""
    words, _, head = command.removeprefix("s3vm ").partition(" | head -")
    result = CliRunner().invoke(app, words.split(), env={"COLUMNS": "100", "TERM": "dumb"})
    lines = result.output.splitlines()
    return "\n".join(lines[: int(head)] if head else lines)


def in_substance(text):
    """Without numbers, which differ between machines, and line breaks, which differ with them."""
    lines = [line for line in text.splitlines() if not line.startswith("  s3vm ")]  # solvers come and go
    return " ".join(re.sub(r"[-+±]?\d[\d.,]*", "#", " ".join(lines)).replace("─", "").split())

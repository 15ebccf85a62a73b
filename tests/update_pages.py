"""Runs the pages and writes what they print into them: python tests/update_pages.py [PAGE ...]. Then read the diff."""

import io
import os
import sys
import tempfile
from contextlib import redirect_stdout

import matplotlib

from pages import ROOT, commands, page_blocks, printed

PAGES = ("README.md", "docs/index.md", "docs/quickstart.md", "docs/guide.md", "docs/serving.md", "docs/cli.md")


def updated(page):
    """The text of the page, with what its code and commands print today."""
    text, names, output, parts, end = (ROOT / page).read_text(), {}, "", [], 0
    for match in page_blocks(text):
        language, shown = match.groups()
        if language == "python":
            stream = io.StringIO()
            with redirect_stdout(stream):
                exec(compile(shown, page, "exec"), names)
            output = stream.getvalue()
        elif language == "console":
            lines = "".join(f"$ {command}\n{printed(command)}\n" for command, _ in commands(shown)).splitlines()
            shown = "".join(f"{line.rstrip()}\n" for line in lines)
        elif language == "" and output:
            shown, output = output, ""
        parts += [text[end : match.start(2)], shown]
        end = match.end(2)
    return "".join([*parts, text[end:]])


if __name__ == "__main__":
    matplotlib.use("Agg")
    for name in sys.argv[1:] or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            (ROOT / name).write_text(updated(name))
            os.chdir(ROOT)
        print(name)

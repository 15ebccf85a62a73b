"""The README and the pages: their code and commands run, and print what the pages show."""

import re
import tomllib

import pytest

from pages import ROOT, blocks, commands, in_substance, printed

README = ROOT / "README.md"


@pytest.mark.parametrize(
    ("page", "n_python", "n_shell"),
    [
        ("README.md", 2, 3),
        ("docs/index.md", 1, 1),
        ("docs/quickstart.md", 7, 1),
        ("docs/guide.md", 2, 0),
        ("docs/serving.md", 5, 0),
        ("docs/tools.md", 1, 0),
    ],
)
def test_page(page, n_python, n_shell, capsys, tmp_path, monkeypatch):
    """Runs the page word for word, from top to bottom, in an empty folder."""
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    names, ran = {}, {"python": 0, "shell": 0}
    output = ""  # of the block before
    for language, text in blocks(page):
        if language == "python":
            assert output == "", f"{page} does not show that its code prints {output!r}"
            exec(compile(text, page, "exec"), names)
            output = capsys.readouterr().out
            ran["python"] += 1
        elif language == "console":
            for command, wanted in commands(text):
                assert in_substance(printed(command)) == in_substance(wanted), command
            ran["shell"] += 1
        elif language == "sh":
            for command in text.splitlines():
                check_without_running(command.partition("#")[0].strip())
            ran["shell"] += 1
        else:
            assert language == "", f"{page} has a block of {language}, which is not checked"
            assert text == output
            output = ""
    assert output == ""
    assert (ran["python"], ran["shell"]) == (n_python, n_shell)


def check_without_running(command):
    """Commands that install something or take minutes: checks that whatever they name exists."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if match := re.fullmatch(r"make (\w+)", command):
        assert re.search(rf"^{match[1]}: .venv/", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif match := re.fullmatch(
        r"S3VM_DATA=folder python -m experiments bench (\S+)|python -m experiments report (\w+)\.parquet", command
    ):
        assert (ROOT / (match[1] or f"experiments/{match[2]}.toml")).exists()
    elif match := re.fullmatch(r'pip install (?:\.|"\.\[([\w,]+)\]")', command):
        assert set((match[1] or "").split(",")) <= {"", *project["optional-dependencies"]}
    else:
        assert command in ("python3 -m venv .venv", ". .venv/bin/activate"), f"{command!r} is not checked"


def test_installing_in_a_sentence():
    """The extras that are named in sentences exist, too."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for extra in re.findall(r'pip install "(?:s3vm|\.)\[([\w,]+)\]', page.read_text()):
            assert set(extra.split(",")) <= set(extras), f"{page.name}: {extra}"


def test_links_lead_to_files():
    for page in [README, *README.parent.glob("*.md"), *README.parent.glob("docs/*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_pages_show_their_pictures_on_a_code_host():
    """Pictures that only a build of the documentation draws are on its front page alone."""
    for page in sorted({*ROOT.glob("docs/*.md")} - {ROOT / "docs" / "index.md"}):
        assert "{figure}" not in page.read_text(), page.name


def test_reference_is_complete():
    """Every public name is on the page of the API."""
    import s3vm
    from s3vm.inspect import plot
    from s3vm.sources import readers

    listed = set(re.findall(r"^   ([\w.]+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE))
    rooms = {"inspect.plot": plot, "sources.readers": readers}
    for name in [*s3vm.__all__, *(f"{room}.{name}" for room, module in rooms.items() for name in module.__all__)]:
        assert name in listed, f"docs/api.md lacks {name}"


def test_public_names():
    import s3vm

    assert sorted(s3vm.__all__) == sorted(name for names in s3vm._HOMES.values() for name in names)
    for name in s3vm.__all__:
        assert getattr(getattr(s3vm, name), "__name__", "SKOPS_TRUSTED") == name
    assert set(s3vm.__all__) <= set(dir(s3vm))
    with pytest.raises(AttributeError, match="no attribute 'SVC'"):
        _ = s3vm.SVC

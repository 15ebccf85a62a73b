"""The README's first example prints what the README says it prints."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_first_example(capsys):
    code, output = re.search(r"```python\n(.*?)```\n```\n(.*?)```", README.read_text(), re.DOTALL).groups()
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == output


def test_serving_page(capsys, tmp_path, monkeypatch):
    """Its code runs from top to bottom, and prints what the page says it prints."""
    monkeypatch.chdir(tmp_path)
    page, names = (README.parent / "docs" / "serving.md").read_text(), {}
    blocks = re.findall(r"```python\n(.*?)```\n(?:```\n(.*?)```)?", page, re.DOTALL)
    assert len(blocks) == 5
    for code, output in blocks:
        exec(compile(code, "serving.md", "exec"), names)
        assert capsys.readouterr().out == output


def test_links_lead_somewhere():
    for page in [README, *README.parent.glob("*.md"), *README.parent.glob("docs/*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_public_names():
    import s3vm

    assert sorted(s3vm.__all__) == sorted(name for names in s3vm._HOMES.values() for name in names)
    for name in s3vm.__all__:
        assert getattr(s3vm, name).__name__ == name
    assert set(s3vm.__all__) <= set(dir(s3vm))
    with pytest.raises(AttributeError, match="no attribute 'SVC'"):
        _ = s3vm.SVC

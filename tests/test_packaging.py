"""What a built package declares and contains; `make smoke` builds and installs it."""

import re
import runpy
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import pytest
import yaml

import s3vm

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_one_version():
    cited = [line for line in (ROOT / "CITATION.cff").read_text().splitlines() if line.startswith("version:")]
    assert cited == [f"version: {s3vm.__version__}"]


def test_other_files_are_where_the_wheel_takes_them_from(project):
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/s3vm"]
    package = resources.files("s3vm")
    files = [path for path in Path(str(package)).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path.suffix for path in files} == {".py", ".typed", ".html", ".js"}
    assert package.joinpath("py.typed").is_file()


def test_the_sdist_takes_what_exists(project):
    for pattern in project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]:
        assert list(ROOT.glob(pattern.lstrip("/"))), pattern


def test_every_extra_has_a_smoke_test(project):
    smoke = runpy.run_path(str(ROOT / "packaging" / "smoke.py"))
    extras = set(project["project"]["optional-dependencies"])
    assert extras - smoke["ELSEWHERE"] <= set(smoke["EXTRAS"])


def test_the_oldest_versions_are_the_bounds(project):
    """Every requirement of the tests has a lower bound and is pinned to it, except for tools."""
    oldest = runpy.run_path(str(ROOT / "packaging" / "oldest.py"))
    pins, extras = oldest["pins"](), project["project"]["optional-dependencies"]
    assert "numpy==1.26" in pins
    requirements = [*project["project"]["dependencies"], *extras["test"]]
    names = {re.match(r"[\w-]+", line)[0] for line in requirements} - oldest["TOOLS"] - {"s3vm"}
    assert names <= {pin.partition("==")[0] for pin in pins}
    assert len(pins) == len({pin.partition("==")[0] for pin in pins})


def test_workflow(project):
    """Every job runs a target of the Makefile; the tests run on every Python that the package says it is for."""
    workflows = [yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    jobs = {name: job for workflow in workflows for name, job in workflow["jobs"].items()}
    pythons = re.findall(r"Python :: (3\.\d+)", " ".join(project["project"]["classifiers"]))
    assert jobs["test"]["strategy"]["matrix"]["python"] == pythons
    assert project["project"]["requires-python"] == f">={pythons[0]}"
    makefile = (ROOT / "Makefile").read_text()
    targets = {"test": "test", "docs": "docs", "wheel": "smoke", "test-long": "test-long"}
    assert set(jobs) == set(targets)
    for name, target in targets.items():
        commands = [step["run"] for step in jobs[name]["steps"] if "run" in step]
        assert commands == [f"make {target}"]
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_read_the_docs_builds_as_make_does(project):
    """With the same extra and the same configuration, and warnings are errors there too."""
    config = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text())
    assert config["python"]["install"][0]["extra_requirements"] == ["docs"]
    assert "docs" in project["project"]["optional-dependencies"]
    assert (ROOT / config["sphinx"]["configuration"]).is_file()
    assert config["sphinx"]["fail_on_warning"]


def test_extras_name_themselves_where_the_library_is_missing():
    code = """
import sys
for name in ("pyarrow", "typer", "onnx", "matplotlib", "matplotlib.pyplot"):
    sys.modules[name] = None
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in sys.modules and sys.modules[name] is None else find(name)
import s3vm
try:
    import s3vm.sources.readers
except ImportError as error:
    print(error)
from s3vm.cli import main
sys.argv = ["s3vm", "--version"]
main()
sys.argv = ["s3vm", "fit", "rows.csv"]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    missing, version = done.stdout.splitlines()
    assert missing == 'files of rows need pyarrow, which is not installed: pip install "s3vm[cli]"'
    assert version == f"s3vm {s3vm.__version__}"
    assert done.returncode == 1
    assert done.stderr == 's3vm: the command line needs typer, pyarrow: pip install "s3vm[cli]"\n'

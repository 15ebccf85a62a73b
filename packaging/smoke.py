"""Installs built packages into fresh environments and uses what they promise.

    python packaging/smoke.py dist/*.whl dist/*.tar.gz

Each package is first installed alone: whatever needs an extra must then say which one. The extras follow one by one,
and what each is for must work. The second package gets them in the opposite order, so that no extra can rely on what
another one installed.
"""

import subprocess
import sys
import tarfile
import tempfile
import textwrap
import tomllib
import venv
import zipfile
from pathlib import Path

# For development, or for hardware that this machine may lack.
ELSEWHERE = {"docs", "experiments", "gpu", "test"}

FITTED = """
    import numpy as np
    from sklearn.datasets import make_moons
    import s3vm
    X, y = make_moons(120, noise=0.1, random_state=0)
    some = np.where(np.arange(120) < 20, y, -1)
    clf = s3vm.S3VMClassifier(random_state=0).fit(X, some)
"""

ALONE = """
    import importlib, pathlib, sys
    from importlib import metadata, resources
    assert pathlib.Path(s3vm.__file__).is_relative_to(sys.prefix), s3vm.__file__
    assert metadata.version("s3vm") == s3vm.__version__
    for name in ("py.typed", "inspect/page.html", "inspect/sort.js", "inspect/label.html", "inspect/label.js"):
        assert resources.files("s3vm").joinpath(name).is_file(), name
    assert clf.score(X, y) > 0.8
    clf.save("model.s3vm")
    assert np.array_equal(s3vm.load("model.s3vm").predict(X), clf.predict(X))
    for name in s3vm.__all__:
        getattr(s3vm, name)
    uses = {
        "cli": lambda: importlib.import_module("s3vm.sources.readers"),
        "onnx": lambda: s3vm.to_onnx(clf, "model.onnx"),
        "report": lambda: s3vm.plot.decision_boundary(clf, X, some),
    }
    for extra, use in uses.items():
        try:
            use()
        except ImportError as error:
            assert f"s3vm[{extra}]" in str(error), error
        else:
            raise AssertionError(f"{extra} is here, but was not asked for")
"""

EXTRAS = {
    "cli": """
        import pathlib, subprocess, sys
        lines = [f"{a},{b},{label if label >= 0 else ''}" for (a, b), label in zip(X, some)]
        pathlib.Path("rows.csv").write_text("\\n".join(["a,b,label", *lines]))
        command = pathlib.Path(sys.executable).with_name("s3vm")
        for args in ("fit rows.csv --target label -o cli.s3vm", "info cli.s3vm",
                     "predict cli.s3vm rows.csv -o out.parquet", "predict cli.s3vm rows.csv -o out.csv"):
            subprocess.run([command, *args.split()], check=True, stdout=subprocess.DEVNULL)
        from s3vm.sources import readers
        assert readers.read("rows.csv", target="label").rows.shape == (120, 2)
        import pyarrow.parquet
        assert pyarrow.parquet.read_table("out.parquet").num_rows == 120
    """,
    "dask": """
        import dask.array
        from distributed import Client
        if __name__ == "__main__":
            with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
                rows = dask.array.from_array(X, chunks=(40, -1)), dask.array.from_array(some, chunks=40)
                distributed = s3vm.S3VMClassifier(random_state=0).fit(*rows)
                assert np.mean(distributed.predict(rows[0]).compute() == y) > 0.8
    """,
    "data": """
        import pathlib
        lines = [f"{a},{b},{label if label >= 0 else ''}" for (a, b), label in zip(X, some)]
        pathlib.Path("rows.csv").write_text("\\n".join(["a,b,label", *lines]))
        source = s3vm.FileSource("rows.csv", target="label")
        assert s3vm.S3VMClassifier(random_state=0).fit(source).score(X, y) > 0.8
    """,
    "onnx": """
        import onnx
        s3vm.to_onnx(clf, "model.onnx")
        onnx.checker.check_model(onnx.load("model.onnx"))
    """,
    "report": """
        import matplotlib
        matplotlib.use("agg")
        import pathlib
        s3vm.plot.decision_boundary(clf, X, some).figure.savefig("boundary.png")
        s3vm.write_report(clf, X, some, "report.html")
        assert "<svg" in pathlib.Path("report.html").read_text() or "<img" in pathlib.Path("report.html").read_text()
    """,
}


def main(packages: list[str]) -> None:
    with open(Path(__file__).parents[1] / "pyproject.toml", "rb") as file:
        extras = list(tomllib.load(file)["project"]["optional-dependencies"])
    unchecked = set(extras) - set(EXTRAS) - ELSEWHERE
    if unchecked:
        sys.exit(f"extras without a check in {__file__}: {', '.join(sorted(unchecked))}")
    for number, package in enumerate(packages):
        order = [extra for extra in extras if extra in EXTRAS]
        contents(Path(package))
        try_out(Path(package).resolve(), order if number % 2 == 0 else order[::-1])


def contents(package: Path) -> None:
    """Checks that a package holds what it should, and nothing else."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as archive:
            names = archive.namelist()
        needed = ["s3vm/py.typed", "s3vm/inspect/page.html", "s3vm/inspect/sort.js", "licenses/LICENSE"]
        unexpected = [name for name in names if not name.startswith(("s3vm/", "s3vm-"))]
    else:
        with tarfile.open(package) as archive:
            names = archive.getnames()
        needed = ["LICENSE", "README.md", "CHANGELOG.md", "docs/quality.md", "tests/files/1.json", "tests/toy.py"]
        unexpected = [name for name in names if "/.venv/" in name or "/dist/" in name]
    unexpected += [name for name in names if "__pycache__" in name]
    missing = [name for name in needed if not any(packed.endswith(name) for packed in names)]
    if missing or unexpected:
        sys.exit(f"{package.name}: missing {missing}, unexpected {unexpected}")


def try_out(package: Path, order: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        venv.create(room / "venv", with_pip=True)
        scripts = room / "venv" / ("Scripts" if sys.platform == "win32" else "bin")

        def run(what: str, *command: str | Path, expected: int = 0, said: str = "") -> None:
            print(f"{package.name}: {what}", flush=True)
            done = subprocess.run(command, cwd=room, capture_output=True, text=True)
            if done.returncode != expected or said not in done.stdout + done.stderr:
                sys.exit(f"failed with code {done.returncode}\n{done.stdout}\n{done.stderr}")

        def use(what: str, code: str) -> None:
            run(what, scripts / "python", "-I", "-c", textwrap.dedent(FITTED) + textwrap.dedent(code))

        def versions() -> None:
            run("s3vm --version", scripts / "s3vm", "--version", said="s3vm ")
            run("python -m s3vm --version", scripts / "python", "-m", "s3vm", "--version", said="s3vm ")

        run("install", scripts / "pip", "install", "--quiet", str(package))
        use("alone", ALONE)
        versions()
        run("s3vm fit without the extra", scripts / "s3vm", "fit", "rows.csv", expected=1, said='"s3vm[cli]"')
        for extra in order:
            run(f"install [{extra}]", scripts / "pip", "install", "--quiet", f"{package}[{extra}]")
            use(f"use [{extra}]", EXTRAS[extra])
        versions()


if __name__ == "__main__":
    main(sys.argv[1:])

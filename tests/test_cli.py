"""The command line: every command, what it prints for people and for machines, and how it fails."""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import dump_svmlight_file, make_blobs, make_moons
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import s3vm
from effort import LONG, cases
from pages import ROOT, blocks, commands, in_substance, printed
from s3vm import TSG, S3VMClassifier, S3VMClassifierCV, TableEncoder, cli
from s3vm._utils import container
from s3vm.cli.app import app
from s3vm.cli.compare import _advice
from s3vm.cli.console import Screen, seconds
from s3vm.cli.inputs import read_data
from s3vm.cli.options import InputFiles
from s3vm.solvers import SOLVERS
from s3vm.sources import readers as tables

COMMANDS = ("fit", "predict", "evaluate", "info", "export", "tune", "compare", "suggest", "label", "demo")
X, Y = make_moons(900, noise=0.15, random_state=0)
X = (X * [1, 30] + [5, 0]).astype(np.float32)
NAMES = np.array(["ham", "spam"])[Y]
KNOWN = np.arange(900) < 50


def run(*args, code=0):
    """The outcome of a command, which must end with that code."""
    result = CliRunner().invoke(app, [str(arg) for arg in args], env={"COLUMNS": "120", "TERM": "dumb"})
    assert result.exit_code == code, f"{result.stderr}\n{result.exception!r}"
    return result


def of_json(*args):
    result = run(*args, "--json")
    assert result.stderr == ""
    return json.loads(result.stdout)


def complaint(*args, code=1):
    """What a command says that fails through the user's fault, 2 for invalid options: one line."""
    result = run(*args, code=code)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


def loaded(path):
    """A model that takes arrays, whose columns have no names."""
    model = s3vm.load(path)
    vars(model[0] if hasattr(model, "steps") else model).pop("feature_names_in_", None)
    return model


def table(rows, labels=None, **more):
    columns = {"width": rows[:, 0], "height": rows[:, 1]}
    if labels is not None:
        columns["label"] = pa.array(labels)
    return pa.table(columns | more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files to learn from and to predict, and a model."""
    folder = tmp_path_factory.mktemp("cli")
    some = np.where(KNOWN[:600], NAMES[:600], "")
    pa_csv.write_csv(table(X[:600], some), folder / "mails.csv")
    pa_csv.write_csv(table(X[:50], NAMES[:50]), folder / "few.csv")
    pq.write_table(table(X[50:600]), folder / "many.parquet")
    pa_csv.write_csv(table(X[600:], NAMES[600:], id=pa.array([f"{k:04d}" for k in range(300)])), folder / "held.csv")
    pq.write_table(table(X[600:], id=np.arange(300)), folder / "new.parquet")
    np.savez(folder / "mails.npz", X=X[:600], y=np.where(KNOWN[:600], Y[:600], -1))
    run("fit", folder / "mails.csv", "-t", "label", "-o", folder / "spam.s3vm")
    pa_csv.write_csv(table(X[:9], [""] * 9), folder / "none.csv")
    ours = dict.fromkeys(("prediction", "score", "probability_ham"), X[:9, 0])
    pa_csv.write_csv(table(X[:9], id=np.arange(9), **ours), folder / "own.csv")
    np.savez(folder / "signs.npz", X=X[:60], y=np.where(np.arange(60) < 15, Y[:60], -1))
    plain = s3vm.S3VMClassifier(TSG(max_iter=2), probability=False).fit(
        table(X[:99] / [1, 30]), np.where(KNOWN[:99], Y[:99], -1)
    )
    plain.save(folder / "plain.s3vm")
    return folder


# The whole


def test_help_and_version():
    assert run("--version").stdout == f"s3vm {s3vm.__version__}\n"
    everything = run("--help").stdout
    assert run().stdout == everything
    for command in COMMANDS:
        assert command in everything
        shown = run(command, "--help").stdout
        assert "Examples" in shown
        assert f"$ s3vm {command}" in shown
        assert not {"<int>", "<float>"} & {*shown.split()}
    shown = run("label", "--help").stdout
    assert "CSV or TSV file; - is standard input" in shown
    assert "Parquet, JSON lines" not in shown


def test_as_a_module():
    done = subprocess.run([sys.executable, "-m", "s3vm", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"s3vm {s3vm.__version__}\n"
    light = "import s3vm.cli.app, sys; sys.exit('sklearn' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", light], check=False).returncode == 0, "help should come at once"


def test_without_the_extra(monkeypatch):
    monkeypatch.setattr(cli, "find_spec", lambda name: None if name in ("rich", "typer") else 1)
    with pytest.raises(SystemExit, match=r's3vm: the command line needs typer, rich: pip install "s3vm\[cli\]"'):
        cli.main()


def test_the_page_shows_what_is_printed(tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    page = blocks("docs/cli.md")
    exec(next(text for language, text in page if language == "python"), {})
    for language, text in page:
        for command, wanted in commands(text) if language == "console" else ():
            if not LONG and command.startswith(("s3vm compare", "s3vm demo")):
                continue  # seconds each, and tests of their own
            assert in_substance(printed(command)) == in_substance(wanted), command
    assert all(f"## {command}\n" in (ROOT / "docs" / "cli.md").read_text() for command in COMMANDS)


# fit


def test_fit(folder, tmp_path):
    model = tmp_path / "m.s3vm"
    args = ("fit", folder / "mails.csv", "--target", "label", "-o", model, "--test", folder / "held.csv")
    shown = run(*args).stdout
    for text in ("600 rows × 2 features, 50 labelled", "Held-out error", "Test error", "C and gamma tuned", "m.s3vm"):
        assert text in shown
    result = of_json(*args)
    assert result["data"]["classes"] == {"ham": int(sum(NAMES[:50] == "ham")), "spam": int(sum(NAMES[:50] == "spam"))}
    assert result["data"]["unlabeled"] == 550
    assert result["test"]["rows"] == 300
    assert 0 <= result["held_out"]["low"] <= result["held_out"]["error"] <= result["held_out"]["high"] < 0.3
    assert result["unlabeled"]["weight"] in (0, 0.3, 1)
    assert result["model"]["tuned"] == ["C", "gamma"]
    clf = S3VMClassifierCV(random_state=0, unlabeled=None)
    some = np.where(KNOWN[:600], NAMES[:600].astype(object), None)
    columns, _ = tables.read_columns(folder / "mails.csv", "label")
    wanted = make_pipeline(TableEncoder(unlabeled=None), clf).fit(columns, some)
    vars(wanted[0]).pop("feature_names_in_")
    np.testing.assert_array_equal(loaded(model).decision_function(X), wanted.decision_function(X))
    assert s3vm.load(model).feature_names_in_.tolist() == ["width", "height"]
    assert result["test"]["error"] == pytest.approx(1 - wanted.score(X[600:], NAMES[600:]))


def test_fit_from_several_files_and_kinds(folder, tmp_path):
    """Whatever files the same rows come from, the same function is learnt."""
    pq.write_table(table(X[:600], np.where(KNOWN[:600], NAMES[:600], None)), tmp_path / "mails.parquet")
    dump_svmlight_file(X[:600], np.where(KNOWN[:600], Y[:600], -1), str(tmp_path / "mails.svm"))
    wanted = loaded(folder / "spam.s3vm").decision_function(X)
    for files in (
        (folder / "few.csv", "-t", "label", "--unlabeled", folder / "many.parquet"),
        (tmp_path / "mails.parquet", "-t", "label"),
        (folder / "mails.npz", "--mark", "-1"),
    ):
        run("fit", *files, "-o", tmp_path / "m.s3vm")
        np.testing.assert_array_equal(loaded(tmp_path / "m.s3vm").decision_function(X), wanted)
    run("fit", tmp_path / "mails.svm", "--mark", "-1", "-o", tmp_path / "sparse.s3vm")
    assert s3vm.load(tmp_path / "sparse.s3vm").classes_.tolist() == [0, 1]
    assert run("predict", tmp_path / "sparse.s3vm", tmp_path / "mails.svm").stdout.startswith("prediction\n")


def test_dense_rows_below_sparse_ones(tmp_path):
    dump_svmlight_file(X[:50], Y[:50], str(tmp_path / "few.svmlight"))
    np.save(tmp_path / "many.npy", X[50:100])
    both = read_data(
        Screen(),
        InputFiles(data=str(tmp_path / "few.svmlight"), unlabeled=(str(tmp_path / "many.npy"),), no_scale=True),
    )
    np.testing.assert_allclose(both.rows.toarray(), X[:100], rtol=1e-6)
    assert both.labels.tolist() == [*Y[:50].tolist(), *[None] * 50]


def test_settings(folder, tmp_path):
    model = tmp_path / "m.s3vm"

    def settings(*options):
        run("fit", folder / "few.csv", "-t", "label", "--unlabeled", folder / "many.parquet", "-o", model, *options)
        found = s3vm.load(model)
        return found[-1] if hasattr(found, "steps") else found

    clf = settings("--C", 3, "--gamma", 0.7, "--weight", 0.5, "--kernel", "laplacian", "--seed", 5)
    assert type(clf) is S3VMClassifier
    assert (clf.C_, clf.gamma, clf.unlabeled_weight, clf.random_state, clf.verbose) == (3, 0.7, 0.5, 5, 0)
    assert settings("--C", 3).C_ == 3
    assert settings("--gamma", 0.7, "--solver", "tsg").kernel_.width == 0.7
    settings("--no-scale")
    np.testing.assert_array_equal(s3vm.load(model)[0].factors_, 1)


def test_a_given_c_holds_with_few_labels(tmp_path):
    labels = np.where(np.arange(200) < 12, NAMES[:200], "")
    pa_csv.write_csv(table(X[:200], labels), tmp_path / "d.csv")
    result = of_json("fit", tmp_path / "d.csv", "-t", "label", "-o", tmp_path / "m.s3vm", "--C", 4)
    assert result["model"]["C"] == 4
    result = of_json(
        "fit", tmp_path / "d.csv", "-t", "label", "-o", tmp_path / "m.s3vm", "--gamma", 0.3, "--solver", "tsg"
    )
    assert (result["model"]["C"], result["model"]["gamma"]) == (30, 0.3)


def test_columns(folder, tmp_path):
    args = ("-t", "label", "-o", tmp_path / "m.s3vm", "--C", 1, "--gamma", 1)
    run("fit", folder / "held.csv", *args, "--features", "height,width")
    assert s3vm.load(tmp_path / "m.s3vm").feature_names_in_.tolist() == ["height", "width"]
    run("fit", folder / "held.csv", *args, "--drop", "id,width")
    assert s3vm.load(tmp_path / "m.s3vm").feature_names_in_.tolist() == ["height"]


def test_where_the_model_goes(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("fit", folder / "few.csv", "-t", "label", "--C", 1, "--gamma", 1, "--quiet")
    assert result.output == ""
    assert (tmp_path / "few.s3vm").is_file()


def test_warnings(folder, tmp_path):
    model = ("-o", tmp_path / "m.s3vm")
    said = run("fit", folder / "few.csv", "-t", "label", *model).stderr
    assert "warning: no unlabelled rows: this is a plain SVM" in said
    said = run("fit", folder / "mails.csv", "-t", "label", *model, "--no-scale").stderr
    assert "features are not scaled: '1' has a standard deviation of" in said
    np.savez(tmp_path / "signs.npz", X=X[:80], y=np.where(Y[:80], 1, -1))
    assert "label -1 counts as a class" in run("fit", tmp_path / "signs.npz", *model).stderr
    labels = np.where(np.arange(600) < 100, np.where(np.arange(600) < 94, "ham", "spam"), "")
    pa_csv.write_csv(table(X[:600] + 3 * (labels == "spam")[:, None], labels), tmp_path / "skewed.csv")
    result = run("fit", tmp_path / "skewed.csv", "-t", "label", *model, "--C", 1, "--gamma", 1)
    assert "imbalanced classes (spam 6.0% of the labelled rows)" in result.stderr
    assert "Balanced error" in result.stdout
    heard = of_json("fit", folder / "few.csv", "-t", "label", *model)["warnings"]
    assert heard[0].startswith("no unlabelled rows")


def test_a_stream_and_a_folder(folder, tmp_path, monkeypatch):
    kept = of_json("fit", folder / "mails.csv", "-t", "label", "-o", tmp_path / "kept.s3vm")
    path = tmp_path / "streamed.s3vm"
    parts = tmp_path / "parts"
    parts.mkdir()
    some = np.where(KNOWN[:600], NAMES[:600], "")
    for number in range(3):
        at = slice(number * 200, number * 200 + 200)
        pq.write_table(table(X[at], some[at]), parts / f"{number}.parquet", row_group_size=70)
    report = tmp_path / "r.html"
    found = of_json("fit", parts, "-t", "label", "--stream", "-o", path, "--report", report)
    assert found["data"] == kept["data"] | {"file": str(parts)}
    assert report.stat().st_size > 10_000
    errors = [
        of_json("evaluate", one, folder / "held.csv", "-t", "label")["measures"]["error"]
        for one in (path, tmp_path / "kept.s3vm")
    ]
    assert errors[0] < errors[1] + 0.02
    monkeypatch.setattr("s3vm.cli.inputs.machine_memory", lambda: 20_000)
    assert of_json("fit", folder / "mails.csv", "-t", "label", "-o", path)["data"]["unlabeled"] == 550
    pa_csv.write_csv(table(X[50:600]), tmp_path / "many.csv")
    for many in (folder / "many.parquet", tmp_path / "many.csv"):  # the rows of the latter have to be counted first
        apart = of_json("fit", folder / "few.csv", "-t", "label", "--unlabeled", many, "-o", path, "--C", 1)
        assert apart["data"]["rows"] == 600
    with_some = ["fit", folder / "mails.csv", "-t", "label", "--unlabeled", folder / "many.parquet", "-o", path]
    assert "put its labelled rows into a separate file" in complaint(*with_some)
    assert "550 unlabelled rows" in " ".join(of_json(*with_some, "--stream")["warnings"])
    assert of_json("predict", path, parts, "-o", tmp_path / "out.csv")["rows"] == 600


def test_checkpoint_and_time_limit(folder, tmp_path):
    common = ["fit", folder / "mails.csv", "-t", "label", "--solver", "tsg", "--C", 10, "--gamma", 1]
    run(*common, "-o", tmp_path / "straight.s3vm")
    found = of_json(*common, "-o", tmp_path / "a.s3vm", "--checkpoint", tmp_path / "c", "--max-seconds", 1e-3)
    assert "the time is up after" in " ".join(found["warnings"])
    assert not found["interrupted"]
    run(*common, "-o", tmp_path / "b.s3vm", "--checkpoint", tmp_path / "c", "--resume")
    scores = [loaded(tmp_path / f"{name}.s3vm").decision_function(X[600:]) for name in ("straight", "b")]
    np.testing.assert_array_equal(*scores)
    assert "another run" in complaint(*common[:-1], 2, "-o", tmp_path / "b", "--checkpoint", tmp_path / "c", "--resume")
    assert "--checkpoint FILE" in complaint(*common, "--resume", code=2)
    assert "--max-seconds" in complaint(*common, "--max-seconds", 0, code=2)
    assert "--seed=-1 is not valid" in complaint(*common, "--seed", -1, code=2)


def test_columns_as_they_come(folder, tmp_path):
    """Text, missing values, dates and ids need no option; the plan is printed, kept, and can be changed."""
    color = np.where(X[:, 0] > np.median(X[:, 0]), "red", "blue").astype(object)
    color[::7] = None
    day = np.datetime64("2026-01-01") + np.arange(900) % 80
    more = {"color": color, "day": day.astype(str), "row": np.arange(900), "a,b": np.arange(900) % 3}
    columns = {name: values[:600] for name, values in more.items()}
    pa_csv.write_csv(table(X[:600], np.where(KNOWN[:600], NAMES[:600], ""), **columns), tmp_path / "a.csv")
    pa_csv.write_csv(table(X[600:], NAMES[600:], **{name: more[name][600:] for name in more}), tmp_path / "b.csv")
    args = ("fit", tmp_path / "a.csv", "-t", "label", "-o", tmp_path / "m.s3vm", "--test", tmp_path / "b.csv")
    shown = run(*args, "--C", 10, "--gamma", 0.5).stdout
    for text in ("width, height, a,b", "2 values, or missing", "a date and its place in the year", "like an id"):
        assert text in shown
    result = of_json("evaluate", tmp_path / "m.s3vm", tmp_path / "b.csv")
    assert result["measures"]["rows"] == 300
    assert "date" in run("info", tmp_path / "m.s3vm").stdout
    columns = of_json(*args, "--drop", "color,row", "--drop", "day", "--category", '"a,b"')["columns"]
    assert columns == {"width": "a number", "height": "a number", "a,b": "3 values"}
    assert run("tune", tmp_path / "a.csv", "-t", "label", "--gamma", 1).exit_code == 0


def test_values_that_do_not_fit_are_counted(folder, tmp_path):
    lines = (folder / "held.csv").read_text().splitlines()
    height = lines[5].split(",")
    lines[5] = ",".join([height[0], "tall", *height[2:]])
    (tmp_path / "d.csv").write_text("\n".join(lines))
    result = of_json("predict", folder / "spam.s3vm", tmp_path / "d.csv", "-o", tmp_path / "out.csv")
    unfit = "column 'height': 0.33% of the rows have a value that does not fit and counts as missing, such as 'tall'"
    assert result["warnings"] == [unfit]
    assert result["rows"] == 300


def test_report(folder, tmp_path):
    args = ("fit", folder / "mails.csv", "-t", "label", "-o", tmp_path / "m.s3vm", "--report", tmp_path / "r.html")
    shown = run(*args, "--test", folder / "held.csv").stdout
    assert "r.html" in shown
    assert "More labels" in shown
    assert "With 25 labels the error is" in " ".join(shown.split())
    page = (tmp_path / "r.html").read_text()
    assert "mails.csv" in page
    assert "Test error" in page
    assert "<td>width</td>" in page, "the column that matters, by its name"
    assert re.search(r"<td>width -?[\d.]+, height -?[\d.]+</td>", page), "what a row to label says"


def test_more_labels_where_a_second_fit_is_cheap(folder, tmp_path, monkeypatch):
    args = ("fit", folder / "mails.csv", "-t", "label", "-o", tmp_path / "m.s3vm", "--C", 1, "--gamma", 1)
    assert "With 25 labels the error is" in " ".join(run(*args).stdout.split())
    monkeypatch.setattr("s3vm.cli.fit._FEW_VALUES", 1000)
    assert "More labels" not in run(*args).stdout


class Interrupted(TSG):
    """Ctrl-C after three iterations."""

    def run(self, problem, backend, state=None):
        for k, found in enumerate(super().run(problem, backend, state)):
            yield found
            if k == 2:
                raise KeyboardInterrupt


def test_ctrl_c_keeps_the_model(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(SOLVERS, "tsg", Interrupted)
    model = tmp_path / "m.s3vm"
    options = ("--solver", "tsg", "--C", 10, "--gamma", 1, "-o", model)
    result = run("fit", folder / "mails.csv", "-t", "label", *options, code=130)
    assert "interrupted after 3 of 400 iterations; the model so far is kept" in result.stderr
    assert s3vm.load(model)[-1].n_iter_ == 3
    assert len(run("predict", model, folder / "new.parquet").stdout.splitlines()) == 301
    result = run("fit", folder / "mails.csv", "-t", "label", *options, "--json", code=130)
    assert json.loads(result.stdout)["interrupted"]


def test_ctrl_c_before_there_is_a_model(folder, tmp_path, monkeypatch):
    def stopped(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(tables, "read_columns", stopped)
    result = run("fit", folder / "mails.csv", "-t", "label", "-o", tmp_path / "m.s3vm", code=130)
    assert result.stderr == "s3vm: interrupted\n"
    assert list(tmp_path.iterdir()) == []


# predict, evaluate, info, export


def test_streamed_predictions_are_those_in_memory(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "stream", partial(tables.stream, size=64))
    monkeypatch.setattr("s3vm.sources.readers.tabular._PARQUET_ROWS", 50)
    model = loaded(folder / "spam.s3vm")
    for source in ("held.csv", "new.parquet"):
        rows, _ = tables.read_columns(folder / source, features=["width", "height"])
        for kind in ("csv", "csv.gz", "parquet"):
            out = tmp_path / f"out.{kind}"
            run("predict", folder / "spam.s3vm", folder / source, "-o", out, "--scores", "-p", "--keep", "id")
            read = tables.read(out, "prediction", ["score", "probability_ham", "probability_spam"])
            assert read.labels.tolist() == model.predict(rows).tolist()
            np.testing.assert_allclose(read.rows[:, 0], model.decision_function(rows), rtol=1e-6)
            np.testing.assert_allclose(read.rows[:, 1:], model.predict_proba(rows), rtol=1e-6)
    ids = pq.read_table(tmp_path / "out.parquet")["id"].to_pylist()
    assert ids == list(range(300))


def test_predict_finds_columns_by_name(folder, tmp_path):
    first = run("predict", folder / "spam.s3vm", folder / "held.csv").stdout
    pa_csv.write_csv(table(X[600:]).select(["height", "width"]), tmp_path / "turned.csv")
    assert run("predict", folder / "spam.s3vm", tmp_path / "turned.csv").stdout == first
    assert first.splitlines()[0] == "prediction"
    result = of_json("predict", folder / "spam.s3vm", folder / "held.csv", "-o", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == first
    assert result["rows"] == sum(result["predicted"].values()) == 300
    assert "300 rows" in run("predict", folder / "spam.s3vm", folder / "held.csv", "-o", tmp_path / "out.csv").stdout


def test_columns_are_handed_on_under_names_that_are_free(folder):
    shown = run("predict", folder / "spam.s3vm", folder / "own.csv", "--keep", "score,probability_ham").stdout
    assert shown.splitlines()[0] == "score,probability_ham,prediction"


def test_many_classes(tmp_path):
    rows, y = make_blobs(300, 2, centers=3, random_state=0)
    names = np.array(["a", "b", "c, d"])[y]
    pa_csv.write_csv(table(rows.astype(np.float32), np.where(np.arange(300) < 60, names, "")), tmp_path / "d.csv")
    pa_csv.write_csv(table(rows.astype(np.float32), names), tmp_path / "all.csv")
    run("fit", tmp_path / "d.csv", "-t", "label", "-o", tmp_path / "m.s3vm")
    run("predict", tmp_path / "m.s3vm", tmp_path / "all.csv", "--scores", "-p", "-o", tmp_path / "out.csv")
    out = pa_csv.read_csv(tmp_path / "out.csv")
    assert out.column_names == [
        "prediction",
        *[f"{kind}_{name}" for kind in ("score", "probability") for name in ("a", "b", "c, d")],
    ]
    right = np.mean(np.array(out["prediction"].to_pylist()) == names)
    result = of_json("evaluate", tmp_path / "m.s3vm", tmp_path / "all.csv", "-t", "label")["measures"]
    assert result["error"] == pytest.approx(1 - right)
    assert np.sum(result["confusion"]) == 300
    assert set(result["classes"]) == {"a", "b", "c, d"}


def test_evaluate(folder, tmp_path):
    args = ("evaluate", folder / "spam.s3vm", folder / "held.csv", "-t", "label")
    found = of_json(*args)["measures"]
    wanted = loaded(folder / "spam.s3vm").score(X[600:], NAMES[600:])
    assert found["error"] == pytest.approx(1 - wanted, abs=0.01)
    assert found["low"] < found["error"] < found["high"]
    assert found["rows"] == 300
    assert 0.5 < found["roc_auc"] <= 1
    shown = run(*args).stdout
    for text in (
        "Balanced error",
        "Average precision of class spam",
        "Class spam",
        "Area under ROC",
        "as ham",
        "as spam",
    ):
        assert text in shown
    assert "Average precision of class ham" in run(*args, "--positive", "ham").stdout
    ham, spam = (of_json(*args, "--positive", name) for name in ("ham", "spam"))
    assert ham["positive"]["class"] == "ham"
    assert ham["positive"]["recall"] == found["classes"]["ham"]["recall"]
    assert ham["measures"]["average_precision"] != spam["measures"]["average_precision"]
    assert "--positive eggs: the classes are ham, spam" in complaint(*args, "--positive", "eggs")
    result = of_json("evaluate", folder / "spam.s3vm", folder / "mails.csv", "-t", "label")
    assert (result["unlabeled"], result["measures"]["rows"]) == (550, 50)


def test_suggest(folder, tmp_path):
    args = ("suggest", folder / "spam.s3vm", folder / "mails.csv", "-t", "label")
    result = of_json(*args, "-n", 10, "-o", tmp_path / "next.csv")
    found = pa_csv.read_csv(tmp_path / "next.csv").to_pydict()
    assert list(found) == ["row", "prediction", "width", "height", "label"]
    at = np.array(found["row"]) - 1
    assert result["rows"] == found["row"]
    assert result["labeled"] == 50
    assert len(set(at)) == 10
    assert not KNOWN[at].any(), "rows without a label"
    np.testing.assert_allclose(found["width"], X[at, 0], rtol=1e-6)
    assert set(found["prediction"]) <= {"ham", "spam"}
    assert run(*args, "-n", 3).stdout.startswith("row,prediction,width")
    shown = run("suggest", folder / "spam.s3vm", folder / "new.parquet", "-n", 2).stdout
    assert [len(line.split(",")) for line in shown.splitlines()] == [2, 2, 2]
    mails = as_lines(pa_csv.read_csv(folder / "mails.csv"))
    lines = piped(mails, "suggest", folder / "spam.s3vm", "-", "--format", "jsonl", "-t", "label", "-n", 3).stdout
    assert [list(json.loads(line)) for line in lines.splitlines()] == [["row", "prediction"]] * 3
    assert "--json needs a file for the rows" in complaint(*args, "--json", code=2)
    assert "n=551 rows cannot be suggested: only 550 of 600 have no label" in complaint(*args, "-n", 551)


def test_classes_that_matter_more_than_others(folder, tmp_path):
    fit = ("fit", folder / "mails.csv", "-t", "label", "-o", tmp_path / "m.s3vm", "--C", 1, "--gamma", 0.1)
    plain = of_json(*fit)
    assert plain["threshold"] is None
    aim = ("--threshold", "recall=0.95", "--positive", "spam")
    result = of_json(*fit, *aim)
    assert result["threshold"]["class"] == "spam"
    assert result["threshold"]["recall"] >= 0.95
    held = of_json("evaluate", tmp_path / "m.s3vm", folder / "held.csv", "-t", "label")
    assert held["positive"]["recall"] > 0.85
    shown = run(*fit, *aim).stdout
    moved = run("info", tmp_path / "m.s3vm").stdout
    assert re.search(r"Held-out error .*, with threshold 0 *\n", moved), "a model file has no scores to measure it by"
    assert re.search(r"Threshold +-\d", moved)
    assert re.search(r"Threshold +\S+: held-out precision .*%, recall .*%, F1 .*%\s+of class spam", shown)
    weighted = of_json(*fit, "--class-weight", "spam=20,ham=1", "--prior", "spam=0.9,ham=0.1", "--weight", 1)
    clf = loaded(tmp_path / "m.s3vm")[-1]
    assert clf.class_weight == {"spam": 20.0, "ham": 1.0}
    assert clf.class_prior == [0.1, 0.9], "in the order of the classes"
    assert weighted["held_out"]["error"] != plain["held_out"]["error"]
    assert "--prior spam=1: give a number for every class, such as ham=1,spam=1" in complaint(*fit, "--prior", "spam=1")


def test_labels_are_known_by_what_they_read_as(folder, tmp_path):
    run("fit", folder / "mails.npz", "--mark", "-1", "-o", tmp_path / "m.s3vm")
    pq.write_table(table(X[600:], Y[600:].astype(float)), tmp_path / "floats.parquet")
    pa_csv.write_csv(table(X[600:], [f"{y}.0" for y in Y[600:]]), tmp_path / "text.csv")
    errors = [
        of_json("evaluate", tmp_path / "m.s3vm", tmp_path / name, "-t", "label")["measures"]["error"]
        for name in ("floats.parquet", "text.csv")
    ]
    assert errors[0] == errors[1] < 0.3


def test_a_class_that_is_called_as_a_missing_value(tmp_path):
    """As R writes missing values, and as Python does: no label, unless it is said what is."""
    some = np.where(KNOWN[:300], NAMES[:300], "NA")
    pa_csv.write_csv(table(X[:300], some), tmp_path / "na.csv")
    common = ("-t", "label", "--C", 1, "--gamma", 1, "-o", tmp_path / "m.s3vm")
    found = of_json("fit", tmp_path / "na.csv", *common)["data"]
    assert (set(found["classes"]), found["unlabeled"]) == ({"ham", "spam"}, 250)
    pa_csv.write_csv(table(X[:300], np.where(NAMES[:300] == "ham", "None", "spam")), tmp_path / "none.csv")
    assert "if NA, None or ? is a class, give --mark nan" in complaint("fit", tmp_path / "none.csv", *common)
    assert set(of_json("fit", tmp_path / "none.csv", *common, "--mark", "nan")["data"]["classes"]) == {"None", "spam"}
    found = of_json("evaluate", tmp_path / "m.s3vm", tmp_path / "none.csv", "-t", "label")
    assert (found["unlabeled"], found["measures"]["rows"]) == (0, 300), "the model knows its classes"


def test_info(folder, tmp_path):
    result = of_json("info", folder / "spam.s3vm")
    assert result["names"] == ["width", "height"]
    assert result["model"]["classes"] == ["ham", "spam"]
    assert result["scale"]["chosen"] == "each"
    assert result["columns"] == {"width": "a number", "height": "a number"}
    assert result["versions"]["s3vm"] == s3vm.__version__
    shown = run("info", folder / "spam.s3vm").stdout
    for text in ("RBF kernel", "ham, spam", "width, height", "as centres", "Held-out error", "Written by"):
        assert text in shown
    header, tensors = container.read(folder / "spam.s3vm")
    container.write(tmp_path / "m.s3vm", header | {"versions": "many"}, tensors)
    assert "Written by" not in run("info", tmp_path / "m.s3vm").stdout


@pytest.mark.parametrize(
    ("projection", "text"),
    [
        (np.array([0.25, 1.75]), "column weights: height 1.8, width 0.25"),
        (np.array([[1.0], [2.0]]), "1 direction of 2 columns"),
    ],
)
def test_info_of_projected_rows(folder, tmp_path, projection, text):
    model = s3vm.load(folder / "spam.s3vm")
    seen = replace(model[-1].model_, projection=None)
    size = 1 if projection.ndim == 2 else 2
    model[-1].model_ = replace(seen, n_dims=size, centers=seen.centers[:, :size]).after(projection)
    s3vm.save(model, tmp_path / "m.s3vm")
    facts = of_json("info", tmp_path / "m.s3vm")["model"]
    assert (facts["projection"], facts["dimensions"]) == (text, 2)
    assert text in run("info", tmp_path / "m.s3vm").stdout
    assert "Projection" not in run("info", folder / "spam.s3vm").stdout


def test_export(folder, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    assert "m.onnx" in run("export", folder / "spam.s3vm", tmp_path / "m.onnx").stdout
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (label,) = session.run(["label"], {"width": X[600:, :1], "height": X[600:, 1:]})
    assert label.tolist() == loaded(folder / "spam.s3vm").predict(X[600:]).tolist()
    result = of_json("export", folder / "spam.s3vm", tmp_path / "s.s3vm", "--compress", folder / "many.parquet")
    assert result["compression"]
    small = loaded(tmp_path / "s.s3vm").predict(X[600:])
    assert np.mean(small == loaded(folder / "spam.s3vm").predict(X[600:])) > 0.95


# tune, compare, demo


def test_too_few_labels_to_choose_by(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the models go
    pa_csv.write_csv(table(X[:60], np.where(np.arange(60) < 6, NAMES[:60], "")), tmp_path / "d.csv")
    result = of_json("tune", tmp_path / "d.csv", "-t", "label")
    assert result["grid"] is None
    for command in ("tune", "fit"):
        warnings = " ".join(of_json(command, tmp_path / "d.csv", "-t", "label", "--C", 3)["warnings"])
        assert "nothing was tuned: choosing gamma needs 40 different labelled rows, and two of every class" in warnings


def test_tune(folder):
    result = of_json("tune", folder / "mails.csv", "-t", "label")
    clf = s3vm.load(folder / "spam.s3vm")[-1]
    assert result["chosen"] == {"C": clf.C_, "gamma": clf.kernel_.width, "weight": clf.safety_.weight}
    np.testing.assert_array_equal(result["grid"]["error"], clf.cv_errors_)
    np.testing.assert_array_equal(result["grid"]["gamma"], clf.cv_gammas_)
    assert set(result["weights"]) == {"0.0", f"{clf.safety_.weight}"}
    shown = run("tune", folder / "mails.csv", "-t", "label").stdout
    assert f"--C {clf.C_:g} --gamma" in shown
    assert "Supervised SVM, held-out error" in shown


def test_closed_standard_output(folder, tmp_path):
    data = folder / "mails.csv"
    fit, predict = f"fit {data} --target label -o {tmp_path / 'm.s3vm'} -q", f"predict {folder / 'spam.s3vm'} {data}"
    for command in cases([predict], [fit, predict]):
        done = subprocess.run(
            f"{sys.executable} -m s3vm {command} >&-", shell=True, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == 0 or "standard output is closed" in done.stderr


def test_compare(folder, tmp_path, monkeypatch):
    class Broken(TSG):
        def run(self, problem, backend, state=None):
            raise ValueError("it does not converge\nat all")

    class Greedy(TSG):
        def memory(self, problem, backend):
            return 1 << 60

    monkeypatch.setitem(SOLVERS, "broken", Broken)
    monkeypatch.setitem(SOLVERS, "greedy", Greedy)
    solvers = [word for name in ("tsg", "broken", "greedy") for word in ("--solver", name)]
    result = of_json("compare", folder / "mails.csv", "-t", "label", "--report", tmp_path / "c.html", *solvers)
    found = {one["method"]: one for one in result["methods"]}
    assert list(found) == [
        "supervised SVM",
        "logistic regression",
        "random forest",
        "gradient boosting",
        "label spreading",
        "self-training",
        "s3vm",
        "s3vm tsg",
        "s3vm broken",
        "s3vm greedy",
    ]
    assert found["s3vm broken"] == {"method": "s3vm broken", "failed": "it does not converge"}
    assert "needs about" in found["s3vm greedy"]["failed"]
    for name in list(found)[:8]:
        assert found[name]["rows"] == 50
        assert found[name]["error"] < 0.4
        assert found[name]["seconds"] > 0
    assert found["supervised SVM"]["change"] == 0
    page = (tmp_path / "c.html").read_text()
    assert "it does not converge" in page
    assert "label spreading" in page
    assert result["advice"].startswith(("Take ", "Lowest error: "))
    assert result["advice"] in page
    held = ("--test", folder / "held.csv", "--max-rows", 200, "--max-seconds", 1e-9)
    shown = run("compare", folder / "mails.csv", "-t", "label", *held).stdout
    assert "Tested on 300 rows (" in shown
    assert "200 of 550 unlabelled rows" in shown
    assert shown.count("no time left: give --max-seconds") == 6
    assert "Take s3vm: its error is the lowest" in shown


def test_advice_says_which_method_to_take():
    def outcomes(**wrong):
        return [{"method": name, "error": np.mean(rows), "wrong": np.array(rows) > 0} for name, rows in wrong.items()]

    none, some, many = np.zeros(100), np.arange(100) < 5, np.arange(100) < 30
    advice = _advice(outcomes(svm=many, s3vm=many, forest=some))
    assert advice == "Take forest: its error is the lowest, 5.0%. That of s3vm is 25.0 ± 4.4 points higher."
    advice = _advice(outcomes(s3vm=some, forest=~many, svm=many))
    assert advice == "Take s3vm: its error is the lowest, 5.0%. That of svm is 25.0 ± 4.4 points higher."
    shifted = np.roll(some, 50)
    advice = _advice(outcomes(s3vm=some, forest=shifted, svm=many))
    assert advice == "Lowest error: s3vm, 5.0%. Within chance of it: forest. Take the simplest of these."
    advice = _advice(outcomes(forest=some, boosting=shifted, s3vm=many))
    assert advice.endswith("boosting. Take the simplest of these. That of s3vm is 25.0 ± 4.4 points higher.")
    assert _advice([{"method": "s3vm", "failed": "no"}]) == "Every method failed."
    assert _advice(outcomes(s3vm=none)) == "Take s3vm: its error is the lowest, 0.0%."


def test_compare_with_two_labels_of_a_class(tmp_path):
    labels = np.where(np.arange(80) < 20, "ham", "")
    labels[:2] = "spam"
    pa_csv.write_csv(table(X[:80] + 2 * (labels == "spam")[:, None], labels), tmp_path / "d.csv")
    found = {one["method"]: one for one in of_json("compare", tmp_path / "d.csv", "-t", "label")["methods"]}
    assert found["self-training"]["failed"] == "needs two labelled rows of each class"
    assert "error" in found["label spreading"]


def test_compare_stops_at_ctrl_c(folder, monkeypatch):
    monkeypatch.setitem(SOLVERS, "slow", Interrupted)
    result = run("compare", folder / "mails.csv", "-t", "label", "--C", 1, "--gamma", 1, "--solver", "slow", code=130)
    assert result.stderr == "s3vm: interrupted\n"


def test_demo(tmp_path, monkeypatch):
    monkeypatch.setattr("s3vm.cli.demo._LABELS", (40,))
    monkeypatch.setattr("s3vm.cli.demo._DRAWS", 1)
    (row,) = of_json("demo")["errors"]
    assert row["labels"] == 40
    assert row["s3vm_error"] < row["svm_error"] + 0.05
    assert row["s3vm_seconds"] > 0
    picture = tmp_path / "demo.png"
    shown = run("demo", "--picture", picture).stdout
    assert "1,797 handwritten digits" in shown
    assert picture.name in shown
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_demo_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert 'pip install "s3vm[report]"' in complaint("demo", "--picture", tmp_path / "demo.png")
    assert "must end in .png" in complaint("demo", "--picture", tmp_path / "demo.txt", code=2)


# Standard input and output, JSON lines


def piped(content, *args, code=0):
    """The outcome of a command that reads `content` from standard input."""
    result = CliRunner().invoke(app, [str(arg) for arg in args], input=content, env={"COLUMNS": "120", "TERM": "dumb"})
    assert result.exit_code == code, f"{result.stderr}\n{result.exception!r}"
    return result


def as_lines(table):
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist())


def test_rows_from_standard_input(folder, tmp_path):
    held, model = (folder / "held.csv").read_bytes(), folder / "spam.s3vm"
    expected = run("predict", model, folder / "held.csv", "-p").stdout
    assert piped(held, "predict", model, "-", "-p").stdout == expected
    assert piped(held, "predict", model, "/dev/stdin", "-p").stdout == expected
    shown = piped(held, "evaluate", model, "-", "-t", "label").stdout
    assert shown.startswith("standard input  ")
    facts = json.loads(piped(held, "evaluate", model, "-", "-t", "label", "--json").stdout)
    assert facts["file"] == "standard input"
    options = ("-t", "label", "--C", 1, "--gamma", 1, "-q", "-o")
    piped((folder / "mails.csv").read_bytes(), "fit", "-", *options, tmp_path / "piped.s3vm")
    run("fit", folder / "mails.csv", *options, tmp_path / "read.s3vm")
    decisions = [s3vm.load(tmp_path / f"{name}.s3vm")[-1].model_.weights for name in ("piped", "read")]
    np.testing.assert_array_equal(*decisions)
    assert "standard input has no column 'labl'" in piped(held, "fit", "-", "-t", "labl", code=1).stderr
    assert "standard input is empty" in piped(b"", "fit", "-", "-t", "label", code=1).stderr


def test_rows_from_a_pipe(folder, tmp_path):
    """As the shell gives them for <(command)."""
    pipe, held = tmp_path / "pipe", (folder / "held.csv").read_bytes()
    os.mkfifo(pipe)
    writing = threading.Thread(target=pipe.write_bytes, args=(held,))
    writing.start()
    found = run("predict", folder / "spam.s3vm", pipe).stdout
    writing.join()
    assert found == run("predict", folder / "spam.s3vm", folder / "held.csv").stdout


def test_json_lines(folder, tmp_path):
    held, model = pa_csv.read_csv(folder / "held.csv"), folder / "spam.s3vm"
    (tmp_path / "held.jsonl").write_text(as_lines(held))
    table = pd.read_csv(io.StringIO(run("predict", model, folder / "held.csv", "-p", "--keep", "id").stdout))
    of_lines = pd.read_csv(io.StringIO(run("predict", model, tmp_path / "held.jsonl", "-p", "--keep", "id").stdout))
    pd.testing.assert_frame_equal(of_lines, table, rtol=1e-5)  # the decimals in csv become float32 in one step
    lines = piped(as_lines(held), "predict", model, "-", "--format", "jsonl", "-p", "--keep", "id").stdout
    rows = [json.loads(line) for line in lines.splitlines()]
    assert list(rows[0]) == list(table.columns)
    assert [row["prediction"] for row in rows] == table["prediction"].tolist()
    np.testing.assert_allclose([row["probability_spam"] for row in rows], table["probability_spam"], rtol=1e-5)
    run("predict", model, tmp_path / "held.jsonl", "-o", tmp_path / "out.jsonl", "-p", "--keep", "id")
    assert (tmp_path / "out.jsonl").read_text() == lines
    some = as_lines(pa_csv.read_csv(folder / "mails.csv"))
    piped(some, "fit", "-", "--format", "jsonl", "-t", "label", "--C", 1, "--gamma", 1, "-o", tmp_path / "m.s3vm")
    wrong = piped('{"width": 1', "predict", model, "-", "--format", "jsonl", code=1).stderr
    assert "standard input cannot be read as JSON, one object per line" in wrong
    assert "standard output is csv or jsonl" in complaint("predict", model, "a.csv", "--format", "parquet", code=2)


# What the user may get wrong

# Parts of what is said of invalid options, which end with the exit code 2; what is wrong with files ends with 1.
OF_USAGE = (
    "Missing",
    "--kernel=",
    "--solver=",
    "--C=",
    "--weight=",
    "--jobs=",
    "a finite number",
    "Invalid",
    "No such ",
)
OF_USAGE += (
    "--json needs",
    "give one file to write",
    "mails.csv: which column",
    "which column",
    "the name of the file",
)


def test_a_short_name_is_not_offered_for_a_long_one(tmp_path):
    (tmp_path / "d.csv").write_text("e,f,label\n1,2,a\n")
    line = complaint("fit", tmp_path / "d.csv", "-t", "kind", "--features", "size")
    assert "'size' (there are 'e', 'f', 'label')" in line or "'kind' (there are 'e', 'f', 'label')" in line


def test_flags_take_no_value_in_the_help():
    for command in ("", *COMMANDS):
        assert "<bool>" not in run(*command.split(), "--help").stdout


def test_every_command_that_writes_has_an_output_option(folder, tmp_path):
    for command in ("fit", "predict", "export", "label", "demo"):
        assert "-o " in run(command, "--help").stdout
    run("export", folder / "spam.s3vm", "-o", tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").stat().st_size > 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("fit", "Missing argument 'DATA'. See s3vm fit --help"),
        ("fit nothing.csv -t label", "nothing.csv: there is no such file"),
        ("fit mails.csv", "mails.csv: which column has the labels? Give --target COLUMN"),
        ("fit mails.csv -t labels", "mails.csv has no column 'labels' (did you mean 'label'?)"),
        ("fit mails.csv -t label --features width,hight", "has no column 'hight' (did you mean 'height'?)"),
        ("fit mails.csv -t width", "give classes, not measurements"),
        ("fit mails.csv -t label --kernel foo", '--kernel=\'foo\' is not valid: give "auto", "rbf", '),
        ("fit mails.csv -t label --solver foo", '--solver=\'foo\' is not valid: give "auto", "tsg"'),
        ("fit mails.csv -t label --C 0", "--C=0.0 is not valid"),
        ("fit mails.csv -t label --gamma wide", 'give a finite number above 0, "scale" or "median"'),
        ("fit mails.csv -t label --weight -1", "--weight=-1.0 is not valid"),
        ("fit mails.csv -t label --weight much", 'give a finite number of at least 0, "auto" or "paper"'),
        ("fit mails.csv -t label --drop q,r", "no columns 'q', 'r' (there are 'width', "),
        ("fit mails.csv -t label --jobs 0", "--jobs=0 is not valid"),
        ("fit mails.csv -t label --seed x", "Invalid value for '--seed'"),
        ("fit mails.csv -t label --test few.parquet", "few.parquet: there is no such file"),
        ("fit mails.csv -t label -o nowhere/m.s3vm", "nowhere/m.s3vm cannot be written: its folder does not exist"),
        ("fit mails.csv -t label --report nowhere/r.html", "nowhere/r.html cannot be written"),
        ("fit mails.csv -t label --features width,label", "column 'label' is the target and cannot be a feature"),
        ("fit mails.csv -t label --features width --drop width", "column 'width' is a feature and cannot be dropped"),
        ("fit mails.csv -t label --category label", "category='label' is not valid"),
        ("predict spam.s3vm held.csv --drop width", "column 'width' is a feature and cannot be dropped"),
        ("evaluate spam.s3vm held.csv -t width", "column 'width' is the target and cannot be a feature"),
        (
            "predict spam.s3vm own.csv --keep id,prediction",
            "--keep prediction: the predictions have a column of that name",
        ),
        ("predict spam.s3vm own.csv --keep score --scores", "--keep score: the predictions have a column of that name"),
        (
            "predict spam.s3vm own.csv --keep probability_ham -p",
            "--keep probability_ham: the predictions have a column of that name",
        ),
        ("fit few.csv -t label --unlabeled mails.npz --features width", "has 2 columns, expected 1"),
        ("fit held.csv -t id --drop label", "column 'id' has a different label in each row: is it the target?"),
        ("fit held.csv -t height --drop label,id", "give classes, not measurements"),
        ("fit mails.csv -t label --mark spam", "has only the label 'ham'"),
        ("fit mails.csv -t label --mark spam,ham", "has no labels"),
        ("fit mails.csv -t label --test none.csv", "none.csv has no labels to test on"),
        ("fit signs.npz", "has the label -1 in 45 of 60 rows: if it means unlabelled, give --mark -1"),
        ("predict plain.s3vm mails.csv --probabilities", "plain.s3vm gives no probabilities"),
        ("predict spam.s3vm mails.npz --keep id", "columns have no names"),
        ("predict mails.csv mails.csv", "not a model file"),
        ("predict nothing.s3vm mails.csv", "nothing.s3vm: there is no such file"),
        ("predict spam.s3vm mails.csv -o out.xlsx", "the name of the file must end in .csv, .csv.gz, .jsonl, "),
        ("suggest spam.s3vm mails.csv -o out.xlsx", "the name of the file must end in .csv"),
        ("label new.parquet", "the name of the file must end in .csv, .tsv"),
        ("label mails.csv -o labelled.parquet", "the name of the file must end in .csv, .tsv"),
        ("fit mails.csv -t label --report r.pdf", "the name of the file must end in .html, .htm"),
        ("compare mails.csv -t label --report r.pdf", "the name of the file must end in .html, .htm"),
        ("fit mails.csv -t label -o m.onnx", "the name of the file must end in .s3vm, not in .onnx; s3vm export conv"),
        ("fit mails.csv -t label -o m.CSV", "the name of the file must end in .s3vm, not in .csv"),
        ("fit mails.csv -t label -o m.csv.gz", "the name of the file must end in .s3vm, not in .gz"),
        ("fit mails.csv -t label -o m.pkl", "the name of the file must end in .s3vm, not in .pkl"),
        ("predict spam.s3vm mails.csv --json", "--json needs a file for the rows"),
        ("predict spam.s3vm mails.csv --keep ids", "has no column 'ids'"),
        ("evaluate plain.s3vm mails.csv", "which column has the labels?"),
        ("evaluate spam.s3vm held.csv -t id", "has labels that the model does not know"),
        ("evaluate spam.s3vm mails.csv -t label --mark ham,spam", "has no labels to compare with"),
        ("export spam.s3vm m.pmml", "the name of the file must end in .onnx"),
        ("export spam.s3vm m.s3vm", "the name of the file must end in .onnx"),
        ("export spam.s3vm -o m.pmml --compress many.parquet", "the name of the file must end in .onnx, .s3vm"),
        ("compare mails.csv -t label --mark spam", "has only the label 'ham'"),
        ("export spam.s3vm", "give one file to write: s3vm export MODEL OUTPUT, or -o OUTPUT"),
        ("export spam.s3vm a.onnx -o b.onnx", "give one file to write"),
        ("frobnicate", "No such command 'frobnicate'. See s3vm --help"),
        ("fitt", "No such command 'fitt'. Did you mean 'fit'? See s3vm --help"),
        ("--frobnicate", "No such option: --frobnicate. See s3vm --help"),
    ],
)
def test_complaints(folder, monkeypatch, args, message):
    monkeypatch.chdir(folder)
    line = complaint(*args.split(), code=2 if message.startswith(OF_USAGE) or "a finite number" in message else 1)
    assert line.startswith("s3vm: ")
    assert message in line
    assert not list(folder.glob(".*.part"))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("fit few.csv -t label -o few.csv", "few.csv cannot be written: it is an input"),
        ("fit few.csv -t label -o same.csv", "same.csv cannot be written: it is an input"),
        ("fit few.csv -t label -o linked.csv", "linked.csv cannot be written: it is an input"),
        ("fit few.csv -t label --report ./few.csv", "few.csv cannot be written: it is an input"),
        ("fit few.csv -t label --checkpoint few.csv", "it is an input. Give another name"),
        ("fit few.csv -t label --unlabeled held.csv -o held.csv", "it is an input"),
        ("fit few.csv -t label --test held.csv -o held.csv", "it is an input"),
        ("fit parts -t label -o parts/1.csv", "parts/1.csv cannot be written: it is an input"),
        ("fit few.csv -t label -o x.s3vm --report ./x.s3vm", "./x.s3vm cannot be written twice: give each output"),
        ("fit few.csv -t label -o x.s3vm --checkpoint x.s3vm", "x.s3vm cannot be written twice"),
        ("fit few.csv -t label --report ''", "the name of an output file is empty"),
        ("fit few.csv -t label -o ''", "the name of an output file is empty"),
        ("predict m.s3vm held.csv -o held.csv", "held.csv cannot be written: it is an input"),
        ("predict m.s3vm parts -o parts/1.csv", "parts/1.csv cannot be written: it is an input"),
        ("predict m.s3vm held.csv -o ''", "the name of an output file is empty"),
        ("compare few.csv -t label --report few.csv", "it is an input"),
        ("export m.s3vm m.s3vm --compress few.csv", "m.s3vm cannot be written: it is an input"),
    ],
)
def test_what_is_read_is_not_written_over(folder, tmp_path, monkeypatch, args, message):
    for name in ("few.csv", "held.csv"):
        shutil.copy(folder / name, tmp_path)
    shutil.copy(folder / "spam.s3vm", tmp_path / "m.s3vm")
    (tmp_path / "parts").mkdir()
    shutil.copy(folder / "few.csv", tmp_path / "parts" / "1.csv")
    (tmp_path / "same.csv").symlink_to("few.csv")
    (tmp_path / "linked.csv").hardlink_to(tmp_path / "few.csv")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("s3vm.cli.fit.open_data", lambda *_: pytest.fail("this should be said before the work"))
    assert message in complaint(*shlex.split(args))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_values_that_are_missing(folder, tmp_path):
    """Where training had some, they are known; a model that never saw any says so."""
    broken = X[:600].copy()
    broken[[3, 5], 1] = np.nan
    pa_csv.write_csv(table(broken, np.where(KNOWN[:600], NAMES[:600], "")), tmp_path / "d.csv")
    found = of_json("fit", tmp_path / "d.csv", "-t", "label", "-o", tmp_path / "m.s3vm", "--C", 1, "--gamma", 1)
    assert found["columns"]["height"] == "a number, or missing"
    assert found["data"]["features"] == 3
    found = of_json("predict", folder / "spam.s3vm", tmp_path / "d.csv", "-o", tmp_path / "out.csv")
    assert found["warnings"] == ["column 'height': 0.33% of the rows have no value, which training never saw"]
    np.savez(tmp_path / "d.npz", X=broken, y=Y[:600])
    assert "the first in row 4, column '2'" in complaint("fit", tmp_path / "d.npz", "-o", tmp_path / "m.s3vm")


def test_a_class_with_a_single_row(tmp_path):
    labels = np.where(np.arange(60) < 30, NAMES[:60], "")
    labels[0] = "eggs"
    pa_csv.write_csv(table(X[:60], labels), tmp_path / "d.csv")
    compared = of_json("compare", tmp_path / "d.csv", "-t", "label")
    assert "class 'eggs' has a single labelled row: it is in no test part" in compared["warnings"]
    assert compared["rows"] == 29
    assert compared["methods"][-1]["error"] < 0.3
    result = run("fit", tmp_path / "d.csv", "-t", "label", "-o", tmp_path / "m.s3vm")
    assert result.exit_code == 0
    assert "class 'eggs' has a single labelled row, which cannot be held out" in result.stderr


def test_names_in_files_do_not_steer_the_terminal(folder, tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("\x1b[2Ja,label\nx,1\n")
    line = complaint("fit", path, "-t", "label")
    assert "\x1b" not in line
    labels = np.where(NAMES[:60] == "ham", "\x1b[31mham", "[/red]")
    pa_csv.write_csv(table(X[:60], labels), path)
    model = tmp_path / "[b].s3vm"
    run("fit", path, "-t", "label", "--C", 1, "--gamma", 1, "-o", model)
    for args in (["info"], ["evaluate", path, "-t", "label"], ["predict", path, "-o", tmp_path / "o.csv"]):
        shown = run(args[0], model, *args[1:]).stdout
        assert "\x1b" not in shown
        assert "[/red]" in shown


def test_verbose_shows_the_traceback():
    result = CliRunner().invoke(app, ["fit", "nothing.csv", "-t", "x", "--verbose"])
    assert isinstance(result.exception, tables.TableError)


def test_called_from_python(capsys):
    assert not app(["--version"], standalone_mode=False)
    assert app(["fit", "nothing.csv", "-t", "x"], standalone_mode=False) == 1
    assert "nothing.csv: there is no such file" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "completions"), [("--solver ne", ["newton"]), ("--kernel lap", ["laplacian"])])
def test_completion(words, completions):
    env = {"_S3VM_COMPLETE": "complete_bash", "COMP_WORDS": f"s3vm fit {words}", "COMP_CWORD": "3"}
    assert CliRunner().invoke(app, prog_name="s3vm", env=env).stdout.split() == completions


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (seconds(0.123), "0.12 s"),
        (seconds(12.34), "12.3 s"),
        (seconds(150), "2.5 min"),
        (seconds(9000), "2.5 h"),
    ],
)
def test_figures(shown, wanted):
    assert shown == wanted


def test_a_bar_tells_how_long_it_takes(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with Screen().progress("reading") as report_progress:
        report_progress(5)
        time.sleep(0.8)
        for done in range(6, 11):
            time.sleep(0.1)
            report_progress(done, 10)
    assert "of 10, " in sys.stderr.getvalue()
    assert "reading 5 rows, 00:0" in sys.stderr.getvalue(), "while nobody knows how much there is to do"
    assert "00:00 left" in sys.stderr.getvalue()


def test_a_smaller_model_keeps_its_columns(folder, tmp_path):
    """Also one from Python, with a scaler: columns in another order are found by name."""
    known = table(X[:600]).to_pandas()
    scaled = make_pipeline(StandardScaler(), S3VMClassifier(unlabeled=None, random_state=0))
    scaled.fit(known, np.where(KNOWN[:600], NAMES[:600].astype(object), None))
    s3vm.save(scaled, tmp_path / "scaled.s3vm")
    pa_csv.write_csv(table(X[600:]).select(["height", "width"]), tmp_path / "turned.csv")
    for model in (folder / "spam.s3vm", tmp_path / "scaled.s3vm"):
        run("export", model, tmp_path / "small.s3vm", "--compress", folder / "many.parquet")
        small = run("predict", tmp_path / "small.s3vm", tmp_path / "turned.csv").stdout.splitlines()
        before = run("predict", model, folder / "new.parquet").stdout.splitlines()
        assert np.mean(np.array(small) == np.array(before)) > 0.97


def test_warnings_name_options(monkeypatch):
    screen = Screen()
    with screen.collected_warnings():
        warnings.warn("collapse: lower unlabeled_weight, or give class_prior", UserWarning, stacklevel=1)
    assert screen._warnings == ["collapse: lower --weight, or give --prior"]

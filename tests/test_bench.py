"""Experiments: what a configuration asks for, limits, interruptions, and the report."""

import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from experiments import cli, config, datasets, results, runner, theory, work, worker
from experiments.__main__ import app
from experiments.ablation import VARIANTS, PrintedHat
from experiments.plan import Plan
from experiments.report import charts
from experiments.report.experiment import of_experiment
from experiments.report.tally import Tally, exponent
from experiments.results import Results
from sklearn.datasets import make_blobs
from typer.testing import CliRunner

from s3vm import backends
from s3vm.cli.console import Screen
from test_report import assert_self_contained, browse, needs_browser, read

TINY = """
title = "tiny"
sets = ["toy"]
n_labeled = 40
seconds = 20
notes = "Nothing real."
[solvers]
svm = { parts = ["errors"] }
tsg = { settings = { max_iter = 20 }, parts = ["times", "errors", "curves", "synthetic"], repeats = 2 }
frs = { settings = { max_iter = 20 } }
cccp = { trials = 1 }
"tsg, as printed" = { kind = "tsg", printed = true, settings = { max_iter = 8 }, tuned = "own" }
[tuning]
log_c = [0, 1]
log_gamma = [-3, -2]
log_eta = [1, 2]
rows = 150
[times]
sizes = [200, 400, 100_000]
test_rows = 200
[times.synthetic]
bci = [300]
[errors]
protocols = ["honest", "oracle"]
trials = 2
oracle_trials = 1
[curves]
iterations = [4, 8]
trials = 1
[ablation]
trials = 1
max_iter = 8
[theory]
iterations = [8, 16, 32]
seeds = 3
"""


@pytest.fixture(scope="module", autouse=True)
def toy(tmp_path_factory):
    """A set of 1,000 rows, a tenth of them positive."""
    folder = tmp_path_factory.mktemp("data")
    X, y = make_blobs([900, 100], n_features=3, cluster_std=2.0, random_state=0)
    np.savez(folder / "toy.npz", X=X, y=np.where(y == 1, 1, -1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("S3VM_DATA", str(folder))
        yield folder


def bench(*args, code=0):
    return command("bench", *args, code=code)


def rows_of(path):
    return results.read(path)[0]


def write(folder, text, name="tiny.toml"):
    (folder / name).write_text(text)
    return folder / name


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A whole experiment, done in two halves: the first one is killed without warning."""
    folder = tmp_path_factory.mktemp("bench")
    path, output = write(folder, TINY), folder / "tiny.parquet"
    journal = folder / "tiny.parquet.journal"
    command = [sys.executable, "-m", "experiments", "bench", str(path), "-o", str(output), "-q"]
    process = subprocess.Popen(command, start_new_session=True)
    deadline = time.monotonic() + 100
    while not (journal.exists() and len(journal.read_text().splitlines()) >= 8):
        assert process.poll() is None, "it should still run"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    workers = children(process.pid)
    process.kill()
    process.wait()
    assert not output.exists()
    with journal.open("a") as file:
        file.write('{"part": "err')  # as if the kill had come while a row was written
    before = [json.loads(line) for line in journal.read_text().splitlines()[:-1]]
    shown = bench(path, "-o", output).stdout
    assert not journal.exists()
    return output, before, workers, shown


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(one) for one in file.read().split()]


@pytest.mark.long
def test_interrupted_runs_go_on(tiny):
    output, before, workers, shown = tiny
    rows = {row["key"]: row for row in rows_of(output)}
    assert len(before) >= 8
    for row in before:
        assert rows[row["key"]] == row, "what was done is not done again"
    assert "experiments report" in shown
    deadline = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{pid}") for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in workers), "workers end when nobody listens"


@pytest.mark.long
def test_one_row_a_run(tiny):
    rows = rows_of(tiny[0])
    counts = Counter((row["part"], row["status"]) for row in rows)
    assert counts == {
        ("tuning", "ok"): 2 + 1 + 1,
        ("errors", "ok"): 4 * 2 + 1 + 5,
        ("times", "ok"): 2 * (2 + 3) + 4,
        ("times", "skipped"): 5,
        ("curves", "ok"): 2,
        ("ablation", "ok"): len(VARIANTS),
        ("theory", "ok"): 3,
    }
    for row in rows:
        assert json.loads(row["versions"])["numpy"] == np.__version__
        if row["status"] == "ok" and row["part"] in ("errors", "times"):
            assert row["seconds"] > 0
            assert row["megabytes"] >= 0
            assert 0 <= row["error"] <= 1
            assert 0 <= row["auc"] <= 1
    assert {row["n"] for row in rows if row["part"] == "errors"} == {40 + 960 // 5}
    assert {row["n"] for row in rows if row["part"] == "times" and row["status"] == "ok"} == {200, 300, 400}
    assert {row["set"] for row in rows if row["synthetic"]} == {"bci"}
    oracle = [row for row in rows if row["protocol"] == "oracle"]
    printed_C = {row["C"] for row in oracle if row["solver"] == "tsg, as printed"}
    assert printed_C <= {1 / 40, 10 / 40}, "the paper's C is the cost of all 40 labelled rows"
    assert {row["C"] for row in oracle} <= {1.0, 10.0} | printed_C
    (printed,) = [row for row in oracle if row["part"] == "errors" and row["solver"] == "tsg, as printed"]
    assert printed["step"] in (0.1, 0.01)
    assert all(row["step"] is None for row in rows if row["solver"] == "tsg")
    # One choice of C and width for all solvers of a trial.
    assert (
        len({(row["C"], row["gamma"]) for row in rows if row["part"] == "errors" and row["protocol"] == "honest"}) <= 2
    )


@pytest.mark.long
def test_nothing_is_left_to_do(tiny, monkeypatch):
    monkeypatch.setattr(runner._Worker, "_start", lambda self: pytest.fail("nothing should run"))
    output = tiny[0]
    before = rows_of(output)
    kept = [row for row in before if row["status"] != "skipped"]
    done = Results(output.with_name("copy.parquet"), "")
    for row in kept:
        done.append(row)
    done.close()
    text = TINY.replace(", 100_000]", "]")
    found = runner.run(write(output.parent, text, "less.toml"), output.with_name("copy.parquet"))
    assert sorted(row["key"] for row in found.rows()) == sorted(row["key"] for row in kept)
    screen, shown = Screen(), Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    cli.bench(screen, str(output.with_name("less.toml")), str(output.with_name("copy.parquet")), None, True)
    assert f"{len(kept)} of {len(kept)} runs" in shown.getvalue()


class Terminal(io.StringIO):
    def isatty(self):
        return True


SLOW = """
sets = ["{name}"]
synthetic = true
n_labeled = 40
seconds = {seconds}
megabytes = {megabytes}
processes = 1
[solvers]
tsg = {{ parts = [] }}
{solver} = {{}}
[times]
sizes = {sizes}
test_rows = 100
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("solver", "seconds", "megabytes", "sizes", "status"),
    [("newton", 0.3, 4000, [4000, 5000], "timeout"), ("incremental", 60, 40, [4000, 5000], "memory")],
)
def test_limits(tmp_path, monkeypatch, solver, seconds, megabytes, sizes, status):
    settings = {"solver": solver, "seconds": seconds, "megabytes": megabytes, "sizes": sizes, "name": "g241c"}
    path, output = write(tmp_path, SLOW.format(**settings)), tmp_path / "out.parquet"
    sizes_of = {row["n"]: row for row in runner.run(path, output).rows() if row["part"] == "times"}
    statuses = [row["status"] for row in rows_of(output) if row["part"] == "times"]
    assert statuses == [status, "skipped"]
    assert sizes_of[4000]["message"]
    assert sizes_of[4000]["seconds"] is None
    assert sizes_of[4000]["limit_seconds"] == seconds
    (later,) = [row for row in rows_of(output) if row["status"] == "skipped"]
    assert later["message"] == f"{status} with 4,000 rows before"
    monkeypatch.setattr(runner._Worker, "_start", lambda self: pytest.fail("what was too much is not tried again"))
    assert [row["status"] for row in runner.run(path, output).rows() if row["part"] == "times"] == statuses
    (first,) = [row for row in rows_of(output) if row["status"] == status]
    more = config.read(write(tmp_path, SLOW.format(**settings | {"seconds": seconds + 1}), "more.toml"))
    assert not runner._is_final(first, more), "unless it may take longer now"
    task = {name: first[name] for name in ("part", "set", "solver", "protocol", "synthetic")} | {"rows": 4000}
    stages = [runner._Stage(limits, Results(output), runner.Progress(), []) for limits in (config.read(path), more)]
    assert [stage._skipped(task) is None for stage in stages] == [False, True]


def test_a_worker_that_has_died_is_known_by_its_pipe(monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    one = runner._Worker()
    one._process = one._start()
    one._process.wait()
    assert one.ask({"task": {}}, threading.Event()) is None
    assert one.close() == "the worker died"


def test_what_goes_wrong_here_ends_the_runs(tmp_path, monkeypatch):
    def full(self, row):
        raise OSError(28, "No space left on device")

    path = write(tmp_path, "[solvers]\ntsg = {}\n[theory]\niterations = [8]\n")
    monkeypatch.setattr(runner._Worker, "ask", lambda self, asked, stopped: {"status": "ok"})
    monkeypatch.setattr(Results, "append", full)
    with pytest.raises(OSError, match="No space left"):
        runner.run(path, tmp_path / "out.parquet")
    monkeypatch.delattr(os, "fork")
    with pytest.raises(OSError, match="use Linux"):
        runner.run(path, tmp_path / "out.parquet")


CHILDREN = """
import json, os, signal, time
from experiments import work, worker

def raises(problem):
    raise problem

worker._OVERHEAD = 1.0
one = worker.Worker()
for run in (
    lambda tell: tell({"n": 3, "error": float("nan")}) or {"seconds": 2.0},
    lambda tell: tell({"n": 3}) or os.kill(os.getpid(), signal.SIGTERM),
    lambda tell: tell({"n": 3}) or time.sleep(60),
    lambda tell: raises(MemoryError()),
    lambda tell: raises(work.NotPossibleError("the set has 5 rows")),
    lambda tell: raises(ZeroDivisionError("by zero")),
    lambda tell: os._exit(0),
):
    print(json.dumps(one._in_child(run, 0.0)))
"""


def test_what_a_child_comes_to():
    done = subprocess.run([sys.executable, "-c", CHILDREN], capture_output=True, text=True, check=True, timeout=100)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers == [
        {"n": 3, "error": None, "seconds": 2.0, "status": "ok", "message": None},
        {"n": 3, "status": "crash", "message": "killed by SIGTERM"},
        {"n": 3, "status": "timeout", "message": "stopped after 1 s of wall-clock time"},
        {"status": "memory", "message": "out of memory"},
        {"status": "skipped", "message": "the set has 5 rows"},
        {"status": "crash", "message": "ZeroDivisionError: by zero"},
        {"status": "crash", "message": "the process ended without an answer"},
    ]
    assert worker._killed(signal.SIGKILL, 1.0) == {"status": "memory", "message": "killed by the system"}
    assert worker._killed(signal.SIGPROF, 1.5)["message"] == "stopped after 1.5 s of processor time"


def test_a_worker_answers_until_there_are_no_more_tasks(tmp_path):
    """A missing set and an invalid solver are reported; neither ends the worker."""
    task = {"part": "errors", "set": "toy", "synthetic": False, "rows": None, "trial": 0, "n_labeled": 40, "folds": 5}
    task |= {"solver": "svm", "subject": {"kind": "svm", "settings": {}, "printed": False, "weight": 1.0}, "C": 1.0}
    others = [task | {"set": "nowhere"}, task | {"subject": task["subject"] | {"kind": "none"}, "solver": "none"}, task]
    asked = "".join(json.dumps({"task": one, "seconds": 20, "megabytes": 4000}) + "\n" for one in others)
    command = [sys.executable, "-m", "experiments.worker"]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True, timeout=100)
    missing, impossible, fine = map(json.loads, done.stdout.splitlines())
    assert missing["status"] == "no data"
    assert "there is no data set 'nowhere'" in missing["message"]
    assert (impossible["status"], impossible["message"]) == ("crash", "KeyError: 'none'")
    assert (fine["status"], fine["n"]) == ("ok", 40 + 960 // 5)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_cell_of_the_grid_that_overflows_is_a_bad_one(tmp_path):
    text = TINY.replace("log_c = [0, 1]", "log_c = [307, 1]").replace("log_gamma = [-3, -2]", "log_gamma = [-2]")
    oracle = Plan(config.read(write(tmp_path, text)))._tuning("oracle")
    facts = []
    chosen = work.tune(next(oracle), datasets.load("toy", progress=False), facts.append)
    assert (chosen["C"], chosen["gamma"]) == (10.0, 0.01)
    assert facts[0]["n"] == 150


@pytest.mark.long
def test_ctrl_c(tmp_path):
    path, output = write(tmp_path, TINY), tmp_path / "tiny.parquet"
    command = [sys.executable, "-m", "experiments", "bench", str(path), "-o", str(output), "-q"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    journal = tmp_path / "tiny.parquet.journal"
    while not journal.exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "runs are saved in" in said
    assert "the same command resumes" in said
    assert len(rows_of(output)) >= 1
    assert not journal.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sets = [", "tiny.toml is not valid TOML"),
        ("colour = 1", "the file has an unknown setting 'colour': give one of title, sets"),
        ("[times]\nsize = [1]", "times has an unknown setting 'size'"),
        ("[solvers]\nfoo = {}", "unknown solver 'foo': give one of tsg"),
        ("[solvers]\ntsg = { tuned = 'x' }", "tsg has tuned = 'x'"),
        ("[errors]\nprotocols = ['x']", "errors has protocols = 'x': give 'honest' or 'oracle'"),
        ("sets = ['skin']", "tuning is by 'tsg', which is not among the solvers"),
        ("[times.synthetic]\nfoo = [10]", "the shape of 'foo' for synthetic rows is unknown"),
        ("title = 1.5", "the file has title = 1.5, which must be str"),
        ("sets = 'skin'", "the file has sets = 'skin', which must be tuple[str, ...]"),
        ("[errors]\ntrials = 1.5", "errors has trials = 1.5, which must be int"),
        ("errors = 3", "errors must be a table of settings, not 3"),
        ("solvers = 3", "solvers must be tables of settings: [solvers.tsg]"),
        ("seconds = nan", "tiny.toml: the file has seconds = nan: give a number from 0.001 to 10,000,000"),
        ("seconds = -1", "tiny.toml: the file has seconds = -1: give a number from 0.001 to 10,000,000"),
        ("[times]\nseconds = 0", "tiny.toml: times has seconds = 0: give a number from 0.001 to 10,000,000"),
        ("megabytes = 1e300", "tiny.toml: the file has megabytes = 1e+300: give a number from 1 to 1,000,000,000"),
        ("megabytes = -5", "tiny.toml: the file has megabytes = -5: give a number from 1 to 1,000,000,000"),
        ("n_labeled = 0", "tiny.toml: the file has n_labeled = 0: give a number from 1 to 1,000,000,000"),
        (f"n_labeled = {10**4000}", "tiny.toml: the file has n_labeled = 1000"),
        (f"n_labeled = {'9' * 5000}", "tiny.toml is not valid TOML: Exceeds the limit"),
        ("processes = 0", "tiny.toml: the file has processes = 0: give a number from 1 to 1,000"),
        ("processes = 1000000", "tiny.toml: the file has processes = 1000000: give a number from 1 to 1,000"),
        ("[errors]\ntrials = 0", "tiny.toml: errors has trials = 0: give a number from 1 to"),
        ("[curves]\ntrials = -1", "tiny.toml: curves has trials = -1: give a number from 1 to"),
        ("[solvers]\ntsg = { trials = 0 }", "tiny.toml: tsg has trials = 0: give a number from 1 to"),
        ("[solvers]\ntsg = { weight = inf }", "tiny.toml: tsg has weight = inf: give a number from 0 to"),
        ("[solvers]\ntsg = { parts = ['time'] }", "tsg has parts = 'time': give 'times' or 'errors' or 'curves'"),
        ("[solvers]\ntsg = { protocols = ['x'] }", "tsg has protocols = 'x': give 'honest' or 'oracle'"),
        ("[times]\nsizes = [-1, 0]", "tiny.toml: times has sizes = 0: give a number from 1 to"),
        ("[times.synthetic]\nskin = [-1]", "tiny.toml: synthetic skin has rows = -1: give a number from 1 to"),
        ("[tuning]\nlog_c = [400]", "tiny.toml: tuning has log_c = 400: give a number from -307 to 307"),
        ("", "tiny.toml: no runs: give sets, solvers and at least one of times, errors"),
        ("sets = ['skin']\nsolvers = { tsg = {} }", "tiny.toml: no runs: give sets, solvers and at least one of"),
        ("solvers = { tsg = {} }\n[errors]", "tiny.toml: no runs: give sets, solvers and at least one of"),
        (b"title = '\xe9'", "tiny.toml is not UTF-8: save the file as UTF-8"),
    ],
)
def test_what_a_configuration_may_have_wrong(tmp_path, text, message):
    path = tmp_path / "tiny.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    said = " ".join(bench(path, code=1).stderr.split())
    assert message in said
    assert len(said) < 500


def test_processes_have_a_limit_on_the_command_line(tmp_path):
    assert "Invalid value for '--processes'" in bench(write(tmp_path, "[theory]\n"), "-p", 1_000_000, code=2).stderr


def test_a_set_that_is_missing_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("S3VM_DATA", str(tmp_path))
    text = 'sets = ["nowhere"]\nprocesses = 1\n[solvers]\ntsg = {}\n[errors]\ntrials = 2\n'
    result = bench(write(tmp_path, text), "-o", tmp_path / "out.parquet")
    assert "left out: there is no data set 'nowhere'" in " ".join(result.stderr.split())
    assert rows_of(tmp_path / "out.parquet") == []


def test_the_experiments_of_this_repository():
    folder = os.path.join(os.path.dirname(__file__), "..", "experiments")
    for name in ("quick", "evaluation"):
        found = config.read(os.path.join(folder, f"{name}.toml"))
        kinds = {subject.kind for subject in found.solvers.values()}
        assert kinds >= {"tsg", "frs", "bgs", "cccp", "light", "newton", "incremental", "svm"}
        assert found.title


# The theory


def test_f_is_that_of_the_package():
    setting = theory.Setting(n_pool=30)
    mine = theory._run(setting, 7, 40)["f"]
    problem, engine = setting.problem(7), backends.backend("reference", "float64")
    state = deque(setting.solver(40).run(problem, engine), maxlen=1)[0]
    np.testing.assert_allclose(mine, state.model().decision(problem.all_rows(), engine)[:, 0], atol=1e-9)


def test_constants_of_the_theorems():
    setting = theory.Setting()
    r = np.linspace(-4, 4, 100_001)
    problem = setting.problem(0)
    slope_l, slope_u = problem.labeled_loss.grad(r, 1.0), problem.unlabeled_loss.grad(r)
    M, M1 = setting.slopes()
    assert pytest.approx(setting.C * abs(slope_l).max() + setting.C_star * abs(slope_u).max(), rel=1e-6) == M
    second = [abs(np.diff(slope)).max() / (r[1] - r[0]) for slope in (slope_l, slope_u)]
    assert pytest.approx(setting.C * second[0] + setting.C_star * second[1], rel=1e-3) == M1


def test_theorem_1_with_twenty_seeds():
    T = [16, 64, 256]
    found = [theory.measure(one, 20) for one in T]
    for one, t in zip(found, T):
        assert one["distance"] <= one["worst_distance"] <= one["D"] / np.sqrt(t)
    assert exponent(T, [one["distance"] for one in found]) <= -0.5


def test_printed_derivative():
    r = np.array([-2.0, -0.5, 0.5, 2.0])
    np.testing.assert_array_equal(PrintedHat().grad(r), [0, -1, -1, 0])
    np.testing.assert_array_equal(PrintedHat().value(r), [0, 0.5, 0.5, 0])


# Numbers and the report


def made(part="times", solver="tsg", n=1000, seconds=1.0, status="ok", trial=0, error=0.1, name="skin"):
    row = dict.fromkeys(results.COLUMNS)
    more = {"part": part, "solver": solver, "n": n, "seconds": seconds, "status": status, "trial": trial}
    return row | more | {"set": name, "error": error, "protocol": "honest", "limit_seconds": 60.0, "synthetic": False}


def test_tally():
    others = ["frs", "bgs", "cccp", "light", "newton", "incremental"]
    rows = [made(solver="tsg", n=n, seconds=n / 1000) for n in (1000, 2000, 4000)]
    rows += [made(solver=one, n=n, seconds=(n / 1000) ** 2 / 2) for one in others for n in (1000, 2000, 4000)]
    rows.append(made(solver="light", n=8000, status="timeout", seconds=None))
    rows.append(made(solver="tsg", n=8000, seconds=8.0))
    rows += [made("errors", "tsg", trial=k, error=0.10 + 0.01 * k) for k in range(10)]
    rows += [made("errors", "frs", trial=k, error=0.10 + 0.01 * k) for k in range(10)]
    rows += [made("errors", "light", trial=k, error=0.085 + 0.01 * k) for k in range(3)]
    tally = Tally(rows)
    verdict = tally.verdict("skin", "honest")
    assert (verdict.common.size, verdict.common.fastest) == (4000, "tsg")
    assert (verdict.whole.size, verdict.whole.seconds) == (8000, {"tsg": 8.0})
    assert verdict.against_frs == pytest.approx(0)
    assert verdict.best == "light"
    assert verdict.against_best == pytest.approx(0.015), "only on the trials that both have"
    assert exponent(*tally.times("skin", "tsg"), upper=True) == pytest.approx(1)
    assert np.isnan(exponent(*tally.times("skin", "frs"), upper=True)), "three sizes are too few"
    assert [row["n"] for row in tally.failures("skin", "light")] == [8000]


def a_large_experiment():
    """Four sets: four sizes, a failure and ten trials; solvers as printed only; neither; only runs that crashed."""
    rows = [made(solver=one, n=n, seconds=(n / 1000) ** 2) for one in ("tsg", "frs") for n in (500, 1000, 2000, 4000)]
    rows += [made(solver="light", n=1000, seconds=9.0), made(solver="light", n=2000, status="timeout", seconds=None)]
    rows += [made(solver="cccp", n=2000, status="memory", seconds=None)]
    rows += [made("errors", one, trial=k, error=0.1 + 0.01 * k) for one in ("tsg", "frs") for k in range(10)]
    rows += [made("errors", "tsg, as printed", trial=k, error=0.3, name="a9a") for k in range(10)]
    rows += [made("errors", "tsg", status="crash") | {"protocol": "oracle"}]
    rows += [made(name="covtype"), made(name="nothing", n=None, seconds=None, status="crash")]
    return [
        row | {"megabytes": row["n"] and row["n"] / 10, "limit_megabytes": 4e3, "positive": 0.4, "dims": 3, "n_test": 9}
        for row in rows
    ]


def test_solvers_are_shown_in_the_order_of_the_file_and_new_ones_just_appear():
    names = {"mine": "mine", "frs": "frs", "tsg": "tsg", "tsg, safe": "tsg", "mine, as printed": "mine"}
    subjects = {name: {"kind": kind, "printed": "printed" in name} for name, kind in names.items()}
    rows = [made(solver=name, n=n) for name in (*reversed(names), "other") for n in (1000, 2000)]
    tally = Tally(rows, subjects)
    assert tally.solvers == [*names, "other"]
    assert tally.rivals == ["frs", "tsg"]
    styles = charts.styles(tally)
    assert len({(look["color"], look["marker"], look["linestyle"]) for look in styles.values()}) == 6
    assert styles["mine"]["color"] == styles["mine, as printed"]["color"] != styles["frs"]["color"]
    assert [name for name, look in styles.items() if look["linestyle"] == "--"] == ["mine, as printed"]
    assert [text.get_text() for text in charts.times(tally, tally.sets).legends[0].texts] == [*names, "other"]
    many = Tally([made(solver=f"solver {k}") for k in range(30)])
    assert len({(look["color"], look["marker"]) for look in charts.styles(many).values()}) == 30


def test_charts():
    printed = {"tsg, as printed": {"kind": "tsg", "printed": True}}
    tally = Tally(a_large_experiment(), printed)
    assert len(tally.sets) == 4
    figure = charts.times(tally, tally.sets)
    assert [ax.get_visible() for ax in figure.axes] == [True] * 4 + [False] * 2
    marks = [(line.get_marker(), line.get_xdata()[-1], line.get_ydata()[-1]) for line in figure.axes[0].lines]
    assert ("x", 2000, 60.0) in marks, "out of time, at the limit"
    assert ("+", 2000, 60.0) in marks, "out of memory"
    assert [line.get_linestyle() for line in figure.axes[0].lines].count(":") == 1, "only from what went well before"
    figure = charts.boxes(tally, tally.sets, "honest", "error", "error, %")
    medians = [next(line.get_ydata()[0] for line in ax.lines if line.get_linewidth() > 2) for ax in figure.axes[:2]]
    assert medians == pytest.approx([14.5, 30])


def test_report_of_a_large_experiment(tmp_path):
    done = Results(tmp_path / "large.parquet", 'title = "large"')
    for at, row in enumerate(a_large_experiment()):
        done.append(row | {"key": str(at), "message": row["status"]})
    done.close()
    page = read(of_experiment(tmp_path / "large.parquet", tmp_path / "large.html"))
    assert "Runs that did not finish" in " ".join(page.headings())
    assert "2.00 (2.0 to 2.0)" in page.texts, "the measured exponent of time"
    assert "1.00 (1.0 to 1.0)" in page.texts, "and of memory"
    assert {"timeout", "memory", "crash"} <= set(page.texts)


@pytest.mark.long
def test_report(tiny, tmp_path):
    output = tmp_path / "report.html"
    command("report", tiny[0], "-o", output)
    page = read(output)
    assert_self_contained(page)
    headings = " ".join(page.headings())
    for text in (
        "What was run, and what was not",
        "Running time and training size",
        "Table 1, measured",
        "Test error over trials, honest protocol",
        "Test error over trials, oracle protocol",
        "Skewed sets: balanced error and AUC",
        "Test error and iterations",
        "The theorems as an experiment",
        "What our changes to the algorithm are worth",
        "Table 3, as used",
        "Settings",
    ):
        assert text in headings
    assert "Nothing real." in page.text
    assert "log_eta = [1, 2]" in page.text, "the configuration is in the report"
    assert "solvers: tsg: settings" in page.texts
    assert len(page.all("svg")) == 7
    assert len(page.data()["running-time-and-training-size.csv"]["seconds"]) == 14


@pytest.mark.long
@needs_browser
def test_report_in_a_browser(tiny, tmp_path):
    path = of_experiment(tiny[0], tmp_path / "report.html")
    dom, said = browse(tmp_path, path, "--dump-dom")
    assert "CONSOLE" not in said
    assert "<title>TSGS³VM beside the other solvers: tiny</title>" in dom
    assert "<button>variant</button>" in dom


def test_reports_of_what_is_none(tmp_path):
    def complaint(path):
        return command("report", path, code=1).stderr

    assert "no such file" in complaint(tmp_path / "none.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    assert "bad.parquet is not a file of results" in complaint(tmp_path / "bad.parquet")
    pq.write_table(pa.table({"part": ["times"]}), tmp_path / "other.parquet")
    assert "is not a file of results: there is no column 'config'" in complaint(tmp_path / "other.parquet")
    whole = (tmp_path / "other.parquet").read_bytes()
    (tmp_path / "damaged.parquet").write_bytes(whole[:-60] + b"\xff" * 52 + whole[-8:])
    assert "damaged.parquet is not a file of results" in complaint(tmp_path / "damaged.parquet")
    with pytest.raises(FileNotFoundError):
        of_experiment(tmp_path / "none.parquet", tmp_path / "report.html")
    Results(tmp_path / "empty.parquet").close()
    assert "has no rows: run python -m experiments bench first" in complaint(tmp_path / "empty.parquet")


def test_live_table():
    from rich.console import Console

    progress = runner.Progress({"times": runner.Count(10, 4, 1)})
    task = {"part": "times", "set": "skin", "solver": "tsg", "rows": 2000, "trial": 1}
    progress.running[0] = task, time.monotonic() - 3
    progress.last = made()
    out = io.StringIO()
    Console(width=100, file=out).print(cli._table(progress))
    shown = out.getvalue()
    for text in ("4 of 10 runs", "skin", "2,000 rows", "3.0 s", "last: times skin tsg: 10.0% in 1.0 s"):
        assert text in shown


# The commands


def command(*args, code=0):
    """The outcome of `python -m experiments`, which must end with that code."""
    result = CliRunner().invoke(app, list(map(str, args)), env={"COLUMNS": "300", "TERM": "dumb"})
    assert result.exit_code == code, f"{result.stderr}\n{result.exception!r}"
    return result


def test_list_of_datasets(toy, monkeypatch):
    shown = command("datasets").stdout
    assert "digits" in shown
    sets = {data["name"]: data for data in json.loads(command("datasets", "--json").stdout)["datasets"]}
    assert (sets["toy"]["rows"], sets["toy"]["features"]) == (1000, 3)
    assert set(sets["toy"]["classes"]) == {"-1", "1"}
    monkeypatch.setenv("S3VM_DATA", "nowhere")
    assert "warning: S3VM_DATA names nowhere" in command("datasets").stderr
    monkeypatch.delenv("S3VM_DATA")
    assert "S3VM_DATA" in command("datasets").stdout


def test_a_report_of_results_that_make_no_sense(tmp_path):
    table = Results(tmp_path / "r.parquet")
    table.append({"key": "1", "part": "errors", "set": "skin", "solver": "tsg", "protocol": "honest", "status": "ok"})
    table.close()
    assert "its rows do not make sense" in command("report", tmp_path / "r.parquet", code=1).stderr
    assert "is not a file: give an experiment" in command("bench", tmp_path, code=1).stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("bench e.toml -o e.toml", "e.toml cannot be written: it is"),
        ("report e.toml -o e.toml", "e.toml cannot be written: it is"),
        ("report .", ".: no such file; python -m experiments bench makes one"),
        ("report ''", "'': no such file; python -m experiments bench makes one"),
    ],
)
def test_what_is_read_is_not_written_over(tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.toml").write_text("[theory]\n")
    assert message in command(*shlex.split(args), code=1).stderr
    assert (tmp_path / "e.toml").read_text() == "[theory]\n"
    assert [path.name for path in tmp_path.iterdir()] == ["e.toml"]


def test_a_worker_finds_the_package_in_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    path = write(tmp_path, "processes = 1\n[solvers]\ntsg = {}\n[theory]\niterations = [8]\nseeds = 1\n")
    assert [row["status"] for row in runner.run(path, tmp_path / "out.parquet").rows()] == ["ok"]

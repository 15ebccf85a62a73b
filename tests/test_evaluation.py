"""The evaluation of the paper: its pages say what its rows say, and the rules of its verdicts."""

import json
from pathlib import Path

import numpy as np
import pytest
from experiments import config, datasets, results, theory, work
from experiments.plan import Plan
from experiments.report import claims, evaluation
from experiments.report.cells import mean_points, word
from experiments.report.claims import Evaluation
from experiments.results import Results

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "docs" / "paper" / "results.parquet"
SETTINGS = {
    "sets": ["skin", "w8a"],
    "times": {"sizes": [1000, 2000, 5000, 10_000, -1], "error_rows": 5000},
    "tuning": {"protocol": "oracle"},
    "solvers": {name: {} for name in ("tsg", "frs", "cccp", "svm")},
}


ALL = ("tsg", *claims.RIVALS)


# The pages


@pytest.fixture(scope="module")
def page():
    return evaluation.Page(ROWS)


def test_pages_say_what_the_rows_say(page):
    for path, text in evaluation.pages(page, ROOT).items():
        assert path.read_text("utf-8") == text, (
            f"run python -m experiments page docs/paper/results.parquet ({path.name})"
        )


def test_figures_are_of_the_rows(page):
    for name in page.figures():
        path = ROOT / "docs" / "images" / f"evaluation-{name}.png"
        assert evaluation.digest_of_figure(path) == page.digest, path.name


def test_changed_rows_change_the_page(page, tmp_path):
    changed = Results(tmp_path / "rows.parquet")
    rows = [dict(row) for row in page.rows]
    for row in rows:
        if row["part"] == "times" and row["set"] == "codrna" and row["solver"] == "tsg" and row["status"] == "ok":
            row["seconds"] = 1e4
    changed._add(rows)
    changed.close()
    other = evaluation.Page(changed.path)
    assert other.digest != page.digest
    assert other._races() != page._races()
    assert other.verdicts.table() != page.verdicts.table()


def test_the_order_of_the_rows_does_not_matter(page, tmp_path):
    """Runs end in any order, since several are made at a time."""
    other = Results(tmp_path / "rows.parquet")
    other._add(reversed(page.rows))
    other.close()
    assert evaluation.Page(other.path).text() == page.text()


# The rules


def made(part="times", name="skin", solver="tsg", n=1000, trial=0, seconds=1.0, error=0.1, **more):
    row = dict.fromkeys(results.COLUMNS)
    row |= {"part": part, "set": name, "solver": solver, "n": n, "trial": trial, "seconds": seconds, "error": error}
    row |= {"status": "ok", "protocol": "oracle", "synthetic": False, "megabytes": 1.0, "positive": 0.5}
    return row | {"limit_seconds": 60.0, "limit_megabytes": 1000.0} | more


def test_races_are_won_by_the_fastest_that_finished():
    rows = [made(seconds=1.0), made(seconds=3.0, trial=1), made(seconds=2.0, trial=2), made(solver="frs", seconds=4.0)]
    rows += [made(solver="svm", seconds=0.1), made(n=2000, seconds=5.0), made(n=2000, solver="frs", seconds=4.0)]
    rows += [made(n=2000, solver="cccp", status="timeout", seconds=None)]
    found = Evaluation(rows, SETTINGS)
    (race,) = found.races("tsg", 1000)
    assert (race.rival, race.ratio, race.n_run) == ("frs", 0.5, 1)  # medians; the SVM is no rival
    assert [race.n_run for race in found.races("tsg", 2000)] == [2], "cccp has been run, and was stopped"
    assert [race.ratio for race in found.races("tsg", None)] == [1.25]
    assert found.failures("cccp") == {"skin": ("timeout", 2000)}


def test_races_of_accurate_rivals():
    rows = [made(n=n, solver=one, error=0.1 + 0.2 * (one in claims.RIVALS[:4])) for one in ALL for n in (1000, 5000)]
    rows += [made(n=1000, solver="frs", trial=1, seconds=0.1), made(n=1000, solver="light", trial=1, seconds=0.4)]
    rows += [made(n=2000, solver=one) for one in ALL[:3]]
    found = Evaluation(rows, SETTINGS)
    assert found.accurate("skin") == list(claims.EXACT), "frs and bgs are 20 points worse"
    assert [(size, race.rival, race.is_complete) for size, race in found.against_accurate("tsg")] == [
        (1000, "light", True),
        (5000, "cccp", True),
    ]
    assert [race.is_complete for race in found.races("tsg", 2000)] == [False], "only two rivals have been run"


def test_differences_are_of_the_same_trials():
    rows = [made(n=5000, trial=k, error=0.10 + 0.01 * k) for k in range(4)]
    rows += [made(n=5000, solver="cccp", trial=k, error=0.08 + 0.01 * k) for k in range(1, 4)]
    rows += [made(n=5000, solver="frs", trial=k, error=(0.05, 0.30)[k % 2]) for k in range(4)]
    found = Evaluation(rows, SETTINGS)
    exact, noisy = found.difference("skin", "tsg", "cccp"), found.difference("skin", "tsg", "frs")
    assert exact.mean == pytest.approx(0.02)
    assert (exact.n_trials, exact.is_clear) == (3, True)
    assert not noisy.is_clear
    assert found.near_exact("tsg")[0] == []  # two points are more than one
    assert found.difference("w8a", "tsg", "cccp") is None


def test_exponents_need_four_sizes():
    rows = [made(n=n, seconds=n**1.5, name="skin") for n in (1000, 2000, 5000, 10_000)]
    rows += [made(n=n, seconds=n**1.5, name="w8a") for n in (1000, 2000, 5000)]
    assert Evaluation(rows, SETTINGS).exponents("tsg", "seconds") == [pytest.approx(1.5)]


def test_iterations():
    errors = {64: 0.20, 128: 0.105, 256: 0.10}
    rows = [made("curves", max_iter=t, trial=k, error=e + 0.001 * k) for t, e in errors.items() for k in range(3)]
    rows += [made("curves", "w8a", max_iter=t, trial=k, error=0.3 - e) for t, e in errors.items() for k in range(3)]
    n_good, n_curves, worse = Evaluation(rows, SETTINGS).settled("tsg")
    assert (n_good, n_curves, worse) == (1, 2, ["w8a"])


def test_slopes_have_intervals():
    rng = np.random.default_rng(0)
    rows = []
    for T in (32, 64, 128, 256):
        values = {"distances": (T**-0.5 * rng.uniform(0.9, 1.1, 20)).tolist()}
        rows.append(made("theory", "", "as stated", max_iter=T, values=json.dumps(values)))
    slope = Evaluation(rows, SETTINGS).law("as stated", "distances")
    assert slope.low < -0.5 < slope.high
    assert slope.high - slope.low < 0.2
    assert Evaluation(rows[:3], SETTINGS).law("as stated", "distances") is None


@pytest.mark.parametrize(
    ("k", "n", "verdict"), [(0, 0, "not run"), (0, 8, "no"), (1, 8, "partly"), (6, 8, "mostly"), (8, 8, "yes")]
)
def test_verdicts(k, n, verdict):
    assert word(k, n) == f"**{verdict}**"


def test_no_differences_are_a_dash():
    assert mean_points([]) == "–"


# Tuning and settings


@pytest.fixture
def toy(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    y = np.where(np.arange(600) % 2, 1, -1)
    np.savez(tmp_path / "toy.npz", X=rng.normal(size=(600, 3)) + y[:, None], y=y)
    monkeypatch.setenv("S3VM_DATA", str(tmp_path))
    return datasets.load("toy")


def task(**more):
    grid = {
        "log_c": [-1, 0, 1],
        "log_gamma": [-2, -1, 0, 1],
        "log_eta": [0, 1],
        "test_rows": 100,
        "draws": 2,
        "coarse": True,
    }
    subject = {"kind": "tsg", "printed": True, "settings": {"passes": 1}, "weight": 1.0}
    common = {
        "part": "tuning",
        "solver": "x",
        "trial": 0,
        "n_labeled": 20,
        "folds": 0,
        "rows": None,
        "protocol": "oracle",
    }
    return common | {"tuned_at": 200, "grid": grid, "subject": subject, "gamma": 0.1, "C": 1.0, "step": 0.1} | more


def test_the_oracle_climbs_from_coarse_cells_to_the_best(toy, monkeypatch):
    looked_at = []

    def prepared(chosen, n_rows):
        looked_at.append((chosen["C"], chosen["gamma"], chosen["step"]))
        return Fixed(abs(np.log10(chosen["C"] * 20) - 0) + abs(np.log10(chosen["gamma"]) - 0) + (chosen["step"] < 1))

    class Fixed:
        """Right on all but a number of rows that grows with the distance from C = 1 (of all rows), width 1, step 1."""

        def __init__(self, distance):
            self.n_wrong = round(4 * distance)

        def fit(self, X, y):
            return self

        def predict(self, X):
            truth = (X.mean(axis=1) > 0).astype(int)
            truth[: self.n_wrong] ^= 1
            return truth

    monkeypatch.setattr(work, "_classifier", prepared)
    found = work.tune(task(), toy, lambda facts: None)
    assert (found["C"], found["gamma"], found["step"]) == (1 / 20, 1.0, 1.0)  # the paper's C is that of all rows
    assert set(looked_at[:2]) == {(0.1 / 20, 0.1, 1.0)}, "two draws of every cell"
    assert len(set(looked_at)) < 24, "not the whole grid"


def test_what_is_compared(toy):
    printed = work._classifier(task(), n_rows=900)
    assert (printed.backend, printed.solver.n_features, printed.C) == ("cpu", 30, 1.0), "without a floor of 64"
    default = work._classifier(task(subject={"kind": "auto", "printed": False, "settings": {}, "weight": 1.0}))
    assert (default.solver, default.backend) == ("auto", "cpu")
    svm = work._classifier(task(subject={"kind": "svm", "printed": False, "settings": {}, "weight": 1.0}))
    assert (svm.unlabeled_weight, svm.solver) == (0.0, "tsg")
    rows = work._rows(task(part="times", rows=300, test_rows=50), toy)
    assert (len(rows.labels), (rows.labels >= 0).sum(), len(rows.truth)) == (300, 20, 50)


def test_a_run_takes_the_choice_at_the_largest_size_it_reaches(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text("""
title = "two"
sets = ["skin"]
[solvers]
tsg = { repeats = 2 }
"tsg, as printed" = { kind = "tsg", printed = true, tuned = "own", tuned_at = [1000, 5000] }
frs = { tuned = "tsg, as printed" }
[tuning]
protocol = "oracle"
once = true
[times]
sizes = [500, 2000, 5000]
error_rows = 5000
error_trials = 3
""")
    kept = Results(tmp_path / "two.parquet")
    stages = Plan(config.read(path)).stages(kept)
    choices = list(next(stages))
    assert [(one["solver"], one["tuned_at"], one["trial"]) for one in choices] == [
        ("shared", 2000, 0),
        ("tsg, as printed", 1000, 0),
        ("tsg, as printed", 5000, 0),
    ]
    for number, one in enumerate(choices):
        kept._add([made("tuning", solver=one["solver"], n=one["tuned_at"], C=float(number), key=str(number))])
    runs = [one for stage in stages for one in stage]
    chosen = {(one["solver"], one["rows"]): one["C"] for one in runs}
    assert [chosen["tsg, as printed", n] for n in (500, 2000, 5000)] == [1.0, 1.0, 2.0]
    assert [chosen["frs", n] for n in (500, 2000, 5000)] == [1.0, 1.0, 2.0]
    assert {chosen["tsg", n] for n in (500, 2000, 5000)} == {0.0}
    assert sorted(one["trial"] for one in runs if one["solver"] == "tsg" and one["rows"] == 5000) == [0, 1, 2]


# The theorems


def test_features_of_a_wrong_law_are_found_out():
    def distances(**setting):
        chosen = theory.Setting(n_features=64, **setting)
        return [theory.measure(T, 4, chosen)["distance"] for T in (32, 256)]

    right, wrong = distances(), distances(bias=4.0)
    assert right[1] < right[0] / 2
    assert wrong[1] > wrong[0] / 2


def test_settings_of_the_theorems():
    rough = theory.Setting(smooth=False)
    assert rough.slopes() == (6.0, np.inf)
    wide = theory.Setting(n_dims=20, n_pool=30).problem(0)
    assert wide.labeled.shape == (20, 20)

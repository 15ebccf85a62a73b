"""Every warning names the line of the user's file that called the package, not one of the package's own."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning

import s3vm
from s3vm import TSG, BatchSource, FileSource, S3VMClassifier, S3VMClassifierCV
from s3vm._utils.warn import deferred_warnings, warn

X, Y = make_moons(300, noise=0.2, random_state=0)
SOME = np.where(np.arange(300) < 40, Y, -1)
FEW = TSG(max_iter=6, batch_size=16)
FAST = {"C": 1.0, "gamma": 1.0, "random_state": 0}


def classifier(solver=FEW, **settings):
    return S3VMClassifier(solver, **FAST | settings)


def no_unlabeled_rows():
    classifier().fit(X, Y)


def no_unlabeled_rows_in_the_tuned_one():
    S3VMClassifierCV(FEW, random_state=0).fit(X, Y)


def no_unlabeled_rows_yet():
    classifier().partial_fit(X[:40], Y[:40])


def a_single_label_of_each_class():
    labels = np.full(300, -1)
    labels[:3] = [0, 1, 2]
    classifier().fit(X, labels)


def a_collapse():
    free = s3vm.FRS.as_printed(passes=None, max_iter=60, n_features=64)
    S3VMClassifier(free, C=0.01, gamma=1e-3, unlabeled_weight=100.0, probability=False, random_state=0).fit(
        X, np.where(np.arange(300) < 40, np.arange(300) % 3 == 0, -1)
    )


def lost_digits():
    classifier().fit(X + 1e9, SOME)


def no_early_stopping():
    classifier(early_stopping="held_out").fit(X, SOME)


def out_of_time():
    classifier(TSG(), max_seconds=1e-6).fit(X, SOME)


def out_of_time_on_a_stream():
    classifier(TSG(), max_seconds=1e-6, unlabeled_weight=1.0).fit(X[:40], Y[:40], X_unlabeled=BatchSource([X[40:]]))


def interrupted():
    def interrupt(done, total, record):
        raise KeyboardInterrupt

    classifier(verbose=interrupt).fit(X, SOME)


def out_of_rows():
    batches = (X[start : start + 20] for start in range(40, 300, 20))
    solver = TSG(max_iter=100, batch_size=16, n_features=32, n_reference=20)
    classifier(solver, unlabeled_weight=1.0).fit(X[:40], Y[:40], X_unlabeled=BatchSource(batches))


def a_checkpoint_that_is_not_written():
    folder = Path("folder")
    folder.mkdir()

    def remove(done, total, record):
        if folder.exists():
            folder.rmdir()

    classifier(verbose=remove).fit(X, SOME, checkpoint=folder / "checkpoint")


def a_hard_convex_problem():
    classifier("cccp", n_jobs=2).fit(X, SOME)


def a_hard_supervised_problem():
    classifier().fit(X, SOME)


def a_model_that_cannot_be_compressed():
    s3vm.compress(classifier(unlabeled_weight=1.0).fit(X, SOME), X[:100], tolerance=1e-9, size=1)


def large_values_in_a_file():
    Path("rows.csv").write_text("a,b\n" + "".join(f"{16_777_300 + k % 8},{k % 7}\n" for k in range(300)))
    classifier(unlabeled_weight=1.0).fit(X[:40], Y[:40], X_unlabeled=FileSource("rows.csv"))


CASES = {
    no_unlabeled_rows: "no unlabelled rows",
    no_unlabeled_rows_in_the_tuned_one: "no unlabelled rows",
    no_unlabeled_rows_yet: "no unlabelled rows",
    a_single_label_of_each_class: "single labelled row",
    a_collapse: "collapse",
    lost_digits: "differ in digits",
    no_early_stopping: "early_stopping='held_out' has no effect",
    out_of_time: "the time is up",
    out_of_time_on_a_stream: "the time is up",
    interrupted: "interrupted after 1 of 6",
    out_of_rows: "no more unlabelled rows",
    a_checkpoint_that_is_not_written: "no checkpoint was written",
    a_hard_convex_problem: "CCCP: after 10 steps",
    a_hard_supervised_problem: "has not converged",
    a_model_that_cannot_be_compressed: "tolerance",
    large_values_in_a_file: "lost in float32",
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_warning_names_the_callers_file(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if case is a_hard_convex_problem:
        monkeypatch.setattr("s3vm.solvers.cccp._MOST_STEPS", 10)
    if case is a_hard_supervised_problem:
        monkeypatch.setattr("s3vm.solvers.supervised._MOST_STEPS", 1)
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        case()
    found = [warning for warning in record if CASES[case] in str(warning.message)]
    assert found, [str(warning.message) for warning in record]
    assert {os.path.realpath(warning.filename) for warning in found} == {os.path.realpath(__file__)}
    lines = {line for *_, line in case.__code__.co_lines() if line is not None}
    assert {warning.lineno for warning in found} <= lines, "a line of the case itself"
    if case in (a_hard_convex_problem, a_hard_supervised_problem):
        assert issubclass(found[0].category, ConvergenceWarning)


def test_warnings_wait_until_they_are_issued():
    with deferred_warnings() as pending:
        warn("later", ResourceWarning)
    assert pending == [("later", ResourceWarning)]
    with pytest.warns(UserWarning, match="now") as record:
        warn("now")
    assert record[0].filename == __file__


def test_a_file_whose_name_begins_like_the_package_is_the_callers():
    path = f"{Path(s3vm.__file__).parent}_of_a_user.py"
    with pytest.warns(UserWarning, match="here") as record:
        exec(compile("warn('here')", path, "exec"), {"warn": warn})
    assert record[0].filename == path


def test_there_is_one_way_to_warn():
    root = Path(s3vm.__file__).parent
    assert [file.name for file in root.rglob("*.py") if "warnings.warn(" in file.read_text()] == ["warn.py"]

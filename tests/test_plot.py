"""Whether the pictures show what they should, and leave nothing behind."""

import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from fitted import HOSTILE, QUICK, blobs, moons, supervised
from s3vm import LabeledKFold, S3VMClassifier
from s3vm.inspect import diagnostics, plot
from s3vm.inspect.diagnostics import Sample


@pytest.fixture(autouse=True)
def _nothing_left():
    """No figure is left but those that were asked for, which are closed here; no setting is changed."""
    before = dict(matplotlib.rcParams)
    yield
    plt.close("all")
    assert dict(matplotlib.rcParams) == before


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_decision_boundary_of_two_classes():
    clf, X, y, _ = moons(unlabeled_weight=1.0)
    ax = plot.decision_boundary(clf, X, y)
    assert legend(ax) == ["class 0", "class 1", "unlabelled", "boundary", "margin, f = ±1"]
    assert [len(dots.get_offsets()) for dots in ax.collections if len(dots.get_offsets()) > 1] == [19, 21, 260]
    assert ax.get_xlabel() == "feature 0"
    low, high = ax.get_xlim()
    assert low < X[:, 0].min()
    assert high > X[:, 0].max()


def test_the_boundary_is_where_the_score_is_0():
    clf, X, y, _ = moons(unlabeled_weight=1.0)
    ax = plot.decision_boundary(clf, X, y)
    lines = [contour for contour in ax.collections if getattr(contour, "levels", None) is not None]
    on = {
        tuple(line.levels): np.vstack([path.vertices for path in line.get_paths()]) for line in lines if not line.filled
    }
    assert np.abs(clf.decision_function(on[0,])).max() < 0.05
    assert np.abs(np.abs(clf.decision_function(on[-1, 1])) - 1).max() < 0.05


def test_decision_boundary_of_more_classes_frames_and_sparse_rows():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    _, X, y, _ = blobs()
    clf = S3VMClassifier(QUICK, unlabeled=None, random_state=0)
    for frame in (pd.DataFrame(X[:, :2], columns=["a", "$b^$"]), pl.DataFrame(X[:, :2], schema=["a", "$b^$"])):
        ax = plot.decision_boundary(clf.fit(frame, y), frame, y, resolution=30)
        ax.figure.draw_without_rendering()
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", r"\$b^\$")
        assert legend(ax) == [r"class \$x^\$", f"class {HOSTILE[:23]}…", "class ash", "unlabelled", "boundary"]
    rows = sparse.csr_matrix(X[:, :2])
    plot.decision_boundary(clf.fit(rows, y), rows, y, resolution=30)


def test_decision_boundary_takes_plain_lists_and_a_constant_feature():
    X, y = [[0.0, 1.0], [1.0, 1.0], [0.2, 1.0], [0.8, 1.0]] * 3, [0, 1, 0, 1] * 3
    clf = S3VMClassifier(QUICK, unlabeled_weight=0, random_state=0)
    with pytest.warns(UserWarning, match="no unlabelled rows"):
        clf.fit(X, y)
    ax = plot.decision_boundary(clf, X, y, resolution=20)
    assert legend(ax)[:2] == ["class 0", "class 1"]
    assert "unlabelled" not in legend(ax)


def test_learning_curve():
    clf = moons().clf
    axes = plot.learning_curve(clf)
    assert [ax.get_title(loc="left") for ax in axes] == ["objective", "mean loss", "held-out rows"]
    assert legend(axes[1]) == ["labelled rows", "unlabelled rows"]
    assert legend(axes[2]) == ["error", "balanced error", "1 − average precision", "error, supervised"]
    drawn = axes[0].get_lines()[0]
    np.testing.assert_array_equal(drawn.get_xdata(), clf.history_["iteration"])
    np.testing.assert_array_equal(drawn.get_ydata(), clf.history_["objective"])
    supervised_error = axes[2].get_lines()[-1].get_ydata()[0]
    assert supervised_error == clf.safety_.scores[0.0]["error"]


def test_learning_curve_without_held_out_rows_and_of_a_pipeline():
    axes = plot.learning_curve(supervised().clf)
    assert [ax.get_title(loc="left") for ax in axes] == ["objective", "mean loss"]
    assert "1 − average precision" not in legend(plot.learning_curve(blobs().clf)[2])


def test_running_mean():
    np.testing.assert_allclose(plot._smooth(np.arange(100.0)), np.clip(np.arange(100.0), 2.5, 96.5), atol=2.5)
    np.testing.assert_array_equal(plot._smooth(np.array([3.0, 1.0])), [3.0, 1.0])


def test_score_histogram():
    clf, X, y, _ = moons()
    ax = plot.score_histogram(clf, X, y, bins=20)
    assert legend(ax) == ["unlabelled", "class 0", "class 1"]
    up, *down = ([bar.get_height() for bar in bars] for bars in ax.containers)
    counts = diagnostics.score_bins(Sample(clf, X, y), bins=20)
    np.testing.assert_array_equal(up, counts["unlabelled"])
    assert sum(up) == 260
    for heights, name in zip(down, ["class 0", "class 1"]):
        np.testing.assert_allclose(heights, np.asarray(counts[name]) * min(down[0]) / max(counts["class 0"]))
    scores = clf.decision_function(X[y == -1])
    assert np.sum(counts["unlabelled"][counts["to"] <= 0]) == pytest.approx(np.sum(scores < 0), abs=20)


def test_score_histogram_of_more_classes():
    ax = plot.score_histogram(*blobs()[:3])
    assert legend(ax) == ["unlabelled", r"class \$x^\$", f"class {HOSTILE[:17]}…", "class ash"]
    many = blobs(8, tuple("abcdefgh"))
    assert legend(plot.score_histogram(*many[:3])) == ["unlabelled", "labelled"], "more classes than colours"
    sample = Sample(*many[:3])
    counts, codes = diagnostics.score_bins(sample), sample.codes
    right = sample.scores.argmax(axis=1) == codes
    labeled = np.sum([counts[f"class {name}"] for name in "abcdefgh"], axis=0)
    assert np.sum(labeled[counts["from"] >= 0]) == pytest.approx(np.sum(right[codes >= 0]), abs=2)


def test_score_histogram_without_unlabeled_rows():
    clf, X, y, _ = supervised()
    ax = plot.score_histogram(clf, X, y)
    assert legend(ax) == ["class 0", "class 1"]
    assert sum(bar.get_height() for bars in ax.containers for bar in bars) == 50


def test_calibration():
    clf, _, _, (X, y) = moons()
    ax = plot.calibration(clf, X, y)
    points = diagnostics.reliability(clf, X, y)
    claimed, observed = ax.containers[1][0].get_data()
    np.testing.assert_array_equal(claimed, points["probability"])
    np.testing.assert_array_equal(observed, points["observed"])
    assert [int(text.get_text()) for text in ax.texts] == points["rows"].tolist()
    assert points["rows"].sum() == 200
    assert np.all((points["from"] <= claimed) & (claimed <= points["to"]))
    assert np.all((points["low"] <= observed) & (observed <= points["high"]))
    assert np.average(observed, weights=points["rows"]) == pytest.approx(y.mean())
    assert ax.get_xlabel() == "probability of class 1"
    assert plot.calibration(blobs().clf, *blobs().test).get_xlabel() == "probability of the predicted class"


def test_interval_holds_the_share():
    """Wilson's interval of 8 hits in 10, as tables have it; nothing and everything stay within 0 and 1."""
    np.testing.assert_allclose(diagnostics.wilson_interval(8, 10), (0.490, 0.943), atol=5e-4)
    assert diagnostics.wilson_interval(0, 5)[0] == 0
    assert diagnostics.wilson_interval(5, 5)[1] == 1


def test_given_axes_are_drawn_into():
    clf, X, y, test = moons()
    figure = Figure()
    axes = figure.subplots(2, 2)
    for draw, rows, ax in (
        (plot.decision_boundary, (X, y), axes[0, 0]),
        (plot.score_histogram, (X, y), axes[0, 1]),
        (plot.calibration, test, axes[1, 0]),
    ):
        assert draw(clf, *rows, ax=ax) is ax
        assert ax.has_data()
    three = Figure().subplots(3)
    assert plot.learning_curve(clf, ax=three).tolist() == three.tolist()
    assert len(plot.learning_curve(clf, ax=figure.add_subfigure(axes[1, 1].get_subplotspec()))) == 3
    assert not plt.get_fignums()


def test_a_search_and_another_classifier():
    clf, X, y, _ = moons()
    search = GridSearchCV(clone(clf), {"C": [1.0, 10.0]}, cv=LabeledKFold(2)).fit(X, y)
    assert plot.decision_boundary(search, X, y, resolution=20).has_data()
    assert len(plot.learning_curve(search)) == 3
    plot.score_histogram(SVC().fit(X[y >= 0], y[y >= 0]), X, y)


def test_samples_of_many_rows():
    clf, X, y, _ = moons()
    rows = np.tile(X, (100, 1))
    sample = Sample(clf, rows, np.tile(y, 100), max_rows=1000)
    assert (np.sum(sample.codes >= 0), np.sum(sample.codes < 0), len(sample.scores)) == (1000, 1000, 2000)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot.decision_boundary(*blobs()[:3]), r"two numbers, but X has the shape \(\d+, 3\)"),
        (lambda: plot.learning_curve(SVC().fit([[0.0], [1.0]], [0, 1])), "SVC has no history_"),
        (lambda: plot.learning_curve(moons().clf, ax=Figure().subplots()), "has 3 panels: ax must be a figure or 3"),
        (lambda: plot.calibration(supervised().clf, *supervised().test), "fit it with probability=True"),
        (lambda: plot.score_histogram(*moons()[:2], moons().y[:-1]), "inconsistent numbers of samples"),
        (lambda: plot.score_histogram(*moons()[:2], moons().y + 3), "unknown to the classifier: 2, 3, 4; it knows"),
        (lambda: plot.score_histogram(*moons()[:2], np.full(300, -1)), "no labelled rows"),
    ],
)
def test_clear_errors_leave_no_figure(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
    assert not plt.get_fignums()


def test_the_page_on_plots(tmp_path, monkeypatch):
    """The code of docs/plots.md runs as it stands."""
    text = (Path(__file__).parents[1] / "docs" / "plots.md").read_text()
    monkeypatch.chdir(tmp_path)
    exec("".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), {})
    assert len(plt.get_fignums()) == 4
    assert {page.name for page in tmp_path.iterdir()} == {"fit.html", "compared.html"}


def test_unfitted():
    with pytest.raises(NotFittedError):
        plot.learning_curve(S3VMClassifier())


def test_matplotlib_is_loaded_only_when_something_is_drawn():
    code = "import sys, s3vm; s3vm.plot, s3vm.write_report; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'needs matplotlib, which is not installed: pip install "s3vm\[report\]"'):
        plot.learning_curve(moons().clf)

"""Whether a report is one file that says what it should, runs nothing it should not, and looks right in a browser."""

import base64
import copy
import csv
import io
import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from importlib import metadata
from itertools import product

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from effort import cases
from fitted import HOSTILE, QUICK, blobs, moons, supervised
from s3vm import S3VMClassifier, TableEncoder
from s3vm.inspect import diagnostics
from s3vm.inspect.diagnostics import Sample
from s3vm.inspect.fit_report import FitReport, settings, write_report
from s3vm.inspect.page import Section, machine_facts, write_page

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """What is in a page; an AssertionError if its tags do not match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.ids = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data.strip())

    @property
    def text(self):
        return " ".join(self.texts)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def headings(self):
        return re.findall(r"<h2>(.*?)</h2>", self.rawdata)

    def data(self):
        """The files to download: name to columns of text."""
        files = {}
        for link in self.all("a"):
            kind, _, content = link["href"].partition(",")
            assert kind == "data:text/csv;charset=utf-8;base64"
            head, *rows = csv.reader(io.StringIO(base64.b64decode(content).decode()))
            files[link["download"]] = {name: [row[at] for row in rows] for at, name in enumerate(head)}
        return files


def read(path):
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    page.rawdata = text
    return page


def drawn():
    figure = Figure(figsize=(3, 2))
    figure.subplots().plot([1, 2, 3], [1, 4, 9], "k")
    return figure


def test_a_report_has_what_it_was_given(tmp_path):
    section = Section(
        "Squares & more",
        "First.\n\nSecond.",
        table={"n": [1, 20000], "share": [0.123456, np.nan], "good": [True, None], "name": ["a", "b"]},
        figure=drawn(),
        data={"n": np.array([1, 2, 3]), "square": [1.0, 4.0, 9.5]},
    )
    path = write_page(
        str(tmp_path / "a.html"), "A title", "It went well.", [section], {"C": 10.0}, {"Error": "3%\nof 100"}
    )
    page = read(path)
    assert page.headings() == ["Squares &amp; more", "Settings", "Machine and versions"]
    words = ["A title", "It went well.", "Squares & more", "First.", "Second.", "Error", "3%", "of 100", "C", "10.0"]
    assert set(words) <= set(page.texts)
    cells = [text for text in page.texts if text]
    assert cells[cells.index("name") + 1 :][:8] == ["1", "0.1235", "yes", "a", "20,000", "–", "–", "b"]
    assert page.data() == {"squares-more.csv": {"n": ["1", "2", "3"], "square": ["1.0", "4.0", "9.5"]}}
    for name in ("numpy", "scipy", "scikit-learn", "numba", "matplotlib"):
        assert metadata.version(name) in page.texts
    assert len(page.all("time")) == 1
    assert [svg["aria-label"] for svg in page.all("svg")] == ["Squares & more"]


def assert_self_contained(page):
    """Nothing is loaded from anywhere, and no script but our own is there."""
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base", "img")
        for name, value in attributes.items():
            assert not name.startswith("on"), f"{tag} {name}"
            if name in ("src", "href", "xlink:href", "action"):
                assert value.startswith(("#", "data:text/csv", "data:image/png;base64,")), f"{tag} {name}={value[:40]}"
            assert all(target[1:] in page.ids for target in re.findall(r"url\(([^)]*)\)", value or "")), value
    assert "@import" not in page.rawdata
    assert len(page.all("script")) == 1
    assert len(set(page.ids)) == len(page.ids), "every id is there once, though there are several figures"
    for attributes in page.all("use"):
        assert attributes["href"][1:] in page.ids


CASES = {
    "two classes": moons,
    "a given weight": lambda: moons(unlabeled_weight=0.5),
    "more classes, in a pipeline": blobs,
    "many classes": lambda: blobs(8, tuple("abcdefgh")),
    "supervised": supervised,
}


def codes_of(clf, X, y):
    return diagnostics.class_codes(clf, X, y)


def held_out_hits(classifier):
    """Whether each labelled row that could be held out is classified correctly by a model trained without it."""
    known = np.isfinite(classifier._held_out.scores).all(axis=1)
    at = classifier._held_out.labeled_at[known]
    scores = classifier.held_out_scores_
    codes = (scores > 0).astype(int) if scores.ndim == 1 else np.nan_to_num(scores).argmax(axis=1)
    return codes[at] == classifier._held_out.codes[known]


@pytest.mark.parametrize(
    ("case", "with_test"), [*product(CASES, [True]), *product(cases(list(CASES)[:1], CASES), [False])]
)
def test_report_of_a_fit(tmp_path, case, with_test):
    clf, X, y, test = CASES[case]()
    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context(dict.fromkeys(("figure.facecolor", "text.color", "xtick.color"), "#12fe34")):
        path = write_report(clf, X, y, tmp_path / "fit.html", test if with_test else None, more={"file": "some.csv"})
    assert dict(matplotlib.rcParams) == before
    page = read(path)
    assert_self_contained(page)
    classifier = diagnostics.final_classifier(clf)
    auto = classifier.safety_ is not None
    calibrated = with_test and hasattr(clf, "predict_proba")
    held_out = case != "supervised"  # without probabilities and a weight to choose, there are no folds
    wanted = {
        "Which classes are confused": with_test or held_out,
        "Rows to check": len(classifier.doubtful_["row"]) > 0,
        "What to label next": (codes_of(clf, X, y) < 0).any(),
        "Would more labels help?": held_out,
        "Which columns matter": True,
        "With and without unlabelled rows": auto,
        "Learning curve": classifier.n_iter_ > 1,
        "Scores of the training rows": True,
        "Calibration on test rows": calibrated,
        "Decision boundary": X.shape[1] == 2,
        "Settings": True,
        "Machine and versions": True,
    }
    assert page.headings() == [heading for heading, there in wanted.items() if there]
    assert "some.csv" in page.texts
    assert "#12fe34" not in page.rawdata, "the user's own style stays out"
    sentences = [text for text in page.texts if text.endswith(".")]
    assert len(set(sentences)) == len(sentences), "no sentence twice"
    judged = clf.predict(test[0]) == test[1] if with_test else held_out_hits(classifier)
    if not len(judged):
        assert "nothing can be said of errors" in page.text
        return
    assert f"Of 100 such rows, about {round(100 * np.mean(judged))} are classified correctly" in page.text
    is_binary = len(classifier.classes_) == 2
    assert (f"average precision of class {classifier.classes_[1]} " in page.text) == is_binary
    if with_test:
        assert f"{np.mean(~judged):.1%}" in page.texts
        largest = max(Counter(test[1].tolist()).values()) / len(judged)
        assert re.search(f"always guessing the largest class, .*, gets {round(100 * largest)}\\.", page.text)
    data = page.data()
    history = {name: column.tolist() for name, column in classifier.history_.items()}
    if classifier.n_iter_ > 1:
        assert {name: list(map(float, column)) for name, column in data["learning-curve.csv"].items()} == history
    bins = diagnostics.score_bins(Sample(clf, X, y))
    scores = data["scores-of-the-training-rows.csv"]
    assert list(scores) == list(bins)
    np.testing.assert_array_equal(np.array(scores["unlabelled"], dtype=int), bins["unlabelled"])
    if calibrated:
        observed = data["calibration-on-test-rows.csv"]["observed"]
        np.testing.assert_array_equal(np.array(observed, float), diagnostics.reliability(clf, *test)["observed"])
    if X.shape[1] == 2:
        rows = data["decision-boundary.csv"]
        np.testing.assert_array_equal(np.array(rows["x0 (feature 0)"], float), X[:, 0])
        np.testing.assert_array_equal(np.array(rows["score"], float), clf.decision_function(X))
        assert rows["label"] == ["" if label == -1 else str(label) for label in y]


def test_pipelines_of_tables_and_texts(tmp_path):
    """A date and a number (no boundary is drawn), weights of encoded columns, and texts without columns."""
    _, X, y, _ = moons()
    table = {"day": np.datetime64("2026-01-01") + (100 * X[:, 0]).astype(int), "size": X[:, 1]}
    rows = pd.DataFrame(table)
    clf = make_pipeline(TableEncoder(), S3VMClassifier(QUICK, random_state=0)).fit(rows, y)
    model, names = clf[-1].model_, clf[0].get_feature_names_out()
    clf[-1].model_ = replace(model, projection=np.arange(len(names), dtype=float))
    page = read(write_report(clf, rows, y, tmp_path / "fit.html"))
    assert f"column weights: {names[-1]} {len(names) - 1}" in page.text
    assert "Decision boundary" not in page.headings()
    texts = ["red round" if x > 0 else "blue square" for x in X[:, 0]]
    clf = make_pipeline(TfidfVectorizer(), S3VMClassifier(QUICK, random_state=0)).fit(texts, y)
    assert "2 classes, 4 features" in read(write_report(clf, texts, y, tmp_path / "text.html")).text


def test_projected_rows(tmp_path):
    _, X, y, _ = moons()
    wide = np.column_stack([X, 0.01 * X[:, 0]])
    clf = S3VMClassifier(QUICK, random_state=0, n_components=2).fit(wide, y)
    page = read(write_report(clf, wide, y, tmp_path / "fit.html"))
    assert "In front of the kernel: 2 directions of 3 columns." in page.text
    clf = copy.copy(moons()[0])
    clf.model_ = replace(clf.model_, projection=np.array([0.5, 1.5]))
    page = read(write_report(clf, X, y, tmp_path / "fit.html"))
    assert "The columns" in page.headings()
    assert "column weights: feature 1 1.5, feature 0 0.5." in page.text


def test_hostile_names_are_only_text(tmp_path):
    bad = f"{HOSTILE}\"'></style></svg><img src=x onerror=alert(1)>$title & \x00 日本"
    figure = drawn()
    figure.axes[0].set(title=bad.replace("\x00", ""), xlabel="日本")
    section = Section(bad, bad, {bad: [bad]}, figure, {bad: [bad]})
    page = read(write_page(tmp_path / "bad.html", bad, bad, [section], {bad: bad}, {bad: bad}))
    assert_self_contained(page)
    assert page.texts.count(bad.replace("\x00", "\ufffd")) + page.texts.count(bad) >= 8
    assert page.data() == {next(iter(page.data())): {bad: [bad]}}
    assert re.fullmatch(r"[a-z0-9-]+\.csv", page.all("a")[0]["download"])


def test_the_same_report_twice_is_the_same_but_for_the_time(tmp_path):
    clf, X, y, test = moons()
    first, second = (write_report(clf, X, y, tmp_path / name, test).read_text() for name in ("a.html", "b.html"))
    without_time = re.compile("<time.*</time>")
    assert without_time.sub("", first) == without_time.sub("", second)
    assert len(first) < 1_000_000


def test_a_weight_that_was_tried_first_and_not_chosen(tmp_path, monkeypatch):
    clf, X, y, test = moons()
    tried = next(weight for weight in clf.safety_.scores if weight)
    other = next(weight for weight in clf.safety_.scores if weight != tried)
    monkeypatch.setattr(clf, "safety_", replace(clf.safety_, weight=other))
    monkeypatch.setattr("s3vm.inspect.fit_report.Sample", partial(Sample, max_rows=20))
    page = read(write_report(clf, X, y, tmp_path / "fit.html", test))
    assert f"The curves are those of weight {tried:g}, tried first; {other:g} was chosen." in page.text
    assert "Counts of a sample of 40 rows." in page.text


def test_libraries_that_are_not_installed_are_not_named(monkeypatch):
    monkeypatch.setattr("s3vm.inspect.page._LIBRARIES", ("numpy", "no-such-library"))
    assert "numpy" in machine_facts()
    assert "no-such-library" not in machine_facts()


def test_points_of_several_classes():
    clf, X, y, _ = blobs()
    columns = diagnostics.sample_columns(Sample(clf, X, y))
    np.testing.assert_array_equal(
        columns["score of ash"], clf.decision_function(X)[:, clf.classes_.tolist().index("ash")]
    )


def test_sections_stand_beside_others(tmp_path):
    clf, X, y, test = moons()
    parts = [Section("Comparison", table={"solver": ["tsg"]}), *FitReport(clf, X, y, test).sections()]
    page = read(write_page(tmp_path / "c.html", "Compared", "One won.", parts, settings(clf)))
    assert page.headings()[:2] == ["Comparison", "Which classes are confused"]
    assert "RBF(" in page.text


def test_columns_of_different_lengths(tmp_path):
    with pytest.raises(ValueError, match=r"different lengths: \{'a': 2, 'b': 1\}"):
        write_page(tmp_path / "d.html", "t", "s", [Section("h", table={"a": [1, 2], "b": [1]})])


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium here (Debian: apt-get install chromium), so that reports were NOT opened in a browser",
)


def browse(tmp_path, page, *options, width=1000):
    """What Chromium makes of a page: its DOM, and what it said meanwhile."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},1600", *options, page.as_uri()]
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    return done.stdout.decode(), done.stderr.decode()


@pytest.mark.long
@needs_browser
def test_in_a_browser(tmp_path):
    """Opened without an error; the page's own script has run, and one in a class's name has not."""
    clf, X, y, test = blobs()
    path = write_report(clf, X, y, tmp_path / "fit.html", test, title="A report")
    dom, said = browse(tmp_path, path, "--dump-dom")
    assert "CONSOLE" not in said
    assert "<title>A report</title>" in dom
    assert "<button>test rows</button>" in dom
    assert "&lt;script&gt;document.title='run'&lt;/script&gt;" in dom


@pytest.mark.long
@needs_browser
def test_policy_holds_even_where_escaping_would_not(tmp_path):
    path = write_page(tmp_path / "a.html", "A report", "s")
    path.write_text(path.read_text().replace("<main>", f"<main>{HOSTILE}<img src='http://127.0.0.1:9/x.png'>"))
    dom, said = browse(tmp_path, path, "--dump-dom")
    assert "<title>A report</title>" in dom
    assert said.count("violates the following Content Security Policy directive") == 2


@pytest.mark.long
@needs_browser
def test_light_and_dark(tmp_path):
    clf, X, y, test = moons()
    path = write_report(clf, X, y, tmp_path / "fit.html", test)
    for scheme, paper, ink in ((1, 1.0, 0.2), (0, 0.1, 0.8)):
        picture = tmp_path / f"{scheme}.png"
        browse(tmp_path, path, f"--screenshot={picture}", f"--blink-settings=preferredColorScheme={scheme}")
        pixels = matplotlib.image.imread(picture)[:, :, :3].mean(axis=2)
        assert pixels.shape == (1600, 1000)
        assert pixels[0, 0] == pytest.approx(paper, abs=0.05)
        extreme = pixels.min() if paper > ink else pixels.max()
        assert abs(extreme - ink) < 0.2, "the text is visible"


PHONE = """<iframe src="fit.html" style="width: 390px; height: 800px; border: 0"></iframe>
<script>
  addEventListener("load", () => {
    const page = frames[0].document, whole = page.documentElement;
    page.querySelector("details").open = true;
    const ends = [...page.querySelectorAll("svg, p, dl, table")].map((one) => one.getBoundingClientRect().right);
    const table = [...page.querySelectorAll("table")].find((one) => one.tHead.textContent.includes("test rows"));
    const column = () => [...table.tBodies[0].rows].map((row) => Number(row.cells[1].textContent));
    const sorted = [1, 2].map(() => { table.tHead.rows[0].cells[1].firstChild.click(); return column(); });
    document.body.innerHTML = JSON.stringify([whole.clientWidth, whole.scrollWidth, Math.max(...ends), ...sorted]);
  });
</script>"""


@pytest.mark.long
@needs_browser
def test_on_a_phone_and_sorted(tmp_path):
    """Nothing sticks out at 390 pixels; a click on a heading sorts the rows by number, another one turns them round."""
    clf, X, y, test = blobs(8, tuple("abcdefgh"))
    write_report(clf, X, y, tmp_path / "fit.html", test)
    frame = tmp_path / "phone.html"
    frame.write_text(PHONE)
    dom, _ = browse(tmp_path, frame, "--dump-dom", "--allow-file-access-from-files")
    width, scrolled, end, rising, falling = json.loads(re.search(r"<body>(.*)</body>", dom, re.DOTALL)[1])
    assert (width, scrolled) == (390, 390)
    assert end <= 390
    assert len(rising) == 8
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = write_page(tmp_path / "report.html", "Old", "Nothing yet.")
    before = path.read_bytes()

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="no space"):
        write_page(path, "New", "Something.")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]

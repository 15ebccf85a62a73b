"""Columns as they come: what each becomes, on which scale, in a pipeline that can be saved and exported."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline

import s3vm
from s3vm import S3VMClassifier, TableEncoder
from s3vm._utils import container
from s3vm.sources.values import Column

N = 240
RANDOM = np.random.RandomState(0)
Y = RANDOM.randint(2, size=N)
NOTES = [" ".join(RANDOM.choice(["red", "green", "blue", "old", "new"], 4)) + f" no {k}" for k in range(N)]
TABLE = {
    "size": Y + 0.5 * RANDOM.randn(N),
    "town": RANDOM.choice(["Ulm", "Bonn", "Rome"], N).tolist(),
    "sold": np.where(RANDOM.rand(N) < 0.5, "yes", "No").tolist(),
    "day": [f"{d % 28 + 1}/{d % 12 + 1}/2025".replace("/", ".") for d in range(N)],
    "note": NOTES,
    "id": np.arange(N) + 1000,
    "key": [f"k{k}" for k in range(N)],
    "unit": ["kg"] * N,
    "empty": [None] * N,
    "price": [None if k % 9 == 0 else str(k * 1.5) for k in range(N)],
}
KINDS = {
    "size": "number",
    "town": "category",
    "sold": "boolean",
    "day": "date",
    "note": "text",
    "id": "left out",
    "key": "left out",
    "unit": "left out",
    "empty": "left out",
    "price": "number",
}
CODED = {name: TABLE[name] for name in ("size", "town", "sold", "price")}


def kinds(encoder):
    return {plan.name: plan.kind for plan in encoder.plan_}


@pytest.mark.parametrize("frame", [dict, pd.DataFrame, pl.DataFrame, pa.table], ids=lambda kind: kind.__name__)
def test_what_columns_become(frame):
    encoder = TableEncoder().fit(frame(TABLE), Y)
    assert kinds(encoder) == KINDS
    rows = encoder.transform(frame(TABLE))
    assert rows.shape == (N, len(encoder.get_feature_names_out()))
    assert sparse.issparse(rows), "since there is text"
    wanted = TableEncoder().fit(TABLE, Y).transform(TABLE)
    np.testing.assert_array_equal(rows.toarray(), wanted.toarray())
    assert encoder.outcomes["id"] == "left out: a different whole number in every row, like an id"
    assert clone(encoder).get_params() == encoder.get_params()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 0, 1, 1], "boolean"),
        ([True, False, None, True], "boolean"),
        (["on", "OFF", "", "on"], "boolean"),
        (["3", " 4.5", "?", "NA"], "number"),
        (["a", "b", "a", "b"], "category"),
        (["2026-01-05", "2026-02-01", None, "2026-07-09"], "date"),
        (pd.to_datetime(["2026-01-05", None, "2026-02-01", "2026-01-05"]), "date"),
        (pd.Series([1, None, 3, 7], dtype="Int64"), "number"),
        (pd.Series(["a", "b", "a", None], dtype="category"), "category"),
        (pa.array(["x", "y", "x", None]).dictionary_encode(), "category"),
        (pa.array([1, 2, 4, None], pa.timestamp("s")), "date"),
        (pa.array([[1], [2], [3], [4]]), "left out"),
        ([{}, {}, {}, {}], "left out"),
        ([5, 5, 5, None], "category"),
    ],
)
def test_kinds_of_values(values, kind):
    assert kinds(TableEncoder().fit({"a": values, "b": [1.5, 2, 7, 4]}))["a"] == kind


def test_numbers_are_scaled_robustly_and_indicators_are_not():
    size = np.r_[RANDOM.randn(N - 1), 1e6]
    encoder = TableEncoder(scale="each").fit({"size": size, "flag": Y, "town": TABLE["town"]})
    rows = encoder.transform({"size": size, "flag": Y, "town": TABLE["town"]})
    assert abs(np.median(rows[:, 0])) < 1e-6
    assert 0.5 < rows[:-1, 0].std() < 1.5
    assert rows[-1, 0] == pytest.approx(4), "an outlier is squashed"
    assert set(np.unique(rows[:, 1:])) == {0, 1}


def test_missing_values_are_the_median_with_a_flag():
    encoder = TableEncoder(scale="none").fit({"a": [1.0, 2, 7, None]})
    assert encoder.get_feature_names_out().tolist() == ["a", "a: missing"]
    np.testing.assert_array_equal(encoder.transform({"a": [None, 7.0]}), [[0, 1], [5, 0]])


def test_text_is_tf_idf():
    from sklearn.feature_extraction.text import TfidfVectorizer

    encoder = TableEncoder().fit({"note": NOTES})
    (plan,) = encoder.plan_
    counted = TfidfVectorizer(vocabulary=list(plan.values), sublinear_tf=True)
    counted.idf_ = np.array(plan.weights)
    np.testing.assert_allclose(encoder.transform({"note": NOTES}).toarray(), counted.transform(NOTES).toarray(), 1e-5)
    reference = TfidfVectorizer(min_df=2, max_df=N - 1, sublinear_tf=True).fit(NOTES)
    assert set(reference.vocabulary_) == set(plan.values)
    wanted = dict(zip(reference.get_feature_names_out(), reference.idf_))
    assert dict(zip(plan.values, plan.weights)) == pytest.approx(wanted)


def test_dates_go_through_their_cycles():
    days = np.datetime64("2026-01-05") + np.arange(70)  # a Monday
    encoder = TableEncoder(scale="none").fit({"day": days})
    assert encoder.plan_[0].values == ("year", "week")
    rows = encoder.transform({"day": days})
    np.testing.assert_allclose(rows[:63, 3:], rows[7:, 3:], atol=1e-3)  # repeats after a week
    np.testing.assert_allclose(np.diff(rows[:, 0]), 1, rtol=1e-4)
    hours = TableEncoder().fit({"t": np.datetime64("2026-01-05T00") + np.arange(60)})
    assert hours.plan_[0].values == ("day",)


@pytest.mark.parametrize(("unit", "cycles"), [("Y", ()), ("M", ("year",)), ("D", ("year", "week"))])
def test_dates_have_no_place_in_cycles_shorter_than_their_steps(unit, cycles):
    dates = (np.datetime64("2010", unit) + np.arange(100)).astype("M8[s]") + np.timedelta64(9, "h")
    assert TableEncoder().fit({"date": dates}).plan_[0].values == cycles


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-04",
        "2026/03/04",
        "3/4/2026",
        "04.03.2026",
        "Mar 4 2026",
        "4 Mar 2026",
        "2026-03-04T00:00:00",
        "3-4-2026",
        "4-Mar-2026",
        "2026-3-4",
    ],
)
def test_formats_of_dates(text):
    assert Column.of([text]).as_days()[0] == (np.datetime64("2026-03-04") - np.datetime64("1970-01-01")).astype(int)


def test_dates_of_a_column_have_one_order(tmp_path):
    """3/4/2026 is in April if another date of the column has a day above 12 in front, also in batches without one."""
    days = np.datetime64("2026-01-01") + np.arange(60)
    texts = [day.item().strftime("%d/%m/%Y") for day in days]
    encoder = TableEncoder(scale="none").fit({"day": texts, "size": np.arange(60) % 7})
    np.testing.assert_array_equal(np.diff(encoder.transform({"day": texts, "size": np.zeros(60)})[:, 0]), 1)
    clf = make_pipeline(encoder, S3VMClassifier()).fit(
        {"day": texts, "size": np.arange(60) % 7}, np.arange(60) // 20 - 1
    )
    s3vm.save(clf, tmp_path / "m.s3vm")
    for read in (clf, s3vm.load(tmp_path / "m.s3vm")):
        row = read[0].transform({"day": ["03/02/2026"], "size": [0]})
        assert row[0, 0] == encoder.transform({"day": [np.datetime64("2026-02-03")], "size": [0]})[0, 0]


@pytest.mark.parametrize("form", ["{},{:02}", "-1.{},{}", "{},{:03}.25"])
def test_numbers_with_commas_are_named(form):
    """Decimal commas, and thousands: which of them is for the user to say."""
    texts = [form.format(100 + k, 100 + k % 7) for k in range(60)]
    encoder = TableEncoder().fit({"price": texts, "size": np.arange(60) % 7})
    assert encoder.outcomes["price"] == "left out: numbers with commas: write 1234.5"
    hosts = TableEncoder().fit({"host": [f"10.0.0.{k}" for k in range(60)], "size": np.arange(60) % 7})
    assert hosts.outcomes["host"] == "left out: a different value in nearly every row"


def test_ids_of_many_rows_are_planned_on_few(monkeypatch):
    """Whether text is a date is slow to see: not every id is tried in every format."""
    tried = []
    monkeypatch.setattr("s3vm.sources.values._day", lambda text, day_first: tried.append(text) or np.nan)
    TableEncoder().fit({"name": [f"A{k:07}" for k in range(30_000)], "size": np.arange(30_000) % 7})
    assert len(tried) <= 1_000


def test_rare_values_share_a_feature():
    values = [f"v{k % 80}" for k in range(800)] + ["once"]
    encoder = TableEncoder().fit({"a": values})
    rows = encoder.transform({"a": values})
    assert rows.shape[1] == 65
    np.testing.assert_array_equal(rows.sum(axis=1), 1)
    assert rows[-1, -1] == 1
    with pytest.warns(UserWarning, match=r"column 'a': 50.00% of the rows have a value never seen .*, such as 'new'"):
        unseen = encoder.transform({"a": ["v1", "new"]})
    np.testing.assert_array_equal(unseen[1], rows[-1])


def test_what_does_not_fit_is_counted():
    encoder = TableEncoder().fit(CODED)
    odd = {"size": [1.0, "?", "big", 2], "town": ["Ulm", "Oslo", None, "Rome"], "sold": ["yes", "perhaps", "no", "y"]}
    odd["price"] = ["1", "2", "3", "4"]
    with pytest.warns(UserWarning, match="column") as caught:
        rows = encoder.transform(odd)
    said = {str(warning.message) for warning in caught}
    assert said == {
        "column 'size': 25.00% of the rows have a value that does not fit and counts as missing, such as 'big'",
        "column 'size': 25.00% of the rows have no value, which training never saw",
        "column 'town': 25.00% of the rows have a value never seen in training, such as 'Oslo'",
        "column 'town': 25.00% of the rows have no value, which training never saw",
        "column 'sold': 25.00% of the rows have a value that does not fit and counts as missing, such as 'perhaps'",
    }
    assert np.isfinite(rows).all()
    assert rows[1, 0] == rows[2, 0] == 0


def test_overrides():
    encoder = TableEncoder(drop=["size"], number=["id"], category=["price", "key"], text=["town"]).fit(TABLE)
    changed = {"size": "left out", "id": "number", "price": "category", "key": "category", "town": "text"}
    assert kinds(encoder) == KINDS | changed
    with pytest.raises(ValueError, match="drop='sizes' is not valid"):
        TableEncoder(drop=["sizes"]).fit(TABLE)
    with pytest.raises(ValueError, match="each for one purpose"):
        TableEncoder(drop=["size"], text=["size"]).fit(TABLE)
    with pytest.raises(ValueError, match=r"no column can be a feature: 'unit' is left out \(the same value"):
        TableEncoder().fit({"unit": TABLE["unit"]})


@pytest.mark.parametrize("cells", [[[1, 2]] * N, [[1, 2], [3]] * (N // 2), np.zeros((N, 2)), 5])
def test_columns_of_lists(cells):
    with pytest.raises(ValueError, match="column 'pair' must have one value per row"):
        TableEncoder().fit({"size": TABLE["size"], "pair": cells})
    encoder = TableEncoder().fit({"size": TABLE["size"]})
    with pytest.raises(ValueError, match="column 'size' must have one value per row"):
        encoder.transform({"size": cells})


def test_columns_of_different_lengths():
    for short in (TABLE["size"][:9], TABLE["town"][:9]):
        with pytest.raises(ValueError, match=rf"equally many rows, not \[9, {N}\]"):
            TableEncoder().fit({"price": TABLE["price"], "short": short})


def test_missing_numbers_of_an_array():
    X = np.where(np.arange(N) == 3, np.nan, TABLE["size"])[:, None]
    for do in (TableEncoder().fit, TableEncoder().fit(TABLE["size"][:, None]).transform):
        with pytest.raises(ValueError, match=r"contains NaN\. Fill in missing values by an imputer"):
            do(X)


def test_the_scale_is_chosen_on_rows_held_out():
    X, y = load_digits(return_X_y=True)
    some = np.where(RANDOM.permutation(len(y)) < 80, y, -1)
    assert TableEncoder().fit(X, some).scale_ == "common"
    rows = RANDOM.randn(400, 2) * [1, 1000]
    encoder = TableEncoder().fit(rows, np.where(np.arange(400) < 100, rows[:, 0] > 0, -1))
    assert encoder.scale_ == "each"
    assert encoder.briers_["each"] < encoder.briers_["common"]
    assert TableEncoder().fit(rows).briers_ == {}, "without labels"
    assert TableEncoder(scale="none").fit(rows).scale_ == "none"
    dense, thin = (TableEncoder(scale="common").fit(part(X)) for part in (np.asarray, sparse.csr_array))
    np.testing.assert_allclose(dense.factors_ > 0, thin.factors_ > 0)
    with pytest.raises(ValueError, match="X has 3 features, but TableEncoder is expecting 2"):
        encoder.transform(np.zeros((1, 3)))


@pytest.mark.parametrize("columns", [TABLE, CODED], ids=["with text", "dense"])
def test_a_pipeline_is_saved_without_pickle(columns, tmp_path):
    some = pd.Series(np.where(np.arange(N) < 60, Y, -1), name="bought")
    model = make_pipeline(TableEncoder(drop=["price"]), S3VMClassifier(random_state=0)).fit(columns, some)
    assert np.mean(model.predict(columns) == Y) > 0.75
    s3vm.save(model, tmp_path / "m.s3vm")
    again = s3vm.load(tmp_path / "m.s3vm")
    np.testing.assert_array_equal(again.decision_function(columns), model.decision_function(columns))
    assert again[0].plan_ == model[0].plan_
    assert again[0].target_ == "bought"
    assert again[0].get_params() == model[0].get_params() | {"drop": ["price"]}


@pytest.mark.parametrize(
    ("entry", "value"),
    [("scale", "big"), ("target", 3), ("briers", {"each": "low"}), ("settings", {"dropped": []})],
)
def test_a_forged_plan_is_refused(entry, value, tmp_path):
    model = make_pipeline(TableEncoder(), S3VMClassifier(random_state=0)).fit(CODED, np.where(np.arange(N) < 60, Y, -1))
    s3vm.save(model, tmp_path / "m.s3vm")
    header, tensors = container.read(tmp_path / "m.s3vm")
    container.write(tmp_path / "bad.s3vm", header | {"encoder": header["encoder"] | {entry: value}}, tensors)
    with pytest.raises(s3vm.ModelFormatError):
        s3vm.load(tmp_path / "bad.s3vm")
    plan = json.loads(tensors["encoder.plan"].tobytes())
    for name, wrong in (("kind", "magic"), ("n_own", 99), ("center", "x"), ("values", ["a", "a"]), ("name", 3)):
        changed = [{"ColumnPlan": column["ColumnPlan"] | {name: wrong}} for column in plan]
        forged = {**tensors, "encoder.plan": np.frombuffer(json.dumps(changed).encode(), np.uint8)}
        container.write(tmp_path / "bad.s3vm", header, forged)
        with pytest.raises(s3vm.ModelFormatError):
            s3vm.load(tmp_path / "bad.s3vm")


def test_onnx_has_an_input_per_column(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    some = np.where(np.arange(N) < 60, Y, -1)
    for scale in ("each", "common"):
        table = CODED | {"sold": (np.arange(N) % 3 == 0).astype(float)}
        model = make_pipeline(TableEncoder(scale=scale), S3VMClassifier(random_state=0)).fit(table, some)
        s3vm.to_onnx(model, tmp_path / "m.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
        price = [np.nan if price is None else float(price) for price in table["price"]]
        given = {name: np.array(table[name], np.float32)[:, None] for name in ("size", "sold")}
        given |= {"price": np.array(price, np.float32)[:, None], "town": np.array(table["town"], object)[:, None]}
        scores = session.run(["scores"], given)[0]
        np.testing.assert_allclose(scores, model.decision_function(table), atol=2e-5)
    model = make_pipeline(TableEncoder(), S3VMClassifier(random_state=0)).fit(TABLE, some)
    with pytest.raises(ValueError, match=r"cannot encode dates and free text, .* 'day' is one.*drop=\['day', 'note'\]"):
        s3vm.to_onnx(model, tmp_path / "m.onnx")

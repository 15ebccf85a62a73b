"""Sources: every row once a pass, the same batches from the same seed wherever one begins, and errors that help."""

import gzip
import pickle
import threading

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file
from sklearn.preprocessing import StandardScaler

from s3vm import TableEncoder
from s3vm.philox import Purpose
from s3vm.sources import ENDLESS, ArraySource, ExhaustedError, is_source
from s3vm.sources.batches import BatchSource
from s3vm.sources.files import FileSource, source_of
from s3vm.sources.readers import TableError, matrices, read, tabular
from s3vm.sources.streams import StreamSource

N, D = 1000, 3
X = np.random.RandomState(0).randn(N, D).astype(np.float32)
X[:, 0] = np.arange(N)  # a row says which one it is
LABELS = np.where(np.arange(N) % 50 == 7, (np.arange(N) // 50) % 2, -1)
BUFFER = 4 * D * 4 * 64  # four lanes of 64 rows


def write_folder(folder, kind="parquet"):
    """The rows in several files, each of another shape."""
    (folder / "then").mkdir(parents=True)
    (folder / "_SUCCESS").write_text("")
    for number, part in enumerate(np.split(np.arange(N), [100, 110, 500, 730])):
        label = pa.array(LABELS[part], mask=LABELS[part] < 0)
        columns = {"number": X[part, 0], "a": X[part, 1], "b": X[part, 2].astype(np.float64), "label": label}
        if number % 2:
            columns = dict(reversed(columns.items()))
        path = folder / ("then" if number == 4 else "") / f"part-{number}.{kind}"
        if kind == "parquet":
            pq.write_table(pa.table(columns), path, row_group_size=90)
        elif kind == "csv":
            pa_csv.write_csv(pa.table(columns), path)
        else:
            pa_csv.write_csv(pa.table(columns), path.with_suffix(""))
            with gzip.open(path, "wb") as file:
                file.write(path.with_suffix("").read_bytes())
            path.with_suffix("").unlink()
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("data") / "parquet")


def numbers(rows):
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows)[:, 0].astype(int)


def drawn(source, steps, size=32, seed=5):
    return source.batches(seed, Purpose.UNLABELED, steps, size)


def file_source(folder, **settings):
    return FileSource(folder, **{"drop": ["label"], "buffer_bytes": BUFFER, **settings})


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz", "batches", "made anew"])
def test_every_row_once_a_pass_in_an_order_that_is_drawn(tmp_path, kind):
    if kind == "batches":
        source = BatchSource([X[:100], X[100:110], X[110:]], N, buffer_bytes=BUFFER)
    elif kind == "made anew":
        source = BatchSource(lambda: (part for part in np.array_split(X, 7)), buffer_bytes=BUFFER)
    else:
        source = file_source(write_folder(tmp_path / "folder", kind))
    assert is_source(source)
    assert source.n_dims == D
    assert source.n_rows == (ENDLESS if kind == "made anew" else N)
    rows = np.concatenate([drawn(source, range(t, t + 1), 50) for t in range(40)])
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows[:, 1:], X[numbers(rows), 1:])
    first, second = numbers(rows)[:N], numbers(rows)[N:]
    np.testing.assert_array_equal(np.sort(first), np.arange(N))
    np.testing.assert_array_equal(np.sort(second), np.arange(N))
    assert not np.array_equal(first, second)
    assert np.mean(np.diff(first) == 1) < 0.1


@pytest.mark.parametrize("counted", [True, False])
def test_a_batch_depends_on_seed_and_step_only(folder, counted):
    def make():
        return file_source(folder) if counted else BatchSource(lambda: iter(np.array_split(X, 9)), buffer_bytes=BUFFER)

    straight = drawn(make(), range(100))
    one_by_one = make()
    parts = [drawn(one_by_one, range(t, t + 1)) for t in range(100)]
    np.testing.assert_array_equal(np.concatenate(parts), straight)
    for t in (0, 1, 17, 31, 32, 63, 99):
        np.testing.assert_array_equal(drawn(make(), range(t, t + 1)), parts[t])
    for t in (50, 3, 4, 90, 5):  # to and fro
        np.testing.assert_array_equal(drawn(one_by_one, range(t, t + 1)), parts[t])
    if counted:
        np.testing.assert_array_equal(drawn(pickle.loads(pickle.dumps(make())), range(100)), straight)
    assert not np.array_equal(drawn(make(), range(100), seed=6), straight)


def test_a_run_that_goes_on_opens_the_files_there(folder, monkeypatch):
    read_groups = []
    batches = tabular.ParquetFile.batches
    monkeypatch.setattr(
        tabular.ParquetFile, "batches", lambda self, *rest: read_groups.append(self.path) or batches(self, *rest)
    )
    drawn(file_source(folder, buffer_bytes=4 * D * 4 * 16), range(600, 601), 32)
    assert len(read_groups) < 10  # of 19 times 13


def test_the_sample(folder, tmp_path):
    for source in (file_source(folder), FileSource(folder, "label"), BatchSource(lambda: np.array_split(X, 3), N)):
        sample = source.sample(3, 200)
        np.testing.assert_array_equal(source.sample(3, 50), sample[:50])
        assert sample.shape == (200, D)
        assert len(set(numbers(sample))) == 200
        np.testing.assert_array_equal(sample[:, 1:], X[numbers(sample), 1:])
        assert 400 < numbers(sample).mean() < 600
        assert source.sample(3, 10 * N).shape[0] == source.n_rows
        assert not np.array_equal(source.sample(4, 200), sample)


@pytest.mark.parametrize("look", [1 << 14, 20], ids=["chunks have enough", "and the rest comes from the first windows"])
def test_a_sample_of_many_rows(folder, monkeypatch, look):
    """Some of each chunk; only its beginning is read."""
    for name, value in (("_SAMPLE", 300), ("_LEAST_SAMPLE", 100), ("_SAMPLE_DEPTH", look)):
        monkeypatch.setattr(f"s3vm.sources.streams.{name}", value)
    source = file_source(folder)
    sample = source.sample(3, 200)
    assert sample.shape == (200, D)
    assert source.sample(3, 300).shape == (300, D)
    assert len(set(numbers(sample))) > 150, "the first windows may hold a row that is there already"
    np.testing.assert_array_equal(sample[:, 1:], X[numbers(sample), 1:])
    assert 300 < numbers(sample).mean() < 700
    np.testing.assert_array_equal(file_source(folder).sample(3, 200), sample)


def test_labeled_rows_are_kept_and_not_handed_out(folder):
    source = FileSource(folder, "label", buffer_bytes=BUFFER)
    rows, labels = source.labeled()
    assert source.names == ["number", "a", "b"]
    at = np.flatnonzero(LABELS >= 0)
    np.testing.assert_array_equal(rows, X[at])
    assert labels.tolist() == LABELS[at].tolist()
    assert source.n_rows == N - len(at)
    everyone = drawn(source, range(1), source.n_rows)
    np.testing.assert_array_equal(np.sort(numbers(everyone)), np.flatnonzero(LABELS < 0))
    again = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(drawn(again, range(1), source.n_rows), everyone)


def test_scaling_in_one_pass_or_on_a_sample(folder):
    for source, rows in ((file_source(folder), X), (FileSource(folder, "label"), X)):
        scaler = source.scaler()
        exact = StandardScaler().fit(rows)
        np.testing.assert_allclose(scaler.mean_, exact.mean_, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(scaler.scale_, exact.scale_, rtol=1e-6)
        scaled = source.scaled(scaler)
        batch = drawn(scaled, range(1))
        assert batch.dtype == np.float32
        np.testing.assert_allclose(batch, exact.transform(drawn(source, range(1))), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(scaled.sample(0, 9), exact.transform(source.sample(0, 9)), rtol=1e-5, atol=1e-6)
        assert list(scaler.feature_names_in_) == source.names == ["number", "a", "b"]
        np.testing.assert_allclose(source.scaler(sample=500).scale_, exact.scale_, rtol=0.2)
    rows, _ = scaled.labeled()
    np.testing.assert_allclose(rows, exact.transform(X[LABELS >= 0]), rtol=1e-5, atol=1e-6)
    whole = StreamSource.scaler(source)  # unlabelled rows only
    np.testing.assert_allclose(whole.mean_, X[LABELS < 0].mean(axis=0), rtol=1e-5, atol=1e-6)


def test_svmlight_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(matrices, "_PIECE_BYTES", 500)
    sparse_rows = sparse.csr_array(np.where(np.abs(X) > 0.5, X, 0).astype(np.float32))
    for zero_based in (True, False):
        path = tmp_path / f"{zero_based}.svm"
        dump_svmlight_file(sparse_rows, LABELS, str(path), zero_based=zero_based)
        source = FileSource(path, "label", mark=["-1"], buffer_bytes=BUFFER)
        rows, labels = source.labeled()
        np.testing.assert_allclose(rows.toarray(), sparse_rows[LABELS >= 0].toarray(), rtol=1e-6)
        assert labels.tolist() == LABELS[LABELS >= 0].tolist()
        everyone = drawn(source, range(1), source.n_rows)
        assert sparse.issparse(everyone)
        np.testing.assert_array_equal(np.sort(numbers(everyone))[1:], np.flatnonzero(LABELS < 0)[1:])
        scaled = source.scaled(source.scaler())
        assert drawn(scaled, range(1)).nnz == drawn(source, range(1)).nnz


def test_numpy_files_stay_on_the_disk(tmp_path):
    np.save(tmp_path / "rows.npy", X.astype(np.float64))
    np.savez(tmp_path / "rows.npz", X=X)
    expected = drawn(ArraySource(X), range(3))
    for name in ("rows.npy", "rows.npz"):
        source = source_of(tmp_path / name)
        np.testing.assert_array_equal(drawn(source, range(3)), expected)
    assert isinstance(source_of(tmp_path / "rows.npy").X, np.memmap)
    np.testing.assert_array_equal(read(tmp_path / "rows.npy").rows, X)
    with pytest.raises(TableError, match="no labels"):
        read(tmp_path / "rows.npy", "y")
    np.save(tmp_path / "flat.npy", X[0])
    with pytest.raises(TableError, match="must be a matrix"):
        source_of(tmp_path / "flat.npy")


def test_a_generator_is_read_once():
    def parts():
        yield from np.array_split(X, 10)

    source = BatchSource(parts(), buffer_bytes=BUFFER)
    assert source.n_rows == ENDLESS
    sample = source.sample(5, 300)
    rows = np.concatenate([drawn(source, range(t, t + 1), 100) for t in range(10)])
    np.testing.assert_array_equal(rows[:300], sample)  # which is kept for those who read on
    np.testing.assert_array_equal(np.sort(numbers(rows)), np.arange(N))
    with pytest.raises(ExhaustedError, match="no more rows"):
        drawn(source, range(10, 11), 100)
    with pytest.raises(ExhaustedError, match="function that makes"):
        drawn(source, range(1), 100)
    np.testing.assert_array_equal(drawn(BatchSource(parts(), buffer_bytes=BUFFER), range(7, 8), 100), rows[700:800])


def test_sparse_batches():
    parts = [sparse.csr_array(part) for part in np.array_split(X, 4)]
    rows = drawn(BatchSource(parts, N, buffer_bytes=BUFFER), range(1), N)
    np.testing.assert_array_equal(np.sort(numbers(rows)), np.arange(N))
    np.testing.assert_array_equal(
        rows.toarray(), drawn(BatchSource(np.array_split(X, 4), N, buffer_bytes=BUFFER), range(1), N)
    )


def test_bad_files(tmp_path):
    with pytest.raises(TableError, match="without a file of a known format"):
        FileSource(tmp_path)
    pq.write_table(pa.table({"a": [1.0, 2.0]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": [1.0, 2.0]}), tmp_path / "2.parquet")
    with pytest.raises(TableError, match=r"2\.parquet has no column 'a'"):
        FileSource(tmp_path)
    pq.write_table(pa.table({"a": [1.0, np.nan]}), tmp_path / "2.parquet")
    with pytest.raises(TableError, match="missing or infinite"):
        drawn(FileSource(tmp_path), range(1), 4)
    pq.write_table(pa.table({"a": ["x", "y"]}), tmp_path / "2.parquet")
    with pytest.raises(TableError, match=r"2\.parquet: text or dates"):
        FileSource(tmp_path)
    np.save(tmp_path / "3.npy", X)
    with pytest.raises(TableError, match="read them separately"):
        FileSource(tmp_path)
    pq.write_table(pa.table({"a": [1.0, 2.0], "y": [0, 1]}), tmp_path / "all.parquet")
    for name, settings in (("none.parquet", {}), ("none.csv", {}), ("none.csv", {"target": "y"})):
        pq.write_table(pa.table({"a": X[:0, 0]}), tmp_path / "none.parquet")
        (tmp_path / "none.csv").write_text("a,y\n")
        with pytest.raises(TableError, match=rf"{name} has no rows"):
            drawn(FileSource(tmp_path / name, **settings), range(1), 1)
    (tmp_path / "some.svmlight").write_text("1 1:2 3:4\n-1 2:1\n")
    with pytest.raises(TableError, match="has 3 columns, expected 2"):
        FileSource(tmp_path / "some.svmlight", features=2)
    with pytest.raises(ValueError, match="every row has a label"):
        drawn(FileSource(tmp_path / "all.parquet", "y"), range(1), 1)


def test_files_that_change_are_noticed(folder, tmp_path):
    pq.write_table(pa.table({"a": np.arange(100.0)}), tmp_path / "a.parquet", row_group_size=10)
    source = FileSource(tmp_path / "a.parquet")
    assert source.n_rows == 100
    pq.write_table(pa.table({"a": np.arange(95.0)}), tmp_path / "a.parquet", row_group_size=10)
    with pytest.raises(ValueError, match="the files have changed"):
        drawn(source, range(2), 100)


def test_columns_of_text_need_an_encoder(tmp_path):
    town = np.array(["Bonn", "Ulm", None, "Bonn"] * 25, dtype=object)
    pq.write_table(pa.table({"a": np.arange(100.0), "town": town}), tmp_path / "a.parquet", row_group_size=30)
    with pytest.raises(TableError, match="text or dates, not numbers, in column 'town'"):
        FileSource(tmp_path / "a.parquet")
    encoder = TableEncoder(number=["a"])
    source = FileSource(tmp_path / "a.parquet", encoder=encoder)
    assert source.n_dims == 4
    assert source.names is None
    wanted = encoder.transform({"a": np.arange(100.0), "town": town})
    np.testing.assert_array_equal(source.sample(0, 100)[:, 1:].sum(axis=0), wanted[:, 1:].sum(axis=0))
    np.testing.assert_array_equal(np.sort(source.sample(0, 100)[:, 0]), wanted[:, 0])
    again = FileSource(tmp_path / "a.parquet", encoder=encoder)  # which is fitted already
    np.testing.assert_array_equal(drawn(again, range(2)), drawn(source, range(2)))


def test_no_thread_is_left_behind(folder):
    before = threading.active_count()
    source = file_source(folder)
    drawn(source, range(1))
    assert threading.active_count() == before + 1
    drawn(source, range(500, 501))
    assert threading.active_count() == before + 1
    del source
    assert threading.active_count() == before


def test_digits_that_float32_does_not_hold_are_missed(tmp_path):
    pq.write_table(pa.table({"second": 1.7e9 + np.arange(50), "a": np.arange(50.0)}), tmp_path / "rows.parquet")
    with pytest.warns(UserWarning, match="values of 'second' are so large"):
        read(tmp_path / "rows.parquet")
    with pytest.warns(UserWarning, match="values of 'second' are so large"):
        FileSource(tmp_path / "rows.parquet").survey()
    assert len(np.unique(read(tmp_path / "rows.parquet", dtype=np.float64).rows[:, 0])) == 50


@pytest.mark.parametrize("mark", [-1, "-1", ["-1"], [-1]])
def test_marks_of_any_kind(tmp_path, mark):
    pq.write_table(pa.table({"a": np.arange(6.0), "label": [0, 1, -1, -1, -1, -1]}), tmp_path / "rows.parquet")
    assert FileSource(tmp_path / "rows.parquet", target="label", mark=mark).labeled()[1].tolist() == [0, 1]

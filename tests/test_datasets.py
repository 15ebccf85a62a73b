"""Whether a set is the same from every kind of file, and what happens when it is not there."""

import gzip
import io
import threading
import zipfile
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from experiments import datasets
from experiments.datasets import KNOWN, load, mask, synthetic
from scipy import sparse
from scipy.io import savemat
from sklearn.datasets import dump_svmlight_file

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(60, 8)) * [1, 10, 100, 1, 1, 1, 1, 0] + 5).astype(np.float32)
Y = np.where(RNG.random(60) < 0.3, 1, -1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("S3VM_DATA", str(tmp_path))
    return tmp_path


def svmlight():
    buffer = io.BytesIO()
    dump_svmlight_file(X, Y, buffer, zero_based=False)
    return buffer.getvalue()


def csv(names=False):
    lines = [",".join(map(str, [label, *row.tolist()])) for label, row in zip(Y, X)]
    return "\n".join([*(["# label,a,b,c,d,e,f,g,h"] if names else []), *lines]).encode()


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def csr():
    rows = sparse.csr_array(X)
    return npz(data=rows.data, indices=rows.indices, indptr=rows.indptr, shape=rows.shape, y=Y)


FILES = {
    "codrna.npz": lambda: npz(X=X, y=Y),
    "CodRNA.NPZ": csr,
    "cod-rna": svmlight,
    "cod-rna.svmlight.gz": lambda: gzip.compress(svmlight()),
    "codrna.bz2": lambda: __import__("bz2").compress(svmlight()),
    "cod-rna.xz": lambda: __import__("lzma").compress(svmlight()),
    "codrna.csv": csv,
    "codrna.csv.gz": lambda: gzip.compress(csv(names=True)),
}


@pytest.mark.parametrize("file", FILES)
def test_every_kind_of_file(folder, file):
    (folder / file).write_bytes(FILES[file]())
    data = load("codrna", download=False)
    assert data.X.dtype == np.float32
    assert data.source == file
    np.testing.assert_array_equal(data.y, Y == 1)
    expected = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 1e-6, X.std(axis=0), 1)
    np.testing.assert_allclose(data.X, expected, atol=2e-5)
    assert "of 59,535 published" in data.description


def test_outliers_are_clipped(folder):
    far = np.zeros((1000, 8), np.float32)
    far[0] = 1e6
    (folder / "codrna.npz").write_bytes(npz(X=far, y=np.arange(1000) % 2))
    assert load("codrna").X.max() == 10


def test_ids_become_columns_and_parts_are_put_together(folder):
    rows = np.column_stack(
        [RNG.integers(3, size=50) * 100, np.ones(50), RNG.integers(2, size=50), RNG.integers(-1, 2, (50, 4))]
    )
    labels = np.where(np.arange(50) % 2, 1, -1)
    (folder / "dota2_train.npz").write_bytes(npz(X=rows[:40], y=labels[:40]))
    assert datasets.local_files("dota2") == []  # a half is not the set
    (folder / "dota2_test.npz").write_bytes(npz(X=rows[40:], y=labels[40:]))
    data = load("dota2", download=False)
    assert data.X.shape == (50, 3 + 1 + 2 + 4)
    np.testing.assert_array_equal(data.X[:, :3], rows[:, :1] == [0, 100, 200])
    np.testing.assert_array_equal(data.X[:, 6:], rows[:, 3:])
    np.testing.assert_array_equal(data.y, labels == 1)


def test_ssl_book_splits(folder):
    rows, labels = RNG.normal(size=(30, 5)), np.where(np.arange(30) % 2, 1, -1)
    chosen = np.array([[1, 2, 30], [4, 5, 6]])
    savemat(folder / "SSL,set=4,data.mat", {"X": rows, "y": labels[:, None]})
    for number in (10, 100):
        savemat(folder / f"SSL,set=4,splits,labeled={number}.mat", {"idxLabs": np.tile(chosen, number)})
    from_mat = load("bci", download=False)
    stored = {f"labeled_{n}": np.tile(chosen, n) - 1 for n in (10, 100)}
    (folder / "ssl_bci.npz").write_bytes(npz(X=rows, y=labels, **stored))
    from_npz = load("bci", download=False)
    for data in (from_mat, from_npz):
        np.testing.assert_array_equal(data.X, rows.astype(np.float32))
        assert sorted(data.splits) == [30, 300] if data is from_mat else [10, 100]
        np.testing.assert_array_equal(next(iter(data.splits.values()))[:, :3], chosen - 1)


def test_very_many_columns_stay_sparse(folder):
    wide = sparse.csr_array(sparse.random(20, 5000, density=0.01, random_state=0))
    dump_svmlight_file(wide, np.arange(20) % 2, str(folder / "wide.svmlight"), zero_based=False)
    data = load("wide")
    assert sparse.issparse(data.X)
    assert data.X.dtype == np.float32
    np.testing.assert_allclose(data.X.toarray(), wide.toarray()[:, : data.X.shape[1]], rtol=1e-6)


def test_splits_without_rows(folder):
    savemat(folder / "SSL,set=4,data.mat", {"idxLabs": np.array([[1, 2]])})
    savemat(folder / "SSL,set=4,splits,labeled=10.mat", {"idxLabs": np.array([[1, 2]])})
    savemat(folder / "SSL,set=4,splits,labeled=100.mat", {"idxLabs": np.array([[1, 2]])})
    with pytest.raises(ValueError, match="there are splits, but no rows"):
        load("bci", download=False)


def test_other_files_are_sets_too(folder):
    (folder / "mine.npz").write_bytes(npz(X=X, y=np.array(list("abc") * 20)))
    assert "mine" in datasets.names()
    np.testing.assert_array_equal(load("mine").y, [0, 1, 2] * 20)
    (folder / "bad.npz").write_bytes(npz(Z=X))
    with pytest.raises(ValueError, match=r"bad.npz has no array 'X'"):
        load("bad")


def test_what_is_not_there(folder):
    with pytest.raises(ValueError, match="there is no data set 'foo': give one of codrna, w8a"):
        load("foo")
    (folder / "hepmass_10k.npz").write_bytes(npz(X=X, y=Y))
    assert datasets.names() == [*KNOWN], "a part of a known set is not another set"
    assert [path.name for path in datasets.local_files("hepmass")] == ["hepmass_10k.npz"]
    (folder / "hepmass_10k.npz").unlink()
    with pytest.raises(FileNotFoundError, match="hepmass is not in the folder that S3VM_DATA names"):
        load("hepmass", download=False)


# Downloads


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A web site with two of the sets; yields what it has."""
    pytest.importorskip("pooch")
    monkeypatch.delenv("S3VM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    site = tmp_path / "site"
    site.mkdir()
    (site / "cod-rna").write_bytes(svmlight())
    with zipfile.ZipFile(site / "dota2Dataset.zip", "w") as archive:
        archive.writestr("dota2Test.csv", "-1,7,1,1,0\n1,8,1,1,1\n")
        archive.writestr("dota2Train.csv", "1,7,1,1,-1\n")

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(site))

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    for name, file in (("codrna", "cod-rna"), ("dota2", "dota2Dataset.zip")):
        monkeypatch.setitem(KNOWN, name, replace(KNOWN[name], urls=(f"{address}/{file}",)))
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.filterwarnings("ignore")
def test_download(published):
    first = load("codrna", progress=False)
    np.testing.assert_array_equal(first.y, Y == 1)
    dota2 = load("dota2", progress=False)
    np.testing.assert_array_equal(dota2.y, [1, 0, 1])  # the training part first
    np.testing.assert_array_equal(dota2.X[:, -1], [-1, 0, 1])
    published.shutdown()
    published.server_close()
    np.testing.assert_array_equal(load("codrna", progress=False).X, first.X)  # from the cache


@pytest.mark.filterwarnings("ignore")
def test_offline(published):
    published.shutdown()
    published.server_close()
    with pytest.raises(ConnectionError, match=r"CodRNA could not be downloaded from http://127.*S3VM_DATA"):
        load("codrna", progress=False)


# Labels and made rows


def test_mask():
    y = (np.arange(1000) < 5).astype(int)
    seen = set()
    for seed in range(5):
        some = mask(y, 100, seed)
        np.testing.assert_array_equal(some, mask(y, 100, seed))
        assert (some >= 0).sum() == 100
        np.testing.assert_array_equal(some[some >= 0], y[some >= 0])
        assert min((some == 0).sum(), (some == 1).sum()) >= 2
        seen.add(tuple(np.flatnonzero(some >= 0)))
    assert len(seen) == 5
    assert [int((mask(np.arange(400) % 2, 200, seed) == 1).sum()) for seed in range(3)] != [100] * 3, "not stratified"
    with pytest.raises(ValueError, match="2 of each of 2 classes cannot be drawn from 3 rows"):
        mask([0, 0, 1], 3)


@pytest.mark.parametrize("name", ["skin", "w8a"])
def test_made_rows_have_the_shape(name):
    known = KNOWN[name]
    data = synthetic(name, 5000)
    assert data.X.shape == (5000, known.n_dims)
    assert data.X.dtype == np.float32
    assert abs(data.y.mean() - known.positive) < 0.02
    np.testing.assert_allclose(data.X.std(), 1, atol=0.3)
    np.testing.assert_array_equal(data.X, synthetic(name, 5000).X)
    with pytest.raises(ValueError, match="shape of 'foo' is not known"):
        synthetic("foo")

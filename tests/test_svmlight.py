"""Files of SVMlight: columns counted from 0 or from 1, as wide as any of them, and read the same in any way."""

import json
import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file
from typer.testing import CliRunner

import s3vm
from s3vm import TSG, FileSource, S3VMClassifier
from s3vm.cli.app import app
from s3vm.persistence.pipeline import split_pipeline
from s3vm.sources.files import source_of
from s3vm.sources.readers import TableError, matrices, read, stream

X = np.round(np.random.default_rng(0).normal(size=(40, 4)), 3)
X[:20, 0] = 0  # the first shard has no entry in column 0,
X[20:, 3] = 0  # the second one none in the last
Y = np.arange(40) % 2


@pytest.fixture
def shards(tmp_path):
    """A folder of two files, as scikit-learn writes them by default."""
    folder = tmp_path / "shards"
    folder.mkdir()
    dump_svmlight_file(X[:20], Y[:20], str(folder / "a.svm"))
    dump_svmlight_file(X[20:], Y[20:], str(folder / "b.svm"))
    return folder


@pytest.mark.parametrize("piece", [100, 1 << 24])
def test_shards_are_one_matrix(shards, piece, monkeypatch):
    """Read whole, in batches, in pieces or as a source: one base, and one width."""
    monkeypatch.setattr(matrices, "_PIECE_BYTES", piece)
    table = read(shards, "y")
    np.testing.assert_allclose(table.rows.toarray(), X, rtol=1e-6)
    assert table.zero_based is True
    batches = stream(shards, "y", size=7)
    assert batches.zero_based is True
    np.testing.assert_allclose(sparse.vstack([batch.rows for batch in batches]).toarray(), X, rtol=1e-6)
    source = FileSource(shards, "y")
    assert (source.n_dims, source.zero_based) == (4, True)
    np.testing.assert_allclose(source.labeled()[0].toarray(), X, rtol=1e-6)
    both = [shards / "a.svm", shards / "b.svm"]
    np.testing.assert_allclose(read(both[::-1]).rows.toarray(), np.r_[X[20:], X[:20]], rtol=1e-6)


def test_a_number_of_columns_settles_the_base_or_is_an_error(shards, tmp_path):
    a, b = shards / "a.svm", shards / "b.svm"
    with pytest.raises(TableError, match=r"a\.svm has columns up to 3 of 4, and none is 0.*--zero-based or --one-b"):
        read(a, features=4)
    np.testing.assert_allclose(read(a, features=4, zero_based=True).rows.toarray(), X[:20], rtol=1e-6)
    dump_svmlight_file(X[:20], Y[:20], str(tmp_path / "from_1.svm"), zero_based=False)
    rows = read(tmp_path / "from_1.svm", features=4).rows.toarray()
    np.testing.assert_allclose(rows, X[:20], rtol=1e-6, err_msg="column 4 of 4 is counted from 1")
    for make in (read, lambda *args, **options: FileSource(*args, **options).n_rows):
        with pytest.raises(TableError, match=r"b\.svm has a column 0, but columns are counted from 1"):
            make(b, zero_based=False)
        with pytest.raises(TableError, match=r"b\.svm has 3 columns, expected 2"):
            make(b, features=2)


@pytest.mark.parametrize("zero", ["0", "00", "+0", "-0"])
def test_a_column_0_is_seen_however_it_is_written(tmp_path, zero):
    (tmp_path / "a.svm").write_text(f"1 2:5 # 0:1\n1 qid:0 1:1\n# 0:3\n-1\t{zero}:4\n")
    assert read(tmp_path / "a.svm").rows.toarray().tolist() == [[0, 0, 5], [0, 1, 0], [4, 0, 0]]
    (tmp_path / "a.svm").write_text("1 2:5 # 0:1\n1 qid:0 1:1\n# 0:3\n")
    assert read(tmp_path / "a.svm").rows.toarray().tolist() == [[0, 5], [1, 0]]


def test_rows_that_a_caller_changes_are_read_again_as_they_are(shards):
    batches = stream(shards / "a.svm", zero_based=True)
    for _ in range(2):
        for batch in batches:
            np.testing.assert_allclose(batch.rows.toarray(), X[:20], rtol=1e-6)
            batch.rows.data[:] = 0


def test_files_of_other_widths_are_named(tmp_path):
    np.savez(tmp_path / "a.npz", X=X)
    np.savez(tmp_path / "b.npz", X=X[:, :3])
    for make in (read, FileSource):
        with pytest.raises(TableError, match=r"b\.npz has 3 columns, expected 4"):
            list(make(tmp_path).rows() if make is FileSource else make(tmp_path).rows)


def test_unlabeled_rows_in_a_file_count_as_those_in_memory(shards):
    """The number of columns of X settles a file of unlabelled rows, or shows that it is in doubt."""
    assert source_of(shards / "b.svm", n_features=4).n_dims == 4
    rows = sparse.csr_array(X)
    clf = S3VMClassifier(TSG(max_iter=3, n_features=8), gamma=1.0, unlabeled_weight=0.5, random_state=0)
    assert clf.fit(rows, Y, X_unlabeled=str(shards)).zero_based_ is True
    with pytest.raises(TableError, match=r"columns up to 3 of 4.*Give zero_based"):
        clf.fit(rows, Y, X_unlabeled=str(shards / "a.svm"))
    assert clf.fit(rows, Y, X_unlabeled=rows).zero_based_ is None


def _run(*args):
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    return result.exit_code, result.output if result.exit_code else result.stdout


def test_the_model_keeps_the_base(tmp_path):
    """Rows whose column 0 is empty are read as those of the training; they used to move one column to the left."""
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(300, 5)) + 4 * (np.arange(300) % 2)[:, None] * np.array([0, 0, 0, 1, 0])
    labels = np.arange(300) % 2
    dump_svmlight_file(rows[:150], np.where(np.arange(150) < 60, labels[:150], -1), str(tmp_path / "train.svm"))
    rows[:, 0] = 0
    dump_svmlight_file(rows[150:], labels[150:], str(tmp_path / "test.svm"))
    options = ["--mark", "-1", "--C", "1", "--gamma", "0.1", "--weight", "0", "-q", "--no-scale"]
    model = tmp_path / "m.s3vm"
    code, said = _run("fit", tmp_path / "train.svm", *options, "-o", model)
    assert code == 0, said
    assert split_pipeline(s3vm.load(model)).classifier.zero_based_ is True
    code, said = _run("evaluate", model, tmp_path / "test.svm", "--json")
    assert code == 0, said
    assert json.loads(said)["measures"]["error"] < 0.1
    code, said = _run("evaluate", model, tmp_path / "test.svm", "--json", "--one-based")
    assert json.loads(said)["measures"]["error"] > 0.2, "as it was asked for"
    code, said = _run("predict", model, tmp_path / "test.svm", "-o", tmp_path / "p.csv")
    assert code == 0, said
    code, said = _run("fit", tmp_path / "train.svm", *options, "-o", model, "--test", tmp_path / "test.svm")
    assert code == 0, said
    # and the other way round: a test set that contradicts what the training rows left open
    code, said = _run("fit", tmp_path / "test.svm", *options[2:], "-o", model)
    assert code == 0, said
    assert split_pipeline(s3vm.load(model)).classifier.zero_based_ is False
    code, said = _run("predict", model, tmp_path / "train.svm")
    assert code == 1
    assert "has a column 0, but columns are counted from 1 here or where the model was trained" in " ".join(
        said.split()
    )
    code, said = _run("fit", tmp_path / "test.svm", *options[2:], "-o", model, "--zero-based")
    code, said = _run("predict", model, tmp_path / "train.svm")
    assert code == 0, said


@pytest.mark.parametrize("how", ["--stream", "--no-stream"])
def test_unlabeled_files_of_other_widths(tmp_path, how):
    (tmp_path / "few.svm").write_text("1 1:1\n1 1:2\n-1 1:-1\n-1 1:-2\n" * 5)
    (tmp_path / "many.svm").write_text("0 0:1 4:1\n" * 30)
    options = ["--C", "1", "--gamma", "1", "--weight", "0.5", "-q", "--solver", "tsg", how]
    model = tmp_path / "m.s3vm"
    code, said = _run("fit", tmp_path / "few.svm", "--unlabeled", tmp_path / "many.svm", *options, "-o", model)
    assert code == 0, said
    clf = split_pipeline(s3vm.load(model)).classifier
    assert (clf.n_features_in_, clf.zero_based_) == (5, True)


def test_a_single_large_column_number_does_not_take_the_memory(tmp_path):
    """196 bytes took 6.4 GB."""
    path = tmp_path / "wide.svm"
    path.write_text("1 1:1\n-1 2:1\n" * 10 + "1 50000000:1\n")
    np.savez(
        tmp_path / "wide.npz", data=np.ones(1), indices=np.zeros(1, int), indptr=[0, 1], shape=[1, 50_000_000], y=[1]
    )
    for name in ("wide.svm", "wide.npz"):
        for make in (read, FileSource, lambda name: FileSource([name, name])):
            tracemalloc.start()
            with pytest.raises(
                TableError, match=rf"{name} has 50,000,000 columns, but only \d+ entr.*features=5000000"
            ):
                list(make(tmp_path / name).rows() if make is not read else make(tmp_path / name).rows)
            assert tracemalloc.get_traced_memory()[1] < 20 << 20
            tracemalloc.stop()
    assert read(path, features=50_000_000).rows.shape == (21, 50_000_000)
    code, said = _run("fit", path)
    assert code == 1
    assert "(--features 50000000)" in said.replace("\n", " ")
    path.write_text("1 1:1\n-1 2:1\n" * 10 + "1 1048576:1\n")
    assert read(path).rows.shape == (21, 1 << 20), "as HashingVectorizer has them"
    path.write_text("1 1:1\n-1 2:1\n" * 10 + "1 1048577:1\n")
    code, said = _run("fit", path, "--features", 1048577, "--C", 1, "--gamma", 1, "-q", "-o", tmp_path / "m.s3vm")
    assert code == 0, said

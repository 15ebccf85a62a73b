"""Tables in files: the same rows and labels from every kind, batches of any size, and errors that help."""

import bz2
import gzip
import lzma
import os
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from s3vm.sources.files import FileSource, source_of
from s3vm.sources.readers import TableError, Writer, has_names, label_key, read, stream, tabular

X = np.round(np.random.RandomState(0).randn(500, 3), 4).astype(np.float32)
LABELS = np.array([None, "ham", "spam", None, "ham"] * 100, dtype=object)


@pytest.fixture
def csv(tmp_path):
    """Writes text to a file, or the columns of a table."""

    def write(content, name="data.csv"):
        path = tmp_path / name
        if isinstance(content, dict):
            pa_csv.write_csv(pa.table(content), path)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def columns(labels=LABELS):
    return {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "label": pa.array(labels)}


def test_the_same_from_every_kind(tmp_path, csv):
    numbers = np.array([None, 0, 1, None, 0] * 100, dtype=object)
    pq.write_table(pa.table(columns(numbers)), tmp_path / "data.parquet")
    np.savez(tmp_path / "data.npz", X=X, y=numbers.astype(float))
    dump_svmlight_file(X, np.where(numbers == None, -1, numbers).astype(float), str(tmp_path / "data.svm"))  # noqa: E711
    with gzip.open(tmp_path / "data.csv.gz", "wb") as file:
        file.write(csv(columns(numbers)).read_bytes())
    for name in ("data.csv", "data.csv.gz", "data.parquet", "data.npz", "data.svm"):
        table = read(tmp_path / name, "label" if has_names(tmp_path / name) else "y", mark=["-1"])
        rows = table.rows.toarray() if sparse.issparse(table.rows) else table.rows
        assert rows.dtype == np.float32
        np.testing.assert_array_equal(rows, X)
        assert table.labels.tolist() == numbers.tolist()
        assert all(type(label) in (int, type(None)) for label in table.labels)
        assert table.names == (["a", "b", "c"] if has_names(tmp_path / name) else None)


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz"])
def test_compressed_files(tmp_path, csv, compression):
    """Of any kind, whatever their name is if the format is given."""
    compress = {"gz": gzip, "bz2": bz2, "xz": lzma}[compression].compress
    codes = np.arange(500) % 3
    np.savez(tmp_path / "data.npz", X=X, y=codes)
    dump_svmlight_file(X, codes, str(tmp_path / "data.svm"))
    csv({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": codes})
    for suffix, file_format in ((".npz", "npz"), (".svm", "svmlight"), (".csv", "csv")):
        content = compress((tmp_path / f"data{suffix}").read_bytes())
        for name in (f"packed{suffix}.{compression}", f"{file_format}.{compression}"):
            path = tmp_path / name
            path.write_bytes(content)
            table = read(path, "y", file_format=None if suffix in name else file_format)
            np.testing.assert_array_equal(table.rows.toarray() if suffix == ".svm" else table.rows, X)
            np.testing.assert_array_equal(table.labels.astype(int), codes)
            path.write_bytes(content[: len(content) // 2])
            with pytest.raises(TableError, match="cannot be read as"):
                read(path, "y", file_format=file_format)


def test_sparse_npz(tmp_path):
    rows = sparse.random(50, 20, 0.2, "csr", np.float32, random_state=0)
    np.savez(
        tmp_path / "s.npz", data=rows.data, indices=rows.indices, indptr=rows.indptr, shape=rows.shape, y=np.ones(50)
    )
    table = read(tmp_path / "s.npz", "y")
    assert (table.rows != rows).nnz == 0
    assert set(table.labels) == {1}


def test_columns_are_chosen_by_name(csv):
    path = csv(columns() | {"id": pa.array([f"{row:03d}" for row in range(500)])})
    table = read(path, features=["c", "a"])
    np.testing.assert_array_equal(table.rows, X[:, [2, 0]])
    assert (table.names, table.labels) == (["c", "a"], None)
    assert read(path, "label", drop=["id", "b"]).names == ["a", "c"]
    assert read(path, "label", 3, drop=["id"]).names == ["a", "b", "c"]
    (batch,) = stream(path, features=["a"], keep=["id"])
    assert batch.passed_through["id"].to_pylist()[:2] == ["000", "001"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_batches_make_up_the_table(tmp_path, csv, kind, monkeypatch):
    if kind == "csv":
        path = csv(columns())
    elif kind == "parquet":
        path = tmp_path / "data.parquet"
        pq.write_table(pa.table(columns()), path, row_group_size=130)
    else:
        path = tmp_path / "data.npz"
        np.savez(path, X=X, y=np.where(LABELS == None, "", LABELS).astype(str))  # noqa: E711
    monkeypatch.setattr(tabular, "_PARQUET_ROWS", 50)
    source = stream(path, "y" if kind == "npz" else "label", size=64)
    batches = list(source)
    np.testing.assert_array_equal(np.concatenate([batch.rows for batch in batches]), X)
    assert np.concatenate([batch.labels for batch in batches]).tolist() == LABELS.tolist()
    assert source.n_rows == (500 if kind == "parquet" else None)
    assert len(batches) > 1 or kind == "csv"
    assert len(list(source)) == len(batches), "it can be read again"


def test_a_large_csv_comes_in_batches(csv):
    path = csv({"a": np.arange(300_000, dtype=np.float64), "b": np.ones(300_000)})
    sizes = [len(batch.rows) for batch in stream(path, size=50_000)]
    assert sum(sizes) == 300_000
    assert max(sizes) < 200_000
    seen = []
    assert read(path, progress=seen.append).rows.shape == (300_000, 2)
    assert seen == sorted(seen)
    assert seen[-1] == 300_000


def test_labels(csv):
    def labels(*values, **options):
        return read(csv("x,y\n" + "\n".join(f"1,{value}" for value in values)), "y", **options).labels.tolist()

    assert labels("1", "", "2", "nan", "null", '""', " 3 ") == [1, None, 2, None, None, None, 3]
    assert labels("1.0", "+1", "-1", "0.5") == [1.0, 1.0, -1.0, 0.5]
    assert labels("007", "1") == ["007", "1"]
    missing = ("NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "none", "?", '""', " NA ")
    assert labels(*missing, "x") == [None] * len(missing) + ["x"]
    assert labels("NA", "None", "x", "", "nan", mark=["nan"]) == ["NA", "None", "x", None, None], "unless others are"
    assert labels("NA", "None", "x", mark=["NA"]) == [None, "None", "x"]
    assert labels("-1", "0", "1.0", mark=["-1"]) == [None, 0, 1]
    assert labels("True", "False", "") == ["True", "False", None]
    assert [label_key(value) for value in (1, 1.0, "1", "+1", "1.5", "x", "01")] == ["1"] * 4 + ["1.5", "x", "01"]


def test_labels_in_parquet(tmp_path):
    path = tmp_path / "y.parquet"
    for values, wanted in [
        (pa.array([1.0, None, np.nan, 0.0]), [1, None, None, 0]),
        (pa.array(["a", None, "", "b"]).dictionary_encode(), ["a", None, None, "b"]),
        (pa.array([True, None, False, True]), [True, None, False, True]),
    ]:
        pq.write_table(pa.table({"x": [1.0, 2.0, 3.0, 4.0], "y": values}), path)
        assert read(path, "y").labels.tolist() == wanted


def test_kinds_of_numbers(tmp_path, csv):
    table = read(csv("a,b,c\n1,true,\n2,false,3\n".replace(",\n", ",1e3\n")))
    np.testing.assert_array_equal(table.rows, [[1, 1, 1000], [2, 0, 3]])
    assert read(csv("a\n16777217\n"), dtype=np.float64).rows[0, 0] == 16777217
    path = tmp_path / "t.parquet"
    pq.write_table(
        pa.table({"i": pa.array([1, 2], pa.int8()), "l": [True, False], "d": pa.array([1, 2], pa.decimal128(5, 2))}),
        path,
    )
    np.testing.assert_array_equal(read(path).rows, [[1, 1, 1], [2, 0, 2]])


@pytest.mark.parametrize("separator", [";", "\t"])
def test_separators(csv, separator):
    assert read(csv(f"a{separator}b\n1{separator}2\n")).rows.tolist() == [[1, 2]]


def test_lines_in_quotes_and_row_numbers(csv):
    table = read(csv(',a,note\n0,1,"two\nlines"\n1,2,"a, ""b"""\n'), drop=["note"])
    assert table.names == ["a"], "a column without a name is the row number of a data frame"
    assert table.rows.tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "data.csv is empty"),
        ("a,b\n", "data.csv has no rows"),
        ("a,label\n1,x\n2\n", r"data.csv, line 3: 1 values, but the first line has 2 columns"),
        ("a,b\n1,2\n" * 1 + "3,4\n" * 300_000 + "x,5\n", r"data.csv, line 300,003: 'x' in column 'a' is not a number"),
        ("a,b,city\n1,2,Paris\n", r"text or dates, not numbers, in column 'city' \('Paris' in line 2\).* drop city"),
        ("a,b\n1,2\n3,xx\n", r"not numbers, in column 'b' \('xx' in line 3\)"),
        ("a,day\n1,2020-01-01\n", r"column 'day' \('2020-01-01' in line 2\)"),
        ("a,b\n0,0\n1,\n2,inf\n3,4\n", r"missing or infinite, the first in row 2, column 'b'; by column: 'b' 2"),
        ("a\n1e39\n", r"by column: 'a' 1"),
        ("a,a\n1,2\n", "several columns named 'a'"),
        ("1.5,2\n1,2\n", "begins with numbers"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), "data.csv is compressed, or a workbook: end its name in .gz"),
        (b"\xff\xfea,b\n", "data.csv is not UTF-8 but probably UTF-16: save the file as UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "data.csv is not UTF-8 but probably UTF-16: save the file as UTF-8"),
        ("a,b\n1,2\n".encode("utf-16-be"), "data.csv is not UTF-8 but probably UTF-16: save the file as UTF-8"),
        ("größe,b\n1,2\n".encode("latin-1"), r"data.csv, line 1 \(the column names\) is not UTF-8: save the file"),
        (b"a,b\n1,\xe9t\xe9\n", "column 'b' is not UTF-8: save the file as UTF-8"),
    ],
)
def test_errors_of_csv(csv, content, message):
    with pytest.raises(TableError, match=message):
        read(csv(content))


def test_text_in_another_encoding_far_down(csv):
    path = csv(b"a,label\n" + b"1,x\n" * 300_000 + b"2,\xe9t\xe9\n")
    with pytest.raises(TableError, match=r"data\.csv.* is not UTF-8: save the file as UTF-8"):
        read(path, "label")


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text elsewhere")
def test_names_of_files_that_are_no_text(tmp_path):
    for kind in ("csv", "parquet"):
        path = tmp_path / os.fsdecode(b"caf\xe9." + kind.encode())
        path.write_bytes(b"a,b\n1,2\n")
        for reading in (read, source_of):
            with pytest.raises(TableError, match=rf"caf\\udce9\.{kind}': the file name is not UTF-8: rename the file"):
                reading(path)
        with pytest.raises(TableError, match=rf"caf\\udce9\.{kind}' cannot be written: the file name is not UTF-8"):
            Writer(path)
    path = tmp_path / os.fsdecode(b"caf\xe9.npz")
    np.savez(path, X=X)
    np.testing.assert_array_equal(read(path).rows, X)


def test_missing_columns(csv):
    path = csv(columns())
    with pytest.raises(TableError, match=r"has no column 'lable' \(did you mean 'label'\?\)"):
        read(path, "lable")
    with pytest.raises(TableError, match=r"has no column 'xyz' \(there are 'a', 'b', 'c', 'label'\)"):
        read(path, "label", ["xyz", "a"])
    with pytest.raises(TableError, match="has 2 columns of features, expected 3"):
        read(path, "label", 3, drop=["a"])
    with pytest.raises(TableError, match="has no columns of features"):
        read(path, "label", drop=["a", "b", "c"])


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("label", {"features": ["b", "label"]}, "column 'label' is the target and cannot be a feature too"),
        ("label", {"features": ["a", "b", "a"]}, "column 'a' is a feature twice: give it once"),
        ("label", {"features": ["a", "b"], "drop": ["a"]}, "column 'a' is a feature and cannot be dropped too"),
    ],
)
def test_columns_that_contradict_each_other(csv, target, options, message):
    path = csv(columns())
    for reading in (read, FileSource):
        with pytest.raises(TableError, match=rf"data\.csv: {message}"):
            reading(path, target, **options)


def test_wrong_kinds(tmp_path, csv):
    with pytest.raises(TableError, match="there is no such file"):
        read(tmp_path / "nothing.csv")
    with pytest.raises(TableError, match=r"has an unknown format: its name must end in \.csv"):
        read(csv("a\n1\n", "data.xlsx"))
    for name, message in [
        ("t.parquet", "is not a parquet file"),
        ("t.npz", "cannot be read as npz"),
        ("t.svm", "cannot be read as svmlight"),
        ("t.csv.gz", "cannot be read as csv"),
    ]:
        with pytest.raises(TableError, match=message):
            read(csv("a,b\nx,y\n", name))
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TableError, match="is a folder"):
        read(tmp_path / "folder.csv")
    for reading in (read, FileSource, source_of):
        with pytest.raises(TableError, match="the file name is empty: give the name of a file or folder"):
            reading("")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.csv")
        with pytest.raises(TableError, match="neither a file nor a folder"):
            read(tmp_path / "pipe.csv")


def test_a_compressed_csv_that_is_cut_off_far_down(tmp_path):
    numbers = np.random.default_rng(0).random(400_000)
    raw = gzip.compress(b"a\n" + b"\n".join(b"%.9f" % number for number in numbers), 1)
    (tmp_path / "t.csv.gz").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(TableError, match=r"t\.csv\.gz cannot be read as csv: .*ended before"):
        read(tmp_path / "t.csv.gz")


def test_damaged_parquet(tmp_path, monkeypatch):
    """In what it says of its columns, and in the text that a complaint would quote."""
    path, table = tmp_path / "a.parquet", pa.table({"a": [1.0, 2.0], "t": ["x", "y"]})
    pq.write_table(table, path, compression="none", use_dictionary=False)
    raw = path.read_bytes()
    at = raw.index(b"ARROW:schema") + 20
    path.write_bytes(raw[:at] + b"!" * 8 + raw[at + 8 :])
    with pytest.raises(TableError, match="is not a parquet file, or is damaged"):
        read(path)
    pq.write_table(pa.table({"wide": [1.0]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"wide", b"\xff\xfe\xff\xfe"))  # a name that is no text
    with pytest.raises(TableError, match="is not a parquet file, or is damaged"):
        read(path)
    at = raw.index(b"\x01\x00\x00\x00x\x01")
    path.write_bytes(raw[:at] + b"\xff\xff\xff\x7f" + raw[at + 4 :])
    with pytest.raises(TableError, match=r"not numbers, in column 't' \(''\)"):
        read(path)
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1]}), path)
    monkeypatch.setattr(tabular, "_WHOLE_BYTES", 0)  # as if a row group were too large to be read at once
    np.testing.assert_array_equal(read(path).rows, X[:, :2])
    pq.write_table(pa.table({"a": X[:0, 0]}), path)
    with pytest.raises(TableError, match=r"a\.parquet has no rows"):
        list(stream(path))


def test_wrong_arrays(tmp_path):
    path = tmp_path / "data.npz"
    for arrays, message in [
        ({"x": X}, r"has no array 'X' \(did you mean 'x'\?\)"),
        ({"X": X[0], "y": X[0]}, "X must be a matrix of numbers"),
        ({"X": X.astype(str), "y": X[:, 0]}, "X must be a matrix of numbers"),
        ({"X": X, "y": X[:9, 0]}, r"y has shape \(9,\), but X has 500 rows"),
        ({"X": X}, "has no array 'y'"),
        ({"X": X[:, :0], "y": X[:, 0]}, "X has no columns"),
        ({"X": np.where(X > 2, np.nan, X), "y": X[:, 0] > 0}, r"by column: '1' "),
        ({"X": X.astype(object), "y": X[:, 0]}, "npz"),
    ]:
        np.savez(path, **arrays)
        with pytest.raises(TableError, match=message):
            read(path, "y")
    np.savez(path, X=X)
    with pytest.raises(TableError, match="has 3 columns, expected 4"):
        read(path, features=4)
    with pytest.raises(TableError, match="columns have no names"):
        read(path, drop=["a"])


CSR = sparse.csr_array(np.maximum(X, 0))
PARTS = {"data": CSR.data, "indices": CSR.indices, "indptr": CSR.indptr, "shape": np.array(CSR.shape)}


def at(array, place, value):
    array = array.copy()
    array[place] = value
    return array


def header_of_npy(shape, text="'<f4'"):
    """The start of an .npy file, which need not be true."""
    header = f"{{'descr': {text}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"indices": at(CSR.indices, 0, 10**6)}, "outside its 3 columns"),
        ({"indices": at(CSR.indices, 0, -1)}, "outside its 3 columns"),
        ({"indptr": at(CSR.indptr, -1, -(2**31))}, "row pointers"),
        ({"indptr": at(CSR.indptr, 5, 10**6)}, "row pointers"),
        ({"indptr": CSR.indptr[:-1]}, "do not fit its shape"),
        ({"indices": CSR.indices.astype(float)}, "arrays of integers"),
        ({"shape": np.array([500, 3, 1])}, "not two integers"),
        ({"shape": np.zeros((2**20, 0), int)}, "not two integers"),
        ({"data": np.array(["x"] * CSR.nnz)}, "npz|matrix of numbers"),
    ],
)
def test_forged_sparse_matrices(tmp_path, change, reason):
    """Compiled loops would follow such a place wherever it leads."""
    np.savez(tmp_path / "s.npz", **PARTS | change)
    with pytest.raises(TableError, match=reason):
        read(tmp_path / "s.npz")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.npy", header_of_npy((2**62, 0)), "has no columns|cannot be read as npy"),
        ("a.npy", header_of_npy((10**15, 3)), "cannot be read as npy"),
        ("a.npy", header_of_npy("(3, "), "cannot be read as npy"),
        ("a.npy", header_of_npy((3, 3), "'|O'"), "cannot be read as npy"),
        ("a.csv", b"a" + b",a" * 20_000 + b"\n", "several columns named 'a'"),
        ("a.csv", b"a" * (1 << 20) + b"\n1\n", "line 1 is longer than 1,048,576 bytes"),
        ("a.csv", b"a,b\n1,2\n3," + b"x" * 10**5 + b"\n", "cannot be read as csv|not numbers, in column 'b'"),
        ("a.svm", b"", "has no rows|cannot be read"),
    ],
)
def test_forged_files(tmp_path, name, content, reason):
    path = tmp_path / name
    path.write_bytes(content)
    for reading in (read, source_of):
        with pytest.raises(TableError, match=reason) as raised:
            reading(path)
        assert len(str(raised.value)) < 600


def test_labels_that_are_neither_text_nor_numbers(tmp_path):
    for values in ([[1], [2]], [{"a": 1}, {"a": 2}], pa.array([1, 2], pa.timestamp("ns")), [b"a", b"b"]):
        pq.write_table(pa.table({"x": [1.0, 2.0], "y": values}), tmp_path / "y.parquet")
        with pytest.raises(TableError, match=r"column 'y' holds .*, where text or numbers are needed"):
            read(tmp_path / "y.parquet", "y")
    for values, wanted in (
        (np.array([1, 2], ">i4"), [1, 2]),
        (np.array([1, 2.5], np.float16), [1, 2.5]),
        (np.array([b"a", b"\xff"]), ["a", "\ufffd"]),
        (np.array(["a", "b"], ">U1"), ["a", "b"]),
    ):
        np.savez(tmp_path / "y.npz", X=X[:2], y=values)
        assert read(tmp_path / "y.npz", "y").labels.tolist() == wanted
    np.savez(tmp_path / "y.npz", X=X[:2], y=np.array([1, 2], "M8[s]"))
    with pytest.raises(TableError, match="labels must be numbers or text"):
        read(tmp_path / "y.npz", "y")


def test_text_that_is_none(tmp_path):
    path = tmp_path / "y.parquet"
    pq.write_table(pa.table({"x": [1.0], "y": ["snow"]}), path, compression="none", use_dictionary=False)
    path.write_bytes(path.read_bytes().replace(b"snow", b"\xff\xff\xff\xff"))
    with pytest.raises(TableError, match=r"row group 1 of 1, from row 1 on, is damaged \(.*UTF8"):
        read(path, "y")


def test_columns_that_only_the_first_file_has(tmp_path):
    pq.write_table(pa.table({"a": [1.0], "city": [1.0]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "2.parquet")
    with pytest.raises(TableError, match=r"2\.parquet has no column 'city'"):
        read(tmp_path)


def test_compressed_svmlight_files_are_read_to_their_end(tmp_path):
    """However small compression has made them."""
    path = tmp_path / "rows.svm.gz"
    path.write_bytes(gzip.compress(b"1 1:2 2:3\n" * 50_000))
    assert sum(batch.rows.shape[0] for batch in stream(path)) == 50_000


def test_missing_values_in_files_of_numpy(tmp_path):
    broken = np.where(X > 2, np.nan, X)
    np.save(tmp_path / "x.npy", broken)
    np.savez(tmp_path / "x.npz", X=broken)
    for name in ("x.npy", "x.npz"):
        with pytest.raises(TableError, match="missing or infinite"):
            source_of(tmp_path / name)


def test_streams_name_the_rows_with_missing_values(csv):
    values = np.ones(1_000_000)
    values[900_000] = np.nan
    with pytest.raises(TableError, match=r"infinite, the first in row 900,001, column 'a'; by column: 'a' 1"):
        list(stream(csv({"a": values}), size=100_000))


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
def test_writing(tmp_path, name):
    path = tmp_path / name
    with Writer(path) as out:
        out.write({"class": ["a", "b"], "score": np.array([1.5, 2.0])})
        out.write({"class": ['with "quotes", and comma', "c"], "score": np.array([0.1, 3.0])})
        assert not path.exists()
    table = read(path, "class")
    assert table.labels.tolist() == ["a", "b", 'with "quotes", and comma', "c"]
    np.testing.assert_allclose(table.rows[:, 0], [1.5, 2.0, 0.1, 3.0])
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_what_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), Writer(path) as out:  # noqa: PT012
        out.write({"a": [1]})
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["out.csv"]
    with pytest.raises(TableError, match="must end in"):
        Writer(tmp_path / "out.xlsx")
    with pytest.raises(TableError, match="no such folder"):
        Writer(tmp_path / "nowhere" / "out.csv")


def test_a_file_that_cannot_be_put_in_its_place(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    path = tmp_path / "out.csv"
    path.write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with (
            pytest.raises(TableError, match=r"any existing file is unchanged: .*No space left"),
            Writer(path) as out,
        ):
            out.write({"a": [1]})
    with pytest.raises(KeyboardInterrupt), Writer(path) as out:  # the first error is the one raised  # noqa: PT012
        out._open_files.callback(full)
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["out.csv"]


def test_a_reader_that_has_gone(monkeypatch):
    def gone(text):
        raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", SimpleNamespace(write=gone))
    with pytest.raises(BrokenPipeError), Writer("-") as out:
        out.write({"a": [1]})


def test_sparse_rows_with_missing_values(tmp_path):
    broken = CSR.copy()
    at = int(broken.indptr[7])
    broken.data[at] = np.nan
    sparse.save_npz(tmp_path / "data.npz", broken)
    with pytest.raises(TableError, match=rf"the first in row 8, column '{broken.indices[at] + 1}'"):
        read(tmp_path / "data.npz")


def test_separators_inside_quotes(csv):
    assert read(csv('a,"x;y;z;w",label\n1,2,p\n2,3,q\n'), "label").names == ["a", "x;y;z;w"]
    assert read(csv('a;"x,y,z,w";label\n1;2;p\n2;3;q\n'), "label").names == ["a", "x,y,z,w"]


@pytest.mark.parametrize("name", ["X.CSV.GZ", "x.csv.Gz", "X.CSV.BZ2", "X.CSV.XZ"])
def test_names_in_capitals(tmp_path, name):
    compress = {"gz": gzip, "bz2": bz2, "xz": lzma}[name.lower().rpartition(".")[2]].compress
    (tmp_path / name).write_bytes(compress(b"a,b\n1,2\n3,4\n"))
    assert read(tmp_path / name).rows.tolist() == [[1, 2], [3, 4]]

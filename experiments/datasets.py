"""Data sets by name: the paper's, the SSL book's, and any .npz file in the folder that ``S3VM_DATA`` names.

`load` looks into that folder first, for ``.npz`` (arrays `X` and `y`, or the parts of a CSR matrix), svmlight, csv (the
label in the first column, as UCI publishes it) and ``.mat`` files, compressed or not; otherwise it downloads the set
from where it was published. The columns are changed little, and no label is looked at:

- measurements are standardised and clipped to ten standard deviations (CodRNA, IJCNN1, SUSY, Skin, Higgs, HEPMASS);
- binary columns stay as they are (w8a), and so do the SSL book's sets;
- Dota2's first three columns are ids (region, mode and type of the game), each of which becomes 0/1 columns; the other
  113 (-1, 0, 1: which team has the hero) stay as they are.

`mask` hides labels; `synthetic` makes rows of the same shape where only speed matters.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from s3vm._utils.arrays import stack
from s3vm._utils.optional import optional
from s3vm._utils.typing import Array, Rows

__all__ = ["KNOWN", "Dataset", "Known", "folder", "load", "local_files", "mask", "names", "synthetic"]

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_SSL_BOOK = "http://olivier.chapelle.cc/ssl-book"
_COMPRESSED = (".gz", ".bz2", ".xz")
_FORMATS = (".npz", ".mat", ".csv", ".svmlight", ".libsvm", ".svm", ".t", ".tr")  # without a suffix: svmlight
_CLIP = 10.0
_DENSE = 2000  # columns up to which sparse rows are made dense: kernels are faster so
_CLUSTERS = 6


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows and their true labels.

    Attributes
    ----------
    name : str
    X : float32 array or CSR matrix of shape (n, d)
    y : array of shape (n,)
        0 and 1 for two classes, 1 being the positive one; else 0, 1, 2, ...
    splits : dict of int to array
        Official choices of labelled rows, by how many they are: an array of row numbers, one line per split.
    source : str
        Names of the files it was read from, or ``"synthetic"``.
    description : str
    """

    name: str
    X: Rows
    y: Array
    splits: Mapping[int, Array] = field(default_factory=dict)
    source: str = ""
    description: str = ""

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_dims(self) -> int:
        return int(self.X.shape[1])


@dataclass(frozen=True)
class Known:
    """A set as it was published.

    Parameters
    ----------
    title : str
    n_rows, n_dims : int
    positive : float
        Fraction of positive rows.
    files : tuple of tuple of str
        Alternatives in order, each the names (without suffixes) of the files that together make the set.
    urls : tuple of str
        Where they are published.
    standardise : bool
    ids : int
        How many of the first columns are ids.
    """

    title: str
    n_rows: int
    n_dims: int
    positive: float
    files: tuple[tuple[str, ...], ...]
    urls: tuple[str, ...]
    standardize: bool = True
    ids: int = 0


def _ssl(title: str, n_rows: int, n_dims: int, positive: float, stem: str, number: int) -> Known:
    parts = ("data", "splits,labeled=10", "splits,labeled=100")
    files = tuple(f"SSL,set={number},{part}" for part in parts)
    urls = tuple(f"{_SSL_BOOK}/{file}.mat" for file in files)
    return Known(title, n_rows, n_dims, positive, ((stem,), files), urls, standardize=False)


KNOWN: dict[str, Known] = {
    "codrna": Known("CodRNA", 59_535, 8, 0.333, (("codrna",), ("cod-rna",)), (f"{_LIBSVM}/cod-rna",)),
    "w8a": Known("w8a", 49_749, 300, 0.030, (("w8a",),), (f"{_LIBSVM}/w8a",), standardize=False),
    "ijcnn1": Known("IJCNN1", 49_990, 22, 0.097, (("ijcnn1",),), (f"{_LIBSVM}/ijcnn1.bz2",)),
    "susy": Known("SUSY", 5_000_000, 18, 0.458, (("susy",), ("susy_30k",)), (f"{_UCI}/00279/SUSY.csv.gz",)),
    "skin": Known("Skin", 245_057, 3, 0.208, (("skin",), ("skin_nonskin",)), (f"{_LIBSVM}/skin_nonskin",)),
    "higgs": Known("Higgs", 11_000_000, 28, 0.530, (("higgs",), ("higgs_46k",)), (f"{_UCI}/00280/HIGGS.csv.gz",)),
    "dota2": Known(
        "Dota2",
        102_944,
        116,
        0.527,
        (("dota2_train", "dota2_test"), ("dota2Train", "dota2Test")),
        (f"{_UCI}/00367/dota2Dataset.zip",),
        standardize=False,
        ids=3,
    ),
    "hepmass": Known(
        "HEPMASS",
        10_500_000,
        28,
        0.500,
        (("hepmass",), ("hepmass_10k",), ("all_train", "all_test")),
        (f"{_UCI}/00347/all_train.csv.gz", f"{_UCI}/00347/all_test.csv.gz"),
    ),
    "g241c": _ssl("g241c", 1500, 241, 0.5, "ssl_g241c", 5),
    "g241d": _ssl("g241d", 1500, 241, 0.5, "ssl_g241d", 7),
    "digit1": _ssl("Digit1", 1500, 241, 0.49, "ssl_digit1", 1),
    "usps": _ssl("USPS", 1500, 241, 0.2, "ssl_usps", 2),
    "bci": _ssl("BCI", 400, 117, 0.5, "ssl_bci", 4),
    "text": _ssl("Text", 1500, 11_960, 0.5, "ssl_text", 9),
}


class _Content(NamedTuple):
    """What a file holds: rows and labels, or splits, or both."""

    X: Any
    y: Array | None
    splits: dict[int, Array]


def folder() -> Path | None:
    """The folder that ``S3VM_DATA`` names, or None."""
    name = os.environ.get("S3VM_DATA")
    return Path(name).expanduser() if name else None


def names() -> list[str]:
    """The known sets, and the other ``.npz`` files in the folder."""
    taken = {file.lower() for known in KNOWN.values() for files in known.files for file in files}
    directory = folder()
    others = sorted(path.stem for path in directory.glob("*.npz")) if directory is not None else []
    return [*KNOWN, *(stem for stem in others if stem.lower() not in taken and stem not in KNOWN)]


def local_files(name: str) -> list[Path]:
    """The files of a set in the folder; empty if any is missing."""
    directory = folder()
    if directory is None or not directory.is_dir():
        return []
    paths = {_stem(path): path for path in sorted(directory.iterdir()) if path.is_file()}
    for stems in KNOWN[name].files if name in KNOWN else ((name,),):
        if all(stem.lower() in paths for stem in stems):
            return [paths[stem.lower()] for stem in stems]
    return []


def load(name: str, *, download: bool = True, progress: bool = True) -> Dataset:
    """The set of that name.

    Parameters
    ----------
    name : str
        One of `names()`.
    download : bool, default True
        Whether to download a set that is not in the folder; downloads are kept in the user's cache.
    progress : bool, default True
        Whether to show a progress bar.
    """
    paths = local_files(name)
    if not paths and name not in KNOWN:
        raise ValueError(
            f"there is no data set {name!r}: give one of {', '.join(names())}, or put {name}.npz (arrays X and y) into "
            "the folder that S3VM_DATA names"
        )
    if not paths:
        if not download:
            where = folder() or "which is not set"
            raise FileNotFoundError(f"{name} is not in the folder that S3VM_DATA names ({where})")
        paths = _download(name, progress)
    content = _concatenate([_read(path) for path in paths], name)
    assert content.y is not None
    known = KNOWN.get(name)
    X, y = _features(content.X, known), _codes(content.y, known)
    source = ", ".join(path.name for path in paths)
    part = f", of {known.n_rows:,} published" if known is not None and len(y) < known.n_rows else ""
    treatment = (
        "standardised" if known is None or known.standardize else "ids as 0/1 columns" if known.ids else "as it is"
    )
    text = f"{known.title if known else name}: {len(y):,} rows{part}, {X.shape[1]:,} columns, {treatment}"
    return Dataset(name, X, y, content.splits, source, text)


def mask(y: Any, n_labeled: int = 200, seed: int = 0, *, at_least: int = 2) -> Array:
    """Labels with all but `n_labeled` random ones hidden (-1); at least `at_least` of each class are shown.

    >>> y = np.array([0, 1] * 10)
    >>> int((mask(y, 6) >= 0).sum())
    6
    """
    y = np.asarray(y)
    classes, counts = np.unique(y, return_counts=True)
    if not at_least * len(classes) <= n_labeled <= len(y) or counts.min() < at_least:
        raise ValueError(
            f"{n_labeled} labelled rows with {at_least} of each of {len(classes)} classes cannot be drawn from "
            f"{len(y)} rows whose rarest class has {counts.min()}"
        )
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(y), n_labeled, replace=False)
    if min(np.sum(y[chosen] == label) for label in classes) < at_least:
        # Drawing until it fits could take for ever: each class gets its rows first, the others are drawn.
        must = np.concatenate([rng.choice(np.flatnonzero(y == label), at_least, replace=False) for label in classes])
        others = rng.permutation(np.setdiff1d(np.arange(len(y)), must))
        chosen = np.concatenate([must, others[: n_labeled - len(must)]])
    hidden = np.full(len(y), -1)
    hidden[chosen] = y[chosen]
    return hidden


def synthetic(name: str, n_rows: int | None = None, seed: int = 0) -> Dataset:
    """Rows of the shape of a known set: as many columns and, by default, rows, and the same fraction of positive ones.

    Each class is a mixture of Gaussian clusters. Only seconds and bytes carry over to the real set, not errors.
    """
    if name not in KNOWN:
        raise ValueError(f"the shape of {name!r} is not known: give one of {', '.join(KNOWN)}")
    known = KNOWN[name]
    n_rows = known.n_rows if n_rows is None else n_rows
    rng = np.random.default_rng([seed, n_rows])
    y = (rng.random(n_rows) < known.positive).astype(np.intp)
    centers = rng.standard_normal((2, _CLUSTERS, known.n_dims), dtype=np.float32)
    X = rng.standard_normal((n_rows, known.n_dims), dtype=np.float32)
    X += centers[y, rng.integers(_CLUSTERS, size=n_rows)]
    X /= np.float32(np.sqrt(2))
    return Dataset(name, X, y, {}, "synthetic", f"{n_rows:,} synthetic rows of the shape of {known.title}")


# Finding and reading files


def _stem(path: Path) -> str:
    """The name of a file without its suffixes, in lower case."""
    name = path.name.lower()
    for suffixes in (_COMPRESSED, _FORMATS):
        name = next((name.removesuffix(suffix) for suffix in suffixes if name.endswith(suffix)), name)
    return name


def _download(name: str, progress: bool) -> list[Path]:
    pooch = optional("pooch", "experiments")
    known = KNOWN[name]
    cache: dict[str, Any] = {"path": pooch.os_cache("s3vm"), "progressbar": progress}
    paths: list[Path] = []
    for url in known.urls:
        unzip = pooch.Unzip() if url.endswith(".zip") else None
        try:
            saved = pooch.retrieve(url, None, fname=f"{name}-{url.rpartition('/')[2]}", processor=unzip, **cache)
        except OSError as problem:
            raise ConnectionError(
                f"{known.title} could not be downloaded from {url} ({type(problem).__name__}): get the file by other "
                "means, put it into a folder, and name that in the environment variable S3VM_DATA"
            ) from problem
        paths += map(Path, saved if unzip else [saved])
    if len(paths) <= len(known.urls):
        return paths
    members = [stem.lower() for stem in known.files[-1]]
    return sorted((path for path in paths if _stem(path) in members), key=lambda path: members.index(_stem(path)))


def _read(path: Path) -> _Content:
    """One file, by the end of its name; csv files have the label first, and what has no known format is svmlight."""
    optional("pyarrow", "experiments")
    from s3vm.sources import readers

    name = path.name.lower()
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    if name.endswith(".mat"):
        return _read_mat(path)
    if name.endswith(".csv"):
        return _read_csv(path)
    file_format = "npz" if name.endswith(".npz") else "svmlight"
    table = readers.read(path, "y", file_format=file_format)
    splits = {}
    if path.suffix.lower() == ".npz":
        with np.load(path, allow_pickle=False) as stored:
            splits = {int(key[8:]): stored[key] for key in stored if key.startswith("labeled_")}
    return _Content(table.rows, table.labels, splits)


def _read_csv(path: Path) -> _Content:
    """Numbers, perhaps below a line of names."""
    from pyarrow import csv, input_stream

    with input_stream(str(path), compression="detect") as file:
        has_names = file.read(1) not in b"-+.0123456789"
    table = csv.read_csv(path, csv.ReadOptions(autogenerate_column_names=not has_names))
    rows = np.column_stack([column.to_numpy().astype(np.float32) for column in table.columns])
    return _Content(rows[:, 1:], rows[:, 0], {})


def _read_mat(path: Path) -> _Content:
    """The SSL book's files: one with X and y, and one with the labelled rows of each split, counted from 1."""
    from scipy.io import loadmat

    stored = loadmat(path)
    if "idxLabs" in stored:
        labeled = stored["idxLabs"].astype(np.intp) - 1
        return _Content(None, None, {labeled.shape[1]: labeled})
    return _Content(stored["X"], stored["y"].ravel(), {})


def _concatenate(contents: list[_Content], name: str) -> _Content:
    """The rows of all files, one below the other."""
    labels = [content.y for content in contents if content.y is not None]
    if not labels:
        raise ValueError(f"{name}: there are splits, but no rows")
    rows = [content.X for content in contents if content.y is not None]
    splits = {number: rows for content in contents for number, rows in content.splits.items()}
    return _Content(rows[0] if len(rows) == 1 else stack(rows), np.concatenate(labels), splits)


# Features and classes


def _features(X: Any, known: Known | None) -> Rows:
    if sparse.issparse(X):
        X = X.toarray() if X.shape[1] <= _DENSE else sparse.csr_array(X, dtype=np.float32)
    if sparse.issparse(X):
        return X
    X = np.ascontiguousarray(X, dtype=np.float32)
    if known is None or known.standardize:
        mean, spread = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
        X = X - mean.astype(np.float32)
        X /= np.where(spread > 0, spread, 1).astype(np.float32)
        return np.clip(X, -_CLIP, _CLIP, out=X)
    if known.ids:
        coded = [X[:, at, None] == np.unique(X[:, at]) for at in range(known.ids)]
        return np.concatenate([*coded, X[:, known.ids :]], axis=1, dtype=np.float32)
    return X


def _codes(y: Array, known: Known | None) -> Array:
    """1 where a known set's label is 1, whatever the other label is; else the classes in order."""
    if known is not None:
        return (y == 1).astype(np.intp)
    return np.unique(y, return_inverse=True)[1]

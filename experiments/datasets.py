"""Data sets by name: those of the paper, the SSL-book's, and whatever lies in the folder that ``S3VM_DATA`` names.

`load` looks into that folder first, for ``.npz`` (arrays `X` and `y`, or the parts of a CSR matrix), svmlight, csv (the
label in the first column, as UCI has it) and ``.mat`` files, compressed or not; else it downloads the set from where it
was published, with pooch. What is done to the columns is little, and no label is looked at:

- measurements are standardised and clipped to ten standard deviations (CodRNA, IJCNN1, SUSY, Skin, Higgs, HEPMASS);
- binary columns stay as they are (w8a), and so do the SSL-book's sets;
- Dota2's first three columns are ids (region, mode and type of the game), each of which is made a 0/1 column; the other
  113 (-1, 0, 1: which team has the hero) stay as they are.

`mask` hides labels, `synthetic` makes rows of the same shape where only the speed matters.
"""

import bz2
import gzip
import lzma
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from s3vm._utils.optional import optional
from s3vm._utils.typing import Array, Rows

__all__ = ["KNOWN", "Dataset", "Known", "folder", "found", "load", "mask", "names", "synthetic"]

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_SSL_BOOK = "http://olivier.chapelle.cc/ssl-book"
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_KINDS = (".npz", ".mat", ".csv", ".svmlight", ".libsvm", ".svm", ".t", ".tr")  # none of these: svmlight
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
        Official choices of labelled rows, by their number: one row of row numbers a split.
    source : str
        The files that it was read from, without their folder, or ``"synthetic"``.
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
        Share of positive rows.
    files : names of files without endings, the alternatives in order; each one or several that make the set together
    urls : str
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
    standardise: bool = True
    ids: int = 0


def _ssl(title: str, n_rows: int, n_dims: int, positive: float, stem: str, number: int) -> Known:
    parts = ("data", "splits,labeled=10", "splits,labeled=100")
    files = tuple(f"SSL,set={number},{part}" for part in parts)
    urls = tuple(f"{_SSL_BOOK}/{file}.mat" for file in files)
    return Known(title, n_rows, n_dims, positive, ((stem,), files), urls, standardise=False)


KNOWN: dict[str, Known] = {
    "codrna": Known("CodRNA", 59_535, 8, 0.333, (("codrna",), ("cod-rna",)), (f"{_LIBSVM}/cod-rna",)),
    "w8a": Known("w8a", 49_749, 300, 0.030, (("w8a",),), (f"{_LIBSVM}/w8a",), standardise=False),
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
        standardise=False,
        ids=3,
    ),
    "hepmass": Known(
        "HEPMASS",
        10_500_000,
        28,
        0.500,
        (("hepmass",), ("all_train", "all_test")),
        (f"{_UCI}/00347/all_train.csv.gz", f"{_UCI}/00347/all_test.csv.gz"),
    ),
    "g241c": _ssl("g241c", 1500, 241, 0.5, "ssl_g241c", 5),
    "g241d": _ssl("g241d", 1500, 241, 0.5, "ssl_g241d", 7),
    "digit1": _ssl("Digit1", 1500, 241, 0.49, "ssl_digit1", 1),
    "usps": _ssl("USPS", 1500, 241, 0.2, "ssl_usps", 2),
    "bci": _ssl("BCI", 400, 117, 0.5, "ssl_bci", 4),
    "text": _ssl("Text", 1500, 11_960, 0.5, "ssl_text", 9),
}


class _Read(NamedTuple):
    X: Any
    y: Array | None
    splits: dict[int, Array]


def folder() -> Path | None:
    """The folder that ``S3VM_DATA`` names; None if it names none."""
    named = os.environ.get("S3VM_DATA")
    return Path(named).expanduser() if named else None


def names() -> list[str]:
    """The sets that are known, and the further ``.npz`` files in the folder."""
    taken = {file.lower() for known in KNOWN.values() for files in known.files for file in files}
    there = folder()
    more = sorted(path.stem for path in there.glob("*.npz")) if there is not None and there.is_dir() else []
    return [*KNOWN, *(stem for stem in more if stem.lower() not in taken and stem not in KNOWN)]


def found(name: str) -> list[Path]:
    """The files of a set in the folder; an empty list if it is not there."""
    there = folder()
    if there is None or not there.is_dir():
        return []
    files = {_stem(path): path for path in sorted(there.iterdir()) if path.is_file()}
    for alternative in KNOWN[name].files if name in KNOWN else ((name,),):
        paths = [files[stem.lower()] for stem in alternative if stem.lower() in files]
        if len(paths) == len(alternative):
            return paths
    return []


def load(name: str, *, download: bool = True, progress: bool = True) -> Dataset:
    """The set of that name.

    Parameters
    ----------
    name : str
        One of `names()`.
    download : bool, default True
        Whether to fetch a set that is not in the folder; downloads are kept in the user's cache.
    progress : bool, default True
        Whether to show a bar meanwhile.
    """
    paths = found(name)
    if not paths and name not in KNOWN:
        raise ValueError(
            f"there is no data set {name!r}: give one of {', '.join(names())}, or put {name}.npz (arrays X and y) into "
            "the folder that S3VM_DATA names"
        )
    if not paths:
        if not download:
            raise FileNotFoundError(
                f"{name} is not in the folder that S3VM_DATA names ({folder() or 'which is not set'})"
            )
        paths = _downloaded(name, progress)
    read = _together([_read(path) for path in paths], name)
    assert read.y is not None
    known = KNOWN.get(name)
    X, y = _columns(read.X, known), _codes(read.y, known)
    source = ", ".join(path.name for path in paths)
    part = f", of {known.n_rows:,} published" if known is not None and len(y) < known.n_rows else ""
    treated = (
        "standardised" if known is None or known.standardise else "ids as 0/1 columns" if known.ids else "as it is"
    )
    text = f"{known.title if known else name}: {len(y):,} rows{part}, {X.shape[1]:,} columns, {treated}"
    return Dataset(name, X, y, read.splits, source, text)


def mask(y: Any, n_labelled: int = 200, seed: int = 0, *, at_least: int = 2) -> Array:
    """Labels of which all but `n_labelled` random ones are hidden (-1), `at_least` so many of each class being shown.

    >>> y = np.array([0, 1] * 10)
    >>> int((mask(y, 6) >= 0).sum())
    6
    """
    y = np.asarray(y)
    classes, counts = np.unique(y, return_counts=True)
    if not at_least * len(classes) <= n_labelled <= len(y) or counts.min() < at_least:
        raise ValueError(
            f"{n_labelled} labelled rows with {at_least} of each of {len(classes)} classes cannot be drawn from "
            f"{len(y)} rows whose rarest class has {counts.min()}"
        )
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(y), n_labelled, replace=False)
    if min(np.sum(y[chosen] == one) for one in classes) < at_least:
        # Drawing again until it fits could take for ever: the classes get their rows first, chance gives the others.
        must = np.concatenate([rng.choice(np.flatnonzero(y == one), at_least, replace=False) for one in classes])
        others = rng.permutation(np.setdiff1d(np.arange(len(y)), must))
        chosen = np.concatenate([must, others[: n_labelled - len(must)]])
    hidden = np.full(len(y), -1)
    hidden[chosen] = y[chosen]
    return hidden


def synthetic(name: str, n_rows: int | None = None, seed: int = 0) -> Dataset:
    """Rows of the shape of a known set: as many columns and, by default, rows, and the same share of positive ones.

    Each class is a mixture of Gaussian clusters. Errors on it say nothing of the real set; seconds and bytes do.
    """
    if name not in KNOWN:
        raise ValueError(f"the shape of {name!r} is not known: give one of {', '.join(KNOWN)}")
    known = KNOWN[name]
    n_rows = known.n_rows if n_rows is None else n_rows
    rng = np.random.default_rng([seed, n_rows])
    y = (rng.random(n_rows) < known.positive).astype(np.intp)
    centres = rng.standard_normal((2, _CLUSTERS, known.n_dims), dtype=np.float32)
    X = rng.standard_normal((n_rows, known.n_dims), dtype=np.float32)
    X += centres[y, rng.integers(_CLUSTERS, size=n_rows)]
    X /= np.float32(np.sqrt(2))
    return Dataset(name, X, y, {}, "synthetic", f"{n_rows:,} made rows of the shape of {known.title}")


# Finding and reading files


def _stem(path: Path) -> str:
    """The name of a file without its endings, in small letters."""
    name = path.name
    for endings in (_OPENERS, _KINDS):
        for ending in endings:
            if name.lower().endswith(ending):
                name = name[: -len(ending)]
                break
    return name.lower()


def _downloaded(name: str, progress: bool) -> list[Path]:
    pooch = optional("pooch", "data")
    known, paths = KNOWN[name], []
    for url in known.urls:
        unpack = pooch.Unzip() if url.endswith(".zip") else None
        file = f"{name}-{url.rpartition('/')[2]}"
        try:
            got = pooch.retrieve(
                url, None, fname=file, path=pooch.os_cache("s3vm"), processor=unpack, progressbar=progress
            )
        except OSError as problem:
            raise ConnectionError(
                f"{known.title} could not be downloaded from {url} ({type(problem).__name__}): get the file by other "
                "means, put it into a folder, and name that in the environment variable S3VM_DATA"
            ) from problem
        paths += [Path(path) for path in ([got] if unpack is None else got)]
    if len(paths) <= len(known.urls):
        return paths
    wanted = [stem.lower() for stem in known.files[-1]]
    return sorted((path for path in paths if _stem(path) in wanted), key=lambda path: wanted.index(_stem(path)))


def _read(path: Path) -> _Read:
    inner = path.name.lower()
    for ending in _OPENERS:
        inner = inner.removesuffix(ending)
    if inner.endswith(".npz"):
        return _read_npz(path)
    if inner.endswith(".mat"):
        return _read_mat(path)
    if inner.endswith(".csv"):
        return _read_csv(path)
    from sklearn.datasets import load_svmlight_file

    with _opened(path) as file:
        X, y = load_svmlight_file(file, dtype=np.float32)
    return _Read(X, y, {})


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    opener = _OPENERS.get(path.suffix.lower(), open)
    with opener(path, "rb") as file:
        yield file


def _read_npz(path: Path) -> _Read:
    with np.load(path, allow_pickle=False) as stored:
        if "y" not in stored or not ("X" in stored or "data" in stored):
            raise ValueError(f"{path.name} needs the arrays X (or data, indices, indptr, shape) and y")
        parts = ("data", "indices", "indptr")
        X = stored["X"] if "X" in stored else sparse.csr_array(tuple(stored[part] for part in parts), stored["shape"])
        splits = {int(key.partition("_")[2]): stored[key] for key in stored if key.startswith("labeled_")}
        return _Read(X, stored["y"], splits)


def _read_mat(path: Path) -> _Read:
    """The SSL-book's files: one with X and y, and one with the labelled rows of each split, counted from 1."""
    from scipy.io import loadmat

    stored = loadmat(path)
    if "idxLabs" in stored:
        labelled = stored["idxLabs"].astype(np.intp) - 1
        return _Read(None, None, {labelled.shape[1]: labelled})
    return _Read(stored["X"], stored["y"].ravel(), {})


def _read_csv(path: Path) -> _Read:
    """Numbers, the label first; a line of names is passed over."""
    csv = optional("pyarrow.csv", "data")
    with _opened(path) as file:
        first = file.readline().split(b",")[0]
    try:
        float(first)
    except ValueError:
        skipped = 1
    else:
        skipped = 0
    with _opened(path) as file:
        options = csv.ReadOptions(autogenerate_column_names=True, skip_rows=skipped)
        table = csv.read_csv(file, read_options=options)
    X = np.empty((table.num_rows, table.num_columns - 1), np.float32)
    for at in range(X.shape[1]):
        X[:, at] = table.column(at + 1).to_numpy()
    return _Read(X, table.column(0).to_numpy(), {})


def _together(parts: list[_Read], name: str) -> _Read:
    """The rows of all files one below the other."""
    rows = [part for part in parts if part.y is not None]
    if not rows:
        raise ValueError(f"{name}: there are splits, but no rows")
    splits = {number: rows for part in parts for number, rows in part.splits.items()}
    if len(rows) == 1:
        return _Read(rows[0].X, rows[0].y, splits)
    stack = sparse.vstack if sparse.issparse(rows[0].X) else np.concatenate
    return _Read(
        stack([part.X for part in rows]), np.concatenate([part.y for part in rows if part.y is not None]), splits
    )


# Making columns of what was read


def _columns(X: Any, known: Known | None) -> Rows:
    if sparse.issparse(X):
        X = X.toarray() if X.shape[1] <= _DENSE else sparse.csr_array(X, dtype=np.float32)
    if sparse.issparse(X):
        return X
    X = np.ascontiguousarray(X, dtype=np.float32)
    if known is None or known.standardise:
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

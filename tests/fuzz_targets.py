"""What is fuzzed: each target makes a case of random choices, tries it, and returns in a word how it ended.

Anything but the outcomes that are promised is an exception that goes through.
"""

import gzip
import hashlib
import io
import json
import os
import pickle
import shutil
import struct
import zipfile
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save as packed
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from typer.main import get_command

import s3vm
from fuzzing import memory_of
from s3vm import (
    BGS,
    CCCP,
    FRS,
    TSG,
    Batch,
    Incremental,
    Light,
    ModelFormatError,
    Newton,
    S3VMClassifier,
    philox,
)
from s3vm._utils import container
from s3vm._utils.codec import encode
from s3vm.kernels import RBF, Laplacian, Matern, Polynomial
from s3vm.persistence.model_file import _PARTS, _probes
from s3vm.sources import readers as tables
from s3vm.sources.files import FileSource, source_of
from s3vm.training import checkpoints

_TINY = {"gamma": 1.0, "C": 1.0, "unlabeled_weight": 0.5, "random_state": 0}
KEPT = sorted((Path(__file__).parent / "files").glob("*.s3vm"))


def sealed(header, tensors):
    """A model file of that header and these tensors, whose checksum is right."""
    text = header if isinstance(header, str) else json.dumps(header)
    text = text.encode("utf-8", "replace").decode()
    raw = packed({**tensors, "sha256": np.zeros(32, np.uint8)}, {"s3vm": text})
    return raw[:-32] + hashlib.sha256(raw[:-32]).digest()


def resealed(raw):
    """The file with a checksum that is right for whatever is in it."""
    return raw[:-32] + hashlib.sha256(raw[:-32]).digest()


def paths(value, so_far=()):
    """The places in JSON, each as the keys that lead there."""
    yield so_far
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(inner, (*so_far, key))


def at(value, place):
    for key in place:
        value = value[key]
    return value


def readable(problem):
    """A message must be one that can be read."""
    if not 12 < len(str(problem)) < 1000:
        raise AssertionError(f"a message of {len(str(problem))} characters: {problem}")


def names_the_file(problem, name):
    """A message must be one that can be read, and name the file; `problem` has it."""
    readable(problem)
    if name not in str(problem):
        raise AssertionError(f"a message without {name}: {problem}")
    return "refused"


def usable(model):
    """Complains if a model that was loaded neither predicts finite scores nor says why not."""
    if model.n_features_in_ > 10_000:
        return
    X = np.linspace(-2, 2, 5 * model.n_features_in_).reshape(5, -1)
    scores, message = np.zeros(1), ""
    try:
        scores = model.decision_function(X)
        assert len(model.predict(X)) == 5
        if hasattr(model, "predict_proba"):
            shares = model.predict_proba(X)
            assert np.isfinite(shares).all()
            np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
    except ValueError as error:
        message = str(error)
    assert np.isfinite(scores).all()
    assert message == "" or "too large" in message, message


# Model files


class Container:
    """Files of a header and tensors, damaged or forged."""

    def __init__(self, raws, words):
        self.raws, self.words = raws, words
        self.parts = [container.read(io_path) for io_path in raws]
        self.raws = [Path(path).read_bytes() for path in raws]
        self.places = [[place for place in paths(header) if place] for header, _ in self.parts]

    def forged(self, chance):
        which = chance.randrange(len(self.raws))
        raw, (header, tensors) = self.raws[which], self.parts[which]
        kind = chance.randrange(12)
        if kind == 0:
            return chance.damaged(raw)
        if kind == 1:
            return resealed(chance.damaged(raw))
        if kind == 2:
            return resealed(self._other_outside(chance, raw))
        if kind < 8:
            header = json.loads(json.dumps(header))
            for _ in range(chance.choice((1, 1, 2, 3))):
                self._other_entry(chance, header, which)
        if kind >= 7:
            tensors = dict(tensors)
            for _ in range(chance.choice((1, 1, 2))):
                self._other_tensor(chance, tensors)
        return sealed(header, {name: np.ascontiguousarray(part) for name, part in tensors.items()})

    def _other_entry(self, chance, header, which):
        place = chance.choice(self.places[which])
        try:
            owner = at(header, place[:-1])
            match chance.randrange(6):
                case 0:
                    del owner[place[-1]]
                case 1:  # what is right elsewhere
                    other = chance.randrange(len(self.parts))
                    owner[place[-1]] = at(self.parts[other][0], chance.choice(self.places[other]))
                case 2 if isinstance(owner, dict):
                    owner[chance.choice(self.words)] = chance.json(self.words)
                case 3 if isinstance(owner[place[-1]], int | float):
                    owner[place[-1]] = chance.number()
                case _:
                    owner[place[-1]] = chance.json(self.words)
        except (LookupError, TypeError):  # an earlier change has taken it away
            return

    def _other_tensor(self, chance, tensors):
        name = chance.choice(sorted(tensors) or ["nothing"])
        array = tensors.get(name, np.zeros(3))
        match chance.randrange(9):
            case 0:
                tensors.pop(name, None)
            case 1:
                _, others = chance.choice(self.parts)
                tensors[name] = others[chance.choice(sorted(others))]
            case 2:
                tensors[chance.choice(sorted(tensors) or ["x"]) if chance.often() else "more"] = array
            case 3:
                tensors[name] = array.astype(chance.choice(("f4", "f8", "i4", "i8", "u1", "f2", "u2", "?")))
            case 4:
                shape = [chance.randrange(4) for _ in range(chance.randrange(4))]
                tensors[name] = np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)
            case 5 if array.ndim:
                tensors[name] = array[: chance.randrange(len(array) + 1)]
            case 6 if array.ndim:
                tensors[name] = np.concatenate([array, array[: chance.randrange(len(array) + 1)]])
            case _ if array.size:
                array = array.copy()
                value = chance.choice((np.nan, np.inf, -1, 1e30, 1e300, 0, 10**9, chance.number()))
                with np.errstate(all="ignore"):
                    array.flat[chance.randrange(array.size)] = np.float64(value).astype(array.dtype)
                tensors[name] = array

    def _other_outside(self, chance, raw):
        """Another header of safetensors: shapes, types and offsets that are not true."""
        length = int.from_bytes(raw[:8], "little")
        outside = json.loads(raw[8 : 8 + length])
        names = [name for name in outside if name != "__metadata__"]
        for _ in range(chance.choice((1, 2))):
            one = outside[chance.choice(names)]
            match chance.randrange(5):
                case 0:
                    one["shape"] = [chance.choice((0, 1, 2**31, 2**40, 2**62, 3)) for _ in range(chance.randrange(4))]
                case 1:
                    one["dtype"] = chance.choice(("F64", "F32", "BF16", "F16", "I8", "BOOL", "U64", "F8_E4M3", "X", ""))
                case 2:
                    one["data_offsets"] = [chance.choice((0, 8, 2**63, 10**4, -1)) for _ in range(2)]
                case 3:
                    one[chance.choice(sorted(one))] = chance.json()
                case 4:
                    outside[chance.text()] = one
        text = json.dumps(outside).encode()
        said = len(text) if chance.often(0.9) else chance.choice(INTERESTING_LENGTHS)
        return said.to_bytes(8, "little") + text + raw[8 + length :]


INTERESTING_LENGTHS = (0, 1, 7, 1 << 10, 2 << 20, (2 << 20) + 1, 2**31, 2**63, 2**64 - 1)
KNOWN_WORDS = (
    *sorted(_PARTS),
    *("S3VMClassifier", "S3VMClassifierCV", "auto", "cpu", "reference", "gpu", "float32", "float64", "scale", "median"),
    *(
        "dict",
        "gamma",
        "solver",
        "kernel",
        "features",
        "pairs",
        "phase",
        "degree",
        "coef0",
        "nu",
        "max_iter",
        "<U9",
        "|O",
    ),
    *(
        "tsg",
        "rbf",
        "exp",
        "smooth_hinge",
        "rows",
        "sqrt",
        "philox",
        "with_mean",
        "with_std",
        "copy",
        "n_seen",
        "n_jobs",
    ),
)


_RBF = RBF(gamma=1.0)


def hostile_model(
    kernel=_RBF,
    n_dims=3,
    blocks=None,
    centers=None,
    weights=None,
    intercept=None,
    classes=None,
    settings=None,
    header=lambda text: text,
):
    """A model file whose checksum and probes are right, of any numbers."""
    parts = {"dtype": "<i8", "values": [0, 1]} if classes is None else classes
    n_columns = 1 if len(parts["values"]) == 2 else len(parts["values"])
    blocks = np.ones((0, kernel.whole(2), n_columns)) if blocks is None else blocks
    tensors = {
        "coefficients": blocks,
        "intercept": np.zeros(n_columns) if intercept is None else intercept,
        "history": np.empty((0, 0)),
        "probes": _probes(kernel, 0, len(blocks), n_dims),
    }
    if weights is not None:
        tensors["weights"] = weights
        names = ("data", "indices", "indptr") if sparse.issparse(centers) else ()
        tensors |= {f"centres.{name}": getattr(centers, name) for name in names} or {"centres": centers}
    text = {
        "format": 1,
        "estimator": "S3VMClassifier",
        "settings": settings or {},
        "kernel": encode(kernel, _PARTS),
        "seed": 0,
        "random": philox.NAME,
        "n_features_in": n_dims,
        "classes": parts,
        "C": 1.0,
        "n_iter": 1,
        "history": [],
        "safety": None,
        "temperature": None,
        "compression": None,
        "steps": [],
        "scaler": None,
    }
    return sealed(header(json.dumps(text)), {name: np.ascontiguousarray(part) for name, part in tensors.items()})


def hostile(folder):
    """Well-formed models of hostile numbers: loaded in twice their size and 100 MB, used in 4 GiB, or refused."""
    kernels = (RBF, Matern, Laplacian, Polynomial)

    def tried(chance):
        kind, n_dims = chance.choice(kernels), chance.choice((1, 3, 3, 1000, 1000, 10**4, 10**5, 2**27, 2**31 - 1))
        if chance.often(0.02):
            n_dims = chance.choice((10**6, 2**22, 2**24))
        shape = (
            {"degree": chance.choice((1, 2, 9))}
            if kind is Polynomial
            else {"features": chance.choice(("pairs", "phase"))}
        )
        kernel = kind(gamma=chance.choice((1e-9, 1.0, 1e9)), **shape)
        n_classes = chance.choice((2, 2, 3, 1000, 20_000))
        n_columns, more = 1 if n_classes == 2 else n_classes, {}
        if chance.often():
            block = kernel.whole(chance.choice((2, 6, 64, 512, 4096)))
            count = max(1, min(chance.choice((1, 3, 50)), 10**6 // (block * n_columns)))
            more["blocks"] = np.ones((count, min(block, 10**6 // n_columns), n_columns))
        if chance.often():
            n = chance.choice((0, 1, 9, 10**4, 3 * 10**5))
            n = min(n, 10**6 // n_columns)
            at = np.arange(n) % n_dims
            centers = sparse.csr_array((np.ones(n), (np.arange(n), at)), shape=(n, n_dims))
            more |= {"weights": np.ones((n, n_columns), np.float32), "centers": centers}
            if n * n_dims < 10**6 and chance.often():
                more["centers"] = centers.toarray()
        width = chance.choice((1, 9, 999, 1001, 2**23))
        names = [f"{number:0{min(width, 40)}}" for number in range(n_classes)]
        more["classes"] = chance.choice(
            ({"dtype": "<i8", "values": list(range(n_classes))}, {"dtype": f"<U{width}", "values": names})
        )
        more["settings"] = chance.choice(({}, {"n_jobs": 10**6}, {"cache_bytes": 2**60}, {"backend": "gpu"}))
        path = Path("x.s3vm")
        path.write_bytes(hostile_model(kernel, n_dims, **more))
        try:
            grown, model = memory_of(lambda: s3vm.load(path))
        except ModelFormatError as problem:
            return names_the_file(problem, "x.s3vm")
        assert grown < 100 + 2 * path.stat().st_size / 2**20, f"{grown} MB to load it"
        at = np.arange(min(n_dims, 5))
        row = sparse.csr_array((np.ones(len(at)), (np.zeros(len(at), int), at)), shape=(1, n_dims))
        with suppress(ValueError):  # too large for this kernel
            model.predict(row if n_dims > 10**6 or chance.often() else row.toarray())
        return "loaded"

    return tried


def models(folder):
    """`s3vm.load`: a ModelFormatError, or a model that can be used."""
    files = Container(KEPT, KNOWN_WORDS)

    def tried(chance):
        Path("x.s3vm").write_bytes(files.forged(chance))
        try:
            model = s3vm.load("x.s3vm")
        except ModelFormatError as problem:
            return names_the_file(problem, "x.s3vm")
        if (model[-1] if hasattr(model, "steps") else model).backend == "gpu":
            return "loaded"
        usable(model)
        return "loaded"

    return tried


def states(folder):
    """Checkpoints: a ValueError, or a run that resumes and ends with a usable model."""
    X, some = _rows()
    solvers = (
        TSG(max_iter=6, n_features=8, batch_size=8, span="features", max_features=32),
        FRS(max_iter=6, n_features=8, batch_size=8),
        Newton(max_iter=6),
        Light(),
    )
    classifiers = [S3VMClassifier(solver, kernel="rbf" if k else "matern", **_TINY) for k, solver in enumerate(solvers)]
    written = [folder / f"{k}.checkpoint" for k in range(len(solvers))]
    for path, clf in zip(written, classifiers):
        with suppress(_StoppedError):
            clone(clf).set_params(verbose=_stop_at_3).fit(X, some, checkpoint=path, every=0)
    files = Container(
        written,
        (
            *(
                "array",
                "mask",
                "bytes",
                "csr",
                "list",
                "tuple",
                "set",
                "frozenset",
                "dict",
                "float",
            ),
            *checkpoints._PARTS,
        ),
    )
    run = [header["checkpoint"] for header, _ in files.parts]

    def tried(chance):
        Path("x.checkpoint").write_bytes(files.forged(chance))
        checkpoints.is_checkpoint("x.checkpoint")
        try:
            checkpoints.seed_of("x.checkpoint")
            stored = container.read("x.checkpoint")[0].get("checkpoint")
            which = run.index(stored) if stored in run else chance.randrange(len(run))
            clf = clone(classifiers[which]).fit(X, some, checkpoint="x.checkpoint", resume=True)
        except ModelFormatError as problem:
            return names_the_file(problem, "x.checkpoint")
        except ValueError as problem:
            if "overflowed" in str(problem):  # in the resumed training
                return "refused"
            if "of another run" not in str(problem):
                raise
            return names_the_file(problem, "x.checkpoint")
        usable(clf)
        return "read"

    return tried


class _StoppedError(Exception):
    """A run that was killed."""


def _stop_at_3(done, total, line):
    if done == 3:
        raise _StoppedError


# One estimator


def calls(folder):
    """Public calls on one estimator in any order: each ends in a result, or in an error that leaves it as it was."""
    X, some = _rows()
    small = {"max_iter": 4, "n_features": 8, "batch_size": 8}
    solvers = (TSG(**small), FRS(**small), BGS(max_iter=3), CCCP(max_iter=3), Newton(max_iter=3))
    solvers += (Light(), Incremental(), Batch(max_iter=5), "auto")

    def tried(chance):
        settings = _TINY | {"warm_start": chance.often(), "probability": chance.often()}
        clf, was_refused = S3VMClassifier(chance.choice(solvers), **settings), False
        for _ in range(chance.randrange(2, 7)):
            before = clf.decision_function(X[:5]) if hasattr(clf, "model_") else None
            rows = np.array(chance.sample(range(60), chance.choice((0, 1, 5, 30))), int)
            try:
                match chance.randrange(8):
                    case 0 | 1:
                        clf.fit(X, some)
                    case 2:
                        clf.fit(X[10:], some[10:], sample_weight=np.linspace(0, 2, 50))
                    case 3:
                        clf.partial_fit(X[rows], some[rows])
                    case 4:
                        clf.forget(rows)
                    case 5:
                        clf.save("x.s3vm")
                        clf = s3vm.load("x.s3vm")
                    case 6:
                        clf = pickle.loads(pickle.dumps(clf))
                    case _:
                        clf.set_params(C=chance.choice((1.0, 2.0)), warm_start=chance.often())
                before = None
            except (ValueError, AttributeError, NotFittedError) as problem:
                readable(problem)
                was_refused = True
            if hasattr(clf, "model_"):
                usable(clf)
                if before is not None:
                    np.testing.assert_array_equal(clf.decision_function(X[:5]), before, err_msg="after an error")
        return "refused" if was_refused else "read"

    return tried


# Names of files that are written


def outputs(folder):
    """Models and checkpoints under any name: written there and nowhere else, or refused, and nothing else changes."""
    X, some = _rows()
    clf = S3VMClassifier(FRS(max_iter=3, n_features=8, batch_size=8), **_TINY).fit(X, some)
    names = (
        "a",
        "a.old",
        "a.b.c",
        ".a",
        "a ",
        "-",
        "ü☃",
        "a\nb",
        "x" * 255,
        "x" * 256,
        "in/a",
        "in",
        "in/../a",
        "no/a",
    )
    names += ("", ".", "..", "a/", "link", "gone", "pipe", "'", "%s", "~", "*")

    def content(path):
        if path.is_symlink():
            return os.readlink(path)
        return path.read_bytes() if path.is_file() else path.stat().st_mode

    def everything():
        return {str(path): content(path) for path in Path().rglob("*")}

    def tried(chance):
        for path in sorted(Path().rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        Path("in").mkdir()
        os.mkfifo("pipe")
        Path("link").symlink_to("in/target")
        Path("gone").symlink_to("no/target")
        for name in chance.sample(names[:11], 3):
            with suppress(OSError):
                Path(name).write_bytes(b"precious") if chance.often() else clf.save(name)
        name, before = chance.choice(names), everything()
        try:
            if chance.often():
                clf.save(name)
            else:
                clone(clf).fit(X, some, checkpoint=name)
        except (OSError, ValueError) as problem:
            readable(problem)
            assert everything() == before
            return "refused"
        real = str(Path(os.path.realpath(name)).relative_to(os.getcwd()))
        allowed = {real, os.path.relpath(os.path.realpath(f"{name}.old"))}
        after = everything()
        assert {path for path in before | after if before.get(path) != after.get(path)} <= allowed
        assert before.get(f"{real}.old") != b"precious" or after[f"{real}.old"] == b"precious"
        return "read"

    return tried


# Tables


def _rows():
    X = np.random.default_rng(0).normal(size=(60, 3)).round(3).astype(np.float32)
    return X, np.where(np.arange(60) < 20, (X[:, 0] > 0).astype(int), -1)


def _csv(separator=",", quoted=False):
    X, some = _rows()
    names = ["a", "b", "c", "label", "city", "day"]
    lines = [separator.join(names)]
    for row, label in zip(X, some):
        city = '"Bonn, am ""Rhein"""' if quoted else "Ulm"
        lines.append(
            separator.join([*(f"{value:g}" for value in row), "" if label < 0 else str(label), city, "2020-01-02"])
        )
    return "\n".join(lines) + "\n"


def _svmlight(zero_based=False, comments=False):
    X, some = _rows()
    lines = ["# a comment"] if comments else []
    for row, label in zip(X, some):
        entries = " ".join(f"{k + 1 - zero_based}:{value:g}" for k, value in enumerate(row) if value > -0.5)
        lines.append(f"{label} {'qid:3 ' if comments else ''}{entries}{' # more' if comments else ''}")
    return "\n".join(lines) + "\n"


def _parquet(**options):
    X, some = _rows()
    columns = {
        "a": X[:, 0],
        "b": X[:, 1].astype(np.float64),
        "c": pa.array((100 * X[:, 2]).astype(np.int16), mask=X[:, 2] > 9),
        "label": pa.array(some, mask=some < 0),
        "city": pa.array(["Bonn", None, "Ulm"] * 20).dictionary_encode(),
    }
    into = io.BytesIO()
    pq.write_table(pa.table(columns), into, row_group_size=25, **options)
    return into.getvalue()


def _npz(compressed=False, as_csr=False, **other):
    X, some = _rows()
    arrays = {"X": X, "y": some}
    if as_csr:
        rows = sparse.csr_array(np.maximum(X, 0))
        arrays = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr, "shape": rows.shape, "y": some}
    into = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(into, **arrays | other)
    return into.getvalue()


def _npy(array):
    into = io.BytesIO()
    np.save(into, array)
    return into.getvalue()


CELLS = (
    "",
    "nan",
    "inf",
    "-inf",
    "1e39",
    "1e999",
    "x",
    "-1",
    "0",
    "007",
    "true",
    "1:2",
    "2147483648:1",
    "99999999999:1",
)
CELLS += (
    "-1:1",
    "0:1",
    "1:x",
    "1e5:1",
    "qid:1",
    ":",
    '"',
    "\r",
    "\0",
    "0x10",
    "١",
    "#",
    "1_000",
    "2000000000:1",
    "4294967297:1",
)
NAMES = ("a", "b", "c", "label", "city", "day", "y", "X", "", "a=1", "city=Ulm", "nothing", "label ", "\x1b[31m")


def tables_(folder):
    """The readers: a TableError, or rows of numbers."""
    texts = {
        "csv": [_csv(), _csv(";"), _csv("\t", quoted=True), _csv(quoted=True), "a,label\n1,x\n2,y\n"],
        "svm": [_svmlight(), _svmlight(zero_based=True), _svmlight(comments=True), "1 1:2\n-1 2:3\n"],
    }
    binaries = {
        "parquet": [
            _parquet(),
            _parquet(compression="gzip", use_dictionary=False),
            _parquet(version="1.0", data_page_version="2.0"),
            _parquet(write_statistics=False, store_schema=False, compression="none"),
        ],
        "npz": [_npz(), _npz(True), _npz(as_csr=True), _npz(True, True)],
        "npy": [_npy(_rows()[0]), _npy(np.asfortranarray(_rows()[0].astype(">f8")))],
    }

    def content(chance, kind):
        if kind in texts:
            text = chance.choice(texts[kind])
            if chance.often(0.7):
                raw = chance.retold(text, CELLS).encode("utf-8", "surrogatepass")
            else:
                raw = chance.damaged(text.encode())
            return raw.replace(b"\n", b"\r\n") if chance.often(0.05) else raw
        raw = chance.choice(binaries[kind])
        if kind in ("npz", "npy") and chance.often(0.7):
            return _other_arrays(chance, kind)
        if kind == "parquet" and chance.often(0.3):
            return _other_columns(chance)
        if kind == "parquet" and chance.often(0.5):  # the footer, where the structure is
            length = struct.unpack("<I", raw[-8:-4])[0]
            return raw[: -8 - length] + chance.damaged(raw[-8 - length : -8]) + raw[-8:]
        return chance.damaged(raw)

    def tried(chance):
        kind = chance.choice(("csv", "csv", "svm", "svm", "parquet", "npz", "npy"))
        raw, name = content(chance, kind), f"x.{kind}"
        if kind in texts and chance.often(0.15):
            raw, name = gzip.compress(raw, 1), f"{name}.gz"
            raw = chance.damaged(raw) if chance.often(0.6) else raw
        Path(name).write_bytes(raw)
        target = chance.choice(("label", "label", None, chance.choice(NAMES)))
        if kind in ("svm", "npz"):
            target = chance.choice(("y", "y", None, chance.choice(NAMES)))
        options = {}
        if chance.often(0.8) and kind in ("csv", "parquet"):
            options["drop"] = ["city", "day"][: 1 + (kind == "csv")]
        if chance.often(0.2) and kind in ("csv", "parquet"):
            options["features"] = [chance.choice(NAMES) for _ in range(2)]
        elif chance.often(0.2):
            options["features"] = chance.choice((1, 2, 3, 4))
        if chance.often(0.2):
            options["mark"] = ["-1"]
        if chance.often(0.3):
            options["zero_based"] = chance.often()
        try:
            how = chance.randrange(4)
            if how == 0:
                return _used(tables.read(name, target, **options).rows, kind)
            if how == 1:
                for batch in tables.stream(name, target, size=7, **options):
                    _used(batch.rows, kind)
            elif how == 2 and kind not in ("npz", "npy"):
                options.pop("features", None)
                source = FileSource(name, target, buffer_bytes=300, **options)
                source.survey()
                assert source.n_rows > 0
                _used(source.sample(0, 5), kind)
            else:
                source = source_of(name)
                _used(source.sample(0, 5), kind)
        except tables.TableError as problem:
            return f"{kind} {names_the_file(problem, name)}"
        except ValueError as problem:
            if not any(words in str(problem) for words in ("every row has a label", "no row has a label")):
                raise
            return f"{kind} {names_the_file(problem, name)}"
        return f"{kind} read"

    return tried


def _used(rows, kind):
    """Looks at all entries of rows: whatever is wrong with them should show."""
    assert rows.ndim == 2
    entries = rows.data if sparse.issparse(rows) else rows
    assert np.isfinite(entries).all()
    if sparse.issparse(rows):
        rows.check_format(full_check=True)
    return f"{kind} read"


def _other_arrays(chance, kind):
    """Arrays of other types and shapes, and zip files that are not quite what NumPy writes."""

    def array():
        shape = [chance.choice((0, 1, 2, 3, 60)) for _ in range(chance.choice((0, 1, 1, 2, 2, 2, 3)))]
        dtype = chance.choice(
            ("f4", "f8", ">f8", "f2", "i4", "u8", "?", "U3", ">U3", "S3", "c8", "M8[s]", "m8[s]", "g", "i4,f4")
        )
        return np.zeros(shape, "f4").astype(dtype) if dtype != "i4,f4" else np.zeros(shape, dtype)

    if kind == "npy":
        raw = _npy(array())
        return raw if chance.often() else _other_npy_header(chance, raw)
    X, some = _rows()
    rows = sparse.csr_array(np.maximum(X, 0))
    arrays = {"X": X, "y": some}
    if chance.often():
        arrays = {
            "data": rows.data,
            "indices": rows.indices,
            "indptr": rows.indptr,
            "shape": np.array(rows.shape),
            "y": some,
        }
    for _ in range(chance.choice((1, 1, 2))):
        name = chance.choice(sorted(arrays))
        match chance.randrange(5):
            case 0:
                arrays.pop(name) if len(arrays) > 1 else None
            case 1:
                arrays[name] = array()
            case 2:
                arrays[chance.choice(("X", "y", "data", "indices", "shape", "more"))] = arrays[name]
            case _ if arrays[name].size and arrays[name].dtype.kind in "fi":
                changed = arrays[name].copy()
                value = chance.choice((np.nan, np.inf, -1, 3, 59, 60, 10**6, 2**31 - 1, 1e30, 2.0**40))
                with np.errstate(all="ignore"):
                    changed.flat[chance.randrange(changed.size)] = np.float64(value).astype(changed.dtype)
                arrays[name] = changed
    into = io.BytesIO()
    how = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(into, "w", how) as file:
        for name, one in arrays.items():
            raw = _npy(one)
            raw = _other_npy_header(chance, raw) if chance.often(0.2) else raw
            file.writestr(name + ("" if chance.often(0.05) else ".npy"), raw)
    raw = into.getvalue()
    return chance.damaged(raw, 1) if chance.often(0.15) else raw


def _other_npy_header(chance, raw):
    shape = tuple(chance.choice((0, 1, 3, 60, -1, 2**31, 2**40, 2**62)) for _ in range(chance.choice((1, 2, 2, 3))))
    dtype = chance.choice(("<f4", ">f8", "|O", "<i8", "<U99999999", "|V8", "[('a', '<f4')]", "<f4\\n", "x"))
    text = (
        f"{{'descr': {dtype!r}, 'fortran_order': {chance.choice(('True', 'False', '1'))}, 'shape': {shape}, }}".encode()
    )
    return raw[:8] + struct.pack("<H", len(text)) + text + raw[10 + struct.unpack("<H", raw[8:10])[0] :]


def _other_columns(chance):
    """Parquet files whose columns are of any type, or have any name."""
    made = [
        pa.array([1, 2, None, 4], pa.uint64()),
        pa.array([1.0, np.inf, np.nan, None]),
        pa.array(["a", "", None, "b"]),
        pa.array(["a", "b", None, "a"]).dictionary_encode(),
        pa.array([b"a", b"\xff", None, b""]),
        pa.array([True, False, None, True]),
        pa.array([[1], [], None, [2, 3]]),
        pa.array([{"b": 1}, None, {"b": 2}, {"b": 3}]),
        pa.array([1, 2, 3, None], pa.timestamp("ns")),
        pa.array([1, 2, 3, None], pa.date32()),
        pa.array([1, 2, 3, None], pa.duration("ms")),
        pa.array([1, 2, 3, None], pa.decimal128(9, 2)),
        pa.array([1, 2, 3, None], pa.decimal256(50, 2)),
        pa.array([None] * 4, pa.null()),
        pa.array(np.array([1, 2, 3, 4], np.float16)),
        pa.array([[("k", 1)], None, [], []], pa.map_(pa.string(), pa.int64())),
        pa.array([0, 1, 0, 1]),
        pa.array([1.5, 2.5, 3.5, 4.5], pa.float32()),
    ]
    names = [chance.choice(NAMES) for _ in range(chance.choice((1, 2, 3, 4)))]
    n_rows = chance.choice((0, 1, 4, 4, 4))
    into = io.BytesIO()
    table = pa.Table.from_arrays([chance.choice(made)[:n_rows] for _ in names], names)
    try:
        pq.write_table(table, into, row_group_size=chance.choice((1, 2, 100)))
    except pa.ArrowException:
        return b""
    return into.getvalue()


# The command line

_TOML = """
title = "tiny"
sets = []
n_labeled = 20
seconds = 1
[tuning]
by = "tsg"
rows = 100
[errors]
trials = 1
folds = 2
[times]
synthetic = { skin = [] }
[solvers.tsg]
kind = "tsg"
[solvers.svm]
weight = 0.5
"""
_OPTIONS = (
    *(
        "-t",
        "--target",
        "-o",
        "--output",
        "--test",
        "--unlabeled",
        "--features",
        "--drop",
        "--mark",
        "--category",
        "--solver",
    ),
    *("--kernel", "--C", "--gamma", "--weight", "--no-scale", "--stream", "--no-stream", "--checkpoint", "--resume"),
    *(
        "--max-seconds",
        "--seed",
        "--jobs",
        "-j",
        "--json",
        "--quiet",
        "-q",
        "--scores",
        "--probabilities",
        "-p",
        "--keep",
    ),
    *(
        "--compress",
        "--tolerance",
        "--max-rows",
        "--processes",
        "--report",
        "--help",
        "--version",
        "--",
        "-",
        "--install",
    ),
)
_VALUES = (
    *(
        "label",
        "a",
        "a,b",
        "city",
        "id",
        "tsg",
        "frs",
        "rbf",
        "poly",
        "laplacian",
        "scale",
        "median",
        "auto",
        "paper",
        "0",
    ),
    *(
        "1",
        "-1",
        "2",
        "1e-300",
        "1e300",
        "nan",
        "inf",
        "-inf",
        "0.5",
        "x",
        "",
        " ",
        ",",
        "99999999999999999999",
        "\0",
        "[/]",
    ),
    *("d.csv", "d.svm", "d.npz", "d.parquet", "m.s3vm", "n.s3vm", "e.toml", "r.parquet", "nothing.csv", ".", "folder"),
    *(
        "out.csv",
        "out.parquet",
        "out.csv.gz",
        "out.onnx",
        "out.s3vm",
        "out.html",
        "out[/b].csv",
        "\x1b[2J.csv",
        "nowhere/x",
    ),
    *("out[red].onnx", "/proc/x", "/dev/full", "\ud800", "-", "out.checkpoint", "☃.s3vm"),
)
_FAST = ["--C", "1", "--gamma", "1", "--max-seconds", "0.001", "--weight", "1", "-j", "1"]


def command_line(folder):
    """The commands: exit code 0, or 1 or 2 and one line on standard error."""
    from experiments.__main__ import app as experiments_app

    from s3vm.cli.app import app

    experiments = get_command(experiments_app)
    command_of = dict.fromkeys(experiments.commands, experiments)

    def invoked(args):
        """The exit code of a command, and its lines on standard error."""
        out = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="")
        err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", newline="")
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code = command_of.get(args[0] if args else "", get_command(app)).main(args, prog_name="s3vm")
            except SystemExit as end:
                code = end.code
            out.flush()
            err.flush()
        return code or 0, err.buffer.getvalue().decode()

    X, some = _rows()
    clf = S3VMClassifier(TSG(max_iter=3, n_features=8, batch_size=8), random_state=0)
    clf.fit(X, some).save("plain.s3vm")
    plain = Path("plain.s3vm").read_bytes()
    named = sealed(*_with_names(KEPT[-2], ["a", "b", "c"]))
    files = Container([*KEPT, "plain.s3vm"], KNOWN_WORDS)
    start = {
        "d.csv": _csv().encode(),
        "d.svm": _svmlight().encode(),
        "d.npz": _npz(),
        "d.parquet": _parquet(),
        "m.s3vm": named,
        "n.s3vm": plain,
        "e.toml": _TOML.encode(),
        "r.parquet": _results(),
        "folder/1.parquet": _parquet(),
        "folder/2.parquet": _parquet(),
    }
    commands = [
        ["predict", "n.s3vm", "d.npz", "-o", "out.csv"],
        ["predict", "m.s3vm", "d.csv", "-p", "--scores", "--keep", "city"],
        ["predict", "m.s3vm", "d.parquet", "-o", "out.parquet", "-p"],
        ["predict", "n.s3vm", "d.svm", "-o", "out.csv.gz"],
        ["evaluate", "n.s3vm", "d.npz", "--mark", "-1"],
        ["evaluate", "m.s3vm", "d.csv", "-t", "label", "--json"],
        ["info", "m.s3vm"],
        ["info", "n.s3vm", "--json"],
        ["fit", "d.csv", "-t", "label", "--drop", "city,day", "-o", "out.s3vm", *_FAST],
        ["fit", "d.npz", "--mark", "-1", "-o", "out.s3vm", *_FAST],
        ["fit", "folder", "-t", "label", "--category", "city", "--stream", "-o", "out.s3vm", *_FAST],
        [
            "fit",
            "d.csv",
            "-t",
            "label",
            "--features",
            "a,b,c",
            "--unlabeled",
            "d.parquet",
            "--test",
            "d.parquet",
            *_FAST,
        ],
        ["fit", "d.svm", "--mark", "-1", "-o", "out.s3vm", "--checkpoint", "out.checkpoint", "--resume", *_FAST],
        ["tune", "d.csv", "-t", "label", "--drop", "city,day", "--C", "1", "--gamma", "1"],
        ["export", "n.s3vm", "out.onnx"],
        ["export", "n.s3vm", "out.s3vm", "--compress", "d.npz"],
        ["bench", "e.toml", "-o", "out.parquet"],
        ["report", "r.parquet", "-o", "out.html"],
        ["datasets", "--json"],
        ["--version"],
    ]
    # What takes long comes rarely.
    shares = [8, 8, 8, 8, 6, 6, 10, 6, 1, 1, 0.5, 1, 1, 0.2, 1, 0.1, 2, 0.1, 0.1, 0.1]
    words = (
        *_VALUES,
        *CELLS,
        "title",
        "sets",
        "[times]",
        "sizes = [10]",
        "kind = 3",
        "tuned",
        "solvers = 1",
        "[errors]",
    )

    def changed(chance, name):
        raw = start[name]
        if name.endswith(".s3vm"):
            return files.forged(chance) if chance.often(0.8) else chance.damaged(raw)
        if name.endswith((".csv", ".svm", ".toml")) and chance.often(0.8):
            return chance.retold(raw.decode(), words if name == "e.toml" else CELLS).encode("utf-8", "surrogatepass")
        if name.endswith(".npz") and chance.often(0.7):
            return _other_arrays(chance, "npz")
        if name.endswith(".parquet") and chance.often(0.5):
            return _other_columns(chance)
        return chance.damaged(raw)

    def emptied():
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        (folder / "folder").mkdir()

    emptied()
    for name, raw in start.items():
        Path(name).write_bytes(raw)
    for command in commands:  # whatever is imported when it is first used counts as there before
        assert invoked(command)[0] in (0, 1), command

    def tried(chance):
        emptied()
        (command,) = chance.choices(commands, shares)
        args = list(command)
        used = [name for name in start if name.split("/")[0] in args]
        contents = {name: start[name] for name in used}
        kind = ""
        if used and chance.often(0.7):
            name = chance.choice(used)
            kind = f"{name.split('.')[-1]} "
            contents[name] = changed(chance, name)
        for name in start if chance.often(0.1) else used:
            Path(name).write_bytes(contents.get(name, start[name]))
        if chance.often(0.5):
            for _ in range(chance.choice((1, 1, 2, 3))):
                place = chance.randrange(1, len(args) + 1)
                match chance.randrange(5):
                    case 0:
                        args[place : place + 1] = []
                    case 1:
                        args[place:place] = [chance.choice(_OPTIONS)]
                    case 2:
                        args[place:place] = [chance.choice(_OPTIONS), chance.choice(_VALUES)]
                    case 3:
                        args[place : place + 1] = [chance.choice(_VALUES)]
                    case 4 if chance.often(0.2):
                        args[place:place] = [chance.text().replace("/", "_")]
        try:
            code, said = invoked(args)
        except Exception as problem:
            raise AssertionError(f"{args}") from problem
        assert code in (0, 1, 2), (args, code)
        if code:
            (line,) = said.splitlines()
            assert line.startswith("s3vm: "), (args, said)
            assert len(line) > len("s3vm: ") + 5, (args, said)
            assert line.isprintable(), (args, said)
        assert not list(Path().glob(".*.part")), args
        return f"{command[0]} {kind}{code}"

    return tried


def _with_names(path, names):
    header, tensors = container.read(path)
    text = "".join(names).encode()
    of_names = {"": np.frombuffer(text, np.uint8), ".ends": np.cumsum([len(name) for name in names])}
    place = "feature_names" if header["scaler"] is None else "scaler.feature_names"
    return header, tensors | {place + end: part for end, part in of_names.items()}


def _results():
    from experiments import results

    into = results.Results("made.parquet", _TOML)
    for number in range(3):
        row = {"config": "x", "key": str(number), "part": "errors", "set": "codrna", "solver": "tsg", "trial": number}
        into.append(row | {"protocol": "honest", "error": 0.1, "seconds": 1.0, "status": "ok", "n": 10, "values": "{}"})
    into.close()
    return Path("made.parquet").read_bytes()


TARGETS = {
    "calls": calls,
    "output files": outputs,
    "hostile numbers": hostile,
    "models": models,
    "checkpoints": states,
    "tables": tables_,
    "command line": command_line,
}

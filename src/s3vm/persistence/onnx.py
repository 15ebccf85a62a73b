"""A model as an ONNX graph, which serves without Python.

The graph takes float32 rows and computes distances and phases in float64: the ones are differences of large numbers,
the others may have gone around many times. A group of centres or features is summed up before the next one begins, so
that a row never needs more than a few thousand numbers.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from s3vm._utils.atomic import write
from s3vm._utils.typing import Array
from s3vm.kernels import RBF, Kernel, Laplacian, Matern, Polynomial
from s3vm.model import Model
from s3vm.persistence.pipeline import split_pipeline

__all__ = ["to_onnx"]

_OPSET, _IR = 18, 8  # of 2023: older runtimes than that are rare, and newer ones read it
_MOST_BYTES = (2 << 30) - (1 << 20)  # what protobuf holds, less room for the graph itself
_GROUP = 4096


def to_onnx(estimator: Any, path: Any) -> None:
    """Writes a fitted classifier as an ONNX file.

    Its input ``X`` are float32 rows. Its outputs are ``label``, ``scores`` (as `decision_function`) and, if the model
    has them, ``probabilities``. Rows are not checked: one with NaN has scores of NaN. A row needs up to 100 kB of
    memory while it is computed, so batches of a thousand rows or so are best.

    Parameters
    ----------
    estimator : S3VMClassifier, S3VMClassifierCV, or a Pipeline of StandardScaler and one of them
    path : str or path

    Raises
    ------
    ValueError
        If the random frequencies, which ONNX cannot draw and must hold, or the centres take more than the 2 GB that an
        ONNX file can have. `compress` the model first.
    """
    try:
        import onnx
    except ImportError:
        raise ImportError('ONNX files need the package onnx: pip install "s3vm[onnx]"') from None
    parts = split_pipeline(estimator)
    clf, model = parts.classifier, parts.classifier.model_
    n_bytes = _bytes(model)
    if n_bytes > _MOST_BYTES:
        raise ValueError(
            f"an ONNX file holds 2 GB at most, and this model with its random frequencies written out has "
            f"{n_bytes / 1e9:.3g} GB: make it smaller with s3vm.persistence.compress first"
        )
    graph = _Graph(onnx)
    x = "X"
    if parts.scaler is not None:  # in float32, as scikit-learn does: high frequencies make much of a last digit
        x = graph.add("Sub", x, graph.stored(parts.scaler.mean_.astype(np.float32))) if parts.scaler.with_mean else x
        x = graph.add("Div", x, graph.stored(parts.scaler.scale_.astype(np.float32))) if parts.scaler.with_std else x
    x = graph.double(x)
    scores = graph.constant(np.asarray(model.intercept, np.float64)[None])
    terms = [*_expansion(graph, model, x), *_features(graph, model, x)]
    # A constant function has to be said for every row, too.
    for term in terms or [graph.add("MatMul", x, np.zeros((model.n_dims, 1)))]:
        scores = graph.add("Add", scores, term)
    two_classes = len(clf.classes_) == 2
    if two_classes:
        flat = graph.add("Squeeze", scores, np.array([1]))
        codes = graph.add("Cast", graph.add("Greater", flat, np.float64(0)), to=onnx.TensorProto.INT64)
        margins = graph.add("Concat", graph.add("Neg", scores), scores, axis=1)
    else:
        flat, margins = scores, scores
        codes = graph.add("ArgMax", scores, axis=1, keepdims=0)
    graph.output("label", graph.add("Gather", _labels(clf.classes_), codes), [None])
    graph.output("scores", graph.single(flat), [None] if two_classes else [None, len(clf.classes_)])
    if hasattr(clf, "predict_proba"):
        sharpened = graph.add("Mul", margins, np.float64(clf._calibrator.beta))
        graph.output("probabilities", graph.single(graph.add("Softmax", sharpened, axis=1)), [None, len(clf.classes_)])
    write(path, graph.model(model.n_dims).SerializeToString())


def _bytes(model: Model) -> int:
    """What the arrays take in the file."""
    n_blocks, block_size, _ = model.coefficients.shape
    entries = n_blocks * model.kernel.rows(block_size) * (model.n_dims + 1)
    features = entries * model.coefficients.itemsize + model.coefficients.nbytes
    if model.weights is None:
        return int(features)
    return int(features + model.centres.dtype.itemsize * np.prod(model.centres.shape) + model.weights.nbytes)


def _groups(n: int, size: int) -> Iterator[slice]:
    size = max(size, 1)
    for start in range(0, n, size):
        yield slice(start, start + size)


def _expansion(graph: "_Graph", model: Model, x: str) -> Iterator[str]:
    """``sum_i weights[i] k(centres[i], x)``, a group of centres at a time."""
    if model.weights is None:
        return
    # Distances by absolute values, unlike those by a product, need a number for each feature of each centre.
    size = _GROUP // model.n_dims if isinstance(model.kernel, Laplacian) else _GROUP
    for group in _groups(len(model.weights), size):
        centres = model.centres[group]
        centres = centres.toarray() if sparse.issparse(centres) else centres
        yield graph.add("MatMul", _gram(graph, model.kernel, x, centres), model.weights[group])


def _gram(graph: "_Graph", kernel: Kernel, x: str, centres: Array) -> str:
    """The formula of `kernel.gram` as a graph; distances are those of rows moved to the mean of the centres."""
    add, width = graph.add, np.float64(kernel.width)
    if isinstance(kernel, Laplacian):
        apart = add("Abs", add("Sub", add("Unsqueeze", x, np.array([1])), centres[None]))
        return add("Exp", add("Mul", add("ReduceSum", apart, np.array([2]), keepdims=0), -width))
    if isinstance(kernel, Polynomial):
        bracket = add("Add", add("Mul", add("MatMul", x, centres.T), width), np.float64(kernel.coef0))
        return add("Pow", bracket, np.float64(kernel.degree))
    mean = centres.mean(axis=0, dtype=np.float64)
    x, z = add("Sub", x, mean), add("Sub", centres.T, mean[:, None])
    x2 = add("ReduceSum", add("Mul", x, x), np.array([1]), keepdims=1)
    z2 = np.sum((centres - mean) ** 2, axis=1)
    distance2 = add("Sub", add("Add", x2, z2), add("Mul", add("MatMul", x, z), np.float64(2)))
    distance2 = add("Max", distance2, np.float64(0))
    if isinstance(kernel, RBF):
        return add("Exp", add("Mul", distance2, -width))
    if not isinstance(kernel, Matern):
        raise TypeError(f"{kernel!r} has no ONNX formula: use a kernel of s3vm's own")
    r = add("Sqrt", add("Mul", distance2, 4 * np.float64(kernel.nu) * width))
    decay = add("Exp", add("Neg", r))
    if kernel.nu == 0.5:
        return decay
    polynomial = add("Add", r, np.float64(1))
    if kernel.nu == 2.5:
        polynomial = add("Add", polynomial, add("Div", add("Mul", r, r), np.float64(3)))
    return add("Mul", polynomial, decay)


def _features(graph: "_Graph", model: Model, x: str) -> Iterator[str]:
    """``sum_tj coefficients[t, j] phi_tj(x)``, some blocks at a time."""
    kernel = model.kernel
    n_blocks, block_size, _ = model.coefficients.shape
    dtype = model.coefficients.dtype
    amplitude = np.float64(kernel.amplitude / np.sqrt(block_size))
    for group in _groups(n_blocks, _GROUP // block_size):
        drawn = [kernel.frequencies(model.seed, block, block_size, model.n_dims) for block in range(n_blocks)[group]]
        W = np.concatenate([frequencies for frequencies, _ in drawn]).astype(dtype)
        b = np.concatenate([offsets for _, offsets in drawn]).astype(dtype)
        coefficients, half = model.coefficients[group], block_size // 2
        if kernel.activation == "product":
            total = graph.add("MatMul", _product(graph, x, W, b, kernel.rows_per_feature), _flat(coefficients))
        elif kernel.activation == "phase":
            total = _wave(graph, "Cos", _angle(graph, x, W, b), coefficients)
        else:
            angle = _angle(graph, x, W, b)
            even, odd = (coefficients[:, :half], coefficients[:, half:])
            total = graph.add("Add", _wave(graph, "Cos", angle, even), _wave(graph, "Sin", angle, odd))
        yield graph.add("Mul", total, amplitude)


def _angle(graph: "_Graph", x: str, W: Array, b: Array) -> str:
    """Angles in radians, taken to half a turn in float64, so that float32, twice as fast, is enough for their waves."""
    turns = graph.add("MatMul", x, W.T)
    turns = graph.add("Add", turns, b) if b.any() else turns
    return graph.single(graph.add("Mul", graph.add("Sub", turns, graph.add("Round", turns)), np.float64(2 * np.pi)))


def _wave(graph: "_Graph", wave: str, angle: str, coefficients: Array) -> str:
    weights = graph.stored(_flat(coefficients).astype(np.float32))
    return graph.double(graph.add("MatMul", graph.add(wave, angle), weights))


def _product(graph: "_Graph", x: str, W: Array, b: Array, degree: int) -> str:
    """The products over the `degree` rows of each feature, which stand one below the other."""
    factors = [graph.add("Add", graph.add("MatMul", x, W[q::degree].T), b[q::degree]) for q in range(degree)]
    result = factors[0]
    for factor in factors[1:]:
        result = graph.add("Mul", result, factor)
    return result


def _flat(coefficients: Array) -> Array:
    return coefficients.reshape(-1, coefficients.shape[2])


def _labels(classes: Array) -> Array:
    """The classes as ONNX knows them: whole numbers, text, yes and no, or real numbers."""
    if classes.dtype.kind in "iu":
        if int(classes.max()) > np.iinfo(np.int64).max:
            raise ValueError(
                f"the class {classes.max()} is above the whole numbers that an ONNX file can have as a label: train "
                "with classes below 2**63, or with text"
            )
        return classes.astype(np.int64)
    return classes.astype(object) if classes.dtype.kind == "U" else classes


class _Graph:
    """A graph that grows by a node at a time; arrays become its constants."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._outputs: list[Any] = []
        self._types: dict[str, int] = {}

    def stored(self, value: Array) -> str:
        name = f"c{len(self._constants)}"
        array = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
        proto = self._onnx.numpy_helper.from_array(array, name)
        self._constants.append(proto)
        self._types[name] = proto.data_type
        return name

    def constant(self, value: Array) -> str:
        """The array, in float64 if it is real; float32 is what takes half the room in the file."""
        name = self.stored(value)
        return self.double(name) if np.asarray(value).dtype == np.float32 else name

    def add(self, operator: str, *inputs: Any, **attributes: Any) -> str:
        names = [given if isinstance(given, str) else self.constant(given) for given in inputs]
        output = f"n{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(operator, names, [output], **attributes))
        self._types[output] = self._types.get(names[0], 0)
        return output

    def single(self, name: str) -> str:
        return self.add("Cast", name, to=self._onnx.TensorProto.FLOAT)

    def double(self, name: str) -> str:
        return self.add("Cast", name, to=self._onnx.TensorProto.DOUBLE)

    def output(self, name: str, value: str, shape: list[int | None]) -> None:
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        kind = self._types[value] if name == "label" else self._onnx.TensorProto.FLOAT
        batch = ["rows" if size is None else size for size in shape]
        self._outputs.append(self._onnx.helper.make_tensor_value_info(name, kind, batch))

    def model(self, n_dims: int) -> Any:
        from s3vm import __version__

        helper = self._onnx.helper
        rows = helper.make_tensor_value_info("X", self._onnx.TensorProto.FLOAT, ["rows", n_dims])
        graph = helper.make_graph(self._nodes, "s3vm", [rows], self._outputs, self._constants)
        model = helper.make_model(
            graph,
            producer_name="s3vm",
            producer_version=__version__,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR,
        )
        self._onnx.checker.check_model(model)
        return model

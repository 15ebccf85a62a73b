"""`s3vm.to_onnx`: a model as an ONNX graph, which predicts without Python.

The graph takes float32 rows and computes distances and phases in float64: distances are differences of large numbers,
and phases may have gone around many times. Centres and features are summed in groups, so that a row never needs more
than a few thousand numbers at a time.
"""

from collections.abc import Iterator
from functools import partial, reduce
from typing import Any

import numpy as np
from scipy import sparse

from s3vm import __version__
from s3vm._utils.atomic import write
from s3vm._utils.optional import optional
from s3vm._utils.settings import check, integer
from s3vm._utils.typing import Array
from s3vm.kernels import has_own
from s3vm.model import Model
from s3vm.persistence.onnx_columns import encoded_inputs
from s3vm.persistence.pipeline import CLASSIFIERS, FittedParts, split_pipeline

_OLDEST_OPSET, _ML_OPSET = 13, 3  # whose operators have the form that is written here
_MOST_BYTES = (2 << 30) - (1 << 20)  # the limit of protobuf, less room for the graph itself
_GROUP = 4096  # numbers per row that are computed at a time


def to_onnx(estimator: Any, path: Any, *, target_opset: int = 18) -> None:
    """Writes a fitted classifier as an ONNX file.

    Its input ``X`` are float32 rows; with a `TableEncoder` it has an input of shape (rows, 1) per column: float32 for
    numbers and booleans (NaN: missing), text for categories. Its outputs are ``label``, ``probabilities`` if the model
    has them, and ``scores`` (as `decision_function`). Rows are not checked: a row with NaN has scores of NaN. A row
    takes up to 100 kB of memory while it is evaluated, so batches of about a thousand rows are best.

    Parameters
    ----------
    estimator : S3VMClassifier, S3VMClassifierCV, a Pipeline of TableEncoder or StandardScaler and one of them, or a
        search over these. `register_onnx` lets skl2onnx convert other pipelines.
    path : str or path
    target_opset : int, default 18
        The version of ONNX's operators, at least 13; runtimes since 2023 read 18.

    Raises
    ------
    ValueError
        If the random frequencies, which ONNX cannot draw and the file must contain, or the centres take more than
        2 GB, the limit of an ONNX file. Use `s3vm.compress` first.
    TypeError
        If the kernel is your own and has no ONNX formula: define ``onnx_gram`` in the class that defines ``gram``.
    """
    check("target_opset", target_opset, integer(_OLDEST_OPSET))
    onnx = optional("onnx", "onnx")
    parts = split_pipeline(estimator)
    clf, model = parts.classifier, parts.classifier.model_
    n_bytes = _bytes(model)
    if n_bytes > _MOST_BYTES:
        raise ValueError(
            f"an ONNX file holds 2 GB at most, but this model with its random frequencies takes "
            f"{n_bytes / 1e9:.3g} GB: make it smaller with s3vm.compress first"
        )
    graph = Graph(onnx)
    n_classes = len(clf.classes_)
    for name, value in predictions(graph, clf, _rows(graph, parts)).items():
        is_flat = name == "label" or (name == "scores" and n_classes == 2)
        graph.output(name, value, ["rows"] if is_flat else ["rows", n_classes])
    write(path, graph.model(target_opset).SerializeToString())


def _rows(graph: "Graph", parts: FittedParts) -> str:
    """The rows that the classifier takes."""
    if parts.encoder is not None:
        return encoded_inputs(graph, parts.encoder)
    x = graph.input("X", np.float32, parts.classifier.n_features_in_)
    if parts.scaler is not None:  # in float32 like scikit-learn, since high frequencies magnify the last digit
        x = graph.add("Sub", x, graph.stored(parts.scaler.mean_.astype(np.float32))) if parts.scaler.with_mean else x
        x = graph.add("Div", x, graph.stored(parts.scaler.scale_.astype(np.float32))) if parts.scaler.with_std else x
    return x


def predictions(graph: "Graph", clf: Any, x: str) -> dict[str, str]:
    """The nodes with the label, the probabilities, if the classifier has them, and the scores of the rows `x`."""
    model, x = clf.model_, graph.double(x)
    if model.projection is not None:  # rows as the kernel takes them
        x = graph.add("Mul" if model.projection.ndim == 1 else "MatMul", x, model.projection)
    scores = graph.constant(np.asarray(model.intercept, np.float64)[None])
    terms = [*_expansion(graph, model, x), *_features(graph, model, x)]
    # A constant function needs one score per row, too.
    for term in terms or [graph.add("MatMul", x, np.zeros((model.n_dims, 1)))]:
        scores = graph.add("Add", scores, term)
    if is_binary := len(clf.classes_) == 2:
        flat = graph.add("Squeeze", scores, np.array([1]))
        codes = graph.add("Cast", graph.add("Greater", flat, np.float64(0)), to=graph.INT64)
    else:
        flat, codes = scores, graph.add("ArgMax", scores, axis=1, keepdims=0)
    nodes = {"label": graph.add("Gather", _labels(clf.classes_), codes)}
    if hasattr(clf, "predict_proba"):
        margins = graph.add("Add", scores, np.float64(clf._calibrator.offset))
        margins = graph.add("Concat", graph.add("Neg", margins), margins, axis=1) if is_binary else margins
        logits = graph.add("Mul", margins, np.float64(clf._calibrator.beta))
        nodes["probabilities"] = graph.single(graph.add("Softmax", logits, axis=1))
    return nodes | {"scores": graph.single(flat)}


def register_onnx() -> None:
    """Lets skl2onnx convert pipelines that end in an s3vm classifier, whatever their other steps are.

    Call it once, before ``skl2onnx.to_onnx(pipeline, X[:1], options={"zipmap": False})``. Outputs are the label and the
    probabilities.
    """
    import skl2onnx
    from skl2onnx.common.data_types import FloatTensorType
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes

    def shapes(operator: Any) -> None:
        calculate_linear_classifier_output_shapes(operator)
        operator.outputs[1].type = FloatTensorType(operator.outputs[1].type.shape)

    def convert(scope: Any, operator: Any, container: Any) -> None:
        if not hasattr(operator.raw_operator, "predict_proba"):
            raise ValueError("skl2onnx needs a classifier with probabilities: fit it with probability=True")
        graph = Graph(optional("onnx", "onnx"), scope.get_unique_variable_name("s3vm") + "_")
        nodes = predictions(graph, operator.raw_operator, operator.inputs[0].full_name)
        for output, name in zip(operator.outputs, ("label", "probabilities"), strict=True):
            graph.identity(nodes[name], output.full_name)
        container.nodes.extend(graph.nodes)
        container.initializers.extend(graph.constants)

    options = {"zipmap": [True, False, "columns"], "nocl": [True, False]}
    for name, kind in CLASSIFIERS.items():
        skl2onnx.update_registered_converter(kind, name, shapes, convert, options=options)


def _bytes(model: Model) -> int:
    """The size of the arrays in the file."""
    n_blocks, block_size, _ = model.coefficients.shape
    entries = n_blocks * model.kernel.rows(block_size) * (model.n_dims + 1)
    features = entries * model.coefficients.itemsize + model.coefficients.nbytes
    centers, weights = model.centers, model.weights
    expansion = 0 if weights is None else centers.dtype.itemsize * np.prod(centers.shape) + weights.nbytes
    return int(features + expansion + (0 if model.projection is None else model.projection.nbytes))


def _expansion(graph: "Graph", model: Model, x: str) -> Iterator[str]:
    """``sum_i weights[i] k(centers[i], x)``, a group of centres at a time."""
    if model.weights is None:
        return
    if not has_own(model.kernel, "onnx_gram"):  # a subclass has changed `gram` and inherits another kernel's formula
        name = type(model.kernel).__name__
        raise TypeError(
            f"the kernel {name} overrides gram but has no ONNX formula for it: define onnx_gram in {name}, or make "
            'a model without centres with s3vm.compress(..., into="features") first'
        )
    for group in graph.groups(len(model.weights)):
        centers = model.centers[group]
        centers = centers.toarray() if sparse.issparse(centers) else centers
        yield graph.add("MatMul", model.kernel.onnx_gram(graph, x, centers), model.weights[group])


def _features(graph: "Graph", model: Model, x: str) -> Iterator[str]:
    """``sum_tj coefficients[t, j] phi_tj(x)``, some blocks at a time."""
    kernel = model.kernel
    n_blocks, block_size, _ = model.coefficients.shape
    dtype = model.coefficients.dtype
    amplitude = np.float64(kernel.amplitude / np.sqrt(block_size))
    for group in graph.groups(n_blocks, block_size):
        blocks = [kernel.frequencies(model.seed, block, block_size, model.n_dims) for block in range(n_blocks)[group]]
        W = np.concatenate([frequencies for frequencies, _ in blocks]).astype(dtype)
        b = np.concatenate([offsets for _, offsets in blocks]).astype(dtype)
        coefficients, half = model.coefficients[group], block_size // 2
        if kernel.activation == "product":
            degree = kernel.rows_per_feature  # consecutive rows, whose product is the feature
            factors = [graph.add("Add", graph.add("MatMul", x, W[q::degree].T), b[q::degree]) for q in range(degree)]
            total = graph.add("MatMul", reduce(partial(graph.add, "Mul"), factors), np.concatenate(coefficients))
        elif kernel.activation == "phase":
            total = _wave(graph, "Cos", _angle(graph, x, W, b), coefficients)
        else:
            angle = _angle(graph, x, W, b)
            even, odd = (coefficients[:, :half], coefficients[:, half:])
            total = graph.add("Add", _wave(graph, "Cos", angle, even), _wave(graph, "Sin", angle, odd))
        yield graph.add("Mul", total, amplitude)


def _angle(graph: "Graph", x: str, W: Array, b: Array) -> str:
    """Angles in radians, reduced to half a turn in float64, so that the faster float32 suffices for their cosines."""
    turns = graph.add("MatMul", x, W.T)
    turns = graph.add("Add", turns, b) if b.any() else turns
    return graph.single(graph.add("Mul", graph.add("Sub", turns, graph.add("Round", turns)), np.float64(2 * np.pi)))


def _wave(graph: "Graph", wave: str, angle: str, coefficients: Array) -> str:
    weights = graph.stored(np.concatenate(coefficients).astype(np.float32))
    return graph.double(graph.add("MatMul", graph.add(wave, angle), weights))


def _labels(classes: Array) -> Array:
    """The classes in a type that ONNX has: integers, text, booleans or floats."""
    if classes.dtype.kind in "iu":
        if int(classes.max()) > np.iinfo(np.int64).max:
            raise ValueError(
                f"the class {classes.max()} is above the largest integer that an ONNX file can have as a label: train "
                "with classes below 2**63, or with text"
            )
        return classes.astype(np.int64)
    return classes.astype(object) if classes.dtype.kind == "U" else classes


class Graph:
    """An ONNX graph that grows by one node at a time; a node is known by the name of its output."""

    def __init__(self, onnx: Any, prefix: str = "") -> None:
        self._onnx, self._prefix = onnx, prefix
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.INT64 = onnx.TensorProto.INT64
        self._outputs: list[Any] = []
        self._inputs: list[Any] = []
        self._types: dict[str, int] = {}

    def input(self, name: str, dtype: Any, n_columns: int) -> str:
        kind = self._onnx.TensorProto.STRING if dtype is str else self._onnx.TensorProto.FLOAT
        self._inputs.append(self._onnx.helper.make_tensor_value_info(name, kind, ["rows", n_columns]))
        self._types[name] = kind
        return name

    def stored(self, value: Array) -> str:
        name = f"{self._prefix}c{len(self.constants)}"
        proto = self._onnx.numpy_helper.from_array(np.asarray(value, order="C"), name)
        self.constants.append(proto)
        self._types[name] = proto.data_type
        return name

    def constant(self, value: Array) -> str:
        """The array as a node; float32 takes half the space in the file, but becomes float64 in the graph."""
        name = self.stored(value)
        return self.double(name) if np.asarray(value).dtype == np.float32 else name

    def groups(self, n: int, numbers_each: int = 1) -> Iterator[slice]:
        """Slices of `n` items that take `numbers_each` numbers per row, a few thousand numbers at a time."""
        size = max(_GROUP // numbers_each, 1)
        return (slice(start, start + size) for start in range(0, n, size))

    def squared_distances(self, x: str, centers: Array) -> str:
        """``||x - z||^2`` for the rows of node `x` and all centres, moved to the mean of the centres."""
        mean = centers.mean(axis=0, dtype=np.float64)
        x, z = self.add("Sub", x, mean), self.add("Sub", centers.T, mean[:, None])
        x2 = self.add("ReduceSum", self.add("Mul", x, x), np.array([1]), keepdims=1)
        z2 = np.sum((centers - mean) ** 2, axis=1)
        distances = self.add("Sub", self.add("Add", x2, z2), self.add("Mul", self.add("MatMul", x, z), 2.0))
        return self.add("Max", distances, 0.0)

    def add(self, operator: str, *inputs: Any, **attributes: Any) -> str:
        """A node of ONNX operator `operator`; its inputs are nodes, or arrays and numbers, which become constants."""
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        output = f"{self._prefix}n{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(operator, names, [output], **attributes))
        self._types[output] = self._types.get(names[0], 0)
        return output

    def single(self, name: str) -> str:
        return self.add("Cast", name, to=self._onnx.TensorProto.FLOAT)

    def double(self, name: str) -> str:
        return self.add("Cast", name, to=self._onnx.TensorProto.DOUBLE)

    def identity(self, value: str, name: str) -> None:
        """Gives node `value` a second name."""
        self.nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))

    def output(self, name: str, value: str, shape: list[int | str]) -> None:
        self.identity(value, name)
        kind = self._types[value] if name == "label" else self._onnx.TensorProto.FLOAT
        self._outputs.append(self._onnx.helper.make_tensor_value_info(name, kind, shape))

    def model(self, opset: int) -> Any:
        helper = self._onnx.helper
        graph = helper.make_graph(self.nodes, "s3vm", self._inputs, self._outputs, self.constants)
        producer = {"producer_name": "s3vm", "producer_version": __version__}
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
        version = helper.find_min_ir_version_for(opsets)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=version, **producer)
        self._onnx.checker.check_model(model)
        return model

"""The kernels: each has an exact formula and a distribution of random features.

A random feature is ``phi(x)`` with ``E[phi(x) phi(x')] = k(x, x')``; a block of ``m`` of them, scaled by
``1/sqrt(m)``, approximates the kernel by its inner product (Eq. 2 of the paper). Features come in three shapes,
which is all that a backend has to know. Frequencies ``w`` and phases ``b`` are in turns, not radians, so that reducing
an angle is one rounding to the nearest integer.

``"pairs"``
    ``sqrt(2) cos(2 pi w.x)`` and ``sqrt(2) sin(2 pi w.x)`` for kernels of ``x - x'`` (Bochner's theorem): two features
    from one frequency, the cosines of a block first. Half the work of phases, and a smaller error.
``"phase"``
    ``sqrt(2) cos(2 pi (w.x + b))`` with a random phase ``b``: the paper's features for the same kernels.
``"product"``
    ``prod_q (w_q.x + b_q)`` for kernels of ``x.x'``, over ``rows_per_feature`` rows ``w_q``.

The frequencies of a block are drawn from the counter ``(seed, block)`` and never have to be stored.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from scipy import sparse
from sklearn.metrics import pairwise
from sklearn.utils import gen_batches

from s3vm import philox
from s3vm._utils.arrays import host, is_tensor, namespace, variance_of
from s3vm._utils.distances import by_panels, narrow, radial_gradient, scaled, squared_distances
from s3vm._utils.registry import lookup
from s3vm._utils.settings import above, at_least, check, check_settings, integer
from s3vm._utils.typing import Array
from s3vm.philox import Purpose

if TYPE_CHECKING:
    from s3vm.persistence.onnx import Graph

Gamma = float | Literal["scale", "median"]
KernelName = Literal["auto", "rbf", "laplacian", "matern", "poly"]
Drawn = tuple[Array, Array]  # frequencies and offsets

_MEDIAN_PAIRS, _PAIRS_AT_ONCE = 5000, 256
_SHORTENED = 1 << 16  # frequencies that are rounded together


@dataclass(frozen=True)
class Kernel(ABC):
    """The base of all kernels: a width `gamma`, an exact formula, and a distribution of random features.

    Parameters
    ----------
    gamma : float > 0, "scale" or "median", default "scale"
        ``"scale"`` uses the variance of all entries of X, as `sklearn.svm.SVC` does; ``"median"`` the median distance
        of two rows, which ignores outliers. `resolve` turns both into numbers.
    """

    gamma: Gamma = "scale"

    amplitude: ClassVar[float]

    def __post_init__(self) -> None:
        check("gamma", self.gamma, above(0), "scale", "median")

    @property
    @abstractmethod
    def activation(self) -> Literal["pairs", "phase", "product"]:
        """The shape of the features."""

    @property
    def rows_per_feature(self) -> int:
        """The number of frequency rows that are multiplied in one feature."""
        return 1

    def whole(self, n_features: int) -> int:
        """`n_features`, rounded up to an even number if features come in pairs."""
        return n_features + n_features % 2 if self.activation == "pairs" else n_features

    def rows(self, n_features: int) -> int:
        """The number of frequency rows that `n_features` features need."""
        return n_features // 2 if self.activation == "pairs" else n_features * self.rows_per_feature

    @property
    def width(self) -> float:
        """`gamma` as a number."""
        if isinstance(self.gamma, str):
            raise ValueError(f"gamma={self.gamma!r} is not a number yet: call resolve(X) first")
        return float(self.gamma)

    @abstractmethod
    def gram(self, X: Any, Z: Any) -> Array:
        """The exact kernel matrix of the rows of `X` and `Z`, dense, CSR, or tensors on a device."""

    def onnx_gram(self, graph: "Graph", x: str, centers: Array) -> str:
        """Adds the formula of `gram` to an ONNX graph: the node with the kernel matrix of node `x` and the `centers`.

        `s3vm.to_onnx` needs it where a model has centres. A class that defines `gram` has to define this method, too.
        """
        raise NotImplementedError

    def gradient(self, X: Array, Z: Array, weights: Array) -> Array:
        """``sum_i weights[i, k] dk(z_i, x) / dx`` at the rows x of X, float64 of shape ``(K, n, d)``.

        Column weights need it. A class that defines `gram` has to define this method, too.
        """
        raise NotImplementedError

    @abstractmethod
    def draw(self, seed: int, block: int, n_features: int, n_dims: int, random: ModuleType = philox) -> Drawn:
        """Frequency rows of shape ``(rows(n_features), n_dims)`` and offsets of one block, drawn from `random`."""

    def frequencies(self, seed: int, block: int, n_features: int, n_dims: int, random: ModuleType = philox) -> Drawn:
        """The result of `draw` as all backends use it: frequencies of waves are rounded to 11 bits.

        That is what float16 can hold, so that a GPU needs fewer products. It changes a frequency by at most one part in
        2,048, and the kernel by about 1e-7; a Laplacian, whose frequencies have heavy tails, by at most 1e-4.
        """
        W, b = self.draw(seed, block, n_features, n_dims, random)
        return (W if self.activation == "product" else _short(W)), b

    def _scale(self, n_dims: int, variance: float) -> float:
        """The width for `n_dims` columns of that variance."""
        return 1.0 / (n_dims * variance)

    @abstractmethod
    def _apart(self, X: Any, Z: Any) -> Array:
        """What the width is the inverse of, but for a factor 1/2, for each of the row pairs ``(X[i], Z[i])``."""

    @np.errstate(over="ignore")  # `_with_width` checks
    def resolve(self, X: Any, row_weight: Array | None = None, seed: int = 0) -> "Kernel":
        """This kernel with `gamma` as a number for the rows `X`, row i counted `row_weight[i]` times."""
        if self.gamma == "scale":
            return self.for_variance(X.shape[1], variance_of(X, row_weight))
        if self.gamma == "median":
            pairs = philox.indices(seed, Purpose.REFERENCE, range(2), _MEDIAN_PAIRS, X.shape[0])
            blocks = (pairs[:, part] for part in gen_batches(_MEDIAN_PAIRS, _PAIRS_AT_ONCE))
            median = np.median(np.concatenate([self._apart(_float64(X[i]), _float64(X[j])) for i, j in blocks]))
            return self._with_width((float(1.0 / (2.0 * median)) if median > 0 else 0.0) or 1.0)
        return self

    @np.errstate(over="ignore")
    def for_variance(self, n_dims: int, variance: float) -> "Kernel":
        """This kernel with the width that ``"scale"`` means for rows whose entries have that variance."""
        return self._with_width(self._scale(n_dims, variance) if variance > 0 else 1.0)

    def _with_width(self, width: float) -> "Kernel":
        if not np.isfinite(width):
            raise ValueError("the rows of X are too close together for any kernel width: scale the features")
        # Rounded, so that the result does not depend on the order in which rows were summed.
        return replace(self, gamma=float(f"{width:.12g}"))


@dataclass(frozen=True, kw_only=True)
class _Fourier(Kernel):
    """Kernels of ``x - x'``: their features are waves whose frequencies are distributed as the Fourier transform."""

    features: Literal["pairs", "phase"] = "pairs"

    amplitude = float(np.sqrt(2.0))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(self, features=("pairs", "phase"))

    @property
    def activation(self) -> Literal["pairs", "phase"]:
        return self.features

    @abstractmethod
    def _radians(self, seed: int, block: int, n_rows: int, n_dims: int, random: ModuleType) -> Array:
        """Frequencies in radians."""

    def draw(self, seed: int, block: int, n_features: int, n_dims: int, random: ModuleType = philox) -> Drawn:
        n_rows = self.rows(n_features)
        turns = self._radians(seed, block, n_rows, n_dims, random)
        turns /= 2.0 * np.pi
        if self.features == "pairs":
            return turns, np.zeros(n_rows)
        return turns, random.uniforms(seed, Purpose.PHASE, block, n_rows, 1)[:, 0]


class _Radial(_Fourier):
    """Kernels of the Euclidean distance; `gamma` is ``1 / (2 length^2)`` in all of them."""

    def _apart(self, X: Any, Z: Any) -> Array:
        difference = X - Z
        return (difference * difference).sum(axis=1)


@dataclass(frozen=True)
class RBF(_Radial):
    """The Gaussian kernel ``k(x, x') = exp(-gamma ||x - x'||^2)``; its frequencies are normal."""

    def gram(self, X: Any, Z: Any) -> Array:
        gram = squared_distances(X, Z, self.width)
        xp = namespace(gram)
        return xp.exp(xp.negative(gram, out=gram), out=gram)

    def onnx_gram(self, graph: "Graph", x: str, centers: Array) -> str:
        return graph.add("Exp", graph.add("Mul", graph.squared_distances(x, centers), -self.width))

    def gradient(self, X: Array, Z: Array, weights: Array) -> Array:
        return radial_gradient(-2.0 * self.width * self.gram(X, Z), X, Z, weights)

    def _radians(self, seed: int, block: int, n_rows: int, n_dims: int, random: ModuleType) -> Array:
        radians: Array = random.normals(seed, Purpose.FREQUENCY, block, n_rows, n_dims)
        radians *= np.sqrt(2.0 * self.width)
        return radians


@dataclass(frozen=True)
class Matern(_Radial):
    """The Matérn kernel of smoothness `nu`; its frequencies are Student-t rows of ``2 nu`` degrees.

    With ``r = ||x - x'|| sqrt(2 nu) / length`` and ``length = 1 / sqrt(2 gamma)``:
    ``exp(-r)`` for nu = 1/2, ``(1 + r) exp(-r)`` for 3/2, ``(1 + r + r^2/3) exp(-r)`` for 5/2. The same `gamma`
    means the same length as in `RBF`, which is the limit of large nu.

    Parameters
    ----------
    gamma : float > 0, "scale" or "median", default "scale"
    nu : 0.5, 1.5 or 2.5, default 1.5
    """

    nu: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(self, nu=(0.5, 1.5, 2.5))

    def gram(self, X: Any, Z: Any) -> Array:
        distances = squared_distances(X, Z, 4.0 * self.nu * self.width)
        r = namespace(distances).sqrt(distances)
        gram = namespace(r).exp(-r)
        if self.nu > 0.5:
            gram *= 1.0 + r if self.nu == 1.5 else 1.0 + r + r**2 / 3.0
        return gram

    def onnx_gram(self, graph: "Graph", x: str, centers: Array) -> str:
        r = graph.add("Sqrt", graph.add("Mul", graph.squared_distances(x, centers), 4.0 * self.nu * self.width))
        gram = graph.add("Exp", graph.add("Neg", r))
        if self.nu > 0.5:
            factor = graph.add("Add", r, 1.0)
            if self.nu == 2.5:
                factor = graph.add("Add", factor, graph.add("Div", graph.add("Mul", r, r), 3.0))
            gram = graph.add("Mul", factor, gram)
        return gram

    def gradient(self, X: Array, Z: Array, weights: Array) -> Array:
        scale = 4.0 * self.nu * self.width
        r = np.sqrt(squared_distances(X, Z, scale))
        slope = -scale * np.exp(-r)
        if self.nu == 0.5:
            slope = np.divide(slope, r, out=np.zeros_like(r), where=r > 0)  # a cusp at 0
        elif self.nu == 2.5:
            slope *= (1.0 + r) / 3.0
        return radial_gradient(slope, X, Z, weights)

    def _radians(self, seed: int, block: int, n_rows: int, n_dims: int, random: ModuleType) -> Array:
        degrees = round(2 * self.nu)
        radians: Array = random.students(seed, Purpose.FREQUENCY, block, n_rows, n_dims, degrees)
        radians *= np.sqrt(2.0 * self.width)
        return radians


@dataclass(frozen=True)
class Laplacian(_Fourier):
    """The Laplacian kernel ``k(x, x') = exp(-gamma ||x - x'||_1)``; its frequencies are Cauchy."""

    def gram(self, X: Any, Z: Any) -> Array:
        if is_tensor(X):
            xp = namespace(X)
            return xp.exp(-xp.cdist(self.width * X, self.width * Z, p=1))
        return pairwise.laplacian_kernel(narrow(X), narrow(Z), gamma=self.width)

    def onnx_gram(self, graph: "Graph", x: str, centers: Array) -> str:
        rows, distances = graph.add("Unsqueeze", x, np.array([1])), []
        for group in graph.groups(len(centers), centers.shape[1]):  # a number per column of each centre
            differences = graph.add("Abs", graph.add("Sub", rows, centers[None, group]))
            distances.append(graph.add("ReduceSum", differences, np.array([2]), keepdims=0))
        return graph.add("Exp", graph.add("Mul", graph.add("Concat", *distances, axis=1), -self.width))

    def gradient(self, X: Array, Z: Array, weights: Array) -> Array:
        slope = -self.width * self.gram(X, Z)
        rows = [(row[:, None] * weights).T @ np.sign(x - Z) for x, row in zip(X, slope, strict=True)]
        return np.stack(rows, axis=1)

    def _radians(self, seed: int, block: int, n_rows: int, n_dims: int, random: ModuleType) -> Array:
        radians: Array = random.cauchy(seed, Purpose.FREQUENCY, block, n_rows, n_dims)
        radians *= self.width
        return radians

    def _scale(self, n_dims: int, variance: float) -> float:
        return float(1.0 / (n_dims * np.sqrt(variance)))

    def _apart(self, X: Any, Z: Any) -> Array:
        return abs(X - Z).sum(axis=1)


@dataclass(frozen=True)
class Polynomial(Kernel):
    """The dot-product kernel ``k(x, x') = (gamma x.x' + coef0)^degree``; ``degree=1, coef0=0`` is linear.

    A feature is the product of `degree` random-sign projections of ``(sqrt(gamma) x, sqrt(coef0))``: each
    projection's mean square is the bracket, and independent factors multiply (Kar and Karnick, 2012).

    Parameters
    ----------
    gamma : float > 0, "scale" or "median", default "scale"
    degree : int >= 1, default 3
    coef0 : float >= 0, default 1
    """

    degree: int = 3
    coef0: float = 1.0

    amplitude = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(self, degree=integer(), coef0=at_least(0))  # below 0 it would not be a kernel

    @property
    def activation(self) -> Literal["product"]:
        return "product"

    @property
    def rows_per_feature(self) -> int:
        return int(self.degree)

    def gram(self, X: Any, Z: Any) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            X, Z = scaled(X, self.width), scaled(Z, self.width)
            if sparse.issparse(X) or sparse.issparse(Z):
                return pairwise.polynomial_kernel(X, Z, degree=self.degree, gamma=1.0, coef0=self.coef0)
            return (by_panels(X, Z.T) + self.coef0) ** self.degree

    def onnx_gram(self, graph: "Graph", x: str, centers: Array) -> str:
        products = graph.add("Mul", graph.add("MatMul", x, centers.T), self.width)
        return graph.add("Pow", graph.add("Add", products, float(self.coef0)), float(self.degree))

    def gradient(self, X: Array, Z: Array, weights: Array) -> Array:
        slope = self.degree * self.width * (self.width * (X @ Z.T) + self.coef0) ** (self.degree - 1)
        return np.stack([(slope * w) @ Z for w in weights.T])

    def draw(self, seed: int, block: int, n_features: int, n_dims: int, random: ModuleType = philox) -> Drawn:
        sign = random.signs(seed, Purpose.FREQUENCY, block, self.rows(n_features), n_dims + 1)
        return sign[:, :n_dims] * np.sqrt(self.width), sign[:, n_dims] * np.sqrt(self.coef0)

    def _apart(self, X: Any, Z: Any) -> Array:
        return (X * X).sum(axis=1) / 2


KERNELS: dict[str, type] = {"rbf": RBF, "laplacian": Laplacian, "matern": Matern, "poly": Polynomial}


def kernel(spec: "str | Kernel", gamma: Gamma = "scale") -> Kernel:
    """The kernel of that name with width `gamma`, or the given kernel as it is; ``"auto"`` is `RBF` until tuned."""
    chosen: Kernel = lookup("kernel", spec, {**KERNELS, "auto": RBF}, Kernel)
    return replace(chosen, gamma=gamma) if isinstance(spec, str) else chosen


def has_own(kernel: Kernel, formula: str) -> bool:
    """Whether the method named `formula` belongs to the kernel's `gram`, which a subclass may have replaced."""
    owners = (kind for kind in type(kernel).__mro__ if "gram" in vars(kind) or formula in vars(kind))
    return formula in vars(next(owners))


def _short(W: Array) -> Array:
    """Float64 numbers rounded to 11 of their 53 bits, by Veltkamp's splitting, in their place: blocks may be large."""
    step = max(1, _SHORTENED // W.shape[1])
    for start in range(0, len(W), step):
        rows = W[start : start + step]
        large = (2.0**42 + 1.0) * rows
        rows[...] = large - (large - rows)  # a tensor, too
    return W


def _float64(X: Any) -> Any:
    """Rows whose ``*`` is elementwise, sparse or dense."""
    return sparse.csr_array(X, dtype=np.float64) if sparse.issparse(X) else np.asarray(host(X), np.float64)

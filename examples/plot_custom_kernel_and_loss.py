"""
Your own kernel and loss
========================

Kernels and losses are small classes; the built-in ones are written in the same way as these.
"""

# %%
# A loss
# ------
#
# The loss of an unlabelled row has a `value`, even in ``r = f(x)``, and a `grad`, odd in ``r``, since such a row is
# equally likely on either side. This one is a wave: ``u(r) = (1 + cos(pi r)) / 2`` inside the margin and 0 outside, as
# smooth as the exponential and as short as the hat.

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from s3vm import RBF, Exponential, Hat, Ramp, S3VMClassifier


@dataclass(frozen=True)
class Wave:
    """``u(r) = (1 + cos(pi r)) / 2`` for ``|r| < 1``, else 0."""

    def value(self, r):
        return np.where(np.abs(r) < 1, (1 + np.cos(np.pi * r)) / 2, 0)

    def grad(self, r):
        return np.where(np.abs(r) < 1, -np.pi / 2 * np.sin(np.pi * r), 0)


r = np.linspace(-2, 2, 401)
figure, axes = plt.subplots(1, 2, figsize=(11, 3.4), layout="constrained")
for loss in (Hat(), Ramp(), Exponential(), Wave()):
    for ax, values in zip(axes, (loss.value(r), loss.grad(r)), strict=True):
        ax.plot(r, values, linewidth=3 if isinstance(loss, Wave) else 1.4, label=repr(loss))
for ax, title in zip(axes, ("loss u(r)", "derivative u'(r)"), strict=True):
    ax.set(xlabel="r = f(x)", title=title)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].legend(frameon=False)

# %%
# A kernel
# --------
#
# A kernel has an exact formula, `gram`, and draws the frequencies of its random features, `draw`, for the solvers that
# use them. With its formula as nodes of an ONNX graph, `onnx_gram`, it can be exported. Here each feature of the rows
# has its own scale,
#
#     ``k(x, x') = exp(-gamma sum_j s_j (x_j - x'_j)^2)``,
#
# which is the RBF kernel of rows stretched by ``sqrt(s)``. Its frequencies are those of the RBF, stretched likewise.


@dataclass(frozen=True)
class Stretched(RBF):
    """The RBF kernel with one factor per feature."""

    factors: tuple[float, ...] = (1.0,)

    def gram(self, X, Z):
        stretch = np.sqrt(self.factors, dtype=X.dtype)
        return super().gram(X * stretch, Z * stretch)

    def draw(self, seed, block, n_features, n_dims, *random):
        frequencies, offsets = super().draw(seed, block, n_features, n_dims, *random)
        return frequencies * np.sqrt(self.factors), offsets

    def onnx_gram(self, graph, x, centers):
        stretch = np.sqrt(self.factors)
        return super().onnx_gram(graph, graph.add("Mul", x, stretch), centers * stretch)


# %%
# Do the features follow the formula? The mean of products of features should be the kernel, here to about one part in
# a hundred. The features are the cosines, then the sines, of ``2 pi w.x``, times ``sqrt(2)``.

kernel = Stretched(gamma=0.5, factors=(1.0, 0.2))
points = np.random.RandomState(0).normal(size=(5, 2))
frequencies, _ = kernel.draw(0, 0, 20_000, 2)
turns = 2 * np.pi * points @ frequencies.T
features = np.sqrt(2) * np.hstack([np.cos(turns), np.sin(turns)]) / np.sqrt(20_000)
print(f"largest difference {np.abs(features @ features.T - kernel.gram(points, points)).max():.3f}")

# %%
# Both at work
# ------------
#
# Two moons with six more features that are pure noise. If you know that, say so: with small factors on the noise, the
# distance of two rows is about that of their first two features.

X, y = make_moons(1000, noise=0.15, random_state=3)
X = np.hstack([X, np.random.RandomState(3).normal(size=(1000, 6))])
some = np.where(np.arange(1000) < 40, y, -1)
factors = (1.0, 1.0) + (0.005,) * 6
names, errors = [], []
for kernel in (RBF(gamma=0.15), Stretched(gamma=4.0, factors=factors)):
    for loss in ("exp", Wave()):
        clf = S3VMClassifier("tsg", kernel=kernel, loss=loss, unlabeled_weight=1, random_state=0).fit(X, some)
        names.append(f"{type(kernel).__name__}, {loss if isinstance(loss, str) else 'Wave'}")
        errors.append(np.mean(clf.predict(X) != y))
        print(f"{names[-1]:20} error {errors[-1]:.1%}")

# %%
# Your own losses and kernels work with every solver that takes any loss (``"tsg"`` and ``"frs"``), with probabilities,
# tuning and pickle. They cannot be saved to a ``.s3vm`` file, which contains no code. A kernel with an `onnx_gram` can
# be exported with `s3vm.to_onnx`.
#
# sphinx_gallery_thumbnail_number = 1

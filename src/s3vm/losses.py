"""The losses: ``l(r, y)`` of a labelled row and ``u(r)`` of an unlabelled row, with ``r = f(x)``.

A loss depends on neither kernel nor data. Each is a small class with `value` and `grad` for arrays of any shape, or
tensors on a device; `grad` is the derivative with respect to ``r`` (a subgradient at a kink).

The unlabelled losses are those of Table 2 of the paper. They are even, ``u(-r) = u(r)``, so their derivatives are odd.
The derivatives printed there for SHG and SSHG lack the sign of ``r`` and would push every unlabelled row to the
positive side; these are the true derivatives. The ramp printed there is one-sided; here a row counts once as positive
and once as negative, which makes it even.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

from s3vm._utils.arrays import namespace
from s3vm._utils.registry import lookup
from s3vm._utils.settings import above, check_settings
from s3vm._utils.typing import Array


@runtime_checkable
class LabeledLoss(Protocol):
    """Loss of a labelled row; `y` is -1 or +1.

    `curvature` is the second derivative far on the wrong side: a loss whose slope keeps growing needs smaller steps.
    """

    curvature: ClassVar[float]

    def value(self, r: Array, y: Array) -> Array: ...
    def grad(self, r: Array, y: Array) -> Array: ...


@runtime_checkable
class UnlabeledLoss(Protocol):
    """Loss of an unlabelled row; even in `r`."""

    def value(self, r: Array) -> Array: ...
    def grad(self, r: Array) -> Array: ...


@dataclass(frozen=True)
class Hinge:
    """``l(r, y) = max(0, 1 - y r)``."""

    curvature: ClassVar[float] = 0.0

    def value(self, r: Array, y: Array) -> Array:
        return (1 - y * r).clip(0)

    def grad(self, r: Array, y: Array) -> Array:
        return -y * (y * r < 1)


@dataclass(frozen=True)
class SmoothHinge:
    """The hinge with its kink rounded over a width ``w``: the default, since gradient steps converge on it.

    With ``m = 1 - y r``: ``l = 0`` for m < 0, ``m^2 / (2 w)`` up to m = w, ``m - w / 2`` beyond.

    Parameters
    ----------
    width : float > 0, default 0.1
    """

    width: float = 0.1

    curvature: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        check_settings(self, width=above(0))

    def value(self, r: Array, y: Array) -> Array:
        slack = (1 - y * r).clip(0)
        return namespace(r).where(slack < self.width, slack**2 / (2 * self.width), slack - self.width / 2)

    def grad(self, r: Array, y: Array) -> Array:
        return -y * ((1 - y * r) / self.width).clip(0, 1)


@dataclass(frozen=True)
class SquaredHinge:
    """``l(r, y) = max(0, 1 - y r)^2 / 2``; the half makes `SquaredHat` its minimum over ``y``."""

    curvature: ClassVar[float] = 1.0

    def value(self, r: Array, y: Array) -> Array:
        return (1 - y * r).clip(0) ** 2 / 2

    def grad(self, r: Array, y: Array) -> Array:
        return -y * (1 - y * r).clip(0)


@dataclass(frozen=True)
class Hat:
    """SHG, the symmetric hinge: ``u(r) = max(0, 1 - |r|)``."""

    def value(self, r: Array) -> Array:
        return (1 - abs(r)).clip(0)

    def grad(self, r: Array) -> Array:
        return -namespace(r).sign(r) * (abs(r) < 1)


@dataclass(frozen=True)
class SquaredHat:
    """SSHG, the squared symmetric hinge: ``u(r) = max(0, 1 - |r|)^2 / 2``."""

    def value(self, r: Array) -> Array:
        return (1 - abs(r)).clip(0) ** 2 / 2

    def grad(self, r: Array) -> Array:
        return -namespace(r).sign(r) * (1 - abs(r)).clip(0)


@dataclass(frozen=True)
class Ramp:
    """The symmetric ramp: a hat with its tip cut off, so that rows close to the boundary have no influence.

    With ``H_a(r) = max(0, a - r)`` and ``ramp(r) = H_1(r) - H_s(r)``, a row taken once as positive and once as
    negative has the loss ``ramp(r) + ramp(-r) - (1 - s) = min(1 + s, max(0, 1 - |r|))``.

    Parameters
    ----------
    s : float in (-1, 0], default -0.3
        Where the one-sided ramp becomes flat; with 0 this is `Hat`.
    """

    s: float = -0.3

    def __post_init__(self) -> None:
        check_settings(self, s=above(-1, 0))

    def value(self, r: Array) -> Array:
        return (1 - abs(r)).clip(0, 1 + self.s)

    def grad(self, r: Array) -> Array:
        size = abs(r)
        return -namespace(r).sign(r) * ((size > -self.s) & (size < 1))


@dataclass(frozen=True)
class Exponential:
    """DA, the differentiable approximation: ``u(r) = exp(-s r^2)``.

    Parameters
    ----------
    s : float > 0, default 3
        The paper uses 5; a smaller value reaches farther from the boundary.
    """

    s: float = 3.0

    def __post_init__(self) -> None:
        check_settings(self, s=above(0))

    def value(self, r: Array) -> Array:
        return namespace(r).exp(-self.s * r**2)

    def grad(self, r: Array) -> Array:
        return -2 * self.s * r * namespace(r).exp(-self.s * r**2)


LabeledLossName = Literal["auto", "smooth_hinge", "hinge", "squared_hinge"]
UnlabeledLossName = Literal["auto", "hat", "squared_hat", "ramp", "exp"]

LABELED_LOSSES: dict[str, type] = {"smooth_hinge": SmoothHinge, "hinge": Hinge, "squared_hinge": SquaredHinge}
UNLABELED_LOSSES: dict[str, type] = {"hat": Hat, "squared_hat": SquaredHat, "ramp": Ramp, "exp": Exponential}


def labeled_loss(spec: "str | LabeledLoss", auto: type = SmoothHinge) -> LabeledLoss:
    """The labelled loss of that name with its defaults, or the given loss as it is; "auto" is of the class `auto`."""
    return lookup("labeled_loss", spec, {**LABELED_LOSSES, "auto": auto}, LabeledLoss)


def unlabeled_loss(spec: "str | UnlabeledLoss", auto: type = Exponential) -> UnlabeledLoss:
    """The unlabelled loss of that name with its defaults, or the given loss as it is; "auto" is of the class `auto`."""
    if isinstance(spec, LabeledLoss):
        raise ValueError(f"loss={spec!r} is a loss for labelled rows: give it as labeled_loss")
    return lookup("loss", spec, {**UNLABELED_LOSSES, "auto": auto}, UnlabeledLoss)

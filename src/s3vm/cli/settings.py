"""The settings of a model as the command line has them."""

from dataclasses import dataclass, replace
from typing import Any

from s3vm import S3VMClassifier, S3VMClassifierCV
from s3vm.kernels import kernel

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """What the user said of the model; `C` and `gamma` are tuned if nothing was said."""

    solver: str = "tsg"
    kernel: str = "rbf"
    C: float | None = None
    gamma: str | None = None
    weight: str = "auto"
    seed: int = 0
    jobs: int = -1
    scale: bool = True

    def classifier(self, verbose: Any = 0) -> S3VMClassifier:
        common: dict[str, Any] = {
            "solver": self.solver,
            "kernel": self.kernel,
            "unlabeled_weight": _number(self.weight),
            "unlabeled": None,
            "n_jobs": self.jobs,
            "random_state": self.seed,
            "verbose": verbose,
        }
        width: Any = "median" if self.gamma is None else _number(self.gamma)
        kernel(self.kernel, width)  # complains of either before anything is read
        if self.C is not None and self.gamma is not None:
            return S3VMClassifier(**common, C=self.C, gamma=width)
        chosen: dict[str, Any] = {} if self.C is None else {"Cs": (self.C,)}
        if self.gamma is not None:
            chosen["factors"] = (1.0,)
        return S3VMClassifierCV(**common, **chosen, gamma=width)

    @property
    def tuned(self) -> list[str]:
        return [name for name in ("C", "gamma") if getattr(self, name) is None]

    def without_unlabelled(self) -> "Settings":
        return replace(self, weight="0")


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text

"""The settings of a model on the command line."""

from dataclasses import dataclass
from typing import Any

from s3vm import S3VMClassifier, S3VMClassifierCV
from s3vm._utils.settings import above, at_least, check
from s3vm.kernels import KERNELS
from s3vm.solvers import SOLVERS

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """The user's settings of the model, checked before any file is read; `C` and `gamma` are tuned if None."""

    solver: str = "tsg"
    kernel: str = "rbf"
    C: float | None = None
    gamma: str | None = None
    weight: str = "auto"
    seed: int = 0
    jobs: int = -1
    scale: bool = True
    max_seconds: float | None = None
    checkpoint: str | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        for option, name, known in (("--solver", self.solver, SOLVERS), ("--kernel", self.kernel, KERNELS)):
            if name not in known:
                raise ValueError(f"{option} {name} is unknown: give one of {', '.join(known)}")
        if self.C is not None:
            check("--C", self.C, above(0))
        if self.gamma not in (None, "scale", "median"):
            check("--gamma", _number(str(self.gamma)), above(0))
        if self.weight not in ("auto", "paper"):
            check("--weight", _number(self.weight), at_least(0))
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"--seed {self.seed} is not valid: give an integer from 0 to {2**32 - 1}")
        if self.max_seconds is not None:
            check("--max-seconds", self.max_seconds, above(0))
        if self.resume and self.checkpoint is None:
            raise ValueError("--resume needs --checkpoint FILE")
        if self.jobs == 0:
            raise ValueError("--jobs 0 is not valid: give 1 or more threads, or -1 for all cores")

    def classifier(self, verbose: Any = 0) -> S3VMClassifier:
        """An unfitted classifier, for labels in which None means unlabelled."""
        common: dict[str, Any] = {
            "solver": self.solver,
            "kernel": self.kernel,
            "unlabeled_weight": _number(self.weight),
            "unlabeled": None,
            "n_jobs": self.jobs,
            "random_state": self.seed,
            "verbose": verbose,
            "max_seconds": self.max_seconds,
        }
        width: Any = "median" if self.gamma is None else _number(self.gamma)
        if self.C is not None and self.gamma is not None:
            return S3VMClassifier(**common, C=self.C, gamma=width)
        candidates: dict[str, Any] = {} if self.C is None else {"Cs": (self.C,)}
        if self.gamma is not None:
            candidates["factors"] = (1.0,)
        return S3VMClassifierCV(**common, **candidates, gamma=width)

    @property
    def tuned(self) -> list[str]:
        """The settings that cross-validation chooses."""
        return [name for name in ("C", "gamma") if getattr(self, name) is None]


def _number(text: str) -> Any:
    """The text as a number, if it is one."""
    try:
        return float(text)
    except ValueError:
        return text

"""The problem that every solver solves: Eq. 1 of the paper, for K columns at once."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from s3vm._utils.arrays import stack
from s3vm._utils.typing import Array, Rows
from s3vm.kernels import Kernel
from s3vm.losses import LabeledLoss, UnlabeledLoss
from s3vm.problem.graph import NeighborGraph
from s3vm.sources import ArraySource, Source


class SupervisedSolution(NamedTuple):
    """The exact SVM of the labelled rows in every column, where many solvers start.

    ``f_k(x) = sum_i dual[i, k] k(x_i, x) + intercept[k]``; `gram` is the kernel matrix of the labelled rows.
    """

    gram: Array
    dual: Array
    intercept: Array


def first_equal(*parts: Array) -> list[int]:
    """For each column of all these arrays, the number of the first one that equals it."""
    first: dict[tuple[bytes, ...], int] = {}
    keys = [tuple(part[..., k].tobytes() for part in parts) for k in range(parts[0].shape[-1])]
    return [first.setdefault(key, k) for k, key in enumerate(keys)]


@dataclass(frozen=True, eq=False)
class Problem:
    """K independent problems that share their rows, each one *column*.

    Column k looks for the function ``f`` that minimises

        ``R_k(f) = ||f||^2 / 2 + sum_i costs[i, k] l(f(x_i), targets[i, k]) + unlabeled_cost[k] E_x u(f(x))``

    over the labelled rows ``i`` and the distribution of the unlabelled rows ``x``; with a graph, for solvers that take
    it, plus ``graph_cost[k] / 2 (1/n) f'Lf``. The paper's ``C`` is ``n_l costs[i, k]``, its ``C*`` is
    ``unlabeled_cost[k]``. What the columns stand for is the caller's affair:
    classes one against the rest, cross-validation folds (rows held out have cost 0), several weights.
    """

    labeled: Rows  # shape (n_l, d)
    targets: Array  # -1 or +1, shape (n_l, K)
    costs: Array  # of each labelled row in each column, shape (n_l, K); 0 leaves it out
    unlabeled: Source | None
    unlabeled_cost: Array  # shape (K,)
    prior: Array  # the expected fraction of positive rows among the unlabelled ones, shape (K,)
    prior_is_known: bool  # whether the user gave it; otherwise it is the fraction among the labelled rows
    kernel: Kernel  # with a numeric width
    labeled_loss: LabeledLoss
    unlabeled_loss: UnlabeledLoss
    seed: int
    n_models: int  # the columns that are the model; they come first, and the history describes them
    supervised: SupervisedSolution | None = None  # if it is already known; see `s3vm.solvers.supervised`
    graph: NeighborGraph | None = None  # of the labelled rows and of unlabelled ones, all of them or a sample
    graph_cost: Array | None = None  # of the graph in each column, shape (K,)

    @property
    def n_labeled(self) -> int:
        return int(self.targets.shape[0])

    @property
    def n_columns(self) -> int:
        return int(self.targets.shape[1])

    @property
    def n_dims(self) -> int:
        return int(self.labeled.shape[1])

    @property
    def n_rows(self) -> int:
        """Labelled and unlabelled rows together, the paper's n."""
        return self.n_labeled + (self.unlabeled.n_rows if self.unlabeled is not None else 0)

    def all_rows(self) -> Rows:
        """All rows at once, the labelled ones first."""
        if self.unlabeled is None:
            return self.labeled
        if not isinstance(self.unlabeled, ArraySource):
            raise ValueError(
                'this solver needs all rows at once, and these are a stream: use solver="tsg" or "frs", or read them '
                "into an array"
            )
        return stack([self.labeled, self.unlabeled.sample(self.seed, self.unlabeled.n_rows)])

    def objective(self, k: int, norm: float, r_l: Array, r_u: Array) -> float:
        """``R_k(f)``, given ``||f||^2`` (plus ``graph_cost (1/n) f'Lf``), and f at labelled and all unlabelled rows."""
        labeled = np.dot(self.costs[:, k], self.labeled_loss.value(r_l, self.targets[:, k]))
        unlabeled = self.unlabeled_cost[k] * self.unlabeled_loss.value(r_u).mean() if len(r_u) else 0.0
        return float(norm / 2 + labeled + unlabeled)

    @property
    def uses_gaps(self) -> bool:
        """Whether the loss of the unlabelled rows counts in any column."""
        return self.unlabeled is not None and bool(np.any(self.unlabeled_cost > 0))

    @property
    def uses_graph(self) -> bool:
        """Whether the graph counts in any column."""
        return self.graph is not None and self.graph_cost is not None and bool(np.any(self.graph_cost > 0))

    @property
    def uses_unlabeled(self) -> bool:
        """Whether the unlabelled rows change anything in any column."""
        return self.uses_gaps or (self.unlabeled is not None and self.uses_graph)

    @property
    def graph_costs(self) -> Array:
        """The cost of the graph in every column; 0 without one."""
        return self.graph_cost if self.uses_graph and self.graph_cost is not None else np.zeros(self.n_columns)

"""BGS3VM: stochastic gradients on a hinge and a neighbour graph, with budgets on the support sets (Le et al., 2016)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from s3vm._utils.arrays import row_bytes
from s3vm._utils.settings import above, between, check_settings, integer, real, switch
from s3vm.backends import Backend
from s3vm.losses import Hat, Hinge, SmoothHinge
from s3vm.problem import Problem
from s3vm.solvers.base import Losses, Solver, State, needs
from s3vm.solvers.bgs.state import NEAREST, BGSState, first_state, within_budgets
from s3vm.solvers.bgs.steps import NeighbourGraph, draw_batch, take_steps
from s3vm.solvers.steps import Decaying, Step, step, stiffness
from s3vm.solvers.supervised import start_gram


@dataclass(frozen=True)
class BGS(Solver):
    """Budgeted stochastic gradients on a neighbour graph: neighbours should have the same output.

    A graph term takes the place of the unlabelled loss ``u`` of Eq. 1, which BGS does not use. It minimises

        ``||f||^2 / 2 + sum_i C_i l(f(x_i), y_i) + C* mean over edges (u, v) of |f(x_u) - f(x_v)|^p``

    over the edges of the graph that joins every row, labelled or not, to its nearest neighbours; the mean is weighted
    by the kernel ``k(x_u, x_v)`` (divided by the root of ``k(x_u, x_u) k(x_v, x_v)``). Divided by ``sum_i C_i`` this is
    the ``lambda/2 ||w||^2 + mean hinge + mean over edges`` of Le et al., and a step of size ``1/t`` is their
    ``1 / (lambda t)``. The function is a kernel expansion on labelled rows and on ends of edges that were drawn;
    support sets beyond their budgets lose the rows of the smallest coefficients.

    By default it differs from Le et al. in the following: the run starts from the supervised SVM; a step takes all
    labelled rows and a batch of edges, which are pulled together no further than to equality; there is an intercept,
    which is moved at the end so that the fraction of positive rows is the expected one. `BGS.as_printed` has none of
    this.

    Parameters
    ----------
    max_iter : int or "auto", default "auto"
        Number of iterations of `look_ahead` steps. ``"auto"`` draws as many edges as there are unlabelled rows, but
        takes from 400 to 1000 steps.
    passes : float or None, default None
        Instead of `max_iter`: the number of edges drawn, divided by the number of unlabelled rows.
    batch_size : int, default 64
        Edges per step.
    look_ahead : int, default 4
        Steps per iteration: their edges are drawn together, and budgets are enforced after each iteration.
    n_neighbors : int, default 10
        The number of nearest neighbours, in Euclidean distance, that each row is joined to.
    exponent : float in [1, 2], default 1.0
        The p of the graph term. At 1 the output may jump between clusters; 2 is that of the Laplacian SVM.
    labelled_budget : int or None, default None
        The maximum number of labelled rows in the expansion of a column; None keeps all.
    unlabelled_budget : int, float below 1 or None, default 2000
        The same for unlabelled rows, as a number or as a fraction of them.
    maintenance : "projection" or "removal", default "projection"
        What happens to rows beyond the budget: they are projected onto the nearest rows that stay, or removed, which
        is cheaper and may undo the effect of the edges.
    step : Step, "decaying", "constant" or "theorem", default "decaying"
        The step sizes; see `s3vm.solvers.steps`.
    anchor : bool, default True
        Whether to start from the exact supervised solution instead of 0.
    implicit : bool, default True
        Whether the graph term's slope is taken at the end of a step instead of its beginning, so that no weight is too
        large for the step size.
    intercept : bool, default True
        Whether the decision function has a constant term, which is not penalised.
    balance : bool, default True
        Whether the intercept of the result is moved so that the fraction of positive rows in an unlabelled sample is
        that of the labelled rows within a standard error, or the given one. The larger the graph term, the flatter f
        is, and the less its sign means.
    n_reference : int, default 5000
        The size of that sample.
    draw_labelled : bool, default False
        Whether a step draws `batch_size` labelled rows, with replacement, instead of taking all.
    """

    losses: ClassVar[Losses] = (SmoothHinge, Hat)

    max_iter: int | Literal["auto"] = "auto"
    passes: float | None = None
    batch_size: int = 64
    look_ahead: int = 4
    n_neighbors: int = 10
    exponent: float = 1.0
    labelled_budget: int | None = None
    unlabelled_budget: int | float | None = 2000
    maintenance: Literal["projection", "removal"] = "projection"
    step: str | Step = "decaying"
    anchor: bool = True
    implicit: bool = True
    intercept: bool = True
    balance: bool = True
    n_reference: int = 5000
    draw_labelled: bool = False

    def __post_init__(self) -> None:
        check_settings(self, max_iter=(integer(), "auto"), passes=(above(0), None), batch_size=integer())
        check_settings(self, look_ahead=integer(), n_neighbors=integer(), exponent=real(1, 2), n_reference=integer())
        check_settings(self, labelled_budget=(integer(), None), unlabelled_budget=(integer(), between(0, 1), None))
        check_settings(self, maintenance=("projection", "removal"), anchor=switch, implicit=switch, intercept=switch)
        check_settings(self, balance=switch, draw_labelled=switch)
        for name in ("balance", "anchor"):
            if getattr(self, name) and not self.intercept:
                raise ValueError(f"BGS: {name}=True needs an intercept: intercept=False needs {name}=False")
        step(self.step)

    @classmethod
    def as_printed(cls, **settings: Any) -> "BGS":
        """The algorithm of Le et al. with the paper's protocol: one labelled row and one edge per step, one pass.

        Its weight is ``unlabeled_weight="paper"``. Budgets are enforced every 256 steps.
        """
        off = {"anchor": False, "implicit": False, "intercept": False, "balance": False, "draw_labelled": True}
        paper = {"passes": 1.0, "batch_size": 1, "look_ahead": 256, "step": Decaying(t0=0)}
        budgets = {"labelled_budget": 100, "unlabelled_budget": 0.2, "maintenance": "removal"}
        return cls(**{**off, **paper, **budgets, **settings})

    def iterations(self, problem: Problem) -> int:
        if self.anchor and not problem.uses_unlabelled:
            return 1
        if self.passes is None and not isinstance(self.max_iter, str):
            return self.max_iter
        n_rows = problem.unlabelled.n_rows if problem.unlabelled is not None else problem.n_labelled
        n_steps = (self.passes or 1) * n_rows / self.batch_size
        return int(np.ceil((n_steps if self.passes else np.clip(n_steps, 400, 1000)) / self.look_ahead))

    def memory(self, problem: Problem, backend: Backend) -> int:
        n_l, size = problem.n_labelled, problem.labelled.dtype.itemsize
        n_bytes = 8 * n_l**2
        if problem.unlabelled is None or not problem.uses_unlabelled:
            return n_bytes
        n_u = problem.unlabelled.n_rows
        drawn = min(n_u, 2 * self.batch_size * self.look_ahead)
        support = n_l + min(n_u, (self.budgets(problem)[1] + drawn) * problem.n_columns)
        near = 1 + NEAREST * (self.maintenance == "projection")
        a_row = row_bytes(problem.labelled)
        n_bytes += int(problem.n_rows * (2 * a_row + 40 * self.n_neighbors))
        n_bytes += 8 * (n_l + drawn) ** 2 + 2 * size * near * drawn * support
        return n_bytes + int(support * (48 * problem.n_columns + a_row))

    def extended(self, problem: Problem, done: int) -> "BGS":
        return replace(self, max_iter=done + self.iterations(problem), passes=None)

    def run(self, problem: Problem, backend: Backend, state: State | None = None) -> Iterator[State]:
        needs(self, problem, (Hinge, SmoothHinge), (Hat,))
        rows = problem.all_rows() if problem.uses_unlabelled else problem.labelled
        gram = start_gram(problem)
        now = first_state(self, problem, rows, gram) if state is None else state
        if not isinstance(now, BGSState) or not now.fits(rows, problem):
            raise ValueError("BGS can resume only with the same rows: set warm_start=False to start again")
        if self.anchor and not problem.uses_unlabelled:
            if state is None:  # the start is the solution
                yield replace(now, iteration=1)
            return
        graph = None
        if problem.uses_unlabelled:
            graph = NeighbourGraph(rows, self.n_neighbors, problem.kernel, now.diagonal, backend.n_threads)
        # A column in which unlabelled rows have no weight is solved by its start.
        moves = problem.unlabelled_cost > 0 if self.anchor else np.ones(problem.n_columns)
        schedule, stiff = step(self.step), max(1.0, float(np.diag(gram).mean())) * stiffness(problem)
        n_steps = self.iterations(problem) * self.look_ahead
        for t in range(now.iteration, self.iterations(problem)):
            ahead = range(t * self.look_ahead, (t + 1) * self.look_ahead)
            gammas = [moves * schedule.sizes(i, n_steps, stiff) for i in ahead]
            batch = draw_batch(self, problem, graph, ahead, now, gram)
            now = within_budgets(self, problem, take_steps(self, problem, now, batch, gammas))
            yield now

    def budgets(self, problem: Problem) -> tuple[int, int]:
        """The budgets of labelled and unlabelled rows as numbers."""
        n_u = problem.unlabelled.n_rows if problem.unlabelled is not None else 0
        budget = n_u if self.unlabelled_budget is None else self.unlabelled_budget
        return self.labelled_budget or problem.n_labelled, int(np.ceil(budget * n_u) if 0 < budget < 1 else budget)

r"""Theorems 1 and 2 as an experiment: Algorithm 1 (f_t) and its twin on the exact kernel (h_t).

With ``gamma = theta / T^(3/4)``, batches of labelled and unlabelled rows and block t of random features,

    ``f_{t+1} = (1 - gamma) f_t - gamma zeta_t``,   ``h_{t+1} = (1 - gamma) h_t - gamma xi_t``

where ``xi_t = C l'(f_t(x), y) k(x, .) + C* u'(f_t(x)) k(x, .)``, averaged over the batch, and ``zeta_t`` has features
in place of ``k``. Both take their slopes from ``f_t``. The theorems say

    ``E |f_t(x) - h_t(x)|^2 <= D / sqrt(T)``,               ``D = theta^2 M^2 (sqrt(kappa) + sqrt(phi))^2``
    ``E ||grad R(h_t)||^2 <= E / T^(1/4) + F / T^(3/4)``,
        ``E = (R(h_1) - R*) / theta + theta M^2 M' (sqrt(kappa) + sqrt(phi)) kappa``,  ``F = 2 theta M^2 L kappa``

with ``M = C max|l'| + C* max|u'|``, ``M'`` the same with second derivatives, and ``L`` the Lipschitz constant of grad
R, here its bound ``1 + kappa M'``. Theorem 2 needs smooth losses: the rounded hinge and DA. The unlabelled rows come
from a finite pool, so that R, its gradient and the gradient's norm are computed, not estimated. ``R*`` is unknown; the
smallest R of any run stands for it, which can only lower the bound.

The bounds are loose, so an experiment could hardly violate them. What it can refute is the rate: with features of
another law (`Setting.bias`), f_t does not approach h_t, and the distance does not fall.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import make_blobs, make_moons

from experiments.printed_tsg import PrintedTSG
from s3vm import backends, philox
from s3vm._utils.typing import Array
from s3vm.kernels import RBF
from s3vm.losses import Exponential, Hat, Hinge, SmoothHinge
from s3vm.philox import Purpose
from s3vm.problem import Problem
from s3vm.solvers import Solver, Theorem
from s3vm.solvers.stochastic import labeled_batches, labeled_slope, unlabeled_slope
from s3vm.sources import ArraySource

__all__ = ["Setting", "measure"]

_KAPPA, _PHI = 1.0, 2.0  # k(x, x) <= 1, and |phi(x) phi(x')| <= 2 for phi = sqrt(2) cos
_CHECKPOINTS = 24  # of each run at which the gradient is measured


@dataclass(frozen=True)
class Setting:
    """Two moons, few labelled, and the constants of Algorithm 1.

    Parameters
    ----------
    n_dims : int
        2 for two moons, otherwise the columns of two normal classes.
    smooth : bool
        Whether the losses have Lipschitz derivatives, as Theorem 2 needs; otherwise they are the hinge and SHG.
    bias : float
        The features are those of a kernel with `bias` times the parameter `gamma`: at 1, the right ones.
    """

    n_labeled: int = 20
    n_pool: int = 280
    C: float = 3.0  # the paper's: the cost of all labelled rows together
    C_star: float = 3.0
    theta: float = 1.0
    gamma: float = 2.0
    batch_size: int = 1
    n_features: int = 1
    width: float = 1.0
    s: float = 3.0
    n_dims: int = 2
    smooth: bool = True
    bias: float = 1.0

    def problem(self, seed: int) -> Problem:
        X, y = self._rows(self.n_labeled + self.n_pool)
        targets = np.where(y[: self.n_labeled, None] == 1, 1.0, -1.0)
        return Problem(
            labeled=X[: self.n_labeled],
            targets=targets,
            costs=np.full(targets.shape, self.C / self.n_labeled),
            unlabeled=ArraySource(X, np.arange(self.n_labeled, len(X)), np.float64),
            unlabeled_cost=np.array([self.C_star]),
            prior=np.array([0.5]),
            prior_is_known=False,
            kernel=RBF(self.gamma, features="phase"),
            labeled_loss=SmoothHinge(self.width) if self.smooth else Hinge(),
            unlabeled_loss=Exponential(self.s) if self.smooth else Hat(),
            seed=seed,
            n_models=1,
        )

    def _rows(self, n_rows: int) -> tuple[Array, Array]:
        if self.n_dims == 2:
            X, y = make_moons(n_rows, noise=0.15, random_state=0)
        else:
            X, y = make_blobs(n_rows, centers=np.eye(2, self.n_dims) * 3.0, random_state=0)
        return X, y

    def solver(self, n_iterations: int) -> Solver:
        """Algorithm 1 as the evaluation runs it, which must give the same f_t."""
        return PrintedTSG(
            max_iter=n_iterations, step=Theorem(self.theta), batch_size=self.batch_size, n_features=self.n_features
        )

    def slopes(self) -> tuple[float, float]:
        """``M`` and ``M'``: the largest first and second derivatives, weighted by C and C*."""
        if not self.smooth:
            return self.C + self.C_star, np.inf
        steepest = np.sqrt(2 * self.s) * np.exp(-0.5)  # of exp(-s r^2), at r = 1 / sqrt(2 s)
        return self.C + self.C_star * steepest, self.C / self.width + self.C_star * 2 * self.s


def measure(n_iterations: int, n_seeds: int, setting: Setting | None = None) -> dict[str, Any]:
    """Both sides of both theorems for runs of `n_iterations`, averaged over seeds.

    Returns
    -------
    dict
        ``distance``: mean over x of E|f_T - h_T|^2; ``worst_distance``: the largest over x and t; ``gradient``: E||grad
        R(h_t)||^2, averaged over t as in the proof; ``least``: the smallest R; ``start``: R(h_1); D, E (without
        R*) and F of the bounds as printed; ``distances`` and ``gradients``: the first and the third by seed.
    """
    setting = setting or Setting()
    runs = [_run(setting, seed, n_iterations) for seed in range(n_seeds)]
    squared = np.mean([run["squared"] for run in runs], axis=0)
    M, M1 = setting.slopes()
    theta, root = setting.theta, np.sqrt(_KAPPA) + np.sqrt(_PHI)
    return {
        "distance": float(squared[-1].mean()),
        "worst_distance": float(squared.max()),
        "gradient": float(np.mean([run["gradient"] for run in runs])),
        "last_gradient": float(np.mean([run["last_gradient"] for run in runs])),
        "least": float(min(run["least"] for run in runs)),
        "start": runs[0]["start"],
        "theta": theta,
        "D": theta**2 * M**2 * root**2,
        "E": theta * M**2 * M1 * root * _KAPPA,
        "F": 2 * theta * M**2 * (1 + _KAPPA * M1) * _KAPPA,
        "seeds": n_seeds,
        "distances": [float(run["squared"][-1].mean()) for run in runs],
        "gradients": [run["gradient"] for run in runs],
    }


def _run(setting: Setting, seed: int, n_iterations: int) -> dict[str, Any]:
    """One run: |f_t - h_t|^2 at every row in some iterations, and the gradient's squared norm there."""
    problem = setting.problem(seed)
    assert problem.unlabeled is not None
    rows = problem.all_rows()
    n_labeled, n_rows = problem.n_labeled, len(rows)
    gram = problem.kernel.gram(rows, rows)
    law = RBF(setting.bias * setting.gamma, features="phase")
    features = backends.backend("cpu", "float64").features(law, seed, setting.n_features, problem.n_dims)
    size = float(Theorem(setting.theta).sizes(0, n_iterations, np.ones(1))[0])
    pool = _pool_indices(problem, n_iterations, setting.batch_size)
    checkpoints = set(np.unique(np.geomspace(1, n_iterations, _CHECKPOINTS).round().astype(int)).tolist())
    f, dual = np.zeros(n_rows), np.zeros(n_rows)
    squared, gradients, risks = [], [], [_risk(problem, np.zeros(n_rows), 0.0)]
    for t in range(n_iterations):
        labeled = labeled_batches(problem, range(t, t + 1), setting.batch_size, draw=True)[0]
        at = np.concatenate([labeled, n_labeled + pool[t]])
        slope = np.concatenate(
            [
                labeled_slope(problem, labeled, f[labeled, None]),
                unlabeled_slope(problem, f[n_labeled + pool[t], None], 1.0),
            ]
        )[:, 0]
        block = features.features(t, rows)
        f = (1 - size) * f - size * (block @ (block[at].T @ slope))
        dual *= 1 - size
        np.add.at(dual, at, -size * slope)
        if t + 1 in checkpoints:
            h = gram @ dual
            squared.append((f - h) ** 2)
            whole = dual + _slopes(problem, h)
            gradients.append((t + 1, float(whole @ gram @ whole)))
            risks.append(_risk(problem, h, float(dual @ h)))
    at_iteration, norms = np.array(gradients).T
    weights = np.diff(at_iteration, prepend=0)  # iterations up to each checkpoint
    return {
        "squared": squared,
        "gradient": float(np.average(norms, weights=weights)),
        "last_gradient": float(norms[-1]),
        "least": min(risks),
        "start": risks[0],
        "f": f,
    }


def _pool_indices(problem: Problem, n_iterations: int, size: int) -> Array:
    """The rows of the pool in each batch: those that `ArraySource` draws."""
    assert problem.unlabeled is not None
    steps = range(n_iterations)
    return philox.indices(problem.seed, Purpose.UNLABELED, steps, size, problem.unlabeled.n_rows)


def _slopes(problem: Problem, h: Array) -> Array:
    """The derivative of R's losses with respect to h at every row: coefficients of their kernel functions."""
    n_labeled = problem.n_labeled
    labeled = labeled_slope(problem, np.arange(n_labeled), h[:n_labeled, None])
    return np.concatenate([labeled, unlabeled_slope(problem, h[n_labeled:, None], 1.0)])[:, 0]


def _risk(problem: Problem, h: Array, norm: float) -> float:
    return problem.objective(0, norm, h[: problem.n_labeled], h[problem.n_labeled :])

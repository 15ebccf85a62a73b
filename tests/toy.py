"""Small problems and small solvers: the table that every solver is in."""

from collections import deque
from functools import cache
from importlib.util import find_spec

import numpy as np
from experiments.printed_tsg import PrintedTSG

from s3vm.backends import BACKENDS
from s3vm.kernels import RBF, Laplacian, Matern, Polynomial
from s3vm.losses import UNLABELED_LOSSES, Hinge
from s3vm.problem import Problem
from s3vm.solvers import SOLVERS, Constant
from s3vm.sources import ArraySource

T, M, BATCH = 50, 16, 8
BACKENDS_HERE = [name for name in BACKENDS if name != "gpu" or find_spec("torch")]
KERNELS = {
    ("rbf", 0.7): RBF(0.7, features="phase"),
    ("rbf pairs", 0.7): RBF(0.7),
    ("laplacian", 0.4): Laplacian(0.4, features="phase"),
    ("matern", 0.5, 1.5): Matern(0.5, nu=1.5, features="phase"),
    ("poly", 0.3, 2, 1.0): Polynomial(0.3, degree=2, coef0=1.0),
}
TOLERANCE = {"float32": 1e-4, "float64": 1e-10}


@cache
def rows(n_labeled=6, n_unlabeled=30):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_labeled + n_unlabeled, 3))
    y = np.where(X[:n_labeled, 0] + 0.1 * rng.normal(size=n_labeled) > 0, 1.0, -1.0)
    y[:2] = [1.0, -1.0]
    # What float32 cannot hold would be a difference in the data, not in the algorithm.
    return X.astype(np.float32).astype(np.float64), y


def make_problem(kernel, loss, dtype="float64", n_labeled=6, C=12.0, C_star=5.0, columns=1, labeled_loss=None):
    X, y = rows(n_labeled)
    targets = np.column_stack([y if k % 2 == 0 else -y for k in range(columns)])
    return Problem(
        labeled=X[:n_labeled].astype(dtype),
        targets=targets,
        costs=np.full(targets.shape, C / n_labeled),
        unlabeled=ArraySource(X, np.arange(n_labeled, len(X)), dtype),
        unlabeled_cost=np.full(columns, C_star),
        prior=(targets > 0).mean(axis=0),
        prior_is_known=False,
        kernel=kernel,
        labeled_loss=labeled_loss or Hinge(),
        unlabeled_loss=UNLABELED_LOSSES[loss](),
        seed=5,
        n_models=1,
    )


def last(states):
    return deque(states, maxlen=1)[0]


KINDS = {**SOLVERS, "printed_tsg": PrintedTSG}
# Algorithm 1 with an intercept that holds the balance, and a ramp.
BALANCED = {"intercept": True, "balance": True, "ramp": 0.5, "draw_labeled": False, "step": "decaying"}
SMALL_TSG = {"max_iter": 20, "batch_size": BATCH, "n_features": M}
SMALL_BGS = {"max_iter": 10, "batch_size": BATCH, "look_ahead": 2}
# A run that starts from the supervised SVM has support vectors right at the hinge's kink.
GRAPH = (("smooth_hinge", ("hat",)),)
SMOOTH = (("squared_hinge", ("exp",)),)
ANY = (("smooth_hinge", tuple(UNLABELED_LOSSES)),)
CONVEX_BUT_FOR_THE_TIP = (("hinge", ("ramp", "hat")),)
# Variant of a solver: its settings, and the losses it can take, each labelled one with unlabelled ones.
VARIANTS = {
    "tsg": (SMALL_TSG, ANY),
    "tsg, features": (SMALL_TSG | {"span": "features", "max_features": 5 * M}, ANY),
    "tsg, no balance": (SMALL_TSG | {"balance": False, "step": Constant(eta=100)}, ANY),
    "printed_tsg": (SMALL_TSG | {"step": "decaying"}, ANY),
    "printed_tsg, balanced": (SMALL_TSG | BALANCED, ANY),
    "frs": (SMALL_TSG, ANY),
    "frs, free intercept": (SMALL_TSG | {"balance": False, "ramp": 0.0}, ANY),
    "frs, as printed": (
        SMALL_TSG | {"intercept": False, "balance": False, "ramp": 0.0, "draw_labeled": True, "step": Constant()},
        ANY,
    ),
    "bgs": (SMALL_BGS, GRAPH),
    "bgs, budgets": (SMALL_BGS | {"labeled_budget": 4, "unlabeled_budget": 10}, GRAPH),
    "bgs, removal": (SMALL_BGS | {"unlabeled_budget": 0.3, "maintenance": "removal", "exponent": 2.0}, GRAPH),
    "bgs, plain": (
        SMALL_BGS | {"anchor": False, "implicit": False, "balance": False, "draw_labeled": True, "step": "theorem"},
        (("hinge", ("hat",)), *GRAPH),
    ),
    "cccp": ({"tol": 1e-6}, CONVEX_BUT_FOR_THE_TIP),  # or two roundings may differ by as much as it allows
    "cccp, original balance": ({"balance": "prior"}, CONVEX_BUT_FOR_THE_TIP),
    "cccp, no balance": ({"balance": None}, CONVEX_BUT_FOR_THE_TIP),
    "newton": ({}, SMOOTH),
    "newton, prior": ({"balance": "prior", "rounds": 4, "growth": 3.0}, SMOOTH),
    "newton, landmarks": ({"n_landmarks": 20}, SMOOTH),
    "newton, conjugate gradients": ({"max_factor": 10}, SMOOTH),
    "batch": ({"max_iter": 30}, SMOOTH),
    "batch, few landmarks": ({"max_iter": 30, "n_landmarks": 20, "max_rows": 25}, SMOOTH),
    "light": ({"first": 1e-2}, (("hinge", ("hat",)),)),
    "incremental": ({"block_size": 7}, CONVEX_BUT_FOR_THE_TIP),
    "incremental, path alone": ({"block_size": 7, "restart": np.inf, "balance": "prior"}, CONVEX_BUT_FOR_THE_TIP),
}


def configured(variant, **changed):
    """A solver of the table, small."""
    return KINDS[variant.split(",")[0]](**{**VARIANTS[variant][0], **changed})

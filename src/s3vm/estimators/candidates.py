"""Candidates of what unlabelled rows may know, and which of them labelled rows held out confirm.

Two kinds of knowledge compete with the supervised solution: *gaps* between the rows, where a boundary may run, and
*neighbors*, rows that lie close together along the data and mostly share a class. Where neighbors regularise, the norm
steps back: labelled rows are fitted hard, in a kernel of the data's own width.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from s3vm._utils.scores import brier_losses, predicted_codes
from s3vm._utils.typing import Array, Rows
from s3vm.kernels import Kernel

_TUNED = ((0.3, 0.0), (1.0, 0.0), (0.0, 1.0), (0.3, 1.0), (1.0, 1.0))
_MANIFOLD = ((0.0, 0.1), (0.0, 1.0), (0.1, 1.0), (1.0, 1.0), (1.0, 0.1))
_MANIFOLD_C = 1000.0
_MANIFOLD_FACTORS = (1.0, 3.0)  # of the median width; 4 and more make functions too narrow
_ACCEPTED_Z = -1.0  # standard errors by which a candidate must beat the model that is returned if none does
_NEAR_BEST_Z = 1.0  # standard errors by which it may be worse than the best


class Candidate(NamedTuple):
    """Costs of the gaps and of the neighbors, as multiples of that of all labelled rows."""

    unlabeled_weight: float
    neighbor_weight: float


class Space(NamedTuple):
    """A kernel and the cost of a labelled row, and the candidates to try with them."""

    kernel: Kernel
    C: float
    candidates: tuple[Candidate, ...]


def spaces_of(kernel: Kernel, C: float, rows: Rows, seed: int, gaps: Any, neighbors: Any) -> list[Space]:
    """The spaces to try: with the given kernel and cost, and with those for rows on manifolds.

    `gaps` and `neighbors` are ``"auto"`` or a weight that is fixed.
    """
    spaces = [Space(kernel, C, _candidates(_TUNED, gaps, neighbors))]
    manifold = _candidates(_MANIFOLD, gaps, neighbors)
    if any(candidate.neighbor_weight > 0 for candidate in manifold):
        median = replace(kernel, gamma="median").resolve(rows, seed=seed)
        spaces += [Space(replace(median, gamma=f * median.width), _MANIFOLD_C, manifold) for f in _MANIFOLD_FACTORS]
    return [space for space in spaces if space.candidates]


def _candidates(pairs: tuple[tuple[float, float], ...], gaps: Any, neighbors: Any) -> tuple[Candidate, ...]:
    """Each pair once, with fixed weights in place of what would be tried."""
    fixed = (
        Candidate(r if gaps == "auto" else float(gaps), g if neighbors == "auto" else float(neighbors))
        for r, g in pairs
    )
    return tuple(dict.fromkeys(candidate for candidate in fixed if any(candidate)))


def select(codes: Array, supervised: Array, held_out: Array, shares: Array, labeled_shares: Array) -> Array:
    """The candidates that beat the supervised solution by a standard error, row by row, and are near the best of them.

    `supervised` ``(n, K)`` and `held_out` ``(candidates, n, K)`` are scores of labelled rows by models trained without
    them. `shares` are the classes' shares of the unlabelled rows, by the supervised solution and by each candidate. A
    candidate that moves one out of the interval (two standard errors) around its labelled share is not accepted.
    """
    base = brier_losses(codes, supervised)
    losses = np.array([brier_losses(codes, scores) for scores in held_out])
    z = _standard_errors(losses - base)
    accepted = (z <= _ACCEPTED_Z) & _keep_shares(shares, labeled_shares, len(codes))
    if accepted.any():
        best = np.flatnonzero(accepted)[losses[accepted].mean(axis=1).argmin()]
        accepted &= _standard_errors(losses - losses[best]) <= _NEAR_BEST_Z
    return accepted


def _standard_errors(differences: Array) -> Array:
    """The mean of each row of differences, divided by its standard error."""
    n = differences.shape[1]
    return differences.mean(axis=1) / (differences.std(axis=1, ddof=1) / np.sqrt(n) + 1e-12)


def _keep_shares(shares: Array, labeled: Array, n: int) -> Array:
    """Which candidates keep every class's share in its interval, or about as near to it as the supervised solution."""
    error = np.sqrt((labeled * (1 - labeled) + 1 / n) / n)
    low, high = np.minimum(labeled - 2 * error, shares[0] - error), np.maximum(labeled + 2 * error, shares[0] + error)
    return ((shares[1:] >= low) & (shares[1:] <= high)).all(axis=1)


def class_shares(scores: Array, n_classes: int) -> Array:
    """The fraction of the rows that each class is predicted for."""
    return np.bincount(predicted_codes(scores), minlength=n_classes) / len(scores)

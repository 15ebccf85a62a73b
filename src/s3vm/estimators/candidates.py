"""Candidates of what unlabelled rows may know, and which of them labelled rows held out confirm.

Four kinds of knowledge compete with the supervised solution: *gaps* between the rows, where a boundary may run;
*neighbors*, rows that lie close together along the data and mostly share a class; the few *directions* in which the
rows vary; and the *columns* along which the supervised solution changes. Where neighbors regularise, the norm steps
back: labelled rows are fitted hard, in a kernel of the data's own width.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2

from s3vm._utils.scores import brier_losses, predicted_codes
from s3vm._utils.typing import Array, Rows
from s3vm.estimators.safety import standard_errors
from s3vm.kernels import Kernel
from s3vm.problem.projection import project

_TUNED = ((0.3, 0.0), (1.0, 0.0), (0.0, 1.0), (0.3, 1.0), (1.0, 1.0))
_MANIFOLD = ((0.0, 0.1), (0.0, 1.0), (0.1, 1.0), (1.0, 1.0), (1.0, 0.1))
_SPREAD = ((0.0, 0.1, True), (1.0, 0.1, True))  # at the largest factor only
_MANIFOLD_C = 1000.0
_MANIFOLD_FACTORS = (1.0, 3.0)  # of the median width; 4 and more make functions too narrow
_ACCEPTED_Z = -1.0  # standard errors by which a candidate must beat the model that is returned if none does
_NEAR_BEST_Z = 1.0  # standard errors by which it may be worse than the best
_CONTRADICTED = 0.1  # probability of the labels' counts below which classes do not count as equally frequent
_HOPELESS_Z = 2.0  # standard errors by which a candidate without gaps is so far behind that gaps are not tried


class Candidate(NamedTuple):
    """Costs of the gaps and of the neighbors, as multiples of that of all labelled rows.

    With `spreads`, the labels are first spread over the graph: f starts as the function nearest to what reaches each
    row, and without gaps it stays there.
    """

    unlabeled_weight: float
    neighbor_weight: float
    spreads: bool = False


class Representation(NamedTuple):
    """How a kernel sees the rows, and the cost of a labelled row that suits it.

    A projection that was learnt from labels is learnt again by `relearn`, from a mask of labelled rows, before it is
    judged on others.
    """

    kernel: Kernel
    C: float
    projection: Array | None = None
    relearn: Callable[[Array], Array] | None = None


class Space(NamedTuple):
    """A representation, and the candidates to try in it."""

    representation: Representation
    candidates: tuple[Candidate, ...]

    def only(self, taken: Array) -> "Space":
        """The space with some of its candidates."""
        pairs = zip(self.candidates, taken, strict=True)
        return self._replace(candidates=tuple(candidate for candidate, is_taken in pairs if is_taken))


def spaces_of(
    representations: tuple[Representation, ...], kernel: Kernel, rows: Rows, seed: int, gaps: Any, neighbors: Any
) -> list[Space]:
    """The spaces to try: every representation as it is, and with the kernel and cost that suit rows on manifolds.

    The first representation is that of the supervised solution; columns are weighted only there. Manifolds
    are looked at in `kernel`. `gaps` and `neighbors` are ``"auto"`` or a weight that is fixed.
    """
    plain = Candidate(0.0, 0.0)
    tuned, manifold, spread = (_candidates(pairs, gaps, neighbors) for pairs in (_TUNED, _MANIFOLD, _SPREAD))
    spaces = []
    for given in representations:
        others = [candidate for candidate in tuned if candidate != plain]
        spaces.append(Space(given, tuple(others) if given is representations[0] else (plain, *others)))
        if any(candidate.neighbor_weight > 0 for candidate in manifold):
            projection = given.projection if given.projection is not None and given.projection.ndim == 2 else None
            median = replace(kernel, gamma="median").resolve(project(rows, projection), seed=seed)
            for factor in _MANIFOLD_FACTORS:
                wide = Representation(replace(median, gamma=factor * median.width), _MANIFOLD_C, projection)
                spaces.append(Space(wide, manifold + spread * (factor == _MANIFOLD_FACTORS[-1])))
    return [space for space in spaces if space.candidates]


def _candidates(pairs: tuple[tuple[Any, ...], ...], gaps: Any, neighbors: Any) -> tuple[Candidate, ...]:
    """Each pair once, with fixed weights in place of what would be tried."""
    fixed = (
        Candidate(r if gaps == "auto" else float(gaps), g if neighbors == "auto" else float(neighbors), *spreads)
        for r, g, *spreads in pairs
    )
    return tuple(dict.fromkeys(fixed))


def promising(losses: Array) -> Array:
    """Which candidates are not hopelessly behind the best, by their Brier losses ``(candidates, n)`` before gaps."""
    best = losses[losses.mean(axis=1).argmin()]
    return standard_errors(losses - best) <= _HOPELESS_Z


def select(
    codes: Array, supervised: Array, held_out: Array, shares: Array, labeled_shares: Array, groups: Array | None = None
) -> Array:
    """The candidates that beat the supervised solution by a standard error, row by row, and are near the best of them.

    `supervised` ``(n, K)`` and `held_out` ``(candidates, n, K)`` are scores of labelled rows by models trained without
    them. `shares` are the classes' shares of the unlabelled rows, by the supervised solution and by each candidate. A
    candidate that moves one out of the interval (two standard errors) around its labelled share is not accepted, nor
    one that knows less of the rows held out than the classes' shares do.
    """
    base = brier_losses(codes, supervised)
    losses = np.array([brier_losses(codes, scores) for scores in held_out])
    z = standard_errors(losses - base, groups)
    ignorant = (1 - np.sum((np.bincount(codes) / len(codes)) ** 2)) / 2  # the loss of the class shares as probabilities
    accepted = (z <= _ACCEPTED_Z) & (losses.mean(axis=1) <= ignorant)
    accepted &= _keep_shares(shares, labeled_shares, len(codes))
    if accepted.any():
        best = np.flatnonzero(accepted)[losses[accepted].mean(axis=1).argmin()]
        accepted &= standard_errors(losses - losses[best], groups) <= _NEAR_BEST_Z
    return accepted


def _keep_shares(shares: Array, labeled: Array, n: int) -> Array:
    """Which candidates keep every class's share in its interval, or about as near to it as the supervised solution."""
    likely = np.array([labeled, likely_shares(labeled * n), shares[0]])
    error = np.sqrt((likely * (1 - likely) + 1 / n) / n) * np.array([[2], [2], [1]])
    low, high = (likely - error).min(axis=0), (likely + error).max(axis=0)
    return ((shares[1:] >= low) & (shares[1:] <= high)).all(axis=1)


def likely_shares(counts: Array) -> Array:
    """Class shares by the number of labels of each class: equal ones, unless the numbers contradict that."""
    n_classes, n = len(counts), counts.sum()
    chi_squared = ((counts - n / n_classes) ** 2).sum() * n_classes / n
    return np.full(n_classes, 1 / n_classes) if chi2.sf(chi_squared, n_classes - 1) > _CONTRADICTED else counts / n


def class_shares(scores: Array, n_classes: int) -> Array:
    """The fraction of the rows that each class is predicted for."""
    return np.bincount(predicted_codes(scores), minlength=n_classes) / len(scores)

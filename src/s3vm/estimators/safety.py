"""Whether the unlabelled rows help: a choice of their weight on held-out labelled rows, and its reasons."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from s3vm._utils.scores import brier_losses, measures
from s3vm._utils.settings import number
from s3vm._utils.typing import Array

FEW_LABELS = 40  # below, every labelled row is a fold of its own
FEWEST_TO_CHOOSE = 4
_UNCERTAIN, _UNCERTAIN_PER_CLASS = 30, 4  # labelled rows below which the choice is unreliable
# By how many standard errors the loss must fall: the fewer the rows, the less reliable a standard error.
_REQUIRED_Z = ((100, -0.5), (FEW_LABELS, -1.0), (0, -1.75))


@dataclass(frozen=True)
class Safety:
    """The weight that was chosen, and why. `print` it for a plain sentence.

    Attributes
    ----------
    weight : float
        The chosen weight of the unlabelled rows; 0 is the supervised solution.
    scores : dict of weight to dict
        For weight 0 and each weight tried, over held-out labelled rows: ``"error"``, ``"balanced_error"``,
        ``"average_precision"`` (two classes), ``"brier"``, and ``"z"``, by how many standard errors the Brier score
        differs from the supervised one.
    n_labeled : int
        Labelled rows that could be held out.
    uncertain : bool
        Whether they are too few for the choice to be trusted.
    sentence : str
    """

    weight: float
    scores: dict[float, dict[str, float]] = field(repr=False)
    n_labeled: int
    uncertain: bool
    sentence: str

    def __post_init__(self) -> None:
        """Checks what may come from an untrusted file."""
        kinds = (isinstance(self.scores, dict), type(self.n_labeled) is int, isinstance(self.sentence, str))
        if not all(kinds) or not np.isfinite(number(self.weight)):
            raise ValueError("a Safety needs a weight, scores, a number of rows and a sentence")
        errors = [number(scores.get(name)) for scores in self.scores.values() for name in ("error", "balanced_error")]
        if self.scores and (self.n_labeled < 1 or self.weight not in self.scores or 0 not in self.scores):
            raise ValueError("a Safety needs the scores of weight 0 and of the weight that was chosen")
        if not all(0 <= error <= 1 for error in errors):
            raise ValueError("the error rates of a Safety must lie in [0, 1]")

    @property
    def outcome(self) -> str:
        """What the unlabelled rows did to the held-out predictions, in a few words."""
        if not self.weight:
            return "did not help" if self.scores else "not used"
        change = change_text(self.scores[0.0]["error"], self.scores[self.weight]["error"])
        return {"fell": "helped", "stayed": "helped the probabilities"}.get(change.split()[0], "mixed")

    def __str__(self) -> str:
        return self.sentence


def choose(codes: Array, supervised: Array, held_out: dict[float, Array], groups: Array | None = None) -> Safety:
    """The largest weight whose held-out scores beat the supervised ones; 0 if none does.

    `supervised` and each of `held_out` are scores ``(n, K)`` of labelled rows by models trained without them; rows of
    NaN could not be held out. A weight is taken if the mean Brier loss falls by half a standard error of the
    difference, row by row (by more with fewer than 100 rows): error counts are coarser, and a hinge loss depends on
    the scale of the scores.
    """
    known = np.isfinite(supervised).all(axis=1)
    n_labeled = int(known.sum())
    codes, supervised = codes[known], supervised[known]
    groups = None if groups is None else groups[known]
    if n_labeled < FEWEST_TO_CHOOSE or not held_out:
        return undecided(n_labeled)
    base = brier_losses(codes, supervised)
    by_weight = {0.0: supervised} | {weight: all_scores[known] for weight, all_scores in held_out.items()}
    scores = {weight: _measures(codes, some, base, groups) for weight, some in by_weight.items()}
    good = [weight for weight in held_out if scores[weight]["z"] <= required_z(n_labeled)]
    chosen = max(good, default=0.0)
    return _decided(chosen, scores, codes, "unlabelled rows", f"them with weight {chosen:g}")


def undecided(n_labeled: int) -> Safety:
    """The supervised solution, since there are too few labelled rows to choose by."""
    sentence = "too few labelled rows to tell whether unlabelled rows help; using the supervised solution"
    return Safety(0.0, {}, n_labeled, True, sentence)


def safety_of(
    codes: Array,
    supervised: Array,
    averaged: Array | None = None,
    weights: Sequence[float] = (),
    causes: Sequence[str] = (),
    groups: Array | None = None,
) -> Safety:
    """The reasons of a choice among candidates: scores of labelled rows held out, before and after.

    `weights` of gaps and neighbors are those of the candidates accepted, and `causes` what they know.
    """
    base = brier_losses(codes, supervised)
    scores = {0.0: _measures(codes, supervised, base, groups)}
    if averaged is None:
        return _decided(0.0, scores, codes)
    weight = max(weights) or 1.0  # directions alone have no weight
    scores[weight] = _measures(codes, averaged, base, groups)
    *others, last = causes
    cause = f"{', '.join(others)} and {last}" if others else last
    n = len(weights)
    used = f"the average of {n} candidates" if n > 1 else "one candidate"
    return _decided(weight, scores, codes, f"{cause} of the unlabelled rows", used)


def _decided(
    weight: float, scores: dict[float, dict[str, float]], codes: Array, cause: str = "", used: str = ""
) -> Safety:
    """The choice of a weight: `cause` is what lowered the Brier score, and `used` what the model consists of."""
    before, after = scores[0.0], scores[weight]
    sentence = "unlabelled rows did not clearly lower the cross-validated Brier score; using the supervised solution"
    if weight:
        sentence = f"{cause} {_changes(before, after)}; using {used}"
    n_labeled, counts = len(codes), np.bincount(codes)
    uncertain = n_labeled < max(_UNCERTAIN, _UNCERTAIN_PER_CLASS * int(np.count_nonzero(counts)))
    if uncertain:
        sentence += f". With only {n_labeled} labelled rows to hold out, this choice is uncertain"
    return Safety(weight, scores, n_labeled, uncertain, sentence)


def _changes(before: dict[str, float], after: dict[str, float]) -> str:
    """What became better, what stayed and what became worse, in words that agree with the numbers as printed."""
    brier = f"Brier score from {before['brier']:.4f} to {after['brier']:.4f}"
    error, balanced = (change_text(before[name], after[name]) for name in ("error", "balanced_error"))
    if error.startswith("fell"):
        text = f"lowered the cross-validated error {error.removeprefix('fell ')} and the {brier}"
    else:
        text = f"lowered the cross-validated {brier}, while the error {error}"
    return f"{text}, but the balanced error {balanced}" if balanced.startswith("rose") else text


def change_text(before: float, after: float) -> str:
    """How an error rate changed, as printed: "fell from 3.0% to 2.0%", "rose from …" or "stayed at 3.0%"."""
    old, new = f"{before:.1%}", f"{after:.1%}"
    return f"stayed at {old}" if old == new else f"{'fell' if after < before else 'rose'} from {old} to {new}"


def required_z(n_labeled: int) -> float:
    """By how many standard errors the Brier loss of so many rows must change: a negative number."""
    return next(z for least, z in _REQUIRED_Z if n_labeled >= least)


def standard_errors(differences: Array, groups: Array | None = None) -> Array:
    """The mean of the differences of all rows, the last axis, divided by its standard error.

    Rows of one group may be alike, so their sum counts as one observation.
    """
    n = differences.shape[-1]
    mean = differences.mean(axis=-1, keepdims=True)
    errors = differences - mean
    if groups is not None:
        errors = errors @ (groups[:, None] == np.unique(groups))
    n_units = errors.shape[-1]
    spread = np.sqrt((errors**2).sum(axis=-1) * n_units / max(n_units - 1, 1)) / n
    return mean[..., 0] / (spread + 1e-12)


def _measures(codes: Array, scores: Array, base: Array, groups: Array | None) -> dict[str, float]:
    """The measures of a `Safety`; `base` are the Brier losses of the supervised solution."""
    losses = brier_losses(codes, scores)
    z = float(standard_errors(losses - base, groups))
    return {"brier": float(losses.mean()), **measures(codes, scores), "z": z}

"""How the page writes numbers."""

from collections.abc import Iterable, Sequence

import numpy as np

from experiments.report.claims import Difference, Race

__all__ = ["mean_points", "points", "races", "slopes", "table", "times", "word"]


def word(k: int, n: int) -> str:
    """A verdict on a claim that holds in k of n cases."""
    if not n:
        return "**not run**"
    return "**yes**" if k == n else "**mostly**" if k >= 0.75 * n else "**partly**" if k else "**no**"


def times(ratios: Sequence[float]) -> str:
    low, high = min(ratios), max(ratios)
    return f"{np.median(ratios):.2g}× ({low:.2g} to {high:.2g})"


def races(found: Sequence[Race]) -> str:
    """How many races are won, the ratios of seconds, and how many rivals have been run."""
    if not found:
        return "–"
    n_won, n_rivals = sum(race.ratio < 1 for race in found), sorted({race.n_run for race in found})
    rivals = f"{n_rivals[0]}" + (f" to {n_rivals[-1]}" if len(n_rivals) > 1 else "")
    return f"{n_won} of {len(found)}, {times([race.ratio for race in found])} [{rivals}]"


def points(difference: Difference) -> str:
    return f"{100 * difference.mean:+.2f} ± {100 * difference.error:.2f}"


def mean_points(differences: Iterable[Difference]) -> str:
    """The mean over sets, and its standard error."""
    means = np.array([100 * difference.mean for difference in differences])
    if not len(means):
        return "–"
    spread = f" ± {means.std(ddof=1) / len(means) ** 0.5:.2f}" if len(means) > 1 else ""
    return f"{means.mean():+.2f}{spread}"


def slopes(values: Sequence[float]) -> str:
    return f"{np.median(values):.2f} ({min(values):.1f} to {max(values):.1f})" if values else "–"


def table(heading: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [heading, ["---"] * len(heading), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)

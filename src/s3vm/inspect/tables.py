"""Tables about classifiers, as columns of text: the same in the terminal and in reports."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_MOST_CLASSES = 5  # with more, confusions are listed
_MOST_LISTED = 6
_MEASURES = {
    "error": ("error", ".1%"),
    "balanced_error": ("balanced error", ".1%"),
    "average_precision": ("average precision", ".1%"),
    "brier": ("Brier score", ".4f"),
    "z": ("change in s.e.", "+.1f"),
}


def percent(fraction: float) -> str:
    """The fraction in percent, a dash if it is NaN."""
    if fraction != fraction:
        return "–"
    return f"{fraction:.2%}" if 0 < fraction < 0.01 else f"{fraction:.1%}"


def listed(names: Sequence[Any]) -> str:
    """The first few of these names, and how many more there are."""
    more = len(names) - _MOST_LISTED
    return ", ".join(map(str, names[:_MOST_LISTED])) + (f" and {more:,} more" if more > 0 else "")


def is_numeric(column: Iterable[Any]) -> bool:
    """Whether all cells are numbers, perhaps with units, or empty: such columns are right-aligned."""
    return all(cell in (None, "", "–") or re.fullmatch(r"(\* )?([-+−]?\d[^()]*|nan|inf)", str(cell)) for cell in column)


def starred(text: str, is_chosen: Any) -> str:
    return f"* {text}" if is_chosen else text


def confusion_columns(measures: Mapping[str, Any], rows: str = "rows") -> dict[str, list[str]]:
    """Recall and precision of each class, and which classes are confused: the matrix, or a list if they are many."""
    names, counts = list(map(str, measures["classes"])), measures["confusion"]
    columns = {"class": names, rows: [f"{entry['rows']:,}" for entry in measures["classes"].values()]}
    for key in ("recall", "precision"):
        columns[key] = [percent(entry[key]) for entry in measures["classes"].values()]
    if len(names) <= _MOST_CLASSES:
        return columns | {f"as {name}": [f"{row[k]:,}" for row in counts] for k, name in enumerate(names)}
    mistaken = []
    for k, row in enumerate(counts):
        others = sorted((j for j in range(len(names)) if j != k and row[j]), key=lambda j: -row[j])
        mistaken.append(listed([f"{names[j]} ({row[j]:,})" for j in others]))
    return columns | {"mistaken for": mistaken}


def weight_columns(scores: Mapping[float, Mapping[str, float]], chosen: Any) -> dict[str, list[str]]:
    """Held-out measures by weight of the unlabelled rows, with a star at the chosen one."""
    weights = sorted(scores)
    return {"weight": [starred(f"{weight:g}", weight == chosen) for weight in weights]} | {
        title: [format(scores[weight][name], form) for weight in weights]
        for name, (title, form) in _MEASURES.items()
        if all(name in entry for entry in scores.values())
    }


def comparison_columns(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Methods that were compared: outcomes of `s3vm compare`, a line each."""
    columns: dict[str, list[str]] = {
        name: [] for name in ("method", "error", "± s.e.", "vs. the SVM", "seconds", "remark")
    }
    for outcome in outcomes:
        cells = [outcome["method"], *[""] * 4, outcome.get("failed", "")]
        if "error" in outcome:
            cells[1:3] = percent(outcome["error"]), f"{100 * outcome['standard_error']:.1f}"
            cells[4:] = f"{outcome['seconds']:.2f}", "collapsed" * outcome["collapsed"]
        if "change" in outcome:
            cells[3] = f"{100 * outcome['change']:+.1f} ± {100 * outcome['change_standard_error']:.1f}"
        for column, cell in zip(columns.values(), cells, strict=True):
            column.append(cell)
    return {name: column for name, column in columns.items() if name != "remark" or any(column)}

"""Summaries of results for people, as text and tables."""

from collections.abc import Callable
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from s3vm.cli.console import file_size, grid, percent, seconds
from s3vm.cli.inputs import rare_classes

_MAX_NAMES = 6
_SCALES = {
    "each": "each number by its own spread",
    "common": "one scale for all numbers",
    "none": "none",
}
_MAX_CONFUSION_COLUMNS = 4  # with more classes, confusions are listed
_MIN_ROWS_FOR_SPEED = 10_000
_OF_A_CLASS = (("precision", "precision"), ("recall", "recall"), ("F1", "f1"))


def fit_summary(result: dict[str, Any]) -> list[RenderableType]:
    model, held_out, verdict, test = result["model"], result["held_out"], result["unlabeled"], result.get("test")
    tuned = f"  [dim]({' and '.join(model['tuned'])} tuned)[/dim]" if model["tuned"] else ""
    imbalanced = held_out is not None and rare_classes(result["data"]["classes"])
    facts: dict[str, RenderableType | None] = {
        "Learnt": f"{_function_text(model)}{tuned}",
        "Scaling": _scale_text(result["scale"]),
        "Projection": escape(model["projection"] or "") or None,
        "Held-out error": None if held_out is None else interval_text(held_out),
        "Balanced error": percent(held_out["balanced_error"]) if imbalanced else None,
        "Threshold": _threshold_text(result["threshold"]),
        "Unlabelled rows": _verdict_text(verdict),
        "Test error": None if test is None else f"{interval_text(test)}  [dim]{test['rows']:,} rows[/dim]",
        "Took": f"{seconds(result['seconds']['reading'])} to read, {seconds(result['seconds']['training'])} to train",
        "Model": f"{escape(model['file'])}  [dim]{file_size(model['bytes'])}[/dim]",
        "Report": escape(result["report"]) if "report" in result else None,
        "More labels": escape(result["more_labels"]["sentence"]) if result.get("more_labels") else None,
    }
    footnote = []
    if held_out is not None and test is None:
        chosen = [*model["tuned"], *(["the weight"] if verdict is not None else [])]
        text = f"Held-out: each of the {held_out['rows']:,} labelled rows was predicted by a model trained without it."
        if chosen:
            text += f" The same rows chose {_and(chosen)}, so this error is slightly optimistic; that of --test is not."
        footnote = [_footnote(text)]
    return [_headline(result["data"]), *(_columns_table(result["columns"]) or [Text()]), grid(facts), *footnote]


def tuning_summary(result: dict[str, Any]) -> list[RenderableType]:
    chosen = result["chosen"]
    tables = [] if result["grid"] is None else [_grid_table(result)]
    if result["widths"] is not None:
        table = plain_table("gamma", "Brier score", title="With unlabelled rows")
        for gamma, brier in sorted(zip(*result["widths"].values(), strict=True)):
            _add_candidate(table, gamma == chosen["gamma"], f"{gamma:.3g}", f"{brier:.4f}")
        tables.append(table)
    if result["weights"]:
        columns = ("error", "balanced error", "Brier score", "change in s.e.")
        table = plain_table("weight", *columns, title="Held-out measures by weight of the unlabelled rows")
        for weight, scores in sorted(result["weights"].items()):
            errors = percent(scores["error"]), percent(scores["balanced_error"])
            cells = f"{weight:g}", *errors, f"{scores['brier']:.4f}", f"{scores['z']:+.1f}"
            _add_candidate(table, weight == chosen["weight"], *cells)
        tables.append(table)
    held_out = result["held_out"]
    facts = {
        "Held-out error": None if held_out is None else interval_text(held_out),
        "To use it": f"s3vm fit {escape(result['data']['file'])} … {result['options']}",
    }
    spaced: list[RenderableType] = [part for table in tables for part in (Text(), table)]
    return [_headline(result["data"]), *spaced, Text(), grid(facts)]


def _add_candidate(table: Table, is_chosen: bool, first: str, *cells: str) -> None:
    table.add_row("* " * is_chosen + first, *cells, style="bold green" if is_chosen else None)


def _grid_table(result: dict[str, Any]) -> Table:
    """The errors of the supervised SVM by C and gamma, with a star at the chosen pair."""
    cells, chosen, widths = result["grid"], result["chosen"], result["widths"]
    columns = [f"{gamma:.3g}" for gamma in cells["gamma"]]
    table = plain_table("C", *columns, title="Supervised SVM, held-out error in %, by C and gamma")
    svm_gamma = chosen["gamma"] if widths is None else widths["gamma"][0]
    for C, errors in zip(cells["C"], cells["error"], strict=True):
        row = [f"{100 * error:.1f}" for error in errors]
        if chosen["C"] == C:
            at = min(range(len(row)), key=lambda k: abs(cells["gamma"][k] - svm_gamma))
            row[at] = f"[bold green]* {row[at]}[/]"
        table.add_row(f"{C:g}", *row)
    return table


def prediction_summary(result: dict[str, Any]) -> list[RenderableType]:
    n_rows, duration = result["rows"], result["seconds"]
    fractions = [f"{name} {count / n_rows:.1%}" for name, count in result["predicted"].items()]
    speed = f"{n_rows:,} rows in {seconds(duration)}"
    if n_rows >= _MIN_ROWS_FOR_SPEED:
        speed += f"  [dim]{n_rows / duration:,.0f} rows per second[/dim]"
    return [grid({"Predicted": speed, "Classes": _listed(fractions), "Written": escape(result["output"])})]


def evaluation_summary(result: dict[str, Any]) -> list[RenderableType]:
    measures = result["measures"]
    of_class = escape(str(result["positive"]["class"])) if result["positive"] else ""
    more = {"Area under ROC": "roc_auc", "Brier score": "brier"}
    facts = {
        "Error": interval_text(measures),
        "Balanced error": percent(measures["balanced_error"]),
        f"Class {of_class}": _class_text(result["positive"]) if result["positive"] else None,
        f"Average precision of {of_class}": (
            f"{measures['average_precision']:.4f}" if "average_precision" in measures else None
        ),
        **{title: f"{measures[key]:.4f}" if key in measures else None for title, key in more.items()},
    }
    skipped = f", {result['unlabeled']:,} without a label skipped" if result["unlabeled"] else ""
    head = Text.assemble((result["file"], "bold"), f"  {measures['rows']:,} rows{skipped}")
    return [head, Text(), grid(facts), _confusion_table(measures)]


def _confusion_table(measures: dict[str, Any]) -> Table:
    """Recall and precision per class, and which classes are confused."""
    names = [str(name) for name in measures["classes"]]
    has_columns = len(names) <= _MAX_CONFUSION_COLUMNS
    columns = [f"as {escape(name)}" for name in names] if has_columns else []
    table = plain_table("class", "rows", "recall", "precision", *columns)
    if not has_columns:
        table.add_column("mistaken for")
    for k, (facts, counts) in enumerate(zip(measures["classes"].values(), measures["confusion"], strict=True)):
        fractions = [percent(facts[key]) if facts[key] == facts[key] else "–" for key in ("recall", "precision")]
        if has_columns:
            confusions = [f"{n:,}" for n in counts]
        else:
            wrong = sorted((j for j in range(len(names)) if j != k and counts[j]), key=lambda j: -counts[j])
            confusions = [_listed([f"{names[j]} ({counts[j]:,})" for j in wrong])]
        table.add_row(escape(names[k]), f"{facts['rows']:,}", *fractions, *confusions)
    return table


def comparison_columns(outcomes: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The table of a comparison, a line per method."""

    def column(text: Callable[[dict[str, Any]], str], key: str = "error") -> list[str]:
        return [text(outcome) if key in outcome else "" for outcome in outcomes]

    remarks = [outcome.get("failed", "collapsed" * outcome.get("collapsed", False)) for outcome in outcomes]
    return {
        "method": [outcome["method"] for outcome in outcomes],
        "error": column(lambda entry: percent(entry["error"])),
        "± s.e.": column(lambda entry: f"{100 * entry['standard_error']:.1f}"),
        "vs. the SVM": column(
            lambda entry: f"{100 * entry['change']:+.1f} ± {100 * entry['change_standard_error']:.1f}", "change"
        ),
        "seconds": column(lambda entry: f"{entry['seconds']:.2f}"),
    } | ({"remark": remarks} if any(remarks) else {})


def comparison_summary(result: dict[str, Any]) -> list[RenderableType]:
    columns, outcomes = comparison_columns(result["methods"]), result["methods"]
    table = plain_table(*list(columns)[:5])
    if "remark" in columns:
        table.add_column("remark")
    least = min((outcome["error"] for outcome in outcomes if "error" in outcome), default=None)
    for outcome, cells in zip(outcomes, zip(*columns.values(), strict=True), strict=True):
        is_best = least is not None and outcome.get("error") == least
        table.add_row(*map(escape, cells), style="bold green" if is_best else None)
    data, used = result["data"], result["unlabeled_used"]
    note = (
        f"Tested on {result['rows']:,} rows ({result['judged_by']}). s3vm chooses C and gamma itself; those of the "
        "other SVMs were chosen before, and the seconds do not include this."
    )
    if used < data["unlabeled"]:
        note += f" {used:,} of {data['unlabeled']:,} unlabelled rows were used (--max-rows)."
    report: list[RenderableType] = [Text(), grid({"Report": escape(result["report"])})] if "report" in result else []
    advice = Padding(Text(result["advice"], style="bold"), (0, 2, 1, 2))
    return [_headline(data), table, advice, _footnote(note), *report]


def model_summary(result: dict[str, Any]) -> list[RenderableType]:
    model, names = result["model"], result["names"]
    held_out = result["held_out"]
    steps = "" if model["solver"] == "auto" else f"{model['iterations']:,} iterations, "
    versions = result["versions"] if isinstance(result["versions"], dict) else {}  # a damaged file may lack them
    facts = {
        "Function": _function_text(model),
        "Classes": _listed([str(name) for name in model["classes"]]),
        "Features": f"{model['dimensions']:,}" + (f"  [dim]{_listed(names)}[/dim]" if names else ""),
        "Projection": escape(model["projection"] or "") or None,
        "Scaling": _scale_text(result["scale"]),
        "Training": f"solver {escape(model['solver'])}, {steps}seed {result['seed']}",
        "Held-out error": None if held_out is None else interval_text(held_out),
        "Unlabelled rows": _verdict_text(result["unlabeled"]),
        "Compressed": None if result["compression"] is None else escape(result["compression"]),
        "Written by": escape(", ".join(f"{name} {version}" for name, version in versions.items())) or None,
    }
    head = Text.assemble((result["file"], "bold"), f"  {file_size(result['bytes'])}")
    return [head, Text(), grid(facts), *_columns_table(result["columns"])]


def _scale_text(scale: dict[str, Any]) -> str:
    """How numbers are scaled, and what the choice is based on."""
    chosen, briers = scale["chosen"], scale["brier"]
    score = f"  [dim]held-out Brier score {briers[chosen]:.3f}" if chosen in briers else ""
    others = [f"{_SCALES[name]} {brier:.3f}" for name, brier in briers.items() if name != chosen]
    return f"{_SCALES[chosen]}{score}{'; ' * bool(others)}{', '.join(others)}{'[/dim]' * bool(score)}"


def _columns_table(columns: dict[str, str] | None) -> list[RenderableType]:
    """What the columns became, those of the same fate in one line."""
    alike: dict[str, list[str]] = {}
    for name, outcome in (columns or {}).items():
        alike.setdefault(outcome, []).append(name)
    table = Table("columns", "became", box=box.SIMPLE_HEAD)
    for outcome, names in alike.items():
        table.add_row(_listed(names), escape(outcome))
    return [] if set(alike) <= {"a number"} else [table]


def interval_text(measures: dict[str, Any]) -> str:
    """An error with its interval."""
    interval = f"{percent(measures['low'])} to {percent(measures['high'])}"
    return f"{percent(measures['error'])}  [dim]95% interval {interval}[/dim]"


def plain_table(first: str, *columns: str, title: str | None = None) -> Table:
    """A table of numbers; the first column names the rows."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_style="bold", title_justify="left")
    table.add_column(first)
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _footnote(text: str) -> RenderableType:
    return Padding(Text(text, style="dim"), (0, 2))


def _headline(data: dict[str, Any]) -> RenderableType:
    total = data["labeled"]
    fractions = [f"{name} {count / total:.0%}" for name, count in data["classes"].items()]
    return Text.assemble(
        (data["file"], "bold"),
        f"  {data['rows']:,} rows × {data['features']:,} features, {total:,} labelled ({_listed(fractions)})",
    )


def _function_text(model: dict[str, Any]) -> str:
    parts = [f"{model['features']:,} random features"] * bool(model["features"])
    parts += [f"{model['centers']:,} rows as centres"] * bool(model["centers"])
    return f"{model['kernel']} kernel, gamma {model['gamma']:.3g}, C {model['C']:g}: {' and '.join(parts)}"


def _threshold_text(threshold: dict[str, Any] | None) -> str | None:
    if threshold is None:
        return None
    text = f"{threshold['value']:.3g}"
    if "class" not in threshold:
        return text
    return f"{text}: held-out {_class_text(threshold)} of class {escape(str(threshold['class']))}"


def _class_text(measures: dict[str, Any]) -> str:
    """Precision, recall and F1 of a class."""
    shares = (
        f"{name} {'–' if measures[key] != measures[key] else percent(measures[key])}" for name, key in _OF_A_CLASS
    )
    return ", ".join(shares)


def _verdict_text(verdict: dict[str, Any] | None) -> str | None:
    if verdict is None:
        return None
    color = "green" if verdict["outcome"].startswith("helped") else "yellow"
    return f"[{color}]{verdict['outcome']}[/]: {escape(verdict['verdict'])}"


def _listed(names: list[str]) -> str:
    more = len(names) - _MAX_NAMES
    return escape(", ".join(names[:_MAX_NAMES])) + (f" and {more:,} more" if more > 0 else "")


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]

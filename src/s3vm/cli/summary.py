"""Summaries of results for people, as text and tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.filesize import decimal
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from s3vm.cli.console import grid, seconds
from s3vm.cli.inputs import rare_classes
from s3vm.inspect import tables
from s3vm.inspect.tables import listed, percent, starred

_SCALES = {"each": "each number by its own spread", "common": "one scale for all numbers", "none": "none"}


def fit_summary(result: dict[str, Any]) -> list[RenderableType]:
    held_out, tuned, test = result["held_out"], result["model"]["tuned"], result.get("test")
    took = result["seconds"]
    facts = _model_facts(result) | {
        "Test error": test and f"{interval_text(test)}  [dim]{test['rows']:,} rows[/dim]",
        "Took": f"{seconds(took['reading'])} to read, {seconds(took['training'])} to train",
        "Model": f"{escape(result['model']['file'])}  [dim]{decimal(result['model']['bytes'])}[/dim]",
        "Report": escape(result.get("report", "")),
        "More labels": escape((result.get("more_labels") or {}).get("sentence", "")),
    }
    footnote = []
    if held_out is not None and test is None:
        chosen = [*tuned, *(["the weight"] if result["unlabeled"] is not None else [])]
        text = f"Held-out: each of the {held_out['rows']:,} labelled rows was predicted by a model trained without it."
        if chosen:
            names = " and ".join(filter(None, [", ".join(chosen[:-1]), chosen[-1]]))
            text += f" The same rows chose {names}, so this error is slightly optimistic; that of --test is not."
        footnote = [_footnote(text)]
    return [_headline(result["data"]), *(_plan_table(result["columns"]) or [Text()]), grid(facts), *footnote]


def model_summary(result: dict[str, Any]) -> list[RenderableType]:
    model, names = result["model"], result["names"]
    steps = "" if model["solver"] == "auto" else f"{model['iterations']:,} iterations, "
    versions = result["versions"] if isinstance(result["versions"], dict) else {}  # a damaged file may lack them
    facts = {
        "Classes": escape(listed(model["classes"])),
        "Features": f"{model['dimensions']:,}" + (f"  [dim]{escape(listed(names))}[/dim]" if names else ""),
        **_model_facts(result),
        "Training": f"solver {escape(model['solver'])}, {steps}seed {result['seed']}",
        "Compressed": escape(result["compression"] or ""),
        "Written by": escape(", ".join(f"{name} {version}" for name, version in versions.items())),
    }
    head = Text.assemble((result["file"], "bold"), f"  {decimal(result['bytes'])}")
    return [head, Text(), grid(facts), *_plan_table(result["columns"])]


def _model_facts(result: dict[str, Any]) -> dict[str, str]:
    """What was learnt, and how good it is."""
    model, held_out, verdict = result["model"], result["held_out"], result["unlabeled"]
    tuned = f"  [dim]({' and '.join(model['tuned'])} tuned)[/dim]" if model.get("tuned") else ""
    facts = {
        "Learnt": f"{_function_text(model)}{tuned}",
        "Scaling": _scale_text(result["scale"]),
        "Projection": escape(model["projection"] or ""),
    }
    if held_out is not None:
        before = ", with threshold 0" if model["threshold"] and "threshold" not in result else ""
        facts["Held-out error"] = f"{interval_text(held_out)}[dim]{before}[/dim]"
        if rare_classes(result.get("data", {}).get("classes", {})):
            facts["Balanced error"] = percent(held_out["balanced_error"])
    if model["threshold"]:
        reached = result.get("threshold", {})
        known = (
            f": held-out {_class_text(reached)} of class {escape(str(reached['class']))}" if "class" in reached else ""
        )
        facts["Threshold"] = f"{model['threshold']:.3g}{known}"
    if verdict is not None:
        color = "green" if verdict["outcome"].startswith("helped") else "yellow"
        facts["Unlabelled rows"] = f"[{color}]{verdict['outcome']}[/]: {escape(verdict['verdict'])}"
    return facts


def tuning_summary(result: dict[str, Any]) -> list[RenderableType]:
    chosen, widths, held_out = result["chosen"], result["widths"], result["held_out"]
    shown = [] if result["grid"] is None else [_grid_table(result)]
    if widths is not None:
        pairs = sorted(zip(*widths.values(), strict=True))
        columns = {
            "gamma": [starred(f"{gamma:.3g}", gamma == chosen["gamma"]) for gamma, _ in pairs],
            "Brier score": [f"{brier:.4f}" for _, brier in pairs],
        }
        shown.append(table_of(columns, "With unlabelled rows"))
    if result["weights"]:
        columns = tables.weight_columns(result["weights"], chosen["weight"])
        shown.append(table_of(columns, "Held-out measures by weight of the unlabelled rows"))
    facts = {
        "Held-out error": held_out and interval_text(held_out),
        "To use it": f"s3vm fit {escape(result['data']['file'])} … {result['options']}",
    }
    spaced: list[RenderableType] = [part for table in shown for part in (Text(), table)]
    return [_headline(result["data"]), *spaced, Text(), grid(facts)]


def _grid_table(result: dict[str, Any]) -> Table:
    """The errors of the supervised SVM by C and gamma, with a star at the chosen pair."""
    cells, chosen, widths = result["grid"], result["chosen"], result["widths"]
    svm_gamma = chosen["gamma"] if widths is None else widths["gamma"][0]
    nearest = min(cells["gamma"], key=lambda gamma: abs(gamma - svm_gamma))
    columns = {"C": [f"{C:g}" for C in cells["C"]]}
    for gamma, errors in zip(cells["gamma"], zip(*cells["error"], strict=True), strict=True):
        columns[f"{gamma:.3g}"] = [
            starred(f"{100 * error:.1f}", chosen["C"] == C and gamma == nearest)
            for C, error in zip(cells["C"], errors, strict=True)
        ]
    return table_of(columns, "Supervised SVM, held-out error in %, by C and gamma")


def prediction_summary(result: dict[str, Any]) -> list[RenderableType]:
    n_rows = result["rows"]
    fractions = [f"{name} {count / n_rows:.1%}" for name, count in result["predicted"].items()]
    facts = {
        "Predicted": f"{n_rows:,} rows in {seconds(result['seconds'])}",
        "Classes": escape(listed(fractions)),
        "Written": escape(result["output"]),
    }
    return [grid(facts)]


def export_summary(result: dict[str, Any]) -> list[RenderableType]:
    written = f"{escape(result['output'])}  [dim]{decimal(result['bytes'])}[/dim]"
    return [grid({"Written": written, "Smaller": escape(result.get("compression", ""))})]


def suggestion_summary(result: dict[str, Any]) -> list[RenderableType]:
    suggested = f"{len(result['rows']):,} of {result['unlabeled']:,} rows without a label"
    return [grid({"Suggested": suggested, "Written": escape(result["output"])})]


def evaluation_summary(result: dict[str, Any]) -> list[RenderableType]:
    measures, positive = result["measures"], result["positive"]
    facts = {"Error": interval_text(measures), "Balanced error": percent(measures["balanced_error"])}
    more = {"Area under ROC": "roc_auc", "Brier score": "brier"}
    if positive is not None:
        of_class = escape(str(positive["class"]))
        facts[f"Class {of_class}"] = _class_text(positive)
        more = {f"Average precision of class {of_class}": "average_precision"} | more
    facts |= {title: f"{measures[key]:.4f}" for title, key in more.items() if key in measures}
    skipped = f", {result['unlabeled']:,} without a label skipped" if result["unlabeled"] else ""
    head = Text.assemble((result["file"], "bold"), f"  {measures['rows']:,} rows{skipped}")
    return [head, Text(), grid(facts), table_of(tables.confusion_columns(measures))]


def comparison_summary(result: dict[str, Any]) -> list[RenderableType]:
    errors = {at: outcome["error"] for at, outcome in enumerate(result["methods"]) if "error" in outcome}
    best = min(errors, key=lambda at: errors[at], default=None)
    data, used = result["data"], result["unlabeled_used"]
    note = (
        f"Tested on {result['rows']:,} rows ({result['judged_by']}). s3vm chooses C and gamma itself; those of the "
        "other SVMs were chosen before, and the seconds do not include this."
    )
    if used < data["unlabeled"]:
        note += f" {used:,} of {data['unlabeled']:,} unlabelled rows were used (--max-rows)."
    report: list[RenderableType] = [Text(), grid({"Report": escape(result["report"])})] if "report" in result else []
    advice = Padding(Text(result["advice"], style="bold"), (0, 2, 1, 2))
    table = table_of(tables.comparison_columns(result["methods"]), best=best)
    return [_headline(data), table, advice, _footnote(note), *report]


def _scale_text(scale: dict[str, Any]) -> str:
    """How numbers are scaled, and what the choice is based on."""
    chosen, briers = scale["chosen"], scale["brier"]
    score = f"  [dim]held-out Brier score {briers[chosen]:.3f}" if chosen in briers else ""
    others = [f"{_SCALES[name]} {brier:.3f}" for name, brier in briers.items() if name != chosen]
    return f"{_SCALES[chosen]}{score}{'; ' * bool(others)}{', '.join(others)}{'[/dim]' * bool(score)}"


def _plan_table(columns: dict[str, str] | None) -> list[RenderableType]:
    """What the columns became, those of the same fate in one line."""
    alike: dict[str, list[str]] = {}
    for name, outcome in (columns or {}).items():
        alike.setdefault(outcome, []).append(name)
    plan = {"columns": list(map(listed, alike.values())), "became": list(alike)}
    return [] if set(alike) <= {"a number"} else [table_of(plan)]


def interval_text(measures: dict[str, Any]) -> str:
    """An error with its interval."""
    interval = f"{percent(measures['low'])} to {percent(measures['high'])}"
    return f"{percent(measures['error'])}  [dim]95% interval {interval}[/dim]"


def table_of(columns: Mapping[str, Sequence[str]], title: str | None = None, best: int | None = None) -> Table:
    """A table of text, with numbers on the right; the row `best` stands out."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_style="bold", title_justify="left")
    for at, (name, cells) in enumerate(columns.items()):
        table.add_column(escape(name), justify="right" if at and tables.is_numeric(cells) else "left")
    for number, row in enumerate(zip(*columns.values(), strict=True)):
        table.add_row(*map(escape, row), style="bold green" if number == best else None)
    return table


def _footnote(text: str) -> RenderableType:
    return Padding(Text(text, style="dim"), (0, 2))


def _headline(data: dict[str, Any]) -> RenderableType:
    total = data["labeled"]
    fractions = [f"{name} {count / total:.0%}" for name, count in data["classes"].items()]
    return Text.assemble(
        (data["file"], "bold"),
        f"  {data['rows']:,} rows × {data['features']:,} features, {total:,} labelled ({listed(fractions)})",
    )


def _function_text(model: dict[str, Any]) -> str:
    parts = [f"{model['features']:,} random features"] * bool(model["features"])
    parts += [f"{model['centers']:,} rows as centres"] * bool(model["centers"])
    return f"{model['kernel']} kernel, gamma {model['gamma']:.3g}, C {model['C']:g}: {' and '.join(parts)}"


def _class_text(measures: dict[str, Any]) -> str:
    """Precision, recall and F1 of a class."""
    return ", ".join(f"{name} {percent(measures[name.lower()])}" for name in ("precision", "recall", "F1"))

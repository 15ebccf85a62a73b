"""Results in words and tables."""

from typing import Any

from rich import box
from rich.console import RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from s3vm.cli.console import bytes_of, grid, percent, seconds
from s3vm.cli.inputs import skewed

__all__ = [
    "interval_text",
    "of_comparison",
    "of_evaluation",
    "of_model",
    "of_predictions",
    "of_tuning",
    "plain_table",
    "write_report",
]

_MOST_CLASSES = 6
_MOST_CROSSED = 4  # classes that have a column each
_WORTH_A_SPEED = 10_000  # rows


def write_report(result: dict[str, Any]) -> list[RenderableType]:
    model, found, verdict, test = result["model"], result["held_out"], result["unlabelled"], result.get("test")
    tuned = f"  [dim]({' and '.join(result['model']['tuned'])} tuned)[/dim]" if result["model"]["tuned"] else ""
    facts: dict[str, RenderableType | None] = {
        "Learnt": f"{_function(model)}{tuned}",
        "Held-out error": None if found is None else interval_text(found),
        "Balanced error": percent(found["balanced_error"]) if found and skewed(result["data"]["classes"]) else None,
        "Unlabelled rows": _verdict(verdict, found),
        "Test error": None if test is None else f"{interval_text(test)}  [dim]{test['rows']:,} rows[/dim]",
        "Took": f"{seconds(result['seconds']['reading'])} to read, {seconds(result['seconds']['training'])} to train",
        "Model": f"{escape(model['file'])}  [dim]{bytes_of(model['bytes'])}[/dim]",
        "Report": escape(result["report"]) if "report" in result else None,
    }
    after = []
    if found is not None and test is None:
        chosen = [*result["model"]["tuned"], *(["the weight"] if verdict is not None else [])]
        text = f"Held-out: each of {found['rows']:,} labelled rows was judged by a model that had not seen it."
        if chosen:
            text += f" These rows chose {_and(chosen)}, too, so that the error is a little flattering; --test is not."
        after = [_aside(text)]
    return [_headline(result["data"]), Text(), grid(facts), *after]


def of_tuning(result: dict[str, Any]) -> list[RenderableType]:
    shown: list[RenderableType] = [_headline(result["data"])]
    cells = result["grid"]
    if cells is not None:
        table = plain_table("C", *[f"{gamma:.3g}" for gamma in cells["gamma"]])
        table.title = "Supervised SVM, held-out error in %, by C and gamma"
        chosen, widths = result["chosen"], result["widths"]
        best = chosen["gamma"] if widths is None else widths["gamma"][0]  # of the SVM
        for C, errors in zip(cells["C"], cells["error"], strict=True):
            row = [f"{100 * error:.1f}" for error in errors]
            if chosen["C"] == C:
                at = min(range(len(row)), key=lambda k: abs(cells["gamma"][k] - best))
                row[at] = f"[bold green]* {row[at]}[/]"
            table.add_row(f"{C:g}", *row)
        shown += [Text(), table]
    if result["widths"] is not None:
        table = plain_table("gamma", "Brier score")
        table.title = "With unlabelled rows in place"
        for gamma, brier in sorted(zip(*result["widths"].values(), strict=True)):
            is_chosen = gamma == result["chosen"]["gamma"]
            table.add_row(f"{'* ' * is_chosen}{gamma:.3g}", f"{brier:.4f}", style="bold green" if is_chosen else None)
        shown += [Text(), table]
    if result["weights"]:
        table = plain_table("weight", "error", "balanced error", "Brier score", "change in s.e.")
        table.title = "Held-out measures by weight of the unlabelled rows"
        for weight, scores in sorted(result["weights"].items()):
            is_chosen = weight == result["chosen"]["weight"]
            table.add_row(
                f"{'* ' * is_chosen}{weight:g}",
                percent(scores["error"]),
                percent(scores["balanced_error"]),
                f"{scores['brier']:.4f}",
                f"{scores['z']:+.1f}",
                style="bold green" if is_chosen else None,
            )
        shown += [Text(), table]
    found = result["held_out"]
    facts = {
        "Held-out error": None if found is None else interval_text(found),
        "To use it": f"s3vm fit {escape(result['data']['file'])} … {result['options']}",
    }
    return [*shown, Text(), grid(facts)]


def of_predictions(result: dict[str, Any]) -> list[RenderableType]:
    n_rows, duration = result["rows"], result["seconds"]
    shares = [f"{name} {count / n_rows:.1%}" for name, count in result["predicted"].items()]
    speed = f"{n_rows:,} rows in {seconds(duration)}"
    if n_rows >= _WORTH_A_SPEED:
        speed += f"  [dim]{n_rows / duration:,.0f} rows a second[/dim]"
    return [grid({"Predicted": speed, "Classes": _listed(shares), "Written": escape(result["output"])})]


def of_evaluation(result: dict[str, Any]) -> list[RenderableType]:
    found = result["measures"]
    names = [str(name) for name in found["classes"]]
    crossed = len(names) <= _MOST_CROSSED
    columns = [f"as {escape(name)}" for name in names] if crossed else []
    table = plain_table("class", "rows", "found", "right when said", *columns)
    if not crossed:
        table.add_column("taken for")
    for k, (facts, counts) in enumerate(zip(found["classes"].values(), found["confusion"], strict=True)):
        shares = [percent(facts[key]) if facts[key] == facts[key] else "–" for key in ("recall", "precision")]
        wrong = sorted((j for j in range(len(names)) if j != k and counts[j]), key=lambda j: -counts[j])
        taken = [_listed([f"{names[j]} ({counts[j]:,})" for j in wrong])]
        table.add_row(
            escape(names[k]), f"{facts['rows']:,}", *shares, *([f"{n:,}" for n in counts] if crossed else taken)
        )
    more = {"Average precision": "average_precision", "Area under ROC": "roc_auc", "Brier score": "brier"}
    facts = {
        "Error": interval_text(found),
        "Balanced error": percent(found["balanced_error"]),
        **{title: f"{found[key]:.4f}" if key in found else None for title, key in more.items()},
    }
    skipped = f", {result['unlabelled']:,} without a label left out" if result["unlabelled"] else ""
    head = Text.assemble((result["file"], "bold"), f"  {found['rows']:,} rows{skipped}")
    return [head, Text(), grid(facts), table]


def of_comparison(result: dict[str, Any]) -> list[RenderableType]:
    table = plain_table("method", "error", "± s.e.", "against the SVM", "seconds")
    table.add_column("")
    found = [one["error"] for one in result["methods"] if "error" in one]
    for one in result["methods"]:
        if "failed" in one:
            table.add_row(one["method"], "–", "", "", "", f"[yellow]{escape(one['failed'])}[/]")
            continue
        against = f"{100 * one['change']:+.1f} ± {100 * one['change_standard_error']:.1f}" if "change" in one else ""
        table.add_row(
            one["method"],
            percent(one["error"]),
            f"{100 * one['standard_error']:.1f}",
            against,
            f"{one['seconds']:.2f}",
            "[yellow]collapsed[/]" if one["collapsed"] else "",
            style="bold green" if one["error"] == min(found) else None,
        )
    data = result["data"]
    used = result["unlabelled_used"]
    foot = (
        f"{result['rows']:,} rows judged by {result['judged_by']}. C and gamma were chosen once for all methods, "
        "which the seconds do not count."
    )
    if used < data["unlabelled"]:
        foot += f" {used:,} of {data['unlabelled']:,} unlabelled rows were used (--max-rows)."
    report: list[RenderableType] = [Text(), grid({"Report": escape(result["report"])})] if "report" in result else []
    return [_headline(data), table, _aside(foot), *report]


def of_model(result: dict[str, Any]) -> list[RenderableType]:
    model, names = result["model"], result["names"]
    found = result["held_out"]
    facts = {
        "Function": _function(model),
        "Classes": _listed([str(name) for name in model["classes"]]),
        "Features": f"{model['dimensions']:,}" + (f"  [dim]{_listed(names)}[/dim]" if names else ""),
        "Scaling": "each feature to a spread of 1" if result["scaled"] else "none",
        "Training": f"solver {escape(model['solver'])}, {model['iterations']:,} iterations, seed {result['seed']}",
        "Held-out error": None if found is None else interval_text(found),
        "Unlabelled rows": _verdict(result["unlabelled"], found),
        "Compressed": None if result["compression"] is None else escape(result["compression"]),
        "Written by": _versions(result["versions"]),
    }
    return [Text.assemble((result["file"], "bold"), f"  {bytes_of(result['bytes'])}"), Text(), grid(facts)]


def interval_text(found: dict[str, Any]) -> str:
    """An error and how well it is known."""
    return f"{percent(found['error'])}  [dim]95% interval {percent(found['low'])} to {percent(found['high'])}[/dim]"


def plain_table(first: str, *columns: str) -> Table:
    """A table of numbers; the first column says of what."""
    table = Table(box=box.SIMPLE_HEAD, title_style="bold", title_justify="left", pad_edge=True)
    table.add_column(first)
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _aside(text: str) -> RenderableType:
    return Padding(Text(text, style="dim"), (0, 2))


def _headline(data: dict[str, Any]) -> RenderableType:
    total = data["labelled"]
    shares = [f"{name} {count / total:.0%}" for name, count in data["classes"].items()]
    return Text.assemble(
        (data["file"], "bold"),
        f"  {data['rows']:,} rows × {data['features']:,} features, {total:,} labelled ({_listed(shares)})",
    )


def _function(model: dict[str, Any]) -> str:
    parts = [f"{model['features']:,} random features"] * bool(model["features"])
    parts += [f"{model['centres']:,} rows as centres"] * bool(model["centres"])
    return f"{model['kernel']} kernel, gamma {model['gamma']:.3g}, C {model['C']:g}: {' and '.join(parts)}"


def _verdict(verdict: dict[str, Any] | None, found: dict[str, Any] | None) -> str | None:
    if verdict is None:
        return None
    colour = "green" if verdict["weight"] else "yellow"
    word = "helped" if verdict["weight"] else "did not help" if found is not None else "not used"
    return f"[{colour}]{word}[/]: {escape(verdict['verdict'])}"


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_CLASSES
    return escape(", ".join(names[:_MOST_CLASSES])) + (f" and {more:,} more" if more > 0 else "")


def _versions(versions: Any) -> str | None:
    """What wrote a model file, as far as it says so."""
    if not isinstance(versions, dict):
        return None
    return escape(", ".join(f"{name} {version}" for name, version in versions.items()))


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]

"""The page docs/evaluation.md, written from the rows: every number, verdict and figure, and blocks in other pages."""

import hashlib
import json
import re
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import results
from experiments.ablation import VARIANTS
from experiments.config import read
from experiments.plan import Plan, key_of
from experiments.report import TABLE_1, charts
from experiments.report.cells import mean_points, points, races, slopes, table, times
from experiments.report.claims import COLUMNS, MOST_TIMES_SLOWER, RIVALS, Evaluation
from experiments.report.tally import title
from experiments.report.verdicts import HEADINGS, Verdicts
from experiments.results import Results
from s3vm._utils.optional import optional
from s3vm.solvers import SOLVERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Page", "digest_of_figure", "pages", "write"]

_CONFIG = Path(__file__).parent.parent / "evaluation.toml"
_TEMPLATE = Path(__file__).with_name("evaluation.md.in")
_TABLE_3 = {
    "codrna": "CodRNA, 59,535 × 8",
    "w8a": "W6a, 49,749 × 300",
    "ijcnn1": "IJCNN1, 49,990 × 22",
    "susy": "SUSY, 5,000,000 × 18",
    "skin": "Skin, 245,057 × 3",
    "higgs": "Higgs, 1,100,000 × 28",
    "dota2": "Dota2, 102,944 × 16",
    "hepmass": "HEPMASS, 10,500,000 × 28",
}


def write(rows_path: Any, root: Any) -> list[Path]:
    """Writes the page and its figures, and fills the blocks of other pages, below the folder `root`."""
    page, root = Page(rows_path), Path(root)
    written = []
    for name, draw in page.figures().items():
        path = root / "docs" / "images" / f"evaluation-{name}.png"
        with optional("matplotlib.style", "experiments").context("default"):
            draw().savefig(path, dpi=150, metadata={"Description": page.digest})
        written.append(path)
    for path, text in pages(page, root).items():
        path.write_text(text, "utf-8")
        written.append(path)
    return written


def pages(page: "Page", root: Path) -> dict[Path, str]:
    """The text of every page that has numbers of the rows."""
    texts = {root / "docs" / "evaluation.md": page.text()}
    for name in ("docs/paper.md", "README.md"):
        text = (root / name).read_text("utf-8")
        for block, content in page.blocks().items():
            opening, found, rest = text.partition(f"<!-- evaluation: {block} -->\n")
            if found:
                text = f"{opening}{found}{content}\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
        texts[root / name] = text
    return texts


def digest_of_figure(path: Path) -> str:
    """The digest of the rows that a figure was drawn from."""
    match = re.search(rb"tEXtDescription\0([0-9a-f]{16})", path.read_bytes()[:4096])
    return match[1].decode() if match else ""


class Page:
    """The page, as its sections."""

    def __init__(self, rows_path: Any, config_path: Any = _CONFIG) -> None:
        rows, _ = results.read(rows_path)
        self.rows = sorted(rows, key=lambda row: (row["set"], row["trial"], row["key"]))  # runs end in any order
        self._config_path, self._rows_path = config_path, rows_path
        self.config = tomllib.loads(Path(config_path).read_text("utf-8"))
        self.evaluation = Evaluation(self.rows, self.config)
        self.verdicts = Verdicts(self.evaluation)
        content = sorted(json.dumps(row, sort_keys=True) for row in self.rows)
        self.digest = hashlib.sha256("\n".join(content).encode()).hexdigest()[:16]

    def text(self) -> str:
        return _TEMPLATE.read_text("utf-8").format(**self._made_of(), **self._facts(), **self._tables())

    def figures(self) -> "dict[str, Callable[[], Figure]]":
        """How each figure is drawn; those of parts without rows are left out."""
        tally, sets = self.evaluation.real, self.evaluation.sets
        drawn: dict[str, Callable[[], Figure]] = {
            "times": partial(charts.times, tally, sets),
            "memory": partial(charts.times, tally, sets, "megabytes"),
            "errors": partial(charts.boxes, tally, sets, self.evaluation.protocol, "error", "test error, %"),
            "curves": partial(charts.curves, tally, sets),
            "theory": partial(charts.theory_settings, self.evaluation),
            "ablation": partial(charts.effects, self.evaluation),
        }
        if not self.evaluation.effects("ours", "svm"):  # which take two trials
            del drawn["ablation"]
        parts = {"memory": "times"}
        return {name: draw for name, draw in drawn.items() if tally.of(parts.get(name, name), status="ok")}

    def blocks(self) -> dict[str, str]:
        """What other pages say of the rows, by the name in their comments."""
        return {"ablation": self._ablation_text(), "summary": _wrapped(self.verdicts.summary())}

    def _made_of(self) -> dict[str, str]:
        """What the rows are, and the settings that the text names."""
        config, versions = self.config, [json.loads(row["versions"]) for row in self.rows if row["versions"]]
        T, sizes = config["theory"]["iterations"], self.evaluation.sizes
        return {
            "digest": self.digest,
            "n_rows": f"{len(self.rows):,}",
            "hours": f"{sum(row['seconds'] or 0 for row in self.rows) / 3600:.1f}",
            "releases": ", ".join(sorted({made_by["s3vm"] for made_by in versions})),
            "commits": ", ".join(sorted({made_by.get("commit", "?") for made_by in versions})),
            "machines": "; ".join(sorted({_facts(row["machine"]) for row in self.rows if row["machine"]})),
            "limit_seconds": f"{config['seconds']:g}",
            "limit_gb": f"{config['megabytes'] / 1000:g}",
            "draws": str(config["tuning"]["draws"]),
            "tuning_rows": f"{config['tuning']['rows']:,}",
            "first_T": str(T[0]),
            "last_T": f"{T[-1]:,}",
            "seeds": str(config["theory"]["seeds"]),
            "small": f"{sizes[0]:,}",
            "large": f"{sizes[3]:,}",
            "error_rows": f"{self.evaluation.error_rows:,}",
            "curve_rows": f"{config['curves']['rows']:,}",
            "absent": ", ".join(title(name) for name in config["sets"] if name not in self.evaluation.sets) or "none",
            "edge": ", ".join(map(title, self.evaluation.at_the_edge(COLUMNS[0]))) or "no set",
        }

    def _facts(self) -> dict[str, str]:
        missing, n_missing = self._missing()
        sentences = {
            "summary": _wrapped(self.verdicts.summary()),
            "goal": _wrapped(self._goal()),
            "n_missing": f"{n_missing:,}",
        }
        return sentences | {"missing": missing, "ablation": self._ablation_text()}

    def _tables(self) -> dict[str, str]:
        sizes = self.evaluation.sizes
        return {
            "claims": self.verdicts.table(),
            "theory": self._theory_table(),
            "races": self._races(),
            "seconds_small": self._seconds_table(sizes[0]),
            "seconds_large": self._seconds_table(sizes[3]),
            "seconds_all": self._seconds_table(None),
            "errors": self._errors_table(),
            "distances": self._distances_table(),
            "curves": self._curves_table(),
            "table_1": self._table_1(),
            "synthetic": self._synthetic_table(),
            "table_3": self._table_3(),
        }

    # The claims

    # Tables

    def _theory_table(self) -> str:
        evaluation, lines = self.evaluation, []
        for name in evaluation.settings_of_theory():
            distance, gradient = evaluation.law(name, "distances"), evaluation.law(name, "gradients")
            if distance is None or gradient is None:
                continue
            law = evaluation.real.laws(name)["distance"]
            first, last, slack = law.values[0], law.values[-1], law.bound[-1] / law.values[-1]
            verdict = "yes" if distance.high <= -0.5 else "**no**" if distance.low > -0.5 else "open"
            lines.append([name, f"{first:.2g}, {last:.2g}", f"{slack:.0f}", str(distance), verdict, str(gradient)])
        measured, gradient_slope = "E&#124;f − h&#124;² at the first and last T", "slope of E‖∇R(h)‖²"
        heading = ["setting", measured, "bound / measured", "slope", "falls like T^(-1/2) or faster", gradient_slope]
        return table(heading, lines)

    def _races(self) -> str:
        lines = []
        for column in self.verdicts.columns():
            cells = [races(self.evaluation.races(column, size)) for size in [*self.evaluation.sizes, None]]
            lines.append([HEADINGS[column], *cells])
        return table(["rows", *(f"{size:,}" for size in self.evaluation.sizes), "all or the most"], lines)

    def _goal(self) -> str:
        evaluation = self.evaluation
        close = evaluation.against_accurate("tsg")
        lost = [(size, race) for size, race in close if race.ratio > MOST_TIMES_SLOWER]
        late = [race for size, race in close if size >= 10_000]
        rivals = Counter(f"`{race.rival}`" if race.rival in SOLVERS else race.rival for _, race in lost)
        small, n_won = sum(size < 10_000 for size, _ in lost), sum(race.ratio < 1 for race in late)
        listed = ", ".join(f"{name} {count} times" for name, count in rivals.most_common())
        return (
            "Our goal for `tsg` is to be within 20 % of the fastest solver at every size, and the fastest from 10,000 "
            "rows on, among solvers whose error is at most a point above that of the best. The first half is missed in "
            f"{len(lost)} of {len(close)} races, {small} of them below 10,000 rows (faster: {listed or 'none'}); the "
            f"second one is met in {n_won} of {len(late)}. {self._with_fewer_iterations()}"
        ).strip()

    def _with_fewer_iterations(self) -> str:
        """What half the iterations would bring, by the ablation."""
        few, base = "200 iterations", "ours"
        effects = self.evaluation.effects(few, base)
        if not effects:
            return ""
        rows = self.evaluation.real.of("ablation", status="ok")
        seconds = [np.median([row["seconds"] for row in rows if row["solver"] == name]) for name in (few, base)]
        size = self.config["ablation"]["rows"]
        ratios = [seconds[0] / seconds[1] * race.ratio for race in self.evaluation.races("tsg", size)]
        left = f", which would still be {times(ratios)} the fastest rival's time" if ratios else ""
        return (
            f"With 200 iterations instead of 400, it takes {seconds[0] / seconds[1]:.2f} times as long at {size:,} rows"
            f"{left}, and the error changes by {mean_points(effects.values())} points; so the number stays."
        )

    def _seconds_table(self, size: int | None) -> str:
        evaluation = self.evaluation
        solvers = [solver for solver in (*COLUMNS, *RIVALS, "svm") if evaluation.has(solver)]
        lines = []
        for solver in solvers:
            cells = []
            for name in evaluation.sets:
                n = evaluation.largest(name) if size is None else size
                seconds = evaluation.seconds(name, solver, n)
                failed = evaluation.failures(solver).get(name)
                stopped = failed[0] if failed and failed[1] <= n else "–"
                cells.append(stopped if seconds is None else f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}")
            lines.append([f"`{solver}`" if solver in SOLVERS else solver, *cells])
        sizes = [f" ({evaluation.largest(name):,})" if size is None else "" for name in evaluation.sets]
        return table(["seconds", *(title(n) + s for n, s in zip(evaluation.sets, sizes, strict=True))], lines)

    def _errors_table(self) -> str:
        evaluation, lines = self.evaluation, []
        for solver in evaluation.real.solvers:
            cells = []
            for name in evaluation.sets:
                values = 100 * np.array(list(evaluation.real.trials(name, solver, evaluation.protocol).values()))
                n_trials = f" ({len(values)})" if len(values) < 10 else ""
                spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
                cells.append(f"{values.mean():.2f}{spread}{n_trials}" if len(values) else "–")
            lines.append([solver, *cells])
        return table(["", *map(title, evaluation.sets)], lines)

    def _distances_table(self) -> str:
        lines = []
        for name in self.evaluation.sets:
            found = [self.evaluation.best_rival(name, column, (*RIVALS, "svm")) for column in self.verdicts.columns()]
            lines.append([title(name), *(f"{points(best[1])} from {best[0]}" if best else "–" for best in found)])
        return table(["", *(HEADINGS[column] for column in self.verdicts.columns())], lines)

    def _curves_table(self) -> str:
        columns, lines = [*COLUMNS[:3], "frs"], []
        for name in self.evaluation.sets:
            curves = [self.evaluation.curve(name, solver) for solver in columns]
            cells = [
                " / ".join(f"{100 * curve[t][0]:.1f}" for t in (16, 64, 128, 256) if t in curve) for curve in curves
            ]
            lines.append([title(name), *(cell or "–" for cell in cells)])
        return table(["", *(HEADINGS.get(column, column) for column in columns)], lines)

    def _table_1(self) -> str:
        evaluation, lines = self.evaluation, []
        for solver in evaluation.real.solvers:
            time, memory = TABLE_1.get(evaluation.real.kind(solver), ("–", "–"))
            rows = evaluation.real.of("times", solver=solver, status="ok")
            megabytes, largest = (max((row[name] for row in rows), default=0) for name in ("megabytes", "n"))
            failed = Counter(status for status, _ in evaluation.failures(solver).values())
            stopped = ", ".join(f"{what} on {count} sets" for what, count in failed.items()) or "–"
            measured = [slopes(evaluation.exponents(solver, quantity)) for quantity in ("seconds", "megabytes")]
            lines.append([solver, time, measured[0], memory, measured[1], f"{megabytes:,.0f}", f"{largest:,}", stopped])
        heading = ["solver", "time", "measured", "memory", "measured", "most MB", "most rows", "stopped by"]
        return table(heading, lines)

    def _synthetic_table(self) -> str:
        tally, shapes = self.evaluation.tally, self.config["times"]["synthetic"]
        lines = []
        for solver in tally.solvers:
            cells = []
            for name, (size,) in shapes.items():
                rows = tally.of("times", set=name, solver=solver, synthetic=True, n=size)
                row = rows[0] if rows else {"status": "–"}
                is_done = row["status"] == "ok"
                cells.append(f"{row['seconds']:.2g} s, {row['megabytes']:,.0f} MB" if is_done else row["status"])
            if set(cells) - {"–", "skipped"}:
                lines.append([solver, *cells])
        return table(["", *(f"{title(name)}, {size:,}" for name, (size,) in shapes.items())], lines)

    def _table_3(self) -> str:
        lines = []
        for name in self.evaluation.sets:
            rows = [row for row in self.evaluation.real.of("times", set=name) if row["n"]]
            sources = ", ".join(sorted({row["source"] for row in rows if row["source"]}))
            positive = next(row["positive"] for row in rows if row["positive"] is not None)
            lines.append(
                [
                    title(name),
                    _TABLE_3[name],
                    sources,
                    f"{positive:.1%}",
                    str(rows[0]["dims"]),
                    f"{max(row['n'] for row in rows):,}",
                ]
            )
        heading = ["set", "the paper's", "read from", "positive", "columns", "most rows trained on"]
        return table(heading, lines)

    def _ablation_text(self) -> str:
        evaluation = self.evaluation
        known = [name for name in VARIANTS if evaluation.effects(name, "svm")]
        if not known:
            return "Not run."
        ladder = known[1 : known.index("ours") + 1] if "ours" in known else known[1:]
        bases = dict(zip(ladder[1:], ladder, strict=False)) | {ladder[0]: "svm"}
        lines, large, small = [], [], []
        for name in known[1:]:
            base = bases.get(name, "ours")
            effects = evaluation.effects(name, base)
            clear = [effect.mean for effect in effects.values() if effect.is_clear]
            if len(clear) >= len(effects) / 2:
                large.append(name)
            elif not clear:
                small.append(name)
            verdict = f"{sum(mean < 0 for mean in clear)} better, {sum(mean > 0 for mean in clear)} worse"
            against_svm = mean_points(evaluation.effects(name, "svm").values())
            lines.append([name, against_svm, base, mean_points(effects.values()), verdict if clear else "–"])
        last = evaluation.effects(known[-1], "svm")
        n_trials, rows = max(effect.n_trials for effect in last.values()), self.config["ablation"]["rows"]
        heading = ["variant", "error minus the SVM's", "compared with", "difference", "sets with a clear difference"]
        text = (
            f"{n_trials} trials on {len(last)} sets, {rows:,} rows; points, means over the sets ± a standard error.\n"
            "Down to `ours`, each line adds one change to the line above it; below, each changes one thing in `ours`.\n"
            "*Clear* is more than two standard errors of a set's paired trials."
        )
        shown = f"Clear on at least half of the sets: {'; '.join(large) or 'none'}."
        shown += f" Clear on none: {'; '.join(small) or 'none'}. All others are clear on some."
        return f"{text}\n\n{table(heading, lines)}\n\n{_wrapped(shown)}"

    def _missing(self) -> tuple[str, int]:
        """A table of the runs made, planned and missing of every part, and how many are missing."""
        kept = Results(self._rows_path)
        planned: Counter[str] = Counter()
        missing: dict[str, Counter[str]] = {}
        for task in chain.from_iterable(Plan(read(self._config_path)).stages(kept)):
            part = "times of synthetic rows" if task["synthetic"] else str(task["part"])
            planned[part] += 1
            left = missing.setdefault(part, Counter())
            if kept.get(key_of(task)) is None:
                rows = task["rows"] or 0
                left["all rows" if rows < 0 else f"{rows:,} rows" if part == "times" else task["solver"]] += 1
        lines = []
        for part, left in missing.items():
            listed = ", ".join(f"{what} ({count})" for what, count in left.most_common(12)) or "–"
            more = ", …" if len(left) > 12 else ""
            lines.append([part, f"{planned[part] - left.total():,}", f"{planned[part]:,}", listed + more])
        table_of_parts = table(["part", "runs made", "planned", "missing"], lines)
        return table_of_parts, sum(left.total() for left in missing.values())


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 130, break_long_words=False, break_on_hyphens=False)


def _facts(text: str) -> str:
    facts = json.loads(text)
    return f"{facts['processor']} with {facts['cores']} cores and {facts['memory']}"

"""The paper's claims, each with a verdict on every column and the number behind it."""

from collections.abc import Callable

import numpy as np

from experiments.report.cells import points, races, word
from experiments.report.cells import table as _table
from experiments.report.claims import COLUMNS, EXACT, Evaluation
from experiments.report.tally import title

__all__ = ["HEADINGS", "Verdicts"]

HEADINGS = {
    "tsg, as printed": "as printed",
    "tsg, decaying step": "decaying step",
    "tsg": "ours: `tsg`",
    "default": "ours: the default",
}
_MILLION = 1_000_000


class Verdicts:
    """The table of claims, and a summary of it."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation

    def columns(self) -> list[str]:
        return [column for column in COLUMNS if self.evaluation.has(column)]

    def table(self) -> str:
        columns = self.columns()
        lines: list[tuple[str, Callable[[str], str]]] = [
            ("Faster than all the others (Figure 2)", self._faster),
            ("Works at a million rows", self._at_a_million),
            ("The exact solvers run out of memory (Table 1)", self._memory_claim),
            ("Errors like those of the exact solvers (Figure 3)", self._like_exact),
            ("Better than FRS (Figure 3)", self._better_than_frs),
            ("Good after 64 to 128 iterations (Figure 4)", self._good_after),
            ("Theorem 1 (Figure 1)", lambda column: self._theorem(column, "distances", "distance", "1/2")),
            ("Theorem 2 (Figure 1)", lambda column: self._theorem(column, "gradients", "gradient", "1/4")),
        ]
        heading = ["the paper's claim", *(HEADINGS[column] for column in columns)]
        return _table(heading, [[claim, *(cell(column) for column in columns)] for claim, cell in lines])

    def _faster(self, column: str) -> str:
        evaluation = self.evaluation
        found = {f"{size:,} rows": evaluation.races(column, size) for size in evaluation.sizes[:4:3]}
        found["the most rows"] = evaluation.races(column, None)
        every = [race for size in [*evaluation.sizes, None] for race in evaluation.races(column, size)]
        complete = [race for race in every if race.is_complete or race.ratio >= 1]  # a lost race is decided
        parts = [f"{where}: {races(some)}" for where, some in found.items() if some]
        return f"{word(sum(race.ratio < 1 for race in complete), len(complete))}; {'; '.join(parts)}"

    def _at_a_million(self, column: str) -> str:
        done = []
        for solver, where in ((column, ""), (f"{column}, on a GPU", " on a GPU")):
            rows = self.evaluation.tally.of("times", solver=solver, synthetic=True, status="ok")
            if large := [row for row in rows if row["n"] >= _MILLION]:
                row = max(large, key=lambda row: row["n"])
                cost = f"{row['seconds']:.1f} s and {row['megabytes']:,.0f} MB{where}"
                done.append(f"{cost} for {row['n']:,} synthetic rows of the shape of {title(row['set'])}")
        if done:
            return f"**yes**: {'; '.join(done)}"
        runs = self.evaluation.real.of("times", solver=column, status="ok")
        if column != COLUMNS[0] or not runs:
            return "not run"
        largest = max(runs, key=lambda row: row["n"])  # m T² with m = √n features and T = n / 256 iterations is n^2.5
        minutes = largest["seconds"] * (_MILLION / largest["n"]) ** 2.5 / 60
        stopped = self.evaluation.tally.of("times", solver=column, synthetic=True, status="timeout")
        tried = f"stopped after {stopped[0]['limit_seconds']:.0f} s" if stopped else "not run"
        return f"{tried}; by m T² about {minutes:.0f} min, from {largest['seconds']:.1f} s for {largest['n']:,} rows"

    def _memory_claim(self, column: str) -> str:
        if column != COLUMNS[0]:
            return "" if column != "tsg" else self._most_memory(column)
        parts = []
        for solver in EXACT:
            failed = self.evaluation.failures(solver)
            for status, text in (("memory", "memory"), ("timeout", "the time limit")):
                sizes = [n for what, n in failed.values() if what == status]
                if sizes:
                    parts.append(f"`{solver}` reaches {text} on {len(sizes)} sets, from {min(sizes):,} rows")
        word = "partly" if any("memory" in part for part in parts) else "no"
        most = max(row["n"] for name in EXACT for row in self.evaluation.real.of("times", solver=name, status="ok"))
        return f"**{word}**: {'; '.join(parts)}" if parts else f"not run: the most rows were {most:,}"

    def _most_memory(self, column: str) -> str:
        rows = self.evaluation.real.of("times", solver=column, status="ok")
        row = max(rows, key=lambda row: row["megabytes"])
        return f"itself at most {row['megabytes']:.0f} MB ({title(row['set'])}, {row['n']:,} rows)"

    def _like_exact(self, column: str) -> str:
        near, best = self.evaluation.near_exact(column)
        if not best:
            return "not run"
        farthest = max(best, key=lambda name: best[name][1].mean)
        rival, difference = best[farthest]
        text = f"{word(len(near), len(best))}: {len(near)} of {len(best)} sets"
        stuck = self.evaluation.one_class(column)
        text += f", all rows in one class on {', '.join(map(title, stuck))}" if stuck else ""
        most = f"at most {points(difference)} from {rival} ({title(farthest)})"
        return f"{text}; {most}; {self._against_svm(column)}"

    def _against_svm(self, column: str) -> str:
        found = self.evaluation.differences(column, "svm").values()
        better = sum(d.is_clear and d.mean < 0 for d in found)
        worse = sum(d.is_clear and d.mean > 0 for d in found)
        return f"clearly better than the SVM on {better}, worse on {worse}"

    def _better_than_frs(self, column: str) -> str:
        other = "frs, as printed" if column in COLUMNS[:2] else "frs"
        found = self.evaluation.differences(column, other)
        if not found:
            return "not run"
        better = [d for d in found.values() if d.mean < 0]
        clear = sum(d.is_clear for d in better)
        worse = sum(d.is_clear and d.mean > 0 for d in found.values())
        n, mean = len(found), 100 * np.mean([d.mean for d in found.values()])
        text = f"{word(len(better), n)}: lower on {len(better)} of {n} sets, clearly on {clear}"
        return f"{text}; clearly higher on {worse}; mean {mean:+.2f} points"

    def _good_after(self, column: str) -> str:
        n_good, n_curves, worse = self.evaluation.settled(column)
        if not n_curves:
            return "not run"
        text = f"{word(n_good, n_curves)}: within a point of its lowest error at 128 on {n_good} of {n_curves} sets"
        return text + (f"; clearly worse in the end on {', '.join(map(title, worse))}" if worse else "")

    def _theorem(self, column: str, quantity: str, law: str, rate: str) -> str:
        first, *_ = self.evaluation.settings_of_theory() or [""]
        if column != COLUMNS[0] or not first:
            return ""
        slope, bound = self.evaluation.law(first, quantity), self.evaluation.real.laws(first)[law]
        slack = [limit / value for value, limit in zip(bound.values, bound.bound, strict=True)]
        holds = "holds" if bound.holds else "**is violated**"
        word_for = "**yes**" if bound.holds else "**no**"
        return (
            f"{word_for}: the bound {holds}, {min(slack):.0f} to {max(slack):.0f} times above what is measured; "
            f"the slope is {slope}, the bound's rate T^(-{rate})"
        )

    def summary(self) -> str:
        """Two sentences: the algorithm as printed, and ours."""
        evaluation = self.evaluation
        sentences = []
        for column, name in ((COLUMNS[0], "As printed, TSG"), ("tsg", "Ours")):
            (near, best), sizes = evaluation.near_exact(column), evaluation.sizes
            complete = {n: [race for race in evaluation.races(column, n) if race.is_complete] for n in sizes}
            size = max((n for n, some in complete.items() if some), default=sizes[0])
            n_won = sum(race.ratio < 1 for race in complete[size])
            speed = f"{name} is the fastest of all solvers on {n_won} of {len(complete[size])} sets with {size:,} rows"
            error = f"its error is like that of the best exact solver on {len(near)} of {len(best)}"
            sentences.append(f"{speed}, and {error} ({evaluation.error_rows:,} rows).")
        return " ".join(sentences)

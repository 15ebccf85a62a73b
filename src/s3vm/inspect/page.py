"""Reports: text, tables and figures in one self-contained HTML file."""

import base64
import csv
import hashlib
import io
import platform
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from importlib import metadata, resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import cpu_count

from s3vm import __version__
from s3vm._utils import atomic
from s3vm._utils.machine import machine_memory
from s3vm._utils.typing import Array
from s3vm.inspect.tables import is_numeric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Table = Mapping[str, Sequence[Any] | Array]

_REM_PER_INCH = 6.7
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "matplotlib")
# Figures are drawn in black on white with light grey frames; the page replaces these colours by its own.
_COLORS = {"#000000": "currentColor", "#ffffff": "var(--paper)", "#cccccc": "var(--line)"}


@dataclass(frozen=True)
class Section:
    """A section of a report; in a `text`, an empty line starts a new paragraph.

    Black and white of a `figure` become the page's colours, also in dark mode.
    """

    heading: str
    text: str = ""
    table: Table | None = None
    figure: "Figure | None" = None
    data: Table | None = None  # the numbers that the figure shows, offered for download as CSV
    folded: bool = False  # among the details at the end of the page


def write_page(
    path: Any,
    title: str,
    summary: str,
    sections: Iterable[Section] = (),
    settings: Mapping[str, Any] | None = None,
    headline: Mapping[str, str] | None = None,
) -> Path:
    """Writes a report and returns its path.

    The `headline` has the few figures to show first, by name; their text after a line feed is shown small. The
    `settings` are listed at the end, above the machine and the versions.
    """
    folder = resources.files("s3vm.inspect")
    script = folder.joinpath("sort.js").read_text("utf-8")
    now = datetime.now().astimezone()
    values = {name: value if isinstance(value, str) else repr(value) for name, value in (settings or {}).items()}
    tables = {"Settings": ("setting", values), "Machine and versions": ("name", machine_facts())}
    facts = [
        Section(heading, table={name: [*table], "value": [*table.values()]}, folded=True)
        for heading, (name, table) in tables.items()
        if table
    ]
    parts = {True: ["<details>", "<summary>Technical details</summary>"], False: []}  # by whether they are folded
    for number, section in enumerate([*sections, *facts]):
        parts[section.folded].append(_section(number, section))
    page = Template(folder.joinpath("page.html").read_text("utf-8")).substitute(
        title=escape(title),
        summary=_paragraphs(summary),
        headline=_headline(headline or {}),
        sections="\n".join([*parts[False], *parts[True], "</details>"]),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        time=f'<time datetime="{now.isoformat(timespec="seconds")}">{now:%d %B %Y, %H:%M %Z}</time>',
        version=escape(__version__),
    )
    path = Path(path)
    atomic.write(path, page.encode("utf-8", errors="replace"))
    return path


def _section(number: int, section: Section) -> str:
    parts = [f"<h2>{escape(section.heading)}</h2>", _paragraphs(section.text)]
    if section.table is not None:
        parts.append(_table(section.table))
    if section.figure is not None:
        parts.append(f"<figure>{_picture(section.figure, f'f{number}-', section.heading)}</figure>")
    if section.data is not None:
        parts.append(_download(section.data, section.heading))
    return "\n".join(["<section>", *filter(None, parts), "</section>"])


def _headline(figures: Mapping[str, str]) -> str:
    items = []
    for name, text in figures.items():
        first, _, rest = str(text).partition("\n")
        small = f"<small>{escape(rest)}</small>" if rest else ""
        items.append(f"<div><dt>{escape(str(name))}</dt><dd>{escape(first)}{small}</dd></div>")
    return "\n".join(['<dl class="headline">', *items, "</dl>"]) if items else ""


def _paragraphs(text: str) -> str:
    parts = [escape(part.strip()) for part in re.split(r"\n\s*\n", text) if part.strip()]
    warning = ' class="warning"'
    return "\n".join(f"<p{warning * part.startswith('Warning:')}>{part}</p>" for part in parts)


def _table(table: Table) -> str:
    columns = _columns(table)
    kinds = [' class="number"' if is_numeric(column) else "" for column in columns.values()]
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(columns, kinds, strict=True))
    lines = []
    for row in zip(*columns.values(), strict=True):
        values = [f' data-value="{float(cell)!r}"' if isinstance(cell, int | float) else "" for cell in row]  # to sort
        cells = zip(kinds, values, map(cell_text, row), strict=True)
        lines.append(
            "".join(["<tr>", *(f"<td{kind}{value}>{escape(cell)}</td>" for kind, value, cell in cells), "</tr>"])
        )
    parts = [
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>',
        "<tbody>",
        *lines,
        "</tbody>",
        "</table></div>",
    ]
    return "\n".join(parts)


def _columns(table: Table) -> dict[str, list[Any]]:
    """The columns as lists of plain Python objects."""
    columns = {
        str(name): [cell.item() if isinstance(cell, np.generic) else cell for cell in column]
        for name, column in table.items()
    }
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the columns of a table have different lengths: {lengths}")
    return columns


def cell_text(cell: Any) -> str:
    """A value as a table shows it."""
    if cell is None or cell != cell:
        return "–"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    form = "," if isinstance(cell, int) else ".4g" if isinstance(cell, float) else ""
    return format(cell, form)


def _download(data: Table, heading: str) -> str:
    columns = _columns(data)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    content = text.getvalue().encode("utf-8", errors="replace")
    name = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") or "data"
    link = f"data:text/csv;charset=utf-8;base64,{base64.b64encode(content).decode()}"
    size = f"{len(content) / 1000:,.0f} kB" if len(content) >= 1000 else f"{len(content)} bytes"
    return f'<p class="data"><a download="{name}.csv" href="{link}">Data of this figure (CSV, {size})</a></p>'


def _picture(figure: "Figure", prefix: str, label: str) -> str:
    """The figure as SVG in the page's font and colours, with ids that are unique in the page."""
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "s3vm"}), warnings.catch_warnings():
        # The browser has the glyphs that matplotlib lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(buffer, format="svg", dpi=200, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    style = f"max-width: {_REM_PER_INCH * figure.get_figwidth():.3g}rem"
    head = f'<svg role="img" aria-label="{escape(label)}" style="{style}" viewBox='

    def adapted(tag: re.Match[str]) -> str:
        text = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{prefix}", tag[0].replace("xlink:", ""))
        return re.sub("|".join(_COLORS), lambda color: _COLORS[color[0]], text)

    svg = re.sub("<style.*?</style>", "", buffer.getvalue(), flags=re.DOTALL)
    svg = re.sub(r"<[^!?>]+>", adapted, svg[svg.index("<svg") :])
    return re.sub(r'<svg[^>]*? viewBox=("[^"]*")[^>]*>', lambda tag: f"{head}{tag[1]}>", svg, count=1)


def machine_facts() -> dict[str, str]:
    """What a reader needs to judge times and to repeat a run, without names of people or hosts."""
    info = Path("/proc/cpuinfo")
    name = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.is_file() else None
    facts = {
        "processor": name[1] if name else platform.processor() or platform.machine(),
        "cores": str(cpu_count()),
        "memory": f"{machine_memory() / 2**30:.3g} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "s3vm": __version__,
        "Python": platform.python_version(),
    }
    for library in _LIBRARIES:
        try:
            facts[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return facts

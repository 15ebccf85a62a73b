"""Reports: text, tables and figures in one self-contained HTML file."""

import base64
import csv
import hashlib
import io
import os
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
from xml.etree import ElementTree

import numpy as np

from s3vm import __version__
from s3vm._utils import atomic
from s3vm._utils.machine import machine_memory
from s3vm._utils.typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Table = Mapping[str, Sequence[Any] | Array]

_REM_PER_INCH = 6.7
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "matplotlib")
# Figures are drawn in black on white with light grey frames; the page replaces these colours by its own.
_COLORS = {"#000000": "currentColor", "#ffffff": "var(--paper)", "#cccccc": "var(--line)"}


@dataclass(frozen=True)
class Section:
    """A section of a report.

    Parameters
    ----------
    heading : str
    text : str
        Plain text; an empty line starts a new paragraph.
    table : mapping of column names to sequences, or None
    figure : matplotlib figure or None
        Black and white become the page's text and background colours, also in dark mode.
    data : mapping of column names to sequences, or None
        The numbers that the figure shows, offered for download as CSV.
    """

    heading: str
    text: str = ""
    table: Table | None = None
    figure: "Figure | None" = None
    data: Table | None = None
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

    Parameters
    ----------
    path : str or path
    title : str
    summary : str
        The result in one plain sentence.
    sections : Section objects
    settings : mapping or None
        Names and values, listed at the end, above the machine and the versions.
    headline : mapping of names to str, or None
        The few figures to show first; text after a line feed is shown small.
    """
    folder = resources.files("s3vm.inspect")
    script = folder.joinpath("sort.js").read_text("utf-8")
    now = datetime.now().astimezone()
    sections = [*sections]
    if settings:
        values = [value if isinstance(value, str) else repr(value) for value in settings.values()]
        sections.append(Section("Settings", table={"setting": list(settings), "value": values}, folded=True))
    facts, columns = machine_facts(), ("name", "value")
    table = dict(zip(columns, zip(*facts.items(), strict=True), strict=True))
    sections.append(Section("Machine and versions", table=table, folded=True))
    parts = [_section(number, section) for number, section in enumerate(sections)]
    shown, folded = (
        [part for part, section in zip(parts, sections, strict=True) if section.folded is is_folded]
        for is_folded in (False, True)
    )
    details = "\n".join(["<details>", "<summary>Technical details</summary>", *folded, "</details>"])
    page = Template(folder.joinpath("page.html").read_text("utf-8")).substitute(
        title=escape(title),
        summary=_paragraphs(summary),
        headline=_headline(headline or {}),
        sections="\n".join([*shown, details]),
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
    parts = [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]
    kinds = [' class="warning"' if part.startswith("Warning:") else "" for part in parts]
    return "\n".join(f"<p{kind}>{escape(part)}</p>" for part, kind in zip(parts, kinds, strict=True))


def _table(table: Table) -> str:
    columns = _columns(table)
    kinds = [' class="number"' if all(map(_is_number, column)) else "" for column in columns.values()]
    lines = ['<div class="wide"><table>', "<thead><tr>"]
    lines += [f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(columns, kinds, strict=True)]
    lines += ["</tr></thead>", "<tbody>"]
    for row in zip(*columns.values(), strict=True):
        cells = (
            f"<td{kind}{_value(cell)}>{escape(cell_text(cell))}</td>" for cell, kind in zip(row, kinds, strict=True)
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</tbody>", "</table></div>"])


def _columns(table: Table) -> dict[str, list[Any]]:
    """The columns as lists of plain Python objects."""
    columns = {str(name): np.asarray(column, dtype=object).ravel().tolist() for name, column in table.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the columns of a table have different lengths: {lengths}")
    return columns


def _is_number(cell: Any) -> bool:
    """Whether a cell is right-aligned: a number, or text that starts with one."""
    return cell is None or isinstance(cell, int | float | np.number) or bool(re.match(r"[-+−]?\d", str(cell)))


def _value(cell: Any) -> str:
    """The attribute that a cell with a rounded number is sorted by."""
    return f' data-value="{float(cell)!r}"' if isinstance(cell, int | float | np.number) else ""


def cell_text(cell: Any) -> str:
    """A value as a table shows it."""
    if cell is None or (isinstance(cell, float | np.floating) and np.isnan(cell)):
        return "–"
    if isinstance(cell, bool | np.bool_):
        return "yes" if cell else "no"
    if isinstance(cell, int | np.integer):
        return f"{cell:,}"
    return f"{cell:.4g}" if isinstance(cell, float | np.floating) else str(cell)


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

    buffer = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "s3vm"}), warnings.catch_warnings():
        # The browser has the glyphs that matplotlib lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(buffer, format="svg", dpi=200, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = ElementTree.fromstring(buffer.getvalue())
    for parent in list(svg.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    for element in svg.iter():
        element.tag = element.tag.rpartition("}")[2]
        attributes = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib.update({name: _attribute(name, value, prefix) for name, value in attributes.items()})
    for size in ("width", "height", "version"):
        svg.attrib.pop(size, None)
    width = _REM_PER_INCH * figure.get_figwidth()
    svg.attrib.update({"role": "img", "aria-label": label, "style": f"max-width: {width:.3g}rem"})
    return ElementTree.tostring(svg, encoding="unicode")


def _attribute(name: str, value: str, prefix: str) -> str:
    if name == "id":
        return prefix + value
    if name == "href" and value.startswith("#"):
        return f"#{prefix}{value[1:]}"
    if name in ("style", "fill", "stroke", "clip-path"):
        for plain, themed in _COLORS.items():
            value = value.replace(plain, themed)
        return value.replace("url(#", f"url(#{prefix}")
    return value


def machine_facts() -> dict[str, str]:
    """What a reader needs to judge times and to repeat a run, without names of people or hosts."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    info = Path("/proc/cpuinfo")
    name = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.is_file() else None
    facts = {
        "processor": name[1] if name else platform.processor() or platform.machine(),
        "cores": str(cores),
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

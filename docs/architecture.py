"""Writes the picture of the architecture and the table of rooms in CONTRIBUTING.md.

    python docs/architecture.py

The layers are those of import-linter's contracts in pyproject.toml, what a room is comes from its docstring, and what
is in it from its folder. `tests/test_architecture.py` fails if the picture or the table differs from what this writes.
"""

import ast
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "s3vm"
PICTURE = ROOT / "docs" / "architecture.svg"
PAGE = ROOT / "CONTRIBUTING.md"
_TABLE = re.compile(r"(?<=<!-- rooms, by docs/architecture.py -->\n\n).*?(?=<!-- end of rooms -->)", re.DOTALL)


def layers() -> list[list[str]]:
    """Names of rooms from top to bottom; a list holds rooms that may not import each other."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rooms = next(contract for contract in contracts if contract.get("containers") == ["s3vm"])
    return [["experiments"], *(layer.split(" | ") for layer in rooms["layers"])]


def table() -> str:
    """The rooms, lowest layer last, each with the first sentence of its docstring and its parts."""
    lines = ["| room | what it is | parts |", "|---|---|---|"]
    for room in (room for layer in layers() for room in layer):
        place = _place(room)
        name = f"{room}/" if place.is_dir() else f"{room}.py"
        lines.append(f"| `{name}` | {_summary(place)} | {_parts(place)} |")
    return "\n".join([*lines, "", ""])


def _place(room: str) -> Path:
    if room == "experiments":
        return ROOT / room
    folder = PACKAGE / room
    return folder if folder.is_dir() else folder.with_suffix(".py")


def _summary(place: Path) -> str:
    """The first sentence of the docstring, without its full stop."""
    source = place / "__init__.py" if place.is_dir() else place
    text = ast.get_docstring(ast.parse(source.read_text())) or ""
    first = re.split(r"(?<=\.)\s(?=[A-Z`])|\n\n", text)[0]
    return " ".join(first.replace("``", "`").split()).removesuffix(".")


def _parts(place: Path) -> str:
    if not place.is_dir():
        return ""
    modules = [path.stem for path in place.glob("*.py") if not path.stem.startswith("__")]
    folders = [f"{path.name}/" for path in place.iterdir() if (path / "__init__.py").exists()]
    return ", ".join(f"`{name}`" for name in [*sorted(modules), *sorted(folders)])


class Box(NamedTuple):
    """A room in the picture."""

    x: int
    y: int
    width: int
    height: int
    note: str
    kind: str = "room"

    @property
    def center(self) -> tuple[int, int]:
        return self.x + self.width // 2, self.y + self.height // 2


WIDTH, HEIGHT = 980, 692
BOXES = {
    "experiments": Box(24, 56, 300, 52, "the paper's evaluation, not in the wheel", "outside"),
    "cli": Box(344, 56, 612, 52, "the commands: s3vm fit, predict, compare …"),
    "inspect": Box(24, 126, 456, 52, "numbers, plots and reports of a fitted model"),
    "persistence": Box(500, 126, 456, 52, "model files, ONNX, smaller models"),
    "estimators": Box(24, 196, 932, 52, "S3VMClassifier: checks the input, builds the problem, keeps the model"),
    "training": Box(24, 266, 932, 52, "the loop that drives any solver: history, early stopping, checkpoints"),
    "sources": Box(98, 358, 150, 66, "batches of rows", "line"),
    "problem": Box(290, 358, 150, 66, "what is minimised", "line"),
    "solvers": Box(482, 358, 150, 66, "generators of states", "core"),
    "model": Box(674, 358, 150, 66, "the learnt function", "line"),
    "losses": Box(290, 464, 150, 52, "value and derivative"),
    "backends": Box(482, 464, 150, 52, "reference, CPU, GPU"),
    "kernels": Box(674, 464, 150, 52, "formula and features"),
    "philox": Box(482, 546, 342, 52, "random numbers without state: nothing is stored"),
    "_utils": Box(24, 616, 932, 52, "what every room may use"),
}
# From top to bottom. A room may import rooms of lower rows, and none of a higher row.
ROWS = [
    {"experiments", "cli"},
    {"inspect", "persistence"},
    {"estimators"},
    {"training"},
    {"solvers", "problem", "sources", "model"},
    {"backends", "kernels", "losses"},
    {"philox"},
    {"_utils"},
]
FLOW = ("sources", "problem", "solvers", "model")
USES = [
    ("problem", "losses"),
    ("solvers", "backends"),
    ("model", "kernels"),
    ("backends", "kernels"),
    ("backends", "philox"),
    ("kernels", "philox"),
]

_STYLE = """
    text { text-anchor: middle; fill: #1f2933; }
    .name { font-weight: bold; }
    .note { font-size: 12px; fill: #52606d; }
    .ends { font-size: 13.5px; fill: #1f5f99; }
    .room { fill: #fff; stroke: #9aa5b1; stroke-width: 1.2; }
    .outside { fill: #fff; stroke: #9aa5b1; stroke-width: 1.2; stroke-dasharray: 5 4; }
    .line { fill: #e8f1fa; stroke: #1f5f99; stroke-width: 1.6; }
    .core { fill: #fbeaec; stroke: #c0394b; stroke-width: 1.8; }
    .flow { stroke: #1f5f99; stroke-width: 2.2; fill: none; marker-end: url(#flow); }
    .uses { stroke: #7b8794; stroke-width: 1.3; fill: none; stroke-dasharray: 4 3; marker-end: url(#uses); }
"""


def picture() -> str:
    """The rooms as an SVG: the path of the data in the middle, who drives it above, what it is made of below."""
    order = [room for layer in layers() for room in layer]
    if sorted(order) != sorted(BOXES):
        raise ValueError(f"rooms without a box, or boxes without a room: {sorted(set(order) ^ set(BOXES))}")
    if order != [room for row in ROWS for room in order if room in row]:
        raise ValueError("the rows of the picture contradict the layers of the contracts")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        ' font-family="Helvetica, Arial, sans-serif" font-size="14.5">',
        "<title>The rooms of s3vm</title>",
        f"<style>{_STYLE}</style>",
        f"<defs>{_arrowhead('flow', '#1f5f99')}{_arrowhead('uses', '#7b8794')}</defs>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#f7f9fb"/>',
        f'<text x="{WIDTH // 2}" y="34" class="note">A room may import rooms below it, and never one above it.</text>',
        *(_box(room, box) for room, box in BOXES.items()),
        *_flow(),
        *(_use(BOXES[user], BOXES[used]) for user, used in USES),
        *_legend(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _arrowhead(name: str, color: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="6.5" markerHeight="6.5" orient="auto">'
        f'<path d="M0 0 10 5 0 10z" fill="{color}"/></marker>'
    )


def _box(room: str, box: Box) -> str:
    x, y = box.center
    frame = f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="8" class="{box.kind}"/>'
    return (
        f'{frame}<text x="{x}" y="{y - 4}" class="name">{room}</text>'
        f'<text x="{x}" y="{y + 15}" class="note">{box.note}</text>'
    )


def _flow() -> list[str]:
    """rows → sources → problem → solvers → model → predictions."""
    boxes = [BOXES[room] for room in FLOW]
    y = boxes[0].center[1]
    starts = [58, *(box.x + box.width for box in boxes)]
    ends = [*(box.x for box in boxes), 876]
    arrows = [f'<path class="flow" d="M{start + 3} {y}H{end - 3}"/>' for start, end in zip(starts, ends, strict=True)]
    names = ((40, "rows"), (917, "predictions"))
    return arrows + [f'<text x="{x}" y="{y + 5}" class="ends">{name}</text>' for x, name in names]


def _use(user: Box, used: Box) -> str:
    if user.y == used.y:
        return f'<path class="uses" d="M{user.x + user.width + 3} {user.center[1]}H{used.x - 3}"/>'
    return f'<path class="uses" d="M{user.center[0]} {user.y + user.height + 3}V{used.y - 3}"/>'


def _legend() -> list[str]:
    rows = (("flow", "the path of the data", 481), ("uses", "uses", 503))
    return [
        f'<path class="{kind}" d="M48 {y}H86"/>'
        f'<text x="98" y="{y + 4}" class="note" style="text-anchor: start">{text}</text>'
        for kind, text, y in rows
    ]


def write() -> None:
    PICTURE.write_text(picture())
    page = PAGE.read_text()
    if not _TABLE.search(page):
        raise ValueError(f"{PAGE.name} has no place for the table")
    PAGE.write_text(_TABLE.sub(lambda _: table(), page))


def written() -> tuple[str, str]:
    """The picture and the table as they are in the files."""
    match = _TABLE.search(PAGE.read_text())
    return PICTURE.read_text(), match[0] if match else ""


if __name__ == "__main__":
    write()

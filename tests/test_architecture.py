"""The tree is what CONTRIBUTING.md and its picture say it is, and stays readable. `make test` runs lint-imports too."""

import ast
import runpy
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "s3vm"
CODE = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "experiments").rglob("*.py")])

MOST_ENTRIES, MOST_LINES, LONGEST_FILE, LONGEST_FUNCTION = 14, 22_715, 400, 60


@pytest.fixture(scope="module")
def architecture():
    return runpy.run_path(str(ROOT / "docs" / "architecture.py"))


@pytest.fixture(scope="module")
def imports():
    """A function that says whether a module of one room imports one of another when the program runs."""
    graph = grimp.build_graph("s3vm", "experiments", exclude_type_checking_imports=True, cache_dir=None)

    def modules(room):
        root = room if room == "experiments" else f"s3vm.{room}"
        return {root, *graph.find_descendants(root)}

    return lambda user, used: any(
        not modules(used).isdisjoint(graph.find_modules_directly_imported_by(module)) for module in modules(user)
    )


def test_picture_and_table_are_up_to_date(architecture):
    picture, table = architecture["written"]()
    command = "run: python docs/architecture.py"
    assert picture == architecture["picture"](), command
    assert table == architecture["table"](), command


def test_every_room_is_in_the_contract(architecture):
    rooms = {room for layer in architecture["layers"]() for room in layer}
    assert rooms == {*_entries(), "experiments"}


def test_arrows_of_the_picture_are_imports(architecture, imports):
    for user, used in architecture["USES"]:
        assert imports(user, used), f"{user} does not use {used}"


def test_picture_has_higher_rooms_higher(architecture):
    """Of two rooms in different layers, the upper one is drawn above the other, or level with it."""
    boxes, layers = architecture["BOXES"], architecture["layers"]()
    for upper, lower in zip(layers, layers[1:], strict=False):
        assert max(boxes[room].y for room in upper) <= min(boxes[room].y for room in lower)


def test_few_entries_at_the_top():
    assert len(_entries()) <= MOST_ENTRIES, _entries()


def _entries():
    ignored = {"__init__", "__main__", "py", "__pycache__"}
    return {path.stem for path in PACKAGE.iterdir()} - ignored


def test_package_is_small():
    assert sum(len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")) <= MOST_LINES


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short(path):
    source = path.read_text()
    n_lines = len(source.splitlines())
    assert n_lines <= LONGEST_FILE
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            n_lines = node.end_lineno - node.lineno + 1
            assert n_lines <= LONGEST_FUNCTION, node.name

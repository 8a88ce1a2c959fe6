"""Reads which module of the package imports which, and draws the rooms.

`python docs/design/rooms.py` writes `rooms.svg` again; a test fails when it is not what the
imports give.
"""

from __future__ import annotations

import ast
import functools
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "dftrace_ai"
DRAWING = HERE / "rooms.svg"

# What is written in C++, and what it is.
NATIVE = {"_native": "the core, in C++", "_reader": "reading, in C++"}
NATIVE_MODULES = {f"dftrace_ai.{name}" for name in NATIVE}
LEAVES = {"errors", "wording", "masking", "recorder", "system", "_version"}

WIDTH = 1490
BOX_WIDTH, BOX_HEIGHT = 168, 46
ROW = 88

# Where a room stands from left to right, so that few arrows cross; how high, the imports say.
COLUMNS = {
    "analysis": 0.168,
    "annotation": 0.583,
    "cli": 0.832,
    "compat": 0.583,
    "conditions": 0.438,
    "config": 0.832,
    "database": 0.438,
    "demo": 0.583,
    "device": 0.417,
    "face": 0.583,
    "generating": 0.3,
    "inspect": 0.832,
    "integrations": 0.417,
    "interpreters": 0.813,
    "live": 0.25,
    "loggers": 0.832,
    "notebook": 0.168,
    "page": 0.188,
    "_native": 0.563,
    "_reader": 0.063,
    "run": 0.583,
    "spare_folders": 0.938,
    "spools": 0.583,
    "testing": 0.02,
    "trace_format": 0.313,
    "ui": 0.7,
}


def modules(package: Path) -> dict[str, Path]:
    """Find every module of the package, by its full name."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: set[str]) -> Iterator[str]:
    """Find the modules that a file imports: anywhere in it, for types too, and by name."""
    for module, name in _named_in(path.read_text(encoding="utf-8")):
        full = f"{module}.{name}"
        yield full if name and (full in known or full in NATIVE_MODULES) else module


@functools.cache
def _named_in(text: str) -> tuple[tuple[str, str], ...]:
    """Read what a source imports: modules, each with the name taken from it, if any."""
    found: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [(a.name, "") for a in node.names if a.name.startswith("dftrace_ai")]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dftrace_ai"):
            found += [(str(node.module), alias.name) for alias in node.names]
        elif isinstance(node, ast.Call) and _imports_by_name(node):
            found.append((str(node.args[0].value), ""))  # type: ignore[attr-defined]
    return tuple(found)


def _imports_by_name(call: ast.Call) -> bool:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    given = call.args[0] if call.args else None
    return name in {"import_module", "__import__"} and isinstance(given, ast.Constant)


def arrows(package: Path) -> dict[str, set[str]]:
    """Return for each module those of the package that it imports."""
    known = modules(package)
    return {name: set(imported(path, set(known))) - {name} for name, path in known.items()}


def room(module: str) -> str:
    """Return the room of a module: ``face`` for the package, whose program is the command."""
    name = module.split(".")[1] if "." in module else "face"
    return "cli" if name == "__main__" else name


def rooms(package: Path) -> dict[str, set[str]]:
    """Return for each room those that it imports from, the leaves left out."""
    found: dict[str, set[str]] = {name: set() for name in NATIVE}
    for name, targets in arrows(package).items():
        if room(name) not in LEAVES:
            found.setdefault(room(name), set()).update(room(target) for target in targets)
    return {name: targets - {name, *LEAVES} for name, targets in found.items()}


def _reached(name: str, graph: dict[str, set[str]]) -> set[str]:
    return graph[name].union(*(_reached(below, graph) for below in graph[name]), set())


def _rows(graph: dict[str, set[str]]) -> list[list[str]]:
    level: dict[str, int] = {}

    def height(name: str) -> int:
        if name not in level:
            level[name] = 1 + max((height(below) for below in graph[name]), default=-1)
        return level[name]

    for name in graph:
        height(name)
    return [
        sorted(name for name in graph if level[name] == row)
        for row in range(max(level.values()), -1, -1)
    ]


def _parts(name: str) -> str:
    if name == "face":
        return "dftrace_ai/__init__.py"
    if name in NATIVE:
        return NATIVE[name]
    folders = sorted(p.parent.name for p in (PACKAGE / name).glob("*/__init__.py"))
    return ", ".join(folders)


def drawing(package: Path = PACKAGE) -> str:
    """Make the text of the drawing: a room stands above those that it imports.

    An arrow is left out where a longer way leads there.
    """
    graph = rooms(package)
    rows = _rows(graph)
    place = {
        name: (WIDTH * COLUMNS[name], 12 + number * ROW)
        for number, row in enumerate(rows)
        for name in row
    }
    for row in rows:
        across = sorted(place[name][0] for name in row)
        if any(right - left < BOX_WIDTH for left, right in itertools.pairwise(across)):
            raise ValueError(f"rooms lie over each other: {', '.join(row)}")
    height = len(rows) * ROW
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
        "<style>text { font-family: sans-serif; text-anchor: middle }</style>",
        '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7"',
        ' orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#667"/></marker>',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
    ]
    for name, targets in sorted(graph.items()):
        x, y = place[name]
        longer = set().union(*(_reached(target, graph) for target in targets), set())
        for target in sorted(targets - longer):
            to_x, to_y = place[target]
            begin, end = y + BOX_HEIGHT, to_y - 2
            middle = (begin + end) / 2
            lines.append(
                f'<path d="M{x:.0f},{begin:.0f} C{x:.0f},{middle:.0f} {to_x:.0f},{middle:.0f} '
                f'{to_x:.0f},{end:.0f}" fill="none" stroke="#667" marker-end="url(#head)"/>'
            )
    for name, (x, y) in sorted(place.items()):
        parts = _parts(name)
        lines.append(
            f'<rect x="{x - BOX_WIDTH / 2:.0f}" y="{y:.0f}" width="{BOX_WIDTH}" '
            f'height="{BOX_HEIGHT}" rx="5" fill="#eef3fb" stroke="#8aa"/>'
            f'<text x="{x:.0f}" y="{y + (20 if parts else 29):.0f}" font-size="15">{name}</text>'
        )
        if parts:
            shown = parts if len(parts) < 34 else parts[:32].rpartition(",")[0] + ", ..."
            lines.append(
                f'<text x="{x:.0f}" y="{y + 37:.0f}" font-size="9.5" fill="#556">{shown}</text>'
            )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    DRAWING.write_text(drawing(), encoding="utf-8")
    sys.stdout.write(f"wrote {DRAWING.name}\n")

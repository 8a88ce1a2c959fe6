"""Counts what makes a code base heavy: modules of one neighbour, untyped data, text nobody reads.

`python tests/project/house.py` prints the counts, `python tests/project/house.py NAME` what one of them
counts, for a look at what could go. A test holds each below a ceiling that only ever sinks.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "dftrace_ai"

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

sys.path.insert(0, str(ROOT / "docs" / "design"))

from rooms import arrows, modules  # noqa: E402 - it is beside no package

# Loaded by their names: parts of a table, programs of their own.
BY_NAME = re.compile(
    r"\.(trackers|routines|torch|adapters|launched|closing)\.|__main__$|\.closing$"
)

# Mappings whose values have no type, under every name that they have.
UNTYPED = re.compile(r"\b(JsonObject|(dict|Mapping|MutableMapping)\[(str|Any), (Any|object)\])")


def python_files(package: Path = PACKAGE) -> Iterator[tuple[Path, str]]:
    """The sources of the package with their text."""
    for path in sorted(package.rglob("*.py")):
        yield path, path.read_text(encoding="utf-8")


def of_one_neighbour(package: Path = PACKAGE) -> list[str]:
    """Modules that one other module alone imports: parts of that one, or files with a reason."""
    paths = modules(package)
    users: Counter[str] = Counter()
    user: dict[str, str] = {}
    for name, targets in arrows(package).items():
        for target in targets:
            users[target] += 1
            user[target] = name
    found = []
    for name, path in sorted(paths.items()):
        if path.name == "__init__.py" or users[name] != 1 or BY_NAME.search(name):
            continue
        found.append(f"{name} <- {user[name]}")
    return found


def untyped(package: Path = PACKAGE) -> list[str]:
    """Lines with a mapping whose values have no type."""
    return [
        f"{path.relative_to(package)}:{number}: {line.strip()}"
        for path, text in python_files(package)
        for number, line in enumerate(text.splitlines(), 1)
        if UNTYPED.search(line) and not line.lstrip().startswith("from ")
    ]


def public_names(package: Path = PACKAGE) -> set[str]:
    """Names that a user reaches: those that a package gives, and those that the documents import."""
    found: set[str] = set()
    for path, text in python_files(package):
        if path.name == "__init__.py":
            nodes = ast.walk(ast.parse(text))
            found.update(
                node.value
                for node in nodes
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            )
    for page in (*ROOT.glob("docs/**/*.md"), ROOT / "README.md"):
        for names in re.findall(
            r"from dftrace_ai[\w.]* import ([\w, ]+)", page.read_text(encoding="utf-8")
        ):
            found.update(name.strip().split(" ")[0] for name in names.split(","))
    return found


def inner_docstrings(package: Path = PACKAGE) -> list[str]:
    """Docstring lines beyond the first of functions and classes that no user reaches."""
    public = public_names(package)
    found: list[str] = []

    def look(node: ast.AST, path: Path, reached: bool, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                top = isinstance(node, ast.Module)
                known = (top and child.name in public) or (not top and reached)
                known = known and not child.name.startswith("_")
                doc = ast.get_docstring(child, clean=False)
                if doc and not known:
                    more = doc.count("\n")
                    found.extend([f"{path.relative_to(package)}: {name}{child.name}"] * more)
                look(child, path, known, f"{name}{child.name}.")
            else:
                look(child, path, reached, name)

    for path, text in python_files(package):
        look(ast.parse(text), path, reached=False, name="")
    return found


def comments(package: Path = PACKAGE) -> list[str]:
    """Lines that are a comment and tell something, not a tool."""
    return [
        f"{path.relative_to(package)}:{token.start[0]}"
        for path, text in python_files(package)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
        and not re.match(r"#\s*(noqa|type:|fmt:|pragma)|#!", token.string)
    ]


def lines(*roots: str) -> list[str]:
    """All lines of the sources below some folders, blank ones too."""
    return [
        str(path.relative_to(ROOT))
        for root in roots
        for path in sorted((ROOT / root).rglob("*"))
        if path.suffix in {".py", ".cpp", ".hpp"}
        for _ in range(path.read_text(encoding="utf-8").count("\n"))
    ]


COUNTS: dict[str, Callable[[], list[str]]] = {
    "product": lambda: lines("dftrace_ai", "native/src", "native/include", "native/bindings"),
    "python": lambda: lines("dftrace_ai"),
    "tests": lambda: lines("tests", "native/tests"),
    "of_one_neighbour": of_one_neighbour,
    "untyped": untyped,
    "inner_docstrings": inner_docstrings,
    "comments": comments,
}


def main() -> None:
    """Print the counts, or what one of them counts."""
    if len(sys.argv) > 1:
        for what, times in Counter(COUNTS[sys.argv[1]]()).most_common():
            print(times, what)
        return
    for name, count in COUNTS.items():
        print(f"{len(count()):>8,} {name}")


if __name__ == "__main__":
    main()

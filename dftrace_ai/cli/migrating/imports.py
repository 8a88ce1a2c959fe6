"""Rewrites the imports of one source: their names alone, every other byte stays what it was."""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
import warnings
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Left", "Migrated", "migrated"]

HOME = "dftrace_ai.compat.dftracer"

_PARTS = {
    "dynamo": re.compile(r"dftracer\.(python\.)?dynamo"),
    "torch": re.compile(r"dftracer\.python\.(dbg\.)?torch(\.profiler|\.common)?"),
    "": re.compile(
        r"dftracer\.(python(\.dbg)?(\.(ai|ai_common|ai_init|common|env|logger))?"
        r"|(dbg\.)?logger(\.(ai|ai_common|common|logger))?)"
    ),
}
# As an attribute `ai`, `dynamo` and `logger` are no modules, in dftracer neither.
_USED = re.compile(r"dftracer\.(python(\.dbg)?(\.(ai_common|ai_init|common|env))?|logger)")


class Left(NamedTuple):
    """Something that has to be changed by hand.

    Attributes:
        line: where it is, from 1.
        text: what stands there.
        reason: why it was left.
    """

    line: int
    text: str
    reason: str


class Migrated(NamedTuple):
    """A source after the change.

    Attributes:
        content: its bytes.
        lines: the lines that were changed, from 1.
        left: what has to be changed by hand.
    """

    content: bytes
    lines: tuple[int, ...]
    left: tuple[Left, ...]


def migrated(content: bytes) -> Migrated:
    """Rewrite what a source imports of dftracer.

    Args:
        content: the bytes of the file, in any encoding that it declares.

    Returns:
        The source after the change; the same where there is nothing to do, or where it
        cannot be understood, which is then what is left.

    Example::

        migrated(b"from dftracer.python import ai").content
        # b"from dftrace_ai.compat.dftracer import ai"
    """
    if b"dftracer" not in content:
        return Migrated(content, (), ())
    try:
        text, encoding = _decoded(content)
        return _migrated(content, text, encoding)
    except SyntaxError as error:
        line, reason = error.lineno or 1, f"not Python of this version: {error.msg}"
    except (RecursionError, MemoryError):
        line, reason = 1, "expressions are nested too deeply in it"
    return Migrated(content, (), (Left(line, "", reason),))


def _decoded(content: bytes) -> tuple[str, str]:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return content.decode(encoding), encoding
    except (ValueError, LookupError) as error:
        raise SyntaxError(str(error)) from error


def _tree_of(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except ValueError as error:
        raise SyntaxError(str(error)) from error


def _migrated(content: bytes, text: str, encoding: str) -> Migrated:
    mark = codecs.BOM_UTF8 if encoding == "utf-8-sig" else b""
    plain = "utf-8" if encoding == "utf-8-sig" else encoding
    if mark + text.encode(plain) != content:
        reason = f"other bytes of it would change, for {plain} can write its text in several ways"
        return Migrated(content, (), (Left(1, "", reason),))
    tree = _tree_of(text)
    source = _Source(text)
    finder = _Finder(source)
    finder.visit(tree)
    finder.rewrite_uses(tree)
    changed = source.changed()
    left = tuple(sorted(finder.left))
    return Migrated(mark + changed.encode(plain), tuple(sorted(source.lines)), left)


def _home_of(module: str) -> str | None:
    for part, pattern in _PARTS.items():
        if pattern.fullmatch(module):
            return f"{HOME}.{part}" if part else HOME
    return None


@cache
def _names(home: str) -> frozenset[str]:
    from importlib import import_module

    import_module(HOME)
    import_module(f"{HOME}.torch")
    return frozenset({*vars(import_module(home))} - {"annotations"})


class _Source:
    """A text with places as `ast` counts them: lines from 1, columns in bytes of UTF-8."""

    def __init__(self, text: str) -> None:
        self.bytes = text.encode("utf-8", "surrogatepass")
        ends = [match.end() for match in re.finditer(rb"\r\n|\r|\n", self.bytes)]
        self._starts = [0, *ends]
        self._edits: dict[tuple[int, int], bytes] = {}
        self.lines: set[int] = set()

    def place(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def text_of(self, node: ast.stmt | ast.expr) -> str:
        first = self.place(node.lineno, node.col_offset)
        last = self.place(node.end_lineno or node.lineno, node.end_col_offset or 0)
        return self.bytes[first:last].decode("utf-8", "replace")

    def replace(self, line: int, first: int, last: int, new: str) -> None:
        self._edits[first, last] = new.encode()
        self.lines.add(line)

    def changed(self) -> str:
        made = self.bytes
        for (first, last), new in sorted(self._edits.items(), reverse=True):
            made = made[:first] + new + made[last:]
        return made.decode("utf-8", "surrogatepass")


class _Finder(ast.NodeVisitor):
    """Finds imports of dftracer, and rewrites those that can be."""

    def __init__(self, source: _Source) -> None:
        self._source = source
        self.left: list[Left] = []
        # Modules that are imported by their whole name, which binds `dftracer`.
        self._whole: list[tuple[ast.Import, ast.alias]] = []
        self._bound_otherwise = False

    def visit_Import(self, node: ast.Import) -> None:
        """Rewrite ``import dftracer.python as d``; put whole names aside."""
        for alias in node.names:
            if alias.name.split(".")[0] != "dftracer":
                self._bound_otherwise |= alias.asname == "dftracer"
            elif alias.asname is None:
                self._whole.append((node, alias))
            elif (home := _home_of(alias.name)) is None:
                self._leave(node, f"{HOME} has nothing in the place of {alias.name}")
            else:
                self._rename(node, alias, home)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Rewrite ``from dftracer.python import ...``."""
        module = "" if node.level else node.module or ""
        self._bound_otherwise |= any((a.asname or a.name) == "dftracer" for a in node.names)
        if module.split(".")[0] != "dftracer":
            return
        if module == "dftracer":
            self._from_top(node)
            return
        home = _home_of(module)
        if home is None:
            self._leave(node, f"{HOME} has nothing in the place of {module}")
            return
        lacking = [a.name for a in node.names if a.name != "*" and a.name not in _names(home)]
        if lacking:
            self._leave(node, f"{home} has no {', '.join(lacking)}")
            return
        self._replace_after(node, rb"from[\s\\]+", module, home)

    def _from_top(self, node: ast.ImportFrom) -> None:
        names = [alias.name for alias in node.names]
        if names in (["python"], ["logger"]):
            bound = node.names[0].asname or names[0]
            first = self._source.place(node.lineno, node.col_offset)
            last = self._source.place(node.end_lineno or node.lineno, node.end_col_offset or 0)
            new = f"from {HOME.rpartition('.')[0]} import dftracer as {bound}"
            self._source.replace(node.lineno, first, last, new)
        else:
            self._leave(node, f"{HOME} has nothing in the place of these names of dftracer itself")

    def _rename(self, node: ast.Import, alias: ast.alias, home: str) -> None:
        first = self._source.place(alias.lineno, alias.col_offset)
        last = first + len(alias.name.encode())
        if self._source.bytes[first:last] == alias.name.encode():
            self._source.replace(alias.lineno, first, last, home)
        else:
            self._leave(node, "the name is written with blanks in it")

    def _replace_after(self, node: ast.stmt, before: bytes, old: str, new: str) -> None:
        start = self._source.place(node.lineno, node.col_offset)
        found = re.compile(before + re.escape(old.encode()) + rb"(?![\w.])").match(
            self._source.bytes, start
        )
        if found is None:
            self._leave(node, "the name is written with blanks in it")
        else:
            last = found.end()
            self._source.replace(node.lineno, last - len(old.encode()), last, new)

    def rewrite_uses(self, tree: ast.AST) -> None:
        """Rewrite modules that are imported by their whole name, with all uses of them."""
        strings = list(_strings(tree))
        self.left += [
            Left(one.lineno, self._source.text_of(one), "a module's name in a string")
            for one in strings
        ]
        if not self._whole:
            return
        uses = list(_uses(tree))
        self._bound_otherwise |= any(map(_binds, ast.walk(tree)))
        known = [_home_of(alias.name) for _, alias in self._whole]
        all_known = all(home is not None for home in known)
        if self._bound_otherwise or not all_known or any(home is None for _, home in uses):
            for node, alias in self._whole:
                reason = (
                    f"{HOME} has nothing in the place of {alias.name}"
                    if _home_of(alias.name) is None
                    else "the name dftracer is used otherwise, too"
                )
                self._leave(node, reason)
            return
        for (node, alias), home in zip(self._whole, known, strict=True):
            self._rename(node, alias, str(home))
        for use, use_home in uses:
            first = self._source.place(use.lineno, use.col_offset)
            last = self._source.place(use.end_lineno or use.lineno, use.end_col_offset or 0)
            self._source.replace(use.lineno, first, last, str(use_home))

    def _leave(self, node: ast.stmt, reason: str) -> None:
        self.left.append(Left(node.lineno, self._source.text_of(node), reason))


def _strings(tree: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(r"dftracer(\.\w+)+", node.value)
            and _home_of(".".join(node.value.split(".")[:2])) is not None
        ):
            yield node


def _uses(node: ast.AST) -> Iterator[tuple[ast.expr, str | None]]:
    """Yield each use of the name ``dftracer``: the longest name of a module there, and its home."""
    dotted = _dotted(node)
    if isinstance(node, ast.expr) and dotted is not None:
        home = HOME if _USED.fullmatch(dotted) else None
        if home is not None or "." not in dotted:
            yield node, home
            return
    for child in ast.iter_child_nodes(node):
        yield from _uses(child)


def _binds(node: ast.AST) -> bool:
    """Whether a function, class, argument, exception, pattern or declaration has the name."""
    if isinstance(node, (ast.alias, ast.keyword)):
        return False
    named = (getattr(node, field, None) for field in ("arg", "name", "rest"))
    return "dftracer" in named or "dftracer" in getattr(node, "names", ())


def _dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return "dftracer" if node.id == "dftracer" else None
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return None

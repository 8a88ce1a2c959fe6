"""`dftrace migrate`: programs that import dftracer import `dftrace_ai.compat.dftracer` instead.

The names of modules change, and every other byte stays what it was; shown as a diff, or written.
"""

from __future__ import annotations

import ast
import codecs
import difflib
import io
import os
import re
import stat
import tempfile
import tokenize
import warnings
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from dftrace_ai.cli.shared_options import json_option
from dftrace_ai.cli.terminal import complain, shown, write_json, write_out
from dftrace_ai.errors import DftraceError
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SOMETHING_IS_LEFT = 1
SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages"})

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


@dataclass(frozen=True)
class LeftPlace:
    """Something that has to be changed by hand.

    Attributes:
        path: the file.
        line: where in it, from 1.
        text: what stands there; empty where it is about the whole file.
        reason: why it was left.
    """

    path: str
    line: int
    text: str
    reason: str


@dataclass(frozen=True)
class ChangedFile:
    """A file with imports of dftracer that can be rewritten.

    Attributes:
        path: the file.
        lines: the lines that change, from 1.
        diff: the change, as a unified diff.
    """

    path: str
    lines: tuple[int, ...]
    diff: str


@dataclass(frozen=True)
class Migration:
    """What `dftrace migrate --json` prints.

    Attributes:
        format: version of this form.
        written: whether the files were changed.
        read: how many files were looked at.
        files: those that change.
        left: what has to be changed by hand.
        kind: ``dftrace migrate``, by which its JSON is known.
    """

    format: Literal[1]
    written: bool
    read: int
    files: tuple[ChangedFile, ...]
    left: tuple[LeftPlace, ...]
    kind: Literal["dftrace migrate"] = "dftrace migrate"


def command(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATHS...", help="Files, and directories whose .py files are looked at."
        ),
    ],
    write: Annotated[
        bool, typer.Option("--write", help="Change the files, instead of showing how.")
    ] = False,
    json: Annotated[bool, json_option("Print JSON instead of a diff.")] = False,
) -> None:
    """Let programs that import dftracer import dftrace_ai.compat.dftracer instead.

    Shows a diff of what --write would change: names of modules, and nothing else. What cannot be
    changed that way is listed, with the reason. Folders that begin with a dot, and those of
    installed packages, are left alone.

    Example: dftrace migrate src --write

    Exit status: 0 done, 1 something has to be changed by hand, 2 the call is wrong.
    """
    done = _migrate(list(_sources(paths)), write=write)
    if json:
        write_json(done)
    else:
        for file in done.files:
            write_out("".join(f"{shown(line)}\n" for line in file.diff.splitlines()))
        for place in done.left:
            text = f": {place.text.splitlines()[0]}" if place.text else ""
            complain(f"{place.path}:{place.line}: left as it is, {place.reason}{text}")
        did = "changed" if write else "to change, --write does it"
        read = f"{counted(done.read, 'file')} read"
        typer.echo(f"{counted(len(done.files), 'file')} {did}; {read}", err=True)
    if done.left:
        raise typer.Exit(SOMETHING_IS_LEFT)


def _sources(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.exists():
            raise DftraceError(f"{path}: there is no such file")
        if not path.is_dir():
            yield path
            continue
        for folder, names, files in os.walk(path):
            names[:] = sorted(
                name
                for name in names
                if name not in SKIPPED_FOLDERS
                and not name.startswith(".")
                and not Path(folder, name, "pyvenv.cfg").exists()
            )
            yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))


def _migrate(sources: list[Path], *, write: bool) -> Migration:
    done = [_migrate_file(path, write=write) for path in sources]
    files = tuple(file for file, _ in done if file is not None)
    left = tuple(place for _, places in done for place in places)
    return Migration(1, write, len(sources), files, left)


def _migrate_file(path: Path, *, write: bool) -> tuple[ChangedFile | None, list[LeftPlace]]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None, [LeftPlace(str(path), 1, "", "it is no regular file")]
        before = path.read_bytes()
        after = migrated(before)
        if write and after.content != before:
            _replace(path.resolve(), after.content)
    except OSError as error:
        reason = f"it cannot be read or written: {error.strerror}"
        return None, [LeftPlace(str(path), 1, "", reason)]
    left = [LeftPlace(str(path), *place) for place in after.left]
    if after.content == before:
        return None, left
    return ChangedFile(str(path), after.lines, _diff(str(path), before, after.content)), left


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, with the owner and the rights that it had."""
    facts = path.stat()
    if facts.st_nlink > 1:
        _overwrite(path, content)
        return
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            made = os.fstat(number)
            if (made.st_uid, made.st_gid) != (facts.st_uid, facts.st_gid):
                os.fchown(number, facts.st_uid, facts.st_gid)
            os.fchmod(number, facts.st_mode & 0o7777)  # behind it, which takes some rights away
            file.flush()
            os.fsync(number)  # it takes the place of what somebody has written by hand
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _overwrite(path: Path, content: bytes) -> None:
    """Write into a file that has other names, which are to name the same file afterwards."""
    with path.open("r+b") as file:
        # So that nothing is begun on a full disk.
        os.posix_fallocate(file.fileno(), 0, len(content))
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _diff(path: str, before: bytes, after: bytes) -> str:
    old, new = (text.decode("utf-8", "replace").splitlines() for text in (before, after))
    lines = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm="")
    return "".join(f"{line}\n" for line in lines)


class _Left(NamedTuple):
    """Something of a source that has to be changed by hand."""

    line: int
    text: str
    reason: str


class _Migrated(NamedTuple):
    """A source after the change, and which lines of it were changed, from 1."""

    content: bytes
    lines: tuple[int, ...]
    left: tuple[_Left, ...]


def migrated(content: bytes) -> _Migrated:
    """Rewrite what a source, in any encoding that it declares, imports of dftracer."""
    # What cannot be understood stays as it is, and is then what is left.
    if b"dftracer" not in content:
        return _Migrated(content, (), ())
    try:
        text, encoding = _decoded(content)
        return _migrated(content, text, encoding)
    except SyntaxError as error:
        line, reason = error.lineno or 1, f"not Python of this version: {error.msg}"
    except (RecursionError, MemoryError):
        line, reason = 1, "expressions are nested too deeply in it"
    return _Migrated(content, (), (_Left(line, "", reason),))


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


def _migrated(content: bytes, text: str, encoding: str) -> _Migrated:
    mark = codecs.BOM_UTF8 if encoding == "utf-8-sig" else b""
    plain = "utf-8" if encoding == "utf-8-sig" else encoding
    if mark + text.encode(plain) != content:
        reason = f"other bytes of it would change, for {plain} can write its text in several ways"
        return _Migrated(content, (), (_Left(1, "", reason),))
    tree = _tree_of(text)
    source = _Source(text)
    finder = _Finder(source)
    finder.visit(tree)
    finder.rewrite_uses(tree)
    changed = source.changed()
    left = tuple(sorted(finder.left))
    return _Migrated(mark + changed.encode(plain), tuple(sorted(source.lines)), left)


def _home_of(module: str) -> str | None:
    for part, pattern in _PARTS.items():
        if pattern.fullmatch(module):
            return f"{HOME}.{part}" if part else HOME
    return None


@cache
def _names(home: str) -> frozenset[str]:
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
        self.left: list[_Left] = []
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
            _Left(one.lineno, self._source.text_of(one), "a module's name in a string")
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
        self.left.append(_Left(node.lineno, self._source.text_of(node), reason))


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

"""`dftrace migrate`: the imports of dftracer in programs, shown as a diff or written."""

from __future__ import annotations

import difflib
import os
import stat
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pydantic import TypeAdapter

__all__ = ["command", "migration_adapter"]

SOMETHING_IS_LEFT = 1
SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages"})


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
    """

    format: Literal[1]
    written: bool
    read: int
    files: tuple[ChangedFile, ...]
    left: tuple[LeftPlace, ...]


def migration_adapter() -> TypeAdapter[Migration]:
    """Return what checks such a report and makes its schema."""
    from pydantic import TypeAdapter

    return TypeAdapter(Migration)


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
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a diff.")] = False,
) -> None:
    """Let programs that import dftracer import dftrace_ai.compat.dftracer instead.

    Shows a diff of what --write would change: names of modules, and nothing else. What cannot be
    changed that way is listed, with the reason. Folders that begin with a dot, and those of
    installed packages, are left alone.

    Example: dftrace migrate src --write

    Exit status: 0 done, 1 something has to be changed by hand, 2 the call is wrong.
    """
    from dftrace_ai.cli.terminal import complain, shown, write_json, write_out
    from dftrace_ai.wording import counted

    done = _migrate(list(_sources(paths)), write=write)
    if json:
        write_json(asdict(done))
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
    from dftrace_ai.errors import DftraceError

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
    from dftrace_ai.cli.migrating.imports import migrated

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
    """Write a file whole or not at all, with the owner and the rights that it had.

    Raises:
        OSError: it cannot be written, or not so that it keeps its owner.
    """
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


def _diff(path: str, before: bytes, after: bytes) -> str:
    old, new = (text.decode("utf-8", "replace").splitlines() for text in (before, after))
    lines = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm="")
    return "".join(f"{line}\n" for line in lines)

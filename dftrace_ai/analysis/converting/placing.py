"""What a conversion writes: whole when it gets its name, in no other's place; and its report."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from dftrace_ai import system
from dftrace_ai.errors import DftraceError
from dftrace_ai.spare_folders import is_let_go, locked
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


Form = Literal["parquet", "perfetto", "dftracer", "otlp", "speedscope", "pprof"]
"""In which form."""


@dataclass(frozen=True)
class ConvertedFile:
    """A file that was written.

    Attributes:
        path: below the directory, or the file itself.
        rank: whose events it holds; null where that is not known, or they are of several.
        lines: events in it, with the lines of the format: names of tracks, headers, footers;
            of samples of stacks these; 0 where it holds something else.
        bytes: its size.
    """

    path: str
    rank: int | None
    lines: int
    bytes: int


@dataclass(frozen=True)
class Converted:
    """What was written.

    Attributes:
        format: version of this form, 1.
        to: in which form.
        out: the file or directory.
        lines: of all files.
        files: each of them.
        notes: what could not be read, or was changed, one line each.
        told: for Perfetto, which pids were changed and which arrows are not drawn, one line each.
        kind: ``dftrace convert``, by which its JSON is known.
    """

    format: Literal[1]
    to: Form
    out: str
    lines: int
    files: tuple[ConvertedFile, ...]
    notes: tuple[str, ...]
    told: tuple[str, ...] = ()
    kind: Literal["dftrace convert"] = "dftrace convert"


MANIFEST: Final = "dftrace-convert.json"
"""What stands in a directory of a conversion: the names of its files."""

# What dftracer's readers leave beside the traces that they have read.
INDEX: Final = ".dftindex"

FILE_MODE: Final = 0o600

GZIP_LEVEL: Final = 6

# How files begin that conversions write: for Perfetto, as archives, for speedscope, pprof and OTLP.
BEGINNINGS: Final = (
    b"[\n",
    b"perfetto_manifest.json\0",
    b'{"$schema":"https://www.speedscope.app',
    b"\n\x04\x08\x01\x10\x02",
    b'{"resourceSpans":[',
)
GZIP_MAGIC: Final = b"\x1f\x8b"
HEAD_BYTES: Final = 4096


def _check_place(target: Path, inputs: Sequence[Path], *, directory: bool, force: bool) -> None:
    """Refuse a target that something else stands at; with force, what no conversion has written."""
    name = quoted(str(target))
    try:
        target.lstat()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise DftraceError(f"{name}: cannot be written: {_reason(error)}") from error
    if not force:
        raise DftraceError(f"{name}: is there already; --force replaces it")
    if not directory and target.is_dir() and not any(target.glob("*")):
        raise DftraceError(f"{name}: is a directory; name a file in it")
    real = os.path.realpath(target)
    if any(Path(os.path.realpath(path)).is_relative_to(real) for path in inputs):
        raise DftraceError(f"{name}: holds what is converted; choose another place")
    if not _of_a_conversion(target):
        raise DftraceError(
            f"{name}: holds what no conversion has written, so it is not replaced; choose "
            "another place"
        )


def _of_a_conversion(target: Path) -> bool:
    """Return whether a file, or all that a directory holds, can be of a conversion."""
    return _is_merged(target) if target.is_file() else _holds_conversion(target)


def _is_merged(path: Path) -> bool:
    """Return whether a file begins as those of conversions do."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        if head.startswith(GZIP_MAGIC):
            head = zlib.decompressobj(wbits=31).decompress(head, max(map(len, BEGINNINGS)))
    except (OSError, zlib.error):
        return False
    return head.startswith(BEGINNINGS)


def _holds_conversion(folder: Path) -> bool:
    if folder.is_symlink() or not folder.is_dir():
        return False
    inside = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    found = {str(path) for path in inside if path.parts[0] != INDEX}
    if not found:
        return True
    try:
        said = json.loads((folder / MANIFEST).read_bytes())
        return found <= {MANIFEST, *(file["path"] for file in said["files"])}
    except (OSError, ValueError, TypeError, KeyError):
        return False


@contextmanager
def in_place(
    target: Path, inputs: Sequence[Path] = (), *, directory: bool, force: bool
) -> Iterator[Path]:
    """Give a new file or directory, which gets the name when the block has ended well."""
    # Args:
    #     target: the name.
    #     inputs: what is read meanwhile, which is in no way replaced.
    #     directory: whether it is one.
    #     force: what an earlier conversion has written there is replaced.
    #
    # Raises:
    #     DftraceError: it cannot be written, or something else has the name: before the block, or
    #         since then, as where two calls write to one name.
    _check_place(target, inputs, directory=directory, force=force)
    unnamed = target.with_name(f".{target.name[:100]}-{secrets.token_hex(4)}")
    held = -1
    try:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            # What a process leaves that is killed goes with the next call for the same name.
            _remove_left(target)
            if directory:
                unnamed.mkdir(mode=0o700)
            else:
                new_file(unnamed)
            if system.HOLDS_FOLDERS:
                held = os.open(unnamed, os.O_RDONLY | system.O_CLOEXEC)
                locked(held)
            yield unnamed
            _check_place(target, inputs, directory=directory, force=force)
            _name(unnamed, target, force=force)
        finally:
            if held >= 0:
                os.close(held)
            _remove(unnamed)
    except OSError as error:
        raise cannot_be_written(target, _reason(error)) from error


def gzip_member(text: bytes | bytearray) -> bytes:
    """Return text as a member of a gzip file; members joined are one file."""
    packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, 31)
    return packer.compress(text) + packer.flush()


def new_file(path: Path) -> None:
    """Make an empty file that nobody else may read."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.O_CLOEXEC, FILE_MODE))


def cannot_be_written(target: Path, why: str) -> DftraceError:
    """Return the error of a target that cannot be written."""
    return DftraceError(f"{quoted(str(target))}: cannot be written: {why}")


def _name(unnamed: Path, target: Path, *, force: bool) -> None:
    try:
        if force or unnamed.is_dir():
            unnamed.replace(target)
        else:
            _link(unnamed, target)
    except OSError:
        if not target.exists():
            raise
    else:
        return
    # A directory takes no place of a file, nor of another that is not empty.
    old = unnamed.with_name(f"{unnamed.name}-old")
    target.rename(old)
    try:
        unnamed.rename(target)
    except OSError:
        old.rename(target)
        raise
    _remove(old)


def _link(unnamed: Path, target: Path) -> None:
    """Give a file a name that it takes from nobody, however many want it at this moment."""
    try:
        target.hardlink_to(unnamed)
    except FileExistsError:
        raise
    except OSError:
        unnamed.replace(target)  # there are file systems without links


def _remove_left(target: Path) -> None:
    unnamed = re.compile(rf"\.{re.escape(target.name[:100])}-[0-9a-f]{{8}}")
    for path in list(target.parent.iterdir()):
        if unnamed.fullmatch(path.name) and is_let_go(path):
            _remove(path)


def _remove(unnamed: Path) -> None:
    if unnamed.is_dir():
        shutil.rmtree(unnamed)
    else:
        unnamed.unlink(missing_ok=True)


def _reason(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)

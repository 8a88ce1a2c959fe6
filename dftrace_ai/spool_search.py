"""Finding the spools that belong to a directory of traces; whoever may write there can lie."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dftrace_ai import _native
from dftrace_ai.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "MARKER_SUFFIX",
    "SPOOL_SUFFIX",
    "FoundSpool",
    "TraceDirectoryOf",
    "find_orphans",
    "find_spools",
]

MARKER_SUFFIX = ".spool-at"
SPOOL_PREFIX = "dftrace-"
SPOOL_SUFFIX = ".spool"

# Where the recorder puts spools by itself, beside the directory of the trace.
SPOOL_PLACES = ("/dev/shm", "/tmp")  # noqa: S108 - looked into, and only for files of the caller

# The longest path that Linux takes, a newline, and a line that says on which boot, and in
# which container of the machine, the path holds.
MARKER_BYTES = 4096 + 1 + 100
MARKER = re.compile(rb"(?P<path>[^\n]*)\n(?:(?P<boot>[^ \n]*) (?P<container>\d+)\n)?")


class FoundSpool(NamedTuple):
    """A spool that belongs to a directory of traces."""

    path: str
    """Where it lies, or lay; empty where a marker does not say."""
    marker: Path | None
    """The file in the directory that names it; None for one found without."""
    fault: str = ""
    """Why it must be left alone; empty for a spool that may be read."""
    elsewhere: bool = False
    """Its marker is of another container of this machine, where its path may mean another file."""
    place: str = ""
    """Boot of the machine and container in which its process runs, where a marker says so."""


class TraceDirectoryOf(Protocol):
    """Reads in a spool in which directory the trace of its process is."""

    def __call__(self, spool: str, /) -> str:
        """Return the directory.

        Raises:
            OSError: the spool cannot be opened.
            ValueError: it is no spool, or names no directory.
        """


def find_spools(
    directory: str | os.PathLike[str],
    run: str | None = None,
    *,
    spool_dir: str | os.PathLike[str] | None = None,
    trace_directory_of: TraceDirectoryOf | None = None,
) -> list[FoundSpool]:
    """Find the spools that belong to a directory of traces; nothing is changed.

    These are the ones that markers in the directory name. A marker may be missing, since
    the disk was full or its process was killed too early. So a spool of the caller counts
    as well that says itself that its trace is in this directory, if it lies there, in
    ``/dev/shm``, in ``/tmp`` or in ``DFTRACE_SPOOL_DIR``.

    Args:
        directory: where the trace files are.
        run: only the spools of this run (32 hexadecimal digits); None takes all.
        spool_dir: a directory to look for spools besides those.
        trace_directory_of: how to ask a spool; by default the native core.

    Returns:
        The spools by path, each once, those that must be left alone with the reason:
        a marker or a spool that is a link, a pipe or a directory, and a spool of
        another user than its marker.

    Example::

        for spool in dftrace_ai.recovery.find_spools("out"):
            print(spool.path, spool.fault or "may be read")
    """
    ask: TraceDirectoryOf | None = trace_directory_of or getattr(
        _native, "spool_trace_directory", None
    )
    prefix = SPOOL_PREFIX if run is None else f"{SPOOL_PREFIX}{run[:16]}-"
    found: dict[str, FoundSpool] = {}
    faulty: list[FoundSpool] = []
    for entry in _entries(os.fspath(directory), MARKER_SUFFIX):
        spool = spool_of_marker(Path(entry.path))
        if spool is None:
            continue
        if spool.fault:
            faulty.append(spool)
        elif Path(spool.path).name.startswith(prefix):
            found[spool.path] = spool
    if ask:
        for place in _places(os.fspath(directory), os.fspath(spool_dir or "")):
            for path in _own_spools(place, prefix):
                if path not in found and _belongs(path, directory, ask):
                    # Where the file system shows another owner, its marker is right all the same.
                    named = [spool for spool in faulty if spool.path == path]
                    faulty = [spool for spool in faulty if spool.path != path]
                    found[path] = FoundSpool(path, named[0].marker if named else None)
    return sorted([*found.values(), *faulty], key=lambda spool: (spool.path, str(spool.marker)))


def spool_of_marker(marker: Path) -> FoundSpool | None:
    """Read which spool a marker names.

    Args:
        marker: its path; a link is not followed, and nothing is waited for.

    Returns:
        The spool, with the reason where it must be left alone; None when the marker is
        gone, since its process took it away just now.

    Example::

        spool = spool_of_marker(Path("out/t-node1-4711.spool-at"))
    """
    try:
        content = _content(marker)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = "is a link" if error.errno == errno.ELOOP else str(error.strerror)
        return FoundSpool("", marker, reason)
    if content is None:
        return FoundSpool("", marker, "is no regular file")
    text, owner = content
    said = MARKER.fullmatch(text)
    path = os.fsdecode(said["path"]) if said else ""
    if not said or len(text) > MARKER_BYTES or not _may_be_spool(path):
        return FoundSpool("", marker, "names no spool")
    elsewhere = said["boot"] is not None and _is_elsewhere(said["boot"], said["container"])
    place = "" if said["boot"] is None else f"{os.fsdecode(said['boot'])} {int(said['container'])}"
    return FoundSpool(path, marker, _fault_of(path, owner), elsewhere, place)


def find_orphans() -> list[FoundSpool]:
    """Find the spools of the caller whose directory of traces is gone.

    Returns:
        The spools by path, those of running processes among them.

    Example::

        for spool in find_orphans():
            print(spool.path)
    """
    found: list[FoundSpool] = []
    for place in _places():
        for path in _own_spools(place, SPOOL_PREFIX):
            try:
                gone = not Path(_native.spool_trace_directory(path)).exists()
            except (OSError, ValueError):
                continue  # no whole spool: its process makes it just now
            if gone:
                found.append(FoundSpool(path, None))
    return sorted(found)


def _places(*others: str) -> list[str]:
    """Return the directories in which spools may lie, each once."""
    places = (*others, *SPOOL_PLACES, os.environ.get("DFTRACE_SPOOL_DIR"))
    return list(dict.fromkeys(os.path.realpath(place) for place in places if place))


def _entries(directory: str, suffix: str) -> Iterator[os.DirEntry[str]]:
    """Yield what a directory holds under names with this end; nothing where it cannot be listed."""
    try:
        with os.scandir(directory) as entries:
            yield from (entry for entry in entries if entry.name.endswith(suffix))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        # Who looks for traces there is told so; who only looks for spools has none there.
        return


def _is_elsewhere(boot: bytes, container: bytes) -> bool:
    own_boot, _, own_container = _native.marker_place().encode().partition(b" ")
    # After a restart of the machine there is no such container any more.
    return boot == own_boot and container != own_container


def _content(marker: Path) -> tuple[bytes, int] | None:
    """Return what a marker holds, and who owns it; None for what is no regular file.

    Never waits, and follows no link.
    """
    # Looked at first, since opening alone does something to some devices.
    mode = marker.lstat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        return None
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    with open(os.open(marker, flags), "rb", buffering=0) as file:  # noqa: PTH123
        info = os.fstat(file.fileno())
        return (file.read(MARKER_BYTES + 1), info.st_uid) if stat.S_ISREG(info.st_mode) else None


def _may_be_spool(path: str) -> bool:
    name = Path(path).name
    well = path.startswith("/") and "\0" not in path and "\n" not in path
    return well and name.startswith(SPOOL_PREFIX) and name.endswith(SPOOL_SUFFIX)


def _fault_of(spool: str, owner: int) -> str:
    """Return why a spool that is named by a marker of `owner` must be left alone, or ""."""
    try:
        info = os.lstat(spool)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"names {quoted(spool)}: {error.strerror}"
    if not stat.S_ISREG(info.st_mode):
        return f"names {quoted(spool)}, which is no regular file"
    if info.st_uid != owner:
        return f"names {quoted(spool)}, which belongs to another user"
    return ""


def _own_spools(place: str, prefix: str) -> Iterator[str]:
    """Yield the spools in a directory that are regular files of the caller."""
    for entry in _entries(place, SPOOL_SUFFIX):
        if not entry.name.startswith(prefix):
            continue
        try:
            info = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # its process finished just now
        if stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid():
            yield entry.path


def _belongs(spool: str, directory: str | os.PathLike[str], ask: TraceDirectoryOf) -> bool:
    try:
        return Path(ask(spool)).samefile(directory)
    except (OSError, ValueError):
        # No whole spool, or one whose directory is gone: it belongs to no directory at all.
        return False

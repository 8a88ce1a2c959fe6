"""Finding the spools of a directory of traces, by its markers; whoever may write there can lie."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import threading
from functools import cached_property
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

import dftrace_ai._native as _native
from dftrace_ai.spools.answering import PATIENCE_S, waits_since
from dftrace_ai.spools.held import HeldDirectory
from dftrace_ai.trace_format.file_names import (
    MARKER_SUFFIX,
    SPOOL_PREFIX,
    SPOOL_SUFFIX,
    TRACE_SUFFIXES,
    is_spool,
    marker_base,
    process_of_spool,
    run_of_spool,
    spool_prefix,
)
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

# Where the recorder puts spools by itself, beside the directory of the trace.
SPOOL_PLACES = ("/dev/shm", "/tmp")  # noqa: S108 - looked into, and only for files of the caller

# The longest path that Linux takes, a newline, a line that says on which boot, and in which
# container of the machine, the path holds, and which number the marker has as a file, on which
# device, and one that stands there when the trace is complete.
MARKER_BYTES = 4096 + 1 + 100 + 10
MARKER = re.compile(
    rb"(?P<path>[^\n]*)\n"
    rb"(?:(?P<boot>[^ \n]*) (?P<container>\d+)(?: (?P<file>\d+)(?: (?P<device>\d+))?)?\n"
    rb"(?P<complete>complete\n)*)?"
)
# What a process leaves that ends between making its marker and writing it.
BEGUN_MARKER = re.compile(rb"(?:/[^\n\0]*)?")


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
    owner: int = -1
    """Number of the user whose the marker is, and has to be whose the spool is; -1 if not known."""
    begun: bool = False
    """The marker is not written to its end: its process does that now, or has died there."""
    complete: bool = False
    """Its marker says that the trace is complete: only the spool, if it is there, has to go."""
    copied: bool = False
    """Its marker is not the file that the process made, but a copy of it."""


class MarkedSpool(NamedTuple):
    """A marker and what it says."""

    marker: Path
    """Its path; that of the spool where it has no marker."""
    spool: str
    """Its path on the host that the process runs on; empty where none is named."""
    fault: str = ""
    """Why it must be left alone; empty for a spool that may be read."""
    place: str = ""
    """Boot of the machine and container in which its process runs, where a marker says so."""
    owner: int = -1
    """Number of the user whose the marker is; -1 if not known."""

    @property
    def stem(self) -> str:
        """What stands in its name before the process: stem of the trace, ``-``, host."""
        name = marker_base(self.marker.name)
        # Hosts have numbers in their names, too.
        _, _, pid, *_ = [*self.spool.rpartition("/")[2].split("-"), "", "", ""]
        before, found, behind = name.rpartition(f"-{pid}")
        if pid and found and re.fullmatch(r"(-\d+)?", behind):
            return before
        return re.sub(r"-\d+$", "", name)

    @property
    def run(self) -> str:
        """The first 16 hexadecimal digits of the run, from the spool's name."""
        return run_of_spool(Path(self.spool).name)

    def traces(self) -> Iterator[Path]:
        """The names that the trace beside it may have."""
        for suffix in TRACE_SUFFIXES:
            yield Path(marker_base(str(self.marker)) + suffix)


def find_spools(directory: str | os.PathLike[str], run: str | None = None) -> list[FoundSpool]:
    """Find the spools that belong to a directory of traces, of a run or all; nothing is changed.

    These are the ones that markers in the directory name. A marker may be missing, since the disk
    was full or its process was killed too early. So a spool of the caller counts as well that says
    itself that its trace is in this directory, if it lies there, in ``/dev/shm``, in ``/tmp`` or in
    ``DFTRACE_SPOOL_DIR``. Those that must be left alone have the reason: a marker or a spool that
    is a link, a pipe or a directory, and a spool of another user than its marker.
    """
    return _in(directory, OwnSpools(run))


def _in(directory: str | os.PathLike[str], own: OwnSpools) -> list[FoundSpool]:
    try:
        held = HeldDirectory(directory)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        # Who looks for traces there is told so; who only looks for spools has none there.
        return []
    with held:
        return spools_of(held, own)


class OwnSpools:
    """The spools of the caller, of a run or of all, by the directory that their traces are in."""

    # The usual places, and `spool_dir`, are listed once, for as many directories as are asked
    # about: thousands of spools may lie there.
    def __init__(
        self, run: str | None = None, spool_dir: str | os.PathLike[str] | None = None
    ) -> None:
        self.prefix = spool_prefix(run)
        self.places = spool_places(os.fspath(spool_dir or ""))

    @cached_property
    def _of_each(self) -> dict[tuple[int, int], list[str]]:
        spools: dict[str, list[str]] = {}
        for place in self.places:
            for path in _own_spools(place, self.prefix):
                with contextlib.suppress(OSError, ValueError):  # as in `_belongs`
                    spools.setdefault(_native.spool_trace_directory(path), []).append(path)
        found: dict[tuple[int, int], list[str]] = {}
        for directory, info in _those_that_answer(spools):
            found.setdefault((info.st_dev, info.st_ino), []).extend(spools[directory])
        return found

    def besides(self, directory: HeldDirectory) -> list[str]:
        """Return the places that have to do with this directory alone: itself."""
        own = os.path.realpath(directory.path)
        return [] if own in self.places else [own]

    def of(self, directory: HeldDirectory) -> Iterator[str]:
        """Yield those whose traces are in a directory, and that lie in it or in a usual place."""
        for place in self.besides(directory):
            for path in _own_spools(place, self.prefix):
                if _belongs(path, directory):
                    yield path
        info = os.fstat(directory.descriptor)
        yield from self._of_each.get((info.st_dev, info.st_ino), ())


def _those_that_answer(directories: Collection[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield directories with what is known of them, but for those that do not answer.

    They are of other jobs, on the disk of a server that is away, which keeps whoever asks until it
    is back. The directory that a command is given has answered by now, and is none of these.
    """
    left = iter(tuple(directories))
    awaited = set(directories)
    answers: SimpleQueue[tuple[str, os.stat_result | None]] = SimpleQueue()
    asked: dict[threading.Thread, str] = {}

    def ask() -> None:
        for directory in left:
            asked[threading.current_thread()] = directory
            info = None
            with contextlib.suppress(OSError, ValueError):
                info = os.stat(directory)  # noqa: PTH116
            answers.put((directory, info))

    asking = None
    while awaited:
        if asking is None:
            asking = threading.Thread(target=ask, name="directories", daemon=True)
            asking.start()
        try:
            directory, info = answers.get(timeout=PATIENCE_S)
        except Empty:
            if asking in asked and waits_since(asking):
                awaited.discard(asked[asking])
                asking = None
            continue
        awaited.discard(directory)
        if info is not None:
            yield directory, info


def spools_of(
    directory: HeldDirectory,
    own: OwnSpools,
    *,
    owner: int | None = None,
) -> list[FoundSpool]:
    """Find spools as `find_spools` does, in a directory that is held open.

    `owner`: only markers of this user are opened, and what they name looked at; None takes all.
    """
    found: dict[str, FoundSpool] = {}
    faulty: list[FoundSpool] = []
    others: list[str] = []
    try:
        names = directory.entries()
    except (FileNotFoundError, PermissionError):
        names = {}  # as in `find_spools`
    for name in names:
        if not name.endswith(MARKER_SUFFIX):
            continue
        if not _is_of(owner, directory, name):
            others.append(name)
            continue
        spool = marker_in(directory, name)
        if spool is None:
            continue
        if spool.fault or spool.begun:
            faulty.append(spool)
        elif Path(spool.path).name.startswith(own.prefix):
            found[spool.path] = spool
    # A marker may lead there through a link.
    known = {os.path.realpath(path) for path in found}
    for path in own.of(directory):
        if path not in known:
            # Where the file system shows another owner, its marker is right all the same.
            named = [spool for spool in faulty if os.path.realpath(spool.path) == path]
            faulty = [spool for spool in faulty if spool not in named]
            marker = named[0].marker if named else _marker_among(others, directory, path)
            found[path] = FoundSpool(path, marker, owner=os.geteuid())
    return sorted([*found.values(), *faulty], key=lambda spool: (spool.path, str(spool.marker)))


def _is_of(owner: int | None, directory: HeldDirectory, name: str) -> bool:
    if owner is None:
        return True
    try:
        return directory.look(name).st_uid == owner
    except OSError:
        return False  # it is gone


def _marker_among(names: list[str], directory: HeldDirectory, spool: str) -> Path | None:
    """Return the marker that names a spool; where they lead to otherwise is not looked at."""
    for name in names:
        try:
            content = _content_of(directory, name)
        except OSError:
            continue  # another user's, who may keep it to himself
        if content is not None and content[0].startswith(os.fsencode(spool) + b"\n"):
            return Path(directory.shown(name))
    return None


def spool_of_marker(marker: Path) -> FoundSpool | None:
    """Read which spool a marker names; None when its process took the marker away just now."""
    try:
        with HeldDirectory(marker.parent) as directory:
            return marker_in(directory, marker.name)
    except OSError:
        return None


def marker_in(directory: HeldDirectory, name: str) -> FoundSpool | None:
    """Read which spool a marker names, as `spool_of_marker`, in a directory that is held open."""
    marker = Path(directory.shown(name))
    owner = -1
    try:
        owner = directory.look(name).st_uid
        content = _content_of(directory, name)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = "is a link" if error.errno == errno.ELOOP else str(error.strerror)
        return FoundSpool("", marker, reason, owner=owner)
    if content is None:
        return FoundSpool("", marker, "is no regular file", owner=owner)
    text, info = content
    owner = info.st_uid
    if len(text) < MARKER_BYTES and BEGUN_MARKER.fullmatch(text):
        return FoundSpool("", marker, owner=owner, begun=True)
    said = MARKER.fullmatch(text)
    path = os.fsdecode(said["path"]) if said else ""
    if not said or len(text) > MARKER_BYTES or not _may_be_spool(path):
        return FoundSpool("", marker, "names no spool", owner=owner)
    elsewhere = _is_elsewhere(said)
    place = "" if said["boot"] is None else f"{os.fsdecode(said['boot'])} {int(said['container'])}"
    if _moved_along(path, directory, owner):
        path = directory.shown(Path(path).name)
    return FoundSpool(
        path,
        marker,
        _fault_of(path, owner),
        elsewhere,
        place,
        owner,
        complete=said["complete"] is not None,
        copied=_is_copy(said, info),
    )


def _content_of(directory: HeldDirectory, name: str) -> tuple[bytes, os.stat_result] | None:
    """Return what a marker holds, and what the system tells of it; None for no regular file."""
    # Looked at first, since opening alone does something to some devices. Nothing is waited for.
    mode = directory.look(name).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        return None
    with open(directory.open(name, os.O_RDONLY), "rb", buffering=0) as file:  # noqa: PTH123
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            return None
        return file.read(MARKER_BYTES + 1), info


def _is_elsewhere(said: re.Match[bytes]) -> bool:
    """Return whether a marker is of another container of this machine."""
    own_boot, own_container = _own_place()
    # After a restart of the machine there is no such container any more.
    return said["boot"] == own_boot and said["container"] != own_container


def _is_copy(said: re.Match[bytes], marker: os.stat_result) -> bool:
    """Return whether a marker is another file than its process made."""
    if said["file"] is None:
        return False
    if int(said["file"]) != marker.st_ino:
        return True
    # A machine that starts again may number its devices otherwise.
    of_this_boot = said["boot"] == _own_place()[0]
    return of_this_boot and int(said["device"] or marker.st_dev) != marker.st_dev


def _own_place() -> tuple[bytes, bytes]:
    boot, _, container = _native.marker_place().encode().partition(b" ")
    return boot, container


def find_orphans() -> list[FoundSpool]:
    """Find the spools of the caller whose directory of traces is gone, of running processes too."""
    found: list[FoundSpool] = []
    for place in spool_places():
        for path in _own_spools(place, SPOOL_PREFIX):
            try:
                gone = not Path(_native.spool_trace_directory(path)).exists()
            except (OSError, ValueError):
                continue  # no whole spool: its process makes it just now
            if gone:
                found.append(FoundSpool(path, None, owner=os.geteuid()))
    return sorted(found)


def lives_without(spool: str, place: str) -> bool:
    """Return whether the process of a spool that was removed runs, as far as that is known."""
    process = process_of_spool(spool)
    if not process or place != _native.marker_place():
        return False
    return not _native.process_gone(process.pid, process.start)


def spool_places(*others: str) -> list[str]:
    """Return the directories in which spools may lie, each once: `others` and the usual ones."""
    places = (*others, *SPOOL_PLACES, os.environ.get("DFTRACE_SPOOL_DIR"))
    return list(dict.fromkeys(os.path.realpath(place) for place in places if place))


def spools_below(
    directory: str | os.PathLike[str], own: OwnSpools, *, deep: bool = True
) -> list[MarkedSpool]:
    """Find the spools that markers in a directory name, where `deep` to any depth, and others.

    They are sorted by marker. Where a directory below cannot be listed, a fault says so.
    """
    found: list[MarkedSpool] = []
    closed: list[OSError] = []
    for folder, below, names in os.walk(directory, onerror=closed.append):
        if not deep:
            below.clear()
        for name in names:
            if name.endswith(MARKER_SUFFIX):
                spool = spool_of_marker(Path(folder, name))
                if spool and not spool.begun and not spool.complete:
                    marker = Path(folder, name)
                    place, owner = spool.place, spool.owner
                    found.append(MarkedSpool(marker, spool.path, spool.fault, place, owner))
    for error in closed:
        if error.filename == os.fspath(directory):
            raise error
        # What a training removes meanwhile, such as an old checkpoint, is nobody's concern.
        if not isinstance(error, FileNotFoundError):
            fault = f"cannot be listed: {error.strerror}"
            found.append(MarkedSpool(Path(error.filename), "", fault))
    named = {spool.spool for spool in found}
    # Where the disk was full, or a process was killed early, there is no marker.
    others = [one for one in _in(directory, own) if one.path and one.path not in named]
    found += [MarkedSpool(Path(one.path), one.path) for one in others if not one.complete]
    return sorted(found, key=lambda spool: spool.marker)


def _moved_along(spool: str, directory: HeldDirectory, owner: int) -> bool:
    """Return whether a file called as the spool lies beside its marker, and is another one."""
    # The directory of both was renamed, or copied: then each marker has a spool of its own. What
    # another user than the marker's puts there is none.
    try:
        beside = directory.look(Path(spool).name)
    except OSError:
        return False
    if not stat.S_ISREG(beside.st_mode) or beside.st_uid != owner:
        return False
    try:
        return not os.path.samestat(beside, os.lstat(spool))
    except OSError:
        return True


def _may_be_spool(path: str) -> bool:
    name = Path(path).name
    well = path.startswith("/") and "\0" not in path and "\n" not in path
    return well and is_spool(name)


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
    try:
        with HeldDirectory(place) as directory:
            for name in directory.entries():
                if name.startswith(prefix) and name.endswith(SPOOL_SUFFIX):
                    try:
                        info = directory.look(name)
                    except FileNotFoundError:
                        continue  # its process finished just now
                    if stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid():
                        yield directory.shown(name)
    except OSError:
        return  # one of several places that are looked into in case there is something


def _belongs(spool: str, directory: HeldDirectory) -> bool:
    try:
        return directory.is_same(_native.spool_trace_directory(spool))
    except (OSError, ValueError):
        # No whole spool, or one whose directory is gone: it belongs to no directory at all.
        return False

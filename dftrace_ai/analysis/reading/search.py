"""The one search for traces: those that a user means by files, patterns and directories.

Parts of traces that a recorder deletes while they are read are held open, or known to be gone.
"""

from __future__ import annotations

import contextlib
import glob
import os
import stat
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai import system
from dftrace_ai.analysis.reading.importing import traces_of
from dftrace_ai.analysis.reading.remote import RemotePath, files_at, remote_path
from dftrace_ai.analysis.reading.source import Source, read_head
from dftrace_ai.analysis.reading.trace_end import read_end
from dftrace_ai.analysis.reading.trace_file import OPEN_FILES, HeldFile, SkippedFile, TraceFile
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.file_names import (
    MARKER_SUFFIX,
    PROFILE_SUFFIXES,
    TRACE_SUFFIXES,
    is_beside_traces,
    is_recorded,
    trace_name,
    trace_of_profile,
)
from dftrace_ai.wording import counted, shell_word

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from dftrace_ai.analysis.reading.trace import Trace


# Of the files that a process may have open; `max_files` keeps fewer.
MOST_HELD: Final = 512


def held_parts(paths: Iterable[Path]) -> tuple[dict[Path, HeldFile], set[Path]]:
    """Open the parts of traces that are still written, which `max_files` deletes one by one.

    Returns those that are held; and those that are not there any more.
    """
    recordings: dict[tuple[Path, str], list[tuple[int, Path]]] = defaultdict(list)
    for path in paths:
        name = trace_name(path.name)
        if name is not None:
            recordings[path.parent, name.base].append((name.part, path))
    held: dict[Path, HeldFile] = {}
    gone: set[Path] = set()
    room = min(MOST_HELD, system.open_files() // 2)
    for parts in recordings.values():
        last_part, last = max(parts)
        if last_part == 0 or not OPEN_FILES.is_dir():
            continue
        of_recording: dict[Path, HeldFile] = {}
        # The oldest are deleted first.
        for _, path in sorted(parts):
            found = _held(path) if len(held) + len(of_recording) < room else None
            if isinstance(found, HeldFile):
                of_recording[path] = found
            elif isinstance(found, FileNotFoundError):
                gone.add(path)
        if last in of_recording and not _is_finished(last, of_recording[last]):
            held.update(of_recording)
    return held, gone


def _held(path: Path) -> HeldFile | OSError:
    try:
        return HeldFile(path)
    except OSError as error:
        return error  # of one that is there who reads it tells


def _is_finished(path: Path, held: HeldFile) -> bool:
    try:
        codec = read_head(path, held.path).codec
        footer = read_end(TraceFile(path, codec, framed=True, named=True, held=held)).footer
    except TraceError:
        return False
    return footer is not None and footer.ended not in {None, "rotated"}


def was_deleted(path: Path) -> bool:
    """Return whether a file is not there, and later parts of its trace are."""
    name = trace_name(path.name)
    if name is None or os.path.lexists(path):
        return False
    try:
        others = map(trace_name, os.listdir(path.parent))  # noqa: PTH208 - there may be thousands
        return any(
            other is not None and other.base == name.base and other.part > name.part
            for other in others
        )
    except OSError:
        return False


def deleted_told(recordings: Iterable[Sequence[Trace]]) -> list[str]:
    """Return what is to be said of parts that are not there any more, a line for each trace."""
    told = []
    for files in recordings:
        names = [trace_name(trace.path.name) for trace in files]
        numbers = {name.part for name in names if name is not None}
        missing = max(numbers, default=-1) + 1 - len(numbers)
        if missing <= 0:
            continue
        events = _deleted_events(files)
        lost = "" if events is None else f", with {counted(events, 'event')},"
        base = files[0].path.parent / (names[0].base if names[0] else "")
        parts = counted(missing, "part")
        told.append(
            f"{base}: {parts} of {max(numbers) + 1}{lost} deleted by max_files, or not given"
        )
    return told


def _deleted_events(files: Sequence[Trace]) -> int | None:
    """Return how many events the parts have that are not there; None where nobody says it."""
    here = known = 0
    deleted = None
    for number, trace in enumerate(files):
        try:
            footer = trace.end.footer
        except TraceError:
            footer = None
        if footer is None or footer.events is None:
            break
        if footer.earlier_events is not None:
            deleted = max(0, footer.earlier_events - here)
            known = trace.part - number
        here += footer.events
    # Nobody says how many were in parts that are missing behind the last that says it.
    return deleted if files[-1].part + 1 - len(files) == known else None


# Where parts were deleted before they could be opened.
MOST_LISTINGS: Final = 8

# Of so many files each stays open from the look at its beginning on.
MOST_KEPT: Final = 64


@dataclass(frozen=True)
class TraceSearch:
    """The traces, each once, and files of directories that are none; sorted by path."""

    files: tuple[TraceFile, ...]
    skipped: tuple[SkippedFile, ...]
    merged: tuple[TraceFile, ...] = ()  # beside others, whose events they have, too


def search_traces(paths: Iterable[str | os.PathLike[str]], *, deep: bool = True) -> TraceSearch:
    """Find the traces that files and directories hold, past those that cannot be read.

    Not `deep`: of a directory what the recorder has put into it, and nothing below.

    Raises:
        TraceError: as of `open_traces`.
    """
    given = list(paths)
    for last in (*(False,) * MOST_LISTINGS, True):
        listed = _listed(given, deep)
        here = (*listed.asked.values(), *listed.inside.values())
        held, gone = held_parts(path for path in here if not isinstance(path, RemotePath))
        if last or not gone:
            break
    return _opened(listed, held, gone)


class _Listed(NamedTuple):
    """Files that were given, those of directories, and those of which it is known why not."""

    asked: dict[str, Path]
    inside: dict[str, Path]
    skipped: list[SkippedFile]


def _listed(paths: Iterable[str | os.PathLike[str]], deep: bool) -> _Listed:
    asked: dict[str, Path] = {}
    inside: dict[str, Path] = {}
    skipped: list[SkippedFile] = []
    deleted = []
    for path in matching_paths(paths):
        if isinstance(path, RemotePath):
            found_there = files_at(path, TRACE_SUFFIXES)
            (asked if found_there == [path] else inside).update(
                (str(one), one) for one in found_there
            )
            continue
        if was_deleted(path):
            deleted.append(path)
            continue
        if not _is_directory(path):
            asked.setdefault(os.path.realpath(path), path)
            continue
        # A run that was profiled, too, would be there twice.
        suffixes = (TRACE_SUFFIXES, PROFILE_SUFFIXES)
        under = (list(_traces_under(path, ends, deep)) for ends in suffixes)
        found = next(filter(None, under), None)
        if found is None:
            raise TraceError(
                f"{path}: no trace files ({', '.join(TRACE_SUFFIXES)}) in this directory; "
                f"dftrace run -o {shell_word(str(path))} SCRIPT puts some there"
            )
        for file, reason in found:
            if reason:
                skipped.append(SkippedFile(str(file), reason))
            else:
                inside.setdefault(os.path.realpath(file), file)
    if deleted and not (asked or inside or skipped):
        raise TraceError(f"{deleted[0]}: no such file: its recorder has deleted it")
    return _Listed(asked, inside, skipped)


def _opened(listed: _Listed, held: Mapping[Path, HeldFile], gone: Container[Path]) -> TraceSearch:
    asked, inside, skipped = listed
    files: list[TraceFile] = []

    def at(path: Path) -> Path:
        return held[path].path if path in held else path

    for path in asked.values():
        if path in gone:
            continue
        head = read_head(path, at(path))
        files += traces_of(Source(path, head, skipped, asked_for=True, held=held.get(path)))
    for real, path in inside.items():
        if real in asked or path in gone:
            continue
        try:
            head = read_head(path, at(path))
            files += traces_of(Source(path, head, skipped, held=held.get(path)))
        except TraceError as error:
            skipped.append(SkippedFile.because_of(error, path))
    if len(files) > MOST_KEPT:
        # A job of many ranks leaves the descriptors of the process to others.
        files = [replace(file, kept=None) for file in files]
    skipped.sort(key=lambda one: one.path)
    if not skipped and not files:
        raise TraceError("the recorder deletes the parts of its trace faster than they are read")
    if skipped and not files:
        others = f"; {len(skipped) - 1} more cannot be read either" if len(skipped) > 1 else ""
        raise TraceError(f"{skipped[0]}{others}")
    files.sort(key=lambda file: file.path)
    merged = tuple(file for file in files if file.merged)
    if len(merged) == len(files):
        return TraceSearch(merged, tuple(skipped))
    traces = tuple(file for file in files if not file.merged)
    return TraceSearch(traces, tuple(skipped), merged)


def profiles_beside(traces: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Return the profiles that `dftrace_ai.integrations.profiler` has laid beside traces.

    They are not found with a directory: what they hold of a run would count twice.

    Args:
        traces: paths of traces; those of archives have none beside them.

    Example::

        found = open_traces(["out/"])
        both = open_traces(["out/", *profiles_beside(file.path for file in found.files)])
    """
    known: dict[Path, set[str]] = {}
    for trace in map(Path, traces):
        name = trace_name(trace.name)
        if name is not None:
            known.setdefault(trace.parent, set()).add(name.base)
    found: list[Path] = []
    for folder, bases in known.items():
        # Of a directory that cannot be listed the traces themselves say what is wrong.
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            found += [
                Path(entry.path)
                for entry in entries
                if trace_of_profile(entry.name) in bases and entry.is_file(follow_symlinks=False)
            ]
    return sorted(found)


def _is_directory(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError as error:
        raise TraceError(f"{path}: no such file or directory") from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TraceError(f"{path}: not a path: {error}") from error


def _traces_under(
    directory: Path, suffixes: tuple[str, ...], deep: bool
) -> Iterator[tuple[Path, str]]:
    """Yield what a directory holds that is called a trace, and why it cannot be one, or ""."""
    problems: list[OSError] = []
    root = os.path.realpath(directory)
    for folder, below, names in os.walk(directory, onerror=problems.append):
        if not deep:
            below.clear()
        for name in names:
            if name.endswith(suffixes) and (deep or is_recorded(name)):
                path = Path(folder, name)
                target = os.path.realpath(path)
                # os.path, since pathlib raises for a name in a directory that is closed.
                link = os.path.islink(path)  # noqa: PTH114
                outside = link and not Path(target).is_relative_to(root)
                yield path, "a link that leads out of the directory" if outside else ""
    for problem in problems:
        reason = f"cannot be listed: {problem.strerror}"
        if problem.filename == str(directory):
            raise TraceError(f"{directory}: {reason}")
        # What a training removes meanwhile, such as an old checkpoint, is nobody's concern.
        if not isinstance(problem, FileNotFoundError):
            yield Path(problem.filename), reason


# Of the directory in which somebody calls a command, which may be anything, so much is looked at.
MOST_DEPTH: Final = 5
MOST_ENTRIES: Final = 100_000
NOT_SEARCHED: Final = frozenset({"node_modules", "site-packages", "__pycache__"})
# Files among which the newest run is; of a run of more, its folder.
MOST_LOOKED_AT: Final = 2_000


class Folder(NamedTuple):
    """A folder with what a run leaves, when any of that was changed last, and how many files."""

    changed_ns: int
    path: Path
    files: int
    # Whether there are markers, which processes leave that run, or died.
    marked: bool


class Below(NamedTuple):
    """What was found below a folder."""

    folders: list[Folder]  # with what runs leave, the newest first
    cut: list[Path]  # of which not all was looked at


def folders_of_runs(top: Path) -> Below:
    """Return the folders at and below one that hold traces or markers.

    Not too deep, not too many files, of no folder more than half of those that are left for all,
    and nothing that is hidden.
    """
    found: list[Folder] = []
    cut: list[Path] = []
    waiting, left = [(top, 0)], MOST_ENTRIES
    for folder, depth in waiting:
        if not left:
            cut.append(folder)
            continue
        times = []
        marked = False
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            # What a folder of data does not take is there for runs beside it.
            for entry in islice(entries, -(-left // 2)):
                left -= 1
                is_marker = entry.name.endswith(MARKER_SUFFIX)
                marked |= is_marker
                if is_marker or is_recorded(entry.name):
                    with contextlib.suppress(FileNotFoundError):  # others may still be there
                        times.append(entry.stat(follow_symlinks=False).st_mtime_ns)
                elif entry.is_dir(follow_symlinks=False) and not (
                    depth == MOST_DEPTH or entry.name.startswith(".") or entry.name in NOT_SEARCHED
                ):
                    waiting.append((folder / entry.name, depth + 1))
            if next(entries, None) is not None:
                cut.append(folder)
        if times:
            found.append(Folder(max(times), folder, len(times), marked))
    return Below(sorted(found, reverse=True), cut)


def newest_folders(folders: Sequence[Folder]) -> list[Path]:
    """Return the first of them, so many as can be looked at soon."""
    taken: list[Path] = []
    files = 0
    for folder in folders:
        files += folder.files
        if taken and files > MOST_LOOKED_AT:
            break
        taken.append(folder.path)
    return taken


WILD = "*?["


def _matches(pattern: str) -> Iterator[str]:
    """Yield what a pattern matches; through no link to a directory where it says `**`."""
    # Python's own follows them, and a folder with two that lead to itself has no end.
    parts = pattern.split("/")
    if "**" not in parts:
        yield from glob.glob(pattern)  # noqa: PTH207 - may be absolute
        return
    at = parts.index("**")
    behind = "/".join(parts[at + 1 :]) or "*"
    for top in glob.glob("/".join([*parts[:at], ""])) if at else [""]:  # noqa: PTH207
        for folder, below, _ in os.walk(top or "."):
            below[:] = [name for name in below if not name.startswith(".")]
            inside = folder if top else os.path.relpath(folder)
            yield from _matches(os.path.join(glob.escape(inside), behind))


def matching_paths(
    paths: Iterable[str | os.PathLike[str]], *, and_beside: bool = False
) -> list[Path]:
    """Return paths, for each pattern (`*`, `?`, `[ab]`, `**`) those that it matches, sorted.

    `and_beside`: also markers, indexes and spools; without it they are passed over, as are
    profiles of traces that the same pattern matches.
    """
    found: list[Path] = []
    for given in paths:
        remote = remote_path(given)
        if remote is not None:
            found.append(remote)
            continue
        text = os.fspath(given)
        if not any(letter in text for letter in WILD) or os.path.lexists(text):
            found.append(Path(given))
            continue
        names = sorted(set(_matches(text)))
        if not names:
            raise TraceError(f"{text}: no file matches this pattern")
        matching = list(map(Path, names))
        beside = set(profiles_beside(matching))
        found += [path for path in matching if path not in beside]
    # The shell's patterns match them, too.
    traces = [path for path in found if and_beside or not is_beside_traces(path.name)]
    if found and not traces:
        raise TraceError(f"{found[0]}: not a trace file, but one that lies beside a trace")
    return traces

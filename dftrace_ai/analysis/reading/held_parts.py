"""Parts of traces that a recorder deletes while they are read: held open, or known to be gone."""

from __future__ import annotations

import os
import resource
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.reading.source import read_head
from dftrace_ai.analysis.reading.trace_end import read_end
from dftrace_ai.analysis.reading.trace_file import OPEN_FILES, HeldFile, TraceFile
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.file_names import trace_name
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.reading.trace import Trace

__all__ = ["deleted_told", "held_parts", "was_deleted"]

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
    room = min(MOST_HELD, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
    for parts in recordings.values():
        last_part, last = max(parts)
        if last_part == 0 or not OPEN_FILES.is_dir():
            continue
        of_recording: dict[Path, HeldFile] = {}
        # The oldest are deleted first.
        for _, path in sorted(parts):
            found = _opened(path) if len(held) + len(of_recording) < room else None
            if isinstance(found, HeldFile):
                of_recording[path] = found
            elif isinstance(found, FileNotFoundError):
                gone.add(path)
        if last in of_recording and not _is_finished(last, of_recording[last]):
            held.update(of_recording)
    return held, gone


def _opened(path: Path) -> HeldFile | OSError:
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
    here = 0
    deleted = None
    for trace in files:
        try:
            footer = trace.end.footer
        except TraceError:
            return deleted
        if footer is None or footer.events is None:
            break
        if footer.earlier_events is not None:
            deleted = max(0, footer.earlier_events - here)
        here += footer.events
    return deleted

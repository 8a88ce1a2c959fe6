"""Making index files of traces, so that a summary need not read them again."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from dftrace_ai.analysis.reading.clocks import NEVER
from dftrace_ai.analysis.reading.identity import recordings_of
from dftrace_ai.analysis.reading.index_file import (
    FileFigures,
    IndexFileError,
    ProcessFigures,
    check_place,
    identity_of,
    index_path,
    read_index,
    write_index,
)
from dftrace_ai.analysis.reading.index_line import find_index
from dftrace_ai.analysis.reading.trace_set import open_traces
from dftrace_ai.analysis.summary.adding import added_up
from dftrace_ai.errors import TraceError, readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_set import TracePaths

# What is read in a twentieth of a second.
LITTLE_BYTES: Final = 4 * 1024 * 1024

State = Literal["made", "up to date", "has one itself", "left out"]


@dataclass(frozen=True)
class IndexedProcess:
    """What became of the index of a process.

    Attributes:
        path: the index file; where there is none the first trace.
        state: ``made``; ``up to date``, it was there; ``has one itself``, the traces hold index
            lines; or ``left out``.
        files: traces that it is of.
        lines: lines of these; 0 where they were not read.
        reason: why it was left out.
    """

    path: str
    state: State
    files: int
    lines: int = 0
    reason: str | None = None


@dataclass(frozen=True)
class IndexReport:
    """What `dftrace index --json` prints.

    Attributes:
        processes: what became of each.
        ranks: of so many processes of jobs with several ranks it was put down what they say for
            `dftrace ranks`, which was not known yet.
        ranks_left_out: why of others it was not, a line each.
        format: version of this form; it grows when a member goes or means something else.
        kind: ``dftrace index``, by which its JSON is known.
    """

    processes: tuple[IndexedProcess, ...]
    ranks: int = 0
    ranks_left_out: tuple[str, ...] = ()
    format: Literal[1] = 1
    kind: Literal["dftrace index"] = "dftrace index"


def index_traces(paths: TracePaths) -> list[IndexedProcess]:
    """Make index files beside traces that have no index of use; the traces stay as they are."""
    found = open_traces(paths)
    made = [
        IndexedProcess(skipped.path, "left out", 1, reason=skipped.reason)
        for skipped in found.skipped
    ]
    made += [_indexed_or_left(parts) for parts in recordings_of(found.files).values()]
    return sorted(made, key=lambda one: one.path)


def _indexed_or_left(parts: Sequence[Trace]) -> IndexedProcess:
    try:
        return _indexed(parts)
    except TraceError as error:
        first = str(parts[0])
        reason = str(error).removeprefix(f"{first}: ")
        return IndexedProcess(first, "left out", len(parts), reason=reason)


def _indexed(parts: Sequence[Trace]) -> IndexedProcess:
    path, count = index_path(parts), len(parts)
    if any(trace.file.copy and not trace.path.exists() for trace in parts):
        raise TraceError("lies in a file with others, beside which nothing is written")
    try:
        before = read_index(parts)
    except IndexFileError:
        before = None
    if before:
        return IndexedProcess(str(path), "up to date", count, before.lines)
    if all(map(_has_one_itself, parts)):
        return IndexedProcess(str(parts[0]), "has one itself", count)
    check_place(path)
    files = [identity_of(trace) for trace in parts]
    figures = figures_of(parts)
    if files != [identity_of(trace) for trace in parts]:
        raise TraceError("is written to at this moment; try again when its process has ended")
    mode = 0o777
    for trace in parts:
        mode &= trace.file.content.stat().st_mode
    write_index(path, files, figures, mode)
    return IndexedProcess(str(path), "made", count, figures.lines)


def _has_one_itself(trace: Trace) -> bool:
    """Whether all but a little of a trace is told by an index line in it."""
    with readable(trace), trace.file.opened() as file:
        end = os.fstat(file.fileno()).st_size
        found = find_index(file.fileno(), trace.file.codec, end)
    return (
        found is not None
        and found.figures.part == trace.part
        and end - found.behind.file_bytes <= LITTLE_BYTES
    )


def figures_of(parts: Sequence[Trace]) -> ProcessFigures:
    """Return what the traces of a process add up to, as an index file has it."""
    added = added_up(parts)
    if added.skipped:
        raise TraceError(added.skipped[0].reason)
    known = added.totals.known()
    if known is None:
        raise TraceError("its sums are beyond 64 bits, or too many of its spans are in disorder")
    _, spans, others, _, without_duration, unreadable = known
    ends = [
        FileFigures(
            added.tears.get(trace.path),
            trace.end,
            added.reaches.get(trace.path),
            added.times[trace.path].clock if trace.path in added.times else NEVER,
        )
        for trace in parts
    ]
    return ProcessFigures(
        added.lines,
        spans,
        others,
        without_duration,
        unreadable,
        added.long_lines,
        ends,
        added.totals.taken(),
    )

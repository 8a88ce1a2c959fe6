"""Making index files of traces, so that a summary need not read them again."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from dftrace_ai.analysis.executors.lots import Piece
from dftrace_ai.analysis.reading.clock_faults import NEVER
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
    from pathlib import Path

    from dftrace_ai.analysis.executors import Spread
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


def index_traces(paths: TracePaths, spread: Spread | None = None) -> list[IndexedProcess]:
    """Make index files beside traces that have no index of use; the traces stay as they are."""
    found = open_traces(paths)
    made = [
        IndexedProcess(skipped.path, "left out", 1, reason=skipped.reason)
        for skipped in found.skipped
    ]
    recordings = [*recordings_of(found.files).values()]
    if spread is None:
        made += map(_indexed_or_left, recordings)
    else:
        pieces = [Piece(parts, parts) for parts in recordings]
        for parts, one in zip(recordings, spread.each(_indexed_or_left, pieces), strict=True):
            made.append(one or _left_out(parts, "no worker could read it"))
    return sorted(made, key=lambda one: one.path)


def _indexed_or_left(parts: Sequence[Trace]) -> IndexedProcess:
    try:
        return _indexed(parts)
    except TraceError as error:
        return _left_out(parts, str(error).removeprefix(f"{parts[0]}: "))


def _left_out(parts: Sequence[Trace], reason: str) -> IndexedProcess:
    return IndexedProcess(str(parts[0]), "left out", len(parts), reason=reason)


def _indexed(parts: Sequence[Trace]) -> IndexedProcess:
    path, count = index_path(parts), len(parts)
    if any(trace.file.is_remote for trace in parts):
        raise TraceError("lies in a store, in which nothing is written")
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


class Elsewhere(NamedTuple):
    """What workers have added up, by the first file of a process; and what nobody could read."""

    figures: dict[Path, ProcessFigures]
    missing: set[Path]


def figures_elsewhere(traces: Sequence[Trace], spread: Spread) -> Elsewhere:
    """Have workers add up what no index tells of."""
    rest = [parts for parts in recordings_of(traces).values() if not _is_indexed(parts)]
    found = spread.each(_figures_or_none, [Piece(parts, parts) for parts in rest])
    figures: dict[Path, ProcessFigures] = {}
    missing: set[Path] = set()
    for parts, one in zip(rest, found, strict=True):
        if one is None:
            missing.update(trace.path for trace in parts)
        elif one.figures is not None:
            figures[parts[0].path] = one.figures
    return Elsewhere(figures, missing)


class _Figures(NamedTuple):
    """What a process adds up to; nothing where who asks has to read it to tell why."""

    figures: ProcessFigures | None


def _figures_or_none(parts: Sequence[Trace]) -> _Figures:
    try:
        return _Figures(figures_of(parts))
    except TraceError:
        return _Figures(None)


def _is_indexed(parts: Sequence[Trace]) -> bool:
    try:
        return read_index(parts) is not None or all(map(_has_one_itself, parts))
    except (IndexFileError, OSError, TraceError):
        return False


def figures_of(parts: Sequence[Trace]) -> ProcessFigures:
    """Return what the traces of a process add up to, as an index file has it."""
    added = added_up(parts)
    if added.skipped:
        raise TraceError(added.skipped[0].reason)
    known = added.totals.known()
    if known is None:
        raise TraceError("its sums are beyond 64 bits, or too many of its spans are in disorder")
    _, rows, others, _, without_duration, unreadable = known
    # Blocks are added by several threads: names, and durations of few spans, stand as they came.
    spans = sorted((*row[:8], sorted(row[8]) if row[7] else row[8]) for row in rows)
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
        sorted(others),
        without_duration,
        unreadable,
        added.long_lines,
        ends,
        added.totals.taken(),
    )

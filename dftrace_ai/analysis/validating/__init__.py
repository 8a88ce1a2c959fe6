"""Holding trace files against the format: each line, the framing, the nesting and the counts."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nsmallest
from typing import TYPE_CHECKING, Final, Literal

from dftrace_ai._reader import Checking
from dftrace_ai.analysis.reading.clock_faults import believed, clock_in_lines, clock_notes
from dftrace_ai.analysis.reading.given_lines import GivenLines
from dftrace_ai.analysis.reading.index_line import recorded
from dftrace_ai.analysis.reading.trace_end import NOT_CLOSED
from dftrace_ai.analysis.reading.trace_file import EMPTY, SkippedFile
from dftrace_ai.analysis.reading.trace_set import open_traces
from dftrace_ai.analysis.validating.rules import (
    Fault,
    FoundFigures,
    Rules,
    block_message,
    index_file_faults,
)
from dftrace_ai.errors import TraceError, needs_numpy
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dftrace_ai.analysis.reading.clock_faults import FileTimes
    from dftrace_ai.analysis.reading.index_line import IndexedTrack
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import Tear
    from dftrace_ai.analysis.reading.trace_set import TracePaths

# Perfetto keeps 32 bits of processes and threads.
NUMBER: Final = 0xFFFF_FFFF

# The end of a span that never ended.
NEVER: Final = 2**63 - 1

# Nearly a gibibyte while they are sorted.
MOST_SPANS: Final = 8_000_000

FORMAT: Final = 1

ROWS_AT_ONCE: Final = 65_536


@dataclass(frozen=True)
class FileCheck:
    """What was found in one file.

    Attributes:
        path: the file.
        lines: lines read, the framing included.
        events: events among them, counted as the closing line does.
        fault_count: faults in all.
        faults: the first of them, by line.
        closed: the file has its closing line.
        notes: what was not checked, one line each.
    """

    path: str
    lines: int
    events: int
    fault_count: int
    faults: tuple[Fault, ...]
    closed: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Validation:
    """What `dftrace validate --json` prints.

    Attributes:
        format: version of this form.
        fault_count: faults in all files.
        files: each file, by path.
        notes: what is to be said of clocks, of several runs, and of files that contradict each
            other.
        kind: ``dftrace validate``, by which its JSON is known.
    """

    format: Literal[1]
    fault_count: int
    files: tuple[FileCheck, ...]
    notes: tuple[str, ...] = ()
    kind: Literal["dftrace validate"] = "dftrace validate"

    def first_faults(self, limit: int) -> list[Fault]:
        """Return the first faults, file by file."""
        return [fault for file in self.files for fault in file.faults][:limit]


class PartTracks:
    """What is known at the end of the part that was read last: the next one goes on there."""

    def __init__(self) -> None:
        self._next: tuple[Path, str, int] | None = None
        self._tracks: list[IndexedTrack] | None = None
        self._checking: Checking | None = None

    def before(self, file: Trace, checking: Checking) -> list[IndexedTrack] | None:
        """Return the tracks before a file: none before the first part, None for not known."""
        follows = (*file.recording, file.part) == self._next
        if follows and self._checking:
            checking.take_ids(self._checking)
        if file.part == 0:
            return []
        return self._tracks if follows else None

    def after(self, file: Trace, checking: Checking, tracks: list[IndexedTrack] | None) -> None:
        """Tell how they stand behind it; None for not known."""
        self._next = (*file.recording, file.part + 1)
        self._checking, self._tracks = checking, tracks


class FilePass:
    """Reads a file and gives the rules what the native reader has not found plainly right."""

    def __init__(self, file: Trace, limit: int, parts: PartTracks | None = None) -> None:
        self._file = file
        self.checking = checking = Checking(MOST_SPANS)
        self._parts = parts or PartTracks()
        before = self._parts.before(file, checking)
        self._from_beginning = before is not None
        checking.resume(before or [])
        self.rules = Rules(
            str(file.path),
            limit,
            self,
            lambda: checking.counts,
            self._figures,
            file.part,
        )
        self.tear: Tear | None = None
        self.lines = 0

    def run(self) -> None:
        """Read the file."""
        checking, rules = self.checking, self.rules
        given = GivenLines(self._file.file, checking)
        for number, plain_bytes, line in given:
            rules.line(number, line, plain_bytes)
            checking.certify(rules.plain_style())
        self.tear = given.tear
        self.lines = checking.lines
        figures = self._figures()
        known = figures and not self.tear and figures.in_order and figures.from_beginning
        self._parts.after(self._file, checking, figures.tracks if figures and known else None)
        if checking.end():
            # Spans that are in disorder have to be sorted, as far as was read. No line is given.
            for _ in GivenLines(self._file.file, checking, given.end):
                pass
            checking.end()

    def _figures(self) -> FoundFigures | None:
        found = self.checking.figures()
        if found is None:
            return None
        (spans, others, tracks, reach), aside = found
        return FoundFigures(spans, others, tracks, reach, not aside, self._from_beginning)

    def add(self, pid: int, tid: int, start_ns: int, end_ns: int | None, line: int) -> None:
        """Take in a span of the line that the rules look at."""
        self.checking.add_span(
            pid, tid, min(start_ns, NEVER), NEVER if end_ns is None else min(end_ns, NEVER)
        )

    def native_faults(self, limit: int) -> tuple[int, list[Fault]]:
        """Return how many faults the native reader has found, and the first ones of each kind."""
        path = self.rules.path
        overlaps, first = _overlaps(self.checking, path, limit)
        blocks, of_blocks = self.checking.block_faults()
        first += [Fault(path, line, block_message(*what)) for line, *what in of_blocks]
        repeated, of_ids = self.repeated_ids()
        return overlaps + blocks + repeated, [*first, *of_ids]

    def repeated_ids(self) -> tuple[int, list[Fault]]:
        """Return how many events have the id of one before them in their process."""
        count, first, _ = self.checking.repeated_ids()
        told = "the id {} is that of an event before it; ids are used once"
        return count, [Fault(self.rules.path, line, told.format(number)) for line, number in first]

    def notes(self) -> Iterator[str]:
        """Yield what was not checked."""
        yield from _left_out(self.checking)
        if self.checking.repeated_ids()[2]:
            yield "whether ids are used once was checked for some of them only: they lie far apart"
        if unchecked := self.rules.unchecked_indexes:
            yield (
                f"{counted(unchecked, 'index line')} not held against the lines before: "
                "too many names"
            )


def _overlaps(
    checking: Checking, path: str, limit: int, noun: str = "line"
) -> tuple[int, list[Fault]]:
    """Return how many spans overlap another in part, which viewers drop, and the first ones."""
    count, first = checking.overlaps(limit)
    faults = [
        Fault(
            path,
            line,
            f"on pid {pid} tid {tid} the span overlaps the one of {noun} {outer} in part: neither "
            "holds the other",
        )
        for pid, tid, line, outer in first
    ]
    return count, faults


def _left_out(checking: Checking) -> Iterator[str]:
    if checking.left_out:
        yield (
            f"whether spans nest was checked for the first {checking.collected:,} of them only; "
            f"{counted(checking.left_out, 'span')} more"
        )


def validate_traces(
    paths: TracePaths, *, limit: int = 10, unfinished_ok: bool = False
) -> Validation:
    """Check trace files against the format; `limit` faults of each file are kept.

    A file of a directory that cannot be read as a trace is one with a fault, and an index file
    beside traces is one without lines. Raises a TraceError where a path that was given is missing
    or no trace, or nothing can be read.
    """
    # `unfinished_ok`: no closing line, or a torn end, as while the process runs.
    found = open_traces(paths)
    checks = [_unreadable(file) for file in found.skipped]
    parts = PartTracks()
    checks += [
        _check_or_fault(file, limit, unfinished_ok, parts)
        for file in sorted(found.files, key=lambda file: (*file.recording, file.part))
    ]
    checks += [
        _index_check(path, messages, note, limit)
        for path, messages, note in index_file_faults(found.files)
    ]
    owners = found.owners
    notes = clock_notes([times for trace in found if (times := _times_of(trace))], owners)
    notes += [*owners.told(""), *owners.contradictions()]
    checks.sort(key=lambda check: check.path)
    count = sum(check.fault_count for check in checks)
    return Validation(FORMAT, count, tuple(checks), tuple(notes))


def _times_of(trace: Trace) -> FileTimes | None:
    try:
        return believed(trace, recorded(trace))._replace(clock=clock_in_lines(trace))
    except TraceError:
        return None  # that it cannot be read is a fault


def _index_check(path: str, messages: list[str], note: str | None, limit: int) -> FileCheck:
    # Its figures stand behind the line that tells what it is.
    faults = tuple(Fault(path, 2, message) for message in messages[:limit])
    notes = () if note is None else (note,)
    return FileCheck(path, 0, 0, len(messages), faults, closed=True, notes=notes)


def _check_or_fault(file: Trace, limit: int, unfinished_ok: bool, parts: PartTracks) -> FileCheck:
    try:
        return validate_file(file, limit=limit, unfinished_ok=unfinished_ok, parts=parts)
    except TraceError as error:
        if file.file.asked_for:
            raise
        return _unreadable(SkippedFile.because_of(error, file.path))


def _unreadable(file: SkippedFile) -> FileCheck:
    fault = Fault(file.path, 1, file.reason)
    return FileCheck(file.path, lines=0, events=0, fault_count=1, faults=(fault,), closed=False)


def validate_file(
    file: Trace,
    *,
    limit: int = 10,
    unfinished_ok: bool = False,
    parts: PartTracks | None = None,
) -> FileCheck:
    """Check one trace file; with `parts` the parts of a process, one after the other."""
    if file.file.copy and file.file.copy.profile:
        return _checked_profile(file, limit, unfinished_ok=unfinished_ok)
    passed = FilePass(file, limit, parts)
    passed.run()
    rules = passed.rules
    _ending(rules, passed.lines, passed.tear, unfinished_ok=unfinished_ok)
    more, first = passed.native_faults(limit)
    return FileCheck(
        path=rules.path,
        lines=passed.lines,
        events=rules.all_counts().total(),
        fault_count=rules.fault_count + more,
        faults=tuple(nsmallest(limit, [*rules.faults, *first])),
        closed=bool(rules.footer_line),
        notes=tuple(passed.notes()),
    )


def _checked_profile(file: Trace, limit: int, *, unfinished_ok: bool) -> FileCheck:
    """Check what is not of our format: whether it can be read, and its spans nest."""
    with needs_numpy("checking a trace of torch.profiler"):
        from dftrace_ai.analysis.reading.scanning import event_batches
    checking = Checking(MOST_SPANS)
    notes: list[str] = []
    columns = ("ph", "pid", "tid", "start_ns", "dur_ns")
    for batch in event_batches([file], columns, ROWS_AT_ONCE, notes):
        for ph, pid, tid, start_ns, dur_ns in zip(
            *(batch[name].tolist() for name in columns), strict=True
        ):
            checking.pass_over(0)
            if ph == "X" and dur_ns > 0 and start_ns >= 0:
                end_ns = min(start_ns + dur_ns, NEVER)
                checking.add_span(pid & NUMBER, tid & NUMBER, start_ns, end_ns)
    path, events = str(file), checking.lines
    # Where spans are in disorder the count of lines begins anew.
    if checking.end():
        checking.end()
    count, faults = _overlaps(checking, path, limit, "event")
    tear = file.file.copy and file.file.copy.tear
    if tear and not unfinished_ok:
        count += 1
        faults.append(Fault(path, events + 1, f"torn: {tear}"))
    told = "a trace of others: of its events was checked whether they can be read, and spans nest"
    found = [note.removeprefix(f"{file}: ") for note in notes if not tear or str(tear) not in note]
    told_of = (told, *found, *_left_out(checking))
    return FileCheck(path, events, events, count, tuple(faults[:limit]), not tear, told_of)


def _ending(rules: Rules, lines: int, tear: Tear | None, *, unfinished_ok: bool) -> None:
    last = max(1, lines)
    if lines == 0 and (tear is None or tear.reason == EMPTY):
        rules.fault(1, EMPTY)
    elif tear and not unfinished_ok:
        rules.fault(last + 1, f"torn: {tear}")
    elif not rules.footer_line and not unfinished_ok:
        rules.fault(last, NOT_CLOSED)

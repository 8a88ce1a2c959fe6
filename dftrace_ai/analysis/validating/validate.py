"""Holding trace files against the format: each line, the framing, the nesting and the counts."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.reading.identity import Owners
from dftrace_ai.analysis.reading.indexed.clocks import believed, clock_notes
from dftrace_ai.analysis.reading.indexed.recorded import clock_in_lines, recorded
from dftrace_ai.analysis.reading.trace_file import EMPTY, SkippedFile
from dftrace_ai.analysis.reading.trace_set import open_traces
from dftrace_ai.analysis.validating.index_files import index_file_faults
from dftrace_ai.analysis.validating.nesting import Nesting
from dftrace_ai.analysis.validating.passes import PartTracks, checking_pass, place_of
from dftrace_ai.analysis.validating.rules import Fault
from dftrace_ai.errors import TraceError, needs_numpy
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from dftrace_ai.analysis.reading.indexed.clocks import FileTimes
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import Tear
    from dftrace_ai.analysis.validating.rules import Rules

# Perfetto keeps 32 bits of processes and threads.
NUMBER: Final = 0xFFFF_FFFF

ROWS_AT_ONCE: Final = 65_536

__all__ = ["Fault", "FileCheck", "Validation", "validate_file", "validate_traces"]

NO_FOOTER = "no closing line: the process still runs, or died and its spool was not adopted"


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
    """What was found in all files.

    Attributes:
        files: the check of each.
        notes: what is to be said of clocks, of several runs, and of files that contradict each
            other; no fault of the format.
    """

    files: tuple[FileCheck, ...]
    notes: tuple[str, ...] = ()

    @property
    def fault_count(self) -> int:
        """Faults in all files."""
        return sum(file.fault_count for file in self.files)

    def first_faults(self, limit: int) -> list[Fault]:
        """Return the first faults, file by file."""
        return [fault for file in self.files for fault in file.faults][:limit]


def validate_traces(
    paths: Iterable[str | os.PathLike[str]], *, limit: int = 10, unfinished_ok: bool = False
) -> Validation:
    """Check trace files against the format.

    Args:
        paths: files and directories, as for `open_traces`.
        limit: faults to keep of each file; all are counted.
        unfinished_ok: accept a file without closing line or with a torn end, as it
            is while its process runs.

    Returns:
        The check of each file. A file of a directory that cannot be read as a trace
        is one with a fault, and an index file beside traces is one without lines.

    Raises:
        TraceError: a path that was given is missing or is no trace, or nothing in the
            directories can be read.

    Example::

        result = validate_traces(["out/"])
        for fault in result.first_faults(10):
            print(fault)
    """
    found = open_traces(paths)
    checks = [_unreadable(file) for file in found.skipped]
    parts = PartTracks()
    checks += [
        _check_or_fault(file, limit, unfinished_ok, parts)
        for file in sorted(found.files, key=place_of)
    ]
    checks += [
        _index_check(path, messages, note, limit)
        for path, messages, note in index_file_faults(found.files)
    ]
    owners = Owners(found)
    notes = clock_notes([times for trace in found if (times := _times_of(trace))], owners)
    notes += [*owners.told(""), *owners.contradictions()]
    return Validation(tuple(sorted(checks, key=lambda check: check.path)), tuple(notes))


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
    """Check one trace file; arguments as for `validate_traces`.

    With `parts` the parts of a process are checked one after the other, so that the index of
    one can be held against spans that lie in the part before it.
    """
    if file.file.copy and file.file.copy.profile:
        return _checked_profile(file, limit, unfinished_ok=unfinished_ok)
    passed = checking_pass(file, limit, parts)
    passed.run()
    rules = passed.rules
    _ending(rules, passed.lines, passed.tear, unfinished_ok=unfinished_ok)
    overlap_count, first = passed.overlaps(limit)
    overlaps = [Fault(rules.path, line, message) for line, message in first]
    block_count, blocks = passed.block_faults()
    notes = []
    if passed.left_out:
        notes.append(
            f"whether spans nest was checked for the first {passed.looked_at:,} of them only; "
            f"{counted(passed.left_out, 'span')} more"
        )
    if rules.unchecked_indexes:
        notes.append(
            f"{counted(rules.unchecked_indexes, 'index line')} not held against the lines before: "
            "too many names, or the native reader was not built"
        )
    return FileCheck(
        path=rules.path,
        lines=passed.lines,
        events=rules.all_counts().total(),
        fault_count=rules.fault_count + overlap_count + block_count,
        faults=tuple(nsmallest(limit, [*rules.faults, *overlaps, *blocks])),
        closed=bool(rules.footer_line),
        notes=tuple(notes),
    )


def _checked_profile(file: Trace, limit: int, *, unfinished_ok: bool) -> FileCheck:
    """Check what is not of our format: whether it can be read, and its spans nest."""
    with needs_numpy("checking a trace of torch.profiler"):
        from dftrace_ai.analysis.reading.scanning.batches import event_batches
    nesting = Nesting("event")
    notes: list[str] = []
    events = 0
    columns = ("ph", "pid", "tid", "start_ns", "dur_ns")
    for batch in event_batches([file], columns, ROWS_AT_ONCE, notes):
        rows = zip(*(batch[name].tolist() for name in columns), strict=True)
        for number, (ph, pid, tid, start_ns, dur_ns) in enumerate(rows, events + 1):
            if ph == "X" and dur_ns > 0 and start_ns >= 0:
                nesting.add(pid & NUMBER, tid & NUMBER, start_ns, start_ns + dur_ns, number)
        events += len(batch["ph"])
    path = str(file)
    count, first = nesting.overlaps(limit)
    faults = [Fault(path, event, message) for event, message in first]
    tear = file.file.copy and file.file.copy.tear
    if tear and not unfinished_ok:
        count += 1
        faults.append(Fault(path, events + 1, f"torn: {tear}"))
    told = "a trace of others: of its events was checked whether they can be read, and spans nest"
    found = [note.removeprefix(f"{file}: ") for note in notes if not tear or str(tear) not in note]
    return FileCheck(path, events, events, count, tuple(faults[:limit]), not tear, (told, *found))


def _ending(rules: Rules, lines: int, tear: Tear | None, *, unfinished_ok: bool) -> None:
    last = max(1, lines)
    if lines == 0 and (tear is None or tear.reason == EMPTY):
        rules.fault(1, EMPTY)
    elif tear and not unfinished_ok:
        rules.fault(last + 1, f"torn: {tear}")
    elif not rules.footer_line and not unfinished_ok:
        rules.fault(last, NO_FOOTER)

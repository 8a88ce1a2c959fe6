"""Adding up trace files, here or by other processes, and what is to be said of each."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from dftrace_ai import system
from dftrace_ai._reader import Sums, Totals
from dftrace_ai.analysis.reading.clock_faults import SetBack, believed, has_clock_in_lines
from dftrace_ai.analysis.reading.identity import recordings_of
from dftrace_ai.analysis.reading.index_file import IndexFileError, index_path, read_index
from dftrace_ai.analysis.reading.index_line import find_index
from dftrace_ai.analysis.reading.reach import NOWHERE, Reach, joined
from dftrace_ai.analysis.reading.reader import LongLine, Start
from dftrace_ai.analysis.reading.trace_file import EMPTY, SkippedFile
from dftrace_ai.errors import TraceError, readable

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.reading.clock_faults import FileTimes
    from dftrace_ai.analysis.reading.event_columns import Label
    from dftrace_ai.analysis.reading.index_file import ProcessFigures
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.summary.rows import EventGroup, FileGroup, TensorValues

# Figures of a hundred million spans, and of a million names, fit.
MOST_BYTES: Final = 1024 * 1024 * 1024

# Each unpacks a block of its own.
MOST_READERS: Final = 8

# So many for each worker: steps are the same in most processes, so few pieces are little to send.
PIECES_A_WORKER: Final = 4


@dataclass
class ReadFiles:
    """What is to be said of files that were read."""

    read: list[Trace] = field(default_factory=list)
    events: int = 0
    # Lines without an event, and spans without a duration.
    unreadable: int = 0
    # Of files that end before their time, where and why.
    tears: dict[Path, str] = field(default_factory=dict)
    skipped: list[SkippedFile] = field(default_factory=list)
    # Too long to be read.
    long_lines: int = 0
    # Each once, also where they are read a second time.
    lines: int = 0
    # Index files that were not used, and why.
    notes: list[str] = field(default_factory=list)
    # From when to when events are, since 1970; None where that is not known.
    reaches: dict[Path, Reach | None] = field(default_factory=dict)
    # The same without those whose times cannot be, which are counted.
    times: dict[Path, FileTimes] = field(default_factory=dict)
    # Of processes, by their first file: ns that the spans of the main thread take together, and for
    # how long the process went.
    main_threads: dict[Path, tuple[int, int]] = field(default_factory=dict)

    def take(self, more: ReadFiles) -> None:
        """Add what is to be said of other files."""
        self.read += more.read
        self.events += more.events
        self.unreadable += more.unreadable
        self.tears |= more.tears
        self.skipped += more.skipped
        self.long_lines += more.long_lines
        self.lines += more.lines
        self.notes += more.notes
        self.reaches |= more.reaches
        self.times |= more.times
        self.main_threads |= more.main_threads

    def skip(self, trace: Trace, error: TraceError) -> None:
        """Note that a file of a directory cannot be read; one that was asked for is an error."""
        if trace.file.asked_for:
            raise error
        self.skipped.append(SkippedFile.because_of(error, trace.path))

    def note_reach(self, trace: Trace, reach: Reach | None) -> None:
        """Note from when to when the events of a file are, since 1970."""
        self.reaches[trace.path] = reach
        self.times[trace.path] = believed(trace, reach)

    def note_clock(self, path: Path, clock: SetBack) -> None:
        """Note by how much the clock was set back while a file was recorded."""
        self.times[path] = self.times[path]._replace(clock=clock)

    def note_main_thread(self, path: Path, taken_ns: int | None, wall_ns: int | None) -> None:
        """Note of a process what the spans of its main thread take together, where it is known."""
        if taken_ns is not None and wall_ns is not None:
            self.main_threads[path] = taken_ns, wall_ns

    def length_ns(self, paths: Iterable[Path]) -> int | None:
        """Return how long a process went, by its files; None where that is not known."""
        reach = joined(self.times[path].reach for path in paths)
        if reach is None:
            return None
        length_ns = reach.length_ns or 0
        return length_ns if length_ns < 2**63 else None


def new_totals() -> Totals:
    """Return empty totals."""
    return Totals(min(system.processors(), MOST_READERS), MOST_BYTES)


@dataclass
class AddedTraces(ReadFiles):
    """What traces add up to, beside what is to be said of their files."""

    totals: Totals = field(default_factory=new_totals)


def new_sums() -> Sums:
    """Return empty sums of spans by group and name."""
    return Sums(MOST_BYTES)


@contextmanager
def enough_memory() -> Iterator[None]:
    """Say how much memory there is where names and figures need more."""
    try:
        yield
    except (OverflowError, MemoryError) as error:
        room = f"{MOST_BYTES >> 30} GiB" if MOST_BYTES >> 30 else f"{MOST_BYTES >> 20} MiB"
        raise TraceError(
            f"the traces cannot be added up in {room} of memory; give fewer at a time"
        ) from error


def add_traces(
    traces: Sequence[Trace], elsewhere: Mapping[Path, ProcessFigures] | None = None
) -> AddedTraces:
    """Add up traces, the parts of each process in their order.

    Of what was added up elsewhere, by the first file of a process, nothing is read.
    """
    added = AddedTraces()
    read: set[Path] = set()
    with enough_memory():
        for parts in recordings_of(traces).values():
            known = (elsewhere or {}).get(parts[0].path)
            read.update(_add_indexed(parts, added, known) or _add_process(parts, added))
    return _ended(added, traces, read)


def added_up(parts: Sequence[Trace]) -> AddedTraces:
    """Add up the traces of one process, without its index file; errors as of `add_traces`."""
    added = AddedTraces()
    try:
        read = _add_process(parts, added)
    except (OverflowError, MemoryError) as error:
        raise TraceError("there is not the memory for its names and figures") from error
    return _ended(added, parts, read)


def _ended(added: AddedTraces, traces: Sequence[Trace], read: Container[Path]) -> AddedTraces:
    added.read = [trace for trace in traces if trace.path in read]
    added.events, added.unreadable = added.totals.events, added.totals.unreadable
    return added


def _add_indexed(
    parts: Sequence[Trace], added: AddedTraces, known: ProcessFigures | None
) -> list[Path]:
    """Add what is known of a process, or its index file says; returns the traces it is of."""
    path = index_path(parts)
    try:
        known = known or read_index(parts)
        if known is None:
            return []
        counts = known.without_duration, known.unreadable
        if not added.totals.add_known(known.lines, known.spans, known.others, [], *counts):
            added.notes.append(f"{path}: not used: its figures cannot be")
            return []
        added.totals.end_process()
        files = ReadFiles()
        for trace, file in zip(parts, known.files, strict=True):
            files.note_reach(trace, file.reach)
            files.note_clock(trace.path, file.clock)
        wall_ns = files.length_ns(files.times)
        added.totals.add_wall(wall_ns)
        added.note_main_thread(parts[0].path, known.main_thread_ns, wall_ns)
    except IndexFileError as note:
        added.notes.append(f"{path}: not used: {note}")
        return []
    except (OSError, TraceError):
        return []  # reading it tells why
    for trace, file in zip(parts, known.files, strict=True):
        if file.tear is not None:
            added.tears[trace.path] = file.tear
        trace.know_end(file.end)
    added.long_lines += known.long_lines
    added.reaches |= files.reaches
    added.times |= files.times
    return list(files.times)


def _add_process(parts: Sequence[Trace], added: AddedTraces) -> list[Path]:
    ends: dict[Path, int] = {}
    before = added.totals.lines
    # The part that an index may be of, where all before it have been read; None behind a gap.
    part: int | None = 0
    for trace in parts:
        end = _end_of_added(trace, added, part)
        if end is not None:
            ends[trace.path] = end
        if end is None or trace.path in added.tears or part != trace.part:
            part = None
        else:
            part += 1
    added.lines += added.totals.lines - before
    if added.totals.end_process():
        # As far as they were read before, for spans may have come meanwhile.
        for trace in parts:
            if trace.path in ends:
                _add_file(trace, AddedTraces(totals=added.totals), ends[trace.path])
        added.totals.end_process()
    clock = SetBack(*added.totals.clock())
    first = next((trace for trace in parts if trace.path in ends), None)
    if clock.places and first and has_clock_in_lines(first):
        added.note_clock(first.path, clock)
    wall_ns = added.length_ns(ends)
    added.totals.add_wall(wall_ns)
    added.note_main_thread(parts[0].path, added.totals.taken(), wall_ns)
    return list(ends)


def _add_known(
    trace: Trace, totals: Totals, descriptor: int, end: int, part: int | None
) -> tuple[int, int, Reach | None]:
    """Add what is known of lines of a file; returns their bytes, plain bytes, and from when on."""
    nothing = 0, 0, NOWHERE
    if part is None or part != trace.part:
        return nothing
    found = find_index(descriptor, trace.file.codec, end)
    if found is None or found.figures.part != part:
        return nothing
    _, _, lines, spans, others, tracks, _ = found.figures
    # The index line itself is one more that was read.
    if not totals.add_known(lines + 1, spans, others, tracks):
        return nothing
    return found.behind.file_bytes, found.behind.plain_bytes, found.reach


def _end_of_added(trace: Trace, added: AddedTraces, part: int | None) -> int | None:
    try:
        return _add_file(trace, added, part=part)
    except TraceError as error:
        added.skip(trace, error)
        return None


def _add_file(
    trace: Trace, added: AddedTraces, end: int | None = None, part: int | None = None
) -> int:
    """Add the lines of a file; returns how many bytes the file had.

    With `part`, what an index line of that part says is taken in place of the lines before it.
    """
    totals = added.totals
    before = totals.lines
    codec = trace.file.codec
    with readable(trace), trace.file.opened() as raw:
        if end is None:
            end = os.fstat(raw.fileno()).st_size
        file_bytes, plain_bytes, told = _add_known(trace, totals, raw.fileno(), end, part)
        if codec != "plain":
            more = totals.read_blocks(raw.fileno(), codec, file_bytes, end)
            file_bytes, plain_bytes = file_bytes + more[0], plain_bytes + more[1]
    if end == 0:
        added.tears[trace.path] = EMPTY
    if file_bytes < end or (trace.file.copy and trace.file.copy.tear):
        _add_rest(trace, added, Start(file_bytes, plain_bytes, totals.lines - before), end)
    reach = joined([told, Reach(*(totals.take_reach() or NOWHERE))])
    if trace.path not in added.times:
        added.note_reach(trace, reach and _since_1970(trace, reach))
    return end


def _add_rest(trace: Trace, added: AddedTraces, start: Start, end: int) -> None:
    """Add what is torn, huge or not compressed."""
    reader = trace.reader()
    for text in reader.texts(start, end):
        if isinstance(text, LongLine):
            added.long_lines += 1
        else:
            added.totals.add_lines(text)
    if reader.tear:
        added.tears[trace.path] = str(reader.tear)


def _since_1970(trace: Trace, reach: Reach) -> Reach | None:
    try:
        return reach.since_1970(trace)
    except TraceError:
        return None  # it was counted as far as it can be read


class Some(NamedTuple):
    """Processes of a job, and what of them is added up."""

    processes: tuple[tuple[str | None, tuple[Trace, ...]], ...]  # by what their group is called
    by: FileGroup | EventGroup | None
    where: str | None
    categories: bool = False
    what: Literal["names", "tree", "tensors"] = "names"


class Thread(NamedTuple):
    """A thread, of which a worker does not know what it is called beside all others."""

    first: Path  # the first file of its process
    pid: int
    tid: int
    name: str


class Added(NamedTuple):
    """What some processes come to."""

    files: ReadFiles
    others: Counter[tuple[str, str, str]]
    chosen_events: int
    packed: bytes = b""  # of `Sums`
    names: tuple[tuple[str, str | bool], ...] = ()
    groups: tuple[str | Thread | None, ...] = ()
    places: tuple[tuple[int, Label, int], ...] = ()  # of a tree: around it, its name, its number
    values: Mapping[tuple[str, str], TensorValues] = {}  # by tensor and statistic


def added_elsewhere(call: Callable[[Some], Added], some: Some, spread: Spread) -> list[Added]:
    """Return, in order, what workers made of some processes each; `spread` tells who could not."""
    from dftrace_ai.analysis.executors.lots import Piece

    count = max(spread.executor.workers, 1) * PIECES_A_WORKER
    size = -(-len(some.processes) // count)
    pieces = []
    for at in range(0, len(some.processes), size):
        of_piece = some.processes[at : at + size]
        traces = [trace for _, parts in of_piece for trace in parts]
        pieces.append(Piece(some._replace(processes=of_piece), traces, len(of_piece)))
    found = [one for one in spread.each(call, pieces) if one is not None]
    if not found:
        raise TraceError("; ".join(spread.left_out))
    return found


def processes_in(
    groups: dict[str | None, Sequence[Trace]],
) -> tuple[tuple[str | None, tuple[Trace, ...]], ...]:
    """Return the processes of groups, in their order."""
    return tuple(
        (group, tuple(parts))
        for group, traces in groups.items()
        for parts in recordings_of(traces).values()
    )

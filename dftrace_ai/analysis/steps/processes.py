"""From the files of a process to its spans: those whose times can be, in the order of time."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from dftrace_ai import _reader
from dftrace_ai.analysis.reading import TraceSet
from dftrace_ai.analysis.reading.clock_faults import (
    APART_NS,
    LATEST_NS,
    NEVER,
    FileTimes,
    SetBack,
    TimeCounts,
    has_clock_in_lines,
    is_believable,
    set_back,
)
from dftrace_ai.analysis.reading.event_columns import EventPieces, event_columns, is_read_on
from dftrace_ai.analysis.reading.reach import NOWHERE, Reach, joined
from dftrace_ai.analysis.reading.set_aside import SetAside
from dftrace_ai.analysis.reading.trace_end import NOT_CLOSED
from dftrace_ai.analysis.steps.calls import OF_EVENTS, OF_FILE
from dftrace_ai.analysis.steps.roles import CODE, GPU_ROLES, KINETO_CATEGORIES, ROLES
from dftrace_ai.analysis.steps.samples import joined_samples, samples_of
from dftrace_ai.analysis.steps.spans import (
    FAR,
    ROWS_AT_ONCE,
    OrderedSpans,
    RoleCodes,
    brief,
    rows_of,
    span_columns,
)
from dftrace_ai.analysis.steps.torn import before_the_tear
from dftrace_ai.trace_format.file_names import MARKER_SUFFIX, trace_name
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from dftrace_ai.analysis.reading import Trace
    from dftrace_ai.analysis.reading.event_columns import EventColumns, EventNames, Integers
    from dftrace_ai.analysis.reading.identity import Owner
    from dftrace_ai.analysis.steps.roles import Role, Source
    from dftrace_ai.analysis.steps.samples import Samples
    from dftrace_ai.analysis.steps.spans import SpanColumns, Spans
    from dftrace_ai.trace_format.header_and_footer import HeaderFacts

# Neighbours that touch may overlap by so much once their times are rounded.
NEAR_NS: Final = 2
NEAR_WHOLE_US_NS: Final = 1500

# A track is one thread's, which is the first to begin something in so many of its steps.
ONE_THREAD: Final = 0.8

NO_PAUSES: Final = (np.zeros(0, np.int64), np.zeros(0, np.int64))
# The category of what tensor inspection says of a tensor that is not finite any more.
NONFINITE: Final = "nonfinite"

STEP_ROLES: Final = ("step", "block", "wait", "optimizer")
WORK_ROLES: Final[tuple[Role, ...]] = ("step", "forward", "backward", "optimizer", "compute")


class Moment(NamedTuple):
    """When something was, and what it is called."""

    at_ns: int
    name: str


@dataclass(frozen=True, repr=False)
class Process:
    """What a process has recorded.

    Attributes:
        pid: its number; 0 for a file of Kineto's, which is of one rank.
        place: number of its first file, and its own: in their order what is told of files.
        owner: whose its files are.
        source: who named its spans.
        spans: its finished spans, without those that say nothing of a training.
        samples: of the counters of memory and processors, by time.
        nonfinite: when tensors stopped being finite, by time, each with layer and tensor.
        clock: how the clock was set back while it recorded.
        pauses: from when to when nothing was recorded, between files of torch.profiler, in order.
        is_whole: its last file has its end.
        torn: what is to be said of steps that are left out as its last file is torn; or empty.
        unfinished: spans without an end.
        dropped: events that were lost.
        waits: how often a thread waited for a full spool.
        near_ns: neighbours may overlap by so much.
        events: all events of its files, and of others in them; only where they were asked for.
    """

    pid: int
    place: tuple[int, int]
    owner: Owner
    source: Source
    spans: Spans
    samples: Samples
    unfinished: int
    dropped: int
    waits: int
    near_ns: int
    events: tuple[EventColumns, ...] = ()
    nonfinite: tuple[Moment, ...] = ()
    clock: SetBack = NEVER
    pauses: tuple[Integers, Integers] = NO_PAUSES
    is_whole: bool = True
    torn: str = ""

    @property
    def header(self) -> HeaderFacts:
        """What its first file says of it."""
        return self.owner.header

    @property
    def number(self) -> int:
        """Its rank; 0 where none is known."""
        return self.header.rank or 0

    @property
    def world_size(self) -> int:
        """Ranks of the job, 1 where nothing is known."""
        return self.header.world_size or 1

    @property
    def host(self) -> str:
        """Name of its host; empty where it is not known."""
        return self.owner.host

    def ts_us(self, at_ns: int) -> float:
        """Return a moment as ``ts`` of the trace's lines has it, microseconds."""
        base_us = self.header.time_base_us or 0
        return (at_ns - base_us * 1000) / 1000

    @property
    def cores(self) -> int | None:
        """Cores of its host, logical processors where these alone are known."""
        return self.header.cores or self.header.cpus


@dataclass(frozen=True, repr=False)
class _Part:
    """What one file has of a process."""

    number: int
    names: EventNames
    events: EventColumns | None
    owner: Owner
    source: Source
    pid: int
    spans: SpanColumns
    samples: Samples
    nonfinite: tuple[Moment, ...]
    unfinished: int
    clock: SetBack
    reach: Reach | None


class FileFacts(NamedTuple):
    """What is to be told of a file beside its events; no times where it has none."""

    times: FileTimes | None
    left_out: tuple[str, ...]
    unread: tuple[str, ...]


def read_processes(
    owner: Owner, files: Sequence[tuple[int, Trace]], *, events: bool
) -> tuple[list[Process], dict[int, FileFacts]]:
    """Read files of one owner: one process where it is known, else all that are in its file."""
    if not events and all(map(_is_told_soon, (trace for _, trace in files))):
        streamed = _streamed(owner, files)
        if streamed is not None:
            return streamed
    parts: dict[Hashable, list[_Part]] = defaultdict(list)
    facts: dict[int, FileFacts] = {}
    for number, trace in files:
        alone = TraceSet((trace,))
        times: FileTimes | None = None
        left_out: tuple[str, ...] = ()
        for read in event_columns(alone, OF_EVENTS if events else OF_FILE):
            columns, times = _believed(read)
            left_out = tuple(_left_out_told(trace, *_left_out(read, columns)))
            del read
            times = times._replace(clock=_clock(columns))
            found, file = [*_processes_in(columns, owner)], [columns]
            del columns
            for at, (key, pid) in enumerate(found, 1):
                # Of a file with many, rows of one at a time are marked.
                mask = None if pid is None else file[0].pid == pid
                # The last one takes them: nobody else holds what it does not need any more.
                taken = file[:] if at < len(found) else file
                roles = RoleCodes(_source(taken[0]))
                parts[key].append(_part(taken, number, owner, mask, times, roles, events=events))
        facts[number] = FileFacts(times, left_out, (*alone.notes, *_unclosed(trace)))
    return _told([_together(parts.pop(key)) for key in list(parts)], files, facts)


def _is_told_soon(trace: Trace) -> bool:
    """Return whether the first lines of a file say all that the last ones could change."""
    header = trace.header
    known = header is not None and header.run is not None
    return known and not has_clock_in_lines(trace) and not is_read_on(trace)


def _streamed(
    owner: Owner, files: Sequence[tuple[int, Trace]]
) -> tuple[list[Process], dict[int, FileFacts]] | None:
    """Read files of one process, few events at a time; None where some times cannot be."""
    parts: list[_Part] = []
    names: list[EventNames] = []
    facts: dict[int, FileFacts] = {}
    aside = SetAside()
    ordered = OrderedSpans(names, len(files), aside)
    for number, trace in files:
        reaches: list[Reach] = []
        odd, roles = np.zeros(2, np.int64), RoleCodes("annotated")
        pieces = EventPieces(trace, OF_FILE, aside)
        for first, columns in pieces:
            reaches.append(_reach_of(columns))
            odd += _left_out(columns, columns)
            reach = joined(reaches) or NOWHERE
            times = FileTimes(trace, reach)
            part = _part([columns], number, owner, None, times, roles)
            ordered.add(part.spans, len(names), first)
            parts.append(replace(part, spans={}))
        if reaches and not is_believable(reach):
            return None
        if reaches:
            names.append(pieces.names)
        facts[number] = FileFacts(
            times if reaches else None,
            tuple(_left_out_told(trace, *odd.tolist())),
            (*pieces.notes, *_unclosed(trace)),
        )
    return _told([_process(parts, names, ordered.spans())] if parts else [], files, facts)


def _unclosed(trace: Trace) -> Iterator[str]:
    """Yield that a recorder's file has no end, and no process that may still write one."""
    header, end, path = trace.header, trace.end, trace.file.path
    known = header is not None and header.run is not None and not trace.file.copy
    name = trace_name(path.name)
    if not known or name is None or not end.whole or end.closed or trace.file.is_remote:
        return
    if not path.with_name(f"{name.base}{MARKER_SUFFIX}").exists():
        yield f"{trace}: {NOT_CLOSED}"


def _told(
    processes: list[Process], files: Sequence[tuple[int, Trace]], facts: dict[int, FileFacts]
) -> tuple[list[Process], dict[int, FileFacts]]:
    """Return processes and what is told of their files, with what of their steps is torn off."""
    number, trace = files[-1]
    torn = tuple(f"{trace}: torn before {one.torn}" for one in processes if one.torn)
    if torn:
        facts[number] = facts[number]._replace(left_out=(*facts[number].left_out, *torn))
    return processes, facts


def _believed(columns: EventColumns) -> tuple[EventColumns, FileTimes]:
    """Return events, those whose times cannot be without one, and from when to when they are."""
    reach = _reach_of(columns)
    if is_believable(reach):
        return columns, FileTimes(columns.trace, reach)
    counts = TimeCounts(columns.trace)
    for rows in _pieces(columns):
        counts.add(columns.ph[rows], columns.start_ns[rows], columns.dur_ns[rows])
    odd = counts.odd(columns.start_ns, columns.dur_ns)
    return replace(columns, start_ns=np.where(odd, -1, columns.start_ns)), counts.times


def _pieces(columns: EventColumns) -> Iterator[slice]:
    for begin in range(0, len(columns), ROWS_AT_ONCE):
        yield slice(begin, begin + ROWS_AT_ONCE)


def _reach_of(columns: EventColumns) -> Reach:
    phases = np.ascontiguousarray(columns.ph)
    starts, lengths = (
        np.ascontiguousarray(one, np.int64) for one in (columns.start_ns, columns.dur_ns)
    )
    # What is longer than all times would not be in 64 bits.
    found = _reader.event_reach(phases, starts, lengths, ord("M"), LATEST_NS)
    return NOWHERE if found is None else Reach(*found)


def _clock(columns: EventColumns) -> SetBack:
    told = has_clock_in_lines(columns.trace) and _source(columns) != "kineto"
    return _set_back_of(columns) if told else NEVER


def _set_back_of(columns: EventColumns) -> SetBack:
    """Return how a clock was set back, by the order of the lines of its file."""
    rows = np.flatnonzero(
        (columns.ph == ord("X")) & (columns.start_ns >= 0) & (columns.dur_ns >= 0)
    )
    start, length = columns.start_ns[rows], columns.dur_ns[rows]
    if not len(rows) or _is_in_order(start, length):
        return NEVER
    pid, tid = columns.pid[rows], columns.tid[rows]
    order = np.lexsort((tid, pid))
    start, length, pid, tid = start[order], length[order], pid[order], tid[order]
    begins = np.flatnonzero((pid[1:] != pid[:-1]) | (tid[1:] != tid[:-1])) + 1
    return set_back(np.split(np.stack([start, length], 1), begins))


def _is_in_order(start: Integers, length: Integers) -> bool:
    """Return whether no span ends an hour before one begins that stands before it."""
    return bool((start + length >= np.maximum.accumulate(start) - APART_NS).all())


def _left_out(read: EventColumns, believed: EventColumns) -> tuple[int, int]:
    """Return how many spans have no time, and how many no duration, or one below 0."""
    spans = believed.ph == ord("X")
    # Times that cannot be are told of as such; they are none where the others are believed.
    timeless = spans & ((read.start_ns == -1) | (believed.start_ns < -1))
    return int(timeless.sum()), int((spans & (believed.dur_ns < 0)).sum())


def _left_out_told(trace: Trace, timeless: int, endless: int) -> Iterator[str]:
    for count, what in ((timeless, "time"), (endless, "duration")):
        if count:
            yield (
                f"{trace}: {counted(count, 'span')} without a {what}, or with one below 0, left out"
            )


def _part(
    taken: list[EventColumns],
    number: int,
    owner: Owner,
    mask: Integers | None,
    times: FileTimes,
    roles: RoleCodes,
    *,
    events: bool = False,
) -> _Part:
    """Return what a file has of a process; its columns are the only ones in a list, and let go."""
    columns = taken.pop()
    source = roles.source
    first = 0 if mask is None else int(np.argmax(mask))
    open_ones = columns.ph == ord("B")
    unfinished = int((open_ones if mask is None else open_ones & mask).sum())
    del open_ones
    pid = 0 if source == "kineto" else int(columns.pid[first])
    samples, nonfinite = samples_of(columns, mask), tuple(_nonfinite(columns, mask))
    names, held = columns.names, columns if events else None
    taken.append(columns)
    del columns
    spans = span_columns(taken, mask, roles)
    return _Part(
        number=number,
        names=names,
        events=held,
        owner=owner,
        source=source,
        pid=pid,
        spans=spans,
        samples=samples,
        nonfinite=nonfinite,
        unfinished=unfinished,
        clock=times.clock,
        reach=_recorded(source, spans, times.reach),
    )


def _processes_in(columns: EventColumns, owner: Owner) -> Iterable[tuple[Hashable, int | None]]:
    """Yield what processes of a file are known by, each with its pid; None for all of its rows."""
    profiled = _source(columns) == "kineto"
    if owner.header.run is not None or (owner.is_known and profiled):
        yield owner.number, None
    elif profiled:
        yield (str(columns.trace),), None
    else:
        for pid in np.unique(columns.pid).tolist():
            yield (str(columns.trace), pid), pid


def _source(columns: EventColumns) -> Source:
    header = columns.trace.header
    if header is not None and header.run is not None:
        return "annotated"
    found = {label.cat.lower() for label in columns.labels}
    return "kineto" if found & KINETO_CATEGORIES else "annotated"


def _together(parts: Sequence[_Part]) -> Process:
    names = [part.names for part in parts]
    ordered = OrderedSpans(names, len(names), SetAside())
    for place, part in enumerate(parts):
        ordered.add(part.spans, place)
    return _process(parts, names, ordered.spans())


def _process(parts: Sequence[_Part], names: Sequence[EventNames], spans: Spans) -> Process:
    first = parts[0]
    pauses = _pauses(parts) if first.owner.is_known else NO_PAUSES
    footers = [file.trace.end.footer for file in names]
    spans, torn = _with_marks_at_home(spans), ""
    if not names[-1].trace.end.whole:
        spans, torn = before_the_tear(spans, step_thread(spans), first.owner.header)
    return Process(
        pid=first.pid,
        place=(first.number, first.pid),
        owner=first.owner,
        source=first.source,
        spans=spans,
        samples=joined_samples([part.samples for part in parts]),
        nonfinite=tuple(sorted(moment for part in parts for moment in part.nonfinite)),
        clock=max(part.clock for part in parts),
        pauses=pauses,
        is_whole=names[-1].trace.end.whole,
        torn=torn,
        unfinished=sum(part.unfinished for part in parts),
        dropped=sum((footer and footer.dropped) or 0 for footer in footers),
        waits=sum((footer and footer.waits) or 0 for footer in footers),
        near_ns=_near_ns(spans),
        events=tuple(part.events for part in parts if part.events is not None),
    )


def _pauses(parts: Sequence[_Part]) -> tuple[Integers, Integers]:
    """Return from when to when none of the recordings of a process went on."""
    recordings: dict[Hashable, list[Reach | None]] = defaultdict(list)
    for part in parts:
        recordings[part.names.trace.recording].append(part.reach)
    reaches = sorted(joined(reaches) or NOWHERE for reaches in recordings.values())
    known = [reach for reach in reaches if reach != NOWHERE]
    begins = np.array([begin for begin, _ in known[1:]], np.int64)
    ends = np.maximum.accumulate(np.array([end for _, end in known[:-1]], np.int64))
    some = begins > ends
    return ends[some], begins[some]


def _recorded(source: Source, spans: SpanColumns, reach: Reach | None) -> Reach | None:
    """Return from when to when a file tells of the training; `reach` is that of its events."""
    steps = spans["role"] == CODE["step"]
    if source != "kineto" or not steps.any():
        return reach
    # Before and behind its steps a profiler has the work of its own.
    start, end = spans["start_ns"][steps], spans["end_ns"][steps]
    return Reach(int(start.min()), int(end.max()))


def _near_ns(spans: Spans) -> int:
    def rounded(times: Integers) -> bool:
        # Most that are not show it soon.
        return not (times[:1000] % 1000).any() and not (times % 1000).any()

    whole = len(spans) > 0 and rounded(spans.start_ns) and rounded(spans.end_ns)
    return NEAR_WHOLE_US_NS if whole else NEAR_NS


def _nonfinite(columns: EventColumns, mask: Integers | None) -> Iterable[Moment]:
    wanted = np.array([label.cat == NONFINITE for label in columns.labels], bool)
    if not wanted.any():
        return
    chosen = (columns.ph == ord("i")) & (columns.start_ns >= 0) & wanted[columns.label]
    if mask is not None:
        chosen &= mask
    for row in np.flatnonzero(chosen).tolist():
        name = columns.labels[int(columns.label[row])].name
        yield Moment(int(columns.start_ns[row]), name)


def _with_marks_at_home(spans: Spans) -> Spans:
    """Put steps and evaluations that have tracks of their own on the thread that trains.

    What is known to be a step only when it is over cannot enclose spans on a thread's own track.
    Where several threads train each has its own.
    """
    counts = _by_thread_and_role(spans)
    work = {tid for tid, role in counts if role not in _NO_WORK}
    alone = {(tid, role) for tid, role in counts if role in _MARKS and tid not in work}
    tid = _step_thread({which: count for which, count in counts.items() if which not in alone})
    if not alone or tid is None:
        return spans
    rows = np.flatnonzero(spans.has("step", "evaluation"))
    rows = rows[np.isin(spans.tid[rows], [lane for lane, _ in alone])]
    at_home = spans.tid.copy() if spans.tid.strides != (0,) else spans.tid.astype(np.int64)
    at_home[rows] = tid
    trains = [thread for thread, role in counts if role == CODE["optimizer"]]
    if len(trains) > 1 and sum(role == CODE["step"] for _, role in alone) > 1:
        for lane in {lane for lane, _ in alone}:
            here = rows[spans.tid[rows] == lane]
            at_home[here] = _begun_by(spans, spans.start_ns[here], trains)
    return replace(spans, tid=brief(at_home))


def _begun_by(spans: Spans, marks_ns: Integers, threads: Sequence[int]) -> Integers:
    """Return whose each of the steps on a track is: of who first begins something in nearly all."""
    next_ns = np.full((len(threads), len(marks_ns)), FAR)
    for at, tid in enumerate(threads):
        starts = spans.start_ns[rows_of((spans.tid == tid) & ~spans.has(*_MARK_ROLES))]
        after = np.searchsorted(starts, marks_ns)
        some = after < len(starts)
        next_ns[at, some] = starts[after[some]]
    first = next_ns.argmin(axis=0)
    most = int(np.bincount(first).argmax())
    # Another may be quicker now and then; a thread that has ended leaves its track to the next one.
    if np.mean(first == most) >= ONE_THREAD:
        first[:] = most
    chosen: Integers = np.array(threads)[first]
    return chosen


_Counts: TypeAlias = "dict[tuple[int, int], int]"
"""How many spans there are by thread and code of the role."""

_MARK_ROLES: Final[tuple[Role, ...]] = ("step", "evaluation")
_MARKS: Final = tuple(CODE[role] for role in _MARK_ROLES)
_NO_WORK: Final = (*_MARKS, CODE["transparent"], CODE["garbage"])


def _by_thread_and_role(spans: Spans) -> _Counts:
    counts: Counter[tuple[int, int]] = Counter()
    for first in range(0, len(spans), ROWS_AT_ONCE):
        here = slice(first, first + ROWS_AT_ONCE)
        tids = np.ascontiguousarray(spans.tid[here], np.int64)
        for tid, role, count in _reader.counted_pairs(tids, np.ascontiguousarray(spans.role[here])):
            counts[tid, role] += count
    return counts


def step_thread(spans: Spans) -> int | None:
    """Return the thread that trains: that with most spans of loops, steps and optimizers.

    One that only iterates a loader feeds it.
    """
    return _step_thread(_by_thread_and_role(spans))


def _step_thread(counts: _Counts) -> int | None:
    works = {tid for tid, role in counts if ROLES[role] in WORK_ROLES}
    strong = {which: some for which, some in counts.items() if ROLES[which[1]] in STEP_ROLES}
    at_work = {which: some for which, some in strong.items() if which[0] in works}
    others = {which: some for which, some in counts.items() if ROLES[which[1]] not in GPU_ROLES}
    by_tid: Counter[int] = Counter()
    for (tid, _), some in (at_work or strong or others).items():
        by_tid[tid] += some
    return min(by_tid, key=lambda tid: (-by_tid[tid], tid), default=None)

"""The processes of a job: which are ranks, and which of the others work for which rank."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.reading import TraceSet
from dftrace_ai.analysis.reading.event_columns import event_columns
from dftrace_ai.analysis.reading.held_parts import deleted_told
from dftrace_ai.analysis.reading.identity import Owners, recording_of, recordings_of
from dftrace_ai.analysis.reading.indexed.clocks import (
    NEVER,
    SetBack,
    clock_notes,
    has_clock_in_lines,
    lie_apart,
)
from dftrace_ai.analysis.reading.indexed.reach import NOWHERE, Reach, joined
from dftrace_ai.analysis.steps.believed import believed_columns
from dftrace_ai.analysis.steps.clock_jumps import clock_of
from dftrace_ai.analysis.steps.roles import CODE, DATA_WORK, GPU_ROLES, KINETO_CATEGORIES
from dftrace_ai.analysis.steps.spans import span_columns, spans_of
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from dftrace_ai.analysis.reading.event_columns import EventColumns, EventNames, Integers
    from dftrace_ai.analysis.reading.identity import Owner
    from dftrace_ai.analysis.reading.indexed.clocks import FileTimes
    from dftrace_ai.analysis.steps.roles import Role, Source
    from dftrace_ai.analysis.steps.spans import SpanColumns, Spans
    from dftrace_ai.trace_format.header_and_footer import HeaderFacts
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["Job", "Moment", "Process", "Rank", "Sample", "read_job", "step_thread"]

# Neighbours that touch may overlap by so much once their times are rounded.
NEAR_NS: Final = 2
NEAR_WHOLE_US_NS: Final = 1500

SAMPLED: Final = ("memory", "cpu %")
NO_PAUSES: Final = (np.zeros(0, np.int64), np.zeros(0, np.int64))
# The category of what tensor inspection says of a tensor that is not finite any more.
NONFINITE: Final = "nonfinite"


class Sample(NamedTuple):
    """The numbers of a counter at a moment."""

    at_ns: int
    name: str
    values: JsonObject


class Moment(NamedTuple):
    """When something was, and what it is called."""

    at_ns: int
    name: str


@dataclass(frozen=True, repr=False)
class Process:
    """What a process has recorded.

    Attributes:
        pid: its number; 0 for a file of Kineto's, which is of one rank.
        owner: whose its files are.
        source: who named its spans.
        spans: its finished spans, without those that say nothing of a training.
        samples: of the counters of memory and processors, by time.
        nonfinite: when tensors stopped being finite, by time, each with layer and tensor.
        clock: how the clock was set back while it recorded.
        pauses: from when to when nothing was recorded, between files of torch.profiler, in order.
        unfinished: spans without an end.
        dropped: events that were lost.
        waits: how often a thread waited for a full spool.
        near_ns: neighbours may overlap by so much.
        events: all events of its files, and of others in them; only where they were asked for.
    """

    pid: int
    owner: Owner
    source: Source
    spans: Spans
    samples: tuple[Sample, ...]
    unfinished: int
    dropped: int
    waits: int
    near_ns: int
    events: tuple[EventColumns, ...] = ()
    nonfinite: tuple[Moment, ...] = ()
    clock: SetBack = NEVER
    pauses: tuple[Integers, Integers] = NO_PAUSES

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
class Rank:
    """A process that trains, and the processes that load data for it."""

    process: Process
    workers: tuple[Process, ...] = ()


@dataclass(frozen=True, repr=False)
class Job:
    """All that was recorded.

    Attributes:
        ranks: the processes that train, by rank.
        others: those that are neither ranks nor any rank's workers.
        notes: what of the files could not be read, and is wrong with their clocks, one line each.
        reach: from when to when all events are.
        first_notes: so many of the notes, the first ones, are of times, clocks, runs and ranks that
            the others are not of.
    """

    ranks: tuple[Rank, ...]
    others: tuple[Process, ...] = ()
    notes: tuple[str, ...] = field(default=())
    reach: Reach = NOWHERE
    first_notes: int = 0

    @property
    def ranks_of_host(self) -> dict[str, int]:
        """How many ranks there are on each host."""
        count: dict[str, int] = defaultdict(int)
        for rank in self.ranks:
            count[rank.process.host] += 1
        return dict(count)


@dataclass(frozen=True, repr=False)
class _Part:
    """What one file has of a process."""

    names: EventNames
    events: EventColumns | None
    owner: Owner
    source: Source
    pid: int
    spans: SpanColumns
    samples: tuple[Sample, ...]
    nonfinite: tuple[Moment, ...]
    unfinished: int
    clock: SetBack
    reach: Reach | None


def read_job(traces: TraceSet, *, events: bool = False, all_starts: bool = False) -> Job:
    """Read the processes of a job and tell what each of them is.

    Args:
        traces: the files; parts of one trace are put together. Of several runs, and of ranks that
            were started again, the last start alone is read, which the notes say.
        events: keep what is not of spans, too, which takes twice the memory.
        all_starts: read all of them.

    Raises:
        TraceError: a file cannot be read any more.

    Example::

        job = read_job(open_traces(["out/"]))
        print(len(job.ranks), [len(rank.workers) for rank in job.ranks])
    """
    owners = Owners(traces)
    chosen = traces if all_starts else TraceSet(owners.last)
    files: dict[Hashable, list[_Part]] = defaultdict(list)
    times: list[FileTimes] = []
    notes: list[str] = []
    for read in event_columns(chosen):
        columns, of_file = believed_columns(read)
        del read
        clock = _clock(columns)
        times.append(of_file._replace(clock=clock))
        notes += _without_length(columns)
        owner = owners.of(columns.trace)
        for key, mask in _processes_in(columns, owner):
            files[key].append(_part(columns, owner, mask, times[-1], events=events))
        # Before the next file is read, or all are sorted.
        del columns
    processes = [_process(files.pop(key)) for key in list(files)]
    reach = joined(of_file.reach for of_file in times) or NOWHERE
    traces.notes = chosen.notes
    mended = [note for trace in chosen for note in trace.file.notes]
    told = [] if all_starts else [*owners.told_of_last(), *owners.missing_told(last=True)]
    told += deleted_told(recordings_of(chosen).values())
    first = *mended, *clock_notes(times, owners), *told
    others = (note for note in chosen.notes if note not in mended)
    job = _job(processes, owners, (*first, *notes, *others))
    return replace(job, reach=reach, first_notes=len(first))


def _clock(columns: EventColumns) -> SetBack:
    told = has_clock_in_lines(columns.trace) and _source(columns) != "kineto"
    return clock_of(columns) if told else NEVER


def _without_length(columns: EventColumns) -> Iterator[str]:
    spans = (columns.ph == ord("X")) & (columns.dur_ns < 0)
    if count := int(spans.sum()):
        told = counted(count, "span")
        yield f"{columns.trace}: {told} without a duration, or with one below 0, left out"


def _part(
    columns: EventColumns, owner: Owner, mask: Integers | None, times: FileTimes, *, events: bool
) -> _Part:
    source = _source(columns)
    first = 0 if mask is None else int(np.argmax(mask))
    open_ones = columns.ph == ord("B")
    return _Part(
        names=columns.names,
        events=columns if events else None,
        owner=owner,
        source=source,
        pid=0 if source == "kineto" else int(columns.pid[first]),
        spans=span_columns(columns, mask, source),
        samples=tuple(_samples(columns, mask)),
        nonfinite=tuple(_nonfinite(columns, mask)),
        unfinished=int((open_ones if mask is None else open_ones & mask).sum()),
        clock=times.clock,
        reach=times.reach,
    )


def _processes_in(
    columns: EventColumns, owner: Owner
) -> Iterable[tuple[Hashable, Integers | None]]:
    """Yield what processes of a file are known by, each with its rows; None for all."""
    profiled = _source(columns) == "kineto"
    if owner.header.run is not None or (owner.is_known and profiled):
        yield owner.number, None
    elif profiled:
        yield (str(columns.trace),), None
    else:
        for pid in np.unique(columns.pid).tolist():
            yield (str(columns.trace), pid), columns.pid == pid


def _source(columns: EventColumns) -> Source:
    header = columns.trace.header
    if header is not None and header.run is not None:
        return "annotated"
    found = {label.cat.lower() for label in columns.labels}
    return "kineto" if found & KINETO_CATEGORIES else "annotated"


def _process(parts: Sequence[_Part]) -> Process:
    first = parts[0]
    pauses = _pauses(parts) if first.owner.is_known else NO_PAUSES
    spans = spans_of([part.names for part in parts], [part.spans for part in parts])
    footers = [part.names.trace.end.footer for part in parts]
    samples = [sample for part in parts for sample in part.samples]
    return Process(
        pid=first.pid,
        owner=first.owner,
        source=first.source,
        spans=_with_marks_at_home(spans),
        samples=tuple(sorted(samples, key=lambda sample: sample.at_ns)),
        nonfinite=tuple(sorted(moment for part in parts for moment in part.nonfinite)),
        clock=max(part.clock for part in parts),
        pauses=pauses,
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
        recordings[recording_of(part.names.trace)].append(_recorded(part))
    reaches = sorted(joined(reaches) or NOWHERE for reaches in recordings.values())
    known = [reach for reach in reaches if reach != NOWHERE]
    begins = np.array([begin for begin, _ in known[1:]], np.int64)
    ends = np.maximum.accumulate(np.array([end for _, end in known[:-1]], np.int64))
    some = begins > ends
    return ends[some], begins[some]


def _recorded(part: _Part) -> Reach | None:
    """Return from when to when a file tells of the training."""
    steps = part.spans["role"] == CODE["step"]
    if part.source != "kineto" or not steps.any():
        return part.reach
    # Before and behind its steps a profiler has the work of its own.
    start, end = part.spans["start_ns"][steps], part.spans["end_ns"][steps]
    return Reach(int(start.min()), int(end.max()))


def _near_ns(spans: Spans) -> int:
    def rounded(times: Integers) -> bool:
        # Most that are not show it soon.
        return not (times[:1000] % 1000).any() and not (times % 1000).any()

    whole = len(spans) > 0 and rounded(spans.start_ns) and rounded(spans.end_ns)
    return NEAR_WHOLE_US_NS if whole else NEAR_NS


def _samples(columns: EventColumns, mask: Integers | None) -> Iterable[Sample]:
    wanted = [any(word in label.name.lower() for word in SAMPLED) for label in columns.labels] or [
        False
    ]
    chosen = (columns.ph == ord("C")) & (columns.start_ns >= 0)
    chosen &= np.array(wanted)[columns.label]
    if mask is not None:
        chosen &= mask
    for row in np.flatnonzero(chosen).tolist():
        name = columns.labels[int(columns.label[row])].name
        yield Sample(int(columns.start_ns[row]), name, columns.args(row))


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


def _job(processes: list[Process], owners: Owners, notes: tuple[str, ...]) -> Job:
    trains = [process for process in processes if _trains(process, *STEP_ROLES)]
    trains = trains or [process for process in processes if _trains(process, "forward", "backward")]
    trains.sort(key=lambda process: (process.number, process.owner.number, process.pid))
    workers: dict[int, list[Process]] = defaultdict(list)
    others: list[Process] = []
    chosen = {id(process) for process in trains}
    reaches = [process.spans.reach for process in trains]
    for process in processes:
        if id(process) in chosen:
            continue
        employer = (
            _employer(process, trains, owners) if process.spans.has(*DATA_WORK).any() else None
        )
        # By clocks that differ so much it is not known what it did for which step.
        if employer is None or lie_apart(reaches[employer], process.spans.reach):
            others.append(process)
        else:
            workers[employer].append(process)
    ranks = (Rank(process, tuple(workers[at])) for at, process in enumerate(trains))
    return Job(tuple(ranks), tuple(others), notes)


STEP_ROLES: Final = ("step", "block", "wait", "optimizer")
WORK_ROLES: Final[tuple[Role, ...]] = ("step", "forward", "backward", "optimizer", "compute")


def _trains(process: Process, *roles: str) -> bool:
    return bool(process.spans.has(*roles).any())  # type: ignore[arg-type]


def _employer(worker: Process, trains: list[Process], owners: Owners) -> int | None:
    """Return which rank a process loads for: its parent, or the only one that it can be."""
    parent = owners.parent(worker.owner)
    near = []
    for at, process in enumerate(trains):
        if process.owner is parent:
            return at
        if process.host == worker.host and process.header.run == worker.header.run:
            near.append(at)
    # Workers that a server process has forked are no children of their rank.
    same = [at for at in near if trains[at].owner.rank_and_start == worker.owner.rank_and_start]
    found = same or near
    return found[0] if len(found) == 1 else None


def _with_marks_at_home(spans: Spans) -> Spans:
    """Put steps and evaluations that have tracks of their own on the thread that trains.

    What is known to be a step only when it is over cannot enclose spans on a thread's own track.
    """
    marks = spans.has("step", "evaluation")
    if not marks.any():
        return spans
    work = np.unique(spans.tid[~spans.has("step", "evaluation", "transparent")])
    alone = marks & ~np.isin(spans.tid, work)
    tid = step_thread(spans.at(~alone)) if alone.any() else None
    return spans if tid is None else replace(spans, tid=np.where(alone, tid, spans.tid))


def step_thread(spans: Spans) -> int | None:
    """Return the thread that trains: that with most spans of loops, steps and optimizers.

    One that only iterates a loader feeds it.

    Args:
        spans: of a rank.
    """
    strong = spans.has(*STEP_ROLES)
    works = np.unique(spans.tid[spans.has(*WORK_ROLES)])
    at_work = strong & np.isin(spans.tid, works)
    strong = at_work if at_work.any() else strong
    own = strong if strong.any() else ~spans.has(*GPU_ROLES)
    tids, counts = np.unique(spans.tid[own], return_counts=True)
    return int(tids[int(np.argmax(counts))]) if len(tids) else None

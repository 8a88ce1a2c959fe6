"""The processes of a job, a rank at a time: which are ranks, and who works for which of them."""

from __future__ import annotations

from collections import defaultdict
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from dftrace_ai.analysis.reading import TraceSet
from dftrace_ai.analysis.reading.clock_faults import NEVER, FileTimes, clock_notes, lie_apart
from dftrace_ai.analysis.reading.identity import recordings_of
from dftrace_ai.analysis.reading.reach import NOWHERE, Reach, joined
from dftrace_ai.analysis.reading.search import deleted_told
from dftrace_ai.analysis.reading.trace_end import are_whole
from dftrace_ai.analysis.steps.processes import STEP_ROLES, FileFacts, read_processes
from dftrace_ai.analysis.steps.roles import DATA_WORK

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.reading import Trace
    from dftrace_ai.analysis.reading.identity import Owner
    from dftrace_ai.analysis.steps.processes import Process

# Of the processes of a host so many rows are held while it is not known yet who works for whom;
# beyond that a process is let go, and read again when its turn has come.
MOST_HELD: Final = 1_000_000

Made = TypeVar("Made")

Order: TypeAlias = tuple[int, int, int]
"""In which order ranks are told of: by rank, number of the owner, and that of the process."""

Named: TypeAlias = tuple[int, int]
"""A process by the numbers of its owner and its own."""


@dataclass(frozen=True, repr=False)
class Rank:
    """A process that trains, and the processes that load data for it."""

    process: Process
    workers: tuple[Process, ...] = ()

    @property
    def order(self) -> Order:
        """Its place among the ranks of its job."""
        return self.process.number, *self.named[0]

    @property
    def named(self) -> tuple[Named, ...]:
        """By what `Job.again` reads it."""
        processes = (self.process, *self.workers)
        return tuple((process.owner.number, process.pid) for process in processes)


class JobFacts(NamedTuple):
    """What is known of a job when all of its files have been read."""

    # What of the files could not be read, and is wrong with their clocks, one line each.
    notes: tuple[str, ...]
    # So many of the notes, the first ones, are of times, clocks, runs and ranks that the others are
    # not of.
    first_notes: int
    reach: Reach  # from when to when all events are


@dataclass(repr=False)
class _Look:
    """What decides where a process belongs; it may be let go meanwhile."""

    owner: Owner
    pid: int
    place: tuple[int, int]
    number: int
    trains: bool
    passes: bool
    loads: bool
    reach: Reach
    process: Process | None

    @classmethod
    def at(cls, process: Process, *, held: bool) -> _Look:
        spans = process.spans
        return cls(
            owner=process.owner,
            pid=process.pid,
            place=process.place,
            number=process.number,
            trains=bool(spans.has(*STEP_ROLES).any()),
            passes=bool(spans.has("forward", "backward").any()),
            loads=bool(spans.has(*DATA_WORK).any()),
            reach=spans.reach,
            process=process if held else None,
        )

    @property
    def order(self) -> Order:
        return self.number, self.owner.number, self.pid


@dataclass(frozen=True, repr=False)
class _Parents:
    """Who has started whom of some processes, by the numbers of their owners."""

    owners: Mapping[int, Owner]
    of: Mapping[int, int]

    def __call__(self, owner: Owner) -> Owner | None:
        return self.owners.get(self.of.get(owner.number, -1))


class Job:
    """The processes of a job, read one after the other: each rank with its workers, and others.

    Who works for whom is decided for the processes of a host together, of which a few are held at
    a time; whoever goes through a job lets go of each before asking for the next.

    Args:
        traces: the files; parts of one trace are put together. Of several runs, and of ranks that
            were started again, the last start alone is read, which the notes say.
        events: keep what is not of spans, too, which takes twice the memory.
        all_starts: read all of them.
        only: read these of the files alone.
        known: from when to when others of the files are, of which nothing else is to be told.

    Raises:
        TraceError: a file cannot be read any more.

    Example::

        job = Job(open_traces(["out/"]))
        for member in job:
            if isinstance(member, Rank):
                print(member.process.number, len(member.workers))
        print(*job.facts.notes)
    """

    def __init__(
        self,
        traces: TraceSet,
        *,
        events: bool = False,
        all_starts: bool = False,
        only: Sequence[Trace] | None = None,
        known: Mapping[Path, Reach] | None = None,
    ) -> None:
        self._traces = traces
        # Those that are read alone are compared with others by who has asked for them.
        traces, self._set = (traces, []) if only is not None else traces.on_one_clock()
        self._events = events
        self._all_starts = all_starts
        self._owners = traces.owners
        self._by_number = {owner.number: owner for owner in self._owners.all}
        self._parent: Callable[[Owner], Owner | None] = self._owners.parent
        self._chosen = traces if all_starts else TraceSet(self._owners.last)
        self._files: dict[int, FileFacts] = {}
        self._of_owner: dict[int, list[tuple[int, Trace]]] = {}
        read = None if only is None else {trace.path for trace in only}
        for number, trace in enumerate(self._chosen):
            if known and trace.path in known:
                self._files[number] = FileFacts(FileTimes(trace, known[trace.path]), (), ())
            elif read is None or trace.path in read:
                self._of_owner.setdefault(self._owners.of(trace).number, []).append((number, trace))

    def __iter__(self) -> Iterator[Rank | Process]:
        """Yield each rank with its workers, and each process that is neither, host by host."""
        return self.of_hosts(self._groups())

    def of_hosts(
        self, hosts: Collection[Hashable], *, shown: bool = False
    ) -> Iterator[Rank | Process]:
        """Yield the same of some hosts, as of `JobPart.host`; `shown` by a rank of another one."""
        groups = self._groups()
        # Passes through a model tell of a training where no process of the job shows more.
        faint: list[list[Owner]] = []
        for group in [group for host, group in groups.items() if host in hosts]:
            looks, trains = self._begun(group, alone=len(groups) == 1)
            if trains is None:
                faint.append(group)
            else:
                shown = shown or any(look.trains for look in looks)
                yield from self._members(looks, trains)
        for group in faint:
            yield from self._of_faint(group, shown=shown)

    def parts(self) -> list[JobPart]:
        """Return what of it can be read by itself, also by other processes and machines.

        On each host the processes that have started each other, or are there for the same start of
        a rank, are a part. What is known of their files when a part has been read is to be handed
        to `take`.
        """
        groups = self._groups()
        return [
            JobPart(
                self._of(family),
                host,
                is_host=len(family) == len(group),
                is_all=len(groups) == 1,
            )
            for host, group in groups.items()
            for family in self._families(group)
        ]

    def part_of(self, owner: Owner) -> JobPart:
        """Return the part that one owner is, whoever works for it."""
        return JobPart(self._of([owner]), "", is_host=False, is_all=False)

    def _of(self, owners: Sequence[Owner]) -> Job:
        """Return the same job with these owners alone, and nothing that is known of others."""
        found = copy(self)
        found._by_number = {owner.number: owner for owner in owners}
        parents = ((owner.number, self._parent(owner)) for owner in owners)
        found._parent = _Parents(
            found._by_number,
            {number: parent.number for number, parent in parents if parent is not None},
        )
        found._of_owner = {owner.number: self._of_owner[owner.number] for owner in owners}
        found._files = {}
        # What is to be told of all of them is told by the whole job.
        found._traces = found._chosen = TraceSet(())
        del found._owners
        return found

    def _families(self, group: Sequence[Owner]) -> list[list[Owner]]:
        """Return owners of a host in parts, see `parts`, in the order of their first ones."""
        root = {owner.number: owner.number for owner in group}

        def root_of(number: int) -> int:
            while root[number] != number:
                number = root[number]
            return number

        first: dict[Hashable, int] = {}
        for owner in group:
            beside = first.setdefault(owner.rank_and_start, owner.number)
            parent = self._parent(owner)
            for other in (beside, owner.number if parent is None else parent.number):
                if other in root:
                    low, high = sorted((root_of(owner.number), root_of(other)))
                    root[high] = low
        families: dict[int, list[Owner]] = defaultdict(list)
        for owner in group:
            families[root_of(owner.number)].append(owner)
        return list(families.values())

    def take(self, files: Mapping[int, FileFacts]) -> None:
        """Take in what is known of files that were read elsewhere."""
        self._files |= files

    def leave_out(self, part: JobPart) -> None:
        """Pass over processes that nobody could read."""
        for number in part.job._of_owner:
            self._of_owner.pop(number, None)

    def each(self, make: Callable[[Process, bool], Made], threads: int) -> list[Made]:
        """Return what is made of each process that trains, let go of before the next.

        `make` is told whether it does: what it returns of others is left out. Who loads for whom
        is not looked for, so that none waits for those of its host, and none is read twice.
        """
        from concurrent.futures import ThreadPoolExecutor

        owners = [owner for group in self._groups().values() for owner in group]

        def made_again(look: _Look) -> Made:
            return make(self._taken(look), True)

        with ThreadPoolExecutor(threads) as pool:
            several = pool.map(lambda owner: self._made_of(owner, make), owners)
            found = [one for some in several for one in some]
            trained = [made for look, made in found if look.trains]
            # Passes through a model tell of a training where no process shows more.
            faint = [look for look, _ in found if look.passes]
            return trained or [*pool.map(made_again, faint)]

    def _made_of(
        self, owner: Owner, make: Callable[[Process, bool], Made]
    ) -> list[tuple[_Look, Made]]:
        looks = [(_Look.at(one, held=False), one) for one in self._read(owner)]
        return [(look, make(one, look.trains)) for look, one in looks]

    def _begun(self, group: list[Owner], *, alone: bool) -> tuple[list[_Look], list[_Look] | None]:
        """Return the processes of a host and those that train; None for these if it depends."""
        looks = self._looks(group)
        trains = [look for look in looks if look.trains]
        passes = [look for look in looks if look.passes]
        return looks, (trains or passes if trains or not passes or alone else None)

    def _of_faint(self, group: list[Owner], *, shown: bool) -> Iterator[Rank | Process]:
        looks = self._looks(group)
        return self._members(looks, [] if shown else [look for look in looks if look.passes])

    @property
    def ranks(self) -> list[Rank]:
        """All ranks in their order, held together: of large jobs that takes much memory."""
        ranks = [member for member in self if isinstance(member, Rank)]
        return sorted(ranks, key=lambda rank: rank.order)

    def again(self, named: Sequence[Named]) -> Rank:
        """Read a rank once more.

        Args:
            named: what `Rank.named` has said of it.
        """
        first, *others = (self._read_one(*name) for name in named)
        return Rank(first, tuple(others))

    def reaches(self, process: Process) -> tuple[Reach, ...] | None:
        """Return from when to when files of a process are; None where there is more to be told."""
        read = [self._files[number] for number, _ in self._of_owner[process.owner.number]]
        if any(
            one.unread
            or one.left_out
            or (one.times and (one.times.odd or one.times.clock != NEVER))
            for one in read
        ):
            return None
        return tuple((one.times and one.times.reach) or NOWHERE for one in read)

    @property
    def facts(self) -> JobFacts:
        """What is known of it; it has to be gone through before."""
        files = [self._files[number] for number in sorted(self._files)]
        times = [file.times for file in files if file.times is not None]
        reach = joined(of_file.reach for of_file in times) or NOWHERE
        unread = [_up_to(note, file, reach) for file in files for note in file.unread]
        self._traces.notes = tuple(unread)
        owners = self._owners
        mended = [note for trace in self._chosen for note in trace.file.notes]
        told = [] if self._all_starts else [*owners.told_of_last(), *owners.missing_told(last=True)]
        told += deleted_told(recordings_of(self._chosen).values())
        first = (*mended, *self._set, *clock_notes(times, owners), *told)
        left_out = (note for file in files for note in file.left_out)
        others = (note for note in unread if note not in mended)
        return JobFacts((*first, *left_out, *others), len(first), reach)

    def _groups(self) -> dict[Hashable, list[Owner]]:
        """Return owners by run and host: whoever works for a rank is of the same ones."""
        groups: dict[Hashable, list[Owner]] = defaultdict(list)
        for owner in self._by_number.values():
            if owner.number in self._of_owner:
                groups[owner.header.run, owner.host].append(owner)
        return groups

    def _looks(self, group: Sequence[Owner]) -> list[_Look]:
        looks: list[_Look] = []
        rows = 0
        for owner in group:
            processes = self._read(owner)
            more = sum(len(process.spans) for process in processes)
            # The first is always held, and so are those of one file.
            held = not rows or rows + more <= MOST_HELD or len(processes) > 1
            rows += more if held else 0
            looks += [_Look.at(process, held=held) for process in processes]
            del processes
        return sorted(looks, key=lambda look: look.place)

    def _members(self, looks: Sequence[_Look], trains: list[_Look]) -> Iterator[Rank | Process]:
        trains = sorted(trains, key=lambda look: look.order)
        workers: dict[int, list[_Look]] = defaultdict(list)
        others: list[_Look] = []
        ranks = {look.place for look in trains}
        for look in looks:
            if look.place in ranks:
                continue
            employer = self._employer(look, trains) if look.loads else None
            # By clocks that differ so much it is not known what it did for which step.
            if employer is None or lie_apart(trains[employer].reach, look.reach):
                others.append(look)
            else:
                workers[employer].append(look)
        for at, look in enumerate(trains):
            yield Rank(self._taken(look), tuple(map(self._taken, workers[at])))
        for look in others:
            yield self._taken(look)

    def _employer(self, worker: _Look, trains: Sequence[_Look]) -> int | None:
        """Return which rank a process loads for: its parent, or the only one that it can be."""
        near = self._near(worker, trains) or range(len(trains))
        return near[0] if len(near) == 1 else None

    def _near(self, worker: _Look, trains: Sequence[_Look]) -> Sequence[int]:
        """Return its parent, else those of the start that it is of; nothing for neither."""
        parent = self._parent(worker.owner)
        for at, rank in enumerate(trains):
            if rank.owner is parent:
                return [at]
        # Workers that a server process has forked are no children of their rank.
        start = worker.owner.rank_and_start
        return [at for at, rank in enumerate(trains) if rank.owner.rank_and_start == start]

    def _taken(self, look: _Look) -> Process:
        process, look.process = look.process, None
        return process or self._read_one(look.owner.number, look.pid)

    def _read_one(self, owner: int, pid: int) -> Process:
        processes = self._read(self._by_number[owner])
        return next(process for process in processes if process.pid == pid)

    def _read(self, owner: Owner) -> list[Process]:
        files = self._of_owner[owner.number]
        processes, facts = read_processes(owner, files, events=self._events)
        self._files |= facts
        return processes


def _up_to(note: str, file: FileFacts, reach: Reach) -> str:
    """Return a note; of a file without an end also up to when in the run it tells of it."""
    times = file.times
    if are_whole([note]) or times is None or times.reach is None or reach.length_ns is None:
        return note
    until_s, whole_s = (ns / 1e9 for ns in (times.reach.last_ns - reach.first_ns, reach.length_ns))
    return f"{note}: up to {max(0.0, until_s):.3g} of the run's {whole_s:.3g} s"


class JobPart:
    """Processes of a host that can be read without the others of their job.

    Attributes:
        host: which of the hosts of the job they are on.
        job: the job with these alone.
        trains: when it was read, whether a process of it trains.
    """

    def __init__(self, job: Job, host: Hashable, *, is_host: bool, is_all: bool) -> None:
        self.host = host
        self.job = job
        self.trains = False
        self._is_host = is_host
        self._is_all = is_all

    @property
    def traces(self) -> list[Trace]:
        """The files of its processes."""
        return [trace for files in self.job._of_owner.values() for _, trace in files]

    @property
    def files(self) -> Mapping[int, FileFacts]:
        """What is known of its files when it was read."""
        return self.job._files

    def members(self) -> Iterator[Rank | Process] | None:
        """Return its ranks and other processes; None where others decide what they are.

        Others do where none of it trains, and one makes passes through a model or loads data, and
        where it is not known for which rank of the host a process loads.
        """
        (group,) = self.job._groups().values()
        looks, trains = self.job._begun(group, alone=self._is_all)
        if trains is None or not (self._is_host or self._is_decided(looks, trains)):
            return None
        self.trains = any(look.trains for look in looks)
        return self.job._members(looks, trains)

    def each(self, make: Callable[[Process, bool], Made]) -> list[tuple[bool, Made]]:
        """Return what is made of each process, and whether that trains; as `Job.each`."""
        owners = self.job._by_number.values()
        found = [one for owner in owners for one in self.job._made_of(owner, make)]
        return [(look.trains, made) for look, made in found]

    def _is_decided(self, looks: Sequence[_Look], trains: Sequence[_Look]) -> bool:
        ranks = {look.place for look in trains}
        return all(
            self.job._near(look, trains) for look in looks if look.loads and look.place not in ranks
        )

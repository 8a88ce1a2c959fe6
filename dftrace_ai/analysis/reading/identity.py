"""Whose files are: which are of one process, which of one run, and who was started again."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.reading.clock_faults import lie_apart
from dftrace_ai.analysis.reading.index_line import recorded
from dftrace_ai.analysis.reading.reach import (
    NOWHERE,
    Reach,
    joined,
    reach_of_lines,
    utc_text,
)
from dftrace_ai.analysis.reading.reader import TraceReader
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.file_names import trace_of_profile, worker_of_profile
from dftrace_ai.trace_format.header_and_footer import HeaderFacts
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.reading.trace import Trace

# Whoever says that there are a million ranks gets no list of them.
MOST_RANKS: Final = 100_000
NAMED: Final = 8


@dataclass(eq=False, repr=False)
class Owner:
    """A process by its files; where one does not say whose it is, all that are in it.

    `run` counts the runs in the order of time, `start` the starts of its rank, or of a program
    without ranks, from 1; `is_last` is one of the last start of its rank in the last run.
    """

    number: int
    files: list[Trace]
    header: HeaderFacts
    is_known: bool = True
    run: int = 0
    start: int = 1
    is_last: bool = True

    @property
    def host(self) -> str:
        """Its host, by the hash of its name where that is known; empty where nothing is."""
        return self.header.hhash or self.header.host or ""

    @property
    def rank_and_start(self) -> tuple[int | None, int]:
        """Whose start it is, or is there for."""
        return self.header.rank, self.start

    @cached_property
    def reach(self) -> Reach:
        """From when to when its events are; nowhere for none."""
        return joined(map(_reach_of, self.files)) or NOWHERE


@dataclass(frozen=True)
class KnownRun:
    """A run by its files, those of a job that was started again among them."""

    id: str
    files: tuple[Trace, ...]

    @cached_property
    def began_ns(self) -> int:
        """When its first event began: where no index tells that, its files are read for it."""
        reach = joined(map(_reach_of, self.files)) or NOWHERE
        # A run of which nothing is written yet has been begun all the same.
        return reach.first_ns if reach != NOWHERE else max(map(_changed_ns, self.files))


class Owners:
    """The processes whose files are looked at together, and the runs that they are of."""

    # Two are not one where the host (or its boot), the namespace of process numbers, the number,
    # the run, the rank, or the moment at which it was started differ. What files do not say of that
    # is told by the names that the recorder gives: those of another name are of another process.
    # What a worker of torch.profiler, or one of its ranks, has recorded one after the other is of
    # one, and so is what has other names.
    #
    # Processes are of one run where that has a name in common, or where they are different ranks of
    # a world of the same size that were there at the same time. Of a rank, processes that were not
    # there at the same time were started one after the other.

    def __init__(self, traces: Iterable[Trace]) -> None:
        self.all: list[Owner] = []
        self._of: dict[Path, Owner] = {}
        found = sorted(_files_of_each(traces), key=lambda each: _in_order(each[0]))
        for files, is_known in found:
            owner = Owner(len(self.all), files, _first_header(files), is_known)
            self.all.append(owner)
            self._of.update((trace.path, owner) for trace in files)
        self._by_pid: dict[Hashable, list[Owner]] = defaultdict(list)
        for owner in self.all:
            if owner.header.run is not None:
                self._by_pid[_place(owner, owner.header.pid)].append(owner)
        units = list(self._units())
        for unit in units:
            _unrank_impossible(unit)
        self._runs = _together([_Run(unit, self._starts(unit)) for unit in units])
        before: dict[Hashable, Counter[int | None]] = defaultdict(Counter)
        for number, run in enumerate(self._runs):
            # All ranks are started again together, also those without a file of an earlier start.
            earlier = max(before[run.job].values(), default=0)
            for owner in run.owners:
                owner.run = number
                owner.start += earlier
                owner.is_last &= number == len(self._runs) - 1
            before[run.job].update(run.starts)

    def of(self, trace: Trace) -> Owner:
        """Return whose a file is."""
        return self._of[trace.path]

    def parent(self, owner: Owner) -> Owner | None:
        """Return the process that has started one; None where it is not among them."""
        header = owner.header
        if header.run is None or not header.ppid:
            return None
        found = [one for one in self._by_pid[_place(owner, header.ppid)] if _may_start(one, owner)]
        if len(found) > 1:
            found = [one for one in found if one.header.rank == header.rank] or found
        if len(found) > 1:
            found = [one for one in found if _meet(one.reach, owner.reach)] or found
        return found[0] if found else None

    def employer(self, owner: Owner) -> Owner | None:
        """Return the process for which one works: its parent, but for one that starts ranks."""
        parent = self.parent(owner)
        rank = owner.header.rank
        is_its = parent is not None and (rank is None or rank == parent.header.rank)
        return parent if is_its else None

    @cached_property
    def last(self) -> tuple[Trace, ...]:
        """The files of the last run, of the last start of each rank, in the order of paths."""
        files = (trace for owner in self.all if owner.is_last for trace in owner.files)
        return tuple(sorted(files, key=lambda trace: trace.path))

    @property
    def known_runs(self) -> list[KnownRun]:
        """The runs that have a name, the oldest first; files that name none are of no run."""
        jobs: list[list[_Run]] = []
        for run in self._runs:
            if run.name is not None:
                earlier = (job for job in reversed(jobs) if run.goes_on_from(job[-1]))
                job = next(earlier, None)
                if job is None:
                    jobs.append([run])
                else:
                    job.append(run)
        found = []
        for job in jobs:
            files = tuple(file for run in job for owner in run.owners for file in owner.files)
            found.append(KnownRun(job[-1].name or "", files))
        # The beginning of a run that is alone is asked of nobody.
        return sorted(found, key=lambda run: run.began_ns) if len(found) > 1 else found

    @cached_property
    def missing_ranks(self) -> dict[str, tuple[int, ...]]:
        """Ranks of a run of which there is no file, by what the run is called."""
        return {
            run.name: tuple(sorted(set(range(run.world)) - run.ranks))
            for run in self._runs
            if run.name is not None and run.ranks and len(run.ranks) < run.world <= MOST_RANKS
        }

    @cached_property
    def labels(self) -> list[str]:
        """What each is called, by its number, so that no two are called alike.

        ``node7:4711``; ``node7:1 rank 3`` where another one there has the same number; the path of
        its first file where the rank does not tell them apart, or nothing is known.
        """
        short = [_host_and_pid(owner.header) for owner in self.all]
        ranked = [
            f"{name} rank {owner.header.rank}" if name and owner.header.rank is not None else ""
            for name, owner in zip(short, self.all, strict=True)
        ]
        counts = Counter(short), Counter(ranked)
        return [
            next((name for name, count in zip(names, counts, strict=True) if count[name] == 1), "")
            or str(_base(owner.files[0]))
            for owner, *names in zip(self.all, short, ranked, strict=True)
        ]

    def called(self, trace: Trace, pid: int) -> str:
        """Return what a process is called beside the others: ``node7:4711``, as of `labels`."""
        owner = self.of(trace)
        label, header = self.labels[owner.number], owner.header
        if not owner.is_known or len(self.all) < 2 or label == _host_and_pid(header):
            return f"{header.host or ''}:{pid}"
        return label if pid == header.pid else f"{label}:{pid}"

    def missing_told(self, *, last: bool = False) -> list[str]:
        """Return a line for each run with ranks without a file, or of the last run alone."""
        told = []
        for run, ranks in self.missing_ranks.items():
            if not last or run == self._runs[-1].name:
                named = ", ".join(map(str, ranks[:NAMED])) + (", ..." if len(ranks) > NAMED else "")
                told.append(f"run {run}: {counted(len(ranks), 'rank')} without a file: {named}")
        return told

    def run_of(self, owner: Owner) -> str:
        """Return what its run is called; empty where it has no name."""
        return self._runs[owner.run].name or "" if owner.is_known else ""

    def of_start(self, start: int) -> tuple[Trace, ...]:
        """Return the files of one start of each rank of the last job, in the order of paths."""
        job = {number for number, run in enumerate(self._runs) if run.job == self._runs[-1].job}
        last = [owner for owner in self.all if owner.run in job]
        files = (trace for owner in last if owner.start == start for trace in owner.files)
        return tuple(sorted(files, key=lambda trace: trace.path))

    @property
    def runs(self) -> int:
        """How many runs have a name, those that were put together counted once."""
        return sum(run.name is not None for run in self._runs)

    def told(self, done: str) -> list[str]:
        """Return what is to be said where files are of several runs, or of ranks started again.

        `done` is what is done with all of them, such as ``added up``; empty for nothing.
        """
        words = self._told
        if words and done:
            words = [*words, f"all of that is {done}, what was done again, too"]
        return ["; ".join(words)] if words else []

    def told_of_last(self) -> list[str]:
        """Return the same where the last start alone is looked at."""
        words = self._told
        if not words:
            return []
        reaches = [owner.reach for owner in self._runs[-1].owners if owner.is_last]
        began = utc_text(min(reaches).began_ns)
        at = f", which began at {began}," if began else ""
        return [
            "; ".join(
                [*words, f"the last start{at} is judged; give the files of another to judge that"]
            )
        ]

    @cached_property
    def _told(self) -> list[str]:
        jobs = len({run.job for run in self._runs})
        words = [f"these are traces of {jobs} runs, and not of ranks of one"] if jobs > 1 else []
        return words + _starts_told(self._runs)

    def contradictions(self) -> list[str]:
        """Return what of the files cannot all be so, one line each."""
        told = []
        names = Counter(recording for owner in self.all for recording in recordings_of(owner.files))
        for (folder, base), count in names.items():
            if count > 1:
                told.append(f"{folder / base}: its parts are of {count} processes by their headers")
        for owner in self.all:
            recordings = list(recordings_of(owner.files).values())
            timed = sorted(
                (joined(map(_reach_of, files)) or NOWHERE, str(files[0])) for files in recordings
            )
            for (one, first), (other, second) in pairwise(timed):
                if _meet(one, other):
                    told.append(f"{second}: of the same process and the same time as {first}")
        return told

    def _units(self) -> Iterator[list[Owner]]:
        """Yield the processes that say that they are of one run."""
        units: dict[Hashable, list[Owner]] = defaultdict(list)
        runs = {owner.files[0].recording: owner.header.run for owner in self.all}
        for owner in self.all:
            if owner.is_known:
                path = owner.files[0].path
                beside = runs.get((path.parent, trace_of_profile(path.name)))
                run = owner.header.run or beside
                units[(owner.number,) if run is None else run].append(owner)
        yield from units.values()

    def _starts(self, unit: Sequence[Owner]) -> dict[int | None, int]:
        """Tell the starts of each rank of a run apart; returns how many there are."""
        of_rank: dict[int | None, list[Owner]] = defaultdict(list)
        for owner in unit:
            of_rank[owner.header.rank].append(owner)
        helpers = of_rank.pop(None, [])  # of a run with ranks they are there for all of these
        starts: dict[int | None, int] = {}
        for rank, owners in of_rank.items() or [(None, helpers)]:
            families = self._families(owners)
            starts[rank] = len(families)
            for number, family in enumerate(families, 1):
                for owner in family:
                    owner.start, owner.is_last = number, number == len(families)
        return starts

    def _families(self, owners: Sequence[Owner]) -> list[list[Owner]]:
        """Return processes in groups, none of which was there with another, in order of time."""
        families: dict[int, list[Owner]] = defaultdict(list)
        known = {owner.number for owner in owners}
        for owner in owners:
            root, left = owner, known - {owner.number}
            while (above := self.parent(root)) is not None and above.number in left:
                left.remove(above.number)
                root = above
            families[root.number].append(owner)
        if len(families) < 2:
            return list(families.values())
        timed = [
            (joined(owner.reach for owner in family) or NOWHERE, family)
            for family in families.values()
        ]
        groups: list[list[Owner]] = []
        until = -1
        for reach, family in sorted(timed, key=lambda each: _begin(each[0])):
            if not groups or (reach != NOWHERE and reach.first_ns > until):
                groups.append([])
            groups[-1] += family
            until = max(until, reach.last_ns)
        return groups


def _unrank_impossible(unit: Sequence[Owner]) -> None:
    """Take its rank from who says one beyond how many there are; of many that is told wrong."""
    sizes = {(one.header.rank, one.header.world_size) for one in unit}
    beyond = {rank for rank, size in sizes if rank is not None and size and rank >= size}
    if 2 * len(beyond) < len({rank for rank, _ in sizes} - {None}):
        for owner in unit:
            if owner.header.rank in beyond:
                owner.header = owner.header._replace(rank=None)


class _Run:
    """Processes that were started together."""

    def __init__(self, owners: list[Owner], starts: dict[int | None, int]) -> None:
        self.owners = owners
        self.starts = starts
        header = owners[0].header
        self.name = header.run
        self.world = max(owner.header.world_size or 1 for owner in owners)
        self.is_profile = header.run is None
        named = header.run_id, header.scheduler, header.job_id
        self.job: Hashable = named if any(named) else owners[0].number
        self._launch = *named, header.restarts, header.world_size

    @property
    def ranks(self) -> set[int]:
        return {rank for rank in self.starts if rank is not None}

    @cached_property
    def reach(self) -> Reach:
        return joined(owner.reach for owner in self.owners) or NOWHERE

    def is_launch_of(self, other: _Run) -> bool:
        """Return whether others that have another name are ranks beside these."""
        if not self.ranks and not other.ranks:
            return self.is_profile and other.is_profile and _meet(self.reach, other.reach)
        return (
            bool(self.ranks and other.ranks)
            and self._launch == other._launch
            and not self.ranks & other.ranks
            and not lie_apart(self.reach, other.reach)
        )

    def goes_on_from(self, other: _Run) -> bool:
        """Return whether the launcher, or the scheduler, has started the same job again."""
        again = self.owners[0].header.restarts or 0, other.owners[0].header.restarts or 0
        return self.job == other.job and again[0] > again[1]

    @property
    def launchers(self) -> set[Hashable]:
        return {(owner.host, owner.header.ppid) for owner in self.owners}

    def take(self, other: _Run) -> None:
        self.owners = [*self.owners, *other.owners]
        self.starts |= other.starts
        self.world = max(self.world, other.world)
        self.__dict__.pop("reach", None)


def _together(units: list[_Run]) -> list[_Run]:
    """Return runs in the order of time; ranks that know of no name in common are put together."""
    if len(units) < 2:
        return units
    runs: list[_Run] = []
    for unit in sorted(units, key=lambda unit: _begin(unit.reach)):
        found = [run for run in reversed(runs) if run.is_launch_of(unit)]
        # Of two that were started at the same time.
        found.sort(key=lambda run: not run.launchers & unit.launchers)
        if found:
            found[0].take(unit)
        else:
            runs.append(unit)
    return runs


def _starts_told(runs: Sequence[_Run]) -> list[str]:
    starts: Counter[int | None] = Counter()
    for run in runs:
        if run.job == runs[-1].job:
            starts.update(run.starts)
    again = sorted((rank or 0, rank) for rank, times in starts.items() if times > 1)
    if not again:
        return []
    most = max(starts.values())
    if len(again) > 1:
        return [f"{counted(len(again), 'rank')} were started up to {most} times"]
    rank = again[0][1]
    return [f"{'the program' if rank is None else f'rank {rank}'} was started {most} times"]


def recordings_of(traces: Iterable[Trace]) -> dict[tuple[Path, str], list[Trace]]:
    """Return the files of each recording, its parts in their order, by folder and name."""
    recordings: dict[tuple[Path, str], list[tuple[int, Trace]]] = {}
    for trace in traces:
        recordings.setdefault(trace.recording, []).append((trace.part, trace))
    return {
        recording: [trace for _, trace in sorted(parts, key=lambda each: each[0])]
        for recording, parts in recordings.items()
    }


def _base(trace: Trace) -> Path:
    folder, base = trace.recording
    return folder / base


def _files_of_each(traces: Iterable[Trace]) -> Iterator[tuple[list[Trace], bool]]:
    """Yield the files of each process, and whether they say of which one they are."""
    found: dict[tuple[Hashable, ...], list[list[Trace]]] = defaultdict(list)
    for (folder, base), files in recordings_of(traces).items():
        _know_places(files)
        header = _first_header(files)
        copy = files[0].file.copy
        if header.run is not None:
            for key, of_one in _by_key(files, base).items():
                found[key].append(of_one)
        elif copy is not None and copy.profile:
            found[_key_of_profile(header, folder, base, len(found))].append(files)
        else:
            yield from (([trace], False) for trace in files)
    for key, recordings in found.items():
        joins = _JOINED[key[0]]
        processes: list[list[Trace]] = []
        for files in recordings if len(recordings) < 2 else sorted(recordings, key=_begin_of):
            same = next((one for one in processes if joins(one, files)), None)
            if same is None:
                processes.append(list(files))
            else:
                same += files
        yield from ((files, True) for files in processes)


def _know_places(files: Sequence[Trace]) -> None:
    """Have all parts say which rank they are of where the last one alone knows it."""
    last = files[-1].said
    is_known = last.rank is not None and last.process_start is not None
    for trace in files[:-1] if is_known else ():
        said = trace.said
        same = (said.run, said.pid, said.process_start) == (last.run, last.pid, last.process_start)
        if same and said.rank != last.rank:
            trace.know_place(last)


def _by_key(files: Sequence[Trace], base: str) -> dict[tuple[Hashable, ...], list[Trace]]:
    """Return the files of a recording by whose they say that they are: one, or what was mixed."""
    keys: dict[tuple[Hashable, ...], list[Trace]] = {}
    key = _key(_first_header(files), base)
    for trace in files:
        header = trace.said
        key = key if header.run is None else _key(header, base)
        keys.setdefault(key, []).append(trace)
    return keys


def _key(header: HeaderFacts, base: str) -> tuple[Hashable, ...]:
    """Return what recordings of one process have in common."""
    host = header.hhash or header.host
    own: tuple[Hashable, ...] = (header.run, header.rank, host, header.pid)
    if header.boot_id is not None and header.process_start is not None:
        exact = header.boot_id, header.pid_namespace, header.process_start
        return "known", *own, *exact
    own += header.ppid, header.world_size, header.local_rank, header.restarts
    # The recorder takes no name that is taken: another one is of another process.
    own_name = rf"-{re.escape(header.host or '')}-{header.pid}(-\d+)?$"
    return ("named", *own, base) if re.search(own_name, base) else ("renamed", *own)


def _key_of_profile(
    header: HeaderFacts, folder: Path, base: str, number: int
) -> tuple[Hashable, ...]:
    if base.isdecimal() and worker_of_profile(folder.name):
        folder, base = folder.parent, folder.name  # one of several documents of a file
    worker, rank = worker_of_profile(base), header.rank
    if rank is None and not worker:
        return "alone", number
    own = header.host, header.pid, worker, rank, header.world_size
    return "profile", *own, folder if rank is None or header.pid is None else None


def _are_parts(one: Sequence[Trace], other: Sequence[Trace]) -> bool:
    """Return whether two recordings of one name in two folders are parts of one."""
    return {trace.part for trace in one}.isdisjoint(trace.part for trace in other)


def _lie_behind(one: Sequence[Trace], other: Sequence[Trace]) -> bool:
    """Return whether all files of one had ended when the other began."""
    before = joined(map(_reach_of, one)) or NOWHERE
    after = joined(map(_reach_of, other)) or NOWHERE
    return not _meet(before, after)


# How recordings that have a key in common are known to be of one process.
_JOINED: Final[dict[Hashable, Callable[[Sequence[Trace], Sequence[Trace]], bool]]] = {
    "known": lambda _one, _other: True,
    "named": _are_parts,
    "renamed": _lie_behind,
    "profile": _lie_behind,
    "alone": lambda _one, _other: False,
}


def _reach_of(trace: Trace) -> Reach:
    try:
        reach = recorded(trace)
        if reach is None:
            reach = reach_of_lines(TraceReader(trace.file).texts()).since_1970(trace)
    except TraceError:
        return NOWHERE  # whoever reads it tells why it cannot be read
    return reach


def _changed_ns(trace: Trace) -> int:
    try:
        return trace.path.stat().st_mtime_ns
    except OSError:
        return 0  # a member of an archive, or gone


def _begin(reach: Reach) -> int:
    return -1 if reach == NOWHERE else reach.first_ns


def _begin_of(files: Sequence[Trace]) -> tuple[int, str]:
    return _begin(joined(map(_reach_of, files)) or NOWHERE), str(files[0])


def _meet(one: Reach, other: Reach) -> bool:
    return one.first_ns <= other.last_ns and other.first_ns <= one.last_ns


def _first_header(files: Sequence[Trace]) -> HeaderFacts:
    headers = (trace.said for trace in files)
    return next((header for header in headers if header != HeaderFacts()), HeaderFacts())


def _in_order(files: Sequence[Trace]) -> tuple[int, int, str]:
    header = files[0].said
    rank = 2**63 if header.rank is None else header.rank
    return rank, header.part or 0, str(files[0])


def _place(owner: Owner, pid: int | None) -> Hashable:
    return owner.header.run, owner.host, pid


def _may_start(parent: Owner, child: Owner) -> bool:
    """Return whether what is known of two processes lets one have started the other."""
    above, below = parent.header, child.header
    same = all(
        None in pair or pair[0] == pair[1]
        for pair in (
            (above.boot_id, below.boot_id),
            (above.pid_namespace, below.pid_namespace),
            (above.rank, below.rank),
        )
    )
    begun = above.process_start or 0, below.process_start or 2**63
    return parent is not child and same and begun[0] <= begun[1]


def _host_and_pid(header: HeaderFacts) -> str:
    return "" if header.host is None or header.pid is None else f"{header.host}:{header.pid}"

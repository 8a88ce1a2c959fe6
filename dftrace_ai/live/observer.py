"""From spools to a snapshot of what their processes are doing.

Apart from the face of the folder, which is names alone.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import dftrace_ai._native as _native
from dftrace_ai.errors import TraceError, readable
from dftrace_ai.live.jobs import jobs_of, of_one_job, ranks_alive, with_workers
from dftrace_ai.live.model import (
    NS,
    HiddenProcess,
    OpenSpanStatus,
    RankStatus,
    Snapshot,
    StackFrame,
    ThreadStatus,
    WaitedFor,
)
from dftrace_ai.live.saved import merged, plain, read_snapshot
from dftrace_ai.live.told import LiveFiles, live_path, path_as_text
from dftrace_ai.live.wording import processes_text
from dftrace_ai.spools.answering import Asking
from dftrace_ai.spools.search import (
    MarkedSpool,
    OwnSpools,
    lives_without,
    spool_of_marker,
    spools_below,
)
from dftrace_ai.trace_format.file_names import MARKER_SUFFIX, RUN_DIGITS
from dftrace_ai.trace_format.header_and_footer import HeaderFacts
from dftrace_ai.trace_format.names_and_phases import COLLECTIVES, JOINT, own_category
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dftrace_ai.live.jobs import Job
    from dftrace_ai.spools.outcome_types import SpanLook, SpanNames, SpoolLook, ThreadLook
    from dftrace_ai.trace_format.json_types import Json


# A rate over less than this says nothing; of what is told it is between two files.
LEAST_RATE_S = 0.01
LEAST_RATE_TOLD_S = 0.5

UNKNOWN = "?"


def rank_status(look: SpoolLook, spool: str) -> RankStatus:
    """Return what is known of a process by what its spool at a path holds."""
    header = HeaderFacts.of(_members(look["header"]))
    threads = [_thread_status(thread) for thread in look["threads"]]
    threads.sort(key=lambda thread: (thread.tid != look["pid"], thread.tid))
    error = look["write_error"]
    return RankStatus(
        pid=look["pid"],
        parent_pid=look["parent_pid"],
        host=look["host"],
        run=look["run"],
        rank=header.rank,
        world_size=header.world_size,
        worker=False,
        state="dead" if look["state"] == "dead" else "alive",
        seen_ns=look["now_ns"],
        present_ns=look["present_ns"],
        started_ns=look["started_ns"] or None,
        prefix=path_as_text(look["prefix"]),
        trace=path_as_text(look["trace_path"]),
        spool=path_as_text(spool),
        spool_bytes=look["spool_bytes"],
        dropped=look["dropped"],
        waits=look["waits"],
        overwritten=look["overwritten"],
        write_error=os.strerror(error) if error else "",
        drain_cpu_us=look["drain_cpu_us"],
        flight_recorder=look["flight_recorder"],
        epoch=_newest(look, "epoch"),
        step=_newest(look, "step"),
        events_per_s=_rate(threads),
        threads=threads,
    )


def _rate(threads: Sequence[ThreadStatus]) -> float | None:
    """Events a second of all threads; None where one is too fast to be seen for long enough."""
    seen = [thread for thread in threads if thread.covered_s >= LEAST_RATE_S]
    too_fast = any(
        thread.records and not thread.ended and thread.covered_s < LEAST_RATE_S
        for thread in threads
    )
    if not seen or too_fast:
        return None
    return sum(thread.events / thread.covered_s for thread in seen)


def _thread_status(look: ThreadLook) -> ThreadStatus:
    standing = _members(look["stack"])
    return ThreadStatus(
        tid=look["tid"],
        name=look["name"],
        ended=look["ended"],
        records=look["records"],
        depth=look["depth"],
        open=[_span_status(span) for span in look["open"]],
        tasks=[_span_status(span) for span in look["tasks"]],
        last_ns=look["last_ns"],
        events=look["events"],
        covered_s=look["covered_ns"] / NS,
        self_s=_by_category(look["self_ns"]),
        stack=list(_frames(standing.get("stack"))),
        stack_is_cut=bool(standing.get("cut")),
        stack_since_ns=look["stack_since_ns"],
        kernel=look["kernel"],
    )


def _frames(told: Json) -> Iterator[StackFrame]:
    """Read the frames of a stack; what is none, as in a damaged spool, is left out."""
    for one in told if isinstance(told, list) else ():
        match one:
            case [str(function), str(file), int(line), int(owner)] if (
                0 <= line < 2**64 > owner >= 0
            ):
                yield StackFrame(function, file, line, owner)


def _by_category(times: list[tuple[SpanNames | None, int]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for names, ns in times:
        category = own_category(*(names or (UNKNOWN, UNKNOWN)))
        if category is not None:
            found[category] = found.get(category, 0.0) + ns / NS
    return found


def _span_status(look: SpanLook) -> OpenSpanStatus:
    name, cat = look["name"] or (UNKNOWN, UNKNOWN)
    return OpenSpanStatus(
        id=look["id"],
        parent=look["parent"],
        name=name,
        cat=cat,
        start_ns=look["start_ns"],
        level=look["level"],
        args=_members(look["args"]),
    )


def _members(text: str) -> dict[str, Json]:
    """Read members of an object, each with a comma in front."""
    try:
        found = json.loads(f"{{{text[1:]}}}")
    except (ValueError, RecursionError):  # a number of thousands of digits is one for Python, too
        return {}
    result: dict[str, Json] = plain(found)
    return result


def _whole(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and -(2**63) <= value < 2**63 else None  # type: ignore[operator,return-value]


def _newest(look: SpoolLook, key: str) -> int | None:
    """The value that an argument had last: in the main thread, or else in any."""

    def values(thread: ThreadLook) -> Iterator[tuple[int, int]]:
        for span in (*thread["open"], *thread["tasks"]):
            value = _whole(_members(span["args"]).get(key))
            if value is not None:
                yield span["start_ns"], value
        for moment, args in thread["newest_args"]:
            value = _whole(_members(args).get(key))
            if value is not None:
                yield moment, value

    main = [thread for thread in look["threads"] if thread["tid"] == look["pid"]]
    for threads in (main, look["threads"]):
        found = [one for thread in threads for one in values(thread)]
        if found:
            return max(found)[1]
    return None


# Listing directories is to take a twentieth of the time at most.
WALKS_APART = 20

SPOOL_MAGIC = b"DFSPOOL1"


class _Walk(NamedTuple):
    spools: list[MarkedSpool]
    next_due: float


def snapshot(
    paths: Iterable[str | os.PathLike[str]], window_s: float = 5.0, run: str = "all"
) -> Snapshot:
    """Look at what traced processes are doing, without their noticing.

    Args:
        paths: directories in which processes write traces, spools, and files of
            snapshots that were taken on other hosts.
        window_s: seconds that shares of time and rates look back on.
        run: ``all``; ``last`` for the processes of the newest run of those that run; or a run by
            its folder, or by the beginning of its name.

    Returns:
        Every process once, each by the newest look at it.

    Raises:
        TraceError: a path is missing or of no use, nothing runs there, or there is no such run.

    Example::

        for process in dftrace_ai.live.snapshot(["out"]).processes:
            print(process.label, " > ".join(span.label for span in process.place))
    """
    return Observer(paths, window_s, run).look()


class Observer:
    """Looks at the same processes again and again.

    Args:
        paths: as for `snapshot`.
        window_s: as for `snapshot`.
        run: as for `snapshot`.
        deep: what lies below these directories is looked at, too.

    Attributes:
        run: after a look, what the run is called that was chosen among several; else empty.
        other_runs: how many others there were.

    Example::

        observer = Observer(["out"])
        while observer.look().processes:
            time.sleep(1.0)
    """

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        window_s: float = 5.0,
        run: str = "all",
        *,
        deep: bool = True,
    ) -> None:
        self.paths = [Path(path) for path in paths]
        self.window_s = window_s
        self.run = ""
        self.other_runs = 0
        self._which = run
        self._deep = deep
        self._headers: dict[Path, HeaderFacts] = {}
        self._walks: dict[Path, _Walk] = {}
        self._live_files = LiveFiles()
        self._before: dict[tuple[str, str], RankStatus] = {}
        named = ", ".join(map(str, self.paths))
        self._asking: Asking[Snapshot] = Asking(named)

    def __repr__(self) -> str:
        return f"Observer({[str(path) for path in self.paths]}, window_s={self.window_s:g})"

    def look(self) -> Snapshot:
        """Return what the processes are doing now.

        Raises:
            TraceError: as `snapshot`; or a file system does not answer (`SilentError`).
        """
        if not self.paths:
            raise TraceError("no directory was given")
        return self._asking.answer(self._look)

    def _look(self) -> Snapshot:
        own = OwnSpools()
        found = merged([self._look_at(path, own) for path in self.paths])
        if not found.processes:
            raise TraceError(self._nothing(found))
        found, self.run, self.other_runs = of_one_job(found, self._which)
        processes = [self._with_rate(process) for process in found.processes]
        self._before = {process.identity: process for process in processes}
        return replace(found, processes=processes)

    def _look_at(self, path: Path, own: OwnSpools) -> Snapshot:
        # os.path, since pathlib raises where a directory above is closed.
        if os.path.isdir(path):  # noqa: PTH112
            try:
                return self._look_at_spools(self._spools_in(path, own))
            except OSError as error:
                raise TraceError(f"{error.filename}: cannot be read: {error.strerror}") from error
        if os.path.exists(path) and not os.path.isfile(path):  # noqa: PTH110, PTH113
            raise TraceError(f"{path}: not a regular file")
        with readable(path), path.open("rb") as file:
            head = file.read(len(SPOOL_MAGIC))
        if head == SPOOL_MAGIC:
            return self._look_at_spools([MarkedSpool(path, str(path))])
        return read_snapshot(path)

    def _spools_in(self, directory: Path, own: OwnSpools) -> list[MarkedSpool]:
        """The spools of a directory: listed anew now and then, which may take long on a server."""
        now = time.monotonic()
        walk = self._walks.get(directory)
        if walk is None or now >= walk.next_due:
            spools = spools_below(directory, own, deep=self._deep)
            took = time.monotonic() - now
            walk = self._walks[directory] = _Walk(spools, now + took * WALKS_APART)
        return walk.spools

    def _look_at_spools(self, spools: list[MarkedSpool]) -> Snapshot:
        here = _native.host_name()
        taken_ns = time.time_ns()
        processes: list[RankStatus] = []
        elsewhere: list[MarkedSpool] = []
        foreign: dict[MarkedSpool, SpoolLook] = {}
        problems: list[str] = []
        stems: set[str] = set()
        calls: dict[tuple[str, str], Calls] = {}
        for marked in spools:
            if marked.fault:
                problems.append(f"{marked.marker}: {marked.fault}")
                continue
            try:
                look = _native.look_into(marked.spool, self.window_s)
            except FileNotFoundError:
                if f"-{here}-" not in marked.marker.name or _is_of_another_place(marked):
                    elsewhere.append(marked)
                elif (now := spool_of_marker(marked.marker)) and not now.complete:
                    problems.append(f"{marked.spool}: {_why_not_there(marked)}")
                continue
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                problems.append(f"{marked.spool}: {reason}")
                continue
            if look["state"] == "other host" or _is_of_other(marked, look["host"]):
                elsewhere.append(marked)
                if look["state"] == "other host":
                    foreign[marked] = look
            elif not look["finished"]:
                processes.append(rank_status(look, marked.spool))
                calls[processes[-1].identity] = calls_of(look, self.window_s)
                stems.add(marked.stem.removesuffix(f"-{here}"))
        told, unknown, faults = self._live_files.look(spools, elsewhere)
        problems += faults
        hidden = _without_workers(
            [self._hidden(one, stems, foreign.get(one)) for one in unknown], told
        )
        processes = with_workers(processes) + told
        seen = Snapshot(here, taken_ns, self.window_s, processes, hidden, problems)
        return replace(seen, waited_for=waited_for(jobs_of(seen), calls))

    def _hidden(
        self, marked: MarkedSpool, stems: set[str], look: SpoolLook | None
    ) -> HiddenProcess:
        header = self._header(marked)
        host, rank = header.host, header.rank
        if host is None and look is not None:
            # The name of a spool without a marker says nothing of a host.
            host, rank = look["host"], HeaderFacts.of(_members(look["header"])).rank
        if host is None:
            names = [marked.stem.removeprefix(f"{s}-") for s in stems if marked.stem.startswith(s)]
            host = min(names, key=len, default=marked.stem)
        return HiddenProcess(
            plain(host),
            path_as_text(str(marked.marker)),
            path_as_text(marked.spool),
            rank,
            plain(marked.run),
        )

    def _header(self, marked: MarkedSpool) -> HeaderFacts:
        """The header of the trace beside a marker, as far as it is written."""
        from dftrace_ai.analysis.reading import open_traces

        known = self._headers.get(marked.marker)
        if known is not None:
            return known
        for path in marked.traces():
            if not path.is_file():
                continue
            try:
                (trace,) = open_traces([path])
                header = trace.header
            except TraceError:
                continue  # the file is another host's to write; its faults concern nobody here
            if header is not None:
                self._headers[marked.marker] = header
                return header
        return HeaderFacts()

    def _with_rate(self, now: RankStatus) -> RankStatus:
        before = self._before.get(now.identity)
        if before is None or now.state == "dead":
            return now
        seconds = (now.seen_ns - before.seen_ns) / NS
        if seconds < (LEAST_RATE_S if now.told_s is None else LEAST_RATE_TOLD_S):
            return replace(now, events_per_s=before.events_per_s)
        counts = {thread.tid: thread.records for thread in before.threads}
        events = sum(thread.records - counts.get(thread.tid, 0) for thread in now.threads)
        return replace(now, events_per_s=max(events, 0) / seconds)

    def _nothing(self, found: Snapshot) -> str:
        """Say why there is nothing to see."""
        from dftrace_ai.analysis.reading.search import search_traces

        places = ", ".join(map(str, self.paths))
        if found.hidden:
            hosts = ", ".join(sorted({process.host for process in found.hidden}))
            many = processes_text(len(found.hidden))
            return f"{places}: nothing is visible from here: {many}: run on host {hosts}"
        if found.problems:
            more = len(found.problems) - 1
            return found.problems[0] + (f" (and {more:,} more)" if more else "")
        try:
            there = (path for path in self.paths if path.is_dir())
            traces = len(search_traces(there, deep=self._deep).files)
        except TraceError:
            traces = 0
        if not traces:
            return f"{places}: nothing was recorded here: no traces and no spools"
        many = f"{counted(traces, 'trace')}, which `dftrace summary` reads"
        return f"{places}: nothing runs here: {many}"


def _is_of_other(marked: MarkedSpool, host: str) -> bool:
    """Whether a marker is another host's than the spool that lies here under the same path.

    Numbers of processes are small in containers, and those that start at once are called alike.
    """
    name = marked.marker.name
    return name.endswith(MARKER_SUFFIX) and f"-{host}-" not in name


def _is_of_another_place(marked: MarkedSpool) -> bool:
    """Whether it is of another container, or of a host of the same name, that tells of itself."""
    return marked.place not in {"", _native.marker_place()} and live_path(marked).is_file()


def _without_workers(
    hidden: Iterable[HiddenProcess], told: Iterable[RankStatus]
) -> list[HiddenProcess]:
    """Leave out those of ranks that tell of themselves: their workers do not."""
    ranks = {(one.host, one.run[:RUN_DIGITS], one.rank) for one in told if one.rank is not None}
    return [one for one in hidden if (one.host, one.run, one.rank) not in ranks]


def _why_not_there(marked: MarkedSpool) -> str:
    if lives_without(marked.spool, marked.place):
        return "was removed while its process runs, which cannot be looked into any more"
    return "is gone, or in another container"


# Whom the ranks of a host wait for in collectives: now, and over the last seconds. Clocks of one
# host are one. A collective that nobody leaves before the last has come begins for all when that
# one comes: so long the others wait for it.

# As many as a look into a spool has of a thread.
MOST_CALLS: Final = 256

Key = tuple[str, str, int]
"""A collective: its group, its name, and how many of these there were before."""


class Call(NamedTuple):
    """A collective of a process; without an end it is in it now."""

    key: Key
    start_ns: int
    end_ns: int | None


class Calls(NamedTuple):
    """The newest collectives of a process, all of those from one moment to that of the look."""

    calls: tuple[Call, ...]
    since_ns: int
    seen_ns: int


def calls_of(look: SpoolLook, window_s: float) -> Calls:
    """Return the collectives that a spool tells of."""
    since_ns = max(look["now_ns"] - round(window_s * NS), look["started_ns"])
    found: list[Call] = []
    for thread in look["threads"]:
        if len(thread["calls"]) >= MOST_CALLS:
            since_ns = max(since_ns, thread["calls"][-1][2])
        for name, start_ns, end_ns, args in thread["calls"]:
            found += _call(name, args, start_ns, end_ns)
        for span in (*thread["open"], *thread["tasks"]):
            if span["name"] and span["name"][1] == COLLECTIVES:
                found += _call(span["name"][0], span["args"], span["start_ns"], None)
    return Calls(tuple(found), since_ns, look["now_ns"])


def _call(name: str, args: str, start_ns: int, end_ns: int | None) -> Iterator[Call]:
    if name not in JOINT:
        return
    try:
        told = json.loads(f"{{{args[1:]}}}")
    except (ValueError, RecursionError):
        return  # it was overwritten while it was read
    group, number = told.get("group"), told.get("nth", told.get("seq"))
    if isinstance(group, str) and type(number) is int:
        yield Call((group, name, number), start_ns, end_ns)


def waited_for(jobs: Sequence[Job], calls: Mapping[tuple[str, str], Calls]) -> list[WaitedFor]:
    """Return whom the others wait for, by the collectives of processes; those of most first."""
    found: list[WaitedFor] = []
    for job in jobs:
        hosts: dict[str, dict[int, Calls]] = defaultdict(dict)
        runs: dict[tuple[str, int], str] = {}
        for process in ranks_alive(job.processes):
            known = calls.get(process.identity)
            if known is not None and process.rank is not None:
                hosts[process.host][process.rank] = known
                runs[process.host, process.rank] = process.run
        for host, by_rank in hosts.items():
            waits = _Waits(by_rank)
            found += [waits.of(runs[host, rank], host, rank) for rank in waits.ranks]
    return sorted(found, key=lambda one: (-one.alone_s, -one.now_s, one.host, one.rank))


class _Waits:
    """What the ranks of a job that are on one host have waited for."""

    def __init__(self, calls: Mapping[int, Calls]) -> None:
        self._seen_ns = {rank: each.seen_ns for rank, each in calls.items()}
        self._now_ns = min(self._seen_ns.values())
        self._since_ns = min(max(each.since_ns for each in calls.values()), self._now_ns)
        self._alone_ns: dict[int, int] = defaultdict(int)
        self._last: dict[int, int] = defaultdict(int)
        self._of: dict[int, int] = defaultdict(int)
        self._now: dict[int, tuple[str, int]] = {}
        members: dict[str, set[int]] = defaultdict(set)
        met: dict[Key, dict[int, Call]] = defaultdict(dict)
        for rank, each in calls.items():
            for call in each.calls:
                members[call.key[0]].add(rank)
                met[call.key][rank] = call
        for key, by_rank in met.items():
            self._take(key[1], members[key[0]], by_rank)

    def _take(self, name: str, members: set[int], by_rank: Mapping[int, Call]) -> None:
        missing = members - by_rank.keys()
        starts = sorted((call.start_ns, -rank) for rank, call in by_rank.items())
        if not missing:
            last_ns, last = starts[-1]
            if len(members) < 2 or last_ns < self._since_ns:
                return
            self._alone(-last, starts[-2][0], last_ns)
            self._last[-last] += 1
            for rank in members:
                self._of[rank] += 1
        elif len(missing) <= len(by_rank) and all(c.end_ns is None for c in by_rank.values()):
            # All who are there stand in it, and most are.
            come_ns = starts[-1][0]
            for rank in missing:
                # One that was looked at before the others came may have come, too.
                if self._seen_ns[rank] > come_ns:
                    self._now[rank] = f"{COLLECTIVES}.{name}", self._seen_ns[rank] - come_ns
            if len(missing) == 1:
                self._alone(missing.pop(), come_ns, self._now_ns)

    def _alone(self, rank: int, from_ns: int, to_ns: int) -> None:
        self._alone_ns[rank] += max(min(to_ns, self._now_ns) - max(from_ns, self._since_ns), 0)

    @property
    def ranks(self) -> list[int]:
        """Those that were waited for."""
        return sorted({*self._last, *self._now})

    def of(self, run: str, host: str, rank: int) -> WaitedFor:
        """Return how long one of them was."""
        place, now_ns = self._now.get(rank, ("", 0))
        return WaitedFor(
            run=run,
            host=host,
            rank=rank,
            now=place,
            now_s=now_ns / NS,
            last=self._last[rank],
            of=self._of[rank],
            alone_s=self._alone_ns[rank] / NS,
            covered_s=(self._now_ns - self._since_ns) / NS,
        )

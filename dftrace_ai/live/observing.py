"""From spools to a snapshot of what their processes are doing."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import dftrace_ai._native as _native
from dftrace_ai.errors import TraceError
from dftrace_ai.live.jobs import with_workers
from dftrace_ai.live.model import (
    NS,
    HiddenProcess,
    OpenSpanStatus,
    RankStatus,
    Snapshot,
    ThreadStatus,
)
from dftrace_ai.live.saved import merged, plain, read_snapshot
from dftrace_ai.live.wording import processes_text
from dftrace_ai.spools.marked import MarkedSpool, find_spools
from dftrace_ai.spools.search import lives_without
from dftrace_ai.trace_format.vocabulary import own_category
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Observer", "snapshot"]

# Listing directories is to take a twentieth of the time at most.
WALKS_APART = 20

SPOOL_MAGIC = b"DFSPOOL1"

# A rate over less than this says nothing.
LEAST_RATE_S = 0.01

UNKNOWN = "?"


class _Walk(NamedTuple):
    spools: list[MarkedSpool]
    next_due: float


def snapshot(paths: Iterable[str | os.PathLike[str]], window_s: float = 5.0) -> Snapshot:
    """Look at what traced processes are doing, without their noticing.

    Args:
        paths: directories in which processes write traces, spools, and files of
            snapshots that were taken on other hosts.
        window_s: seconds that shares of time and rates look back on.

    Returns:
        Every process once, each by the newest look at it.

    Raises:
        TraceError: a path is missing or of no use, or nothing runs there.

    Example::

        for process in dftrace_ai.live.snapshot(["out"]).processes:
            print(process.label, " > ".join(span.label for span in process.place))
    """
    return Observer(paths, window_s).look()


class Observer:
    """Looks at the same processes again and again.

    Args:
        paths: as for `snapshot`.
        window_s: as for `snapshot`.

    Example::

        observer = Observer(["out"])
        while observer.look().processes:
            time.sleep(1.0)
    """

    def __init__(self, paths: Iterable[str | os.PathLike[str]], window_s: float = 5.0) -> None:
        self.paths = [Path(path) for path in paths]
        self.window_s = window_s
        self._headers: dict[Path, dict[str, Any]] = {}
        self._walks: dict[Path, _Walk] = {}
        self._before: dict[tuple[str, str], RankStatus] = {}

    def __repr__(self) -> str:
        return f"Observer({[str(path) for path in self.paths]}, window_s={self.window_s:g})"

    def look(self) -> Snapshot:
        """Return what the processes are doing now.

        Raises:
            TraceError: as `snapshot`.
        """
        if not self.paths:
            raise TraceError("no directory was given")
        found = merged([self._look_at(path) for path in self.paths])
        if not found.processes:
            raise TraceError(self._nothing(found))
        processes = [self._with_rate(process) for process in found.processes]
        self._before = {process.identity: process for process in processes}
        return replace(found, processes=processes)

    def _look_at(self, path: Path) -> Snapshot:
        if path.is_dir():
            try:
                return self._look_at_spools(self._spools_in(path))
            except OSError as error:
                raise TraceError(f"{error.filename}: cannot be read: {error.strerror}") from error
        if path.exists() and not path.is_file():
            raise TraceError(f"{path}: not a regular file")
        try:
            with path.open("rb") as file:
                head = file.read(len(SPOOL_MAGIC))
        except OSError as error:
            raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
        if head == SPOOL_MAGIC:
            return self._look_at_spools([MarkedSpool(path, str(path))])
        return read_snapshot(path)

    def _spools_in(self, directory: Path) -> list[MarkedSpool]:
        """The spools of a directory: listed anew now and then, which may take long on a server."""
        now = time.monotonic()
        walk = self._walks.get(directory)
        if walk is None or now >= walk.next_due:
            spools = find_spools(directory)
            took = time.monotonic() - now
            walk = self._walks[directory] = _Walk(spools, now + took * WALKS_APART)
        return walk.spools

    def _look_at_spools(self, spools: list[MarkedSpool]) -> Snapshot:
        here = _native.host_name()
        taken_ns = time.time_ns()
        processes: list[RankStatus] = []
        elsewhere: list[MarkedSpool] = []
        problems: list[str] = []
        stems: set[str] = set()
        for marked in spools:
            if marked.fault:
                problems.append(f"{marked.marker}: {marked.fault}")
                continue
            try:
                told = _native.look_into(marked.spool, self.window_s)
            except FileNotFoundError:
                if f"-{here}-" not in marked.marker.name:
                    elsewhere.append(marked)
                elif marked.marker.exists():
                    problems.append(f"{marked.spool}: {_why_not_there(marked)}")
                continue
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                problems.append(f"{marked.spool}: {reason}")
                continue
            if told["state"] == "other host":
                elsewhere.append(marked)
            elif not told["finished"]:
                processes.append(_rank_status(told, marked.spool))
                stems.add(marked.stem.removesuffix(f"-{here}"))
        hidden = [self._hidden(marked, stems) for marked in elsewhere]
        return Snapshot(here, taken_ns, self.window_s, with_workers(processes), hidden, problems)

    def _hidden(self, marked: MarkedSpool, stems: set[str]) -> HiddenProcess:
        header = self._header(marked)
        host = header.get("host")
        if not isinstance(host, str):
            names = [marked.stem.removeprefix(f"{s}-") for s in stems if marked.stem.startswith(s)]
            host = min(names, key=len, default=marked.stem)
        return HiddenProcess(
            plain(host),
            _path_text(str(marked.marker)),
            _path_text(marked.spool),
            _whole(header.get("rank")),
            plain(marked.run),
        )

    def _header(self, marked: MarkedSpool) -> dict[str, Any]:
        """The header of the trace beside a marker, as far as it is written."""
        from dftrace_ai.analysis.reading.files import open_trace_file
        from dftrace_ai.analysis.reading.reader import TraceReader

        known = self._headers.get(marked.marker)
        if known is not None:
            return known
        for trace in marked.traces():
            if not trace.is_file():
                continue
            try:
                for number, event in TraceReader(open_trace_file(trace)).events():
                    if event.get("name") == event.get("cat") == "dftrace":
                        args = event.get("args")
                        found: dict[str, Any] = args if isinstance(args, dict) else {}
                        self._headers[marked.marker] = found
                        return found
                    if number > 8:
                        break
            except TraceError:
                continue  # the file is another host's to write; what it says is told by nobody
        return {}

    def _with_rate(self, now: RankStatus) -> RankStatus:
        before = self._before.get(now.identity)
        if before is None or now.state == "dead":
            return now
        seconds = (now.seen_ns - before.seen_ns) / NS
        if seconds < LEAST_RATE_S:
            return replace(now, events_per_s=before.events_per_s)
        counts = {thread.tid: thread.records for thread in before.threads}
        events = sum(thread.records - counts.get(thread.tid, 0) for thread in now.threads)
        return replace(now, events_per_s=max(events, 0) / seconds)

    def _nothing(self, found: Snapshot) -> str:
        """Say why there is nothing to see."""
        from dftrace_ai.analysis.reading.files import find_traces

        places = ", ".join(map(str, self.paths))
        if found.hidden:
            hosts = ", ".join(sorted({process.host for process in found.hidden}))
            many = processes_text(len(found.hidden))
            return f"{places}: nothing is visible from here: {many}: run on host {hosts}"
        if found.problems:
            more = len(found.problems) - 1
            return found.problems[0] + (f" (and {more:,} more)" if more else "")
        try:
            traces = len(find_traces(path for path in self.paths if path.is_dir()))
        except TraceError:
            traces = 0
        if not traces:
            return f"{places}: nothing was recorded here: no traces and no spools"
        told = f"{counted(traces, 'trace')}, which `dftrace summary` reads"
        return f"{places}: nothing runs here: {told}"


def _why_not_there(marked: MarkedSpool) -> str:
    if lives_without(marked.spool, marked.place):
        return "was removed while its process runs, which cannot be looked into any more"
    return "is gone, or in another container"


def _rank_status(told: dict[str, Any], spool: str) -> RankStatus:
    header = _members(told["header"])
    threads = [_thread_status(thread) for thread in told["threads"]]
    threads.sort(key=lambda thread: (thread.tid != told["pid"], thread.tid))
    covered = [t for t in threads if t.covered_s >= LEAST_RATE_S]
    error = told["write_error"]
    return RankStatus(
        pid=told["pid"],
        parent_pid=told["parent_pid"],
        host=told["host"],
        run=told["run"],
        rank=_whole(header.get("rank")),
        world_size=_whole(header.get("world_size")),
        worker=False,
        state=told["state"],
        seen_ns=told["now_ns"],
        present_ns=told["present_ns"],
        started_ns=told["started_ns"] or None,
        prefix=_path_text(told["prefix"]),
        trace=_path_text(told["trace_path"]),
        spool=_path_text(spool),
        spool_bytes=told["spool_bytes"],
        dropped=told["dropped"],
        waits=told["waits"],
        overwritten=told["overwritten"],
        write_error=os.strerror(error) if error else "",
        drain_cpu_us=told["drain_cpu_us"],
        flight_recorder=told["flight_recorder"],
        epoch=_newest(told, "epoch"),
        step=_newest(told, "step"),
        events_per_s=sum(t.events / t.covered_s for t in covered) if covered else None,
        threads=threads,
    )


def _thread_status(told: dict[str, Any]) -> ThreadStatus:
    return ThreadStatus(
        tid=told["tid"],
        name=told["name"],
        ended=told["ended"],
        records=told["records"],
        depth=told["depth"],
        open=[_span_status(span) for span in told["open"]],
        tasks=[_span_status(span) for span in told["tasks"]],
        last_ns=told["last_ns"],
        events=told["events"],
        covered_s=told["covered_ns"] / NS,
        self_s=_by_category(told["self_ns"]),
    )


def _by_category(told: list[tuple[tuple[str, str] | None, int]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for names, ns in told:
        category = own_category(*(names or (UNKNOWN, UNKNOWN)))
        if category is not None:
            found[category] = found.get(category, 0.0) + ns / NS
    return found


def _span_status(told: dict[str, Any]) -> OpenSpanStatus:
    name, cat = told["name"] or (UNKNOWN, UNKNOWN)
    return OpenSpanStatus(
        id=told["id"],
        parent=told["parent"],
        name=name,
        cat=cat,
        start_ns=told["start_ns"],
        level=told["level"],
        args=_members(told["args"]),
    )


def _members(text: str) -> dict[str, Any]:
    """Read members of an object, each with a comma in front."""
    try:
        found = json.loads(f"{{{text[1:]}}}")
    except (ValueError, RecursionError):  # a number of thousands of digits is one for Python, too
        return {}
    result: dict[str, Any] = plain(found)
    return result


def _path_text(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "replace")


def _whole(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and -(2**63) <= value < 2**63 else None  # type: ignore[operator,return-value]


def _newest(told: dict[str, Any], key: str) -> int | None:
    """The value that an argument had last: in the main thread, or else in any."""

    def values(thread: dict[str, Any]) -> Iterator[tuple[int, int]]:
        for span in (*thread["open"], *thread["tasks"]):
            value = _whole(_members(span["args"]).get(key))
            if value is not None:
                yield span["start_ns"], value
        for moment, args in thread["newest_args"]:
            value = _whole(_members(args).get(key))
            if value is not None:
                yield moment, value

    main = [thread for thread in told["threads"] if thread["tid"] == told["pid"]]
    for threads in (main, told["threads"]):
        found = [one for thread in threads for one in values(thread)]
        if found:
            return max(found)[1]
    return None

"""What processes of other hosts tell of themselves, by the small files beside their traces.

Of all hosts the file system alone is the same. How old a file is goes by its own time, which the
file system has given it, and by the present of the same file system: this host's clock, put right
by the difference that the files of this host's own processes show.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
import time
from dataclasses import dataclass, field
from statistics import median_low
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

import dftrace_ai._native as _native
from dftrace_ai.live.model import (
    NS,
    Count,
    Limits,
    Number,
    OpenSpanStatus,
    RankStatus,
    StackFrame,
    ThreadStatus,
)
from dftrace_ai.trace_format.file_names import LIVE_SUFFIX, marker_base

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pydantic import TypeAdapter

    from dftrace_ai.spools.search import MarkedSpool
    from dftrace_ai.trace_format.json_types import Json

LIVE_FORMAT: Final = 1
MOST_BYTES: Final = 2048
# A rank that has told nothing for so long, and for so many times the usual, may be dead.
SILENT_S: Final = 30.0
SILENT_TIMES: Final = 6

# 2000-01-01: where times are earlier the file system keeps none, and the clock of the host says.
EARLIEST_NS: Final = 946_684_800 * NS

Pid = Annotated[int, Limits(ge=0, lt=2**32)]
ErrorNumber = Annotated[int, Limits(ge=0, lt=2**12)]


@dataclass(frozen=True)
class ToldSpan:
    """A span that was open.

    Attributes:
        name: as in the trace.
        cat: its category.
        for_ns: nanoseconds since it began.
        group: of a collective, the process group that it is of; empty for none.
        nth, seq: its number there; None where unknown.
        peer: rank that is sent to or received from; None for none.
    """

    name: str
    cat: str
    for_ns: Count
    group: str = ""
    nth: Number | None = None
    seq: Number | None = None
    peer: Number | None = None


@dataclass(frozen=True)
class ToldThread:
    """A thread: the main one, or one with an open span.

    Attributes:
        tid: its id, as the kernel of its host knows it.
        name: its name.
        records: events it has recorded so far.
        depth: open spans; outer ones may be left out.
        open: open spans, outermost first.
        quiet_ns: nanoseconds since it recorded something or opened a span; None where it never did.
        stack: where its Python stood, innermost frame first, the first four: function, file, line,
            and whose it is; empty where that is not sampled or had no room.
        stack_for_ns: nanoseconds since it stands there.
    """

    tid: Pid
    name: str
    records: Count
    depth: Count
    open: list[ToldSpan]
    quiet_ns: Count | None = None
    stack: list[tuple[str, str, Count, Count]] = field(default_factory=list)
    stack_for_ns: Count = 0


@dataclass(frozen=True)
class LiveFile:
    """What a process has written down of itself; all lengths of time are before that moment.

    Attributes:
        host: name of its host.
        run: the run it belongs to, hexadecimal digits.
        pid: its id on its host.
        parent_pid: that of the process that started it.
        every_ms: milliseconds between two of these.
        wall_ns: what its host's clock said, nanoseconds since 1970.
        lives_ns: nanoseconds since it began to record.
        dropped: events that were lost because the spool was full.
        write_error: number of the error of its last write to the trace, 0 for none.
        threads: its threads, the main one first.
        threads_left_out: how many had an open span and no room here.
        rank, world_size: of the process; None where unknown.
        epoch, step: newest values of these arguments; None where none is known.
        kind: ``dftrace live``, by which the file is known.
        format: version of the file.
    """

    host: str
    run: str
    pid: Pid
    parent_pid: Pid
    every_ms: Count
    wall_ns: Count
    lives_ns: Count
    dropped: Count
    write_error: ErrorNumber
    threads: list[ToldThread]
    threads_left_out: Count
    rank: Number | None = None
    world_size: Number | None = None
    epoch: Number | None = None
    step: Number | None = None
    kind: Literal["dftrace live"] = "dftrace live"
    format: Literal[1] = LIVE_FORMAT


@functools.cache
def live_file_adapter() -> TypeAdapter[LiveFile]:
    """Return what checks and reads such files."""
    from pydantic import TypeAdapter

    return TypeAdapter(LiveFile)


class ReadFile(NamedTuple):
    """A file as it was read, and its own time, nanoseconds since 1970."""

    told: LiveFile
    time_ns: int


class LiveFiles:
    """Reads the files of a directory again and again; each no more often than it is written."""

    def __init__(self) -> None:
        self._known: dict[Path, ReadFile] = {}

    def look(
        self, spools: Sequence[MarkedSpool], unseen: Iterable[MarkedSpool]
    ) -> tuple[list[RankStatus], list[MarkedSpool], list[str]]:
        """Look at the processes whose spools cannot be seen from here.

        `spools` are all that the markers name. Returned are what is told, those that tell nothing,
        and what is wrong with files.
        """
        told: dict[MarkedSpool, ReadFile] = {}
        silent: list[MarkedSpool] = []
        problems: list[str] = []
        now_ns = time.time_ns()
        for marked in unseen:
            try:
                found = self._read(marked, now_ns)
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                problems.append(f"{live_path(marked)}: {reason}")
                found = None
            if found is None:
                silent.append(marked)
            else:
                told[marked] = found
        if not told:
            return [], silent, problems
        # One time that lies in the future makes nobody else old: half of them have to be there.
        at_least_ns = median_low(each.time_ns for each in told.values())
        present_ns = max(now_ns + _ahead_ns(spools), at_least_ns)
        processes = [
            rank_status(each.told, marked, now_ns, present_ns - each.time_ns)
            for marked, each in told.items()
        ]
        return processes, silent, problems

    def _read(self, marked: MarkedSpool, now_ns: int) -> ReadFile | None:
        path = live_path(marked)
        known = self._known.get(path)
        if known is not None and 0 <= now_ns - known.time_ns < known.told.every_ms * 1_000_000:
            return known  # there is none newer yet
        found = read_live_file(path, marked.owner)
        if found is None:
            self._known.pop(path, None)
        else:
            self._known[path] = found
        return found


def live_path(marked: MarkedSpool) -> Path:
    """Return where the file of a process lies, by its marker."""
    return marked.marker.with_name(marker_base(marked.marker.name) + LIVE_SUFFIX)


def read_live_file(path: Path, owner: int = -1) -> ReadFile | None:
    """Read what a process tells; None where there is no such file.

    `owner`: number of the user whose it has to be, -1 for any.

    Raises:
        OSError: it cannot be read.
        ValueError: it is none, or of a version that is not known.
    """
    for _ in range(3):
        try:
            text, info = _content_of(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ESTALE:
                continue  # it was replaced on a server
            raise
        if owner not in {-1, info.st_uid}:
            raise ValueError("belongs to another user than its marker")
        told = _parsed(text)
        time_ns = info.st_mtime_ns
        return ReadFile(told, time_ns if time_ns >= EARLIEST_NS else told.wall_ns)
    return None


def _content_of(path: Path) -> tuple[bytes, os.stat_result]:
    # Looked at first, since opening alone does something to some devices.
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode):
        raise ValueError("is a link" if stat.S_ISLNK(mode) else "is no regular file")
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode):
            raise ValueError("is no regular file")
        return os.read(file, MOST_BYTES + 1), info
    finally:
        os.close(file)


def _parsed(text: bytes) -> LiveFile:
    import orjson
    from pydantic import ValidationError

    if len(text) > MOST_BYTES:
        raise ValueError("is larger than what a process tells")
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError("is no file of a process that tells what is open") from error
    if not isinstance(value, dict) or value.get("kind") != "dftrace live":
        raise ValueError("is no file of a process that tells what is open")
    if value.get("format") != LIVE_FORMAT:
        raise ValueError(f"version {value.get('format')!r:.20} is not known to this dftrace")
    try:
        return live_file_adapter().validate_json(orjson.dumps(value), strict=True)
    except TypeError as error:  # it reads deeper than it writes
        raise ValueError("is damaged: its values lie too deep in each other") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"is damaged: {place}: {first['msg']}") from error


# So many of this host's own files show how the clocks differ.
MOST_OWN: Final = 4


def _ahead_ns(spools: Iterable[MarkedSpool]) -> int:
    """Return by how much the file system's clock is ahead of this host's; 0 where unknown."""
    boot = _native.marker_place().partition(" ")[0]
    found: list[int] = []
    for marked in spools:
        if len(found) == MOST_OWN:
            break
        if boot and marked.place.partition(" ")[0] == boot:
            try:
                own = read_live_file(live_path(marked), marked.owner)
            except (OSError, ValueError):
                continue  # it is told where it is needed
            if own is not None:
                found.append(own.time_ns - own.told.wall_ns)
    # What a write has taken is in all of them.
    return min(found, default=0)


def rank_status(told: LiveFile, marked: MarkedSpool, now_ns: int, age_ns: int) -> RankStatus:
    """Return what is known of a process by its file, which is so old."""
    seen_ns = max(now_ns - age_ns, 0)
    every_s = told.every_ms / 1000
    age_s = max(age_ns, 0) / NS
    error = told.write_error
    return RankStatus(
        pid=told.pid,
        parent_pid=told.parent_pid,
        host=told.host,
        run=told.run,
        rank=told.rank,
        world_size=told.world_size,
        worker=False,
        state="dead" if age_s > max(SILENT_S, SILENT_TIMES * every_s) else "alive",
        seen_ns=seen_ns,
        present_ns=now_ns,
        started_ns=max(seen_ns - told.lives_ns, 0),
        prefix=path_as_text(
            os.path.join(
                os.path.abspath(marked.marker.parent),  # noqa: PTH100
                marked.stem.removesuffix(f"-{told.host}"),
            )
        ),
        trace=next((path_as_text(str(path)) for path in marked.traces() if path.is_file()), ""),
        spool=path_as_text(marked.spool),
        spool_bytes=0,
        dropped=told.dropped,
        waits=0,
        overwritten=0,
        write_error=os.strerror(error) if error else "",
        drain_cpu_us=0,
        flight_recorder=False,
        epoch=told.epoch,
        step=told.step,
        events_per_s=None,
        threads=[_thread_status(thread, seen_ns) for thread in told.threads],
        told_s=age_s,
    )


def path_as_text(path: str) -> str:
    """Return a path as text that JSON can carry."""
    return os.fsencode(path).decode("utf-8", "replace")


def _thread_status(told: ToldThread, seen_ns: int) -> ThreadStatus:
    quiet = told.quiet_ns
    return ThreadStatus(
        tid=told.tid,
        name=told.name,
        ended=False,
        records=told.records,
        depth=told.depth,
        open=[
            OpenSpanStatus(
                id=level,
                parent=level - 1,
                name=span.name,
                cat=span.cat,
                start_ns=max(seen_ns - span.for_ns, 0),
                level=level,
                args=_arguments(span),
            )
            for level, span in enumerate(told.open, 1)
        ],
        tasks=[],
        last_ns=None if quiet is None else max(seen_ns - quiet, 0),
        events=0,
        covered_s=0.0,
        self_s={},
        stack=[StackFrame(*frame) for frame in told.stack],
        stack_since_ns=max(seen_ns - told.stack_for_ns, 0) if told.stack else 0,
    )


def _arguments(span: ToldSpan) -> dict[str, Json]:
    found = {"group": span.group or None, "nth": span.nth, "seq": span.seq, "peer": span.peer}
    return {key: value for key, value in found.items() if value is not None}


@dataclass(frozen=True)
class ToldHost:
    """The processes of a host that are known by their files alone.

    Attributes:
        host: its name.
        processes: how many they are.
        ranks: theirs, where known.
        newest_s, oldest_s: seconds since the newest and the oldest of their files were written.
    """

    host: str
    processes: int
    ranks: tuple[int, ...]
    newest_s: float
    oldest_s: float


def told_hosts(processes: Iterable[RankStatus]) -> tuple[ToldHost, ...]:
    """Return of which hosts processes are known by their files, and how old these are."""
    hosts: dict[str, list[RankStatus]] = {}
    for process in processes:
        if process.told_s is not None:
            hosts.setdefault(process.host, []).append(process)
    found = []
    for host, told in sorted(hosts.items()):
        ages = [process.told_s for process in told if process.told_s is not None]
        ranks = sorted({process.rank for process in told if process.rank is not None})
        found.append(ToldHost(host, len(told), tuple(ranks), min(ages), max(ages)))
    return tuple(found)

"""What is known of traced processes at one moment, by process, thread and open span."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from dftrace_ai.trace_format.json_types import JsonObject  # noqa: TC001 - pydantic evaluates it
from dftrace_ai.trace_format.names_and_phases import loop_part, without_loop_part

if TYPE_CHECKING:
    from collections.abc import Callable

SNAPSHOT_FORMAT: Final = 1


class Limits:
    """Limits of a number in a snapshot that is read; pydantic is not loaded for those made here."""

    def __init__(self, **limits: float) -> None:
        self._limits = limits

    def __get_pydantic_core_schema__(self, kind: Any, schema_of: Callable[[Any], Any]) -> Any:
        """Add the limits to what pydantic checks."""
        return {**schema_of(kind), **self._limits}


Count = Annotated[int, Limits(ge=0, lt=2**64)]
Seconds = Annotated[float, Limits(ge=0.0, allow_inf_nan=False)]
Number = Annotated[int, Limits(ge=-(2**63), lt=2**63)]

NS = 1_000_000_000

# That others wait for a rank for less is as usual.
LEAST_WAITED: Final = 0.05
LEAST_WAITED_S: Final = 1.0


def place_text(label: str) -> str:
    """Return how people are told of the innermost open span, by its label.

    The body of a loop is no work of its category: what is done there is not annotated.
    """
    return f"the body of {without_loop_part(label)}" if loop_part(label) == "body" else label


@dataclass(frozen=True)
class OpenSpanStatus:
    """A span that has begun and not ended.

    Attributes:
        id: number of the event in its process.
        parent: number of the enclosing span, 0 for none.
        name: as in the trace, such as ``fetch.iter``; ``?`` when it is not known.
        cat: its category, such as ``dataloader``.
        start_ns: when it began, nanoseconds since 1970.
        level: depth, 1 for an outermost span.
        args: its arguments at the beginning.
    """

    id: Count
    parent: Count
    name: str
    cat: str
    start_ns: Count
    level: Count
    args: JsonObject = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Category and name without saying one of them twice: ``comm.all_reduce``."""
        if self.name == self.cat or self.name.startswith(f"{self.cat}."):
            return self.name
        return f"{self.cat}.{self.name}"


KERNEL_STATES: Final = {
    "R": "runs",
    "S": "sleeps",
    "D": "waits uninterruptibly",
    "T": "was stopped by a signal",
    "t": "is stopped by a debugger",
}
"""By the letter that `/proc` has for the state of a thread."""


@dataclass(frozen=True)
class StackFrame:
    """A frame of Python's, where samples of stacks are taken (``lines_hz``).

    Attributes:
        function: its name within its class.
        file: as traces tell it, never from the root on; empty where files are not told.
        line: the line that is at work; 0 where lines are not told.
        owner: 0 for code of the program, 1 of a library, 2 of Python, 3 of dftrace_ai.
    """

    function: str
    file: str
    line: Count
    owner: Count

    @property
    def text(self) -> str:
        """As people are told of it: ``receive (exchange.py:88)``."""
        where = f"{self.file}:{self.line}" if self.file and self.line else self.file
        return f"{self.function} ({where})" if where else self.function


@dataclass(frozen=True)
class ThreadStack:
    """Where the Python of a thread stands.

    Attributes:
        thread: its id, as the kernel knows it.
        name: its name; empty where it has recorded nothing.
        stack: functions with file and line, innermost first; empty where it could not be read.
        is_cut: the innermost frames were not read.
        ago_s: seconds since it stood there.
        by: ``dump``: the last one of its process; ``samples``: those of `lines_hz`.
    """

    thread: Count
    name: str
    stack: tuple[str, ...]
    is_cut: bool
    ago_s: Seconds
    by: Literal["dump", "samples"]


@dataclass(frozen=True)
class ThreadStatus:
    """A thread that has recorded something.

    Attributes:
        tid: its id, as the kernel knows it.
        name: its name.
        ended: it is over, and its last records are being written.
        records: events it has recorded so far.
        depth: open spans, of which the outermost 240 are in `open`.
        open: open spans, outermost first.
        tasks: open spans of asyncio tasks, in the order in which they began.
        last_ns: when it recorded last, nanoseconds since 1970; None when that is not
            known.
        events: events it recorded in the last `covered_s` seconds.
        covered_s: seconds before this moment of which all records are still there,
            the window at most.
        self_s: how many of these seconds were spent in spans of each category, a
            child's time not being its parent's. The rest, `unannotated_s`, was spent
            outside of all spans or in the bodies of loops, outside of all that is
            annotated in them.
        stack: where its Python stands, innermost frame first, not more than 32 frames; empty where
            that is not sampled.
        stack_is_cut: it is deeper than that: the innermost frames were not read.
        stack_since_ns: since when it stands there, nanoseconds since 1970.
        kernel: how the kernel has it, as `/proc` tells: the letter of its state and, behind a
            space, in which function of the kernel it waits; empty where that is not known.
    """

    tid: Count
    name: str
    ended: bool
    records: Count
    depth: Count
    open: list[OpenSpanStatus]
    tasks: list[OpenSpanStatus]
    last_ns: Count | None
    events: Count
    covered_s: Seconds
    self_s: dict[str, Seconds]
    stack: list[StackFrame] = field(default_factory=list)
    stack_is_cut: bool = False
    stack_since_ns: Count = 0
    kernel: str = ""

    def stands_s(self, seen_ns: int) -> float:
        """Seconds for which its Python had stood there at a moment."""
        return max(seen_ns - self.stack_since_ns, 0) / NS if self.stack else 0.0

    @property
    def stands_in(self) -> str:
        """The innermost function of the program, with its caller; empty where unknown."""
        if not self.stack:
            return ""
        own = [frame.text for frame in self.stack if frame.owner == 0]
        words = own[0] if own else self.stack[0].text
        if own and self.stack[0].owner != 0:
            words += f", there in {self.stack[0].text}"
        if self.stack_is_cut:
            words += " or deeper"
        return f"{words}, called by {own[1]}" if len(own) > 1 else words

    @property
    def kernel_words(self) -> str:
        """How the kernel has it: ``sleeps in futex_wait_queue``; empty where that is not known."""
        state, _, place = self.kernel.partition(" ")
        words = KERNEL_STATES.get(state, "")
        return f"{words} in {place}" if words and place and state in "SD" else words

    @property
    def place(self) -> list[OpenSpanStatus]:
        """The span that began last and those it lies in, outermost first; empty for none.

        A thread that has ended is in no span, though it may have left some open.
        """
        spans = {span.id: span for span in (*self.open, *self.tasks)}
        if not spans or self.ended:
            return []
        path = [max(spans.values(), key=lambda span: (span.start_ns, span.level))]
        # Numbers of parents may be made up: none is followed twice.
        while (parent := spans.pop(path[-1].id) and spans.get(path[-1].parent)) is not None:
            path.append(parent)
        return path[::-1]

    @property
    def unannotated_s(self) -> float:
        """How many of the covered seconds belong to no category."""
        return max(self.covered_s - sum(self.self_s.values()), 0.0)

    @property
    def moved_ns(self) -> int | None:
        """When it last recorded something or opened a span; None when that is not known."""
        moments = [span.start_ns for span in (*self.open, *self.tasks)]
        if self.last_ns is not None:
            moments.append(self.last_ns)
        return max(moments, default=None)


@dataclass(frozen=True)
class RankStatus:
    """A process that records: a rank of a job, one of its workers, or any other.

    Attributes:
        pid: its id on its host.
        parent_pid: that of the process that started it.
        host: name of its host.
        run: the run it belongs to, hexadecimal digits.
        rank: its rank; None where unknown. Workers have that of their parent.
        world_size: number of ranks; None where unknown.
        worker: it was started by another process of the same rank, as loader
            workers are.
        state: ``alive`` or ``dead``.
        seen_ns: the moment that the rest tells about, nanoseconds since 1970: of a
            dead process its last sign of life.
        present_ns: when this was read.
        started_ns: when it began; None when that is not known any more.
        prefix: directory and stem of its traces.
        trace: path of its trace file, empty before the first write.
        spool: path of its spool.
        spool_bytes: size of the spool.
        dropped: events that were lost because the spool was full.
        waits: times a thread waited for room in the spool.
        overwritten: events that a flight recorder has let go.
        write_error: why the last write to the trace failed, empty if it did not.
        drain_cpu_us: microseconds of processor time for formatting and writing.
        flight_recorder: it records in a ring and writes when asked.
        epoch: newest value of the argument ``epoch``; None where none is known.
        step: newest value of the argument ``step``.
        events_per_s: events a second of all threads; None when too little is known.
        threads: its threads, the main thread first.
        told_s: of a process whose spool cannot be seen, seconds since it wrote the file by which it
            is known; None for one whose spool was read. One that has told nothing for long is
            ``dead``, as far as is known.
    """

    pid: Count
    parent_pid: Count
    host: str
    run: str
    rank: Number | None
    world_size: Number | None
    worker: bool
    state: Literal["alive", "dead"]
    seen_ns: Count
    present_ns: Count
    started_ns: Count | None
    prefix: str
    trace: str
    spool: str
    spool_bytes: Count
    dropped: Count
    waits: Count
    overwritten: Count
    write_error: str
    drain_cpu_us: Count
    flight_recorder: bool
    epoch: Number | None
    step: Number | None
    events_per_s: Seconds | None
    threads: list[ThreadStatus]
    told_s: Seconds | None = None

    @property
    def identity(self) -> tuple[str, str]:
        """Host and name of the spool, which no other process has."""
        return self.host, self.spool.rpartition("/")[2]

    @property
    def label(self) -> str:
        """What people call it: ``rank 3``, ``worker 4712 of rank 3``, ``process 4711``."""
        if self.rank is None:
            return f"process {self.pid}"
        return f"worker {self.pid} of rank {self.rank}" if self.worker else f"rank {self.rank}"

    @property
    def main(self) -> ThreadStatus | None:
        """The thread that tells what the process does.

        The main thread where that has an open span, or else the one that opened a span
        or recorded something last.
        """

        def worth(thread: ThreadStatus) -> tuple[bool, bool, int]:
            return bool(thread.place), thread.tid == self.pid, thread.moved_ns or 0

        return max(self.threads, key=worth, default=None)

    @property
    def place(self) -> list[OpenSpanStatus]:
        """The open spans of that thread, outermost first."""
        return self.main.place if self.main else []

    def quiet_s(self, thread: ThreadStatus) -> float:
        """Seconds in which a thread has neither recorded anything nor opened a span."""
        moved = thread.moved_ns
        since = self.started_ns or self.seen_ns if moved is None else moved
        return max(self.seen_ns - since, 0) / NS

    def dead_s(self) -> float:
        """Seconds since the last sign of life of a dead process."""
        return max(self.present_ns - self.seen_ns, 0) / NS


@dataclass(frozen=True)
class HiddenProcess:
    """A process whose spool is on another host, and that tells nothing: that it is there is known.

    Attributes:
        host: name of the host, or the beginning of the marker's name where it cannot
            be told apart from the stem.
        marker: path of the marker.
        spool: path of the spool on that host.
        rank: its rank; None where unknown.
        run: beginning of the run's hexadecimal digits.
    """

    host: str
    marker: str
    spool: str
    rank: Number | None
    run: str


@dataclass(frozen=True)
class WaitedFor:
    """A rank that others of its host waited for, in collectives that all leave together.

    Attributes:
        run: the run of its process, hexadecimal digits.
        host: name of the host.
        rank: its rank.
        now: the collective in which the others stand that it has not begun; empty for none.
        now_s: seconds since the last of the others came there.
        last: collectives of the last `covered_s` to which it came last.
        of: of so many.
        alone_s: of these seconds those in which all the others were there and it was not.
        covered_s: so far back is known what all of them did.
    """

    run: str
    host: str
    rank: Number
    now: str
    now_s: Seconds
    last: Count
    of: Count
    alone_s: Seconds
    covered_s: Seconds

    @property
    def share(self) -> float:
        """The share of the time in which the others waited for it alone."""
        return self.alone_s / self.covered_s if self.covered_s else 0.0

    @property
    def is_much(self) -> bool:
        """Whether it is worth a word."""
        return self.share >= LEAST_WAITED or self.now_s >= LEAST_WAITED_S


@dataclass(frozen=True)
class Snapshot:
    """What all processes of some directories were doing at one moment.

    Attributes:
        taken_on: name of the host that it was taken on.
        taken_ns: when, nanoseconds since 1970.
        window_s: seconds that shares of time and rates look back on.
        processes: those whose spools can be read, and those of other hosts that tell what is open.
        hidden: the others.
        problems: spools, and files of other hosts, that could not be read: path and reason.
        waited_for: the ranks that others waited for, those for which they did so longest first.
        kind: ``dftrace snapshot``, by which a file of it is known.
        format: version of that file.
    """

    taken_on: str
    taken_ns: Count
    window_s: Seconds
    processes: list[RankStatus]
    hidden: list[HiddenProcess]
    problems: list[str]
    waited_for: list[WaitedFor] = field(default_factory=list)
    kind: Literal["dftrace snapshot"] = "dftrace snapshot"
    format: Literal[1] = SNAPSHOT_FORMAT

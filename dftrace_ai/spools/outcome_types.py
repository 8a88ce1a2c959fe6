"""What the native core tells of spools, as types: the outcome of an adoption, a look into one."""

from __future__ import annotations

from typing import Literal, TypedDict

SpanNames = tuple[str, str]
"""Name and category of a span."""


class WriteOutcome(TypedDict):
    """How a trace was completed, and what was lost on the way."""

    trace_path: str
    """Path of the trace file; empty where nothing was written."""
    spool_path: str
    marked: bool
    """Whether a marker beside the trace names the spool."""
    spool_refusal: str
    """Why the spool lies elsewhere than asked; empty where it does not."""
    error: str
    """Why the trace is not complete; empty where it is."""
    abandoned: bool
    """The end of writing was not waited for."""
    events: int
    lost_lines: int
    """Events that are not in the trace."""
    spoilt_lines: int
    """Those of them that were in a file which somebody removed or cut."""
    spool_bytes: int
    dropped: int
    waits: int
    unmatched_stops: int
    args_sanitised: int


class AdoptOutcome(WriteOutcome):
    """What became of a spool that was to be adopted."""

    state: Literal["finished", "alive", "failed", "gone"]
    was_complete: bool
    """Its own process had completed the trace: only the spool was left."""
    damage: list[str]
    """What of the spool could not be read: how much of what."""


class SpanLook(TypedDict):
    """An open span, as it stands in a spool."""

    id: int
    parent: int
    """Number of the enclosing span, 0 for none."""
    start_ns: int
    """Nanoseconds since 1970."""
    level: int
    name: SpanNames | None
    """None where they are not known."""
    args: str
    """Arguments as members of JSON, each with a comma in front."""


class ThreadLook(TypedDict):
    """A thread, as it stands in a spool."""

    tid: int
    name: str
    ended: bool
    records: int
    depth: int
    open: list[SpanLook]
    """Outermost first, 240 at most."""
    tasks: list[SpanLook]
    last_ns: int | None
    events: int
    """In the last `covered_ns`."""
    covered_ns: int
    self_ns: list[tuple[SpanNames | None, int]]
    """Time of its own by name and category, these as in `SpanLook.name`."""
    newest_args: list[tuple[int, str]]
    """Arguments of the newest records, as in `SpanLook.args`, with the moment of each."""
    calls: list[tuple[str, int, int, str]]
    """The newest collectives that have ended: name, start, end, arguments; newest first."""
    stack: str
    """Where its Python stands, as JSON: function, file, line and owner of each frame, from
    the innermost on. Empty where that is not sampled."""
    stack_since_ns: int
    kernel: str
    """The letter of its state and, behind a space, where in the kernel it waits; or empty."""


class SpoolLook(TypedDict):
    """What is known of a process by its spool."""

    pid: int
    parent_pid: int
    host: str
    run: str
    header: str
    """Further members of the trace's header, as JSON, each with a comma in front."""
    state: Literal["alive", "dead", "other host"]
    present_ns: int
    """When it was looked at, nanoseconds since 1970."""
    now_ns: int
    """What the rest tells about: of a dead process its last sign of life."""
    started_ns: int
    """0 where it is not known."""
    prefix: str
    trace_path: str
    spool_bytes: int
    dropped: int
    waits: int
    overwritten: int
    write_error: int
    """Number of the error of the last write (errno), 0 for none."""
    drain_cpu_us: int
    flight_recorder: bool
    finished: bool
    """The trace is complete: only the spool is still there."""
    threads: list[ThreadLook]

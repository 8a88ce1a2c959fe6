"""What the native core is told at the start of a run, and what it tells of the run."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["ClockFacts", "CoreSettings", "RunSettings", "RunStatistics"]

CoreSettings = dict[str, "str | int"]
"""What `dftrace_ai._native.start` takes: text, whole numbers and truth values by the core's names.
Those that come from a setting are named at the field of `dftrace_ai.config.Config`."""


class ClockFacts(TypedDict):
    """Which machine's clock the times of a run are from, and when it was at zero.

    Attributes:
        boot: the machine since it was started, as the kernel names it.
        epoch_offset_ns: nanoseconds since 1970 at which the clock was at zero.
    """

    boot: str
    epoch_offset_ns: int


class RunSettings(TypedDict):
    """A run as this process takes part in it: worked out once, and handed on to children.

    Attributes:
        version: of this package; a process of another one cannot go on with the run.
        run: 32 hexadecimal digits that all processes of the run share.
        prefix: directory and stem of the trace files.
        made_in: the process in which `of_process` was worked out; its forked children have it, too.
        spool_dir: directory of the spools; empty for the core's choice.
        io: whether the nodes data.io, checkpoint.io and other.io record.
        mask_secrets: whether secrets of the command line are left out.
        dump_signal: name of the signal that has the process write out its events.
        core: what the native core is told, for each process the same.
        of_process: what the native core is told of this process.
        config: the settings that were given, for children.
        rank: the facts of `dftrace_ai.run.ranks.RankInfo` by name.
        layout: the rank in each dimension, such as ``dp=0,pp=1``; empty where unknown.
        layout_given: the settings say so; what frameworks know does not count.
        data_dir: directory of the training data.
        host_facts: what the header says of the machine.
        clock: the clock of the process that began the run.
        inheritable: variables that children find in their environment.
    """

    version: str
    run: str
    prefix: str
    made_in: int
    spool_dir: str
    io: bool
    mask_secrets: bool
    dump_signal: str | None
    core: CoreSettings
    of_process: CoreSettings
    config: dict[str, object]
    rank: dict[str, object]
    layout: str
    layout_given: bool
    data_dir: str | None
    host_facts: dict[str, object]
    clock: ClockFacts
    inheritable: dict[str, str]


class RunStatistics(TypedDict, total=False):
    """How a run is getting on; nothing before the first event.

    Attributes:
        trace_path: the trace file.
        spool_path: the spool.
        spool_bytes: bytes of spool in use.
        written_bytes: bytes of the trace file that are written.
        written_spans: spans in it.
        overwritten: events that a flight recorder has let go.
        dropped: events that were dropped since the spool was full.
        waits: times that a thread waited for room in the spool.
        unmatched_stops: calls of `stop` without a `start`.
        args_sanitised: arguments that were written otherwise than given.
    """

    trace_path: str
    spool_path: str
    spool_bytes: int
    written_bytes: int
    written_spans: int
    overwritten: int
    dropped: int
    waits: int
    unmatched_stops: int
    args_sanitised: int

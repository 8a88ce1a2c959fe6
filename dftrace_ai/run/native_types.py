"""What the native core is told at the start of a run, and what it tells of the run."""

from __future__ import annotations

from typing import TypeAlias, TypedDict

Fact: TypeAlias = "str | int | float | list[str] | None"
"""What JSON carries of a setting or of the process."""

CoreSettings = dict[str, "str | int"]
"""What `dftrace_ai._native.start` takes: text, whole numbers and truth values by the core's names.
Those that come from a setting are named at the field of `dftrace_ai.config.Config`."""


class ClockFacts(TypedDict):
    """Which machine's clock the times of a run are from, and when it was at zero."""

    boot: str  # the machine since it was started, as the kernel names it
    epoch_offset_ns: int


class RunSettings(TypedDict):
    """A run as this process takes part in it: worked out once, and handed on to children."""

    version: str  # of this package; a process of another one cannot go on with the run
    run: str  # 32 hexadecimal digits that all processes of the run share
    prefix: str  # directory and stem of the trace files
    made_in: int  # the process that worked out `of_process`, which its forked children have, too
    spool_dir: str  # empty for the core's choice
    live_file_s: float | None  # None: by what the launcher says of the job
    io: bool  # the nodes data.io, checkpoint.io and other.io record
    mask_secrets: bool
    dump_signal: str | None
    core: CoreSettings  # what the native core is told, for each process the same
    of_process: CoreSettings  # and what of this one
    config: dict[str, Fact]  # the settings that were given, for children
    rank: dict[str, Fact]  # `dftrace_ai.run.ranks.RankInfo`, by name
    rank_given: bool  # by the settings: what groups know does not count
    layout: str  # the rank in each dimension, such as ``dp=0,pp=1``; empty where unknown
    layout_given: bool  # by the settings: what frameworks know does not count
    data_dir: str | None
    host_facts: dict[str, Fact]  # what the header says of the machine
    clock: ClockFacts  # of the process that began the run
    inheritable: dict[str, str]  # variables that children find in their environment


class RunStatistics(TypedDict, total=False):
    """How a run is getting on, as `Run.stats` tells; nothing before the first event."""

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

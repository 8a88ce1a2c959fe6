"""How a run stands, from what its processes have written and whether they live."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.loggers.runs.lines import RunLine

__all__ = ["QUIET_S", "STATUSES", "Writer", "status_of_run", "status_of_writer"]

STATUSES = ("running", "finished", "failed", "killed", "unknown")

QUIET_S = 120.0
"""A process that cannot be looked at runs as long as its log has changed in so many seconds."""

# Where ranks of one attempt differ: one that fails has its launcher end the others.
WORST_FIRST = ("failed", "killed", "unknown", "finished")


@dataclass
class Writer:
    """A process that has written to a run."""

    log: str
    # What it says of itself; None where that cannot be read.
    line: RunLine | None = None
    # None where that cannot be known.
    alive: bool | None = None
    # The status that it has written at its end; "" without one.
    ending: str = ""
    # When it logged last, in seconds since 1970; 0 for never.
    last_s: float = 0.0
    # When its log last changed.
    written_s: float = 0.0


def status_of_writer(writer: Writer, now_s: float) -> str:
    """Return how the run stands for a process that was looked at before its log was read."""
    if writer.ending:
        return writer.ending
    if writer.line is None:
        return "unknown"
    if writer.alive is None:
        return "running" if now_s - writer.written_s < QUIET_S else "unknown"
    return "running" if writer.alive else "killed"


def status_of_run(writers: Sequence[Writer], now_s: float) -> str:
    """Return how a run stands: running while any process does, else as its latest attempt ended.

    The latest process says how many ranks there are; of each the latest process counts.
    """
    statuses = [status_of_writer(writer, now_s) for writer in writers]
    if "running" in statuses:
        return "running"
    told = [(w.line, status) for w, status in zip(writers, statuses, strict=True) if w.line]
    if not told:
        return "unknown"
    ranks = max(told, key=lambda one: one[0].time_s)[0].world_size
    latest: dict[int, tuple[float, str]] = {}
    for line, status in told:
        if line.rank < ranks and line.time_s >= latest.get(line.rank, (0.0, ""))[0]:
            latest[line.rank] = (line.time_s, status)
    ended = {status for _, status in latest.values()}
    return next((status for status in WORST_FIRST if status in ended), "unknown")

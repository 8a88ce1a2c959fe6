"""Snapshots that are made up: jobs of any size, in any state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dftrace_ai.live import (
    HiddenProcess,
    OpenSpanStatus,
    RankStatus,
    Snapshot,
    ThreadStatus,
)

NS = 1_000_000_000
NOW = 1_800_000_000 * NS
RUN = "3f2a9c01d2b44c7e9a105b6f7c8d9e0f"


def spans(*path: str, for_s: float = 60.0) -> list[OpenSpanStatus]:
    """Open spans, each begun a hundredth of a second before the one inside of it."""
    made = []
    for number, label in enumerate(path, 1):
        cat, _, name = label.partition(".")
        start = NOW - round((for_s + 0.01 * (len(path) - number)) * NS)
        made.append(OpenSpanStatus(number, number - 1, name or cat, cat, start, number))
    return made


def thread(
    *path: str, for_s: float = 60.0, tid: int = 1, name: str = "MainThread", **other: Any
) -> ThreadStatus:
    """A thread inside of these spans, that has been in the innermost one for so long."""
    facts: dict[str, Any] = {
        "ended": False,
        "records": 100,
        "depth": len(path),
        "open": spans(*path, for_s=for_s),
        "tasks": [],
        "last_ns": NOW - round((for_s + 1.0) * NS),
        "events": 50,
        "covered_s": 5.0,
        "self_s": {},
    }
    return ThreadStatus(tid=tid, name=name, **(facts | other))


def process(
    rank: int | None,
    *path: str,
    for_s: float = 60.0,
    threads: list[ThreadStatus] | None = None,
    **other: Any,
) -> RankStatus:
    """A process whose main thread is inside of these spans."""
    pid = other.get("pid", 1000 if rank is None else 1000 + rank)
    if threads is None:
        threads = [thread(*path, for_s=for_s, tid=pid)]
    facts: dict[str, Any] = {
        "pid": pid,
        "parent_pid": 1,
        "host": "node1",
        "run": RUN,
        "rank": rank,
        "world_size": None,
        "worker": False,
        "state": "alive",
        "seen_ns": NOW,
        "present_ns": NOW,
        "started_ns": NOW - 600 * NS,
        "prefix": "/out/training",
        "trace": f"/out/training-node1-{pid}.pfw.gz",
        "spool": f"/dev/shm/dftrace-{RUN[:16]}-{pid}-77-0.spool",
        "spool_bytes": 1 << 20,
        "dropped": 0,
        "waits": 0,
        "overwritten": 0,
        "write_error": "",
        "drain_cpu_us": 1,
        "flight_recorder": False,
        "epoch": 0,
        "step": 12,
        "events_per_s": 100.0,
        "threads": threads,
    }
    return RankStatus(**(facts | other))


def dead(rank: int, *path: str, for_s: float, **other: Any) -> RankStatus:
    """One that was last seen alive so many seconds ago."""
    made = process(rank, *path, for_s=0.0, state="dead", **other)
    return replace(made, present_ns=NOW + round(for_s * NS))


def hidden(rank: int | None, host: str = "node2") -> HiddenProcess:
    """One of another host."""
    pid = 2000 + (rank or 0)
    return HiddenProcess(
        host,
        f"/out/training-{host}-{pid}.spool-at",
        f"/dev/shm/dftrace-{RUN[:16]}-{pid}-77-0.spool",
        rank,
        RUN[:16],
    )


def snapshot_of(*processes: RankStatus, **other: Any) -> Snapshot:
    """A snapshot with these processes."""
    facts: dict[str, Any] = {"hidden": [], "problems": []}
    return Snapshot("node1", NOW, 5.0, list(processes), **(facts | other))

"""The Python stacks of all threads of a process: by its last dump, or as samples have them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypedDict

from dftrace_ai.live.model import NS, ThreadStack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.live.model import RankStatus, Snapshot
    from dftrace_ai.live.stuck import Finding, Verdict

DUMP: Final = b'"name":"dump","cat":"instant"'


def with_stacks(verdict: Verdict, snapshot: Snapshot) -> Verdict:
    """Return a verdict whose findings tell the stacks of all threads, as far as they are known.

    A dump that was asked for by `dump_signal` has those of all threads; samples those of threads
    that have recorded something. Reads the traces of the processes that were found.

    Args:
        verdict: of the snapshot.
        snapshot: what the processes are doing.

    Example::

        found = snapshot(["out"])
        verdict = with_stacks(find_stuck(found), found)
    """
    known = {(one.host, one.pid): one for one in snapshot.processes}
    told: dict[tuple[str | None, int | None], tuple[ThreadStack, ...]] = {}

    def stacks_of(one: Finding) -> tuple[ThreadStack, ...]:
        key = one.host, one.pid
        if key not in told:
            process = known.get((one.host or "", one.pid or 0))
            told[key] = tuple(_stacks(process)) if process else ()
        return told[key]

    def told_of(found: tuple[Finding, ...]) -> tuple[Finding, ...]:
        return tuple(replace(one, stacks=stacks_of(one)) for one in found)

    jobs = tuple(replace(job, findings=told_of(job.findings)) for job in verdict.jobs)
    return replace(verdict, jobs=jobs)


class _Told(TypedDict):
    """What a dump tells of a thread."""

    thread: int
    stack: list[str]
    cut: bool


def _stacks(process: RankStatus) -> Iterator[ThreadStack]:
    dumped, names = _last_dump(process), {one.tid: one.name for one in process.threads}
    at_ns, stacks = dumped or (0, [])
    seen = set()
    for one in stacks:
        frames, ago_s = tuple(one.get("stack", ())), max(process.present_ns - at_ns, 0) / NS
        thread = int(one["thread"])
        seen.add(thread)
        yield ThreadStack(
            thread, names.get(thread, ""), frames, bool(one.get("cut")), ago_s, "dump"
        )
    for sampled in process.threads:
        if sampled.stack and sampled.tid not in seen:
            texts = tuple(frame.text for frame in sampled.stack)
            ago_s = max(process.present_ns - process.seen_ns, 0) / NS
            yield ThreadStack(
                sampled.tid, sampled.name, texts, sampled.stack_is_cut, ago_s, "samples"
            )


def _last_dump(process: RankStatus) -> tuple[int, list[_Told]] | None:
    """Return when a process was asked last where its threads stand, and what it told."""
    from dftrace_ai.analysis.reading import open_traces
    from dftrace_ai.errors import TraceError

    last = None
    try:
        for trace in open_traces([process.trace], "all") if process.trace else ():
            base_us = (trace.header and trace.header.time_base_us) or 0
            for _, line in trace.lines():
                if DUMP in line and b'"stacks":[' in line:
                    event = json.loads(line)
                    last = round(1e3 * (base_us + event["ts"])), event["args"]["stacks"]
    except (TraceError, LookupError, TypeError, ValueError):
        return None
    return last

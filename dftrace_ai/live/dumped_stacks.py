"""The Python stacks of all threads of a process: by its last dump, or as samples have them."""

from __future__ import annotations

import json
from dataclasses import replace
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

from dftrace_ai.errors import TraceError
from dftrace_ai.live.model import NS, ThreadStack
from dftrace_ai.trace_format.file_names import trace_name

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
    findings = [one for job in verdict.jobs for one in job.findings]
    told: dict[tuple[str | None, int | None], tuple[ThreadStack, ...]] = {}

    def stacks_of(one: Finding) -> tuple[ThreadStack, ...]:
        key = one.host, one.pid
        if key not in told:
            process = known.get((one.host or "", one.pid or 0))
            of_process = [found.moved_ns for found in findings if (found.host, found.pid) == key]
            told[key] = tuple(_stacks(process, min(of_process))) if process else ()
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


def _stacks(process: RankStatus, since_ns: int) -> Iterator[ThreadStack]:
    dumped = _last_dump(process.trace, since_ns) if process.trace else None
    names = {one.tid: one.name for one in process.threads}
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


def _last_dump(newest: str, since_ns: int) -> tuple[int, list[_Told]] | None:
    """Return when a process was asked last where its threads stand, and what it told."""
    for path in _parts(Path(newest), since_ns):
        if dump := _dump_in(path):
            return dump
    return None


def _parts(newest: Path, since_ns: int) -> Iterator[Path]:
    """Yield the newest part of a trace, and those before it that were written since, newest first.

    Of parts without end those are read that can hold what was asked for meanwhile.
    """
    yield newest
    name = trace_name(newest.name)
    if name is None or not name.part:
        return
    beside = newest.parent.glob(f"{escape(name.base)}.*")
    parts = [(of.part, one) for one in beside if (of := trace_name(one.name)) is not None]
    for part, path in sorted(parts, reverse=True):
        if part >= name.part:
            continue
        try:
            if path.stat().st_mtime_ns < since_ns:
                return
        except OSError:
            continue
        yield path


def _dump_in(path: Path) -> tuple[int, list[_Told]] | None:
    """Return the last dump of a part that tells where threads stand."""
    from dftrace_ai.analysis.reading import open_traces

    last = None
    try:
        for trace in open_traces([path]):
            base_us = (trace.header and trace.header.time_base_us) or 0
            for _, line in trace.lines():
                if DUMP in line and b'"stacks":[' in line:
                    event = json.loads(line)
                    last = round(1e3 * (base_us + event["ts"])), event["args"]["stacks"]
    except (TraceError, LookupError, TypeError, ValueError):
        return last
    return last

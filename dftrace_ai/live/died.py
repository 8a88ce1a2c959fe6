"""Where processes stood that died, once their traces are completed and their spools are gone."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.endings import STEP, step_in
from dftrace_ai.errors import TraceError
from dftrace_ai.live.model import NS, OpenSpanStatus
from dftrace_ai.live.stuck import Finding

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.live.stuck import Verdict

DIED: Final = ("died", "reboot")
# Of a line as the recorder writes it; arguments stand behind.
TIMES: Final = re.compile(rb'"ts":(\d+(?:\.\d+)?)(?:,"dur":(\d+(?:\.\d+)?))?')


def died_in(
    paths: Iterable[str | os.PathLike[str]], run: str = "all", *, deep: bool = True
) -> list[Finding]:
    """Return where processes stood that died, as their completed traces tell; by rank.

    Not `deep`: of directories what is in them, and nothing below.
    """
    from dftrace_ai.analysis.reading.trace_set import of_one_run, open_folders, open_traces

    try:
        found = open_traces(paths) if deep else open_folders(map(Path, paths))
        findings = [_last_stand(trace) for trace in of_one_run(found, run)]
    except TraceError:
        return []
    died = [finding for finding in findings if finding is not None]
    return sorted(died, key=lambda one: (one.rank is None, one.rank or 0, one.host, one.pid))


def with_ends(
    verdict: Verdict,
    paths: Iterable[str | os.PathLike[str]],
    run: str = "all",
    *,
    deep: bool = True,
) -> Verdict:
    """Return a verdict that says of ranks without a process how these ended, where traces tell."""
    if not any(one.what == "missing" for job in verdict.jobs for one in job.findings):
        return verdict
    ended = {one.rank: one for one in died_in(paths, run, deep=deep)}
    jobs = [
        replace(
            job,
            findings=tuple(
                replace(ended[one.rank], cause=one.cause)
                if one.what == "missing" and one.rank in ended
                else one
                for one in job.findings
            ),
        )
        for job in verdict.jobs
    ]
    return replace(verdict, jobs=tuple(jobs))


def _last_stand(trace: Trace) -> Finding | None:
    footer, header = trace.end.footer, trace.header
    if footer is None or header is None or not (footer.ended in DIED or footer.exit_status):
        return None
    last_us = float(footer.alive_us or 0)
    unended = []
    last_step = b""
    for _, line in trace.lines():
        times = TIMES.search(line)
        if times:
            last_us = max(last_us, float(times[1]) + float(times[2] or 0))
        if b'"ph":"B"' in line:
            unended.append(json.loads(line))
        elif STEP in line:
            last_step = line
    begun = max(unended, key=lambda span: (span["tid"] == header.pid, span["ts"]), default=None)
    stack = [span for span in unended if begun and span["tid"] == begun["tid"]]
    base_us = header.time_base_us or 0
    path = [
        OpenSpanStatus(0, 0, span["name"], span["cat"], round(1e3 * (base_us + span["ts"])), 1)
        for span in sorted(stack, key=lambda span: span["ts"])
    ]
    steps = [step_in(last_step), *(span["args"].get("step") for span in stack if "args" in span)]
    last_ns = round(1e3 * (base_us + last_us))
    return Finding(
        what="dead",
        label=f"process {header.pid}" if header.rank is None else f"rank {header.rank}",
        rank=header.rank,
        pid=header.pid,
        host=header.host,
        path=tuple(span.label for span in path),
        moved_ns=last_ns,
        quiet_s=max(time.time_ns() - last_ns, 0) / NS,
        step=next((step for step in reversed(steps) if isinstance(step, int)), None),
        exit_status=footer.exit_status,
    )

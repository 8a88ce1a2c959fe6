"""All that `dftrace top` shows of a snapshot: head, table, and what could not be seen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.text import Text

from dftrace_ai.cli.live_view.table import live_table, rows_of
from dftrace_ai.cli.live_view.unseen import hidden_lines, problem_lines
from dftrace_ai.cli.terminal import shown
from dftrace_ai.live import jobs_of, judge
from dftrace_ai.live.model import NS
from dftrace_ai.live.wording import age_text, processes_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from dftrace_ai.live import Job, Snapshot

__all__ = ["page"]

TABLE_HEAD_LINES = 2
# Of a table that is cut so many rows are worth more than a verdict.
FEWEST_ROWS = 8


def page(
    snapshot: Snapshot,
    width: int,
    most_rows: int | None,
    *,
    coloured: bool,
    verdict: Sequence[str] = (),
) -> list[RenderableType]:
    """Return what to print, in order.

    Args:
        snapshot: what the processes are doing.
        width: characters a line may have.
        most_rows: lines there are in all; None for as many as it takes.
        coloured: the reader sees colours.
        verdict: why steps are slow, in lines, for which processes make room.
    """
    jobs = jobs_of(snapshot)
    processes = [process for job in jobs for process in job.processes]
    notes = [Text(line, style="yellow") for line in hidden_lines(snapshot.hidden)]
    notes += [Text(line, style="bold red") for line in problem_lines(snapshot.problems)]
    head = _head(snapshot, jobs)
    judged = _verdict(verdict)
    room = len(processes)
    if most_rows is not None:
        room = most_rows - 1 - TABLE_HEAD_LINES - len(notes)
        if room - len(judged) >= min(len(processes), FEWEST_ROWS):
            room -= len(judged)
        else:
            judged = []
        if room < len(processes):
            room -= 1  # for the line that says so
    room = max(room, 1)
    rows = rows_of(processes, judge(snapshot), room)
    if len(rows) < len(processes):
        left_out = len(processes) - len(rows)
        differing = sum(bool(row.marks) for row in rows)
        what = "that differ come first" if differing else "as the others"
        notes.insert(
            0, Text(f"{left_out:,} more, for which there is no room; those {what}", style="dim")
        )
    for text in (head, *notes, *judged):
        text.truncate(width, overflow="ellipsis")
    return [head, live_table(rows, width, snapshot.window_s, bars=coloured), *judged, *notes]


def _verdict(lines: Sequence[str]) -> list[Text]:
    if not lines:
        return []
    return [Text(), Text(f"why: {lines[0]}", style="bold"), *(Text(line) for line in lines[1:])]


def _head(snapshot: Snapshot, jobs: list[Job]) -> Text:
    processes = snapshot.processes
    ranks = [process for process in processes if not process.worker]
    dead = sum(process.state == "dead" for process in processes)
    parts = [shown(jobs[0].name) if len(jobs) == 1 else f"{len(jobs)} jobs"]
    parts.append(processes_text(len(processes)))
    if len(ranks) < len(processes):
        parts[-1] += f", {len(processes) - len(ranks):,} of them workers"
    if dead:
        parts[-1] += f", {dead:,} dead"
    hosts = sorted({process.host for process in processes})
    parts.append(shown(hosts[0]) if len(hosts) == 1 else f"{len(hosts)} hosts")
    started = [process.started_ns for process in processes if process.started_ns]
    if started and len(processes) > dead:
        latest = max(process.present_ns for process in processes)
        parts.append(f"for {age_text(max(latest - min(started), 0) / NS)}")
    parts.append(time.strftime("%H:%M:%S", time.localtime(snapshot.taken_ns / NS)))
    return Text("  ".join(parts), style="bold")

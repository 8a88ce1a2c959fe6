"""Summaries of the events that are asked for, and by thread, step or epoch; needs NumPy."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import numpy as np

from dftrace_ai.analysis.reading.identity import Owners, recordings_of
from dftrace_ai.analysis.reading.indexed.reach import joined
from dftrace_ai.analysis.summary.chosen_events import READINGS, NotInOrderError, group_labels
from dftrace_ai.analysis.summary.durations import Spread
from dftrace_ai.analysis.summary.figures import (
    MOST_ROWS,
    GroupedSummary,
    category_row,
    other_rows,
    span_row,
    summarise_groups,
)
from dftrace_ai.analysis.summary.grouping import groups_of
from dftrace_ai.analysis.summary.numbered_steps import steps_without_number
from dftrace_ai.analysis.summary.totals import Wall
from dftrace_ai.analysis.tracks import distinct
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.names_and_phases import loop_part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.reading.indexed.reach import Reach
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import SkippedFile
    from dftrace_ai.analysis.summary.chosen_events import ProcessEvents, SpanBatch
    from dftrace_ai.analysis.summary.figures import SpanRow, Summary
    from dftrace_ai.analysis.summary.grouping import EventGroup, FileGroup
    from dftrace_ai.analysis.where import Where

__all__ = ["ReadProcesses", "read_processes", "summarise_chosen"]

# A name for every step, or every name of a million steps, would fill the memory.
MOST_AT_ONCE: Final = 300_000

# In place of a name, where rows are of categories.
BODIES: Final = "bodies"

Key = tuple[str, str, str]
"""Group, category, name; where rows are of categories, `BODIES` or nothing in its place."""


class ReadProcesses(NamedTuple):
    """What was read of traces once, before their events are chosen from.

    Attributes:
        summary: of all events.
        traces: those that could be read.
        reaches: from when to when the events of each file are; None where that is not known.
    """

    summary: Summary
    traces: list[Trace]
    reaches: Mapping[Path, Reach | None]

    def wall_ns(self, parts: Sequence[Trace]) -> int | None:
        """Return how long a process went, by its files; None where that is not known."""
        reach = joined(self.reaches.get(trace.path) for trace in parts)
        return None if reach is None else reach.length_ns or 0


def summarise_chosen(
    traces: Sequence[Trace],
    skipped: Sequence[SkippedFile],
    by: FileGroup | EventGroup | None,
    where: Where | None = None,
    *,
    categories: bool = False,
) -> GroupedSummary:
    """Add up the events that are asked for.

    Args:
        traces: all of a process among them.
        skipped: files that were found and are no traces.
        by: what events of a group have in common; without it there is one group.
        where: which events are asked for; all without it.
        categories: rows are of whole categories, those of the bodies of loops apart.

    Returns:
        The figures. What is said of the files, and of lines without an event, is of all.

    Raises:
        TraceError: as of `summarise`, or there are too many rows.
    """
    whole = read_processes(traces, skipped)
    file_groups = by if by in {"rank", "host", "process"} else None
    event_group = None if file_groups else cast("EventGroup | None", by)
    spreads: defaultdict[Key, Spread] = defaultdict(Spread)
    walls: defaultdict[Key, Wall] = defaultdict(Wall)
    others: Counter[Key] = Counter()
    chosen = 0
    owners = Owners(whole.traces) if event_group == "thread" else None
    groups = groups_of(whole.traces, file_groups) if file_groups else {"": whole.traces}
    for group, of_group in groups.items():
        for parts in recordings_of(of_group).values():
            found = _of_process(parts, where, event_group, group, owners, categories=categories)
            for key, spread in found.spreads.items():
                spreads[key].take(spread)
                walls[key].add(found.walls[key[0]] if event_group else whole.wall_ns(parts))
            _check_room(len(spreads))
            others.update(found.events.others)
            chosen += found.events.chosen_events
    left_out = _keep_most(spreads)
    labels = {group: place for place, group in enumerate(groups)} if file_groups else {}
    keys = sorted(
        spreads,
        key=lambda key: (
            *_in_order(key[0], labels),
            *(key[1], -spreads[key].total_ns, key[2]),
        ),
    )
    summary = replace(
        whole.summary,
        spans=tuple(
            _row(key, spreads[key], walls[key].told_ns, categories=categories) for key in keys
        ),
        others=other_rows(others) if where is not None else whole.summary.others,
        chosen_events=chosen if where is not None else None,
        names_left_out=left_out,
    )
    return GroupedSummary(summary, tuple(key[0] for key in keys))


def _row(key: Key, spread: Spread, wall_ns: int | None, *, categories: bool) -> SpanRow:
    _, cat, name = key
    if categories:
        return category_row(spread.of_category(cat, wall_ns, bodies=name == BODIES))
    return span_row(spread.figures(cat, name, wall_ns))


def read_processes(traces: Sequence[Trace], skipped: Sequence[SkippedFile]) -> ReadProcesses:
    """Return the summary of all, and the traces that could be read for it."""
    whole = summarise_groups({"": traces}, skipped)
    read = {file.path for file in whole.summary.files}
    readable = [trace for trace in traces if str(trace) in read]
    return ReadProcesses(whole.summary, readable, whole.reaches)


def _in_order(group: str, labels: dict[str, int]) -> tuple[object, ...]:
    """Return what groups are put in order by: their numbers, where these are steps."""
    if labels:
        return (labels[group],)
    numbers = group.split("/")
    if all(number.lstrip("-").isdecimal() for number in numbers):
        return (0, [int(number) for number in numbers], "")
    return (1, [], group)


class _Found(NamedTuple):
    """What the events of a process come to.

    Attributes:
        spreads: of the spans that are asked for.
        walls: how long each group of events went, nanoseconds, from its first span to its last.
        events: the others.
    """

    spreads: dict[Key, Spread]
    walls: dict[str, int]
    events: ProcessEvents


def _of_process(
    parts: Sequence[Trace],
    where: Where | None,
    by: EventGroup | None,
    of_files: str,
    owners: Owners | None,
    *,
    categories: bool,
) -> _Found:
    steps = steps_without_number(parts) if by == "step" else ()
    for way in READINGS:
        reading = way(parts, where, by, steps)
        # By the numbers of group and name: what these are called is known at the end.
        spreads: defaultdict[tuple[int, int], Spread] = defaultdict(Spread)
        try:
            for batch in reading.batches():
                _add(batch, spreads)
        except NotInOrderError:
            continue
        break
    events = reading.events
    labels = tuple(events.labels)
    groups = group_labels(events, by, parts[0], owners)
    named: defaultdict[Key, Spread] = defaultdict(Spread)
    for (group, label), spread in spreads.items():
        cat, name = labels[label]
        if categories:
            name = BODIES if loop_part(name) == "body" else ""
        named[of_files or groups[group], cat, name].take(spread)
    walls = {groups[number]: last - first for number, (first, last) in events.reaches.items()}
    return _Found(named, defaultdict(int, walls), events)


def _add(batch: SpanBatch, spreads: defaultdict[tuple[int, int], Spread]) -> None:
    rows = np.flatnonzero(batch.chosen)
    if not len(rows):
        return
    label = batch.label[rows]
    names = int(label.max()) + 1
    keys, which = distinct(batch.group[rows].astype(np.int64) * names + label)
    _check_room(len(keys))
    own = np.zeros(len(keys), np.int64)
    np.add.at(own, which, batch.own_ns[rows])
    order = np.argsort(which, kind="stable")
    durations = np.split(batch.dur_ns[rows][order], np.flatnonzero(np.diff(which[order])) + 1)
    for key, of_key, own_ns in zip(keys.tolist(), durations, own.tolist(), strict=True):
        spreads[divmod(key, names)].add(of_key, own_ns)
    _check_room(len(spreads))


def _check_room(rows: int) -> None:
    # A row cannot be left out before it is whole: another process may have more of it.
    if rows > MOST_AT_ONCE:
        raise TraceError(
            f"more than {MOST_AT_ONCE:,} rows; ask for fewer of them, such as with "
            "--where 'args.step < 1000'"
        )


def _keep_most(spreads: dict[Key, Spread]) -> int:
    """Leave out the rows with the least time beyond those of a table, and say how many."""
    least = sorted(spreads, key=lambda key: -spreads[key].total_ns)[MOST_ROWS:]
    for key in least:
        del spreads[key]
    return len(least)

"""Summaries of the events that are asked for, and by thread, step or epoch; needs NumPy."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import numpy as np

from dftrace_ai.analysis.summary.chosen_events import READINGS, NotInOrderError, group_labels
from dftrace_ai.analysis.summary.durations import Spread
from dftrace_ai.analysis.summary.figures import (
    MOST_ROWS,
    GroupedSummary,
    other_rows,
    span_row,
    summarise_groups,
)
from dftrace_ai.analysis.summary.grouping import groups_of, processes_of
from dftrace_ai.analysis.tracks import distinct
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import SkippedFile
    from dftrace_ai.analysis.summary.chosen_events import ProcessEvents, SpanBatch
    from dftrace_ai.analysis.summary.figures import Summary
    from dftrace_ai.analysis.summary.grouping import EventGroup, FileGroup
    from dftrace_ai.analysis.where import Where

__all__ = ["read_processes", "summarise_chosen"]

# A name for every step, or every name of a million steps, would fill the memory.
MOST_AT_ONCE: Final = 300_000

Key = tuple[str, str, str]
"""Group, category, name."""


def summarise_chosen(
    traces: Sequence[Trace],
    skipped: Sequence[SkippedFile],
    by: FileGroup | EventGroup | None,
    where: Where | None = None,
) -> GroupedSummary:
    """Add up the events that are asked for.

    Args:
        traces: all of a process among them.
        skipped: files that were found and are no traces.
        by: what events of a group have in common; without it there is one group.
        where: which events are asked for; all without it.

    Returns:
        The figures. What is said of the files, and of lines without an event, is of all.

    Raises:
        TraceError: as of `summarise`, or there are too many rows.
    """
    whole, readable = read_processes(traces, skipped)
    file_groups = by if by in {"rank", "host", "process"} else None
    spreads: defaultdict[Key, Spread] = defaultdict(Spread)
    others: Counter[Key] = Counter()
    chosen = 0
    groups = groups_of(readable, file_groups) if file_groups else {"": readable}
    for group, of_group in groups.items():
        for parts in processes_of(of_group).values():
            found = _of_process(
                parts, where, None if file_groups else cast("EventGroup", by), group
            )
            for key, spread in found.spreads.items():
                spreads[key].take(spread)
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
        whole,
        spans=tuple(span_row(spreads[key].figures(*key[1:])) for key in keys),
        others=other_rows(others) if where is not None else whole.others,
        chosen_events=chosen if where is not None else None,
        names_left_out=left_out,
    )
    return GroupedSummary(summary, tuple(key[0] for key in keys))


def read_processes(
    traces: Sequence[Trace], skipped: Sequence[SkippedFile]
) -> tuple[Summary, list[Trace]]:
    """Return the summary of all, and the traces that could be read for it."""
    whole = summarise_groups({"": traces}, skipped).summary
    read = {file.path for file in whole.files}
    return whole, [trace for trace in traces if str(trace) in read]


def _in_order(group: str, labels: dict[str, int]) -> tuple[object, ...]:
    """Return what groups are put in order by: their numbers, where these are steps."""
    if labels:
        return (labels[group],)
    numbers = group.split("/")
    if all(number.lstrip("-").isdecimal() for number in numbers):
        return (0, [int(number) for number in numbers], "")
    return (1, [], group)


class _Found(NamedTuple):
    """What the events of a process come to."""

    spreads: dict[Key, Spread]
    events: ProcessEvents


def _of_process(
    parts: Sequence[Trace], where: Where | None, by: EventGroup | None, of_files: str
) -> _Found:
    for way in READINGS:
        reading = way(parts, where, by)
        # By the numbers of group and name: what these are called is known at the end.
        spreads: defaultdict[tuple[int, int], Spread] = defaultdict(Spread)
        try:
            for batch in reading.batches():
                _add(batch, spreads)
        except NotInOrderError:
            continue
        break
    labels = tuple(reading.events.labels)
    groups = group_labels(reading.events, by, parts)
    named: defaultdict[Key, Spread] = defaultdict(Spread)
    for (group, label), spread in spreads.items():
        named[of_files or groups[group], labels[label].cat, labels[label].name].take(spread)
    return _Found(named, reading.events)


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

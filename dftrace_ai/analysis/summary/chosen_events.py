"""The events of a process that are asked for, its spans with what they lie in; needs NumPy."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from dftrace_ai.analysis.reading.event_columns import columns_by_block
from dftrace_ai.analysis.summary.grouping import NOT_SAID, host_of
from dftrace_ai.analysis.tracks import distinct, own_ns, parents_of, track_order
from dftrace_ai.trace_format.header_and_footer import CUSTOM_METADATA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.analysis.reading.event_columns import EventColumns, Integers, Label
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.summary.grouping import EventGroup
    from dftrace_ai.analysis.where import Where
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["ProcessSpans", "spans_of_process"]

Group: TypeAlias = tuple[int, ...]
"""Process and thread, epoch and step, or one of these; () for what is not said."""

THREAD_NAME: Final = "thread_name"
KEPT: Final = ("label", "group", "track", "id", "start", "dur", "chosen")
MOST_DIGITS: Final = 19


@dataclass(frozen=True, repr=False)
class ProcessSpans:
    """The finished spans of a process, those around others before them.

    Attributes:
        labels: category and name of each code.
        groups: what each group is called.
        label: code of category and name.
        group: number of the group.
        dur_ns: durations.
        own_ns: the part of them that no spans take which lie directly inside on the track.
        parents: which span is directly around each; -1 for none.
        chosen: which are asked for.
        others: other events that are asked for, by phase, category and name.
        chosen_events: how many events are asked for.
    """

    labels: tuple[Label, ...]
    groups: tuple[str, ...]
    label: Integers
    group: Integers
    dur_ns: Integers
    own_ns: Integers
    parents: Integers
    chosen: Integers
    others: Counter[tuple[str, str, str]]
    chosen_events: int


@dataclass
class _Gathered:
    """The blocks of a process so far."""

    labels: dict[Label, int] = field(default_factory=dict)
    groups: dict[Group, int] = field(default_factory=dict)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    tracks: dict[tuple[int, int], int] = field(default_factory=dict)
    pieces: dict[str, list[Integers]] = field(default_factory=dict)
    others: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    chosen_events: int = 0


def spans_of_process(
    parts: Sequence[Trace], where: Where | None = None, by: EventGroup | None = None
) -> ProcessSpans:
    """Read the spans of a process, the finished ones.

    Args:
        parts: its files in their order.
        where: which events are asked for; all without it.
        by: what those of a group have in common; without it there is one group.

    Raises:
        TraceError: a file cannot be read.
    """
    found = _Gathered()
    for trace in parts:
        for columns in columns_by_block(trace):
            _gather(columns, where, by, found)
    none = np.zeros(0, np.int64)
    found.pieces.setdefault("chosen", [np.zeros(0, bool)])
    label, group, track, ids, start, dur, chosen = (
        np.concatenate(found.pieces.pop(name)) if name in found.pieces else none for name in KEPT
    )
    # What says no time has a track of its own.
    untimed = np.flatnonzero(start < 0)
    track[untimed] = len(found.tracks) + np.arange(len(untimed))
    end = start + dur
    order = track_order(track, start, end, ids)
    del ids
    track, start, end = track[order], start[order], end[order]
    parents = parents_of(track, start, end)
    return ProcessSpans(
        labels=tuple(found.labels),
        groups=_group_labels(found, by, parts),
        label=label[order],
        group=group[order],
        dur_ns=dur[order],
        own_ns=own_ns(parents, start, end),
        parents=parents,
        chosen=chosen[order],
        others=found.others,
        chosen_events=found.chosen_events,
    )


def _tracks(pid: Integers, tid: Integers, known: dict[tuple[int, int], int]) -> Integers:
    """Return the number of each event's track; new tracks are added to `known`."""
    processes, process = distinct(pid)
    threads, thread = distinct(tid)
    pairs, which = distinct(process.astype(np.int64) * len(threads) + thread)
    numbers = [
        known.setdefault((int(processes[one]), int(threads[other])), len(known))
        for one, other in (divmod(pair, len(threads)) for pair in pairs.tolist())
    ]
    return np.array(numbers, np.int32)[which]


def _gather(
    columns: EventColumns, where: Where | None, by: EventGroup | None, found: _Gathered
) -> None:
    chosen = np.ones(len(columns), bool) if where is None else where.rows(columns)
    is_span = columns.ph == ord("X")
    rows = np.flatnonzero(is_span & (columns.dur_ns >= 0))
    codes = np.full(len(columns.labels), -1, np.int64)
    for code in np.unique(columns.label[rows]).tolist():
        codes[code] = found.labels.setdefault(columns.labels[code], len(found.labels))
    values = {
        "label": codes[columns.label[rows]].astype(np.int32),
        "group": _groups(columns, rows, by, found.groups).astype(np.int32),
        "track": _tracks(columns.pid[rows], columns.tid[rows], found.tracks),
        "id": columns.id[rows].astype(np.int64),
        "start": columns.start_ns[rows],
        "dur": columns.dur_ns[rows],
        "chosen": chosen[rows],
    }
    for name, piece in values.items():
        found.pieces.setdefault(name, []).append(piece)
    found.chosen_events += int((chosen & is_span).sum())
    _gather_others(columns, np.flatnonzero(~is_span), chosen, found)


def _gather_others(
    columns: EventColumns, rows: Integers, chosen: Integers, found: _Gathered
) -> None:
    kinds, counts = np.unique(
        np.stack([columns.ph[rows].astype(np.int64), columns.label[rows], chosen[rows]]),
        axis=1,
        return_counts=True,
    )
    named = set()
    for (ph, code, is_chosen), count in zip(kinds.T.tolist(), counts.tolist(), strict=True):
        label = columns.labels[code]
        if ph == ord("M") and label.name == THREAD_NAME:
            named.add(code)
        if is_chosen and (ph != ord("M") or label.name == CUSTOM_METADATA):
            found.others[chr(ph), label.cat, label.name] += count
            found.chosen_events += count
    for row in rows[np.isin(columns.label[rows], list(named))].tolist() if named else ():
        name = columns.args(row).get("name")
        if isinstance(name, str):
            found.threads.setdefault((int(columns.pid[row]), int(columns.tid[row])), name)


def _groups(
    columns: EventColumns, rows: Integers, by: EventGroup | None, known: dict[Group, int]
) -> Integers:
    """Return the number of each event's group; new groups are added to `known`."""
    if not len(rows):
        return np.zeros(0, np.int64)
    if by is None:
        known.setdefault((), 0)
        return np.zeros(len(rows), np.int64)
    if by == "thread":
        tracks, which = np.unique(
            np.stack([columns.pid[rows], columns.tid[rows]]), axis=1, return_inverse=True
        )
        groups: list[Group] = [tuple(track) for track in tracks.T.tolist()]
        numbers = [known.setdefault(group, len(known)) for group in groups]
        return np.array(numbers, np.int64)[which.ravel()]
    return np.array(
        [known.setdefault(_counted(columns.args(row), by), len(known)) for row in rows.tolist()],
        np.int64,
    )


def _counted(args: JsonObject, by: EventGroup) -> Group:
    """Return epoch and step of an event, or its epoch alone; () where it does not say it."""
    epoch, step = _whole(args.get("epoch")), _whole(args.get("step"))
    if by == "epoch":
        return () if epoch is None else (epoch,)
    return () if step is None else (step,) if epoch is None else (epoch, step)


def _whole(value: Any) -> int | None:
    """Return a whole number that stands in arguments as a number or, by dftracer, as text."""
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < MOST_DIGITS:
        return int(value)
    return value if type(value) is int else None


def _group_labels(
    found: _Gathered, by: EventGroup | None, parts: Sequence[Trace]
) -> tuple[str, ...]:
    if by == "thread":
        host = host_of(parts)
        return tuple(
            f"{host}:{pid} {tid} {found.threads.get((pid, tid), '')}".strip(": ")
            for pid, tid in found.groups
        )
    return tuple("/".join(map(str, group)) or NOT_SAID for group in found.groups)

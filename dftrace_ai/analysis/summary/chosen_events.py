"""The events of a process that are asked for, its spans with what they lie in; needs NumPy."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from dftrace_ai.analysis.reading.event_columns import BlockColumns, columns_by_block
from dftrace_ai.analysis.summary.grouping import NOT_SAID
from dftrace_ai.analysis.tracks import distinct, own_ns, parents_of, track_order
from dftrace_ai.trace_format.header_and_footer import CUSTOM_METADATA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dftrace_ai._reader import SpanTree
    from dftrace_ai.analysis.reading.event_columns import EventColumns, Integers, Label
    from dftrace_ai.analysis.reading.identity import Owners
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.summary.grouping import EventGroup
    from dftrace_ai.analysis.summary.numbered_steps import NumberedSteps
    from dftrace_ai.analysis.where import Where
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = [
    "READINGS",
    "InOrder",
    "NotInOrderError",
    "ProcessEvents",
    "Sorted",
    "SpanBatch",
    "group_labels",
]

Group: TypeAlias = tuple[int, ...]
"""Process and thread, epoch and step, or one of these; () for what is not said."""

THREAD_NAME: Final = "thread_name"
KEPT: Final = ("label", "group", "track", "id", "start", "dur", "chosen")
MOST_DIGITS: Final = 19
BATCH_SPANS: Final = 200_000
# Sums of two such times stay within 64 bits.
LATEST_NS: Final = 2**61


@dataclass(frozen=True, repr=False)
class SpanBatch:
    """Finished spans of a process, each in a row.

    Attributes:
        label: code of category and name.
        group: number of the group.
        dur_ns: durations.
        own_ns: the part of them that no spans take which lie directly inside on the track.
        chosen: which are asked for.
    """

    label: Integers
    group: Integers
    dur_ns: Integers
    own_ns: Integers
    chosen: Integers


@dataclass
class ProcessEvents:
    """The events of a process beside its spans, and what the numbers of these mean.

    Attributes:
        labels: code of each category and name.
        groups: number of each group.
        threads: the name of a thread, by its process and number.
        others: other events that are asked for, by phase, category and name.
        chosen_events: how many events are asked for.
        reaches: of each group the first start and the last end of its spans, nanoseconds since
            1970.
    """

    labels: dict[Label, int] = field(default_factory=dict)
    groups: dict[Group, int] = field(default_factory=dict)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    others: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    chosen_events: int = 0
    reaches: dict[int, tuple[int, int]] = field(default_factory=dict)


class NotInOrderError(Exception):
    """The order in which spans are written does not tell which of them lie in which."""


class InOrder:
    """Reads the spans of a process as they come, in the memory of a batch and of what is open.

    Args:
        parts: its files in their order.
        where: which events are asked for; all without it.
        by: what those of a group have in common; without it there is one group.
        steps: to which those belong that do not say their step.

    Attributes:
        events: what else there is, so far.
    """

    def __init__(
        self,
        parts: Sequence[Trace],
        where: Where | None = None,
        by: EventGroup | None = None,
        steps: Sequence[NumberedSteps] = (),
    ) -> None:
        self.events = ProcessEvents()
        self._parts, self._where, self._groups = parts, where, _Groups(by, steps)
        self._tree: SpanTree | None = None

    def batches(self, *, parents: bool = False) -> Iterator[SpanBatch]:
        """Yield the spans.

        Args:
            parents: they are asked for afterwards.

        Raises:
            NotInOrderError: they do not come in the order of their ends, or cut each other, or
                the native reader was not built.
            TraceError: a file cannot be read.
        """
        try:
            from dftrace_ai import _reader
        except ImportError as error:
            raise NotInOrderError from error
        self._tree = tree = _reader.SpanTree(parents)
        reading = BlockColumns()
        pieces: list[dict[str, Integers]] = []
        waiting = 0
        for trace in self._parts:
            for block, columns in reading.of(trace):
                own = tree.add(block) if isinstance(block, _reader.EventBlock) else None
                if own is None:
                    raise NotInOrderError
                rows, chosen = _noted(columns, self._where, self.events)
                piece = _columns_of(columns, rows, self._groups, self.events)
                own_ns = np.frombuffer(own, np.int64)
                pieces.append({**piece, "own_ns": own_ns, "chosen": chosen[rows]})
                waiting += len(rows)
                if waiting >= BATCH_SPANS:
                    yield _batch(pieces)
                    pieces, waiting = [], 0
        if pieces:
            yield _batch(pieces)

    def parents(self) -> Integers:
        """Return which span of those that were yielded is directly around each; -1 for none.

        Once.
        """
        tree, self._tree = self._tree, None
        return np.frombuffer(tree.parents() if tree else b"", np.int32)


class Sorted:
    """Reads all spans of a process and sorts them; members as those of `InOrder`."""

    def __init__(
        self,
        parts: Sequence[Trace],
        where: Where | None = None,
        by: EventGroup | None = None,
        steps: Sequence[NumberedSteps] = (),
    ) -> None:
        self.events = ProcessEvents()
        self._parts, self._where, self._groups = parts, where, _Groups(by, steps)
        self._parents = np.zeros(0, np.int64)

    def batches(self, *, parents: bool = False) -> Iterator[SpanBatch]:
        """Yield all spans in one batch, those around others before them.

        Raises:
            TraceError: a file cannot be read.
        """
        pieces: dict[str, list[Integers]] = {}
        tracks: dict[tuple[int, int], int] = {}
        for trace in self._parts:
            for columns in columns_by_block(trace):
                rows, chosen = _noted(columns, self._where, self.events)
                values = {
                    **_columns_of(columns, rows, self._groups, self.events),
                    "track": _tracks(columns.pid[rows], columns.tid[rows], tracks),
                    "id": columns.id[rows].astype(np.int64),
                    "start": columns.start_ns[rows],
                    "chosen": chosen[rows],
                }
                for name, piece in values.items():
                    pieces.setdefault(name, []).append(piece)
        if not pieces:
            return
        label, group, track, ids, start, dur, chosen = (
            np.concatenate(pieces.pop(name)) for name in KEPT
        )
        # What says no time has a track of its own.
        untimed = np.flatnonzero(start < 0)
        track[untimed] = len(tracks) + np.arange(len(untimed))
        end = start + dur
        order = track_order(track, start, end, ids)
        del ids
        track, start, end = track[order], start[order], end[order]
        self._parents = parents_of(track, start, end)
        own = own_ns(self._parents, start, end)
        yield SpanBatch(label[order], group[order], dur[order], own, chosen[order])

    def parents(self) -> Integers:
        """Return which span of those that were yielded is directly around each; -1 for none."""
        return self._parents


READINGS: Final[tuple[type[InOrder | Sorted], ...]] = (InOrder, Sorted)
"""Ways to read the spans of a process; the next one where the one before does not do."""


def _batch(pieces: Sequence[Mapping[str, Integers]]) -> SpanBatch:
    names = ("label", "group", "dur", "own_ns", "chosen")
    return SpanBatch(*(np.concatenate([piece[name] for piece in pieces]) for name in names))


def _tracks(pid: Integers, tid: Integers, known: dict[Any, int]) -> Integers:
    """Return the number of each event's track; new tracks are added to `known`."""
    processes, process = distinct(pid)
    threads, thread = distinct(tid)
    pairs, which = distinct(process.astype(np.int64) * len(threads) + thread)
    numbers = [
        known.setdefault((int(processes[one]), int(threads[other])), len(known))
        for one, other in (divmod(pair, len(threads)) for pair in pairs.tolist())
    ]
    return np.array(numbers, np.int32)[which]


def _noted(
    columns: EventColumns, where: Where | None, found: ProcessEvents
) -> tuple[Integers, Integers]:
    """Return the rows of finished spans, and which of all are asked for; note all other events."""
    chosen = np.ones(len(columns), bool) if where is None else where.rows(columns)
    is_span = columns.ph == ord("X")
    found.chosen_events += int((chosen & is_span).sum())
    _gather_others(columns, np.flatnonzero(~is_span), chosen, found)
    return np.flatnonzero(is_span & (columns.dur_ns >= 0)), chosen


def _columns_of(
    columns: EventColumns, rows: Integers, groups: _Groups, found: ProcessEvents
) -> dict[str, Integers]:
    codes = np.full(len(columns.labels), -1, np.int32)
    for code in distinct(columns.label[rows])[0].tolist():
        codes[code] = found.labels.setdefault(columns.labels[code], len(found.labels))
    group = _groups(columns, rows, groups, found.groups).astype(np.int32)
    if groups.by is not None:
        _note_reaches(group, columns.start_ns[rows], columns.dur_ns[rows], found.reaches)
    return {"label": codes[columns.label[rows]], "group": group, "dur": columns.dur_ns[rows]}


def _note_reaches(
    group: Integers, start_ns: Integers, dur_ns: Integers, known: dict[int, tuple[int, int]]
) -> None:
    """Note from when to when the spans of each group are."""
    timed = start_ns >= 0
    start = np.minimum(start_ns[timed], LATEST_NS)
    end = start + np.minimum(dur_ns[timed], LATEST_NS)
    numbers, which = distinct(group[timed])
    first = np.full(len(numbers), np.iinfo(np.int64).max)
    last = np.full(len(numbers), -1)
    np.minimum.at(first, which, start)
    np.maximum.at(last, which, end)
    for number, low, high in zip(numbers.tolist(), first.tolist(), last.tolist(), strict=True):
        before = known.get(number, (low, high))
        known[number] = min(before[0], low), max(before[1], high)


def _gather_others(
    columns: EventColumns, rows: Integers, chosen: Integers, found: ProcessEvents
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


class _Groups(NamedTuple):
    """What the events of a group have in common, and the steps of those that do not say theirs."""

    by: EventGroup | None
    steps: Sequence[NumberedSteps]


def _groups(
    columns: EventColumns, rows: Integers, groups: _Groups, known: dict[Group, int]
) -> Integers:
    """Return the number of each event's group; new groups are added to `known`."""
    by = groups.by
    if not len(rows):
        return np.zeros(0, np.int64)
    if by is None:
        known.setdefault((), 0)
        return np.zeros(len(rows), np.int64)
    if by == "thread":
        return _tracks(columns.pid[rows], columns.tid[rows], known)
    said = [_counted(columns.args(row), by) for row in rows.tolist()]
    for steps in groups.steps:
        numbers = steps.at(columns.start_ns[rows], columns.pid[rows]).tolist()
        said = [
            group or ((number,) if number >= 0 else ())
            for group, number in zip(said, numbers, strict=True)
        ]
    return np.array([known.setdefault(group, len(known)) for group in said], np.int64)


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


def group_labels(
    found: ProcessEvents, by: EventGroup | None, trace: Trace, owners: Owners | None
) -> tuple[str, ...]:
    """Return what each group is called, by its number.

    Args:
        found: the events of a process.
        by: what those of a group have in common.
        trace: a file of the process.
        owners: whose the files of all are; where groups are threads.
    """
    if owners is not None:
        return tuple(
            f"{owners.called(trace, pid)} {tid} {found.threads.get((pid, tid), '')}".strip(": ")
            for pid, tid in found.groups
        )
    return tuple("/".join(map(str, group)) or NOT_SAID for group in found.groups)

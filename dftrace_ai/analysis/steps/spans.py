"""The finished spans of a process with their roles, in the order of time."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dftrace_ai import _reader
from dftrace_ai.analysis.reading.argument_members import NO_NUMBER
from dftrace_ai.analysis.reading.clock_faults import LATEST_NS
from dftrace_ai.analysis.reading.reach import NOWHERE, Reach
from dftrace_ai.analysis.steps.roles import CODE, role_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dftrace_ai.analysis.reading.event_columns import (
        EventColumns,
        EventNames,
        Integers,
        Label,
    )
    from dftrace_ai.analysis.steps.roles import Role, Source
    from dftrace_ai.trace_format.json_types import Json

ROWS_AT_ONCE: Final = 65_536
READ_AT_ONCE: Final = 10_000

# Of fewer pairs NumPy finds places as fast.
LITTLE: Final = 1 << 12

FAR: Final = 2**62
"""In place of a moment, one behind all others."""

NO_INTEGER: Final = NO_NUMBER
"""In place of a whole number, where arguments have none."""


@dataclass(frozen=True, repr=False)
class Spans:
    """Spans, sorted by start; of those that start together the longest first."""

    start_ns: Integers  # when each starts, nanoseconds since 1970
    end_ns: Integers  # when it ends
    role: Integers  # codes of `roles.CODE`
    tid: Integers  # thread or lane
    id: Integers  # number in the process
    place: Integers  # number of the file among `columns`
    row: Integers  # row in that file
    columns: Sequence[EventNames]  # names and arguments of the events of the files

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def reach(self) -> Reach:
        """From the first start to the last end."""
        return Reach(int(self.start_ns[0]), int(self.end_ns.max())) if len(self) else NOWHERE

    def at(self, which: Integers | slice) -> Spans:
        """Return some of the spans, by a mask, by indices that rise, or in a row."""
        if not isinstance(which, slice) and which.dtype == bool:
            count = np.count_nonzero(which)
            if count == len(self):
                return self
            # Few are found once, and not for each column.
            which = np.flatnonzero(which) if count < len(self) // 4 else which
        names = [field.name for field in fields(self) if field.name != "columns"]
        some: dict[str, Any] = {name: values_at(getattr(self, name), which) for name in names}
        return replace(self, **some)

    def of(self, *roles: Role) -> Spans:
        """Return those with one of these roles."""
        return self.at(self.has(*roles))

    def has(self, *roles: Role) -> Integers:
        """Return a mask of those with one of these roles."""
        if not roles:
            return np.zeros(len(self), bool)
        mask: Integers = self.role == CODE[roles[0]]
        for role in roles[1:]:
            mask |= self.role == CODE[role]
        return mask

    def pieces(self, which: Integers) -> Iterator[tuple[Integers, EventNames, Integers]]:
        """Yield places in some indices, many at a time, with the file and the rows of these spans.

        They come about as they lie in the file, so that its blocks are read one after the other.
        """
        for first in range(0, len(which), READ_AT_ONCE):
            some = which[first : first + READ_AT_ONCE]
            place, row = self.place[some], self.row[some]
            for number in np.flatnonzero(np.bincount(place)).tolist():
                here = np.flatnonzero(place == number)
                here = here[np.argsort(row[here], kind="stable")]
                yield first + here, self.columns[number], row[here]

    def integers(self, which: Integers, *names: str) -> tuple[Integers, ...]:
        """Return whole numbers of the arguments of some spans; `NO_INTEGER` where there is none."""
        columns = np.full((len(names), len(which)), NO_INTEGER)
        for some, file, rows in self.pieces(which):
            columns[:, some] = file.arguments.numbers_of(rows, names)
        return tuple(columns)

    def args(self, index: int) -> dict[str, Json]:
        """Return the arguments of a span."""
        return self.columns[int(self.place[index])].args(int(self.row[index]))

    def label(self, index: int) -> Label:
        """Return category and name of a span."""
        columns = self.columns[int(self.place[index])]
        return columns.labels[int(columns.label[int(self.row[index])])]

    def called(self, cat: str | None, name: str) -> Integers:
        """Return a mask of those with this category, or with any, and name."""
        mask = np.zeros(len(self), bool)
        for number, columns in enumerate(self.columns):
            known = enumerate(columns.labels)
            codes = [at for at, one in known if one.name == name and cat in {None, one.cat}]
            if codes:
                here = np.flatnonzero(self.place == number)
                mask[here] = np.isin(columns.label[self.row[here]], codes)
        return mask

    def time_by_label(self, indices: Integers, ns: Integers) -> dict[Label, int]:
        """Add up times by category and name."""
        found: dict[Label, int] = {}
        place, row = self.place[indices], self.row[indices]
        for number in np.unique(place).tolist():
            columns, here = self.columns[number], place == number
            codes, which = np.unique(columns.label[row[here]], return_inverse=True)
            sums = np.zeros(len(codes), np.int64)
            np.add.at(sums, which, ns[here])
            for code, total in zip(codes.tolist(), sums.tolist(), strict=True):
                label = columns.labels[code]
                found[label] = found.get(label, 0) + total
        return found


def values_at(column: Integers, which: Integers | slice) -> Integers:
    """Return some values of a column; one that all have, as a thread, stays there once."""
    if column.strides != (0,) or isinstance(which, slice):
        return column[which]
    count = int(np.count_nonzero(which)) if which.dtype == bool else len(which)
    return np.broadcast_to(column[:1], count)


def brief(values: Integers) -> Integers:
    """Return values, or if all are the same that one alone."""
    same = len(values) > 0 and bool((values == values[0]).all())
    return np.broadcast_to(values[0].copy(), values.shape) if same else values


def integer(value: Any) -> int | None:
    """Return a whole number that stands in arguments as a number or, by dftracer, as text."""
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) <= len("-9" * 10):
        return int(value)
    return value if type(value) is int else None


SpanColumns = dict[str, "Integers"]
"""Columns of `Spans`, of the spans of one file."""


def span_columns(taken: list[EventColumns], mask: Integers | None, source: Source) -> SpanColumns:
    """Return the finished spans among rows of a file that say something of a training.

    What holds its events is the only one in a list: each column goes before the next is made.
    """
    columns = taken.pop()
    codes = np.array([CODE[role_of(*label, source)] for label in columns.labels], np.uint8)
    chosen = (codes != CODE["ignored"])[columns.label]
    chosen &= columns.ph == ord("X")
    for times in (columns.start_ns, columns.dur_ns):
        chosen &= times >= 0
        chosen &= times < LATEST_NS
    if mask is not None:
        chosen &= mask
    row = rows_of(chosen)
    del chosen
    start, length, role = columns.start_ns, columns.dur_ns, codes[columns.label[row]]
    tid, ids = columns.tid, columns.id
    del columns
    ids = ids[row]
    tid = brief(values_at(tid, row))
    start = start[row]
    end = length[row]
    del length
    end += start
    return {"start_ns": start, "end_ns": end, "role": role, "tid": tid, "id": ids, "row": row}


def rows_of(mask: Integers) -> Integers:
    """Return the rows of a mask, in half of the memory than NumPy takes where it is enough."""
    rows = np.empty(np.count_nonzero(mask), np.int32 if len(mask) < 2**31 else np.int64)
    behind = 0
    for first in range(0, len(mask), ROWS_AT_ONCE):
        some = np.flatnonzero(mask[first : first + ROWS_AT_ONCE]) + first
        rows[behind : behind + len(some)] = some
        behind += len(some)
    return rows


def spans_of(files: Sequence[EventNames], pieces: Sequence[SpanColumns]) -> Spans:
    """Return spans of files in their order."""
    kind = np.min_scalar_type(len(files))
    places = [np.broadcast_to(kind.type(at), len(piece["row"])) for at, piece in enumerate(pieces)]
    # The pieces of a column go before those of the next are put together.
    whole = {name: column_of([piece.pop(name) for piece in pieces]) for name in list(pieces[0])}
    whole["place"] = column_of(places)
    order = _time_order(whole["start_ns"], whole["end_ns"], whole["id"])
    return Spans(**{name: values_at(whole.pop(name), order) for name in list(whole)}, columns=files)


def column_of(pieces: list[Integers]) -> Integers:
    """Return the pieces of a column as one."""
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _time_order(start_ns: Integers, end_ns: Integers, ids: Integers) -> Integers:
    """Return the order by start, falling end and number."""
    starts, ends = (np.ascontiguousarray(one, np.int64) for one in (start_ns, end_ns))
    # Its runs are long: spans stand by their ends.
    order = np.argsort(starts, kind="stable")
    found = _reader.time_order(order, starts, ends, np.ascontiguousarray(ids, np.uint64))
    return np.frombuffer(found, np.int64)


def stretches(
    spans: Spans, at_once: int, which: Integers | None = None, *, touching: bool = True
) -> list[slice]:
    """Return spans in stretches of about so many, none reaching into another.

    Where they may touch, one may begin where another of the stretch before it ends. `which` is a
    mask of those that count; the others go with those before them.
    """
    cuts, counted, wanted, reach = [0], 0, at_once, -1
    for first in range(0, len(spans) if len(spans) > at_once else 0, ROWS_AT_ONCE):
        here = slice(first, first + ROWS_AT_ONCE)
        start, end = spans.start_ns[here], spans.end_ns[here]
        rows = np.arange(len(start)) if which is None else np.flatnonzero(which[here])
        start, end = start[rows], end[rows]
        before = np.maximum.accumulate(np.append(reach, end))
        free = np.flatnonzero(start >= before[:-1] if touching else start > before[:-1])
        while wanted < counted + len(rows):
            at = np.searchsorted(free, wanted - counted)
            if at == len(free):
                break
            cuts.append(first + int(rows[free[at]]))
            wanted = (counted + int(free[at])) // at_once * at_once + at_once
        counted, reach = counted + len(rows), int(before[-1])
    return [slice(*pair) for pair in pairwise([*cuts, len(spans)])]


def places(moments: Integers, asked: Integers, *, right: bool = False) -> Integers:
    """Return where moments would stand among some that rise; as NumPy does, but in less time."""
    if len(moments) * len(asked) < LITTLE:
        return np.searchsorted(moments, asked, side="right" if right else "left")
    moments, asked = (np.ascontiguousarray(one, np.int64) for one in (moments, asked))
    return np.frombuffer(_reader.places(moments, asked, right), np.int64)


def rising(*moments: Integers) -> Integers:
    """Return the moments that there are in any of some columns, each once."""
    # NumPy's own goes by hashes, which takes ten times as long for what is nearly in order.
    every = np.concatenate(moments)
    every.sort(kind="stable")
    return every[np.append(True, every[1:] != every[:-1])] if len(every) else every


def union(start_ns: Integers, end_ns: Integers) -> tuple[Integers, Integers]:
    """Return the stretches of time that intervals cover, in order, none touching the next."""
    some = end_ns > start_ns
    start, end = start_ns[some], end_ns[some]
    if not len(start):
        return start, end
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    begins = np.concatenate([[True], start[1:] > reach[:-1]])
    last = np.flatnonzero(np.concatenate([begins[1:], [True]]))
    return start[begins], reach[last]


def common(
    start: Integers, end: Integers, other_start: Integers, other_end: Integers
) -> tuple[Integers, Integers]:
    """Return what two rows of stretches, each in order and without overlaps, have in common."""
    before = places(other_end, start, right=True)
    met = np.maximum(places(other_start, end) - before, 0)
    each = np.repeat(np.arange(len(start)), met)
    other = np.arange(len(each)) - np.repeat(np.cumsum(met) - met - before, met)
    low = np.maximum(start[each], other_start[other])
    high = np.minimum(end[each], other_end[other])
    return low[low < high], high[low < high]


def without(
    start: Integers, end: Integers, other_start: Integers, other_end: Integers
) -> tuple[Integers, Integers]:
    """Return what of stretches is in none of others; both in order, without overlaps."""
    low = np.concatenate([[-FAR], other_end])
    high = np.concatenate([other_start, [FAR]])
    some = low < high
    return common(start, end, low[some], high[some])

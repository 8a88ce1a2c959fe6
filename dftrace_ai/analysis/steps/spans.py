"""The finished spans of a process with their roles, in the order of time."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from dftrace_ai import _reader
from dftrace_ai.analysis.reading import long_columns
from dftrace_ai.analysis.reading.argument_members import NO_NUMBER
from dftrace_ai.analysis.reading.clock_faults import LATEST_NS
from dftrace_ai.analysis.reading.long_columns import LongColumn, SumColumn
from dftrace_ai.analysis.reading.reach import NOWHERE, Reach
from dftrace_ai.analysis.reading.set_aside import SetAside
from dftrace_ai.analysis.steps.roles import CODE, role_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeGuard

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

# Of so many stretches or fewer columns of spans that are picked from packed ones stay arrays; and
# those of a process, which would take more time packed than they save memory.
MOST_PICKED_LOOSE: Final = 2
MOST_LOOSE: Final = 16

# Of more that are late all are sorted at once.
MOST_LATE: Final = 0.25

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
        """Return some of the spans, by a mask, by indices, or in a row."""
        if not isinstance(which, slice) and which.dtype == bool and which.all():
            return self
        # Each stretch is looked at once, where indices rise.
        if isinstance(self.start_ns, LongColumn) and _rises(which):
            return self._at_length(self.start_ns, which)
        if not isinstance(which, slice) and which.dtype == bool:
            # They are found once, and not for each column.
            which = np.flatnonzero(which)
        names = [field.name for field in fields(self) if field.name != "columns"]
        some: dict[str, Any] = {name: values_at(getattr(self, name), which) for name in names}
        return replace(self, **some)

    def _at_length(self, column: LongColumn, which: Integers) -> Spans:
        """Return some of many spans, which may be as many."""
        held = HeldSpans(self.columns, SetAside())
        held.add(self._columns_of(slice(0)))
        for begin, end, here in column.each(which):
            held.add({name: one[here] for name, one in self._columns_of(slice(begin, end)).items()})
        return held.spans()

    def _columns_of(self, which: slice) -> SpanColumns:
        names = (field.name for field in fields(self) if field.name != "columns")
        return {name: getattr(self, name)[which] for name in names}

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


def _rises(which: Integers | slice) -> TypeGuard[Integers]:
    if isinstance(which, slice):
        return False
    return which.dtype == bool or bool((which[1:] >= which[:-1]).all())


def values_at(column: Integers, which: Integers | slice) -> Integers:
    """Return some values of a column; one that all have, as a thread, stays there once."""
    if isinstance(which, slice):
        return column[which]
    if column.strides != (0,):
        # The same as by an index, in half of the time.
        is_loose = isinstance(column, np.ndarray) and which.dtype != bool
        return column.take(which) if is_loose else column[which]
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


class RoleCodes:
    """Codes of roles by the numbers of names, which may become more."""

    def __init__(self, source: Source) -> None:
        self.source: Final = source
        self._codes = np.zeros(0, np.uint8)

    def of(self, labels: Sequence[Label]) -> Integers:
        """Return those of all names."""
        more = [CODE[role_of(*label, self.source)] for label in labels[len(self._codes) :]]
        self._codes = np.append(self._codes, np.array(more, np.uint8))
        return self._codes


def span_columns(taken: list[EventColumns], mask: Integers | None, roles: RoleCodes) -> SpanColumns:
    """Return the finished spans among rows of a file that say something of a training.

    What holds its events is the only one in a list: each column goes before the next is made.
    """
    columns = taken.pop()
    codes = roles.of(columns.labels)
    chosen = (codes != CODE["ignored"]).take(columns.label)
    chosen &= columns.ph == ord("X")
    for times in (columns.start_ns, columns.dur_ns):
        chosen &= times >= 0
        chosen &= times < LATEST_NS
    if mask is not None:
        chosen &= mask
    row = rows_of(chosen)
    del chosen
    start, length, role = columns.start_ns, columns.dur_ns, codes.take(columns.label.take(row))
    tid, ids = columns.tid, columns.id
    del columns
    ids = ids.take(row)
    tid = brief(values_at(tid, row))
    start = start.take(row)
    end = length.take(row)
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


class HeldSpans:
    """Spans in the order of time that come in pieces; of many each stretch is set aside."""

    def __init__(self, files: Sequence[EventNames], aside: SetAside) -> None:
        self._files = files
        self._aside = aside
        self._pieces: list[SpanColumns] = []
        self._rows = 0
        self._packed: _Packed | None = None

    def add(self, piece: SpanColumns) -> None:
        """Take in the next ones; they may be written to."""
        self._pieces.append(piece)
        self._rows += len(piece["row"])
        most = long_columns.ROWS_AT_ONCE
        while self._rows > (most if self._packed else MOST_PICKED_LOOSE * most):
            whole = _as_one(self._pieces)
            start = whole["start_ns"]
            # Those that begin together stay so.
            cut = int(np.searchsorted(start, start[most]))
            if cut:
                self._packed = self._packed or _Packed(self._aside)
                self._packed.add(_some(whole, slice(cut)))
            self._pieces = [_some(whole, slice(cut, None))]
            self._rows -= cut
            if not cut:
                break

    def put_in(self, late: SpanColumns) -> bool:
        """Put spans between those that are there, behind such as are the same; False for many."""
        packed, count = self._packed, len(late["row"])
        if packed is None or count > MOST_LATE * (len(packed.start_ns) + self._rows):
            return False
        self._pack_rest(packed)
        cuts = packed.start_ns.cuts
        begins = [*(int(packed.start_ns[cut]) for cut in cuts[1:-1]), FAR]
        bounds = [0, *np.searchsorted(late["start_ns"], begins).tolist()]
        changed = np.diff(bounds) > 0
        # What is put in place of others takes memory beside them.
        fresh = _Packed(self._aside) if changed.mean() > MOST_LATE else None
        for number, (first, last) in enumerate(pairwise(bounds)):
            if first < last:
                some = _some(late, slice(first, last))
                piece = _in_order(_as_one([packed.stretch(number), some]))
                if fresh is None:
                    packed.replace(number, piece)
                else:
                    fresh.add(piece)
            elif fresh is not None:
                fresh.add(packed.stretch(number))
        self._packed = fresh or packed
        return True

    def _pack_rest(self, packed: _Packed) -> None:
        rest = _as_one(self._pieces)
        if len(rest["row"]):
            packed.add(rest)
        self._pieces, self._rows = [_some(rest, slice(0))], 0

    def spans(self) -> Spans:
        """Return all of them."""
        if self._packed is None:
            return Spans(**_as_one(self._pieces), columns=self._files)
        self._pack_rest(self._packed)
        return Spans(**self._packed.columns(), columns=self._files)


class _Packed:
    """Columns of spans in stretches."""

    def __init__(self, aside: SetAside) -> None:
        self.start_ns = LongColumn("behind", aside=aside)
        self._length = LongColumn(aside=aside)
        self._others = {
            "id": LongColumn("beside", np.uint64, aside),
            "row": LongColumn("beside", aside=aside),
            "tid": LongColumn(aside=aside),
            "place": LongColumn(aside=aside),
        }
        # A byte for each, which is asked for most.
        self._role: list[Integers] = []

    def add(self, piece: SpanColumns) -> None:
        """Take in a stretch."""
        self.start_ns.add(piece["start_ns"])
        self._length.add(piece["end_ns"] - piece["start_ns"])
        for name, column in self._others.items():
            column.add(piece[name])
        self._role.append(piece["role"].copy())

    def replace(self, number: int, piece: SpanColumns) -> None:
        """Put other spans in place of a stretch."""
        self.start_ns.replace(number, piece["start_ns"])
        self._length.replace(number, piece["end_ns"] - piece["start_ns"])
        for name, column in self._others.items():
            column.replace(number, piece[name])
        self._role[number] = piece["role"].copy()

    def stretch(self, number: int) -> SpanColumns:
        """Return the spans of a stretch."""
        here = slice(*self.start_ns.cuts[number : number + 2])
        piece = {name: column[here] for name, column in self._others.items()}
        start = self.start_ns[here]
        own = {"start_ns": start, "end_ns": start + self._length[here], "role": self._role[number]}
        return own | piece

    def columns(self) -> SpanColumns:
        """Return all of them as columns of `Spans`."""
        others = {name: column.brief() for name, column in self._others.items()}
        end = cast("Integers", SumColumn(self.start_ns, self._length))
        role = np.concatenate(self._role)
        return {"start_ns": cast("Integers", self.start_ns), "end_ns": end, "role": role} | others


class OrderedSpans:
    """Puts spans into the order of time that come about in that of their ends.

    Args:
        files: how the events of each file are called; may be known when all spans are there.
        count: how many files there are at the most.
        aside: where the columns of many go.
    """

    def __init__(self, files: Sequence[EventNames], count: int, aside: SetAside) -> None:
        self._files = files
        self._kind = np.min_scalar_type(count)
        self._first: list[SpanColumns] = []
        self._rows = 0
        # Of many those that others may begin before, what went on into the order, and those that
        # come when later ones are there: such as are around many.
        self._open: SpanColumns | None = None
        self._held, self._aside = HeldSpans(files, aside), aside
        self._last_ns = -1
        self._late: list[SpanColumns] = []

    def add(self, piece: SpanColumns, place: int, first: int = 0) -> None:
        """Take in the next ones: of which file, and which of its rows is their first; they go."""
        most = long_columns.ROWS_AT_ONCE
        piece["place"] = np.broadcast_to(self._kind.type(place), len(piece["row"]))
        if first:
            piece["row"] = piece["row"] + np.int64(first)
        self._rows += len(piece["row"])
        self._first.append(piece)
        if self._rows <= MOST_LOOSE * most:
            return
        if self._open is None:
            self._open = _some(piece, slice(0))
        while self._first:
            some = self._first.pop(0)
            for begin in range(0, len(some["row"]), most):
                self._sort(self._open, _some(some, slice(begin, begin + most)))

    def _sort(self, open_ones: SpanColumns, piece: SpanColumns) -> None:
        late = piece["start_ns"] <= self._last_ns
        if late.any():
            self._late.append(_some(piece, late))
            piece = _some(piece, ~late)
        before = open_ones["start_ns"]
        whole = _in_order(_as_one([dict(open_ones), piece]))
        # What comes next may begin before the last of these.
        cut = int(np.searchsorted(whole["start_ns"], before[-1])) if len(before) else 0
        self._give(_some(whole, slice(cut)))
        self._open = _some(whole, slice(cut, None))

    def _give(self, piece: SpanColumns) -> None:
        if len(piece["row"]):
            self._last_ns = int(piece["start_ns"][-1])
            self._held.add(piece)

    def spans(self) -> Spans:
        """Return all of them."""
        if self._open is None:
            return Spans(**_in_order(_as_one(self._first)), columns=self._files)
        self._give(self._open)
        late = _in_order(_as_one(self._late)) if self._late else None
        if late is None or self._held.put_in(late):
            return self._held.spans()
        found = self._held.spans()._columns_of(slice(None))
        whole, self._held = _in_order(_as_one([found, late])), HeldSpans(self._files, self._aside)
        for first in range(0, len(whole["row"]), long_columns.ROWS_AT_ONCE):
            self._held.add(_some(whole, slice(first, first + long_columns.ROWS_AT_ONCE)))
        return self._held.spans()


def _some(piece: SpanColumns, which: Integers | slice) -> SpanColumns:
    return {name: values_at(values, which) for name, values in piece.items()}


def _as_one(pieces: list[SpanColumns]) -> SpanColumns:
    """Return pieces as one; of several each column goes before the next is put together."""
    if len(pieces) == 1:
        return pieces[0]
    return {name: _joined([piece.pop(name) for piece in pieces]) for name in list(pieces[0])}


def _in_order(piece: SpanColumns) -> SpanColumns:
    """Return spans in the order of time; each column goes before the next is put in order."""
    order = _time_order(piece["start_ns"], piece["end_ns"], piece["id"])
    return {name: values_at(piece.pop(name), order) for name in list(piece)}


def _joined(pieces: list[Integers]) -> Integers:
    some = [piece for piece in pieces if len(piece)]
    same = {int(piece[0]) if piece.strides == (0,) else None for piece in some}
    if len(same) == 1 and None not in same:
        return np.broadcast_to(some[0].dtype.type(*same), sum(map(len, some)))
    return column_of(some or pieces)


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

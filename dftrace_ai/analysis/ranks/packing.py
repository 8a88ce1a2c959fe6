"""What ranks did, in few bytes: chunks of steps packed one behind the other, read when asked for.

Of a job with a thousand ranks the steps do not fit into memory. So those with some numbers are read
of all ranks at once, as tables, and let go of then. A chunk is four pieces, one a kind of row, in
such an order that what is wanted together lies together.
"""

from __future__ import annotations

import os
import tempfile
import threading
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from dftrace_ai import system
from dftrace_ai._reader import pack_rows, unpack_rows
from dftrace_ai.analysis.ranks.ordering import rows_from, some_of
from dftrace_ai.analysis.ranks.partials import (
    STEPS_OF_CHUNK,
    UNTIL,
    UNTOLD,
    CallRows,
    CutSteps,
    SilenceRows,
    SpanRows,
    StepRows,
    StepsChunk,
    shared_group,
)
from dftrace_ai.analysis.reading.clock_faults import LATEST_NS
from dftrace_ai.analysis.reading.set_aside import ColumnAside
from dftrace_ai.analysis.reading.unnamed_file import UnnamedFile, read_at
from dftrace_ai.analysis.steps.calls import LATE_NS, LATE_SHARE
from dftrace_ai.errors import TraceError
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from dftrace_ai.analysis.ranks.partials import RankPartial
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.reading.set_aside import SetAside

THREADS: Final = min(8, os.cpu_count() or 1)
FEWEST_IN_THREADS: Final = 32
MOST_IN_MEMORY: Final = 8 * 1024 * 1024

Kind = Literal["spans", "steps", "calls", "silences"]
"""What rows are of: a field of `StepsChunk`."""
# As they lie in a chunk. Steps go with either of their neighbours, and with nothing.
KINDS: Final[tuple[Kind, ...]] = ("spans", "steps", "calls", "silences")
ROWS: Final = (SpanRows, StepRows, CallRows, SilenceRows)
STEPS, CALLS, SILENCES = range(1, len(KINDS))

# What is told of a packed chunk: its place, and of each kind rows, bytes and a checksum.
TOLD_OF_CHUNK: Final = 1 + 3 * len(KINDS)
_ROWS, _BYTES, _CHECKS = (slice(1 + at * len(KINDS), 1 + (at + 1) * len(KINDS)) for at in range(3))

Rows = TypeVar("Rows", StepRows, SpanRows, SilenceRows, CallRows)


@dataclass(frozen=True, repr=False)
class Table(Generic[Rows]):
    """Rows of one kind of all ranks, those of a rank side by side."""

    rows: Rows
    edges: Integers  # where those of each rank begin; the last is behind all

    def of(self, rank: int) -> Rows:
        """Return those of a rank."""
        part = slice(int(self.edges[rank]), int(self.edges[rank + 1]))
        return type(self.rows)(*(column[part] for column in self.rows))

    def between(self, low: Integers, high: Integers) -> Table[Rows]:
        """Return of each rank some rows that follow each other."""
        counts = high - low
        if counts.sum() == self.edges[-1]:
            return self
        rows = rows_from(low, counts)
        return Table(type(self.rows)(*(some_of(one, rows) for one in self.rows)), _edges(counts))

    @property
    def counts(self) -> Integers:
        """How many each rank has."""
        counts: Integers = np.diff(self.edges)
        return counts


class TableAside(NamedTuple, Generic[Rows]):
    """A table whose columns are set aside."""

    kind: type[Rows]
    columns: tuple[ColumnAside, ...]
    edges: Integers

    @classmethod
    def of(cls, table: Table[Rows], aside: SetAside) -> TableAside[Rows]:
        """Set a table aside."""
        columns = tuple(ColumnAside.of(column, aside) for column in table.rows)
        return cls(type(table.rows), columns, table.edges)

    @property
    def table(self) -> Table[Rows]:
        """The table, read now; it may not be written to."""
        return Table(self.kind(*(column.values for column in self.columns)), self.edges)


class Tables(NamedTuple):
    """What ranks did in steps of some numbers; a kind that was not asked for has no rows."""

    spans: Table[SpanRows]
    steps: Table[StepRows]
    calls: Table[CallRows]
    silences: Table[SilenceRows]

    def chunk(self, rank: int) -> StepsChunk:
        """Return what one of them did."""
        return StepsChunk(*(getattr(self, kind).of(rank) for kind in StepsChunk._fields))


def tables_of(
    ranks: Sequence[Mapping[int, StepsChunk]], number: int, kinds: Collection[Kind] = KINDS
) -> Tables:
    """Return what ranks did in the chunk of a number, which all of them have."""
    packed_ones = [one for one in ranks if isinstance(one, PackedChunks)]
    if len(packed_ones) == len(ranks):
        return _Unpacking(packed_ones, number, kinds).tables()
    chunks = [one[number] for one in ranks]
    tables = ([getattr(one, kind) for one in chunks] for kind in KINDS)
    return Tables(
        *(_together(rows, wanted=kind in kinds) for kind, rows in zip(KINDS, tables, strict=True))
    )


def calls_in(chunks: Mapping[int, StepsChunk], number: int) -> int:
    """Return how many calls are in the chunk of a number."""
    if isinstance(chunks, PackedChunks):
        return int(chunks.told_of(number)[_ROWS][CALLS])
    return len(chunks[number].calls.name)


def one_table(parts: Sequence[Table[Rows]]) -> Table[Rows]:
    """Return the table of ranks of which there are several."""
    if len(parts) == 1:
        return parts[0]
    rows = type(parts[0].rows)(*map(_one_column, zip(*(part.rows for part in parts), strict=True)))
    return Table(rows, _edges(np.concatenate([part.counts for part in parts])))


def _one_column(parts: Sequence[Integers]) -> Integers:
    """Return columns as one, of which the numbers may be one all over."""
    there = [one for one in parts if len(one)]
    if there and all(one.strides == (0,) and one[0] == there[0][0] for one in there):
        return np.broadcast_to(there[0][0], sum(map(len, there)))
    return np.concatenate(parts)


def _together(parts: Sequence[Rows], *, wanted: bool) -> Table[Rows]:
    if not wanted:
        none = type(parts[0])(*(column[:0] for column in parts[0]))
        return Table(none, np.zeros(len(parts) + 1, np.int64))
    rows = type(parts[0])(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    return Table(rows, _edges(np.array([len(part[0]) for part in parts])))


def _edges(counts: Integers) -> Integers:
    return np.concatenate([[0], np.cumsum(counts)])


class Source(Protocol):
    """Where packed chunks are."""

    def read(self, place: int, size: int) -> bytes:
        """Return some bytes."""


class InMemory(NamedTuple):
    """Chunks one behind the other."""

    content: bytes

    def read(self, place: int, size: int) -> bytes:
        """Return some bytes."""
        return self.content[place : place + size]


class Beside(NamedTuple):
    """A file beside a trace."""

    path: str

    def read(self, place: int, size: int) -> bytes:
        """Return some bytes."""
        # A hundred thousand times where there are a thousand ranks.
        try:
            file = os.open(self.path, system.TO_READ | system.O_NOFOLLOW)
            try:
                return system.read_at(file, size, place)
            finally:
                os.close(file)
        except OSError as error:
            raise TraceError(f"{self.path}: cannot be read: {error.strerror}") from error


@dataclass(frozen=True, repr=False)
class PackedChunks(Mapping[int, StepsChunk]):
    """Chunks that are unpacked each time when they are asked for."""

    source: Source
    numbers: tuple[int, ...]
    told: Integers  # what is told of each, see `TOLD_OF_CHUNK`
    names: int  # how many its rank has
    groups: int

    @cached_property
    def _at(self) -> dict[int, int]:
        return {number: at for at, number in enumerate(self.numbers)}

    def __getitem__(self, number: int) -> StepsChunk:
        return tables_of([self], number).chunk(0)

    def told_of(self, number: int) -> Integers:
        """Return what is told of a chunk."""
        told: Integers = self.told[self._at[number]]
        return told

    @property
    def end(self) -> int:
        """Behind the last piece."""
        return int((self.told[:, 0] + self.told[:, _BYTES].sum(1)).max(initial=0))

    @property
    def rows(self) -> int:
        """How many rows there are in all of them."""
        return sum(self.told[:, _ROWS].ravel().tolist())

    @property
    def calls(self) -> int:
        """How many calls there are in all of them."""
        return int(self.told[:, _ROWS][:, CALLS].sum())

    @property
    def called(self) -> str:
        """What they are in, as people know it."""
        return str(getattr(self.source, "path", "what was read of a rank"))

    def __contains__(self, number: object) -> bool:
        return number in self._at

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)


class Inherited(NamedTuple):
    """A file of the process that has begun this one."""

    number: int

    def read(self, place: int, size: int) -> bytes:
        """Return some bytes."""
        return read_at(self.number, place, size)


class Spill:
    """What is not kept beside traces: in memory, beyond some of it in a file without a name."""

    def __init__(self) -> None:
        self._in_memory = 0
        self._file: UnnamedFile | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        """Go to a process that has `file` of this one."""
        return Inherited, (self.file,)

    @property
    def file(self) -> int | None:
        """The descriptor of the file, where there is one."""
        return self._file.number if self._file else None

    def packed(self, partial: RankPartial) -> RankPartial:
        """Return a rank whose chunks are packed, and lie here."""
        chunks = partial.chunks
        if not isinstance(chunks, PackedChunks):
            chunks = pack(partial)[1]
        source = chunks.source
        taken = self.taken(source.content, chunks) if isinstance(source, InMemory) else chunks
        return replace(partial, groups=tuple(map(shared_group, partial.groups)), chunks=taken)

    def taken(self, content: bytes, chunks: PackedChunks) -> PackedChunks:
        """Return chunks that lie in some bytes, which are kept from now on."""
        with self._lock:
            if self._in_memory + len(content) <= MOST_IN_MEMORY:
                self._in_memory += len(content)
                return replace(chunks, source=InMemory(content))
            told = chunks.told.copy()
            told[:, 0] += self._add(content)
        return replace(chunks, source=self, told=told)

    def _add(self, content: bytes) -> int:
        try:
            self._file = self._file or UnnamedFile("dftrace-ranks-")
            return self._file.add(content)
        except OSError as error:
            place = quoted(tempfile.gettempdir())
            raise TraceError(f"{place}: cannot be written: {error.strerror}") from error

    def read(self, place: int, size: int) -> bytes:
        """Return some bytes."""
        return self._file.read(place, size) if self._file else b""


def packed(partial: RankPartial, *, calls: bool = True) -> RankPartial:
    """Return a rank whose chunks are packed in memory, with its calls and silences or without."""
    return replace(partial, chunks=pack(partial, calls=calls)[1])


def pack(partial: RankPartial, *, calls: bool = True) -> tuple[list[bytes], PackedChunks]:
    """Return packed chunks, and what is told of them where they lie one behind the other."""
    names, groups = len(partial.names), len(partial.groups)
    numbers, content = tuple(partial.chunks), list[bytes]()
    table = np.zeros((len(numbers), TOLD_OF_CHUNK), np.int64)
    if numbers:
        kinds = _packed(CutSteps.of(partial.chunks), calls=calls)
        for at, (pieces, counts) in enumerate(kinds):
            table[:, _ROWS][:, at] = counts
            table[:, _BYTES][:, at] = [*map(len, pieces)]
            table[:, _CHECKS][:, at] = [*map(zlib.crc32, pieces)]
        content = [one for pieces in zip(*(of[0] for of in kinds), strict=True) for one in pieces]
        table[1:, 0] = np.cumsum(table[:-1, _BYTES].sum(1))
    return content, PackedChunks(InMemory(b"".join(content)), numbers, table, names, groups)


def _packed(cut: CutSteps, *, calls: bool) -> list[tuple[list[bytes], Integers]]:
    """Return of each kind the pieces of chunks, and how many rows are in each."""
    found = []
    edges = dict(zip(StepsChunk._fields, cut.edges, strict=True))
    for kind, rows in zip(KINDS, _told(cut), strict=True):
        wanted = calls or kind in {"spans", "steps"}
        columns = rows if wanted else [column[:0] for column in rows]
        bounds = np.ascontiguousarray(edges[kind] if wanted else 0 * edges[kind], np.int64)
        whole = [np.ascontiguousarray(one, np.int64) for one in columns]
        found.append((pack_rows(whole, bounds), np.diff(bounds)))
    return found


def _told(cut: CutSteps) -> Iterator[Sequence[Integers]]:
    """Yield rows of which most columns are smaller numbers than those of chunks."""
    steps, spans, silences, calls = cut.rows
    _, _, of_silences, of_calls = cut.edges
    yield spans._replace(end_ns=spans.end_ns - spans.start_ns)
    length = steps.end_ns - steps.start_ns
    yield steps._replace(end_ns=length, time_ns=steps.time_ns - length)
    length = calls.end_ns - calls.start_ns
    yield calls._replace(end_ns=length, late_ns=calls.late_ns - _usual_lateness(length))
    call = silences.call + np.repeat(of_calls[:-1], np.diff(of_silences))
    yield silences._replace(end_ns=silences.end_ns - _usual_end(silences, calls, call))


def _usual_end(silences: SilenceRows, calls: CallRows, call: Integers) -> Integers:
    """Return where silences end as a rule: with the call that ended them, whose row is given."""
    if not len(calls.end_ns):
        return silences.start_ns
    return np.where(silences.call < 0, silences.start_ns, calls.end_ns[np.maximum(call, 0)])


def _usual_lateness(length_ns: Integers) -> Integers:
    return LATE_NS + length_ns // LATE_SHARE


_NONE: Final = np.zeros(0, np.int64)


class _Unpacking:
    """Unpacks a chunk of each rank, a kind after the other, and holds that they can be."""

    def __init__(self, ranks: Sequence[PackedChunks], number: int, kinds: Collection[Kind]) -> None:
        self._ranks, self._number = ranks, number
        told = np.stack([one.told_of(number) for one in ranks])
        wanted = np.array([kind in kinds for kind in KINDS])
        self._bytes, self._checks = told[:, _BYTES], told[:, _CHECKS]
        self._all_counts = told[:, _ROWS]
        self._counts = self._all_counts * wanted
        low, high = int(wanted.argmax()), len(KINDS) - int(wanted[::-1].argmax())
        begins = np.cumsum(self._bytes, axis=1) - self._bytes
        self._begins = begins - begins[:, low : low + 1]
        sizes = self._bytes[:, low:high].sum(1)
        places = told[:, 0] + begins[:, low]
        self._contents = tuple(
            one.source.read(place, size)
            for one, place, size in zip(ranks, places.tolist(), sizes.tolist(), strict=True)
        )
        short = np.array([len(content) for content in self._contents]) < sizes
        if short.any():
            raise self._damaged(int(short.argmax()))
        self._edges = [_edges(column) for column in self._counts.T]
        if not self._all_counts[:, STEPS].all():
            raise self._cannot_be(int(self._all_counts[:, STEPS].argmin()))

    def tables(self) -> Tables:
        """Return what was asked for."""
        spans, steps = SpanRows(*self._columns(0)), StepRows(*self._columns(1))
        calls, silences = CallRows(*self._columns(2)), SilenceRows(*self._columns(3))
        of_spans, of_steps, of_calls, of_silences = self._edges
        spans = spans._replace(end_ns=spans.start_ns + spans.end_ns)
        length = steps.end_ns
        steps = steps._replace(end_ns=steps.start_ns + length, time_ns=steps.time_ns + length)
        self._hold(steps.time_ns - steps.blocked_ns, of_steps)
        late = calls.late_ns + _usual_lateness(calls.end_ns)
        calls = calls._replace(end_ns=calls.start_ns + calls.end_ns, late_ns=late)
        call = silences.call + np.repeat(of_calls[:-1], np.diff(of_silences))
        silences = silences._replace(end_ns=silences.end_ns + _usual_end(silences, calls, call))
        self._hold(silences.end_ns - silences.start_ns, of_silences)
        return Tables(
            Table(spans, of_spans),
            Table(steps, of_steps),
            Table(calls, of_calls),
            Table(silences, of_silences),
        )

    def _columns(self, kind: int) -> list[Integers]:
        """Return the columns of a kind as they are packed."""
        names, counts, edges = ROWS[kind]._fields, self._counts[:, kind], self._edges[kind]
        if not edges[-1]:
            return [_NONE] * len(names)
        begins = self._begins[:, kind]
        forms = b"".join(
            content[begin : begin + len(names)]
            for content, begin in zip(self._contents, begins.tolist(), strict=True)
        )
        # One without differences is its first number.
        varies = np.frombuffer(forms, np.uint8).reshape(-1, len(names)).max(0).tolist()
        columns = tuple(np.empty(edges[-1], np.int64) if one else None for one in varies)
        pieces = np.stack(
            (begins, self._bytes[:, kind], self._checks[:, kind], counts, edges[:-1]), axis=1
        )
        bounds = np.zeros((len(counts), len(names), 4), np.int64)

        def unpack(part: slice) -> int:
            given = self._contents[part], pieces[part], columns, bounds[part]
            return int(part.start) + unpack_rows(*given)

        for part, whole in zip(self._parts, self._each(unpack), strict=True):
            if whole < part.stop:
                raise self._damaged(whole)
        self._check(kind, bounds)
        return [
            _of_each(bounds[:, at, 0], counts) if column is None else column
            for at, column in enumerate(columns)
        ]

    @property
    def _parts(self) -> list[slice]:
        count = len(self._ranks)
        parts = THREADS if count >= FEWEST_IN_THREADS else 1
        return [slice(count * at // parts, count * (at + 1) // parts) for at in range(parts)]

    def _each(self, unpack: Callable[[slice], int]) -> list[int]:
        if len(self._parts) == 1:
            return [*map(unpack, self._parts)]
        with ThreadPoolExecutor(THREADS) as pool:
            return [*pool.map(unpack, self._parts)]

    def _check(self, kind: int, bounds: Integers) -> None:
        """Hold what is not checked any more when it is calculated with."""
        names, groups = (
            np.array([getattr(one, what) for one in self._ranks]) for what in ("names", "groups")
        )
        first = self._number * STEPS_OF_CHUNK
        # By their names: the least that columns may hold, and what is more than they may.
        within: dict[str, tuple[int, Integers | int]] = {
            "number": (first, first + STEPS_OF_CHUNK),
            "step": (UNTOLD, self._all_counts[:, STEPS]),
            "call": (UNTOLD, self._all_counts[:, CALLS]),
            "name": (0, names),
            "group": (UNTOLD, groups),
            "until": (0, len(UNTIL)),
            "start_ns": (-LATEST_NS, LATEST_NS),
            **({} if kind == SILENCES else {"end_ns": (0, LATEST_NS)}),
        }
        rises = {"number": 1, "start_ns": 0}
        bad = np.zeros(len(names), bool)
        for at, name in enumerate(ROWS[kind]._fields):
            _, lowest, greatest, least_step = bounds[:, at].T
            if name in within:
                least, bound = within[name]
                bad |= (lowest < least) | (greatest >= bound)
            bad |= least_step < rises.get(name, np.iinfo(np.int64).min)
        bad &= self._counts[:, kind] > 0
        if bad.any():
            raise self._cannot_be(int(bad.argmax()))

    def _hold(self, lengths: Integers, edges: Integers) -> None:
        """Hold that no length is negative, or longer than times can be apart."""
        bad = np.flatnonzero((lengths < 0) | (lengths >= LATEST_NS))
        if len(bad):
            at = int(np.searchsorted(edges, bad[0], side="right")) - 1
            raise self._cannot_be(at)

    def _damaged(self, rank: int) -> TraceError:
        called = self._ranks[rank].called
        return TraceError(f"{called}: is damaged, or was changed while it was read")

    def _cannot_be(self, rank: int) -> TraceError:
        return TraceError(f"{self._ranks[rank].called}: says what cannot be")


def _of_each(numbers: Integers, counts: Integers) -> Integers:
    """Return a column of one number for each rank."""
    of_some = numbers[counts > 0]
    if (of_some == of_some[0]).all():
        return np.broadcast_to(of_some[0], int(counts.sum()))
    return np.repeat(numbers, counts)

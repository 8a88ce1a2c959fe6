"""The time of a thread cut into pieces, each of which belongs to one part of a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

import numpy as np

from dftrace_ai import _reader
from dftrace_ai.analysis.reading.clock_faults import LATEST_NS
from dftrace_ai.analysis.reading.set_aside import ColumnAside, SetAside
from dftrace_ai.analysis.steps.roles import CODE, DATA_WORK, NO_PART, ROLES
from dftrace_ai.analysis.steps.spans import (
    ROWS_AT_ONCE,
    places,
    rising,
    stretches,
    union,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps.roles import Role
    from dftrace_ai.analysis.steps.spans import Spans

Part = Literal[
    "wait", "data", "transfer", "forward", "backward", "optimizer", "compute", "comm", "checkpoint",
    "evaluation", "launch", "gpu", "other", "none",
]  # fmt: skip
"""Where the time of a step goes; `none` is time that is in no span."""

PARTS: Final[tuple[Part, ...]] = get_args(Part)

PART_CODE: Final[dict[Part, int]] = {part: number for number, part in enumerate(PARTS)}
# So many are taken at once; what is calculated with them takes a hundred bytes for each.
SPANS_AT_ONCE: Final = 65_536
PIECES_AT_ONCE: Final = 65_536

NO_CODE: Final = PART_CODE["none"]
OTHER_CODE: Final = PART_CODE["other"]

# What such a span encloses is its own, but for the parts that are named.
_ABSORBING: Final[dict[Part, frozenset[Part]]] = {
    "evaluation": frozenset(),
    "checkpoint": frozenset(),
    "comm": frozenset(),
    "transfer": frozenset(),
    "wait": frozenset({"transfer", "comm"}),
}

# The roles of these parts; no span of another changes what is theirs.
_ABSORBERS: Final[tuple[Role, ...]] = ("evaluation", "checkpoint", "comm", "transfer", "wait")

# They tell nothing that the span around them does not.
_WEAK: Final[frozenset[Role]] = frozenset({"compute", "launch", "garbage"})


def _part_of(role: Role) -> Part | None:
    if role in NO_PART or role.startswith("gpu_"):
        return None
    if role == "garbage":
        return "other"
    return "data" if role in DATA_WORK else role  # type: ignore[return-value]


def part_within(outer: Part, role: Role) -> Part:
    """Return to which part a span's time belongs, by the part of what encloses it."""
    part = _part_of(role)
    if part is None or (role in _WEAK and outer != "none"):
        return outer
    kept = _ABSORBING.get(outer)
    return part if kept is None or part in kept else outer


# By codes: WITHIN[outer, role].
WITHIN: Final = np.array(
    [[PART_CODE[part_within(outer, role)] for role in ROLES] for outer in PARTS], np.uint8
)
# As the native reader takes it.
PART_TABLE: Final = (WITHIN, len(ROLES), OTHER_CODE, CODE["other"])


@dataclass(frozen=True, repr=False)
class Timeline:
    """Pieces of time in order that do not overlap; between them no part has the time."""

    start_ns: Integers  # where each piece begins
    length_ns: Integers  # how long it is; in half of the memory than the times, as a rule
    part: Integers  # codes of `PART_CODE`
    span: Integers  # index of the span to which it belongs; -1 where it is another track's

    @classmethod
    def between(
        cls, start_ns: Integers, end_ns: Integers, part: Integers, span: Integers
    ) -> Timeline:
        """Return pieces by where each begins and ends."""
        length = end_ns - start_ns
        brief = length.max(initial=0) < 2**32
        return cls(start_ns, length.astype(np.uint32) if brief else length, part, span)

    @property
    def end_ns(self) -> Integers:
        """Where each piece ends."""
        return self.start_ns + self.length_ns

    def of(self, part: Part) -> tuple[Integers, Integers]:
        """Return the pieces of a part, as starts and ends."""
        chosen = self.part == PART_CODE[part]
        start = self.start_ns[chosen]
        return start, start + self.length_ns[chosen]

    def only(self, which: Integers | slice) -> Timeline:
        """Return some of the pieces, by a mask, by indices that rise, or in a row."""
        values = (self.start_ns, self.length_ns, self.part, self.span)
        return Timeline(*(column[which] for column in values))

    def overlaid(
        self, start_ns: Integers, end_ns: Integers, part: Part, *, below: Collection[Part] = ()
    ) -> Timeline:
        """Return the timeline in which a part has the time of intervals, whoever had it."""
        start, end = union(start_ns, end_ns)
        if not len(start):
            return self
        kept = np.array([one in below for one in PARTS])
        # Each piece ends before the next begins, where the time may be cut.
        cuts = [-1, *self.start_ns[PIECES_AT_ONCE::PIECES_AT_ONCE].tolist(), LATEST_NS]

        def laid() -> Iterator[Timeline]:
            for number, (low, high) in enumerate(pairwise(cuts)):
                pieces = self.only(slice(number * PIECES_AT_ONCE, (number + 1) * PIECES_AT_ONCE))
                here = slice(np.searchsorted(end, low, side="right"), np.searchsorted(start, high))
                begins, ends = np.maximum(start[here], low), np.minimum(end[here], high)
                yield pieces._overlaid(begins, ends, PART_CODE[part], kept)

        return joined(laid())

    def _overlaid(self, start: Integers, end: Integers, part: int, kept: Integers) -> Timeline:
        """As `overlaid`, of intervals in order that do not overlap."""
        if not len(start):
            return self
        cuts = rising(self.start_ns, self.end_ns, start, end)
        low, high = cuts[:-1], cuts[1:]
        before = _holder(low, self.start_ns, self.end_ns)
        over = _holder(low, start, end) >= 0
        held = before >= 0
        code = np.where(held, self.part[np.maximum(before, 0)] if len(self.part) else 0, NO_CODE)
        span = np.where(held, self.span[np.maximum(before, 0)] if len(self.span) else -1, -1)
        over &= ~kept[code]
        code, span = np.where(over, part, code), np.where(over, -1, span)
        some = held | over
        return Timeline.between(
            *(low[some], high[some]),
            *(code[some].astype(np.uint8), span[some].astype(self.span.dtype)),
        )

    def filled(self, start_ns: Integers, end_ns: Integers, part: Part) -> Timeline:
        """Return the timeline in which a part has that time of intervals that nobody had."""
        over = self.overlaid(start_ns, end_ns, part)
        own = _holder(over.start_ns, self.start_ns, self.end_ns)
        held = (own >= 0) & (over.span == -1)
        if not held.any():
            return over
        part_codes, span = over.part.copy(), over.span.copy()
        part_codes[held], span[held] = self.part[own[held]], self.span[own[held]]
        return replace(over, part=part_codes, span=span)


def _holder(at: Integers, start: Integers, end: Integers) -> Integers:
    """Return which of intervals that do not overlap holds each moment; -1 for none."""
    index = places(start, at, right=True) - 1
    inside = index >= 0
    if len(end):
        inside &= end[np.maximum(index, 0)] > at
    return np.where(inside, index, -1)


class Layer(NamedTuple):
    """Stretches of time in order that are a part's, whoever else has them on the thread."""

    start_ns: Integers  # where each begins
    end_ns: Integers  # where it ends
    part: Part  # whose they are
    below: tuple[Part, ...] = ()  # these keep what they have of it
    fills: bool = False  # of it only what nobody has


@dataclass(frozen=True, repr=False)
class ThreadLine:
    """The timeline of a thread, made anew of a stretch of its spans at a time.

    What it is made with takes several times the memory of its pieces, and so only that of a
    stretch.
    """

    spans: Spans  # those of the thread
    near_ns: int  # neighbours may overlap by so much
    layers: tuple[Layer, ...]  # what lies over them, each over those before it
    stretches: tuple[slice, ...]  # none reaches into another
    absorbers: bool  # those count alone that keep what is in them

    @classmethod
    def of(
        cls, spans: Spans, near_ns: int, layers: Iterable[Layer], *, absorbing: bool = False
    ) -> ThreadLine:
        """Return that of spans of a thread, with layers over them, each over those before it.

        Neighbours may overlap by `near_ns`. Where it is `absorbing`, only evaluation, checkpoint,
        communication and transfer are asked for, in which all that lies is theirs; what others have
        may be left out.
        """
        counts = _has_time(spans)
        # Whatever lies between or inside of these changes nothing of theirs.
        absorbers = absorbing and _nest(spans, counts, near_ns)
        if absorbers:
            counts &= spans.has(*_ABSORBERS)
        cut = stretches(spans, SPANS_AT_ONCE, counts)
        some = tuple(one for one in layers if len(one.start_ns))
        return cls(spans, near_ns, some, (*cut,), absorbers)

    def lines(self, low_ns: int = -1, high_ns: int = LATEST_NS) -> Iterator[Timeline]:
        """Yield the pieces of each stretch that lies in some time, or reaches into it."""
        begins = [-1, *(int(self.spans.start_ns[here.start]) for here in self.stretches[1:])]
        windows = zip(self.stretches, pairwise([*begins, LATEST_NS]), strict=True)
        for here, (low, high) in windows:
            if low < high_ns and high > low_ns:
                yield self._line(here, low, high)

    def _line(self, here: slice, low_ns: int, high_ns: int) -> Timeline:
        some = self.spans.at(here)
        counts = _has_time(some)
        if self.absorbers:
            counts &= some.has(*_ABSORBERS)
        line = _line_of(some, here.start, counts, self.near_ns)
        evaluated = line.of("evaluation")
        for layer in self.layers:
            first = np.searchsorted(layer.end_ns, low_ns, side="right")
            near = slice(first, np.searchsorted(layer.start_ns, high_ns))
            start = np.maximum(layer.start_ns[near], low_ns)
            end = np.minimum(layer.end_ns[near], high_ns)
            if layer.fills:
                line = line.filled(start, end, layer.part)
            else:
                line = line.overlaid(start, end, layer.part, below=layer.below)
        # What others do for an evaluation is its own, too.
        return line.overlaid(*evaluated, "evaluation")


def _line_of(spans: Spans, first: int, counts: Integers, near_ns: int) -> Timeline:
    """Return to which part each moment of spans belongs: that of the innermost one.

    `first` is the number of the first of them; `counts` a mask of those that may have time.
    """
    some = thread_columns(spans)
    start, end, part, span = _reader.thread_pieces(some, counts, PART_TABLE, near_ns)
    kind = np.int32 if first + len(spans) < 2**30 else np.int64
    return Timeline.between(
        *(np.frombuffer(start, np.int64), np.frombuffer(end, np.int64)),
        *(np.frombuffer(part, np.uint8), np.frombuffer(span, np.int32) + kind(first)),
    )


def thread_columns(spans: Spans) -> tuple[Integers, Integers, Integers]:
    """Return start, end and role of spans as the native reader takes them."""
    times = (np.ascontiguousarray(one, np.int64) for one in (spans.start_ns, spans.end_ns))
    return (*times, np.ascontiguousarray(spans.role))  # type: ignore[return-value]


def _has_time(spans: Spans) -> Integers:
    """Return which spans may have time of their own."""
    holds = np.array([role in NO_PART for role in ROLES])
    has: Integers = ~holds[spans.role]
    for first in range(0, len(spans), ROWS_AT_ONCE):
        here = slice(first, first + ROWS_AT_ONCE)
        has[here] &= spans.end_ns[here] > spans.start_ns[here]
    return has


def _nest(spans: Spans, which: Integers, near_ns: int) -> bool:
    """Return whether no span of a mask cuts another, or ends as good as where it begins."""
    starts = np.ascontiguousarray(spans.start_ns[which], np.int64)
    ends = np.ascontiguousarray(spans.end_ns[which], np.int64)
    return _reader.nest(starts, ends, near_ns)


def joined(lines: Iterable[Timeline]) -> Timeline:
    """Return timelines that follow each other as one; none is held while the next is made."""
    columns = [_Column(kind) for kind in (np.int64, np.uint32, np.uint8, np.int32)]
    for line in lines:
        pieces = (line.start_ns, line.length_ns, line.part, line.span)
        for column, more in zip(columns, pieces, strict=True):
            column.add(more)
    return Timeline(*(column.whole() for column in columns))


class _Column:
    """Values that come in pieces; as they grow their memory is moved, and not there twice."""

    def __init__(self, kind: type[np.integer[Any]]) -> None:
        self._values: Integers = np.empty(0, kind)
        self._count = 0

    def add(self, piece: Integers) -> None:
        if not np.can_cast(piece.dtype, self._values.dtype):
            self._values = self._values.astype(piece.dtype)
        count = self._count + len(piece)
        if count > len(self._values):
            self._values.resize(count + count // 4, refcheck=False)
        self._values[self._count : count] = piece
        self._count = count

    def whole(self) -> Integers:
        self._values.resize(self._count, refcheck=False)
        return self._values


class PartTimes(Mapping["Part", "Integers"]):
    """What each part has of each step, nanoseconds: set aside, in half of the bytes."""

    def __init__(self, times: Mapping[Part, Integers]) -> None:
        aside = SetAside()
        self._held = {part: ColumnAside.of(values, aside) for part, values in times.items()}

    def __getitem__(self, part: Part) -> Integers:
        held = self._held[part].values
        return held if held.strides == (0,) else held.astype(np.int64)

    def __iter__(self) -> Iterator[Part]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


def covered_within(
    start_ns: Integers, end_ns: Integers, low_ns: Integers, high_ns: Integers
) -> Integers:
    """Return how much of intervals that are in order lies in each window, nanoseconds."""
    columns = (start_ns, end_ns, low_ns, high_ns)
    start, end, low, high = (np.ascontiguousarray(one, np.int64) for one in columns)
    return np.frombuffer(_reader.covered((start, end), low, high), np.int64)

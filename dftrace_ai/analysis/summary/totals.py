"""What lines of traces add up to: the interface of the native reader, and the same without it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from dftrace_ai.analysis.reading.indexed.clocks import NEVER, SetBack
from dftrace_ai.analysis.reading.indexed.reach import NOWHERE, Reach
from dftrace_ai.analysis.reading.reader import FRAMING
from dftrace_ai.analysis.reading.scanning.plain_lines import event_of, length_ns, moment_ns, whole
from dftrace_ai.trace_format.header_and_footer import CUSTOM_METADATA
from dftrace_ai.trace_format.names_and_phases import loop_part

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MOST_EXACT", "PlainTotals", "Totals", "Wall"]

SpanFigures = tuple[str, str, int, int, "int | None", int, int, float, float, float, "int | None"]
"""Category, name, count, total, self, least, greatest, p50, p95, p99, wall time; times in ns.

Self and wall time are None where they are not known."""

CategoryFigures = tuple[
    str, bool, int, int, "int | None", int, int, float, float, float, "int | None"
]
"""As those of spans, of all of a category; in place of the name whether of the bodies of loops."""

OtherFigures = tuple[str, str, str, int]
"""Phase, category, name, count."""

KnownSpans = tuple[str, str, int, int, int, int, int, bool, list[int]]
KnownTrack = tuple[int, int, int, int, list[int]]
KnownFigures = tuple[int, list[KnownSpans], list[OtherFigures], list[KnownTrack], int, int]

# So many durations of a name are kept as they are; those of more are counted by their first
# seven bits.
MOST_EXACT: Final = 128
MANTISSA_BITS: Final = 6


class Totals(Protocol):
    """Figures of traces by phase, category and name; the native reader has a class of this form."""

    @property
    def lines(self) -> int:
        """Lines that were read, those that are read once more as well."""

    @property
    def events(self) -> int:
        """Lines that are events."""

    @property
    def unreadable(self) -> int:
        """Lines without an event, and spans without a duration."""

    def read_blocks(self, descriptor: int, codec: str, start: int, end: int, /) -> tuple[int, int]:
        """Add what can be read quickly of a compressed file.

        Returns:
            How many bytes of the file that was, and of its plain text.
        """

    def add_lines(self, text: bytes, /) -> None:
        """Add lines, each with its line break."""

    def add_known(
        self,
        lines: int,
        spans: list[KnownSpans],
        others: list[OtherFigures],
        tracks: list[KnownTrack],
        without_duration: int = 0,
        unreadable: int = 0,
        /,
    ) -> bool:
        """Add what an index line says of the lines before it in place of these.

        The arguments are those of `IndexFigures`. What was read of the process before is what
        was read when the line was written.

        Returns:
            False, and nothing is added, where the figures cannot be.
        """

    def known(self) -> KnownFigures | None:
        """Return all that was read as `add_known` takes it; None where it cannot be told."""

    def end_process(self) -> bool:
        """Tell that the files of a process have been read, in their order.

        Returns:
            True where they are to be read once more, since their spans are in disorder.
        """

    def add_wall(self, ns: int | None, /) -> None:
        """Tell how long the process went that has ended; None where that is not known.

        It counts for the names of which the process has spans.
        """

    def clock(self) -> tuple[int, int]:
        """Return how the clock was set back by which the process that has ended was recorded.

        Returns:
            By how many ns at most, and how often.
        """

    def take_reach(self) -> tuple[int, int] | None:
        """Return from when to when, ns as lines have them, what was read since the last call is.

        None where that was no event with a time.
        """

    def spans(self, most: int, /) -> tuple[list[SpanFigures], int]:
        """Return the finished spans with the greatest totals, and how many there are in all."""

    def categories(self, most: int, /) -> tuple[list[CategoryFigures], int]:
        """Return the categories with the greatest totals, and how many there are in all."""

    def others(self, most: int, /) -> tuple[list[OtherFigures], int]:
        """Return other events, and how many rows there are in all."""


@dataclass
class Wall:
    """How long the processes went that have some spans."""

    ns: int = 0
    known: bool = True

    def add(self, ns: int | None) -> None:
        """Add that of a process; None where it is not known."""
        self.ns += ns or 0
        self.known = self.known and ns is not None

    @property
    def told_ns(self) -> int | None:
        """All of it; None where it is not known of one of them."""
        return self.ns if self.known else None


@dataclass
class _Spans:
    """The finished spans of one category and name."""

    durations_ns: list[int] = field(default_factory=list)
    covered_ns: int = 0
    # Spans of the processes whose wall time has been added.
    counted: int = 0
    wall: Wall = field(default_factory=Wall)

    def figures(self, cat: str, name: str) -> SpanFigures:
        return cat, name, *self._told()

    def of_category(self, cat: str, *, bodies: bool) -> CategoryFigures:
        return cat, bodies, *self._told()

    def _told(
        self,
    ) -> tuple[int, int, int, int, int, float, float, float, int | None]:
        times = sorted(self.durations_ns)
        total = sum(times)
        quantiles = [_quantile(times, share) for share in (0.5, 0.95, 0.99)]
        p50, p95, p99 = quantiles
        own = total - self.covered_ns
        return len(times), total, own, times[0], times[-1], p50, p95, p99, self.wall.told_ns


class PlainTotals:
    """`Totals` in Python: for machines on which the native reader was not built.

    It gives the same figures, some thirty times slower, and holds every duration.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.events = 0
        self.unreadable = 0
        self._spans: defaultdict[tuple[str, str], _Spans] = defaultdict(_Spans)
        self._category_walls: defaultdict[tuple[str, bool], Wall] = defaultdict(Wall)
        self._others: Counter[tuple[str, str, str]] = Counter()
        # Of the process that is read: spans by track, as start, duration and figures.
        self._tracks: defaultdict[tuple[int, int], list[tuple[int, int, _Spans]]]
        self._tracks = defaultdict(list)
        self._reach = NOWHERE
        self._clock = NEVER

    def read_blocks(self, descriptor: int, codec: str, start: int, end: int, /) -> tuple[int, int]:
        """Read nothing: all is left to the general way."""
        return 0, 0

    def add_lines(self, text: bytes, /) -> None:
        """Add lines, each with its line break."""
        for line in text.split(b"\n")[:-1]:
            self._add(line.strip(b" \t\r"))
            self.lines += 1

    def _add(self, line: bytes) -> None:
        if line in FRAMING:
            return
        event = event_of(line.removesuffix(b",").strip(b" \t\r"))
        if event is None:
            self.unreadable += 1
            return
        ph, name, cat = event["ph"], event["name"], event.get("cat")
        cat = cat if isinstance(cat, str) else ""
        if ph == "M" and name != CUSTOM_METADATA:
            return  # names of tracks, header, hashes, footer
        self.events += 1
        start = moment_ns(event.get("ts"))
        duration = length_ns(event.get("dur")) if ph == "X" else 0
        if start is not None and ph != "M":
            self._reach = Reach(
                min(self._reach.first_ns, start),
                max(self._reach.last_ns, start + max(duration or 0, 0)),
            )
        if ph != "X":
            self._others[ph, cat, name] += 1
            return
        if duration is None or duration < 0:
            self.unreadable += 1
            return
        spans = self._spans[cat, name]
        spans.durations_ns.append(duration)
        if start is not None:
            track = whole(event.get("pid")), whole(event.get("tid"))
            self._tracks[track].append((start, duration, spans))

    def add_known(
        self,
        lines: int,
        spans: list[KnownSpans],
        others: list[OtherFigures],
        tracks: list[KnownTrack],
        without_duration: int = 0,
        unreadable: int = 0,
        /,
    ) -> bool:
        """Add nothing: every duration is held here, and an index has not got them."""
        return False

    def known(self) -> KnownFigures | None:
        """Return nothing: an index is the native reader's."""
        return None

    def end_process(self) -> bool:
        """Find out which spans lie inside of which."""
        self._clock = _set_back(self._tracks.values())
        for spans in self._tracks.values():
            _add_covered_time(spans)
        self._tracks.clear()
        return False

    def add_wall(self, ns: int | None, /) -> None:
        """Tell how long the process went that has ended."""
        categories = set()
        for (cat, name), spans in self._spans.items():
            if len(spans.durations_ns) > spans.counted:
                spans.counted = len(spans.durations_ns)
                spans.wall.add(ns)
                categories.add((cat, loop_part(name) == "body"))
        for key in categories:
            self._category_walls[key].add(ns)

    def clock(self) -> tuple[int, int]:
        """Return how the clock was set back by which the process was recorded."""
        return self._clock

    def take_reach(self) -> tuple[int, int] | None:
        """Return from when to when what was read since the last call is."""
        reach, self._reach = self._reach, NOWHERE
        return None if reach == NOWHERE else reach

    def spans(self, most: int, /) -> tuple[list[SpanFigures], int]:
        """Return the finished spans with the greatest totals, and how many there are in all."""
        rows = [spans.figures(*key) for key, spans in self._spans.items()]
        rows.sort(key=lambda row: (-row[3], -row[2], row[0].encode(), row[1].encode()))
        return rows[:most], len(rows)

    def categories(self, most: int, /) -> tuple[list[CategoryFigures], int]:
        """Return the categories with the greatest totals, and how many there are in all."""
        merged: defaultdict[tuple[str, bool], _Spans] = defaultdict(_Spans)
        for (cat, name), spans in self._spans.items():
            key = cat, loop_part(name) == "body"
            merged[key].durations_ns += spans.durations_ns
            merged[key].covered_ns += spans.covered_ns
            merged[key].wall = self._category_walls[key]
        rows = [spans.of_category(cat, bodies=bodies) for (cat, bodies), spans in merged.items()]
        rows.sort(key=lambda row: (-row[3], row[0].encode(), row[1]))
        return rows[:most], len(rows)

    def others(self, most: int, /) -> tuple[list[OtherFigures], int]:
        """Return other events, and how many rows there are in all."""
        rows = [(*key, count) for key, count in self._others.items()]
        return rows[:most], len(rows)


def _set_back(tracks: Iterable[list[tuple[int, int, _Spans]]]) -> SetBack:
    try:
        from dftrace_ai.analysis.reading.indexed.set_back import set_back
    except ImportError:
        return NEVER  # NumPy is not there
    return set_back([(start, length) for start, length, _ in spans] for spans in tracks)


def _add_covered_time(spans: list[tuple[int, int, _Spans]]) -> None:
    """Add to the figures of each span what the spans take that lie directly inside of it.

    A span comes behind those inside of it when all are sorted by their ends.
    """
    spans = [span for span in spans if span[1] > 0]
    spans.sort(key=lambda span: (span[0] + span[1], -span[0]))
    before: list[tuple[int, int]] = []  # start and end of what no span has enclosed yet
    for start, duration, figures in spans:
        free_until = start + duration
        while before and before[-1][0] >= start:
            inner, end = before.pop()
            # Where spans overlap, the later one lies over the earlier.
            figures.covered_ns += min(end, free_until) - inner
            free_until = min(free_until, inner)
        before.append((start, start + duration))


def _quantile(times: list[int], share: float) -> float:
    """Interpolate between the two that are nearest to the share, as numpy does."""
    place = share * (len(times) - 1)
    below = int(place)
    above = min(below + 1, len(times) - 1)
    low, high = _coarse(times, below), _coarse(times, above)
    return low + (high - low) * (place - below)


def _coarse(times: list[int], rank: int) -> float:
    """Return the time of a rank as the native reader knows it, where there are many."""
    if len(times) <= MOST_EXACT or rank in (0, len(times) - 1):
        return float(times[rank])
    octave = max(times[rank].bit_length() - 1 - MANTISSA_BITS, 0)
    if octave == 0:
        return float(times[rank])
    width = float(1 << octave)
    low = float(times[rank] >> octave << octave)
    middle = 2 * low * (low + width) / (2 * low + width)
    return min(max(middle, float(times[0])), float(times[-1]))

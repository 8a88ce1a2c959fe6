"""From when to when events reach: by the heads of blocks, where they say it, or by lines."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from dftrace_ai import _reader
from dftrace_ai.analysis.reading.reader import LongLine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import Codec

Hops: TypeAlias = (
    "tuple[int, int, int, int, int, list[tuple[int, int]] | None, tuple[int, int, int, int] | None]"
)

# What is read in a tenth of a second: behind the last head, or of a file without any.
LITTLE_BYTES: Final = 8 * 1024 * 1024
MOST_BYTES: Final = 1024 * 1024 * 1024

# The year 2000: whoever counts from the start of a machine or program says no date.
EARLIEST_NS: Final = 946_684_800_000_000_000


class Reach(NamedTuple):
    """From the first start of events to their last end, nanoseconds; the first greater for none."""

    first_ns: int
    last_ns: int

    @property
    def length_ns(self) -> int | None:
        """From the first to the last; None where there are no events."""
        return self.last_ns - self.first_ns if self.first_ns <= self.last_ns else None

    @property
    def began_ns(self) -> int | None:
        """The first, if it is a date."""
        return self.first_ns if EARLIEST_NS <= self.first_ns <= self.last_ns else None

    def since_1970(self, trace: Trace) -> Reach:
        """Return it on the clock of all files, as that of lines of a trace."""
        base_ns = ((trace.header and trace.header.time_base_us) or 0) * 1000
        return Reach(self.first_ns + base_ns, self.last_ns + base_ns) if self != NOWHERE else self


NOWHERE: Final = Reach(2**63 - 1, -(2**63))


def joined(reaches: Iterable[Reach | None]) -> Reach | None:
    """Return from when to when all reach; None where it is not known of one of them."""
    first, last = NOWHERE
    for reach in reaches:
        if reach is None:
            return None
        first, last = min(first, reach.first_ns), max(last, reach.last_ns)
    return Reach(first, last)


def reach_of(hops: Hops, descriptor: int, codec: Codec) -> Reach | None:
    """Return from when to when the events of blocks are, as their lines have it.

    Blocks in which a span has no end do not tell, and are read: None where these are too many.
    """
    *_, first_ns, last_ns, untold, _ = hops
    if untold is None:
        return None
    totals = _reader.Totals(1, MOST_BYTES)
    for place, packed_bytes in untold:
        totals.read_blocks(descriptor, codec, place, place + packed_bytes)
    read = Reach(*(totals.take_reach() or NOWHERE))
    return joined([Reach(first_ns, last_ns), read])


def reach_of_lines(texts: Iterable[bytes]) -> Reach:
    """Return from when to when the events of lines are, as these have it."""
    pieces = (text for text in texts if not isinstance(text, LongLine))
    totals = _reader.Totals(1, MOST_BYTES)
    for text in pieces:
        totals.add_lines(text)
    return Reach(*(totals.take_reach() or NOWHERE))


def utc_text(at_ns: int | None) -> str | None:
    """Return a moment as ISO 8601 has it, in UTC; None for none, and beyond the year 9999."""
    if at_ns is None:
        return None
    try:
        moment = datetime.fromtimestamp(0, timezone.utc) + timedelta(microseconds=at_ns // 1000)
    except OverflowError:
        return None
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def local_text(utc: str) -> str:
    """Return a moment as a clock on this machine shows it, with how far that is ahead of UTC."""
    moment = datetime.fromisoformat(utc.removesuffix("Z")).replace(tzinfo=timezone.utc)
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S %z")

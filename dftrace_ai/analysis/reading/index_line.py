"""Index lines: what they say, how the last of a file is found, and when that was recorded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import orjson

from dftrace_ai import _reader, system
from dftrace_ai.analysis.reading.decompression import BrokenBlockError, block_decoder
from dftrace_ai.analysis.reading.reach import (
    LITTLE_BYTES,
    NOWHERE,
    Reach,
    joined,
    reach_of,
    reach_of_lines,
)
from dftrace_ai.analysis.reading.reader import Start, TraceReader
from dftrace_ai.errors import readable
from dftrace_ai.trace_format.header_and_footer import INDEX, OWN_CATEGORY

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import Codec
    from dftrace_ai.trace_format.json_types import EventLine, Json

IndexedSpans = tuple[str, str, int, int, int, int, int, bool, list[int]]
IndexedOthers = tuple[str, str, str, int]
IndexedTrack = tuple[int, int, int, int, list[int]]


class IndexFigures(NamedTuple):
    """What an index line says, taken apart; whether that can be is for others to see."""

    part: int  # number of the file among the parts of its trace
    plain_bytes: int  # plain bytes before the line
    lines: int  # lines before it
    # Of each category and name: these two, count, sum, self, least, greatest (ns), whether what
    # follows are the durations themselves, and these or the counts of the buckets.
    spans: list[IndexedSpans]
    others: list[IndexedOthers]  # phase, category, name and count of other events
    # Pid, tid, end and start of the span that ended last, and the spans that none has enclosed so
    # far, five numbers each.
    tracks: list[IndexedTrack]
    # From when to when the events before it are, as lines have it; None where it does not say so.
    reach: Reach | None


def index_of(line: bytes) -> IndexFigures | None:
    """Return what an index line says; None for any other line."""
    try:
        event = orjson.loads(line)
        if event["name"] != INDEX or event["cat"] != OWN_CATEGORY or event["ph"] != "M":
            return None
        return _taken_apart(event)
    except (KeyError, TypeError, ValueError):
        return None


def _taken_apart(event: EventLine) -> IndexFigures:
    args = event["args"]
    spans = []
    for of in args["spans"]:
        exact = "exact" in of
        numbers = of["exact"] if exact else of["buckets"]
        durations = of["sum_ns"], of["self_ns"], of["min_ns"], of["max_ns"]
        spans.append((of["cat"], of["name"], of["count"], *durations, exact, numbers))
    others = [(of["ph"], of["cat"], of["name"], of["count"]) for of in args["others"]]
    pid = event["pid"]
    tracks = [(pid, of["tid"], of["end_ns"], of["start_ns"], of["spans"]) for of in args["tracks"]]
    part, plain_bytes, lines = args.get("part", 0), args["bytes"], args["lines"]
    if not all(type(number) is int for number in (part, plain_bytes, lines)):
        raise TypeError("not whole numbers")
    longest = max((of["max_ns"] for of in args["spans"]), default=0)
    reach = _reach_of(args, longest)
    return IndexFigures(part, plain_bytes, lines, spans, others, tracks, reach)


def _reach_of(args: dict[str, Json], longest_ns: int) -> Reach | None:
    """Return from when to when events are, of which the longest takes so long."""
    if "first_ns" not in args and "last_ns" not in args:
        return None  # lines of other versions
    first, last = args["first_ns"], args["last_ns"]
    if type(first) is not int or type(last) is not int:
        raise TypeError("no moments")
    if not -(2**63) <= first <= last < 2**63 or last - first < longest_ns:
        raise ValueError("moments that cannot be")
    return Reach(first, last)


# The recorder writes no longer ones.
LONGEST_BYTES = 8 * 1024 * 1024

# In a file without blocks, behind which only the closing line, or a little more, is to come.
TAIL_BYTES = 1024 * 1024

BEGINNING = b'\n{"name":"index","cat":"dftrace",'


class FoundIndex(NamedTuple):
    """An index line, and where in the file that begins of which it does not tell.

    `reach` is of what the line tells of, or of blocks by their heads; None where neither says it.
    """

    figures: IndexFigures
    behind: Start
    reach: Reach | None


def find_index(descriptor: int, codec: Codec, end: int) -> FoundIndex | None:
    """Find the last index line of a file; None where there is none that can be believed.

    What the heads of blocks say is believed as far as one leads to the next, and the line if it
    says of the bytes and lines before it what they say.
    """
    return _in_tail(descriptor, end) if codec == "plain" else _in_block(descriptor, codec, end)


def _in_block(descriptor: int, codec: Codec, end: int) -> FoundIndex | None:
    hops = _reader.hop_blocks(descriptor, end)
    *_, index = hops
    if index is None:
        return None
    place, packed_bytes, plain_before, lines_before = index
    if packed_bytes > LONGEST_BYTES:
        return None
    text = _text(codec, system.read_at(descriptor, packed_bytes, place))
    if text is None or text.find(b"\n") != len(text) - 1:
        return None
    figures = index_of(text)
    if figures is None or (figures.plain_bytes, figures.lines) != (plain_before, lines_before):
        return None
    behind = Start(place + packed_bytes, plain_before + len(text), lines_before + 1)
    return FoundIndex(figures, behind, figures.reach or reach_of(hops, descriptor, codec))


def _text(codec: Codec, packed: bytes) -> bytes | None:
    """Return the text of one block that takes all of `packed`; None where that is none."""
    decoder = block_decoder(codec)
    text = bytearray()
    try:
        for piece in decoder.pieces(packed):
            text += piece
            if len(text) > LONGEST_BYTES:
                return None
    except BrokenBlockError:
        return None
    return bytes(text) if decoder.ended and not decoder.unused else None


def _in_tail(descriptor: int, end: int) -> FoundIndex | None:
    width = min(TAIL_BYTES, end)
    tail = system.read_at(descriptor, width, end - width)
    begun = tail.rfind(BEGINNING) + 1
    ended = tail.find(b"\n", begun) + 1
    if begun == 0 or ended == 0:
        return None
    figures = index_of(tail[begun:ended])
    if figures is None or figures.plain_bytes != end - width + begun:
        return None
    place = end - width + ended
    begins = end - width + begun
    reach = figures.reach
    if reach is None and begins <= LITTLE_BYTES:
        reach = reach_of_lines([system.read_at(descriptor, begins, 0)])
    return FoundIndex(figures, Start(place, place, figures.lines + 1), reach)


def recorded(trace: Trace) -> Reach | None:
    """Return from when to when the events of a trace reach, since 1970.

    None where more of a long file would have to be read.
    """
    file = trace.file
    with readable(trace), file.opened() as raw:
        end = os.fstat(raw.fileno()).st_size
        reach, behind = _told(raw.fileno(), file.codec, end)
    if reach is None or end - behind.file_bytes > LITTLE_BYTES:
        return None
    texts = TraceReader(file).texts(behind, end) if end > behind.file_bytes else ()
    found = joined([reach, reach_of_lines(texts)])
    return found and found.since_1970(trace)


def _told(descriptor: int, codec: Codec, end: int) -> tuple[Reach | None, Start]:
    """Return what the heads of blocks or an index line say, and behind which place nothing does."""
    nothing = NOWHERE, Start(0, 0, 0)
    if codec == "plain":
        found = find_index(descriptor, codec, end)
        return (found.reach, found.behind) if found else nothing
    hops = _reader.hop_blocks(descriptor, end)
    return reach_of(hops, descriptor, codec), Start(*hops[:3])

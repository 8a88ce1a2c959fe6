"""The index line: what the lines before it add up to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import orjson

from dftrace_ai.analysis.reading.indexed.reach import Reach
from dftrace_ai.trace_format.header_and_footer import INDEX, OWN_CATEGORY

if TYPE_CHECKING:
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["IndexFigures", "IndexedOthers", "IndexedSpans", "IndexedTrack", "index_of"]

IndexedSpans = tuple[str, str, int, int, int, int, int, bool, list[int]]
IndexedOthers = tuple[str, str, str, int]
IndexedTrack = tuple[int, int, int, int, list[int]]


class IndexFigures(NamedTuple):
    """What an index line says, taken apart; whether that can be is for others to see.

    Attributes:
        part: number of the file among the parts of its trace.
        plain_bytes: plain bytes before the line.
        lines: lines before it.
        spans: of each category and name: these two, count, sum, self, least, greatest (ns), whether
            what follows are the durations themselves, and these or the counts of the buckets.
        others: phase, category, name and count of other events.
        tracks: pid, tid, end and start of the span that ended last, and the spans that none has
            enclosed so far, five numbers each.
        reach: from when to when the events before it are, as lines have it; None where it does not
            say so.
    """

    part: int
    plain_bytes: int
    lines: int
    spans: list[IndexedSpans]
    others: list[IndexedOthers]
    tracks: list[IndexedTrack]
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


def _taken_apart(event: JsonObject) -> IndexFigures:
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


def _reach_of(args: JsonObject, longest_ns: int) -> Reach | None:
    """Return from when to when events are, of which the longest takes so long."""
    if "first_ns" not in args and "last_ns" not in args:
        return None  # lines of other versions
    first, last = args["first_ns"], args["last_ns"]
    if type(first) is not int or type(last) is not int:
        raise TypeError("no moments")
    if not -(2**63) <= first <= last < 2**63 or last - first < longest_ns:
        raise ValueError("moments that cannot be")
    return Reach(first, last)

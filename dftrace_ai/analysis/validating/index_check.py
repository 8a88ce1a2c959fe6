"""What index lines and heads of blocks say, held against the lines and blocks they tell of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.analysis.reading.indexed.index_line import index_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.reading.indexed.index_line import (
        IndexedOthers,
        IndexedSpans,
        IndexedTrack,
        IndexFigures,
    )

__all__ = ["FoundFigures", "block_message", "figure_faults", "index_faults"]

SAID_BY_BLOCKS = ("packed bytes", "plain bytes", "lines", "first time (ns)", "last time (ns)")


class FoundFigures(NamedTuple):
    """What lines add up to.

    Attributes:
        spans: as `IndexFigures` has them, and so are the others and the tracks.
        reach: first and last moment of their events, ns as they have it; None without any.
        in_order: on each track spans stand in the order of their ends. Where they do not, what
            lies inside of what is not known here; a thread may have had the number of another.
        from_beginning: what the parts of the trace before this file hold is known, too.
    """

    spans: list[IndexedSpans]
    others: list[IndexedOthers]
    tracks: list[IndexedTrack]
    reach: tuple[int, int] | None
    in_order: bool
    from_beginning: bool


def block_message(what: int, said: int, found: int) -> str:
    """Return in which way a block is not what its head says.

    Args:
        what: which of the figures, as the native reader numbers them.
        said: by the head.
        found: in the block.
    """
    if what == len(SAID_BY_BLOCKS):
        kinds = ("lines", "an index line and nothing else")
        return f"the head of the block says that it holds {kinds[said]}, which is not so"
    return f"the head of the block says {SAID_BY_BLOCKS[what]} {said}, the block has {found}"


def index_faults(
    line: bytes, lines: int, plain_bytes: int, part: int, found: FoundFigures
) -> Iterator[str]:
    """Yield in which way an index line does not say what the lines before it hold.

    Args:
        line: the index line.
        lines: how many come before it.
        plain_bytes: bytes of the text before it.
        part: number of the file among the parts of its trace.
        found: what the lines before it add up to.
    """
    said = index_of(line)
    if said is None:
        yield "the index is none that readers take: its times cannot be, or durations are missing"
        return
    for what, told, there in (
        ("lines", said.lines, lines),
        ("bytes", said.plain_bytes, plain_bytes),
        ("part", said.part, part),
    ):
        if told != there:
            yield f"the index says {what} {told}, there are {there}"
    if said.reach:
        moments = found.reach or (None, None)
        for what, told, real in zip(("first_ns", "last_ns"), said.reach, moments, strict=True):
            if told != real:
                yield f"the index says {what} {told}, of the lines before it it is {real}"
    own = found.in_order and found.from_beginning
    yield from figure_faults(said.spans, said.others, found.spans, found.others, own=own)
    if found.in_order and found.from_beginning:
        yield from _tracks(said, found)


def figure_faults(
    spans: list[IndexedSpans],
    others: list[IndexedOthers],
    found_spans: list[IndexedSpans],
    found_others: list[IndexedOthers],
    *,
    own: bool = True,
) -> Iterator[str]:
    """Yield in which way figures of spans and other events are not those of lines.

    Args:
        spans: what is said of spans, as `IndexFigures` has it.
        others: what is said of other events.
        found_spans: what the lines add up to.
        found_others: likewise.
        own: it is known what lies inside of what.
    """
    yield from _spans(spans, found_spans, own=own)
    yield from _counts(others, found_others)


def _spans(said: list[IndexedSpans], found: list[IndexedSpans], *, own: bool) -> Iterator[str]:
    there = {row[:2]: row for row in found}
    if len({row[:2] for row in said}) != len(said):
        yield "the index has a name twice"
    for row in said:
        of = f"spans {row[0]} {row[1]}"
        real = there.pop(row[:2], None)
        if real is None:
            yield f"the index has {of}, the lines before it have none"
            continue
        for name, at in (("count", 2), ("sum_ns", 3), ("self_ns", 4), ("min_ns", 5), ("max_ns", 6)):
            if row[at] != real[at] and (own or name != "self_ns"):
                yield f"the index says {name} {row[at]} of {of}, the lines before it {real[at]}"
        if row[7] != real[7] or _durations(row) != _durations(real):
            yield f"the index has other durations of {of} than the lines before it"
    for cat, name in there:
        yield f"the index has no spans {cat} {name}, the lines before it have"


def _durations(row: IndexedSpans) -> list[int]:
    """Return durations in any order as they are told, and buckets in theirs."""
    exact, numbers = row[7:]
    return sorted(numbers) if exact else numbers


def _counts(said: list[IndexedOthers], found: list[IndexedOthers]) -> Iterator[str]:
    told, there = _by_kind(said), _by_kind(found)
    if len(told) != len(said):
        yield "the index has other events of a name twice"
    for kind in told | there:
        if told.get(kind, 0) != there.get(kind, 0):
            of = " ".join(kind)
            yield f"the index says count {told.get(kind, 0)} of {of}, it is {there.get(kind, 0)}"


def _by_kind(others: list[IndexedOthers]) -> dict[tuple[str, str, str], int]:
    return {(ph, cat, name): count for ph, cat, name, count in others}


def _tracks(said: IndexFigures, found: FoundFigures) -> Iterator[str]:
    """Those that are not told are of threads that have ended."""
    there = {row[:2]: row[2:] for row in found.tracks}
    for pid, tid, end_ns, start_ns, spans in said.tracks:
        real = there.get((pid, tid))
        if real is None or real[:2] != (end_ns, start_ns) or not _is_end_of(spans, real[2]):
            yield f"the index says of tid {tid} what its spans before it are not"


def _is_end_of(told: list[int], there: list[int]) -> bool:
    """Return whether some groups are the last ones of all.

    The first of them may be a part of one, of a thread that had the number of one before it.
    """
    if not told:
        return True
    if len(told) > len(there) or told[5:] != there[len(there) - len(told) + 5 :]:
        return False
    first, *rest = told[:5]
    real_first, *real_rest = there[len(there) - len(told) :][:5]
    same = rest[:2] == real_rest[:2] and rest[3] == real_rest[3]
    return same and first >= real_first and rest[2] <= real_rest[2]

"""What index lines, heads of blocks and index files say, held against what they tell of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.analysis.reading.identity import recordings_of
from dftrace_ai.analysis.reading.indexed.clocks import NEVER
from dftrace_ai.analysis.reading.indexed.index_file import IndexFileError, index_path, read_index
from dftrace_ai.analysis.reading.indexed.index_line import index_of
from dftrace_ai.analysis.summary.indexing import figures_of
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dftrace_ai.analysis.reading.indexed.index_file import ProcessFigures
    from dftrace_ai.analysis.reading.indexed.index_line import (
        IndexedOthers,
        IndexedSpans,
        IndexedTrack,
        IndexFigures,
    )
    from dftrace_ai.analysis.reading.trace import Trace

__all__ = ["FoundFigures", "block_message", "index_faults", "index_file_faults"]

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
    """Return in which way a block is not what its head says; `what` as the native reader has it."""
    if what == len(SAID_BY_BLOCKS):
        kinds = ("lines", "an index line and nothing else")
        return f"the head of the block says that it holds {kinds[said]}, which is not so"
    return f"the head of the block says {SAID_BY_BLOCKS[what]} {said}, the block has {found}"


def index_faults(
    line: bytes, lines: int, plain_bytes: int, part: int, found: FoundFigures
) -> Iterator[str]:
    """Yield in which way an index line does not say what the lines before it in its part hold."""
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
    yield from _spans(said.spans, found.spans, own=own)
    yield from _counts(said.others, found.others)
    if found.in_order and found.from_beginning:
        yield from _tracks(said, found)


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


def index_file_faults(traces: Iterable[Trace]) -> Iterator[tuple[str, list[str], str | None]]:
    """Yield what is found of each index file beside traces.

    That is its path, in which way it does not say what the lines add up to, and why it was not held
    against them; None where it was.
    """
    for parts in recordings_of(traces).values():
        path = str(index_path(parts))
        try:
            said = read_index(parts)
            if said is None:
                continue
            yield path, list(_differences(said, figures_of(parts))), None
        except IndexFileError as error:
            yield path, [], f"not used, and not held against the lines: {error}"
        except (OSError, TraceError) as error:
            yield path, [], f"not held against the lines: {error}"


def _differences(said: ProcessFigures, found: ProcessFigures) -> Iterator[str]:
    for what in ("lines", "without_duration", "unreadable", "long_lines"):
        told, there = getattr(said, what), getattr(found, what)
        if told != there:
            yield f"the index says {what} {told}, there are {there}"
    yield from _spans(said.spans, found.spans, own=True)
    yield from _counts(said.others, found.others)
    for number, (told, there) in enumerate(zip(said.files, found.files, strict=True), 1):
        if (told.tear, told.end) != (there.tear, there.end):
            yield f"the index does not say how trace {number} of the process ends"
        times_differ = told.reach is not None and told.reach != there.reach
        if times_differ or told.clock not in {NEVER, there.clock}:
            yield f"the index says other times of trace {number} of the process than its events"

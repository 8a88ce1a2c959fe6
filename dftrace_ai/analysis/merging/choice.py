"""What of many ranks is shown: what was asked for, else as much as a viewer takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.errors import DftraceError, TraceError, readable
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.reading.trace import Trace

RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)

# So many ranks no job has; whoever names more has mistyped.
MOST_RANKS: Final = 1_000_000

MOST_EVENTS: Final = 2_000_000
"""Perfetto takes 10 us of a processor and 340 bytes for each: of more, longer than people wait."""

BEYOND_ALL: Final = 10_000_000
"""So many spans fill the 4 GiB that a page of it has."""

MOST_WHOLE: Final = 16

# What an event takes where its file does not say how many there are: compressed, and as it is.
PACKED_BYTES: Final = 28
PLAIN_BYTES: Final = 200

# About which share of the events steps and collectives are.
STEPS_SHARE: Final = 0.5


class Choice(NamedTuple):
    """What is shown."""

    # Attributes:
    #     files: of which anything is.
    #     steps_only: those of which it is steps and collectives.
    #     share: of the time that all files reach over, the part that would not be too much.
    #     notes: what is left out, and how to have it; one line each.

    files: tuple[Trace, ...]
    steps_only: frozenset[Path] = frozenset()
    share: float = 1.0
    notes: tuple[str, ...] = ()


def parsed_ranks(text: str) -> tuple[range, ...]:
    """Return the ranks that a text such as ``0,4-7`` names."""
    ranges = []
    for part in text.replace(" ", "").split(","):
        match = RANGE.fullmatch(part)
        first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
        if not int(first) <= int(last) < MOST_RANKS:
            raise DftraceError(f"{text!r} names no ranks; what is meant looks like 0,4-7")
        ranges.append(range(int(first), int(last) + 1))
    return tuple(ranges)


def of_ranks(traces: Iterable[Trace], wanted: Sequence[range]) -> tuple[Trace, ...]:
    """Return the traces of these ranks, in the order of the ranks."""
    # Processes that a rank has started, as the workers of its loader are, bear its number.
    ranks = [(trace, trace.header.rank if trace.header else None) for trace in traces]
    known = [(trace, rank) for trace, rank in ranks if rank is not None]
    chosen = [(rank, trace) for trace, rank in known if any(rank in part for part in wanted)]
    if not chosen:
        there = ", ".join(map(str, sorted({rank for _, rank in known}))) or "none is named"
        raise TraceError(f"no trace is of a rank that was asked for; there: {there}")
    return tuple(trace for _, trace in sorted(chosen, key=lambda found: found[0]))


def asked_for(
    files: Sequence[Trace], ranks: Sequence[range] | None, *, steps_and_calls: bool
) -> Choice:
    """Return what was asked for: these ranks; with `steps_and_calls` of all others those alone."""
    chosen = tuple(files) if ranks is None else of_ranks(files, ranks)
    if not steps_and_calls:
        return Choice(chosen)
    whole = frozenset() if ranks is None else {file.path for file in chosen}
    rest = frozenset(file.path for file in files if file.path not in whole)
    return Choice(tuple(files), rest)


def events_in(files: Iterable[Trace]) -> int:
    """Return about how many events files hold, by what they say of themselves."""
    total = 0
    for file in files:
        try:
            footer = file.end.footer
            if footer is not None and footer.events:
                total += footer.events
                continue
            with readable(file):
                size = file.file.content.stat().st_size
        except TraceError:
            continue  # whoever reads it tells
        total += size // (PLAIN_BYTES if file.file.codec == "plain" else PACKED_BYTES)
    return total


def as_much_as_a_viewer_takes(
    files: Sequence[Trace], late: Sequence[int] = (), *, window: bool = False
) -> Choice:
    """Return what is shown where nothing was asked for."""
    # Up to `MOST_EVENTS` that is all. Of more it is the first rank, those that are `late`, and one
    # each host, `MOST_WHOLE` at most, and of the others steps and collectives; of a part of the tim
    # where that is too much as well.
    #
    # Args:
    #     files: those of the traces.
    #     late: ranks for which others wait, the latest first.
    #     window: a part of the time was asked for already.
    events = events_in(files)
    if events <= MOST_EVENTS or window:
        return Choice(tuple(files))
    told = f"{events:,} events are more than a viewer takes ({MOST_EVENTS:,})"
    ranks = sorted({file.said.rank for file in files if file.said.rank is not None})
    if len(ranks) < 2:
        share = MOST_EVENTS / events
        return Choice(
            tuple(files),
            share=share,
            notes=(f"{told}: shown is a part of the time; --all shows all, --steps A:B others",),
        )
    whole = _whole(files, ranks, late)
    chosen = tuple(file for file in files if file.said.rank in whole)
    rest = tuple(file for file in files if file.said.rank not in whole)
    held = events_in(chosen) + STEPS_SHARE * events_in(rest)
    share = min(1.0, MOST_EVENTS / held)
    others = f", and steps and collectives of {counted(len(ranks) - len(whole), 'other')}"
    part = " in a part of the time" if share < 1 else ""
    note = (
        f"{told}: shown {'is' if len(whole) == 1 else 'are'} {counted(len(whole), 'rank')} whole"
        f"{others if rest else ''}{part}; --all shows all, --ranks and --steps choose"
    )
    return Choice(tuple(files), frozenset(file.path for file in rest), share, (note,))


def _whole(files: Sequence[Trace], ranks: Sequence[int], late: Sequence[int]) -> set[int]:
    hosts: dict[object, int] = {}
    events: dict[int, int] = {}
    for file in sorted(files, key=lambda file: file.said.rank or 0):
        if (rank := file.said.rank) is not None:
            hosts.setdefault(file.said.boot_id or file.said.host, rank)
            events[rank] = events.get(rank, 0) + events_in([file])
    whole: set[int] = set()
    room = MOST_EVENTS / 2
    for rank in dict.fromkeys((ranks[0], *late, *hosts.values())):
        if rank in events and (events[rank] <= room or not whole) and len(whole) < MOST_WHOLE:
            whole.add(rank)
            room -= events[rank]
    return whole

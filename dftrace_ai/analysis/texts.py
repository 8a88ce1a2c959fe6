"""How times, shares, bytes, ranks and parts of a step are written for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dftrace_ai.trace_format.running import told_of
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dftrace_ai.trace_format.running import RunningProcess

NAMES: Final = {
    "wait": "loader wait",
    "data": "data work in the loop",
    "transfer": "copies to the device",
    "comm": "communication",
    "compute": "other computation",
    "gpu": "GPU",
    "launch": "launching kernels",
    "other": "other spans",
    "none": "not annotated",
}
BYTES: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
UNITS: Final = ((1.0, "ns"), (1e3, "us"), (1e6, "ms"))
ARGUMENT_LETTERS: Final = 60
"""So many letters of a name or an argument are shown."""

GPU_UNSEEN: Final = "the GPU (times are the host's)"
"""What is said where nothing of a GPU was recorded."""

# Narrower intervals are told to a tenth of a percent.
NARROW: Final = 0.02
MOST_RANKS: Final = 8

# Of a verdict. What it stands on comes last, and is not cut off.
MOST_LINES: Final = 15
MOST_NOTES: Final = 2
LAST_ROWS: Final = frozenset({"run", "judged", "unseen", "note"})


def part_name(part: str) -> str:
    """Return what people are told of a part of a step."""
    return NAMES.get(part, part)


YEAR_NS: Final = 365 * 86_400 * 1_000_000_000


def time_text(ns: float) -> str:
    """Return nanoseconds in the unit that fits: ``20.9 ms``."""
    for size, unit in UNITS:
        value = float(f"{ns / size:.3g}")
        if value < 1000:
            return f"{value:g} {unit}"
    seconds = ns / 1e9
    return f"{seconds:.3g} s" if seconds < 999.5 else f"{seconds:,.0f} s"


def lasted_text(ns: float) -> str:
    """Return how long a run lasted: ``lasted 2.5 s``; where that is years, that it cannot be."""
    if ns < YEAR_NS:
        return f"lasted {time_text(ns)}"
    years = ns / YEAR_NS
    return f"its events lie {years:.1f} years apart, so times of some of them cannot be"


def bytes_text(count: float) -> str:
    """Return bytes in the unit that fits: ``1.21 GB``."""
    for size, unit in BYTES:
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def few(ranks: Iterable[int]) -> str:
    """Return the numbers of ranks, the first of many: ``0, 1, 2 and 61 more``."""
    ordered = sorted(ranks)
    more = len(ordered) - MOST_RANKS
    return ", ".join(map(str, ordered[:MOST_RANKS])) + (f" and {more:,} more" if more > 0 else "")


def percent(share: float) -> str:
    """Return a share as people read it: ``20 %``."""
    return f"{100 * share:,.0f} %"


def share_text(share: float, low: float, high: float) -> str:
    """Return a share with its interval; alone where it is counted and not estimated."""
    if low == high:
        return percent(share)
    digits = 0 if high - low >= NARROW else 1
    told, *ends = (f"{100 * number:,.{digits}f}" for number in (share, low, high))
    return f"{told} % ({' to '.join(ends)} %)"


def note_rows(running: Sequence[RunningProcess], notes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield rows of processes that still run, and of the first notes."""
    for note in (*told_of(running), *notes[:MOST_NOTES]):
        yield "note", note
    if len(notes) > MOST_NOTES:
        yield "note", f"{counted(len(notes) - MOST_NOTES, 'more note')}; --json has all"


def in_lines(head: Iterable[str], rows: Iterable[tuple[str, str]]) -> list[str]:
    """Return a verdict in fifteen lines at most."""
    first = list(head)
    last: list[str] = []
    rest: list[str] = []
    for name, text in rows:
        (last if name in LAST_ROWS else rest).append(f"  {name:<10}{text}")
    room = max(MOST_LINES - len(first) - len(last), 0)
    return [*first, *rest[:room], *last]

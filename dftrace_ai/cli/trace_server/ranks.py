"""Which ranks' files are shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dftrace_ai.errors import DftraceError, TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dftrace_ai.analysis.reading.trace import Trace

__all__ = ["of_ranks", "parsed_ranks"]

RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)

# So many ranks no job has; whoever names more has mistyped.
MOST_RANKS = 1_000_000


def parsed_ranks(text: str) -> tuple[range, ...]:
    """Return the ranks that a text such as ``0,4-7`` names.

    Raises:
        DftraceError: it names none.

    Example::

        assert parsed_ranks("0,4-7") == (range(0, 1), range(4, 8))
    """
    ranges = []
    for part in text.replace(" ", "").split(","):
        match = RANGE.fullmatch(part)
        first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
        if not int(first) <= int(last) < MOST_RANKS:
            raise DftraceError(f"{text!r} names no ranks; what is meant looks like 0,4-7")
        ranges.append(range(int(first), int(last) + 1))
    return tuple(ranges)


def of_ranks(traces: Iterable[Trace], wanted: Sequence[range]) -> tuple[Trace, ...]:
    """Return the traces of these ranks, in the order of the ranks.

    Processes that a rank has started, as the workers of its loader are, bear its number.

    Raises:
        TraceError: there is none; its message names the ranks that there are.

    Example::

        of_ranks(open_traces(["out/"]), parsed_ranks("0,4-7"))
    """
    ranks = [(trace, trace.header.rank if trace.header else None) for trace in traces]
    known = [(trace, rank) for trace, rank in ranks if rank is not None]
    chosen = [(rank, trace) for trace, rank in known if any(rank in part for part in wanted)]
    if not chosen:
        there = ", ".join(map(str, sorted({rank for _, rank in known}))) or "none is named"
        raise TraceError(f"no trace is of a rank that was asked for; there: {there}")
    return tuple(trace for _, trace in sorted(chosen, key=lambda found: found[0]))

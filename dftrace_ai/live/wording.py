"""How people are told of ranks, spans of time and open spans."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from dftrace_ai.trace_format.names_and_phases import loop_part, without_loop_part
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dftrace_ai.live.model import OpenSpanStatus

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400


def ranges_text(numbers: Iterable[int]) -> str:
    """Return numbers as ranges: ``ranges_text([0, 1, 2, 5]) == "0-2, 5"``."""
    parts = []
    for _, run in groupby(enumerate(sorted(set(numbers))), lambda pair: pair[1] - pair[0]):
        row = [number for _, number in run]
        parts.append(f"{row[0]}-{row[-1]}" if len(row) > 1 else str(row[0]))
    return ", ".join(parts)


def processes_text(count: int) -> str:
    """Return ``1 process``, ``2 processes``."""
    return f"{count:,} process{'' if count == 1 else 'es'}"


def age_text(seconds: float) -> str:
    """Return a length of time in about four characters: ``3.4 ms``, ``61 s``, ``2:05 h``."""
    if seconds < 0.0995:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 10 * MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < HOUR_S:
        return f"{seconds / MINUTE_S:.0f} min"
    if seconds < 2 * DAY_S:
        hours, rest = divmod(round(seconds / MINUTE_S), 60)
        return f"{hours}:{rest:02} h"
    return f"{seconds / DAY_S:.1f} days"


def rate_text(per_second: float) -> str:
    """Return a number of events a second in at most five characters: ``12.3k``."""
    for limit, unit, suffix in ((9_999.5, 1.0, ""), (999_950.0, 1e3, "k")):
        if per_second < limit:
            digits = 0 if not suffix and (per_second >= 99.5 or per_second == 0.0) else 1
            return f"{per_second / unit:.{digits}f}{suffix}"
    return f"{per_second / 1e6:.1f}M"


def path_text(path: Sequence[OpenSpanStatus], width: int | None = None) -> str:
    """Return open spans from the outermost to the innermost: ``train > epoch > comm.send``.

    In a width, outer spans are left out, then the end is cut.
    """
    if not path:
        return ""
    # The body of a loop is called after it, and what is done there is work of no category.
    inner = path[-1]
    body = loop_part(inner.name) == "body"
    words = [without_loop_part(span.name) for span in path[:-1]]
    words.append(without_loop_part(inner.name) if body else inner.label)
    text = " > ".join(words)
    if width is None or len(text) <= width:
        return text
    while len(words) > 1:
        del words[0]
        text = " > ".join(["…", *words])
        if len(text) <= width:
            return text
    return words[0] if len(words[0]) <= width else words[0][: max(width - 1, 0)] + "…"


def others_text(run: str, others: int) -> str:
    """Return which run of several is looked at; empty for the only one."""
    return f"run {run}; {counted(others, 'other')}: --run ID, or --run all" if others else ""

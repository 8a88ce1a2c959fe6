"""From when to when a file was recorded: by what it says of itself, and a little of its lines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dftrace_ai import _reader
from dftrace_ai.analysis.reading.indexed.clocks import NEVER, SetBack, has_clock_in_lines
from dftrace_ai.analysis.reading.indexed.index_search import find_index
from dftrace_ai.analysis.reading.indexed.reach import (
    LITTLE_BYTES,
    MOST_BYTES,
    NOWHERE,
    Reach,
    joined,
    reach_of,
    reach_of_lines,
)
from dftrace_ai.analysis.reading.reader import LongLine, Start, TraceReader
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import Codec

__all__ = ["clock_in_lines", "recorded"]


def recorded(trace: Trace) -> Reach | None:
    """Return from when to when the events of a trace reach, since 1970.

    None where more of a long file would have to be read.
    """
    file = trace.file
    try:
        with file.opened() as raw:
            end = os.fstat(raw.fileno()).st_size
            reach, behind = _told(raw.fileno(), file.codec, end)
    except OSError as error:
        raise TraceError(f"{trace}: cannot be read: {error.strerror}") from error
    if reach is None or end - behind.file_bytes > LITTLE_BYTES:
        return None
    texts = TraceReader(file).texts(behind, end) if end > behind.file_bytes else ()
    found = joined([reach, reach_of_lines(texts)])
    return found and found.since_1970(trace)


def clock_in_lines(trace: Trace, most_bytes: int | None = None) -> SetBack:
    """Return how the clock was set back by which a file was recorded, by reading its lines.

    `NEVER` where these do not tell of it, or are more than `most_bytes`.
    """
    if not has_clock_in_lines(trace):
        return NEVER
    file = trace.file
    try:
        if most_bytes is not None and file.content.stat().st_size > most_bytes:
            return NEVER
    except OSError as error:
        raise TraceError(f"{trace}: cannot be read: {error.strerror}") from error
    totals = _reader.Totals(1, MOST_BYTES)
    in_order = False
    while not in_order:  # once more where it was not
        for text in TraceReader(file).texts():
            if not isinstance(text, LongLine):
                totals.add_lines(text if text.endswith(b"\n") else text + b"\n")
        in_order = not totals.end_process()
    return SetBack(*totals.clock())


def _told(descriptor: int, codec: Codec, end: int) -> tuple[Reach | None, Start]:
    """Return what the heads of blocks or an index line say, and behind which place nothing does."""
    nothing = NOWHERE, Start(0, 0, 0)
    if codec == "plain":
        found = find_index(descriptor, codec, end)
        return (found.reach, found.behind) if found else nothing
    hops = _reader.hop_blocks(descriptor, end)
    return reach_of(hops, descriptor, codec), Start(*hops[:3])

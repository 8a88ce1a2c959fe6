"""From when to when a file was recorded: by what it says of itself, and a little of its lines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dftrace_ai.analysis.reading.indexed.finding import find_index
from dftrace_ai.analysis.reading.indexed.reach import (
    LITTLE_BYTES,
    NOWHERE,
    Reach,
    joined,
    reach_of,
    reach_of_lines,
)
from dftrace_ai.analysis.reading.reader import Start, TraceReader
from dftrace_ai.analysis.reading.regular_file import open_regular
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import Codec

__all__ = ["recorded"]


def recorded(trace: Trace) -> Reach | None:
    """Return from when to when the events of a trace reach, without reading all of a long file.

    Args:
        trace: the trace.

    Returns:
        Times since 1970; None where more would have to be read.

    Raises:
        TraceError: the file cannot be read.

    Example::

        reach = recorded(trace)
        if reach:
            print(reach.length_ns, "ns from the first event to the last")
    """
    file = trace.file
    try:
        with open_regular(file.content) as raw:
            end = os.fstat(raw.fileno()).st_size
            reach, behind = _told(raw.fileno(), file.codec, end)
    except OSError as error:
        raise TraceError(f"{trace}: cannot be read: {error.strerror}") from error
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
    try:
        from dftrace_ai import _reader
    except ImportError:
        return nothing  # then that is read which is short
    hops = _reader.hop_blocks(descriptor, end)
    return reach_of(hops, descriptor, codec), Start(*hops[:3])
